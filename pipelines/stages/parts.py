"""The parts of the results of a replay: their kinds, and their positions in the order of the log."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class PartKind(str, Enum):
    """The kinds of parts. The value begins the file name."""

    IMPORTANCE = "importance"
    """All pages at the end."""
    SCHEDULE = "schedule"
    """When each page is due, at the end."""
    ORDERS = "orders"
    """The orders of the next cycle, at the end."""
    SITES = "sites"
    """The importance of all sites, at the end."""
    PUBLICATIONS = "publications"
    """Importance that was published while the crawl ran."""
    REPLANNED = "replanned"
    """Schedules that were published while the crawl ran."""
    ORDERED = "ordered"
    """Orders that were published while the crawl ran."""
    TOMBSTONES = "tombstones"
    """Removed pages."""
    REJECTS = "rejects"
    """Rejects, as lines of JSON."""
    MOMENTS = "moments"
    """The importance of all pages while the crawl ran, as `replay/moments.py` packs it."""
    REPORT = "report"
    """The report of a segment, as JSON."""


FINAL = (PartKind.IMPORTANCE, PartKind.SCHEDULE, PartKind.ORDERS, PartKind.SITES)
"""The kinds that are made at the end of the input; their position is a number."""

MOVED, VISITED = 0, 1
"""The last number of the position of publications: pages whose score moved, then visited pages."""
AT_TICK, AT_POLICIES, AT_ROWS = 0, 1, 2
"""The last number of the position of tombstones: removed by a tick, by policies, by rows."""
EMPTY_FILES = -1
"""The batch of the rejects of empty files."""


class Part(NamedTuple):
    """A part of the results.

    `position` is a number for final kinds, (segment,) for reports, (segment, batch) for rejects, (segment, batch,
    piece) for moments and for what a plan publishes, and (segment, batch, piece, step) for publications and tombstones.
    """

    kind: PartKind
    position: tuple[int, ...]
    data: bytes
