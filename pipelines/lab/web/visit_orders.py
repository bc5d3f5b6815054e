"""Visit orders of the papers (paper 002, section 4.2): cycle, random, greedy, Xyleme's.

An order has no end. It returns page numbers in batches, so that a ledger can apply them in batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from opicflow.pipelines.ledger.cash.amounts import damped
from opicflow.pipelines.ranks.graph.csr import Graph, PageNumbers
from opicflow.schemas.arrays import Array, Floats, Ints
from opicflow.schemas.kernel import kernel

Waiting = Callable[[], Array]
"""Returns the current waiting cash of every page, by page number. Only orders that need it call it."""


class VisitOrder(Protocol):
    def next(self, waiting: Waiting) -> Ints:
        """Return the pages to visit next, in this order."""


class CycleOrder:
    """Every page once in a shuffled order, then again in the same order. Batches may cross the end of a round."""

    def __init__(self, pages: int, seed: int, batch: int) -> None:
        _check(pages, batch)
        self._pages = np.random.Generator(np.random.PCG64(seed)).permutation(np.arange(pages, dtype=np.int64))
        self._steps = np.arange(batch, dtype=np.int64)
        self._at = 0

    def next(self, waiting: Waiting) -> Ints:
        rows = (self._steps + self._at) % len(self._pages)
        self._at = (self._at + len(rows)) % len(self._pages)
        return self._pages[rows]


class AsFoundOrder:
    """Pages in the order of their discovery, then again: breadth first. `pages` may grow between batches."""

    def __init__(self, pages: int, batch: int) -> None:
        _check(pages, batch)
        self.pages, self._batch = pages, batch
        self._at = 0

    def next(self, waiting: Waiting) -> Ints:
        first = self._at % self.pages
        rows = np.arange(first, min(first + self._batch, self.pages), dtype=np.int64)
        self._at = first + len(rows)
        return rows


class LoggedOrder:
    """The pages of a log, in its order. Then batches are empty."""

    def __init__(self, numbers: Ints, batch: int) -> None:
        _check(1, batch)
        self._numbers, self._batch = numbers, batch
        self._at = 0

    def next(self, waiting: Waiting) -> Ints:
        numbers = self._numbers[self._at : self._at + self._batch]
        self._at += len(numbers)
        return numbers


class RandomOrder:
    """Every page with the same probability at every visit, independent of earlier visits. `pages` may grow."""

    def __init__(self, pages: int, seed: int, batch: int) -> None:
        _check(pages, batch)
        self._random = np.random.Generator(np.random.PCG64(seed))
        self.pages, self._batch = pages, batch

    def next(self, waiting: Waiting) -> Ints:
        return self._random.integers(0, self.pages, self._batch, dtype=np.int64)


class GreedyOrder:
    """The pages with the most waiting cash, the richest first; equal ones by page number.

    Payments between pages of a batch count from the next batch on. So the smaller the batch, the closer to the papers'
    Greedy, which has batches of 1. By default a batch is a 256th of the pages, at least one page.
    """

    def __init__(self, batch: int | None = None) -> None:
        if batch is not None:
            _check(1, batch)
        self._batch = batch

    def next(self, waiting: Waiting) -> Ints:
        cash = waiting()
        return _highest(cash, self._batch or max(1, len(cash) // 256))


class ExactGreedyOrder:
    """Greedy one visit at a time: the page with the most waiting cash, equal ones by page number.

    It has the graph: payments along links count at once, in a tree of the richest pages (a visit costs one path of the
    tree for every link). Payments of the virtual page count from the next batch on. A ledger declares a dividend every
    hundredth of a visit a page, and so long are batches by default. Until the round first takes cash from pages that
    were never read, the visits are those of reading the ledger before each one.
    """

    def __init__(self, graph: Graph, damping: float = 0.85, batch: int | None = None) -> None:
        if batch is not None:
            _check(1, batch)
        self._damping_q20 = round(damping * (1 << 20))
        self._batch = batch or max(1, graph.pages // 100)
        self.move_to(graph)

    def move_to(self, graph: Graph) -> None:
        """Use this graph from now on."""
        self._graph, self._out_weights = graph, graph.out_weights

    def next(self, waiting: Waiting) -> Ints:
        graph, cash = self._graph, np.array(waiting(), np.int64)
        if len(cash) != graph.pages:
            raise ValueError(f"waiting cash of {len(cash)} pages, where the web has {graph.pages}")
        chosen = np.empty(self._batch, np.int64)
        _spend_richest(graph.starts, graph.targets, graph.weights, self._out_weights, self._damping_q20, cash, chosen)
        return chosen


class XylemeOrder:
    """Pages are read in proportion to their importance, and a share of the visits goes to pages never read.

    Every visit to a page read before is divided among all such pages by importance, as claims; the page with the
    highest claim is visited, and its claim falls by 1. So a page twice as important is read twice as often (paper 002,
    section 3.2), but never twice in a batch. Pages never read are visited by waiting cash, the richest first. If one
    group has too few pages, the other fills the batch. `importance` returns that of every known page.
    """

    def __init__(self, pages: int, importance: Callable[[], Floats], batch: int, discovery: float = 0.25) -> None:
        _check(pages, batch)
        if not 0.0 <= discovery <= 1.0:
            raise ValueError(f"discovery must be a share from 0 to 1, not {discovery}")
        self._importance, self._batch, self._discovery = importance, batch, discovery
        self._was_read = np.zeros(pages, np.bool_)
        self._claims = np.zeros(pages)

    def next(self, waiting: Waiting) -> Ints:
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
    """Set the number of pages of an order that chooses rows; an order that follows cash needs no number."""
    if isinstance(order, AsFoundOrder | RandomOrder):
        order.pages = pages


def _highest(values: Array, count: int) -> Ints:
    """Return the rows of the `count` highest values, the highest first; equal values by row."""
    count = min(count, len(values))
    if count == 0:
        return np.empty(0, np.int64)
    # argpartition alone would choose any of the rows that tie for the last one.
    last = np.partition(values, len(values) - count)[len(values) - count]
    higher = np.flatnonzero(values > last)
    tied = np.flatnonzero(values == last)[: count - len(higher)]
    rows = np.concatenate((np.sort(higher)[::-1], tied[::-1]))
    return rows[np.argsort(values[rows], kind="stable")][::-1].astype(np.int64, copy=False)


@kernel
def _spend_richest(
    starts: Ints, targets: PageNumbers, weights: Ints, out_weights: Ints, damping: int, cash: Ints, out: Ints
) -> None:
    """Fill `out` with the richest page, one after the other; each pays its links as in a ledger."""
    pages = cash.shape[0]
    leaves = 1
    while leaves < pages:
        leaves *= 2
    richest = np.empty(2 * leaves, np.int64)  # node i is the richer of 2i and 2i + 1; the leaves are the pages
    for leaf in range(leaves):
        richest[leaves + leaf] = leaf if leaf < pages else -1
    for node in range(leaves - 1, 0, -1):
        richest[node] = _richer(cash, richest[2 * node], richest[2 * node + 1])
    for row in range(out.shape[0]):
        page = richest[1]
        out[row] = page
        amount = cash[page]
        cash[page] = 0
        _update(richest, cash, leaves, page)
        if out_weights[page] == 0:
            continue
        paid = damped(amount, damping)
        share, rest = paid // out_weights[page], paid % out_weights[page]
        for link in range(starts[page], starts[page + 1]):
            cash[targets[link]] += share * weights[link] + rest * weights[link] // out_weights[page]
            _update(richest, cash, leaves, targets[link])


@kernel
def _richer(cash: Ints, one: int, other: int) -> int:
    """Return the page with more cash, the first if equal. -1 is no page, and loses."""
    return other if other >= 0 and cash[other] > cash[one] else one


@kernel
def _update(richest: Ints, cash: Ints, leaves: int, page: int) -> None:
    """Update the nodes above a page whose cash has changed."""
    node = (leaves + page) // 2
    while node >= 1:
        richest[node] = _richer(cash, richest[2 * node], richest[2 * node + 1])
        node //= 2


def _check(pages: int, batch: int) -> None:
    if pages < 1:
        raise ValueError(f"an order needs at least one page, not {pages}")
    if batch < 1:
        raise ValueError(f"a batch must hold at least one page, not {batch}")
