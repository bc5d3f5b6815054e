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


def read_blocks(container: Container, pieces: Iterable[Block | Damage], start: int) -> Iterator[AvroBlock]:
    """Yield the blocks from `start`, the begin of one. After damage it continues at the next one that it finds."""
    tape, at = _Tape(pieces, start), start
    while tape.has(at, 1):
        tape.release(at)
        begin = at
        try:
            records, data, at = tape.block(begin, container.sync)
        except _Corrupt as problem:
            at, damaged = tape.pass_damage(begin, problem.end, container.sync)
            ends_with_marker = tape.view(at - _SYNC_BYTES, _SYNC_BYTES) == container.sync
            is_cut = problem.is_cut and not ends_with_marker and not tape.has(at, 1)
            yield AvroBlock(begin, at, 0, b"", damaged, f"the block is damaged: {problem}", is_cut=is_cut)
            continue
        try:
            unpacked = container.unpack(data)
        except (zlib.error, zstandard.ZstdError, OSError, lzma.LZMAError, EOFError, ValueError) as problem:
            damaged = bytes(data[:_KEPT_BYTES])
            yield AvroBlock(
                begin, at, 0, b"", damaged, f"the block of {records} records cannot be unpacked: {one_line(problem)}"
            )
            continue
        if len(unpacked) > MOST_BLOCK_BYTES:
            detail = f"the block of {records} records unpacks to more than {MOST_BLOCK_BYTES} bytes: write smaller ones"
            yield AvroBlock(begin, at, 0, b"", bytes(data[:_KEPT_BYTES]), detail, Reason.TOO_LARGE)
        else:
            yield AvroBlock(begin, at, records, unpacked)


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
    """A block is damaged. `end` is its end if only its marker is wrong, else 0. `is_cut`: the file ends within it."""

    def __init__(self, message: str, end: int = 0, is_cut: bool = False) -> None:
        super().__init__(message)
        self.end, self.is_cut = end, is_cut


class _Tape:
    """The bytes of a file from an offset on; bytes before `release` are dropped."""

    def __init__(self, pieces: Iterable[Block | Damage], start: int) -> None:
        self._pieces = iter(pieces)
        self._held = b""
        self._held_at = start
        self._needed_at = start

    def has(self, at: int, size: int) -> bool:
        """Read until there are `size` bytes from `at`; False at the end of the file."""
        missing = at + size - self._held_at - len(self._held)
        if missing <= 0:
            return True
        parts = [memoryview(self._held)[self._needed_at - self._held_at :]]
        self._held_at = self._needed_at
        while missing > 0 and (piece := next(self._pieces, None)) is not None:
            # Damage counts as one byte: the block that holds it will not fit its marker.
            parts.append(memoryview(piece.data if isinstance(piece, Block) else b"\0"))
            missing -= len(parts[-1])
        self._held = b"".join(parts)
        return missing <= 0

    def release(self, at: int) -> None:
        """Allow the bytes before `at` to be dropped."""
        self._needed_at = at

    def view(self, at: int, size: int) -> memoryview:
        """Bytes that are there; fewer at the end of the file."""
        begin = at - self._held_at
        return memoryview(self._held)[begin : begin + size]

    def block(self, at: int, sync: bytes) -> tuple[int, memoryview, int]:
        """The block that begins at `at`: how many records it has, its data, and where it ends."""
        self.has(at, 2 * MOST_BYTES)
        head = bytes(self.view(at, 2 * MOST_BYTES))
        try:
            records, used = decode_signed(head, 0)
            size, used = decode_signed(head, used)
        except EOFError:
            raise _Corrupt("the file ends in it", is_cut=True) from None
        except OverflowError:
            raise _Corrupt("its sizes are absurd") from None
        if not 0 <= records < 1 << 31 or not 0 <= size <= _MOST_PACKED_BYTES:
            raise _Corrupt("its sizes are absurd")
        begin, end = at + used, at + used + size + _SYNC_BYTES
        if not self.has(begin, size + _SYNC_BYTES):
            raise _Corrupt("the file ends in it", is_cut=True)
        if self.view(begin + size, _SYNC_BYTES) != sync:
            raise _Corrupt("its sync marker does not fit", end)
        return records, self.view(begin, size), end

    def pass_damage(self, at: int, end: int, sync: bytes) -> tuple[int, bytes]:
        """The beginning of the block after the damaged one at `at`, or the end; and the first bytes passed over."""
        if end:
            try:
                self.block(end, sync)  # only the marker between them is damaged
            except _Corrupt:
                pass
            else:
                return end, bytes(self.view(at, min(end - at, _KEPT_BYTES)))
        passed = b""
        while self.has(at, _SYNC_BYTES):
            begin = at - self._held_at
            found = self._held.find(sync, begin)
            until = found + _SYNC_BYTES if found >= 0 else len(self._held) - _SYNC_BYTES + 1
            passed += self._held[begin : min(until, begin + _KEPT_BYTES - len(passed))]
            at = self._held_at + until
            self.release(at)
            if found >= 0:
                return at, passed
        rest = len(self._held) - (at - self._held_at)
        return at + rest, passed + bytes(self.view(at, min(rest, _KEPT_BYTES - len(passed))))
