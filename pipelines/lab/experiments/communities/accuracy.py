"""Measures of paper 004: how close FindGlobalPR comes to the true ranks of a domain, and what each page read gains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opicflow.pipelines.lab.experiments.communities.domains import USUAL, Domain, SurveyedWeb, survey_web
from opicflow.pipelines.lab.experiments.measures import DAMPING
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.crawl import visits
from opicflow.pipelines.lab.web.webs import page_ids
from opicflow.pipelines.ledger import Ledger, LedgerConfig
from opicflow.pipelines.ranks.graph.community import (
    Expansion,
    LocalFrontier,
    Select,
    chance,
    find_global_ranks,
    flows,
    influence,
    linkers,
    ranks_of,
)
from opicflow.pipelines.ranks.graph.comparison import kendall_tau, l1, linf
from opicflow.schemas.arrays import Floats, Ints

SC, SC_TABLE, PF, OUTLINKS, RANDOM = "SC-Select", "SC-Select, table", "PF-Select", "OutlinkCount", "Random"
IMPORTANCE = "ledger's importance"
STRATEGIES = (SC, SC_TABLE, PF, OUTLINKS, RANDOM, IMPORTANCE)
AT_FIRST, HALF_WAY = "at first", "half way"
NORM_STEPS = 100
CANDIDATES = 500

_EXACT = 1e-12


class LiveLedger:
    """Selects by the importance of frontier pages in a ledger, which receives every page that is read."""

    def __init__(self, web: SurveyedWeb, seed: int) -> None:
        self._web, self._ids = web, page_ids(web.graph.pages, seed)
        self._ledger = Ledger(LedgerConfig(damping=DAMPING))
        self._heard = 0

    def __call__(self, frontier: LocalFrontier, ranks: Floats, number: int) -> Floats:
        """Apply the pages read since the last call to the ledger; return its importance of the frontier."""
        read = frontier.ids[self._heard :].astype(np.int64)
        if len(read):
            self._ledger.apply(visits(self._web.graph, self._ids, read, self._heard))
        self._heard += len(read)
        importance: Floats = self._ledger.estimate(self._ids[frontier.pages]).importance
        return importance


def selection_named(strategy: str, web: SurveyedWeb, seed: int) -> Select:
    """How this strategy scores pages of the frontier."""
    choices: dict[str, Callable[[], Select]] = {
        SC: lambda: lambda frontier, ranks, number: influence(frontier, ranks, DAMPING),
        SC_TABLE: lambda: lambda frontier, ranks, number: influence(frontier, ranks, DAMPING, NORM_STEPS),
        PF: lambda: lambda frontier, ranks, number: flows(frontier, ranks),
        OUTLINKS: lambda: lambda frontier, ranks, number: linkers(frontier),
        RANDOM: lambda: lambda frontier, ranks, number: chance(frontier, seed, number),
        IMPORTANCE: lambda: LiveLedger(web, seed),
    }
    return choices[strategy]()


def impact(web: SurveyedWeb, local: Ints) -> Floats:
    """The true rank of every page of a web times the share of its links that lead to the domain (6.2)."""
    graph = web.graph
    is_local = np.zeros(graph.pages, np.bool_)
    is_local[local] = True
    sums = np.concatenate(([0], np.cumsum(np.where(is_local[graph.targets], graph.weights, 0))))
    found: Floats = web.exact * np.diff(sums[graph.starts]) / np.maximum(graph.out_weights, 1)
    return found


def communities(pages: int, seed: int, domain: str, web: str = USUAL, edges: str = "", digest: str = "") -> list[Row]:
    """Measure FindGlobalPR on a domain with every strategy: a row for each round; round 0 is the domain alone.

    `n` is the number of pages of the domain, `read` that of other pages read; `l1`, `linf` and `l2` are distances of
    the estimate from the true ranks of the domain, both scaled to sum 1; `kendall` is their tau-b. `covered` is the
    share of impact: of a walker's steps that lead into the domain, the share that starts at pages read. `akin` is the
    share of the pages read in this round that have the domain's most frequent topic, NaN without topics. When no page
    is left to read, the last row is repeated. `digest` is that of the edge list.
    """
    known = survey_web(domain, pages, seed, web, edges)
    chosen = known.domains[domain]
    rounds, a_round = pace(chosen)
    which: Row = {"seed": seed, "web": web, "domain": domain, "kind": chosen.kind, "n": len(chosen.pages)}
    return [
        which | {"strategy": strategy} | row
        for strategy in STRATEGIES
        for row in measured(known, chosen.pages, selection_named(strategy, known, seed), rounds, a_round)
    ]


def pace(domain: Domain) -> tuple[int, int]:
    """Return the number of rounds of a domain, and about how many pages each round reads."""
    pages = domain.times * len(domain.pages)
    rounds = min(domain.rounds, pages)
    return rounds, round(pages / rounds)


def measured(web: SurveyedWeb, local: Ints, select: Select, rounds: int, pages_a_round: int) -> list[Row]:
    """A row a round of FindGlobalPR on these pages."""
    true = web.exact[local] / web.exact[local].sum()
    impacts = impact(web, local)
    impacts[local] = 0.0
    about = -1 if web.topic is None else np.bincount(web.topic[local]).argmax()
    rows: list[Row] = []
    read = 0
    for one in find_global_ranks(_of_pages(web, local), web.recorded, select, rounds, pages_a_round, DAMPING):
        values = one.estimate.values
        tau = kendall_tau(values, true)
        read += one.fetched
        new = one.frontier.ids[len(one.frontier.ids) - one.fetched :]
        akin = float("nan") if web.topic is None or not len(new) else float((web.topic[new] == about).mean())
        rows.append(
            {
                "round": one.number,
                "read": read,
                "frontier": len(one.frontier.pages),
                "l1": l1(values, true),
                "linf": linf(values, true),
                "l2": float(np.sqrt(((values - true) ** 2).sum())),
                "kendall": float("nan") if tau is None else tau,
                "covered": float(impacts[one.frontier.ids].sum() / max(impacts.sum(), 1e-300)),
                "akin": akin,
            }
        )
    return rows + [rows[-1] | {"round": number} for number in range(len(rows), rounds + 1)]


def influences(
    pages: int, seed: int, domain: str, moment: str, web: str = USUAL, edges: str = "", digest: str = ""
) -> list[Row]:
    """Measure figure 1: for pages of a domain's frontier, the scores of selections, and the effect of reading the page.

    `moment` is at first, before other pages are read, or half way, after half of the rounds of SC-Select. Of all
    candidates 500 at random. `influence` and `by_table` are SC-Select's, `flow` PF-Select's, `linkers`
    OutlinkCount's. Then the page alone is read: `moved` is how far the ranks of the domain move by its true links (7),
    `diff` how far the estimate is from the true ranks then (3), `gain` how much nearer that is than before.
    """
    known = survey_web(domain, pages, seed, web, edges)
    local = known.domains[domain].pages
    true = known.exact[local] / known.exact[local].sum()
    others = np.empty(0, np.int64) if moment == AT_FIRST else _half_way(known, known.domains[domain], seed)
    frontier = _of_pages(known, local, others).frontier()
    ranks = ranks_of(frontier, DAMPING, _EXACT).values
    scores = {
        "influence": influence(frontier, ranks, DAMPING),
        "by_table": influence(frontier, ranks, DAMPING, NORM_STEPS),
        "flow": flows(frontier, ranks),
        "linkers": linkers(frontier),
    }
    before = frontier.local_ranks(ranks).values
    random = np.random.Generator(np.random.PCG64([seed, 1]))
    count = len(frontier.pages)
    which: Row = {"seed": seed, "web": web, "domain": domain, "moment": moment, "n": len(local), "candidates": count}
    rows: list[Row] = []
    for candidate in np.sort(random.choice(count, min(CANDIDATES, count), replace=False, shuffle=False)).tolist():
        page = int(frontier.pages[candidate])
        after = estimate_with(known, local, others, page, ranks)
        row = which | {"page": page} | {name: float(values[candidate]) for name, values in scores.items()}
        diff = l1(after, true)
        rows.append(row | {"moved": l1(after, before), "diff": diff, "gain": l1(before, true) - diff})
    return rows


def estimate_with(web: SurveyedWeb, local: Ints, others: Ints, page: int, ranks: Floats) -> Floats:
    """Return the ranks of a domain, scaled to sum 1, in F with one more page; `ranks` are those of F without it."""
    expansion = _of_pages(web, local, others)
    expansion.add(web.recorded.fetch(np.array([page], np.uint64)), np.zeros(1, np.bool_))
    frontier = expansion.frontier()
    estimate: Floats = frontier.local_ranks(ranks_of(frontier, DAMPING, _EXACT, ranks).values).values
    return estimate


def _half_way(web: SurveyedWeb, domain: Domain, seed: int) -> Ints:
    """Return the pages that SC-Select reads in half of the rounds."""
    rounds, a_round = pace(domain)
    select, expansion = selection_named(SC, web, seed), _of_pages(web, domain.pages)
    *_, last = find_global_ranks(expansion, web.recorded, select, rounds // 2, a_round, DAMPING)
    read: Ints = last.frontier.ids[len(domain.pages) :].astype(np.int64)
    return read


def _of_pages(web: SurveyedWeb, local: Ints, others: Ints | None = None) -> Expansion:
    """Return an expansion of a local domain, and of other pages that were read."""
    expansion = Expansion()
    expansion.add(web.recorded.fetch(local.astype(np.uint64)), np.ones(len(local), np.bool_))
    if others is not None and len(others):
        expansion.add(web.recorded.fetch(others.astype(np.uint64)), np.zeros(len(others), np.bool_))
    return expansion
