"""What it is worth to read a page: by its importance and that of its siblings, and to explore."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.discovery.logarithms import logarithms
from opicflow.pipelines.discovery.page_columns import DiscoveryPages
from opicflow.pipelines.discovery.rule import DiscoveryRule
from opicflow.schemas.arrays import Array, Floats, Ints


@dataclass(frozen=True, eq=False)
class PageWorth:
    """The worth of every known page, in logarithms of importance.

    `own` is the logarithm of its importance; `siblings` how far the mean of its siblings' lies above; `unread` the
    share of the other pages of its host that were not read, 1 where there are none. `worth` is what the page is worth,
    `exploring` what it is worth to explore.
    """

    own: Floats
    siblings: Floats
    unread: Floats
    worth: Floats
    exploring: Floats


def page_worth(pages: DiscoveryPages, siblings_weight: float, rule: DiscoveryRule) -> PageWorth:
    """Return the worth of all known pages.

    With L = log importance, and S = the mean L of the `reach` known pages of the same host on either side, read or not:
    worth = L + `siblings_weight` (S - L), and exploring = worth + `bonus` times the unread share of the host.
    """
    own = logarithms(np.maximum(pages.importance, rule.floor * 1e-3))
    first, after = pages.host_bounds()
    row = np.arange(len(pages))
    low, high = np.maximum(first, row - rule.reach), np.minimum(after, row + rule.reach + 1)
    others = high - low - 1
    siblings = np.where(others > 0, (_sums(own, low, high) - own) / np.maximum(others, 1) - own, 0.0)
    others = after - first - 1
    read = _sums(pages.is_read, first, after) - pages.is_read
    unread = 1.0 - read / np.maximum(others, 1)
    worth = own + siblings_weight * siblings
    return PageWorth(own, siblings, unread, worth, worth + rule.bonus * unread)


def _sums(values: Array, low: Ints, high: Ints) -> Floats:
    """Return the sum of the values of each range of rows."""
    sums = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    return sums[high] - sums[low]
