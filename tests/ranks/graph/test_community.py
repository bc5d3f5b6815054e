"""Communities are held against dense linear algebra, and against the paper's algorithm 3 in plain Python."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.community import plain_scores
from opicflow.pipelines.lab.web.webs import hosted_web, power_law_web
from opicflow.pipelines.ranks.graph import community
from opicflow.pipelines.ranks.graph.community import (
    Expansion,
    FetchedPages,
    LocalFrontier,
    RecordedWeb,
    chance,
    chosen,
    find_global_ranks,
    flows,
    influence,
    linkers,
    ranks_of,
)
from opicflow.pipelines.ranks.graph.comparison import Ranking, l1
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from support.thorough import examples

property_test = examples(30, 500)
A = 0.85
NOTHING = np.empty(0, np.uint64)


class Domain(NamedTuple):
    """A small web, its pages that were read, in order, and how many are local: the first ones."""

    graph: Graph
    read: list[int]
    local: int


@st.composite
def domains(draw: Any, dangling: bool = True, weights: tuple[int, ...] = (1, 3, 1024, 65_535)) -> Domain:
    """Webs of a few pages. Without dangling ones every page that was read links to another that was."""
    pages = draw(st.integers(3, 9))
    page = st.integers(0, pages - 1)
    read = draw(st.permutations(range(pages)))[: draw(st.integers(2, pages))]
    links = draw(st.lists(st.tuples(page, page, st.sampled_from(weights)), max_size=30, unique_by=lambda one: one[:2]))
    if not dangling:
        links = [link for link in links if link[:2] not in set(pairwise([*read, read[0]]))]
        links += [(source, target, weights[0]) for source, target in pairwise([*read, read[0]])]
    graph = Graph.from_links(pages, *np.array(links, np.int64).reshape(-1, 3).T)
    return Domain(graph, read, draw(st.integers(1, len(read))))


def expanded(domain: Domain) -> Expansion:
    """Return the expansion after all pages of the domain were read."""
    expansion = Expansion()
    is_local = np.arange(len(domain.read)) < domain.local
    expansion.add(RecordedWeb.of_graph(domain.graph).fetch(np.array(domain.read, np.uint64)), is_local)
    return expansion


class Dense:
    """The paper's matrices for one candidate, as they are defined."""

    def __init__(self, domain: Domain, candidate: int) -> None:
        whole = np.zeros((domain.graph.pages, domain.graph.pages))
        sources = np.repeat(np.arange(domain.graph.pages), domain.graph.out_degrees)
        whole[domain.graph.targets, sources] = domain.graph.weights
        self.count = len(domain.read)
        self.F = whole[np.ix_(domain.read, domain.read)]
        self.u = whole[candidate, domain.read]
        inside = self.F.sum()
        self.s = self.F.sum(axis=1) / inside if inside else np.full(self.count, 1 / self.count)
        self.f = self._ranks(self._pagerank_matrix(self.F))
        grown = np.zeros((self.count + 1, self.count + 1))
        grown[:-1, :-1], grown[-1, :-1], grown[:-1, -1] = self.F, self.u, self.s
        P = self._pagerank_matrix(grown)
        self.F_, self.s_, self.u_, self.w = P[:-1, :-1], P[:-1, -1], P[-1, :-1], P[-1, -1]
        self.S = self.F_ + np.outer(self.s_, self.u_) / (1 - self.w)
        self.f_j = self._ranks(P)[:-1] / (1 - self._ranks(P)[-1])

    @staticmethod
    def _pagerank_matrix(links: np.ndarray) -> np.ndarray:
        """Equation 1; pages without links pay everyone alike."""
        sums = links.sum(axis=0)
        paid = np.where(sums == 0, 1 / len(links), links / np.where(sums == 0, 1, sums))
        return A * paid + (1 - A) / len(links)

    @staticmethod
    def _ranks(matrix: np.ndarray) -> np.ndarray:
        count = len(matrix)
        system = np.eye(count) - matrix
        system[0] = 1.0
        return np.linalg.solve(system, np.eye(count)[0])


def candidates_of(domain: Domain) -> tuple[LocalFrontier, np.ndarray]:
    frontier = expanded(domain).frontier()
    assume(len(frontier.pages) > 0)
    return frontier, Dense(domain, int(frontier.pages[0])).f


# -- influence


@pytest.mark.slow
@property_test
@given(domains())
def test_influence_is_one_step_over_the_stochastic_complement(domain: Domain) -> None:
    frontier, f = candidates_of(domain)
    scores = influence(frontier, f)
    for page, score in zip(frontier.pages.tolist(), scores, strict=True):
        dense = Dense(domain, page)
        assert score == pytest.approx(np.abs(dense.S @ dense.f - dense.f)[: domain.local].sum(), abs=1e-13)


@pytest.mark.slow
@property_test
@given(domains(dangling=False, weights=(1,)))
def test_the_terms_of_equation_15_are_those_of_the_paper(domain: Domain) -> None:
    """Links of weight 1, no page of F without links: equations 15 to 19 and g of algorithm 3, letter by letter."""
    frontier, f = candidates_of(domain)
    scores, flow = influence(frontier, f), flows(frontier, f)
    for at, page in enumerate(frontier.pages.tolist()):
        dense = Dense(domain, page)
        count, o, u = dense.count, dense.F.sum(axis=0), dense.u
        x = np.zeros(count)
        for k in np.flatnonzero(u):
            for sibling in np.flatnonzero(dense.F[:, k]):
                x[sibling] -= A * f[k] / (o[k] * (o[k] + 1))
        y = np.full(count, -(1 - A) / (count * (count + 1)))
        g = (1 - A) / (count + 1) + A * sum(f[k] / (o[k] + 1) for k in np.flatnonzero(u))
        s_ = A * dense.s + (1 - A) / (count + 1)
        z = s_ / (1 - (1 - A) / (count + 1))
        assert g == pytest.approx(dense.u_ @ f, abs=1e-14)
        assert dense.S @ f - f == pytest.approx(x + y + g * z, abs=1e-14)
        assert scores[at] == pytest.approx(np.abs(x + y + g * z)[: domain.local].sum(), abs=1e-13)
        assert flow[at] == pytest.approx((g - (1 - A) / (count + 1)) / A, abs=1e-14)


@property_test
@given(domains())
def test_the_estimate_is_as_near_to_the_ranks_of_the_grown_graph_as_one_step_promises(domain: Domain) -> None:
    frontier, f = candidates_of(domain)
    for page, score in zip(frontier.pages.tolist(), influence(frontier, f), strict=True):
        dense = Dense(domain, page)
        moved = np.abs(dense.f_j - f)
        assert abs(score - moved[: domain.local].sum()) <= A * moved.sum() + 1e-13


@pytest.mark.parametrize("count", [2, 3, 10])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_page_that_changes_nothing_has_no_influence(count: int, dangling: bool) -> None:
    """All pages of F link to each other, or to none, and to the candidate: it takes from all alike, and gives back."""
    read = range(count)
    links = [(a, b) for a in read for b in (*([] if dangling else read), count)]
    domain = Domain(Graph.from_links(count + 1, *np.array(links).T), list(read), count)
    dense = Dense(domain, count)
    assert dense.f_j == pytest.approx(dense.f, abs=1e-15)
    assert influence(expanded(domain).frontier(), dense.f) == pytest.approx(0.0, abs=1e-15)


@property_test
@given(domains(), st.integers(2, 60))
def test_the_table_of_norms_agrees_within_its_grid(domain: Domain, steps: int) -> None:
    frontier, f = candidates_of(domain)
    exact, looked_up = influence(frontier, f), influence(frontier, f, norm_steps=steps)
    dense = [Dense(domain, page) for page in frontier.pages.tolist()]
    held = float(f[dense[0].F.sum(axis=0) == 0].sum())
    z = dense[0].s_ / (1 - dense[0].w)
    count = dense[0].count
    y = np.array([(one.F_.sum(axis=0) @ f + one.u_ @ f - 1) for one in dense])  # 0: columns of P add up to 1
    assert y == pytest.approx(0.0, abs=1e-13)
    freed = np.array([f[(one.F.sum(axis=0) == 0) & (one.u > 0)].sum() for one in dense])
    shared = -(1 - A + A * held) / (count * (count + 1))
    own = shared - A * freed / (count + 1)
    scale = own / own.max()
    g = np.array([one.u_ @ f for one in dense]) / scale
    step = (g.max() - g.min()) / (steps - 1)
    assert (np.abs(exact - looked_up) <= scale * step / 2 * z[: domain.local].sum() + 1e-13).all()


def test_a_larger_web_has_the_scores_of_algorithm_3_in_plain_python() -> None:
    web = hosted_web(3000, 5, mean_links=8)
    ring = np.arange(300)
    sources = np.repeat(np.arange(3000), web.graph.out_degrees)
    graph = Graph.from_links(3000, np.append(sources, ring), np.append(web.graph.targets, (ring + 1) % 300))
    frontier = expanded(Domain(graph, list(range(300)), 200)).frontier()
    assert len(frontier.pages) > 200 and np.diff(frontier.linkers[0]).max() > 3
    f = ranks_of(frontier, tolerance=1e-14).values
    assert influence(frontier, f) == pytest.approx(plain_scores(frontier, f), abs=1e-13)


class Counting:
    """An array that counts how often it is read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.reads = array, 0

    def __getitem__(self, at: int) -> Any:
        self.reads += 1
        return self.array[at]


def sibling_steps(graph: Graph, read: int) -> tuple[int, int]:
    """How many siblings are looked at, and how many links F has, to the frontier among them."""
    frontier = expanded(Domain(graph, list(range(read)), read)).frontier()
    inside, count = frontier.links, len(frontier.pages)
    counted = Counting(inside.targets)
    columns = (inside.starts, counted, inside.weights, inside.out_weights, frontier.is_local)
    ranks, rest = np.full(read, 1 / read), (np.full(count, -1e-9), np.full(count, 1e-3), np.full(read, 1 / read))
    community._add_siblings.py_func(*frontier.linkers, *columns, ranks, A, *rest, np.zeros(count))  # type: ignore[attr-defined]
    return counted.reads, inside.links + len(frontier.targets)


def test_work_grows_as_the_links() -> None:
    steps = [sibling_steps(hosted_web(10 * read, 7, mean_links=6).graph, read) for read in (250, 500, 1000, 2000)]
    assert all(looks <= 4 * links for looks, links in steps), steps
    a_hub = np.zeros(2000, np.int64)
    looks, links = sibling_steps(Graph.from_links(2001, a_hub, np.arange(1, 2001)), 1000)
    assert looks == 999 and links == 2000  # not a million


def test_settings_that_make_no_sense_are_refused() -> None:
    frontier = expanded(Domain(Graph.from_links(2, [0], [1]), [0], 1)).frontier()
    for damping in (0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match="damping must be above 0 and below 1"):
            influence(frontier, np.ones(1), damping)
    with pytest.raises(ValueError, match="norm_steps must be 2 or more"):
        influence(frontier, np.ones(1), norm_steps=1)


# -- the others


def test_linkers_are_counted_and_chance_is_another_one_each_round() -> None:
    graph = Graph.from_links(6, [0, 1, 2, 0, 1, 0], [3, 3, 3, 4, 4, 5])
    frontier = expanded(Domain(graph, [0, 1, 2], 3)).frontier()
    assert linkers(frontier).tolist() == [3.0, 2.0, 1.0]
    draws = [chance(frontier, 1, number).tolist() for number in (1, 1, 2)] + [chance(frontier, 2, 1).tolist()]
    assert draws[0] == draws[1] and len({tuple(draw) for draw in draws}) == 3


def test_equal_scores_are_chosen_by_page_id() -> None:
    graph = Graph.from_links(6, [0, 0, 0, 0, 0], [5, 4, 3, 2, 1])
    frontier = expanded(Domain(graph, [0], 1)).frontier()
    assert chosen(frontier, np.array([0.1, 0.3, 0.3, 0.1, 0.3]), 4).tolist() == [2, 3, 5, 1]
    assert chosen(frontier, influence(frontier, np.ones(1)), 99).tolist() == [1, 2, 3, 4, 5]


# -- pages that were read


def links_of_frontier(frontier: LocalFrontier) -> tuple[set[tuple[int, int, int]], set[tuple[int, int, int]]]:
    """The links within F and from F to other pages, by page id."""
    inside = frontier.links
    sources = frontier.ids[np.repeat(np.arange(inside.pages), inside.out_degrees)]
    within = zip(sources.tolist(), frontier.ids[inside.targets].tolist(), inside.weights.tolist(), strict=True)
    sources = frontier.ids[np.repeat(np.arange(inside.pages), np.diff(frontier.starts))]
    out = zip(sources.tolist(), frontier.pages[frontier.targets].tolist(), frontier.weights.tolist(), strict=True)
    return set(within), set(out)


@property_test
@given(domains(), st.data())
def test_batches_of_any_size_make_the_same_frontier(domain: Domain, data: Any) -> None:
    at_once = expanded(domain).frontier()
    recorded, expansion, rest = RecordedWeb.of_graph(domain.graph), Expansion(), list(domain.read)
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        batch = np.array(rest[:size], np.uint64)
        expansion.add(recorded.fetch(batch), np.isin(batch, np.array(domain.read[: domain.local], np.uint64)))
        rest = rest[size:]
    one_by_one = expansion.frontier()
    assert one_by_one.ids.tolist() == at_once.ids.tolist() == domain.read
    assert one_by_one.is_local.tolist() == at_once.is_local.tolist()
    assert one_by_one.pages.tolist() == at_once.pages.tolist()
    assert links_of_frontier(one_by_one) == links_of_frontier(at_once)
    graph = domain.graph
    sources = np.repeat(np.arange(graph.pages), graph.out_degrees).tolist()
    links = set(zip(sources, graph.targets.tolist(), graph.weights.tolist(), strict=True))
    read = set(domain.read)
    within, out = links_of_frontier(at_once)
    assert within == {link for link in links if link[0] in read and link[1] in read}
    assert out == {link for link in links if link[0] in read and link[1] not in read}


def test_a_page_is_read_once_and_one_that_failed_may_be_read_later() -> None:
    expansion = expanded(Domain(Graph.from_links(4, [0, 0], [1, 2]), [0], 1))
    assert expansion.frontier().pages.tolist() == [1, 2]
    empty, one = np.zeros(1, np.int64), np.zeros(2, np.int64)
    nothing = FetchedPages(NOTHING, empty, NOTHING, np.empty(0, np.int64))
    failed = nothing._replace(failed=np.array([1], np.uint64))
    expansion.add(failed, np.zeros(0, np.bool_))
    assert expansion.frontier().pages.tolist() == [2]
    read = FetchedPages(np.array([1], np.uint64), one, NOTHING, np.empty(0, np.int64))
    expansion.add(read, np.zeros(1, np.bool_))
    expansion.add(failed, np.zeros(0, np.bool_))
    assert expansion.frontier().ids.tolist() == [0, 1]
    with pytest.raises(ValueError, match="were read before"):
        expansion.add(read, np.zeros(1, np.bool_))
    twice = FetchedPages(np.array([3, 3], np.uint64), np.zeros(3, np.int64), NOTHING, np.empty(0, np.int64))
    with pytest.raises(ValueError, match="given twice"):
        expansion.add(twice, np.zeros(2, np.bool_))
    with pytest.raises(ValueError, match="is_local must hold 0 booleans"):
        expansion.add(failed, np.zeros(1, np.bool_))


# -- FindGlobalPR


def rounds_of(domain: Domain, rounds: int, a_round: int, tolerance: float = 1e-13) -> list[Any]:
    fetcher = RecordedWeb.of_graph(domain.graph)
    select = lambda frontier, ranks, number: influence(frontier, ranks)  # noqa: E731
    return list(find_global_ranks(expanded(domain), fetcher, select, rounds, a_round, tolerance=tolerance))


def exact(graph: Graph, local: list[int]) -> np.ndarray:
    ranks = pagerank(graph, tolerance=1e-14).values[sorted(local)]
    return ranks / ranks.sum()


def test_a_domain_whose_whole_surroundings_are_read_has_the_ranks_of_the_web() -> None:
    graph = power_law_web(600, 4)
    local = list(range(80))
    steps = rounds_of(Domain(graph, local, 80), 60, 20)
    assert steps[-1].frontier.links.pages == 600 and not len(steps[-1].frontier.pages) and len(steps) < 61
    assert sum(step.fetched for step in steps) == 520
    assert l1(steps[-1].estimate.values, exact(graph, local)) < 1e-11
    assert l1(steps[0].estimate.values, exact(graph, local)) > 0.05
    # A start from the ranks before leads where a start from nothing leads.
    cold = ranks_of(steps[7].frontier, tolerance=1e-13).values
    assert l1(steps[7].ranks.values, cold) < 1e-11


def test_a_domain_that_is_the_whole_web_has_nothing_to_read() -> None:
    graph = power_law_web(100, 4)
    (only,) = rounds_of(Domain(graph, list(range(100)), 100), 5, 10)
    assert only.number == 0 and len(only.frontier.pages) == 0
    assert l1(only.estimate.values, exact(graph, list(range(100)))) < 1e-11


def test_a_frontier_smaller_than_a_round_is_read_whole() -> None:
    graph = Graph.from_links(4, [0, 0, 1], [1, 2, 3])
    steps = rounds_of(Domain(graph, [0], 1), 9, 100)
    assert [step.fetched for step in steps] == [0, 2, 1]
    assert steps[-1].estimate.values.tolist() == [1.0]


def test_failed_pages_are_requested_once() -> None:
    graph = power_law_web(400, 9)
    whole = RecordedWeb.of_graph(graph).fetch(np.arange(400, dtype=np.uint64))
    dead = np.arange(100, 400, 3, dtype=np.uint64)
    alive = np.setdiff1d(np.arange(400, dtype=np.uint64), dead)
    fetcher, requested = RecordedWeb(RecordedWeb.of_graph(graph).fetch(alive)), []

    class Noting:
        def fetch(self, pages: np.ndarray) -> FetchedPages:
            requested.extend(pages.tolist())
            return fetcher.fetch(pages)

    assert len(whole.pages) == 400
    expansion = Expansion()
    expansion.add(fetcher.fetch(np.arange(100, dtype=np.uint64)), np.ones(100, np.bool_))
    steps = list(find_global_ranks(expansion, Noting(), lambda frontier, ranks, number: linkers(frontier), 99, 30))
    assert len(requested) == len(set(requested)) and not len(steps[-1].frontier.pages)
    assert sum(step.failed for step in steps) == len(set(requested) & set(dead.tolist())) > 0
    assert not set(steps[-1].frontier.ids.tolist()) & set(dead.tolist())


def test_without_a_local_page_there_is_nothing_to_rank() -> None:
    expansion = expanded(Domain(Graph.from_links(2, [0], [1]), [0], 0))
    with pytest.raises(ValueError, match="no page of the local domain was read"):
        next(find_global_ranks(expansion, RecordedWeb.of_graph(Graph.from_links(2, [0], [1])), linkers_of, 1, 1))


def linkers_of(frontier: LocalFrontier, ranks: np.ndarray, number: int) -> np.ndarray:
    return linkers(frontier)


def test_impact_is_the_share_of_a_rank_that_goes_into_the_domain() -> None:
    # 0 and 1 are local; 2 was read besides: of its four links one goes to 0, one to 3, which is unread.
    graph = Graph.from_links(5, [0, 1, 2, 2, 2], [1, 2, 0, 3, 2], [1024, 1024, 1024, 3072, 1024])
    expansion = expanded(Domain(graph, [1, 0, 2], 2))
    frontier = expansion.frontier()
    ranks = ranks_of(frontier, tolerance=1e-14).values
    assert expansion.impact(ranks).tolist() == pytest.approx([0.0, ranks[1], ranks[2] / 4])
    assert isinstance(frontier.local_ranks(ranks), Ranking)
    assert frontier.local_ranks(ranks).pages.tolist() == [0, 1]
    assert frontier.local_ranks(ranks).values.sum() == pytest.approx(1.0)
