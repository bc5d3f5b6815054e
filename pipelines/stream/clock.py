"""The clock of a stream: writes ticks into the logs of the shards, at a fixed interval while anything happens there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from opicflow.connectors.kafka.partitions import LogEnds
from opicflow.connectors.kafka.polls import wall_seconds
from opicflow.connectors.kafka.sink import Message
from opicflow.pipelines.ledger import TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.transforms.metrics import count

CLOCK_HINT: Any = typehints.KV[int, float]
"""The type of a poll of the clock, for Beam."""
_QUIET_SECONDS = 30.0
"""Between the ticks of a log in which nothing happens."""
_BUSY_SECONDS = 45.0
"""Ticks continue for so long after the last entry: shards send waiting transfers, and then report them."""


def poll_clock(ends: Any) -> tuple[int, float]:
    """Turn the ends of topics into a poll of the one clock: all polls have the same key, and the time."""
    return 0, wall_seconds()


class WriteTicks(beam.DoFn):
    """Takes polls of the clock; at every interval, emits a tick for the log of every shard in which anything happens.

    A log that has had nothing but ticks for a while gets one in `_QUIET_SECONDS`. The time of a tick is the broker's,
    when the tick is written; it holds the time of this clock for comparison. Missed intervals are not made up for.
    """

    AT = ReadModifyWriteStateSpec("at", VarIntCoder())  # state makes the runner send all polls to one worker

    def __init__(
        self,
        ledger_topic: str,
        shards: int,
        interval_seconds: float,
        ends: LogEnds | None = None,
    ) -> None:
        """The logs are the partitions of `ledger_topic`. `ends` returns where they end; without it, ticks go to all."""
        self._topic = ledger_topic
        self._shards = shards
        self._interval_seconds = interval_seconds
        self._ends = ends
        self._ticked_in = -1
        self._logs = [_Log() for _ in range(shards)]

    def process(
        self,
        element: tuple[int, float],
        at: Any = beam.DoFn.StateParam(AT),  # noqa: B008  (Beam's way to declare state)
    ) -> Iterable[Message]:
        """Tick if another interval of the clock has begun, or if the clock was set back."""
        now, interval = element[1], int(element[1] / self._interval_seconds)
        if interval == self._ticked_in:
            return ()
        self._ticked_in = interval
        entry = encode_entry(TickEntry(int(now)))
        ends: Sequence[int | None] = (self._ends and self._ends()) or [None] * self._shards
        due = [shard for shard, (log, end) in enumerate(zip(self._logs, ends, strict=True)) if log.is_due(now, end)]
        count("ticks", int(bool(due)))
        return (Message(self._topic, None, entry, shard) for shard in due)

    def teardown(self) -> None:
        """Close the connection to the cluster."""
        if self._ends is not None:
            self._ends.close()


@dataclass
class _Log:
    """The end of a log if only the clock writes to it, and the last time when another writer did."""

    end: int = -1
    grown_at: float = -math.inf
    ticked_at: float = -math.inf

    def is_due(self, now: float, end: int | None) -> bool:
        """Whether the log gets a tick now, where it ends at `end`; None = that is not known."""
        if end is None or end != self.end or now < self.grown_at:
            self.grown_at = now
        if now - self.grown_at > _BUSY_SECONDS and 0 <= now - self.ticked_at < _QUIET_SECONDS:
            return False
        self.ticked_at, self.end = now, (self.end if end is None else end) + 1
        return True
