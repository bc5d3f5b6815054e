"""`SeenGraph`: the known part of a web after reading some pages, with its exact importance at any time."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ranks.graph.csr import Graph, PageNumbers
from opicflow.schemas.arrays import Bools, Floats, Ints
from opicflow.schemas.kernel import kernel

_TOLERANCE = 1e-6


class SeenGraph:
    """The known pages of a crawl and the links that it has read, all links alike.

    `importance[i]` is the PageRank of page i in the graph seen, in units in which a page that is not linked has 1 -
    `damping`: pages that were not read have no links, and the mass of a page without links is spread over all known
    pages. In these units that spreading is no more than a common factor, so importance never falls while pages are
    read, and can be updated from the newly read pages alone. With `given`, only those pages get the 1 - `damping`: the
    PageRank personalised to them, whose mass is lost at pages without links (RankMass, Cho and Schonfeld 2007).

    `found_by[i]` is the page in which i was found first, -1 for a seed and for a page not known; `found_at[i]` the
    number of pages known before; `linkers[i]` how many read pages link to it.
    """

    def __init__(self, graph: Graph, seeds: Ints, damping: float = 0.85, given: Ints | None = None) -> None:
        pages = graph.pages
        self._graph, self._damping = graph, damping
        self.is_known: Bools = np.zeros(pages, np.bool_)
        self.is_read: Bools = np.zeros(pages, np.bool_)
        self.found_by: Ints = np.full(pages, -1, np.int64)
        self.found_at: Ints = np.full(pages, -1, np.int64)
        self.linkers: Ints = np.zeros(pages, np.int64)
        self.importance: Floats = np.zeros(pages)
        self._floor: Floats = np.full(pages, 1.0 - damping)
        if given is not None:
            self._floor[:] = 0.0
            self._floor[given] = 1.0 - damping
        self._waiting: Floats = np.zeros(pages)
        self.is_known[seeds] = True
        self.found_at[seeds] = np.arange(len(seeds))
        self._waiting[seeds] = self._floor[seeds]
        self.known = len(seeds)
        self.read(np.empty(0, np.int64))

    def read(self, pages: Ints) -> None:
        """Read these pages, none of which was read before, in this order, and bring importance up to date."""
        self.known = _read(
            self._graph.starts,
            self._graph.targets,
            pages,
            self._damping,
            self.known,
            self.is_known,
            self.is_read,
            self.found_by,
            self.found_at,
            self.linkers,
            self.importance,
            self._floor,
            self._waiting,
        )
        _settle(self._graph.starts, self._graph.targets, self._damping, self.is_read, self.importance, self._waiting)


@kernel
def _read(
    starts: Ints,
    targets: PageNumbers,
    pages: Ints,
    damping: float,
    known: int,
    is_known: Bools,
    is_read: Bools,
    found_by: Ints,
    found_at: Ints,
    linkers: Ints,
    importance: Floats,
    floor: Floats,
    waiting: Floats,
) -> int:
    """Enter pages as read: their links find pages, and their importance so far waits at the targets."""
    for page in pages:
        is_read[page] = True
        links = starts[page + 1] - starts[page]
        for link in range(starts[page], starts[page + 1]):
            target = targets[link]
            if not is_known[target]:
                is_known[target] = True
                found_by[target] = page
                found_at[target] = known
                known += 1
                waiting[target] += floor[target]
            linkers[target] += 1
            waiting[target] += damping * importance[page] / links
    return known


@kernel
def _settle(
    starts: Ints, targets: PageNumbers, damping: float, is_read: Bools, importance: Floats, waiting: Floats
) -> None:
    """Pass on what waits, first come first served, until at no page more than the tolerance is waiting."""
    pages = starts.shape[0] - 1
    queue = np.empty(pages, np.int64)
    queued = np.zeros(pages, np.bool_)
    count = 0
    for page in range(pages):
        if waiting[page] > _TOLERANCE:
            queue[count] = page
            queued[page] = True
            count += 1
    head = 0
    while count > 0:
        page = queue[head]
        head = head + 1 if head + 1 < pages else 0
        count -= 1
        queued[page] = False
        amount = waiting[page]
        waiting[page] = 0.0
        importance[page] += amount
        links = starts[page + 1] - starts[page]
        if not is_read[page] or links == 0:
            continue
        for link in range(starts[page], starts[page + 1]):
            target = targets[link]
            waiting[target] += damping * amount / links
            if waiting[target] > _TOLERANCE and not queued[target]:
                queued[target] = True
                tail = head + count
                queue[tail if tail < pages else tail - pages] = target
                count += 1
