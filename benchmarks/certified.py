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
from benchmarks.harness import Figure, check, race, say, versus
from opicflow.pipelines.graph.csr import Graph
from opicflow.pipelines.graph.oracle import pagerank
from opicflow.pipelines.ledger import Certified, CrawlEntry, Ledger, LedgerConfig, TickEntry
from opicflow.pipelines.web.crawl import announcements, visits
from opicflow.pipelines.web.webs import page_ids, power_law_web
from opicflow.schemas.arrays import Floats, Ids, Ints

SEED = 1
LINKS = 10
TOLERANCE = 1e-4
"""How far ranks may be from the exact ones: the sum of all differences."""
_CHANGED_SHARE = 0.01


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    pages: int = 100_000
    visits_per_batch: int = 20_000
    rounds: int = 10


TINY = Sizes(3_000, 500, 2)


def measure(tiny: bool) -> Iterator[Figure]:
    """All figures of the group."""
    sizes = TINY if tiny else Sizes()
    say("certified: visits beside the default of the stream")
    yield from visits_beside_default(sizes)
    say("certified: changes of the web")
    yield from changes(sizes)


def visits_beside_default(sizes: Sizes) -> Iterator[Figure]:
    """The same visits in random order by a certified ledger and by one of the stream's default policy."""
    web, ids = power_law_web(sizes.pages, SEED, LINKS), page_ids(sizes.pages, SEED)
    certified, default = Ledger(LedgerConfig(history=Certified(TOLERANCE))), Ledger()
    order = np.random.default_rng(SEED).permutation(sizes.pages)
    for ledger in (certified, default):
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

    value, baseline = race(sizes.rounds, apply_to(certified), apply_to(default))
    check(certified.audit().drift == 0 and default.audit().drift == 0, "the ledgers' books balance")
    of = f"{sizes.pages:,} pages, {LINKS} links each, at most {Certified().pushes_per_visit} pushes a visit"
    yield versus("certified.visits_vs_default", value, "visits/s", baseline, f"against the default history, {of}")
    how = "columns and index, room to grow included, without URLs and remembered links"
    yield Figure("certified.bytes_per_page", certified.bytes_per_page(), "bytes", how)
    yield Figure("certified.bytes_per_link", certified.link_bytes(), "bytes", "remembered links, room to grow included")


class ChangingWeb:
    """A web of which some pages change their links at every step, as a graph and as the visits that find out."""

    def __init__(self, pages: int, batches: int) -> None:
        self.ids: Ids = page_ids(pages, SEED)
        random = np.random.default_rng(SEED)
        web = power_law_web(pages, SEED, LINKS)
        self.first = web
        self.entries: list[CrawlEntry] = []
        self.graphs: list[Graph] = []
        start = 2 * pages
        for _ in range(batches):
            changed = random.choice(pages, max(int(_CHANGED_SHARE * pages), 1), replace=False)
            web = with_other_links(web, changed, random)
            self.graphs.append(web)
            self.entries.append(visits(web, self.ids, changed, start))
            start += len(changed)


def with_other_links(web: Graph, changed: Ints, random: np.random.Generator) -> Graph:
    """The web in which all links of these pages lead elsewhere, to pages as popular as before."""
    sources = np.repeat(np.arange(web.pages), web.out_degrees)
    of_changed = np.isin(sources, changed)
    targets = web.targets.astype(np.int64)
    targets[of_changed] = random.choice(targets, int(of_changed.sum()))
    loops = targets == sources
    targets[loops] = (targets[loops] + 1) % web.pages
    return Graph.from_links(web.pages, sources, targets, web.weights)


def changes(sizes: Sizes) -> Iterator[Figure]:
    """From a batch of changed pages to ranks: by pushing what changed, and by computing all ranks again."""
    say("certified: making the webs")
    web = ChangingWeb(sizes.pages, sizes.rounds + 1)
    ledger = Ledger(LedgerConfig(history=Certified(TOLERANCE, 1024)))
    ledger.apply(announcements(web.ids))
    ledger.apply(visits(web.first, web.ids, np.arange(sizes.pages), sizes.pages))
    certificates: list[float] = []
    before = from_nothing(web.first)
    solvers_for = partial(library_solvers, most_steps=100, tolerance=TOLERANCE / 10)
    libraries = [solvers_for(web.graphs[0])]
    if libraries[0]:
        libraries += map(solvers_for, web.graphs[1:])

    def update(number: int) -> Floats:
        ledger.apply(web.entries[number])
        ledger.apply(TickEntry(3600 * (number + 1)))  # what the last cut left is pushed
        certificates.append(ledger.certificate() or 0.0)
        return ledger.estimate(web.ids).importance

    def warm(number: int) -> Floats:
        nonlocal before
        before = pagerank(web.graphs[number], tolerance=TOLERANCE / 10, start=before).values
        return before

    methods: dict[str, Callable[[int], Floats]] = {
        "certified": update,
        "recompute": lambda number: from_nothing(web.graphs[number]),
        "warm_rank": warm,
        **{name: lambda number, name=name: libraries[number][name]() for name in libraries[0]},
    }
    results: dict[str, list[Floats]] = {name: [] for name in methods}

    def by(name: str) -> Callable[[int], float]:
        def work(number: int) -> float:
            results[name].append(methods[name](number))
            return 1.0

        return work

    ours, *theirs = race(sizes.rounds, *(by(name) for name in methods))
    for number, graph in enumerate(web.graphs):
        exact = pagerank(graph, tolerance=1e-14).values
        distances = {name: float(np.abs(result[number] - exact).sum()) for name, result in results.items()}
        for name, distance in distances.items():
            check(distance <= TOLERANCE, f"{name} is within {TOLERANCE} of the exact ranks: {distance:.1e}")
        check(distances["certified"] <= certificates[number], "no certificate is below the true distance")
    changed = f"{_CHANGED_SHARE:.0%} of them with other links"
    of = f"{sizes.pages:,} pages, {LINKS} links each, {changed}, to within {TOLERANCE}"
    for name, baseline in zip(list(methods)[1:], theirs, strict=True):
        yield versus(f"certified.update_vs_{name}", ours, "updates/s", baseline, f"against {DESCRIPTIONS[name]}, {of}")


DESCRIPTIONS = {
    "recompute": "computing all ranks from nothing",
    "warm_rank": "computing all ranks from those before the change",
    "scikit_network": "scikit-network on a ready matrix",
    "igraph": "igraph on a ready graph",
}


def from_nothing(graph: Graph) -> Floats:
    """Ranks to the tolerance, by our own solver."""
    return pagerank(graph, tolerance=TOLERANCE / 10, gauss_seidel=True).values
