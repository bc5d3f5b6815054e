"""Measures beyond the papers: webs that grow, unreadable pages, discovery, the accuracy of published figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opicflow.pipelines.experiments.importance.windows import changed
from opicflow.pipelines.experiments.measures import DAMPING, correlation, errors, exact_importance
from opicflow.pipelines.experiments.tables import Row
from opicflow.pipelines.graph.csr import Graph
from opicflow.pipelines.ledger import All, History, Interpolation, Ledger, LedgerConfig, Outcome, Variable
from opicflow.pipelines.transforms.publish import idle_cash
from opicflow.pipelines.web.changes import induced_web
from opicflow.pipelines.web.crawl import DiscoveringCrawl, WebCrawl
from opicflow.pipelines.web.failures import UnchangedVisits, VisitFailures, share_of
from opicflow.pipelines.web.visit_orders import (
    AsFoundOrder,
    CycleOrder,
    ExactGreedyOrder,
    GreedyOrder,
    RandomOrder,
    VisitOrder,
    XylemeOrder,
)
from opicflow.pipelines.web.webs import hosted_web, page_ids, power_law_web
from opicflow.schemas.arrays import Bytes, Floats, Ints

HISTORIES: dict[str, History] = {"default": Interpolation(), "variable, 8": Variable(8), "all": All()}

GROWTH_STEPS = 20
GROWN_AFTER = 5
UNREADABLE, BLOCKED = 0.6, 0.05
DISCOVERERS = ("greedy", "xyleme", "breadth-first", "random")
SHARES = (1, 2, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100)
"""Discovery is measured after these percentages of N visits."""


def growing(pages: int, seed: int, history: str, newcomers: bool) -> list[Row]:
    """Measure a web that grows from half of its pages to all pages during 5N visits, read greedily.

    The first half is announced; the others are found by links, once pages that lead to them are read again.
    `known` are the errors of all known pages, `unread` those of known pages that were not read yet, both against the
    web of that moment.
    """
    whole, ids = power_law_web(pages, seed), page_ids(pages, seed)
    config = LedgerConfig(history=HISTORIES[history], damping=DAMPING, newcomer_history=newcomers)
    ledger = Ledger(config)
    crawl = WebCrawl([ledger], ids, GreedyOrder(max(1, pages // 256)))
    crawl.announce(ids[: pages // 2])
    rows: list[Row] = []

    def measure(web: Graph, there: int) -> None:
        exact = exact_importance(Graph(web.starts[: there + 1], web.targets, web.weights))
        now = ledger.estimate(ids[:there])
        row: Row = {"seed": seed, "history": history, "newcomers": int(newcomers), "crawls": crawl.visits / pages}
        for name, mask in (("known", now.known), ("unread", now.known & (now.visits == 0))):
            off = np.abs(now.importance[mask] - exact[mask]) / exact[mask] * 100.0
            row |= {name: float(off.mean()) if len(off) else float("nan"), f"{name}_pages": int(mask.sum())}
        rows.append(row)

    for step in range(1, GROWTH_STEPS + 1):
        there = pages // 2 + (pages - pages // 2) * step // GROWTH_STEPS
        web = induced_web(whole, np.arange(pages) < there)
        crawl.run(web, GROWN_AFTER * pages * step // GROWTH_STEPS)
        if step in (GROWTH_STEPS // 2, GROWTH_STEPS):
            measure(web, there)
    crawl.run(whole, 2 * GROWN_AFTER * pages)
    measure(whole, pages)
    ledger.audit()
    return rows


def trouble(pages: int, seed: int, order: str, unreadable: float, unchanged: float, remember: bool) -> list[Row]:
    """Measure a crawl that cannot read all pages: errors after 10N and 20N visits, N being all pages.

    A share of the pages is never requested, 5 % of all refuse every visit (none if all pages can be read), and a share
    of the visits to pages read before is answered "not modified", without links. `remember`: the ledger remembers
    links. In the exact ranks an unreadable page has no links.
    """
    web, ids = power_law_web(pages, seed), page_ids(pages, seed)
    random = np.random.Generator(np.random.PCG64([seed, 7]))
    never = share_of(pages, unreadable, random)
    troubles = VisitFailures(pages, seed, BLOCKED if unreadable else 0.0)
    exact = exact_importance(web.without_links(never | troubles.blocked))
    ledger = Ledger(LedgerConfig(damping=DAMPING, remember_links=remember))
    choice = np.flatnonzero(~never)
    same = UnchangedVisits(pages, unchanged, random)

    def outcomes(numbers: Ints) -> Bytes:
        found = troubles.outcomes(numbers)
        found[same.among(numbers) & (found == Outcome.FETCHED)] = Outcome.UNCHANGED
        return found

    batch = max(1, pages // 256)
    orders: dict[str, Callable[[], VisitOrder]] = {
        "greedy": lambda: GreedyOrder(batch),
        "cycle": lambda: CycleOrder(len(choice), seed, batch),
        "random": lambda: RandomOrder(len(choice), seed, batch),
    }
    crawl = WebCrawl([ledger], ids, orders[order](), choice, outcomes)
    crawl.announce(ids)
    rows: list[Row] = []
    for crawls in (5, 10, 20):
        crawl.run(web, crawls * pages)
        found = errors(ledger.estimate(ids).importance, exact)
        row: Row = {"seed": seed, "order": order, "unreadable": unreadable, "unchanged": unchanged}
        stuck = idle_cash(ledger.idle_cash()) / ledger.minted * 100.0
        row |= {"remember": int(remember), "crawls": crawls, "everywhere": found.everywhere, "top": found.top}
        rows.append(row | {"idle_cash": stuck})
    ledger.audit()
    return rows


def discovery(pages: int, seed: int, web: str, order: str) -> list[Row]:
    """Measure a crawl that starts with ten pages and finds the others by links.

    The importance of the pages `found` and of the pages `read`, in per cent of the final importance, after shares of N
    visits. The seeds are the same for all orders.
    """
    graph = hosted_web(pages, seed).graph if web == "hosts" else power_law_web(pages, seed, dangling=0.1)
    ids = page_ids(pages, seed)
    exact = exact_importance(graph)
    linking = np.flatnonzero(graph.out_degrees > 0)
    seeds = np.random.Generator(np.random.PCG64(seed)).permutation(linking)[:10]
    ledger = Ledger(LedgerConfig(damping=DAMPING))
    batch = max(1, pages // 1000)
    orders: dict[str, Callable[[], VisitOrder]] = {
        "greedy": lambda: GreedyOrder(batch),
        "xyleme": lambda: XylemeOrder(pages, lambda: ledger.estimate(ids[crawl.found]).importance, batch, 0.5),
        "breadth-first": lambda: AsFoundOrder(len(seeds), batch),
        "random": lambda: RandomOrder(len(seeds), seed, batch),
    }
    crawl = DiscoveringCrawl(ledger, ids, orders[order](), seeds)
    rows: list[Row] = []
    for share in SHARES:
        crawl.run(graph, share * pages // 100)
        found = np.zeros(pages, np.bool_)
        found[crawl.found] = True
        importance = ledger.estimate(ids).importance
        row: Row = {"seed": seed, "web": web, "order": order, "share": share}
        row |= {"found": float(exact[found].sum()) * 100.0, "read": float(exact[crawl.read].sum()) * 100.0}
        row |= {"pages_found": int(found.sum()), "pages_read": int(crawl.read.sum())}
        rows.append(row | {"distance": float(np.abs(importance - exact).sum())})
    ledger.audit()
    return rows


def stated(pages: int, seed: int, order: str) -> list[Row]:
    """How good the published trend and error factor are, N visits a day for 20 days.

    On day 10 the in-degrees of 5 % of the pages are halved or doubled. Of these pages, day by day: how their trends
    and the way that their exact importance went agree in rank, and the share of trends with the right sign. Of all
    pages: how error factors and errors agree in rank, and the share of pages that are off by no more than theirs.
    """
    web, ids = power_law_web(pages, seed), page_ids(pages, seed)
    ledger = Ledger(LedgerConfig(damping=DAMPING, trend_days=3.0))
    greedy = ExactGreedyOrder(web, DAMPING)
    chosen: VisitOrder = greedy if order == "greedy" else CycleOrder(pages, seed, max(1, pages // 256))
    crawl = WebCrawl([ledger], ids, chosen, per_day=pages)
    crawl.announce(ids)
    before = now = exact_importance(web)
    moved = np.zeros(pages, np.bool_)
    rows: list[Row] = []
    for day in range(1, 21):
        crawl.run(web, day * pages)
        if day == 10:
            after = changed(web, 0.05, np.random.Generator(np.random.PCG64([seed, 9])))
            moved = after.in_degrees != web.in_degrees
            web, now = after, exact_importance(after)
            greedy.move_to(web)
        if day in (5, 10, 11, 12, 13, 14, 16, 18, 20):
            estimates = ledger.estimate(ids)
            off = np.abs(estimates.importance - (before if day <= 10 else now)) / (before if day <= 10 else now)
            bound: Floats = estimates.error_factor
            row: Row = {"seed": seed, "order": order, "day": day}
            row |= {"error": float(off.mean()) * 100.0, "error_factor": float(bound.mean()) * 100.0}
            row |= {"factor_rank": correlation(bound, off), "within_factor": float((off <= bound).mean()) * 100.0}
            went = (now - before)[moved]
            trend = estimates.trend_per_day[moved]
            after_change = day > 10
            row |= {
                "trend_rank": correlation(trend, went) if after_change else float("nan"),
                "trend_sign": float((np.sign(trend) == np.sign(went)).mean()) * 100.0 if after_change else float("nan"),
                "seen": float(trend.sum() / went.sum()) if after_change and went.sum() else float("nan"),
            }
            rows.append(row)
    ledger.audit()
    return rows
