"""The pages of a log or a state, with the page ids that a stream would give them.

Boundaries of shards are chosen from them before a stream begins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.connectors.files.log_reader import FileRange, known_format
from opicflow.connectors.files.opening import expand
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.pipelines.ledger import Kind, Ledger
from opicflow.pipelines.stages.decode import decode_range
from opicflow.pipelines.stages.decoded_batch import route_rows
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.arrays import Ids, Ints
from opicflow.schemas.shards import SITE_IDS, ShardRanges


@dataclass(frozen=True)
class KnownPages:
    """Page ids, ascending, and how often each page was visited."""

    ids: Ids
    visits: Ints

    def ranges(self, shards: int, by: str) -> ShardRanges:
        """Return ranges with about as many pages, or visits, in every shard."""
        return ShardRanges.even(self.ids, shards, self.visits if by == "visits" else None)

    def describe(self, ranges: ShardRanges) -> str:
        """Return in words how even ranges are."""
        sizes = np.bincount(ranges.of(self.ids), minlength=ranges.count)
        over = float(sizes.max() * ranges.count / max(len(self.ids), 1))
        divided = sum(first % SITE_IDS != 0 for first in ranges.firsts)
        sites = "no site is divided" if not divided else f"{divided} boundaries lie within a site"
        return f"{len(self.ids):,} pages in {ranges.count} shards, the largest {over:.2f} times the mean; {sites}"


def pages_of_logs(logs: str, rules: Rules, reading: Reading = ANY) -> KnownPages:
    """Return the pages of logs: those that were visited or announced, and those that links lead to."""
    ids, visits, seen = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)], Seen()
    for file in expand([logs]):
        format_ = known_format(file, reading)
        if format_ is None:
            continue
        for batch in decode_range(FileRange(file, file, format_, reading=reading), rules):
            items = route_rows(batch.decoded, batch.urls, file, rules, seen).items
            ids.append(np.unique(np.concatenate((items.page, items.link_pages))))
            visits.append(items.page[items.kind == Kind.VISIT])
    known, counts = np.unique(np.concatenate(visits), return_counts=True)
    pages = np.unique(np.concatenate(ids))
    visited = np.zeros(len(pages), np.int64)
    visited[np.searchsorted(pages, known)] = counts
    return KnownPages(pages, visited)


def pages_of_ledger(ledger: Ledger, rules: Rules) -> KnownPages:
    """Return the pages of a ledger whose URL is known."""
    estimates = ledger.estimate_all()
    starts, text = ledger.urls(estimates.pages)
    rows = np.flatnonzero(np.diff(starts) > 0)
    ids = rules.page_ids.of_text(text, starts)[rows]
    order = np.argsort(ids)
    return KnownPages(ids[order], estimates.visits[rows][order].astype(np.int64))
