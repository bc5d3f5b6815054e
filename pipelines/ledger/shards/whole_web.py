"""The whole web while its shards change (reshard.py): the old shards, and what of them goes to which new one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from opicflow.pipelines.ledger.cash import reads
from opicflow.pipelines.ledger.cash.certified.residuals import residual_sums
from opicflow.pipelines.ledger.config import LedgerConfig
from opicflow.pipelines.ledger.entries import START, LogPosition, ResidualSums
from opicflow.pipelines.ledger.entry_checks import SHARD_SOURCE
from opicflow.pipelines.ledger.ledger import Ledger
from opicflow.pipelines.ledger.ledger_state import Ahead, Mark
from opicflow.schemas.arrays import Ints
from opicflow.schemas.shards import ShardRanges

_DIVIDED = (
    "visits",
    "duplicates",
    "late",
    "refused_visits",
    "dropped",
    "transfers",
    "visits_since_sweep",
    "first_reads",
    "announcements",
    "evicted",
    "long_gone",
    "clock",
    "virtual_income",
    "absorbed",
)
"""The values of a shard that belong to none of its pages."""


def divided(count: int, weights: Sequence[int]) -> list[int]:
    """Divide a count in proportion to weights, of which one is not 0: whole numbers with the same sum."""
    total, before, done = sum(weights), 0, 0
    parts = []
    for weight in weights:
        before += weight
        parts.append(count * before // total - done)
        done += parts[-1]
    return parts


def weights_or_first(weights: Sequence[int]) -> Sequence[int]:
    """Return these weights; if all are 0, others that give all to the first one."""
    return weights if any(weights) else [1, *weights[1:]]


class OldShard:
    """A shard as it was, and which of its pages go where."""

    def __init__(self, ledger: Ledger, ranges: ShardRanges, scale: float) -> None:
        self.state, self.table, self.book, self.quality = ledger.parts()
        self.first_id, self.last_id = ledger.ranges.bounds(ledger.shard)
        end = int(self.book.counts[0].slots)
        slots = np.flatnonzero(self.table.pages["flags"][:end])
        owners = ranges.of(self.table.hot[slots, 0].view(np.uint64))
        self._slots = slots[np.argsort(owners, kind="stable")]
        pages = np.bincount(owners, minlength=ranges.count).tolist()
        self._ends = [0, *accumulate(pages)]
        bounds = [ranges.bounds(shard) for shard in range(ranges.count)]
        self.common = [max(min(last, self.last_id) + 1 - max(first, self.first_id), 0) for first, last in bounds]
        """The number of page ids that it has in common with each new shard."""
        self.weights: list[int] = pages if len(slots) else self.common
        """By which everything is divided that belongs to none of its pages."""
        rates = np.zeros(end)
        reads.read_all_rates(self.table, self.book, scale, rates)
        self.rate_sums = np.bincount(owners, rates[slots], ranges.count).astype(np.float64).tolist()

    def slots(self, shard: int) -> Ints:
        """Return where the pages are that go to a new shard; they rise."""
        return self._slots[self._ends[shard] : self._ends[shard + 1]]

    def part(self, shard: int) -> float:
        """Return the part for a new shard."""
        return self.weights[shard] / sum(self.weights)


class WholeWeb:
    """The whole web: the old shards, and what all new ones have alike."""

    def __init__(self, ledgers: Sequence[Ledger], ranges: ShardRanges) -> None:
        self.ranges = ranges
        self.config: LedgerConfig = ledgers[0].config
        self.page_ids = ledgers[0].page_ids
        self.is_certified = ledgers[0].is_certified
        sums = [residual_sums(one.parts().book) for one in ledgers]
        bases, residual = sum(one.bases for one in sums), sum(one.residual for one in sums)
        scale = ResidualSums(bases, 0, residual, 0, 0).scale if self.is_certified else 1.0
        self.old = [OldShard(one, ranges, scale) for one in ledgers]
        self.divided = {name: self._divide(name) for name in _DIVIDED}
        """The parts of new shards of the counts that belong to no page."""
        self.minted = sum(int(one.book.counts[0].minted) for one in self.old)
        self.latest = max(self.old, key=lambda one: (one.state.times.tick_second, -one.first_id))
        """It has the latest tick, and so only policies that still hold."""
        self.marks = self._marks()

    def _divide(self, name: str) -> list[int]:
        parts = [divided(int(one.book.counts[0][name]), one.weights) for one in self.old]
        return [sum(of_one) for of_one in zip(*parts, strict=True)]

    def _marks(self) -> dict[str, Mark]:
        """Return how far all have applied each source, and who was further."""
        sources = {source for one in self.old for source in one.state.marks if not source.startswith(SHARD_SOURCE)}
        marks = {}
        for source in sorted(sources):
            positions = [one.state.marks[source].position if source in one.state.marks else START for one in self.old]
            least = LogPosition(min(positions).offset, 0)  # sources are read again from whole events on
            ahead = (
                Ahead(one.first_id, one.last_id, position)
                for one, position in zip(self.old, positions, strict=True)
                if position > least
            )
            marks[source] = Mark(least, counted_from=least.offset, ahead=tuple(ahead))
        return marks
