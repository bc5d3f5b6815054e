"""What pages hold and when it changes: Poisson processes, each page at its own rate, made from a seed.

The visits of a crawl see a page's process only where they look. Between two looks it changed at least once with
probability 1 - e^-rt, and by memorylessness the last change lies an exponential time back from the later look, if that
is after the earlier one: so one draw a visit is exact for both, however many changes there were.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.web.webs import GOLDEN, mix
from opicflow.schemas.kernel import kernel

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

_MS_PER_DAY = 86_400_000.0
_DEVIATIONS = 1.959964
"""95 % of a normal law lie within so many deviations of its middle."""


class Observations(NamedTuple):
    """What visits found, a row each: whether it was new, which version, and since when it is what it is."""

    changed: Bools
    """The page was never visited, or changed since the last visit."""
    digest: UInt64s
    """The same as long as the page does not change, and never again."""
    last_modified_ms: Int64s
    """When it last changed: after the last visit if it changed since, and never before 1970."""


class Contents:
    """The contents of pages 0 … n-1, from a seed: each changes as a Poisson process, for ever at its own rate.

    `rates` are changes a day. They are log-normal around `median_per_day`, 95 % of them within `decades` powers of ten.

    What a visit finds depends on the seed, the page, its earlier visits and the time alone: neither on the visits of
    other pages nor on how visits are made into batches.
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
        self._looks = np.zeros(pages, np.int64)
        self._versions = np.zeros(pages, np.int64)
        self._looked_ms = np.zeros(pages, np.int64)
        self._modified_ms = np.zeros(pages, np.int64)
        self._now_ms = 0

    def visit(self, numbers: Int64s, times_ms: Int64s) -> Observations:
        """What visits find, in this order. Times are milliseconds since 1970, and never go back."""
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
        state = (self._looks, self._versions, self._looked_ms, self._modified_ms)
        _look(numbers, times_ms, self.rates, self._change_key, self._digest_key, state, found)
        return found


@kernel
def _chance(key: Any, page: Any, draw: Any) -> Any:
    """The draw of this number of a page: above 0, at most 1."""
    bits = mix(mix(key + np.uint64(page + 1) * GOLDEN) + np.uint64(draw + 1) * GOLDEN)
    return np.float64((bits >> np.uint64(11)) + np.uint64(1)) * 2.0**-53


@kernel
def _log_normal(key: Any, pages: int, deviation: float) -> Floats:
    """Numbers whose logarithms are normal around 0, with this deviation."""
    numbers = np.empty(pages, np.float64)
    for page in range(pages):
        normal = math.sqrt(-2.0 * math.log(_chance(key, page, 0))) * math.cos(2.0 * math.pi * _chance(key, page, 1))
        numbers[page] = math.exp(deviation * normal)
    return numbers


@kernel
def _look(
    numbers: Int64s,
    times_ms: Int64s,
    rates: Floats,
    change_key: Any,
    digest_key: Any,
    state: tuple[Int64s, Int64s, Int64s, Int64s],
    found: Observations,
) -> None:
    """Visit pages one after the other, so that the same one twice in a batch is right."""
    looks, versions, looked_ms, modified_ms = state
    for row in range(numbers.shape[0]):
        page, now_ms = numbers[row], times_ms[row]
        back_ms = math.inf
        if rates[page] > 0.0:
            back_ms = -math.log(_chance(change_key, page, looks[page])) / rates[page] * _MS_PER_DAY
        first = looks[page] == 0
        changed = first or back_ms < np.float64(now_ms - looked_ms[page])
        if changed:
            versions[page] += 1
            modified_ms[page] = now_ms - np.int64(min(back_ms, np.float64(now_ms)))
        looks[page] += 1
        looked_ms[page] = now_ms
        version = mix(digest_key + np.uint64(page + 1) * GOLDEN) + np.uint64(versions[page]) * GOLDEN
        found.changed[row] = changed
        found.digest[row] = mix(version)
        found.last_modified_ms[row] = modified_ms[page]
