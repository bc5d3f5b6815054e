"""The window of the policy `certified`: the mean of a page's importance over the last days, and the trend from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.test_certified import QUIET, SHARDED, Crawl, ShardedCrawl
from ledger.test_snapshot import Forgery, data
from opicflow.pipelines.lab.web.crawl import visits
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import (
    HISTORIES,
    START,
    Certified,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogEntry,
    LogPosition,
    SnapshotRefused,
    TickEntry,
)
from opicflow.pipelines.ledger.cash.certified.importance_window import interpolate
from opicflow.pipelines.ledger.shards.reshard import reshard
from opicflow.pipelines.ranks.graph.csr import Graph
from support.crawls import Crawl as CrawlOfWeb
from support.crawls import exact_ranks
from support.ranges import any_ranges
from support.same_bytes import assert_same_bytes

DAY = 86_400
UNMOVED = Certified(pushes_per_visit=0)
"""Cash moves at visits only, so that importance after an entry of one visit is that at the visit."""


importances = st.floats(0, 1)
shares = st.one_of(st.floats(0, 1), st.floats(0, 100))


# The rule


@given(importances, st.lists(st.tuples(importances, shares), max_size=20))
def test_the_mean_is_between_the_least_and_the_largest_importance(
    first: float, updates: list[tuple[float, float]]
) -> None:
    mean, known = first, [first]
    for importance, share in updates:
        mean = interpolate(mean, importance, share)
        known.append(importance)
        assert min(known) <= mean <= max(known)


@given(importances, st.lists(shares, max_size=20))
def test_any_number_of_updates_with_the_same_importance_changes_nothing(importance: float, since: list[float]) -> None:
    mean = importance
    for share in since:
        mean = interpolate(mean, importance, share)
        assert mean == importance


@given(importances, importances, st.floats(0.01, 365), st.floats(0, 400))
def test_the_mean_is_the_interpolation_of_the_paper(mean: float, importance: float, days: float, passed: float) -> None:
    history = mean * days
    history = history * (days - passed) / days + importance * passed if passed < days else importance * days
    assert interpolate(mean, importance, passed / days) == pytest.approx(history / days, rel=1e-12, abs=1e-15)


def test_an_update_without_time_changes_nothing_and_one_after_the_window_forgets_all() -> None:
    assert interpolate(0.25, 0.75, 0.0) == 0.25
    assert interpolate(0.25, 0.75, 1.0) == interpolate(0.25, 0.75, 5.0) == 0.75


# The ledger


class Kept:
    """The windows of pages, kept beside a ledger by the rule as it is printed."""

    def __init__(self, days: float) -> None:
        self.seconds = days * DAY
        self.pages: dict[int, tuple[float, int]] = {}

    def now(self, page: int, importance: float, second: int) -> float:
        if page not in self.pages:
            return importance
        held, then = self.pages[page]
        passed = second - then
        if passed >= self.seconds:
            return importance
        return held * (self.seconds - passed) / self.seconds + importance * passed / self.seconds

    def update(self, page: int, importance: float, second: int) -> None:
        if second > 0:
            self.pages[page] = self.now(page, importance, second), second


@pytest.mark.slow_but_first
@pytest.mark.parametrize("days", [0.5, 7.0])
@pytest.mark.parametrize("seed", range(3))
def test_windows_are_kept_at_every_visit_and_every_publication(seed: int, days: float) -> None:
    chance = np.random.default_rng(seed)
    web, ids = power_law_web(60, seed), page_ids(60, seed)
    ledger, kept = Ledger(LedgerConfig(history=replace(UNMOVED, window_days=days))), Kept(days)
    writer, second = ItemWriter(), 0
    for number in range(60):
        writer.visit(int(ids[number]), [], url=b"https://example.org/%d" % number)
    ledger.apply(writer.entry("seeds", START))  # before the first tick there is no time
    assert ledger.estimate_all().window_importance.tolist() == ledger.estimate_all().importance.tolist()
    for step in range(400):
        if chance.random() < 0.3:
            second += int(chance.integers(1, DAY))
            ledger.apply(TickEntry(second))
        number = int(chance.integers(60))
        ledger.apply(visits(web, ids, np.array([number]), step))
        page = int(ids[number])
        kept.update(page, float(ledger.estimate([page]).importance[0]), second)
        if chance.random() < 0.2:
            some = chance.choice(ids, 5, replace=False)
            published = ledger.publish(some) if chance.random() < 0.5 else ledger.publish_movers(5, 0.1).estimates
            for one, importance, mean in zip(
                published.pages.tolist(),
                published.importance.tolist(),
                published.window_importance.tolist(),
                strict=True,
            ):
                kept.update(one, importance, second)
                assert mean == pytest.approx(kept.now(one, importance, second), rel=1e-9)
        estimates = ledger.estimate(ids)
        expected = [kept.now(*of, second) for of in zip(ids.tolist(), estimates.importance.tolist(), strict=True)]
        assert estimates.window_importance == pytest.approx(expected, rel=1e-9)
        assert estimates.trend_per_day == pytest.approx(
            (estimates.importance - np.array(expected)) / days, rel=1e-6, abs=1e-12
        )
    assert len(kept.pages) == 60 and second > 7 * DAY


def test_importance_that_stays_the_same_has_no_trend_however_often_it_is_updated() -> None:
    ledger = Ledger(LedgerConfig(history=Certified()))
    crawl = CrawlOfWeb(ledger, power_law_web(200, 4), "cycle", 4).run(30)
    for day in range(1, 10):
        ledger.apply(TickEntry(day * DAY))
        crawl.run(1)
    estimates = ledger.estimate_all()
    assert estimates.window_importance == pytest.approx(estimates.importance, rel=1e-3)
    assert np.abs(estimates.trend_per_day / estimates.importance).max() < 1e-4


@pytest.mark.parametrize("name", sorted(set(HISTORIES) - {"certified"}))
def test_under_the_windows_of_the_paper_both_are_the_estimate_of_the_window(name: str) -> None:
    ledger = Ledger(LedgerConfig(history=HISTORIES[name]()))
    crawl = CrawlOfWeb(ledger, power_law_web(100, 4), "cycle", 4)
    for day in range(3):
        crawl.run(1)
        ledger.apply(TickEntry(day * DAY))
    estimates = ledger.estimate_all()
    assert estimates.window_importance.tolist() == estimates.importance.tolist()
    assert not estimates.trend_per_day.any() and not len(ledger._room.table.window)


def growing_page(day: int, pages: int = 300) -> Graph:
    """A web where page 0 gets ten more links every day from the third day on, and then for good."""
    web = power_law_web(pages, seed=4, mean_links=8)
    sources = np.repeat(np.arange(pages), web.out_degrees)
    new = np.arange(1, 1 + 10 * max(0, day - 3))
    ends = np.concatenate((web.targets.astype(int), np.zeros(len(new), int)))
    return Graph.from_links(pages, np.concatenate((sources, new)), ends)


def test_a_page_that_gains_links_day_by_day_has_a_trend_of_about_that_size() -> None:
    ledger = Ledger(LedgerConfig(history=Certified(window_days=2)))
    crawl = CrawlOfWeb(ledger, growing_page(0), "cycle", 4).run(6)
    assert not ledger.estimate_all().trend_per_day.any()
    for hour in range(1, 18 * 24):
        if hour % 24 == 0:
            crawl.graph = growing_page(hour // 24)
        crawl.run(1 / 6)
        ledger.apply(TickEntry(3600 * hour))
        if hour == 3 * 24:
            steady = ledger.estimate(crawl.ids[:1]).trend_per_day[0]
    estimates = ledger.estimate(crawl.ids)
    per_day = (exact_ranks(growing_page(17))[0] - exact_ranks(growing_page(14))[0]) / 3
    assert abs(steady) < 0.1 * per_day
    assert 0.6 * per_day < estimates.trend_per_day[0] < 1.4 * per_day
    assert estimates.trend_per_day.argmax() == 0
    # The gain of one page is the loss of the others; windows are updated at visits, so the sum is not exact.
    assert abs(estimates.trend_per_day.sum()) < 0.2 * per_day


# One log, one ledger


def bytes_of(ledger: Ledger) -> list[bytes]:
    """The snapshot of a ledger."""
    return [chunk.data for chunk in ledger.snapshot()]


@pytest.mark.parametrize("seed", range(2))
def test_the_same_log_gives_the_same_windows_in_whatever_entries_it_comes(seed: int) -> None:
    web, ids = power_law_web(120, seed), page_ids(120, seed)
    order = np.random.default_rng(seed).integers(0, 120, 900)
    log: list[LogEntry] = []
    for hour in range(3):
        log += [visits(web, ids, order[300 * hour : 300 * hour + 300], 300 * hour), TickEntry(DAY * (hour + 1))]
    assert_same_bytes(lambda: Ledger(LedgerConfig(history=Certified())), log, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("config", [SHARDED, QUIET], ids=["every tick", "quiet"])
def test_shards_that_are_restored_go_on_with_the_same_windows(config: LedgerConfig) -> None:
    """The sums of other shards, by which importance is computed at a visit, are those of the newest gossip again."""
    crawls = [ShardedCrawl(config, 3, 5) for _ in range(2)]
    for _ in zip(*(crawl.run(80) for crawl in crawls), strict=True):
        crawls[1].ledgers = [Ledger.restore(bytes_of(ledger)) for ledger in crawls[1].ledgers]
        for one, other in zip(*(crawl.ledgers for crawl in crawls), strict=True):
            assert one._room.table.window.tolist()[: one.pages] == other._room.table.window.tolist()[: one.pages]
    assert any(len(np.unique(ledger._room.table.window[:, 1])) > 2 for ledger in crawls[0].ledgers)


def test_windows_are_the_same_in_other_shards() -> None:
    crawl = ShardedCrawl(SHARDED, 3, 7)
    for _ in crawl.run(80):
        pass
    crawl.tick()
    crawl.rest()
    ids = np.array(crawl.ids, np.uint64)
    windows = {}
    for ledger in crawl.ledgers:
        pages, slots = ledger._reader.live()
        windows |= dict(zip(pages.tolist(), ledger._room.table.window[slots].tolist(), strict=True))
    for shards in (1, 5):
        for ledger in reshard(crawl.ledgers, any_ranges(shards, 2)):
            pages, slots = ledger._reader.live()
            assert ledger._room.table.window[slots].tolist() == [windows[page] for page in pages.tolist()]
    assert len(windows) > len(ids) // 2


# Snapshots and configurations


def test_a_snapshot_has_the_windows_and_refuses_those_that_cannot_be() -> None:
    crawl = Crawl(LedgerConfig(history=Certified(), class_weights=(16, 16, 16, 16), link_bonus_per_1024=(0, 0)), 1)
    for _ in crawl.run(30):
        pass
    chunks = crawl.ledger.snapshot()
    again = Ledger.restore(data(chunks))
    assert again.snapshot() == chunks
    assert again.estimate_all().window_importance.tolist() == crawl.ledger.estimate_all().window_importance.tolist()
    for column, values in ((0, (-1e-9, np.nan, np.inf)), (1, (-1.0, 0.5, np.nan, np.inf, crawl.second + 1.0))):
        for value in values:
            forged = Forgery(data(chunks))
            forged.columns["window"][0, column] = value
            with pytest.raises(SnapshotRefused, match=r"a mean importance|a window was updated"):
                Ledger.restore(forged.chunks())
    forged = Forgery(data(chunks))
    forged.columns["window"] = forged.columns["window"][:-1]
    with pytest.raises(SnapshotRefused, match="not as long as its count"):
        Ledger.restore(forged.chunks())


def test_a_page_that_is_learnt_again_has_a_new_window() -> None:
    crawl = Crawl(LedgerConfig(history=Certified(), class_weights=(16, 16, 16, 16), link_bonus_per_1024=(0, 0)), 1)
    crawl.tick()
    crawl.batch(200)
    page = crawl.ids[0]
    assert crawl.ledger._room.table.window[crawl.ledger._reader.slots_of(np.array([page], np.uint64))[0], 1] > 0
    crawl.policy(drop=(page,))
    writer = ItemWriter(LogPosition(10_000, 0))
    writer.announcement(page)
    crawl.ledger.apply(writer.entry("sitemap", START))
    slot = crawl.ledger._reader.slots_of(np.array([page], np.uint64))[0]
    assert crawl.ledger._room.table.window[slot].tolist() == [0.0, 0.0]
