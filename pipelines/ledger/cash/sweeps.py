"""Sweeps: all rates are summed, and scores are compared with those that were published."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash import reads
from opicflow.pipelines.ledger.cash.reader import Reader
from opicflow.pipelines.ledger.config import SECONDS_PER_DAY, Certified, LedgerConfig
from opicflow.pipelines.ledger.estimates import Estimates
from opicflow.pipelines.ledger.ledger_state import Times
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.schemas.arrays import Ids, Ints
from opicflow.schemas.ranking import highest

_SWEEP_SHARE = 64  # a sweep is due after a visit, or cash, of one page in so many
_LEAST_SECONDS = 60  # between sweeps that cash from other shards causes
_LEAST_CERTIFIED_SECONDS = 10  # exact ranks are published soon after residuals have been pushed


class Sweeps:
    """Sweeps a ledger at ticks, and reads the values to publish."""

    def __init__(self, config: LedgerConfig, room: Room, reader: Reader, times: Times, shards: int) -> None:
        self._config = config
        self._room = room
        self._reader = reader
        self._times = times
        self._shards = shards

    def is_due(self, second: int) -> bool:
        """Whether a sweep is due: after a day, after enough visits, or after enough cash from other shards.

        Cash still arrives when visits have ended.
        """
        counts, times = self._room.book.counts[0], self._times
        past = second - times.sweep_second
        if past >= SECONDS_PER_DAY or counts.visits_since_sweep * _SWEEP_SHARE >= counts.pages:
            return True
        if self._shards == 1:
            return False
        received = int(counts.received) - times.sweep_received
        visits = int(counts.visits_since_sweep)
        pause = _LEAST_CERTIFIED_SECONDS if isinstance(self._config.history, Certified) else _LEAST_SECONDS
        return received * _SWEEP_SHARE >= int(counts.minted) or (past >= pause and received + visits > 0)

    def sweep(self, second: int) -> None:
        """Sum all rates: importance that is published until the next sweep is relative to the sum."""
        times = self._times
        _, times.sweep_rate_sum = self._reader.rates()
        times.sweep_second = second
        times.sweep_received = int(self._room.book.counts[0].received)
        self._room.book.counts[0].visits_since_sweep = 0

    def publish(self, pages: Ids) -> Estimates:
        """Estimates of pages that were visited, to publish: see `Ledger.publish`."""
        slots = self._reader.slots_of(pages)
        is_sent = slots >= 0
        is_sent[is_sent] = self._room.table.url_start[slots[is_sent]] != 0
        swept = self._times.sweep_rate_sum
        rate_sum = self._reader.rate_sum_everywhere(swept) if swept > 0 else 0.0
        if rate_sum <= 0:
            is_sent[:] = False
        return self._publish_slots(pages[is_sent], slots[is_sent], rate_sum)

    def publish_movers(self, most: int, least_move: float) -> Estimates:
        """Estimates of pages whose score moved most, to publish: see `Ledger.publish_movers`."""
        rates, own = self._reader.rates()
        rate_sum = self._reader.rate_sum_everywhere(own)
        per_rate = self._reader.pages_everywhere() / rate_sum if rate_sum > 0 else 0.0
        moves = np.zeros(len(rates), np.float64)
        reads.read_movements(self._room.table, rates, per_rate, least_move, moves)
        slots = np.flatnonzero(moves > 0)
        ids = self._room.table.hot[slots, 0].view(np.uint64)
        best = highest(moves[slots], ids, most)
        return self._publish_slots(ids[best], slots[best], rate_sum)

    def _publish_slots(self, pages: Ids, slots: Ints, rate_sum: float) -> Estimates:
        estimates = self._reader.estimate_slots(pages, slots, rate_sum)
        reads.mark_published(self._room.table, self._room.book, slots, estimates.importance, estimates.score)
        return estimates
