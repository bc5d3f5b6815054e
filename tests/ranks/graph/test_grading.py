"""Measures of rankings against grades equal those of scipy and of plain loops over all orders of equal pages."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ranks.graph.grading import (
    MOST_GRADES,
    GradingPlan,
    graded_agreement,
    most_disputed,
    ndcg,
    positions,
    precision,
    same_grade,
    spearman,
)

grade = st.sampled_from([1.0, 2.0, 2.5, 4.0])
rank = st.sampled_from([0.0, 0.25, 0.5, 3.0])
few = st.lists(st.tuples(grade, rank), min_size=2, max_size=6)
many = st.lists(st.tuples(grade, st.floats(0.0, 1.0)), min_size=2, max_size=60)
PLAN = GradingPlan((3, 20), 2.5, 200, 1)


def columns(rows: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    grades, ranks = np.array(rows).T
    return np.ascontiguousarray(grades), np.ascontiguousarray(ranks)


def orders(ranks: np.ndarray) -> list[tuple[int, ...]]:
    """Return all orders of pages in which no page is before one with a higher rank."""
    return [order for order in permutations(range(len(ranks))) if all(ranks[a] >= ranks[b] for a, b in pairwise(order))]


def gain_of(grades: np.ndarray, order: tuple[int, ...], top: int) -> float:
    return sum((grades[page] - min(grades)) / math.log2(position + 2) for position, page in enumerate(order[:top]))


# -- measures ----------------------------------------------------------------------------------------------------------


@given(many)
def test_spearman_equals_that_of_scipy(rows: list[tuple[float, float]]) -> None:
    grades, ranks = columns(rows)
    found = spearman(grades, ranks)
    if len(set(grades)) < 2 or len(set(ranks)) < 2:
        assert found is None
    else:
        assert found == pytest.approx(scipy.stats.spearmanr(grades, ranks).statistic, abs=1e-12)


@given(few, st.integers(1, 7))
def test_measures_of_the_top_are_means_over_all_orders_of_equal_pages(
    rows: list[tuple[float, float]], top: int
) -> None:
    grades, ranks = columns(rows)
    if top > len(rows):
        assert ndcg(grades, ranks, top) is precision(grades >= 2.5, ranks, top) is None
        return
    some = orders(ranks)
    share = np.mean([np.mean([grades[page] >= 2.5 for page in order[:top]]) for order in some])
    assert precision(grades >= 2.5, ranks, top) == pytest.approx(share)
    best = gain_of(grades, tuple(np.argsort(-grades)), top)
    if best == 0:
        assert ndcg(grades, ranks, top) is None
    else:
        gain = np.mean([gain_of(grades, order, top) for order in some])
        assert ndcg(grades, ranks, top) == pytest.approx(gain / best)


@given(few)
def test_the_same_grade_is_a_mean_over_all_orders_of_equal_pages(rows: list[tuple[float, float]]) -> None:
    grades, ranks = columns(rows)
    due = sorted(grades, reverse=True)
    shares = [
        np.mean([grades[page] == given for page, given in zip(order, due, strict=True)]) for order in orders(ranks)
    ]
    assert same_grade(grades, ranks) == pytest.approx(np.mean(shares))


def test_known_values() -> None:
    grades, same, reverse = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.2, 0.3, 0.9]), np.array([4.0, 3, 2, 1])
    assert (spearman(grades, same), spearman(grades, reverse)) == (pytest.approx(1), pytest.approx(-1))
    assert (same_grade(grades, same), same_grade(grades, reverse)) == (1, 0)
    assert (ndcg(grades, same, 2), precision(grades >= 3, same, 2), precision(grades >= 3, reverse, 2)) == (1, 1, 0)
    assert ndcg(grades, reverse, 2) == pytest.approx((0 + 1 / math.log2(3)) / (3 + 2 / math.log2(3)))
    assert same_grade(grades, np.ones(4)) == pytest.approx(1 / 4)
    assert same_grade(np.arange(MOST_GRADES + 1.0), np.arange(MOST_GRADES + 1.0)) is None
    assert positions(np.array([5.0, 9, 5, 1])).tolist() == [2.5, 1, 2.5, 4]


@given(many)
def test_measures_depend_on_the_order_of_ranks_alone(rows: list[tuple[float, float]]) -> None:
    grades, ranks = columns(rows)
    scaled = scipy.stats.rankdata(ranks) * 7 + 1
    shuffled = np.random.default_rng(1).permutation(len(rows))
    for measure in (spearman, same_grade, lambda *of: ndcg(*of, 2), lambda g, r: precision(g >= 2, r, 2)):
        found = measure(grades, ranks)
        assert measure(grades, scaled) == (found if found is None else pytest.approx(found))
        assert measure(grades[shuffled], ranks[shuffled]) == (found if found is None else pytest.approx(found))


@given(many, st.integers(0, 70))
def test_most_disputed_pages_are_those_of_a_sort(rows: list[tuple[float, float]], count: int) -> None:
    grades, ranks = columns(rows)
    found = most_disputed(grades, ranks, np.arange(len(rows), dtype=np.uint64), count)
    by_grade, by_rank = positions(grades), positions(ranks)
    apart = np.abs(by_grade - by_rank)
    expected = [row for row in sorted(range(len(rows)), key=lambda row: (-apart[row], row)) if apart[row] > 0][:count]
    assert [one.row for one in found] == expected
    assert all((one.position_by_grade, one.position_by_rank) == (by_grade[one.row], by_rank[one.row]) for one in found)


# -- intervals ---------------------------------------------------------------------------------------------------------


def sample(pages: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return grades from 1 to 4, and ranks that follow the graded worth, with noise."""
    chance = np.random.default_rng(seed)
    worth = chance.normal(size=pages)
    grades = np.clip(np.round(2.5 + worth), 1, 4)
    return grades, worth + noise * chance.normal(size=pages)


def test_the_same_seed_gives_the_same_intervals() -> None:
    grades, ranks = sample(80, 1.0, 1)
    found = [graded_agreement(grades, [ranks, -ranks], GradingPlan((5,), 3, 100, seed)) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert [(one.measure, one.top) for one in found[0]] == [
        ("spearman", None),
        ("kendall_tau", None),
        ("same_grade", None),
        ("ndcg", 5),
        ("precision", 5),
    ]


@pytest.mark.slow
def test_intervals_hold_the_value_of_all_pages_in_about_95_of_100_samples() -> None:
    true = spearman(*sample(200_000, 1.0, 0))
    held = 0
    for seed in range(1, 76):
        spearmans = graded_agreement(*one_ranking(sample(100, 1.0, seed)), GradingPlan((), 3, 150, seed))[0]
        estimate = spearmans.agreements[0].estimate
        held += estimate.low <= true <= estimate.high
    assert 0.88 * 75 <= held <= 0.99 * 75


def one_ranking(of: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    return of[0], [of[1]]


def test_a_clear_difference_excludes_0_and_an_unclear_one_says_how_many_grades_it_needs() -> None:
    grades, ranks = sample(150, 0.3, 1)
    chance = np.random.default_rng(1)
    worse, like = chance.normal(size=150), ranks + 0.35 * chance.normal(size=150)
    spearmans, *_, precisions = graded_agreement(grades, [like, worse, ranks, like], PLAN)
    first, clear, unclear, equal = spearmans.agreements
    assert first.difference is None
    assert clear.difference.estimate.excludes_0 and clear.difference.grades_needed < 150
    assert clear.difference.estimate.value == clear.estimate.value - first.estimate.value
    needed = unclear.difference.grades_needed
    assert unclear.difference.estimate.excludes_0 == (needed <= 150)
    assert (equal.difference.estimate, equal.difference.grades_needed) == ((0, 0, 0), None)
    assert all(one.difference is None or one.difference.grades_needed is None for one in precisions.agreements)


@pytest.mark.slow
def test_grades_needed_are_those_with_which_the_interval_ends_at_0() -> None:
    for pages in (100, 400):
        grades, better = sample(pages, 0.8, 1)
        worse = better + 0.5 * np.random.default_rng(2).normal(size=pages)
        spearmans, taus, *_ = graded_agreement(grades, [better, worse], GradingPlan((), 3, 1000, 1))
        for one in (spearmans, taus):
            (value, low, high), needed = one.agreements[1].difference
            half = (high - low) / 2
            assert needed == pytest.approx(pages * (half / value) ** 2, rel=0.15)


@pytest.mark.slow
def test_with_as_many_grades_as_were_needed_differences_are_about_as_large_as_their_error() -> None:
    """With twice as many grades as needed most samples are clear, with a tenth few are."""

    def two(pages: int, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
        grades, better = sample(pages, 0.8, seed)
        return grades, [better + 0.9 * np.random.default_rng(seed + 999).normal(size=pages), better]

    plan = GradingPlan((), 3, 200, 1)
    needed = graded_agreement(*two(4000, 1), plan)[0].agreements[1].difference.grades_needed
    clear = {
        pages: sum(
            graded_agreement(*two(pages, seed), plan)[0].agreements[1].difference.estimate.excludes_0
            for seed in range(10)
        )
        for pages in (needed // 10 + 3, 3 * needed)
    }
    assert clear[needed // 10 + 3] <= 5 < 8 <= clear[3 * needed]


def test_undefined_figures_are_none() -> None:
    grades = np.array([1.0, 2.0, 2.0, 3.0])
    found = graded_agreement(grades, [np.ones(4), grades], GradingPlan((2, 9), 3, 50))
    by_name = {(one.measure, one.top): one.agreements for one in found}
    assert by_name["spearman", None][0].estimate == (None, None, None)
    assert by_name["spearman", None][1].difference.estimate.value is None
    assert by_name["spearman", None][1].difference.grades_needed is None
    assert by_name["ndcg", 9][1].estimate == (None, None, None)
    assert by_name["precision", 2][0].estimate.value == pytest.approx(1 / 4)
    assert not by_name["ndcg", 9][1].estimate.excludes_0
