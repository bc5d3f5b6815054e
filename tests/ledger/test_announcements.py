"""Announcements of changes by sitemaps and feeds: their reliability is learnt for each site."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import Ledger, LedgerConfig, RefreshConfig, SnapshotRefused
from opicflow.pipelines.ledger.pages import layout
from opicflow.pipelines.ledger.pages.announcements import IN_USE, MOST_COUNTED
from opicflow.pipelines.ledger.plan.schedule import _waits_after_announcement
from opicflow.pipelines.ledger.shards.snapshot_checks import announced_problem
from support.written_crawls import DAY, T0, Crawl, of_page, ordered

PAGES = 40
CONFIG = LedgerConfig(refresh=RefreshConfig(strategy="uniform", bandwidth_per_day=4.0, discovery_share=0.0))


def two_sites(page: int) -> str:
    """Return the URL of a page: even ones on a site with true announcements, odd ones on a site with false ones."""
    return f"https://{'liar' if page % 2 else 'honest'}.example/{page}"


def taught(days: int = 15) -> Crawl:
    """A crawl that visits all pages every day. Each changes every fifth day: the liar announces it two days later."""
    crawl = Crawl(CONFIG, name=two_sites)
    for day in range(days + 1):
        for page in range(PAGES):
            if day and (day + page // 2) % 5 == 2 * (page % 2):
                announce(crawl, page, T0 + DAY * day - 100)
            crawl.visit(page, T0 + DAY * day, digest=1 + (day + page // 2) // 5)
    return crawl


def announce(crawl: Crawl, page: int, second: int) -> None:
    crawl.apply(crawl.writer().announcement(crawl.id(page), modified_ms=1000 * second))


def counts(crawl: Crawl, page: int) -> list[float]:
    """Return the counts for the site of a page: changed, unchanged, expected unchanged, surprises, in use."""
    announced = crawl.ledger._room.book.announced
    return announced[crawl.id(page) >> 48 if len(announced) > 1 else 0].tolist()  # type: ignore[no-any-return]


def test_visits_after_announcements_are_counted_for_the_site() -> None:
    crawl = taught(1)
    changed, unchanged, expected, surprises, in_use = counts(crawl, 0)
    assert (changed, unchanged, surprises, in_use) == (4, 0, 0, 1)
    assert expected == pytest.approx(4 * math.exp(-1 / 14))  # at the default rate
    before = counts(crawl, 1)
    crawl.visit(1, T0 + 5 * DAY, digest=99).visit(3, T0 + 5 * DAY, digest=99).visit(3, T0 + 6 * DAY, digest=99)
    assert (np.array(counts(crawl, 1)) - before).tolist() == [0, 0, 0, 2, 0]


def test_a_site_without_announcements_counts_nothing() -> None:
    crawl = Crawl(CONFIG, name=two_sites).read(range(PAGES), T0).read(range(PAGES), T0 + DAY)
    assert not crawl.ledger._room.book.announced.any()
    announce(crawl, 0, T0 - 5)  # from before the fetch
    assert not crawl.ledger._room.book.announced.any()


def test_counts_are_halved_when_they_are_large() -> None:
    changed, unchanged, expected, surprises, _ = counts(taught(60), 0)
    assert 100 <= changed <= MOST_COUNTED and unchanged == surprises == 0 < expected < changed


def test_an_honest_site_is_followed_and_a_liar_is_not() -> None:
    crawl = taught()
    for page in (0, 1):
        announce(crawl, page, T0 + 15 * DAY + 200)
    crawl.tick(T0 + 15 * DAY + 300)
    planned = crawl.plan()
    due = {page: of_page(crawl, planned, page, "due") for page in range(4)}
    assert due[0] < due[2] - 2 * DAY
    assert due[1] == pytest.approx(due[3], abs=10)
    crawl.tick(T0 + 20 * DAY)
    assert {crawl.id(0)} < ordered(crawl.plan()).keys()
    assert of_page(crawl, planned, 0, "announced") > 0.9
    assert of_page(crawl, planned, 1, "announced") < 0.1


def test_pages_whose_changes_are_announced_are_left_alone_until_then() -> None:
    """A change that would be announced need not be looked for."""
    crawl = taught()
    planned = crawl.plan()
    rates, expected = (
        [of_page(crawl, planned, page, column) for page in (0, 1)]
        for column in ("changes_per_day", "unannounced_per_day")
    )
    assert expected[0] < 0.1 * rates[0]
    assert expected[1] == rates[1]


def test_an_announcement_counts_for_something_before_a_site_has_shown_its_worth() -> None:
    crawl = Crawl(CONFIG, name=two_sites).read(range(PAGES), T0)
    announce(crawl, 5, T0 + 100)
    crawl.tick(T0 + 3600)
    planned = crawl.plan()
    assert 0.8 < of_page(crawl, planned, 5, "announced") < 1.0
    assert of_page(crawl, planned, 5, "due") < of_page(crawl, planned, 7, "due") - 5 * DAY


def test_announcements_of_a_site_do_not_touch_the_trust_in_the_dates_of_its_pages() -> None:
    crawl = taught()
    assert not crawl.row(1)["notes"] & layout.MISTRUST


def test_learnt_reliability_is_in_snapshots() -> None:
    crawl = taught()
    again = crawl.restored()
    assert counts(again, 0) == counts(crawl, 0) and counts(again, 1) == counts(crawl, 1)
    assert again.bytes() == crawl.bytes()
    never = Crawl(CONFIG, name=two_sites).read(range(PAGES), T0)
    assert not never.restored().ledger._room.book.announced.any()


def test_every_site_of_a_shard_has_a_row() -> None:
    assert Ledger(CONFIG)._room.book.announced.shape == (1 << 16, IN_USE + 1)
    assert [len(Ledger(CONFIG, shard, 3)._room.book.announced) for shard in range(3)] == [21846, 21846, 21846]


@pytest.mark.parametrize(
    ("sites", "rows"),
    [([5, 3], 2), ([3, 3], 2), ([-1], 1), ([1 << 16], 1), ([1], 2), ([1, 2], 1)],
)
def test_stored_counts_that_fit_no_site_are_refused(sites: list[int], rows: int) -> None:
    book = Ledger(CONFIG)._room.book
    stored = np.ones((rows, IN_USE + 1), np.float32)
    assert announced_problem(book, np.array(sites, np.int32), stored)
    stored[:, :4] = np.nan
    assert announced_problem(book, np.arange(rows, dtype=np.int32), stored)
    assert not announced_problem(book, np.array([1, 7], np.int32), np.ones((2, IN_USE + 1), np.float32))


def test_a_damaged_row_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    crawl = taught(2)
    damaged: Any = crawl.ledger._room.book.announced.copy()
    damaged[damaged[:, -1] != 0, -1] = 3
    room = crawl.ledger._room
    monkeypatch.setattr(room, "book", replace_announced(room.book, damaged))
    with pytest.raises(SnapshotRefused, match="not in use"):
        Ledger.restore(crawl.bytes())


def replace_announced(book: layout.Book, announced: Any) -> layout.Book:
    return book._replace(announced=announced)


def test_a_page_that_changes_all_the_time_is_hardly_hurried_and_one_that_changes_rarely_is() -> None:
    announced, seconds = np.ones(2), np.full(2, 10.0 * DAY)
    often, rarely = _waits_after_announcement(announced, np.array([10.0, 0.01]), seconds) / DAY
    assert 9.8 < often < 10.0
    assert rarely == pytest.approx(math.hypot(100, 10) - 100)
    assert _waits_after_announcement(np.zeros(1), np.ones(1), seconds[:1]).tolist() == [10.0 * DAY]
