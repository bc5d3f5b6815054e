"""A topic as one log: its partitions merged record by record, in the order of their times.

Always the partition comes next whose next record has the earliest time, and of several the one with the lowest number.
So the order depends on what lies in the partitions and on where reading stands in each, and on nothing else: who goes
on from the end of a batch gets the order that he would have had (docs/decisions/kafka-order.md).

A place in the log counts the offsets that were passed since its beginning, in all partitions together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from kafka import TopicPartition
from kafka.errors import RetriableError

from opicflow.connectors.files.decoded import Decoded
from opicflow.connectors.kafka.connection import KafkaRefused
from opicflow.connectors.kafka.framing import writer_of
from opicflow.connectors.kafka.messages import decode_messages, messages_of
from opicflow.connectors.kafka.partitions import (
    PATIENCE_SECONDS,
    PartitionRange,
    check_range,
    check_topic,
    consumer_settings,
    described,
    no_answer,
    poll,
)
from opicflow.schemas.framing import WriterOf
from opicflow.schemas.pages import page_id

Ints = npt.NDArray[np.int64]

BATCH_BYTES = 2 << 20
BATCH_RECORDS = 8_192
_READY_RECORDS = 2_048
"""So many records of each partition are waited for: the less is known of one, the smaller is what can be merged."""
_BUFFERED_BYTES = 16 << 20
_BUFFERED_RECORDS = 65_536
"""No more than that is waited for of all partitions together, however many there are."""

_POLL_MS = 100
_CHECK_SECONDS = 10.0
_STALL_SECONDS = 1.0


class Reached(NamedTuple):
    """How far a partition was read, and what tells the record before it from any other."""

    partition: int
    at: int
    last_digest: str


@dataclass(frozen=True)
class TopicRange:
    """A part of a topic: the records of its partitions from place `start` on. `source` is its name in the ledger."""

    source: str
    partitions: tuple[PartitionRange, ...]
    start: int = 0

    @property
    def topic(self) -> str:
        """Its name."""
        return self.partitions[0].topic

    @property
    def records(self) -> int:
        """How many offsets it has, at least as many as records."""
        return sum(one.end - one.start for one in self.partitions)

    def gone_on(self, at: int, reached: Sequence[Reached]) -> TopicRange:
        """What is left of it when a batch ended there."""
        by_partition = {one.partition: one for one in reached}
        left = [
            replace(one, start=by_partition[one.partition].at, last_digest=by_partition[one.partition].last_digest)
            if one.partition in by_partition
            else one
            for one in self.partitions
        ]
        return replace(self, partitions=tuple(left), start=at)


class Batch(NamedTuple):
    """Records of a topic, at the places [start, end) of its log, still to be decoded. Some places have no record.

    `reached` tells of every partition how far it was read when this batch ends.
    """

    start: int
    end: int
    decode: Callable[[], Decoded]
    size_bytes: int
    reached: tuple[Reached, ...]


def topic_range(partitions: Sequence[PartitionRange]) -> TopicRange:
    """The partitions of a topic as one log."""
    return TopicRange(f"kafka/{partitions[0].topic_id}", tuple(partitions))


def read_topic(input_range: TopicRange, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Batch]:
    """The batches of a topic, which touch.

    A cluster that gives nothing for `patience_seconds` is refused. Leaders may change and brokers come back until then.
    """
    with ExitStack() as stack, input_range.partitions[0].connection.doing(f"reading {input_range.topic}"):
        topic_is_the_same = stack.enter_context(_watched(input_range.partitions[0]))
        reader = _Reader(input_range.partitions, topic_is_the_same, patience_seconds, stack)
        yield from _merged(reader, input_range, writer_of(input_range.partitions[0].connection))
        reader.check_topic()


def _merged(reader: _Reader, input_range: TopicRange, writers: WriterOf) -> Iterator[Batch]:
    place = input_range.start
    while left := reader.fill():
        which = _next(left)
        counts = np.bincount(which, minlength=len(left)).tolist()
        size_bytes = sum(int(buffer.sizes[:count].sum()) for buffer, count in zip(left, counts, strict=True))
        taken = [buffer.take(count) for buffer, count in zip(left, counts, strict=True)]
        rows = [iter(records) for records, _ in taken]
        merged = [next(rows[number]) for number in which.tolist()]
        passed = np.empty(len(which), np.int64)
        passed[np.argsort(which, kind="stable")] = np.concatenate([of_one for _, of_one in taken])
        ends = place + np.cumsum(passed)
        decode = partial(_decoded, merged, ends - 1, input_range.source, input_range.topic, writers)
        yield Batch(place, int(ends[-1]), decode, size_bytes, _reached(reader))
        place = int(ends[-1])
    rest = sum(buffer.take_rest() for buffer in reader.buffers)
    if rest:  # nothing but marks of transactions, or what compaction left no record of
        decode = partial(_decoded, [], np.zeros(0, np.int64), input_range.source, input_range.topic, writers)
        yield Batch(place, place + rest, decode, 0, _reached(reader))


def _next(buffers: Sequence[_Buffer]) -> Ints:
    """Of which buffer each record is that is sure to come next, up to a batch.

    A partition's records come by the latest time up to each: one whose time lies back comes right after the one before.
    """
    keys = [np.maximum.accumulate(buffer.times[:BATCH_RECORDS]) for buffer in buffers]
    # What comes behind the last record that is known of a partition is not known, unless a batch ends before it.
    limits = [
        (int(key[-1]), number)
        for number, (key, buffer) in enumerate(zip(keys, buffers, strict=True))
        if len(key) < BATCH_RECORDS and not buffer.is_complete
    ]
    if limits:
        time_ms, last = min(limits)
        keys = [
            key[: np.searchsorted(key, time_ms, side="right" if number <= last else "left")]
            for number, key in enumerate(keys)
        ]
    numbers = np.repeat(np.arange(len(keys)), [len(key) for key in keys])
    order = np.argsort(np.concatenate(keys), kind="stable")[:BATCH_RECORDS]
    sizes = np.concatenate([buffer.sizes[: len(key)] for buffer, key in zip(buffers, keys, strict=True)])
    rows = max(int(np.searchsorted(np.cumsum(sizes[order]), BATCH_BYTES, side="right")), 1)
    return numbers[order[:rows]]


def _reached(reader: _Reader) -> tuple[Reached, ...]:
    return tuple(Reached(one.input_range.partition, one.at, one.last_digest) for one in reader.buffers)


def _decoded(records: list[Any], places: Ints, source: str, topic: str, writers: WriterOf) -> Decoded:
    messages = messages_of(records)
    decoded = decode_messages(replace(messages, offsets=places), source, writers)
    partitions = np.array([record.partition for record in records], np.int64)
    return decoded._replace(where=partial(_where, topic, places, partitions, messages.offsets))


def _where(topic: str, places: Ints, partitions: Ints, offsets: Ints, place: int) -> tuple[str, int]:
    row = int(np.searchsorted(places, place))
    return f"{topic}/{partitions[row]}", int(offsets[row])


# -- what was fetched and not yet taken --------------------------------------------------------------------------------


class _Buffer:
    """What was fetched of a partition and not yet taken: its records, in order, and what a choice needs of them.

    `times` are theirs, in milliseconds; `sizes` those of their values. `at` is the offset up to which all was taken.
    """

    def __init__(self, input_range: PartitionRange, of: int) -> None:
        """One of so many partitions."""
        self.place = TopicPartition(input_range.topic, input_range.partition)
        self.input_range = input_range
        self.at = input_range.start
        self.last_digest = input_range.last_digest
        self.times: Ints = np.zeros(0, np.int64)
        self.sizes: Ints = np.zeros(0, np.int64)
        self.fetched_to = input_range.start
        self.is_complete = False
        """Whether it holds all that is left of the stretch."""
        self._records: list[Any] = []
        self._ready_bytes = min(BATCH_BYTES, _BUFFERED_BYTES // of)
        self._ready_records = min(_READY_RECORDS, _BUFFERED_RECORDS // of)

    def __len__(self) -> int:
        """How many records it holds."""
        return len(self._records)

    @property
    def is_ready(self) -> bool:
        """Whether enough of it is known to choose."""
        is_much = len(self) >= self._ready_records or int(self.sizes.sum()) >= self._ready_bytes
        return self.is_complete or (len(self) > 0 and is_much)

    @property
    def unfetched(self) -> PartitionRange:
        """What is left to be fetched."""
        return replace(self.input_range, start=self.fetched_to)

    def add(self, records: list[Any], position: int | None) -> None:
        """Take in what came, and where the consumer is now."""
        input_range = self.input_range
        if records and records[0].offset < input_range.start:
            self._compare(records[0])
            records = [record for record in records if record.offset >= input_range.start]
        if records and records[-1].offset >= input_range.end:
            records = [record for record in records if record.offset < input_range.end]
            self.is_complete = True
        self.fetched_to = max(self.fetched_to, records[-1].offset + 1 if records else 0, position or 0)
        self.is_complete |= self.fetched_to >= input_range.end
        if records:
            self._records += records
            self.times = np.append(self.times, [record.timestamp for record in records])
            sizes = np.array([record.serialized_value_size for record in records], np.int64)  # -1 = no value
            self.sizes = np.append(self.sizes, np.maximum(sizes, 0))

    def take(self, count: int) -> tuple[list[Any], Ints]:
        """The next records; and how many offsets each passes, with those before it that have no record."""
        records, self._records = self._records[:count], self._records[count:]
        self.times, self.sizes = self.times[count:], self.sizes[count:]
        offsets = np.array([self.at - 1, *(record.offset for record in records)], np.int64)
        if records:
            self.at, self.last_digest = records[-1].offset + 1, digest_of(records[-1])
        return records, offsets[1:] - offsets[:-1]

    def take_rest(self) -> int:
        """Pass the offsets behind the last record; how many there are."""
        before, self.at = self.at, self.input_range.end
        return self.at - before

    def _compare(self, record: Any) -> None:
        input_range = self.input_range
        if record.offset == input_range.start - 1 and input_range.last_digest not in ("", digest_of(record)):
            raise KafkaRefused(
                f"{input_range.topic}, partition {input_range.partition}: the record at offset {record.offset} is not "
                "the one that was read before: the log was replaced or restored: read it from its beginning into a "
                "new state"
            )


def digest_of(record: Any) -> str:
    """What tells a record from any other that could lie at its place."""
    key, value = record.key or b"", record.value or b""
    sizes = b"%d %d %d " % (record.offset, record.serialized_key_size, record.serialized_value_size)
    return f"{page_id(b''.join((sizes, key, value))):016x}"


class _Reader:
    """Consumers of the partitions, one each, and what they fetched.

    A partition that has enough is not polled. One consumer of all would have to pause it, and the client may then never
    give what it has fetched of it, nor ask for it again.
    """

    def __init__(
        self,
        input_ranges: Sequence[PartitionRange],
        topic_is_the_same: Callable[[], None],
        patience_seconds: float,
        stack: ExitStack,
    ) -> None:
        """The stack closes the consumers."""
        ordered = sorted(input_ranges, key=lambda one: one.partition)
        self.buffers = [_Buffer(input_range, len(ordered)) for input_range in ordered]
        settings = consumer_settings(len(ordered))
        self._consumers = [stack.enter_context(closing(one.connection.consumer(**settings))) for one in ordered]
        self._topic_is_the_same = topic_is_the_same
        self._patience_seconds = patience_seconds
        self._checked_at = self._got_at = time.monotonic()
        places = [buffer.place for buffer in self.buffers]
        first, last = self._consumers[0].beginning_offsets(places), self._consumers[0].end_offsets(places)
        for buffer in self.buffers:
            check_range(buffer.input_range, first[buffer.place], last[buffer.place])
        for buffer, consumer in zip(self.buffers, self._consumers, strict=True):
            input_range = buffer.input_range
            look_back = input_range.last_digest != "" and input_range.start > first[buffer.place]
            buffer.fetched_to = input_range.start - look_back
            buffer.is_complete = buffer.fetched_to == input_range.end
            consumer.assign([buffer.place])
            consumer.seek(buffer.place, buffer.fetched_to)

    def fill(self) -> list[_Buffer]:
        """Fetch until enough is known of each partition.

        The buffers that hold anything, in the order of their partitions. None: all was taken.
        """
        since = time.monotonic()
        while missing := [pair for pair in zip(self.buffers, self._consumers, strict=True) if not pair[0].is_ready]:
            before = [buffer.fetched_to for buffer, _ in missing]
            for buffer, consumer in missing:
                self._poll(buffer, consumer, 0)  # what has come; and all of them ask for more at the same time
            if before == [buffer.fetched_to for buffer, _ in missing]:
                self._poll(*missing[0], _POLL_MS)
            now = time.monotonic()
            if before != [buffer.fetched_to for buffer, _ in missing]:
                since = now
            elif now - since > self._patience_seconds:
                raise no_answer(missing[0][0].unfetched, self._patience_seconds)
        return [buffer for buffer in self.buffers if len(buffer)]

    def check_topic(self) -> None:
        """Whether all that was read came from the topic that was meant; patient like reading."""
        since = time.monotonic()
        while not self._is_checked():
            if time.monotonic() - since > self._patience_seconds:
                raise no_answer(self.buffers[0].unfetched, self._patience_seconds)
            Event().wait(_STALL_SECONDS)

    def _is_checked(self) -> bool:
        try:
            self._topic_is_the_same()
        except RetriableError:
            return False
        self._checked_at = time.monotonic()
        return True

    def _poll(self, buffer: _Buffer, consumer: Any, timeout_ms: int) -> None:
        found = poll(consumer, buffer.unfetched, timeout_ms)
        now = time.monotonic()
        # After trouble, what comes may be of another topic of that name: the client asks for it by name.
        if found and (now - self._checked_at > _CHECK_SECONDS or now - self._got_at > _STALL_SECONDS):
            self._is_checked()
        if found:
            self._got_at = now
        buffer.add(found.get(buffer.place, []), consumer.position(buffer.place, timeout_ms=0))


@contextmanager
def _watched(input_range: PartitionRange) -> Iterator[Callable[[], None]]:
    """A check that the topic is still the one it was."""
    with closing(input_range.connection.admin()) as admin:

        def check() -> None:
            found = described(admin, input_range.topic)
            check_topic(input_range.topic, input_range.topic_id, found and found[0])

        check()
        yield check
