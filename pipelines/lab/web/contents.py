"""Contents of pages and their changes: Poisson processes from a seed, each page with its own rate.

Visits observe these processes. Between two visits a page has changed at least once with probability 1 - e^-rt. Because
the process has no memory, the last change is an exponential time before the later visit, if that is after the earlier
visit. So one random number a visit is exact for both, however many changes there were.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.lab.web.webs import GOLDEN, mix
from opicflow.schemas.arrays import Bools, Floats, Hashes, Int, Ints, Word
from opicflow.schemas.kernel import kernel

_MS_PER_DAY = 86_400_000.0
_DEVIATIONS = 1.959964
"""95 % of a normal distribution are within so many standard deviations of its mean."""


class Observations(NamedTuple):
    """The results of visits, a row each."""

    changed: Bools
    """The page was never visited before, or has changed since its last visit."""
    digest: Hashes
    """A digest that every change replaces by a new one."""
    last_modified_ms: Ints
    """The time of the last change; never before 1970."""


class Contents:
    """The contents of pages 0 … n-1, from a seed: each changes as a Poisson process with a constant rate of its own.

    `rates` are changes a day, log-normal around `median_per_day`, 95 % within `decades` powers of ten.

    The result of a visit depends only on the seed, the page, its earlier visits and the time: neither on visits of
    other pages nor on batches.
    """

    def __init__(self, pages: int, seed: int, median_per_day: float = 1 / 14, decades: float = 3.0) -> None:
        if pages < 0:
            raise ValueError(f"pages must not be negative, not {pages}")
        if not 0.0 <= median_per_day <= 1e6:
            raise ValueError(f"median_per_day must be from 0 to 1000000, not {median_per_day}")
        if not 0.0 <= decades <= 12.0:
            raise ValueError(f"decades must be from 0 to 12, not {decades}")
        rate_key, self._change_key, self._digest_key = np.random.PCG64(seed).random_raw(3)
        deviation = decades * math.log(10.0) / (2.0 * _DEVIATIONS)
        self.rates: Floats = _log_normal(rate_key, pages, deviation) * median_per_day
        self._visits = np.zeros(pages, np.int64)
        self._versions = np.zeros(pages, np.int64)
        self._visited_ms = np.zeros(pages, np.int64)
        self._modified_ms = np.zeros(pages, np.int64)
        self._now_ms = 0

    def visit(self, numbers: Ints, times_ms: Ints) -> Observations:
        """Visit pages, in this order. Times are milliseconds since 1970, and never decrease."""
        rows = len(numbers)
        if rows == 0:
            return Observations(np.empty(0, np.bool_), np.empty(0, np.uint64), np.empty(0, np.int64))
        if times_ms.shape != numbers.shape:
            raise ValueError(f"there must be a time for each of {rows} visits, not {len(times_ms)}")
        if numbers.min() < 0 or numbers.max() >= len(self.rates):
            raise ValueError(f"numbers must be page numbers from 0 to {len(self.rates) - 1}")
        if times_ms[0] < self._now_ms or (np.diff(times_ms) < 0).any():
            raise ValueError("times_ms must not be negative, and ascend, over batches too")
        self._now_ms = int(times_ms[-1])
        found = Observations(np.empty(rows, np.bool_), np.empty(rows, np.uint64), np.empty(rows, np.int64))
        state = (self._visits, self._versions, self._visited_ms, self._modified_ms)
        _visit(numbers, times_ms, self.rates, self._change_key, self._digest_key, state, found)
        return found


@kernel
def _chance(key: Word, page: Int, draw: Int) -> float:
    """Return a page's random number of this index: above 0, at most 1."""
    bits = mix(mix(key + np.uint64(page + 1) * GOLDEN) + np.uint64(draw + 1) * GOLDEN)
    return np.float64((bits >> np.uint64(11)) + np.uint64(1)) * 2.0**-53


@kernel
def _log_normal(key: Word, pages: int, deviation: float) -> Floats:
    """Return numbers whose logarithms are normal with mean 0 and this standard deviation."""
    numbers = np.empty(pages, np.float64)
    for page in range(pages):
        normal = math.sqrt(-2.0 * math.log(_chance(key, page, 0))) * math.cos(2.0 * math.pi * _chance(key, page, 1))
        numbers[page] = math.exp(deviation * normal)
    return numbers


@kernel
def _visit(
    numbers: Ints,
    times_ms: Ints,
    rates: Floats,
    change_key: Word,
    digest_key: Word,
    state: tuple[Ints, Ints, Ints, Ints],
    found: Observations,
) -> None:
    """Visit pages one after the other: a batch may hold a page twice."""
    visits, versions, visited_ms, modified_ms = state
    for row in range(numbers.shape[0]):
        page, now_ms = numbers[row], times_ms[row]
        back_ms = math.inf
        if rates[page] > 0.0:
            back_ms = -math.log(_chance(change_key, page, visits[page])) / rates[page] * _MS_PER_DAY
        first = visits[page] == 0
        changed = first or back_ms < np.float64(now_ms - visited_ms[page])
        if changed:
            versions[page] += 1
            modified_ms[page] = now_ms - np.int64(min(back_ms, np.float64(now_ms)))
        visits[page] += 1
        visited_ms[page] = now_ms
        version = mix(digest_key + np.uint64(page + 1) * GOLDEN) + np.uint64(versions[page]) * GOLDEN
        found.changed[row] = changed
        found.digest[row] = mix(version)
        found.last_modified_ms[row] = modified_ms[page]
