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
    siblings_weight: float
    bonus: float

    @property
    def worth(self) -> Floats:
        """What each page is worth."""
        worth: Floats = self.siblings_weight * self.siblings
        worth += self.own
        return worth

    @property
    def exploring(self) -> Floats:
        """What each page is worth to explore."""
        return self.worth + self.bonus * self.unread


def page_worth(pages: DiscoveryPages, siblings_weight: float, rule: DiscoveryRule) -> PageWorth:
    """Return the worth of all known pages.

    With L = log importance, and S = the mean L of the `reach` known pages of the same host on either side, read or not:
    worth = L + `siblings_weight` (S - L), and exploring = worth + `bonus` times the unread share of the host.
    """
    own = logarithms(np.maximum(pages.importance, rule.floor * 1e-3))
    first, after = pages.host_bounds()
    low, high = np.arange(-rule.reach, len(pages) - rule.reach), np.arange(rule.reach + 1, len(pages) + rule.reach + 1)
    np.maximum(first, low, out=low)
    np.minimum(after, high, out=high)
    siblings = _sums(own, low, high)  # from here on in place: there may be very many pages
    others = np.subtract(high, low, out=high)
    others -= 1
    del low, high
    siblings -= own
    siblings /= np.maximum(others, 1)
    siblings -= own
    siblings[others <= 0] = 0.0
    read = _sums(pages.is_read, first, after)
    read -= pages.is_read
    others = np.subtract(after, first, out=others)
    others -= 1
    read /= np.maximum(others, 1, out=others)
    return PageWorth(own, siblings, np.subtract(1.0, read, out=read), siblings_weight, rule.bonus)


def _sums(values: Array, low: Ints, high: Ints) -> Floats:
    """Return the sum of the values of each range of rows."""
    sums = np.zeros(len(values) + 1)
    np.cumsum(values, out=sums[1:])
    found: Floats = sums[high]
    found -= sums[low]
    return found
