"""Crawl events from the messages of a partition, whatever the framing of each: one column of bytes becomes columns.

Messages in plain JSON and in Avro of the published layout go through the kernels that read files; all others one by
one. Both say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from opicflow.connectors.files.avro import is_plain, scan_avro
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Decoded, RejectWriter
from opicflow.connectors.files.jsonl import scan_json, take_json
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, CrawlEvent, EventRefused, Reason
from opicflow.schemas.event_columns import CrawlEvents, EventWriter, merge
from opicflow.schemas.framing import Decoder, Frame, FrameKind, FramingRefused, WriterOf, frame_kind
from opicflow.schemas.records import from_avro
from opicflow.schemas.registry import breaks, schema

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_BODY_STARTS = {FrameKind.SINGLE_OBJECT: 10, FrameKind.CONFLUENT: 5}
_NUMBER_STARTS = {FrameKind.SINGLE_OBJECT: 2, FrameKind.CONFLUENT: 1}
_NEWLINE = 10
_OF_RECORD = attrgetter("offset", "timestamp", "value", "serialized_value_size")


@dataclass(frozen=True)
class Messages:
    """Messages of one partition as columns, in the order of their offsets.

    Message i is `text[begins[i]:ends[i]]`, and a newline follows it or the end of the text; begin -1 = it has no value.
    """

    offsets: Ints
    times_ms: Ints
    text: bytes
    begins: Ints
    ends: Ints

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.offsets)

    def value(self, row: int) -> bytes | None:
        """The bytes of one message, None if it has no value."""
        begin = int(self.begins[row])
        return None if begin < 0 else self.text[begin : int(self.ends[row])]


def messages_of(records: Sequence[Any]) -> Messages:
    """The columns of records as a consumer gives them."""
    columns = zip(*map(_OF_RECORD, records), strict=True) if records else [()] * 4
    offsets, times_ms, values, value_sizes = columns
    sizes = np.array(value_sizes, np.int64)  # -1 = no value
    ends = np.cumsum(np.maximum(sizes, 0) + 1) - 1
    none = sizes < 0
    return Messages(
        offsets=np.array(offsets, np.int64),
        times_ms=np.array(times_ms, np.int64),
        text=b"\n".join(value or b"" for value in values) if none.any() else b"\n".join(values),
        begins=np.where(none, -1, ends - sizes),
        ends=np.where(none, -1, ends),
    )


def decode_messages(messages: Messages, source: str, writer_of: WriterOf) -> Decoded:
    """The events of messages, and their rejects; all offsets are those of the partition.

    `writer_of` finds the schema that a message says it was written with; what it raises passes through.
    """
    text = np.frombuffer(messages.text, np.uint8)
    begins, ends = messages.begins, messages.ends
    first, second = (_byte_of(text, begins + place, ends) for place in range(2))
    is_single, is_confluent = (first == 0xC3) & (second == 0x01), first == 0
    is_json = (first >= 0) & ~is_single & ~is_confluent & (ends - begins <= MOST_EVENT_BYTES)
    odd = np.ones(len(messages), bool)  # until a kernel has read it
    events: list[CrawlEvents] = []
    if is_json.any():
        rows = np.flatnonzero(is_json)
        lasts = ends[rows] - (_byte_of(text, ends[rows] - 1, ends[rows]) == _NEWLINE)
        scan = scan_json(text, begins[rows], lasts, messages.offsets[rows])
        odd[rows] = False
        odd[_rows_at(messages, scan.odd_offsets[: scan.counts[2]])] = True
        events.append(scan.events(text))
    writers = _writers(writer_of)
    for kind, of_kind in ((FrameKind.SINGLE_OBJECT, is_single), (FrameKind.CONFLUENT, is_confluent)):
        rows = _plain_rows(messages, text, kind, of_kind, writers)
        if len(rows):
            bodies = begins[rows] + _BODY_STARTS[kind]
            offsets, ones = messages.offsets[rows], np.ones(len(rows), np.int64)
            scan, read_to, done = scan_avro(text, bodies, ends[rows], offsets, ones, ascii_only=True)
            odd[rows] = (done == 0) | (read_to != ends[rows])
            decoded = scan.events(text)
            if odd[rows].any():
                decoded = decoded.take(np.flatnonzero(~odd[_rows_at(messages, decoded.offset)]))
            odd[_rows_at(messages, scan.odd_offsets[: scan.counts[2]])] = True
            events.append(decoded)
    others, rejects = EventWriter(), RejectWriter(source)
    for row in np.flatnonzero(odd).tolist():
        _take(messages.value(row), int(messages.offsets[row]), writers, others, rejects)
    events.append(others.events())
    merged = events[0]
    for more in events[1:]:
        merged = merge(merged, more)
    return Decoded(merged, rejects.rejects, partial(_original, messages))


def _original(messages: Messages, offset: int) -> bytes:
    """The value of the message at an offset, shortened."""
    row = int(np.searchsorted(messages.offsets, offset))
    return (messages.value(row) or b"")[:MOST_REJECTED_BYTES]


def _rows_at(messages: Messages, offsets: Ints) -> Ints:
    return np.searchsorted(messages.offsets, offsets)


def _byte_of(text: Bytes, places: Ints, ends: Ints) -> Ints:
    """The bytes at these places; -1 where a message has none there."""
    inside = (places >= 0) & (places < ends)
    if len(text) == 0:
        return np.full(len(places), -1, np.int64)
    return np.where(inside, text[np.where(inside, places, 0)], -1).astype(np.int64)


# -- Avro --------------------------------------------------------------------------------------------------------------


class _Writers:
    """What is known of the schemas that messages say they were written with."""

    def __init__(self, writer_of: WriterOf) -> None:
        self.decoder = Decoder("CrawlEvent", writer_of)
        self._writer_of = writer_of
        self._readable: dict[Frame, tuple[bool, bool]] = {}

    def readable(self, frame: Frame) -> tuple[bool, bool]:
        """Whether what is written with it can be read as a crawl event; and whether by the kernel."""
        known = self._readable.get(frame)
        if known is not None:
            return known
        writer = self._writer_of(frame)
        if writer is None:
            return False, False  # not kept: it may be published any time
        try:
            found = (True, is_plain(writer)) if not breaks(writer, schema("CrawlEvent")) else (False, False)
        except Exception:  # fastavro raises whatever the schema leads it to
            found = False, False
        self._readable[frame] = found
        return found


@lru_cache(8)
def _writers(writer_of: WriterOf) -> _Writers:
    return _Writers(writer_of)


def _plain_rows(messages: Messages, text: Bytes, kind: FrameKind, of_kind: npt.NDArray[np.bool_], of: _Writers) -> Ints:
    """The messages of a kind whose bodies the kernel can read."""
    sizes = messages.ends - messages.begins
    rows = np.flatnonzero(of_kind & (sizes >= _BODY_STARTS[kind]) & (sizes <= MOST_EVENT_BYTES))
    if len(rows) == 0:
        return rows
    places = messages.begins[rows, None] + np.arange(_NUMBER_STARTS[kind], _BODY_STARTS[kind])
    order = "<u8" if kind is FrameKind.SINGLE_OBJECT else ">u4"
    numbers, which = np.unique(np.ascontiguousarray(text[places]).view(order)[:, 0], return_inverse=True)
    plain = np.array([of.readable(Frame(kind, number))[1] for number in numbers.tolist()], bool)
    chosen: Ints = rows[plain[which]]
    return chosen


# -- one by one --------------------------------------------------------------------------------------------------------


def _take(value: bytes | None, offset: int, writers: _Writers, others: EventWriter, rejects: RejectWriter) -> None:
    """Read one message without the kernels."""
    if value is None or not value.strip():
        what = "no value" if value is None else "an empty value"
        rejects.add(Reason.NOT_AN_EVENT, f"the message has {what}: send an event", offset, value or b"")
    elif frame_kind(value) is None:
        take_json(value, offset, others, rejects, "message")
    elif len(value) > MOST_EVENT_BYTES:
        detail = f"the message is longer than {MOST_EVENT_BYTES >> 20} MiB"
        rejects.add(Reason.TOO_LARGE, detail, offset, value)
    else:
        _take_avro(value, offset, writers, others, rejects)


def _take_avro(value: bytes, offset: int, writers: _Writers, others: EventWriter, rejects: RejectWriter) -> None:
    frame = _frame_of(value)
    known = frame is None or writers.readable(frame)[0]
    try:
        event = from_avro(CrawlEvent, writers.decoder.decode(value))
    except FramingRefused as problem:
        rejects.add(Reason.CORRUPT if known else Reason.WRONG_SCHEMA, str(problem), offset, value)
        return
    try:
        others.add(offset, event)
    except EventRefused as problem:
        rejects.add(problem.reason, str(problem), offset, value)


def _frame_of(value: bytes) -> Frame | None:
    """What a framed message says of its writer; None if it breaks off before."""
    kind = frame_kind(value)
    if kind is None or len(value) < _BODY_STARTS[kind]:
        return None
    number = value[_NUMBER_STARTS[kind] : _BODY_STARTS[kind]]
    return Frame(kind, int.from_bytes(number, "little" if kind is FrameKind.SINGLE_OBJECT else "big"))
