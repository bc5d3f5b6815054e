"""The graph of sites: the links of a page graph on disk, added up by the sites of their pages.

One scan of the links, as for an iteration of a rank. Memory is needed for sites and for pairs of sites with links
between them; the site of each page takes 4 bytes, in a file if there is a folder for it. Pages without a known URL have
no site: they are left out, with their links.

The weight of a link between sites is the number of links between their pages, or the number of pages of the one site
that link to the other. A link of the page graph counts by its weight, an ordinary one 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np

from opicflow.pipelines.ranks.graph.csr import ORDINARY_LINK_WEIGHT, Graph, Int32s, LinkWeights, PageNumbers, group
from opicflow.pipelines.ranks.graph.harmonic import LinksInMemory
from opicflow.pipelines.ranks.graph.oracle import IncomingLinks, rank_links
from opicflow.pipelines.ranks.graph.solver import Rank, Settings
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph, pieces
from opicflow.schemas.arrays import Floats, Int, Ints, Word, Words
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.sites import SiteKind, SiteNumbering, SiteNumbers

SiteLinks = Literal["links", "pages"]
SITE_LINKS: tuple[SiteLinks, ...] = get_args(SiteLinks)

_ENTRY_WORDS = 4
_FEWEST_ENTRIES = 1 << 12

FoldProgress = Callable[[int, int], None]
"""Called with the number of slices that were read, and how many there are."""


@dataclass(frozen=True)
class SiteRules:
    """How pages and links are folded to sites.

    `site_links`: what a link between sites weighs, the number of links or of distinct linking pages. `internal`: the
    weight of links within a site is multiplied by this number; 0 = they are dropped.
    """

    by: SiteKind = "host"
    site_links: SiteLinks = "links"
    internal: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if not 0.0 <= self.internal <= 1e6:
            raise GraphRefused(f"internal: {self.internal} is not a number from 0 to 1,000,000")


@dataclass(frozen=True, eq=False)
class SiteGraph:
    """Sites 0 … n-1 and the links between them, by their targets.

    The links to site i are from `sources[starts[i]:starts[i + 1]]`, which ascend, with their weights beside them; a
    link of a site to itself is included if it has a weight. The other columns have a value for each site: its pages,
    the links between these, and the links to and from other sites; each link of the page graph counts 1 there.
    """

    numbering: SiteNumbering
    pages: Ints
    pages_without_site: int
    starts: Ints
    sources: SiteNumbers
    weights: Floats
    internal_links: Ints
    links_in: Ints
    links_out: Ints

    @property
    def sites(self) -> int:
        """The number of sites."""
        return len(self.pages)

    @property
    def site_links(self) -> int:
        """The number of pairs of sites with a link between them."""
        targets = np.repeat(np.arange(self.sites), np.diff(self.starts))
        return int((targets != self.sources).sum())

    @property
    def addresses(self) -> int:
        """The number of sites that are IP addresses."""
        return int(self.numbering.is_address.sum())

    def links(self, path: Path) -> LinksInMemory:
        """Return the links between different sites, each once, for harmonic centrality. `path` is for messages."""
        targets = np.repeat(np.arange(self.sites), np.diff(self.starts))
        graph = Graph.from_links(self.sites, self.sources.astype(np.int64), targets)
        return LinksInMemory(graph, self.numbering.hashes, path)

    def rank(self, settings: Settings, after_step: Callable[[int, float], None] = lambda step, left: None) -> Rank:
        """Return the PageRank of every site, to the tolerance of the settings."""
        sums = np.bincount(self.sources, self.weights, self.sites)
        links = IncomingLinks(self.starts, self.sources, self.weights, sums)
        try:
            ranks = rank_links(
                links,
                settings.damping,
                tolerance=settings.tolerance,
                max_iterations=settings.max_iterations,
                dangling=settings.dangling,
                gauss_seidel=settings.gauss_seidel,
                after_step=after_step,
            )
        except ValueError as problem:
            raise GraphRefused(f"ranks of sites: {problem}") from None
        bound = ranks.residual / (1.0 - settings.damping) if settings.dangling == "teleport" else None
        return Rank("importance", ranks.values, ranks.residual, bound, ranks.iterations, ranks.converged)


def fold(
    graph: StoredGraph,
    rules: SiteRules,
    folder: Path | None = None,
    progress: FoldProgress = lambda done, of: None,
) -> SiteGraph:
    """Fold a page graph to sites. `folder` is for the site of each page; without one they are in memory."""
    numbering = SiteNumbering(rules.by)
    site_of, pages, without = _number_pages(graph, numbering, folder)
    if numbering.sites == 0:
        raise GraphRefused(f"{graph.path}: it has no URLs, so no sites: build it from logs that have them")
    links = _SiteLinkTable(numbering.sites, rules.site_links == "pages")
    if rules.site_links == "pages" and graph.slices > 1:  # the links of each page must come together
        for number in range(parts := len(graph.ranges) - 1):
            links.add(_links_of_range(graph, number, site_of))
            progress(number + 1, parts)
    else:
        for slice_ in range(graph.slices):
            for part in _links_of_slice(graph, slice_, site_of):
                links.add(part)
            progress(slice_ + 1, graph.slices)
    return SiteGraph(numbering, pages, without, *links.columns(rules.internal))


def _number_pages(graph: StoredGraph, numbering: SiteNumbering, folder: Path | None) -> tuple[SiteNumbers, Ints, int]:
    """Return the site of each page, the pages of each site, and the number of pages that have none."""
    site_of: SiteNumbers
    if folder is None or graph.pages == 0:
        site_of = np.empty(graph.pages, np.int32)
    else:
        site_of = np.memmap(folder / "sites.i32", np.int32, mode="w+", shape=(graph.pages,))
    counts, without = np.zeros(0, np.int64), 0
    for first, end in pieces(graph.pages):
        starts = np.empty(end - first + 1, np.int64)
        starts[0] = graph.url_ends[first - 1] if first else 0
        starts[1:] = graph.url_ends[first:end]
        begin = int(starts[0])
        found = numbering.number(np.asarray(graph.url_bytes[begin : int(starts[-1])]), starts - begin)
        known = found[found >= 0]
        counts = np.append(counts, np.zeros(numbering.sites - len(counts), np.int64))
        counts += np.bincount(known, minlength=numbering.sites)
        without += len(found) - len(known)
        site_of[first:end] = found
    return site_of, counts, without


class _PageLinks(NamedTuple):
    """Links of pages, by sources, with the sites at both ends; `of_target` is empty where targets are sites."""

    first_page: int
    sources: Int32s
    starts: PageNumbers
    targets: PageNumbers
    weights: LinkWeights
    of_source: SiteNumbers
    of_target: SiteNumbers


_SITES = np.empty(0, np.int32)


def _links_of_slice(graph: StoredGraph, slice_: int, site_of: SiteNumbers) -> Iterator[_PageLinks]:
    first, end = graph.bounds(slice_)
    of_target = np.array(site_of[first:end])
    for block in graph.blocks(slice_):
        of_source = np.array(site_of[block.first : block.end])
        yield _PageLinks(block.first, *block.links, of_source, of_target)


def _links_of_range(graph: StoredGraph, number: int, site_of: SiteNumbers) -> _PageLinks:
    """Return the links of a range of sources into all slices, with the sites of their targets."""
    first, end = int(graph.ranges[number]), int(graph.ranges[number + 1])
    sources, targets, weights = [_SITES], [_SITES], [np.empty(0, np.int64)]
    for slice_ in range(graph.slices):
        for block in graph.blocks(slice_, (number, number + 1)):
            links = block.links
            sources.append(np.repeat(links.sources, np.diff(links.starts)))
            targets.append(np.asarray(site_of[graph.bounds(slice_)[0] : graph.bounds(slice_)[1]])[links.targets])
            ordinary = len(links.weights) == 0
            given = np.full(len(links.targets), ORDINARY_LINK_WEIGHT) if ordinary else links.weights.astype(np.int64)
            weights.append(given)
    pages = end - first
    starts, sites, loads = group(np.concatenate(sources), np.concatenate(targets), np.concatenate(weights), pages)
    rows = np.arange(pages, dtype=np.int32)
    return _PageLinks(first, rows, starts, sites, loads.astype(np.uint16), np.array(site_of[first:end]), _SITES)


class _LinkColumns(NamedTuple):
    """The columns of a graph of sites that links make."""

    starts: Ints
    sources: SiteNumbers
    weights: Floats
    internal_links: Ints
    links_in: Ints
    links_out: Ints


class _SiteLinkTable:
    """Adds up links between sites: a hash table of pairs, and arrays for links within a site.

    An entry is four words: the pair, its weight in 1/1024, its number of links, the last page that was counted.
    """

    def __init__(self, sites: int, by_pages: bool) -> None:
        self._by_pages = by_pages
        self._entries = _empty(_FEWEST_ENTRIES)
        self._count = np.zeros(1, np.int64)
        self._own = np.zeros((sites, 3), np.int64)  # of links within a site: weight, number, the last page + 1

    def add(self, links: _PageLinks) -> None:
        """Add links of pages."""
        needed = int(self._count[0]) + len(links.targets)
        if 3 * len(self._entries) < 4 * needed:
            capacity = 1 << (4 * needed // 3).bit_length()
            entries = _empty(capacity)
            _move_entries(self._entries, entries)
            self._entries = entries
        _add_links(*links, self._by_pages, self._entries, self._own, self._count)

    def columns(self, internal: float) -> _LinkColumns:
        """Return the columns of a graph of sites that links make."""
        sites = len(self._own)
        entries = self._entries[self._entries[:, 2] > 0]
        sources, targets = entries[:, 0] >> np.uint64(32), entries[:, 0] & np.uint64(0xFFFFFFFF)
        numbers = entries[:, 2].astype(np.float64)
        links_out = np.bincount(sources.astype(np.int64), numbers, sites).astype(np.int64)
        links_in = np.bincount(targets.astype(np.int64), numbers, sites).astype(np.int64)
        own = np.flatnonzero(self._own[:, 0]) if internal > 0.0 else np.empty(0, np.int64)
        sources = np.concatenate((sources, own.astype(np.uint64)))
        targets = np.concatenate((targets, own.astype(np.uint64)))
        weights = np.concatenate((entries[:, 1].astype(np.float64), internal * self._own[own, 0]))
        weights /= ORDINARY_LINK_WEIGHT
        order = np.argsort((targets << np.uint64(32)) | sources)
        starts = np.zeros(sites + 1, np.int64)
        np.cumsum(np.bincount(targets.astype(np.int64), minlength=sites), out=starts[1:])
        internal_links = self._own[:, 1].copy()
        return _LinkColumns(
            starts, sources[order].astype(np.int32), weights[order], internal_links, links_in, links_out
        )


def _empty(capacity: int) -> Words:
    return np.zeros((capacity, _ENTRY_WORDS), np.uint64)


@inlined_kernel
def _entry_of(entries: Words, pair: Word) -> Int:
    """Return the entry of a pair, or the empty one where it would be."""
    last = entries.shape[0] - 1
    mixed = pair * np.uint64(0x9E3779B97F4A7C15)
    at = np.int64(mixed ^ (mixed >> np.uint64(32))) & np.int64(last)
    while entries[at, 2] != 0 and entries[at, 0] != pair:
        at = (at + 1) & last
    return at


@lean_kernel
def _add_links(
    first_page: int,
    sources: Int32s,
    starts: PageNumbers,
    targets: PageNumbers,
    weights: LinkWeights,
    of_source: SiteNumbers,
    of_target: SiteNumbers,
    by_pages: bool,
    entries: Words,
    own: Ints,
    count: Ints,
) -> None:
    ordinary, are_sites = weights.shape[0] == 0, of_target.shape[0] == 0
    for row in range(sources.shape[0]):
        source = np.int64(of_source[sources[row]])
        if source < 0:
            continue
        page = np.int64(first_page) + sources[row] + 1
        for link in range(starts[row], starts[row + 1]):
            target = np.int64(targets[link]) if are_sites else np.int64(of_target[targets[link]])
            if target < 0:
                continue
            weight = np.int64(1024) if ordinary or by_pages else np.int64(weights[link])
            if target == source:
                own[source, 0] += 0 if by_pages and own[source, 2] == page else weight
                own[source, 1] += 1
                own[source, 2] = page
                continue
            pair = (np.uint64(source) << np.uint64(32)) | np.uint64(target)
            at = _entry_of(entries, pair)
            if entries[at, 2] == 0:
                entries[at, 0] = pair
                count[0] += 1
            if not (by_pages and entries[at, 3] == np.uint64(page)):
                entries[at, 1] += np.uint64(weight)
            entries[at, 2] += np.uint64(1)
            entries[at, 3] = np.uint64(page)


@lean_kernel
def _move_entries(old: Words, new: Words) -> None:
    for i in range(old.shape[0]):
        if old[i, 2] != 0:
            at = _entry_of(new, old[i, 0])
            for word in range(4):
                new[at, word] = old[i, word]
