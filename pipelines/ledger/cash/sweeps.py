"""Sweeps: all rates are summed, and importance is compared with the published one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ledger.cash import reads
from opicflow.pipelines.ledger.cash.reader import Reader
from opicflow.pipelines.ledger.config import SECONDS_PER_DAY, Certified, LedgerConfig
from opicflow.pipelines.ledger.estimates import Estimates
from opicflow.pipelines.ledger.ledger_state import Times
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.schemas.arrays import Ids, Ints, highest

_SWEEP_SHARE = 64  # a sweep is due after a visit, or cash, of one page in so many
_LEAST_SECONDS = 60  # between sweeps that cash from other shards causes
_LEAST_CERTIFIED_SECONDS = 10  # exact ranks are published soon after residuals have been pushed

_NEXT_TO_NOTHING = 1e-30


class Movers(NamedTuple):
    """The movers to publish, and the number of pages that then have no true record."""

    estimates: Estimates
    off: int


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
        times.sweep_rate_sum = self._reader.rate_sum()
        times.sweep_second = second
        times.sweep_received = int(self._room.book.counts[0].received)
        self._room.book.counts[0].visits_since_sweep = 0

    def publish(self, pages: Ids, is_settled: bool) -> Estimates:
        """Estimates of pages that were visited, to publish: see `Ledger.publish`."""
        slots = self._reader.slots_of(pages)
        is_sent = slots >= 0
        is_sent[is_sent] = self._room.table.url_start[slots[is_sent]] != 0
        swept = self._times.sweep_rate_sum
        rate_sum = self._reader.rate_sum_everywhere(swept) if swept > 0 else 0.0
        if rate_sum <= 0:
            is_sent[:] = False
        return self._publish_slots(pages[is_sent], slots[is_sent], rate_sum, is_settled)

    def publish_movers(self, most: int, least_move: float, true_within: float, is_settled: bool) -> Movers:
        """Estimates of pages that moved most, to publish: see `Ledger.publish_movers`."""
        rates, own = self._reader.rates()
        rate_sum = self._reader.rate_sum_everywhere(own)
        per_rate, pages = 1.0 / rate_sum if rate_sum > 0 else 0.0, self._reader.pages_everywhere()
        moves = np.zeros(len(rates), np.float64)
        off = reads.read_movements(
            self._room.table, rates, per_rate, pages, is_settled, max(least_move, true_within), true_within, moves
        )
        slots = np.flatnonzero(moves > 0)
        ids = self._room.table.hot[slots, 0].view(np.uint64)
        best = highest(moves[slots], ids, most)
        return Movers(self._publish_slots(ids[best], slots[best], rate_sum, is_settled), int(off) - len(best))

    def forget_published(self) -> None:
        """Treat all pages as if they had no record: see `Ledger.forget_published`.

        Each moves from here to any importance, also to none: a record that says 0 is published again, too.
        """
        pages = self._room.table.pages
        pages["published_importance"] = pages["published_score"] = np.where(pages["flags"] != 0, _NEXT_TO_NOTHING, 0.0)

    def _publish_slots(self, pages: Ids, slots: Ints, rate_sum: float, is_settled: bool) -> Estimates:
        estimates = self._reader.estimate_slots(pages, slots, rate_sum)
        room = self._room
        reads.mark_published(room.table, room.book, slots, estimates.importance, estimates.score, is_settled)
        return estimates
