"""`Expansion`: what was read of the web around a local domain, and the frontier of what it links to.

In the words of Davis and Dhillon (paper 004): L is the local domain, F all that was read, L among it, and F_out the
links to pages that were not read. Pages of F are numbered in the order in which they were read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.graph.comparison import Ranking
from opicflow.pipelines.graph.csr import Graph, Int64s, PageNumbers, group
from opicflow.schemas.columns import spans

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_ON_THE_FRONTIER, _FAILED = -1, -2


class FetchedPages(NamedTuple):
    """Pages that were read, each once, with the links of each; and pages that could not be read."""

    pages: Ids
    link_starts: Int64s
    link_pages: Ids
    link_weights: Int64s
    failed: Ids = np.empty(0, np.uint64)


class Fetcher(Protocol):
    """Whoever reads pages: a web that is known, a crawl that was recorded, a crawler."""

    def fetch(self, pages: Ids) -> FetchedPages:
        """Read these pages. A page that is in neither part of the answer may be asked for again."""


class RecordedWeb:
    """A fetcher that has everything already: what it does not have cannot be read."""

    def __init__(self, web: FetchedPages) -> None:
        """What was recorded; `web.failed` is not needed."""
        self._web = web
        self._order = np.argsort(web.pages, kind="stable")
        self._sorted = web.pages[self._order]

    @classmethod
    def of_graph(cls, graph: Graph) -> RecordedWeb:
        """A web that is known: the page ids are the numbers of its pages."""
        ids = np.arange(graph.pages, dtype=np.uint64)
        return cls(FetchedPages(ids, graph.starts, graph.targets.astype(np.uint64), graph.weights))

    def fetch(self, pages: Ids) -> FetchedPages:
        """These pages, as they are recorded."""
        places = np.searchsorted(self._sorted, pages)
        places[places == len(self._sorted)] = 0
        here = self._sorted[places] == pages if len(self._sorted) else np.zeros(len(pages), np.bool_)
        links, starts = spans(self._web.link_starts, self._order[places[here]])
        web = self._web
        return FetchedPages(pages[here], starts, web.link_pages[links], web.link_weights[links], pages[~here])


@dataclass(frozen=True, eq=False)
class Frontier:
    """F and its frontier at one moment.

    `links` are the links within F, `is_local` says which of its pages are of the local domain. `pages` are those of
    the frontier, by ascending id. Page i of F links to the pages `targets[starts[i]:starts[i + 1]]` of the frontier.
    """

    ids: Ids
    links: Graph
    is_local: Mask
    pages: Ids
    starts: Int64s
    targets: PageNumbers
    weights: Int64s

    @cached_property
    def linkers(self) -> tuple[Int64s, PageNumbers, Int64s]:
        """The same links by page of the frontier: where its links start, the pages of F that link to it, weights."""
        sources = np.repeat(np.arange(len(self.ids), dtype=self.targets.dtype), np.diff(self.starts))
        return group(self.targets, sources, self.weights, len(self.pages))

    def local_ranks(self, ranks: Floats) -> Ranking:
        """Ranks of F, restricted to the local domain, with the sum 1: E_L f / |E_L f|."""
        pages, values = self.ids[self.is_local], ranks[self.is_local]
        order = np.argsort(pages)
        return Ranking(pages[order], values[order] / values.sum())


class Expansion:
    """What was read so far, and what that links to. It only grows."""

    def __init__(self) -> None:
        """Nothing was read."""
        self._known: Ids = np.empty(0, np.uint64)
        self._numbers: Int64s = np.empty(0, np.int64)
        self._places: Int64s = np.empty(0, np.int64)
        self._ids: Ids = np.empty(0, np.uint64)
        self._is_local: Mask = np.empty(0, np.bool_)
        self._starts: Int64s = np.zeros(1, np.int64)
        self._targets: Int64s = np.empty(0, np.int64)
        self._weights: Int64s = np.empty(0, np.int64)

    @property
    def pages(self) -> int:
        """How many pages were read."""
        return len(self._ids)

    def add(self, fetched: FetchedPages, is_local: Mask) -> None:
        """Add what was fetched; `is_local` says which of its pages are of the local domain.

        A page that failed may be read later, one that was read stays so. Refuses pages that were read before, and those
        that come twice, with a ValueError.
        """
        if is_local.dtype != np.bool_ or is_local.shape != fetched.pages.shape:
            raise ValueError(f"is_local must hold {len(fetched.pages)} booleans, one for each page")
        sources = self._number(fetched.pages)
        if (self._places[sources] >= 0).any() or len(np.unique(sources)) < len(sources):
            raise ValueError("pages come twice, or were read before")
        targets = self._number(fetched.link_pages)
        failed = self._number(fetched.failed)
        counts = np.diff(fetched.link_starts)
        rows = Graph.from_links(len(self._known), np.repeat(sources, counts), targets, fetched.link_weights)
        links, starts = spans(rows.starts, sources)
        self._places[failed] = np.where(self._places[failed] >= 0, self._places[failed], _FAILED)
        self._places[sources] = np.arange(len(sources)) + self.pages
        self._ids = np.concatenate((self._ids, fetched.pages))
        self._is_local = np.concatenate((self._is_local, is_local))
        self._starts = np.concatenate((self._starts, starts[1:] + self._starts[-1]))
        self._targets = np.concatenate((self._targets, rows.targets[links].astype(np.int64)))
        self._weights = np.concatenate((self._weights, rows.weights[links]))

    def frontier(self) -> Frontier:
        """F and its frontier as they are now: a pass over all links."""
        places = self._places[self._targets]
        inside, outside = places >= 0, places == _ON_THE_FRONTIER
        ahead = self._places[self._numbers] == _ON_THE_FRONTIER
        candidate_of = np.empty(len(self._known), np.int64)
        candidate_of[self._numbers[ahead]] = np.arange(np.count_nonzero(ahead))
        number = np.int32 if len(self._known) <= np.iinfo(np.int32).max else np.int64
        return Frontier(
            self._ids,
            Graph(self._starts_of(inside), places[inside].astype(number), self._weights[inside]),
            self._is_local,
            self._known[ahead],
            self._starts_of(outside),
            candidate_of[self._targets[outside]].astype(number),
            self._weights[outside],
        )

    def impact(self, ranks: Floats) -> Floats:
        """Of each page of F: how likely a walker is there, and goes on to a local page if it follows a link (6.2)."""
        places = self._places[self._targets]
        local = np.append(self._is_local, False)[np.maximum(places, -1)]
        to_local, to_all = (
            np.diff(np.concatenate(([0], np.cumsum(weights)))[self._starts])
            for weights in (np.where(local, self._weights, 0), self._weights)
        )
        impact: Floats = ranks * to_local / np.maximum(to_all, 1)
        return impact

    def _starts_of(self, kept: Mask) -> Int64s:
        """Where the links of each page start, if only these are kept."""
        before = np.zeros(len(kept) + 1, np.int64)
        np.cumsum(kept, out=before[1:])
        return before[self._starts]

    def _number(self, ids: Ids) -> Int64s:
        """The numbers of pages; those that were not known get the next ones, by ascending id."""
        unique, inverse = np.unique(ids, return_inverse=True)
        places = np.searchsorted(self._known, unique)
        known = np.zeros(len(unique), np.bool_)
        inside = places < len(self._known)
        known[inside] = self._known[places[inside]] == unique[inside]
        new = ~known
        count = len(self._known)
        numbers = np.empty(len(unique), np.int64)
        numbers[known] = self._numbers[places[known]]
        numbers[new] = np.arange(count, count + np.count_nonzero(new))
        self._known = np.insert(self._known, places[new], unique[new])
        self._numbers = np.insert(self._numbers, places[new], numbers[new])
        self._places = np.append(self._places, np.full(np.count_nonzero(new), _ON_THE_FRONTIER))
        return numbers[inverse]
