"""The graph of sites equals links that are added up one by one, and its ranks those of the dense equations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ranks.graph.builder import BuildPlan, GraphBuilder
from opicflow.pipelines.ranks.graph.harmonic import exact_harmonic, hyperball
from opicflow.pipelines.ranks.graph.site_graph import SITE_LINKS, SiteGraph, SiteRules, fold
from opicflow.pipelines.ranks.graph.solver import Settings
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph
from opicflow.schemas.public_suffixes import installed_suffixes
from opicflow.schemas.sites import SITE_KINDS, SiteKind, SiteNumbering
from support.thorough import crossed

HOSTS = [
    "www.example.org",
    "example.org",
    "shop.example.co.uk",
    "example.co.uk:8080",
    "a.github.io",
    "b.github.io",
    "10.0.0.1",
    "10.0.0.1:81",
    "[2001:db8::1]",
    "localhost",
    "blog.example.org",
    "com",
]
Links = dict[tuple[int, int], int]


def host_of(page: int) -> str:
    return HOSTS[(page * 7919 >> 3) % len(HOSTS)]


def site_of(page: int, by: SiteKind) -> str:
    host = host_of(page)
    return host if by == "host" else installed_suffixes().site(host.encode()).decode()


def links_at_random(pages: int, links: int, weighted: bool, seed: int = 1) -> Links:
    random = np.random.default_rng(seed)
    pairs = random.integers(0, pages, (links, 2)) ** 2 // pages
    weights = random.integers(1, 9000, links) if weighted else np.full(links, 1024)
    return {(a, b): w for (a, b), w in zip(pairs.tolist(), weights.tolist(), strict=True) if a != b}


def built(path: Path, pages: int, links: Links, without_url: frozenset[int] = frozenset(), **plan: Any) -> StoredGraph:
    builder = GraphBuilder(path, BuildPlan(buckets=2, **plan))
    ids = np.random.default_rng(7).permutation(1 << 20)[:pages].astype(np.uint64) << np.uint64(44)
    urls = [b"" if page in without_url else f"https://{host_of(page)}/{page}".encode() for page in range(pages)]
    starts = np.cumsum([0, *map(len, urls)])
    builder.add_pages(ids, np.zeros(pages, np.uint8), starts, np.frombuffer(b"".join(urls), np.uint8))
    for page in range(pages):
        some = [(target, weight) for (source, target), weight in links.items() if source == page]
        targets, weights = (np.array([one[column] for one in some], np.int64) for column in (0, 1))
        bounds = np.array([0, len(some)])
        builder.add_visits(ids[page : page + 1], bounds, ids[targets], weights.astype(np.uint16), together=False)
    return builder.finish()


def weights_one_by_one(links: Links, rules: SiteRules, without_url: frozenset[int]) -> dict[tuple[str, str], float]:
    weights: Counter[tuple[str, str]] = Counter()
    counted = set()
    for (source, target), weight in links.items():
        if source in without_url or target in without_url:
            continue
        pair = site_of(source, rules.by), site_of(target, rules.by)
        factor = rules.internal if pair[0] == pair[1] else 1.0
        if rules.site_links == "pages":
            factor *= (source, pair[1]) not in counted
            counted.add((source, pair[1]))
            weight = 1024
        weights[pair] += factor * weight / 1024  # type: ignore[assignment]
    return {pair: weight for pair, weight in weights.items() if weight}


def weights_of(graph: SiteGraph) -> dict[tuple[str, str], float]:
    names = graph.numbering.names()
    targets = np.repeat(np.arange(graph.sites), np.diff(graph.starts)).tolist()
    pairs = zip(graph.sources.tolist(), targets, graph.weights.tolist(), strict=True)
    return {(names[source], names[target]): weight for source, target, weight in pairs}


def dense_ranks(weights: np.ndarray, damping: float, normalise: bool) -> np.ndarray:
    """Solve the equations of PageRank; row i of `weights` has the links of site i."""
    n = len(weights)
    sums = weights.sum(axis=1)
    moves = np.divide(weights, sums[:, None], out=np.zeros_like(weights), where=sums[:, None] > 0).T
    if not normalise:
        matrix = damping * moves + (1 - damping) / n
        matrix[:, sums == 0] = 1 / n  # what dangling sites have goes to all sites, not damped
        equations = np.vstack(((matrix - np.eye(n))[1:], np.ones(n)))
        return np.linalg.solve(equations, np.append(np.zeros(n - 1), 1.0))
    ranks = np.full(n, 1 / n)
    for _ in range(3000):
        ranks = damping * moves @ ranks + (1 - damping) / n
        ranks /= ranks.sum()
    return ranks


@pytest.mark.parametrize(
    ("weighted", "slice_pages", "by", "site_links", "internal"),
    crossed([(False, None), (True, 7), (False, 30)], SITE_KINDS, SITE_LINKS, [0.0, 1.0, 0.25]),
)
def test_folding_equals_adding_up_one_by_one(
    tmp_path: Path, by: Any, site_links: Any, internal: float, weighted: bool, slice_pages: int | None
) -> None:
    links = links_at_random(80, 700, weighted)
    none = frozenset({3, 17, 40})
    stored = built(tmp_path / "g", 80, links, none, slice_pages=slice_pages)
    rules = SiteRules(by, site_links, internal)
    graph = fold(stored, rules, tmp_path)
    assert weights_of(graph) == pytest.approx(weights_one_by_one(links, rules, none), rel=1e-12)
    names = graph.numbering.names()
    assert dict(zip(names, graph.pages.tolist(), strict=True)) == Counter(
        site_of(page, by) for page in range(80) if page not in none
    )
    kept = [(site_of(a, by), site_of(b, by)) for a, b in links if not none & {a, b}]
    assert dict(zip(names, graph.internal_links.tolist(), strict=True)) == {
        name: sum(pair == (name, name) for pair in kept) for name in names
    }
    assert dict(zip(names, graph.links_out.tolist(), strict=True)) == {
        name: sum(a == name != b for a, b in kept) for name in names
    }
    assert dict(zip(names, graph.links_in.tolist(), strict=True)) == {
        name: sum(b == name != a for a, b in kept) for name in names
    }
    assert (graph.pages_without_site, graph.site_links) == (3, len({pair for pair in kept if pair[0] != pair[1]}))
    assert graph.addresses == (3 if by == "host" else 2)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("site_links", SITE_LINKS)
def test_the_table_of_links_between_sites_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site_links: Any
) -> None:
    monkeypatch.setitem(globals(), "HOSTS", [f"host-{number}.example" for number in range(301)])
    links = links_at_random(700, 12_000, weighted=True)
    stored = built(tmp_path / "g", 700, links, slice_pages=90)
    rules = SiteRules("host", site_links, 1.0)
    graph = fold(stored, rules)
    assert graph.site_links > 8000
    assert weights_of(graph) == pytest.approx(weights_one_by_one(links, rules, frozenset()), rel=1e-12)


@pytest.mark.parametrize(
    ("links", "internal", "damping", "gauss_seidel"), crossed([60, 700], [0.0, 1.0, 0.001], [0.5, 0.85], [False, True])
)
def test_ranks_of_sites_are_those_of_the_dense_equations(
    tmp_path: Path, links: int, internal: float, damping: float, gauss_seidel: bool
) -> None:
    stored = built(tmp_path / "g", 50, links_at_random(50, links, weighted=True))
    graph = fold(stored, SiteRules("host", "links", internal))
    names = graph.numbering.names()
    weights = np.zeros((graph.sites, graph.sites))
    for (source, target), weight in weights_of(graph).items():
        weights[names.index(source), names.index(target)] = weight
    for dangling in ("teleport",) if gauss_seidel else ("teleport", "normalise"):
        rank = graph.rank(Settings(damping, 1e-13, dangling=dangling, gauss_seidel=gauss_seidel))  # type: ignore[arg-type]
        expected = dense_ranks(weights, damping, dangling == "normalise")
        assert np.abs(rank.values - expected).sum() < 1e-11
        assert rank.converged and rank.residual <= 1e-13
        assert (rank.error is None) == (dangling == "normalise")


@pytest.mark.parametrize("internal", [0.0, 1.0])
@pytest.mark.parametrize("by", SITE_KINDS)
def test_harmonic_centrality_of_sites_is_that_of_plain_searches(tmp_path: Path, by: Any, internal: float) -> None:
    """From the links of pages alone; links within a site, and their weight, change nothing."""
    links = links_at_random(80, 110, weighted=True)
    graph = fold(built(tmp_path / "g", 80, links, slice_pages=30), SiteRules(by, "links", internal))
    followers: dict[str, set[str]] = {name: set() for name in graph.numbering.names()}
    for source, target in links:
        followers[site_of(target, by)].add(site_of(source, by))
    expected = []
    for name in graph.numbering.names():
        distances, level = {name: 0}, {name}
        while level:
            level = {other for one in level for other in followers[one]} - distances.keys()
            distances |= dict.fromkeys(level, max(distances.values()) + 1)
        expected.append(sum(1 / distance for distance in distances.values() if distance))
    scanned = graph.links(tmp_path)
    assert exact_harmonic(scanned).values == pytest.approx(expected, rel=1e-12)
    found = hyperball(scanned, 14)
    assert np.abs(found.values - expected).max() <= 4 * found.error * (max(expected) + 1)
    assert max(expected) > 3 and min(expected) < max(expected)


def test_hashes_of_sites_are_those_of_their_names() -> None:
    """Whatever the order in which sites are numbered: then estimates are the same, too."""
    names = [f"host-{number}.example" for number in range(3_000)]
    one, other = SiteNumbering("host"), SiteNumbering("host")
    one.number_all(names)
    other.number_all(names[::-1])
    assert one.hashes.tolist() == other.hashes.tolist()[::-1]
    assert len(set(one.hashes.tolist())) == len(names)


def test_a_web_of_one_site_has_one_rank(tmp_path: Path) -> None:
    builder = GraphBuilder(tmp_path / "g", BuildPlan(buckets=2))
    urls = [b"http://10.1.2.3/a", b"http://10.1.2.3/b"]
    ids = np.array([1, 2], np.uint64)
    starts = np.array([0, 17, 34])
    builder.add_pages(ids, np.zeros(2, np.uint8), starts, np.frombuffer(b"".join(urls), np.uint8))
    builder.add_visits(ids[:1], np.array([0, 1]), ids[1:], np.array([1024], np.uint16), together=False)
    stored = builder.finish()
    for internal in (0.0, 1.0):
        graph = fold(stored, SiteRules("domain", internal=internal))
        assert graph.numbering.names() == ["10.1.2.3"]
        assert graph.rank(Settings()).values.tolist() == [1.0]
        assert (graph.internal_links.tolist(), graph.site_links, graph.addresses) == ([1], 0, 1)


def test_a_graph_without_urls_is_refused(tmp_path: Path) -> None:
    stored = built(tmp_path / "g", 4, {(0, 1): 1024}, frozenset(range(4)))
    with pytest.raises(GraphRefused, match="no URLs, so no sites"):
        fold(stored, SiteRules())


@pytest.mark.parametrize("internal", [-1.0, float("nan"), float("inf")])
def test_a_weight_out_of_range_is_refused(internal: float) -> None:
    with pytest.raises(GraphRefused, match="internal"):
        SiteRules(internal=internal)
