"""A topic as the source of a Beam pipeline: batches of messages with the offsets that they cover.

One element a partition, which is read from offset to offset, or for ever. Reading can go on from any offset: a batch
covers [start, end), and the next one of its partition begins there, whatever the runner restarts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp
from kafka import TopicPartition
from kafka.errors import RetriableError

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.messages import Messages, messages_of
from opicflow.connectors.kafka.reading import (
    PATIENCE_SECONDS,
    PartitionStretch,
    check_range,
    check_topic,
    consumer_settings,
    described,
    no_answer,
    poll,
    resolve,
)

NO_END = (1 << 63) - 1
"""The end of a stretch that is read for ever."""

_MOST_SECONDS = 0.05
_MOST_RECORDS = 20_000
_POLL_MS = 50
_IDLE_SECONDS = 60.0
_CHECK_SECONDS = 30.0


@dataclass(frozen=True)
class MessageBatch:
    """Messages of a partition that cover the offsets [start, end); some of these may have none."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    messages: Messages


class ReadTopic(beam.PTransform[Any, Any]):
    """The messages of a topic as `MessageBatch`es: between two times, from offsets on, or for ever.

    Where reading starts and ends is settled when the pipeline is made. While streaming, partitions that are added to
    the topic are read too, from their beginning, or refused if `may_grow` is False.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        since_ms: int | None = None,
        until_ms: int | None = None,
        starts: dict[int, int] | None = None,
        streaming: bool = False,
        discover_every_seconds: float = 60.0,
        may_grow: bool = True,
    ) -> None:
        """`starts` are offsets of partitions that begin there, whatever their times. A stream has no `until_ms`."""
        super().__init__()
        if streaming and until_ms is not None:
            raise KafkaRefused(f"{topic}: what is read for ever has no end: leave out the time to read until")
        self._connection = connection
        self._topic = topic
        self._stretches = resolve(connection, topic, since_ms, until_ms, starts)
        self._streaming = streaming
        self._discover_every_seconds = discover_every_seconds
        self._may_grow = may_grow

    def expand(self, pbegin: Any) -> Any:
        """Read the partitions that are there, and look for new ones."""
        if not self._streaming:
            created = pbegin | "ListPartitions" >> beam.Create(self._stretches)
            return created | "ReadPartitions" >> beam.ParDo(ReadPartitions())
        known = [replace(stretch, end=NO_END) for stretch in self._stretches]
        discover = DiscoverPartitions(known[0], len(known), self._may_grow)
        added = (
            pbegin
            | "LookAgain"
            >> PeriodicImpulse(start_timestamp=Timestamp.now(), fire_interval=self._discover_every_seconds)
            | "OfTopic" >> beam.WithKeys(self._topic)
            | "DiscoverPartitions" >> beam.ParDo(discover)
        )
        created = pbegin | "ListPartitions" >> beam.Create(known)
        return (created, added) | beam.Flatten() | "FollowPartitions" >> beam.ParDo(FollowPartitions())


class OffsetTracker(OffsetRestrictionTracker):
    """Claims the offsets of a stretch. A split between two claims would lose what lies between: there is none."""

    def try_split(self, fraction_of_remainder: float) -> Any:
        """Only what is left behind the last claim can be given away."""
        return super().try_split(fraction_of_remainder) if fraction_of_remainder == 0 else None

    def is_bounded(self) -> bool:
        """Whether it ever ends."""
        return bool(self._range.stop != NO_END)


class Offsets(RestrictionProvider):
    """The offsets of a stretch as what is to be done of it."""

    def initial_restriction(self, element: PartitionStretch) -> OffsetRange:
        """All of it."""
        return OffsetRange(element.start, element.end)

    def create_tracker(self, restriction: OffsetRange) -> OffsetTracker:
        """Who claims them."""
        return OffsetTracker(restriction)

    def restriction_size(self, element: PartitionStretch, restriction: OffsetRange) -> float:
        """How much there is to do, for the runner's estimates: one unit of what never ends."""
        return float(restriction.size()) if restriction.stop != NO_END else 1.0


_WATERMARK = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())
_OFFSETS = beam.DoFn.RestrictionParam(Offsets())


class ReadPartitions(beam.DoFn):
    """Reads stretches of partitions as batches of messages. It bounds itself, as not every runner asks for that."""

    def process(
        self,
        element: PartitionStretch,
        watermark: Any = _WATERMARK,
        tracker: Any = _OFFSETS,
    ) -> Iterator[Any]:
        """Read on for a while."""
        return _read_on(element, watermark, tracker)

    def teardown(self) -> None:
        """Let go of the cluster."""
        _CONSUMERS.close()


class FollowPartitions(ReadPartitions):
    """The same for stretches without an end."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: PartitionStretch,
        watermark: Any = _WATERMARK,
        tracker: Any = _OFFSETS,
    ) -> Iterator[Any]:
        """Read on for a while."""
        return _read_on(element, watermark, tracker)


_KNOWN = beam.DoFn.StateParam(ReadModifyWriteStateSpec("known", VarIntCoder()))


class DiscoverPartitions(beam.DoFn):
    """Gives the partitions that were added to a topic, each once; or refuses them."""

    def __init__(self, first: PartitionStretch, known: int, may_grow: bool) -> None:
        """`first` is any stretch of the topic, `known` how many partitions it has."""
        self._first = first
        self._known = known
        self._may_grow = may_grow

    def process(self, element: Any, known: Any = _KNOWN) -> Iterator[PartitionStretch]:
        """Look once. A cluster that does not answer is looked at the next time."""
        topic, before = self._first.topic, known.read() or self._known
        found = _described(self._first)
        if found is None:
            return
        if found[1] > before and not self._may_grow:
            raise KafkaRefused(
                f"{topic}: the topic grew from {before} to {found[1]} partitions, and what they hold depends on how "
                "many there are: make the topic anew, with as many as are needed"
            )
        for number in range(before, found[1]):
            source = f"kafka/{self._first.topic_id}/{number}"
            yield replace(self._first, source=source, partition=number, start=0, end=NO_END, last_digest="")
        known.write(max(before, found[1]))


def _described(stretch: PartitionStretch) -> tuple[str, int] | None:
    """The id of the topic and how many partitions it has; None if nobody answers."""
    try:
        with closing(stretch.connection.admin()) as admin:
            found = described(admin, stretch.topic)
    except (RetriableError, KafkaRefused):
        return None
    check_topic(stretch.topic, stretch.topic_id, found and found[0])
    return found


def _read_on(stretch: PartitionStretch, watermark: Any, tracker: Any) -> Iterator[Any]:
    offsets = tracker.current_restriction()
    at, stop, records_left = offsets.start, offsets.stop, _MOST_RECORDS
    if at >= stop:
        return
    deadline = time.monotonic() + _MOST_SECONDS
    log = _CONSUMERS.take(stretch, at)
    is_good = False
    try:
        while True:
            records, end = log.next(at, stop)
            if end > at:
                if not tracker.try_claim(end - 1):  # taken from us: what was read is read again by who has it now
                    break
                if records:
                    messages = messages_of(records)
                    latest = Timestamp(micros=max(int(messages.times_ms.max()), 0) * 1000)
                    before = watermark.current_watermark()
                    latest = latest if before is None else max(latest, before)
                    batch = MessageBatch(stretch.topic, stretch.topic_id, stretch.partition, at, end, messages)
                    yield TimestampedValue(batch, latest)
                    watermark.set_watermark(latest)
                at = end
                records_left -= len(records)
            if at >= stop:
                break
            if records_left <= 0 or time.monotonic() >= deadline:
                tracker.defer_remainder(Duration(0))
                break
        is_good = True
    finally:
        _CONSUMERS.give_back(log) if is_good else log.close()


# -- consumers of this process -----------------------------------------------------------------------------------------


class _Log:
    """A partition with a consumer of its own."""

    def __init__(self, stretch: PartitionStretch, at: int) -> None:
        self.stretch = stretch
        self._place = TopicPartition(stretch.topic, stretch.partition)
        self._at = at
        with stretch.connection.doing(f"reading {stretch.topic}"):
            with closing(stretch.connection.admin()) as admin:
                found = described(admin, stretch.topic)
            check_topic(stretch.topic, stretch.topic_id, found and found[0])
            self._consumer = stretch.connection.consumer(**consumer_settings())
            try:
                first = self._consumer.beginning_offsets([self._place])[self._place]
                last = self._consumer.end_offsets([self._place])[self._place]
                end = at if stretch.end == NO_END else stretch.end
                check_range(replace(stretch, start=at, end=end), first, last)
                self._consumer.assign([self._place])
                self._consumer.seek(self._place, at)
            except BaseException:
                self.close()
                raise
        self.used_at = self._heard_at = self._checked_at = time.monotonic()

    def next(self, at: int, stop: int) -> tuple[list[Any], int]:
        """The records that come next, from offset `at` on and before `stop`, and the offset up to which they go."""
        if at != self._at:
            self._consumer.seek(self._place, at)
            self._at = at
        with self.stretch.connection.doing(f"reading {self.stretch.topic}"):
            found = poll(self._consumer, replace(self.stretch, start=at), _POLL_MS)
            end = self._consumer.position(self._place, timeout_ms=0) or at
        records = found.get(self._place, [])
        now = time.monotonic()
        if end > at:
            self._heard_at = now
        if now - self._checked_at > _CHECK_SECONDS:
            self._check(at, now)
        self._at = end
        if end > stop:
            records = [record for record in records if record.offset < stop]
        return records, min(end, stop)

    def _check(self, at: int, now: float) -> None:
        """Whether the cluster still answers, and the topic is still the one it was."""
        self._checked_at = now
        if _described(self.stretch) is not None:
            self._heard_at = now
        elif now - self._heard_at > PATIENCE_SECONDS:
            raise no_answer(replace(self.stretch, start=at), now - self._heard_at)

    def close(self) -> None:
        with suppress(Exception):  # it is let go of because something is wrong with it
            self._consumer.close()


class _Consumers:
    """Partitions that were read and will be read on, kept while nobody reads them, but not for long."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: dict[tuple[Connection, str, int], _Log] = {}

    def take(self, stretch: PartitionStretch, at: int) -> _Log:
        """A partition that nobody else reads with this consumer."""
        with self._lock:
            log = self._idle.pop((stretch.connection, stretch.topic_id, stretch.partition), None)
        return log or _Log(stretch, at)

    def give_back(self, log: _Log) -> None:
        """Keep it; and let go of those that were not taken for a while."""
        key = (log.stretch.connection, log.stretch.topic_id, log.stretch.partition)
        log.used_at = time.monotonic()
        with self._lock:
            old = [one for one, kept in self._idle.items() if log.used_at - kept.used_at > _IDLE_SECONDS or one == key]
            closing = [self._idle.pop(one) for one in old]
            self._idle[key] = log
        for one in closing:
            one.close()

    def close(self) -> None:
        """Let go of all that nobody reads now."""
        with self._lock:
            closing, self._idle = list(self._idle.values()), {}
        for one in closing:
            one.close()


_CONSUMERS = _Consumers()
