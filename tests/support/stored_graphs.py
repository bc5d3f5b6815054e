"""Graphs on disk for tests, built from arrays, and the same graphs in memory to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from opicflow.pipelines.lab.web.webs import page_ids
from opicflow.pipelines.ranks.graph.builder import BuildPlan, GraphBuilder
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.store import StoredGraph, unmixed

Webs = dict[str, Graph]


def ids_of(pages: int) -> np.ndarray:
    """Return ids in the order of a graph, so that page i of a graph in memory is page i on disk."""
    return unmixed(np.sort(page_ids(pages, 7)))


def fill(builder: GraphBuilder, graph: Graph) -> None:
    """Add every page of a graph and its links, in two parts."""
    ids = ids_of(graph.pages)
    for first, end in ((0, graph.pages // 2), (graph.pages // 2, graph.pages)):
        low, high = int(graph.starts[first]), int(graph.starts[end])
        urls = [b"https://example.org/%d" % page for page in range(first, end)]
        starts = np.cumsum([0, *map(len, urls)])
        text = np.frombuffer(b"".join(urls), np.uint8)
        builder.add_pages(ids[first:end], np.arange(first, end).astype(np.uint8) % 3, starts, text)
        weights = graph.weights[low:high].astype(np.uint16)
        links = ids[graph.targets[low:high]]
        builder.add_visits(ids[first:end], graph.starts[first : end + 1] - low, links, weights, together=False)


def stored(path: Path, graph: Graph, **plan: Any) -> StoredGraph:
    """Build a graph on disk."""
    builder = GraphBuilder(path, BuildPlan(categories=("zero", "one", "two"), **plan))
    fill(builder, graph)
    return builder.finish()


def links_on_disk(graph: StoredGraph) -> dict[tuple[int, int], int]:
    """Return all links and their weights."""
    found: dict[tuple[int, int], int] = {}
    for slice_ in range(graph.slices):
        for block in graph.blocks(slice_):
            sources = block.first + np.repeat(block.links.sources, np.diff(block.links.starts))
            targets = graph.bounds(slice_)[0] + block.links.targets
            weights = block.links.weights if len(block.links.weights) else np.full(len(targets), 1024)
            found |= dict(zip(zip(sources.tolist(), targets.tolist(), strict=True), weights.tolist(), strict=True))
    return found


def links_in_memory(graph: Graph) -> dict[tuple[int, int], int]:
    """Return all links of a graph in memory and their weights."""
    sources = np.repeat(np.arange(graph.pages), graph.out_degrees)
    pairs = zip(sources.tolist(), graph.targets.tolist(), strict=True)
    return dict(zip(pairs, graph.weights.tolist(), strict=True))


def nasty_webs() -> Webs:
    """Yield webs that are difficult to rank."""
    random = np.random.default_rng(5)
    none = np.empty(0, np.int64)
    star = np.arange(1, 60)
    apart = np.concatenate((random.integers(0, 30, 200), random.integers(30, 61, 200)))
    ends = np.concatenate((random.integers(0, 30, 200), random.integers(30, 61, 200)))
    chain = np.arange(59)
    return {
        "no links": Graph.from_links(61, none, none),
        "one page": Graph.from_links(1, none, none),
        "one hub": Graph.from_links(60, np.concatenate((star, 0 * star)), np.concatenate((0 * star, star))),
        "into one page": Graph.from_links(60, star, 0 * star),
        "apart": Graph.from_links(61, apart, ends),
        "a chain": Graph.from_links(60, chain, chain + 1),
        "a ring": Graph.from_links(60, np.arange(60), (np.arange(60) + 1) % 60),
        "to themselves": Graph.from_links(
            60, np.arange(60).repeat(2), np.stack((np.arange(60), chain[np.arange(60) % 59]), 1).ravel()
        ),
        "weights": Graph.from_links(
            60, random.integers(0, 45, 500), random.integers(0, 60, 500), random.integers(0, 65_536, 500)
        ),
    }


def random_web(pages: int = 900, links: int = 7000, seed: int = 3) -> Graph:
    """Make a web with dangling pages, pages without inlinks, and pages with many."""
    random = np.random.default_rng(seed)
    targets = random.integers(0, pages, links) ** 2 // pages
    return Graph.from_links(pages, random.integers(0, pages * 3 // 4, links), targets)
