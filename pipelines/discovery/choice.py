"""The best unread pages, of which no domain may have more than its limit."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.discovery.columns import KnownPages
from opicflow.pipelines.discovery.rule import DiscoveryRule
from opicflow.schemas.arrays import Bools, Floats, Ids, Ints

_MARGIN = 4


def explorable(pages: KnownPages, rule: DiscoveryRule) -> Ints:
    """Return how often each domain may yet be explored.

    A domain earns it by its entries, the pages which a seed or another domain that vouches leads to first, and by what
    was read of it by worth. So what explored pages lead to is not explored in turn before worth has followed: a farm of
    a thousand domains has the entries of the one that others link to.
    """
    by_worth = pages.read_by_worth()
    finder = np.where(pages.found_by >= 0, pages.domain[pages.found_by], -1)
    entry = (finder < 0) | (by_worth[finder] >= rule.reads_to_vouch) & (finder != pages.domain)
    entries, explored = (
        np.bincount(pages.domain[chosen], minlength=len(by_worth)) for chosen in (entry, pages.explored)
    )
    earned = np.floor(rule.explored_per_entry * entries + rule.explored_per_read * by_worth)
    yet: Ints = np.maximum(earned.astype(np.int64) - explored, 0)
    return yet


def best(values: Floats, page: Ids, group: Ints, limits: Ints, count: int) -> Ints:
    """Return the rows of up to `count` best values, best first, at most `limits[g]` of them of group g.

    Among equals the lower page id comes first. It sorts a few times `count` rows, and more only where limits need it.
    """
    rows, wanted = len(values), _MARGIN * count
    if count == 0 or rows == 0:
        return np.empty(0, np.int64)
    while True:
        if wanted < rows:
            # All values equal to the last one that is wanted take part, so that ids decide between them.
            threshold = np.partition(values, rows - wanted)[rows - wanted]
            taken = np.flatnonzero(values >= threshold)
        else:
            taken = np.arange(rows)
        taken = taken[np.lexsort((page[taken], -values[taken]))]
        chosen = taken[_places(group[taken]) < limits[group[taken]]][:count]
        if len(chosen) == count or len(taken) == rows:
            return chosen
        wanted *= _MARGIN


def best_filled(values: Floats, page: Ids, group: Ints, limit: int, count: int) -> Ints:
    """Return the rows of up to `count` best values, at most `limit` of a group as long as there are enough others."""
    limits = np.full(int(group.max()) + 1 if len(group) else 0, limit)
    chosen = best(values, page, group, limits, count)
    if len(chosen) < min(count, len(values)):
        left: Bools = np.ones(len(values), np.bool_)
        left[chosen] = False
        more = np.flatnonzero(left)
        over = best(values[more], page[more], np.zeros(len(more), np.int64), np.array([count]), count - len(chosen))
        chosen = np.concatenate((chosen, more[over]))
    return chosen


def _places(group: Ints) -> Ints:
    """Return the place of each row among those of its group, from 0 on."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    places = np.empty(len(group), np.int64)
    places[order] = np.arange(len(group)) - np.searchsorted(ordered, ordered, side="left")
    return places
