"""The best unread pages, of which no domain may have more than its limit."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.discovery.rule import DiscoveryPages, DiscoveryRule
from opicflow.schemas.arrays import Array, Bools, Floats, Ids, Ints

_MARGIN = 4


def explorable(pages: DiscoveryPages, rule: DiscoveryRule) -> Ints:
    """Return how often each domain may yet be explored.

    A domain earns it by its entries, and by its pages that were read by worth. An entry is a page that was found first
    in another domain which vouches for it, as domains do of which enough was read by worth. So a farm of a thousand
    domains, one of which is explored, earns nothing for the others. All pages of a domain whose finder is unknown are
    one entry: seeds, but also pages that a domain lists itself, as in a sitemap.
    """
    by_worth = pages.read_by_worth()
    is_found = pages.found_by >= 0
    finder = np.where(is_found, pages.domain[pages.found_by], -1)
    vouches = by_worth >= rule.reads_to_vouch
    entry = is_found & vouches[finder] & (finder != pages.domain)
    del finder
    entries, explored, told = (
        np.bincount(pages.domain[chosen], minlength=len(by_worth))
        for chosen in (entry, pages.explored & pages.is_read, ~is_found)
    )
    entries = entries + (told > 0)
    earned = np.floor(rule.explored_per_entry * entries + rule.explored_per_read * by_worth)
    yet: Ints = np.maximum(earned.astype(np.int64) - explored, 0)
    return yet


def best(values: Floats, page: Ids, group: Array, limits: Ints, count: int, among: Bools | None = None) -> Ints:
    """Return the rows of up to `count` best values, best first, and at most `limits[g]` rows of group g.

    Among equals the lower page id comes first. `among`: which rows may be chosen; None: all. It sorts a few times
    `count` rows at once, the best ones first, and leaves out groups that have reached their limits.
    """
    left, chosen = limits.copy(), [np.empty(0, np.int64)]
    is_left = np.ones(len(values), np.bool_) if among is None else among.copy()  # there may be very many rows
    while count > 0:
        if (left <= 0).any():
            is_left &= (left > 0)[group]
        here, some = values[is_left], _MARGIN * count
        if not len(here):
            break
        threshold = -np.inf
        if some < len(here):
            here.partition(len(here) - some)
            threshold = here[len(here) - some]
        del here
        # All values equal to the last one that is wanted take part, so that ids decide between them.
        is_taken = is_left & (values >= threshold)
        taken = np.flatnonzero(is_taken)
        taken = taken[np.lexsort((page[taken], -values[taken]))]
        taken = taken[_places(group[taken]) < left[group[taken]]][:count]
        chosen.append(taken)
        count -= len(taken)
        left -= np.bincount(group[taken], minlength=len(left))
        is_left &= ~is_taken
    return np.concatenate(chosen)


def _places(group: Array) -> Ints:
    """Return the number of each row within its group, from 0 on."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    places = np.empty(len(group), np.int64)
    places[order] = np.arange(len(group)) - np.searchsorted(ordered, ordered, side="left")
    return places
