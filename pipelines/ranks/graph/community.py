"""Communities: the global ranks of a local domain, from little more than the domain (paper 004). Pure.

In the notation of Davis and Dhillon: L is the local domain, F all pages read (`Expansion`), L among them, and F_out the
links to pages that were not read, the frontier. Pages of F are numbered in the order in which they were read.
`find_global_ranks` is their FindGlobalPR (algorithm 2): rounds of reading and ranking.

Selections: which pages of the frontier to read next (paper 004, section 5). Each scores every page in O(F).

`influence` is the paper's own: how far the ranks of the local domain would move if the page were part of F, estimated
by one step of the power method over the stochastic complement (SC-Select, algorithm 3). `flows` are the payments that
the page would receive (PF-Select), `linkers` is the number of pages that link to it (OutlinkCount), `chance` is the
baseline (Random).

Two additions to the paper: links have weights (with equal weights nothing changes), and pages of F without links within
F pay all pages, as in the paper's implementation; such a page that links to candidate j no longer does so once j is
part of F. With D the rank of all pages without links within F, and D_j the same without the pages that link to j,
equations 15 to 18 become

    S f - f = x + y_j e + g_j z         y_j = (1 - a + a D_j) / (l + 1) - (1 - a + a D) / l
    g_j = a sum_k f_k u_k / (o_k + u_k) + (1 - a + a D_j) / (l + 1)
    z   = (a s + (1 - a) e / (l + 1)) / (1 - w)       w = (1 - a) / (l + 1)
    x_k' = -a sum_k f_k F_k'k u_k / (o_k (o_k + u_k))

which are the paper's where D = 0. s, the expected links of j, is proportional to the links of F: the paper's text
defines it so, while its formula (5) has F transposed, which would be the linkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from opicflow.pipelines.ranks.graph.comparison import Ranking
from opicflow.pipelines.ranks.graph.csr import Graph, PageNumbers, group
from opicflow.pipelines.ranks.graph.oracle import PageRanks, pagerank
from opicflow.schemas.arrays import Bools, Floats, Ids, Ints, highest
from opicflow.schemas.columns import spans
from opicflow.schemas.kernel import kernel

# -- the pages read, and fetchers, which read pages --------------------------------------------------------------------

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


# -- which pages of the frontier to read next --------------------------------------------------------------------------

Select = Callable[[LocalFrontier, Floats, int], Floats]
"""Scores the pages of a frontier by the ranks of F; the integer is the number of the round, from 1."""

_FEWEST_STEPS = 2


def influence(frontier: LocalFrontier, ranks: Floats, damping: float = 0.85, norm_steps: int | None = None) -> Floats:
    """Estimate by (11) how far each page would move the ranks of the local domain (7): SC-Select.

    The norms of y_j e + g_j z are exact, or from a table of `norm_steps` values as in algorithm 3.
    """
    if not 0.0 < damping < 1.0:
        raise ValueError(f"damping must be above 0 and below 1, not {damping}")
    if norm_steps is not None and norm_steps < _FEWEST_STEPS:
        raise ValueError(f"norm_steps must be {_FEWEST_STEPS} or more, not {norm_steps}")
    inside, count = frontier.links, frontier.links.pages
    if not len(frontier.pages):
        return np.empty(0)
    outs = inside.out_weights
    flow, freed = _flows(*frontier.linkers, ranks, outs)
    held = float(ranks[outs == 0].sum())
    everywhere = 1.0 - damping
    g = _received(flow, freed, held, count, damping)
    y = -(everywhere + damping * held) / (count * (count + 1.0)) - damping * freed / (count + 1)
    ins = np.bincount(inside.targets, inside.weights, minlength=count)
    expected = ins / ins.sum() if inside.links else np.full(count, 1.0 / count)
    z = (damping * expected + everywhere / (count + 1)) / (1.0 - everywhere / (count + 1))
    local = z[frontier.is_local]
    norms = _norms(y, g, local) if norm_steps is None else _norms_of_a_table(y, g, local, norm_steps)
    siblings = (inside.starts, inside.targets, inside.weights, outs)
    _add_siblings(*frontier.linkers, *siblings, frontier.is_local, ranks, damping, y, g, z, norms)
    return norms


def flows(frontier: LocalFrontier, ranks: Floats) -> Floats:
    """Return the payments that each page would receive along links: f'(D + diag(u))^-1 u, PF-Select (5.2.2)."""
    return _flows(*frontier.linkers, ranks, frontier.links.out_weights)[0]


def expected_ranks(frontier: LocalFrontier, ranks: Floats, damping: float = 0.85) -> Floats:
    """Return the rank that each page itself would have as part of F: x_j of (6), from the payments to it."""
    if not len(frontier.pages):
        return np.empty(0)
    outs, count = frontier.links.out_weights, frontier.links.pages
    flow, freed = _flows(*frontier.linkers, ranks, outs)
    g = _received(flow, freed, float(ranks[outs == 0].sum()), count, damping)
    expected: Floats = g / (1.0 - (1.0 - damping) / (count + 1) + g)
    return expected


def linkers(frontier: LocalFrontier) -> Floats:
    """Return the number of pages of F that link to each page: OutlinkCount."""
    return np.diff(frontier.linkers[0]).astype(np.float64)


def chance(frontier: LocalFrontier, seed: int, round_: int) -> Floats:
    """Return random numbers, other ones in each round: Random."""
    return np.random.Generator(np.random.PCG64([seed, round_])).random(len(frontier.pages))


def _received(flow: Floats, freed: Floats, held: float, count: int, damping: float) -> Floats:
    """Return g_j: payments along links and to all pages. `freed` is D - D_j: rank that no longer goes to all pages."""
    received: Floats = damping * flow + (1.0 - damping + damping * (held - freed)) / (count + 1)
    return received


def _norms(y: Floats, g: Floats, z: Floats) -> Floats:
    """Return |y_j e + g_j z| in L1 for every j, exactly, given y_j < 0: in O(l log l), for sorting z once."""
    z = np.sort(z)
    sums = np.concatenate(([0.0], np.cumsum(z)))
    below = np.searchsorted(z, -y / g)
    norms: Floats = y * (len(z) - 2 * below) + g * (sums[-1] - 2.0 * sums[below])
    return norms


def _norms_of_a_table(y: Floats, g: Floats, z: Floats, steps: int) -> Floats:
    """Return the norms from a table of |Y e + a_i z| for uniform values of a_i: the nearest entry.

    Y is y of a page that has no linkers without links within F. Others are scaled: |y e + g z| is |Y e + (g Y / y) z|
    times y / Y.
    """
    shared = y.max()
    scale = y / shared
    wanted = g / scale
    low, high = float(wanted.min()), float(wanted.max())
    values = np.linspace(low, high, steps)
    # Entries of z below the threshold -Y / a_i count as negative; thresholds fall as a_i grows.
    bins = np.searchsorted((-shared / values)[::-1], z, side="right")
    counts = np.cumsum(np.bincount(bins, minlength=steps + 1))[:steps][::-1]
    sums = np.cumsum(np.bincount(bins, z, minlength=steps + 1))[:steps][::-1]
    table = shared * (len(z) - 2 * counts) + values * (z.sum() - 2.0 * sums)
    nearest = np.rint((wanted - low) * ((steps - 1) / max(high - low, 1e-300))).astype(np.int64)
    norms: Floats = scale * table[np.minimum(nearest, steps - 1)]
    return norms


@kernel
def _flows(starts: Ints, sources: PageNumbers, weights: Ints, ranks: Floats, outs: Ints) -> tuple[Floats, Floats]:
    """Return for every page of the frontier: Σ f_k u_k / (o_k + u_k), and Σ f_k of linkers without links within F."""
    count = starts.shape[0] - 1
    flow, freed = np.zeros(count), np.zeros(count)
    for page in range(count):
        for link in range(starts[page], starts[page + 1]):
            source, weight = sources[link], weights[link]
            flow[page] += ranks[source] * weight / (outs[source] + weight)
            if outs[source] == 0:
                freed[page] += ranks[source]
    return flow, freed


@kernel
def _add_siblings(
    linker_starts: Ints,
    linkers_: PageNumbers,
    linker_weights: Ints,
    starts: Ints,
    targets: PageNumbers,
    weights: Ints,
    outs: Ints,
    is_local: Bools,
    ranks: Floats,
    damping: float,
    y: Floats,
    g: Floats,
    z: Floats,
    scores: Floats,
) -> None:
    """Add |x + c| - |c| to every score, c = y_j + g_j z, for the local siblings of j, which alone have an x (20).

    Most pages have one linker. All pages of one linker with the same weight have the same x, y and g, so the same
    score: it is computed once. Otherwise a page with a thousand links within F and a thousand to other pages would take
    a million steps.
    """
    x = np.zeros(ranks.shape[0])
    touched = np.empty(ranks.shape[0], np.int64)
    known = np.zeros(ranks.shape[0])
    known_weight = np.zeros(ranks.shape[0], np.int64)
    for page in range(scores.shape[0]):
        begin, end = linker_starts[page], linker_starts[page + 1]
        first = linkers_[begin]
        if end - begin == 1 and known_weight[first] == linker_weights[begin]:
            scores[page] = known[first]
            continue
        found = 0
        for link in range(begin, end):
            source, weight = linkers_[link], np.float64(linker_weights[link])
            if outs[source] == 0:
                continue
            total = np.float64(outs[source])
            leak = -damping * ranks[source] * weight / (total * (total + weight))
            if leak == 0.0:
                continue
            for row in range(starts[source], starts[source + 1]):
                target = targets[row]
                if is_local[target]:
                    if x[target] == 0.0:
                        touched[found] = target
                        found += 1
                    x[target] += leak * weights[row]
        change = 0.0
        for at in range(found):
            target = touched[at]
            without = y[page] + g[page] * z[target]
            change += abs(x[target] + without) - abs(without)
            x[target] = 0.0
        scores[page] += change
        if end - begin == 1:
            known[first], known_weight[first] = scores[page], linker_weights[begin]


# -- rounds of reading and ranking -------------------------------------------------------------------------------------

DAMPING = 0.85
TOLERANCE = 1e-6
"""The residual at which the paper ends its iterations."""


@dataclass(frozen=True, eq=False)
class EstimateRound:
    """The state after a round; round 0 reads no page. `ranks` are of all pages of F, in its order."""

    number: int
    fetched: int
    failed: int
    frontier: LocalFrontier
    ranks: PageRanks

    @property
    def estimate(self) -> Ranking:
        """The ranks of the local domain, scaled to sum 1."""
        return self.frontier.local_ranks(self.ranks.values)


def ranks_of(
    frontier: LocalFrontier, damping: float = DAMPING, tolerance: float = TOLERANCE, before: Floats | None = None
) -> PageRanks:
    """Compute PageRank of F; pages without links within F pay all pages. `before` are the ranks of a smaller F."""
    count = frontier.links.pages
    if before is not None:
        before = np.concatenate((before * (len(before) / count), np.full(count - len(before), 1.0 / count)))
    return pagerank(frontier.links, damping, tolerance=tolerance, start=before, gauss_seidel=True)


def chosen(frontier: LocalFrontier, scores: Floats, count: int) -> Ids:
    """Return the pages of the frontier with the highest scores, the highest first, equal scores by page id."""
    pages: Ids = frontier.pages[highest(scores, frontier.pages, count)]
    return pages


def find_global_ranks(
    expansion: Expansion,
    fetcher: Fetcher,
    select: Select,
    rounds: int,
    pages_a_round: int,
    damping: float = DAMPING,
    tolerance: float = TOLERANCE,
) -> Iterator[EstimateRound]:
    """Read `pages_a_round` pages in each round, those that `select` scores highest, and rank F after each round.

    `expansion` holds the local domain, and possibly more pages. It ends early when the frontier is empty. Failed pages
    count as requested, and are not requested again.
    """
    frontier = expansion.frontier()
    if not frontier.is_local.any():
        raise ValueError("no page of the local domain was read: there is nothing to rank")
    ranks = ranks_of(frontier, damping, tolerance)
    yield EstimateRound(0, 0, 0, frontier, ranks)
    for number in range(1, rounds + 1):
        pages = chosen(frontier, select(frontier, ranks.values, number), pages_a_round)
        if not len(pages):
            return
        fetched = fetcher.fetch(pages)
        expansion.add(fetched, np.zeros(len(fetched.pages), np.bool_))
        frontier = expansion.frontier()
        ranks = ranks_of(frontier, damping, tolerance, ranks.values)
        yield EstimateRound(number, len(fetched.pages), len(fetched.failed), frontier, ranks)
