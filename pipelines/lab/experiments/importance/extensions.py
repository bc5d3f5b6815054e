"""Measures beyond the papers: webs that grow, unreadable pages, the accuracy of published figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opicflow.pipelines.lab.experiments.importance.convergence import CERTIFIED
from opicflow.pipelines.lab.experiments.importance.windows import CERTIFIED_ALONE, changed
from opicflow.pipelines.lab.experiments.measures import (
    DAMPING,
    correlation,
    distance_from_seen,
    errors,
    exact_importance,
)
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.changes import induced_web, replace_links
from opicflow.pipelines.lab.web.crawl import WebCrawl
from opicflow.pipelines.lab.web.failures import UnchangedVisits, VisitFailures, share_of
from opicflow.pipelines.lab.web.visit_orders import (
    AsFoundOrder,
    CycleOrder,
    ExactGreedyOrder,
    GreedyOrder,
    RandomOrder,
    VisitOrder,
    set_page_count,
)
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import (
    All,
    Certified,
    Estimates,
    History,
    Interpolation,
    Ledger,
    LedgerConfig,
    Outcome,
    Variable,
)
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.stages.publish import idle_cash
from opicflow.schemas.arrays import Bytes, Floats, Ints

HISTORIES: dict[str, History] = {
    "default": Interpolation(),
    "variable, 8": Variable(8),
    "all": All(),
    CERTIFIED: Certified(),
    CERTIFIED_ALONE: Certified(),
}

GROWTH_STEPS = 20
GROWN_AFTER = 5
UNREADABLE, BLOCKED = 0.6, 0.05
MOVED, MOVED_AFTER = 0.1, 3
ROUNDS_OF_MOVED = (0.25, 0.5, 1.0, 1.1, 2.0, 3.0)
WINDOW_DAYS, STILL_DAYS, DAYS_OF_TRENDS = 3.0, 5, 20


def _leaders(history: str) -> list[Ledger]:
    """The ledger whose cash a greedy crawl follows, if it is another one: `certified` gets the visits of the default.

    (Under `certified` a page that was read has cash only where others have moved, so greedy reads few pages again.)
    """
    return [Ledger(LedgerConfig(damping=DAMPING))] if history == CERTIFIED else []


def growing(pages: int, seed: int, history: str, newcomers: bool) -> list[Row]:
    """Measure a web that grows from half of its pages to all pages during 5N visits, read greedily.

    The first half is announced; the others are found by links, once pages that lead to them are read again.
    `known` are the errors of all known pages, `unread` those of known pages that were not read yet, both against the
    web of that moment. Under `certified`, `distance` is the L1 distance of importance from the exact ranks of the graph
    seen, and `certificate` its bound, in per cent.
    """
    whole, ids = power_law_web(pages, seed), page_ids(pages, seed)
    config = LedgerConfig(history=HISTORIES[history], damping=DAMPING, newcomer_history=newcomers)
    ledger = Ledger(config)
    crawl = WebCrawl([*_leaders(history), ledger], ids, GreedyOrder(max(1, pages // 256)))
    crawl.announce(ids[: pages // 2])
    rows: list[Row] = []

    def measure(web: Graph, there: int) -> None:
        exact = exact_importance(Graph(web.starts[: there + 1], web.targets, web.weights))
        now = ledger.estimate(ids[:there])
        row: Row = {"seed": seed, "history": history, "newcomers": int(newcomers), "crawls": crawl.visits / pages}
        for name, mask in (("known", now.known), ("unread", now.known & (now.visits == 0))):
            off = np.abs(now.importance[mask] - exact[mask]) / exact[mask] * 100.0
            row |= {name: float(off.mean()) if len(off) else float("nan"), f"{name}_pages": int(mask.sum())}
        rows.append(row | _proven(ledger))

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


def _proven(ledger: Ledger) -> Row:
    """The certificate of a ledger, and the distance that it bounds, in per cent; NaN under other history policies."""
    certificate = ledger.certificate()
    if certificate is None:
        return {"distance": float("nan"), "certificate": float("nan")}
    return {"distance": distance_from_seen(ledger) * 100.0, "certificate": certificate * 100.0}


def moved(pages: int, seed: int, order: str, history: str) -> list[Row]:
    """Measure the error when a tenth of all links have moved after 3N visits, while the pages are read again.

    A link moves to the target of a random link of the web. Errors are those against the web after the move.
    """
    web, ids = power_law_web(pages, seed), page_ids(pages, seed)
    after = replace_links(web, MOVED, np.random.Generator(np.random.PCG64([seed, 5])))
    ledger = Ledger(LedgerConfig(history=HISTORIES[history], damping=DAMPING))
    batch = max(1, pages // 256)
    chosen = CycleOrder(pages, seed, batch) if order == "cycle" else GreedyOrder(batch)
    crawl = WebCrawl([*_leaders(history), ledger], ids, chosen)
    crawl.announce(ids)
    crawl.run(web, MOVED_AFTER * pages)
    exact = exact_importance(after)
    rows: list[Row] = []
    for rounds in ROUNDS_OF_MOVED:
        crawl.run(after, round((MOVED_AFTER + rounds) * pages))
        found = errors(ledger.estimate(ids).importance, exact)
        row: Row = {"seed": seed, "order": order, "history": history, "rounds": rounds}
        rows.append(row | {"everywhere": found.everywhere, "top": found.top} | _proven(ledger))
    ledger.audit()
    return rows


def trouble(
    pages: int, seed: int, order: str, unreadable: float, unchanged: float, history: str, remember: bool
) -> list[Row]:
    """Measure a crawl that cannot read all pages: errors after 5N, 10N and 20N visits, N being all pages.

    A share of the pages is never requested, 5 % of all refuse every visit (none if all pages can be read), and a share
    of the visits to pages read before is answered "not modified", without links. `remember`: the ledger remembers
    links. In the exact ranks an unreadable page has no links; `whole` is the error against those of the web in which it
    has. `idle_cash` has no meaning under `certified`.
    """
    web, ids = power_law_web(pages, seed), page_ids(pages, seed)
    random = np.random.Generator(np.random.PCG64([seed, 7]))
    never = share_of(pages, unreadable, random)
    troubles = VisitFailures(pages, seed, BLOCKED if unreadable else 0.0)
    exact = exact_importance(web.without_links(never | troubles.blocked))
    whole = exact_importance(web)
    ledger = Ledger(LedgerConfig(history=HISTORIES[history], damping=DAMPING, remember_links=remember))
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
    crawl = WebCrawl([*_leaders(history), ledger], ids, orders[order](), choice, outcomes)
    crawl.announce(ids)
    rows: list[Row] = []
    for crawls in (5, 10, 20):
        crawl.run(web, crawls * pages)
        importance = ledger.estimate(ids).importance
        found, of_whole = errors(importance, exact), errors(importance, whole)
        row: Row = {"seed": seed, "order": order, "unreadable": unreadable, "unchanged": unchanged}
        stuck = float("nan") if ledger.is_certified else idle_cash(ledger.idle_cash()) / ledger.minted * 100.0
        row |= {"history": history, "remember": int(remember), "crawls": crawls}
        row |= {"everywhere": found.everywhere, "top": found.top, "idle_cash": stuck}
        rows.append(row | {"whole": of_whole.everywhere, "whole_top": of_whole.top} | _proven(ledger))
    ledger.audit()
    return rows


def stated(pages: int, seed: int, order: str, history: str) -> list[Row]:
    """How good the published trend and error factor are, N visits a day for 20 days.

    On day 10 the in-degrees of 5 % of the pages are halved or doubled. Under `certified`, for the changed pages, day by
    day: how far their trends and the changes of their exact importance agree in rank, and the share of trends with the
    right sign. Under the other histories, for all pages: how far error factors and errors agree in rank, and the share
    of pages that are off by no more than theirs (`certified` has no error factor, but a certificate).
    """
    web, ids = power_law_web(pages, seed), page_ids(pages, seed)
    windows = {**HISTORIES, CERTIFIED: Certified(window_days=WINDOW_DAYS)}
    ledger = Ledger(LedgerConfig(history=windows[history], damping=DAMPING))
    greedy = ExactGreedyOrder(web, DAMPING)
    chosen: VisitOrder = greedy if order == "greedy" else CycleOrder(pages, seed, max(1, pages // 256))
    crawl = WebCrawl([*_leaders(history), ledger], ids, chosen, per_day=pages)
    crawl.announce(ids)
    before = now = exact_importance(web)
    went = np.zeros(pages, np.bool_)
    rows: list[Row] = []
    for day in range(1, 21):
        crawl.run(web, day * pages)
        if day == 10:
            after = changed(web, 0.05, np.random.Generator(np.random.PCG64([seed, 9])))
            went = after.in_degrees != web.in_degrees
            web, now = after, exact_importance(after)
            greedy.move_to(web)
        if day in (5, 10, 11, 12, 13, 14, 16, 18, 20):
            estimates = ledger.estimate(ids)
            off = np.abs(estimates.importance - (before if day <= 10 else now)) / (before if day <= 10 else now)
            bound: Floats = np.full(pages, np.nan) if ledger.is_certified else estimates.error_factor
            row: Row = {"seed": seed, "order": order, "history": history, "day": day}
            row |= {"error": float(off.mean()) * 100.0, "error_factor": float(bound.mean()) * 100.0}
            factors = not ledger.is_certified
            row |= {"factor_rank": correlation(bound, off) if factors else float("nan")}
            row |= {"within_factor": float((off <= bound).mean()) * 100.0 if factors else float("nan")}
            move, trend = (now - before)[went], estimates.trend_per_day[went]
            after_change = day > 10 and ledger.is_certified
            row |= {
                "trend_rank": correlation(trend, move) if after_change else float("nan"),
                "trend_sign": float((np.sign(trend) == np.sign(move)).mean()) * 100.0 if after_change else float("nan"),
                "seen": float(trend.sum() / move.sum()) if after_change and move.sum() else float("nan"),
            }
            rows.append(row | _proven(ledger))
    ledger.audit()
    return rows


def trends(pages: int, seed: int, web: str, order: str) -> list[Row]:
    """Measure the trends of `certified` against those of exact ranks, day by day, N visits a day for 20 days.

    The web does not change for five days. Then, every day, the in-degrees of 1 % of its pages are halved or doubled
    (`changing`), or a fiftieth of the first pages is added (`growing`). The exact trend of a page is its exact
    importance against the mean over the window, updated at the end of each day. `precision` is the share of the pages
    with the highest hundredth of trends whose exact trend is above 0, where that of `rose` of all pages is; `recall`
    the share of the pages with the highest hundredth of exact trends that are among those with the highest hundredth of
    published ones. All in per cent. `steepest` is the mean size of the published trends of the most important
    hundredth, in per cent of their importance.
    """
    whole, ids = power_law_web(pages, seed), page_ids(pages, seed)
    random = np.random.Generator(np.random.PCG64([seed, 11]))
    ledger = Ledger(LedgerConfig(history=Certified(window_days=WINDOW_DAYS), damping=DAMPING))
    first = round(pages / (1 + (DAYS_OF_TRENDS - STILL_DAYS) / 50)) if web == "growing" else pages
    there, batch = first, max(1, pages // 256)
    graph = induced_web(whole, np.arange(pages) < there)
    orders: dict[str, Callable[[], VisitOrder]] = {
        "greedy": lambda: GreedyOrder(batch),
        "cycle": lambda: AsFoundOrder(there, batch),
        "random": lambda: RandomOrder(there, seed, batch),
    }
    chosen = orders[order]()
    crawl = WebCrawl([*_leaders(CERTIFIED), ledger], ids, chosen, per_day=pages)
    crawl.announce(ids[:there])
    means = np.full(pages, np.nan)
    rows: list[Row] = []
    for day in range(1, DAYS_OF_TRENDS + 1):
        crawl.run(graph, day * pages)
        exact = exact_importance(Graph(graph.starts[: there + 1], graph.targets, graph.weights))
        mean = means[:there]
        mean[:] = np.where(np.isnan(mean), exact, mean + (exact - mean) / WINDOW_DAYS)
        estimates = ledger.estimate(ids[:there])
        row: Row = {"seed": seed, "web": web, "order": order, "day": day}
        rows.append(row | _trends_found(estimates, (exact - mean) / WINDOW_DAYS) | _proven(ledger))
        if day >= STILL_DAYS and web == "changing":
            graph = changed(graph, 0.01, random)
        elif day >= STILL_DAYS:
            there, before = min(there + first // 50, pages), there
            graph = induced_web(whole, np.arange(pages) < there)
            crawl.announce(ids[before:there])
            set_page_count(chosen, there)
    ledger.audit()
    return rows


def _trends_found(estimates: Estimates, exact: Floats) -> Row:
    """Compare the trends of estimates with exact ones."""
    trend, most = estimates.trend_per_day, max(1, len(exact) // 100)
    highest, rose_most = (np.argsort(-values, kind="stable")[:most] for values in (trend, exact))
    rose = exact > 0
    best = np.argsort(-estimates.importance, kind="stable")[:most]
    return {
        "rose": float(rose.mean()) * 100.0,
        "precision": float(rose[highest].mean()) * 100.0,
        "recall": float(np.isin(rose_most, highest).mean()) * 100.0,
        "rank": correlation(trend, exact),
        "steepest": float((np.abs(trend[best]) / estimates.importance[best]).mean()) * 100.0,
        "published": float((trend != 0).mean()) * 100.0,
    }
