"""A cluster in memory: topics, and processes that are connected to it. It is deterministic.

Fetches have random sizes, and some return nothing. What a process sends arrives when it flushes, or later, or in part.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError, OffsetOutOfRangeError
from kafka.future import Future
from kafka.producer.future import RecordMetadata

from opicflow.connectors.kafka.client import FetchedRecords
from opicflow.connectors.kafka.connection import Connection

_FETCHES = (1, 2, 3, 5, 20, 1000)


class Record(NamedTuple):
    """As much of a consumer's record as is looked at."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    partition: int = 0

    @property
    def serialized_key_size(self) -> int:
        return -1 if self.key is None else len(self.key)

    @property
    def serialized_value_size(self) -> int:
        return -1 if self.value is None else len(self.value)


@dataclass
class Partition:
    """A partition: its records, from its first offset up to its end."""

    records: list[Record]
    first: int = 0
    end: int = 0


@dataclass
class MemoryTopic:
    """A topic. Deleted records stay in `records`, before `first` of their partition."""

    id: str
    partitions: list[Partition]
    has_broker_times: bool = False
    clock_errors_ms: list[int] = field(default_factory=list)
    """How far the clock of each partition's broker is ahead."""

    def append(self, partition: int, time_ms: int, value: bytes | None, key: bytes | None = None, gap: int = 0) -> int:
        """Append a record behind `gap` offsets without one. Returns its offset."""
        one = self.partitions[partition]
        one.records.append(Record(one.end + gap, time_ms, key, value, partition))
        one.end += gap + 1
        return one.end - 1


class MemoryCluster:
    """Topics by their names, and the time of the brokers."""

    def __init__(self, seed: int, now_ms: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = now_ms
        self.topics: dict[str, MemoryTopic] = {}
        self.made: Counter[str] = Counter()
        self.answers = True
        """Whether consumers get answers."""
        self.gaps = 0.0
        """How likely a record of a topic with the brokers' times comes behind an offset without one."""

    def make(self, name: str, partitions: int, has_broker_times: bool = False) -> MemoryTopic:
        """Make a topic. One of a name that was used before has another id."""
        topic_id = f"id-{name}-{self.made[name]}" if self.made[name] else f"id-{name}"
        self.made[name] += 1
        made = MemoryTopic(topic_id, [Partition([]) for _ in range(partitions)], has_broker_times, [0] * partitions)
        self.topics[name] = made
        return made

    def take(self, name: str, record: Record) -> int:
        """Append a record that was sent. Returns its offset."""
        topic, time_ms, gap = self.topics[name], record.timestamp, 0
        if topic.has_broker_times:
            time_ms = self.now_ms + topic.clock_errors_ms[record.partition]
            gap = int(self.chance.random() < self.gaps)
        elif time_ms < 0:
            time_ms = self.now_ms
        return topic.append(record.partition, time_ms, record.value, record.key, gap)


Unsent = tuple[str, Record, Future]


@dataclass(frozen=True, eq=False)
class MemoryConnection(Connection):
    """The connection of one process to a cluster in memory."""

    brokers: str = "memory:9092"
    cluster: MemoryCluster = field(default_factory=lambda: MemoryCluster(0, 0))
    waiting: list[Unsent] = field(default_factory=list)
    """Records that the process has sent and that have not arrived."""
    faults: dict[str, bool] = field(default_factory=dict)
    """`hangs`: flushing never ends, which is an exception here."""

    def arrive(self, some: float = 1.0, at_random: bool = False) -> None:
        """Let a part of what waits arrive: of each partition the oldest ones, or any with `at_random`."""
        chance, left, stopped = self.cluster.chance, list[Unsent](), set[tuple[str, int]]()
        for topic, record, future in self.waiting:
            place = topic, record.partition
            if place in stopped or (some < 1 and chance.random() > some):
                left.append((topic, record, future))
                if not at_random:
                    stopped.add(place)
                continue
            offset = self.cluster.take(topic, record)
            sizes = record.serialized_key_size, record.serialized_value_size
            at = topic, record.partition, TopicPartition(*place), offset, record.timestamp
            future.success(RecordMetadata(*at, None, *sizes, -1))
        self.waiting[:] = left

    def consumer(self, **more: Any) -> MemoryConsumer:
        return MemoryConsumer(self.cluster, more.get("max_poll_records", 1000))

    def producer(self, **more: Any) -> Any:
        return MemoryProducer(self)

    def admin(self, **more: Any) -> MemoryAdmin:
        return MemoryAdmin(self.cluster)

    def __hash__(self) -> int:
        """Another process has another connection."""
        return id(self)

    def __eq__(self, other: object) -> bool:
        """Another process has another connection."""
        return self is other


class Hangs(Exception):
    """A process waits for the cluster without end."""


class _Sender:
    def is_alive(self) -> bool:
        return True

    def force_close(self) -> None:
        pass


class MemoryProducer:
    """Sends records when it is flushed."""

    def __init__(self, process: MemoryConnection) -> None:
        self._process = process
        self._sender = _Sender()

    def send(self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, time_ms: int | None) -> Any:
        future = Future()
        partitions = len(self._process.cluster.topics[topic].partitions)
        place = crc32(key or b"") % partitions if partition is None else partition
        record = Record(0, -1 if time_ms is None else int(time_ms), key, value, place)
        self._process.waiting.append((topic, record, future))
        return future

    def flush(self, timeout: float) -> None:
        faults = self._process.faults
        if faults.get("hangs"):
            raise Hangs
        if faults.get("fails"):
            self._process.arrive(0.5)
            for _, _, future in self._process.waiting:
                future.failure(KafkaTimeoutError("the brokers are away"))
            self._process.waiting.clear()
        self._process.arrive()

    def close(self, timeout: float) -> None:
        pass


class MemoryConsumer:
    """Returns records in columns."""

    def __init__(self, cluster: MemoryCluster, most: int) -> None:
        self._cluster = cluster
        self._most = most
        self.at: dict[TopicPartition, int] = {}
        self.assigned: list[TopicPartition] = []

    def _of(self, one: TopicPartition) -> Partition:
        return self._cluster.topics[one.topic].partitions[one.partition]

    def _answer(self) -> None:
        if not self._cluster.answers:
            raise KafkaTimeoutError("no answer")

    def beginning_offsets(self, partitions: list[TopicPartition], timeout_ms: int = 0) -> dict[TopicPartition, int]:
        self._answer()
        return {one: self._of(one).first for one in partitions}

    def end_offsets(self, partitions: list[TopicPartition], timeout_ms: int = 0) -> dict[TopicPartition, int]:
        self._answer()
        return {one: self._of(one).end for one in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record | None]:
        """Return the first record of each partition at or after a time: as of kafka-python's, its offset is used."""
        return {
            one: next((record for record in self._of(one).records if record.timestamp >= time_ms), None)
            for one, time_ms in times.items()
        }

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned = list(partitions)

    def seek(self, one: TopicPartition, offset: int) -> None:
        self.at[one] = offset

    def position(self, one: TopicPartition, timeout_ms: int = 0) -> int:
        return self.at[one]

    def highwater(self, one: TopicPartition) -> int:
        return self._of(one).end

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        chance, found = self._cluster.chance, dict[TopicPartition, list[Any]]()
        if not self._cluster.answers or chance.random() < 0.1:
            return {}
        for one in self.assigned:
            partition, at = self._of(one), self.at[one]
            if at < partition.first:
                raise OffsetOutOfRangeError({one: at})
            row = bisect_left(partition.records, at, key=lambda record: record.offset)
            rows = partition.records[row : row + min(chance.choice(_FETCHES), self._most)]
            self.at[one] = rows[-1].offset + 1 if rows else max(at, partition.end)
            if rows:
                found[one] = [in_columns(rows)]
        return found

    def close(self) -> None:
        pass


def in_columns(records: list[Record]) -> FetchedRecords:
    """Return records of one partition as a consumer does."""
    return FetchedRecords.of(records[0].partition, [(r.offset, r.timestamp, r.key, r.value) for r in records])


class MemoryAdmin:
    """Describes topics, and deletes records."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> MemoryAdmin:
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        found = self._cluster.topics.get(topics[0])
        if found is None:
            return [{"error_code": 3, "topic_id": None, "partitions": []}]
        return [{"error_code": 0, "topic_id": found.id, "partitions": [{}] * len(found.partitions)}]

    def describe_configs(self, resources: list[Any], config_filter: str) -> dict[str, Any]:
        return {"topic": {one.name: {} for one in resources}}

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        for one, offset in offsets.items():
            partition = self._cluster.topics[one.topic].partitions[one.partition]
            partition.first = max(partition.first, offset)

    def close(self) -> None:
        pass
