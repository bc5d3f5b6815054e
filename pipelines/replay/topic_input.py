"""A topic of Kafka as the input of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import partitions_of_topic, resolve
from opicflow.connectors.kafka.topic_log import PartitionProgress, TopicRange, topic_range
from opicflow.pipelines.replay.inputs import FoundInput, Input, NothingRead, first_read, starts_of
from opicflow.pipelines.replay.state import RangeAhead, Reached, Source, State, StateRefused
from opicflow.pipelines.replay.times_ahead import due
from opicflow.pipelines.stages.decode import InputRange
from opicflow.pipelines.stages.decoded_batch import SourceProgress
from opicflow.pipelines.stages.route import ANY_TIME


@dataclass(frozen=True)
class Topic(Input):
    """A topic as one log, up to a time or to now. A replay with its state continues where it ended."""

    connection: Connection
    topic: str
    since_ms: int | None = None
    until_ms: int | None = None
    unit = " events"

    @property
    def names(self) -> tuple[str, ...]:
        """Not by its brokers: they may move."""
        return (f"kafka:{self.topic}",)

    def find(self, state: State, notes: list[str], may_grow: bool, latest_ms: int = ANY_TIME) -> FoundInput:
        """Find the topic, from where the state ends; refused if it is not the topic that the state has read."""
        input_range = self._resolved(state)
        source = next((source for source in state.sources if source.name == input_range.source), None)
        if source is None:
            if input_range.records == 0:
                raise NothingRead(f"{self.topic}: nothing to replay: publish a log with opicflow publish events")
            begins: list[Reached] = [(one.partition, one.start, "") for one in input_range.partitions]
            source = Source(input_range.source, self.topic, 0, "", partitions=begins)
            state.sources.append(source)
        starts_of(state).setdefault(source.name, source.at)
        again = due(state, source.name, latest_ms)
        return FoundInput([input_range, *self._ranges_of(again, notes)] if again else [input_range], [])

    def is_read(self, state: State, latest_ms: int = ANY_TIME) -> bool:
        """Return whether the topic ends where the state ends."""
        resolved = self._resolved(state)
        return resolved.records == 0 and not due(state, resolved.source, latest_ms)

    def total(self, input_ranges: Sequence[InputRange]) -> int | None:
        """Events, or what else takes an offset."""
        return sum(one.records for one in first_read(input_ranges) if isinstance(one, TopicRange))

    def done(self, input_ranges: Sequence[InputRange], state: State) -> int:
        """Return how many records were read so far."""
        at = {source.name: source.at for source in state.sources}
        return sum(at[input_range.source] - input_range.start for input_range in first_read(input_ranges))

    def remember(self, source: Source, read: SourceProgress) -> None:
        """Keep the last record read of each partition: it recognises the partition."""
        if read.partitions:  # there was something to read
            source.partitions = list(read.partitions)

    def notes_at_end(self, input_ranges: Sequence[InputRange], state: State) -> list[str]:
        """Whether there was anything new."""
        at = {source.name: source.at for source in state.sources}
        starts = starts_of(state)
        return [
            f"{self.topic}: nothing new since it was replayed into this state."
            for input_range in input_ranges[:1]
            if at[input_range.source] == starts[input_range.source] > 0 and len(input_ranges) == 1
        ]

    def _ranges_of(self, again: Sequence[RangeAhead], notes: list[str]) -> list[TopicRange]:
        """Return the ranges to read again, without the records that were deleted meanwhile."""
        there = {one.partition: one for one in resolve(self.connection, self.topic)}
        ranges = []
        for one in again:
            begins = {partition: (at, digest) for partition, at, digest in one.partitions}
            parts = []
            for partition, end, _ in one.end_partitions:
                first = there[partition].start
                at, digest = begins.get(partition, (first, ""))
                begin, digest = (at, digest) if at >= first else (first, "")
                parts.append(replace(there[partition], start=begin, end=max(end, begin), last_digest=digest))
            ranges.append(TopicRange(one.name, tuple(parts), one.at, one.after_ms))
            if ranges[-1].records < one.end - one.at:
                notes.append(
                    f"{self.topic}: some events that were ahead of the clock were deleted before they counted."
                )
        return ranges

    def _resolved(self, state: State) -> TopicRange:
        """Return the range of the topic, from where the state ends."""
        source = next((source for source in state.sources if source.file == self.topic and source.partitions), None)
        reached = tuple(PartitionProgress(*one) for one in source.partitions) if source else ()
        starts = {}
        if reached:
            _, partitions = partitions_of_topic(self.connection, self.topic)
            starts = {one.partition: one.at for one in reached if one.partition < partitions}  # fewer: created again
        found = topic_range(resolve(self.connection, self.topic, self.since_ms, self.until_ms, starts))
        if source is None:
            return found
        if source.name != found.source:
            raise StateRefused(
                f"{self.topic}: the topic was created again since it was replayed into this state: replay it into "
                "another folder"
            )
        return found.advanced_to(source.at, reached)
