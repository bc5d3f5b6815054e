"""A connection without a cluster: tests decide whether the sent records are acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource
from kafka.errors import KafkaError
from kafka.future import Future
from kafka.producer.future import RecordMetadata

from opicflow.connectors.kafka.connection import Connection

LIMIT = 10_000
"""The most bytes of a compressed record."""


class FakeSender(threading.Thread):
    """Replaces the thread of the producer. It runs until `force_close`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._end = threading.Event()
        self.start()

    def run(self) -> None:
        self._end.wait()

    def force_close(self) -> None:
        self._end.set()
        self.join()


class FakeProducer:
    """Keeps sent records until `answer` acknowledges or fails them; `flush` calls `when_flushed`."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.waiting: list[tuple[Future, tuple[Any, ...]]] = []
        self.when_flushed: Callable[[], object] = self.answer
        self.problems: list[KafkaError] = []
        self.closed = False
        self._sender = FakeSender()

    def send(self, topic: str, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any) -> Future:
        future = Future()
        self.sent.append((topic, key, value, partition, timestamp_ms))
        self.waiting.append((future, self.sent[-1]))
        return future

    def answer(self, count: int | None = None, problem: KafkaError | None = None) -> None:
        """Acknowledge the oldest `count` records, or fail them with `problem`."""
        now, self.waiting = self.waiting[:count], self.waiting[count:] if count is not None else []
        for number, (future, (topic, key, value, partition, time_ms)) in enumerate(now):
            if problem:
                future.failure(problem)
                continue
            sizes = [-1 if one is None else len(one) for one in (key, value)]
            at = (topic, partition or 0, TopicPartition(topic, partition or 0), number, time_ms)
            future.success(RecordMetadata(*at, None, *sizes, -1))

    def flush(self, timeout: float) -> None:
        self.when_flushed()

    def close(self, timeout: float) -> None:
        self.closed = True


@dataclass(frozen=True)
class FakeConnection(Connection):
    """A connection whose producers are fakes."""

    fakes: list[FakeProducer] = field(default_factory=list, compare=False)
    limits: tuple[int | None, ...] = field(default=(LIMIT,), compare=False)

    def producer(self, **more: Any) -> Any:
        self.fakes.append(FakeProducer())
        return self.fakes[-1]

    @contextmanager
    def admin(self, **more: Any) -> Iterator[Any]:
        limit = self.limits[0]

        class Admin:
            def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
                return [{"error_code": 3 * (topics[0] == "missing"), "partitions": [{}] * 4}]

            def describe_configs(self, resources: list[ConfigResource], config_filter: str) -> dict[str, Any]:
                if limit is None:
                    raise KafkaError("not authorized")
                return {
                    "topic": {
                        one.name: {
                            "max.message.bytes": {"value": str(limit * 100 if one.name.endswith("rejects") else limit)}
                        }
                        for one in resources
                    }
                }

        yield Admin()
