"""The limit of a ledger's importance is exact PageRank: in any order, over any number of shards, in a real crawl.

Errors are mean relative ones in per cent, over all pages and over the most important tenth. Beside each bound
is the measured value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from opicflow.pipelines.lab.web.crawl import announcements, visits
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import (
    Absorbing,
    All,
    ConfigRefused,
    History,
    Interpolation,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    PolicyEntry,
    Variable,
)
from opicflow.pipelines.ledger.pages.layout import CIRCULATED
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ints
from support.crawls import Crawl, Errors, assert_within, exact_ranks, order_named, unchanged_answers
from support.shards import Faults, Shards

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
    return Graph.from_links(graph.pages, np.concatenate((sources[kept], number)), np.concatenate((targets[kept], ends)))


# The limit, alone


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("history", "order", "everywhere", "top"),
    [
        (All(), "greedy", 0.75, 0.25),  # measured 0.46/0.16
        pytest.param(All(), "cycle", 2.5, 2.5, marks=pytest.mark.soak),  # 1.53/1.50
        pytest.param(All(), "random", 5.0, 4.5, marks=pytest.mark.soak),  # 3.29/2.67
        pytest.param(Interpolation(), "greedy", 2.5, 1.4, marks=pytest.mark.soak),  # 1.52/0.85
        (Interpolation(), "cycle", 2.2, 3.2),  # 1.41/2.05
        (Interpolation(), "random", 5.0, 7.0),  # 3.06/3.97
        (Absorbing(), "greedy", 0.02, 0.008),  # 0.010/0.004
        pytest.param(Absorbing(), "cycle", 0.1, 0.05, marks=pytest.mark.soak),  # 0.058/0.025
    ],
)
def test_importance_tends_to_exact_pagerank(history: History, order: str, everywhere: float, top: float) -> None:
    web = power_law_web(2000, seed=1, dangling=0.05)
    ledger = Ledger(LedgerConfig(history=history))
    crawl = Crawl(ledger, web, order).run(20)
    ledger.audit()
    assert_within(crawl.errors(exact_ranks(web)), everywhere, top)


@pytest.mark.slow_but_first
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
    # Measured: 66, 66, 66 (cycle); 23, 22, 22 (greedy); 68, 65, 73 (random).
    assert products.max() / products.min() < 1.4, products
    assert errors[2] < 0.4 * errors[0]


@dataclass(frozen=True)
class Case:
    """A web with something special, the configuration of a ledger for it, and its exact ranks."""

    web: Graph
    exact: Floats
    config: LedgerConfig = field(default_factory=LedgerConfig)
    outcomes: Bytes | None = None
    categories: Bytes | None = None
    visited: Bools | None = None


def weighted_links() -> Case:
    web = with_weights(power_law_web(1000, seed=3), seed=3)
    return Case(web, exact_ranks(web))


def half_damping() -> Case:
    web = power_law_web(1000, seed=4, dangling=0.1)
    return Case(web, exact_ranks(web, 0.5), LedgerConfig(damping=0.5))


def high_damping() -> Case:
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
    return Case(web, exact_ranks(web, personalisation=outcomes != Outcome.REDIRECTED), outcomes=outcomes)


def classes_that_draw_more() -> Case:
    """Three categories and pages never read: the teleport goes by the weights of the classes they end in."""
    web = power_law_web(1000, seed=7)
    random = np.random.default_rng(7)
    categories = random.integers(0, 3, 1000).astype(np.uint8)
    visited = random.random(1000) < 0.8
    weights = (16, 16, 64, 8, 4, 100)
    drawn = np.array(weights)[2 * categories.astype(int) + visited]
    exact = exact_ranks(web.without_links(~visited), personalisation=drawn)
    config = LedgerConfig(class_weights=weights, link_bonus_per_1024=(0, 0, 0))
    return Case(web, exact, config, categories=categories, visited=visited)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("case", "history", "everywhere", "top"),
    [
        (weighted_links, All(), 1.3, 0.6),  # measured 0.89/0.41
        pytest.param(weighted_links, Interpolation(), 6.0, 3.0, marks=pytest.mark.soak),  # 3.63/2.41
        pytest.param(half_damping, All(), 0.25, 0.2, marks=pytest.mark.soak),  # 0.14/0.12
        pytest.param(half_damping, Interpolation(), 0.9, 0.8, marks=pytest.mark.soak),  # 0.53/0.49
        (high_damping, All(), 0.8, 0.25),  # 0.49/0.15
        pytest.param(high_damping, Interpolation(), 3.0, 1.2, marks=pytest.mark.soak),  # 1.64/0.76
        pytest.param(dangling_and_gone_pages, All(), 0.4, 0.3, marks=pytest.mark.soak),  # 0.22/0.17
        (dangling_and_gone_pages, Interpolation(), 1.5, 1.2),  # 0.87/0.68
        (redirects_and_aliases, All(), 3.0, 0.8),  # 1.71/0.64
        pytest.param(redirects_and_aliases, Interpolation(), 4.5, 3.7, marks=pytest.mark.soak),  # 3.73/1.73
        pytest.param(classes_that_draw_more, All(), 7.0, 1.8, marks=pytest.mark.soak),  # 1.19/0.32
        (classes_that_draw_more, Interpolation(), 3.0, 1.2),  # 1.71/0.87
    ],
)
def test_the_limit_knows_what_is_special_about_a_web(
    case: Callable[[], Case], history: History, everywhere: float, top: float
) -> None:
    of = case()
    outcomes = None if of.outcomes is None else lambda numbers: of.outcomes[numbers]
    ledger = Ledger(replace(of.config, history=history))
    crawl = Crawl(ledger, of.web, "greedy", 0, outcomes, of.visited, of.categories).run(20)
    ledger.audit()
    assert_within(crawl.errors(of.exact), everywhere, top)


@pytest.mark.slow
def test_new_rules_lead_to_their_own_limit() -> None:
    web = power_law_web(1000, seed=8)
    ledger = Ledger(LedgerConfig(class_weights=(16, 16, 16, 16), link_bonus_per_1024=(0, 0)))
    categories = np.arange(1000, dtype=np.uint8) % 2
    crawl = Crawl(ledger, web, "greedy", categories=categories).run(10)
    rules = PolicyEntry("policies", LogPosition(0, 0), LogPosition(1, 0), damping=0.6, class_weights=(16, 16, 48, 48))
    ledger.apply(rules)
    exact = exact_ranks(web, 0.6, personalisation=1 + 2 * categories)
    assert_within(crawl.run(12).errors(exact), 2.6, 2.1)  # measured 1.64/1.42


# Several shards


@pytest.fixture(scope="module")
def hub_web() -> Graph:
    web = with_hub(power_law_web(1000, seed=9, dangling=0.1), share=0.9, seed=9)
    assert exact_ranks(web)[0] >= 0.05
    return web


# Measured with 1, 2 and 4 shards:
LIMITS = {
    "all-greedy": (All(), "greedy", 1.7, 0.7),  # 1.34/0.50, 1.43/0.61, 1.38/0.49
    "interpolation-greedy": (Interpolation(), "greedy", 5.5, 2.0),  # 1.80/1.01, 1.90/1.10, 2.12/1.19
    "interpolation-cycle": (Interpolation(), "cycle", 2.1, 2.4),  # 1.39/1.62, 1.42/1.68, 1.43/1.60
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "order", "everywhere", "top", "shards"),
    [
        pytest.param(*limit, shards, id=f"{name}-{shards}", marks=[pytest.mark.soak] * (shards != 4))
        for name, limit in LIMITS.items()
        for shards in (1, 2, 4, 16)
    ],
)
def test_shards_joined_by_faulty_queues_have_the_limit_of_one(
    hub_web: Graph, shards: int, history: History, order: str, everywhere: float, top: float
) -> None:
    config = LedgerConfig(history=history, cut_visits_per_1000_pages=50)
    books = Shards(config, shards, seed=shards, faults=Faults())
    crawl = Crawl(books, hub_web, order, seed=1)
    for hour in range(8):
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
    # The sums that shards know of each other are those of their last sweeps: the second ones are after all transfers.
    books.drain(2 * DAY)
    assert books.importance(crawl.ids).sum() == pytest.approx(1, abs=1e-6)
    assert direct[0] == pytest.approx(exact[0], rel=0.03)
    if shards > 1:
        assert min(vars(books.happened).values()) > 0, books.happened


@pytest.mark.parametrize("history", [All(), Interpolation()], ids=lambda history: type(history).__name__)
def test_shards_without_pages_change_no_importance(history: History) -> None:
    web = power_law_web(100, seed=9)
    books = Shards(LedgerConfig(history=history, cut_visits_per_1000_pages=50), 8, seed=1)
    crawl = Crawl(books, web, "cycle", seed=1)
    for hour in range(8):
        crawl.run(1)
        books.tick(3600 * hour)
    books.drain(DAY)
    books.drain(2 * DAY)
    assert min(ledger.pages for ledger in books.ledgers) == 0
    assert books.importance(crawl.ids).sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.soak
def test_shards_of_a_larger_web_have_the_limit_of_one_in_any_schedule(seed: int) -> None:
    web = with_hub(power_law_web(4000, seed, dangling=0.1), share=0.9, seed=seed)
    exact = exact_ranks(web)
    errors = []
    for shards in (1, 5, 16):
        config = LedgerConfig(history=All(), cut_visits_per_1000_pages=20)
        books = Shards(config, shards, seed, Faults(wait=400, split=500, again=150, early=50))
        crawl = Crawl(books, web, "mixed", seed)
        for hour in range(12):
            crawl.run(1)
            books.tick(3600 * hour)
        books.drain(DAY)
        together = books.balance()
        assert together.drift == 0 and together.sent == together.received
        errors.append(crawl.errors(exact).everywhere)
    # Measured for seeds 0 to 2: 0.80, 0.86, 0.91; 0.86, 0.99, 1.06; 0.95, 1.05, 1.11.
    assert max(errors) <= 1.4 * errors[0] + 0.1, errors


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
        ledger.apply(announcements(self.ids[:20]))
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
        exact = exact_ranks(Graph.from_links(int(number[-1]) + 1, number[sources[both]], number[targets[both]]))
        return Errors.of(estimates.importance[estimates.known], exact).everywhere


@pytest.mark.slow_but_first
@pytest.mark.parametrize("newcomer_history", [True, pytest.param(False, marks=pytest.mark.soak)])
@pytest.mark.parametrize("unreadable", [0.0, 0.4])
@pytest.mark.parametrize(
    ("history", "order", "bounds"),
    [
        # Measured while growing, 5 crawls later and 10 more later, without unreadable pages and with them:
        (Interpolation(), "greedy", {0.0: 2.8, 0.4: 1.0}),  # 26, 5.5, 1.7; 9.2, 1.6, 0.6
        pytest.param(
            Interpolation(), "random", {0.0: 7.0, 0.4: 2.7}, marks=pytest.mark.soak
        ),  # 44, 17, 4.4; 13, 4.1, 1.7
        (Variable(8), "greedy", {0.0: 4.2, 0.4: 1.0}),  # 20, 7.6, 2.6; 8.2, 1.7, 0.6
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
    assert growing > 1.5 * later > 2.5 * at_last
    assert at_last <= bounds[unreadable]
    assert ledger.pages >= 1000


# The real world


def real_crawl(
    order: str, never_read: float = 0.0, blocked: float = 0.0, unchanged: float = 0.0, seed: int = 11
) -> tuple[Errors, Errors, Ledger]:
    """A crawl with shares of such pages and answers: errors after 20 and 30 crawls, and the ledger."""
    web = power_law_web(3000, seed)
    position = np.random.default_rng(seed).permutation(web.pages)
    unread, barred = position < never_read * web.pages, position >= (1 - blocked) * web.pages
    answers = unchanged_answers(web.pages, unchanged, seed)

    def outcomes(numbers: Ints) -> Bytes:
        return np.where(barred[numbers], np.uint8(Outcome.BLOCKED), answers(numbers))

    ledger = Ledger(LedgerConfig(remember_links=unchanged > 0))
    crawl = Crawl(ledger, web, order, outcomes=outcomes, visited=~unread)
    exact = exact_ranks(web.without_links(unread | barred))
    after_20 = crawl.run(20).errors(exact)
    after_30 = crawl.run(10).errors(exact)
    ledger.audit()
    return after_20, after_30, ledger


@pytest.mark.slow
@pytest.mark.parametrize("order", ["greedy", pytest.param("mixed", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "troubles",
    [
        pytest.param({"never_read": 0.6}, marks=pytest.mark.soak),
        pytest.param({"blocked": 0.05}, marks=pytest.mark.soak),
        pytest.param({"unchanged": 0.6}, marks=pytest.mark.soak),
        {"never_read": 0.6, "blocked": 0.05, "unchanged": 0.6},
    ],
    ids=["never read", "blocked", "unchanged", "all at once"],
)
def test_a_real_crawl_is_within_4_per_cent_of_pagerank_and_stays_so(troubles: dict[str, float], order: str) -> None:
    after_20, after_30, _ = real_crawl(order, **troubles)
    # Measured, greedy and mixed: never read 0.28, 0.37; blocked 1.71, 2.53; unchanged 2.48, 2.71; all 0.24, 0.32.
    assert after_20.everywhere <= 4.0, after_20
    # By then the error no longer falls, it is how far single measures scatter. Which pages had been visited just
    # before it was read makes for some hundredths of a per cent: measured, from -0.14 (blocked, mixed) to +0.10
    # (unchanged, greedy).
    assert after_30.everywhere <= after_20.everywhere + 0.2, (after_20, after_30)


def errors_in_steps(
    history: History, order: str, before_step: Callable[[Ledger], None], never_read: float = 0.0
) -> Floats:
    """The errors over all pages after 1, 2, … 10 crawls, in steps of which each is a small part of a round."""
    web = power_law_web(1000, seed=14)
    unread = np.random.default_rng(14).random(web.pages) < never_read
    ledger, exact, found = Ledger(LedgerConfig(history=history)), exact_ranks(web.without_links(unread)), []
    crawl = Crawl(ledger, web, order, visited=~unread)
    for step in range(10 * 64):
        before_step(ledger)
        crawl.run(1 / 64)
        if step % 64 == 63:
            found.append(crawl.errors(exact).everywhere)
    ledger.audit()
    return np.array(found)


def as_it_is(ledger: Ledger) -> None:
    """Change nothing."""


def spare_pages_never_tried(ledger: Ledger) -> None:
    """The round passes pages that were never tried by, as if each had just been born."""
    pages = ledger.parts().table.pages
    pages["flags"][(pages["flags"] != 0) & (pages["visits"] == 0)] |= CIRCULATED


def take_from_all_unread(ledger: Ledger) -> None:
    """The crawl seems to find far more pages than it reads, so that the round takes the cash of all it never tried."""
    ledger.parts().book.counts["first_reads"] = -(1 << 40)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    "history", [All(), *(pytest.param(one, marks=pytest.mark.soak) for one in (Absorbing(), Variable(8)))]
)
@pytest.mark.parametrize("order", ["greedy", "random", "mixed"])
def test_the_round_spares_pages_that_the_crawl_is_on_its_way_to(history: History, order: str) -> None:
    with_round = errors_in_steps(history, order, as_it_is)
    without = errors_in_steps(history, order, spare_pages_never_tried)
    assert (with_round <= 1.1 * without).all(), (with_round, without)  # measured: at most 1.01 times
    taken = errors_in_steps(history, order, take_from_all_unread)
    assert (taken > 1.1 * without).any()  # so that the test can fail


@pytest.mark.slow_but_first
@pytest.mark.parametrize("history", [All(), pytest.param(Variable(8), marks=pytest.mark.soak)])
@pytest.mark.parametrize("order", ["greedy", "random", "mixed"])
def test_the_round_does_not_wait_for_pages_that_are_never_read(history: History, order: str) -> None:
    found = errors_in_steps(history, order, as_it_is, never_read=0.6)
    at_once = errors_in_steps(history, order, take_from_all_unread, never_read=0.6)
    # Measured from 5 crawls on: 1.04 times for random, whose last pages come late, 1.00 for the others.
    assert (found[4:] <= 1.1 * at_once[4:]).all(), (found, at_once)
    frozen = errors_in_steps(history, order, spare_pages_never_tried, never_read=0.6)
    assert frozen[-1] > 10 * found[-1]


def failing_for_ever(remember_links: bool) -> tuple[Crawl, Ledger, Bools]:
    """Of a web where all pages were read, a tenth fail for ever after."""
    web = power_law_web(1000, seed=12)
    failing = np.random.default_rng(12).random(1000) < 0.1
    ledger = Ledger(LedgerConfig(remember_links=remember_links))
    broken = False

    def outcomes(numbers: Ints) -> Bytes:
        return np.where(failing[numbers] & broken, Outcome.FAILED, Outcome.FETCHED).astype(np.uint8)

    crawl = Crawl(ledger, web, "cycle", outcomes=outcomes).run(4)
    assert set(ledger.estimate(crawl.ids).last_outcome) == {Outcome.FETCHED}
    broken = True
    return crawl, ledger, failing


def test_the_cash_of_pages_that_fail_for_ever_does_not_stay_with_them() -> None:
    crawl, ledger, failing = failing_for_ever(remember_links=False)
    crawl.run(16)
    exact = exact_ranks(crawl.graph.without_links(failing))
    estimates = ledger.estimate(crawl.ids)
    assert set(estimates.last_outcome[failing]) == {Outcome.FAILED}
    # They hold about as large a part of all cash on pages (measured: 12 %) as they earn (9 %).
    assert estimates.cash[failing].sum() < 1.6 * exact[failing].sum() * estimates.cash.sum()
    assert_within(crawl.errors(exact), 2.2, 2.6)  # measured 1.36/1.73


def test_pages_that_fail_for_ever_go_on_paying_along_remembered_links() -> None:
    crawl, ledger, failing = failing_for_ever(remember_links=True)
    crawl.run(16)
    exact = exact_ranks(crawl.graph)
    estimates = ledger.estimate(crawl.ids)
    assert set(estimates.last_outcome[failing]) == {Outcome.FAILED}
    assert estimates.cash[failing].sum() < 1.6 * exact[failing].sum() * estimates.cash.sum()
    assert_within(crawl.errors(exact), 2.4, 2.8)  # measured 1.52/1.85


# Settling


def breadth_first(graph: Graph, seeds: int) -> Ints:
    """Every page that can be reached from the first so many, in the order in which a crawler would find it."""
    found, queue = np.zeros(graph.pages, bool), list(range(seeds))
    found[:seeds] = True
    for page in queue:
        for target in graph.targets[graph.starts[page] : graph.starts[page + 1]]:
            if not found[target]:
                found[target] = True
                queue.append(int(target))
    return np.array(queue)


@pytest.mark.parametrize("order", ["breadth-first", "cycle"])
@pytest.mark.parametrize("history", [Interpolation(), All(), Absorbing()])
def test_settling_a_log_that_read_every_page_once_gives_exact_pagerank(history: History, order: str) -> None:
    web = with_weights(power_law_web(2000, seed=13, dangling=0.1), seed=13)
    ids = page_ids(web.pages, seed=13)
    numbers = breadth_first(web, seeds=20)
    if order == "cycle":
        numbers = np.random.default_rng(13).permutation(web.pages)
    assert len(numbers) == web.pages
    ledger = Ledger(LedgerConfig(history=history, remember_links=True))
    for first in range(0, web.pages, 50):
        ledger.apply(visits(web, ids, numbers[first : first + 50], first))
    before = ledger.snapshot()

    exact = exact_ranks(web)
    order_of_ids = np.argsort(ids)
    for tolerance in (1e-2, 1e-4, 1e-5):  # the least: 5.7e-6, which is what roundings may add up to
        settled = ledger.settle(tolerance)
        found = order_of_ids[np.searchsorted(ids, settled.pages, sorter=order_of_ids)]
        assert np.array_equal(ids[found], settled.pages) and len(found) == web.pages
        distance = np.abs(settled.importance - exact[found]).sum()
        assert distance <= settled.certificate <= tolerance
        assert settled.importance.sum() == pytest.approx(1)
    assert ledger.snapshot() == before


def test_settling_knows_classes_and_pages_that_were_never_read() -> None:
    web = power_law_web(1000, seed=14)
    read = np.random.default_rng(14).random(web.pages) < 0.7
    categories = np.arange(web.pages, dtype=np.uint8) % 2
    weights = (8, 16, 4, 40)
    ledger = Ledger(LedgerConfig(class_weights=weights, link_bonus_per_1024=(0, 0), remember_links=True, damping=0.7))
    crawl = Crawl(ledger, web, "cycle", categories=categories, visited=read).run(0.7)
    read_once = ledger.estimate(crawl.ids).visits > 0
    drawn = np.array(weights)[2 * categories.astype(int) + read_once]
    exact = exact_ranks(web.without_links(~read_once), 0.7, personalisation=drawn)
    settled = ledger.settle(1e-5)
    assert np.array_equal(settled.pages, crawl.ids)
    assert np.abs(settled.importance - exact).sum() <= settled.certificate <= 1e-5


def test_settling_needs_remembered_links_one_shard_and_a_small_edge() -> None:
    with pytest.raises(ConfigRefused, match="settle needs remembered links and one shard"):
        Ledger().settle()
    remembering = LedgerConfig(remember_links=True)
    with pytest.raises(ConfigRefused, match="settle needs remembered links and one shard"):
        Ledger(remembering, shard=0, shards=2).settle()
    with pytest.raises(ConfigRefused, match="settle needs a damping below 1"):
        Ledger(replace(remembering, damping=1.0)).settle()
