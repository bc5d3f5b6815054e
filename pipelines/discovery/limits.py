"""The best unread pages, of which no domain may have more than its limit."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.discovery.rule import DiscoveryPages, DiscoveryRule
from opicflow.schemas.arrays import Array, Bools, Floats, Ids, Int, Ints
from opicflow.schemas.kernel import lean_kernel

_MARGIN = 4
MOST_IN_A_SAMPLE = 1 << 16
"""Where about how many values are above another is enough, so many of them are looked at."""


def explorable(pages: DiscoveryPages, rule: DiscoveryRule) -> Ints:
    """Return how often each domain may yet be explored.

    A domain earns it by its entries, and by its pages that were read by worth. An entry is a page that was found first
    in another domain which vouches for it, as domains do of which enough was read by worth. So a farm of a thousand
    domains, one of which is explored, earns nothing for the others. All pages of a domain whose finder is unknown are
    one entry: seeds, but also pages that a domain lists itself, as in a sitemap.
    """
    domains = int(pages.domain.max()) + 1 if len(pages) else 0
    by_worth, explored, entries = np.zeros((3, domains), np.int64)
    columns = pages.domain, pages.found_by, pages.is_read, pages.explored
    count_entries(*columns, rule.reads_to_vouch, by_worth, explored, entries)
    earned = np.floor(rule.explored_per_entry * entries + rule.explored_per_read * by_worth)
    yet: Ints = np.maximum(earned.astype(np.int64) - explored, 0)
    return yet


@lean_kernel
def count_entries(
    domain: Array,
    found_by: Array,
    is_read: Bools,
    is_explored: Bools,
    reads_to_vouch: Int,
    by_worth: Ints,
    explored: Ints,
    entries: Ints,
) -> None:
    """Count for each domain the pages that were read by worth, those that were read to explore, and the entries."""
    for row in range(domain.shape[0]):
        own = domain[row]
        if is_read[row] and is_explored[row]:
            explored[own] += 1
        elif is_read[row]:
            by_worth[own] += 1
        if found_by[row] < 0:
            entries[own] = 1
    for row in range(domain.shape[0]):
        if found_by[row] >= 0:
            finder = domain[found_by[row]]
            entries[domain[row]] += finder != domain[row] and by_worth[finder] >= reads_to_vouch


def best(values: Floats, page: Ids, group: Array, limits: Ints, count: int, among: Bools | None = None) -> Ints:
    """Return the rows of up to `count` best values, best first, and at most `limits[g]` rows of group g.

    Among equals the lower page id comes first. `among`: which rows may be chosen; None: all. It sorts about four times
    `count` rows at once, the best ones first, and leaves out groups that have reached their limits.
    """
    left, chosen = limits.copy(), [np.empty(0, np.int64)]
    is_left = np.ones(len(values), np.bool_) if among is None else among.copy()  # there may be very many rows
    while count > 0:
        if (left <= 0).any():
            is_left &= (left > 0)[group]
        # All values equal to the last one that is wanted take part, so that ids decide between them.
        is_taken = is_left & (values >= _about_highest(values, is_left, _MARGIN * count))
        taken = np.flatnonzero(is_taken)
        if not len(taken):
            break
        taken = taken[np.lexsort((page[taken], -values[taken]))]
        taken = taken[_places(group[taken]) < left[group[taken]]][:count]
        chosen.append(taken)
        count -= len(taken)
        left -= np.bincount(group[taken], minlength=len(left))
        is_left &= ~is_taken
    return np.concatenate(chosen)


def sample_of(column: Array) -> Array:
    """Return rows of a column at equal distances; all of them if there are few."""
    rows: Array = column[:: 1 + len(column) // MOST_IN_A_SAMPLE]
    return rows


def _about_highest(values: Floats, is_left: Bools, wanted: int) -> float:
    """Return a value that about `wanted` of the rows left have or exceed, by a sample of many; at least one has it."""
    looked_at = sample_of(values)
    sample = looked_at[sample_of(is_left)]
    place = max(wanted * len(looked_at) // max(len(values), 1), _MARGIN)
    if place >= len(sample):
        return -np.inf
    sample.partition(len(sample) - place)
    return float(sample[len(sample) - place])


def _places(group: Array) -> Ints:
    """Return the number of each row within its group, from 0 on."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    places = np.empty(len(group), np.int64)
    places[order] = np.arange(len(group)) - np.searchsorted(ordered, ordered, side="left")
    return places
