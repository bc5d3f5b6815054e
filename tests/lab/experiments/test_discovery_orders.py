"""Orders of discovery: the payments of each, and the rule that was tried first."""

from __future__ import annotations

import numpy as np
import pytest

from opicflow.pipelines.lab.experiments.discovery.crawled_webs import CrawledWeb, crawled_web
from opicflow.pipelines.lab.experiments.discovery.crawls import discovery
from opicflow.pipelines.lab.experiments.discovery.followed_orders import LEARNT, RECOMPUTED, discovery_by_ledger
from opicflow.pipelines.lab.experiments.discovery.reading_orders import (
    OMNISCIENT,
    ORDERS,
    Cash,
    DiscoveryOrder,
    FractionalPageRank,
    NutchOpic,
    means_beside,
)
from opicflow.pipelines.lab.web.directories import DirectoryWeb
from opicflow.pipelines.lab.web.webs import page_ids
from opicflow.pipelines.ranks.graph.csr import Graph


def small_web() -> CrawledWeb:
    """Page 0 links to 1, 2 and 3, page 1 to 0 and 3; page 3 is on another host."""
    host = np.array([0, 0, 0, 1], np.int32)
    graph = Graph.from_links(4, [0, 0, 0, 1, 1], [1, 2, 3, 0, 3])
    none = np.zeros(4, np.bool_)
    web = DirectoryWeb(graph, [b""] * 4, host, host, host, none, none)
    return CrawledWeb(web, np.full(4, 0.25), np.array([0]))


@pytest.fixture(params=[name for name in ORDERS])
def order(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_nutch_divides_a_score_among_links_and_keeps_it() -> None:
    made = NutchOpic(small_web(), page_ids(4, 1))
    made.read(1, np.array([0]))
    made.read(1, np.array([1]))
    third = 1 / 3
    assert made.amounts == pytest.approx([1 + third / 2, third, third, third + third / 2])


def test_nutch_adds_what_links_bring_at_the_end_of_a_round() -> None:
    made = NutchOpic(small_web(), page_ids(4, 1))
    made.read(1, np.array([0, 1]))  # page 1 has no score yet when the round begins
    third = 1 / 3
    assert made.amounts == pytest.approx([1, third, third, third])


@pytest.mark.parametrize("web", ["hosted", "portal", "archive with traps"])
def test_no_order_has_read_more_than_the_omniscient_one_at_any_mark(web: str) -> None:
    best = discovery(1_000, 3, web, OMNISCIENT)
    for order in ORDERS:
        for row, other in zip(best, discovery(1_000, 3, web, order), strict=True):
            assert all(float(row[name]) >= float(other[name]) for name in ("read", "best", "top")), (order, row["mark"])


def test_cash_is_conserved_and_the_virtual_page_pays_all_known_pages() -> None:
    made = Cash(small_web(), page_ids(4, 1))
    made.read(1, np.array([0]))
    assert made.amounts == pytest.approx(np.array([0, 1, 1, 1]) + 0.85 * np.array([0, 1, 1, 1]) / 3 + 0.15 / 4)
    made.read(1, np.array([1, 2]))
    assert made.amounts.sum() == pytest.approx(4.0)


def test_fractional_pagerank_pays_links_to_other_hosts_twice() -> None:
    made = FractionalPageRank(small_web(), page_ids(4, 1))
    made.read(1, np.array([0]))
    paid = 0.85 * 0.15
    assert made.amounts[1:] == pytest.approx(0.15 + paid * np.array([0.25, 0.25, 0.5]))


def test_means_beside_a_row_leave_it_out() -> None:
    assert means_beside(np.array([1.0, 2.0, 6.0, 3.0]), 1) == pytest.approx([2.0, 3.5, 2.5, 6.0])
    assert means_beside(np.array([5.0]), 3).tolist() == [5.0]


def test_every_order_reads_pages_once_and_only_what_it_has_found(order: str) -> None:
    crawled = crawled_web("archive", 600, 1)
    made: DiscoveryOrder = ORDERS[order](crawled, page_ids(600, 1))
    for _ in range(60):
        pages = made.order(1, 6)
        assert len(set(pages.tolist())) == len(pages) <= 6
        assert made.seen.is_known[pages].all() and not made.seen.is_read[pages].any()
        made.read(1, pages)
    assert made.seen.is_read.sum() > 300


def test_every_order_reads_all_seeds_first_and_more_with_every_mark(order: str) -> None:
    rows = discovery(1_000, 1, "shop", order)
    read = [float(row["read"]) for row in rows]
    assert read == sorted(read) and read[-1] > 40
    assert all(float(row["hostile"]) == 0 for row in rows)


def test_learnt_is_ahead_of_recomputed_importance_on_a_web_of_directories() -> None:
    learnt, recomputed = (
        {row["mark"]: row for row in discovery_by_ledger(4_000, 5, "shop", order)} for order in (LEARNT, RECOMPUTED)
    )
    assert float(learnt[40]["read"]) > float(recomputed[40]["read"]) + 2
