"""Laws that hold because a site lives in one shard: limits of hosts are whole, and a page has one URL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import (
    START,
    CrawlEntry,
    Fate,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogPosition,
    PolicyEntry,
    RefreshConfig,
    SnapshotRefused,
    TickEntry,
)
from opicflow.schemas.pages import PageIds
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges
from support.ranges import any_ranges

DAY = 86_400
T0 = 20_000 * DAY
SITE = 1 << 48


class Crawl:
    """The ledgers of some shards, whose orders are carried out the next minute."""

    def __init__(self, ranges: ShardRanges, urls: Sequence[str], page_ids: PageIds, **refresh: float) -> None:
        config = LedgerConfig(
            refresh=RefreshConfig(
                bandwidth_per_day=100.0 * ranges.count,
                cycle_hours=24.0,
                strategy="uniform",
                discovery_share=0.0,
                longest_interval_days=1.0,
                **refresh,  # type: ignore[arg-type]
            )
        )
        self.ledgers = [Ledger(config, shard, ranges, page_ids=page_ids) for shard in range(ranges.count)]
        self.ids = page_ids.of_all(urls)
        self.owners = ranges.of(self.ids)
        for shard, ledger in enumerate(self.ledgers):
            log = ItemWriter()
            for row in np.flatnonzero(self.owners == shard).tolist():
                log.visit(int(self.ids[row]), [], time_ms=1000 * (T0 - 30 * DAY), url=urls[row].encode(), digest=1)
            if len(log.items()):
                ledger.apply(log.entry(start=START))

    def apply_all(self, entry: TickEntry | PolicyEntry) -> None:
        for ledger in self.ledgers:
            ledger.apply(entry)

    def day(self, number: int) -> int:
        """Plan a day and fetch the ordered pages. Returns their number."""
        self.apply_all(TickEntry(T0 + number * DAY))
        fetched = 0
        for ledger in self.ledgers:
            planned = ledger.plan(10, 0.1)
            pages = planned.survey.pages[planned.orders.rows].tolist()
            fetched += len(pages)
            log = ItemWriter(ledger.mark("crawl"))
            for page in pages:
                log.visit(page, [], time_ms=1000 * (T0 + number * DAY + 60), digest=1)
            if pages:
                ledger.apply(log.entry(start=ledger.mark("crawl")))
        return fetched


def urls_of(host: str, pages: int) -> list[str]:
    return [f"http://{host}/{number}" for number in range(pages)]


@pytest.mark.parametrize("pages", [40, 20])
def test_a_host_with_a_cap_of_20_gets_20_orders_a_day_with_16_shards(pages: int) -> None:
    """Every shard had the 16th part of the cap, with pages of the host or without: it got 17 or 18."""
    crawl = Crawl(ShardRanges.equal(16), urls_of("example.com", pages), PageIds(), host_fetches_per_day=20.0)
    assert len(set(crawl.owners.tolist())) == 1
    assert [crawl.day(number) for number in range(10)] == [20] * 10


def test_a_host_with_fewer_pages_than_its_cap_is_fetched_whole_with_16_shards() -> None:
    """It got 6 or 7 of its 10 pages a day."""
    crawl = Crawl(ShardRanges.equal(16), urls_of("example.com", 10), PageIds(), host_fetches_per_day=20.0)
    assert [crawl.day(number) for number in range(10)] == [10] * 10


def test_the_cap_of_a_policy_is_whole_too() -> None:
    crawl = Crawl(ShardRanges.equal(16), urls_of("www.example.com", 40), PageIds())
    policies = (Policy(host="www.example.com", host_fetches_per_day=7.0),)
    crawl.apply_all(PolicyEntry("policies", LogPosition(0, 0), LogPosition(1, 0), policies=policies))
    assert [crawl.day(number) for number in range(10)] == [7] * 10


def divided(site_of: str, shares: Iterable[float]) -> ShardRanges:
    """Return ranges that divide the ids of a site among shards, by these cumulated shares."""
    begin = PageIds().of(f"http://{site_of}/") // SITE * SITE
    return ShardRanges((0, *(begin + int(share * SITE) for share in shares)))


@pytest.mark.parametrize("shares", [(0.5,), (0.25, 0.5), (0.1, 0.2, 0.9)])
def test_shards_that_share_a_site_share_its_cap_by_its_pages(shares: tuple[float, ...]) -> None:
    crawl = Crawl(divided("example.com", shares), urls_of("example.com", 400), PageIds(), host_fetches_per_day=40.0)
    sizes = np.bincount(crawl.owners, minlength=len(crawl.ledgers))
    edges = [0.0, *shares, 1.0]
    expected = np.diff(edges) * 400
    assert np.abs(sizes - expected).max() < 4 * np.sqrt(100)
    days = [crawl.day(number) for number in range(10)]
    assert sum(days) <= 10 * 40
    assert sum(days) >= 10 * 40 - len(sizes)


# -- unread pages ----------------------------------------------------------------------------------------------------


def unread(ranges: ShardRanges, page_ids: PageIds) -> Counter[int]:
    """Return how many of 60 unread pages of a host each shard keeps with a limit of 20."""
    urls, left = urls_of("example.com", 60), Counter[int]()
    ids = page_ids.of_all(urls)
    owners = ranges.of(ids)
    for shard in range(ranges.count):
        ledger = Ledger(LedgerConfig(max_unread_per_host=20), shard, ranges, page_ids=page_ids)
        log = ItemWriter()
        for row in np.flatnonzero(owners == shard).tolist():
            log.sighting(int(ids[row]), url=urls[row].encode())
        if len(log.items()):
            ledger.apply(log.entry(start=START))
        ledger.apply(TickEntry(T0))
        assert ledger.audit().drift == 0
        left[shard] = ledger.pages
    return left


def test_max_unread_per_host_counts_a_host_once() -> None:
    assert unread(ShardRanges.equal(16), PageIds()).total() == 20


def test_shards_that_share_a_site_share_its_limit() -> None:
    left = unread(divided("example.com", (0.25,)), PageIds())
    assert (left[0], left[1]) == (5, 15)


# -- two URLs with one page id ---------------------------------------------------------------------------------------

FIRST, SECOND = b"http://collide.com/33114542", b"http://collide.com/04146534"
"""Two URLs whose page ids are equal by the public key. They were found by trying 45 million."""
PAGE = PageIds().of(FIRST)


def test_the_made_collision_is_one() -> None:
    assert PageIds().of(SECOND) == PAGE
    assert PageIds(key=bytes(16)).of(FIRST) != PageIds(key=bytes(16)).of(SECOND)


def entry(log: ItemWriter, ledger: Ledger) -> CrawlEntry:
    return log.entry(start=ledger.mark("crawl"))


def begun(certified: bool = False) -> Ledger:
    """Return a ledger that has read the first of the two URLs."""
    from opicflow.pipelines.ledger import Certified

    ledger = Ledger(LedgerConfig(history=Certified()) if certified else LedgerConfig())
    ledger.apply(ItemWriter().visit(PAGE, [1, 2], time_ms=1000 * T0, url=FIRST).entry(start=START))
    return ledger


@pytest.mark.parametrize("certified", [False, True])
def test_a_visit_with_the_url_of_another_page_changes_nothing(certified: bool) -> None:
    ledger = begun(certified)
    before = ledger.balance(), ledger.pages, ledger.visits, ledger.estimate([PAGE])
    log = ItemWriter(ledger.mark("crawl")).visit(PAGE, [3, 4], time_ms=1000 * T0 + 5000, url=SECOND)
    applied = ledger.apply(entry(log, ledger))
    assert applied.fates.tolist() == [Fate.COLLIDED]
    assert (applied.visits, applied.births) == (0, 0)
    assert (ledger.balance(), ledger.pages, ledger.visits) == before[:3]
    assert repr(ledger.estimate([PAGE])) == repr(before[3])
    assert ledger.url(PAGE) == FIRST
    assert ledger.estimate([3]).known.tolist() == [False]
    ledger.audit()


def test_an_announcement_with_the_url_of_another_page_changes_nothing() -> None:
    ledger = begun()
    log = ItemWriter(ledger.mark("crawl")).announcement(PAGE, url=SECOND, modified_ms=1000 * T0 + 9000)
    applied = ledger.apply(entry(log, ledger))
    assert applied.fates.tolist() == [Fate.COLLIDED]
    assert applied.announcements == 0
    assert ledger.url(PAGE) == FIRST


def test_the_url_that_was_known_first_keeps_the_page_even_if_it_was_only_seen() -> None:
    ledger = Ledger()
    log = ItemWriter().sighting(PAGE, url=FIRST).visit(PAGE, [1], time_ms=1000 * T0, url=SECOND)
    applied = ledger.apply(log.entry(start=START))
    assert applied.fates.tolist() == [Fate.TAKEN, Fate.COLLIDED]
    applied = ledger.apply(entry(ItemWriter(ledger.mark("crawl")).visit(PAGE, [1], time_ms=1000, url=FIRST), ledger))
    assert applied.fates.tolist() == [Fate.TAKEN]
    assert ledger.visits == 1


def test_links_to_a_url_that_collides_pay_the_page_that_has_the_id() -> None:
    ledger = begun()
    log = ItemWriter(ledger.mark("crawl")).visit(7, [PAGE], time_ms=1000 * T0, url=b"http://a.com/")
    ledger.apply(entry(log.sighting(PAGE, url=SECOND), ledger))
    assert ledger.waiting_cash(np.array([PAGE], np.uint64))[0] > 0
    assert ledger.url(PAGE) == FIRST


def test_a_page_whose_url_is_not_known_takes_the_first_that_comes() -> None:
    ledger = Ledger()
    ledger.apply(ItemWriter().visit(1, [PAGE], time_ms=1000, url=b"http://a.com/").entry(start=START))
    assert ledger.url(PAGE) is None
    applied = ledger.apply(entry(ItemWriter(ledger.mark("crawl")).visit(PAGE, [], url=SECOND), ledger))
    assert applied.fates.tolist() == [Fate.TAKEN]
    assert ledger.url(PAGE) == SECOND


@given(st.binary(min_size=1, max_size=40), st.binary(min_size=1, max_size=40))
def test_exactly_other_urls_collide(known: bytes, given_url: bytes) -> None:
    ledger = Ledger()
    ledger.apply(ItemWriter().visit(5, [], time_ms=1000, url=known).entry(start=START))
    applied = ledger.apply(entry(ItemWriter(ledger.mark("crawl")).visit(5, [], time_ms=2000, url=given_url), ledger))
    assert applied.fates.tolist() == [Fate.TAKEN if known == given_url else Fate.COLLIDED]


# -- snapshots -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_ledger_with_ranges_of_any_width_is_restored(seed: int) -> None:
    ranges = any_ranges(5, seed)
    ledger = Ledger(LedgerConfig(), 2, ranges, page_ids=PageIds(key=bytes(16)))
    first, last = ranges.bounds(2)
    ledger.apply(ItemWriter().visit(first, [last, 0], time_ms=1000).entry(start=START))
    again = Ledger.restore((chunk.data for chunk in ledger.snapshot()), PageIds(key=bytes(16)))
    assert (again.ranges, again.page_ids, again.shards) == (ranges, PageIds(key=bytes(16)), 5)
    assert [chunk.data for chunk in again.snapshot()] == [chunk.data for chunk in ledger.snapshot()]


def test_a_snapshot_with_damaged_boundaries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(LedgerConfig(), 0, ShardRanges((0, 5)))
    monkeypatch.setattr(ShardRanges, "to_json", lambda self: [0, 7, 3])
    chunks = [chunk.data for chunk in ledger.snapshot()]
    with pytest.raises(SnapshotRefused, match="shard 2 begins at 3"):
        Ledger.restore(chunks)
