"""The importance of the sites of a ledger, as packed columns: sums over their pages."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from opicflow.pipelines.ledger import Applied, Ledger, Planned
from opicflow.pipelines.transforms.outputs import SITES
from opicflow.pipelines.transforms.publish import ROWS_PER_PART, moment
from opicflow.schemas.arrays import Array, Floats, Ids, Ints
from opicflow.schemas.columns import pack
from opicflow.schemas.sites import SiteKind, SiteNumbering


def pack_sites(
    ledger: Ledger,
    planned: Planned,
    by: SiteKind,
    removed: Iterable[str] = (),
    certificate: float | None = None,
) -> bytes:
    """Pack the sites of all pages of a plan, the most important first.

    `removed` are sites that have lost pages. Those that have none left follow, with 0 pages. `certificate` is the bound
    of the error of the plan's importance, if it is not the ledger's.
    """
    survey, numbering = planned.survey, SiteNumbering(by)
    rate_sum = ledger.rate_sum()
    sites = np.full(len(survey.pages), -1, np.int32)
    trends, visits = np.zeros(len(sites)), np.zeros(len(sites), np.int64)
    for first in range(0, len(sites), ROWS_PER_PART):
        part = slice(first, first + ROWS_PER_PART)
        starts, text = ledger.urls(survey.pages[part])
        sites[part] = numbering.number(text, starts)
        estimates = ledger.estimate(survey.pages[part], rate_sum)
        trends[part], visits[part] = estimates.trend_per_day, estimates.visits
    rows = np.flatnonzero(sites >= 0)  # the URL of the others is not known
    sites, is_read = sites[rows], visits[rows] > 0
    number = numbering.sites

    def sums(values: Floats) -> Floats:
        total: Floats = np.bincount(sites, weights=values, minlength=number).astype(np.float64)
        return total

    importance, pages = sums(survey.importance[rows]), np.bincount(sites, minlength=number)
    some_page = np.zeros(number, np.uint64)
    some_page[sites] = survey.pages[rows]
    names = numbering.names()
    order = np.array(sorted(range(number), key=lambda site: (-importance[site], names[site])), np.int64)
    gone = sorted(set(removed).difference(names))
    texts = [name.encode() for name in (*(names[site] for site in order.tolist()), *gone)]

    def column(values: Array) -> Array:
        listed: Array = np.concatenate((values[order], np.zeros(len(gone), values.dtype)))
        return listed

    return pack(
        SITES,
        {**moment(ledger, certificate), "by": by},
        {
            "importance": column(importance),
            "pages": column(pages),
            "read": column(np.bincount(sites[is_read], minlength=number)),
            "changes_per_day": column(sums(np.where(is_read, survey.changes_per_day[rows], 0.0))),
            "trend_per_day": column(sums(trends[rows])),
            "shards": column(_shards_with(ledger, some_page)),
            "url_lengths": np.array([len(text) for text in texts], np.int64),
            "url_bytes": np.frombuffer(b"".join(texts), np.uint8),
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
    if not ledger.page_ids.by_site:
        return np.full(len(some_page), ledger.shards, np.int64)
    first, last = ledger.page_ids.site_range(some_page)
    return ledger.ranges.of(last) - ledger.ranges.of(first) + 1
