"""FindGlobalPR (paper 004, algorithm 2): estimates the global ranks of a local domain by reading few other pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.ranks.graph.community.expansion import Expansion, Fetcher, LocalFrontier
from opicflow.pipelines.ranks.graph.community.selection import Select
from opicflow.pipelines.ranks.graph.comparison import Ranking
from opicflow.pipelines.ranks.graph.oracle import PageRanks, pagerank
from opicflow.schemas.arrays import Floats, Ids
from opicflow.schemas.ranking import highest

DAMPING = 0.85
TOLERANCE = 1e-6
"""The residual at which the paper ends its iterations."""


@dataclass(frozen=True, eq=False)
class EstimateRound:
    """The state after a round; round 0 reads no page. `ranks` are of all pages of F, in its order."""

    number: int
    fetched: int
    failed: int
    frontier: LocalFrontier
    ranks: PageRanks

    @property
    def estimate(self) -> Ranking:
        """The ranks of the local domain, scaled to sum 1."""
        return self.frontier.local_ranks(self.ranks.values)


def ranks_of(
    frontier: LocalFrontier, damping: float = DAMPING, tolerance: float = TOLERANCE, before: Floats | None = None
) -> PageRanks:
    """Compute PageRank of F; pages without links within F pay all pages. `before` are the ranks of a smaller F."""
    count = frontier.links.pages
    if before is not None:
        before = np.concatenate((before * (len(before) / count), np.full(count - len(before), 1.0 / count)))
    return pagerank(frontier.links, damping, tolerance=tolerance, start=before, gauss_seidel=True)


def chosen(frontier: LocalFrontier, scores: Floats, count: int) -> Ids:
    """Return the pages of the frontier with the highest scores, the highest first, equal scores by page id."""
    pages: Ids = frontier.pages[highest(scores, frontier.pages, count)]
    return pages


def find_global_ranks(
    expansion: Expansion,
    fetcher: Fetcher,
    select: Select,
    rounds: int,
    pages_a_round: int,
    damping: float = DAMPING,
    tolerance: float = TOLERANCE,
) -> Iterator[EstimateRound]:
    """Read `pages_a_round` pages in each round, those that `select` scores highest, and rank F after each round.

    `expansion` holds the local domain, and possibly more pages. It ends early when the frontier is empty. Failed pages
    count as requested, and are not requested again.
    """
    frontier = expansion.frontier()
    if not frontier.is_local.any():
        raise ValueError("no page of the local domain was read: there is nothing to rank")
    ranks = ranks_of(frontier, damping, tolerance)
    yield EstimateRound(0, 0, 0, frontier, ranks)
    for number in range(1, rounds + 1):
        pages = chosen(frontier, select(frontier, ranks.values, number), pages_a_round)
        if not len(pages):
            return
        fetched = fetcher.fetch(pages)
        expansion.add(fetched, np.zeros(len(fetched.pages), np.bool_))
        frontier = expansion.frontier()
        ranks = ranks_of(frontier, damping, tolerance, ranks.values)
        yield EstimateRound(number, len(fetched.pages), len(fetched.failed), frontier, ranks)
