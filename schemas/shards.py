"""Shards: ranges of page ids, each with a ledger of its own.

The ranges cover all page ids and may differ in width. A boundary is between sites, or within a large one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from opicflow.schemas.arrays import Floats, Ids, Ints
from opicflow.schemas.errors import UserError
from opicflow.schemas.kernel import lean_kernel
from opicflow.schemas.pages import SITE_BITS, PageIds

MOST_SHARDS = 1 << 16

SITE_IDS = 1 << (64 - SITE_BITS)
"""The number of page ids that begin with the same hash of a site."""


class RangesRefused(UserError, ValueError):
    """Boundaries of shards overlap, or are out of order, or do not cover all page ids. The message is one line."""


@dataclass(frozen=True)
class ShardRanges:
    """The ranges of all shards. `firsts` holds the first page id of each, in order.

    >>> ShardRanges.equal(2).bounds(1)
    (9223372036854775808, 18446744073709551615)
    """

    firsts: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        """Refuse ranges that do not cover all page ids once."""
        firsts = self.firsts
        if not 1 <= len(firsts) <= MOST_SHARDS:
            raise RangesRefused(f"there are {len(firsts)} shards: give 1 to {MOST_SHARDS}")
        for first in firsts:
            if type(first) is not int or not 0 <= first < 1 << 64:
                raise RangesRefused(f"a shard begins at {str(first)[:30]}: give whole numbers of 64 bits")
        if firsts[0] != 0:
            raise RangesRefused(f"the first shard begins at {firsts[0]}: it must begin at 0, or pages have no shard")
        for shard, (before, first) in enumerate(pairwise(firsts), 1):
            if first <= before:
                raise RangesRefused(f"shard {shard} begins at {first}, not behind shard {shard - 1} at {before}")

    @classmethod
    def equal(cls, shards: int) -> ShardRanges:
        """Return so many ranges of equal width: shard s has the ids with `(id * shards) >> 64 == s`."""
        if not 1 <= shards <= MOST_SHARDS:
            raise RangesRefused(f"there are {shards} shards: give 1 to {MOST_SHARDS}")
        return cls(tuple(-((-shard << 64) // shards) for shard in range(shards)))

    @classmethod
    def even(cls, ids: Ids, shards: int, weights: Ints | None = None) -> ShardRanges:
        """Return so many ranges that hold about equally many of the given page ids, or about equal weights.

        A boundary is moved to the nearest end of a site if no shard becomes much larger by that. With too few different
        ids the ranges are equal.
        """
        ids, places = np.unique(ids, return_inverse=True)
        if len(ids) < 2 * shards:
            return cls.equal(shards)
        counts = np.bincount(places, weights, len(ids)).astype(np.float64)
        before = np.concatenate(([0.0], np.cumsum(counts)))  # the weight of the ids before each
        total = before[-1]
        sites = ids >> np.uint64(64 - SITE_BITS)
        site_starts = np.flatnonzero(np.append(True, sites[1:] != sites[:-1]))
        firsts = [0]
        for shard in range(1, shards):
            wanted = total * shard / shards
            at = int(np.searchsorted(before, wanted))
            nearest = _nearest(site_starts, before, wanted)
            if abs(before[nearest] - wanted) <= _SLACK * total / shards:
                first = int(ids[nearest]) // SITE_IDS * SITE_IDS
            else:
                first = int(ids[min(at, len(ids) - 1)])
            firsts.append(max(first, firsts[-1] + 1))
        return cls(tuple(firsts))

    @property
    def count(self) -> int:
        """The number of shards."""
        return len(self.firsts)

    @property
    def is_equal(self) -> bool:
        """Whether all have the same width."""
        return self.count == 1 or self.firsts[1:] == ShardRanges.equal(self.count).firsts[1:]

    def bounds(self, shard: int) -> tuple[int, int]:
        """Return the first and the last page id of a shard, both inside it."""
        if not 0 <= shard < self.count:
            raise ValueError(f"shard {shard} is not one of 0 to {self.count - 1}")
        after = self.firsts[shard + 1] if shard + 1 < self.count else 1 << 64
        return self.firsts[shard], after - 1

    @cached_property
    def first_ids(self) -> Ids:
        """The first page id of each shard."""
        return np.array(self.firsts, np.uint64)

    def of(self, ids: Ids) -> Ints:
        """Return the shard of each page id."""
        if ids.dtype != np.uint64:
            raise TypeError(f"page ids are uint64, not {ids.dtype}")
        shards = np.empty(len(ids), np.int64)
        find_shards(self.first_ids, self._nearly, np.ascontiguousarray(ids), shards)
        return shards

    @cached_property
    def _nearly(self) -> Ints:
        """The shard of the smallest page id with each value of its first bits: the search begins there."""
        bits = min(self.count.bit_length() + 6, 16)
        starts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
        return np.searchsorted(self.first_ids, starts, side="right") - 1

    def part_of_site(self, shard: int, ids: Ids) -> tuple[Floats, Floats]:
        """Return which part of the page ids of each page's site a shard has, and which part the shards before it have.

        The ids of a site's pages are evenly spread over the range of the site. So it is also the part of its pages.
        """
        first, last = self.bounds(shard)
        sites = ids >> np.uint64(64 - SITE_BITS)
        parts, before = np.ones(len(ids)), np.zeros(len(ids))
        for site in {first // SITE_IDS, last // SITE_IDS}:
            begin, end = max(first, site * SITE_IDS), min(last + 1, (site + 1) * SITE_IDS)
            parts[sites == np.uint64(site)] = (end - begin) / SITE_IDS
            before[sites == np.uint64(site)] = (begin - site * SITE_IDS) / SITE_IDS
        return parts, before

    def to_json(self) -> list[int]:
        """Return the ranges as JSON values."""
        return list(self.firsts)

    @classmethod
    def from_json(cls, values: object) -> ShardRanges:
        """Read what `to_json` returned. Raises `RangesRefused`."""
        if not isinstance(values, list):
            raise RangesRefused("the boundaries of the shards are no list")
        return cls(tuple(values))

    def stored(self) -> dict[str, object]:
        """Return the ranges as logs and snapshots store them: boundaries of equal ranges are left out."""
        return {"shards": self.count, **({} if self.is_equal else {"first_ids": self.to_json()})}

    @classmethod
    def of_stored(cls, values: Mapping[str, object]) -> ShardRanges:
        """Read what `stored` returned, among other values. Raises `ValueError`, `KeyError` or `TypeError`."""
        if type(values["shards"]) is not int:
            raise ValueError("the number of shards is no whole number")
        if "first_ids" not in values:
            return cls.equal(values["shards"])
        ranges = cls.from_json(values["first_ids"])
        if ranges.count != values["shards"]:
            raise ValueError(f"there are {ranges.count} boundaries of {values['shards']} shards")
        return ranges


@dataclass(frozen=True)
class Shard:
    """One shard: its number, the ranges of all shards, and the rules that give pages their ids."""

    number: int = 0
    ranges: ShardRanges = field(default_factory=ShardRanges)
    page_ids: PageIds = field(default_factory=PageIds)

    def parts_of_hosts(self, pages: Ids) -> tuple[Floats, Floats]:
        """Return which part of the pages of each page's host this shard has, and which part the shards before it have.

        A host is in one shard, unless a boundary divides its site.
        """
        return self.ranges.part_of_site(self.number, pages)


_SLACK = 0.04
"""The part of a mean shard by which a boundary may be moved to the end of a site."""


def _nearest(starts: Ints, before: Floats, wanted: float) -> int:
    """Return the index, among the starts of sites, with the weight before it that is nearest to the wanted one."""
    at = int(np.searchsorted(before[starts], wanted))
    around = starts[max(at - 1, 0) : at + 1]
    return int(around[np.argmin(np.abs(before[around] - wanted))])


@lean_kernel
def find_shards(firsts: Ids, nearly: Ints, ids: Ids, shards: Ints) -> None:
    """Write the shard of each page id: the last one that does not begin behind it. `nearly` has a power of two rows."""
    shift = np.uint64(64)
    rows = nearly.shape[0]
    while rows > 1:
        rows >>= 1
        shift -= np.uint64(1)
    last = firsts.shape[0] - 1
    for i in range(ids.shape[0]):
        shard = nearly[ids[i] >> shift]
        while shard < last and ids[i] >= firsts[shard + 1]:
            shard += 1
        shards[i] = shard
