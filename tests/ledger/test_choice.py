"""Laws of the choice of a cycle: it orders as many pages as it may, and leaves out the least important."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import ConfigRefused, Ledger, LedgerConfig, Outcome, RefreshConfig
from opicflow.pipelines.ledger.plan.crawl_orders import WHY
from opicflow.pipelines.ledger.plan.planner import LEAST_PACE, Plan
from opicflow.pipelines.refresh.strategies import STRATEGIES
from opicflow.schemas.records import Policy
from support.thorough import crossed
from support.written_crawls import DAY, T0, Crawl, of_page, ordered, site_of_its_own, with_refresh


def times(planned: Plan) -> list[tuple[int, int]]:
    """The page id and the earliest second of every order."""
    orders = planned.orders
    return list(zip(planned.survey.pages[orders.rows].tolist(), orders.not_before.tolist(), strict=True))


def fetch(crawl: Crawl, planned: Plan, pages: dict[int, int], day: int) -> None:
    """Answer all orders, each at its time."""
    log = crawl.writer()
    for page, second in times(planned):
        number = pages[page]
        crawl.add_visit(log, number, second, digest=1 + number % 3 * day)
    crawl.apply(log)


def numbers(crawl: Crawl, pages: int) -> dict[int, int]:
    return {crawl.id(page): page for page in range(pages)}


# -- no bandwidth is lost ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "per_day"), crossed(list(STRATEGIES), [4.0, 10.0, 20.0]))
def test_after_a_first_crawl_of_one_day_no_day_is_without_orders(strategy: str, per_day: float) -> None:
    crawl = Crawl(with_refresh(strategy=strategy, bandwidth_per_day=per_day, discovery_share=0.0)).read(range(200), T0)
    pages = numbers(crawl, 200)
    for day in range(1, 40):
        crawl.tick(T0 + DAY * day)
        planned = crawl.plan()
        assert len(planned.orders.rows) == per_day
        fetch(crawl, planned, pages, day)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_crawl_that_grows_uses_all_of_its_bandwidth(share: float) -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=20.0, discovery_share=share)).read(range(100), T0)
    known = 100
    for day in range(1, 60):
        crawl.see(range(known, known + 5))
        known += 5
        crawl.tick(T0 + DAY * day)
        planned = crawl.plan()
        assert len(planned.orders.rows) == 20
        fetch(crawl, planned, numbers(crawl, known), day)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("hours", [1.0, 5.0, 24.0])
def test_parts_of_a_fetch_add_up_over_both_shares(hours: float) -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=7.7, discovery_share=0.3, cycle_hours=hours)).read(range(60), T0 - DAY)
    crawl.see(range(60, 400))
    pages, total, cycles = numbers(crawl, 400), 0, int(20 * 24 / hours)
    for cycle in range(cycles):
        crawl.tick(T0 + round(cycle * hours * 3600))
        planned = crawl.plan()
        total += len(planned.orders.rows)
        fetch(crawl, planned, pages, cycle)
    assert total == pytest.approx(7.7 * hours / 24 * cycles, abs=1.0)


@pytest.mark.parametrize("least", [0, 1, 30, 70, 10_000])
def test_a_plan_orders_at_least_so_many_unread_pages_and_so_many_that_are_due(least: int) -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=20.0, discovery_share=0.5)).read(range(60), T0).see(range(60, 110))
    later = T0 + 30 * DAY
    crawl.tick(later)
    planned = crawl.ledger.preview(least=least)
    due = int((planned.schedule.due[planned.survey.sharing] < later + DAY).sum())
    assert due == 60
    assert planned.orders.refreshed >= min(least, due) and planned.orders.discovered >= min(least, 50)
    assert len(planned.orders.rows) == max(min(least, 60), 10) + max(min(least, 50), 10)


def test_a_young_crawl_gives_discovery_what_refreshing_cannot_use() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=200.0)).read(range(50), T0).see(range(50, 2000))
    crawl.tick(T0 + DAY)
    planned = crawl.plan()
    assert len(planned.orders.rows) == 200
    assert planned.orders.discovered >= 150
    assert planned.schedule.refresh_per_day + planned.schedule.discovery_per_day == 200.0


def test_without_a_bandwidth_a_small_crawl_may_plan_a_hundred_fetches() -> None:
    crawl = Crawl(LedgerConfig()).read(range(20), T0).see(range(50, 500))
    crawl.tick(T0 + 10 * DAY)
    assert crawl.ledger.budget().per_day == LEAST_PACE == len(crawl.plan().orders.rows)


def test_retries_leave_most_of_a_small_bandwidth_to_pages_that_answer() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=8.0, discovery_share=0.0)).read(range(100), T0)
    for page in range(60):
        crawl.visit(page, T0 + DAY, Outcome.FAILED)
    crawl.tick(T0 + 3 * DAY)
    planned = crawl.plan()
    assert planned.schedule.allocation.frequencies.sum() == pytest.approx(6.0)
    assert len(planned.orders.rows) == 8


# -- the share of discovery by worth -----------------------------------------------------------------------------------


def with_share(share: float | str, read: int = 100, unread: int = 300, **options: Any) -> Crawl:
    """Pages read a day ago, and unread ones to which these link."""
    given = {"bandwidth_per_day": 40.0, "discovery_share": share, **options}
    crawl = Crawl(with_refresh(**given)).see(range(read + unread))
    log = crawl.writer()
    for page in range(read):
        crawl.add_visit(log, page, T0, links=[read + (3 * page + far) % unread for far in range(3)] if unread else [])
    crawl.apply(log)
    crawl.tick(T0 + DAY)
    return crawl


def test_pages_that_were_just_read_leave_the_bandwidth_to_unread_ones_that_are_worth_more() -> None:
    assert with_share(0.25).plan().orders.discovered == 10
    planned = with_share("auto").plan()
    assert planned.orders.discovered >= 38
    assert planned.schedule.discovery_per_day + planned.schedule.refresh_per_day == 40.0


def test_unread_pages_that_are_worth_little_get_the_least_share() -> None:
    """Pages that change every day, and were not fetched for a month; a classifier finds the unread ones bad."""
    crawl = with_share("auto")
    crawl.publish(*(Policy(host=f"host{number}.example", changes_per_day=1.0) for number in range(4)))
    log = crawl.writer()
    for page in range(100, 400):
        log.announcement(crawl.id(page), quality=1)
    crawl.apply(log)
    crawl.tick(T0 + 30 * DAY)
    assert crawl.plan().orders.discovered == 10


@pytest.mark.parametrize("share", [0.25, 0.0])
def test_with_no_unread_pages_the_share_changes_nothing(share: float) -> None:
    plans = [with_share(one, unread=0).plan() for one in ("auto", share)]
    assert ordered(plans[0]) == ordered(plans[1])
    assert np.array_equal(plans[0].schedule.intervals, plans[1].schedule.intervals)


def test_pins_and_longest_intervals_keep_theirs() -> None:
    crawl = with_share("auto", longest_interval_days=20.0)
    crawl.publish(*(Policy(url=crawl.name(page), refresh_interval_seconds=float(DAY)) for page in range(12)))
    crawl.tick(T0 + DAY + 1)
    planned = crawl.plan()
    assert planned.schedule.allocation.feasible
    assert planned.schedule.allocation.frequencies.min() >= 1 / 20.0001
    assert 20 <= planned.schedule.discovery_per_day <= 40 - 12 - 88 / 20
    assert planned.orders.refreshed >= 12


def test_unread_pages_beyond_the_limit_of_their_host_do_not_count() -> None:
    """Hosts with 75 unread pages each, of which they may have 2 a day."""
    planned = with_share("auto", host_fetches_per_day=2.0).plan()
    assert planned.schedule.discovery_per_day <= 8.0
    assert len(planned.orders.rows) == 8


@pytest.mark.parametrize("strategy", ["greedy", "importance", "uniform"])
def test_strategies_without_change_rates_keep_the_least_share(strategy: str) -> None:
    assert with_share("auto", strategy=strategy).plan().orders.discovered == 10


def test_a_stated_share_holds_instead_of_one_by_worth() -> None:
    crawl = with_share("auto")
    crawl.publish(Policy(discovery_share=0.5))
    crawl.tick(T0 + DAY + 1)
    assert crawl.plan().schedule.discovery_per_day == pytest.approx(20.0)


@pytest.mark.parametrize("share", ["all", -0.1, 1.1, True])
def test_a_share_is_a_number_or_auto(share: Any) -> None:
    with pytest.raises(ConfigRefused, match="give a number from 0 to 1, or auto"):
        RefreshConfig(discovery_share=share)


# -- hosts with a limit ------------------------------------------------------------------------------------------------


def test_discovery_keeps_its_share_in_a_host_with_a_limit() -> None:
    """One host, 400 pages, twenty read, at most ten fetches a day: all are read after the time that it takes."""
    crawl = Crawl(
        with_refresh(bandwidth_per_day=100.0, host_fetches_per_day=10.0), name=lambda page: f"https://h.example/{page}"
    )
    crawl.read(range(20), T0).see(range(400))
    pages, read = numbers(crawl, 400), set(range(20))
    for day in range(1, 160):
        crawl.tick(T0 + DAY * day)
        planned = crawl.plan()
        assert len(planned.orders.rows) == 10
        if len(read) < 400:
            assert planned.orders.discovered >= 2
        read |= {pages[page] for page in ordered(planned)}
        fetch(crawl, planned, pages, day)
    assert len(read) == 400


def test_what_limits_of_hosts_forbid_to_discovery_goes_to_refreshing() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=40.0, discovery_share=0.5), name=site_of_its_own).read(range(100), T0)
    crawl.name = lambda page: site_of_its_own(page) if page < 100 else f"https://large.example/{page}"
    crawl.see(range(100, 500))
    crawl.publish(Policy(host="large.example", host_fetches_per_day=3.0))
    crawl.tick(T0 + 3 * DAY)
    planned = crawl.plan()
    assert planned.schedule.discovery_per_day == 3.0
    assert Counter(ordered(planned).values()) == {"DISCOVERY": 3, "REFRESH": 37}


def test_a_limit_holds_whatever_is_spare() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=1000.0, host_fetches_per_day=7.0)).read(range(100), T0).see(range(300))
    for day in range(1, 4):
        crawl.tick(T0 + DAY * day)
        assert len(crawl.plan().orders.rows) == 4 * 7


# -- which pages, and in which order -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_orders_of_a_reason_are_in_the_order_of_their_priority(strategy: str) -> None:
    crawl = Crawl(with_refresh(strategy=strategy, bandwidth_per_day=60.0)).read(range(100), T0).see(range(100, 200))
    crawl.tick(T0 + 19 * DAY)
    crawl.publish(
        Policy(url=crawl.name(3), refresh_interval_seconds=float(DAY)),
        *(Policy(url=crawl.name(page), fetch_now=True) for page in (5, 120, 40)),
    )
    crawl.tick(T0 + 20 * DAY)
    orders = crawl.plan().orders
    words = [WHY[why] for why in orders.why.tolist()]
    assert words == sorted(words, key=["REQUESTED", "REFRESH", "DISCOVERY"].index)
    assert set(words) == {"REQUESTED", "REFRESH", "DISCOVERY"}
    for why in set(words):
        of = np.array(words) == why
        assert (np.diff(orders.priority[of]) <= 0).all()


def test_what_falls_out_for_want_of_bandwidth_is_the_least_important() -> None:
    """All pages are due, and none is very late: the bandwidth goes to pages whose old copies cost most."""
    crawl = Crawl(with_refresh(strategy="uniform", bandwidth_per_day=25.0, discovery_share=0.0))
    crawl.read(range(100), T0)
    crawl.tick(T0 + 4 * DAY - 3600)
    planned = crawl.plan()
    taken = planned.orders.rows
    rest = np.setdiff1d(np.arange(100), taken)
    assert len(taken) == 25
    assert planned.survey.weights(taken).min() >= planned.survey.weights(rest).max()


def test_a_page_that_is_very_late_is_fetched_before_more_important_ones() -> None:
    crawl = Crawl(with_refresh(strategy="uniform", bandwidth_per_day=10.0, discovery_share=0.0))
    crawl.read(range(1, 100), T0)
    crawl.tick(T0 + DAY)
    survey = crawl.plan().survey
    least = survey.pages[int(np.argmin(survey.weights(slice(None))))]
    late = Crawl(crawl.config)
    page = numbers(crawl, 100)[int(least)]
    late.visit(page, T0 - 20 * DAY).read([other for other in range(1, 100) if other != page], T0)
    late.tick(T0 + 8 * DAY)
    assert late.id(page) in ordered(late.plan())


def gaps_of(crawl: Crawl, pages: int, days: int) -> list[int]:
    """Return the seconds between fetches of each page, in a crawl that read all at T0 and follows its orders."""
    of, last, gaps = numbers(crawl, pages), dict.fromkeys(range(pages), T0), []
    for day in range(1, days):
        crawl.tick(T0 + DAY * day)
        planned = crawl.plan()
        fetch(crawl, planned, of, day)
        for page, second in times(planned):
            gaps.append(second - last[of[page]])
            last[of[page]] = second
    return gaps + [T0 + (days - 1) * DAY - second for second in last.values()]


@pytest.mark.parametrize("strategy", ["importance", "greedy"])
def test_no_page_waits_much_longer_than_the_longest_interval(strategy: str) -> None:
    config = with_refresh(strategy=strategy, bandwidth_per_day=12.0, longest_interval_days=20.0)
    assert max(gaps_of(Crawl(config).read(range(100), T0), 100, 120)) <= 21 * DAY


def test_pages_that_fail_wait_and_do_not_lead_the_orders() -> None:
    crawl = Crawl(with_refresh(strategy="uniform", bandwidth_per_day=100.0)).read(range(100), T0)
    crawl.visit(1, T0 + DAY, Outcome.FAILED)
    crawl.tick(T0 + DAY + 60)
    planned = crawl.plan()
    assert of_page(crawl, planned, 1, "decided_by") == "BACK_OFF"
    assert all(second >= T0 + DAY + 4 * 3600 for page, second in times(planned) if page == crawl.id(1))


# -- options that change while a crawl runs ----------------------------------------------------------------------------


def test_options_of_refreshing_may_change_and_nothing_counted_does() -> None:
    crawl = Crawl(with_refresh(strategy="uniform", bandwidth_per_day=10.0)).read(range(50), T0)
    before = crawl.ledger.estimate([crawl.id(page) for page in range(50)]).importance.tolist()
    crawl.ledger.change_refreshing(RefreshConfig(strategy="harmonic", bandwidth_per_day=30.0))
    assert crawl.ledger.budget().strategy == "harmonic"
    assert crawl.ledger.estimate([crawl.id(page) for page in range(50)]).importance.tolist() == before
    crawl.tick(T0 + 10 * DAY)
    assert len(crawl.plan().orders.rows) == 30
    assert Ledger.restore(crawl.bytes()).config == crawl.ledger.config


@pytest.mark.parametrize("other", [{"gone_visits": 3}, {"estimator": "existence"}, {"alpha": 0.5}, {"gone_days": 3.0}])
def test_options_that_observations_rest_on_hold_for_ever(other: dict[str, Any]) -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=10.0)).read(range(5), T0)
    with pytest.raises(ValueError, match="hold for as long as a ledger does"):
        crawl.ledger.change_refreshing(RefreshConfig(**other))


@pytest.mark.slow
@pytest.mark.parametrize("hours", [1.0, 7.0, 24.0])
def test_previews_of_cycles_in_a_row_order_all_of_the_bandwidth(hours: float) -> None:
    """A preview changes nothing, so the parts of a fetch that it leaves are counted by the time."""
    crawl = Crawl(with_refresh(bandwidth_per_day=0.7, discovery_share=0.0, cycle_hours=hours)).read(range(9), T0)
    ordered_in_all, cycles = 0, int(20 * 24 / hours)
    for cycle in range(1, cycles + 1):
        crawl.tick(T0 + 400 * DAY + round(cycle * hours * 3600))
        ordered_in_all += len(crawl.preview().orders.rows)
    assert ordered_in_all == pytest.approx(0.7 * hours / 24 * cycles, abs=1.0)
