"""A crawl of a web, by one ledger or by several shards, compared with exact PageRank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.lab.web.crawl import announcements, visits
from opicflow.pipelines.lab.web.failures import UnchangedVisits
from opicflow.pipelines.lab.web.visit_orders import CycleOrder, GreedyOrder, RandomOrder, VisitOrder
from opicflow.pipelines.lab.web.webs import page_ids
from opicflow.pipelines.ledger.entries import CrawlEntry, Outcome
from opicflow.pipelines.ledger.ledger import Ledger
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ids, Ints

Outcomes = Callable[[Ints], Bytes]
"""The outcomes of visits to these pages, in order."""


class CrawlLedger(Protocol):
    """The ledger of a crawl: one `Ledger`, or `shards.Shards`."""

    def apply(self, entry: CrawlEntry) -> object: ...

    def waiting_cash(self, pages: Ids) -> Ints: ...

    def importance(self, pages: Ids) -> Floats: ...


@dataclass(frozen=True)
class OneLedger:
    """One ledger as `CrawlLedger`."""

    ledger: Ledger

    def apply(self, entry: CrawlEntry) -> object:
        return self.ledger.apply(entry)

    def waiting_cash(self, pages: Ids) -> Ints:
        return self.ledger.waiting_cash(pages)

    def importance(self, pages: Ids) -> Floats:
        return self.ledger.estimate(pages).importance


@dataclass(frozen=True)
class Errors:
    """Mean relative errors in per cent: of all pages, and of the most important tenth."""

    everywhere: float
    top: float

    @classmethod
    def of(cls, importance: Floats, exact: Floats) -> Errors:
        errors = np.abs(importance - exact) / exact * 100.0
        best = np.argsort(exact)[-max(1, len(exact) // 10) :]
        return cls(float(errors.mean()), float(errors[best].mean()))


class MixedOrder:
    """Greedy and random batches, alternately."""

    def __init__(self, pages: int, seed: int, batch: int) -> None:
        self._orders: list[VisitOrder] = [GreedyOrder(batch), RandomOrder(pages, seed, batch)]

    def next(self, waiting: Callable[[], Ints]) -> Ints:
        self._orders.reverse()
        return self._orders[0].next(waiting)


def order_named(name: str, pages: int, seed: int, batch: int) -> VisitOrder:
    """Return the order of this name for so many pages."""
    if name == "greedy":
        return GreedyOrder(batch)
    return {"cycle": CycleOrder, "random": RandomOrder, "mixed": MixedOrder}[name](pages, seed, batch)


class Crawl:
    """Visits of a web in some order, after announcements of all pages.

    `outcomes` returns the outcome of each visit; without it every visit fetches the page. `visited` marks the pages
    that the order chooses from; without it these are all pages. `categories` are those of the announcements. A greedy
    order reads the waiting cash `batches_per_crawl` times per round. Of the other orders one ledger gets long entries,
    which take less time and change nothing.
    """

    def __init__(
        self,
        ledger: CrawlLedger | Ledger,
        graph: Graph,
        order: str,
        seed: int = 0,
        outcomes: Outcomes | None = None,
        visited: Bools | None = None,
        categories: Bytes | None = None,
        batches_per_crawl: int = 128,
    ) -> None:
        self.ledger: CrawlLedger = OneLedger(ledger) if isinstance(ledger, Ledger) else ledger
        self.graph = graph
        self.ids = page_ids(graph.pages, seed)
        self._choice = np.arange(graph.pages) if visited is None else np.flatnonzero(visited)
        self._is_fixed = order in ("cycle", "random") and isinstance(ledger, Ledger)
        batch = max(1, len(self._choice) // (8 if self._is_fixed else batches_per_crawl))
        self._rest = np.empty(0, np.int64)
        self._order = order_named(order, len(self._choice), seed, batch)
        self._outcomes = outcomes
        known = announcements(self.ids)
        if categories is not None:
            known = replace(known, items=replace(known.items, category=categories))
        self.ledger.apply(known)
        self._offset = known.end.offset

    def run(self, crawls: float) -> Crawl:
        """Make `crawls` visits per page of the web; pages that the order does not choose count too."""
        left = round(crawls * self.graph.pages)
        while left > 0:
            numbers = self._rest if len(self._rest) else self._choice[self._order.next(self._waiting)]
            if self._is_fixed:
                self._rest = numbers[left:]
            numbers = numbers[:left]
            outcomes = self._outcomes(numbers) if self._outcomes else None
            self.ledger.apply(visits(self.graph, self.ids, numbers, self._offset, outcomes))
            self._offset += len(numbers)
            left -= len(numbers)
        return self

    def errors(self, exact: Floats) -> Errors:
        """Return the errors of importance."""
        return Errors.of(self.ledger.importance(self.ids), exact)

    def _waiting(self) -> Ints:
        return self.ledger.waiting_cash(self.ids[self._choice])


def unchanged_answers(pages: int, share: float, seed: int) -> Outcomes:
    """Return outcomes: the first visit fetches the page, and this share of later ones is "not modified"."""
    unchanged = UnchangedVisits(pages, share, np.random.default_rng(seed))

    def outcomes(numbers: Ints) -> Bytes:
        return np.where(unchanged.among(numbers), Outcome.UNCHANGED, Outcome.FETCHED).astype(np.uint8)

    return outcomes


def exact_ranks(graph: Graph, damping: float = 0.85, personalisation: npt.ArrayLike | None = None) -> Floats:
    """Return converged PageRank."""
    ranks = pagerank(graph, damping, personalisation)
    assert ranks.converged
    return ranks.values


def assert_within(errors: Errors, everywhere: float, top: float) -> None:
    """Assert that errors are within these bounds, in per cent."""
    assert errors.everywhere <= everywhere, errors
    assert errors.top <= top, errors
