"""Change rates are held against a slow maximiser in plain Python, and against Poisson pages whose rate is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opicflow.pipelines.refresh.rates import (
    DEFAULT,
    DEFAULT_CHANGES_PER_DAY,
    ESTIMATORS,
    INTERVALS,
    LAST_MODIFIED,
    LEAST_RATE,
    LEAST_SECONDS,
    MOST_CODE,
    MOST_ERROR,
    MOST_RATE,
    MOST_SECONDS,
    change_rates,
    code_of,
    dated_rate,
    existence_rate,
    kept_intervals,
    pushed,
    rate_of,
    relative_error,
    thesis_dated_rate,
)

DAY = 86_400.0
STEP = (MOST_SECONDS / LEAST_SECONDS) ** (1 / (MOST_CODE - 1))

Interval = tuple[int, bool]

any_word = st.integers(0, 2**64 - 1)
interval = st.tuples(st.integers(1, MOST_CODE), st.booleans())
some_intervals = st.lists(interval, min_size=1, max_size=8)
usual_intervals = st.lists(st.tuples(st.integers(40, 80), st.booleans()), min_size=1, max_size=8)
estimators = st.sampled_from(list(ESTIMATORS.values()))


def days(code: int) -> float:
    return LEAST_SECONDS * STEP ** (code - 1) / DAY


def word_of(intervals: list[Interval]) -> np.uint64:
    """A word of codes, the oldest first."""
    word = 0
    for code, changed in intervals:
        word = word << 8 | code | (0x80 if changed else 0)
    return np.uint64(word)


def intervals_of(word: int) -> list[Interval]:
    read = [(byte & 0x7F, byte >= 0x80) for byte in int(word).to_bytes(8, "big")]
    return [(code, changed) for code, changed in read if code != 0]


def words_of(seconds: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """A word for every row of lengths."""
    words = np.zeros(len(seconds), np.uint64)
    for column in range(seconds.shape[1]):
        codes = 1 + np.rint(np.log(seconds[:, column] / LEAST_SECONDS) / math.log(STEP))
        codes = np.clip(codes, 1, MOST_CODE).astype(np.uint64)
        words = words << np.uint64(8) | codes | np.where(changed[:, column], np.uint64(0x80), np.uint64(0))
    return words


def log_likelihood(intervals: list[Interval], rate: float) -> float:
    """The logarithm of the thesis' f (4.1), with half an interval of either kind besides."""
    mean = sum(days(code) for code, _ in intervals) / len(intervals)
    weighted = [(days(code), changed, 1.0) for code, changed in intervals]
    weighted += [(mean, True, 0.5), (mean, False, 0.5)]
    return sum(
        weight * (math.log(-math.expm1(-rate * length)) if changed else -rate * length)
        for length, changed, weight in weighted
    )


def slope(intervals: list[Interval], rate: float) -> float:
    """The derivative of `log_likelihood`."""
    mean = sum(days(code) for code, _ in intervals) / len(intervals)
    weighted = [(days(code), changed, 1.0) for code, changed in intervals]
    weighted += [(mean, True, 0.5), (mean, False, 0.5)]
    return sum(
        weight * ((length / math.expm1(rate * length) if rate * length < 700 else 0.0) if changed else -length)
        for length, changed, weight in weighted
    )


def likeliest(intervals: list[Interval]) -> float:
    """The rate at which `log_likelihood` is greatest, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(intervals, math.exp(middle)) > 0 else (low, middle)
    return math.exp(low)


def within_bounds(rate: float) -> float:
    return min(max(rate, LEAST_RATE), MOST_RATE)


# Words.


def test_every_code_comes_back_from_the_length_it_stands_for() -> None:
    for code in range(1, MOST_CODE + 1):
        for share in (-0.49, 0.0, 0.49):
            assert code_of(days(code) * DAY * STEP**share) == code


@given(st.floats(LEAST_SECONDS, MOST_SECONDS))
def test_a_length_is_known_to_half_a_step(seconds: float) -> None:
    assert abs(math.log(days(code_of(seconds)) * DAY / seconds)) <= math.log(STEP) / 2 * (1 + 1e-9)


def test_the_ends_of_the_scale() -> None:
    assert [code_of(x) for x in (-math.inf, -5.0, 0.0, 59.9, 60.0, math.nan)] == [1] * 6
    assert [code_of(x) for x in (MOST_SECONDS, 2 * MOST_SECONDS, math.inf)] == [MOST_CODE] * 3
    assert days(MOST_CODE) == pytest.approx(20 * 365.25)
    assert pytest.approx(1.137, abs=0.0005) == STEP


@given(st.lists(interval, max_size=12))
def test_a_word_keeps_the_last_eight_intervals(intervals: list[Interval]) -> None:
    word = 0
    for code, changed in intervals:
        word = pushed(np.uint64(word), days(code) * DAY, changed)
    assert intervals_of(word) == intervals[-8:]


@given(st.lists(some_intervals, min_size=1, max_size=5))
def test_the_kept_intervals_of_words_are_read_with_the_latest_first(pages: list[list[Interval]]) -> None:
    kept = kept_intervals(np.array([word_of(intervals) for intervals in pages], np.uint64))
    for row, intervals in enumerate(pages):
        there = kept.is_interval[row]
        assert there.sum() == len(intervals) and there[: len(intervals)].all()
        assert kept.is_change[row, there].tolist() == [changed for _, changed in reversed(intervals)]


def test_the_ninth_interval_forgets_the_first() -> None:
    nine = [(9 * i + 1, i % 2 == 0) for i in range(9)]
    word = 0
    for code, changed in nine:
        word = pushed(np.uint64(word), days(code) * DAY, changed)
    assert word == word_of(nine[1:])
    assert word & 0xFF == nine[-1][0] | 0x80


# Existence of change.


@given(some_intervals)
def test_the_rate_is_the_likeliest(intervals: list[Interval]) -> None:
    rate, information = existence_rate(word_of(intervals))
    expected = likeliest(intervals)
    assert rate == pytest.approx(within_bounds(expected), rel=1e-6)
    assert math.isfinite(information) and information > 0
    if LEAST_RATE < rate < MOST_RATE:
        most = log_likelihood(intervals, rate)
        for factor in (0.9, 0.999, 1.001, 1.1):
            assert log_likelihood(intervals, rate * factor) < most


@given(st.lists(st.tuples(st.sampled_from([1, 2, 64, 126, 127]), st.booleans()), min_size=1, max_size=8))
def test_the_rate_is_the_likeliest_at_the_ends_of_the_scale_too(intervals: list[Interval]) -> None:
    rate, information = existence_rate(word_of(intervals))
    assert rate == pytest.approx(within_bounds(likeliest(intervals)), rel=1e-6)
    assert relative_error(rate, information) > 0.999 / math.sqrt(len(intervals) + 0.5)


def test_intervals_of_one_length_have_a_closed_form() -> None:
    for code in range(1, MOST_CODE + 1):
        for count in range(1, 9):
            for changed in range(count + 1):
                rate, _ = existence_rate(word_of([(code, i < changed) for i in range(count)]))
                exact = within_bounds(math.log((count + 1) / (count - changed + 0.5)) / days(code))
                assert rate == pytest.approx(exact, rel=1e-6), (code, count, changed)


@given(usual_intervals)
def test_information_is_how_sharply_the_likelihood_bends(intervals: list[Interval]) -> None:
    rate, information = existence_rate(word_of(intervals))
    near = 1e-4 * rate
    bend = (slope(intervals, rate - near) - slope(intervals, rate + near)) / (2 * near)
    assert information == pytest.approx(bend, rel=1e-3)


@given(some_intervals, st.integers(0, 7))
def test_a_change_more_never_lowers_the_rate(intervals: list[Interval], index: int) -> None:
    index %= len(intervals)
    code, _ = intervals[index]
    without, with_ = list(intervals), list(intervals)
    without[index], with_[index] = (code, False), (code, True)
    for estimate in (existence_rate, dated_rate):
        assert estimate(word_of(with_))[0] >= estimate(word_of(without))[0] * (1 - 1e-7)


@given(some_intervals, st.integers(0, 7), st.integers(1, MOST_CODE))
def test_a_longer_time_without_change_never_raises_the_rate(intervals: list[Interval], index: int, code: int) -> None:
    index %= len(intervals)
    shorter, longer = list(intervals), list(intervals)
    least, most = sorted([code, intervals[index][0]])
    shorter[index], longer[index] = (least, False), (most, False)
    for estimate in (existence_rate, dated_rate):
        assert estimate(word_of(longer))[0] <= estimate(word_of(shorter))[0] * (1 + 1e-7)


@given(usual_intervals, st.integers(1, 20))
def test_the_rate_has_no_unit_of_its_own(intervals: list[Interval], steps: int) -> None:
    """All intervals longer by one factor: the rate is lower by it, and as sure."""
    longer = [(code + steps, changed) for code, changed in intervals]
    for estimate in (existence_rate, dated_rate, thesis_dated_rate):
        (rate, information), (lower, less) = estimate(word_of(intervals)), estimate(word_of(longer))
        assert lower * STEP**steps == pytest.approx(rate, rel=1e-6)
        assert relative_error(lower, less) == pytest.approx(relative_error(rate, information), rel=1e-3)


@given(usual_intervals)
def test_pages_that_always_or_never_changed_have_a_rate(intervals: list[Interval]) -> None:
    always = word_of([(code, True) for code, _ in intervals])
    never = word_of([(code, False) for code, _ in intervals])
    lengths = [days(code) for code, _ in intervals]
    assert LEAST_RATE <= existence_rate(never)[0] < 0.5 / sum(lengths)
    assert existence_rate(never)[0] < existence_rate(always)[0] <= 3.0 / min(lengths)


def test_an_error_has_a_bound() -> None:
    assert relative_error(2.0, 1.0) == 0.5
    assert [relative_error(1.0, information) for information in (1e-9, 0.0, 1e-300)] == [MOST_ERROR] * 3


# Last date of change.


@given(some_intervals)
def test_dated_rates_are_changes_over_time(intervals: list[Interval]) -> None:
    changes = sum(changed for _, changed in intervals)
    time = sum(days(code) for code, _ in intervals)
    expected = within_bounds((changes + 0.5) / (time + time / len(intervals)))
    rate, information = dated_rate(word_of(intervals))
    assert rate == pytest.approx(expected)
    assert relative_error(rate, information) == pytest.approx(1 / math.sqrt(changes + 0.5))


@given(some_intervals)
def test_the_thesis_counts_no_time_without_a_change(intervals: list[Interval]) -> None:
    lengths = [days(code) for code, changed in intervals if changed]
    rate, information = thesis_dated_rate(word_of(intervals))
    if not lengths:
        assert (rate, information) == (0.0, 0.0)
    else:
        assert rate == pytest.approx(within_bounds(len(lengths) / sum(lengths)))
        assert relative_error(rate, information) == pytest.approx(1 / math.sqrt(len(lengths)))


def test_by_hand() -> None:
    """Two changes, half a day and a day and a half before their visits, and eight quiet days."""
    word = 0
    for length, changed in ((0.5, True), (8.0, False), (1.5, True)):
        word = pushed(np.uint64(word), length * DAY, changed)
    word = np.uint64(word)
    assert thesis_dated_rate(word)[0] == pytest.approx(2 / 2.0, rel=0.07)
    assert dated_rate(word)[0] == pytest.approx(2.5 / (10 + 10 / 3), rel=0.07)


# Poisson pages.


def simulated(rate: float, visits: int, seed: int, pages: int = 4_000) -> tuple[np.ndarray, np.ndarray]:
    """Both words of pages that change `rate` times a day and are visited irregularly, once a day in the mean."""
    generator = np.random.default_rng(seed)
    lengths = generator.gamma(2.0, 0.5, (pages, visits))
    ago = generator.exponential(1.0 / rate, (pages, visits))
    changed = ago < lengths
    return words_of(lengths * DAY, changed), words_of(np.minimum(ago, lengths) * DAY, changed)


@pytest.mark.parametrize(
    ("rate", "low", "high"),
    [(0.1, 0.6, 1.45), (0.3, 0.85, 1.2), (1.0, 0.9, 1.1), (3.0, 0.7, 1.05)],
)
def test_the_median_page_is_estimated_well_by_existence(rate: float, low: float, high: float) -> None:
    intervals, dated = simulated(rate, 8, seed=1)
    found = change_rates(intervals, dated, np.zeros(len(dated), np.bool_))
    assert set(found.known_from) == {INTERVALS}
    assert low <= np.median(found.rates) / rate <= high


@pytest.mark.parametrize("rate", [0.3, 1.0, 3.0, 10.0, 100.0])
def test_the_median_page_is_estimated_well_by_dates(rate: float) -> None:
    intervals, dated = simulated(rate, 8, seed=2)
    found = change_rates(intervals, dated, np.ones(len(dated), np.bool_))
    assert set(found.known_from) == {LAST_MODIFIED}
    assert 0.85 <= np.median(found.rates) / rate <= 1.15


@pytest.mark.parametrize("rate", [0.3, 1.0, 3.0])
def test_errors_say_how_far_estimates_lie_from_the_rate(rate: float) -> None:
    intervals, dated = simulated(rate, 8, seed=3)
    for believed in (False, True):
        found = change_rates(intervals, dated, np.full(len(dated), believed))
        surprise = np.abs(np.log(found.rates / rate)) / found.errors
        assert 0.55 <= (surprise < 1).mean() <= 0.9
        assert (surprise < 3).mean() > 0.98


def test_dates_are_better_than_existence_and_the_thesis_counts_too_many_changes() -> None:
    intervals, dated = simulated(10.0, 8, seed=4)
    believed = np.ones(len(dated), np.bool_)
    off = {name: np.log(change_rates(intervals, dated, believed, name).rates / 10.0) for name in ESTIMATORS}
    assert np.square(off["likelihood"]).mean() < 0.2 * np.square(off["existence"]).mean()
    intervals, dated = simulated(0.3, 8, seed=5)
    median = {name: np.median(change_rates(intervals, dated, believed, name).rates) / 0.3 for name in ESTIMATORS}
    assert median["thesis"] > 3 > 1.2 > median["likelihood"]


# Columns.


def test_what_a_rate_is_read_from() -> None:
    three = word_of([(70, True), (72, False), (71, True)])
    two = word_of([(50, True), (60, False)])
    quiet = word_of([(60, False), (61, False)])
    no_word = np.uint64(0)
    rows = [(three, two, True), (three, two, False), (three, no_word, True), (no_word, two, False)]
    rows += [(no_word, no_word, True), (three, quiet, True)]
    intervals, dated, believed = (np.array(column) for column in zip(*rows, strict=True))
    exact, existence, thesis = (change_rates(intervals, dated, believed, name, 0.5) for name in ESTIMATORS)
    assert exact.known_from.tolist() == [LAST_MODIFIED, INTERVALS, INTERVALS, DEFAULT, DEFAULT, LAST_MODIFIED]
    assert existence.known_from.tolist() == [INTERVALS, INTERVALS, INTERVALS, DEFAULT, DEFAULT, INTERVALS]
    assert thesis.known_from.tolist() == exact.known_from.tolist()
    by_lengths = existence_rate(three)[0]
    assert exact.rates.tolist() == [dated_rate(two)[0], by_lengths, by_lengths, 0.5, 0.5, dated_rate(quiet)[0]]
    assert existence.rates.tolist() == [by_lengths, by_lengths, by_lengths, 0.5, 0.5, by_lengths]
    assert thesis.rates.tolist() == [thesis_dated_rate(two)[0], *exact.rates.tolist()[1:]]
    assert exact.errors[3:5].tolist() == [MOST_ERROR, MOST_ERROR]


def test_one_old_date_that_nothing_confirms_gives_no_more_than_the_default() -> None:
    old, fresh = word_of([(100, True)]), word_of([(20, True)])
    dated = np.array([old, fresh], np.uint64)
    found = change_rates(np.zeros(2, np.uint64), dated, np.ones(2, np.bool_))
    assert found.rates.tolist() == [DEFAULT_CHANGES_PER_DAY, dated_rate(fresh)[0]]
    assert found.known_from.tolist() == [DEFAULT, LAST_MODIFIED]
    assert found.errors[0] == MOST_ERROR > 1 > found.errors[1]


@given(st.lists(st.tuples(any_word, any_word, st.booleans()), max_size=8), st.sampled_from(list(ESTIMATORS)))
def test_a_column_is_its_pages_and_whatever_bits_there_are_make_a_rate(
    rows: list[tuple[int, int, bool]], estimator: str
) -> None:
    intervals = np.array([row[0] for row in rows], np.uint64)
    dated = np.array([row[1] for row in rows], np.uint64)
    believed = np.array([row[2] for row in rows], np.bool_)
    found = change_rates(intervals, dated, believed, estimator)
    assert (found.rates.dtype, found.errors.dtype, found.known_from.dtype) == (np.float64, np.float64, np.uint8)
    for i in range(len(rows)):
        alone = rate_of(intervals[i], dated[i], believed[i], ESTIMATORS[estimator], DEFAULT_CHANGES_PER_DAY)
        assert alone == (found.rates[i], found.errors[i], found.known_from[i])
        assert LEAST_RATE <= found.rates[i] <= MOST_RATE
        assert 0.999 / math.sqrt(8.5) < found.errors[i] <= MOST_ERROR


@given(any_word)
def test_bytes_of_code_0_are_nothing(word: int) -> None:
    intervals = intervals_of(word)
    assume(intervals)
    tight = word_of(intervals)
    for estimate in (existence_rate, dated_rate, thesis_dated_rate):
        assert estimate(np.uint64(word)) == estimate(tight)


@pytest.mark.parametrize("word", [0, 0x80, 0x8000_0000_0000_0000, 0x8080_8080_8080_8080])
def test_an_empty_word_has_no_observations(word: int) -> None:
    for estimate in (existence_rate, dated_rate, thesis_dated_rate):
        assert estimate(np.uint64(word)) == (0.0, 0.0)
    for estimator in ESTIMATORS.values():
        found = rate_of(np.uint64(word), np.uint64(word), True, estimator, 0.25)
        assert found == (0.25, MOST_ERROR, DEFAULT)


def test_columns_need_not_lie_densely_and_stay_as_they_are() -> None:
    rows = np.zeros(5, np.dtype([("intervals", np.uint64), ("dated", np.uint64)]))
    rows["intervals"] = [word_of([(60 + i, i % 2 == 0)]) for i in range(5)]
    rows["dated"] = rows["intervals"][::-1]
    before = rows.copy()
    believed = np.array([True, False] * 5)[::2]
    sparse = change_rates(rows["intervals"], rows["dated"], believed)
    dense = change_rates(rows["intervals"].copy(), rows["dated"].copy(), believed.copy())
    assert all((a == b).all() for a, b in zip(sparse, dense, strict=True))
    assert (rows == before).all()


@pytest.mark.parametrize("default_rate", [0.0, -1.0, math.nan, math.inf, 2_000.0, 1e-9])
def test_a_default_rate_that_is_none_is_refused(default_rate: float) -> None:
    column = np.zeros(1, np.uint64)
    with pytest.raises(ValueError, match="default rate is"):
        change_rates(column, column, np.zeros(1, np.bool_), default_rate=default_rate)


def test_wrong_options_are_refused() -> None:
    column = np.zeros(2, np.uint64)
    with pytest.raises(ValueError, match="no estimator 'best': choose likelihood, existence, thesis"):
        change_rates(column, column, np.zeros(2, np.bool_), "best")
    with pytest.raises(ValueError, match="columns of one length"):
        change_rates(column, column, np.zeros(3, np.bool_))
    with pytest.raises(ValueError, match="columns of one length"):
        change_rates(column.reshape(2, 1), column.reshape(2, 1), np.zeros((2, 1), np.bool_))
