"""Ranks of the sites of a stored graph: the page graph is folded to hosts or domains, and ranked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from opicflow.connectors.files.rank_writer import TableRows
from opicflow.pipelines.ranks.graph.harmonic import (
    HarmonicCentrality,
    HarmonicOptions,
    HarmonicProgress,
    harmonic_within,
)
from opicflow.pipelines.ranks.graph.site_graph import SiteGraph, SiteRules, fold
from opicflow.pipelines.ranks.graph.solver import Rank, Settings
from opicflow.pipelines.ranks.graph.store import StoredGraph
from opicflow.schemas.arrays import Floats, Ints

_ROWS_AT_ONCE = 1 << 16
_BYTES_A_PAGE = 4


@dataclass(frozen=True)
class SiteRankOptions:
    """How sites are made of pages, and how they are ranked.

    `settings` are those of importance; None = no importance. `harmonic` None = no harmonic centrality. At least one is
    computed; harmonic centrality orders the sites if `is_by_harmonic`.
    """

    rules: SiteRules
    settings: Settings | None = field(default_factory=Settings)
    harmonic: HarmonicOptions | None = None
    is_by_harmonic: bool = False
    memory_bytes: int = 512 << 20
    work: Path | None = None
    """The folder for the site of each page, if these need more than half of the memory; None = that of the graph."""


@dataclass(frozen=True, eq=False)
class SiteRanks:
    """The sites of a graph, their importance, their harmonic centrality, and the order of the rows.

    The highest is first, then by name. A rank that was not computed is None.
    """

    graph: SiteGraph
    rank: Rank | None
    harmonic: HarmonicCentrality | None
    names: list[str]
    order: Ints

    def rows(self) -> Iterator[TableRows]:
        """Yield the rows of a file of ranks."""
        for first in range(0, len(self.order), _ROWS_AT_ONCE):
            yield self._columns(self.order[first : first + _ROWS_AT_ONCE])

    def top(self, count: int) -> list[dict[str, str | float]]:
        """Return the first rows, as plain values."""
        columns = self._columns(self.order[:count])
        values = (column if isinstance(column, list) else column.tolist() for column in columns.values())
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    def positions(self, values: Floats) -> Ints:
        """Return the position of every site by these values, from 1; of equal ones the first by name is first."""
        positions = np.empty(len(values), np.int64)
        positions[_ordered(values, self.names)] = 1 + np.arange(len(values))
        return positions

    def _columns(self, sites: Ints) -> TableRows:
        graph = self.graph
        ranks: dict[str, Floats] = {}
        if self.rank is not None:
            values = self.rank.values[sites]
            ranks |= {"importance": values, "score": values * graph.sites}
        if self.harmonic is not None:
            ranks["harmonic"] = self.harmonic.values[sites]
        return {
            "site": [self.names[site] for site in sites.tolist()],
            **ranks,
            "pages": graph.pages[sites],
            "internal_links": graph.internal_links[sites],
            "links_in": graph.links_in[sites],
            "links_out": graph.links_out[sites],
        }


class SiteProgress(HarmonicProgress, Protocol):
    """Shows how far the ranks of sites are."""

    def show_folding(self, done: int, of: int) -> None:
        """Called with the parts of the scan of pages that are done, and how many there are."""

    def show_iterations(self, name: str, iterations: float, residual: float) -> None:
        """Called after each step of importance."""


def rank_sites(stored: StoredGraph, options: SiteRankOptions, progress: SiteProgress) -> SiteRanks:
    """Fold a graph and rank its sites."""
    if _BYTES_A_PAGE * stored.pages > options.memory_bytes // 2:
        with tempfile.TemporaryDirectory(prefix="sites-", dir=options.work or stored.path) as folder:
            graph = fold(stored, options.rules, Path(folder), progress.show_folding)
    else:
        graph = fold(stored, options.rules, None, progress.show_folding)
    harmonic = None
    if options.harmonic is not None:
        links, noun = graph.links(stored.path), options.rules.by
        harmonic = harmonic_within(links, noun, options.harmonic, options.memory_bytes, progress)
    rank = (
        None
        if options.settings is None
        else graph.rank(options.settings, partial(progress.show_iterations, "importance"))
    )
    ordering = harmonic if options.is_by_harmonic else rank
    if ordering is None:
        raise ValueError("sites are ordered by a rank that is not computed")
    names = graph.numbering.names()
    return SiteRanks(graph, rank, harmonic, names, _ordered(np.asarray(ordering.values), names))


def _ordered(values: Floats, names: list[str]) -> Ints:
    listed = values.tolist()
    return np.array(sorted(range(len(names)), key=lambda site: (-listed[site], names[site])), np.int64)
