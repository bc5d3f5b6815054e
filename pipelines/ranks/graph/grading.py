"""Compares rankings with the grades that people gave to pages or sites. Pure: vectors in, figures out.

Paper 002, section 4.3: eight librarians graded sites from 1 to 4. The score of a librarian was the share of sites to
which he gave the mean grade; page importance had the score of a librarian.

Entry i of the mean grades and of every ranking is about one page. Higher is better in both. A ranking that has one
value for several pages does not order them: measures of its top are then means over all orders of such pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ranks.graph.comparison import kendall_tau
from opicflow.schemas.arrays import Floats, Ids, Ints, highest

SAME_GRADE, SAME_GRADE_OF_ALL = "same_grade", "same_grade_of_all"
_NORMAL_95 = 1.959964
_FEWEST_DEFINED = 0.5
_FEWEST_PAGES = 3
_EQUAL_WITHIN = 1e-9
_DIGITS = 9


@dataclass(frozen=True)
class GradingPlan:
    """The measures to take. `sizes`: the lengths of the top; `good`: the grade from which a page is good."""

    sizes: tuple[int, ...]
    good: float
    resamples: int = 1000
    seed: int = 1


class GradedPages(NamedTuple):
    """The mean grade of each page, the different grades that were given, in their order, and who gave which.

    `graders` has, for each person, the numbers of the pages that were graded and the grades; it is empty if that is not
    known.
    """

    means: Floats
    scale: Floats
    graders: Sequence[tuple[Ints, Floats]] = ()


@dataclass(frozen=True)
class Estimate:
    """A figure, and the interval of the middle 95 of 100 resamples; None: undefined."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Difference(Estimate):
    """How much a ranking is above the first one, by a measure.

    `grades_needed`: with about so many grades the interval of this difference would not hold 0. None: there is no
    difference, or the measure is about a top of fixed length, which more grades make no longer.
    """

    excludes_0: bool
    grades_needed: int | None


@dataclass(frozen=True)
class Agreement(Estimate):
    """The agreement of a ranking with the mean grades, by one measure; the first ranking has no difference."""

    less_first: Difference | None


@dataclass(frozen=True)
class MeasuredAgreement:
    """A measure, and the agreement by it. `top`: the length of the top, if it is about one.

    Each grader is judged as a ranking, against the mean of the *other* graders; by `SAME_GRADE_OF_ALL` against the mean
    of all, as in the paper. `median_grader` is their median.
    """

    measure: str
    top: int | None
    rankings: tuple[Agreement, ...]
    median_grader: Agreement | None
    graders: tuple[Estimate, ...]


class DisputedPage(NamedTuple):
    """A page, by its row, whose positions by grade and by rank differ. 1 is the highest; equals share their mean."""

    row: int
    position_by_grade: float
    position_by_rank: float


class GradedSample:
    """Grades and one ranking of a sample of pages, with arrays that several measures share.

    `nearest` are the grades of the scale that are nearest to the grades, as `nearest_grades` returns them. `given` are
    such numbers for each page, if the ranks are the grades of a grader.
    """

    def __init__(self, grades: Floats, ranks: Floats, nearest: Ints, given: Ints | None = None) -> None:
        self.grades, self.ranks, self.nearest, self.given = grades, ranks, nearest, given

    def at(self, rows: Ints) -> GradedSample:
        """Return the sample of some of its pages, which may be there several times."""
        given = None if self.given is None else self.given[rows]
        return GradedSample(self.grades[rows], self.ranks[rows], self.nearest[rows], given)

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


class _Grader(NamedTuple):
    """The pages of a grader that others graded too, judged by the mean of the others and by the mean of all."""

    rows: Ints
    of_others: GradedSample
    of_all: GradedSample


def graded_agreement(pages: GradedPages, rankings: Sequence[Floats], plan: GradingPlan) -> list[MeasuredAgreement]:
    """Measure how far each ranking and each grader agrees with the grades, and how far it is above the first ranking.

    Intervals are those of the bootstrap: pages are drawn with replacement, the same ones for all.
    """
    count, chance = len(pages.means), np.random.default_rng(plan.seed)
    measures = list(_measures(plan, bool(pages.graders)))
    samples = [GradedSample(pages.means, ranks, nearest_grades(pages.scale, pages.means)) for ranks in rankings]
    graders = list(_graders(pages))
    values = _figures(measures, samples, graders, np.arange(count))
    resamples = (chance.integers(0, count, count) for _ in range(plan.resamples))
    drawn = np.array([_figures(measures, samples, graders, rows) for rows in resamples])
    found = []
    for at, (name, top, _) in enumerate(measures):
        estimates = [_estimate(value, some) for value, some in zip(values[at].tolist(), drawn[:, at].T, strict=True)]
        grades = count if top is None else None
        agreements = [
            Agreement(one.value, one.low, one.high, _less_first(values[at], drawn[:, at], column, grades))
            for column, one in enumerate(estimates[: len(rankings) + 1])
        ]
        median = agreements.pop() if graders else None
        found.append(
            MeasuredAgreement(
                name, top, tuple(agreements[: len(rankings)]), median, tuple(estimates[len(rankings) + 1 :])
            )
        )
    return found


def _graders(pages: GradedPages) -> Iterator[_Grader]:
    counts, sums = np.zeros((2, len(pages.means)))
    for rows, grades in pages.graders:
        counts[rows] += 1.0
        sums[rows] += grades
    for rows, grades in pages.graders:
        shared = counts[rows] > 1.0
        rows, grades = rows[shared], grades[shared]
        given = np.searchsorted(pages.scale, grades)
        others, means = np.round((sums[rows] - grades) / (counts[rows] - 1.0), _DIGITS), pages.means[rows]
        yield _Grader(
            rows, *(GradedSample(by, grades, nearest_grades(pages.scale, by), given) for by in (others, means))
        )


def _figures(
    measures: Sequence[_Measure], rankings: Sequence[GradedSample], graders: Sequence[_Grader], drawn: Ints
) -> Floats:
    """Return a row for each measure, of drawn pages: a figure of each ranking, of the median grader, of each grader.

    NaN: undefined.
    """
    times = np.bincount(drawn, minlength=len(rankings[0].grades))
    at = [np.repeat(np.arange(len(one.rows)), times[one.rows]) for one in graders]
    by_rankings = [one.at(drawn) for one in rankings]
    by_others = [one.of_others.at(rows) for one, rows in zip(graders, at, strict=True)]
    by_all = [one.of_all.at(rows) for one, rows in zip(graders, at, strict=True)]
    found = np.full((len(measures), len(rankings) + 1 + len(graders)), math.nan)
    for row, (name, _, measure) in zip(found, measures, strict=True):
        people = [
            measure(one) if len(one.grades) >= _FEWEST_PAGES else None
            for one in (by_all if name == SAME_GRADE_OF_ALL else by_others)
        ]
        known = [value for value in people if value is not None]
        median = float(np.median(known)) if known else None
        figures = [*map(measure, by_rankings), median, *people]
        row[:] = [math.nan if value is None else value for value in figures]
    return found


def nearest_grades(scale: Floats, values: Floats) -> Ints:
    """Return, for each value, the numbers of the two nearest grades of a scale: one grade twice, if it is nearer.

    >>> nearest_grades(np.array([1.0, 2.0, 4.0]), np.array([1.4, 1.5, 3.0, 9.0])).tolist()
    [[0, 0], [0, 1], [1, 2], [2, 2]]
    """
    middles = (scale[1:] + scale[:-1]) / 2.0
    within = _EQUAL_WITHIN * max(1.0, float(np.abs(scale).max()))
    return np.stack([np.searchsorted(middles, values - within), np.searchsorted(middles, values + within)], axis=1)


def spearman(first: Floats, second: Floats) -> float | None:
    """Return Spearman's correlation of ranks, equals with their mean rank; None if all values of one side are equal."""
    a, b = positions(first), positions(second)
    a, b = a - a.mean(), b - b.mean()
    square = float((a * a).sum() * (b * b).sum())
    return float((a * b).sum()) / math.sqrt(square) if square > 0.0 else None


def same_grade(sample: GradedSample) -> float:
    """Return the share of pages with the grade that is nearest to that of people: a librarian's score in paper 002.

    A ranking gives each grade to as many pages as people did, the highest ranks first. A mean in the middle of two
    grades counts as half of each: so halves of pages are counted here.
    """
    if sample.given is not None:
        return float((sample.nearest == sample.given[:, None]).mean())
    groups, grades = np.repeat(sample.group, 2), int(sample.nearest.max()) + 1
    has, times_has = np.unique(groups * grades + sample.nearest[sample.order].ravel(), return_counts=True)
    due, times_due = np.unique(groups * grades + np.sort(sample.nearest.ravel())[::-1], return_counts=True)
    both, at_has, at_due = np.intersect1d(has, due, assume_unique=True, return_indices=True)
    return float((times_has[at_has] * times_due[at_due] / np.bincount(groups)[both // grades]).sum()) / len(groups)


def ndcg(top: int, sample: GradedSample) -> float | None:
    """Return the normalised discounted cumulative gain of the top: 1 if the highest ranks have the best grades.

    A page gains its grade less the lowest grade, over log2(position + 1). None: too few pages, or all grades are equal.
    """
    gains = sample.grades - sample.grades.min()
    if top > len(gains) or gains.max() == 0.0:
        return None
    discounts = 1.0 / np.log2(np.arange(2, top + 2))
    ideal = np.sort(gains)[::-1][:top]
    return float((sample.shared(gains)[:top] * discounts).sum() / (ideal * discounts).sum())


def precision(top: int, good: float, sample: GradedSample) -> float | None:
    """Return the share of pages among the highest ranks whose grade is good; None for fewer pages."""
    if top > len(sample.grades):
        return None
    return float(sample.shared((sample.grades >= good).astype(np.float64))[:top].mean())


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


_Measure = tuple[str, int | None, Callable[[GradedSample], float | None]]


def _measures(plan: GradingPlan, has_graders: bool) -> Iterator[_Measure]:
    yield "spearman", None, lambda sample: spearman(sample.grades, sample.ranks)
    yield "kendall_tau", None, lambda sample: kendall_tau(sample.grades, sample.ranks)
    yield SAME_GRADE, None, same_grade
    if has_graders:
        yield SAME_GRADE_OF_ALL, None, same_grade
    yield from (("ndcg", top, partial(ndcg, top)) for top in plan.sizes)
    yield from (("precision", top, partial(precision, top, plan.good)) for top in plan.sizes)


def _estimate(value: float, drawn: Floats) -> Estimate:
    if math.isnan(value):
        return Estimate(None, None, None)
    defined = drawn[~np.isnan(drawn)]
    if len(defined) <= _FEWEST_DEFINED * len(drawn):
        return Estimate(value, None, None)
    low, high = np.quantile(defined, (0.025, 0.975)).tolist()
    return Estimate(value, low, high)


def _less_first(values: Floats, drawn: Floats, column: int, grades: int | None) -> Difference | None:
    """Return how much a column is above the first. `grades`: their number, if the measure is about all."""
    if column == 0:
        return None
    difference, drawn_apart = float(values[column] - values[0]), drawn[:, column] - drawn[:, 0]
    found = _estimate(difference, drawn_apart)
    if found.low is None or found.high is None:
        return Difference(found.value, None, None, False, None)
    needed = None
    if grades is not None and difference != 0.0:  # 1.96 standard errors fall with the root of the number of grades
        needed = max(2, math.ceil(grades * (_NORMAL_95 * float(np.nanstd(drawn_apart)) / difference) ** 2))
    return Difference(found.value, found.low, found.high, found.low > 0.0 or found.high < 0.0, needed)
