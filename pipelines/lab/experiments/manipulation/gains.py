"""Measures of manipulation: what a target and its domain gain in importance, under each history policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opicflow.pipelines.lab.experiments.manipulation.schemes import (
    READ,
    ManipulatedWeb,
    manipulated_web,
    without_links_in_domains,
)
from opicflow.pipelines.lab.experiments.measures import DAMPING, exact_importance
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.crawl import announcements, visits
from opicflow.pipelines.lab.web.webs import page_ids
from opicflow.pipelines.ledger import (
    All,
    Certified,
    DomainLimits,
    Interpolation,
    Ledger,
    LedgerConfig,
    TickEntry,
    Variable,
)
from opicflow.pipelines.ledger.entries import CrawlEntry
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.ranks.graph.trust import spam_mass
from opicflow.schemas.arrays import Bools, Floats, Ints
from opicflow.schemas.pages import PageIds

CERTIFIED, NO_UNREAD, NO_INTERNAL = "certified", "unread-weight=0", "internal-weight=0"
MOST_SHARE, MOST_UNREAD, MOST_ANNOUNCED = 0.001, 100, 10
LIMITED_SHARE = f"max-share-per-domain={MOST_SHARE:g}"
LIMITED_UNREAD = f"--max-unread-per-domain {MOST_UNREAD}"
LIMITED_ANNOUNCED = f"max-announced-per-domain={MOST_ANNOUNCED}"
LEDGERS = {
    CERTIFIED: LedgerConfig(history=Certified()),
    "interpolation": LedgerConfig(history=Interpolation()),
    "variable": LedgerConfig(history=Variable()),
    "all": LedgerConfig(history=All()),
    NO_UNREAD: LedgerConfig(history=Certified(), class_weights=(0, 16)),
    NO_INTERNAL: LedgerConfig(history=Certified()),
    LIMITED_SHARE: LedgerConfig(history=Certified(), domains=DomainLimits(most_share=MOST_SHARE)),
    LIMITED_UNREAD: LedgerConfig(history=Certified(), domains=DomainLimits(most_unread=MOST_UNREAD)),
    LIMITED_ANNOUNCED: LedgerConfig(history=Certified(), domains=DomainLimits(most_announced=MOST_ANNOUNCED)),
}
"""The history policies that are compared, and options that change importance, with the history policy certified.

`internal-weight=0` here includes `same-site=domain`: links within a registrable domain do not count.
"""
EXACT = "off line"
WARM_UP, MARKS = 8, (1, 8)
"""The rounds before the manipulation begins; after how many more it is measured."""
_BATCHES = 20
_DAY = 86_400
_FIRST_DAY = 20_000


def manipulation_gains(pages: int, seed: int, scheme: str, size: int) -> list[Row]:
    """Measure the importance of a target and of all the manipulator's pages, before a manipulation and after it.

    All honest pages and the target are read in every round, in random order; from the ninth round on so are the pages
    of the manipulator, if the scheme is one of `READ`. Shares of all importance are in per cent: `target_before` and
    `target` of the target, `own` of all pages of the manipulator, the target included. `round` counts from the
    beginning of the manipulation; the rows of `off line` have the exact ranks of the graph seen, the shares of trust,
    and `mass`, the spam mass of the target (trust comes from a tenth of the honest sites).
    """
    web = manipulated_web(pages, seed, scheme, size)
    thin = without_links_in_domains(web)
    named: Row = {"seed": seed, "scheme": scheme, "size": size}
    rows: list[Row] = []
    for name, config in LEDGERS.items():
        rows += _followed(thin if name == NO_INTERNAL else web, config, seed, scheme in READ, {**named, "how": name})
    return [*rows, _off_line(web, scheme in READ, {**named, "how": EXACT})]


class _Rounds:
    """Applies visits to a ledger, round by round, each in random order and with ticks."""

    def __init__(self, web: ManipulatedWeb, config: LedgerConfig, seed: int) -> None:
        by_site = config.domains.limit_anything
        self.ids = PageIds().of_all(web.urls) if by_site else page_ids(web.before.pages, seed)
        self.ledger = Ledger(config)
        self._random = np.random.Generator(np.random.PCG64([seed, 6]))
        self._day, self._end = _FIRST_DAY, 0

    def announce(self, numbers: Ints) -> None:
        self._apply(announcements(self.ids[numbers], start=self._end))

    def visit(self, graph: Graph, numbers: Ints) -> None:
        """Visit all these pages once."""
        self._day += 1
        order = self._random.permutation(numbers)
        for part, some in enumerate(np.array_split(order, _BATCHES)):
            second = self._day * _DAY + part * _DAY // _BATCHES
            times = np.full(len(some), 1000 * second, np.int64)
            self._apply(visits(graph, self.ids, some, self._end, None, times))
            self.ledger.apply(TickEntry(second + _DAY // _BATCHES // 2))

    def importance(self) -> Floats:
        """Return the importance of every page."""
        found: Floats = self.ledger.estimate(self.ids).importance
        return found

    def _apply(self, entry: CrawlEntry) -> None:
        self.ledger.apply(entry)
        self._end = entry.end.offset


def _followed(web: ManipulatedWeb, config: LedgerConfig, seed: int, is_read: bool, named: Row) -> Sequence[Row]:
    rounds = _Rounds(web, config, seed)
    visited = np.arange(web.target + 1)
    rounds.announce(visited)
    for _ in range(WARM_UP):
        rounds.visit(web.before, visited)
    before = rounds.importance()
    if web.is_announced:
        rounds.announce(web.made)
    if is_read:
        visited = np.concatenate((visited, web.made))
    rows: list[Row] = []
    for number in range(1, max(MARKS) + 1):
        rounds.visit(web.after, visited)
        if number in MARKS:
            after = rounds.importance()
            rows.append({**named, "round": number, **_shares(web, before, after)})
    return rows


def _shares(web: ManipulatedWeb, before: Floats, after: Floats) -> Row:
    return {
        "target_before": float(before[web.target]) * 100.0,
        "target": float(after[web.target]) * 100.0,
        "own": float(after[web.is_own].sum()) * 100.0,
        "position": int((after > after[web.target]).sum()) + 1,
    }


def _off_line(web: ManipulatedWeb, is_read: bool, named: Row) -> Row:
    seen = web.seen(is_read)
    known = ~web.is_own
    known[web.target] = True
    first = _ranks_of_known(web.before, known)
    known[web.made] = True
    importance = _ranks_of_known(seen, known)
    trusted = [pagerank(graph, DAMPING, web.good.astype(np.float64), 1e-10).values for graph in (web.before, seen)]
    masses = [spam_mass(values, trust)[web.target] for values, trust in zip((first, importance), trusted, strict=True)]
    row: Row = {**named, "round": max(MARKS), **_shares(web, first, importance)}
    row |= {"trust_before": float(trusted[0][web.target]) * 100.0, "trust": float(trusted[1][web.target]) * 100.0}
    row |= {"trust_own": float(trusted[1][web.is_own].sum()) * 100.0}
    return row | {"mass_before": float(masses[0]), "mass": float(masses[1])}


def _ranks_of_known(graph: Graph, known: Bools) -> Floats:
    """Return the importance of the known pages, which lead to known pages alone; 0 for the others."""
    sources = graph.sources
    numbers = np.cumsum(known) - 1
    kept = known[sources] & known[graph.targets]
    found = np.zeros(graph.pages)
    among = Graph.from_links(int(known.sum()), numbers[sources[kept]], numbers[graph.targets[kept]])
    found[known] = exact_importance(among)
    return found
