"""Laws of politeness: hosts that ask to wait, limits an hour, crawl delays, and orders without bursts."""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.test_refresh import host_of
from opicflow.pipelines.ledger import (
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogEntry,
    Outcome,
    SnapshotRefused,
    TickEntry,
)
from opicflow.pipelines.ledger.config import ConfigRefused
from opicflow.pipelines.ledger.ledger_state import HostWait
from opicflow.pipelines.ledger.plan.busy_hosts import FIRST_WAIT_SECONDS, KEPT_SECONDS, LONGEST_WAIT_SECONDS, BusyHosts
from opicflow.pipelines.ledger.plan.planner import Plan
from opicflow.pipelines.ledger.shards import snapshot as snapshots
from opicflow.pipelines.refresh.orders import OrderTimes, gaps, spread
from opicflow.schemas.crawl_events import LONGEST_RETRY_SECONDS
from opicflow.schemas.pages import PageIds
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges
from support.same_bytes import assert_same_bytes
from support.thorough import crossed, examples
from support.written_crawls import DAY, T0, Crawl, of_page, ordered, url_of, with_refresh

MINUTE, HOUR = 60, 3600
HOST_1 = "host1.example"


def busy(crawl: Crawl, page: int, second: int, retry_after: int = 0) -> Crawl:
    return crawl.visit(page, second, Outcome.BUSY, modified_ms=1000 * (second + retry_after) * (retry_after > 0))


def times_by_host(crawl: Crawl, planned: Plan) -> dict[str, list[int]]:
    """The times of all orders of each host, sorted."""
    times = defaultdict(list)
    for row, second in zip(planned.orders.rows, planned.orders.not_before.tolist(), strict=True):
        times[host_of(crawl, int(planned.survey.pages[row]))].append(second)
    return {host: sorted(of_host) for host, of_host in times.items()}


def wait_of(crawl: Crawl) -> HostWait | None:
    """The wait of the only host that has one."""
    waits = list(crawl.ledger._busy.waits.values())
    assert len(waits) < 2
    return waits[0] if waits else None


def until(crawl: Crawl) -> int:
    wait = wait_of(crawl)
    assert wait is not None
    return wait.until


# -- hosts that ask to wait --------------------------------------------------------------------------------------------


def test_an_answer_that_asks_to_wait_delays_all_pages_of_its_host_and_no_other() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=1000.0)).see(range(40)).read(range(20), T0 - 900 * DAY)
    crawl.publish(Policy(url=url_of(5), fetch_now=True))
    busy(crawl, 1, T0 - 10, 6 * HOUR)
    crawl.tick(T0)
    planned = crawl.preview()
    times = times_by_host(crawl, planned)
    assert min(times.pop(HOST_1)) == T0 - 10 + 6 * HOUR
    assert {of_host[0] for of_host in times.values()} == {T0}
    assert {crawl.id(page) for page in range(40)} == set(ordered(planned)), "all pages are ordered"


def test_a_host_that_waits_beyond_the_cycle_gets_no_orders() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=1000.0)).see(range(40)).read(range(20), T0 - 900 * DAY)
    crawl.publish(Policy(url=url_of(5), fetch_now=True))
    busy(crawl, 1, T0 - 10, 3 * DAY)
    for day in range(3):
        crawl.tick(T0 + day * DAY)
        planned = crawl.preview()
        is_last = day == 2
        assert (HOST_1 in times_by_host(crawl, planned)) == is_last
        for page in (1, 5, 21):
            assert of_page(crawl, planned, page, "due") == T0 - 10 + 3 * DAY
            assert of_page(crawl, planned, page, "reasons") == "LIMIT"
        assert of_page(crawl, planned, 2, "reasons") == "BUDGET"


def test_a_page_is_not_blamed_for_its_host() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=1000.0)).read(range(8), T0 - 100 * DAY).tick_at(T0)
    crawl.plan()
    assert crawl.row(1)["ordered"] > 0
    before = crawl.row(1).copy()
    busy(crawl, 1, T0 + 5, 60)
    assert crawl.row(1)["ordered"] == 0, "the order is answered"
    before["ordered"] = 0
    assert crawl.row(1) == before
    crawl.tick(T0 + DAY)
    planned = crawl.plan()
    assert of_page(crawl, planned, 1, "decided_by") == "BUDGET"
    assert ordered(planned)[crawl.id(1)] == "REFRESH", "it is due as before"
    assert of_page(crawl, planned, 1, "fetched") == T0 - 100 * DAY


def test_a_request_is_not_answered_by_a_host_that_asks_to_wait() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=1000.0)).read(range(8), T0 - DAY).tick_at(T0)
    crawl.publish(Policy(url=url_of(1), fetch_now=True))
    crawl.plan()
    busy(crawl, 1, T0 + 5, 60)
    crawl.tick(T0 + DAY)
    assert ordered(crawl.plan())[crawl.id(1)] == "REQUESTED"


def test_without_a_time_hosts_wait_longer_after_each_answer_in_a_row_up_to_a_day() -> None:
    crawl, second, waits = Crawl().see(range(8)), T0, []
    for _ in range(12):
        busy(crawl, 1, second)
        waits.append(until(crawl) - second)
        second = until(crawl) + 1
    assert waits == [min(FIRST_WAIT_SECONDS * 2**number, LONGEST_WAIT_SECONDS) for number in range(12)]


def test_answers_during_a_wait_do_not_double_it() -> None:
    crawl = Crawl().see(range(40))
    for number, page in enumerate((1, 5, 9, 13, 17)):
        busy(crawl, page, T0 + number)
        assert until(crawl) == T0 + number + FIRST_WAIT_SECONDS
    busy(crawl, 21, T0 + 10, 5)
    assert until(crawl) == T0 + 4 + FIRST_WAIT_SECONDS, "a wait does not become shorter"


@pytest.mark.parametrize("outcome", [Outcome.FETCHED, Outcome.UNCHANGED, Outcome.ALIASED, Outcome.GONE])
def test_a_later_answer_of_the_host_ends_its_wait(outcome: Outcome) -> None:
    crawl = Crawl().see(range(40))
    busy(crawl, 1, T0, 1000)
    crawl.visit(2, T0 + 10, outcome)
    assert until(crawl) == T0 + 1000, "another host"
    crawl.visit(5, T0 - 10, outcome)
    assert until(crawl) == T0 + 1000, "an earlier fetch"
    crawl.visit(5, T0 + 10, outcome)
    assert wait_of(crawl) is None
    busy(crawl, 1, T0 + 2000)
    assert until(crawl) == T0 + 2000 + FIRST_WAIT_SECONDS, "the row begins again"


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.BLOCKED, Outcome.REDIRECTED])
def test_failures_and_redirects_do_not_end_a_wait(outcome: Outcome) -> None:
    crawl = Crawl().see(range(40))
    busy(crawl, 1, T0, 1000)
    crawl.visit(5, T0 + 10, outcome)
    assert wait_of(crawl) == HostWait(T0, T0 + 1000, 1)


@pytest.mark.parametrize(
    ("time_ms", "modified_ms", "wait"),
    [
        (1000 * T0, 1 << 62, LONGEST_RETRY_SECONDS),
        (1000 * T0, 1, FIRST_WAIT_SECONDS),
        (1000 * T0, 1000 * T0, FIRST_WAIT_SECONDS),
        (1000 * T0 + 999, 1000 * T0 + 1000, 1),
        (0, 0, None),
        (0, 1000 * T0, None),
    ],
)
def test_the_wait_that_an_answer_names_is_bounded(time_ms: int, modified_ms: int, wait: int | None) -> None:
    crawl = Crawl().see([1])
    log = crawl.writer().visit(crawl.id(1), None, Outcome.BUSY, time_ms, modified_ms=modified_ms)
    crawl.apply(log)
    found = wait_of(crawl)
    assert (found and found.until - found.since) == wait


def test_late_visits_and_duplicates_say_nothing_about_a_host() -> None:
    crawl = Crawl().see(range(8)).visit(1, T0)
    busy(crawl, 1, T0 - 5)
    busy(crawl, 1, T0)
    assert wait_of(crawl) is None
    busy(crawl, 1, T0 + 5)
    crawl.visit(1, T0 + 2)
    assert until(crawl) == T0 + 5 + FIRST_WAIT_SECONDS


def test_waits_that_ended_long_ago_are_dropped_and_wrong_clocks_too() -> None:
    crawl = Crawl().see(range(40)).tick_at(T0 - 1)
    busy(crawl, 1, T0, 100)
    crawl.tick(T0 + 99 + KEPT_SECONDS)
    assert wait_of(crawl) is not None
    crawl.tick(T0 + 100 + KEPT_SECONDS)
    assert wait_of(crawl) is None
    assert state_of(crawl)["busy_hosts"] == []
    busy(crawl, 1, T0 + 50 * 365 * DAY)
    crawl.tick(T0 + 10 * DAY)
    assert wait_of(crawl) is None


def test_a_hostile_crawl_has_few_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opicflow.pipelines.ledger.plan.busy_hosts.MOST_HOSTS", 10)
    crawl = Crawl(name=lambda page: f"https://h{page}.example/").see(range(100))
    for page in range(100):
        busy(crawl, page, T0, 100 + page)
    assert len(crawl.ledger._busy.waits) == 100
    crawl.tick(T0 + 1)
    assert sorted(wait.until - T0 for wait in crawl.ledger._busy.waits.values()) == list(range(190, 200))


def test_pages_without_a_url_have_no_host() -> None:
    crawl = Crawl()
    crawl.apply(crawl.writer().visit(7, None, Outcome.BUSY, 1000 * T0).visit(8, [], time_ms=1000 * T0))
    assert wait_of(crawl) is None


def random_log(seed: int, rows: int = 60) -> ItemWriter:
    chance, log = random.Random(seed), ItemWriter()
    for row in range(rows):
        page = chance.randrange(12)
        outcome = chance.choice(
            [Outcome.BUSY] * 4 + [Outcome.FETCHED, Outcome.FAILED, Outcome.GONE, Outcome.REDIRECTED]
        )
        second = T0 + row * chance.choice([1, 60, 900]) - chance.choice([0, 0, 0, 5000])
        asked = chance.choice([0, 0, 5, 3000, 10 * DAY]) * (outcome == Outcome.BUSY)
        modified_ms = 1000 * (second + asked) if asked else 0
        url = url_of(page).encode()
        log.visit(Crawl().id(page), [], outcome, 1000 * second, url=url, digest=1, modified_ms=modified_ms)
    return log


@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_visits_decides_whatever_their_batches_and_restarts(seed: int) -> None:
    def plan(ledger: Ledger, entry: LogEntry) -> object:
        return ledger.plan(10**6, 0.1).orders.rows.tolist() if isinstance(entry, TickEntry) else None

    ledger = assert_same_bytes(Ledger, [random_log(seed).entry(), TickEntry(T0 + DAY)], plan, seed)
    assert ledger._busy.waits


def state_of(crawl: Crawl) -> dict[str, Any]:
    state, *_ = snapshots.read(crawl.bytes())
    return state


def test_limits_of_requests_survive_the_way_through_json() -> None:
    limited = with_refresh(host_fetches_per_hour=7.0, crawl_delay_seconds=2.0)
    assert LedgerConfig.from_json(json.loads(json.dumps(limited.to_json()))) == limited


@pytest.mark.parametrize(
    "values",
    [
        7,
        [[1, 2, 3]],
        [[0, 2, 3, 1]],
        [[1, 3, 3, 1]],
        [[1, -1, 3, 1]],
        [[1, 2, 3, 0]],
        [[1, 2, 3, 256]],
        [["1", 2, 3, 1]],
        [[1, None, 3, 1]],
        [[2, 2, 3, 1], [1, 2, 3, 1]],
        [[1, 2, 3, 1], [1, 2, 3, 1]],
    ],
)
def test_impossible_waits_in_a_snapshot_are_refused(values: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    crawl = Crawl().see(range(8)).visit(1, T0)
    content = snapshots.read(crawl.bytes())
    damaged = content._replace(state={**content.state, "busy_hosts": values})
    monkeypatch.setattr(snapshots, "read", lambda chunks, space: damaged)
    with pytest.raises(SnapshotRefused, match="wait"):
        Ledger.restore([])


def busy_in_shards(ranges: ShardRanges, page_ids: PageIds) -> list[int]:
    """Return how many shards hold pages of a host, and how many wait after one of its pages answered BUSY."""
    urls = [f"http://www.example.com/{number}" for number in range(40)]
    ids = page_ids.of_all(urls)
    owners = ranges.of(ids)
    waiting = set()
    for shard in sorted(set(owners.tolist())):
        ledger = Ledger(LedgerConfig(), shard, ranges, page_ids=page_ids)
        log = ItemWriter()
        for row in np.flatnonzero(owners == shard).tolist():
            log.sighting(int(ids[row]), url=urls[row].encode())
        if owners[0] == shard:
            log.visit(int(ids[0]), None, Outcome.BUSY, 1000 * T0, modified_ms=1000 * (T0 + 30 * DAY))
        ledger.apply(log.entry())
        ledger.apply(TickEntry(T0 + 60))
        planned = ledger.plan(10, 0.1)
        if not len(planned.orders.rows):
            waiting.add(shard)
    return [len(set(owners.tolist())), len(waiting)]


def test_a_host_is_in_one_shard_and_waits_there_whole() -> None:
    assert busy_in_shards(ShardRanges.equal(16), PageIds()) == [1, 1]


# -- limits ------------------------------------------------------------------------------------------------------------


def week_of_orders(crawl: Crawl, hours: float, seed: int) -> dict[str, list[int]]:
    """A week of orders of each host, all fetched at their time."""
    chance = random.Random(seed)
    given: dict[str, list[int]] = defaultdict(list)
    pages = {crawl.id(page): page for page in range(400)}
    for number in range(int(7 * 24 / hours)):
        now = T0 + int(number * hours * HOUR)
        crawl.tick(now)
        if chance.random() < 0.5:
            crawl.publish(*(Policy(url=url_of(chance.randrange(400)), fetch_now=True) for _ in range(5)))
        planned = crawl.plan()
        log = crawl.writer()
        visits = zip(
            planned.orders.not_before.tolist(), planned.survey.pages[planned.orders.rows].tolist(), strict=True
        )
        for second, page in sorted(visits):
            given[host_of(crawl, page)].append(second)
            outcome = chance.choice([Outcome.FETCHED] * 8 + [Outcome.FAILED])
            log.visit(page, [], outcome, 1000 * second, url=url_of(pages[page]).encode(), digest=chance.randrange(1, 3))
        crawl.apply(log)
    return given


LIMITS = [(3600.0, 1.0), (7.0, None), (2.5, 45.0), (1.0, 3600.0), (None, 97.0)]


@pytest.mark.slow
@pytest.mark.parametrize(("per_hour", "delay", "hours"), crossed(LIMITS, [24.0, 5.0, 1.0]))
def test_limits_hold_in_every_hour_of_a_week(per_hour: float | None, delay: float | None, hours: float) -> None:
    config = with_refresh(
        bandwidth_per_day=4000.0,
        cycle_hours=hours,
        host_fetches_per_hour=per_hour,
        crawl_delay_seconds=delay,
        shortest_interval_seconds=3600.0,
    )
    crawl = Crawl(config).see(range(400)).read(range(0, 400, 3), T0 - DAY).read(range(1, 100, 3), T0 - 6000)
    crawl.publish(*(Policy(url=url_of(page), refresh_interval_seconds=20_000.0 + page) for page in range(0, 40, 5)))
    crawl.publish(Policy(host="host2.example", host_fetches_per_hour=3.0))
    crawl.publish(Policy(host="host3.example", crawl_delay_seconds=1234.5))
    given = week_of_orders(crawl, hours, seed=5)
    assert given.keys() == {f"host{number}.example" for number in range(4)}
    for host, times in given.items():
        most = 3.0 if host == "host2.example" else per_hour or 3600.0
        least = 1234.5 if host == "host3.example" else delay or 0.0
        times.sort()
        assert min(np.diff(times)) >= least
        for first, second in enumerate(times):
            assert bisect_left(times, second + HOUR) - first <= most
        may = min(7 * DAY / max(HOUR / most, least), 100 * 7 * DAY / (hours * HOUR))
        assert len(times) > 0.6 * may, "and the host gets about as many as allowed"


def test_limits_of_a_host_replace_those_of_the_crawl_one_by_one() -> None:
    config = with_refresh(bandwidth_per_day=9000.0, host_fetches_per_hour=4.0, crawl_delay_seconds=100.0)
    crawl = Crawl(config).see(range(40)).tick_at(T0)
    crawl.publish(
        Policy(host=HOST_1, host_fetches_per_hour=60.0), Policy(host="host2.example", host_fetches_per_day=5.0)
    )
    hosts = crawl.preview().survey.hosts
    assert hosts is not None
    found = {
        host_of(crawl, int(crawl.id(page))): (hosts.gaps[hosts.of[row]], hosts.per_day[hosts.of[row]])
        for page in range(4)
        for row in np.flatnonzero(crawl.preview().survey.pages == np.uint64(crawl.id(page)))
    }
    assert found == {
        "host0.example": (900, 96.0),
        HOST_1: (100, 864.0),
        "host2.example": (900, 5.0),
        "host3.example": (900, 96.0),
    }
    crawl.publish(Policy(crawl_delay_seconds=1800.0))
    budget = crawl.ledger.budget()
    assert (budget.host_per_hour, budget.host_delay_seconds) == (4.0, 1800.0)


def test_a_host_without_limits_of_its_own_has_none() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=9000.0)).see(range(400)).tick_at(T0)
    crawl.publish(Policy(host=HOST_1, crawl_delay_seconds=3600.0))
    times = times_by_host(crawl, crawl.preview())
    assert {host: len(of_host) for host, of_host in times.items()} == {
        **{f"host{number}.example": 100 for number in range(4)},
        HOST_1: 24,
    }


@pytest.mark.parametrize(
    "options",
    [
        {"host_fetches_per_hour": 0.9},
        {"host_fetches_per_hour": 3601},
        {"crawl_delay_seconds": 0.5},
        {"crawl_delay_seconds": 3601.0},
        {"crawl_delay_seconds": float("nan")},
        {"crawl_delay_seconds": "1"},
    ],
)
def test_impossible_limits_are_refused_in_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigRefused, match="give a number from 1 to 3600"):
        with_refresh(**options)


# -- times of orders ---------------------------------------------------------------------------------------------------

CYCLES = st.sampled_from([3600, 5 * 3600, DAY])


@st.composite
def cycles(draw: st.DrawFn) -> tuple[OrderTimes, np.ndarray, int]:
    cycle = draw(CYCLES)
    rows = draw(st.integers(0, 40))
    second = st.integers(0, cycle) | st.just(0) | st.integers(cycle - 60, cycle)
    columns = [draw(st.lists(one, min_size=rows, max_size=rows)) for one in (second, st.booleans(), st.booleans())]
    host = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    gap = draw(st.lists(st.sampled_from([0, 0, 1, 60, 997, 3600]), min_size=4, max_size=4))
    earliest, is_timed, is_exact = (np.array(column, np.int64) for column in columns)
    is_timed = (is_timed != 0) | (is_exact != 0)
    return OrderTimes(T0 + earliest, is_timed, is_exact != 0, np.array(host, np.int64)), np.array(gap, np.int64), cycle


@pytest.mark.slow
@examples(60, 1000)
@given(cycles())
def test_no_order_is_before_its_time_after_the_cycle_or_too_near_to_another(
    given_: tuple[OrderTimes, np.ndarray, int],
) -> None:
    times, gap, cycle = given_
    found = spread(times, gap, T0, cycle)
    assert found.shape == times.earliest.shape
    for host in range(4):
        of_host = times.host == host
        fits = of_host & (found >= 0)
        assert (found[fits] >= times.earliest[fits]).all()
        assert (found[fits] <= T0 + cycle - gap[host]).all()
        if gap[host]:
            assert (np.diff(np.sort(found[fits])) >= gap[host]).all()
        else:
            assert (fits == of_host).all()
            exact = of_host & times.is_exact
            assert (found[exact] == times.earliest[exact]).all()
        if of_host.sum() == 1 and times.earliest[of_host][0] <= T0 + cycle - gap[host]:
            assert (found[of_host] == times.earliest[of_host]).all()


@given(st.integers(1, 60), CYCLES, st.integers(0, 3000))
def test_orders_that_may_be_given_at_any_time_are_spaced_evenly(count: int, cycle: int, begin: int) -> None:
    no = np.zeros(count, np.bool_)
    times = OrderTimes(np.full(count, T0 + begin), no, no, np.zeros(count, np.int64))
    found = spread(times, np.zeros(1, np.int64), T0, cycle)
    steps = np.diff(np.append(found, T0 + cycle))
    assert found[0] == T0 + begin
    assert steps.max() - steps.min() <= 1


@given(st.integers(1, 60))
def test_timed_orders_follow_one_another_within_a_minute(count: int) -> None:
    yes = np.ones(count, np.bool_)
    times = OrderTimes(np.full(count, T0), yes, ~yes, np.zeros(count, np.int64))
    assert spread(times, np.zeros(1, np.int64), T0, DAY).tolist() == [T0 + MINUTE * row for row in range(count)]


@given(st.floats(1, 3600), st.floats(0, 3600))
def test_gaps_keep_both_limits(per_hour: float, delay: float) -> None:
    (gap,) = gaps(np.array([per_hour]), np.array([delay])).tolist()
    assert gap >= delay and -(-HOUR // gap) <= per_hour
    assert gap < max(HOUR / int(per_hour), delay) + 1


def test_no_host_gets_a_burst() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=1000.0, discovery_share=0.5)).see(range(400))
    crawl.read(range(200), T0 - 900 * DAY).tick_at(T0)
    planned = crawl.preview()
    for times in times_by_host(crawl, planned).values():
        assert len(times) > 50 and times[0] == T0
        assert max(np.diff(times)) - min(np.diff(times)) <= 1, "evenly"


def test_requested_pages_are_the_first_of_their_host() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=1000.0)).see(range(400)).read(range(200), T0 - 900 * DAY)
    crawl.tick(T0)
    crawl.publish(*(Policy(url=url_of(page), fetch_now=True) for page in (13, 17, 21)))
    planned = crawl.preview()
    why = ordered(planned)
    times = dict(
        zip(planned.survey.pages[planned.orders.rows].tolist(), planned.orders.not_before.tolist(), strict=True)
    )
    assert sorted(times[page] for page, reason in why.items() if reason == "REQUESTED") == [T0, T0 + 60, T0 + 120]


def test_the_table_is_made_of_the_waits_alone() -> None:
    crawl = Crawl().see(range(8))
    waits = {9: HostWait(1, 5, 1), 3: HostWait(1, 7, 1), 4: HostWait(1, 2, 1)}
    table = BusyHosts(waits, crawl.ledger._room, crawl.ledger._place)
    hosts, ends = table.waiting(4)
    assert (hosts.tolist(), ends.tolist()) == ([3, 9], [7, 5])
    assert (hosts.dtype, ends.dtype) == (np.uint64, np.int64)


def test_a_restored_ledger_has_the_waits_of_one_that_went_on(seed: int) -> None:
    """Which hosts may wait, and when a wait may be dropped first, is noted beside the waits, and in no snapshot."""
    chance = random.Random(seed)
    crawl = Crawl().see(range(40))
    waits: list[dict[int, HostWait]] = []
    for number in range(80):
        restored, second = crawl.restored(), T0 + 5 * HOUR * number
        log = crawl.writer()
        for page in chance.sample(range(40), 3):
            outcome = Outcome.BUSY if page % 4 < 2 and chance.random() < 0.2 else Outcome.FETCHED
            crawl.add_visit(log, page, second + chance.choice((0, 0, 0, 2 * DAY)), outcome)
        for one in (crawl, restored):
            one.apply(log)
            one.tick(second + HOUR)
        assert crawl.ledger._busy.waits == restored.ledger._busy.waits
        waits.append(dict(crawl.ledger._busy.waits))
    ended = [host for before, after in pairwise(waits) for host in before.keys() - after.keys()]
    assert any(waits) and not all(waits) and len(ended) > 5
