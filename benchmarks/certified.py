"""Group `certified`: what exact importance costs a visit, and how fast a change of the web reaches the ranks.

One machine, one process, CPU time. The ranks of every method have to be within 1e-4 of the exact ones, and those of
the ledger within its certificate: otherwise the run ends without figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.graph import library_solvers
from benchmarks.harness import Figure, Scale, check, race, say, versus
from opicflow.pipelines.lab.web.crawl import announcements, visits
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import Certified, CrawlEntry, Ledger, LedgerConfig, TickEntry
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.schemas.arrays import Floats, Ids, Ints

SEED = 1
LINKS = 10
TOLERANCE = 1e-4
"""How far ranks may be from the exact ones: the sum of all differences."""
CHANGED_SHARES = {0.01: "update", 0.0001: "small_update"}
"""The shares of pages that a batch finds changed, and the names of their figures."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    pages: int = 100_000
    visits_per_batch: int = 20_000
    rounds: int = 10


_FEWEST_CHANGED = 4
"""Every visit pushes a bounded number of pages, and the changes of one are too much for it."""
TINY = Sizes(3_000, 500, 2)


def measure(scale: Scale) -> Iterator[Figure]:
    """All figures of the group."""
    sizes = scale.pick(TINY, Sizes())
    say("certified: visits beside interpolation")
    yield from visits_beside_interpolation(sizes)
    for share, name in CHANGED_SHARES.items():
        say(f"certified: {share:.2%} of the pages change all their links")
        yield from changes(sizes, share, name)


def visits_beside_interpolation(sizes: Sizes) -> Iterator[Figure]:
    """The same visits in random order by a certified ledger, the default of replays, and by one with interpolation.

    Its tolerance is out of reach, so that it makes all pushes that it may: with the usual one it would soon make none.
    """
    web, ids = power_law_web(sizes.pages, SEED, LINKS), page_ids(sizes.pages, SEED)
    certified, interpolation = Ledger(LedgerConfig(history=Certified(1e-9))), Ledger()
    order = np.random.default_rng(SEED).permutation(sizes.pages)
    for ledger in (certified, interpolation):
        ledger.apply(announcements(ids))
        ledger.apply(visits(web, ids, order, sizes.pages))
    start = 2 * sizes.pages
    batches = []
    for number in range(sizes.rounds + 1):
        chosen = np.take(order, np.arange(sizes.visits_per_batch) + number * sizes.visits_per_batch, mode="wrap")
        batches.append(visits(web, ids, chosen, start))
        start += sizes.visits_per_batch

    def apply_to(ledger: Ledger) -> Callable[[int], float]:
        def work(number: int) -> float:
            ledger.apply(batches[number])
            return sizes.visits_per_batch

        return work

    value, baseline = race(sizes.rounds, apply_to(certified), apply_to(interpolation))
    check(certified.audit().drift == 0 and interpolation.audit().drift == 0, "the ledgers' books balance")
    of = f"{sizes.pages:,} pages, {LINKS} links each, {Certified().pushes_per_visit} pushes a visit"
    yield versus("certified.visits_vs_interpolation", value, "visits/s", baseline, f"against interpolation, {of}")
    how = "columns and index, room to grow included, without URLs and remembered links"
    yield Figure("certified.bytes_per_page", certified.bytes_per_page(), "bytes", how)
    yield Figure("certified.bytes_per_link", certified.link_bytes(), "bytes", "remembered links, room to grow included")


class ChangingWeb:
    """A web of which some pages change their links in every batch, as the visits that find out and as graphs."""

    def __init__(self, pages: int, batches: int, share: float) -> None:
        self.ids: Ids = page_ids(pages, SEED)
        self.order = np.argsort(self.ids)
        random = np.random.default_rng(SEED)
        web = power_law_web(pages, SEED, LINKS)
        self.first = web
        self.entries: list[CrawlEntry] = []
        self.graphs: list[Graph] = []
        start = 2 * pages
        for _ in range(batches):
            changed = random.choice(pages, max(int(share * pages), _FEWEST_CHANGED), replace=False)
            web = with_other_links(web, changed, random)
            self.graphs.append(web)
            self.entries.append(visits(web, self.ids, changed, start))
            start += len(changed)

    def graph_after(self, number: int) -> Graph:
        """The graph after a batch, by those who keep a graph: from the one before and the visits of the batch."""
        items, before = self.entries[number].items, self.graphs[number - 1] if number else self.first
        changed, targets = self._rows(items.page), self._rows(items.link_pages)
        keeps = np.ones(before.pages, bool)
        keeps[changed] = False
        kept = keeps[before.sources]
        return Graph.from_links(
            before.pages,
            np.concatenate((before.sources[kept], np.repeat(changed, np.diff(items.link_starts)))),
            np.concatenate((before.targets[kept], targets)),
            np.concatenate((before.weights[kept], items.link_weights)),
        )

    def _rows(self, pages: Ids) -> Ints:
        return self.order[np.searchsorted(self.ids, pages, sorter=self.order)]


def with_other_links(web: Graph, changed: Ints, random: np.random.Generator) -> Graph:
    """Return the web after the links of some pages were replaced by links to other pages, as popular as before."""
    sources = web.sources
    of_changed = np.isin(sources, changed)
    targets = web.targets.astype(np.int64)
    targets[of_changed] = random.choice(targets, int(of_changed.sum()))
    loops = targets == sources
    targets[loops] = (targets[loops] + 1) % web.pages
    return Graph.from_links(web.pages, sources, targets, web.weights)


def changes(sizes: Sizes, share: float, name: str) -> Iterator[Figure]:
    """From a batch of visits to ranks: by pushing what changed, and by updating a graph and computing all ranks."""
    web = ChangingWeb(sizes.pages, sizes.rounds + 1, share)
    ledger = Ledger(LedgerConfig(history=Certified(TOLERANCE, 1024)))
    ledger.apply(announcements(web.ids))
    ledger.apply(visits(web.first, web.ids, np.arange(sizes.pages), sizes.pages))
    ledger.apply(TickEntry(1))
    certificates: list[float] = []
    last = from_nothing(web.first)
    solvers_for = partial(library_solvers, most_steps=100, tolerance=TOLERANCE / 10)

    def certified(number: int) -> Floats:
        ledger.apply(web.entries[number])
        ledger.apply(TickEntry(3600 * (number + 1)))  # what the last cut left is pushed
        certificates.append(ledger.certificate() or 0.0)
        return ledger.estimate_all().importance  # in the order in which pages were announced

    def warm(graph: Graph) -> Floats:
        nonlocal last
        last = pagerank(graph, tolerance=TOLERANCE / 10, start=last).values
        return last

    solvers: dict[str, Callable[[Graph], Floats]] = {
        "recompute": from_nothing,
        "warm_rank": warm,
        **{
            library: lambda graph, one=library: solvers_for(graph, only=one)[one]()
            for library in solvers_for(web.first)
        },
    }
    methods: dict[str, Callable[[int], Floats]] = {
        "certified": certified,
        **{one: lambda number, solve=solve: solve(web.graph_after(number)) for one, solve in solvers.items()},
        "recompute_ready": lambda number: from_nothing(web.graphs[number]),
    }
    results: dict[str, list[Floats]] = {one: [] for one in methods}

    def by(one: str) -> Callable[[int], float]:
        def work(number: int) -> float:
            results[one].append(methods[one](number))
            return 1.0

        return work

    ours, *theirs = race(sizes.rounds, *map(by, methods))
    for number, graph in enumerate(web.graphs):
        exact = pagerank(graph, tolerance=1e-14).values
        distances = {one: float(np.abs(result[number] - exact).sum()) for one, result in results.items()}
        for one, distance in distances.items():
            check(distance <= TOLERANCE, f"{one} is within {TOLERANCE} of the exact ranks: {distance:.1e}")
        check(distances["certified"] <= certificates[number], "no certificate is below the true distance")
    of = f"{sizes.pages:,} pages, {LINKS} links each, {share:.2%} with other links, to within {TOLERANCE}"
    for one, baseline in zip(list(methods)[1:], theirs, strict=True):
        yield versus(f"certified.{name}_vs_{one}", ours, "updates/s", baseline, f"against {DESCRIPTIONS[one]}, {of}")


DESCRIPTIONS = {
    "recompute": "updating a graph, then all ranks from nothing",
    "warm_rank": "updating a graph, then all ranks from those before the change",
    "scikit_network": "updating a graph, then scikit-network",
    "igraph": "updating a graph, then igraph",
    "recompute_ready": "all ranks from nothing, on a graph that somebody else has updated",
}


def from_nothing(graph: Graph) -> Floats:
    """Ranks to the tolerance, by our own solver."""
    return pagerank(graph, tolerance=TOLERANCE / 10, gauss_seidel=True).values
