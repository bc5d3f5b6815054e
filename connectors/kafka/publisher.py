"""Sends records in order, and reports whether all were acknowledged.

kafka-python keeps the order and sends nothing twice. This module closes two gaps: kafka-python's `flush` returns
whether or not records arrived; after a failed batch kafka-python sends the next one under a new epoch, which would
leave a gap; and it accepts records without limit while no broker answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import NamedTuple

import numpy as np
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, for_code

from opicflow.connectors.kafka.client import (
    MIN_RECORDS,
    BatchAppender,
    FutureRecordMetadata,
    RecordColumns,
    RecordMetadata,
    compressed_size,
    is_sending,
    stop_sending,
)
from opicflow.connectors.kafka.connection import BOOTSTRAP_TIMEOUT_SECONDS, Connection, KafkaRefused
from opicflow.schemas.arrays import Ints
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES
from opicflow.schemas.hashing import hash_text, hash_texts
from opicflow.schemas.shards import ShardRanges

MOST_UNACKNOWLEDGED_BYTES = 64 << 20
"""The limit of unacknowledged bytes: `send` waits while there are more."""

_MOST_RECORD_BYTES = MOST_EVENT_BYTES + (2 << 20)
_BATCH_BYTES = 256 << 10
_LINGER_MS = 25
_RECORD_COST_BYTES = 1000
"""The memory of an unacknowledged record besides its key and value: a future and its callbacks."""
_DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of `max.message.bytes`, used where this client is not allowed to read the topic's setting."""
_CHECK_SECONDS = 1.0
_GRACE_SECONDS = 10.0
"""Added to the time limit, so that kafka-python gives up first, with the reason."""
_CLOSING_SECONDS = 5.0


def partition_of(key: bytes | str, partitions: int) -> int:
    """The partition of a record with this key, a URL or a host: partitions are equal ranges of XXH64 of the key.

    It is no page id: who reads results need not know the key of page ids, and a rebuild with another one leaves every
    record where it is.
    """
    return (hash_text(key) * partitions) >> 64


def partitions_of(keys: Sequence[bytes | str], partitions: int) -> Ints:
    """`partition_of` of each key."""
    return ShardRanges.equal(partitions).of(hash_texts(keys))


class RecordPosition(NamedTuple):
    """The partition and the offset of a record that was written."""

    partition: int
    offset: int


@dataclass(frozen=True)
class _Topic:
    partitions: int
    most_bytes: int
    failed: Callable[[BaseException], None]


class Publisher:
    """Sends records to a cluster, those of a partition in the order of the calls.

    The first failure is final: later records may or may not arrive, and every later call raises `KafkaRefused` with the
    first failure, for all users of the publisher. It is safe to call from several threads. While a broker is
    unavailable, for up to the time limit, at most `most_unacknowledged_bytes` are kept and further calls wait.
    """

    def __init__(
        self,
        connection: Connection,
        timeout_seconds: float = 120.0,
        most_unacknowledged_bytes: int = MOST_UNACKNOWLEDGED_BYTES,
        connect_seconds: float = BOOTSTRAP_TIMEOUT_SECONDS,
    ) -> None:
        """Connect. The time limit applies to each record, from the call to its acknowledgement."""
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._most_unacknowledged_bytes = most_unacknowledged_bytes
        self._topics: dict[str, _Topic] = {}
        self._lock = threading.Lock()
        self._room = threading.Event()
        self._waiters = 0
        self._sent = self._sent_bytes = 0
        self._acknowledged = self._acknowledged_bytes = 0  # only its own thread adds to them
        self._problem: KafkaRefused | None = None
        timeout_ms = int(timeout_seconds * 1000)
        self._producer = connection.producer(
            compression_type="lz4",
            batch_size=_BATCH_BYTES,
            linger_ms=_LINGER_MS,
            max_request_size=_MOST_RECORD_BYTES,
            bootstrap_timeout_ms=connect_seconds * 1000,
            delivery_timeout_ms=timeout_ms,
            request_timeout_ms=min(30_000, timeout_ms // 2),
            max_block_ms=timeout_ms,
            reconnect_backoff_max_ms=1000,
            metrics_enabled=False,
        )
        self._appender = BatchAppender.of(self._producer)

    def __enter__(self) -> Publisher:
        """As a context manager, the publisher is flushed at the end, or abandoned after an error."""
        return self

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        """Flush and close; after an error, send nothing more."""
        if kind is None:
            self.close()
        else:
            self.abandon()

    @property
    def acknowledged(self) -> int:
        """The number of records acknowledged so far."""
        return self._acknowledged

    @property
    def sent(self) -> int:
        """The number of records sent so far, acknowledged or not."""
        return self._sent

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic, read once."""
        return (self._topics.get(topic) or self._describe(topic)).partitions

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> bool:
        """Send a record; returns False, without sending, if the topic or this client does not accept its size.

        The record may still fail to arrive: `flush` waits for the acknowledgement.
        """
        return self._send(topic, key, value, partition, timestamp_ms) is not None

    def send_many(
        self,
        topic: str,
        partitions: Sequence[int | None],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        times_ms: Ints | int | None = None,
    ) -> list[int]:
        """Send records in order; returns the indices of records that are too large and were not sent.

        `times_ms` are their times, or the one time of all; without it, the time at which they are sent.
        """
        known = self._topics.get(topic) or self._describe(topic)
        if self._appender is not None and len(keys) >= MIN_RECORDS and None not in partitions:
            records = RecordColumns.of(keys, values, _now_ms() if times_ms is None else times_ms)
            chosen = np.array(partitions, np.int64)
            sizes = records.sizes + _RECORD_COST_BYTES
            fits = sizes.max() <= known.most_bytes and self._appender.can_append(topic, known.most_bytes)
            if fits and len(keys) >= MIN_RECORDS * len(np.unique(chosen)):
                self._send_together(self._appender, known, topic, chosen, records, int(sizes.sum()))
                return []
        send = self._send
        times = times_ms.tolist() if isinstance(times_ms, np.ndarray) else [times_ms] * len(keys)
        rows = enumerate(zip(keys, values, partitions, times, strict=True))
        return [index for index, record in rows if send(topic, *record) is None]

    def _send_together(
        self,
        appender: BatchAppender,
        known: _Topic,
        topic: str,
        partitions: Ints,
        records: RecordColumns,
        size: int,
    ) -> None:
        """Send records, none too large, in order for each partition."""
        self._make_room(len(partitions), size)
        order = np.argsort(partitions, kind="stable")
        ends = np.flatnonzero(np.diff(partitions[order], append=-1)) + 1
        try:
            for rows in np.split(order, ends[:-1]):
                for future, count, size_bytes in appender.append(topic, int(partitions[rows[0]]), records, rows):
                    arrived = partial(self._arrived_together, count, size_bytes + count * _RECORD_COST_BYTES)
                    future.add_callback(arrived).add_errback(known.failed)
        except KafkaError as problem:
            known.failed(problem)
        if self._problem is not None:
            self._check()

    def deliver(self, topic: str, values: Sequence[bytes], partition: int | None = None) -> list[RecordPosition]:
        """Send records without keys and wait for them; returns their positions."""
        futures = [self._send(topic, None, value, partition, None) for value in values]
        self.flush()
        positions = []
        for number, future in enumerate(futures):
            if future is None:
                raise KafkaRefused(
                    f"{self._connection.brokers}: publishing to {topic}: record {number + 1} is larger than the topic "
                    "takes: raise its max.message.bytes"
                )
            positions.append(RecordPosition(future.value.partition, future.value.offset))
        return positions

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until every record sent so far is acknowledged; raises `KafkaRefused` for the first that failed."""
        limit_seconds = self._timeout_seconds + _GRACE_SECONDS if timeout_seconds is None else timeout_seconds
        give_up_at = time.monotonic() + limit_seconds
        sent = self._sent
        while True:
            self._check()
            if self._flushed(min(limit_seconds, _CHECK_SECONDS)) and self._acknowledged >= sent:
                self._check()
                return
            self._check_progress(give_up_at, limit_seconds)

    def close(self) -> None:
        """Flush, and close the connection."""
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the connection. Unacknowledged records may be lost."""
        stop_sending(self._producer)
        with suppress(KafkaError):
            self._producer.close(timeout=_CLOSING_SECONDS)

    def _send(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None, timestamp_ms: int | None
    ) -> FutureRecordMetadata | None:
        known = self._topics.get(topic) or self._describe(topic)
        # The same count as in the acknowledgement, where a missing key or value has size -1.
        size = (-1 if key is None else len(key)) + (-1 if value is None else len(value)) + _RECORD_COST_BYTES
        if size > known.most_bytes and not _fits(key, value, known.most_bytes):
            self._check()
            return None
        self._make_room(1, size)
        try:
            appender = self._appender
            if appender and partition is not None and value is not None and appender.has_partition(topic, partition):
                future = appender.append_one(topic, partition, key, value, timestamp_ms)
            else:
                future = self._producer.send(topic, value, key, None, partition, timestamp_ms)
        except KafkaError as problem:
            known.failed(problem)
        else:
            future.add_callback(self._arrived).add_errback(known.failed)
        if self._problem is not None:
            self._check()
        return future

    def _arrived(self, record: RecordMetadata) -> None:
        """Runs on the producer's thread for every record."""
        self._acknowledged_bytes += record.serialized_key_size + record.serialized_value_size + _RECORD_COST_BYTES
        self._acknowledged += 1
        if self._waiters:
            self._room.set()

    def _arrived_together(self, records: int, size_bytes: int, _: RecordMetadata) -> None:
        """The same for the records of a chunk."""
        self._acknowledged_bytes += size_bytes
        self._acknowledged += records
        if self._waiters:
            self._room.set()

    def _failed(self, topic: str, problem: BaseException) -> None:
        """Runs on the producer's thread, or on a calling thread."""
        self._end(self._connection.refused(problem, f"publishing to {topic}"))

    def _end(self, problem: KafkaRefused) -> None:
        """Keep the first failure only: later ones are its consequences."""
        with self._lock:
            self._problem = self._problem or problem
        self._room.set()

    def _check(self) -> None:
        """Raise the first failure, if any. Nothing is sent after it: there would be a gap before."""
        if self._problem is not None:
            self.abandon()
            raise KafkaRefused(str(self._problem))

    def _make_room(self, records: int, size: int) -> None:
        """Count records about to be sent, and wait until there is room for them."""
        with self._lock:
            self._sent += records
            self._sent_bytes += size
        if self._problem is None and self._sent_bytes - self._acknowledged_bytes > self._most_unacknowledged_bytes:
            self._wait_for_room(size)

    def _wait_for_room(self, size: int) -> None:
        """Wait until `size` bytes fit below the limit; a single record always fits."""
        give_up_at = time.monotonic() + self._timeout_seconds + _GRACE_SECONDS
        most_bytes = max(self._most_unacknowledged_bytes, size)
        with self._lock:
            self._waiters += 1
        try:
            while self._sent_bytes - self._acknowledged_bytes > most_bytes and self._problem is None:
                self._room.clear()
                if self._sent_bytes - self._acknowledged_bytes > most_bytes and self._problem is None:
                    self._room.wait(_CHECK_SECONDS)
                self._check_progress(give_up_at, self._timeout_seconds)
        finally:
            with self._lock:
                self._waiters -= 1

    def _flushed(self, seconds: float) -> bool:
        try:
            self._producer.flush(timeout=seconds)
        except KafkaError:  # a time limit, or a batch that was too large and is sent again in halves
            return False
        return True

    def _check_progress(self, give_up_at: float, limit_seconds: float) -> None:
        """End the publisher if the sender thread has died or the time is up."""
        where = f"{self._connection.brokers}: publishing"
        if not is_sending(self._producer):
            self._end(KafkaRefused(f"{where}: the sender thread has ended: start again"))
        elif time.monotonic() > give_up_at:
            waiting = self._sent - self._acknowledged
            self._end(
                KafkaRefused(
                    f"{where}: {waiting:,} records were not acknowledged in {limit_seconds:g} s: check the brokers"
                )
            )

    def _describe(self, topic: str) -> _Topic:
        """Read the partitions and the record size limit of a topic."""
        self._check()
        with self._connection.admin() as admin, self._connection.doing(f"publishing to {topic}"):
            described = admin.describe_topics([topic])[0]
            if described["error_code"]:
                raise for_code(described["error_code"])(topic)
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            try:
                settings = admin.describe_configs([resource], config_filter="all")["topic"][topic]
            except KafkaError:  # DescribeConfigs may not be allowed
                settings = {}
        limit = int(settings.get("max.message.bytes", {}).get("value") or _DEFAULT_MAX_MESSAGE_BYTES)
        known = _Topic(len(described["partitions"]), min(limit, _MOST_RECORD_BYTES), partial(self._failed, topic))
        self._topics[topic] = known
        return known


def _now_ms() -> int:
    now = datetime.now(timezone.utc)  # noqa: TID251 - a record without a time has that of its sending
    return int(now.timestamp() * 1000)


def _fits(key: bytes | None, value: bytes | None, most_bytes: int) -> bool:
    """Whether the topic accepts a record in a batch of its own. Only compressing it shows its size."""
    size = compressed_size(key, value, _MOST_RECORD_BYTES)
    return size is not None and size <= most_bytes
