"""Traps and twins: pages that bring ever more of themselves, or the same as others, by all that the crawl has seen.

A *shape* is what URLs have in common but for numbers, dates and sessions (url_shapes.py). A page is *known by others*
if a page of another shape links to it. A shape is a *trap* while, of many pages read,

- nearly all have the content of another one of its pages, or name another page as canonical; or
- nearly none is known by others, more are known than were read, they have led to next to no page of another shape, and
  those that wait are worth less than half of what a page that was read is worth in the mean.

A *twin* is a page whose URL differs from another one in a parameter that is known to mean nothing: canonical URLs omit
it, or contents are equal whatever its value is.

Both may be wrong. So a trap gets of discovery half its share of importance, but a little at least; none of this is
kept, and pages that are known by others are never limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opicflow.schemas.arrays import Array, Bools, Bytes, ColumnTuple, Floats, Hashes, Ints
from opicflow.schemas.kernel import lean_kernel

SAME, MORE, TWIN = 1, 2, 3
"""Why pages are limited: they have the same content, lead to more of themselves, or are twins."""
WHY = ("", "same content", "more of itself", "twin")
_MANY = 1 << 62
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class TrapRule:
    """The constants of the rule.

    - `least_read`: a shape is judged once so many of its pages were read, a parameter once so many pages with it show
      that it means nothing.
    - `nearly`: the share of pages that counts as nearly all.
    - `half`: the share of equal contents that shows that a parameter means nothing: contents change between two
      fetches, and those of different pages are hardly ever equal.
    - `leads`: so many pages of other shapes are found by each page read of a trap, at most.
    - `worth`: what those of its pages that wait are worth at most, of the mean of all pages read.
    - `fair`: a trap gets its share of importance times this of the orders for unread pages. `each`: the share of a
      cycle's orders that it gets at least; `all`: what all traps get so together; `twins`: the share of all twins.
    - `refreshed`: by what the importance of a trap's pages is multiplied where they share the bandwidth for refreshing.
      Twins have none there, as pages that redirect: the content is refreshed at another address.
    """

    least_read: int = 10
    nearly: float = 0.9
    half: float = 0.5
    leads: float = 0.2
    worth: float = 0.5
    fair: float = 0.5
    each: float = 0.002
    all: float = 0.01
    twins: float = 0.002
    refreshed: float = 0.02


@ColumnTuple.register
class ShapePages(NamedTuple):
    """Columns of pages, a row for each page."""

    shape: Array
    """The number of its shape, from 1 on; 0: it has none, as nothing of its URL may be any."""
    importance: Floats
    is_read: Bools
    by_others: Bools
    """Whether a page of another shape links to it."""
    is_alias: Bools
    """Whether it was read, and names another page as canonical."""
    digest: Array
    """Of its content; 0 = not known."""
    leads: Array
    """How many pages of other shapes were found by it first."""


class Traps(NamedTuple):
    """The figures of all shapes, by their numbers; row 0 is no shape. Shapes of few pages read have none."""

    known: Ints
    read: Ints
    by_others: Ints
    importance: Floats
    """Of the pages read that are not known by others."""
    why: Bytes
    """0: it is no trap."""


@ColumnTuple.register
class _Sums(NamedTuple):
    """Sums over the pages of each shape."""

    known: Ints
    read: Ints
    by_others: Ints
    leads: Ints
    waiting: Ints
    """Pages that were not read, and are not known by others."""
    importance: Floats
    waits: Floats
    """The importance of waiting pages."""


@lean_kernel
def _sum_shapes(pages: ShapePages, sums: _Sums) -> None:
    """Sum up the pages of each shape: one pass without columns of its own, as there may be very many pages."""
    for i in range(pages.shape.shape[0]):
        shape = pages.shape[i]
        if shape == 0:
            continue
        sums.known[shape] += 1
        sums.read[shape] += pages.is_read[i]
        sums.by_others[shape] += pages.by_others[i]
        sums.leads[shape] += pages.leads[i]
        if not pages.by_others[i]:
            if pages.is_read[i]:
                sums.importance[shape] += pages.importance[i]
            else:
                sums.waiting[shape] += 1
                sums.waits[shape] += pages.importance[i]


def judge_shapes(pages: ShapePages, shapes: int, mean: float, rule: TrapRule) -> Traps:
    """Judge so many shapes. `mean` is the importance of a page that was read, in the mean of all shapes."""
    known, read, by_others, leads, waiting = (np.zeros(shapes + 1, np.int64) for _ in range(5))
    sums = _Sums(known, read, by_others, leads, waiting, np.zeros(shapes + 1), np.zeros(shapes + 1))
    _sum_shapes(pages, sums)
    is_many = sums.read >= rule.least_read
    is_many[0] = False
    nearly_none = 1.0 - rule.nearly
    more = is_many & (sums.by_others <= nearly_none * sums.known) & (sums.known > sums.read)
    more &= (sums.leads <= rule.leads * sums.read) & (sums.waits <= rule.worth * mean * sums.waiting)
    same = is_many & (_copies(pages, is_many) >= rule.nearly * sums.read)
    why = np.where(same, SAME, np.where(more, MORE, 0)).astype(np.uint8)
    return Traps(sums.known, sums.read, sums.by_others, sums.importance, why)


def _copies(pages: ShapePages, is_many: Bools) -> Ints:
    """Return how many pages of each shape are aliases, or have the content of an earlier one of the shape."""
    aliases = np.bincount(pages.shape[pages.is_alias], minlength=len(is_many))
    rows = np.flatnonzero(pages.is_read & ~pages.is_alias & (pages.digest != 0))
    rows = rows[is_many[pages.shape[rows]]]
    shape = pages.shape[rows].astype(np.uint64)
    both = np.unique((shape << np.uint64(32)) | pages.digest[rows].astype(np.uint64))
    different = np.bincount((both >> np.uint64(32)).astype(np.int64), minlength=len(is_many))
    copies: Ints = aliases + np.bincount(pages.shape[rows], minlength=len(is_many)) - different
    return copies


class ParameterPages(NamedTuple):
    """A row for each parameter of each page that was read."""

    name: Hashes
    """A hash of host and name."""
    bare: Hashes
    """A hash of the URL without it."""
    kept: Array
    """1: the canonical URL of the page has it, too; -1: it omits it; 0: neither."""
    digest: Array
    """Of the content; 0 = not known, or the page is an alias."""


class Judged(NamedTuple):
    """The parameters that mean nothing: sorted hashes of host and name, and how many pages say so."""

    name: Hashes
    pages: Ints


def judge_parameters(pages: ParameterPages, whole: Hashes, digest: Array, rule: TrapRule) -> Judged:
    """Judge parameters. `whole` and `digest` are of pages read: a hash of the URL, and the digest of the content."""
    names, of = np.unique(pages.name, return_inverse=True)
    of = of.astype(np.int64)
    omit = np.bincount(of[pages.kept < 0], minlength=len(names))
    keep = np.bincount(of[pages.kept > 0], minlength=len(names))
    same = differ = np.zeros(len(names), np.int64)
    rows = np.flatnonzero((pages.digest != 0) & (pages.kept == 0))
    if len(rows):
        rows = rows[np.lexsort((pages.bare[rows], of[rows]))]
        bare, own = pages.bare[rows], pages.digest[rows]
        is_first = np.append(True, (bare[1:] != bare[:-1]) | (of[rows][1:] != of[rows][:-1]))
        first = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
        order = np.argsort(whole, kind="stable")
        at = np.minimum(np.searchsorted(whole, bare, sorter=order), max(len(whole) - 1, 0))
        base = order[at] if len(whole) else at
        has_base = (whole[base] == bare) & (digest[base] != 0) if len(whole) else np.zeros(len(rows), np.bool_)
        beside = np.where(has_base, digest[base] if len(whole) else 0, own[first])
        compared = has_base | ~is_first
        equal = compared & (beside == own)
        same = np.bincount(of[rows[equal]], minlength=len(names))
        differ = np.bincount(of[rows[compared & ~equal]], minlength=len(names))
    say_so = omit + np.where(same >= rule.half * (same + differ), same, 0)
    chosen = (say_so >= rule.least_read) & (omit >= rule.nearly * (omit + keep))
    return Judged(names[chosen], say_so[chosen])


class LimitedPages(NamedTuple):
    """Pages that get few of the orders of discovery, in groups: the traps and the twins of one parameter."""

    of: Array
    """The group of every page; 0 = it has no limit."""
    why: Bytes
    """By group; 0 for group 0."""
    share: Floats
    """By group: of a cycle's orders."""
    phase: Floats
    """By group, from 0 to 1: so that they do not all get theirs in the same cycle."""

    def left(self, orders: float, second: int) -> Ints:
        """Return how many pages of each group a cycle that begins at this second may have, of so many orders.

        Parts of a page come true in as many cycles as they say.
        """
        turns = np.mod(self.phase + _GOLDEN * (second // 60 % 1_000_003), 1.0)
        left: Ints = np.floor(self.share * orders + turns).astype(np.int64)
        left[0] = _MANY
        return left

    def count_in_cycle(self, which: Bools, orders: float, second: int) -> int:
        """Return how many such pages a cycle like this may have."""
        counts = np.bincount(self.of[which], minlength=len(self.share))
        return int(np.minimum(counts, self.left(orders, second)).sum())

    def count_a_day(self, which: Bools, cycle_days: float, per_day: float) -> float:
        """Return how many such pages cycles may have a day, of so many orders."""
        counts = np.bincount(self.of[which], minlength=len(self.share)) / cycle_days
        return float(counts[0] + np.minimum(counts[1:], self.share[1:] * per_day).sum())


def share_orders(importance: Floats, why: Bytes, discovery: float, rule: TrapRule) -> Floats:
    """Return the share of all orders that each group gets; `importance` is its share of all pages that were read."""
    is_twin = why == TWIN
    traps, twins = int((~is_twin).sum()), int(is_twin.sum())
    least = np.where(is_twin, rule.twins / max(twins, 1), min(rule.each, rule.all / max(traps, 1)))
    share: Floats = np.where(is_twin, least, np.maximum(rule.fair * discovery * importance, least))
    return share


def twins_of(whole: Hashes, number: Array, is_read: Bools) -> Bools:
    """Return which pages are twins: without their meaningless parameters they are a page that is known.

    `whole` is a hash of the URL without these, `number` 0 where it has none. Where only such URLs of a page are known,
    one is no twin: one that was read, or the first one.
    """
    rows = np.flatnonzero(whole != 0)
    order = rows[np.lexsort((rows, ~is_read[rows], number[rows] != 0, whole[rows]))]
    is_first = np.append(True, whole[order][1:] != whole[order][:-1]) if len(order) else np.zeros(0, np.bool_)
    is_twin = np.zeros(len(whole), np.bool_)
    is_twin[order] = ~is_first & (number[order] != 0)
    return is_twin
