"""A topic of Kafka as the input of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import partitions_of_topic, resolve
from opicflow.connectors.kafka.topic_log import PartitionProgress, TopicRange, topic_range
from opicflow.pipelines.replay.inputs import FoundInput, Input, NothingRead
from opicflow.pipelines.replay.state import Source, State, StateRefused
from opicflow.pipelines.transforms.decode import InputRange
from opicflow.pipelines.transforms.decoded_batch import SourceProgress


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

    def find(self, state: State, notes: list[str], may_grow: bool) -> FoundInput:
        """Find the topic, from where the state ends; refused if it is not the topic that the state has read."""
        input_range = self._resolved(state)
        source = next((source for source in state.sources if source.name == input_range.source), None)
        if source is None:
            if input_range.records == 0:
                raise NothingRead(f"{self.topic}: nothing to replay: publish a log with opicflow publish events")
            source = Source(input_range.source, self.topic, 0, "")
            state.sources.append(source)
        state.run["starts"].setdefault(source.name, source.at)
        return FoundInput([input_range], [])

    def is_read(self, state: State) -> bool:
        """Return whether the topic ends where the state ends."""
        return self._resolved(state).records == 0

    def total(self, input_ranges: Sequence[InputRange]) -> int | None:
        """Events, or what else takes an offset."""
        return sum(input_range.records for input_range in input_ranges if isinstance(input_range, TopicRange))

    def done(self, input_ranges: Sequence[InputRange], state: State) -> int:
        """Return how many records were read so far."""
        at = {source.name: source.at for source in state.sources}
        return sum(at[input_range.source] - input_range.start for input_range in input_ranges)

    def remember(self, source: Source, read: SourceProgress) -> None:
        """Keep the last record read of each partition: it recognises the partition."""
        if read.partitions:  # there was something to read
            source.partitions = [list(one) for one in read.partitions]

    def notes_at_end(self, input_ranges: Sequence[InputRange], state: State) -> list[str]:
        """Whether there was anything new."""
        at = {source.name: source.at for source in state.sources}
        starts = state.run["starts"]
        return [
            f"{self.topic}: nothing new since it was replayed into this state."
            for input_range in input_ranges
            if at[input_range.source] == starts[input_range.source] > 0
        ]

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
