"""Webs that change: other in-degrees, links that come and go, pages that are born. Graphs in, graphs out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.graph.csr import ORDINARY_LINK_WEIGHT, Graph, Int64s, PageNumbers

Mask = npt.NDArray[np.bool_]


def change_in_degrees(graph: Graph, doubled: Int64s, halved: Int64s, random: np.random.Generator) -> Graph:
    """The web once the in-degrees of some pages are divided or multiplied by two (paper 002, figure 4).

    A page of `halved` loses half of the links to it, at random (of an odd number the larger half is kept). A page of
    `doubled` is linked by as many pages more, drawn among those that link at all; drawn twice, or linking to it
    already, one adds nothing, so a page linked by a share s of the web comes to about 2s - s² of it.
    """
    sources = _sources(graph)
    targets = graph.targets
    kept = np.ones(graph.links, np.bool_)
    places = np.flatnonzero(_mask(graph.pages, halved)[targets])
    places = places[np.lexsort((random.random(len(places)), targets[places]))]
    firsts = np.searchsorted(targets[places], targets[places])
    within = np.arange(len(places)) - firsts
    kept[places] = within < -(-graph.in_degrees[targets[places]] // 2)
    linking = np.flatnonzero(graph.out_degrees)
    new_targets = np.repeat(doubled, graph.in_degrees[doubled])
    new_sources = linking[random.integers(0, len(linking), len(new_targets))] if len(linking) else new_targets
    return _linked(
        graph.pages, np.concatenate((sources[kept], new_sources)), np.concatenate((targets[kept], new_targets))
    )


def replace_links(graph: Graph, share: float, random: np.random.Generator) -> Graph:
    """The web once a share of its links, at random, has gone and as many others have come.

    A new link goes from the page that lost one to where another link of the web leads: a page that is linked much is
    found more, and the law of in-degrees stays. One that a page has already adds nothing.
    """
    sources, targets = _sources(graph), graph.targets.copy()
    changed = random.permutation(graph.links)[: round(share * graph.links)]
    targets[changed] = graph.targets[random.integers(0, max(graph.links, 1), len(changed))]
    return _linked(graph.pages, sources, targets)


def induced_web(graph: Graph, there: Mask) -> Graph:
    """The links among the pages under the mask; the others are not born yet, or gone: without links, and unlinked."""
    sources = _sources(graph)
    kept = there[sources] & there[graph.targets]
    return _linked(graph.pages, sources[kept], graph.targets[kept])


def _linked(pages: int, sources: PageNumbers, targets: PageNumbers) -> Graph:
    """Ordinary links, each once."""
    linked = Graph.from_links(pages, sources, targets)
    return Graph(linked.starts, linked.targets, np.minimum(linked.weights, ORDINARY_LINK_WEIGHT))


def _sources(graph: Graph) -> PageNumbers:
    return np.repeat(np.arange(graph.pages, dtype=graph.targets.dtype), graph.out_degrees)


def _mask(pages: int, numbers: Int64s) -> Mask:
    mask = np.zeros(pages, np.bool_)
    mask[numbers] = True
    return mask
