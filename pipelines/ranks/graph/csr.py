"""`Graph`: the links of a web in memory, as compressed sparse rows.

It follows the ledger's rules for links (docs/reference/ledger.md), so that ranks of the graph are comparable with
importance: an ordinary link weighs 1024, duplicate links add up to at most 65,535, links to oneself and of weight 0 do
not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opicflow.schemas.arrays import Bools, Ints
from opicflow.schemas.kernel import kernel

ORDINARY_LINK_WEIGHT = 1024
MOST_LINK_WEIGHT = 65_535

PageNumbers = npt.NDArray[np.signedinteger]
"""int32 as long as every page number fits, which halves memory and traffic; int64 beyond."""
Int32s = npt.NDArray[np.int32]
LinkWeights = npt.NDArray[np.uint16]
"""The weights of links in a block or a file; they are at most 65,535."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Pages 0 … n-1; the links of page i are `targets[starts[i]:starts[i + 1]]`, with their weights beside them.

    `from_links` returns targets that ascend within a page, without duplicates and links to oneself. The constructor
    checks shapes, types and ranges, so that no reader goes out of bounds, and nothing else. It does not copy the
    arrays: do not change them afterwards.
    """

    starts: Ints
    targets: PageNumbers
    weights: Ints

    def __post_init__(self) -> None:
        starts, targets, weights = self.starts, self.targets, self.weights
        if starts.ndim != 1 or targets.ndim != 1 or targets.shape != weights.shape:
            raise ValueError("a graph is three flat arrays, with as many weights as targets")
        if starts.dtype != np.int64 or weights.dtype != np.int64 or targets.dtype not in (np.int32, np.int64):
            raise ValueError("starts and weights are int64, targets int32 or int64")
        if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(targets) or (np.diff(starts) < 0).any():
            raise ValueError(f"starts must ascend from 0 to the number of links, {len(targets)}")
        if len(targets) and not (targets.min() >= 0 and targets.max() < len(starts) - 1):
            raise ValueError(f"targets must be page numbers from 0 to {len(starts) - 2}")
        if len(weights) and not (weights.min() >= 1 and weights.max() <= MOST_LINK_WEIGHT):
            raise ValueError(f"weights must be from 1 to {MOST_LINK_WEIGHT}")

    @classmethod
    def from_links(
        cls, pages: int, sources: npt.ArrayLike, targets: npt.ArrayLike, weights: npt.ArrayLike | None = None
    ) -> Graph:
        """Return the graph of the links sources[i] → targets[i], in any order, by the ledger's rules.

        `weights` are integers from 0 to 65,535; without them every link is an ordinary one.
        """
        if pages < 0:
            raise ValueError(f"pages must not be negative, not {pages}")
        origins, ends = _page_numbers("sources", sources, pages), _page_numbers("targets", targets, pages)
        loads = _weights(np.full(len(origins), ORDINARY_LINK_WEIGHT) if weights is None else weights)
        if not len(origins) == len(ends) == len(loads):
            raise ValueError(f"each source needs a target and a weight: {len(origins)}, {len(ends)}, {len(loads)}")
        kept = (origins != ends) & (loads > 0)
        if not kept.all():
            origins, ends, loads = origins[kept], ends[kept], loads[kept]
        # Grouping is stable, so grouped by target and then by source, the targets of a page ascend.
        starts, origins, loads = group(ends, origins, loads, pages)
        starts, ends, loads = group(origins, _rows(starts), loads, pages)
        return cls(*_without_duplicates(starts, ends, loads))

    @property
    def pages(self) -> int:
        """The number of pages, with links or without."""
        return len(self.starts) - 1

    @property
    def links(self) -> int:
        """The number of links; duplicates count as one."""
        return len(self.targets)

    @property
    def out_degrees(self) -> Ints:
        """The number of links of each page; a page without links is dangling."""
        return np.diff(self.starts)

    @property
    def sources(self) -> Ints:
        """The page of each link, as `targets` has the page that it leads to."""
        return np.repeat(np.arange(self.pages), self.out_degrees)

    @property
    def in_degrees(self) -> Ints:
        """The number of links to each page."""
        return np.bincount(self.targets, minlength=self.pages).astype(np.int64, copy=False)

    @property
    def out_weights(self) -> Ints:
        """The summed weights of each page's links: W_i."""
        sums = _starts(self.weights)
        return sums[self.starts[1:]] - sums[self.starts[:-1]]

    def without_links(self, mask: Bools) -> Graph:
        """Return the graph with the links of the masked pages removed: pages never read, or gone, are dangling."""
        if mask.dtype != np.bool_ or mask.shape != (self.pages,):
            raise ValueError(f"the mask must hold {self.pages} booleans, one for each page")
        return self.with_links(np.repeat(~mask, self.out_degrees))

    def with_links(self, mask: Bools) -> Graph:
        """Return the graph with the masked links only; it has all pages."""
        return Graph(_starts(mask)[self.starts], self.targets[mask], self.weights[mask])

    def transposed(self) -> Graph:
        """Return the graph with every link reversed, weights kept. Targets ascend within a page."""
        return Graph(*group(self.targets, _rows(self.starts), self.weights, self.pages))


@kernel
def group(keys: PageNumbers, values: PageNumbers, weights: Ints, pages: int) -> tuple[Ints, PageNumbers, Ints]:
    """Sort (value, weight) by key, with a stable counting sort: return each group's start, and both columns."""
    starts = np.zeros(pages + 1, np.int64)
    for key in keys:
        starts[key + 1] += 1
    for page in range(pages):
        starts[page + 1] += starts[page]
    free = starts[:-1].copy()
    grouped, loads = np.empty_like(values), np.empty_like(weights)
    for link in range(keys.shape[0]):
        row = free[keys[link]]
        free[keys[link]] = row + 1
        grouped[row] = values[link]
        loads[row] = weights[link]
    return starts, grouped, loads


def _without_duplicates(starts: Ints, targets: PageNumbers, weights: Ints) -> tuple[Ints, PageNumbers, Ints]:
    """Merge equal links of a sorted graph: their weights are added up, and capped."""
    sources = _rows(starts)
    first = np.ones(len(targets), np.bool_)
    np.logical_or(sources[1:] != sources[:-1], targets[1:] != targets[:-1], out=first[1:])
    if first.all():
        return starts, targets, weights
    firsts = np.flatnonzero(first)
    loads = np.minimum(np.add.reduceat(weights, firsts), MOST_LINK_WEIGHT)
    counts = np.bincount(sources[firsts], minlength=len(starts) - 1)
    return _starts(counts), targets[firsts], loads


def _starts(counts: PageNumbers | Bools) -> Ints:
    """Return the start of each run and the end of the last one; `counts` are the runs' lengths."""
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def _rows(starts: Ints) -> PageNumbers:
    """Return the row of every entry."""
    pages = len(starts) - 1
    return np.repeat(np.arange(pages, dtype=_number_type(pages)), np.diff(starts))


def _number_type(pages: int) -> type[np.int32] | type[np.int64]:
    return np.int32 if pages <= np.iinfo(np.int32).max else np.int64


def _integers(name: str, given: npt.ArrayLike) -> npt.NDArray[np.integer]:
    array = np.asarray(given)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or len(array) == 0):
        raise ValueError(f"{name} must be a flat array of integers")
    return array


def _page_numbers(name: str, given: npt.ArrayLike, pages: int) -> PageNumbers:
    array = _integers(name, given)
    if len(array) and not (array.min() >= 0 and array.max() < pages):
        raise ValueError(f"{name} must be page numbers from 0 to {pages - 1}")
    return array.astype(_number_type(pages), copy=False)


def _weights(given: npt.ArrayLike) -> Ints:
    array = _integers("weights", given)
    if len(array) and not (array.min() >= 0 and array.max() <= MOST_LINK_WEIGHT):
        raise ValueError(f"weights must be from 0 to {MOST_LINK_WEIGHT}")
    return array.astype(np.int64, copy=False)
