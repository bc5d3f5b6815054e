"""Measures of ranks of sites on made-up webs: how alike they are, and what a site gains by pages of its own."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np

from opicflow.pipelines.lab.experiments.discovery.crawled_webs import crawled_web
from opicflow.pipelines.lab.experiments.measures import DAMPING, correlation, exact_importance
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.webs import page_ids
from opicflow.pipelines.ledger import Certified, History, Interpolation, ItemWriter, Ledger, LedgerConfig, LogPosition
from opicflow.pipelines.ledger.entries import PageLink
from opicflow.pipelines.ranks.graph.comparison import kendall_tau
from opicflow.pipelines.ranks.graph.csr import MOST_LINK_WEIGHT, ORDINARY_LINK_WEIGHT, Graph
from opicflow.schemas.arrays import Floats, Ints

SUM, BY_LINKS, BY_PAGES, KEEPING, PAGES = "sum", "links", "pages", "links, internal kept", "number of pages"
KINDS = (SUM, BY_LINKS, BY_PAGES, KEEPING, PAGES)
"""Sums of the importance of pages; the graph of sites by links, by pages, with internal links; and page counts."""
READ = (25, 50, 100, 200)
"""Per cent of the pages, after which a ledger of sites is compared."""
GROWN = (1, 10)
"""The multiples of its pages that a site adds."""
HISTORIES: dict[str, History] = {"certified": Certified(), "interpolation": Interpolation()}
_TOP = 20
_BATCH = 512


def site_ranks(pages: int, seed: int, web: str) -> list[Row]:
    """Measure how alike two ranks of hosts are: Kendall's tau, and what share of the best twenty is common."""
    made = crawled_web(web, pages, seed).pages
    values = _all_kinds(made.graph, made.site.astype(np.int64))
    rows: list[Row] = []
    for one, other in combinations(KINDS, 2):
        best = [set(np.argsort(-values[kind], kind="stable")[:_TOP].tolist()) for kind in (one, other)]
        rows.append(
            {
                "seed": seed,
                "web": web,
                "one": one,
                "other": other,
                "tau": kendall_tau(values[one], values[other]) or 0.0,
                "spearman": correlation(values[one], values[other]),
                "top": 100.0 * len(best[0] & best[1]) / _TOP,
                "sites": len(values[one]),
            }
        )
    return rows


def site_growth(pages: int, seed: int, web: str, times: int) -> list[Row]:
    """Measure the gain of a host by pages of its own: each links to its front page, which links to all these pages.

    The host is one of average size. `gain` is its rank over that before, as a share of all.
    """
    made = crawled_web(web, pages, seed).pages
    sizes = np.bincount(made.site)
    site = int(np.argsort(np.abs(sizes - sizes.mean()), kind="stable")[0])
    more = int(sizes[site]) * times
    front = int(np.flatnonzero(made.site == site)[0])
    graph, sources, targets = made.graph, made.graph.sources, made.graph.targets.astype(np.int64)
    added = np.arange(graph.pages, graph.pages + more)
    sources = np.concatenate((sources, added, np.full(more, front)))
    targets = np.concatenate((targets, np.full(more, front), added))
    grown = _graph(graph.pages + more, sources, targets)
    hosts = made.site.astype(np.int64)
    before = _all_kinds(graph, hosts)
    after = _all_kinds(grown, np.concatenate((hosts, np.full(more, site))))
    return [
        {"seed": seed, "web": web, "times": times, "kind": kind, "gain": _share(after[kind], site) / share}
        for kind in KINDS
        if (share := _share(before[kind], site)) > 0
    ]


def site_ledger(pages: int, seed: int, web: str, history: str) -> list[Row]:
    """Measure a ledger of hosts: a visit of a page is a visit of its host, with the links of its pages as last seen.

    Pages are read in random order, each once before any is read again. `distance` is the L1 distance from the exact
    ranks of the graph of all hosts, in per cent, and `seen` that from the graph of the pages read.
    """
    made = crawled_web(web, pages, seed).pages
    graph, site = made.graph, made.site.astype(np.int64)
    sites = int(site.max()) + 1
    exact = exact_importance(_site_graph(graph, site, sites))
    ids = page_ids(sites, seed).tolist()
    order = np.random.Generator(np.random.PCG64([seed, 11])).permutation(graph.pages)
    ledger = Ledger(LedgerConfig(history=HISTORIES[history], damping=DAMPING, remember_links=True))
    last_seen: list[Counter[int]] = [Counter() for _ in range(sites)]
    first = ItemWriter()
    for one in ids:
        first.sighting(one)
    start = first.next_position
    ledger.apply(first.entry("log", LogPosition(0, 0)))
    rows: list[Row] = []
    for percent, count in ((percent, graph.pages * percent // 100) for percent in READ):
        done = len(order) * (0 if percent == READ[0] else READ[READ.index(percent) - 1]) // 100
        for begin in range(done, count, _BATCH):
            log = ItemWriter(start)
            for page in order[np.arange(begin, min(begin + _BATCH, count)) % graph.pages].tolist():
                here, links = int(site[page]), last_seen[site[page]]
                if begin < graph.pages:
                    found = site[graph.targets[graph.starts[page] : graph.starts[page + 1]]]
                    links.update(found[found != here].tolist())
                most = max(links.values(), default=1)
                log.visit(ids[here], [PageLink(ids[target], _weight(n, most)) for target, n in links.items()])
            ledger.apply(log.entry("log", start))
            start = log.next_position
        read = np.zeros(graph.pages, np.bool_)
        read[order[: min(count, graph.pages)]] = True
        seen = exact_importance(_site_graph(graph.without_links(~read), site, sites))
        importance = ledger.estimate(np.array(ids, np.uint64)).importance
        away = {"distance": _distance(importance, exact), "seen": _distance(importance, seen)}
        tau = kendall_tau(importance, exact) or 0.0
        rows.append({"seed": seed, "web": web, "history": history, "percent": percent, **away, "tau": tau})
    ledger.audit()
    return rows


def _weight(number: int, most: int) -> int:
    """Return the weight of so many links; only the ratios of a site's weights count, so most weights fit."""
    return (
        max(1, MOST_LINK_WEIGHT * number // most)
        if most * ORDINARY_LINK_WEIGHT > MOST_LINK_WEIGHT
        else (ORDINARY_LINK_WEIGHT * number)
    )


def _distance(one: Floats, other: Floats) -> float:
    return float(np.abs(one / one.sum() - other / other.sum()).sum()) * 100.0


def _share(values: Floats, site: int) -> float:
    return float(values[site] / values.sum())


def _all_kinds(graph: Graph, site: Ints) -> dict[str, Floats]:
    """Return the value of every site by each of `KINDS`."""
    sites = int(site.max()) + 1
    return {
        SUM: np.bincount(site, weights=exact_importance(graph), minlength=sites).astype(np.float64),
        BY_LINKS: exact_importance(_site_graph(graph, site, sites)),
        BY_PAGES: exact_importance(_site_graph(graph, site, sites, by_pages=True)),
        KEEPING: exact_importance(_site_graph(graph, site, sites, internal=True)),
        PAGES: np.bincount(site, minlength=sites).astype(np.float64),
    }


def _site_graph(graph: Graph, site: Ints, sites: int, by_pages: bool = False, internal: bool = False) -> Graph:
    """Return the graph of sites. A link weighs the number of links of pages, or of the pages that link."""
    sources, targets = graph.sources, graph.targets
    source_sites, target_sites = site[sources].astype(np.int64), site[targets].astype(np.int64)
    if by_pages:
        pairs = np.unique(sources * sites + target_sites)
        source_sites, target_sites = site[pairs // sites].astype(np.int64), pairs % sites
    if not internal:
        leaves = source_sites != target_sites
        source_sites, target_sites = source_sites[leaves], target_sites[leaves]
    return _graph(sites, source_sites, target_sites)


def _graph(nodes: int, sources: Ints, targets: Ints) -> Graph:
    """Return a graph, in which links that occur several times weigh as much together."""
    pairs, counts = np.unique(sources * nodes + targets, return_counts=True)
    origins = pairs // nodes
    most = np.zeros(nodes, np.int64)
    np.maximum.at(most, origins, counts)
    fits = most * ORDINARY_LINK_WEIGHT <= MOST_LINK_WEIGHT
    scaled = np.maximum(MOST_LINK_WEIGHT * counts // np.maximum(most[origins], 1), 1)
    weights = np.where(fits[origins], ORDINARY_LINK_WEIGHT * counts, scaled)
    return Graph(np.searchsorted(origins, np.arange(nodes + 1)), pairs % nodes, weights)
