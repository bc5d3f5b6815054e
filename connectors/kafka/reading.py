"""Reads partitions of a topic from offset to offset, as a row of batches like those of files.

The order depends on what lies in the partitions, and on nothing else (docs/decisions/kafka-order.md). The batches of a
partition touch, so reading can go on from the end of any of them, in the order it would have had. What would make
reading go on wrong is refused: offsets that are gone, a topic that was made anew, a log that is another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from kafka import TopicPartition
from kafka.errors import (
    CorruptRecordError,
    KafkaError,
    LogTruncationError,
    NoError,
    OffsetOutOfRangeError,
    RetriableError,
    UnknownTopicOrPartitionError,
    for_code,
)

from opicflow.connectors.files.decoded import Decoded
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.framing import writer_of
from opicflow.connectors.kafka.messages import decode_messages, messages_of
from opicflow.schemas.framing import WriterOf
from opicflow.schemas.pages import page_id

Ints = npt.NDArray[np.int64]

BATCH_BYTES = 2 << 20
BATCH_RECORDS = 4_096
ALONE_RECORDS = 20_000
"""The most records of a batch: of one partition among others, and of one that is read alone."""

PATIENCE_SECONDS = 120.0
_HOUR_MS = 3_600_000
_LAST_HOUR = 1 << 62
_POLL_MS = 100
_POLL_RECORDS = 4_000
_FETCH_BYTES = 2 << 20
_CHECK_SECONDS = 10.0
_STALL_SECONDS = 1.0


@dataclass(frozen=True)
class PartitionStretch:
    """A part of a partition: the records from offset `start` up to (not including) `end`.

    `source` is the name under which the ledger keeps its mark. `last_digest` is that of the batch that ended at
    `start`, if there was one: the record before `start` must still be the same.
    """

    source: str
    connection: Connection
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    last_digest: str = ""


class Batch(NamedTuple):
    """Records of a stretch, in [start, end), still to be decoded. Offsets without a record may be among them.

    `last_digest` tells its last record from any other; of a batch without records it is that of the batch before.
    """

    start: int
    end: int
    decode: Callable[[], Decoded]
    size_bytes: int
    last_digest: str


def read_partitions(
    stretches: Sequence[PartitionStretch], patience_seconds: float = PATIENCE_SECONDS
) -> Iterator[tuple[str, Batch | None]]:
    """The batches of partitions of one topic, with the name of their source; None where a source has come to its end.

    A cluster that gives nothing for `patience_seconds` is refused. Leaders may change and brokers come back until then.
    """
    if not stretches:
        return
    connection, topic = stretches[0].connection, stretches[0].topic
    with ExitStack() as stack, connection.doing(f"reading {topic}"):
        consumer = stack.enter_context(closing(connection.consumer(**consumer_settings())))
        topic_is_the_same = stack.enter_context(watched(stretches[0]))
        reader = Reader(consumer, stretches, topic_is_the_same, patience_seconds)
        yield from _merged(reader, writer_of(connection))
        reader.check_topic()


def resolve(
    connection: Connection,
    topic: str,
    since_ms: int | None = None,
    until_ms: int | None = None,
    starts: Mapping[int, int] | None = None,
) -> list[PartitionStretch]:
    """The stretches of a topic between two times of its records: from its beginning, until now, where none is given.

    "Now" is the last offset that no open transaction can change any more. `starts` are offsets of partitions that
    begin there, whatever their times.
    """
    with connection.doing(f"reading {topic}"):
        topic_id, partitions = partitions_of_topic(connection, topic)
        if strange := sorted(set(starts or ()) - set(range(partitions))):
            raise KafkaRefused(f"{topic} has {partitions} partitions, and no partition {strange[0]}: name others")
        places = [TopicPartition(topic, number) for number in range(partitions)]
        with closing(connection.consumer(isolation_level="read_committed")) as consumer:
            first, last = consumer.beginning_offsets(places), consumer.end_offsets(places)
            begins, ends = _at_time(consumer, first, last, since_ms), _at_time(consumer, last, last, until_ms)
    chosen = {place: (starts or {}).get(place.partition, begins[place]) for place in places}
    return [
        PartitionStretch(
            f"kafka/{topic_id}/{place.partition}",
            connection,
            topic,
            topic_id,
            place.partition,
            chosen[place],
            max(chosen[place], ends[place]),
        )
        for place in places
    ]


def partitions_of_topic(connection: Connection, topic: str) -> tuple[str, int]:
    """The id of a topic, and how many partitions it has."""
    with connection.doing(f"reading {topic}"), closing(connection.admin()) as admin:
        found = described(admin, topic)
    if found is None:
        raise KafkaRefused(f"there is no topic {topic}: make it with opicflow topics create, or name another one")
    return found


def consumer_settings() -> dict[str, Any]:
    """How records are fetched, whoever reads them. There is no place that a consumer may jump to by itself."""
    return {
        "isolation_level": "read_committed",
        "auto_offset_reset": "none",
        "max_partition_fetch_bytes": _FETCH_BYTES,
        "max_poll_records": _POLL_RECORDS,
        "fetch_max_wait_ms": _POLL_MS,  # a fetch that waits keeps other partitions of its broker waiting
        "reconnect_backoff_max_ms": 1_000,
    }


def digest_of(record: Any) -> str:
    """What tells a record from any other that could lie at its place."""
    key, value = record.key or b"", record.value or b""
    sizes = b"%d %d %d " % (record.offset, record.serialized_key_size, record.serialized_value_size)
    return f"{page_id(b''.join((sizes, key, value))):016x}"


def check_range(stretch: PartitionStretch, first: int, last: int) -> None:
    """Refuse a stretch that a log from offset `first` to `last` does not hold."""
    where = f"{stretch.topic}, partition {stretch.partition}"
    if stretch.start < first:
        raise KafkaRefused(
            f"{where}: offsets {stretch.start} to {first - 1} were deleted before they were read: "
            "read from the beginning of the topic into a new state, and give the topic a longer retention"
        )
    if stretch.start > last:
        raise KafkaRefused(
            f"{where}: the log ends at offset {last}, and reading would go on at {stretch.start}: it was cut off or "
            "made anew: read it from its beginning into a new state"
        )
    if stretch.end > last:
        raise KafkaRefused(
            f"{where}: the log ends at offset {last}, before offset {stretch.end} that it should be read to: "
            "give an end that is there"
        )


def poll(
    consumer: Any, left: Callable[[], Sequence[PartitionStretch]], timeout_ms: int, most: int | None = None
) -> dict[Any, list[Any]]:
    """The next records of each partition; nothing after a failure that may pass. `left` tells where reading is."""
    try:
        found: dict[Any, list[Any]] = consumer.poll(timeout_ms=timeout_ms, max_records=most)
    except (OffsetOutOfRangeError, LogTruncationError) as problem:
        raise _why_lost(consumer, left(), problem) from None
    except CorruptRecordError as problem:
        raise _why_corrupt(left(), problem) from None
    except RetriableError:
        return {}
    return found


def no_answer(stretch: PartitionStretch, seconds: float) -> KafkaRefused:
    """What is said of a cluster that gives nothing. `stretch` is what is left to be read."""
    return KafkaRefused(
        f"no answer from {stretch.connection.brokers} for {seconds:.0f} s while reading {stretch.topic}, partition "
        f"{stretch.partition} at offset {stretch.start}: see whether the brokers run; run again to go on"
    )


def _why_lost(consumer: Any, left: Sequence[PartitionStretch], problem: KafkaError) -> KafkaRefused:
    """Why records that were there when reading began are not there any more."""
    topic = left[0].topic
    with closing(left[0].connection.admin()) as admin:
        found = described(admin, topic)
    places = {TopicPartition(topic, stretch.partition): stretch for stretch in left}
    first, last = consumer.beginning_offsets(list(places)), consumer.end_offsets(list(places))
    try:
        check_topic(topic, left[0].topic_id, found and found[0])
        for place, stretch in places.items():
            check_range(replace(stretch, end=stretch.start), first[place], last[place])
    except KafkaRefused as refused:
        return refused
    return KafkaRefused(f"{topic}: the log changed while it was read ({_line(problem)}): read it into a new state")


def _why_corrupt(left: Sequence[PartitionStretch], problem: KafkaError) -> KafkaRefused:
    places = ", ".join(f"{stretch.partition} from offset {stretch.start}" for stretch in left)
    return KafkaRefused(
        f"{left[0].topic}: a record is damaged in the log ({_line(problem)}; being read: partition {places}): restore "
        "the log from a replica, or read on behind it"
    )


def _line(problem: KafkaError) -> str:
    return " ".join(str(problem).split())


def check_topic(topic: str, topic_id: str, found: str | None) -> None:
    """Refuse a topic that is gone (None), or another one under the same name."""
    if found is None:
        raise KafkaRefused(f"{topic}: the topic was deleted: nothing more can be read of it")
    if topic_id != found:
        raise KafkaRefused(
            f"{topic}: the topic was deleted and made anew (its id was {topic_id} and is {found}), so its offsets mean "
            "other records: read it from its beginning into a new state"
        )


def described(admin: Any, topic: str) -> tuple[str, int] | None:
    """The id of a topic and how many partitions it has, None if there is no such topic. Raises what the client does."""
    (found,) = admin.describe_topics([topic])
    problem = for_code(found["error_code"])
    if problem is UnknownTopicOrPartitionError:
        return None
    if problem is not NoError:
        raise problem(topic)
    return str(found["topic_id"]), len(found["partitions"])


@contextmanager
def watched(stretch: PartitionStretch) -> Iterator[Callable[[], None]]:
    """A check that the topic is still the one it was."""
    with closing(stretch.connection.admin()) as admin:

        def check() -> None:
            found = described(admin, stretch.topic)
            check_topic(stretch.topic, stretch.topic_id, found and found[0])

        check()
        yield check


def _at_time(consumer: Any, otherwise: dict[Any, int], last: dict[Any, int], time_ms: int | None) -> dict[Any, int]:
    """The first offsets from a time on; where there is none yet, the last ones."""
    if time_ms is None:
        return otherwise
    found = consumer.offsets_for_times({place: max(time_ms, 0) for place in last})
    return {place: min(found[place].offset, last[place]) if found.get(place) else last[place] for place in last}


# -- what was fetched and not yet taken --------------------------------------------------------------------------------


class Buffer:
    """The records of one partition that were fetched and not yet taken, in order, and what a choice needs of them.

    `times` are theirs, in milliseconds; `sizes` those of their values. `at` is the offset up to which all was taken.
    """

    def __init__(self, stretch: PartitionStretch) -> None:
        self.stretch = stretch
        self.at = stretch.start
        self.last_digest = stretch.last_digest
        self.times: Ints = np.zeros(0, np.int64)
        self.sizes: Ints = np.zeros(0, np.int64)
        self.fetched_to = stretch.start
        self.is_complete = False
        """Whether it holds all that is left of the stretch."""
        self._records: list[Any] = []

    def __len__(self) -> int:
        """How many records it holds."""
        return len(self._records)

    @property
    def is_full(self) -> bool:
        """Whether it holds a batch and the next one."""
        return len(self) >= 2 * ALONE_RECORDS or int(self.sizes.sum()) >= 2 * BATCH_BYTES

    def add(self, records: list[Any], position: int | None) -> None:
        """Take in what came, and where the consumer is now."""
        stretch = self.stretch
        if records and records[0].offset < stretch.start:
            self._compare(records[0])
            records = [record for record in records if record.offset >= stretch.start]
        if records and records[-1].offset >= stretch.end:
            records = [record for record in records if record.offset < stretch.end]
            self.is_complete = True
        self.fetched_to = max(self.fetched_to, records[-1].offset + 1 if records else 0, position or 0)
        self.is_complete |= self.fetched_to >= stretch.end
        if records:
            self._records += records
            self.times = np.append(self.times, [record.timestamp for record in records])
            sizes = np.array([record.serialized_value_size for record in records], np.int64)  # -1 = no value
            self.sizes = np.append(self.sizes, np.maximum(sizes, 0))

    def peek(self, size: int) -> list[Any]:
        """The next records."""
        return self._records[:size]

    def take(self, size: int) -> Ints:
        """Let go of the next records; how many offsets each passes, with those before it that have no record."""
        if size == 0:
            return np.zeros(0, np.int64)
        offsets = np.array([record.offset for record in self.peek(size)], np.int64)
        passed: Ints = np.diff(offsets, prepend=self.at - 1)
        self.at, self.last_digest = int(offsets[-1]) + 1, digest_of(self._records[size - 1])
        self._records = self._records[size:]
        self.times, self.sizes = self.times[size:], self.sizes[size:]
        return passed

    def take_rest(self) -> int:
        """Pass the offsets behind the last record; how many there are."""
        before, self.at = self.at, self.stretch.end
        return self.at - before

    def _compare(self, record: Any) -> None:
        stretch = self.stretch
        if record.offset == stretch.start - 1 and stretch.last_digest not in ("", digest_of(record)):
            raise KafkaRefused(
                f"{stretch.topic}, partition {stretch.partition}: the record at offset {record.offset} is not the one "
                "that was read before: the log was made anew or restored: read it from its beginning into a new state"
            )


def _decoded(records: list[Any], source: str, writers: WriterOf) -> Decoded:
    return decode_messages(messages_of(records), source, writers)


# -- the order ---------------------------------------------------------------------------------------------------------


def _merged(reader: Reader, writers: WriterOf) -> Iterator[tuple[str, Batch | None]]:
    """Always the partition whose next record is of the earliest hour, and no further than the others have come."""
    left = reader.buffers
    while left:
        reader.fill(left, _has_head_or_ended)
        for ended in [one for one in left if not len(one)]:
            if ended.at < ended.stretch.end:  # nothing but marks of transactions, or what compaction left no record of
                yield ended.stretch.source, _batch(ended, 0, writers)
            yield ended.stretch.source, None
        left = [one for one in left if len(one)]
        if not left:
            return
        chosen = min(left, key=_head)
        last_hour = min((_head(one)[0] for one in left if one is not chosen), default=_LAST_HOUR)
        most = BATCH_RECORDS if len(left) > 1 else ALONE_RECORDS
        reader.fill([chosen], partial(_has_batch, last_hour, most))
        yield chosen.stretch.source, _batch(chosen, _next_size(chosen, last_hour, most), writers)


def _head(buffer: Buffer) -> tuple[int, int, int]:
    """By what partitions are chosen: the hour and the time of the next record, and the partition."""
    time_ms = int(buffer.times[0])
    return time_ms // _HOUR_MS, time_ms, buffer.stretch.partition


def _next_size(buffer: Buffer, last_hour: int, most: int) -> int:
    """How many records the next batch has, which takes none of a later hour; 0 = more must be known."""
    later = buffer.times[:most] // _HOUR_MS > last_hour
    size = int(later.argmax()) if later.any() else len(later)
    bytes_to = np.cumsum(buffer.sizes[:size])
    size = min(size, max(int(np.searchsorted(bytes_to, BATCH_BYTES, side="right")), 1))
    return size if size < len(buffer) or size == most or buffer.is_complete else 0


def _batch(buffer: Buffer, size: int, writers: WriterOf) -> Batch:
    """The next batch, of so many records; without any, it is what is left of the stretch."""
    start, records, size_bytes = buffer.at, buffer.peek(size), int(buffer.sizes[:size].sum())
    if records:
        buffer.take(size)
    else:
        buffer.take_rest()
    decode = partial(_decoded, records, buffer.stretch.source, writers)
    return Batch(start, buffer.at, decode, size_bytes, buffer.last_digest)


def _has_head_or_ended(buffer: Buffer) -> bool:
    return len(buffer) > 0 or buffer.is_complete


def _has_batch(last_hour: int, most: int, buffer: Buffer) -> bool:
    return _next_size(buffer, last_hour, most) > 0


class Reader:
    """A consumer of some partitions, and what it fetched."""

    def __init__(
        self,
        consumer: Any,
        stretches: Sequence[PartitionStretch],
        topic_is_the_same: Callable[[], None],
        patience_seconds: float,
    ) -> None:
        self.buffers = [Buffer(stretch) for stretch in sorted(stretches, key=lambda one: one.partition)]
        self._by_place = {TopicPartition(b.stretch.topic, b.stretch.partition): b for b in self.buffers}
        self._consumer = consumer
        self._topic_is_the_same = topic_is_the_same
        self._patience_seconds = patience_seconds
        self._topic = stretches[0].topic
        self._checked_at = self._got_at = time.monotonic()
        places = list(self._by_place)
        first, last = consumer.beginning_offsets(places), consumer.end_offsets(places)
        for place, buffer in self._by_place.items():
            check_range(buffer.stretch, first[place], last[place])
        consumer.assign(places)
        for place, buffer in self._by_place.items():
            stretch = buffer.stretch
            look_back = stretch.last_digest != "" and stretch.start > first[place]
            buffer.fetched_to = stretch.start - look_back
            buffer.is_complete = buffer.fetched_to == stretch.end
            consumer.seek(place, buffer.fetched_to)

    def fill(self, wanted: Sequence[Buffer], is_enough: Callable[[Buffer], bool]) -> None:
        """Fetch until there is enough in each of these buffers; in others too, while they are not full."""
        since = time.monotonic()
        while missing := [buffer for buffer in wanted if not is_enough(buffer)]:
            self._hold_back(missing)
            before = [buffer.fetched_to for buffer in missing]
            self._poll()
            now = time.monotonic()
            if before != [buffer.fetched_to for buffer in missing]:
                since = now
            elif now - since > self._patience_seconds:
                raise self._no_answer(missing[0])

    def check_topic(self) -> None:
        """Whether all that was read came from the topic that was meant; patient like reading."""
        since = time.monotonic()
        while not self._is_checked():
            if time.monotonic() - since > self._patience_seconds:
                raise self._no_answer(self.buffers[0])
            Event().wait(_STALL_SECONDS)

    def _is_checked(self) -> bool:
        try:
            self._topic_is_the_same()
        except RetriableError:
            return False
        self._checked_at = time.monotonic()
        return True

    def _hold_back(self, missing: Sequence[Buffer]) -> None:
        """Fetch no more for partitions that have enough, lest one that is far ahead fills the memory."""
        paused = self._consumer.paused()
        for place, buffer in self._by_place.items():
            is_idle = buffer.is_complete or (buffer.is_full and buffer not in missing)
            if is_idle and place not in paused:
                # The client forgets a problem that it keeps for the next poll when its partition is paused until then,
                # and would look for records behind it for ever. One record a poll leaves it nothing to keep.
                self._poll(timeout_ms=0, most=1)
                self._consumer.pause(place)
            elif not is_idle and place in paused:
                self._consumer.resume(place)

    def _poll(self, timeout_ms: int = _POLL_MS, most: int | None = None) -> None:
        found = poll(self._consumer, self._left, timeout_ms, most)
        now = time.monotonic()
        # After trouble, what comes may be of another topic of that name: the client asks for it by name.
        if found and (now - self._checked_at > _CHECK_SECONDS or now - self._got_at > _STALL_SECONDS):
            self._is_checked()
        if found:
            self._got_at = now
        for place, buffer in self._by_place.items():
            if not buffer.is_complete:
                buffer.add(found.get(place, []), self._consumer.position(place, timeout_ms=0))

    def _left(self) -> list[PartitionStretch]:
        return [replace(b.stretch, start=b.fetched_to) for b in self.buffers if not b.is_complete]

    def _no_answer(self, buffer: Buffer) -> KafkaRefused:
        return no_answer(replace(buffer.stretch, start=buffer.fetched_to), self._patience_seconds)
