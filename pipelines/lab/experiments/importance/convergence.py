"""Figures 2 and 3: how fast importance comes near the exact one, by the order in which pages are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from opicflow.pipelines.lab.experiments.importance.printed_opic import PrintedOpic
from opicflow.pipelines.lab.experiments.measures import (
    DAMPING,
    distance_from_seen,
    errors,
    exact_importance,
    imbalance,
)
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.crawl import WebCrawl
from opicflow.pipelines.lab.web.visit_orders import (
    CycleOrder,
    ExactGreedyOrder,
    GreedyOrder,
    RandomOrder,
    VisitOrder,
    XylemeOrder,
)
from opicflow.pipelines.lab.web.webs import page_ids, poisson_web, power_law_web
from opicflow.pipelines.ledger import Absorbing, All, Certified, Interpolation, Ledger, LedgerConfig
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.schemas.arrays import Floats, Ids

CRAWLS = 10
ORDERS = ("random", "cycle", "greedy", "greedy-batches", "xyleme")
OFF_LINE = "off-line"
CERTIFIED = "certified"
PRINTED, PRINTED_FREQUENCY = "as printed", "frequency, as printed"
WEBS: dict[str, Callable[[int, int], Graph]] = {"power-law": power_law_web, "poisson": poisson_web}


def order_named(name: str, web: Graph, seed: int, importance: Callable[[], Floats]) -> VisitOrder:
    """The order of this name over all pages of a web. `importance` returns that of all pages, for Xyleme's order."""
    pages = web.pages
    batch = max(1, pages // 256)
    if name == "greedy":
        return ExactGreedyOrder(web, DAMPING)
    if name == "greedy-batches":
        return GreedyOrder(batch)
    if name == "xyleme":
        return XylemeOrder(pages, importance, batch)
    return CycleOrder(pages, seed, batch) if name == "cycle" else RandomOrder(pages, seed, batch)


def importance_by(ledger: Ledger, ids: Ids) -> Callable[[], Floats]:
    """Return a function that returns the present importance of pages."""
    return lambda: ledger.estimate(ids).importance


def convergence(pages: int, seed: int, web: str, order: str) -> list[Row]:
    """A crawl of a web that is known in advance: errors after N, 2N, … visits, by how history is read.

    `history` is all that a page ever earned: OPIC as such. `default` is the importance that a ledger publishes by
    default. `frequency` takes a page's share of all visits for its importance. `cash_at_visit` is the mean cash of a
    page at its visit, in units of all cash over the number of pages, since the row before; `turns` is the paper's G.
    `unread` is the share of pages not read yet, `visits_of_best` the share of all visits that went to the most
    important hundredth, both in per cent; `as_seen` is the mean error against the ranks of the web without the links of
    unread pages.
    """
    graph = WEBS[web](pages, seed)
    exact = exact_importance(graph)
    ids = page_ids(pages, seed)
    ledgers = {
        "history": Ledger(LedgerConfig(history=All(), damping=DAMPING)),
        "default": Ledger(LedgerConfig(history=Interpolation(), damping=DAMPING)),
        "absorbing": Ledger(LedgerConfig(history=Absorbing(), damping=DAMPING)),
    }
    paced = ledgers["default"]
    crawl = WebCrawl(list(ledgers.values())[:2], ids, order_named(order, graph, seed, importance_by(paced, ids)))
    crawl.announce(ids)
    # Absorbing lets cash move otherwise, so a greedy crawl is one of its own.
    absorbing = ledgers["absorbing"]
    alone = WebCrawl([absorbing], ids, order_named(order, graph, seed, importance_by(absorbing, ids)))
    alone.announce(ids)
    counts = np.zeros(pages, np.int64)
    best = np.argsort(-exact, kind="stable")[: max(1, pages // 100)]
    rows: list[Row] = []
    turns = 0.0
    for crawls in range(1, CRAWLS + 1):
        counts += np.bincount(crawl.run(graph, crawls * pages), minlength=pages)
        alone.run(graph, crawls * pages)
        unread = counts == 0
        as_seen = exact_importance(graph.without_links(unread)) if unread.any() else exact
        state: Row = {"cash_at_visit": paced.turns - turns, "turns": paced.turns}
        state |= {
            "unread": float(unread.mean()) * 100.0,
            "visits_of_best": float(counts[best].sum() / counts.sum()) * 100,
        }
        turns = paced.turns
        found = {name: ledger.estimate(ids).importance for name, ledger in ledgers.items()}
        found["frequency"] = counts / counts.sum()
        for name, importance in found.items():
            row = _row(seed, web, order, name, crawls, graph, importance, exact) | state
            rows.append(row | {"as_seen": errors(importance, as_seen).everywhere})
    for ledger in ledgers.values():
        ledger.audit()
    return rows


def convergence_printed(pages: int, seed: int, web: str, order: str) -> list[Row]:
    """The same webs and orders by Adaptive OPIC as printed, with all history; greedy orders follow its cash."""
    graph, ids = WEBS[web](pages, seed), page_ids(pages, seed)
    exact = exact_importance(graph)
    opic = PrintedOpic(ids, DAMPING)
    crawl = WebCrawl([opic], ids, order_named(order, graph, seed, opic.all_history))
    counts = np.zeros(pages, np.int64)
    best = np.argsort(-exact, kind="stable")[: max(1, pages // 100)]
    rows: list[Row] = []
    turns = 0.0
    for crawls in range(1, CRAWLS + 1):
        counts += np.bincount(crawl.run(graph, crawls * pages), minlength=pages)
        unread = counts == 0
        as_seen = exact_importance(graph.without_links(unread)) if unread.any() else exact
        state: Row = {"cash_at_visit": opic.clock - turns, "turns": opic.clock, "unread": float(unread.mean()) * 100.0}
        state["visits_of_best"] = float(counts[best].sum() / counts.sum()) * 100.0
        turns = opic.clock
        for name, importance in ((PRINTED, opic.all_history()), (PRINTED_FREQUENCY, counts / counts.sum())):
            row = _row(seed, web, order, name, crawls, graph, importance, exact) | state
            rows.append(row | {"as_seen": errors(importance, as_seen).everywhere})
    return rows


def convergence_certified(pages: int, seed: int, web: str, order: str) -> list[Row]:
    """The same webs and orders under the history policy `certified`. Greedy and Xyleme follow the cash of its ledger.

    `distance` is the L1 distance of importance from the exact ranks of the graph seen, and `certificate` its bound,
    both in per cent. Cash means something else here, so there is no `cash_at_visit` and no clock.
    """
    graph = WEBS[web](pages, seed)
    exact = exact_importance(graph)
    ids = page_ids(pages, seed)
    ledger = Ledger(LedgerConfig(history=Certified(), damping=DAMPING))
    crawl = WebCrawl([ledger], ids, order_named(order, graph, seed, importance_by(ledger, ids)))
    crawl.announce(ids)
    counts = np.zeros(pages, np.int64)
    best = np.argsort(-exact, kind="stable")[: max(1, pages // 100)]
    rows: list[Row] = []
    for crawls in range(1, CRAWLS + 1):
        counts += np.bincount(crawl.run(graph, crawls * pages), minlength=pages)
        unread = counts == 0
        as_seen = exact_importance(graph.without_links(unread)) if unread.any() else exact
        importance = ledger.estimate(ids).importance
        rows.append(
            _row(seed, web, order, CERTIFIED, crawls, graph, importance, exact)
            | {
                "cash_at_visit": "",
                "turns": "",
                "unread": float(unread.mean()) * 100.0,
                "visits_of_best": float(counts[best].sum() / counts.sum()) * 100.0,
                "as_seen": errors(importance, as_seen).everywhere,
                "distance": distance_from_seen(ledger) * 100.0,
                "certificate": (ledger.certificate() or 0.0) * 100.0,
            }
        )
    ledger.audit()
    return rows


def off_line(pages: int, seed: int, web: str) -> list[Row]:
    """Iterations of PageRank from a uniform start; each is counted as N visits, as in the paper."""
    graph = WEBS[web](pages, seed)
    exact = exact_importance(graph)
    rows = []
    for crawls in range(1, CRAWLS + 1):
        values = pagerank(graph, DAMPING, tolerance=0.0, max_iterations=crawls).values
        row = _row(seed, web, OFF_LINE, OFF_LINE, crawls, graph, values, exact)
        rows.append(row | dict.fromkeys(("cash_at_visit", "turns", "unread", "visits_of_best", "as_seen"), ""))
    return rows


def _row(
    seed: int, web: str, order: str, read_by: str, crawls: int, graph: Graph, importance: Floats, exact: Floats
) -> Row:
    measured = dataclasses.asdict(errors(importance, exact))
    which: Row = {"seed": seed, "web": web, "order": order, "importance": read_by, "crawls": crawls}
    return which | measured | {"imbalance": imbalance(graph, importance)}
