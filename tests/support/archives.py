"""Makes small WARC, WAT, gzip and zstd files for the tests, and reads them back."""

from __future__ import annotations

import gzip
import io
import json
import zlib

import zstandard

from opicflow.connectors.files.edges import read_edges
from opicflow.connectors.files.opening import Block, Damage, decompressed
from opicflow.connectors.files.warc import read_arc, read_warc, read_wat
from opicflow.schemas.crawl_events import CrawlEvent, Reject

READERS = {"warc": read_warc, "wat": read_wat, "arc": read_arc, "edges": read_edges}


def record(body: bytes, kind: str = "response", url: str = "http://a.example/", **fields: str) -> bytes:
    """Return a WARC record. `fields` are added to its header, or replace the default ones: `WARC_Date="…"`."""
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
    """Return an HTTP response with HTML."""
    head = {"Content-Type": "text/html", **{name.replace("_", "-"): value for name, value in fields.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {status} So\r\n{lines}\r\n".encode() + body


def page(number: int, filler: bytes = b"") -> bytes:
    """Return the record of a page with one link."""
    return record(response(b'<a href="/%d">x</a>' % (number + 1) + filler), url=f"http://a.example/{number}")


def metadata(response_metadata: object, **head: str) -> bytes:
    """Return a record of a WAT file."""
    header = {"WARC-Type": "response", "WARC-Target-URI": "http://a.example/d/", **head}
    payload = {"HTTP-Response-Metadata": response_metadata}
    return record(
        json.dumps({"Envelope": {"WARC-Header-Metadata": header, "Payload-Metadata": payload}}).encode(), "metadata"
    )


def gz(*members: bytes) -> bytes:
    """Return a gzip file with a member for each argument."""
    return b"".join(gzip.compress(member, mtime=0) for member in members)


def zst(*frames: bytes) -> bytes:
    """Return a zstd file with a frame for each argument, with checksums."""
    return b"".join(zstandard.ZstdCompressor(write_checksum=True).compress(frame) for frame in frames)


def deflated(body: bytes) -> bytes:
    """Return raw deflate data, without a zlib header."""
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(body) + compressor.flush()


def blocks(data: bytes, start: int = 0, block_bytes: int = 1 << 16) -> list[Block | Damage]:
    """Return the blocks of a file."""
    return list(decompressed(io.BytesIO(data), start=start, block_bytes=block_bytes))


def read(
    data: bytes, kind: str = "warc", start: int = 0, block_bytes: int = 1 << 16
) -> list[tuple[int, CrawlEvent | Reject]]:
    """Return the items that a reader yields for a file."""
    return list(READERS[kind](decompressed(io.BytesIO(data), start=start, block_bytes=block_bytes), "f"))


def events(data: bytes, kind: str = "warc") -> list[CrawlEvent]:
    """Return the events of a file, and assert that it has no rejects."""
    found = [item for _, item in read(data, kind)]
    assert not [item for item in found if isinstance(item, Reject)], found
    return [item for item in found if isinstance(item, CrawlEvent)]
