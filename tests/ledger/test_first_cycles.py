"""Laws of the first cycles of a crawl: orders come soon, follow new pages, and stay within the bandwidth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from opicflow.pipelines.cli.stream_options import default_origin, for_new_logs
from opicflow.pipelines.ledger import LedgerConfig, Plan, RefreshConfig
from opicflow.schemas.records import Policy
from support.written_crawls import DAY, T0, Crawl, url_of, with_refresh

STEP = 10
SOON = {"cycle_hours": 1.0, "first_cycle_minutes": 1.0}


def follow(crawl: Crawl, seconds: int, seeds: int = 1, links: int = 10) -> list[tuple[int, list[int]]]:
    """Fetch ordered pages, at their times. Each page links to `links` new ones. Returns the fetches of each cycle."""
    numbers, known = {crawl.id(page): page for page in range(seeds)}, seeds
    waiting: list[tuple[int, int]] = []
    cycles: list[tuple[int, list[int]]] = []
    crawl.see(range(seeds))
    for now in range(T0, T0 + seconds, STEP):
        log, seen = crawl.writer(), []
        for _, page in sorted(one for one in waiting if one[0] <= now):
            new = range(known, known + links)
            known += links
            numbers |= {crawl.id(one): one for one in new}
            seen += new
            crawl.add_visit(log, numbers[page], now, links=new)
        crawl.apply(log)
        crawl.see(seen)
        waiting = [one for one in waiting if one[0] > now]
        crawl.tick(now)
        if crawl.ledger.is_plan_due(now):
            orders = (planned := crawl.plan()).orders
            times = orders.not_before.tolist()
            waiting += zip(times, planned.survey.pages[orders.rows].tolist(), strict=True)
            cycles.append((now - T0, times))
    return cycles


def test_the_first_cycle_is_a_minute_and_later_ones_as_long_as_the_crawl_has_lasted() -> None:
    begins = [begin for begin, _ in follow(Crawl(with_refresh(bandwidth_per_day=100.0, **SOON)), 3 * 3600)]
    assert begins[:7] == [0, 60, 120, 240, 480, 960, 1920]
    assert begins[7:] == [3840, 7440]  # an hour later, and so on
    assert [begin for begin, _ in follow(Crawl(with_refresh(cycle_hours=1.0)), 2 * 3600)] == [0, 3600]


def test_cycles_are_counted_from_the_first_plan_not_from_the_first_tick() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=100.0, **SOON)).tick_at(T0 - DAY)
    assert [begin for begin, _ in follow(crawl, 200)] == [0, 60, 120]


@pytest.mark.slow
def test_a_crawl_from_one_page_uses_its_bandwidth_within_the_first_hour() -> None:
    per_day = 20_000.0
    soon, hourly = (
        sum(len(times) for _, times in follow(Crawl(with_refresh(bandwidth_per_day=per_day, **options)), 3600))
        for options in (SOON, {"cycle_hours": 1.0})
    )
    assert hourly == 1
    assert soon > 0.9 * per_day / 24


@pytest.mark.slow_but_first
@pytest.mark.parametrize("per_day", [700.0, 86_400.0])
def test_cycles_that_grow_order_what_the_bandwidth_allows_and_no_page_twice(per_day: float) -> None:
    config = with_refresh(bandwidth_per_day=per_day, discovery_share=1.0, **SOON)
    cycles = follow(Crawl(config), 2 * 3600, seeds=10_000, links=0)
    total = 0
    for (_, times), end in zip(cycles, [*(begin for begin, _ in cycles[1:]), 7440], strict=True):
        total += len(times)
        allowed = per_day * end / DAY
        assert allowed - 1 <= total <= allowed + 1
        assert all(time < T0 + end for time in times)


@pytest.mark.parametrize("per_hour", [6.0, 90.0])
def test_no_host_gets_more_in_cycles_that_grow(per_hour: float) -> None:
    config = with_refresh(bandwidth_per_day=1e6, host_fetches_per_hour=per_hour, **SOON)
    crawl = Crawl(config, name=lambda page: url_of(page, hosts=3))
    pages = range(2_000)  # more than may be fetched
    hosts: dict[int, int] = {crawl.id(page): page % 3 for page in pages}
    crawl.see(pages)
    times: dict[int, list[int]] = {host: [] for host in range(3)}
    for now in range(T0, T0 + 3 * 3600, STEP):
        crawl.tick(now)
        if crawl.ledger.is_plan_due(now):
            planned = crawl.plan()
            rows = planned.orders.rows
            for page, at in zip(planned.survey.pages[rows].tolist(), planned.orders.not_before.tolist(), strict=True):
                times[hosts[page]].append(at)
    for of_host in times.values():
        of_host.sort()
        assert min(after - before for before, after in pairwise(of_host)) >= 3600 // per_hour
        assert max(Counter(at // 3600 for at in of_host).values()) <= per_hour + 1
        assert len(of_host) >= 2 * per_hour


def test_a_crawl_without_a_bandwidth_gets_an_order_in_ten_seconds_on_its_first_day() -> None:
    orders = sum(len(times) for _, times in follow(Crawl(with_refresh(**SOON)), 3600))
    assert 300 <= orders <= 480  # those of the cycle that goes on included


def test_a_ledger_that_is_restored_goes_on_with_the_same_cycles() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=5000.0, **SOON)).see(range(500))
    crawl.tick(T0)
    crawl.plan()
    other = crawl.restored()
    for second in (T0 + 60, T0 + 120, T0 + 250):
        for one in (crawl, other):
            one.tick(second)
            assert one.ledger.is_plan_due(second) and not one.ledger.is_plan_due(second - 30)
        assert np.array_equal(crawl.plan().orders.rows, other.plan().orders.rows)
    assert crawl.bytes() == other.bytes()


# -- cycles that policies end


def planned_at(crawl: Crawl, seconds: Iterable[int]) -> dict[int, Plan]:
    """Tick at these seconds, and plan when it is due, with no budget of records. Returns the plans by their seconds."""
    plans = {}
    for second in seconds:
        crawl.tick(T0 + DAY + second)
        if crawl.ledger.is_plan_due(T0 + DAY + second):
            plans[second] = crawl.ledger.plan(0, 0.01)
    return plans


def read_yesterday(cycle_hours: float) -> Crawl:
    """Return a crawl of 50 pages that were all read, and planned at second 0."""
    crawl = Crawl(with_refresh(bandwidth_per_day=500.0, cycle_hours=cycle_hours)).read(range(50), T0)
    assert list(planned_at(crawl, [0])) == [0]
    return crawl


@pytest.mark.parametrize("given", [1, 59, 60, 1000, 3599])
def test_a_policy_shows_in_the_schedule_a_minute_after_the_plan_before_at_most(given: int) -> None:
    crawl = read_yesterday(cycle_hours=1.0)
    assert not planned_at(crawl, [given])
    crawl.publish(Policy(url=url_of(7), refresh_interval_seconds=7200.0))
    due = max(given + 1, 60)
    plans = planned_at(crawl, [second for second in (given + 1, 59, 60, 61) if second > given])
    assert list(plans) == [due], "at the next tick, and once"
    rows = plans[due].publish
    pages, intervals = plans[due].survey.pages[rows].tolist(), plans[due].schedule.intervals[rows].tolist()
    assert dict(zip(pages, intervals, strict=True))[crawl.id(7)] == 7200.0, "although no page was visited since"
    assert list(planned_at(crawl, [due + 3599, due + 3600])) == [due + 3600], "and then hourly again"


def test_a_policy_that_ends_or_is_withdrawn_ends_the_cycle_and_a_refused_one_does_not() -> None:
    pin = Policy(url=url_of(7), refresh_interval_seconds=7200.0, expires_at_ms=1000 * (T0 + DAY + 1800))
    crawl = read_yesterday(cycle_hours=24.0)
    crawl.publish(pin)
    assert list(planned_at(crawl, [59, 60, 200, 1799, 1800, 1900])) == [60, 1800]
    crawl.publish(replace(pin, expires_at_ms=None))
    assert list(planned_at(crawl, [2000, 3000])) == [2000]
    crawl.publish(Policy(url=url_of(7)))
    assert list(planned_at(crawl, [3001, 4000])) == [3001]
    assert crawl.publish(Policy(url=url_of(7), refresh_interval_seconds=1.0)).refused
    assert not planned_at(crawl, [5000])


@pytest.mark.slow_but_first
@pytest.mark.parametrize("options", [SOON, {"cycle_hours": 1.0}])
def test_policies_that_come_all_the_time_do_not_raise_the_bandwidth(options: dict[str, float]) -> None:
    per_day, hours = 2000.0, 6
    crawl, orders = Crawl(with_refresh(bandwidth_per_day=per_day, **options)).read(range(1000), T0), 0
    for second in range(T0 + DAY, T0 + DAY + hours * 3600, 30):
        if second % 210 < 30:
            crawl.publish(Policy(url=url_of(second % 50), importance_factor=2.0 + second % 3))
        crawl.tick(second)
        if crawl.ledger.is_plan_due(second):
            orders += len(crawl.plan().orders.rows)
            crawl = crawl.restored()
    assert per_day * hours / 24 <= orders + 1 and orders <= per_day * (hours + 1) / 24 + 1


def test_logs_of_streams_have_short_first_cycles() -> None:
    plain = LedgerConfig()
    assert plain.refresh.first_cycle_minutes is None
    new = for_new_logs(plain)
    assert new.refresh.first_cycle_minutes == 1.0 and LedgerConfig.from_json(new.to_json()) == new
    assert default_origin(2).ledger.refresh.first_cycle_minutes == 1.0
    assert for_new_logs(new, plain) == plain and for_new_logs(plain, new) == new
    weekly = replace(new, refresh=RefreshConfig(cycle_hours=7.0))
    assert for_new_logs(weekly, new).refresh.cycle_hours == 7.0
