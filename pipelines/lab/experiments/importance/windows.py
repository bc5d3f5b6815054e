"""Figures 4, 5 and 6: what a history policy keeps, and how near it stays to a web that changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from opicflow.pipelines.lab.experiments.importance.convergence import CERTIFIED, PRINTED, importance_by, order_named
from opicflow.pipelines.lab.experiments.importance.printed_opic import PrintedOpic
from opicflow.pipelines.lab.experiments.measures import DAMPING, distance_from_seen, errors, exact_importance
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.changes import change_in_degrees
from opicflow.pipelines.lab.web.crawl import WebCrawl
from opicflow.pipelines.lab.web.visit_orders import ExactGreedyOrder
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import (
    All,
    Certified,
    Fixed,
    History,
    ImprovedFixed,
    Interpolation,
    Ledger,
    LedgerConfig,
    PaperInterpolation,
    Variable,
)
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.arrays import Floats

CRAWLS = 10
MEASURED_FROM = 6
STEPS_A_CRAWL = 4
RATES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Per cent of the pages whose in-degree is halved or doubled while N pages are read."""
RATES_OF_CYCLE = (0.0, 1.0, 10.0)

BY_IMPORTANCE = "by importance"
CERTIFIED_ALONE = "certified, by its own cash"
_OF_IMPORTANT, _OF_OTHERS = "fixed, 8 months", "variable, 16"


POLICIES: dict[str, Callable[[float], History]] = {
    "variable, 4": lambda month: Variable(4),
    "variable, 8": lambda month: Variable(8),
    "variable, 16": lambda month: Variable(16),
    "fixed, 8 months": lambda month: Fixed(8.0 * month),
    "improved fixed, 4 months": lambda month: ImprovedFixed(4.0 * month, min_measures=3),
    "interpolation, 4 months": lambda month: PaperInterpolation(4.0 * month),
    "default": lambda month: Interpolation(),
    "default, 4 months": lambda month: Interpolation(4.0 * month),
    "all": lambda month: All(),
}
"""History policies, given how many turns a month takes."""


def windows(pages: int, seed: int, order: str, rate: float) -> list[Row]:
    """A web that changes at this rate, crawled ten times in some order, read by all policies at once.

    A month is the time of N visits in this order. The errors are means over 6N, 7N, … 10N visits, each
    against the web as it was at that moment; `measures` is how many measures a page has at last. `by importance` takes
    another policy for the tenth of the pages that it finds most important than for the others (paper 000).
    """
    web = power_law_web(pages, seed)
    random = np.random.Generator(np.random.PCG64([seed, round(rate * 1000)]))
    ids = page_ids(pages, seed)
    month = turns_a_month(web, seed, order)
    ledgers = {name: Ledger(LedgerConfig(history=policy(month), damping=DAMPING)) for name, policy in POLICIES.items()}
    chosen = order_named(order, web, seed, importance_by(next(iter(ledgers.values())), ids))
    crawl = WebCrawl(list(ledgers.values()), ids, chosen)
    crawl.announce(ids)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in (*ledgers, BY_IMPORTANCE)}
    for step in range(1, CRAWLS * STEPS_A_CRAWL + 1):
        crawl.run(web, step * pages // STEPS_A_CRAWL)
        if step % STEPS_A_CRAWL == 0 and step >= MEASURED_FROM * STEPS_A_CRAWL:
            exact = exact_importance(web)
            rates = {name: ledger.estimate(ids).rate for name, ledger in ledgers.items()}
            rates[BY_IMPORTANCE] = by_importance(rates[_OF_IMPORTANT], rates[_OF_OTHERS])
            for name, values in rates.items():
                found[name].append(dataclasses.asdict(errors(values, exact)))
        if rate:
            web = changed(web, rate / 100.0 / STEPS_A_CRAWL, random)
            if isinstance(chosen, ExactGreedyOrder):
                chosen.move_to(web)
    measures = {name: ledger.measures_per_page() for name, ledger in ledgers.items()}
    measures[BY_IMPORTANCE] = 0.1 * measures[_OF_IMPORTANT] + 0.9 * measures[_OF_OTHERS]
    for ledger in ledgers.values():
        ledger.audit()
    rows: list[Row] = []
    for name, errors_found in found.items():
        row: Row = {"seed": seed, "order": order, "rate": rate, "policy": name}
        row |= {"measures": measures[name], "turns_a_month": month}
        rows.append(row | {key: float(np.mean([one[key] for one in errors_found])) for key in errors_found[0]})
    return rows


def windows_printed(pages: int, seed: int, order: str, rate: float) -> list[Row]:
    """The same webs and errors by Adaptive OPIC as printed, with all history policies; greedy orders follow its cash.

    A month is the time of the third N visits of this crawl.
    """
    web, ids = power_law_web(pages, seed), page_ids(pages, seed)
    random = np.random.Generator(np.random.PCG64([seed, round(rate * 1000)]))
    opic = PrintedOpic(ids, DAMPING)
    chosen = order_named(order, web, seed, opic.all_history)
    crawl = WebCrawl([opic], ids, chosen)
    found: dict[str, list[dict[str, float]]] = {}
    clocks = {0: 0.0}
    for step in range(1, CRAWLS * STEPS_A_CRAWL + 1):
        crawl.run(web, step * pages // STEPS_A_CRAWL)
        clocks[step] = opic.clock
        if step % STEPS_A_CRAWL == 0 and step >= MEASURED_FROM * STEPS_A_CRAWL:
            exact, month = exact_importance(web), clocks[3 * STEPS_A_CRAWL] - clocks[2 * STEPS_A_CRAWL]
            estimates = printed_windows(opic, month)
            estimates[BY_IMPORTANCE] = by_importance(estimates[_OF_IMPORTANT], estimates[_OF_OTHERS])
            for name, importance in estimates.items():
                found.setdefault(name, []).append(dataclasses.asdict(errors(importance, exact)))
        if rate:
            web = changed(web, rate / 100.0 / STEPS_A_CRAWL, random)
            if isinstance(chosen, ExactGreedyOrder):
                chosen.move_to(web)
    measures = {
        **{f"variable, {k}": opic.measures_a_page(0.0, k) for k in (4, 8, 16)},
        **{f"fixed, {months} months": opic.measures_a_page(months * month, 0) for months in (4, 8)},
        "improved fixed, 4 months": opic.measures_a_page(4.0 * month, 3),
        "interpolation, 4 months": 1.0,
    }
    rows: list[Row] = []
    for name, errors_found in found.items():
        row: Row = {"seed": seed, "order": order, "rate": rate, "policy": f"{name}, {PRINTED}"}
        row |= {"measures": measures.get(name, float("nan")), "turns_a_month": month}
        rows.append(row | {key: float(np.mean([one[key] for one in errors_found])) for key in errors_found[0]})
    return rows


def printed_windows(opic: PrintedOpic, month: float) -> dict[str, Floats]:
    """Importance by each history policy of the paper, where a month takes so many turns."""
    return {
        "variable, 4": opic.variable(4),
        "variable, 8": opic.variable(8),
        "variable, 16": opic.variable(16),
        "fixed, 4 months": opic.fixed(4.0 * month),
        "fixed, 8 months": opic.fixed(8.0 * month),
        "improved fixed, 4 months": opic.fixed(4.0 * month, fewest=3),
        "interpolation, 4 months": opic.interpolation(4.0 * month),
        "all": opic.all_history(),
    }


def windows_certified(pages: int, seed: int, order: str, rate: float) -> list[Row]:
    """The same webs and visits, with the history policy `certified`; errors as in `windows`.

    Where the order is greedy, one more crawl is led by the waiting cash of the certified ledger itself. `distance` is
    the L1 distance of importance from the exact ranks of the graph seen at last, `certificate` its bound, in per cent.
    """
    web = power_law_web(pages, seed)
    random = np.random.Generator(np.random.PCG64([seed, round(rate * 1000)]))
    ids = page_ids(pages, seed)
    ledgers = {CERTIFIED: Ledger(LedgerConfig(history=Certified(), damping=DAMPING))}
    paced = Ledger(LedgerConfig(history=All(), damping=DAMPING))
    chosen = [order_named(order, web, seed, importance_by(paced, ids))]
    crawls = [WebCrawl([paced, ledgers[CERTIFIED]], ids, chosen[0])]
    if order == "greedy":
        ledgers[CERTIFIED_ALONE] = Ledger(LedgerConfig(history=Certified(), damping=DAMPING))
        chosen.append(order_named(order, web, seed, importance_by(ledgers[CERTIFIED_ALONE], ids)))
        crawls.append(WebCrawl([ledgers[CERTIFIED_ALONE]], ids, chosen[1]))
    for crawl in crawls:
        crawl.announce(ids)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ledgers}
    for step in range(1, CRAWLS * STEPS_A_CRAWL + 1):
        for crawl in crawls:
            crawl.run(web, step * pages // STEPS_A_CRAWL)
        if step % STEPS_A_CRAWL == 0 and step >= MEASURED_FROM * STEPS_A_CRAWL:
            exact = exact_importance(web)
            for name, ledger in ledgers.items():
                found[name].append(dataclasses.asdict(errors(ledger.estimate(ids).importance, exact)))
        if rate:
            web = changed(web, rate / 100.0 / STEPS_A_CRAWL, random)
            for one in chosen:
                if isinstance(one, ExactGreedyOrder):
                    one.move_to(web)
    rows: list[Row] = []
    for name, ledger in ledgers.items():
        ledger.audit()
        row: Row = {"seed": seed, "order": order, "rate": rate, "policy": name}
        row |= {"measures": ledger.measures_per_page(), "turns_a_month": ""}
        row |= {key: float(np.mean([one[key] for one in found[name]])) for key in found[name][0]}
        row |= {"distance": distance_from_seen(ledger) * 100.0, "certificate": (ledger.certificate() or 0.0) * 100.0}
        rows.append(row)
    return rows


def by_importance(important: Floats, others: Floats) -> Floats:
    """Rates by one policy for the tenth of the pages it finds most important, by another for the rest."""
    best = np.argsort(-important, kind="stable")[: max(1, len(important) // 10)]
    mixed = others.copy()
    mixed[best] = important[best]
    return mixed


def changed(web: Graph, share: float, random: np.random.Generator) -> Graph:
    """A share of the pages has its in-degree halved or doubled.

    Two are halved for one that is doubled: so neither kind alone makes the web lose or gain links in the mean.
    """
    pages = random.permutation(web.pages)[: round(share * web.pages)]
    doubles = random.random(len(pages)) < 1 / 3
    return change_in_degrees(web, pages[doubles], pages[~doubles], random)


def turns_a_month(web: Graph, seed: int, order: str) -> float:
    """The turns that N visits in this order take, measured in the third crawl of a web."""
    ledger = Ledger(LedgerConfig(history=All(), damping=DAMPING))
    ids = page_ids(web.pages, seed)
    crawl = WebCrawl([ledger], ids, order_named(order, web, seed, importance_by(ledger, ids)))
    crawl.announce(ids)
    crawl.run(web, 2 * web.pages)
    before = ledger.turns
    crawl.run(web, 3 * web.pages)
    return ledger.turns - before
