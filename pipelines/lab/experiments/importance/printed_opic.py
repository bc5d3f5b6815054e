"""Adaptive OPIC as paper 002 prints it: the reference by which the paper's claims are judged. It is exact, and slow.

Every page begins with 1/n of the cash, and its first measure holds that. There is no round. The virtual page gets the
small edges, and all cash of pages without links; it pays all pages alike every n/100 visits. It is no page: it has no
history, and G does not count what it pays. A *measure* is the cash of a page at a visit, with G after it. All measures
are kept, and the estimates are functions of them.

Where the paper prints no formula, the cash that a page holds now counts as if it were visited now, as in
(H + C) / (G + 1). Only the fixed window has a printed one, H / T, in which this cash does not count.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.entries import CrawlEntry, Kind, TickEntry
from opicflow.schemas.arrays import Array, Floats, Ids, Ints
from opicflow.schemas.kernel import kernel

_UNITS = float(1 << 32)  # a page's part of the cash at the start, as waiting cash


class PrintedOpic:
    """The cash and the measures of all pages of a web. A crawl follows its waiting cash as it follows a ledger's."""

    def __init__(self, ids: Ids, damping: float) -> None:
        self.clock = 0.0
        """G."""
        self.cash: Floats = np.full(len(ids), 1.0 / len(ids))
        self.history: Floats = np.zeros(len(ids))
        self.virtual = 0.0
        self._order = np.argsort(ids)
        self._sorted = ids[self._order]
        self._damping = damping
        self._visits_a_payment = max(1, len(ids) // 100)
        self._visits = 0
        self._measures: list[tuple[Ints, Floats, Floats]] = []

    def apply(self, entry: CrawlEntry | TickEntry) -> None:
        """Apply the visits of an entry, which are all fetches. Announcements change nothing: all pages are known."""
        if isinstance(entry, TickEntry) or (entry.items.kind != Kind.VISIT).any():
            return
        items, first = entry.items, 0
        visited, targets = self._numbers(items.page), self._numbers(items.link_pages)
        while first < len(visited):
            last = min(len(visited), first + self._visits_a_payment - self._visits % self._visits_a_payment)
            self._visit(visited[first:last], items.link_starts[first : last + 1], targets, items.link_weights)
            if self._visits % self._visits_a_payment == 0:
                self.cash += self.virtual / len(self.cash)
                self.virtual = 0.0
            first = last

    def _visit(self, visited: Ints, starts: Ints, targets: Ints, weights: Array) -> None:
        amounts = np.empty(len(visited))
        self.virtual += _spend_in_turn(visited, starts, targets, weights, self._damping, self.cash, amounts)
        clocks = self.clock + np.cumsum(amounts)
        self.clock = float(clocks[-1])
        self.history += np.bincount(visited, amounts, len(self.history))
        self._visits += len(visited)
        self._measures.append((visited, amounts, clocks))

    def waiting_cash(self, pages: Ids) -> Ints:
        """The cash of pages, in whole units."""
        return np.rint(self.cash[self._numbers(pages)] * (_UNITS * len(self.cash))).astype(np.int64)

    def measures(self) -> tuple[Ints, Floats, Floats]:
        """Return the page, cash and G of all measures, page by page, the oldest of a page first."""
        pages, cash, clocks = (np.concatenate(column) for column in zip(*self._measures, strict=True))
        order = np.argsort(pages, kind="stable")
        return pages[order], cash[order], clocks[order]

    def all_history(self) -> Floats:
        """The importance of all pages: (H + C) / (G + 1)."""
        return (self.history + self.cash) / (self.clock + 1.0)

    def fixed(self, window: float, fewest: int = 0) -> Floats:
        """H of the last T, divided by T.

        The improved window: pages with fewer than `fewest` measures there are read by that many of their last measures,
        as `variable` does it.
        """
        pages, cash, clocks = self.measures()
        counted = clocks > self.clock - window
        held: Floats = np.bincount(pages[counted], cash[counted], len(self.cash)) / window
        few = np.bincount(pages[counted], minlength=len(self.cash)) < fewest
        return np.where(few, self.variable(fewest), held) if fewest else held

    def variable(self, measures: int) -> Floats:
        """The cash of the last k visits and the cash held now, divided by the time since the visit before those."""
        pages, cash, clocks = self.measures()
        visits = np.bincount(pages, minlength=len(self.cash))
        ends = np.cumsum(visits)
        counted = np.arange(len(pages)) >= (ends - measures)[pages]
        before = np.where(visits > measures, clocks[np.maximum(ends - measures, 1) - 1], 0.0)
        return (np.bincount(pages[counted], cash[counted], len(self.cash)) + self.cash) / (self.clock - before)

    def interpolation(self, window: float) -> Floats:
        """H / T, where H is interpolated at every visit, and now."""
        held, last = np.zeros(len(self.cash)), np.zeros(len(self.cash))
        _interpolate(*self.measures(), window, held, last)
        everywhere = np.arange(len(self.cash))
        _interpolate(everywhere, self.cash, np.full(len(self.cash), self.clock), window, held, last)
        return held / window

    def measures_a_page(self, window: float, fewest: int) -> float:
        """Return how many measures a page has in a window, or outside it because it has so few (variable: T = 0)."""
        pages, _, clocks = self.measures()
        inside = np.bincount(pages[clocks > self.clock - window], minlength=len(self.cash))
        visits = np.bincount(pages, minlength=len(self.cash))
        return float(np.maximum(inside, np.minimum(visits, fewest)).mean())

    def _numbers(self, ids: Ids) -> Ints:
        return self._order[np.searchsorted(self._sorted, ids)]


@kernel
def _interpolate(pages: Ints, cash: Floats, clocks: Floats, window: float, held: Floats, last: Floats) -> None:
    """Update H and the G of the last visit, measure by measure."""
    for row in range(pages.shape[0]):
        page = pages[row]
        gap = clocks[row] - last[page]
        if gap < window:
            held[page] = held[page] * (window - gap) / window + cash[row]
        else:
            held[page] = cash[row] * window / gap
        last[page] = clocks[row]


@kernel
def _spend_in_turn(
    visited: Ints, starts: Ints, targets: Ints, weights: Array, damping: float, cash: Floats, amounts: Floats
) -> float:
    """Visit pages one after the other, and write down what each spends. Returns the part of the virtual page."""
    virtual = 0.0
    for row in range(visited.shape[0]):
        amount = cash[visited[row]]
        cash[visited[row]] = 0.0
        amounts[row] = amount
        total = 0.0
        for link in range(starts[row], starts[row + 1]):
            total += weights[link]
        paid = damping * amount if total > 0.0 else 0.0
        for link in range(starts[row], starts[row + 1]):
            cash[targets[link]] += paid * weights[link] / total
        virtual += amount - paid
    return virtual
