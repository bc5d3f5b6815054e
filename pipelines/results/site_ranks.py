"""Ranks of the sites of a stored graph: the page graph is folded to hosts or domains, and ranked."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from opicflow.connectors.files.rank_writer import TableRows
from opicflow.pipelines.graph.site_graph import SiteGraph, SiteRules, fold
from opicflow.pipelines.graph.solver import Rank, Settings
from opicflow.pipelines.graph.store import StoredGraph
from opicflow.schemas.arrays import Ints

_ROWS_AT_ONCE = 1 << 16
_BYTES_A_PAGE = 4


@dataclass(frozen=True)
class SiteRankOptions:
    """How sites are made of pages, and how they are ranked."""

    rules: SiteRules
    settings: Settings = field(default_factory=Settings)
    memory_bytes: int = 512 << 20
    work: Path | None = None
    """The folder for the site of each page, if these need more than half of the memory; None = that of the graph."""


@dataclass(frozen=True, eq=False)
class SiteRanks:
    """The sites of a graph, their importance, and the order of the rows: the most important first, then by name."""

    graph: SiteGraph
    rank: Rank
    names: list[str]
    order: Ints

    def rows(self) -> Iterator[TableRows]:
        """Yield the rows of a file of ranks."""
        for first in range(0, len(self.order), _ROWS_AT_ONCE):
            yield self._columns(self.order[first : first + _ROWS_AT_ONCE])

    def top(self, count: int) -> list[dict[str, Any]]:
        """Return the first rows, as plain values."""
        columns = self._columns(self.order[:count])
        values = (column if isinstance(column, list) else column.tolist() for column in columns.values())
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    def _columns(self, sites: Ints) -> dict[str, Any]:
        graph, values = self.graph, self.rank.values[sites]
        return {
            "site": [self.names[site] for site in sites.tolist()],
            "importance": values,
            "score": values * graph.sites,
            "pages": graph.pages[sites],
            "internal_links": graph.internal_links[sites],
            "links_in": graph.links_in[sites],
            "links_out": graph.links_out[sites],
        }


def rank_sites(
    stored: StoredGraph,
    options: SiteRankOptions,
    folding: Callable[[int, int], None] = lambda done, of: None,
    ranking: Callable[[int, float], None] = lambda step, left: None,
) -> SiteRanks:
    """Fold a graph and rank its sites. `folding` is called with the parts of the scan, `ranking` after each step."""
    if _BYTES_A_PAGE * stored.pages > options.memory_bytes // 2:
        with tempfile.TemporaryDirectory(prefix="sites-", dir=options.work or stored.path) as folder:
            graph = fold(stored, options.rules, Path(folder), folding)
    else:
        graph = fold(stored, options.rules, None, folding)
    rank = graph.rank(options.settings, ranking)
    names, values = graph.numbering.names(), rank.values.tolist()
    order = sorted(range(graph.sites), key=lambda site: (-values[site], names[site]))
    return SiteRanks(graph, rank, names, np.array(order, np.int64))
