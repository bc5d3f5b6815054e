"""The pages read around a local domain (`Expansion`), and the frontier of pages that they link to.

In the notation of Davis and Dhillon (paper 004): L is the local domain, F all pages read, L among them, and F_out the
links to pages that were not read. Pages of F are numbered in the order in which they were read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from opicflow.pipelines.ranks.graph.comparison import Ranking
from opicflow.pipelines.ranks.graph.csr import Graph, PageNumbers, group
from opicflow.schemas.arrays import Bools, Floats, Ids, Ints
from opicflow.schemas.columns import spans

_ON_THE_FRONTIER, _FAILED = -1, -2


class FetchedPages(NamedTuple):
    """Pages that were read, each once, with their links; and pages that could not be read."""

    pages: Ids
    link_starts: Ints
    link_pages: Ids
    link_weights: Ints
    failed: Ids = np.empty(0, np.uint64)


class Fetcher(Protocol):
    """Reads pages: from a known web, from a recorded crawl, or with a crawler."""

    def fetch(self, pages: Ids) -> FetchedPages:
        """Read these pages. A page that the result does not mention may be requested again."""


class RecordedWeb:
    """A fetcher of recorded pages: all others cannot be read."""

    def __init__(self, web: FetchedPages) -> None:
        """`web` holds the recorded pages; its `failed` is ignored."""
        self._web = web
        self._order = np.argsort(web.pages, kind="stable")
        self._sorted = web.pages[self._order]

    @classmethod
    def of_graph(cls, graph: Graph) -> RecordedWeb:
        """Return a fetcher of a graph's pages, whose ids are their numbers."""
        ids = np.arange(graph.pages, dtype=np.uint64)
        return cls(FetchedPages(ids, graph.starts, graph.targets.astype(np.uint64), graph.weights))

    def fetch(self, pages: Ids) -> FetchedPages:
        rows = np.searchsorted(self._sorted, pages)
        rows[rows == len(self._sorted)] = 0
        here = self._sorted[rows] == pages if len(self._sorted) else np.zeros(len(pages), np.bool_)
        links, starts = spans(self._web.link_starts, self._order[rows[here]])
        web = self._web
        return FetchedPages(pages[here], starts, web.link_pages[links], web.link_weights[links], pages[~here])


@dataclass(frozen=True, eq=False)
class LocalFrontier:
    """F and its frontier at one moment.

    `links` are the links within F; `is_local` marks its pages of the local domain. `pages` are those of the frontier,
    by ascending id. Page i of F links to the pages `targets[starts[i]:starts[i + 1]]` of the frontier.
    """

    ids: Ids
    links: Graph
    is_local: Bools
    pages: Ids
    starts: Ints
    targets: PageNumbers
    weights: Ints

    @cached_property
    def linkers(self) -> tuple[Ints, PageNumbers, Ints]:
        """The links to the frontier by target: where each page's links start, the linking pages of F, and weights."""
        sources = np.repeat(np.arange(len(self.ids), dtype=self.targets.dtype), np.diff(self.starts))
        return group(self.targets, sources, self.weights, len(self.pages))

    def local_ranks(self, ranks: Floats) -> Ranking:
        """Restrict ranks of F to the local domain, scaled to sum 1: E_L f / |E_L f|."""
        pages, values = self.ids[self.is_local], ranks[self.is_local]
        order = np.argsort(pages)
        return Ranking(pages[order], values[order] / values.sum())


class Expansion:
    """The pages read so far, and their links. It only grows."""

    def __init__(self) -> None:
        self._known: Ids = np.empty(0, np.uint64)
        self._numbers: Ints = np.empty(0, np.int64)
        self._row_in_f: Ints = np.empty(0, np.int64)
        self._ids: Ids = np.empty(0, np.uint64)
        self._is_local: Bools = np.empty(0, np.bool_)
        self._starts: Ints = np.zeros(1, np.int64)
        self._targets: Ints = np.empty(0, np.int64)
        self._weights: Ints = np.empty(0, np.int64)

    @property
    def pages(self) -> int:
        """The number of pages that were read."""
        return len(self._ids)

    def add(self, fetched: FetchedPages, is_local: Bools) -> None:
        """Add fetched pages; `is_local` marks those of the local domain.

        A failed page may be read later. Raises ValueError for pages that were read before, or are given twice.
        """
        if is_local.dtype != np.bool_ or is_local.shape != fetched.pages.shape:
            raise ValueError(f"is_local must hold {len(fetched.pages)} booleans, one for each page")
        sources = self._number(fetched.pages)
        if (self._row_in_f[sources] >= 0).any() or len(np.unique(sources)) < len(sources):
            raise ValueError("pages are given twice, or were read before")
        targets = self._number(fetched.link_pages)
        failed = self._number(fetched.failed)
        counts = np.diff(fetched.link_starts)
        rows = Graph.from_links(len(self._known), np.repeat(sources, counts), targets, fetched.link_weights)
        links, starts = spans(rows.starts, sources)
        self._row_in_f[failed] = np.where(self._row_in_f[failed] >= 0, self._row_in_f[failed], _FAILED)
        self._row_in_f[sources] = np.arange(len(sources)) + self.pages
        self._ids = np.concatenate((self._ids, fetched.pages))
        self._is_local = np.concatenate((self._is_local, is_local))
        self._starts = np.concatenate((self._starts, starts[1:] + self._starts[-1]))
        self._targets = np.concatenate((self._targets, rows.targets[links].astype(np.int64)))
        self._weights = np.concatenate((self._weights, rows.weights[links]))

    def frontier(self) -> LocalFrontier:
        """Return F and its current frontier: one pass over all links."""
        rows = self._row_in_f[self._targets]
        inside, outside = rows >= 0, rows == _ON_THE_FRONTIER
        ahead = self._row_in_f[self._numbers] == _ON_THE_FRONTIER
        candidate_of = np.empty(len(self._known), np.int64)
        candidate_of[self._numbers[ahead]] = np.arange(np.count_nonzero(ahead))
        number = np.int32 if len(self._known) <= np.iinfo(np.int32).max else np.int64
        return LocalFrontier(
            self._ids,
            Graph(self._starts_of(inside), rows[inside].astype(number), self._weights[inside]),
            self._is_local,
            self._known[ahead],
            self._starts_of(outside),
            candidate_of[self._targets[outside]].astype(number),
            self._weights[outside],
        )

    def impact(self, ranks: Floats) -> Floats:
        """Return for each page of F how likely a walker is there, and follows a link to a local page (6.2)."""
        rows = self._row_in_f[self._targets]
        local = np.append(self._is_local, False)[np.maximum(rows, -1)]
        to_local, to_all = (
            np.diff(np.concatenate(([0], np.cumsum(weights)))[self._starts])
            for weights in (np.where(local, self._weights, 0), self._weights)
        )
        impact: Floats = ranks * to_local / np.maximum(to_all, 1)
        return impact

    def _starts_of(self, kept: Bools) -> Ints:
        """Return the start of each page's links, if only these links are kept."""
        before = np.zeros(len(kept) + 1, np.int64)
        np.cumsum(kept, out=before[1:])
        return before[self._starts]

    def _number(self, ids: Ids) -> Ints:
        """Return the numbers of pages; new pages get the next numbers, by ascending id."""
        unique, inverse = np.unique(ids, return_inverse=True)
        rows = np.searchsorted(self._known, unique)
        known = np.zeros(len(unique), np.bool_)
        inside = rows < len(self._known)
        known[inside] = self._known[rows[inside]] == unique[inside]
        new = ~known
        count = len(self._known)
        numbers = np.empty(len(unique), np.int64)
        numbers[known] = self._numbers[rows[known]]
        numbers[new] = np.arange(count, count + np.count_nonzero(new))
        self._known = np.insert(self._known, rows[new], unique[new])
        self._numbers = np.insert(self._numbers, rows[new], numbers[new])
        self._row_in_f = np.append(self._row_in_f, np.full(np.count_nonzero(new), _ON_THE_FRONTIER))
        return numbers[inverse]
