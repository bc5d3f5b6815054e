"""Crawls of a web: the ledger entries of visits and announcements, and crawlers that produce them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from opicflow.pipelines.lab.web.visit_orders import VisitOrder
from opicflow.pipelines.ledger.entries import CrawlEntry, CrawlItems, Kind, LogPosition, Outcome, TickEntry
from opicflow.pipelines.ranks.graph.csr import Graph, PageNumbers
from opicflow.schemas.arrays import Bytes, Ids, Ints

SOURCE = "web"
START_SECOND = 1_700_000_000
"""The first second of crawls with times."""
_LINKS_KNOWN = np.isin(np.arange(len(Outcome)), [Outcome.FETCHED, Outcome.REDIRECTED, Outcome.ALIASED])


def visits(
    graph: Graph,
    ids: Ids,
    numbers: Ints,
    start: int = 0,
    outcomes: Bytes | None = None,
    time_ms: Ints | None = None,
) -> CrawlEntry:
    """Return an entry with visits of the pages `numbers`, in that order, from offset `start` on.

    `outcomes` holds one `Outcome` for each visit (all FETCHED if None); only visits that receive the page have links.
    """
    rows = len(numbers)
    outcomes = np.full(rows, Outcome.FETCHED, np.uint8) if outcomes is None else outcomes
    known = _LINKS_KNOWN[outcomes]
    counts = np.where(known, graph.starts[numbers + 1] - graph.starts[numbers], 0)
    starts, links = _link_rows(graph, numbers, counts)
    items = CrawlItems.filled(
        rows,
        kind=np.full(rows, Kind.VISIT, np.uint8),
        page=ids[numbers],
        time_ms=np.zeros(rows, np.int64) if time_ms is None else time_ms,
        outcome=outcomes,
        offset=np.arange(start, start + rows),
        links_known=known.astype(np.uint8),
        link_starts=starts,
        link_pages=ids[graph.targets[links]],
        link_weights=graph.weights[links].astype(np.uint16),
    )
    return CrawlEntry(SOURCE, LogPosition(start, 0), LogPosition(start + rows, 0), items)


def links_of(graph: Graph, numbers: Ints) -> PageNumbers:
    """Return the targets of the pages' links, link by link."""
    _, links = _link_rows(graph, numbers, graph.starts[numbers + 1] - graph.starts[numbers])
    return graph.targets[links]


def _link_rows(graph: Graph, numbers: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Return where each page's first `counts` links start when concatenated, and their rows in the graph."""
    starts = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts, np.arange(starts[-1]) + np.repeat(graph.starts[numbers] - starts[:-1], counts)


def announcements(ids: Ids, kind: Kind = Kind.ANNOUNCEMENT, start: int = 0) -> CrawlEntry:
    """Return an entry that announces (or sights) these pages, in that order, from offset `start` on."""
    rows = len(ids)
    kinds = np.full(rows, kind, np.uint8)
    items = CrawlItems.filled(rows, kind=kinds, page=ids, offset=np.arange(start, start + rows))
    return CrawlEntry(SOURCE, LogPosition(start, 0), LogPosition(start + rows, 0), items)


class AnyLedger(Protocol):
    """A ledger, or a reference that counts otherwise, to which the visits of a crawl are applied."""

    def apply(self, entry: CrawlEntry | TickEntry, /) -> object: ...

    def waiting_cash(self, pages: Ids, /) -> Ints: ...


class WebCrawl:
    """Visits of a web in one order, applied to any number of ledgers.

    The visits never depend on how a ledger keeps history, so ledgers with different history policies can share a crawl.
    `choice` are the pages that the order chooses from (None: all); `outcomes` returns the outcomes of visits of pages
    (None: all are fetched). The first ledger supplies waiting cash. With `per_day` visits have times, so many a day
    from `START_SECOND` on, and every batch that reaches another hour is followed by a tick.
    """

    def __init__(
        self,
        ledgers: Sequence[AnyLedger],
        ids: Ids,
        order: VisitOrder,
        choice: Ints | None = None,
        outcomes: Callable[[Ints], Bytes] | None = None,
        per_day: int | None = None,
    ) -> None:
        self.ledgers = ledgers
        self.ids = ids
        self.visits = 0
        self._order = order
        self._choice = np.arange(len(ids)) if choice is None else choice
        self._chosen_ids = ids[self._choice]
        self._outcomes = outcomes
        self._per_day = per_day
        self._hour = 0
        self._offset = 0
        self._rest = np.empty(0, np.int64)

    def announce(self, ids: Ids) -> None:
        """Announce pages to all ledgers."""
        self._apply(announcements(ids, start=self._offset))

    def run(self, web: Graph, up_to: int) -> Ints:
        """Visit this web until `up_to` visits were made in total, or the order ends. Return the visited pages.

        The next run begins with the rest of the last batch: where runs end changes no visit.
        """
        visited = []
        while self.visits < up_to:
            chosen = self._rest if len(self._rest) else self._choice[self._order.next(self._waiting)]
            numbers, self._rest = np.split(chosen, [up_to - self.visits])
            if len(numbers) == 0:
                break
            outcomes = self._outcomes(numbers) if self._outcomes else None
            times_ms = None
            if self._per_day:
                since_start = (self.visits + np.arange(len(numbers))) * 86_400_000 // self._per_day
                times_ms = START_SECOND * 1000 + since_start
            self._apply(visits(web, self.ids, numbers, self._offset, outcomes, times_ms))
            self.visits += len(numbers)
            visited.append(numbers)
            if times_ms is not None and (hour := int(times_ms[-1]) // 3_600_000) != self._hour:
                self._hour = hour
                for ledger in self.ledgers:
                    ledger.apply(TickEntry(hour * 3600))
        return np.concatenate(visited) if visited else np.empty(0, np.int64)

    def _apply(self, entry: CrawlEntry) -> None:
        for ledger in self.ledgers:
            ledger.apply(entry)
        self._offset = entry.end.offset

    def _waiting(self) -> Ints:
        return self.ledgers[0].waiting_cash(self._chosen_ids)


class DiscoveredPages:
    """Pages of a web in the order of their discovery, each once."""

    def __init__(self, pages: int, first: Ints) -> None:
        """`first` are the pages known at the start."""
        self._numbers = np.empty(pages, np.int64)
        self._is_found = np.zeros(pages, np.bool_)
        self._count = 0
        self.add(first)

    @property
    def numbers(self) -> Ints:
        """The discovered pages, in order."""
        return self._numbers[: self._count]

    def add(self, numbers: Ints | PageNumbers) -> Ints:
        """Add the targets of links. Return those that are new, in this order."""
        new, first = np.unique(numbers[~self._is_found[numbers]], return_index=True)
        new = new[np.argsort(first)].astype(np.int64)
        self._numbers[self._count : self._count + len(new)] = new
        self._count += len(new)
        self._is_found[new] = True
        return new
