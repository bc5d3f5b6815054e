"""Harmonic centrality: how many pages lead to a page by links, each counted as 1 over its distance.

    H(x) = Σ 1 / d(y, x)    over all other pages y that lead to x; d is the number of links of the shortest way

A page to which a hundred pages link directly has 100 from them; pages two links away count one half each. Weights of
links do not matter: a link is there, or it is not.

`hyperball` estimates it (Boldi and Vigna, 2013). The *ball* of a page at radius r holds the pages at distances up to r.
It is the union of the balls at radius r - 1 of the pages that link to it, so a scan of all links makes balls of one
radius more. A ball is kept as HyperLogLog registers (Flajolet et al., 2007): the union is the maximum of each register,
and the size of the ball follows from the registers. With b the size of the ball,

    H(x) = Σ (b(r) - b(r-1)) / r = Σ b(r) (1/r - 1/(r+1)) - b(0)    from r = 1, the last b with the factor 1/r

Each b(r) has at most the relative standard error of HyperLogLog; b(0) and b(1) are known exactly. All factors but that
of b(0) are positive, and the standard error of a sum is at most the sum of theirs (Minkowski). So the standard error of
H(x) is at most that of HyperLogLog times H(x) + 1. Errors of different pages are alike, because most balls end with the
same pages in them: the order of pages is better than this bound. docs/guides/ranks.md has measurements.

Sizes are estimated as in Ertl (2017): one formula for small and large balls, which never falls when a register rises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from opicflow.pipelines.ranks.graph.csr import Graph, Int32s, PageNumbers
from opicflow.pipelines.ranks.graph.slices import BlockLinks
from opicflow.pipelines.ranks.graph.store import GraphRefused, LinkBlock, pieces
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ids, Ints
from opicflow.schemas.kernel import kernel, lean_kernel

FEWEST_LOG2, DEFAULT_LOG2, MOST_LOG2 = 4, 8, 14
"""The registers of a page, as logarithms to base 2."""

MOST_EXACT_PAGES = 20_000

_ERRORS = {4: 1.106, 5: 1.070, 6: 1.054, 7: 1.046}
_MOST_ERROR_BEYOND = 1.043
"""The standard error of HyperLogLog times the root of the registers; it falls to 1.039 (Flajolet et al., theorem 1)."""

_BIASES = {4: 0.673, 5: 0.697, 6: 0.709}
_PAGES_AT_ONCE = 256


class ScannedLinks(Protocol):
    """Links that can be scanned slice by slice, as those of a `StoredGraph`."""

    pages: int
    path: Path

    @property
    def slices(self) -> int: ...

    @property
    def ranges(self) -> Ints: ...

    def ids(self, first: int = 0, end: int | None = None) -> Ids: ...

    def bounds(self, slice_: int) -> tuple[int, int]: ...

    def blocks(self, slice_: int, ranges: tuple[int, int] | None = None) -> Iterator[LinkBlock]: ...

    def hold(self, most_bytes: int) -> None: ...


class LinksInMemory:
    """The links of a graph in memory, as one slice with one block. `ids` are the page ids, `path` is for messages."""

    slices = 1

    def __init__(self, graph: Graph, ids: Ids, path: Path) -> None:
        self.pages, self.path = graph.pages, path
        self.ranges: Ints = np.array([0, graph.pages])
        self._ids = ids
        sources = np.flatnonzero(graph.out_degrees > 0)
        starts = np.append(graph.starts[sources], graph.links).astype(np.int32)
        no_weights = np.empty(0, np.uint16)
        links = BlockLinks(sources.astype(np.int32), starts, graph.targets.astype(np.int32), no_weights)
        self._block = LinkBlock(0, graph.pages, links)

    def ids(self, first: int = 0, end: int | None = None) -> Ids:
        """Return the ids of a range of pages; without an end, of all that follow."""
        return self._ids[first:end]

    def bounds(self, slice_: int) -> tuple[int, int]:
        """Return the first page, and the one after the last."""
        return 0, self.pages

    def blocks(self, slice_: int, ranges: tuple[int, int] | None = None) -> Iterator[LinkBlock]:
        """Return all links, in one block."""
        yield self._block

    def hold(self, most_bytes: int) -> None:
        """Do nothing: all links are in memory."""


@dataclass(frozen=True)
class HarmonicOptions:
    """How harmonic centrality is estimated: with 2 to the power of `log2_registers` registers, or exactly.

    `most_distance` is the largest distance that counts in an estimate.
    """

    log2_registers: int = DEFAULT_LOG2
    seed: int = 1
    is_exact: bool = False
    most_distance: int = 1000


class HarmonicProgress(Protocol):
    """Shows how far harmonic centrality is."""

    def show_search(self, done: int, of: int) -> None:
        """Called with the pages whose exact value is known, and how many there are."""

    def show_scan(self, radius: int, growing: int) -> None:
        """Called after each scan for an estimate."""


@dataclass(frozen=True, eq=False)
class HarmonicCentrality:
    """The harmonic centrality of every page.

    `error` is a bound of the standard error of a page, relative to its value plus 1, with so many `registers` a page;
    both are 0 if the values are exact.
    `distance` is the largest distance found. Not `complete`: the radius reached its limit while balls still grew; every
    page that is missing then would add less than 1 over the limit.
    """

    values: Floats
    registers: int
    error: float
    distance: int
    complete: bool
    name = "harmonic"


def harmonic_within(
    graph: ScannedLinks, noun: str, how: HarmonicOptions, memory_bytes: int, progress: HarmonicProgress
) -> HarmonicCentrality:
    """Compute the harmonic centrality of all vertices of a graph, which `noun` names, within this memory."""
    if how.is_exact:
        return exact_harmonic(graph, lambda done: progress.show_search(done, graph.pages))
    needed = hyperball_bytes(graph.pages, how.log2_registers)
    if needed > memory_bytes:
        raise GraphRefused(
            f"{graph.path}: 2^{how.log2_registers} registers of {graph.pages:,} {noun}s take {needed >> 20:,} MB: "
            "give more --memory, or fewer --registers"
        )
    graph.hold(memory_bytes - needed)
    return hyperball(graph, how.log2_registers, how.seed, how.most_distance, progress.show_scan)


def relative_error(log2_registers: int) -> float:
    """Return a bound of the relative standard error of HyperLogLog with so many registers."""
    return _ERRORS.get(log2_registers, _MOST_ERROR_BEYOND) / math.sqrt(1 << log2_registers)


def hyperball_bytes(pages: int, log2_registers: int) -> int:
    """Return the memory that `hyperball` needs, links not counted."""
    return pages * ((2 << log2_registers) + 19)


def hyperball(
    graph: ScannedLinks,
    log2_registers: int = DEFAULT_LOG2,
    seed: int = 1,
    most_radius: int = 1000,
    after_scan: Callable[[int, int], None] = lambda radius, growing: None,
) -> HarmonicCentrality:
    """Estimate the harmonic centrality of all pages; the same seed gives the same values, however the graph is sliced.

    Registers are in memory, links are scanned once for each radius; later scans read only the blocks that hold links of
    pages whose balls still grow. `after_scan` is called with the radius and the number of such pages.

    Raises `GraphRefused` for a number of registers out of range.
    """
    if not FEWEST_LOG2 <= log2_registers <= MOST_LOG2:
        raise GraphRefused(f"registers: {log2_registers} is not from {FEWEST_LOG2} to {MOST_LOG2}")
    old = np.empty((graph.pages, 1 << log2_registers), np.uint8)
    for first, end in pieces(graph.pages):
        old[first:end] = first_registers(graph.ids(first, end), log2_registers, seed)
    new = old.copy()
    estimator = _estimator(log2_registers)
    values = in_degrees(graph).astype(np.float64)
    sizes = values + 1.0
    growing = np.ones(graph.pages, np.bool_)
    radius = 0
    while growing.any() and radius < most_radius:
        radius += 1
        grown = np.zeros(graph.pages, np.bool_)
        active = np.logical_or.reduceat(growing, graph.ranges[:-1])
        for slice_ in range(graph.slices):
            first, end = graph.bounds(slice_)
            there = slice(first, end)
            _copy_grown(old[there], growing[there], new[there])
            for block in _blocks_of(graph, slice_, active):
                sources = slice(block.first, block.end)
                _unite(*block.links[:3], old[sources], growing[sources], new[there], grown[there])
            _measure(old[there], new[there], radius, graph.pages, *estimator, sizes[there], values[there], grown[there])
        old, new, growing = new, old, grown
        after_scan(radius, int(growing.sum()))
    complete = not growing.any()
    return HarmonicCentrality(values, 1 << log2_registers, relative_error(log2_registers), radius - complete, complete)


def exact_harmonic(graph: ScannedLinks, after_pages: Callable[[int], None] = lambda pages: None) -> HarmonicCentrality:
    """Compute the harmonic centrality of all pages of a small graph, by a search from every page.

    `after_pages` is called with the number of pages done. Raises `GraphRefused` above `MOST_EXACT_PAGES` pages.
    """
    if graph.pages > MOST_EXACT_PAGES:
        raise GraphRefused(
            f"{graph.path}: {graph.pages:,} pages: exact harmonic centrality is for at most {MOST_EXACT_PAGES:,}: "
            "omit --exact"
        )
    inverse = _loaded(graph).transposed()
    values, queue, seen = np.zeros(graph.pages), np.empty(graph.pages, np.int64), np.full(graph.pages, -1)
    distance = 0
    for first in range(0, graph.pages, _PAGES_AT_ONCE):
        end = min(first + _PAGES_AT_ONCE, graph.pages)
        distance = max(distance, int(_search(inverse.starts, inverse.targets, first, end, queue, seen, values)))
        after_pages(end)
    return HarmonicCentrality(values, 0, 0.0, distance, True)


def in_degrees(graph: ScannedLinks) -> Ints:
    """Count the links to each page, in one scan of all links."""
    counts = np.zeros(graph.pages, np.int64)
    for slice_ in range(graph.slices):
        first, end = graph.bounds(slice_)
        for block in graph.blocks(slice_):
            _count(block.links.targets, counts[first:end])
    return counts


def first_registers(ids: Ids, log2_registers: int, seed: int) -> Bytes:
    """Return the registers of balls that hold one page each: a row for each page."""
    hashes = _hashes(ids, seed)
    registers = np.zeros((len(ids), 1 << log2_registers), np.uint8)
    at = (hashes & np.uint64((1 << log2_registers) - 1)).astype(np.int64)
    rest = (hashes >> np.uint64(log2_registers)) | np.uint64(1 << (64 - log2_registers))
    lowest = rest & (~rest + np.uint64(1))
    registers[np.arange(len(ids)), at] = np.frexp(lowest.astype(np.float64))[1]  # trailing zeros, plus 1
    return registers


def _hashes(ids: Ids, seed: int) -> Ids:
    """Return a hash of each page id: the finaliser of SplitMix64. The ids of one site begin alike, hashes do not."""
    words = ids + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % (1 << 64))
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _estimator(log2_registers: int) -> tuple[float, Floats, Floats]:
    """Return the numerator of a size, and the parts of its denominator: by register value, and by number of zeros."""
    registers = 1 << log2_registers
    bias = _BIASES.get(log2_registers, 0.7213 / (1.0 + 1.079 / registers))
    powers: Floats = np.ldexp(1.0, -np.arange(66))
    powers[0] = 0.0  # registers that are 0 count in `zeros`
    share = np.arange(registers) / registers  # less than 1: a ball holds a page
    zeros, term, factor = share.copy(), share.copy(), 0.5
    while term.any():
        term, factor = term * term, 2.0 * factor
        zeros += factor * term
    return bias * registers * registers, powers, registers * zeros


def _blocks_of(graph: ScannedLinks, slice_: int, active: Bools) -> Iterator[LinkBlock]:
    """Yield the blocks of the ranges of sources that are active."""
    edges = np.flatnonzero(np.diff(active.astype(np.int8), prepend=0, append=0))
    for begin, end in edges.reshape(-1, 2).tolist():
        yield from graph.blocks(slice_, (begin, end))


def _loaded(graph: ScannedLinks) -> Graph:
    """Return a stored graph in memory, every link as an ordinary one."""
    sources, targets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for slice_ in range(graph.slices):
        for block in graph.blocks(slice_):
            sources.append(block.first + np.repeat(block.links.sources, np.diff(block.links.starts)).astype(np.int64))
            targets.append(graph.bounds(slice_)[0] + block.links.targets.astype(np.int64))
    return Graph.from_links(graph.pages, np.concatenate(sources), np.concatenate(targets))


@lean_kernel
def _count(targets: Int32s, counts: Ints) -> None:
    for link in range(targets.shape[0]):
        counts[targets[link]] += 1


@lean_kernel
def _copy_grown(old: Bytes, growing: Bools, new: Bytes) -> None:
    """Copy the registers of pages that grew in the last scan; those of all others are the same in both."""
    for page in range(old.shape[0]):
        if growing[page]:
            for register in range(old.shape[1]):
                new[page, register] = old[page, register]


@lean_kernel
def _unite(
    sources: Int32s, starts: Int32s, targets: Int32s, old: Bytes, growing: Bools, new: Bytes, reached: Bools
) -> None:
    """Add the ball of each source that grew to the balls of its targets."""
    for row in range(sources.shape[0]):
        source = sources[row]
        if growing[source]:
            for link in range(starts[row], starts[row + 1]):
                target = targets[link]
                reached[target] = True
                for register in range(old.shape[1]):
                    new[target, register] = max(new[target, register], old[source, register])


@lean_kernel
def _measure(
    old: Bytes,
    new: Bytes,
    radius: int,
    pages: int,
    scale: float,
    powers: Floats,
    zeros: Floats,
    sizes: Floats,
    values: Floats,
    grown: Bools,
) -> None:
    """Estimate the balls that were reached, count their new pages, and keep `grown` for balls that changed.

    Balls of radius 1 are known exactly.
    """
    for page in range(old.shape[0]):
        if not grown[page]:
            continue
        changed = np.uint8(0)
        for register in range(old.shape[1]):
            changed |= new[page, register] ^ old[page, register]
        grown[page] = changed != 0
        if changed != 0 and radius > 1:
            total, empty = 0.0, 0
            for register in range(old.shape[1]):
                total += powers[new[page, register]]
                if new[page, register] == 0:
                    empty += 1
            size = min(max(scale / (total + zeros[empty]), sizes[page]), float(pages))
            values[page] += (size - sizes[page]) / radius
            sizes[page] = size


@kernel
def _search(starts: Ints, targets: PageNumbers, first: int, end: int, queue: Ints, seen: Ints, values: Floats) -> int:
    """Search breadth first from each page from `first` to `end`; return the largest distance."""
    furthest = 0
    for page in range(first, end):
        seen[page] = page
        queue[0] = page
        begin, stop, distance, total = 0, 1, 0, 0.0
        while begin < stop:
            if distance > 0:
                total += (stop - begin) / distance
            level_end = stop
            for at in range(begin, level_end):
                for link in range(starts[queue[at]], starts[queue[at] + 1]):
                    other = targets[link]
                    if seen[other] != page:
                        seen[other] = page
                        queue[stop] = other
                        stop += 1
            begin = level_end
            if begin < stop:
                distance += 1
        values[page] = total
        furthest = max(furthest, distance)
    return furthest
