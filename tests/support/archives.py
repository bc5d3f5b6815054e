"""Makes small WARC, WAT, gzip and zstd files for the tests, and reads them back."""

from __future__ import annotations

import gzip
import io
import json
import zlib

import zstandard

from opicflow.connectors.files.edges import read_edges
from opicflow.connectors.files.opening import Block, Damage, decompressed
from opicflow.connectors.files.warc import read_warc, read_wat
from opicflow.schemas.crawl_events import CrawlEvent, Reject

READERS = {"warc": read_warc, "wat": read_wat, "edges": read_edges}


def record(body: bytes, kind: str = "response", url: str = "http://a.example/", **fields: str) -> bytes:
    """A WARC record; `WARC_Date="…"` is a field of its head, and replaces the one it would have."""
    content = {
        "response": "application/http; msgtype=response",
        "resource": "text/html",
        "metadata": "application/json",
    }
    head = {
        "WARC-Type": kind,
        "WARC-Target-URI": url,
        "WARC-Date": "2020-01-02T03:04:05Z",
        "Content-Type": content.get(kind, "application/http"),
        "Content-Length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items() if value)
    return f"WARC/1.0\r\n{lines}\r\n".encode() + body + b"\r\n\r\n"


def response(body: bytes, status: int = 200, **fields: str) -> bytes:
    """An HTTP response of HTML."""
    head = {"Content-Type": "text/html", **{name.replace("_", "-"): value for name, value in fields.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {status} So\r\n{lines}\r\n".encode() + body


def page(number: int, filler: bytes = b"") -> bytes:
    """The record of a page with a link."""
    return record(response(b'<a href="/%d">x</a>' % (number + 1) + filler), url=f"http://a.example/{number}")


def metadata(response_metadata: object, **head: str) -> bytes:
    """A record of a WAT file."""
    header = {"WARC-Type": "response", "WARC-Target-URI": "http://a.example/d/", **head}
    payload = {"HTTP-Response-Metadata": response_metadata}
    return record(
        json.dumps({"Envelope": {"WARC-Header-Metadata": header, "Payload-Metadata": payload}}).encode(), "metadata"
    )


def gz(*members: bytes) -> bytes:
    """A gzip file of these members."""
    return b"".join(gzip.compress(member, mtime=0) for member in members)


def zst(*frames: bytes) -> bytes:
    """A zstd file of these frames, with checksums."""
    return b"".join(zstandard.ZstdCompressor(write_checksum=True).compress(frame) for frame in frames)


def deflated(body: bytes) -> bytes:
    """Raw deflate, without zlib's head."""
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(body) + compressor.flush()


def blocks(data: bytes, start: int = 0, block_bytes: int = 1 << 16) -> list[Block | Damage]:
    """What `decompressed` gives."""
    return list(decompressed(io.BytesIO(data), start=start, block_bytes=block_bytes))


def read(
    data: bytes, kind: str = "warc", start: int = 0, block_bytes: int = 1 << 16
) -> list[tuple[int, CrawlEvent | Reject]]:
    """What a reader gives of a file."""
    return list(READERS[kind](decompressed(io.BytesIO(data), start=start, block_bytes=block_bytes), "f"))


def events(data: bytes, kind: str = "warc") -> list[CrawlEvent]:
    """The events of a file that has no rejects."""
    found = [item for _, item in read(data, kind)]
    assert not [item for item in found if isinstance(item, Reject)], found
    return [item for item in found if isinstance(item, CrawlEvent)]
