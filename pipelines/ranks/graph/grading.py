"""Compares rankings with the grades that people gave to pages or sites. Pure: vectors in, figures out.

Paper 002, section 4.3: librarians graded sites from 1 to 4, and page importance agreed with their mean as often as a
librarian did. Entry i of the grades and of every ranking is about one page. Higher is better in both.

A ranking that has one value for several pages does not order them. Measures of its top then have the mean over all
orders of such pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ranks.graph.comparison import kendall_tau
from opicflow.schemas.arrays import Bools, Floats, Ids, Ints, highest

MOST_GRADES = 20
"""`same_grade` has a meaning on a scale of a few grades only."""

_NORMAL_95 = 1.959964
_FEWEST_DEFINED = 0.5


@dataclass(frozen=True)
class GradingPlan:
    """The measures to take. `sizes`: the lengths of the top; `good`: the grade from which a page is good."""

    sizes: tuple[int, ...]
    good: float
    resamples: int = 1000
    seed: int = 1


class Estimate(NamedTuple):
    """A figure, and the interval of the middle 95 of 100 resamples; None: undefined."""

    value: float | None
    low: float | None
    high: float | None

    @property
    def excludes_0(self) -> bool:
        """Whether 0 is outside of the interval."""
        return self.low is not None and self.high is not None and (self.low > 0.0 or self.high < 0.0)


class Difference(NamedTuple):
    """How much a ranking is above the first one, by a measure.

    `grades_needed`: with about so many grades the interval of this difference would not hold 0. None: there is no
    difference, or the measure is about a top of fixed length, which more grades make no longer.
    """

    estimate: Estimate
    grades_needed: int | None


class Agreement(NamedTuple):
    """The agreement of one ranking with the grades, by one measure; the first ranking has no difference."""

    estimate: Estimate
    difference: Difference | None


class MeasuredAgreement(NamedTuple):
    """A measure, and the agreement of each ranking by it. `top`: the length of the top, if it is about one."""

    measure: str
    top: int | None
    agreements: tuple[Agreement, ...]


class DisputedPage(NamedTuple):
    """A page, by its row, whose positions by grade and by rank differ. 1 is the highest; equals share their mean."""

    row: int
    position_by_grade: float
    position_by_rank: float


class _Sample:
    """Grades and one ranking of a sample of pages, with arrays that several measures share."""

    def __init__(self, grades: Floats, ranks: Floats) -> None:
        self.grades, self.ranks = grades, ranks

    @cached_property
    def order(self) -> Ints:
        """The rows from the highest rank to the lowest."""
        return np.argsort(-self.ranks, kind="stable")

    @cached_property
    def group(self) -> Ints:
        """For each row in this order, the number of its group of equal ranks."""
        ranks = self.ranks[self.order]
        return np.concatenate(([0], np.cumsum(ranks[1:] != ranks[:-1])))

    def shared(self, values: Floats) -> Floats:
        """Return values in the order of ranks; those of equal ranks are replaced by their mean."""
        sums = np.bincount(self.group, values[self.order])
        means: Floats = (sums / np.bincount(self.group))[self.group]
        return means


def graded_agreement(grades: Floats, rankings: Sequence[Floats], plan: GradingPlan) -> list[MeasuredAgreement]:
    """Measure how far each ranking agrees with the grades, and how far it is above the first ranking.

    Intervals are those of the bootstrap: pages are drawn with replacement, the same ones for all rankings.
    """
    measures = _measures(plan)
    values = _values(grades, rankings, measures)
    chance = np.random.default_rng(plan.seed)
    drawn = np.empty((plan.resamples, *values.shape))
    for number in range(plan.resamples):
        rows = chance.integers(0, len(grades), len(grades))
        drawn[number] = _values(grades[rows], [ranks[rows] for ranks in rankings], measures)
    return [
        MeasuredAgreement(name, top, _agreements(values[at], drawn[:, at], len(grades) if top is None else None))
        for at, (name, top, _) in enumerate(measures)
    ]


def spearman(first: Floats, second: Floats) -> float | None:
    """Return Spearman's correlation of ranks, equals with their mean rank; None if all values of one side are equal."""
    a, b = positions(first), positions(second)
    a, b = a - a.mean(), b - b.mean()
    square = float((a * a).sum() * (b * b).sum())
    return float((a * b).sum()) / math.sqrt(square) if square > 0.0 else None


def same_grade(grades: Floats, ranks: Floats) -> float | None:
    """Return the share of pages with the grade that people gave them, if ranks give each grade to as many pages.

    It is the score of a librarian in paper 002. None for more than `MOST_GRADES` different grades.
    """
    return _same_grade(_Sample(grades, ranks))


def ndcg(grades: Floats, ranks: Floats, top: int) -> float | None:
    """Return the normalised discounted cumulative gain of the top: 1 if the highest ranks have the best grades.

    A page gains its grade less the lowest grade, over log2(position + 1). None: too few pages, or all grades are equal.
    """
    return _ndcg(_Sample(grades, ranks), top)


def precision(good: Bools, ranks: Floats, top: int) -> float | None:
    """Return the share of good pages among the highest ranks; None for fewer pages."""
    return _precision(_Sample(good.astype(np.float64), ranks), 1.0, top)


def positions(values: Floats) -> Floats:
    """Return the position of each value, from 1 for the highest; equal values share the mean of their positions."""
    _, code, counts = np.unique(-values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    found: Floats = (ends - (counts - 1) / 2.0)[code]
    return found


def most_disputed(grades: Floats, ranks: Floats, pages: Ids, count: int) -> list[DisputedPage]:
    """Return the pages whose positions by grade and by rank differ most."""
    by_grade, by_rank = positions(grades), positions(ranks)
    apart = np.abs(by_grade - by_rank)
    rows = highest(apart, pages, count)
    return [DisputedPage(row, float(by_grade[row]), float(by_rank[row])) for row in rows[apart[rows] > 0.0].tolist()]


_Measure = tuple[str, int | None, Callable[[_Sample], float | None]]


def _measures(plan: GradingPlan) -> list[_Measure]:
    every: list[_Measure] = [
        ("spearman", None, lambda sample: spearman(sample.grades, sample.ranks)),
        ("kendall_tau", None, lambda sample: kendall_tau(sample.grades, sample.ranks)),
        ("same_grade", None, _same_grade),
    ]
    every += [("ndcg", top, lambda sample, top=top: _ndcg(sample, top)) for top in plan.sizes]  # type: ignore[misc]
    every += [
        ("precision", top, lambda sample, top=top: _precision(sample, plan.good, top))  # type: ignore[misc]
        for top in plan.sizes
    ]
    return every


def _values(grades: Floats, rankings: Sequence[Floats], measures: Sequence[_Measure]) -> Floats:
    """Return a row for each measure, with a figure for each ranking; NaN: undefined."""
    samples = [_Sample(grades, ranks) for ranks in rankings]
    found = [[measure(sample) for sample in samples] for _, _, measure in measures]
    return np.array([[math.nan if value is None else value for value in row] for row in found])


def _agreements(values: Floats, drawn: Floats, grades: int | None) -> tuple[Agreement, ...]:
    """Return the agreement of each ranking by one measure. `grades`: their number, if the measure is about all."""
    agreements = []
    for at, value in enumerate(values.tolist()):
        difference = None
        if at > 0:
            apart, drawn_apart = value - float(values[0]), drawn[:, at] - drawn[:, 0]
            estimate = _estimate(apart, drawn_apart)
            needed = None if grades is None or estimate.low is None else _needed(apart, drawn_apart, grades)
            difference = Difference(estimate, needed)
        agreements.append(Agreement(_estimate(value, drawn[:, at]), difference))
    return tuple(agreements)


def _estimate(value: float, drawn: Floats) -> Estimate:
    if math.isnan(value):
        return Estimate(None, None, None)
    defined = drawn[~np.isnan(drawn)]
    if len(defined) <= _FEWEST_DEFINED * len(drawn):
        return Estimate(value, None, None)
    low, high = np.quantile(defined, (0.025, 0.975)).tolist()
    return Estimate(value, low, high)


def _needed(difference: float, drawn: Floats, grades: int) -> int | None:
    """Return how many grades make a difference this large 1.96 standard errors, which fall with their root."""
    if difference == 0.0:
        return None
    error = float(np.nanstd(drawn))
    return max(2, math.ceil(grades * (_NORMAL_95 * error / difference) ** 2))


def _same_grade(sample: _Sample) -> float | None:
    scale, code = np.unique(-sample.grades, return_inverse=True)
    if len(scale) > MOST_GRADES:
        return None
    groups = int(sample.group[-1]) + 1
    given = _counts(sample.group, code[sample.order], groups, len(scale))
    due = _counts(sample.group, np.sort(code), groups, len(scale))
    return float(((given * due).sum(axis=1) / given.sum(axis=1)).sum()) / len(code)


def _counts(groups: Ints, codes: Ints, rows: int, columns: int) -> Floats:
    counted: Floats = np.bincount(groups * columns + codes, minlength=rows * columns).astype(np.float64)
    return counted.reshape(rows, columns)


def _ndcg(sample: _Sample, top: int) -> float | None:
    gains = sample.grades - sample.grades.min()
    if top > len(gains) or gains.max() == 0.0:
        return None
    discounts = 1.0 / np.log2(np.arange(2, top + 2))
    ideal = np.sort(gains)[::-1][:top]
    return float((sample.shared(gains)[:top] * discounts).sum() / (ideal * discounts).sum())


def _precision(sample: _Sample, good: float, top: int) -> float | None:
    if top > len(sample.grades):
        return None
    return float(sample.shared((sample.grades >= good).astype(np.float64))[:top].mean())
