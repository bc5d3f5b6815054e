"""The part of a web that a crawl has seen, and its exact importance."""

from __future__ import annotations

import numpy as np
import pytest

from opicflow.pipelines.lab.web.seen import SeenGraph
from opicflow.pipelines.lab.web.webs import hosted_web, power_law_web
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank


def part_seen(web: Graph, seen: SeenGraph) -> Graph:
    """Return the known pages, renumbered, with the links of the pages that were read."""
    known = np.flatnonzero(seen.is_known)
    sources = np.repeat(np.arange(web.pages), web.out_degrees)
    kept = seen.is_read[sources]
    return Graph.from_links(
        len(known), np.searchsorted(known, sources[kept]), np.searchsorted(known, web.targets[kept])
    )


@pytest.mark.parametrize("damping", [0.5, 0.85])
def test_importance_is_the_pagerank_of_the_graph_seen(damping: float) -> None:
    web = hosted_web(2_000, 3).graph
    seen = SeenGraph(web, np.array([0, 7, 99]), damping)
    random = np.random.default_rng(1)
    for _ in range(20):
        unread = np.flatnonzero(seen.is_known & ~seen.is_read)
        seen.read(random.permutation(unread)[:50])
    exact = pagerank(part_seen(web, seen), damping).values
    found = seen.importance[seen.is_known]
    assert np.abs(found / found.sum() - exact).max() < 1e-6
    assert found.min() >= 1 - damping - 1e-6 and (seen.importance[~seen.is_known] == 0).all()


def test_importance_given_to_seeds_is_personalised_pagerank_without_what_dangling_pages_lose() -> None:
    web = power_law_web(300, 1)
    seeds = np.array([3, 5])
    seen = SeenGraph(web, seeds, 0.85, given=seeds)
    while len(unread := np.flatnonzero(seen.is_known & ~seen.is_read)):
        seen.read(unread)
    given = np.isin(np.arange(300), seeds).astype(float)
    exact = pagerank(web, 0.85, personalisation=given).values * 2
    assert np.abs(seen.importance - exact).max() < 1e-4  # no page is dangling, and all were read


def test_links_find_pages_in_the_order_in_which_they_are_read() -> None:
    web = Graph.from_links(6, [0, 0, 1, 1, 2], [1, 2, 3, 4, 4])
    seen = SeenGraph(web, np.array([0]))
    assert seen.known == 1 and seen.found_at[0] == 0 and seen.found_by[0] == -1
    seen.read(np.array([0]))
    seen.read(np.array([2, 1]))
    assert seen.found_by.tolist() == [-1, 0, 0, 1, 2, -1]
    assert seen.found_at.tolist() == [0, 1, 2, 4, 3, -1]
    assert seen.linkers.tolist() == [0, 1, 1, 1, 2, 0]
    assert seen.known == 5 and not seen.is_known[5]
