"""The worth of reading a page, by its importance and that of its siblings, and the worth of exploring it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from opicflow.pipelines.discovery.rule import DiscoveryRule
from opicflow.schemas.arrays import Array, Bools, Floats, Ids, Int, Ints
from opicflow.schemas.kernel import lean_kernel

_ROWS_AT_ONCE = 1 << 16


class PagesInOrder(Protocol):
    """The columns of `DiscoveryPages` that the worth of pages follows from."""

    @property
    def importance(self) -> Floats: ...
    @property
    def host(self) -> Array: ...
    @property
    def is_read(self) -> Bools: ...


@dataclass(frozen=True, eq=False)
class PageWorth:
    """The worth of every known page, in logarithms of importance.

    `own` is the logarithm of its importance; `siblings` by how much the mean of its siblings' logarithms is larger;
    `unread` the share of the other pages of its host that were not read, 1 where there are none. `worth` is the worth
    of reading the page, `exploring` the worth of exploring it.
    """

    own: Floats
    siblings: Array
    unread: Array
    siblings_weight: float
    bonus: float

    @property
    def worth(self) -> Floats:
        """The worth of reading each page."""
        worth: Floats = self.siblings_weight * self.siblings
        worth += self.own
        return worth

    @property
    def exploring(self) -> Floats:
        """The worth of exploring each page."""
        return self.exploring_of(np.arange(len(self.own)))

    def exploring_of(self, rows: Ints) -> Floats:
        """Return the worth of exploring the pages at these rows: some at a time, as there may be very many."""
        worth = np.empty(len(rows))
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE]
            here = self.siblings_weight * self.siblings[some]
            here += self.own[some]
            here += self.bonus * self.unread[some]
            worth[first : first + len(some)] = here
        return worth


def page_worth(pages: PagesInOrder, siblings_weight: float, rule: DiscoveryRule, kind: type = np.float64) -> PageWorth:
    """Return the worth of all known pages.

    With L = log importance, and S = the mean L of the `reach` known pages of the same host on either side, read or not:
    worth = L + `siblings_weight` (S - L), and exploring = worth + `bonus` times the unread share of the host.
    `kind` is the type of numbers that `siblings` and `unread` have.
    """
    own = np.maximum(pages.importance, rule.floor * 1e-3)
    fill_in_logarithms(own, own)  # without a copy: there may be very many pages
    siblings: Array = np.empty(len(own), kind)
    unread: Array = np.empty(len(own), kind)
    fill_in_worth(own, pages.host, pages.is_read, rule.reach, siblings, unread)
    return PageWorth(own, siblings, unread, siblings_weight, rule.bonus)


@lean_kernel
def fill_in_worth(own: Floats, host: Ids, is_read: Bools, reach: Int, siblings: Array, unread: Array) -> None:
    """Fill in two columns of `PageWorth`, host by host."""
    first: Int = np.int64(0)
    below, low_sum = np.int64(0), 0.0  # how many rows are added up, from the first of all, and their sum
    above, high_sum = np.int64(0), 0.0
    while first < own.shape[0]:
        after, read = first, np.int64(0)
        while after < own.shape[0] and host[after] == host[first]:
            read += is_read[after]
            after += 1
        for row in range(first, after):
            low, high = max(first, row - reach), min(after, row + reach + 1)
            while below < low:
                low_sum += own[below]
                below += 1
            while above < high:
                high_sum += own[above]
                above += 1
            mean = (high_sum - low_sum - own[row]) / np.float64(max(high - low - 1, 1))
            siblings[row] = mean - own[row] if high - low > 1 else 0.0
            unread[row] = 1.0 - np.float64(read - is_read[row]) / np.float64(max(after - first - 1, 1))
        first = after


def logarithms(values: Floats) -> Floats:
    """Return the natural logarithm of each value; all are above 0.

    It is the same on all processors: that of numpy differs in its last bit where there is AVX-512.
    """
    found = np.empty(len(values))
    fill_in_logarithms(np.ascontiguousarray(values, np.float64), found)
    return found


@lean_kernel
def fill_in_logarithms(values: Array, found: Array) -> None:
    """Fill in the logarithms of one column into another."""
    for row in range(values.shape[0]):
        found[row] = math.log(values[row])
