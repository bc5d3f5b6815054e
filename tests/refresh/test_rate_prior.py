"""Priors of change rates that are learnt from the crawl: laws of the posterior, runs, returns, groups of pages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.refresh.rate_prior import (
    CLASS_STEP,
    CLASSES,
    RATES,
    SEEN,
    SPREAD,
    first_prior,
    learnt_prior,
    learnt_rates,
    share_of_returns,
)
from opicflow.pipelines.refresh.rates import (
    CONTENTS_KEPT,
    DEFAULT,
    DEFAULT_CHANGES_PER_DAY,
    INTERVALS,
    LAST_MODIFIED,
    LEAST_SECONDS,
    MOST_CODE,
    MOST_EARLIER,
    MOST_ERROR,
    MOST_RUN,
    MOST_SECONDS,
    contents_of,
    pushed,
    pushed_content,
    pushed_run,
)

STEP = math.log(MOST_SECONDS / LEAST_SECONDS) / (MOST_CODE - 1)
DAY = 86_400.0
ALL_KNOWN = 1 | 2 << 10 | 3 << 20
"""Three contents before the present one."""

Interval = tuple[int, bool]
usual_intervals = st.lists(st.tuples(st.integers(40, 100), st.booleans()), min_size=1, max_size=8)


def days(code: int) -> float:
    return LEAST_SECONDS / DAY * math.exp(STEP * (code - 1))


def word_of(intervals: list[Interval]) -> int:
    word = 0
    for code, changed in intervals[-8:]:
        word = word << 8 | code | changed << 7
    return word


def pages(*rows: dict[str, Any]) -> np.ndarray:
    seen = np.zeros(len(rows), SEEN)
    for number, row in enumerate(rows):
        for name, value in row.items():
            seen[number][name] = word_of(value) if name in ("intervals", "dated") else value
    return seen


def not_dated(seen: np.ndarray) -> np.ndarray:
    return np.zeros(len(seen), np.bool_)


def rate_of(**row: Any) -> float:
    """The rate of a page that is alone in its crawl."""
    seen = pages(row)
    return float(learnt_rates(seen, not_dated(seen)).rates[0])


# The fields that a row keeps.


@given(st.lists(st.tuples(st.integers(1, MOST_CODE), st.integers(0, 9).map(bool)), max_size=60))
def test_a_run_is_the_changes_before_the_kept_intervals_without_a_break(intervals: list[Interval]) -> None:
    word, run, mean = np.uint64(0), 0, 0
    for code, changed in intervals:
        run, mean = pushed_run(run, mean, word, changed)
        word = np.uint64(pushed(word, days(code) * DAY, changed))
    expected: list[int] = []
    for number, (_, changed) in enumerate(intervals):
        eight = intervals[max(number - 8, 0) : number]
        if not changed:
            expected = []
        elif len(eight) == 8 and all(was for _, was in eight):
            expected.append(eight[0][0])
    assert run == len(expected)
    assert mean / 256 == pytest.approx(float(np.mean(expected)) if expected else 0.0, abs=0.3)


def test_a_run_stops_counting_at_255() -> None:
    word, run, mean = np.uint64(word_of([(60, True)] * 8)), 0, 0
    for _ in range(400):
        run, mean = pushed_run(run, mean, word, True)
    assert (run, mean) == (MOST_RUN, 60 * 256)


@given(st.lists(st.integers(0, 6), max_size=40))
def test_a_content_returns_if_it_was_one_of_the_three_before(contents: list[int]) -> None:
    digests = [0x9E3779B1 * (content + 1) & 0xFFFFFFFF for content in contents]
    earlier, before = 0, 0
    known: list[int] = []
    for digest in digests:
        if before and digest != before:
            earlier, returned = pushed_content(earlier, before, digest)
            assert returned == (digest in known)
            known = [before, *(one for one in known if one != digest)][: CONTENTS_KEPT - 1]
        assert contents_of(earlier) == 1 + len(known)
        assert 0 <= earlier <= MOST_EARLIER
        before = digest


# Priors.


def test_the_first_prior_is_between_once_a_day_and_once_in_half_a_year() -> None:
    prior = first_prior()
    assert prior.sum() == pytest.approx(1.0)
    assert math.exp(float(prior @ np.log(RATES))) == pytest.approx(DEFAULT_CHANGES_PER_DAY)
    assert prior[(RATES > 1 / 182.5) & (RATES < 1)].sum() == pytest.approx(0.68, abs=0.1)
    assert (CLASSES, CLASS_STEP < 0.52, SPREAD > 2.6) == (32, True, True)


def posteriors(intervals: list[list[Interval]], prior: np.ndarray) -> np.ndarray:
    """The posterior of each page, by the formula."""
    rows = []
    for page in intervals:
        logs = np.log(prior)
        for code, changed in page:
            x = RATES * days(code)
            logs = logs + (np.log(-np.expm1(-x)) if changed else -x)
        weights = np.exp(logs - logs.max())
        rows.append(weights / weights.sum())
    return np.array(rows)


@given(st.lists(usual_intervals, min_size=1, max_size=6), st.integers(1, 4))
def test_a_learnt_prior_is_the_mean_of_posteriors_computed_by_hand(
    intervals: list[list[Interval]], passes: int
) -> None:
    seen = pages(*({"intervals": page} for page in intervals))
    found = learnt_prior(seen, np.arange(len(seen)), not_dated(seen), np.arange(len(seen)), first_prior(), 16.0, passes)
    first = expected = first_prior()
    for _ in range(passes):
        expected = (16 * first + posteriors(intervals, expected).sum(0)) / (16 + len(intervals))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)


@given(usual_intervals)
def test_a_rate_is_the_mean_of_the_posterior_and_its_error_the_spread(intervals: list[Interval]) -> None:
    seen = pages({"intervals": intervals})
    prior = learnt_prior(seen, np.arange(1), not_dated(seen), np.arange(1), first_prior(), 16.0, 16)
    weights = posteriors([intervals], prior)[0]
    mean = float(weights @ np.log(RATES))
    found = learnt_rates(seen, not_dated(seen))
    assert math.log(found.rates[0]) == pytest.approx(mean, abs=1e-9)
    assert found.errors[0] == pytest.approx(math.sqrt(float(weights @ (np.log(RATES) - mean) ** 2)), abs=1e-6)
    assert found.known_from.tolist() == [INTERVALS]


def test_dates_are_changes_over_time() -> None:
    """Eight changes, each an hour before the visit: the posterior is near the gamma distribution of that."""
    seen = pages({"dated": [(33, True)] * 8, "intervals": [(60, True)] * 8})
    found = learnt_rates(seen, np.ones(1, np.bool_))
    assert found.known_from.tolist() == [LAST_MODIFIED]
    assert found.rates[0] == pytest.approx(1 / days(33), rel=0.2)
    assert 0.25 < found.errors[0] < 0.4
    assert learnt_rates(seen, np.ones(1, np.bool_), "existence").known_from.tolist() == [INTERVALS]


def test_a_crawl_without_data_has_the_default_rate() -> None:
    seen = pages({}, {"run": 3, "run_length": 300})
    found = learnt_rates(
        seen, not_dated(seen), categories=np.array([1, 2], np.uint8), sites=np.array([4, 4], np.uint16)
    )
    assert found.rates.tolist() == pytest.approx([DEFAULT_CHANGES_PER_DAY] * 2)
    assert found.known_from.tolist() == [DEFAULT] * 2
    assert 2 < found.errors[0] == found.errors[1] < MOST_ERROR


def test_pages_of_which_little_was_seen_follow_the_others() -> None:
    quiet = [{"intervals": [(80, False)] * 8}] * 50
    lively = [{"intervals": [(80, True)] * 8}] * 50
    one = {"intervals": [(60, False)]}
    among_quiet, among_lively = (
        learnt_rates(s, not_dated(s)).rates for s in (pages(*r, one, {}) for r in (quiet, lively))
    )
    assert (among_quiet[-2:] < 0.2 * among_lively[-2:]).all()


@pytest.mark.parametrize("by", ["categories", "sites"])
def test_a_group_has_a_prior_of_its_own(by: str) -> None:
    quiet, lively = {"intervals": [(80, False)] * 8}, {"intervals": [(80, True)] * 8}
    seen = pages(*[quiet] * 40, {}, *[lively] * 40, {})
    groups = np.repeat(np.array([7, 3], np.uint8), 41)
    alone, grouped = (learnt_rates(seen, not_dated(seen), **how) for how in ({}, {by: groups}))
    assert alone.rates[40] == alone.rates[81]
    assert grouped.rates[40] < 0.5 * alone.rates[40] < 2 * alone.rates[40] < grouped.rates[81]
    assert grouped.errors[40] < alone.errors[40]


@given(st.permutations(range(12)))
def test_the_order_of_pages_changes_nothing(order: list[int]) -> None:
    chance = np.random.default_rng(1)
    rows = [{"intervals": [(int(c), bool(c % 2)) for c in chance.integers(40, 90, 4)]} for _ in range(12)]
    sites = np.arange(12) % 3
    seen = pages(*rows)
    once = learnt_rates(seen, not_dated(seen), sites=sites)
    again = learnt_rates(seen[order], not_dated(seen), sites=sites[order])
    np.testing.assert_allclose(again.rates, once.rates[order], rtol=1e-9)


def test_one_old_date_that_nothing_confirms_gives_no_more_than_the_prior() -> None:
    seen = pages({"dated": [(110, True)]}, {"dated": [(20, True)]}, {})
    found = learnt_rates(seen, np.ones(3, np.bool_))
    assert found.known_from.tolist() == [DEFAULT, LAST_MODIFIED, DEFAULT]
    assert found.rates[0] == found.rates[2] < found.rates[1]


# Runs and returns.


@given(st.integers(40, 100), st.integers(0, MOST_RUN), st.integers(0, MOST_RUN))
def test_a_longer_unbroken_run_never_lowers_the_rate(code: int, shorter: int, longer: int) -> None:
    shorter, longer = sorted((shorter, longer))
    page = {"intervals": [(code, True)] * 8, "run_length": code << 8}
    assert rate_of(**page, run=longer) >= rate_of(**page, run=shorter) * (1 - 1e-9)


def test_a_long_run_of_changes_lets_the_rate_go() -> None:
    page = {"intervals": [(73, True)] * 8, "run_length": 73 << 8}  # about ten days each
    assert rate_of(**page, run=MOST_RUN) > 1.5 * rate_of(**page) > 1.5 * 8 / (8 * days(73))


@given(usual_intervals, st.integers(0, 255), st.integers(0, 7))
def test_a_return_never_lowers_the_rate(intervals: list[Interval], returned: int, one: int) -> None:
    changes = sum(changed << age for age, (_, changed) in enumerate(reversed(intervals)))
    fewer, more = returned & changes & ~(1 << one), (returned | 1 << one) & changes
    page = {"intervals": intervals, "earlier": ALL_KNOWN}
    assert rate_of(**page, returned=more) >= rate_of(**page, returned=fewer) * (1 - 1e-9)


@given(usual_intervals, st.sampled_from([0, 1, 1 | 2 << 10, ALL_KNOWN]))
def test_without_returns_earlier_contents_change_nothing(intervals: list[Interval], earlier: int) -> None:
    assert rate_of(intervals=intervals, earlier=earlier) == rate_of(intervals=intervals)


def test_unchanged_intervals_of_a_page_that_returns_are_weak_evidence() -> None:
    flips = [(60, True), (60, False)] * 4
    assert rate_of(intervals=flips, earlier=1, returned=0b10101010) > 1.3 * rate_of(intervals=flips)


def test_the_share_of_returns_is_that_of_pages_whose_changes_are_seen_one_by_one() -> None:
    slow = {"intervals": [(60, False)] * 6 + [(60, True)] * 2, "earlier": ALL_KNOWN, "returned": 0b01}
    fast = {"intervals": [(60, True)] * 8, "earlier": ALL_KNOWN}
    fresh = {"intervals": [(60, False)] * 7 + [(60, True)], "earlier": 1}
    assert share_of_returns(pages(slow, fast, fresh), np.arange(3)) == 0.5
    assert share_of_returns(pages(fast, fresh), np.arange(2)) == 0.0


# Poisson pages.


def made_up(dated: bool, seed: int = 1, number: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rates from once an hour to once in five years, irregular visits, and how often each page was seen to change."""
    chance = np.random.default_rng(seed)
    rates = np.exp(chance.uniform(math.log(1 / (5 * 365.25)), math.log(24), number))
    gaps = np.exp(chance.uniform(0, math.log(30), number))
    lengths = np.maximum(gaps[:, None] * chance.exponential(1.0, (number, 8)), LEAST_SECONDS / DAY)
    ago = chance.exponential(1.0, (number, 8)) / rates[:, None]
    changed = ago < lengths
    seen = np.zeros(number, SEEN)
    for name, times in (("intervals", lengths), ("dated", np.where(changed, ago, lengths))):
        for column, one in zip(times.T, changed.T, strict=True):
            codes = np.clip(np.rint(np.log(np.maximum(column * DAY, 1.0) / LEAST_SECONDS) / STEP) + 1, 1, MOST_CODE)
            seen[name] = seen[name] << np.uint64(8) | codes.astype(np.uint64) | one.astype(np.uint64) << np.uint64(7)
    return rates, seen, np.full(number, dated), changed.sum(1)


@pytest.mark.parametrize("dated", [False, True])
def test_pages_that_changed_four_times_are_known_within_a_factor_of_a_half_in_the_median(dated: bool) -> None:
    rates, seen, use_dates, changes = made_up(dated)
    off = learnt_rates(seen, use_dates).rates / rates
    assert 1 / 1.5 < np.median(off[changes >= 4]) < 1.5
    assert 1 / 1.5 < np.median(off) < 1.5


@pytest.mark.parametrize("dated", [False, True])
def test_errors_are_honest_also_where_every_visit_saw_a_change(dated: bool) -> None:
    rates, seen, use_dates, changes = made_up(dated, seed=2)
    found = learnt_rates(seen, use_dates)
    surprise = np.abs(np.log(found.rates / rates)) / found.errors
    for some in (changes >= 0, changes == 0, changes >= 4, changes == 8):
        assert 0.55 <= (surprise[some] < 1).mean() <= 0.85
        assert (surprise[some] < 3).mean() > 0.97
    if not dated:
        assert np.median(found.errors[changes == 8]) > 0.8


any_word = st.integers(0, (1 << 64) - 1)


@given(st.lists(st.tuples(any_word, any_word, st.integers(0, MOST_EARLIER), st.integers(0, 255)), max_size=6))
def test_whatever_bits_there_are_make_a_rate(rows: list[tuple[int, int, int, int]]) -> None:
    seen = np.zeros(len(rows), SEEN)
    for number, (intervals, dated, earlier, returned) in enumerate(rows):
        seen[number] = (intervals, dated, earlier, 0, 0, returned)
    for use_dates in (np.zeros(len(rows), np.bool_), np.ones(len(rows), np.bool_)):
        found = learnt_rates(seen, use_dates, sites=np.arange(len(rows)) // 2)
        assert ((found.rates >= RATES[0] * (1 - 1e-9)) & (found.rates <= RATES[-1] * (1 + 1e-9))).all()
        assert ((found.errors >= 0) & (found.errors <= MOST_ERROR)).all()


def test_the_thesis_estimator_has_no_prior() -> None:
    seen = pages({})
    for name in ("thesis", "best"):
        with pytest.raises(ValueError, match=f"'{name}' uses no prior: choose likelihood or existence"):
            learnt_rates(seen, not_dated(seen), name)
