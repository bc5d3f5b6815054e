"""A topic as the source of a Beam pipeline: batches of messages with the offsets that they cover.

One element a partition, which is read from offset to offset, or for ever. Reading can go on from any offset: a batch
covers [start, end), and the next one of its partition begins there, whatever the runner restarts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.coders import VarIntCoder
from apache_beam.io.flink.flink_streaming_impulse_source import FlinkStreamingImpulseSource
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import metric
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp
from kafka import TopicPartition
from kafka.errors import RetriableError

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.messages import Messages, messages_of
from opicflow.connectors.kafka.partitions import (
    PATIENCE_SECONDS,
    PartitionRange,
    check_range,
    check_topic,
    consumer_settings,
    described,
    no_answer,
    poll,
    resolve,
)

_metrics: Any = metric.Metrics  # comes without types

NO_END = (1 << 63) - 1
"""The end of a stretch that is read for ever."""

_MOST_SECONDS = 0.05
_MOST_RECORDS = 20_000
_POLL_MS = 50
_FOLLOW_SECONDS = 0.2
"""A look that finds more goes on for so long. Where it found the end it is over at once, however long this is."""
_FOLLOW_POLL_MS = 5
_FOLLOW_FETCH_MS = 500
_REST_SECONDS = 0.4
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
    """The messages of a topic as `MessageBatch`es: between two times, or from offsets on, up to an end.

    Where reading starts and ends is settled when the pipeline is made.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        since_ms: int | None = None,
        until_ms: int | None = None,
        starts: dict[int, int] | None = None,
    ) -> None:
        """`starts` are offsets of partitions that begin there, whatever their times."""
        super().__init__()
        self._stretches = resolve(connection, topic, since_ms, until_ms, starts)

    def expand(self, pbegin: Any) -> Any:
        """Read the partitions that are there."""
        created = pbegin | "ListPartitions" >> beam.Create(self._stretches)
        return created | "ReadPartitions" >> beam.ParDo(ReadPartitions())


@dataclass(frozen=True)
class FollowedTopic:
    """A topic that is read for ever, as it was when the pipeline was made: where reading of its partitions starts.

    Partitions that are added to it are read too, from their beginning, or refused if `may_grow` is False.
    """

    partitions: tuple[PartitionRange, ...]
    may_grow: bool = True
    look_again_seconds: float = 60.0
    """New partitions are looked for every so many seconds."""
    most_records: int = 1000
    """So many come in one batch, and then it is seen whether the while is over: a bundle that is long delays all."""

    @classmethod
    def of(cls, connection: Connection, topic: str, **options: Any) -> FollowedTopic:
        """The topic as it is now, from its beginning on."""
        return cls(tuple(replace(one, end=NO_END) for one in resolve(connection, topic)), **options)

    def partition(self, number: int) -> PartitionRange:
        """What is read of a partition."""
        for one in self.partitions:
            if one.partition == number:
                return one
        return _added(self.partitions[0], number)


class CallPartitions(beam.PTransform[Any, Any]):
    """Pulses in; calls to every partition of a topic out, keyed by it: for a stage that has a `Follower`."""

    def __init__(self, topic: FollowedTopic) -> None:
        """Partitions that are added are called too."""
        super().__init__()
        self._topic = topic

    def expand(self, pulses: Any) -> Any:
        """Every pulse for every partition."""
        par_do: Any = beam.ParDo  # comes without types
        return pulses | "Call" >> par_do(Calls(self._topic)).with_output_types(_CALL)


class OffsetTracker(OffsetRestrictionTracker):
    """Claims the offsets of a stretch. A split between two claims would lose what lies between: there is none."""

    def try_split(self, fraction_of_remainder: float) -> Any:
        """Only what is left behind the last claim can be given away."""
        return super().try_split(fraction_of_remainder) if fraction_of_remainder == 0 else None


class Offsets(RestrictionProvider):
    """The offsets of a stretch as what is to be done of it."""

    def initial_restriction(self, element: PartitionRange) -> OffsetRange:
        """All of it."""
        return OffsetRange(element.start, element.end)

    def create_tracker(self, restriction: OffsetRange) -> OffsetTracker:
        """Who claims them."""
        return OffsetTracker(restriction)

    def restriction_size(self, element: PartitionRange, restriction: OffsetRange) -> float:
        """How much there is to do, for the runner's estimates."""
        return float(restriction.size())


_WATERMARK = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())
_OFFSETS = beam.DoFn.RestrictionParam(Offsets())


class ReadPartitions(beam.DoFn):
    """Reads stretches of partitions as batches of messages. It bounds itself, as not every runner asks for that."""

    def process(
        self,
        element: PartitionRange,
        watermark: Any = _WATERMARK,
        tracker: Any = _OFFSETS,
    ) -> Iterator[Any]:
        """Read on for a while."""
        return _read_on(element, watermark, tracker)

    def teardown(self) -> None:
        """Let go of the cluster."""
        _CONSUMERS.close()


_CALL: Any = typehints.KV[int, float]
"""A partition that is called, and when: seconds on the clock of whichever machine calls."""

_MOST_SKEW_SECONDS = 2.0
"""After so long without a look a call is heard whatever its time: the clock of who calls is behind, or was set back."""


class Calls(beam.DoFn):
    """Pulses in; a call to every partition of a topic out, also to those that were added to it."""

    def __init__(self, topic: FollowedTopic) -> None:
        """It has one partition or more."""
        self._topic = topic
        self._partitions = len(topic.partitions)
        self._looked_at = -math.inf

    def process(self, element: Any) -> Iterator[tuple[int, float]]:
        """Call all. A cluster that does not answer is looked at the next time."""
        now = time.monotonic()
        if now - self._looked_at > self._topic.look_again_seconds:
            self._looked_at = now
            self._look()
        called_at = wall_seconds()
        return ((partition, called_at) for partition in range(self._partitions))

    def _look(self) -> None:
        known, first = len(self._topic.partitions), self._topic.partitions[0]
        found = _described(first)
        if found is None:
            return
        if found[1] > known and not self._topic.may_grow:
            raise KafkaRefused(
                f"{first.topic}: the topic grew from {known} to {found[1]} partitions, and what they hold depends on "
                "how many there are: make the topic anew, with as many as are needed"
            )
        self._partitions = max(self._partitions, found[1])


class Follower:
    """Reads on in partitions of a topic, a while at every call; how far it is, is state of the stage that has it.

    The calls come from a source of Flink's own: neither a splittable DoFn that puts off the rest of its work nor a
    timer can do it there, see docs/decisions/pulses.md.
    """

    def __init__(self, topic: FollowedTopic) -> None:
        """Nothing was read yet."""
        self._topic = topic
        self._looks: dict[int, _Look] = {}

    def read(self, call: tuple[int, float], start: Callable[[], int]) -> Iterator[MessageBatch]:
        """What there is from `start` on, unless the call is older than the last look, or nothing came lately."""
        partition, called_at = call
        look = self._looks.setdefault(partition, _Look())
        if look.is_enough(called_at):
            return
        there_is_more = yield from _read_for_a_while(
            self._topic.partition(partition), start(), self._topic.most_records
        )
        look.done(there_is_more)

    def close(self) -> None:
        """Let go of the cluster."""
        _CONSUMERS.close()


class _Look:
    """When a partition was looked at last, and from when again: a few records cost as much as many."""

    def __init__(self) -> None:
        self._at_seconds = self._ended = self._again_at = -math.inf

    def is_enough(self, called_at: float) -> bool:
        """Whether a call is older than this look, or too soon after it."""
        now = time.monotonic()
        return now < self._again_at or (called_at <= self._at_seconds and now - self._ended < _MOST_SKEW_SECONDS)

    def done(self, there_is_more: bool) -> None:
        self._at_seconds, self._ended = wall_seconds(), time.monotonic()
        self._again_at = self._ended + (0.0 if there_is_more else _REST_SECONDS)


def _added(first: PartitionRange, partition: int) -> PartitionRange:
    """A partition that was added to a topic."""
    return replace(first, source=f"kafka/{first.topic_id}/{partition}", partition=partition, start=0, last_digest="")


def wall_seconds() -> float:
    """The time of day, for what has to be compared between machines."""
    return float(Timestamp.now().micros) / 1e6


class Seldom(beam.DoFn):
    """Pulses in; at most one every so many seconds out: what they lead to is a bundle of its own while little comes."""

    def __init__(self, every_seconds: float) -> None:
        """How long it is from one to the next, at least. Each slot counts for itself."""
        self._every_seconds = every_seconds
        self._passed_at = -math.inf

    def process(self, element: Any) -> Iterable[Any]:
        """Let it pass, if it is time."""
        now = time.monotonic()
        if now - self._passed_at < self._every_seconds:
            return ()
        self._passed_at = now
        return (element,)


class Beat(beam.DoFn):
    """Calls in, of one key; a beat out when the last one is long enough ago. What was missed is not made up for."""

    AT = ReadModifyWriteStateSpec("at", VarIntCoder())  # that there is state makes one worker get all of a key

    def __init__(self, every_seconds: float) -> None:
        """How long it is from one to the next, at least."""
        self._every_seconds = every_seconds
        self._beat_at = -math.inf

    def process(
        self,
        element: tuple[int, float],
        at: Any = beam.DoFn.StateParam(AT),  # noqa: B008  (how Beam is told)
    ) -> Iterator[float]:
        """Beat, if it is time."""
        if not 0 <= element[1] - self._beat_at < self._every_seconds:
            self._beat_at = element[1]
            yield element[1]


class Pulses(beam.PTransform[Any, Any]):
    """Pulses for ever, from a source that Flink has of its own: no other runner knows it."""

    def __init__(self, interval_ms: int) -> None:
        """So often in every slot."""
        super().__init__()
        self._interval_ms = interval_ms

    def expand(self, pbegin: Any) -> Any:
        """One source."""
        source = FlinkStreamingImpulseSource().set_interval_ms(self._interval_ms).set_message_count(0)
        return pbegin | "Pulse" >> source


def _described(input_range: PartitionRange) -> tuple[str, int] | None:
    """The id of the topic and how many partitions it has; None if nobody answers."""
    try:
        with closing(input_range.connection.admin()) as admin:
            found = described(admin, input_range.topic)
    except (RetriableError, KafkaRefused):
        return None
    check_topic(input_range.topic, input_range.topic_id, found and found[0])
    return found


def _read_on(input_range: PartitionRange, watermark: Any, tracker: Any) -> Iterator[Any]:
    offsets = tracker.current_restriction()
    at, stop, records_left = offsets.start, offsets.stop, _MOST_RECORDS
    if at >= stop:
        return
    deadline = time.monotonic() + _MOST_SECONDS
    log = _CONSUMERS.take(input_range, at)
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
                    batch = MessageBatch(
                        input_range.topic, input_range.topic_id, input_range.partition, at, end, messages
                    )
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


def read_stretch(input_range: PartitionRange) -> Iterator[MessageBatch]:
    """All of a stretch that has an end, outside of any pipeline."""
    at = input_range.start
    log = _CONSUMERS.take(input_range, at)
    try:
        while at < input_range.end:
            records, end = log.next(at, input_range.end)
            if end > at:
                yield MessageBatch(
                    input_range.topic, input_range.topic_id, input_range.partition, at, end, messages_of(records)
                )
                at = end
    finally:
        log.close()


def _read_for_a_while(input_range: PartitionRange, at: int, at_once: int) -> Generator[MessageBatch, None, bool]:
    """What there is from an offset on, so many records at once, up to a number of records and milliseconds.

    It returns whether there is more.
    """
    deadline, records_left = time.monotonic() + _FOLLOW_SECONDS, _MOST_RECORDS
    log = _CONSUMERS.take(input_range, at, at_once)
    is_good, there_is_more = False, True
    try:
        while records_left > 0:
            records, end = log.next(at, NO_END, _FOLLOW_POLL_MS)
            _metrics.gauge("opicflow", f"lag_{input_range.topic}_{input_range.partition}").set(log.behind(end))
            if end > at:
                yield MessageBatch(
                    input_range.topic, input_range.topic_id, input_range.partition, at, end, messages_of(records)
                )
                at = end
                records_left -= len(records)
            elif not records:
                there_is_more = log.has_more(end)
                break
            if time.monotonic() >= deadline:
                break
        is_good = True
    finally:
        _CONSUMERS.give_back(log) if is_good else log.close()
    return there_is_more


# -- consumers of this process -----------------------------------------------------------------------------------------


class _Log:
    """A partition with a consumer of its own."""

    def __init__(self, input_range: PartitionRange, at: int, at_once: int | None = None) -> None:
        self.input_range = input_range
        self._place = TopicPartition(input_range.topic, input_range.partition)
        self._at = at
        with input_range.connection.doing(f"reading {input_range.topic}"):
            with closing(input_range.connection.admin()) as admin:
                found = described(admin, input_range.topic)
            check_topic(input_range.topic, input_range.topic_id, found and found[0])
            settings = consumer_settings()
            if (
                input_range.end == NO_END
            ):  # it has a broker's answer to itself, which comes at once when there is something
                settings["fetch_max_wait_ms"] = _FOLLOW_FETCH_MS
            if at_once is not None:
                settings["max_poll_records"] = at_once
            self._consumer = input_range.connection.consumer(**settings)
            try:
                first = self._consumer.beginning_offsets([self._place])[self._place]
                last = self._consumer.end_offsets([self._place])[self._place]
                end = at if input_range.end == NO_END else input_range.end
                check_range(replace(input_range, start=at, end=end), first, last)
                self._consumer.assign([self._place])
                self._consumer.seek(self._place, at)
            except BaseException:
                self.close()
                raise
        self.used_at = self._heard_at = self._checked_at = time.monotonic()

    def next(self, at: int, stop: int, poll_ms: int = _POLL_MS) -> tuple[list[Any], int]:
        """The records that come next, from offset `at` on and before `stop`, and the offset up to which they go."""
        if at != self._at:
            self._consumer.seek(self._place, at)
            self._at = at
        with self.input_range.connection.doing(f"reading {self.input_range.topic}"):
            found = poll(self._consumer, replace(self.input_range, start=at), poll_ms)
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

    def behind(self, offset: int) -> int:
        """How many offsets there are from this one on, as far as is known."""
        last = self._consumer.highwater(self._place)
        return 0 if last is None else max(last - offset, 0)

    def has_more(self, offset: int) -> bool:
        """Whether there may be something from this offset on: until the cluster has said no."""
        last = self._consumer.highwater(self._place)
        return last is None or last > offset

    def _check(self, at: int, now: float) -> None:
        """Whether the cluster still answers, and the topic is still the one it was."""
        self._checked_at = now
        if _described(self.input_range) is not None:
            self._heard_at = now
        elif now - self._heard_at > PATIENCE_SECONDS:
            raise no_answer(replace(self.input_range, start=at), now - self._heard_at)

    def close(self) -> None:
        with suppress(Exception):  # it is let go of because something is wrong with it
            self._consumer.close()


class _Consumers:
    """Partitions that were read and will be read on, kept while nobody reads them, but not for long."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: dict[tuple[Connection, str, int], _Log] = {}

    def take(self, input_range: PartitionRange, at: int, at_once: int | None = None) -> _Log:
        """A partition that nobody else reads with this consumer."""
        with self._lock:
            log = self._idle.pop((input_range.connection, input_range.topic_id, input_range.partition), None)
        return log or _Log(input_range, at, at_once)

    def give_back(self, log: _Log) -> None:
        """Keep it; and let go of those that were not taken for a while."""
        key = (log.input_range.connection, log.input_range.topic_id, log.input_range.partition)
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
