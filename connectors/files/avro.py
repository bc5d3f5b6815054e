"""Crawl events from Avro files: kernels decode blocks of the published schema, fastavro all others.

A record with values that the kernels do not support goes to fastavro by itself, which reports the problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import fastavro
import numpy as np

from opicflow.connectors.files.avro_container import AvroBlock, Container, Data, event_schema, one_line
from opicflow.connectors.files.avro_scan import scan_avro
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Decoded, Item, RejectWriter
from opicflow.schemas.arrays import Ints
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, CrawlEvent, EventRefused, Reason, Reject
from opicflow.schemas.event_columns import CrawlEvents, EventWriter, merge
from opicflow.schemas.records import from_avro
from opicflow.schemas.writer_schema import refused_for


def decode_avro(container: Container, blocks: Sequence[AvroBlock], source: str, ascii_only: bool = False) -> Decoded:
    """Decode the events of blocks. The offset of an event is that of its block, plus its number in it.

    Text that is not UTF-8 is found when URLs are checked; with `ascii_only` it is a reject here.
    """
    others, rejects = EventWriter(), RejectWriter(source)
    for block in blocks:
        if block.detail:
            rejects.add(block.reason, block.detail, block.offset, block.damaged)
    whole = [block for block in blocks if not block.detail]
    if container.is_plain:
        events = _decode_plain(container, whole, others, rejects, ascii_only)
    else:
        for block in whole:
            _decode_others(container, block, others, rejects)
        events = others.events()
    rejects.rejects.sort(key=lambda reject: reject.offset)
    return Decoded(events, rejects.rejects, unlisted=rejects.unlisted)


def read_record(container: Container, data: Data) -> CrawlEvent:
    """The record that these bytes are, as a `Walk` bounds them; whatever fastavro raises if it is none."""
    stream = BytesIO(data)
    values: Any = fastavro.schemaless_reader(stream, container.writer.parsed, event_schema())
    if stream.tell() != len(data):
        raise ValueError(f"it ends at byte {stream.tell()} of {len(data)}")
    return from_avro(CrawlEvent, values)


def records_at(container: Container, blocks: Sequence[AvroBlock], offsets: Ints, source: str) -> Iterator[Item]:
    """Yield the events at the given offsets, or a reject for an event with a text that is not UTF-8."""
    for offset, record in raw_records(container, blocks, offsets):
        try:
            yield offset, read_record(container, record)
        except UnicodeDecodeError:
            detail, original = "a text of the record is no UTF-8", record[:MOST_REJECTED_BYTES]
            yield offset, Reject(Reason.NOT_UTF8, detail, source, offset, original)


def raw_records(container: Container, blocks: Sequence[AvroBlock], offsets: Ints) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes of the records at the given offsets."""
    for block in blocks:
        first, last = offsets.searchsorted([block.offset, block.end]).tolist()
        if first == last:
            continue
        bounds, numbers = _bounds_of(container, block), offsets[first:last] - block.offset
        spans = zip(numbers.tolist(), bounds[numbers].tolist(), bounds[numbers + 1].tolist(), strict=True)
        for number, begin, end in spans:
            yield block.offset + number, bytes(block.data[begin:end])


def _bounds_of(container: Container, block: AvroBlock) -> Ints:
    """The beginnings of the whole records of a block that have an offset, and the end of the last one."""
    walk = container.writer.walk(np.frombuffer(block.data, np.uint8), 0, len(block.data), records_with_offset(block))
    return np.concatenate((np.zeros(1, np.int64), walk.ends))


def _decode_plain(
    container: Container, blocks: Sequence[AvroBlock], others: EventWriter, rejects: RejectWriter, ascii_only: bool
) -> CrawlEvents:
    """Records of the published schema, all at once."""
    data = b"".join(block.data for block in blocks)
    text = np.frombuffer(data, np.uint8)
    sizes = np.array([len(block.data) for block in blocks], np.int64)
    ends = np.cumsum(sizes)
    offsets = np.array([block.offset for block in blocks], np.int64)
    records = np.array([records_with_offset(block) for block in blocks], np.int64)
    scan, read_to, done = scan_avro(text, ends - sizes, ends, offsets, records, ascii_only)
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
    """The number of its records that can have an offset of their own before the next block."""
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
        rejects.add(Reason.CORRUPT, f"the record is damaged: {one_line(error)}", offset, bytes(data))
