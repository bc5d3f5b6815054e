"""The orders of the papers in which a crawl visits pages (paper 002, section 4.2): cycle, random, greedy, Xyleme's.

An order never ends. It hands out page numbers in batches, so that a ledger can take them in batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.graph.csr import Graph, Int64s, PageNumbers
from opicflow.pipelines.ledger.kernels.spending import damped
from opicflow.schemas.kernel import kernel

Floats = npt.NDArray[np.float64]
Waiting = Callable[[], npt.NDArray[Any]]
"""Tells the waiting cash of every page, by page number, as it is now. Called only by orders that need it."""


class VisitOrder(Protocol):
    def next(self, waiting: Waiting) -> Int64s:
        """The pages to visit next, in this order."""


class CycleOrder:
    """Every page once in a shuffled order, and again in the same order. Batches run on across rounds."""

    def __init__(self, pages: int, seed: int, batch: int) -> None:
        _check(pages, batch)
        self._pages = np.random.Generator(np.random.PCG64(seed)).permutation(np.arange(pages, dtype=np.int64))
        self._steps = np.arange(batch, dtype=np.int64)
        self._at = 0

    def next(self, waiting: Waiting) -> Int64s:
        places = (self._steps + self._at) % len(self._pages)
        self._at = (self._at + len(places)) % len(self._pages)
        return self._pages[places]


class AsFoundOrder:
    """Pages in the order in which they were found, those found last among them, and again: breadth first.

    `pages` may grow between two batches.
    """

    def __init__(self, pages: int, batch: int) -> None:
        _check(pages, batch)
        self.pages, self._batch = pages, batch
        self._at = 0

    def next(self, waiting: Waiting) -> Int64s:
        first = self._at % self.pages
        places = np.arange(first, min(first + self._batch, self.pages), dtype=np.int64)
        self._at = first + len(places)
        return places


class LoggedOrder:
    """These pages, as a log has them. It ends with them: then batches are empty."""

    def __init__(self, numbers: Int64s, batch: int) -> None:
        _check(1, batch)
        self._numbers, self._batch = numbers, batch
        self._at = 0

    def next(self, waiting: Waiting) -> Int64s:
        numbers = self._numbers[self._at : self._at + self._batch]
        self._at += len(numbers)
        return numbers


class RandomOrder:
    """Every page with the same probability at every visit, whatever was visited before. `pages` may grow."""

    def __init__(self, pages: int, seed: int, batch: int) -> None:
        _check(pages, batch)
        self._random = np.random.Generator(np.random.PCG64(seed))
        self.pages, self._batch = pages, batch

    def next(self, waiting: Waiting) -> Int64s:
        return self._random.integers(0, self.pages, self._batch, dtype=np.int64)


class GreedyOrder:
    """The pages with the most waiting cash, the richest first; among equals the lower page number.

    Cash that the pages of a batch pay each other is seen by the next batch only, so the smaller the batch,
    the closer to the papers' Greedy, which is a batch of 1. Without a size a batch is a 256th of the pages,
    at least one page.
    """

    def __init__(self, batch: int | None = None) -> None:
        if batch is not None:
            _check(1, batch)
        self._batch = batch

    def next(self, waiting: Waiting) -> Int64s:
        cash = waiting()
        return _highest(cash, self._batch or max(1, len(cash) // 256))


class ExactGreedyOrder:
    """Greedy one visit at a time: the page with the most waiting cash, among equals the lower number.

    It knows the web: what the pages of a batch pay each other along links counts at once, in a tree of the richest
    pages (a visit costs a path of the tree for every link). What the virtual page pays counts from the next batch on.
    A ledger alone declares it every hundredth of a visit a page, and so long are the batches unless told otherwise:
    until the round first takes cash from pages never read, these are the visits that asking the ledger before
    each one would make.
    """

    def __init__(self, graph: Graph, damping: float = 0.85, batch: int | None = None) -> None:
        if batch is not None:
            _check(1, batch)
        self._damping_q20 = round(damping * (1 << 20))
        self._batch = batch or max(1, graph.pages // 100)
        self.move_to(graph)

    def move_to(self, graph: Graph) -> None:
        """The web has changed: this it is from now on."""
        self._graph, self._out_weights = graph, graph.out_weights

    def next(self, waiting: Waiting) -> Int64s:
        graph, cash = self._graph, np.array(waiting(), np.int64)
        if len(cash) != graph.pages:
            raise ValueError(f"waiting cash of {len(cash)} pages, where the web has {graph.pages}")
        chosen = np.empty(self._batch, np.int64)
        _spend_richest(graph.starts, graph.targets, graph.weights, self._out_weights, self._damping_q20, cash, chosen)
        return chosen


class XylemeOrder:
    """Pages are read as often as they are important, and a share of the visits goes to pages never read.

    Every visit to a page that was read before is shared out among all such pages by importance, as claims; it goes to
    the page with the highest, and takes 1 from that. So a page twice as important is read twice as often (paper 002,
    section 3.2), though never twice in a batch. Of the pages never read those with the most waiting cash come first. A
    batch of which one kind has too few is filled with the other. `importance` tells that of every page, or of the first
    ones while only those are known.
    """

    def __init__(self, pages: int, importance: Callable[[], Floats], batch: int, discovery: float = 0.25) -> None:
        _check(pages, batch)
        if not 0.0 <= discovery <= 1.0:
            raise ValueError(f"discovery must be a share from 0 to 1, not {discovery}")
        self._importance, self._batch, self._discovery = importance, batch, discovery
        self._was_read = np.zeros(pages, np.bool_)
        self._claims = np.zeros(pages)

    def next(self, waiting: Waiting) -> Int64s:
        cash = waiting()
        was_read = self._was_read[: len(cash)]
        unread, read = np.flatnonzero(~was_read & (cash > 0)), np.flatnonzero(was_read)
        new = min(len(unread), max(round(self._discovery * self._batch), self._batch - len(read)))
        found = unread[_highest(cash[unread], new)]
        again = min(self._batch - new, len(read))
        shares = self._importance()[read]
        self._claims[read] += shares * (again / max(float(shares.sum()), 1e-300))
        due = read[_highest(self._claims[read], again)]
        self._claims[due] -= 1.0
        was_read[found] = True
        return np.concatenate((found, due))


def set_page_count(order: VisitOrder, pages: int) -> None:
    """Tell an order that chooses among places how many there are now; one that follows cash sees for itself."""
    if isinstance(order, AsFoundOrder | RandomOrder):
        order.pages = pages


def _highest(values: npt.NDArray[Any], count: int) -> Int64s:
    """The places of so many highest values, the highest first; among equals the lower place."""
    count = min(count, len(values))
    if count == 0:
        return np.empty(0, np.int64)
    # argpartition alone would take any of the places that tie for the last one.
    last = np.partition(values, len(values) - count)[len(values) - count]
    higher = np.flatnonzero(values > last)
    tied = np.flatnonzero(values == last)[: count - len(higher)]
    places = np.concatenate((np.sort(higher)[::-1], tied[::-1]))
    return places[np.argsort(values[places], kind="stable")][::-1].astype(np.int64, copy=False)


@kernel
def _spend_richest(
    starts: Int64s, targets: PageNumbers, weights: Int64s, out_weights: Int64s, damping: int, cash: Int64s, out: Int64s
) -> None:
    """Fill `out` with the richest page, again and again, each paying its links as a ledger would."""
    pages = cash.shape[0]
    leaves = 1
    while leaves < pages:
        leaves *= 2
    richest = np.empty(2 * leaves, np.int64)  # node i is the richer of 2i and 2i + 1; the leaves are the pages
    for leaf in range(leaves):
        richest[leaves + leaf] = leaf if leaf < pages else -1
    for node in range(leaves - 1, 0, -1):
        richest[node] = _richer(cash, richest[2 * node], richest[2 * node + 1])
    for place in range(out.shape[0]):
        page = richest[1]
        out[place] = page
        amount = cash[page]
        cash[page] = 0
        _tell(richest, cash, leaves, page)
        if out_weights[page] == 0:
            continue
        paid = damped(amount, damping)
        share, rest = paid // out_weights[page], paid % out_weights[page]
        for link in range(starts[page], starts[page + 1]):
            cash[targets[link]] += share * weights[link] + rest * weights[link] // out_weights[page]
            _tell(richest, cash, leaves, targets[link])


@kernel
def _richer(cash: Int64s, one: int, other: int) -> int:
    """Which of two pages has more cash; the first if equal. -1 is no page, and never comes first."""
    return other if other >= 0 and cash[other] > cash[one] else one


@kernel
def _tell(richest: Int64s, cash: Int64s, leaves: int, page: int) -> None:
    """Tell the nodes above a page that its cash is another."""
    node = (leaves + page) // 2
    while node >= 1:
        richest[node] = _richer(cash, richest[2 * node], richest[2 * node + 1])
        node //= 2


def _check(pages: int, batch: int) -> None:
    if pages < 1:
        raise ValueError(f"an order needs at least one page, not {pages}")
    if batch < 1:
        raise ValueError(f"a batch must hold at least one page, not {batch}")
