"""The container of Avro files: its head, and its blocks, unpacked.

It is read here, and not by fastavro, so that reading can continue at the next sync marker after a damaged block.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple

import fastavro
import orjson
import zstandard
from fastavro.schema import to_parsing_canonical_form

from opicflow.connectors.files.growing_text import GrowingText
from opicflow.connectors.files.opening import Block, Damage
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, Reason
from opicflow.schemas.errors import UserError
from opicflow.schemas.published_schemas import breaks, schema
from opicflow.schemas.varint import MOST_BYTES, decode_signed
from opicflow.schemas.writer_schema import SchemaRefused, WriterSchema

Data = bytes | memoryview

_SYNC_BYTES = 16
_MOST_PACKED_BYTES = 64 << 20
MOST_BLOCK_BYTES = 2 * MOST_EVENT_BYTES
"""A block that unpacks to more is a reject: a few kilobytes could become gigabytes."""
_MOST_XZ_MEMORY_BYTES = 256 << 20
_KEPT_BYTES = 64 << 10
_HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": _SYNC_BYTES}},
    ],
}


class WrongSchema(UserError, ValueError):
    """The file does not hold crawl events, or in a way that cannot be read. One line."""


@dataclass(frozen=True)
class Container:
    """The head of a container file. `is_plain`: its records have the layout of the published schema."""

    writer: WriterSchema
    sync: bytes
    unpack: Callable[[Data], Data]
    size: int
    is_plain: bool


class AvroBlock(NamedTuple):
    """A block of the file, unpacked. If that failed, `detail` and `reason` say why, and `damaged` has the bytes.

    `is_cut`: the file ends within it, so its rest may still come.
    """

    offset: int
    end: int
    records: int
    data: Data
    damaged: bytes = b""
    detail: str = ""
    reason: Reason = Reason.CORRUPT
    is_cut: bool = False


def read_header(first: bytes) -> Container:
    """The head of a container file, from its first bytes."""
    stream = BytesIO(first)
    try:
        header: Any = fastavro.schemaless_reader(stream, _HEADER, None)
        written = orjson.loads(header["meta"]["avro.schema"])
        writer = WriterSchema(written, keep_times=True)
    except SchemaRefused as problem:
        raise WrongSchema(str(problem)) from None
    except Exception as problem:  # fastavro raises whatever the bytes lead it to
        raise WrongSchema(f"its head cannot be read ({one_line(problem)})") from None
    codec = header["meta"].get("avro.codec", b"null").decode("latin-1")
    if codec not in _CODECS:
        raise WrongSchema(f"its codec {codec[:20]!r} is not one of {', '.join(_CODECS)}")
    problem_of_schema = _why_not(writer.parsed)
    if problem_of_schema:
        raise WrongSchema(problem_of_schema)
    return Container(writer, header["sync"], _CODECS[codec], stream.tell(), is_plain(writer))


def is_plain(writer: WriterSchema) -> bool:
    """Whether a schema, with its times, has the layout of the published one: then the kernel can read its records."""
    return not _has_other_times(writer.parsed) and to_parsing_canonical_form(writer.parsed) == _canonical_form()


def read_blocks(container: Container, pieces: Iterable[Block | Damage]) -> Iterator[AvroBlock]:
    """Yield the blocks of pieces that begin with one. After damage it continues at the next one that it finds."""
    # Damage counts as one byte: the block that holds it will not fit its marker.
    text = GrowingText(piece if isinstance(piece, Block) else Block(piece.offset, b"\0") for piece in pieces)
    while text.head(1):
        begin = text.offset
        try:
            records, data, size = _block_in(text, 0, container.sync)
        except _Corrupt as problem:
            damaged, is_found = _pass_damage(text, problem.size, container.sync)
            is_cut = problem.is_cut and not is_found and not text.head(1)
            yield AvroBlock(begin, text.offset, 0, b"", damaged, f"the block is damaged: {problem}", is_cut=is_cut)
            continue
        text.at += size
        try:
            unpacked = container.unpack(data)
        except (zlib.error, zstandard.ZstdError, OSError, lzma.LZMAError, EOFError, ValueError) as problem:
            detail = f"the block of {records} records cannot be unpacked: {one_line(problem)}"
            yield AvroBlock(begin, text.offset, 0, b"", bytes(data[:_KEPT_BYTES]), detail)
            continue
        if len(unpacked) > MOST_BLOCK_BYTES:
            detail = f"the block of {records} records unpacks to more than {MOST_BLOCK_BYTES} bytes: write smaller ones"
            yield AvroBlock(begin, text.offset, 0, b"", bytes(data[:_KEPT_BYTES]), detail, Reason.TOO_LARGE)
        else:
            yield AvroBlock(begin, text.offset, records, unpacked)


@cache
def event_schema() -> Any:
    """The published schema of crawl events, as fastavro takes it."""
    return WriterSchema(schema("CrawlEvent")).parsed


@cache
def _canonical_form() -> str:
    return to_parsing_canonical_form(event_schema())


def _has_other_times(written: Any) -> bool:
    """Whether any number has a logical type other than plain milliseconds."""
    if isinstance(written, list):
        return any(map(_has_other_times, written))
    return isinstance(written, dict) and ("logicalType" in written or any(map(_has_other_times, written.values())))


def _why_not(writer: Any) -> str:
    """Why records of this schema are no crawl events; empty if they are."""
    fields = {field["name"] for field in writer.get("fields", ())} if isinstance(writer, dict) else set()
    if "url" not in fields:
        return "its records have no field url: they are no crawl events"
    problems = breaks(writer, schema("CrawlEvent"))
    return f"its schema is no CrawlEvent: {problems[0]}" if problems else ""


def one_line(problem: BaseException) -> str:
    """What an error says, as one short line."""
    return " ".join(str(problem).split())[:100] or type(problem).__name__


def _inflate(data: Data) -> bytes:
    decoder = zlib.decompressobj(-15)
    out = decoder.decompress(data, MOST_BLOCK_BYTES + 1)
    if not decoder.eof and len(out) <= MOST_BLOCK_BYTES:
        raise ValueError("it breaks off")
    return out


def _unzstd(data: Data) -> bytes:
    parts, left = [], MOST_BLOCK_BYTES + 1
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        while left > 0 and (part := reader.read(min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def _unbz2(data: Data) -> bytes:
    return bz2.BZ2Decompressor().decompress(data, MOST_BLOCK_BYTES + 1)


def _unxz(data: Data) -> bytes:
    return lzma.LZMADecompressor(memlimit=_MOST_XZ_MEMORY_BYTES).decompress(data, MOST_BLOCK_BYTES + 1)


def _as_it_is(data: Data) -> Data:
    return data


_CODECS: dict[str, Callable[[Data], Data]] = {
    "null": _as_it_is,
    "deflate": _inflate,
    "zstandard": _unzstd,
    "bzip2": _unbz2,
    "xz": _unxz,
}


class _Corrupt(Exception):
    """A block is damaged. `size` is its size if only its marker is wrong, else 0. `is_cut`: the file ends within it."""

    def __init__(self, message: str, size: int = 0, is_cut: bool = False) -> None:
        super().__init__(message)
        self.size, self.is_cut = size, is_cut


def _block_in(text: GrowingText, skip: int, sync: bytes) -> tuple[int, Data, int]:
    """Return the number of records of the block `skip` bytes further on, its data, and its size."""
    head = text.head(skip + 2 * MOST_BYTES)[skip:]
    try:
        records, used = decode_signed(head, 0)
        size, used = decode_signed(head, used)
    except EOFError:
        raise _Corrupt("the file ends in it", is_cut=True) from None
    except OverflowError:
        raise _Corrupt("its sizes are absurd") from None
    if not 0 <= records < 1 << 31 or not 0 <= size <= _MOST_PACKED_BYTES:
        raise _Corrupt("its sizes are absurd")
    end = used + size + _SYNC_BYTES
    whole = memoryview(text.head(skip + end))[skip:]
    if len(whole) < end:
        raise _Corrupt("the file ends in it", is_cut=True)
    if whole[used + size :] != sync:
        raise _Corrupt("its sync marker does not fit", end)
    return records, whole[used : used + size], end


def _pass_damage(text: GrowingText, size: int, sync: bytes) -> tuple[bytes, bool]:
    """Pass a damaged block, of this size if only its marker is wrong.

    Returns the first bytes that were passed, and whether a marker ends them.
    """
    if size:
        try:
            _block_in(text, size, sync)
        except _Corrupt:
            pass
        else:
            damaged = text.head(min(size, _KEPT_BYTES))
            text.at += size
            return damaged, False
    passed, is_found = b"", False
    while not is_found and len(text.head(_SYNC_BYTES)) == _SYNC_BYTES:
        found = text.data.find(sync, text.at)
        is_found = found >= 0
        until = (found if is_found else len(text.data) - 2 * _SYNC_BYTES + 1) + _SYNC_BYTES
        passed += text.data[text.at : min(until, text.at + _KEPT_BYTES - len(passed))]
        text.at = until
    if not is_found:
        rest = text.head(_SYNC_BYTES)
        passed += rest[: _KEPT_BYTES - len(passed)]
        text.at += len(rest)
    return passed, is_found
