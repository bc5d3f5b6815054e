"""The cost of updating ranks after a part of the pages changed their links, in visits of links.

All methods begin with the exact ranks before the change, and are measured by their true distance from those after it,
in L1. A *scan* is as many visits of links as the web has links. Links to a page may be stored by their targets, so that
a method visits those alone that it needs.

- *all again*, *warm start*: steps of PageRank from equal ranks, or from those before.
- *aggregation*: the update of Langville and Meyer (2004). The changed pages and the most important ones, a share of all
  in all, stay single; all others are one state, in which they keep their proportions. A round finds the stationary
  vector of that small chain, and smoothes it by one step over the whole web.
- *certified*: a ledger gets visits of the changed pages, and pushes residuals, so many for each visit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from opicflow.pipelines.lab.experiments.measures import DAMPING, exact_importance
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.crawl import announcements, visits
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import Certified, Ledger, LedgerConfig, TickEntry
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.arrays import Bools, Floats, Ints

DISTANCES = (1e-2, 1e-3, 1e-4, 1e-6)
SHARES = (0.01, 0.0001)
SINGLE_SHARES = (0.02, 0.05, 0.2)
PUSHES = (1, 4, 16, 64, 256)
_FIRST_VISITS = 6
"""Of each page, before the change: so the ledger begins with the exact ranks, too."""
_MOST_ROUNDS = 200
_INNER_TOLERANCE = 0.05


def updated(pages: int, seed: int, share: float) -> list[Row]:
    """Measure how many scans each method needs to come within each distance; NaN where it does not."""
    random = np.random.Generator(np.random.PCG64([seed, 7]))
    web = power_law_web(pages, seed)
    changed = np.sort(random.choice(np.flatnonzero(web.out_degrees > 0), max(1, round(share * pages)), replace=False))
    after = _with_other_links(web, changed, random)
    before, exact = exact_importance(web), exact_importance(after)
    steps = _Steps(after)
    found = {
        "all again": _scans_of_steps(steps, np.full(pages, 1 / pages), exact),
        "warm start": _scans_of_steps(steps, before, exact),
    }
    for single in SINGLE_SHARES:
        is_single = np.zeros(pages, np.bool_)
        is_single[changed] = True
        rest = max(0, round(single * pages) - len(changed))
        is_single[np.argsort(-before, kind="stable")[:rest]] = True
        found[f"aggregation, {single:.0%} single"] = _aggregated(steps, is_single, before, exact)
    found["certified"] = _certified(web, after, seed, changed, exact)
    return [
        {"seed": seed, "share": share, "method": method, "distance": distance, "scans": scans}
        for method, costs in found.items()
        for distance, scans in zip(DISTANCES, _first_within(costs), strict=True)
    ]


def _first_within(costs: list[tuple[float, float]]) -> Iterator[float]:
    """Yield for each distance the first cost, in scans, at which a method was within it."""
    for distance in DISTANCES:
        yield next((scans for scans, apart in costs if apart <= distance), float("nan"))


def _with_other_links(web: Graph, changed: Ints, random: np.random.Generator) -> Graph:
    """Return the web after the links of some pages were replaced by links to other pages, as popular as before."""
    of_changed = np.isin(web.sources, changed)
    targets = web.targets.astype(np.int64)
    targets[of_changed] = random.choice(targets, int(of_changed.sum()))
    return Graph.from_links(web.pages, web.sources, targets, web.weights)


class _Steps:
    """Steps of PageRank over the links of a web, in which a page without links pays all pages."""

    def __init__(self, web: Graph) -> None:
        self.pages, self.links = web.pages, len(web.targets)
        self.sources, self.targets = web.sources, web.targets
        totals = np.maximum(web.out_weights, 1)[self.sources]
        self.parts = DAMPING * web.weights / totals
        self.is_paying = web.out_degrees > 0

    def next(self, ranks: Floats) -> Floats:
        """Return the ranks after a step over all links."""
        paid = np.bincount(self.targets, self.parts * ranks[self.sources], self.pages)
        stepped: Floats = paid + (1.0 - paid.sum()) / self.pages
        return stepped


def _scans_of_steps(steps: _Steps, start: Floats, exact: Floats) -> list[tuple[float, float]]:
    ranks, found = start, [(0.0, float(np.abs(start - exact).sum()))]
    while found[-1][1] > DISTANCES[-1] and len(found) <= _MOST_ROUNDS:
        ranks = steps.next(ranks)
        found.append((float(len(found)), float(np.abs(ranks - exact).sum())))
    return found


def _aggregated(steps: _Steps, is_single: Bools, start: Floats, exact: Floats) -> list[tuple[float, float]]:
    """Return the costs in scans, and the distances, after each round of aggregation."""
    within = is_single[steps.sources] & is_single[steps.targets]
    entering = ~is_single[steps.sources] & is_single[steps.targets]
    sources, targets, parts = (column[within] for column in (steps.sources, steps.targets, steps.parts))
    ranks, visited, found = start, 0, [(0.0, float(np.abs(start - exact).sum()))]
    while found[-1][1] > DISTANCES[-1] and len(found) <= _MOST_ROUNDS:
        rest = np.where(is_single, 0.0, ranks)
        rest /= rest.sum()
        enters = np.bincount(
            steps.targets[entering], steps.parts[entering] * rest[steps.sources[entering]], steps.pages
        )
        pays = float(rest[steps.is_paying].sum())
        visited += int(entering.sum())
        own, others = np.where(is_single, ranks, 0.0), float(ranks[~is_single].sum())
        moved, first_move = np.inf, np.inf
        while moved > _INNER_TOLERANCE * first_move or first_move == np.inf:
            paid = np.bincount(targets, parts * own[sources], steps.pages) + others * enters
            teleport = 1.0 - DAMPING * (float(own[steps.is_paying].sum()) + others * pays)
            after = np.where(is_single, paid + teleport / steps.pages, 0.0)
            moved = float(np.abs(after - own).sum())
            first_move = moved if first_move == np.inf else first_move
            own, others = after, 1.0 - float(after.sum())
            visited += len(sources) + int(np.count_nonzero(enters))
            if moved < 1e-15:
                break
        ranks = steps.next(own + others * rest)
        visited += steps.links
        found.append((visited / steps.links, float(np.abs(ranks - exact).sum())))
    return found


def _certified(web: Graph, after: Graph, seed: int, changed: Ints, exact: Floats) -> list[tuple[float, float]]:
    """Return the cost in scans, and the distance, for each number of pushes a visit."""
    ids, found = page_ids(web.pages, seed), []
    for pushes in PUSHES:
        ledger = Ledger(LedgerConfig(history=Certified(1e-9, pushes), damping=DAMPING))
        ledger.apply(announcements(ids))
        everything = np.tile(np.arange(web.pages), _FIRST_VISITS)
        ledger.apply(visits(web, ids, everything, web.pages))
        ledger.apply(TickEntry(1))
        transfers = ledger.transfers
        ledger.apply(visits(after, ids, changed, (_FIRST_VISITS + 1) * web.pages))
        ledger.apply(TickEntry(2))
        apart = float(np.abs(ledger.estimate(ids).importance - exact).sum())
        found.append(((ledger.transfers - transfers) / len(after.targets), apart))
    return found
