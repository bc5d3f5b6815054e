"""The clock of a stream: writes ticks into the logs of the shards, at a fixed interval while anything happens there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.userstate import ReadModifyWriteRuntimeState, ReadModifyWriteStateSpec

from opicflow.connectors.kafka.polls import Ends
from opicflow.connectors.kafka.sink import Message
from opicflow.pipelines.ledger import TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.stages.keep_ledger import state_param
from opicflow.pipelines.stages.metrics import count

ClockPoll = tuple[int, tuple[float, Sequence[int] | None]]
"""A request to tick: the key of the one clock, the time in seconds, and where the logs end (None = not known)."""
CLOCK_HINT: Any = typehints.KV[int, typehints.Tuple[float, Any]]
"""The type of a poll of the clock, for Beam."""
_QUIET_SECONDS = 30.0
"""Between the ticks of a log in which nothing happens."""
_BUSY_SECONDS = 45.0
"""Ticks continue for so long after the last entry: shards send waiting transfers, and then report them."""


class PollClock(beam.DoFn):
    """Takes the ends of topics; emits a poll of the clock in every interval. Missed intervals are not made up for."""

    def __init__(self, ledger_topic: str, interval_seconds: float) -> None:
        """The logs are the partitions of `ledger_topic`. Intervals begin at the multiples of `interval_seconds`."""
        self._topic = ledger_topic
        self._interval_seconds = interval_seconds
        self._polled_in = -1

    def process(self, element: Ends) -> Iterable[ClockPoll]:
        """Poll if another interval has begun, or if the clock was set back."""
        interval = int(element.at / self._interval_seconds)
        if interval == self._polled_in:
            return ()
        self._polled_in = interval
        return ((0, (element.at, None if element.of_topics is None else element.of_topics[self._topic])),)


class WriteTicks(beam.DoFn):
    """Takes polls of the clock; at each, emits a tick for the log of every shard in which anything happens.

    A log that has had nothing but ticks for a while gets one in `_QUIET_SECONDS`. The time of a tick is the broker's,
    when the tick is written; it holds the time of this clock for comparison.
    """

    AT = state_param(
        ReadModifyWriteStateSpec("at", VarIntCoder())
    )  # state makes the runner send all polls to one worker

    def __init__(self, ledger_topic: str, shards: int) -> None:
        """The logs are the partitions of `ledger_topic`."""
        self._topic = ledger_topic
        self._logs = [_Log() for _ in range(shards)]

    def process(
        self,
        element: ClockPoll,
        at: ReadModifyWriteRuntimeState = AT,
    ) -> Iterable[Message]:
        """Emit the ticks that are due. All are due if it is not known where the logs end."""
        now, known = element[1]
        ends: Sequence[int | None] = known or [None] * len(self._logs)
        entry = encode_entry(TickEntry(int(now)))
        due = [shard for shard, (log, end) in enumerate(zip(self._logs, ends, strict=True)) if log.is_due(now, end)]
        count("ticks", int(bool(due)))
        return (Message(self._topic, None, entry, shard) for shard in due)


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
