"""Group `certified`: what exact importance costs a visit, and how fast a change of the web reaches the ranks.

One machine, one process, CPU time. The ranks of every method are within 1e-4 of the exact ones, which is checked
before the clock starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    found: list[Floats] = []

    def update(number: int) -> float:
        ledger.apply(web.entries[number])
        ledger.apply(TickEntry(3600 * (number + 1)))  # what the last cut left is pushed
        found.append(ledger.estimate(web.ids).importance)
        certificates.append(ledger.certificate() or 0.0)
        return 1.0

    others: dict[str, Callable[[int], Floats]] = {"cold": lambda number: from_nothing(web.graphs[number])}
    before = from_nothing(web.first)

    def warm(number: int) -> Floats:
        nonlocal before
        before = pagerank(web.graphs[number], tolerance=TOLERANCE / 10, start=before).values
        return before

    others["warm_rank"] = warm
    others.update(libraries(web))
    results: dict[str, list[Floats]] = {name: [] for name in others}

    def by(name: str) -> Callable[[int], float]:
        def work(number: int) -> float:
            results[name].append(others[name](number))
            return 1.0

        return work

    ours, *theirs = race(sizes.rounds, update, *(by(name) for name in others))
    for number, graph in enumerate(web.graphs):
        exact = pagerank(graph, tolerance=1e-14).values
        distances = {"certified": found[number], **{name: result[number] for name, result in results.items()}}
        for name, importance in distances.items():
            distance = float(np.abs(importance - exact).sum())
            check(distance <= TOLERANCE, f"{name} is within {TOLERANCE} of the exact ranks: {distance:.1e}")
        distance = float(np.abs(found[number] - exact).sum())
        check(distance <= certificates[number], f"the certificate {certificates[number]:.1e} covers {distance:.1e}")
    changed = f"{_CHANGED_SHARE:.0%} of them with other links"
    of = f"{sizes.pages:,} pages, {LINKS} links each, {changed}, to within {TOLERANCE}"
    for name, baseline in zip(others, theirs, strict=True):
        figure = "certified.update_vs_recompute" if name == "cold" else f"certified.update_vs_{name}"
        yield versus(figure, ours, "updates/s", baseline, f"against {DESCRIPTIONS[name]}, {of}")


DESCRIPTIONS = {
    "cold": "computing all ranks from nothing",
    "warm_rank": "computing all ranks from those before the change",
    "scikit_network": "scikit-network on a ready matrix",
    "igraph": "igraph on a ready graph",
}


def from_nothing(graph: Graph) -> Floats:
    """Ranks to the tolerance, by our own solver."""
    return pagerank(graph, tolerance=TOLERANCE / 10, gauss_seidel=True).values


def libraries(web: ChangingWeb) -> dict[str, Callable[[int], Any]]:
    """The solvers of other libraries, if they are installed; their graphs are made before the clock starts."""
    try:
        import igraph
        from scipy import sparse
        from sknetwork.ranking import PageRank
    except ImportError as missing:
        say(f"certified: SKIPPED comparisons: {missing}; pip install scikit-network igraph")
        return {}
    graphs, matrices = [], []
    for graph in web.graphs:
        sources = np.repeat(np.arange(graph.pages), graph.out_degrees)
        edges = np.stack((sources, graph.targets), 1)
        graphs.append((igraph.Graph(n=graph.pages, edges=edges, directed=True), graph.weights.tolist()))
        matrix = (graph.weights.astype(float), graph.targets, graph.starts)
        matrices.append(sparse.csr_matrix(matrix, shape=(graph.pages, graph.pages)))
    return {
        "scikit_network": lambda number: PageRank(n_iter=100, tol=TOLERANCE / 10).fit_predict(matrices[number]),
        "igraph": lambda number: np.array(graphs[number][0].pagerank(weights=graphs[number][1])),
    }
