"""Webs that change: in-degrees, links that appear and disappear, new pages. Graphs in, graphs out."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ranks.graph.csr import ORDINARY_LINK_WEIGHT, Graph, PageNumbers
from opicflow.schemas.arrays import Bools, Ints


def change_in_degrees(graph: Graph, doubled: Ints, halved: Ints, random: np.random.Generator) -> Graph:
    """Return the web with the in-degrees of some pages halved or doubled (paper 002, figure 4).

    A page of `halved` loses half of the links to it, at random (the larger half of an odd number is kept). A page of
    `doubled` gets as many new links, from pages drawn among those that have links. A page that is drawn twice, or links
    to it already, adds nothing: a page linked by a share s of the web is then linked by about 2s - s².
    """
    sources, targets = graph.sources, graph.targets
    kept = np.ones(graph.links, np.bool_)
    links = np.flatnonzero(_mask(graph.pages, halved)[targets])
    links = links[np.lexsort((random.random(len(links)), targets[links]))]
    firsts = np.searchsorted(targets[links], targets[links])
    within = np.arange(len(links)) - firsts
    kept[links] = within < -(-graph.in_degrees[targets[links]] // 2)
    linking = np.flatnonzero(graph.out_degrees)
    new_targets = np.repeat(doubled, graph.in_degrees[doubled])
    new_sources = linking[random.integers(0, len(linking), len(new_targets))] if len(linking) else new_targets
    return _linked(
        graph.pages, np.concatenate((sources[kept], new_sources)), np.concatenate((targets[kept], new_targets))
    )


def replace_links(graph: Graph, share: float, random: np.random.Generator) -> Graph:
    """Return the web with a random share of its links replaced.

    The new link of a page has the target of a random link of the web: pages with many links get more of the new ones,
    and the distribution of in-degrees stays. A link that the page already has adds nothing.
    """
    targets = graph.targets.copy()
    changed = random.permutation(graph.links)[: round(share * graph.links)]
    targets[changed] = graph.targets[random.integers(0, max(graph.links, 1), len(changed))]
    return _linked(graph.pages, graph.sources, targets)


def induced_web(graph: Graph, there: Bools) -> Graph:
    """Return the web with only the links among the masked pages: all others do not exist yet, or no longer."""
    return graph.with_links(there[graph.sources] & there[graph.targets])


def _linked(pages: int, sources: Ints, targets: PageNumbers) -> Graph:
    """Return the graph of ordinary links, each once."""
    linked = Graph.from_links(pages, sources, targets)
    return Graph(linked.starts, linked.targets, np.minimum(linked.weights, ORDINARY_LINK_WEIGHT))


def _mask(pages: int, numbers: Ints) -> Bools:
    mask = np.zeros(pages, np.bool_)
    mask[numbers] = True
    return mask
