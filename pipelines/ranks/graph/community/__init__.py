"""Communities: the global ranks of a local domain, from little more than the domain (paper 004). Pure.

expansion   the pages read so far, their frontier, and fetchers, which read pages
selection   which pages of the frontier to read next
estimate    rounds of reading and ranking
"""

from opicflow.pipelines.ranks.graph.community.estimate import (
    DAMPING,
    TOLERANCE,
    EstimateRound,
    chosen,
    find_global_ranks,
    ranks_of,
)
from opicflow.pipelines.ranks.graph.community.expansion import (
    Expansion,
    FetchedPages,
    Fetcher,
    LocalFrontier,
    RecordedWeb,
)
from opicflow.pipelines.ranks.graph.community.selection import (
    Select,
    chance,
    expected_ranks,
    flows,
    influence,
    linkers,
)

__all__ = [
    "DAMPING",
    "TOLERANCE",
    "EstimateRound",
    "Expansion",
    "FetchedPages",
    "Fetcher",
    "LocalFrontier",
    "RecordedWeb",
    "Select",
    "chance",
    "chosen",
    "expected_ranks",
    "find_global_ranks",
    "flows",
    "influence",
    "linkers",
    "ranks_of",
]
