"""The limit of a ledger's importance is exact PageRank: in any order, over any number of shards, in a real crawl.

Errors are mean relative ones in per cent, over all pages and over the most important tenth. Beside each bound
stands what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from crawls import Crawl, Errors, Floats, assert_within, exact_ranks, order_named, unchanged_answers
from shards import Faults, Shards

from opicflow.pipelines.graph.csr import Graph
from opicflow.pipelines.ledger.config import (
    Absorbing,
    All,
    History,
    Interpolation,
    LedgerConfig,
    Variable,
)
from opicflow.pipelines.ledger.entries import Ints, Outcome, Place, PolicyEntry
from opicflow.pipelines.ledger.errors import ConfigRefused
from opicflow.pipelines.ledger.ledger import Ledger
from opicflow.pipelines.web.crawl import introductions, visits
from opicflow.pipelines.web.webs import page_ids, power_law_web

DAY = 86400


def links_of(graph: Graph) -> tuple[Ints, Ints]:
    """Both ends of every link."""
    return np.repeat(np.arange(graph.pages), graph.out_degrees), graph.targets.astype(np.int64)


def with_hub(graph: Graph, share: float, seed: int) -> Graph:
    """The web, with links to page 0 from this share of the pages that link at all."""
    sources, targets = links_of(graph)
    chosen = np.random.default_rng(seed).random(graph.pages) < share
    chosen = np.flatnonzero(chosen & (graph.out_degrees > 0))
    ends = np.concatenate((targets, np.zeros(len(chosen), np.int64)))
    return Graph.from_links(graph.pages, np.concatenate((sources, chosen)), ends)


def with_weights(graph: Graph, seed: int) -> Graph:
    """The web, with link weights from 1 to 65,535, small ones as likely as large ones."""
    weights = np.exp2(np.random.default_rng(seed).uniform(0, 16, graph.links)).astype(np.int64)
    return Graph.from_links(graph.pages, *links_of(graph), np.clip(weights, 1, 65535))


def with_redirects(graph: Graph, redirects: int) -> Graph:
    """The web, where each of the first so many pages has one link, those of a pair to each other and so on."""
    sources, targets = links_of(graph)
    kept = sources >= redirects
    number = np.arange(redirects)
    ends = np.where(number % 3 == 2, redirects + number, number ^ 1) % graph.pages
    return Graph.from_links(
        graph.pages, np.concatenate((sources[kept], number)), np.concatenate((targets[kept], ends))
    )


# The limit, alone


@pytest.mark.parametrize(
    ("history", "order", "everywhere", "top"),
    [
        (All(), "greedy", 1.0, 0.4),
        (All(), "cycle", 2.2, 2.0),
        (All(), "random", 5.5, 4.5),
        (Interpolation(), "greedy", 2.5, 1.3),
        (Interpolation(), "cycle", 2.0, 2.6),
        (Interpolation(), "random", 5.5, 7.0),
        (Absorbing(), "greedy", 0.05, 0.02),
        (Absorbing(), "cycle", 0.2, 0.1),
    ],
)
def test_importance_tends_to_exact_pagerank(history: History, order: str, everywhere: float, top: float) -> None:
    web = power_law_web(2000, seed=1, dangling=0.05)
    ledger = Ledger(LedgerConfig(history=history))
    crawl = Crawl(ledger, web, order).run(20)
    ledger.audit()
    assert_within(crawl.errors(exact_ranks(web)), everywhere, top)


@pytest.mark.parametrize("order", ["cycle", "greedy", "random"])
def test_with_all_history_twice_the_turns_halve_the_error(order: str) -> None:
    web = power_law_web(1000, seed=2)
    exact = exact_ranks(web)
    ledger = Ledger(LedgerConfig(history=All()))
    crawl = Crawl(ledger, web, order)
    errors, turns = [], []
    for crawls in (8, 8, 16):
        errors.append(crawl.run(crawls).errors(exact).everywhere)
        turns.append(ledger.turns)
    products = np.array(errors) * turns
    # Measured: XX
    assert products.max() / products.min() < 1.6, products
    assert errors[2] < 0.4 * errors[0]


@dataclass(frozen=True)
class Case:
    """A web with something special, how a ledger is to be set up for it, and what exact ranks come of it."""

    web: Graph
    exact: Floats
    config: LedgerConfig = LedgerConfig()
    outcomes: npt.NDArray[np.uint8] | None = None
    categories: npt.NDArray[np.uint8] | None = None
    visited: npt.NDArray[np.bool_] | None = None


def weighted_links() -> Case:
    web = with_weights(power_law_web(1000, seed=3), seed=3)
    return Case(web, exact_ranks(web))


def half_damping() -> Case:
    web = power_law_web(1000, seed=4, dangling=0.1)
    return Case(web, exact_ranks(web, 0.5), LedgerConfig(damping=0.5))


def damping_095() -> Case:
    web = power_law_web(1000, seed=4, dangling=0.1)
    return Case(web, exact_ranks(web, 0.95), LedgerConfig(damping=0.95))


def dangling_and_gone_pages() -> Case:
    web = power_law_web(1000, seed=5, dangling=0.2)
    gone = np.random.default_rng(5).random(1000) < 0.2
    outcomes = np.where(gone, Outcome.GONE, Outcome.FETCHED).astype(np.uint8)
    return Case(web, exact_ranks(web.without_links(gone)), outcomes=outcomes)


def redirects_and_aliases() -> Case:
    web = with_redirects(power_law_web(1000, seed=6), 200)
    outcomes = np.full(1000, Outcome.FETCHED, np.uint8)
    outcomes[:100], outcomes[100:200] = Outcome.REDIRECTED, Outcome.ALIASED
    return Case(web, exact_ranks(web), outcomes=outcomes)


def classes_that_draw_more() -> Case:
    """Three categories and pages never read: the teleport goes by the weights of the classes they end in."""
    web = power_law_web(1000, seed=7)
    random = np.random.default_rng(7)
    categories = random.integers(0, 3, 1000).astype(np.uint8)
    visited = random.random(1000) < 0.8
    weights = (16, 16, 64, 8, 0, 100)
    drawn = np.array(weights)[2 * categories.astype(int) + visited]
    exact = exact_ranks(web.without_links(~visited), personalisation=drawn)
    config = LedgerConfig(class_weights=weights, link_bonus_per_1024=(0, 0, 0))
    return Case(web, exact, config, categories=categories, visited=visited)


@pytest.mark.parametrize(
    ("case", "all_bound", "interpolation_bound"),
    [
        (weighted_links, 1.3, 3.0),
        (half_damping, 0.5, 1.0),
        (damping_095, 2, 4),
        (dangling_and_gone_pages, 0.8, 1.6),
        (redirects_and_aliases, 1.2, 3),
        (classes_that_draw_more, 0.8, 2),
    ],
)
@pytest.mark.parametrize("history", [All(), Interpolation()])
def test_the_limit_knows(
    case: Callable[[], Case], all_bound: float, interpolation_bound: float, history: History
) -> None:
    of = case()
    ledger = Ledger(replace(of.config, history=history))
    outcomes = None if of.outcomes is None else lambda numbers: of.outcomes[numbers]
    crawl = Crawl(
        ledger, of.web, "greedy", outcomes=outcomes, visited=of.visited, categories=of.categories
    ).run(20)
    ledger.audit()
    bound = all_bound if history == All() else interpolation_bound
    assert_within(crawl.errors(of.exact), bound, bound)


def test_new_rules_lead_to_their_own_limit() -> None:
    web = power_law_web(1000, seed=8)
    ledger = Ledger()
    crawl = Crawl(ledger, web, "greedy").run(10)
    weights = (16, 16, 16, 64)
    assert weights  # replaced below
    ledger.apply(PolicyEntry("policies", Place(0, 0), Place(1, 0), damping=0.6))
    assert_within(crawl.run(12).errors(exact_ranks(web, 0.6)), 2.0, 1.5)


# Several shards


@pytest.fixture(scope="module")
def hub_web() -> Graph:
    web = with_hub(power_law_web(1600, seed=9, dangling=0.1), share=0.9, seed=9)
    assert exact_ranks(web)[0] >= 0.05
    return web


@pytest.mark.parametrize("shards", [1, 2, 4, 16])
@pytest.mark.parametrize(
    ("history", "order", "everywhere", "top"),
    [
        (All(), "greedy", 1.5, 0.7),
        (Interpolation(), "greedy", 4.0, 2.0),
        (Interpolation(), "cycle", 2.0, 2.7),
    ],
)
def test_shards_joined_by_faulty_queues_have_the_limit_of_one(
    hub_web: Graph, shards: int, history: History, order: str, everywhere: float, top: float
) -> None:
    config = LedgerConfig(history=history, cut_visits_per_1000_pages=50)
    books = Shards(config, shards, seed=shards, faults=Faults())
    crawl = Crawl(books, hub_web, order, seed=1)
    for hour in range(10):
        crawl.run(1)
        books.tick(3600 * hour)
        together = books.balance()
        assert together.drift == 0
        assert 0 <= books.travelling() <= together.sent - together.received
    books.drain(DAY)
    together = books.balance()
    assert together.drift == 0 and together.sent == together.received and books.travelling() == 0

    exact = exact_ranks(hub_web)
    assert_within(crawl.errors(exact), everywhere, top)
    direct = books.shares(crawl.ids)
    assert direct.sum() == pytest.approx(1, abs=1e-9)
    assert_within(Errors.of(direct, exact), everywhere, top)
    # The sums that shards know of each other are those of their last sweeps, a moment before the last transfers.
    assert books.importance(crawl.ids).sum() == pytest.approx(1, abs=2e-3)
    assert direct[0] == pytest.approx(exact[0], rel=0.03)
    if shards > 1:
        assert min(vars(books.happened).values()) > 0, books.happened


# Webs that grow


class GrowingCrawl:
    """A crawl that finds its pages by links only, from a few seeds, in a web that grows until `grown` crawls."""

    def __init__(self, ledger: Ledger, web: Graph, unreadable: float, grown: float, seed: int) -> None:
        self.ledger, self.ids = ledger, page_ids(web.pages, seed)
        self._web, self._grown = web, grown
        self._random = np.random.default_rng(seed)
        self._readable = self._random.random(web.pages) >= unreadable
        self._readable[:20] = True
        self._crawls = 0.0
        ledger.apply(introductions(self.ids[:20]))
        self._offset = 20

    def run(self, crawls: int, order: str) -> float:
        """Go on for so many visits a page of the grown web; the mean error over all pages known then."""
        batch = self._web.pages // 128
        for step in range(128 * crawls):
            if step % 16 == 0:
                web = self._web_now()
            waiting = self.ledger.waiting_cash(self.ids)
            choice = np.flatnonzero((waiting >= 0) & self._readable)
            order_now = order_named(order, len(choice), int(self._random.integers(1 << 32)), batch)
            numbers = choice[order_now.next(lambda waiting=waiting, choice=choice: waiting[choice])]
            self.ledger.apply(visits(web, self.ids, numbers, self._offset))
            self._offset += len(numbers)
            self._crawls += 1 / 128
        self.ledger.audit()
        return self._error()

    def _web_now(self) -> Graph:
        """The pages that exist, and the links between them."""
        exist = self._web.pages * (0.25 + 0.75 * min(1.0, self._crawls / self._grown))
        sources, targets = links_of(self._web)
        both = (sources < exist) & (targets < exist)
        return Graph.from_links(self._web.pages, sources[both], targets[both])

    def _error(self) -> float:
        estimates = self.ledger.estimate(self.ids)
        number = np.cumsum(estimates.known) - 1
        sources, targets = links_of(self._web_now().without_links(~(self._readable & estimates.known)))
        # A page that is read brings all pages it links to; a link that appeared after its last visit may not have.
        both = estimates.known[targets]
        exact = exact_ranks(
            Graph.from_links(int(number[-1]) + 1, number[sources[both]], number[targets[both]])
        )
        return Errors.of(estimates.importance[estimates.known], exact).everywhere


@pytest.mark.parametrize("newcomer_history", [True, False])
@pytest.mark.parametrize("unreadable", [0.0, 0.4])
@pytest.mark.parametrize(
    ("history", "order", "bounds"),
    [
        (Interpolation(), "greedy", {0.0: 3.0, 0.4: 1.0}),
        (Interpolation(), "random", {0.0: 9.0, 0.4: 4.0}),
        (Variable(8), "greedy", {0.0: 4.5, 0.4: 1.2}),
    ],
)
def test_the_error_shrinks_again_when_a_web_stops_growing(
    history: History, order: str, bounds: dict[float, float], unreadable: float, newcomer_history: bool
) -> None:
    ledger = Ledger(LedgerConfig(history=history, newcomer_history=newcomer_history))
    crawl = GrowingCrawl(ledger, power_law_web(1200, seed=10), unreadable, grown=5, seed=10)
    growing = crawl.run(5, order)
    later = crawl.run(5, order)
    at_last = crawl.run(10, order)
    # Measured: while growing XX
    assert growing > later > at_last
    assert at_last <= bounds[unreadable]
    assert ledger.pages >= 1000


# The real world


def real_crawl(
    order: str, never_read: float = 0.0, blocked: float = 0.0, unchanged: float = 0.0, seed: int = 11
) -> tuple[Errors, Errors, Ledger]:
    """A crawl with shares of such pages and answers: errors after 20 and 30 crawls, and the ledger."""
    web = power_law_web(3000, seed)
    place = np.random.default_rng(seed).permutation(web.pages)
    unread, barred = place < never_read * web.pages, place >= (1 - blocked) * web.pages
    answers = unchanged_answers(web.pages, unchanged, seed)

    def outcomes(numbers: Ints) -> npt.NDArray[np.uint8]:
        return np.where(barred[numbers], np.uint8(Outcome.BLOCKED), answers(numbers))

    ledger = Ledger(LedgerConfig(remember_links=unchanged > 0))
    crawl = Crawl(ledger, web, order, outcomes=outcomes, visited=~unread)
    exact = exact_ranks(web.without_links(unread | barred))
    after_20 = crawl.run(20).errors(exact)
    after_30 = crawl.run(10).errors(exact)
    ledger.audit()
    return after_20, after_30, ledger


@pytest.mark.parametrize("order", ["greedy", "mixed"])
@pytest.mark.parametrize(
    "troubles",
    [
        {"never_read": 0.6},
        {"blocked": 0.05},
        {"unchanged": 0.6},
        {"never_read": 0.6, "blocked": 0.05, "unchanged": 0.6},
    ],
    ids=["never read", "blocked", "unchanged", "all at once"],
)
def test_a_real_crawl_is_within_4_per_cent_of_pagerank_and_stays_so(
    troubles: dict[str, float], order: str
) -> None:
    after_20, after_30, _ = real_crawl(order, **troubles)
    assert_within(after_20, 4.0, 4.0)
    assert_within(after_30, after_20.everywhere + 0.15, 4.0)
