"""The scan and the calendar of folders order the same pages, and what the calendar misses is bounded."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.refresh.calendar import DAY_S, Calendar, due_by_scan, due_times

START = 20_000  # the first cycle: some day in 2024


def column(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# -- a crawl of months ---------------------------------------------------------------------------------------------


class Orders(NamedTuple):
    """Which page was ordered in which cycle, and when it had been fetched before; in order of time."""

    pages: np.ndarray
    cycles: np.ndarray
    fetched_s: np.ndarray

    def of(self, page: int) -> list[int]:
        return self.cycles[self.pages == page].tolist()


class Crawl:
    """Pages with shares of a bandwidth, and S in every cycle: an interval is S over bandwidth times share."""

    def __init__(self, seed: int, pages: int, cycles: int, sums: np.ndarray) -> None:
        random = np.random.default_rng(seed)
        self.cycles = cycles
        self.shares = 10.0 ** random.uniform(-2, 0, pages)
        self.sums = sums * float(self.shares.sum())
        self.bandwidth = pages / 10.0
        self.first_fetch_s = START * DAY_S - random.integers(0, 5 * DAY_S, pages)
        self.answer_s = random.integers(1, DAY_S, (pages, cycles))  # from an order to its answer

    def intervals(self, cycle: int) -> np.ndarray:
        return self.sums[cycle] / (self.bandwidth * self.shares) * DAY_S

    def fetched(self, pages: np.ndarray, cycle: int) -> np.ndarray:
        """When pages are fetched that were ordered at the end of a cycle."""
        return (START + cycle + 1) * DAY_S + self.answer_s[pages, cycle]

    def by_scan(self) -> Orders:
        last = self.first_fetch_s.copy()
        found = []
        for cycle in range(self.cycles):
            rows = due_by_scan(last, self.intervals(cycle), (START + cycle + 1) * DAY_S)
            found.append((rows, np.full(len(rows), cycle), last[rows]))
            last[rows] = self.fetched(rows, cycle)
        return Orders(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def by_calendar(self, refile_share: float = np.inf, horizon: int = 40) -> Orders:
        """Filed again when S has moved by more than this share since all pages were filed."""
        last = self.first_fetch_s.copy()
        calendar = Calendar(START, horizon=horizon)
        filed = self.sums[0]
        calendar.put(np.arange(len(last)), due_times(last, self.intervals(0)))
        found = []
        for cycle in range(self.cycles):
            if abs(self.sums[cycle] / filed - 1.0) > refile_share:
                filed = self.sums[cycle]
                rows = calendar.empty()
                calendar.put(rows, due_times(last[rows], self.intervals(cycle)[rows]))
            rows = calendar.take(START + cycle)
            found.append((rows, np.full(len(rows), cycle), last[rows]))
            last[rows] = self.fetched(rows, cycle)
            calendar.put(rows, due_times(last[rows], self.intervals(cycle)[rows]))
            assert len(calendar) == len(last)
        return Orders(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def errors(self, orders: Orders) -> tuple[np.ndarray, np.ndarray]:
        """By how many cycles each order missed the one in which a scan would have found the page, and its interval.

        Orders that a scan would give after the end are left out.
        """
        ends = (START + np.arange(self.cycles) + 1) * DAY_S
        waits = (ends - orders.fetched_s[:, None]) / DAY_S
        due = waits >= self.sums / (self.bandwidth * self.shares[orders.pages, None])
        right = due.argmax(axis=1)
        known = due.any(axis=1)
        days = self.sums[right] / (self.bandwidth * self.shares[orders.pages])
        return (orders.cycles - right)[known], days[known]


def test_with_stable_shares_both_order_the_same_pages_in_the_same_cycles(seed: int) -> None:
    crawl = Crawl(seed, pages=2_000, cycles=200, sums=np.ones(200))
    scan, calendar = crawl.by_scan(), crawl.by_calendar()
    assert len(scan.pages) > 10_000
    for ours, theirs in zip(calendar, scan, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_with_shares_that_tremble_orders_differ_by_one_cycle_at_most_and_pages_come_equally_often(seed: int) -> None:
    cycles = 200
    tremble = 1.0 + np.random.default_rng(seed).uniform(-0.005, 0.005, cycles)
    crawl = Crawl(seed, pages=1_000, cycles=cycles, sums=tremble)
    calendar = crawl.by_calendar()
    off, days = crawl.errors(calendar)
    within = days < 50  # a hundredth of longer intervals may be more than a cycle
    assert within.sum() > 10_000
    assert 0 < np.abs(off[within]).max() <= 1
    scanned = np.bincount(crawl.by_scan().pages, minlength=1_000)
    assert np.abs(scanned - np.bincount(calendar.pages, minlength=1_000)).max() <= 1 + 0.01 * scanned.max()
    np.testing.assert_allclose(len(calendar.pages), scanned.sum(), rtol=0.01)


@pytest.mark.parametrize("growth", [0.01, -0.01])
def test_with_shares_that_drift_the_error_grows_with_the_interval_unless_pages_are_filed_again(
    growth: float, seed: int
) -> None:
    cycles, share = 200, 0.02
    crawl = Crawl(seed, pages=1_000, cycles=cycles, sums=(1.0 + growth) ** np.arange(cycles))
    off, days = crawl.errors(crawl.by_calendar())
    assert np.abs(off).max() > 10
    assert np.abs(off[days < 5]).max() <= 1
    assert np.sign(off).min() >= 0 if growth < 0 else np.sign(off).max() <= 0  # late as intervals shrink, or early
    orders = crawl.by_calendar(refile_share=share)
    waited = (START + orders.cycles + 1) - orders.fetched_s / DAY_S
    true = crawl.sums[orders.cycles] / (crawl.bandwidth * crawl.shares[orders.pages])
    off_by = (1 + share + abs(growth)) / (1 - share - abs(growth))  # S moves on between two looks at it
    assert (waited >= true / off_by - 1e-4).all()
    overdue = orders.fetched_s < START * DAY_S  # before there was a calendar
    assert (waited < true * off_by + 1 + 1e-4)[~overdue].all()
    off, days = crawl.errors(orders)
    assert np.abs(off[days < 10]).max() <= 1


# -- the calendar alone --------------------------------------------------------------------------------------------


@given(st.data())
def test_every_row_comes_once_in_the_cycle_of_its_time(data: st.DataObject) -> None:
    """Whatever the horizon, the order of puts, and the cycles that are skipped."""
    cycle_s = data.draw(st.sampled_from([1, 10, DAY_S]))
    calendar = Calendar(100, cycle_s, data.draw(st.integers(1, 12)))
    cycle, rows = 100, count()
    waiting: dict[int, int] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        new = {next(rows): due for due in data.draw(st.lists(st.integers(95 * cycle_s, 140 * cycle_s), max_size=6))}
        calendar.put(column(*new), column(*new.values()))
        waiting |= new
        cycle += data.draw(st.integers(0, 4))
        expected = sorted(known for known, due in waiting.items() if due <= (cycle + 1) * cycle_s)
        assert calendar.take(cycle).tolist() == expected
        for known in expected:
            del waiting[known]
        assert len(calendar) == len(waiting)
        cycle += 1
    assert calendar.empty().tolist() == sorted(waiting)
    assert len(calendar) == 0 == calendar.nbytes


def test_a_page_due_at_the_very_end_of_a_cycle_belongs_to_it() -> None:
    calendar = Calendar(0, cycle_s=100)
    calendar.put(column(7, 8, 9), column(100, 101, 200))
    assert calendar.take(0).tolist() == [7]
    assert calendar.take(1).tolist() == [8, 9]
    assert due_by_scan(column(0, 0), np.array([100.0, 100.5]), 100).tolist() == [0]
    assert due_times(column(0, 0), np.array([100.0, 100.5])).tolist() == [100, 101]


def test_the_scan_never_finds_a_page_whose_interval_is_infinite() -> None:
    assert due_by_scan(column(0, 0), np.array([np.inf, 1.0]), 1 << 40).tolist() == [1]


def test_memory_is_a_number_for_each_page_and_its_time_if_it_is_far_ahead() -> None:
    calendar = Calendar(0, horizon=10)
    calendar.put(np.arange(1000), np.arange(1000) * 1_000)
    assert calendar.nbytes == 8 * 1000 + 8 * int((np.arange(1000) * 1_000 > 10 * DAY_S).sum())


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="at least a second"):
        Calendar(0, cycle_s=0)
    with pytest.raises(ValueError, match="horizon"):
        Calendar(0, horizon=0)
    calendar = Calendar(5)
    calendar.take(7)
    with pytest.raises(ValueError, match="cycle 7 was taken before: the next is 8"):
        calendar.take(7)
