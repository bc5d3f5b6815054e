"""Compares two rankings of pages. Pure: vectors in, figures out.

Vectors are float64, finite, not negative, and aligned: entry i of each is about one page. The second ranking is the
reference, which only relative errors depend on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opicflow.schemas.arrays import Bools, Floats, Ids, highest
from opicflow.schemas.kernel import kernel


class Ranking(NamedTuple):
    """Pages by ascending page id, each once, with their ranks."""

    pages: Ids
    values: Floats


class Overlap(NamedTuple):
    """The share that the `pages` highest pages of both rankings have in common; None: one ranking has fewer pages."""

    pages: int
    share: float | None


class Apart(NamedTuple):
    """A page whose ranks differ; a page that is missing in a ranking has rank 0 there."""

    page: int
    first: float
    second: float

    @property
    def difference(self) -> float:
        """The first rank less the second."""
        return self.first - self.second

    @property
    def ratio(self) -> float:
        """The first rank over the second."""
        return self.first / self.second if self.second else math.inf


@dataclass(frozen=True)
class Comparison:
    """All figures of a comparison.

    `l1` and `linf` are over the pages of both rankings together; a missing page counts as 0. `kendall_tau` and the
    relative errors are over common pages, the latter only over those whose reference is above 0 (`errors_over` pages).
    None: the figure is undefined, because there are too few pages, or all ranks are equal. `most_apart` are the pages
    that add most to `l1`; `furthest_ratios` are the common pages with the largest ratio of ranks, neither being 0.
    """

    pages_of_both: int
    pages_of_first_only: int
    pages_of_second_only: int
    rank_of_first_only: float
    rank_of_second_only: float
    l1: float
    linf: float
    kendall_tau: float | None
    mean_relative_error: float | None
    mean_relative_error_of_top_tenth: float | None
    errors_over: int
    overlaps: tuple[Overlap, ...]
    most_apart: tuple[Apart, ...]
    furthest_ratios: tuple[Apart, ...]


def compared(first: Ranking, second: Ranking, top: Sequence[int] = (), worst: int = 0) -> Comparison:
    """Compare a ranking with a reference: overlaps at the sizes in `top`, and the `worst` pages that differ most."""
    in_second = np.isin(first.pages, second.pages, assume_unique=True, kind="sort")
    in_first = np.isin(second.pages, first.pages, assume_unique=True, kind="sort")
    pages, a, b = first.pages[in_second], first.values[in_second], second.values[in_first]
    alone_a, alone_b = first.values[~in_second], second.values[~in_first]
    all_pages = np.concatenate((pages, first.pages[~in_second], second.pages[~in_first]))
    all_a = np.concatenate((a, alone_a, np.zeros(len(alone_b))))
    all_b = np.concatenate((b, np.zeros(len(alone_a)), alone_b))
    referred = b > 0.0
    return Comparison(
        pages_of_both=len(pages),
        pages_of_first_only=len(alone_a),
        pages_of_second_only=len(alone_b),
        rank_of_first_only=float(alone_a.sum()),
        rank_of_second_only=float(alone_b.sum()),
        l1=l1(all_a, all_b),
        linf=linf(all_a, all_b),
        kendall_tau=kendall_tau(a, b),
        mean_relative_error=mean_relative_error(a[referred], b[referred]),
        mean_relative_error_of_top_tenth=_error_of_top_tenth(pages[referred], a[referred], b[referred]),
        errors_over=int(referred.sum()),
        overlaps=tuple(overlaps(first, second, top)),
        most_apart=_most_apart(all_pages, all_a, all_b, np.abs(all_a - all_b), worst),
        furthest_ratios=_furthest_ratios(pages, a, b, worst),
    )


def l1(first: Floats, second: Floats) -> float:
    """Return the sum of all differences."""
    return float(np.abs(first - second).sum())


def linf(first: Floats, second: Floats) -> float:
    """Return the largest difference; 0 without pages."""
    return float(np.abs(first - second).max(initial=0.0))


def mean_relative_error(values: Floats, reference: Floats) -> float | None:
    """Return the mean relative error; the reference must be above 0."""
    if len(reference) == 0:
        return None
    with np.errstate(over="ignore"):  # a tiny reference: the error may overflow
        return float((np.abs(values - reference) / reference).mean())


def overlaps(first: Ranking, second: Ranking, sizes: Sequence[int]) -> list[Overlap]:
    """Return the overlap of the highest pages, for each size."""
    fewest = min(len(first.pages), len(second.pages))
    count = max((size for size in sizes if size <= fewest), default=0)
    tops = [one.pages[highest(one.values, one.pages, count)] for one in (first, second)]
    return [Overlap(size, _shared(tops[0][:size], tops[1][:size]) if size <= fewest else None) for size in sizes]


def kendall_tau(first: Floats, second: Floats) -> float | None:
    """Return Kendall's tau-b, exact: 1 if all pairs of pages have the same order, -1 if all have the opposite order.

    None for fewer than two pages, or if all values of one side are equal. Pairs are counted as integers by the method
    of Knight (1966), in O(n log n).
    """
    order = np.lexsort((second, first))
    a, b = first[order], second[order]
    new_a, new_b = a[1:] != a[:-1], b[1:] != b[:-1]
    sorted_b, exchanges = _exchanges(b)
    pairs = len(a) * (len(a) - 1) // 2
    tied_a, tied_b = _pairs_between(new_a), _pairs_between(sorted_b[1:] != sorted_b[:-1])
    untied_a, untied_b = pairs - tied_a, pairs - tied_b
    if untied_a == 0 or untied_b == 0:
        return None
    agreeing_less_others = pairs - tied_a - tied_b + _pairs_between(new_a | new_b) - 2 * int(exchanges)
    return agreeing_less_others / math.sqrt(untied_a * untied_b)


def _pairs_between(begins: Bools) -> int:
    """Count the pairs within runs of equals; `begins[i]`: a run begins at row i + 1."""
    ends = np.concatenate(([-1], np.flatnonzero(begins), [len(begins)]))
    lengths = np.diff(ends)
    return int((lengths * (lengths - 1) // 2).sum())


@kernel
def _exchanges(values: Floats) -> tuple[Floats, np.int64]:
    """Return the sorted values, and the number of pairs that were out of order. May overwrite `values`."""
    count = values.shape[0]
    source, target = values, np.empty_like(values)
    exchanges = np.int64(0)
    width = 1
    while width < count:
        for begin in range(0, count, 2 * width):
            middle, end = min(begin + width, count), min(begin + 2 * width, count)
            left, right = begin, middle
            for at in range(begin, end):
                if left < middle and (right >= end or source[left] <= source[right]):
                    target[at] = source[left]
                    left += 1
                else:
                    target[at] = source[right]
                    right += 1
                    exchanges += middle - left
        source, target = target, source
        width *= 2
    return source, exchanges


def _shared(first: Ids, second: Ids) -> float:
    return int(np.isin(first, second, assume_unique=True).sum()) / len(first)


def _error_of_top_tenth(pages: Ids, values: Floats, reference: Floats) -> float | None:
    rows = highest(reference, pages, max(1, len(pages) // 10))
    return mean_relative_error(values[rows], reference[rows])


def _most_apart(pages: Ids, first: Floats, second: Floats, apart: Floats, count: int) -> tuple[Apart, ...]:
    """Return the pages with the largest `apart`, which must be above 0."""
    rows = highest(apart, pages, count)
    rows = rows[apart[rows] > 0.0]
    return tuple(map(Apart, pages[rows].tolist(), first[rows].tolist(), second[rows].tolist()))


def _furthest_ratios(pages: Ids, first: Floats, second: Floats, count: int) -> tuple[Apart, ...]:
    if count == 0:
        return ()
    both = (first > 0.0) & (second > 0.0)
    pages, first, second = pages[both], first[both], second[both]
    return _most_apart(pages, first, second, np.abs(np.log(first) - np.log(second)), count)
