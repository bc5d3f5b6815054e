"""Publications of a ledger: visited pages at once, movers in sweeps; and the fate of every row of an entry."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from opicflow.pipelines.lab.web.crawl import announcements
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import (
    Certified,
    Estimates,
    Fate,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogPosition,
    PolicyEntry,
    TickEntry,
)
from opicflow.pipelines.ledger.cash import reads
from opicflow.schemas.pages import page_id

DAY = 86400


def urls(pages: int) -> list[bytes]:
    return [f"https://example.org/{page}".encode() for page in range(pages)]


def crawled(pages: int = 50, crawls: int = 3, seed: int = 1) -> Ledger:
    """A ledger of a web whose pages have URLs, each visited some times, and swept once."""
    web = power_law_web(pages, seed, mean_links=5)
    names = urls(pages)
    ids = [page_id(name) for name in names]
    log = ItemWriter()
    for page in range(pages):
        log.announcement(ids[page], url=names[page])
    for crawl in range(crawls):
        for page in range(pages):
            targets = web.targets[web.starts[page] : web.starts[page + 1]]
            log.visit(ids[page], [ids[target] for target in targets], time_ms=1000 * (crawl * pages + page + 1))
    ledger = Ledger()
    ledger.apply(log.entry())
    ledger.apply(TickEntry(DAY))
    return ledger


def test_nothing_is_published_of_visits_before_the_first_sweep() -> None:
    ledger = Ledger()
    ledger.apply(ItemWriter().visit(1, [2], url=b"https://a.example/").entry())
    assert len(ledger.publish(np.array([1], np.uint64)).pages) == 0
    ledger.apply(TickEntry(DAY))
    assert ledger.publish(np.array([1], np.uint64)).pages.tolist() == [1]


def test_pages_without_a_url_wait() -> None:
    ledger = Ledger()
    ledger.apply(ItemWriter().visit(1, [2], url=b"https://a.example/").entry())
    ledger.apply(TickEntry(DAY))
    assert ledger.publish(np.array([2, 1, 3], np.uint64)).pages.tolist() == [1]
    assert ledger.publish_movers(10, 0.1).estimates.pages.tolist() == []
    ledger.apply(ItemWriter(LogPosition(1, 0)).sighting(2, url=b"https://a.example/2").entry(start=LogPosition(1, 0)))
    assert ledger.publish_movers(10, 0.1).estimates.pages.tolist() == [2]


def test_the_first_sweep_publishes_every_page_and_importance_sums_to_1() -> None:
    ledger = crawled()
    first = ledger.publish_movers(1000, 0.1).estimates
    assert len(first.pages) == ledger.pages
    assert first.importance.sum() == pytest.approx(1.0)
    assert len(ledger.publish_movers(1000, 0.1).estimates.pages) == 0


def test_forgotten_records_are_published_again_also_of_pages_that_lost_all_importance() -> None:
    """As of a page that redirects now, to which no page links."""
    ledger = crawled()
    assert len(ledger.publish_movers(1000, 0.1).estimates.pages) == ledger.pages
    ledger.forget_published()
    reader, table = ledger._reader, ledger._room.table
    none, moves = np.zeros(len(reader.rates()[0])), np.empty(len(reader.rates()[0]))
    assert reads.read_movements(table, none, 1.0, ledger.pages, True, 0.1, 0.01, moves) == ledger.pages
    assert len(ledger.publish_movers(1000, 0.1).estimates.pages) == ledger.pages
    assert len(ledger.publish_movers(1000, 0.1).estimates.pages) == 0


def test_records_that_say_no_importance_are_published_again_each_time() -> None:
    ledger = crawled()
    ledger.publish_movers(1000, 0.1)
    reader, room = ledger._reader, ledger._room
    rates = np.zeros(len(reader.rates()[0]))
    moves = np.empty(len(rates))
    reads.mark_published(room.table, room.book, np.arange(len(rates)), rates, rates, True)
    assert reads.read_movements(room.table, rates, 1.0, ledger.pages, True, 0.1, 0.01, moves) == 0
    ledger.forget_published()
    assert reads.read_movements(room.table, rates, 1.0, ledger.pages, True, 0.1, 0.01, moves) == ledger.pages


def test_the_biggest_movers_come_first_and_the_others_later() -> None:
    ledger, whole = crawled(), crawled()
    order = whole.publish_movers(1000, 0.1).estimates
    assert (np.diff(order.score) <= 0).all()  # of pages never published, the move is the score
    some = ledger.publish_movers(7, 0.1).estimates
    rest = ledger.publish_movers(1000, 0.1).estimates
    assert some.pages.tolist() == order.pages[:7].tolist()
    assert rest.pages.tolist() == order.pages[7:].tolist()


def test_only_pages_that_moved_by_more_than_the_share_are_due() -> None:
    ledger = crawled()
    before = ledger.publish_movers(1000, 0.1).estimates
    visit_some(ledger, before.pages[:20].tolist())
    moved = moved_since(before, ledger.estimate_all())
    due = ledger.publish_movers(1000, 0.1).estimates
    assert 0 < len(due.pages) < ledger.pages
    assert set(due.pages.tolist()) == moved


def test_all_pages_have_moved_when_the_crawl_has_more_pages() -> None:
    """Their newest records have more importance than there is."""
    ledger = crawled()
    before = ledger.publish_movers(1000, 0.1).estimates
    log = ItemWriter(LogPosition(10**6, 0))
    for number in range(50):
        log.announcement(10**6 + number, url=b"https://new.example/%d" % number)
    ledger.apply(log.entry(start=ledger.mark("crawl")))
    now = ledger.estimate(before.pages)
    assert (now.importance < 0.9 * before.importance).all()
    assert set(before.pages.tolist()) <= set(ledger.publish_movers(1000, 0.1).estimates.pages.tolist())


def test_pages_off_are_those_that_a_lower_share_would_publish() -> None:
    ledger = crawled()
    before = ledger.publish_movers(1000, 0.1).estimates
    visit_some(ledger, before.pages[:20].tolist())
    off = len(moved_since(before, ledger.estimate_all(), 0.01))
    published, left = ledger.publish_movers(3, 0.1, true_within=0.01)
    assert len(published.pages) == 3 and left == off - 3 > 0
    nothing, still_left = ledger.publish_movers(0, 0.1, true_within=0.01)
    assert (len(nothing.pages), still_left) == (0, left)
    rest, none_left = ledger.publish_movers(1000, 0.01, true_within=0.01)
    assert (len(rest.pages), none_left) == (left, 0)


def test_a_record_that_says_unsettled_is_published_again_once_when_importance_has_settled() -> None:
    """Nothing moves meanwhile: no page is pushed, and the certificate falls by visits alone."""
    ledger = Ledger(LedgerConfig(history=Certified(pushes_per_visit=0)))
    ids = [page_id(url) for url in urls(2)]
    log = ItemWriter()
    for page, other, url in zip(ids, reversed(ids), urls(2), strict=True):
        log.visit(page, [other], url=url)
    ledger.apply(log.entry())
    ledger.apply(TickEntry(DAY))
    assert not ledger.is_settled
    assert len(ledger.publish_movers(10, 0.1).estimates.pages) == 2
    assert len(ledger.publish_movers(10, 0.1).estimates.pages) == 0
    restored = Ledger.restore(chunk.data for chunk in ledger.snapshot())
    while not restored.is_settled:
        visit_some(restored, ids, links_to=ids[::-1])
    importance = restored.estimate(ids).importance
    assert importance == pytest.approx([0.5, 0.5], rel=0.1)
    again = restored.publish_movers(10, 0.9).estimates
    assert sorted(again.pages.tolist()) == sorted(ids)
    assert len(restored.publish_movers(10, 0.9).estimates.pages) == 0
    assert restored.publish_movers(10, 0.9, 0.5).off == 0


def test_when_what_was_published_is_forgotten_all_pages_are_published_again() -> None:
    ledger = crawled()
    first = ledger.publish_movers(1000, 0.1).estimates
    ledger.forget_published()
    again = ledger.publish_movers(1000, 0.1).estimates
    assert again.pages.tolist() == first.pages.tolist() and len(first.pages) == ledger.pages


def visit_some(ledger: Ledger, pages: list[int], links_to: list[int] | None = None) -> None:
    """Visit each page, all of which link to one other."""
    start = ledger.mark("crawl")
    log = ItemWriter(LogPosition(start.offset + 10**6, 0))
    for page, target in zip(pages, links_to or [page_id(urls(1)[0])] * len(pages), strict=True):
        log.visit(page, [target], time_ms=10**7 + start.offset)
    ledger.apply(log.entry(start=start))


def moved_since(before: Estimates, now: Estimates, share: float = 0.1) -> set[int]:
    """Return the pages whose importance or score is off by more than this share of what it was before."""
    known = {page: row for row, page in enumerate(before.pages.tolist())}
    rows = np.array([known[page] for page in now.pages.tolist()])
    is_off = np.zeros(len(rows), bool)
    for name in ("importance", "score"):
        was, is_now = (getattr(one, name) for one in (before, now))
        is_off |= np.abs(is_now - was[rows]) > share * was[rows] * (1 + 1e-6)
    return set(now.pages[is_off].tolist())


def test_what_was_published_survives_a_snapshot() -> None:
    ledger = crawled()
    ledger.publish_movers(20, 0.1)
    restored = Ledger.restore(chunk.data for chunk in ledger.snapshot())
    one, other = (one.publish_movers(1000, 0.1).estimates for one in (restored, ledger))
    assert one.pages.tolist() == other.pages.tolist()


def test_a_page_that_is_born_again_was_never_published() -> None:
    ledger = crawled()
    ledger.publish_movers(1000, 0.1)
    page = page_id(urls(1)[0])
    ledger.apply(PolicyEntry("policies", LogPosition(0, 0), LogPosition(1, 0), drop=(page,)))
    log = ItemWriter(LogPosition(10**6, 0)).announcement(page, url=urls(1)[0])
    ledger.apply(log.entry(start=ledger.mark("crawl")))
    assert page in ledger.publish_movers(1000, 0.1).estimates.pages.tolist()


def test_urls_come_in_the_requested_order() -> None:
    ledger = crawled(8)
    names = urls(8)
    starts, text = ledger.urls(np.array([page_id(names[3]), 77, page_id(names[0])], np.uint64))
    found = [text[a:b].tobytes() for a, b in itertools.pairwise(starts)]
    assert found == [names[3], b"", names[0]]


def test_ranked_is_top_of_all_pages() -> None:
    ledger = crawled()
    assert ledger.ranked().tolist() == ledger.top(1000).pages.tolist()


def test_estimates_in_parts_are_the_same_with_one_sum() -> None:
    ledger = crawled()
    whole = ledger.estimate_all()
    parts = [ledger.estimate(whole.pages[at : at + 7], ledger.rate_sum()).importance for at in range(0, 50, 7)]
    assert np.concatenate(parts).tolist() == whole.importance.tolist()


def test_every_row_has_a_fate() -> None:
    ledger = Ledger()
    ledger.apply(PolicyEntry("policies", LogPosition(0, 0), LogPosition(1, 0), forget=(9,)))
    log = ItemWriter().visit(1, [2], time_ms=2000).visit(1, [2], time_ms=2000).visit(1, [2], time_ms=1000)
    entry = log.visit(9, []).sighting(4).visit(1, [2], time_ms=3000).entry()
    expected = [Fate.TAKEN, Fate.DUPLICATE, Fate.LATE, Fate.REFUSED, Fate.TAKEN, Fate.TAKEN]
    assert ledger.apply(entry).fates.tolist() == expected
    assert ledger.apply(entry).fates.tolist() == []


def test_fates_are_those_of_the_rows_that_were_new() -> None:
    ledger = Ledger()
    log = ItemWriter().visit(1, [2], time_ms=2000).visit(2, [], time_ms=1)
    ledger.apply(log.entry())
    longer = log.visit(1, [2], time_ms=2000).visit(3, [1])
    assert ledger.apply(longer.entry()).fates.tolist() == [Fate.DUPLICATE, Fate.TAKEN]


def test_sightings_sent_again_leave_the_same_snapshot() -> None:
    once, twice = Ledger(), Ledger()
    for ledger, times in ((once, 1), (twice, 3)):
        log = ItemWriter().visit(1, [2])
        for _ in range(times):
            log.sighting(2, url=b"https://a.example/")
        ledger.apply(log.entry())
        ledger.apply(ItemWriter(LogPosition(10, 0)).visit(2, [1]).entry(start=ledger.mark("crawl")))
    a, b = (ledger.estimate_all() for ledger in (once, twice))
    assert a.importance.tolist() == b.importance.tolist()
    assert once.balance() == twice.balance()


def test_pages_read_counts_pages_that_answered() -> None:
    ledger = Ledger()
    assert ledger.pages_read == 0
    ledger.apply(announcements(page_ids(10, 1)))
    assert (ledger.pages, ledger.pages_read) == (10, 0)
    ledger.apply(ItemWriter().visit(5, [6]).visit(5, []).visit(7).entry())
    assert ledger.pages_read == 2
