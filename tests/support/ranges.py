"""Ranges of shards of different widths, for tests: everything must hold for any boundaries."""

from __future__ import annotations

import random

from opicflow.schemas.shards import ShardRanges

_EXPONENT = 3


def any_ranges(shards: int, seed: int) -> ShardRanges:
    """Return so many ranges: of equal width for every third seed, else of widths that differ by orders of magnitude."""
    chance = random.Random(seed)
    if seed % 3 == 0 or shards == 1:
        return ShardRanges.equal(shards)
    widths = [chance.random() ** _EXPONENT + 1e-6 for _ in range(shards)]
    firsts, before = [0], 0.0
    for width in widths[:-1]:
        before += width
        firsts.append(max(int(before / sum(widths) * (1 << 64)), firsts[-1] + 1))
    return ShardRanges(tuple(firsts))
