"""Retries, caps and choices of a cycle are what plain loops say, and add up exactly whatever the number of shards."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.refresh.orders import (
    NEVER,
    Limit,
    allowances,
    back_off_seconds,
    chosen,
    most_urgent,
    next_checks,
    packed_intervals,
    rank_within,
    unpacked_intervals,
)

DAY = 86_400
PAGES = np.random.default_rng(1).integers(0, 1 << 64, 20_000, np.uint64)

some_ids = st.lists(st.integers(0, (1 << 64) - 1), max_size=30, unique=True)
caps = st.sampled_from([0.001, 0.3, 1 / 3, 0.1, 1.0, 2.5, 7.0, 1e4]) | st.floats(1e-3, 1e6)
seconds = st.lists(st.integers(0, 1 << 33), min_size=2, max_size=8, unique=True).map(sorted)


def waits(failures: int, first: float = 3600.0, longest: float = math.inf) -> np.ndarray:
    return back_off_seconds(PAGES, np.full(len(PAGES), failures), first, longest)


# Retries


@pytest.mark.parametrize("failures", [1, 2, 3, 8, 40])
def test_a_page_that_fails_waits_twice_as_long_every_time_give_or_take_a_quarter(failures: int) -> None:
    share = waits(failures) / (3600.0 * 2 ** (failures - 1))
    assert 0.75 <= share.min() < 0.751
    assert 1.249 < share.max() <= 1.25
    assert share.mean() == pytest.approx(1.0, abs=0.01)


def test_no_page_waits_longer_than_the_longest_give_or_take_a_quarter() -> None:
    for failures in (11, 41, 100, 255):
        found = waits(failures, longest=30 * DAY)
        assert 22.5 * DAY <= found.min() < found.max() <= 37.5 * DAY


def test_waits_are_finite_for_any_number_of_failures() -> None:
    for failures in (0, 1, 255):
        found = waits(failures, first=36525.0 * DAY)
        assert np.isfinite(found).all()
        assert found.min() > 0


def test_a_wait_depends_on_the_page_and_its_failures_alone() -> None:
    whole = waits(3)
    order = np.random.default_rng(2).permutation(len(PAGES))
    assert (back_off_seconds(PAGES[order], np.full(len(PAGES), 3), 3600.0, math.inf) == whole[order]).all()
    assert len(np.unique(whole)) > 0.99 * len(PAGES)
    assert abs(np.corrcoef(whole, waits(4))[0, 1]) < 0.05


def test_pages_with_neighbouring_ids_do_not_come_back_together() -> None:
    near = back_off_seconds(np.arange(10_000, dtype=np.uint64), np.ones(10_000, np.int64), 1.0, math.inf)
    counts, _ = np.histogram(near, bins=20, range=(0.75, 1.25))
    assert counts.min() > 350
    assert counts.max() < 650


@given(
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 200 * 365 * DAY),
    st.sampled_from([1.0, 2.0, 5.0, 8.0, 256.0, math.inf]),
)
def test_the_next_check_is_the_first_after_waits_that_double_up_to_the_longest(
    page: int, since: int, times: float
) -> None:
    first, longest, ids = 15.0 * DAY, times * 15.0 * DAY, np.array([page], np.uint64)
    number, due, doubled = 1, round(float(back_off_seconds(ids, np.array([1]), first, longest)[0])), 1.0
    while due <= since:
        number, doubled = (number + 1, 2 * doubled) if doubled < times else (number, doubled)
        due += round(float(back_off_seconds(ids, np.array([number]), first, longest)[0]))
    found = next_checks(ids, np.array([since]), first, longest)
    assert (found.number.tolist(), found.due_after.tolist()) == ([number], [due])


def test_checks_of_many_pages_are_those_of_each() -> None:
    since = np.random.default_rng(3).integers(0, 400 * DAY, len(PAGES))
    found = next_checks(PAGES, since, 6 * 3600.0, 30.0 * DAY)
    for row in range(0, len(PAGES), 997):
        one = next_checks(PAGES[row : row + 1], since[row : row + 1], 6 * 3600.0, 30.0 * DAY)
        assert (one.number[0], one.due_after[0]) == (found.number[row], found.due_after[row])
    assert (found.due_after > since).all()


# Intervals in two bytes


@given(st.lists(st.floats(1.0, 4e9), min_size=1))
def test_an_interval_comes_back_to_a_thirtieth_of_a_per_cent(given_seconds: list[float]) -> None:
    column = np.array(given_seconds)
    packed = packed_intervals(column)
    assert (packed != 0).all()
    assert (packed != NEVER).all()
    assert unpacked_intervals(packed) == pytest.approx(column, rel=1 / 3000)


def test_never_and_not_yet_are_distinguished_from_intervals() -> None:
    packed = packed_intervals(np.array([math.inf, 1e300, 0.0, 0.3, 1.0]))
    assert packed.tolist() == [NEVER, NEVER - 1, 1, 1, 1]
    assert unpacked_intervals(np.array([0, NEVER, 1], np.uint16)).tolist() == [0.0, math.inf, 1.0]


def test_a_packed_interval_is_packed_to_itself() -> None:
    every = np.arange(1, NEVER + 1).astype(np.uint16)
    assert (packed_intervals(unpacked_intervals(every)) == every).all()


# the most that hosts may get


WHOLE = np.ones(1), np.zeros(1)
"""A host that is in one shard."""


def equal_parts(shards: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the parts of a host that is divided among shards of equal width."""
    return [(np.full(1, 1 / shards), np.full(1, shard / shards)) for shard in range(shards)]


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@given(per_day=caps, times=seconds)
def test_allowances_of_equal_shards_and_times_add_up_exactly(shards: int, per_day: float, times: list[int]) -> None:
    cap = np.array([per_day])
    total = 0
    for since, until in pairwise(times):
        of_shards = [int(allowances(cap, since, until, *parts)[0]) for parts in equal_parts(shards)]
        alone = int(allowances(cap, since, until, *WHOLE)[0])
        assert sum(of_shards) == alone
        assert min(of_shards) >= 0
        assert max(of_shards) - min(of_shards) <= 2
        total += alone
    exact = Fraction(per_day) * (times[-1] - times[0]) / DAY
    assert abs(total - exact) < 1 + 1e-6


@given(per_day=caps, times=seconds, cuts=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=5, unique=True))
def test_a_host_divided_unevenly_gets_its_cap_but_for_a_fetch_a_shard(
    per_day: float, times: list[int], cuts: list[float]
) -> None:
    edges = [0.0, *sorted(cuts), 1.0]
    parts = [(np.array([after - before]), np.array([before])) for before, after in pairwise(edges)]
    cap = np.array([per_day])
    alone = int(allowances(cap, times[0], times[-1], *WHOLE)[0])
    found = [sum(int(allowances(cap, *span, *part)[0]) for span in pairwise(times)) for part in parts]
    assert abs(sum(found) - alone) <= len(parts)
    for got, (share, _) in zip(found, parts, strict=True):
        assert abs(got - alone * float(share[0])) < 1 + 1e-6 * max(alone, 1)


def test_a_cap_of_a_third_allows_one_in_three_days() -> None:
    third = np.array([1 / 3])
    found = [int(allowances(third, day * DAY, (day + 1) * DAY, *WHOLE)[0]) for day in range(20_000, 20_300)]
    assert sum(found) == 100
    assert max(found) == 1


def test_shards_do_not_gain_by_rounding() -> None:
    """Just below a whole number, x + s is rounded to one."""
    below = np.array([np.nextafter(1.0, 0), np.nextafter(3.0, 0), np.nextafter(2**20, 0)])
    for shards in (2, 3, 7):
        found = sum(allowances(below, 0, DAY, *parts) for parts in equal_parts(shards))
        assert found.tolist() == [0, 2, 2**20 - 1]


def test_no_cap_is_an_allowance_of_any_size_and_no_overflow() -> None:
    for cap in (1e9, 1e12, 1e300):
        found = allowances(np.array([cap]), 1 << 33, (1 << 33) + DAY, *WHOLE)
        assert int(found[0]) == 10**9


# Who is chosen


def slowly_chosen(pages: list[int], urgency: list[float], limits: list[tuple[list[int], list[int]]], most: int) -> list:
    taken: list[int] = []
    had = [Counter[int]() for _ in limits]
    for row in sorted(range(len(pages)), key=lambda row: (-urgency[row], pages[row])):
        if any(of_kind[of[row]] >= most_of[of[row]] for of_kind, (of, most_of) in zip(had, limits, strict=True)):
            continue
        if len(taken) < most:
            taken.append(row)
        for of_kind, (of, _) in zip(had, limits, strict=True):
            of_kind[of[row]] += 1
    return taken


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 1.5, 1e12]), st.sampled_from([-1.0, 0.0, 2.0]), st.integers(0, 5))),
    st.integers(-2, 40),
    st.booleans(),
)
def test_the_most_urgent_rows_are_found_before_they_are_put_in_order(
    rows: list[tuple[float, float, int]], most: int, has_second: bool
) -> None:
    urgency, then_by, pages = (np.array(column) for column in zip(*rows, strict=True)) if rows else [np.zeros(0)] * 3
    pages, then_by = pages.astype(np.uint64), then_by if has_second else None
    found = most_urgent(urgency, most, then_by)
    assert len(set(found.tolist())) == len(found)
    part = chosen(pages[found], urgency[found], [], most, None if then_by is None else then_by[found])
    assert pages[found[part]].tolist() == pages[chosen(pages, urgency, [], most, then_by)].tolist()
    values = [rows[row][: 1 + has_second] for row in range(len(rows))]
    least = sorted(values)[-most] if 0 < most <= len(values) else None
    assert most > 0 or not len(found)
    assert least is None or all(values[row] >= least for row in found)


@given(st.data())
def test_the_most_urgent_are_chosen_of_which_no_host_or_domain_has_too_many(data: st.DataObject) -> None:
    pages = data.draw(some_ids)
    of_each = {"min_size": len(pages), "max_size": len(pages)}
    urgency = data.draw(st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0, 1e12]), **of_each))
    limits = [
        (
            data.draw(st.lists(st.integers(0, groups - 1), **of_each)),
            data.draw(st.lists(st.integers(-1, 5), min_size=groups, max_size=groups)),
        )
        for groups in data.draw(st.sampled_from([(), (4,), (4, 2)]))
    ]
    most = data.draw(st.integers(-2, 40))
    found = chosen(
        np.array(pages, np.uint64),
        np.array(urgency, np.float64),
        [Limit(np.array(of, np.int64), np.array(most_of, np.int64)) for of, most_of in limits],
        most,
    )
    assert found.tolist() == slowly_chosen(pages, urgency, limits, most)


@given(st.lists(st.integers(0, 5)))
def test_ranks_count_the_rows_before_of_the_same_group(groups: list[int]) -> None:
    found = rank_within(np.array(groups, np.int64), 6)
    assert found.tolist() == [groups[:row].count(group) for row, group in enumerate(groups)]
