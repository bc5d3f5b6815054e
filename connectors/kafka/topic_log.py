"""A topic as one log: its partitions merged in the order of their records' times.

Always the partition comes next whose next record has the earliest time, and of several the one with the lowest number.
So the order depends on what lies in the partitions and on where reading stands in each, and on nothing else: who goes
on from the end of a batch gets the order that he would have had (docs/decisions/kafka-order.md).

A place in the log counts the offsets that were passed since its beginning, in all partitions together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.connectors.files.decoded import Decoded
from opicflow.connectors.kafka.framing import writer_of
from opicflow.connectors.kafka.messages import decode_messages, messages_of
from opicflow.connectors.kafka.reading import (
    PATIENCE_SECONDS,
    Buffer,
    PartitionStretch,
    Reader,
    consumer_settings,
    watched,
)
from opicflow.schemas.framing import WriterOf

Ints = npt.NDArray[np.int64]

BATCH_BYTES = 2 << 20
BATCH_RECORDS = 8_192
_READY_RECORDS = 2_048
"""So many records of each partition are waited for: the less is known of one, the smaller is what can be merged."""


class Reached(NamedTuple):
    """How far a partition was read, and what tells the record before it from any other."""

    partition: int
    at: int
    last_digest: str


@dataclass(frozen=True)
class TopicStretch:
    """A part of a topic: the records of its partitions from place `start` on. `source` is its name in the ledger."""

    source: str
    partitions: tuple[PartitionStretch, ...]
    start: int = 0

    @property
    def topic(self) -> str:
        """Its name."""
        return self.partitions[0].topic

    @property
    def records(self) -> int:
        """How many offsets it has, at least as many as records."""
        return sum(one.end - one.start for one in self.partitions)

    def gone_on(self, at: int, reached: Sequence[Reached]) -> TopicStretch:
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


def topic_stretch(partitions: Sequence[PartitionStretch]) -> TopicStretch:
    """The partitions of a topic as one log."""
    return TopicStretch(f"kafka/{partitions[0].topic_id}", tuple(partitions))


def read_topic(stretch: TopicStretch, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Batch]:
    """The batches of a topic, which touch.

    A cluster that gives nothing for `patience_seconds` is refused. Leaders may change and brokers come back until then.
    """
    connection = stretch.partitions[0].connection
    with ExitStack() as stack, connection.doing(f"reading {stretch.topic}"):
        consumer = stack.enter_context(closing(connection.consumer(**consumer_settings())))
        topic_is_the_same = stack.enter_context(watched(stretch.partitions[0]))
        reader = Reader(consumer, stretch.partitions, topic_is_the_same, patience_seconds)
        yield from _merged(reader, stretch, writer_of(connection))
        reader.check_topic()


def _merged(reader: Reader, stretch: TopicStretch, writers: WriterOf) -> Iterator[Batch]:
    place = stretch.start
    while True:
        reader.fill(reader.buffers, _is_ready)
        left = [buffer for buffer in reader.buffers if len(buffer)]
        if not left:
            break
        chosen = _next(left)
        records = [record for buffer, size in zip(left, chosen.sizes, strict=True) for record in buffer.peek(size)]
        passed = np.concatenate(
            [buffer.take(size) for buffer, size in zip(left, chosen.sizes, strict=True)], dtype=np.int64
        )
        ends = place + np.cumsum(passed[chosen.order])
        merged = [records[row] for row in chosen.order.tolist()]
        decode = partial(_decoded, merged, ends - 1, stretch.source, stretch.topic, writers)
        yield Batch(place, int(ends[-1]), decode, chosen.size_bytes, _reached(reader))
        place = int(ends[-1])
    rest = sum(buffer.take_rest() for buffer in reader.buffers)
    if rest:  # nothing but marks of transactions, or what compaction left no record of
        decode = partial(_decoded, [], np.zeros(0, np.int64), stretch.source, stretch.topic, writers)
        yield Batch(place, place + rest, decode, 0, _reached(reader))


class _Chosen(NamedTuple):
    """What comes next: so many records of each partition, in this order when they stand one after the other."""

    sizes: list[int]
    order: Ints
    size_bytes: int


def _next(buffers: Sequence[Buffer]) -> _Chosen:
    """As many records as are sure to come next, up to a batch.

    A partition's records come by the latest time up to each: one whose time lies back comes right after the one before.
    """
    keys = [np.maximum.accumulate(buffer.times[:BATCH_RECORDS]) for buffer in buffers]
    limits = [
        (int(key[-1]), number)
        for number, (key, buffer) in enumerate(zip(keys, buffers, strict=True))
        if len(buffer) > BATCH_RECORDS or not buffer.is_complete
    ]
    if limits:  # what comes after the last record that is known of a partition is not known yet
        time_ms, last = min(limits)
        keys = [
            key[: np.searchsorted(key, time_ms, side="right" if number <= last else "left")]
            for number, key in enumerate(keys)
        ]
    numbers = np.repeat(np.arange(len(keys)), [len(key) for key in keys])
    order = np.lexsort((numbers, np.concatenate(keys)))[:BATCH_RECORDS]
    sizes = np.concatenate([buffer.sizes[: len(key)] for buffer, key in zip(buffers, keys, strict=True)])[order]
    bytes_to = np.cumsum(sizes)
    rows = max(int(np.searchsorted(bytes_to, BATCH_BYTES, side="right")), 1)
    order = order[:rows]
    taken = np.bincount(numbers[order], minlength=len(keys))
    # The places of the rows when only what is taken stands one after the other.
    skipped = np.cumsum([0, *(len(key) for key in keys)])[:-1] - np.cumsum([0, *taken])[:-1]
    return _Chosen(taken.tolist(), order - skipped[numbers[order]], int(bytes_to[min(rows, len(bytes_to)) - 1]))


def _is_ready(buffer: Buffer) -> bool:
    return buffer.is_complete or len(buffer) >= _READY_RECORDS or buffer.is_full


def _reached(reader: Reader) -> tuple[Reached, ...]:
    return tuple(Reached(one.stretch.partition, one.at, one.last_digest) for one in reader.buffers)


def _decoded(records: list[Any], places: Ints, source: str, topic: str, writers: WriterOf) -> Decoded:
    messages = messages_of(records)
    decoded = decode_messages(replace(messages, offsets=places), source, writers)
    partitions = np.array([record.partition for record in records], np.int64)
    return decoded._replace(where=partial(_where, topic, places, partitions, messages.offsets))


def _where(topic: str, places: Ints, partitions: Ints, offsets: Ints, place: int) -> tuple[str, int]:
    row = int(np.searchsorted(places, place))
    return f"{topic}/{partitions[row]}", int(offsets[row])
