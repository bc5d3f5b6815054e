"""Topics of results in memory, and a connection to them that a test can break."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError

from opicflow.connectors.kafka.connection import Connection
from opicflow.schemas.framing import encode_single_object
from opicflow.schemas.records import to_avro


class StoredRecord(NamedTuple):
    """As much of a record as a reader of results looks at."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def timestamp(self) -> int:
        return self.offset

    @property
    def serialized_value_size(self) -> int:
        return -1 if self.value is None else len(self.value)


@dataclass
class StoredTopic:
    """A topic with one partition."""

    id: str
    records: list[StoredRecord] = field(default_factory=list)


@dataclass(frozen=True)
class FakeResults(Connection):
    """A cluster with topics. `state["answers"]` is whether its broker answers."""

    topics: dict[str, StoredTopic] = field(default_factory=dict, compare=False)
    state: dict[str, Any] = field(default_factory=lambda: {"answers": True, "made": 0}, compare=False)

    def make(self, *names: str) -> None:
        """Create topics, also some that were there before: they are other ones then."""
        for name in names:
            self.state["made"] += 1
            self.topics[name] = StoredTopic(f"id-{self.state['made']}")

    def publish(self, topic: str, *records: Any) -> None:
        """Append records, and tombstones of the URLs that are given as bytes."""
        log = self.topics[topic].records
        for one in records:
            key = one if isinstance(one, bytes) else getattr(one, "url", "key").encode()
            value = None if isinstance(one, bytes) else encode_single_object(type(one).__name__, to_avro(one))
            log.append(StoredRecord(0, len(log), key, value))

    def admin(self, **more: Any) -> Any:
        return _Admin(self)

    def consumer(self, **more: Any) -> Any:
        return _Consumer(self)


class _Admin:
    def __init__(self, cluster: FakeResults) -> None:
        self._cluster = cluster

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        found = self._cluster.topics.get(names[0])
        if found is None:
            return [{"error_code": UnknownTopicOrPartitionError.errno, "topic_id": None, "partitions": []}]
        return [{"error_code": 0, "topic_id": found.id, "partitions": [{}]}]

    def close(self) -> None:
        pass


class _Consumer:
    """Returns a few records a poll."""

    def __init__(self, cluster: FakeResults) -> None:
        self._cluster = cluster
        self._at: dict[Any, int] = {}

    def _records(self, one: Any) -> list[StoredRecord]:
        found = self._cluster.topics.get(one.topic)
        return found.records if found else []

    def _answer(self) -> None:
        if not self._cluster.state["answers"]:
            raise KafkaTimeoutError("no answer")

    def beginning_offsets(self, partitions: list[Any], timeout_ms: int = 0) -> dict[Any, int]:
        self._answer()
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: list[Any], timeout_ms: int = 0) -> dict[Any, int]:
        self._answer()
        return {one: len(self._records(one)) for one in partitions}

    def offsets_for_times(self, times: dict[Any, int]) -> dict[Any, Any]:
        return dict.fromkeys(times)

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._at = dict.fromkeys(partitions, 0)

    def seek(self, one: Any, offset: int) -> None:
        self._at[one] = offset

    def position(self, one: Any, timeout_ms: int = 0) -> int:
        return self._at[one]

    def poll(self, timeout_ms: int) -> dict[Any, list[StoredRecord]]:
        found = {}
        for one, at in self._at.items():
            some = self._records(one)[at : at + 7] if self._cluster.state["answers"] else []
            if some:
                found[one] = some
                self._at[one] = at + len(some)
        return found

    def close(self) -> None:
        pass
