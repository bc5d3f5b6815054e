"""Rows of a crawl entry before they are applied: their faults, and the rows at which hours of event time begin."""

from __future__ import annotations

from opicflow.pipelines.ledger.entry_columns import ItemColumns
from opicflow.schemas.arrays import Bytes, Int, Ints, Word
from opicflow.schemas.kernel import lean_kernel

(
    URL_TOO_LONG,
    TOO_MANY_LINKS,
    UNKNOWN_KIND,
    UNKNOWN_OUTCOME,
    LINKS_OF_OTHERS,
    UNKNOWN_CATEGORY,
    TIME_TOO_EARLY,
    OTHER_SHARD,
    NOT_RISING,
) = range(9)
"""The bits of what `find_problems` returns."""

_VISIT, _NONE, _NO_CATEGORY = 0, 0, 255
_HOUR_MS = 3_600_000


@lean_kernel
def find_problems(
    rows: ItemColumns,
    most_url_bytes: Int,
    most_links: Int,
    last_kind: Int,
    last_outcome: Int,
    categories: Int,
    first_page: Word,
    last_page: Word,
) -> Int:
    """Return the problems that any row has, a bit for each. Columns must fit together, and starts must not fall."""
    found = 0
    for i in range(rows.kind.shape[0]):
        links = rows.link_starts[i + 1] - rows.link_starts[i]
        is_visit = rows.kind[i] == _VISIT
        outcome, category, page = rows.outcome[i], rows.category[i], rows.page[i]
        found |= (rows.url_starts[i + 1] - rows.url_starts[i] > most_url_bytes) << URL_TOO_LONG
        found |= (links > most_links) << TOO_MANY_LINKS
        found |= (rows.kind[i] > last_kind) << UNKNOWN_KIND
        found |= (is_visit and (outcome > last_outcome or outcome == _NONE)) << UNKNOWN_OUTCOME
        found |= (links > 0 and not (is_visit and rows.links_known[i] != 0)) << LINKS_OF_OTHERS
        found |= (category >= categories and category != _NO_CATEGORY) << UNKNOWN_CATEGORY
        found |= (rows.time_ms[i] < 0 or rows.modified_ms[i] < 0) << TIME_TOO_EARLY
        found |= (page < first_page or page > last_page) << OTHER_SHARD
        offset, within = rows.offset[i], rows.within[i]
        found |= (within < 0) << NOT_RISING
        if i > 0:  # a difference of hostile offsets would wrap around
            before = rows.offset[i - 1]
            found |= (offset < before or (offset == before and within <= rows.within[i - 1])) << NOT_RISING
    for i in range(rows.link_categories.shape[0]):
        category = rows.link_categories[i]
        found |= (category >= categories and category != _NO_CATEGORY) << UNKNOWN_CATEGORY
    return found


@lean_kernel
def find_hours(kind: Bytes, time_ms: Ints, hour: Int, begins: Ints, hours: Ints) -> Int:
    """Write the rows at which the time of the latest visit so far enters a later hour, and that hour.

    `hour` is that before the first row. Returns how many there are.
    """
    found = 0
    for i in range(min(kind.shape[0], time_ms.shape[0])):
        if kind[i] == _VISIT and time_ms[i] // _HOUR_MS > hour:
            hour = time_ms[i] // _HOUR_MS
            begins[found], hours[found] = i, hour
            found += 1
    return found
