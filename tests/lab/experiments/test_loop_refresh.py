"""The closed loop: the made-up web, the schedulers that opicflow is compared with, the measures, and the loop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.lab.commands import experiment as experiment_command
from opicflow.pipelines.lab.experiments.measures import exact_importance
from opicflow.pipelines.lab.experiments.refresh import closed_loop
from opicflow.pipelines.lab.experiments.refresh import loop_refresh as bounds
from opicflow.pipelines.lab.experiments.refresh.adaptive_schedules import (
    NUTCH,
    NutchAdaptive,
    NutchSettings,
    StormCrawlerAdaptive,
    StormCrawlerSettings,
    adapted,
    rescheduled,
)
from opicflow.pipelines.lab.experiments.refresh.closed_loop import (
    LONGEST_DAYS,
    SCHEDULERS,
    crawl,
    loop_refresh,
    scheduler_named,
    warm_up_days,
)
from opicflow.pipelines.lab.experiments.refresh.command_orders import CommandOrders, log_lines
from opicflow.pipelines.lab.experiments.refresh.competitors import (
    MODIFIED,
    ORACLE,
    ROUND_ROBIN,
    UNKNOWN,
    UNMODIFIED,
    Allowance,
    RoundRobin,
)
from opicflow.pipelines.lab.experiments.refresh.crawler import Crawler, CrawlHistory, DayOrders, Scheduler, paced
from opicflow.pipelines.lab.experiments.refresh.freshness import fresh_by_day, measure
from opicflow.pipelines.lab.experiments.refresh.lambda_crawl import (
    LAMBDA_CRAWL,
    SMOOTHING_DAYS,
    UNSEEN_PER_DAY,
    LambdaCrawl,
    learnt_rates,
)
from opicflow.pipelines.lab.experiments.refresh.living_web import (
    ALWAYS_NOW,
    DATED,
    DAY,
    DIGEST,
    FIRST_CRAWL_DAYS,
    LIVING,
    NEVER,
    NEVER_CHANGES,
    NEWS,
    NOT_MODIFIED,
    LivingWeb,
    ServerAnswers,
    contents_of,
    living_web,
)
from opicflow.pipelines.lab.experiments.refresh.loop_refresh import loop_refresh as experiment
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.refresh.strategies import STRATEGIES, Demand, solve
from support.commands import CommandResult, command, refusal

HOUR = 3_600


def small_web(changes: list[list[int]], days: int, **columns: Any) -> LivingWeb:
    """Pages in a ring that change at these seconds, each time to a new content."""
    pages = len(changes)
    starts = np.concatenate(([0], np.cumsum([len(of) for of in changes])))
    fields: dict[str, Any] = {
        "born": np.full(pages, -NEVER),
        "died": np.full(pages, NEVER),
        "servers": np.full(pages, DIGEST, np.uint8),
        "failing": np.zeros((FIRST_CRAWL_DAYS + days, pages), np.bool_),
        "announced": np.zeros(pages, np.bool_),
        "contents": np.arange(starts[-1]),
        **columns,
    }
    return LivingWeb(
        days=days,
        graph=Graph.from_links(pages, np.arange(pages), (np.arange(pages) + 1) % pages),
        urls=[f"https://a.example/{number}" for number in range(pages)],
        rates=np.full(pages, 0.1),
        changes=np.array([second for of in changes for second in of]),
        starts=starts,
        **fields,
    )


def history_of(web: LivingWeb, fetches: list[tuple[int, int]], orders: list[int]) -> CrawlHistory:
    """A crawl that fetched these pages at these seconds. All pages were known from the first moment of the year."""
    numbers, seconds = (np.array(column, np.int64) for column in zip(*fetches, strict=True))
    answers = web.answer(numbers, seconds, np.full(len(fetches), -NEVER))
    return CrawlHistory(web, answers, np.zeros(web.pages, np.int64), np.array(orders))


# The web


def test_two_contents_that_follow_each_other_are_never_equal_and_four_of_ten_changes_return() -> None:
    web = living_web(1_000, 1, 365)
    follows = np.ones(len(web.changes), np.bool_)
    follows[web.starts[:-1]] = False
    rows = np.flatnonzero(follows)
    assert (web.contents[rows] != web.contents[rows - 1]).all()
    assert (np.diff(web.changes)[rows - 1] >= 0).all()
    returned = web.contents[rows] != rows
    assert returned.mean() == pytest.approx(0.4, abs=0.02)
    assert (web.contents[rows][returned] == web.contents[rows - 2][returned]).all()


def test_a_change_that_returns_brings_the_content_before_the_last() -> None:
    is_new = np.array([True, False, False, False, True, False, False, False, False])
    assert contents_of(np.array([0, 6, 9]), is_new).tolist() == [0, 1, 0, 1, 4, 1, 6, 7, 6]


@pytest.mark.parametrize("kind", LIVING)
def test_a_fifth_of_the_pages_is_born_a_tenth_dies_and_each_day_has_its_importance(kind: str) -> None:
    web = living_web(500, 2, 100, kind=kind)
    assert (web.born > 0).sum() == 100 and (web.died < NEVER).sum() == 50
    assert (web.died > web.born).all() and (web.died[web.died < NEVER] <= 100 * DAY).all()
    assert web.importance.shape == (100, 500)
    assert web.importance.sum(axis=1) == pytest.approx(1.0)
    for day in (0, 50, 99):
        assert ((web.importance[day] > 0) == web.alive(day * DAY)).all()


def test_lists_of_news_change_once_a_day_and_articles_seldom() -> None:
    web = living_web(1_000, 1, 10, kind=NEWS)
    is_list = np.array([url.endswith("/") for url in web.urls])
    assert 10 < is_list.sum() < 200
    assert np.median(web.rates[is_list]) == pytest.approx(1.0, rel=0.8)
    assert np.median(web.rates[~is_list]) == pytest.approx(1 / 120, rel=0.3)


def test_importance_is_the_pagerank_of_the_pages_that_exist() -> None:
    """Pages link as their contents of that moment do, also to pages that went away; those have no links."""
    web, second = living_web(300, 3, 50), 49 * DAY
    alive = web.alive(second)
    rows = web.latest(np.arange(300), np.full(300, second))
    links = [web.links(page, int(web.contents[row])) for page, row in enumerate(rows)]
    links = [targets if there else targets[:0] for targets, there in zip(links, alive, strict=True)]
    sources = np.repeat(np.arange(300), [len(targets) for targets in links])
    targets = np.concatenate(links)
    assert (web.died[targets] <= second).any() and (web.born[targets] <= second).all()
    exact = exact_importance(Graph.from_links(300, sources, targets)) * alive
    assert web.importance[49] == pytest.approx(exact / exact.sum(), rel=1e-6)


def test_a_new_page_is_linked_from_a_page_that_changes_at_that_moment_or_announced() -> None:
    web = living_web(500, 4, 200)
    newborn = np.flatnonzero(web.born > 0)
    sources = np.repeat(np.arange(500), np.diff(web.graph.starts))
    for page in newborn.tolist():
        born = int(web.born[page])
        linkers = sources[web.graph.targets == page]
        linkers = linkers[(web.born[linkers] < born) & (web.died[linkers] > born)]
        rows = web.latest(linkers, np.full(len(linkers), born))
        now = [page in web.links(n, int(web.contents[r])) for n, r in zip(linkers.tolist(), rows, strict=True)]
        before = web.latest(linkers, np.full(len(linkers), born - 1))
        assert any(now) != web.announced[page]
        assert not any(page in web.links(n, int(web.contents[r])) for n, r in zip(linkers, before, strict=True))


def test_servers_answer_truly_falsely_or_not_at_all() -> None:
    changes = [[-5 * DAY, HOUR]] * 7
    servers = np.array([DIGEST, DATED, NOT_MODIFIED, ALWAYS_NOW, NEVER_CHANGES, DATED, DATED], np.uint8)
    failing = np.zeros((FIRST_CRAWL_DAYS + 2, 7), np.bool_)
    failing[FIRST_CRAWL_DAYS, 5] = True
    died = np.array([NEVER] * 6 + [2 * HOUR])
    web = small_web(changes, 2, servers=servers, failing=failing, died=died)
    numbers = np.arange(7)
    answers = web.answer(numbers, np.full(7, 2 * HOUR), np.full(7, HOUR + 1))
    assert answers.statuses.tolist() == [200, 200, 304, 200, 200, 503, 404]
    assert answers.contents.tolist() == [1, 3, -1, 7, 9, -1, -1]
    assert answers.modified.tolist() == [NEVER, HOUR, NEVER, 2 * HOUR, -500 * DAY, NEVER, NEVER]
    assert answers.came.tolist() == [True] * 5 + [False] * 2
    again = web.answer(numbers, np.full(7, 2 * HOUR), np.full(7, HOUR - 1))
    assert again.statuses.tolist() == [200, 200, 200, 200, 200, 503, 404]  # the copy is older than the change


def test_the_same_seed_makes_the_same_web() -> None:
    one, same, other = (living_web(200, seed, 30) for seed in (1, 1, 2))
    assert (one.changes == same.changes).all() and (one.contents == same.contents).all()
    assert len(one.changes) != len(other.changes) or (one.changes != other.changes).any()


# The crawler


def test_fetches_keep_the_pace_of_the_bandwidth_and_wait() -> None:
    not_before = np.array([0, 0, 0, 20 * HOUR, DAY + HOUR]) + DAY
    assert (paced(not_before, DAY, 8) - DAY).tolist() == [0, 3 * HOUR, 6 * HOUR, 20 * HOUR, DAY - 1]


def test_a_crawler_learns_of_pages_by_links_and_announcements() -> None:
    born = np.array([-NEVER, -NEVER, DAY + 5, DAY + 7])
    announced = np.array([False, False, False, True])
    web = small_web([[-9 * DAY], [-9 * DAY, DAY + 5], [DAY + 5], [DAY + 7]], 4, born=born, announced=announced)
    crawler = Crawler(web)
    first = crawler.crawl_first()
    assert sorted(first.numbers.tolist()) == [0, 1] and crawler.known.tolist() == [True, True, False, False]
    crawler.follow(DayOrders(np.array([1]), np.array([DAY + 4])), 1, 10)
    assert crawler.announce(1).tolist() == [3]
    assert crawler.known.tolist() == [True, True, False, True]
    crawler.follow(DayOrders(np.array([1]), np.array([2 * DAY])), 2, 10)
    assert crawler.known_since.tolist()[2:] == [2 * DAY, DAY + 7]
    assert crawler.history().orders.tolist() == [1, 1]


# The competitors


def test_nutchs_intervals_are_those_computed_by_hand() -> None:
    settings = NutchSettings()
    fetched = 100 * DAY
    cases = [  # state, seen modified, new interval in days, next fetch after so many days
        (MODIFIED, fetched - 30 * DAY, 24.0, 24.0),  # 30 less a fifth; modified now: no shift
        (UNMODIFIED, fetched - 10 * DAY, 42.0, 42.0 - 0.3 * 10),  # 30 and two fifths
        (UNMODIFIED, fetched - 50 * DAY, 50.0, 50.0 - 0.3 * 50),  # not modified for longer than that
        (UNKNOWN, -NEVER, 30.0, 30.0),
        (UNMODIFIED, fetched - 600 * DAY, 365.0, 365.0 - 0.3 * 600),  # bounded
    ]
    states, modified = np.array([case[0] for case in cases]), np.array([case[1] for case in cases])
    intervals, due, seen = rescheduled(np.full(5, 30.0 * DAY), np.full(5, fetched), modified, states, settings)
    assert (intervals / DAY).tolist() == pytest.approx([case[2] for case in cases])
    assert ((due - fetched) / DAY).tolist() == pytest.approx([case[3] for case in cases])
    assert seen.tolist() == [fetched, *modified[1:3], fetched, modified[4]]
    shortest, *_ = rescheduled(np.array([61.0]), np.array([0]), np.array([0]), np.array([MODIFIED]), settings)
    assert shortest.tolist() == [60.0]
    alone, due, _ = rescheduled(
        np.array([30.0 * DAY]),
        np.array([0]),
        np.array([-DAY]),
        np.array([UNMODIFIED]),
        replace(settings, sync_delta=False),
    )
    assert (alone[0], due[0]) == (42 * DAY, 42 * DAY)


def answers_of(day: int, statuses: list[int], contents: list[int]) -> ServerAnswers:
    """The answers of pages 0, 1, … at the beginning of a day, with dates, which Nutch and StormCrawler do not use."""
    pages = len(statuses)
    dates = np.full(pages, -5 * DAY)
    return ServerAnswers(np.arange(pages), np.full(pages, day * DAY), np.array(statuses), np.array(contents), dates)


def test_nutch_follows_contents_failures_and_gone_pages() -> None:
    crawler = Crawler(small_web([[-9 * DAY]] * 5, 2))
    nutch, none = NutchAdaptive(crawler, 2), np.zeros(0, np.int64)
    nutch.receive(answers_of(0, [200] * 5, [1, 2, 3, 4, 5]), none)
    assert (nutch.intervals / DAY).tolist() == [30] * 5 and (nutch.due / DAY).tolist() == [30] * 5
    nutch.receive(answers_of(30, [200, 304, 200, 503, 404], [9, -1, 3, -1, -1]), none)
    assert (nutch.intervals / DAY).tolist() == pytest.approx([24, 42, 42, 30, 45])
    assert (nutch.due / DAY).tolist() == pytest.approx([54, 72 - 9, 72 - 9, 31, 75])
    for day in (31, 32):  # the third failure in a row: it counts as gone
        nutch.receive(answers_of(day, [200, 304, 200, 503, 404], [9, -1, 3, -1, -1]), none)
    assert (nutch.intervals[3], nutch.due[3]) == (45 * DAY, (32 + 45) * DAY)


def test_nutch_begins_again_with_a_page_whose_interval_is_too_long() -> None:
    crawler = Crawler(small_web([[-9 * DAY]], 2))
    nutch, none = NutchAdaptive(crawler, 2), np.zeros(0, np.int64)
    for day in (0, 30, 63, 110):
        nutch.receive(answers_of(day, [200], [1]), none)
    assert nutch.intervals[0] == 81 * DAY  # 110 days unmodified are longer than 90
    assert nutch.due[0] == (110 + 110 - 33) * DAY
    nutch.receive(answers_of(187, [200], [1]), none)  # its signature is forgotten: not known whether it was modified
    assert (nutch.intervals[0], nutch.due[0]) == (81 * DAY, (187 + 81) * DAY)


def test_stormcrawlers_intervals_are_those_computed_by_hand() -> None:
    minutes, states = np.array([1440, 1440, 1440, 61, 20_000]), [MODIFIED, UNMODIFIED, UNKNOWN, MODIFIED, UNMODIFIED]
    found = adapted(minutes, np.array(states), StormCrawlerSettings())
    assert found.tolist() == [750, 2160, 1440, 60, 20_160]


def test_stormcrawler_forgets_after_an_error_and_gives_up_after_three() -> None:
    crawler = Crawler(small_web([[-9 * DAY]] * 4, 9))
    crawler.crawl_first()
    storm, none = StormCrawlerAdaptive(crawler, 9), np.zeros(0, np.int64)
    storm.receive(answers_of(0, [200] * 4, [1, 2, 3, 4]), none)
    assert (storm.due / DAY).tolist() == [1] * 4
    storm.receive(answers_of(1, [200, 304, 503, 404], [9, -1, -1, -1]), none)
    assert ((storm.due - DAY) / 60).tolist() == [750, 2160, 120, 120]
    storm.receive(answers_of(2, [200, 200, 200, 404], [9, 2, 8, -1]), none)
    assert ((storm.due - 2 * DAY) / 60).tolist() == [1125, 3240, 1440, 120]
    storm.receive(answers_of(3, [200, 200, 200, 404], [9, 2, 8, -1]), none)
    assert storm.due[3] == NEVER
    assert storm.order(8).numbers.tolist() == [0, 2, 1]  # by the date they are due


def test_lambda_crawls_rates_are_those_of_the_closed_form() -> None:
    """Where all intervals are as long as the imaginary ones, the most likely rate has a closed form."""
    counts = [(0, 0), (3, 5), (8, 1), (0, 400)]
    found = learnt_rates([[SMOOTHING_DAYS] * k for k, _ in counts], np.array([SMOOTHING_DAYS * n for _, n in counts]))
    exact = [np.log(1 + (k + 1) / (n + 1)) / SMOOTHING_DAYS for k, n in counts]
    assert found.tolist() == pytest.approx(exact, abs=2e-4)
    assert found[0] == pytest.approx(UNSEEN_PER_DAY, abs=2e-4)
    bounded = learnt_rates([[], [0.001] * 500], np.array([1e6, 0.0]))
    assert bounded.tolist() == pytest.approx([0.0005, 7.0], abs=2e-4)


def test_lambda_crawl_learns_from_intervals_between_fetches() -> None:
    crawler = Crawler(small_web([[-9 * DAY]] * 3, 9))
    lambda_crawl, none = LambdaCrawl(crawler, 1), np.zeros(0, np.int64)
    for day, statuses, contents in ((0, [200] * 3, [1, 2, 3]), (4, [200, 304, 503], [7, -1, -1])):
        lambda_crawl.receive(answers_of(day, statuses, contents), none)
    expected = learnt_rates([[4.0], []], np.array([0.0, 4.0]))
    assert lambda_crawl.rates.tolist() == pytest.approx([*expected, UNSEEN_PER_DAY])


def test_lambda_crawl_draws_pages_at_their_rates() -> None:
    web = small_web([[-9 * DAY]] * 2, 1)
    crawler = Crawler(web)
    crawler.crawl_first()
    lambda_crawl = LambdaCrawl(crawler, 1)
    lambda_crawl.rates[:] = 0.1, 2.0
    drawn = np.array([lambda_crawl.order(0).numbers[0] for _ in range(4_000)])
    frequencies = solve("harmonic", Demand(web.importance[0], lambda_crawl.rates), 1.0).frequencies
    assert drawn.mean() == pytest.approx(frequencies[1], abs=0.03)


def test_nutchs_due_pages_compete_by_score() -> None:
    web = living_web(200, 1, 10)
    crawler = Crawler(web)
    nutch = NutchAdaptive(crawler, 20)
    nutch.receive(crawler.crawl_first(), np.zeros(0, np.int64))
    assert len(nutch.order(5).numbers) == 0  # read some days ago: nothing is due
    nutch.due[:100] = 0
    ordered = nutch.order(5).numbers
    competing = np.flatnonzero(crawler.known & (np.arange(200) < 100))
    assert ordered.tolist() == competing[np.argsort(-web.importance[5, competing])][:20].tolist()


def test_round_robin_takes_turns_and_drops_pages_that_are_gone() -> None:
    died = np.array([NEVER, NEVER, NEVER, 0])
    web = small_web([[-9 * DAY]] * 4, 8, died=died)
    crawler = Crawler(web)
    history = crawl(crawler, RoundRobin(crawler, 1.5), 1.5)
    assert history.orders.tolist() == [1, 2] * 4
    turns = history.fetches.numbers[4:].tolist()
    assert turns.count(3) == 1
    rest = [page for page in turns if page != 3]
    assert all(page == rest[at - 3] for at, page in enumerate(rest) if at >= 3)


def test_round_robin_visits_all_pages_equally_often() -> None:
    crawler = Crawler(small_web([[-9 * DAY]] * 7, 30))
    history = crawl(crawler, RoundRobin(crawler, 2.5), 2.5)
    visits = np.bincount(history.fetches.numbers)
    assert visits.max() - visits.min() <= 1 and visits.sum() == 7 + 75


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name not in STRATEGIES])
def test_no_scheduler_fetches_more_than_its_bandwidth_and_none_a_page_twice_a_day(name: str, tmp_path: Path) -> None:
    web = living_web(200, 1, 40, kind=NEWS)
    crawler = Crawler(web)
    recorded = Recorded(scheduler_named(name, crawler, 7.5, tmp_path))
    history = crawl(crawler, recorded, 7.5)
    assert (np.cumsum(history.orders) <= 7.5 * np.arange(1, 41)).all() and history.orders.sum() > 30
    for orders in recorded.ordered:
        assert len(set(orders.numbers.tolist())) == len(orders.numbers)


def test_parts_of_a_fetch_are_carried_over() -> None:
    allowance = Allowance(0.1)
    assert sum(allowance.next() for _ in range(1_000)) == 100


@pytest.mark.parametrize("percent", [2.0, 5.0, 20.0])
def test_the_oracle_beats_all_others_that_know_less(seed: int, percent: float) -> None:
    found = {name: loop_refresh(400, seed + 1, name, percent, 200)[0] for name in (ROUND_ROBIN, NUTCH, ORACLE)}
    fresh = {name: float(row["fresh_weighted"]) for name, row in found.items()}
    print(fresh)
    assert fresh[ORACLE] > fresh[ROUND_ROBIN] + 5
    assert fresh[ORACLE] > fresh[NUTCH] + 5
    for name in (ORACLE, ROUND_ROBIN):
        assert (found[name]["used"], found[name]["idle_days"]) == (100.0, 0)
    assert float(found[ORACLE]["longest_gap_days"]) < 1.5 * LONGEST_DAYS


# The measures


def test_freshness_and_age_are_those_computed_by_hand() -> None:
    """A page changes at noon of days 1 and 3 and is fetched at the beginning of days 0, 2 and 5; another never does."""
    web = small_web([[-DAY, DAY + DAY // 2, 3 * DAY + DAY // 2], [-DAY]], 6)
    found = measure(history_of(web, [(0, 0), (1, 0), (0, 2 * DAY), (0, 5 * DAY)], [2, 0, 1, 0, 0, 1]), 1.0, 0)
    assert found.fresh == pytest.approx((1.5 + 1.5 + 1.0 + 6.0) / 12)
    assert found.fresh_weighted == pytest.approx(found.fresh)  # both have half of the importance
    assert found.age_days == pytest.approx((0.5**2 / 2 + 1.5**2 / 2) / 2.0)
    assert found.behind == pytest.approx((0.5 + 1.5) / 12)
    assert (found.caught, found.idle_days) == (1.0, 3)
    assert found.longest_gap_days == 6.0  # of the page that was fetched on the first day alone
    assert found.used == pytest.approx(4 / 6)
    late = measure(history_of(web, [(0, 0), (1, 0), (0, 2 * DAY), (0, 5 * DAY)], [2, 0, 1, 0, 0, 1]), 1.0, 3)
    assert late.fresh == pytest.approx((0.5 + 1.0 + 3.0) / 6)
    assert (late.idle_days, late.used) == (3, pytest.approx(1 / 3))


def test_a_page_that_returns_to_the_content_of_its_copy_makes_it_fresh_again() -> None:
    web = small_web([[-DAY, DAY, 2 * DAY, 3 * DAY], [-DAY]], 4, contents=np.array([0, 1, 0, 3, 4]))
    found = measure(history_of(web, [(0, 0), (1, 0)], [2, 0, 0, 0]), 1.0, 0)
    assert found.fresh == pytest.approx((1 + 1 + 4) / 8)
    assert found.age_days == pytest.approx(0.5)  # stale on the second and on the fourth day: a day each
    assert found.behind == pytest.approx((1 + 2 + 3) / 8)
    assert found.caught == 0.0


def test_pages_count_while_they_exist_and_without_a_copy_as_not_fresh() -> None:
    born, died = np.array([-NEVER, 2 * DAY, -NEVER]), np.array([NEVER, NEVER, 3 * DAY])
    web = small_web([[-DAY], [2 * DAY], [-DAY, DAY]], 4, born=born, died=died)
    history = history_of(web, [(0, 0), (2, 0), (1, 3 * DAY), (2, 3 * DAY + 5)], [2, 0, 0, 2])
    found = measure(history, 1.0, 0)
    assert history.fetches.statuses.tolist() == [200, 200, 200, 404]
    assert found.fresh == pytest.approx((4 + 1 + 1) / (4 + 2 + 3))
    assert found.behind == pytest.approx((1 + 2) / 9)  # a day without a copy; two days after a change
    assert found.caught == pytest.approx(1 / 2)  # the birth; the change of the page that died was never seen
    weights = web.importance
    assert weights[0].tolist() == pytest.approx([weights[0, 0], 0, 1 - weights[0, 0]])
    assert fresh_by_day(history)[3] == pytest.approx(1.0)


def test_a_gap_ends_with_a_fetch_that_fails_and_with_the_death_of_the_page() -> None:
    failing = np.zeros((FIRST_CRAWL_DAYS + 9, 2), np.bool_)
    failing[FIRST_CRAWL_DAYS + 4, 0] = True
    web = small_web([[-DAY], [-DAY]], 9, failing=failing, died=np.array([NEVER, 3 * DAY]))
    history = history_of(web, [(0, 0), (0, 4 * DAY), (1, 0), (1, 8 * DAY)], [2] + [1] * 8)
    assert history.fetches.statuses.tolist() == [200, 503, 200, 410]
    assert measure(history, 1.0, 0).longest_gap_days == 5.0


def test_measures_are_those_of_a_look_at_every_minute(seed: int) -> None:
    web = living_web(60, seed, 12)
    crawler = Crawler(web)
    history = crawl(crawler, RoundRobin(crawler, 9), 9)
    fetches, step, since = history.fetches, 60, 2
    fresh = there = of_weight = weighted = behind = 0.0
    pages = np.arange(web.pages)
    order = np.lexsort((fetches.seconds, fetches.numbers))
    order = order[fetches.came[order]]
    for second in range(since * DAY + 30, 12 * DAY, step):
        alive, weights = web.alive(second), web.importance[second // DAY]
        now = web.latest(pages, np.full(web.pages, second))
        copy = web.starts[:-1] - 1
        done = order[fetches.seconds[order] <= second]
        copy[fetches.numbers[done]] = web.latest(fetches.numbers[done], fetches.seconds[done])
        is_fresh = alive & (copy >= web.starts[:-1]) & (web.contents[copy] == web.contents[now])
        behind += (weights * (now - copy))[alive].sum()
        fresh, there = fresh + is_fresh.sum(), there + alive.sum()
        weighted, of_weight = weighted + weights[is_fresh].sum(), of_weight + weights[alive].sum()
    found = measure(history, 9.0, since)
    assert found.fresh == pytest.approx(fresh / there, abs=1e-3)
    assert found.fresh_weighted == pytest.approx(weighted / of_weight, abs=1e-3)
    assert found.behind_weighted == pytest.approx(behind / of_weight, rel=1e-2)


# The loop


def test_log_lines_are_events_that_a_crawler_writes() -> None:
    web = small_web([[-DAY]] * 3, 1, servers=np.array([DATED, NOT_MODIFIED, DIGEST], np.uint8))
    answers = web.answer(np.arange(3), np.array([0, 1, 2]), np.array([-NEVER, 0, 0]))
    lines = [json.loads(line) for line in log_lines(web, answers, np.array([2]))]
    begin = 1_767_225_600_000
    assert lines == [
        {"kind": "announce", "url": "https://a.example/2"},
        {
            "url": "https://a.example/0", "fetched_at": begin, "status": 200, "digest": "0-0",
            "links": ["https://a.example/1"], "last_modified": begin - DAY * 1000,
        },
        {"url": "https://a.example/1", "fetched_at": begin + 1000, "status": 304},
        {
            "url": "https://a.example/2", "fetched_at": begin + 2000, "status": 200, "digest": "2-2",
            "links": ["https://a.example/0"],
        },
    ]  # fmt: skip


class Recorded:
    """The command's orders, and the answers to them."""

    def __init__(self, orders: Scheduler) -> None:
        self.inner, self.ordered, self.received = orders, [], []  # type: ignore[var-annotated]

    def receive(self, answers: ServerAnswers, announced: np.ndarray) -> None:
        self.received.append((answers, announced))
        self.inner.receive(answers, announced)

    def order(self, day: int) -> DayOrders:
        self.ordered.append(self.inner.order(day))
        return self.ordered[-1]


@pytest.mark.slow
def test_every_order_of_the_command_is_fetched_on_its_day_and_not_too_early(tmp_path: Path) -> None:
    web = living_web(120, 1, 15)
    crawler = Crawler(web)
    scheduler = scheduler_named("thesis", crawler, 12.0, tmp_path)
    assert isinstance(scheduler, CommandOrders)
    recorded = Recorded(scheduler)
    history = crawl(crawler, recorded, 12.0)
    assert sum(history.orders) > 100
    for day, orders in enumerate(recorded.ordered):
        assert len(orders.numbers) == len(set(orders.numbers.tolist())) == history.orders[day] <= 13
        assert (orders.not_before >= day * DAY).all() and (orders.not_before <= (day + 1) * DAY).all()
        if day + 1 < web.days:
            answers, _ = recorded.received[day + 1]
            assert sorted(answers.numbers.tolist()) == sorted(orders.numbers.tolist())
            wait = dict(zip(orders.numbers.tolist(), orders.not_before.tolist(), strict=True))
            for number, second in zip(answers.numbers.tolist(), answers.seconds.tolist(), strict=True):
                assert min(wait[number], (day + 1) * DAY - 1) <= second < (day + 1) * DAY
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    last, announced = recorded.received[-1]
    assert (summary["visits"], summary["announcements"]) == (len(last.numbers), len(announced))
    assert (summary["rejects"], summary["duplicates"], summary["late"]) == (0, 0, 0)
    assert not list(tmp_path.glob("*.jsonl"))


def test_time_passes_on_a_day_without_visits(tmp_path: Path) -> None:
    """No page is fetched, so nothing is logged after the first crawl; orders come all the same."""
    web = small_web([[-DAY]] * 3, 40)
    crawler = Crawler(web)
    scheduler = scheduler_named("uniform", crawler, 1.0, tmp_path)
    scheduler.receive(crawler.crawl_first(), np.zeros(0, np.int64))
    ordered = [scheduler.order(day) for day in (0, 1, 39)]
    assert len(ordered[-1].numbers) > 0
    assert (ordered[-1].not_before >= 39 * DAY).all()


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    web = small_web([[-DAY]] * 3, 2)
    (tmp_path / "state").write_text("mine", encoding="utf-8")
    orders = CommandOrders(web, tmp_path, ("--bandwidth", "1"))
    with pytest.raises(RuntimeError, match=r"exit code 2: opicflow: .*state: cannot be made"):
        orders.order(0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["harmonic", LAMBDA_CRAWL])
def test_a_year_is_the_same_for_the_same_seed(name: str) -> None:
    one, same, other = (loop_refresh(100, seed, name, 8.0, 14) for seed in (1, 1, 2))
    assert one == same and one != other
    assert [row["day"] for row in one] == [0, 1, 8]
    assert [set(row) for row in one[1:]] == [
        {"seed", "web", "scheduler", "percent", "days", "day", "fresh_weighted", "used"}
    ] * 2


def test_a_sixth_of_the_time_is_no_more_than_sixty_days_of_warm_up() -> None:
    assert [warm_up_days(days) for days in (12, 365, 3_650)] == [2, 60, 60]


# The experiment


def rows_of(**of_freshness: float) -> list[Row]:
    """A year of every scheduler at two bandwidths, in which every bound holds; but for these values."""
    fresh = {"oracle": 80.0, "thesis": 79.5, "freshness": 79.9, "harmonic": 79.8, ROUND_ROBIN: 60.0, NUTCH: 55.0}
    return [
        {
            "seed": 1, "scheduler": name, "percent": percent, "day": 0, "fresh_weighted": fresh.get(name, 70.0),
            "used": 100.0, "idle_days": 0, "longest_gap_days": 90.9,
        }
        | (of_freshness if (name, percent) == ("freshness", 5.0) else {})
        for percent in (5.0, 20.0)
        for name in SCHEDULERS
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "broken"),
    [
        ({}, []),
        ({"fresh_weighted": 78.9}, ["`freshness` is within 1 point"]),
        ({"fresh_weighted": 59.0}, ["`freshness` is within 1 point", "than round robin"]),
        ({"used": 99.0}, ["uses all of its bandwidth"]),
        ({"used": 101.0}, ["uses all of its bandwidth"]),
        ({"idle_days": 1}, ["has a day without orders", "without a day without orders"]),
        ({"longest_gap_days": 91.0}, ["is left longer"]),
    ],
)
def test_a_bound_that_is_broken_does_not_hold(values: dict[str, float], broken: list[str]) -> None:
    found = bounds.of_loop_refresh(rows_of(**values))
    assert len(found) == 9
    failed = [claim.statement for claim in found if not claim.holds]
    assert len(failed) == len(broken)
    for part, statement in zip(broken, failed, strict=True):
        assert part in statement


def test_bounds_need_their_bandwidth() -> None:
    elsewhere = [row for row in rows_of() if row["percent"] != 5.0]
    assert len(bounds.of_loop_refresh(elsewhere)) == 3


def test_every_scheduler_runs_at_every_bandwidth() -> None:
    tasks = experiment(30, (5.0, 10.0)).tasks(1_000, [1])
    assert [dict(task.arguments)["scheduler"] for task in tasks] == 2 * [*SCHEDULERS]
    assert {dict(task.arguments)["days"] for task in tasks} == {30}


@pytest.fixture(scope="module")
def three_days(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandResult, Path]:
    """A run of the command with weeks of a day and small webs: each day is a replay for every strategy."""
    out = tmp_path_factory.mktemp("loop")
    options = ("--pages", 300, "--days", 3, "--bandwidths", "5,20", "--processes", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment_command, "LEAST_PAGES", 300)
        patch.setattr(experiment_command, "LEAST_DAYS", 3)
        patch.setattr(closed_loop, "_DAYS_A_ROW", 1)
        return command("experiment", "loop-refresh", "--out", out, *options), out


@pytest.mark.slow
def test_the_command_writes_a_table_a_bandwidth_plots_and_bounds(three_days: tuple[CommandResult, Path]) -> None:
    done, out = three_days
    assert done.code == 0, done
    assert "The closed loop: 3 days of refreshing" in done.out
    assert "Every strategy uses all of its bandwidth" in done.out
    report = (out / "report.md").read_text(encoding="utf-8")
    for text in ("**5 % of the pages a day**", "**20 % of the pages a day**", "Means over days 1 to 3", "| oracle |"):
        assert text in report
    for name in ("freshness", "gap", "weeks", "orders"):
        assert f"](plots/loop-refresh-{name}.svg)" in report
        assert (out / "plots" / f"loop-refresh-{name}.svg").stat().st_size > 5_000
    lines = (out / "data" / "loop-refresh.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("seed,web,scheduler,percent,days,day,fresh_weighted,fresh,")
    assert len(lines) == 1 + 2 * len(SCHEDULERS) * 4


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("fig2", "--days", "30"), "--days: it is for loop and loop-refresh: omit it, or add loop or loop-refresh"),
        (("loop", "--bandwidths", "5"), "--bandwidths: it is for loop-refresh alone: omit it, or name loop-refresh"),
        (("fig2", "--bandwidths", "5"), "--bandwidths: it is for loop-refresh alone"),
        (("loop-refresh", "--days", "3"), "--days 3: give 14 to 3650"),
        (
            ("loop-refresh", "--bandwidths", "5,200"),
            "--bandwidths 5,200: give percentages from 0.1 to 100, with commas",
        ),
        (("loop-refresh", "--bandwidths", "many"), "--bandwidths many: give percentages"),
        (("loop-refresh", "--bandwidths", "nan"), "--bandwidths nan: give percentages"),
    ],
)
def test_wrong_options_give_one_line_of_error(more: tuple[str, ...], why: str, tmp_path: Path) -> None:
    assert why in refusal("experiment", *more, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.soak
def test_a_year_at_five_per_cent_a_day_keeps_every_bound(seed: int) -> None:
    tasks = experiment(percents=(bounds.PERCENT,)).tasks(1_000, [seed + 1])
    rows = [row for task in tasks for row in task.run()]
    broken = [claim for claim in bounds.of_loop_refresh(rows) if not claim.holds]
    assert not broken, "\n".join(f"{claim.statement} {claim.measured}" for claim in broken)
