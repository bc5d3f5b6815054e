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
    Difference,
    GradedPages,
    GradedSample,
    GradingPlan,
    MeasuredAgreement,
    graded_agreement,
    most_disputed,
    ndcg,
    nearest_grades,
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


def sampled(grades: np.ndarray, ranks: np.ndarray, scale: np.ndarray | None = None) -> GradedSample:
    return GradedSample(grades, ranks, nearest_grades(np.unique(grades) if scale is None else scale, grades))


def agreement(grades: np.ndarray, rankings: list[np.ndarray], plan: GradingPlan) -> list[MeasuredAgreement]:
    """Compare rankings with grades whose graders have no names."""
    return graded_agreement(GradedPages(grades, np.unique(grades)), rankings, plan)


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
        assert ndcg(top, sampled(grades, ranks)) is precision(top, 2.5, sampled(grades, ranks)) is None
        return
    some = orders(ranks)
    share = np.mean([np.mean([grades[page] >= 2.5 for page in order[:top]]) for order in some])
    assert precision(top, 2.5, sampled(grades, ranks)) == pytest.approx(share)
    best = gain_of(grades, tuple(np.argsort(-grades)), top)
    if best == 0:
        assert ndcg(top, sampled(grades, ranks)) is None
    else:
        gain = np.mean([gain_of(grades, order, top) for order in some])
        assert ndcg(top, sampled(grades, ranks)) == pytest.approx(gain / best)


@given(few)
def test_the_same_grade_is_a_mean_over_all_orders_of_equal_pages(rows: list[tuple[float, float]]) -> None:
    grades, ranks = columns(rows)
    due = sorted(grades, reverse=True)
    shares = [
        np.mean([grades[page] == given for page, given in zip(order, due, strict=True)]) for order in orders(ranks)
    ]
    assert same_grade(sampled(grades, ranks)) == pytest.approx(np.mean(shares))


SCALES = [np.array([1.0, 2.0, 3.0, 4.0]), np.array([-1.0, 0.5, 7.0]), np.array([5.0])]
halves = st.lists(st.tuples(st.sampled_from(np.arange(-1.0, 5.0, 0.25).tolist()), rank), min_size=1, max_size=6)


@given(halves, st.sampled_from(SCALES))
def test_the_same_grade_of_means_counts_a_mean_in_the_middle_of_two_grades_as_half_of_each(
    rows: list[tuple[float, float]], scale: np.ndarray
) -> None:
    means, ranks = columns(rows)
    shares = []
    for mean in means:
        apart = [abs(grade - mean) for grade in scale]
        near = [at for at, distance in enumerate(apart) if distance == min(apart)]
        shares.append([1 / len(near) if at in near else 0 for at in range(len(scale))])
    given = sorted(
        (at for share in shares for at, half in enumerate(share) for _ in range(round(2 * half))), reverse=True
    )
    expected = [
        np.mean([sum(shares[page][at] / 2 for at in given[2 * n : 2 * n + 2]) for n, page in enumerate(order)])
        for order in orders(ranks)
    ]
    assert same_grade(sampled(means, ranks, scale)) == pytest.approx(np.mean(expected))


def test_known_values() -> None:
    grades, same, reverse = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.2, 0.3, 0.9]), np.array([4.0, 3, 2, 1])
    assert (spearman(grades, same), spearman(grades, reverse)) == (pytest.approx(1), pytest.approx(-1))
    best, worst = sampled(grades, same), sampled(grades, reverse)
    assert (same_grade(best), same_grade(worst)) == (1, 0)
    assert (ndcg(2, best), precision(2, 3, best), precision(2, 3, worst)) == (1, 1, 0)
    assert ndcg(2, worst) == pytest.approx((0 + 1 / math.log2(3)) / (3 + 2 / math.log2(3)))
    assert same_grade(sampled(grades, np.ones(4))) == pytest.approx(1 / 4)
    many = np.arange(20_000.0)  # any number of different grades
    assert (same_grade(sampled(many, many)), same_grade(sampled(many, np.ones(20_000)))) == (
        1,
        pytest.approx(1 / 20_000),
    )
    assert positions(np.array([5.0, 9, 5, 1])).tolist() == [2.5, 1, 2.5, 4]


@given(many)
def test_measures_depend_on_the_order_of_ranks_alone(rows: list[tuple[float, float]]) -> None:
    grades, ranks = columns(rows)
    scaled = scipy.stats.rankdata(ranks) * 7 + 1
    shuffled = np.random.default_rng(1).permutation(len(rows))
    for measure in (
        spearman,
        lambda *of: same_grade(sampled(*of)),
        lambda *of: ndcg(2, sampled(*of)),
        lambda *of: precision(2, 2, sampled(*of)),
    ):
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
    found = [agreement(grades, [ranks, -ranks], GradingPlan((5,), 3, 100, seed)) for seed in (1, 1, 2)]
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
        spearmans = agreement(*one_ranking(sample(100, 1.0, seed)), GradingPlan((), 3, 150, seed))[0]
        estimate = spearmans.rankings[0]
        held += estimate.low <= true <= estimate.high
    assert 0.88 * 75 <= held <= 0.99 * 75


def one_ranking(of: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    return of[0], [of[1]]


def test_a_clear_difference_excludes_0_and_an_unclear_one_says_how_many_grades_it_needs() -> None:
    grades, ranks = sample(150, 0.3, 1)
    chance = np.random.default_rng(1)
    worse, like = chance.normal(size=150), ranks + 0.35 * chance.normal(size=150)
    spearmans, *_, precisions = agreement(grades, [like, worse, ranks, like], PLAN)
    first, clear, unclear, equal = spearmans.rankings
    assert first.less_first is None
    assert clear.less_first.excludes_0 and clear.less_first.grades_needed < 150
    assert clear.less_first.value == clear.value - first.value
    needed = unclear.less_first.grades_needed
    assert unclear.less_first.excludes_0 == (needed <= 150)
    assert equal.less_first == Difference(0, 0, 0, False, None)
    assert all(one.less_first is None or one.less_first.grades_needed is None for one in precisions.rankings)


@pytest.mark.slow
def test_grades_needed_are_those_with_which_the_interval_ends_at_0() -> None:
    for pages in (100, 400):
        grades, better = sample(pages, 0.8, 1)
        worse = better + 0.5 * np.random.default_rng(2).normal(size=pages)
        spearmans, taus, *_ = agreement(grades, [better, worse], GradingPlan((), 3, 1000, 1))
        for one in (spearmans, taus):
            found = one.rankings[1].less_first
            half = (found.high - found.low) / 2
            assert found.grades_needed == pytest.approx(pages * (half / found.value) ** 2, rel=0.15)


@pytest.mark.slow
def test_with_as_many_grades_as_were_needed_differences_are_about_as_large_as_their_error() -> None:
    """With twice as many grades as needed most samples are clear, with a tenth few are."""

    def two(pages: int, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
        grades, better = sample(pages, 0.8, seed)
        return grades, [better + 0.9 * np.random.default_rng(seed + 999).normal(size=pages), better]

    plan = GradingPlan((), 3, 200, 1)
    needed = agreement(*two(4000, 1), plan)[0].rankings[1].less_first.grades_needed
    clear = {
        pages: sum(agreement(*two(pages, seed), plan)[0].rankings[1].less_first.excludes_0 for seed in range(10))
        for pages in (needed // 10 + 3, 3 * needed)
    }
    assert clear[needed // 10 + 3] <= 5 < 8 <= clear[3 * needed]


def test_undefined_figures_are_none() -> None:
    grades = np.array([1.0, 2.0, 2.0, 3.0])
    found = agreement(grades, [np.ones(4), grades], GradingPlan((2, 9), 3, 50))
    by_name = {(one.measure, one.top): one.rankings for one in found}
    assert by_name["spearman", None][0].value is None
    assert by_name["spearman", None][1].less_first == Difference(None, None, None, False, None)
    assert (by_name["ndcg", 9][1].value, by_name["ndcg", 9][1].low) == (None, None)
    assert by_name["precision", 2][0].value == pytest.approx(1 / 4)
    assert not by_name["ndcg", 9][1].less_first.excludes_0


# -- graders -----------------------------------------------------------------------------------------------------------

SCALE = np.array([1.0, 2.0, 3.0, 4.0])
SKILLS = [0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55]


def people(pages: int, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return true grades, and those of eight graders, who give the true one with the probability of their skill."""
    chance = np.random.default_rng(seed)
    truth = chance.choice(SCALE, pages, p=[0.35, 0.3, 0.25, 0.1])
    beside = [np.where(truth == 1, 2, np.where(truth == 4, 3, truth + chance.choice([-1, 1], pages))) for _ in SKILLS]
    return truth, [
        np.where(chance.random(pages) < skill, truth, other) for skill, other in zip(SKILLS, beside, strict=True)
    ]


def graded_by(grades: list[np.ndarray], scale: np.ndarray = SCALE) -> GradedPages:
    """Return the pages of graders; NaN: this person did not grade the page."""
    rows = [np.flatnonzero(~np.isnan(one)) for one in grades]
    return GradedPages(
        np.nanmean(grades, axis=0), scale, [(some, one[some]) for some, one in zip(rows, grades, strict=True)]
    )


@pytest.mark.parametrize("seed", range(4))
def test_eight_graders_of_known_skill_are_put_into_their_order_and_their_skill_is_found(seed: int) -> None:
    """As many pages as the paper had sites. Scores are a little low where the mean of the others is not the truth."""
    truth, grades = people(1000, seed)
    ranks = truth + np.random.default_rng(seed).normal(size=1000)
    found = {one.measure: one for one in graded_agreement(graded_by(grades), [ranks], GradingPlan((), 3, 40, 1))}
    scores = [one.value for one in found["same_grade"].graders]
    order = np.argsort(scores)[::-1].tolist()
    assert sum(at != number for number, at in enumerate(order)) <= 2  # two neighbours may be the other way round
    assert all(skill - 0.075 < score < skill + 0.02 for score, skill in zip(scores, SKILLS, strict=True))
    assert all(one.low <= one.value <= one.high and one.high - one.low < 0.09 for one in found["same_grade"].graders)
    as_printed = [one.value for one in found["same_grade_of_all"].graders]
    assert all(score < of_all < score + 0.06 for score, of_all in zip(scores, as_printed, strict=True))
    assert found["same_grade"].median_grader.value == pytest.approx(np.median(scores))
    assert found["same_grade"].median_grader.less_first.excludes_0


grid = st.lists(
    st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, math.nan]), min_size=5, max_size=5), min_size=2, max_size=5
)


@given(grid)
def test_the_score_of_a_grader_is_a_count_over_pages(rows: list[list[float]]) -> None:
    """By the mean of the others, and as the paper has it: by the mean of all."""
    grades = [np.array([3.0, 1.0, 2.0, 4.0, 1.0]), *map(np.array, rows)]
    found = {one.measure: one for one in graded_agreement(graded_by(grades), [grades[0]], GradingPlan((), 3, 1, 1))}
    for name, leaves_out in (("same_grade", True), ("same_grade_of_all", False)):
        values = []
        for who, own in enumerate(grades):
            scores = []
            for page, grade in enumerate(own):
                others = [one[page] for at, one in enumerate(grades) if at != who and not math.isnan(one[page])]
                if math.isnan(grade) or not others:
                    continue
                apart = np.abs(SCALE - np.mean(others if leaves_out else [*others, grade]))
                near = SCALE[apart <= apart.min() + 1e-12]
                scores.append((grade in near) / len(near))
            values.append(np.mean(scores) if len(scores) >= 3 else None)
        got = [one.value for one in found[name].graders]
        assert got == [None if value is None else pytest.approx(value) for value in values]
        known = [value for value in got if value is not None]
        assert found[name].median_grader.value == (pytest.approx(np.median(known)) if known else None)


def test_every_measure_judges_a_grader_as_a_ranking_by_the_mean_of_the_others() -> None:
    _, grades = people(60, 1)
    found = graded_agreement(graded_by(grades), [grades[0]], GradingPlan((10,), 2.5, 1, 1))
    others = np.mean(grades[:2] + grades[3:], axis=0)
    alone = agreement(others, [grades[2]], GradingPlan((10,), 2.5, 1, 1))
    by_name = {one.measure: one for one in found}
    for one in alone:
        if one.measure != "same_grade":  # of a ranking; a grader has given grades already
            assert by_name[one.measure].graders[2].value == pytest.approx(one.rankings[0].value)


def test_one_grader_has_nobody_to_be_compared_with() -> None:
    grades = np.array([1.0, 2.0, 3.0])
    (first, *_) = graded_agreement(graded_by([grades]), [grades], GradingPlan((), 2, 5, 1))
    assert (first.rankings[0].value, first.median_grader.value, first.graders[0].value) == (
        pytest.approx(1),
        None,
        None,
    )
