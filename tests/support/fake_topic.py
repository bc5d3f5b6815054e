"""A topic in memory: partitions, and a consumer that returns their records in any slices and order."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from opicflow.connectors.kafka.client import FetchedRecords
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange
from opicflow.connectors.kafka.topic_log import PartitionProgress, TopicBatch, TopicRange, read_topic, topic_range
from support.memory_kafka import MemoryCluster, MemoryConsumer, Partition, Record, in_columns

HOUR_MS = 3_600_000


TOPIC, TOPIC_ID = "events", "id-1"


@dataclass(eq=False)
class Cluster:
    """A connection, and the cluster behind it. Fetches have random sizes."""

    partitions: dict[int, Partition]
    seed: int = 0
    topic_id: str | None = TOPIC_ID
    brokers: str = "b:9092"
    problems: dict[int, BaseException] = field(default_factory=dict)
    """Errors that polls raise, by the number of the poll; each is raised once."""
    silent_from: int = 1 << 30
    closed: int = 0
    held: int = 0
    """How many records a consumer handed out."""

    def registry_access(self) -> None:
        return None

    @contextmanager
    def doing(self, action: str) -> Iterator[None]:
        try:
            yield
        except KafkaError as problem:
            raise KafkaRefused(f"{self.brokers}: {action}: {problem}") from None

    def consumer(self, **more: Any) -> Consumer:
        assert more["isolation_level"] == "read_committed"
        made = Consumer(self)
        made.may_poll = more.get("auto_offset_reset") == "none"
        return made

    def admin(self) -> Admin:
        return Admin(self)


@dataclass
class Admin:
    cluster: Cluster

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        if self.cluster.topic_id is None:
            return [{"error_code": 3, "topic_id": None, "partitions": []}]
        partitions = [{}] * len(self.cluster.partitions)
        return [{"error_code": 0, "topic_id": self.cluster.topic_id, "partitions": partitions}]

    def close(self) -> None:
        self.cluster.closed += 1


class Consumer(MemoryConsumer):
    """Returns records as a consumer may: any slices, in any order, in parts as those of several batches are."""

    may_poll = True
    """Whether it refuses offsets that were deleted."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(MemoryCluster(cluster.seed, 0), 1)
        self.cluster = cluster
        self.chance = random.Random(cluster.seed)
        self.polls = 0

    def _of(self, one: TopicPartition) -> Partition:
        return self.cluster.partitions[one.partition]

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        assert self.may_poll
        return {one: [*self._parts(some)] for one, some in self.fetched(timeout_ms).items() if some}

    def _parts(self, records: list[Record]) -> Iterator[FetchedRecords]:
        while records:
            count = self.chance.randint(1, len(records))
            yield in_columns(records[:count])
            records = records[count:]

    def fetched(self, timeout_ms: int) -> dict[TopicPartition, list[Record]]:
        """Return what a poll finds."""
        self.polls += 1
        for number in [number for number in self.cluster.problems if number <= self.polls]:
            raise self.cluster.problems.pop(number)
        if self.polls >= self.cluster.silent_from:
            return {}
        found: dict[TopicPartition, list[Record]] = {}
        room = self.chance.choice([1, 2, 5, 100])
        for one in self.chance.sample(self.assigned, len(self.assigned)):
            partition = self.cluster.partitions[one.partition]
            if room == 0 or self.chance.random() < 0.2:
                continue
            some = [r for r in partition.records if r.offset >= self.at[one]][: self.chance.randint(1, room)]
            room -= len(some)
            if some:
                found[one] = some
                self.at[one] = some[-1].offset + 1
                self.cluster.held += len(some)
            if not some or (some[-1] is partition.records[-1] and self.chance.random() < 0.5):
                self.at[one] = max(self.at[one], partition.end)
        return found

    def close(self) -> None:
        self.cluster.closed += 1


def record(partition: int, offset: int, hour: float = 0, size: int = 0) -> Record:
    value = json.dumps({"url": f"http://a/{partition}/{offset}", "x": "x" * size}).encode()
    return Record(offset, int(hour * HOUR_MS), b"k", value, partition)


def filled(*hours: list[float]) -> Cluster:
    """Partitions with one record for each hour given."""
    return Cluster(
        {
            number: Partition([record(number, offset, hour) for offset, hour in enumerate(of_one)], 0, len(of_one))
            for number, of_one in enumerate(hours)
        }
    )


def ranges_of(cluster: Cluster, **changes: Any) -> list[PartitionRange]:
    return [
        replace(
            PartitionRange(f"s{number}", cluster, TOPIC, TOPIC_ID, number, partition.first, partition.end),  # type: ignore[arg-type]
            **changes,
        )
        for number, partition in cluster.partitions.items()
    ]


class Step(NamedTuple):
    """A batch: the position of every record in the log, its partition and its offset."""

    start: int
    end: int
    records: tuple[tuple[int, str, int], ...]
    size_bytes: int
    reached: tuple[PartitionProgress, ...]

    @property
    def offsets(self) -> list[int]:
        return [offset for _, _, offset in self.records]


def step_of(batch: TopicBatch) -> Step:
    decoded = batch.decode()
    assert decoded.where is not None
    records = tuple((position, *decoded.where(position)) for position in decoded.events.offset.tolist())
    return Step(batch.start, batch.end, records, batch.size_bytes, batch.reached)


def all_steps(input_range: TopicRange, **more: Any) -> list[Step]:
    return [step_of(batch) for batch in read_topic(input_range, **more)]


def log_of(cluster: Cluster, **changes: Any) -> TopicRange:
    return topic_range(ranges_of(cluster, **changes))


def records_of(steps: list[Step]) -> list[tuple[int, str, int]]:
    return [record for step in steps for record in step.records]


def advanced_to(input_range: TopicRange, step: Step) -> TopicRange:
    return input_range.advanced_to(step.end, step.reached)


def in_order(input_range: TopicRange, cluster: Cluster) -> list[tuple[int, str, int]]:
    """The rule of docs/decisions/topics.md, record by record, on the records of the partitions."""
    at = {one.partition: one.start for one in input_range.partitions}
    left = {
        one.partition: [r for r in cluster.partitions[one.partition].records if one.start <= r.offset < one.end]
        for one in input_range.partitions
    }
    found, end = [], input_range.start
    while any(left.values()):
        _, number = min((records[0].timestamp, number) for number, records in left.items() if records)
        offset = left[number].pop(0).offset
        end += offset + 1 - at[number]
        at[number] = offset + 1
        found.append((end - 1, f"{input_range.topic}/{number}", offset))
    return found


@dataclass
class Topics:
    connection: Connection
    admin: Any
    prefix: str
    names: list[str] = field(default_factory=list)

    def make(self, name: str, partitions: int = 1) -> str:
        topic = self.prefix + name
        settings_of = {"retention.ms": "-1"}
        self.admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings_of)])
        self.admin.wait_for_topics([topic])
        self.names.append(topic)
        return topic

    def delete(self, *names: str) -> None:
        for name in names:
            self.names.remove(name)
            self.admin.delete_topics([name])


def send(connection: Connection, topic: str, records: dict[int, list[Record]]) -> None:
    with closing(connection.producer()) as producer:
        send_with(producer, topic, records)


def send_with(producer: Any, topic: str, records: dict[int, list[Record]]) -> None:
    sent = [
        producer.send(topic, r.value, r.key, partition=number, timestamp_ms=r.timestamp)
        for number, of_one in records.items()
        for r in of_one
    ]
    for one in sent:
        one.get(30)
