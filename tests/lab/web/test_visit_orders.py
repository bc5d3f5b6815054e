"""Visit orders, webs that change, failures, and crawls that apply visits to ledgers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opicflow.pipelines.lab.web.changes import change_in_degrees, induced_web, replace_links
from opicflow.pipelines.lab.web.crawl import START_SECOND, WebCrawl
from opicflow.pipelines.lab.web.failures import VisitFailures, share_of
from opicflow.pipelines.lab.web.visit_orders import (
    AsFoundOrder,
    CycleOrder,
    ExactGreedyOrder,
    GreedyOrder,
    LoggedOrder,
    VisitOrder,
    XylemeOrder,
)
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import Interpolation, Ledger, LedgerConfig, Outcome, Variable
from opicflow.pipelines.ranks.graph.csr import ORDINARY_LINK_WEIGHT, Graph

SMALL = settings(deadline=None, max_examples=40)
NO_CASH = np.zeros(0, np.int64)


def crawled(web: Graph, order: VisitOrder, visits: int, ledger: Ledger | None = None) -> np.ndarray:
    """The pages that an order visits, all announced first."""
    ids = page_ids(web.pages, 1)
    crawl = WebCrawl([ledger or Ledger()], ids, order)
    crawl.announce(ids)
    return crawl.run(web, visits)


# Orders


@pytest.mark.parametrize("dangling", [0.0, 0.3])
def test_exact_greedy_makes_the_visits_that_asking_before_each_one_makes(dangling: float) -> None:
    web = power_law_web(300, 1, mean_links=5, dangling=dangling)
    visits = 4 * web.pages  # the round has taken cash from pages never read by then
    one_by_one = crawled(web, GreedyOrder(1), visits)
    foreseen = crawled(web, ExactGreedyOrder(web), visits)
    assert foreseen.tolist() == one_by_one.tolist()
    assert not np.array_equal(crawled(web, GreedyOrder(30), visits), one_by_one)  # so that the test can fail


@SMALL
@given(st.integers(2, 30), st.integers(0, 2**32), st.integers(1, 40), st.floats(0.0, 1.0))
def test_exact_greedy_takes_the_richest_each_time(pages: int, seed: int, batch: int, damping: float) -> None:
    random = np.random.default_rng(seed)
    links = random.integers(0, pages, (2, 3 * pages))
    web = Graph.from_links(pages, links[0], links[1], random.integers(1, 3000, 3 * pages))
    cash = random.integers(0, 1000, pages) << 20
    expected, holds = [], cash.astype(object)
    for _ in range(batch):
        page = int(np.argmax(holds))
        expected.append(page)
        amount, holds[page] = holds[page], 0
        to = slice(web.starts[page], web.starts[page + 1])
        weights = web.weights[to].astype(object)
        damped = int(amount) // 2**20 * round(damping * 2**20)  # amounts are whole multiples of 2^20 at first only
        damped += int(amount) % 2**20 * round(damping * 2**20) // 2**20
        if total := int(weights.sum()):
            for target, weight in zip(web.targets[to].tolist(), weights, strict=True):
                holds[target] += damped // total * weight + damped % total * weight // total
    assert ExactGreedyOrder(web, damping, batch).next(lambda: cash).tolist() == expected


def test_exact_greedy_continues_in_a_changed_web() -> None:
    one, other = Graph.from_links(3, [0], [1]), Graph.from_links(3, [0], [2])
    order = ExactGreedyOrder(one, batch=2)
    cash = np.array([100 << 20, 50 << 20, 50 << 20])
    assert order.next(lambda: cash).tolist() == [0, 1]
    order.move_to(other)
    assert order.next(lambda: cash).tolist() == [0, 2]
    with pytest.raises(ValueError, match="waiting cash of 2 pages, where the web has 3"):
        order.next(lambda: cash[:2])


def test_xyleme_reads_a_page_twice_as_often_as_one_half_as_important() -> None:
    importance = np.arange(1.0, 101.0) / 5050
    order = XylemeOrder(100, lambda: importance, 1, discovery=1.0)
    waiting = np.ones(100)
    visits = np.bincount(np.concatenate([order.next(lambda: waiting) for _ in range(20_000)]))
    assert visits / 20_000 == pytest.approx(importance, rel=0.05, abs=2e-4)


def test_xyleme_keeps_a_share_for_pages_never_read_while_there_are_such() -> None:
    order = XylemeOrder(100, lambda: np.full(100, 0.01), 10, discovery=0.3)
    waiting = np.arange(100)
    first = order.next(lambda: waiting)
    assert first.tolist() == list(range(99, 89, -1))  # nothing is read yet: all go to the unread, the richest first
    second = order.next(lambda: waiting)
    assert second[:3].tolist() == [89, 88, 87] and set(second[3:]) <= set(first)
    for _ in range(100):
        order.next(lambda: waiting)
    assert set(order.next(lambda: waiting)) <= set(range(1, 100))  # page 0 has no cash: it is not known


def test_pages_as_found_come_in_that_order_and_again_while_their_number_grows() -> None:
    order = AsFoundOrder(2, 3)
    assert order.next(lambda: NO_CASH).tolist() == [0, 1]
    order.pages = 4
    assert order.next(lambda: NO_CASH).tolist() == [2, 3]
    assert order.next(lambda: NO_CASH).tolist() == [0, 1, 2]


def test_a_log_is_replayed_as_it_is_and_ends() -> None:
    web, log = power_law_web(50, 1, mean_links=3), np.array([7, 7, 3, 49, 0])
    assert crawled(web, LoggedOrder(log, 2), 100).tolist() == log.tolist()


# Webs that change


def test_in_degrees_are_halved_and_doubled_and_others_stay() -> None:
    web = power_law_web(5000, 3)
    order = np.random.default_rng(1).permutation(5000)
    halved, doubled = order[:300], order[300:500]
    after = change_in_degrees(web, doubled, halved, np.random.default_rng(2))
    others = order[500:]
    assert np.array_equal(after.in_degrees[others], web.in_degrees[others])
    assert np.array_equal(after.in_degrees[halved], -(-web.in_degrees[halved] // 2))
    few = doubled[web.in_degrees[doubled] < 50]
    assert after.in_degrees[few] == pytest.approx(2 * web.in_degrees[few], abs=3)
    assert after.in_degrees[few].sum() == pytest.approx(2 * web.in_degrees[few].sum(), rel=0.01)
    assert set(after.weights.tolist()) == {ORDINARY_LINK_WEIGHT}


def test_a_share_of_the_links_is_replaced_and_the_law_of_in_degrees_stays() -> None:
    web = power_law_web(5000, 3)
    after = replace_links(web, 0.2, np.random.default_rng(1))

    def pairs(graph: Graph) -> set[int]:
        return set((np.repeat(np.arange(5000), graph.out_degrees) * 5000 + graph.targets).tolist())

    kept = len(pairs(web) & pairs(after)) / web.links
    assert 0.79 < kept < 0.83  # a new link may be one that was there
    assert after.links > 0.97 * web.links
    best = np.argsort(-web.in_degrees)[:100]
    assert after.in_degrees[best].sum() == pytest.approx(web.in_degrees[best].sum(), rel=0.05)


def test_pages_that_are_not_there_have_no_links_and_get_none() -> None:
    web = power_law_web(1000, 3)
    there = np.random.default_rng(1).random(1000) < 0.5
    part = induced_web(web, there)
    assert not part.in_degrees[~there].any() and not part.out_degrees[~there].any()
    assert induced_web(web, np.ones(1000, bool)).links == web.links


def test_changes_are_the_same_for_the_same_seed() -> None:
    web, pages = power_law_web(1000, 3), np.arange(100)
    twice = [change_in_degrees(web, pages[:50], pages[50:], np.random.default_rng(5)) for _ in range(2)]
    assert np.array_equal(twice[0].targets, twice[1].targets)


# Trouble


def test_shares_of_failures_are_the_given_ones() -> None:
    trouble = VisitFailures(1000, 1, blocked=0.05, failing=0.2)
    outcomes = trouble.outcomes(np.tile(np.arange(1000), 50))
    blocked = outcomes.reshape(50, 1000) == Outcome.BLOCKED
    assert trouble.blocked.sum() == 50 and np.array_equal(blocked, np.tile(trouble.blocked, (50, 1)))
    failed = (outcomes == Outcome.FAILED).sum() / (50 * 950)
    assert failed == pytest.approx(0.2, abs=0.01)
    assert share_of(10, 0.25, np.random.default_rng(1)).sum() == 2
    with pytest.raises(ValueError, match=r"failing must be a share from 0 to 1, not 1\.5"):
        VisitFailures(10, 1, failing=1.5)


# Crawls


def test_ledgers_that_share_a_crawl_receive_the_same_as_each_alone() -> None:
    web, ids = power_law_web(400, 2), page_ids(400, 1)
    policies = (Interpolation(), Variable(4))
    together = [Ledger(LedgerConfig(history=one)) for one in policies]
    crawl = WebCrawl(together, ids, ExactGreedyOrder(web))
    crawl.announce(ids)
    visited = crawl.run(web, 2000)
    for one, ledger in zip(policies, together, strict=True):
        alone = Ledger(LedgerConfig(history=one))
        assert np.array_equal(crawled(web, ExactGreedyOrder(web), 2000, alone), visited)
        assert np.array_equal(alone.estimate(ids).importance, ledger.estimate(ids).importance)
    assert together[1].measures_per_page() > 2 > together[0].measures_per_page() == 1


def test_visits_have_times_and_hours_tick_where_a_crawl_has_a_pace() -> None:
    web, ids, ledger = power_law_web(100, 2), page_ids(100, 1), Ledger()
    crawl = WebCrawl([ledger], ids, CycleOrder(100, 1, 10), per_day=100)
    crawl.announce(ids)
    crawl.run(web, 250)
    last = ledger.estimate(ids).last_visit_ms
    assert last.max() == START_SECOND * 1000 + 249 * 864_000
    assert ledger.tick_second == last.max() // 3_600_000 * 3600
