"""Crawl entries made from a web: what a crawler that visits these pages would have sent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.graph.csr import Graph
from opicflow.pipelines.ledger.entries import (
    NO_CATEGORY,
    CrawlEntry,
    CrawlItems,
    Ids,
    Ints,
    Kind,
    Outcome,
    Place,
)

SOURCE = "web"
_LINKS_KNOWN = np.isin(np.arange(len(Outcome)), [Outcome.FETCHED, Outcome.REDIRECTED, Outcome.ALIASED])


def visits(
    graph: Graph,
    ids: Ids,
    numbers: Ints,
    start: int = 0,
    outcomes: npt.NDArray[np.uint8] | None = None,
    time_ms: Ints | None = None,
) -> CrawlEntry:
    """Visits of the pages `numbers`, in that order, as one entry from offset `start` on.

    `outcomes` holds one `Outcome` a visit (FETCHED without it); only those that see the page bring its links.
    """
    rows = len(numbers)
    outcomes = np.full(rows, Outcome.FETCHED, np.uint8) if outcomes is None else outcomes
    known = _LINKS_KNOWN[outcomes]
    counts = np.where(known, graph.starts[numbers + 1] - graph.starts[numbers], 0)
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    places = np.arange(starts[-1]) + np.repeat(graph.starts[numbers] - starts[:-1], counts)
    items = CrawlItems(
        kind=np.full(rows, Kind.VISIT, np.uint8),
        page=ids[numbers],
        time_ms=np.zeros(rows, np.int64) if time_ms is None else time_ms,
        outcome=outcomes,
        digest=np.zeros(rows, np.uint64),
        modified_ms=np.zeros(rows, np.int64),
        category=np.full(rows, NO_CATEGORY, np.uint8),
        offset=np.arange(start, start + rows),
        within=np.zeros(rows, np.int64),
        links_known=known.astype(np.uint8),
        link_starts=starts,
        link_pages=ids[graph.targets[places]],
        link_weights=graph.weights[places].astype(np.uint16),
        link_categories=np.full(len(places), NO_CATEGORY, np.uint8),
        url_starts=np.zeros(rows + 1, np.int64),
        url_bytes=np.zeros(0, np.uint8),
    )
    return CrawlEntry(SOURCE, Place(start, 0), Place(start + rows, 0), items)


def introductions(ids: Ids, kind: Kind = Kind.ANNOUNCEMENT, start: int = 0) -> CrawlEntry:
    """All of these pages announced (or sighted), in that order, as one entry from offset `start` on."""
    rows = len(ids)
    nothing = np.zeros(rows, np.int64)
    items = CrawlItems(
        kind=np.full(rows, kind, np.uint8),
        page=ids,
        time_ms=nothing,
        outcome=np.zeros(rows, np.uint8),
        digest=np.zeros(rows, np.uint64),
        modified_ms=nothing,
        category=np.full(rows, NO_CATEGORY, np.uint8),
        offset=np.arange(start, start + rows),
        within=nothing,
        links_known=np.zeros(rows, np.uint8),
        link_starts=np.zeros(rows + 1, np.int64),
        link_pages=np.zeros(0, np.uint64),
        link_weights=np.zeros(0, np.uint16),
        link_categories=np.zeros(0, np.uint8),
        url_starts=np.zeros(rows + 1, np.int64),
        url_bytes=np.zeros(0, np.uint8),
    )
    return CrawlEntry(SOURCE, Place(start, 0), Place(start + rows, 0), items)
