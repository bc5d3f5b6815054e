"""The clock of a stream: writes a tick into the log of every shard at a fixed interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from opicflow.connectors.kafka.sink import Message
from opicflow.connectors.kafka.source import Poll, wall_seconds
from opicflow.pipelines.ledger import TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.transforms.metrics import count


def poll_clock(timer: Any) -> Poll:
    """Turn a timer element into a poll of the one clock: all polls have the same key."""
    return 0, wall_seconds()


class WriteTicks(beam.DoFn):
    """Takes polls of the clock; at every interval, emits a tick for the log of every shard.

    The time of a tick is the broker's, when the tick is written; it holds the time of this clock for comparison. Missed
    intervals are not made up for.
    """

    AT = ReadModifyWriteStateSpec("at", VarIntCoder())  # state makes the runner send all polls to one worker

    def __init__(self, ledger_topic: str, shards: int, interval_seconds: float) -> None:
        """The logs are the partitions of `ledger_topic`."""
        self._topic = ledger_topic
        self._shards = shards
        self._interval_seconds = interval_seconds
        self._ticked_at = -math.inf

    def process(
        self,
        element: Poll,
        at: Any = beam.DoFn.StateParam(AT),  # noqa: B008  (Beam's way to declare state)
    ) -> Iterable[Message]:
        """Tick if the interval is over, or if the clock was set back."""
        if 0 <= element[1] - self._ticked_at < self._interval_seconds:
            return ()
        self._ticked_at = element[1]
        entry = encode_entry(TickEntry(int(element[1])))
        count("ticks")
        return (Message(self._topic, None, entry, shard) for shard in range(self._shards))
