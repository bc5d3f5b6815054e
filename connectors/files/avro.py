"""Crawl events from Avro container files: a kernel decodes blocks of the published schema, fastavro all others.

The container is read here, so that reading can continue at the next sync marker after a damaged block. A record with
values that the kernel does not support goes to fastavro by itself, which reports the problem.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

import fastavro
import numpy as np
import orjson
import zstandard
from fastavro.schema import to_parsing_canonical_form

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Decoded, Item, RejectWriter
from opicflow.connectors.files.opening import Block, Damage
from opicflow.connectors.files.scan import Scan, new_scan
from opicflow.schemas.arrays import Bytes, Ints
from opicflow.schemas.crawl_events import (
    EARLIEST_MS,
    LATEST_MS,
    LONGEST_RETRY_SECONDS,
    MOST_EVENT_BYTES,
    MOST_LINKS,
    MOST_REDIRECTS,
    CrawlEvent,
    EventRefused,
    Reason,
    Reject,
)
from opicflow.schemas.errors import UserError
from opicflow.schemas.event_columns import (
    FIRST_HOP,
    HEAVIEST_WEIGHT,
    ORDINARY_WEIGHT,
    UNKNOWN_MEDIA,
    CrawlEvents,
    EventWriter,
    failure_status,
    media_of,
    merge,
    says_nofollow,
    step_of_number,
)
from opicflow.schemas.hashing import byte_at, hash_bytes, word_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.published_schemas import breaks, schema, versions
from opicflow.schemas.records import from_avro
from opicflow.schemas.varint import MOST_BYTES, decode_signed, read_signed
from opicflow.schemas.writer_schema import SchemaRefused, WriterSchema, refused_for

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
    """The head of a container file. `version`: of the published schema whose layout its records have; 0 = of none."""

    writer: WriterSchema
    sync: bytes
    unpack: Callable[[Data], Data]
    size: int
    version: int


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
        raise WrongSchema(f"its head cannot be read ({_line(problem)})") from None
    codec = header["meta"].get("avro.codec", b"null").decode("latin-1")
    if codec not in _CODECS:
        raise WrongSchema(f"its codec {codec[:20]!r} is not one of {', '.join(_CODECS)}")
    problem_of_schema = _why_not(writer.parsed)
    if problem_of_schema:
        raise WrongSchema(problem_of_schema)
    return Container(writer, header["sync"], _CODECS[codec], stream.tell(), plain_version(writer))


def plain_version(writer: WriterSchema) -> int:
    """The version of the published schema with the layout of this one; 0 = none: the kernel cannot read its records.

    The writer's schema keeps its times.
    """
    if _has_other_times(writer.parsed):
        return 0
    form = to_parsing_canonical_form(writer.parsed)
    return next((one for one in versions("CrawlEvent") if to_parsing_canonical_form(_reader(one)) == form), 0)


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
                begin, at, 0, b"", damaged, f"the block of {records} records cannot be unpacked: {_line(problem)}"
            )
            continue
        if len(unpacked) > MOST_BLOCK_BYTES:
            detail = f"the block of {records} records unpacks to more than {MOST_BLOCK_BYTES} bytes: write smaller ones"
            yield AvroBlock(begin, at, 0, b"", bytes(data[:_KEPT_BYTES]), detail, Reason.TOO_LARGE)
        else:
            yield AvroBlock(begin, at, records, unpacked)


def decode_avro(container: Container, blocks: Sequence[AvroBlock], source: str) -> Decoded:
    """Decode the events of blocks. The offset of an event is that of its block, plus its number in it."""
    others, rejects = EventWriter(), RejectWriter(source)
    for block in blocks:
        if block.detail:
            rejects.add(block.reason, block.detail, block.offset, block.damaged)
    whole = [block for block in blocks if not block.detail]
    if container.version:
        events = _decode_plain(container, whole, others, rejects)
    else:
        for block in whole:
            _decode_others(container, block, others, rejects)
        events = others.events()
    rejects.rejects.sort(key=lambda reject: reject.offset)
    return Decoded(events, rejects.rejects, unlisted=rejects.unlisted)


def read_record(container: Container, data: Data) -> CrawlEvent:
    """The record that these bytes are, as a `Walk` bounds them; whatever fastavro raises if it is none."""
    stream = BytesIO(data)
    values: Any = fastavro.schemaless_reader(stream, container.writer.parsed, _reader())
    if stream.tell() != len(data):
        raise ValueError(f"it ends at byte {stream.tell()} of {len(data)}")
    return from_avro(CrawlEvent, values)


def records_at(container: Container, blocks: Sequence[AvroBlock], offsets: Ints, source: str) -> Iterator[Item]:
    """Yield the events at the given offsets, or a reject for an event with a text that is not UTF-8."""
    wanted = set(offsets.tolist())
    for block in blocks:
        before = int(offsets.searchsorted(block.end))
        last = int(offsets[before - 1]) if before else -1
        if last < block.offset:
            continue
        bounds = bounds_of(container, block).tolist()
        for offset, (begin, end) in enumerate(pairwise(bounds), block.offset):
            if offset not in wanted:
                continue
            record = block.data[begin:end]
            try:
                yield offset, read_record(container, record)
            except UnicodeDecodeError:
                detail, original = "a text of the record is no UTF-8", bytes(record[:MOST_REJECTED_BYTES])
                yield offset, Reject(Reason.NOT_UTF8, detail, source, offset, original)


def bounds_of(container: Container, block: AvroBlock) -> Ints:
    """Where the records of a block begin, as far as they have an offset and are whole, and the end of the last one."""
    walk = container.writer.walk(np.frombuffer(block.data, np.uint8), 0, len(block.data), records_with_offset(block))
    return np.concatenate((np.zeros(1, np.int64), walk.ends))


def _decode_plain(
    container: Container, blocks: Sequence[AvroBlock], others: EventWriter, rejects: RejectWriter
) -> CrawlEvents:
    """Records of the published schema, all at once."""
    data = b"".join(block.data for block in blocks)
    text = np.frombuffer(data, np.uint8)
    sizes = np.array([len(block.data) for block in blocks], np.int64)
    ends = np.cumsum(sizes)
    offsets = np.array([block.offset for block in blocks], np.int64)
    records = np.array([records_with_offset(block) for block in blocks], np.int64)
    scan, read_to, done = scan_avro(
        text, ends - sizes, ends, offsets, records, version=container.version, ascii_only=False
    )
    plain = scan.events(text)
    for offset, begin, end in scan.odd():
        walk = container.writer.walk(text, begin, end, 1)
        problem = int(walk.problems[0]) if len(walk.problems) else 0
        _take_record(container, data[begin:end], problem, offset, others, rejects)
    for block, end, to, passed in zip(blocks, ends.tolist(), read_to.tolist(), done.tolist(), strict=True):
        if passed < records_with_offset(block) or (passed == block.records and to < end):
            _reject_rest(block, passed, data[to:end], rejects)
        elif passed < block.records:
            _reject_crowd(block, passed, data[to:end], rejects)
    return merge(plain, others.events())


def scan_avro(
    text: Bytes, begins: Ints, ends: Ints, offsets: Ints, records: Ints, version: int, ascii_only: bool
) -> tuple[Scan, Ints, Ints]:
    """Decode blocks of records of a published schema; also returns the end and the number of records read of each.

    `ascii_only` leaves records with texts that are not ASCII to fastavro, which checks UTF-8.
    """
    sizes = ends - begins
    rows = int(np.minimum(records, sizes // LEAST_RECORD_BYTES + 1).sum())
    read_to, done = np.zeros(len(offsets), np.int64), np.zeros(len(offsets), np.int64)
    at = np.array([0, 0, 0 if ascii_only else -1, version], np.int64)
    size = int(sizes.sum())
    for links in (size // _USUAL_LINK_BYTES, size):
        scan = new_scan(rows, FIRST_HOP * rows + links)
        scan_records(text, begins, ends, offsets, records, read_to, done, at, scan)
        if not scan.counts[3]:
            break
    return scan, read_to, done


def _decode_others(container: Container, block: AvroBlock, others: EventWriter, rejects: RejectWriter) -> None:
    """Records of another writer's schema, one by one."""
    wanted = records_with_offset(block)
    walk = container.writer.walk(np.frombuffer(block.data, np.uint8), 0, len(block.data), wanted)
    begin = 0
    for number, (end, problem) in enumerate(zip(walk.ends.tolist(), walk.problems.tolist(), strict=True)):
        _take_record(container, block.data[begin:end], problem, block.offset + number, others, rejects)
        begin = end
    done, rest = len(walk.ends), bytes(block.data[begin:])
    if done < wanted or (done == block.records and rest):
        _reject_rest(block, done, rest, rejects, walk.detail)
    elif done < block.records:
        _reject_crowd(block, done, rest, rejects)


def records_with_offset(block: AvroBlock) -> int:
    """How many of its records can have an offset of their own before the next block."""
    return min(block.records, block.end - block.offset - 1)


def _reject_rest(
    block: AvroBlock, done: int, rest: bytes, rejects: RejectWriter, cause: str = "a record is cut off or damaged"
) -> None:
    offset = block.offset + min(done, block.end - block.offset - 1)
    if done < block.records:
        detail = f"{cause}, number {done + 1} of {block.records} of the block: what follows in the block is lost too"
    else:
        detail = f"{len(rest)} bytes after the {done} records of the block belong to none"
    rejects.add(Reason.CORRUPT, detail, offset, rest)


def _reject_crowd(block: AvroBlock, done: int, rest: bytes, rejects: RejectWriter) -> None:
    detail = (
        f"the block has {block.records} records in {block.end - block.offset} bytes, too few for an offset each: "
        f"those from number {done + 1} on are lost: write it with less compression"
    )
    rejects.add(Reason.TOO_LARGE, detail, block.offset + done, rest)


def _take_record(
    container: Container, data: Data, problem: int, offset: int, others: EventWriter, rejects: RejectWriter
) -> None:
    """Read a record. `problem`: that of its `Walk`."""
    try:
        if len(data) > MOST_EVENT_BYTES:
            raise EventRefused(Reason.TOO_LARGE, f"the record is longer than {MOST_EVENT_BYTES} bytes")
        if refused := refused_for(problem):
            raise refused
        others.add(offset, read_record(container, data))
    except EventRefused as refused:
        rejects.add(refused.reason, str(refused), offset, bytes(data))
    except UnicodeDecodeError:
        rejects.add(Reason.NOT_UTF8, "a text of the record is no UTF-8", offset, bytes(data))
    except Exception as error:  # fastavro raises whatever the bytes lead it to
        rejects.add(Reason.CORRUPT, f"the record is damaged: {_line(error)}", offset, bytes(data))


@cache
def _reader(version: int | None = None) -> Any:
    return WriterSchema(schema("CrawlEvent", version)).parsed


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


def _line(problem: BaseException) -> str:
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
        """Where the next block begins after the damaged one at `at`, or the end; and the first bytes passed over."""
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


# -- the kernel --------------------------------------------------------------------------------------------------------


LEAST_RECORD_BYTES, _USUAL_LINK_BYTES = 11, 12


@lean_kernel
def scan_records(
    text: Any,
    block_begins: Any,
    block_ends: Any,
    block_offsets: Any,
    records: Any,
    read_to: Any,
    done_of: Any,
    at: Any,
    out: Scan,
) -> None:
    """Decode records into rows. Records with unsupported values are listed; a block ends at a damaged one.

    `read_to` and `done_of` receive the end of reading of every block, in bytes and in records. `at` has the position,
    the end of the block, whether a text of the record is not ASCII (1 = yes, -1 = not checked), and the version of the
    schema.
    """
    rows = np.int64(0)
    urls = np.int64(0)
    odd = np.int64(0)
    out.counts[3] = 0
    for block in range(block_ends.shape[0]):
        at[0] = block_begins[block]
        at[1] = block_ends[block]
        done = np.int64(0)
        while done < records[block] and rows + odd < out.offset.shape[0]:
            begin = at[0]
            at[2] = min(at[2], 0)
            used = _scan_record(text, at, out, rows, urls)
            if used == _FULL:
                out.counts[3] = 1
                return
            if used == _DAMAGED:
                at[0] = begin
                break
            if used == _ODD or at[2] > 0 or at[0] - begin > MOST_EVENT_BYTES:
                out.odd_offsets[odd] = block_offsets[block] + done
                out.odd_begins[odd] = begin
                out.odd_ends[odd] = at[0]
                odd += 1
            else:
                out.offset[rows] = block_offsets[block] + done
                rows += 1
                urls = used
                out.url_starts[rows] = urls
            done += 1
        read_to[block] = at[0]
        done_of[block] = done
    out.counts[0] = rows
    out.counts[1] = urls
    out.counts[2] = odd


_DAMAGED, _ODD, _FULL = -1, -2, -3
_NO_NUMBER = -(1 << 63)
WITH_RETRY = 2
"""The version of the schema that added `retry_after`, as the last field."""
WITH_QUALITY = 3
"""The version that added `quality` behind it."""


@inlined_kernel
def _number(text: Any, at: Any) -> Any:
    """The next whole number; `_NO_NUMBER` if there is none, and then `at` stays the same."""
    value, end = read_signed(text, at[0], at[1])
    if end > at[1]:
        return np.int64(_NO_NUMBER)
    at[0] = end
    return value


@inlined_kernel
def _length(text: Any, at: Any) -> Any:
    """The length of the text that comes next; -1 if it does not fit."""
    length = _number(text, at)
    if length < 0 or length > at[1] - at[0]:
        return np.int64(-1)
    if at[2] == 0 and not is_ascii(text, at[0], at[0] + length):
        at[2] = 1
    return length


@inlined_kernel
def is_ascii(text: Any, begin: Any, end: Any) -> Any:
    bits = np.uint64(0)
    while begin + 8 <= end:
        bits |= word_at(text, begin)
        begin += 8
    while begin < end:
        bits |= np.uint64(byte_at(text, begin))
        begin += 1
    return bits & np.uint64(0x8080808080808080) == 0


@inlined_kernel
def _put_url(text: Any, at: Any, out: Scan, url: Any) -> Any:
    """Read a text as a URL; False if it does not fit."""
    length = _length(text, at)
    if length < 0:
        return False
    out.begins[url] = at[0]
    at[0] += length
    out.ends[url] = at[0]
    out.weights[url] = 0
    out.nofollow[url] = 0
    return True


@inlined_kernel
def _take_time(text: Any, at: Any) -> Any:
    """A time or null: its milliseconds, 0, -1 if it does not fit, -2 if it is none of the web's."""
    branch = _number(text, at)
    if branch == 0:
        return np.int64(0)
    if branch != 1:
        return np.int64(_DAMAGED)
    begin = at[0]
    time_ms = _number(text, at)
    if at[0] == begin:
        return np.int64(_DAMAGED)
    return time_ms if EARLIEST_MS <= time_ms < LATEST_MS else np.int64(_ODD)


@inlined_kernel
def _array_block(text: Any, at: Any) -> Any:
    """How many items come next, 0 at the end of an array, -1 if it does not fit."""
    items = _number(text, at)
    if items < 0 and items != _NO_NUMBER:
        items = -items
        if _number(text, at) < 0:
            return np.int64(-1)
    return items if 0 <= items <= text.shape[0] else np.int64(-1)


@lean_kernel
def _scan_record(text: Any, at: Any, out: Scan, row: Any, first_url: Any) -> Any:
    """Decode one record. Returns where its URLs end, or that it is damaged or odd, or that there is no room."""
    odd = False
    if first_url + FIRST_HOP > out.begins.shape[0]:
        return _FULL
    kind = _number(text, at)
    if kind == _NO_NUMBER:
        return _DAMAGED
    odd |= not 0 <= kind <= 1
    out.announce[row] = kind == 1
    url = first_url
    if not _put_url(text, at, out, url):
        return _DAMAGED
    time_ms = _take_time(text, at)
    if time_ms == _DAMAGED:
        return _DAMAGED
    odd |= time_ms == _ODD
    out.time_ms[row] = time_ms
    out.status[row] = 0
    branch = _number(text, at)
    if branch == 1:
        begin = at[0]
        status = _number(text, at)
        if at[0] == begin:
            return _DAMAGED
        odd |= not 100 <= status < 1000
        out.status[row] = status if 0 <= status < 1000 else 0
    elif branch != 0:
        return _DAMAGED
    branch = _number(text, at)
    if branch == 1:
        length = _length(text, at)
        if length < 0:
            return _DAMAGED
        status = failure_status(text, at[0], at[0] + length)
        odd |= status > 0
        out.status[row] = status
        at[0] += length
    elif branch != 0:
        return _DAMAGED
    url = first_url + FIRST_HOP
    while True:
        items = _array_block(text, at)
        if items < 0:
            return _DAMAGED
        if items == 0:
            break
        for _ in range(items):
            if url >= out.begins.shape[0]:
                return _FULL
            if not _put_url(text, at, out, url):
                return _DAMAGED
            if url - first_url - FIRST_HOP <= MOST_REDIRECTS:  # one too many is enough to refuse the record
                url += 1
    hops = url - first_url - FIRST_HOP
    odd |= hops > MOST_REDIRECTS
    out.hops[row] = hops
    out.begins[first_url + 1] = -1
    out.ends[first_url + 1] = -1
    out.weights[first_url + 1] = 0
    out.nofollow[first_url + 1] = 0
    branch = _number(text, at)
    if branch == 1:
        if not _put_url(text, at, out, first_url + 1):
            return _DAMAGED
    elif branch != 0:
        return _DAMAGED
    out.media[row] = UNKNOWN_MEDIA
    branch = _number(text, at)
    if branch == 1:
        length = _length(text, at)
        if length < 0:
            return _DAMAGED
        out.media[row] = media_of(text, at[0], at[0] + length)
        at[0] += length
    elif branch != 0:
        return _DAMAGED
    out.digest[row] = np.uint64(0)
    branch = _number(text, at)
    if branch == 1:
        length = _length(text, at)
        if length < 0:
            return _DAMAGED
        if length > 0:
            out.digest[row] = hash_bytes(text, at[0], at[0] + length)
        at[0] += length
    elif branch != 0:
        return _DAMAGED
    time_ms = _take_time(text, at)
    if time_ms == _DAMAGED:
        return _DAMAGED
    out.modified_ms[row] = max(time_ms, 0)
    branch = _number(text, at)
    out.links_known[row] = branch == 1 and kind == 0
    if branch == 1:
        first_link = url
        while True:
            items = _array_block(text, at)
            if items < 0:
                return _DAMAGED
            if items == 0:
                break
            for _ in range(items):
                if url >= out.begins.shape[0]:
                    return _FULL
                state = _scan_link(text, at, out, url)
                if state == _DAMAGED:
                    return _DAMAGED
                odd |= state == _ODD
                if url - first_link <= MOST_LINKS:
                    url += 1
        odd |= url - first_link > MOST_LINKS
    elif branch != 0:
        return _DAMAGED
    out.retry_seconds[row] = 0
    if at[3] >= WITH_RETRY:
        branch = _number(text, at)
        if branch == 1:
            begin = at[0]
            seconds = _number(text, at)
            if at[0] == begin:
                return _DAMAGED
            out.retry_seconds[row] = min(max(seconds, 0), LONGEST_RETRY_SECONDS)
        elif branch != 0:
            return _DAMAGED
    out.quality[row] = 0
    if at[3] >= WITH_QUALITY:
        branch = _number(text, at)
        if branch == 1:
            if at[1] - at[0] < 8:
                return _DAMAGED
            out.quality[row] = step_of_number(_as_double(word_at(text, at[0])))
            at[0] += 8
        elif branch != 0:
            return _DAMAGED
    return _ODD if odd else url


@inlined_kernel
def _scan_link(text: Any, at: Any, out: Scan, url: Any) -> Any:
    """Decode a link. Returns 0, or that it is damaged or odd."""
    if not _put_url(text, at, out, url):
        return _DAMAGED
    out.weights[url] = ORDINARY_WEIGHT
    odd = False
    branch = _number(text, at)
    if branch == 1:
        if at[1] - at[0] < 8:
            return _DAMAGED
        weight = _as_double(word_at(text, at[0]))
        at[0] += 8
        if weight >= 0.0 and weight < np.inf:
            out.weights[url] = min(np.rint(weight * ORDINARY_WEIGHT), float(HEAVIEST_WEIGHT))
        else:
            odd = True
    elif branch != 0:
        return _DAMAGED
    branch = _number(text, at)
    if branch == 1:
        length = _length(text, at)
        if length < 0:
            return _DAMAGED
        out.nofollow[url] = says_nofollow(text, at[0], at[0] + length)
        at[0] += length
    elif branch != 0:
        return _DAMAGED
    return _ODD if odd else 0


@inlined_kernel
def _as_double(bits: Any) -> Any:
    """The double that these bits are."""
    sign = -1.0 if bits >> np.uint64(63) else 1.0
    exponent = np.int64((bits >> np.uint64(52)) & np.uint64(0x7FF))
    fraction = np.float64(bits & np.uint64(0xFFFFFFFFFFFFF))
    if exponent == 0x7FF:
        return np.nan if fraction != 0.0 else sign * np.inf
    if exponent == 0:
        return sign * fraction * 2.0**-1074
    return sign * (1.0 + fraction * 2.0**-52) * 2.0 ** np.float64(exponent - 1023)
