"""Stages of a stream without a cluster: a topic that is watched, its batches, and the input of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import PartitionRange
from opicflow.connectors.kafka.polls import NO_END, Poll, WatchedTopic
from opicflow.schemas.message_columns import MessageBatch

UNUSED = Connection("unused:9092")


def batch(start: int, values: Iterable[bytes | None], second: int = 0) -> MessageBatch:
    """Return messages from offset `start` on; the time of each is its offset times `second`."""
    return MessageBatch.of(start, [(start + row, 1000 * second * (start + row), one) for row, one in enumerate(values)])


class FakeReader:
    """A `PartitionReader` that returns a batch, if the state of the stage is at the start of the batch."""

    def __init__(self, found: MessageBatch) -> None:
        self._found = found

    def read(self, poll: Poll, start: Callable[[], int]) -> Iterator[MessageBatch]:
        if start() == self._found.start:
            yield self._found


def watched(start: int = 0, topic: str = "topic") -> WatchedTopic:
    """Return a topic of one partition, which begins at an offset."""
    return WatchedTopic((PartitionRange("kafka/id/0", UNUSED, topic, "id", 0, start, NO_END),))
