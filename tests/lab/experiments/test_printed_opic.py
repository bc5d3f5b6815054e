"""Adaptive OPIC as printed, against a program of its own for each page, written from paper 002 alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opicflow.pipelines.lab.experiments.importance.printed_opic import PrintedOpic
from opicflow.pipelines.lab.experiments.measures import exact_importance
from opicflow.pipelines.lab.web.crawl import AnyLedger, WebCrawl
from opicflow.pipelines.lab.web.visit_orders import CycleOrder, ExactGreedyOrder, VisitOrder
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ranks.graph.csr import Graph

ORDERS: dict[str, Callable[[Graph], VisitOrder]] = {
    "greedy": ExactGreedyOrder,
    "cycle": lambda web: CycleOrder(web.pages, 1, 17),
}


class Printed:
    """The paper's algorithm, page by page: `H`, `C` and `G` as there, and the measures (C, G) of each page."""

    def __init__(self, web: Graph, small_edge: float) -> None:
        self.web, self.small_edge, self.n = web, small_edge, web.pages
        self.C = [1 / self.n] * self.n
        self.H = [0.0] * self.n
        self.G = self.virtual = 0.0
        self.measures: list[list[tuple[float, float]]] = [[] for _ in range(self.n)]

    def visit(self, i: int) -> None:
        cash, self.C[i] = self.C[i], 0.0
        self.H[i] += cash
        self.G += cash
        self.measures[i].append((cash, self.G))
        links = range(self.web.starts[i], self.web.starts[i + 1])
        out = sum(int(self.web.weights[link]) for link in links)
        for link in links:
            self.C[self.web.targets[link]] += cash * (1 - self.small_edge) * int(self.web.weights[link]) / out
        self.virtual += cash * self.small_edge if out else cash

    def pay_virtual(self) -> None:
        self.C = [cash + self.virtual / self.n for cash in self.C]
        self.virtual = 0.0

    def all(self, i: int) -> float:
        return (self.H[i] + self.C[i]) / (self.G + 1)

    def fixed(self, i: int, T: float) -> float:
        return sum(cash for cash, G in self.measures[i] if G > self.G - T) / T

    def variable(self, i: int, k: int) -> float:
        begin = self.measures[i][-k - 1][1] if len(self.measures[i]) > k else 0.0
        return (sum(cash for cash, _ in self.measures[i][-k:]) + self.C[i]) / (self.G - begin)

    def improved_fixed(self, i: int, T: float, least: int) -> float:
        inside = [G for _, G in self.measures[i] if G > self.G - T]
        return self.fixed(i, T) if len(inside) >= least else self.variable(i, least)

    def interpolation(self, i: int, T: float) -> float:
        H = G_i = 0.0
        for cash, G in [*self.measures[i], (self.C[i], self.G)]:
            H = H * (T - (G - G_i)) / T + cash if G - G_i < T else cash * T / (G - G_i)
            G_i = G
        return H / T


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dangling", [0.0, 0.3])
def test_every_estimate_is_that_of_the_paper(order: str, dangling: float) -> None:
    web, ids = power_law_web(250, 3, mean_links=6, dangling=dangling), page_ids(250, 3)
    fast, slow = PrintedOpic(ids, 0.85), Printed(web, 0.15)
    crawl = WebCrawl([fast], ids, ORDERS[order](web))
    crawl.announce(ids)
    done, near = 0, {"rtol": 1e-9, "atol": 1e-15}
    for visits in (1, 3, 120, 251, 1000, 2400):
        for page in crawl.run(web, visits).tolist():
            slow.visit(page)
            done += 1
            if done % (web.pages // 100) == 0:
                slow.pay_virtual()
        assert fast.clock == pytest.approx(slow.G, rel=1e-9)
        np.testing.assert_allclose(fast.cash, slow.C, **near)
        pages = range(web.pages)
        np.testing.assert_allclose(fast.all_history(), [slow.all(i) for i in pages], **near)
        for k in (1, 4, 16):
            np.testing.assert_allclose(fast.variable(k), [slow.variable(i, k) for i in pages], **near)
        for T in (0.5, 4.0, 30.0):
            np.testing.assert_allclose(fast.fixed(T), [slow.fixed(i, T) for i in pages], **near)
            np.testing.assert_allclose(fast.fixed(T, 3), [slow.improved_fixed(i, T, 3) for i in pages], **near)
            np.testing.assert_allclose(fast.interpolation(T), [slow.interpolation(i, T) for i in pages], **near)
            inside = [sum(G > slow.G - T for _, G in measures) for measures in slow.measures]
            kept = [max(i, min(len(m), 3)) for i, m in zip(inside, slow.measures, strict=True)]
            assert fast.measures_a_page(T, 3) == pytest.approx(np.mean(kept))


def test_all_cash_is_that_of_the_start_and_history_comes_near_the_exact_ranks() -> None:
    web, ids = power_law_web(300, 1), page_ids(300, 1)
    opic = PrintedOpic(ids, 0.85)
    ledgers: list[AnyLedger] = [opic]
    crawl, exact = WebCrawl(ledgers, ids, ExactGreedyOrder(web)), exact_importance(web)
    errors = []
    for rounds in (1, 10, 100):
        crawl.run(web, rounds * web.pages)
        assert opic.cash.sum() + opic.virtual == pytest.approx(1.0, rel=1e-12)
        assert opic.history.sum() == pytest.approx(opic.clock, rel=1e-12)
        found = opic.all_history()
        errors.append(np.abs(found / found.sum() - exact).sum())
    assert errors[0] > 5 * errors[1] > 25 * errors[2]
