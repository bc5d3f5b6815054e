"""Sends records in order, and knows whether all of them have arrived.

kafka-python is told to keep the order and to send nothing twice. What it does not do is done here: its `flush` returns
whether or not records arrived; after one batch has failed it goes on with the next under a new epoch, which would leave
a hole; and it takes records without bound while no broker answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from apache_beam.utils.timestamp import Timestamp
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, for_code
from kafka.record.default_records import DefaultRecordBatchBuilder

from opicflow.connectors.kafka.bulk import FEWEST, BulkAppender, Records
from opicflow.connectors.kafka.connection import BOOTSTRAP_TIMEOUT_SECONDS, Connection, KafkaRefused
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES
from opicflow.schemas.pages import shard_of

MOST_WAITING_BYTES = 64 << 20
"""So much waits for acknowledgement at most; more has to wait before it is sent."""

_MOST_RECORD_BYTES = MOST_EVENT_BYTES + (2 << 20)
_BATCH_BYTES = 256 << 10
_LINGER_MS = 25
_RECORD_COST_BYTES = 1000
"""What kafka-python keeps for a record that waits, besides its key and its value: a future and its callbacks."""
_LIMIT_BY_DEFAULT = 1_048_588
"""What a broker takes where nobody may ask it: Kafka's `max.message.bytes`."""
_SECONDS_BETWEEN_LOOKS = 1.0
_GRACE_SECONDS = 10.0
"""kafka-python gives up first, and can say why."""
_CLOSING_SECONDS = 5.0


def partition_of(page: int, partitions: int) -> int:
    """The partition of a page id where partitions are ranges of page ids, as shards are."""
    return (page * partitions) >> 64


def partitions_of(pages: npt.NDArray[np.uint64], partitions: int) -> npt.NDArray[np.int64]:
    """`partition_of` of each page id."""
    return shard_of(pages, partitions)


class Place(NamedTuple):
    """Where a record was written."""

    partition: int
    offset: int


@dataclass(frozen=True)
class _Topic:
    partitions: int
    most_bytes: int
    failed: Any


class Publisher:
    """Sends records to a cluster, each partition's in the order in which they were given.

    The first record that fails is the end of it: what was sent after may have arrived or not, and every later call
    raises `KafkaRefused` for that first failure. Whoever shares a publisher shares its fate. Calls may come from
    several threads. A broker that is away for less than the time limit is waited for; meanwhile at most
    `most_waiting_bytes` are kept, and sending waits.
    """

    def __init__(
        self,
        connection: Connection,
        timeout_seconds: float = 120.0,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
        connect_seconds: float = BOOTSTRAP_TIMEOUT_SECONDS,
    ) -> None:
        """Connect. The time limit holds for every record from its sending to its acknowledgement."""
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._most_waiting_bytes = most_waiting_bytes
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
        self._bulk = BulkAppender.of(self._producer)

    def __enter__(self) -> Publisher:
        """Used as a context, it is flushed at the end, or thrown away if there was an error."""
        return self

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        """Flush and close; after an error nothing more is sent."""
        if kind is None:
            self.close()
        else:
            self.abandon()

    @property
    def acknowledged(self) -> int:
        """How many records have arrived so far."""
        return self._acknowledged

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has: as it was when it was first asked for."""
        return (self._topics.get(topic) or self._learn(topic)).partitions

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> bool:
        """Send a record; False if it is larger than its topic or this client takes, and nothing was sent.

        That it is sent does not tell that it arrives: `flush` does.
        """
        return self._send(topic, key, value, partition, timestamp_ms) is not None

    def send_many(
        self,
        topic: str,
        partitions: Sequence[int | None],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> list[int]:
        """Send records in their order; the places in the list of those that are too large, as in `send`."""
        known = self._topics.get(topic) or self._learn(topic)
        if self._bulk is not None and len(keys) >= FEWEST and None not in partitions:
            records, places = Records.of(keys, values), np.array(partitions, np.int64)
            sizes = records.sizes + _RECORD_COST_BYTES
            fits = sizes.max() <= known.most_bytes and self._bulk.may_take(topic, known.most_bytes)
            if fits and len(keys) >= FEWEST * len(np.unique(places)):
                self._send_together(self._bulk, known, topic, places, records, int(sizes.sum()))
                return []
        send = self._send
        every = enumerate(zip(keys, values, partitions, strict=True))
        return [number for number, record in every if send(topic, *record, None) is None]

    def _send_together(
        self,
        bulk: BulkAppender,
        known: _Topic,
        topic: str,
        partitions: npt.NDArray[np.int64],
        records: Records,
        size: int,
    ) -> None:
        """Send records of which none is too large, those of each partition in their order."""
        self._make_room(len(partitions), size)
        now_ms = Timestamp.now().micros // 1000
        order = np.argsort(partitions, kind="stable")
        ends = np.flatnonzero(np.diff(partitions[order], append=-1)) + 1
        try:
            for rows in np.split(order, ends[:-1]):
                for future, count, size_bytes in bulk.append(topic, int(partitions[rows[0]]), records, rows, now_ms):
                    arrived = partial(self._arrived_together, count, size_bytes + count * _RECORD_COST_BYTES)
                    future.add_callback(arrived).add_errback(known.failed)
        except KafkaError as problem:
            known.failed(problem)
        if self._problem is not None:
            self._check()

    def deliver(self, topic: str, values: Sequence[bytes]) -> list[Place]:
        """Send records without keys, and wait until they have arrived: where."""
        futures = [self._send(topic, None, value, None, None) for value in values]
        self.flush()
        for number, future in enumerate(futures):
            if future is None:
                raise KafkaRefused(
                    f"{self._connection.brokers}: publishing to {topic}: record {number + 1} is larger than the topic "
                    "takes: raise its max.message.bytes"
                )
        return [Place(future.value.partition, future.value.offset) for future in futures]

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until every record sent so far has arrived; `KafkaRefused` for the first that has not."""
        limit_seconds = self._timeout_seconds + _GRACE_SECONDS if timeout_seconds is None else timeout_seconds
        give_up_at = time.monotonic() + limit_seconds
        sent = self._sent
        while True:
            self._check()
            if self._flushed(min(limit_seconds, _SECONDS_BETWEEN_LOOKS)) and self._acknowledged >= sent:
                self._check()
                return
            self._look_after(give_up_at, limit_seconds)

    def close(self) -> None:
        """Flush, and let go of the connection."""
        try:
            self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the connection. What has not arrived yet may never do."""
        # Closing would wait for what cannot arrive, and raise before it stops the thread.
        self._producer._sender.force_close()
        with suppress(KafkaError):
            self._producer.close(timeout=_CLOSING_SECONDS)

    def _send(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None, timestamp_ms: int | None
    ) -> Any:
        known = self._topics.get(topic) or self._learn(topic)
        # As the acknowledgement will count it, which says -1 for what is not there.
        size = (-1 if key is None else len(key)) + (-1 if value is None else len(value)) + _RECORD_COST_BYTES
        if size > known.most_bytes and not _fits(key, value, known.most_bytes):
            self._check()
            return None
        self._make_room(1, size)
        try:
            bulk = self._bulk
            if bulk is not None and partition is not None and value is not None and bulk.knows(topic, partition):
                future = bulk.append_one(topic, partition, key, value, timestamp_ms)
            else:
                future = self._producer.send(topic, value, key, None, partition, timestamp_ms)
        except KafkaError as problem:
            known.failed(problem)
        else:
            future.add_callback(self._arrived).add_errback(known.failed)
        if self._problem is not None:
            self._check()
        return future

    def _arrived(self, record: Any) -> None:
        """On the producer's thread, for every record: short."""
        self._acknowledged_bytes += record.serialized_key_size + record.serialized_value_size + _RECORD_COST_BYTES
        self._acknowledged += 1
        if self._waiters:
            self._room.set()

    def _arrived_together(self, records: int, size_bytes: int, _: Any) -> None:
        """The same for records that came together."""
        self._acknowledged_bytes += size_bytes
        self._acknowledged += records
        if self._waiters:
            self._room.set()

    def _failed(self, topic: str, problem: BaseException) -> None:
        """On the producer's thread, or on one that sends."""
        self._end(self._connection.refused(problem, f"publishing to {topic}"))

    def _end(self, problem: KafkaRefused) -> None:
        """Only the first failure says what was wrong."""
        with self._lock:
            self._problem = self._problem or problem
        self._room.set()

    def _check(self) -> None:
        """Raise the first failure. Batches behind it must not be sent any more: there would be a hole before them."""
        if self._problem is not None:
            self.abandon()
            raise KafkaRefused(str(self._problem))

    def _make_room(self, records: int, size: int) -> None:
        """Count what is about to be sent, and wait until there is room for it."""
        with self._lock:
            self._sent += records
            self._sent_bytes += size
        if self._problem is None and self._sent_bytes - self._acknowledged_bytes > self._most_waiting_bytes:
            self._wait_for_room(size)

    def _wait_for_room(self, size: int) -> None:
        """Wait until so much fits among what waits; one record alone always does."""
        give_up_at = time.monotonic() + self._timeout_seconds + _GRACE_SECONDS
        most_bytes = max(self._most_waiting_bytes, size)
        with self._lock:
            self._waiters += 1
        try:
            while self._sent_bytes - self._acknowledged_bytes > most_bytes and self._problem is None:
                self._room.clear()
                if self._sent_bytes - self._acknowledged_bytes > most_bytes and self._problem is None:
                    self._room.wait(_SECONDS_BETWEEN_LOOKS)
                self._look_after(give_up_at, self._timeout_seconds)
        finally:
            with self._lock:
                self._waiters -= 1

    def _flushed(self, seconds: float) -> bool:
        try:
            self._producer.flush(timeout=seconds)
        except KafkaError:  # a time limit; or a batch was too large and goes in halves, which have to be waited for
            return False
        return True

    def _look_after(self, give_up_at: float, limit_seconds: float) -> None:
        """See whether waiting makes sense."""
        where = f"{self._connection.brokers}: publishing"
        if not self._producer._sender.is_alive():
            self._end(KafkaRefused(f"{where}: the thread that sends has ended: start again"))
        elif time.monotonic() > give_up_at:
            waiting = self._sent - self._acknowledged
            self._end(
                KafkaRefused(
                    f"{where}: {waiting:,} records were not acknowledged in {limit_seconds:g} s: see to the brokers"
                )
            )

    def _learn(self, topic: str) -> _Topic:
        """Ask for what there is to know of a topic."""
        self._check()
        with self._connection.admin() as admin, self._connection.doing(f"publishing to {topic}"):
            described = admin.describe_topics([topic])[0]
            if described["error_code"]:
                raise for_code(described["error_code"])(topic)
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            try:
                settings = admin.describe_configs([resource], config_filter="all")["topic"][topic]
            except KafkaError:  # not everybody may ask
                settings = {}
        limit = int(settings.get("max.message.bytes", {}).get("value") or _LIMIT_BY_DEFAULT)
        known = _Topic(len(described["partitions"]), min(limit, _MOST_RECORD_BYTES), partial(self._failed, topic))
        self._topics[topic] = known
        return known


def _fits(key: bytes | None, value: bytes | None, most_bytes: int) -> bool:
    """Whether a record may be sent in a batch of its own; how long that gets is only known once it is compressed."""
    if DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, []) > _MOST_RECORD_BYTES:
        return False
    batch = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=DefaultRecordBatchBuilder.CODEC_LZ4,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=0,
    )
    batch.append(0, 0, key, value, [])
    return len(batch.build()) <= most_bytes
