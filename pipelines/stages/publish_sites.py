"""The importance of the sites of a ledger, as packed columns: sums over their pages."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from opicflow.pipelines.ledger import Applied, Ledger, Plan
from opicflow.pipelines.stages.outputs import SITES
from opicflow.pipelines.stages.publish import ROWS_PER_PART, moment, texts_at
from opicflow.schemas.arrays import Array, Ids, Ints
from opicflow.schemas.columns import Texts, pack
from opicflow.schemas.sites import SiteKind, SiteNumbering


class _Sums:
    """Sums over the pages of each site, and one of its pages. They are added up in the order of pages."""

    def __init__(self) -> None:
        self.importance, self.changes_per_day, self.trend_per_day = (np.zeros(0) for _ in range(3))
        self.pages, self.read = (np.zeros(0, np.int64) for _ in range(2))
        self.some_page = np.zeros(0, np.uint64)

    def make_room(self, sites: int) -> None:
        """Room for so many sites."""
        for column in vars(self).values():
            column.resize(sites, refcheck=False)

    def add(self, sites: Array, **values: Array | int) -> None:
        """Add values of pages, whose sites are given."""
        for name, more in values.items():
            np.add.at(getattr(self, name), sites, more)


def pack_sites(
    ledger: Ledger,
    planned: Plan,
    by: SiteKind,
    removed: Iterable[str] = (),
    certificate: float | None = None,
) -> bytes:
    """Pack the sites of all pages of a plan, the most important first; equal ones by their first pages in the ledger.

    `removed` are sites that have lost pages. Those that have none left follow, with 0 pages. `certificate` is the bound
    of the error of the plan's importance, if it is not the ledger's.
    """
    survey, numbering, sums = planned.survey, SiteNumbering(by), _Sums()
    rate_sum = ledger.rate_sum()
    for first in range(0, len(survey.pages), ROWS_PER_PART):
        part = slice(first, first + ROWS_PER_PART)
        pages = survey.pages[part]
        starts, text = ledger.urls(pages)
        found = numbering.number(text, starts)
        rows = np.flatnonzero(found >= 0)  # the URL of the others is not known
        estimates = ledger.estimate(pages, rate_sum)
        is_read = estimates.visits[rows] > 0
        sums.make_room(numbering.sites)
        sums.add(
            found[rows],
            importance=survey.importance[part][rows],
            pages=1,
            read=is_read,
            changes_per_day=np.where(is_read, survey.changes_per_day[part][rows], 0.0),
            trend_per_day=estimates.trend_per_day[rows],
        )
        sums.some_page[found[rows]] = pages[rows]
    names = numbering.texts
    order = np.argsort(-sums.importance, kind="stable")
    starts, text = texts_at(np.append(names.starts, names.lengths.sum()), names.text, order)
    removed = set(removed)
    gone = Texts.of(sorted(name.encode() for name in removed.difference(numbering.names())) if removed else [])

    def column(values: Array) -> Array:
        listed: Array = np.concatenate((values[order], np.zeros(len(gone), values.dtype)))
        return listed

    return pack(
        SITES,
        {**moment(ledger, certificate), "by": by},
        {
            "importance": column(sums.importance),
            "pages": column(sums.pages),
            "read": column(sums.read),
            "changes_per_day": column(sums.changes_per_day),
            "trend_per_day": column(sums.trend_per_day),
            "shards": column(_shards_with(ledger, sums.some_page)),
            "url_lengths": np.concatenate((np.diff(starts), gone.lengths)),
            "url_bytes": np.concatenate((text, gone.text)),
        },
    )


def sites_of_removed(applied: Applied, by: SiteKind) -> set[str]:
    """Return the sites of the pages that an entry removed."""
    numbering = SiteNumbering(by)
    for starts, text in applied.removed_urls:
        numbering.number(text, starts)
    return set(numbering.names())


def _shards_with(ledger: Ledger, some_page: Ids) -> Ints:
    """Return how many shards have pages of the site of each page."""
    first, last = ledger.page_ids.site_range(some_page)
    return ledger.ranges.of(last) - ledger.ranges.of(first) + 1
