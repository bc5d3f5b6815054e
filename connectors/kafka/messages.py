"""Messages of topics: crawl events decoded from them, and the encoding of events and records as messages.

Messages in plain JSON, and in Avro of the published layout, are decoded by the kernels that also read files; all other
messages are decoded one by one, with the same result. Messages are framed with the id of a schema registry if there is
one, as Avro single objects otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from opicflow.connectors.files.avro_container import is_plain
from opicflow.connectors.files.avro_scan import scan_avro
from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, Decoded, RejectWriter
from opicflow.connectors.files.json_scan import scan_json
from opicflow.connectors.files.jsonl import take_line
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.registry import SchemaRegistry
from opicflow.schemas.arrays import Bools, Bytes, Ints
from opicflow.schemas.crawl_events import (
    MOST_EVENT_BYTES,
    CrawlEvent,
    EventRefused,
    Reason,
)
from opicflow.schemas.event_columns import CrawlEvents, EventWriter, merge
from opicflow.schemas.framing import (
    BODY_STARTS,
    MARKS,
    MOST_MESSAGE_BYTES,
    Decoder,
    Frame,
    FrameKind,
    FramingRefused,
    WriterOf,
    confluent_prefix,
    encode_behind,
    frame_kind,
    frame_of,
    published_writer,
    single_object_prefix,
)
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.published_schemas import Schema, breaks, schema
from opicflow.schemas.records import from_avro
from opicflow.schemas.writer_schema import WriterSchema

_NEWLINE = 10


def describe_unread(records: int) -> str:
    """Return why so many messages were not read."""
    return (
        f"a compressed batch of {records:,} or more records ends here, and they are more than {MOST_MESSAGE_BYTES:,} "
        "bytes, or too many: none was read"
    )


def decode_messages(messages: MessageBatch, source: str, writer_of: WriterOf) -> Decoded:
    """Return the events of messages, and their rejects, with the offsets of the partition.

    `writer_of` returns the schema that a frame names; its exceptions pass through.
    """
    text = np.frombuffer(messages.text, np.uint8)
    begins, ends = messages.begins, messages.ends
    first, second = (_byte_of(text, begins + index, ends) for index in range(2))
    is_single, is_confluent = (first == 0xC3) & (second == 0x01), first == 0
    is_json = (first >= 0) & ~is_single & ~is_confluent & (ends - begins <= MOST_EVENT_BYTES)
    odd = np.ones(len(messages), bool)  # not decoded by a kernel
    events: list[CrawlEvents] = []
    if is_json.any():
        rows = np.flatnonzero(is_json)
        lasts = ends[rows] - (_byte_of(text, ends[rows] - 1, ends[rows]) == _NEWLINE)
        scan = scan_json(text, begins[rows], lasts, messages.offsets[rows])
        odd[rows] = False
        odd[_rows_at(messages, scan.odd_offsets[: scan.counts[2]])] = True
        events.append(scan.events(text))
    writers = _writers(writer_of)
    for kind, is_kind in ((FrameKind.SINGLE_OBJECT, is_single), (FrameKind.CONFLUENT, is_confluent)):
        rows = _plain_rows(messages, text, kind, is_kind, writers)
        if len(rows) == 0:
            continue
        bodies = begins[rows] + BODY_STARTS[kind]
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
        offset, unread = int(messages.offsets[row]), messages.unread(row)
        if unread:
            rejects.add(Reason.TOO_LARGE, describe_unread(unread), offset, b"")
        else:
            _take(messages.value(row), offset, writers, others, rejects)
    events.append(others.events())
    merged = events[0]
    for more in events[1:]:
        merged = merge(merged, more)
    return Decoded(merged, rejects.rejects, partial(_original, messages), unlisted=rejects.unlisted)


def _original(messages: MessageBatch, offset: int) -> bytes:
    """Return the first bytes of the message at an offset."""
    row = int(np.searchsorted(messages.offsets, offset))
    return (messages.value(row) or b"")[:MOST_REJECTED_BYTES]


def _rows_at(messages: MessageBatch, offsets: Ints) -> Ints:
    return np.searchsorted(messages.offsets, offsets)


def _byte_of(text: Bytes, positions: Ints, ends: Ints) -> Ints:
    """Return the bytes at these positions; -1 where the message has ended or has no value."""
    inside = (positions >= 0) & (positions < ends)
    if len(text) == 0:
        return np.full(len(positions), -1, np.int64)
    return np.where(inside, text[np.where(inside, positions, 0)], -1).astype(np.int64)


# -- Avro --------------------------------------------------------------------------------------------------------------


class _Writers:
    """The schemas that frames name, and how their messages are decoded."""

    def __init__(self, writer_of: WriterOf) -> None:
        self.decoder = Decoder("CrawlEvent", writer_of)
        self._writer_of = writer_of
        self._readable: dict[Frame, tuple[bool, bool]] = {}

    def readable(self, frame: Frame) -> tuple[bool, bool]:
        """Return whether messages with this frame can be decoded as crawl events, and whether the kernel can do it."""
        known = self._readable.get(frame)
        if known is not None:
            return known
        try:
            writer = self._writer_of(frame)
        except FramingRefused:  # the decoder raises it again, as the reason of the reject
            return False, False
        if writer is None:
            return False, False  # not cached: the schema may be published later
        try:
            checked = WriterSchema(writer, keep_times=True)
            is_readable = not breaks(checked.parsed, schema("CrawlEvent"))
            found = is_readable, is_readable and is_plain(checked)
        except Exception:  # it exceeds a bound; and fastavro raises many types for a malformed schema
            found = False, False
        self._readable[frame] = found
        return found


@lru_cache(8)
def _writers(writer_of: WriterOf) -> _Writers:
    return _Writers(writer_of)


def _plain_rows(messages: MessageBatch, text: Bytes, kind: FrameKind, is_kind: Bools, writers: _Writers) -> Ints:
    """Return the rows of a frame kind whose bodies the kernel can decode."""
    sizes = messages.ends - messages.begins
    rows = np.flatnonzero(is_kind & (sizes >= BODY_STARTS[kind]) & (sizes <= MOST_EVENT_BYTES))
    if len(rows) == 0:
        return rows
    positions = messages.begins[rows, None] + np.arange(len(MARKS[kind]), BODY_STARTS[kind])
    order = "<u8" if kind is FrameKind.SINGLE_OBJECT else ">u4"
    numbers, which = np.unique(np.ascontiguousarray(text[positions]).view(order)[:, 0], return_inverse=True)
    plain = np.array([writers.readable(Frame(kind, number))[1] for number in numbers.tolist()], bool)[which]
    found: Ints = rows[plain]
    return found


# -- one by one --------------------------------------------------------------------------------------------------------


def _take(value: bytes | None, offset: int, writers: _Writers, others: EventWriter, rejects: RejectWriter) -> None:
    """Decode one message without the kernels."""
    if value is None or not value.strip():
        content = "no value" if value is None else "an empty value"
        rejects.add(Reason.NOT_AN_EVENT, f"the message has {content}: send an event", offset, value or b"")
    elif frame_kind(value) is None:
        take_line(value, offset, others, rejects, "message")
    elif len(value) > MOST_EVENT_BYTES:
        detail = f"the message is longer than {MOST_EVENT_BYTES >> 20} MiB"
        rejects.add(Reason.TOO_LARGE, detail, offset, value)
    else:
        _take_avro(value, offset, writers, others, rejects)


def _take_avro(value: bytes, offset: int, writers: _Writers, others: EventWriter, rejects: RejectWriter) -> None:
    frame = frame_of(value)
    known = frame is None or writers.readable(frame)[0]
    try:
        event = from_avro(CrawlEvent, writers.decoder.decode(value))
    except FramingRefused as problem:
        reason = problem.reason or (Reason.CORRUPT if known else Reason.WRONG_SCHEMA)
        rejects.add(reason, str(problem), offset, value)
        return
    try:
        others.add(offset, event)
    except EventRefused as problem:
        rejects.add(problem.reason, str(problem), offset, value)


# -- framing -----------------------------------------------------------------------------------------------------------


class Framer:
    """Encodes the records of one topic as messages, with the latest published version of one schema.

    The registry is requested for the first message in each process, so a framer can be pickled.
    """

    def __init__(self, connection: Connection, topic: str, name: str) -> None:
        """`name` is the schema of the records."""
        self._connection = connection
        self._topic = topic
        self._name = name
        self._prefix = b""

    def __getstate__(self) -> dict[str, object]:
        """Leave out the response of the registry: it is requested again in the process that unpickles this."""
        return {**self.__dict__, "_prefix": b""}

    @property
    def prefix(self) -> bytes:
        """The first bytes of every message."""
        if not self._prefix:
            access = self._connection.registry_access()
            if access is None:
                self._prefix = single_object_prefix(self._name)
            else:
                self._prefix = confluent_prefix(SchemaRegistry(access).publish(self._name, f"{self._topic}-value"))
        return self._prefix

    def encode(self, values: dict[str, Any]) -> bytes:
        """Encode the values of a record, as `schemas.records.to_avro` returns them."""
        return encode_behind(self.prefix, self._name, values)


def register_schemas(connection: Connection, schemas: Mapping[str, str]) -> None:
    """Register the schema of each of these topics, by its name, if there is a registry. Workers then only request it.

    Workers that all begin at once would all register the same, and a registry may refuse that.
    """
    for topic, name in schemas.items():
        _ = Framer(connection, topic, name).prefix


def writer_of(connection: Connection) -> WriterOf:
    """Return a function that finds writer schemas: published ones by fingerprint, those of the registry by id."""
    access = connection.registry_access()
    if access is None:
        return published_writer
    schemas = SchemaRegistry(access)

    def find(frame: Frame) -> Schema | None:
        return schemas.schema(frame.number) if frame.kind is FrameKind.CONFLUENT else published_writer(frame)

    return find
