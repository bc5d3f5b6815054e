"""When a stream reads its topics: a timer, the ends of all partitions, and polls of the partitions that have grown.

One slot finds the ends for all. The stage that needs a partition takes its polls and reads it:
docs/decisions/flink.md has the reasons.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam import typehints
from apache_beam.coders import VarIntCoder
from apache_beam.io.flink.flink_streaming_impulse_source import FlinkStreamingImpulseSource
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.utils.timestamp import Timestamp

from opicflow.connectors.flink.key_groups import SpreadKeys
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange, TopicEnds, resolve

NO_END = (1 << 63) - 1
"""The end of a range that is read without end."""
UNKNOWN_END = -1
"""The end in a poll if the cluster did not answer: it requests what can be had at once."""

_FIND_ENDS_MS = 200
"""The interval at which ends are found."""
_LEAST_SECONDS = 0.16
_MOST_WAITS = 8
"""The most elements in a row that wait until it is time to find the ends again; the next ones are dropped."""
_BUSY_POLL_SECONDS, _QUIET_POLL_SECONDS = 0.9, 4.0
"""Between polls of all partitions: the time for their last read may have ended before they did."""
_PAUSE_SECONDS = 15.0
"""A partition in which nothing is written for so long is quiet. Quiet logs get a tick in 30 s."""
_FIRST_SECONDS, _MOST_AFTER_SECONDS = 60.0, 900.0

Poll = tuple[int, tuple[float, int]]
"""A request to read a partition: the key of its number, the time in seconds on the clock of the sender, and the end of
the partition at that time."""
POLL_HINT: Any = typehints.KV[int, typehints.Tuple[float, int]]
"""The type of a poll, for Beam."""


def wall_seconds() -> float:
    """Return the time of day, for times that are compared between machines."""
    return float(Timestamp.now().micros) / 1e6


@dataclass(frozen=True)
class WatchedTopic:
    """A topic that is read without end, and where reading of its partitions starts.

    Partitions that are added later are read from their beginning, or refused if `may_grow` is False.
    """

    partitions: tuple[PartitionRange, ...]
    may_grow: bool = True
    most_records: int = 1000
    """The size of a batch. The time limit of a read is checked between batches: a long bundle delays all others."""

    @classmethod
    def of(cls, connection: Connection, topic: str, **options: Any) -> WatchedTopic:
        """Return a topic with its present partitions, each from its beginning."""
        return cls(tuple(replace(one, end=NO_END) for one in resolve(connection, topic)), **options)

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self.partitions[0].topic

    def partition(self, number: int) -> PartitionRange:
        """Return the range of a partition, which may have been added since."""
        for one in self.partitions:
            if one.partition == number:
                return one
        first = self.partitions[0]
        return replace(first, source=f"kafka/{first.topic_id}/{number}", partition=number, start=0, last_digest="")


# -- ends --------------------------------------------------------------------------------------------------------------


class PollTimer(beam.PTransform[Any, Any]):
    """Emits an element in every slot at every interval, without end. Flink's own source: no other runner has it."""

    def __init__(self, slots: int) -> None:
        """The slots have a timer each. Together they cause an element whenever it is time to find the ends."""
        super().__init__()
        self._interval_ms = slots * _FIND_ENDS_MS

    def expand(self, pbegin: Any) -> Any:
        """Add Flink's impulse source. All slots start at once: a first wait of random length spreads them."""
        source: Any = FlinkStreamingImpulseSource()  # comes without types, as `ParDo` does
        timer = source.set_interval_ms(self._interval_ms).set_message_count(0)
        par_do: Any = beam.ParDo
        spread = par_do(_WaitOnce(self._interval_ms)).with_output_types(typehints.KV[int, int])
        return pbegin | "Impulse" >> timer | "Spread" >> spread


class _WaitOnce(beam.DoFn):
    """Waits at the first element; makes all elements the same pair, so that one slot gets them."""

    def __init__(self, most_ms: int) -> None:
        self._most_ms = most_ms

    def process(self, element: object) -> Iterable[tuple[int, int]]:
        wait_ms, self._most_ms = random.uniform(0, self._most_ms), 0
        Event().wait(wait_ms / 1000)
        return ((0, 0),)


class Ends(NamedTuple):
    """The ends of topics, at a time in seconds on the clock of the slot that found them."""

    at: float
    of_topics: Mapping[str, Sequence[int]] | None
    """The ends of the partitions of each topic; None if the cluster did not answer."""
    is_for_all: bool
    """Whether all partitions are to be polled, and not only those that have grown."""


class FindEnds(beam.DoFn):
    """Takes elements of the timer; finds where topics end."""

    UNUSED = ReadModifyWriteStateSpec("unused", VarIntCoder())  # state makes the runner send all elements to one slot

    def __init__(self, ends: TopicEnds) -> None:
        """`ends` requests them from the cluster."""
        self._ends = ends
        self._pace = _Pace()
        self._found_at = -1e9
        self._waits = 0

    def process(
        self,
        element: tuple[int, int],
        unused: object = beam.DoFn.StateParam(UNUSED),
    ) -> Iterator[Ends]:
        """Find the ends, at even intervals: the timers of several slots may go off together.

        If elements queue up, as they do while the cluster does not answer, the others are dropped.
        """
        early_seconds = self._found_at + _LEAST_SECONDS - time.monotonic()
        self._waits = self._waits + 1 if early_seconds > 0 else 0
        if self._waits > _MOST_WAITS:
            return
        Event().wait(max(early_seconds, 0.0))
        now = self._found_at = time.monotonic()
        at, ends = wall_seconds(), self._ends()
        yield Ends(at, ends, self._pace.is_time(now, ends))

    def teardown(self) -> None:
        """Close the connection to the cluster."""
        self._ends.close()


class _Pace:
    """When all partitions are polled: each second while anything is written and for as long again, then every 4 s."""

    def __init__(self) -> None:
        self._polled_at, self._busy_until = -1e9, 0.0
        self._written: dict[tuple[str, int], tuple[int, float, float]] = {}
        """For each partition: its end, and when it began to grow without a pause, and grew last."""

    def is_time(self, now: float, ends: Mapping[str, Sequence[int]] | None) -> bool:
        """Whether to poll all partitions now."""
        self._busy_until = self._busy_until or now + _FIRST_SECONDS
        for topic, of_topic in (ends or {}).items():
            for partition, end in enumerate(of_topic):
                self._note(now, (topic, partition), end)
        pause = _BUSY_POLL_SECONDS if now < self._busy_until else _QUIET_POLL_SECONDS
        if now - self._polled_at < pause:
            return False
        self._polled_at = now
        return True

    def _note(self, now: float, partition: tuple[str, int], end: int) -> None:
        known, begun, grown = self._written.get(partition, (-1, now, now - _PAUSE_SECONDS))
        if end != known:
            begun = now if now - grown > _PAUSE_SECONDS else begun
            self._written[partition] = end, begun, now
            self._busy_until = max(self._busy_until, now + min(now - begun, _MOST_AFTER_SECONDS))


# -- polls -------------------------------------------------------------------------------------------------------------


class PollPartitions(beam.PTransform[Any, Any]):
    """Turns ends into polls of the partitions of a topic that have grown, for a stage with a `PartitionReader`."""

    def __init__(self, topic: WatchedTopic) -> None:
        """Partitions that are added to the topic are polled too."""
        super().__init__()
        self._topic = topic
        self._keys = SpreadKeys(None if topic.may_grow else len(topic.partitions))

    def expand(self, ends: Any) -> Any:
        """Emit polls with keys that spread the partitions over the slots of Flink."""
        par_do: Any = beam.ParDo  # comes without types
        return ends | "Poll" >> par_do(SendPolls(self._topic, self._keys)).with_output_types(POLL_HINT)


class SendPolls(beam.DoFn):
    """The `DoFn` of `PollPartitions`."""

    def __init__(self, topic: WatchedTopic, keys: SpreadKeys) -> None:
        """The topic has at least one partition."""
        self._topic = topic
        self._keys = keys
        self._ends: Sequence[int] = [UNKNOWN_END] * len(topic.partitions)

    def process(self, element: Ends) -> Iterator[Poll]:
        """Poll the partitions that have grown since the last element; all of them if the cluster did not answer."""
        ends = None if element.of_topics is None else element.of_topics[self._topic.name]
        before: Sequence[int] = ()
        if ends is None:
            ends = [UNKNOWN_END] * len(self._ends)
        else:
            self._check(len(ends))
            before, self._ends = self._ends, ends
        for partition, end in enumerate(ends):
            if element.is_for_all or partition >= len(before) or end != before[partition]:
                yield self._keys(partition), (element.at, end)

    def _check(self, partitions: int) -> None:
        known = len(self._topic.partitions)
        if partitions > known and not self._topic.may_grow:
            raise KafkaRefused(
                f"{self._topic.name}: the topic grew from {known} to {partitions} partitions, but the content of each "
                "depends on their number: create the topic again with the right number of partitions"
            )
