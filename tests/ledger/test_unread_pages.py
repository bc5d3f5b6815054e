"""Discovery that learns, in the ledger: the order of URLs, who found whom, reviews, orders."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opicflow.pipelines.discovery import Discovery
from opicflow.pipelines.ledger import Certified, Ledger, LedgerConfig, Outcome, RefreshConfig, SnapshotRefused
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages import url_order
from opicflow.pipelines.ledger.plan.crawl_orders import BY, EXPLORING
from opicflow.pipelines.ledger.shards import snapshot as snapshots
from opicflow.schemas.pages import page_id
from opicflow.schemas.records import Policy
from support.thorough import examples
from tests.support.written_crawls import DAY, T0, Crawl, ordered

REFRESH = RefreshConfig(bandwidth_per_day=20.0, discovery_share=1.0)
LEARNT = LedgerConfig(refresh=REFRESH)


def in_directories(page: int) -> str:
    """Twelve hosts of very unequal size, each with directories."""
    host = min((page * 2_654_435_761 >> 7) % 4096, 4095).bit_length()
    scheme = "http" if page % 5 == 0 else "https"
    return f"{scheme}://www.host{host}.example/d{page % 7}/{'x' * (page % 11)}{page // 3}"


def order_key(url: bytes) -> tuple[bytes, bytes, int]:
    """Return the key by which URLs are ordered, written another way than the kernel."""
    host, _, path = url.partition(b"://")[2].partition(b"/")
    return host[::-1], path, len(url)


def crawl_of(config: LedgerConfig = LEARNT) -> Crawl:
    return Crawl(config, name=in_directories)


@cache
def numbers_of_ids() -> dict[int, int]:
    return {page_id(in_directories(page)): page for page in range(3_000)}


def a_day(crawl: Crawl, day: int, most: int = 20, links: int = 12) -> list[int]:
    """Read what the ledger orders, and then some, with links to pages that may be new."""
    second = T0 + day * DAY
    crawl.tick(second)
    known = numbers_of_ids()
    numbers = [known[page] for page in ordered(crawl.plan())][:most]
    log = crawl.writer()
    for number in numbers or range(5):
        linked = [(number * 31 + k * k) % 3_000 for k in range(links)]
        crawl.add_visit(log, number, second + 60, links=linked, digest=day)
        for page in linked:
            log.sighting(crawl.id(page), url=crawl.name(page).encode())
    crawl.apply(log)
    return numbers


def crawled(days: int, config: LedgerConfig = LEARNT) -> Crawl:
    crawl = crawl_of(config)
    for day in range(days):
        a_day(crawl, day)
    return crawl


# The order of URLs


def order_of(ledger: Ledger) -> tuple[list[bytes], list[bool]]:
    """Return the URLs in the order that the ledger keeps, and which URLs begin a host."""
    ledger._unread.update_order()
    ids = ledger._room.table.hot[slots_of(ledger), 0].view(np.uint64).tolist()
    return [ledger.url(page) or b"" for page in ids], (ledger._room.book.url_order < 0).tolist()


def slots_of(ledger: Ledger) -> Any:
    stored = ledger._room.book.url_order
    return np.where(stored >= 0, stored, ~stored)


def host_of(url: bytes) -> bytes:
    return url.split(b"/")[2]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400), st.integers(1, 150)), max_size=8), st.booleans())
def test_the_order_of_urls_is_that_of_a_sort_after_any_births_and_removals(
    steps: list[tuple[bool, int, int]], has_one_host: bool
) -> None:
    crawl = crawl_of()
    if has_one_host:
        crawl.name = "https://one.example/{}/same-for-many-bytes/".format
    known: set[int] = set()
    for is_removal, first, count in steps:
        pages = range(first, first + count)
        if is_removal:
            crawl.ledger._removal.drop(np.array([crawl.id(page) for page in pages], np.uint64))
            known -= set(pages)
        else:
            crawl.see(pages)
            known |= set(pages)
        urls, is_first = order_of(crawl.ledger)
        expected = sorted((crawl.name(page).encode() for page in known), key=order_key)
        assert urls == expected
        hosts = [host_of(url) for url in urls]
        assert is_first == [row == 0 or hosts[row] != hosts[row - 1] for row in range(len(hosts))]


def test_many_urls_that_begin_alike_are_ordered() -> None:
    """The sort by eight bytes at a time goes deep, and to the end of URLs that others go on from."""
    names = ["https://a.example/" + "0123456789" * 20 + "x" * (page % 50) + str(page // 50) for page in range(2_000)]
    names[:6] = [
        "https://a.example/",
        "http://a.example/",
        "https://b.a.example/",
        "https://aa.example/",
        "https://a.example:81/",
        "https://a.example/?",
    ]
    crawl = crawl_of()
    crawl.name = names.__getitem__
    crawl.see(range(2_000))
    assert order_of(crawl.ledger)[0] == sorted((name.encode() for name in names), key=order_key)


def test_urls_that_are_none_and_urls_of_many_pages_are_ordered() -> None:
    """The log of a ledger may hold any bytes. The order of pages whose URLs are alike is that of their ids."""
    urls = [b"", b"a", b"http", b"http:", b"http://", b"https://", b"https://a", b"https://a.example/"]
    urls += [b"https://a.example/" + b"\0" * end for end in range(1, 40)] + [bytes(65_535), b"\xff" * 65_535]
    crawls = [crawl_of(), crawl_of()]
    rows = [
        (1 + 1_000 * number + page, url)
        for number, url in enumerate(urls)
        for page in range(30 if len(url) < 100 else 3)  # long URLs take seconds
    ]
    for crawl, ordered_rows in zip(crawls, (rows, rows[::-1]), strict=True):
        for part in (ordered_rows[:700], ordered_rows[700:]):
            log = crawl.writer()
            for page, url in part:
                log.sighting(page, url=url)
            crawl.apply(log)
            order_of(crawl.ledger)
    found = [order_of(crawl.ledger) for crawl in crawls]
    assert found[0] == found[1] and len(found[0][0]) == sum(url != b"" for _, url in rows)
    ids = [crawl.ledger._room.table.hot[slots_of(crawl.ledger), 0].tolist() for crawl in crawls]
    assert ids[0] == ids[1]
    assert crawls[0].restored().bytes() == crawls[0].bytes()


def test_an_order_that_could_not_be_made_is_made_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    crawl = crawl_of()
    crawl.see(range(300))
    order_of(crawl.ledger)
    crawl.ledger._removal.drop(np.array([crawl.id(page) for page in range(0, 300, 7)], np.uint64))
    crawl.see(range(300, 400))
    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(url_order, "merge_by_url", fail)
        crawl.preview()
    known = (page for page in range(400) if page >= 300 or page % 7)
    assert order_of(crawl.ledger)[0] == sorted((crawl.name(page).encode() for page in known), key=order_key)


# Who found whom


def finder_of(crawl: Crawl, page: int) -> int | None:
    table = crawl.ledger._room.table
    slot = int(crawl.ledger._reader.slots_of(np.array([crawl.id(page)], np.uint64))[0])
    finder = int(table.found_by[slot]) - 1
    return None if finder < 0 else int(table.hot[finder, 0].view(np.uint64))


@pytest.mark.parametrize("history", ["interpolation", "certified"])
def test_the_first_link_that_leads_to_a_page_has_found_it(history: str) -> None:
    crawl = crawl_of(replace(LEARNT, history=Certified()) if history == "certified" else LEARNT)
    crawl.see([7])
    crawl.visit(0, T0, links=(1, 2))
    crawl.visit(1, T0, links=(2, 3, 7))
    assert [finder_of(crawl, page) for page in (1, 2, 3)] == [crawl.id(0), crawl.id(0), crawl.id(1)]
    assert finder_of(crawl, 0) is None and finder_of(crawl, 7) is None


def test_pages_that_a_removed_page_has_found_have_no_known_finder() -> None:
    crawl = crawl_of()
    crawl.visit(0, T0, links=(1, 2))
    crawl.visit(1, T0, links=(3,))
    crawl.ledger._removal.drop(np.array([crawl.id(0)], np.uint64))
    crawl.see([4])  # it gets the slot
    assert finder_of(crawl, 1) is None and finder_of(crawl, 2) is None and finder_of(crawl, 3) == crawl.id(1)


# Reviews


@pytest.mark.parametrize("seed", range(5))
def test_of_many_pages_about_one_in_a_hundred_is_below_the_floor(seed: int) -> None:
    """The floor is that of a sample of them. Half of them have no importance yet, and do not count."""
    random, unread = np.random.default_rng(seed), crawl_of().ledger._unread
    importance = (random.pareto(1.1, 400_000) + 1e-9) * random.integers(0, 2, 400_000)
    has_some = importance > 0.0
    units = importance[has_some].copy()
    found = unread._in_floors(importance) / unread.reviews.discovery.rule.floor
    assert found[has_some] == pytest.approx(units * (found[has_some][0] / units[0]))
    assert 0.007 < (found[has_some] < 1.0).mean() < 0.013
    assert (found[~has_some] == 0.0).all()


def test_a_review_begins_when_a_cycle_has_passed_and_enough_was_read() -> None:
    crawl = crawl_of()
    reviews = crawl.ledger._unread.reviews
    crawl.tick(T0)
    assert reviews.second == -1  # nothing was read
    crawl.see(range(1_000))
    crawl.read(range(10), T0)
    crawl.tick(T0 + DAY)
    assert reviews.second == -1  # less than one in 64
    crawl.read(range(10, 20), T0)
    crawl.tick(T0 + DAY + 3600)
    assert reviews.second == T0 + DAY + 3600 and reviews.read == 20
    crawl.read(range(20, 60), T0)
    crawl.tick(T0 + 2 * DAY)
    assert reviews.second == T0 + DAY + 3600  # the cycle has not passed
    crawl.tick(T0 + 3 * DAY)
    assert reviews.second == T0 + 3 * DAY and reviews.read == 60
    assert [len(one.page) for one in reviews.discovery.waiting] == [20, 40]


def test_a_review_counts_what_was_read_although_pages_were_removed() -> None:
    crawl = crawl_of()
    reviews = crawl.ledger._unread.reviews
    crawl.see(range(200))
    crawl.read(range(100), T0)
    crawl.tick(T0)
    assert reviews.second == T0 and reviews.read == 100
    removed = [crawl.id(page) for page in (*range(60), 3, 199)]
    crawl.ledger._removal.drop(np.array(removed, np.uint64))
    assert reviews.read == 40
    crawl.read(range(100, 140), T0)
    crawl.tick(T0 + DAY)
    assert reviews.second == T0 + DAY and reviews.read == 80
    assert [len(one.page) for one in reviews.discovery.waiting] == [100, 40]


def test_a_page_that_was_read_before_its_url_was_known_is_not_judged() -> None:
    crawl = crawl_of()
    crawl.apply(crawl.writer().visit(crawl.id(0), [], time_ms=1000 * T0))
    crawl.tick(T0)
    reviews = crawl.ledger._unread.reviews
    assert reviews.second == T0 and reviews.read == 1
    crawl.see(range(2))
    crawl.visit(1, T0)
    crawl.tick(T0 + DAY)
    assert reviews.read == 2 and [len(one.page) for one in reviews.discovery.waiting] == [0, 1]


@pytest.mark.parametrize("zeros", [0, 1, 5, 300])
def test_importance_has_the_same_units_whatever_pages_have_none(zeros: int) -> None:
    unread, rule = crawl_of().ledger._unread, Discovery().rule
    importance = np.concatenate((np.zeros(zeros), np.full(250, 3e-7), np.full(50, 9e-7)))
    found = unread._in_floors(importance)
    assert np.allclose(found[zeros:], np.where(np.arange(300) < 250, rule.floor, 3 * rule.floor))
    assert not found[:zeros].any()
    assert not unread._in_floors(np.zeros(zeros)).any()


def flags(crawl: Crawl) -> Any:
    return crawl.ledger._room.table.pages["flags"][: crawl.ledger._room.book.counts[0].slots]


def test_pages_that_were_tried_or_are_forbidden_are_not_chosen_to_explore() -> None:
    crawl = crawl_of(replace(LEARNT, refresh=replace(REFRESH, bandwidth_per_day=1_000.0)))
    crawl.tick(T0)
    crawl.visit(0, T0, links=range(1, 150))
    crawl.see(range(150))
    for page in range(100, 150):
        crawl.visit(page, T0, Outcome.FAILED)
    crawl.publish(Policy(host="www.host11.example", refresh_forbidden=True))
    crawl.ledger._unread.reviews.discovery.share = 0.7
    for day in range(1, 30):
        crawl.tick(T0 + day * DAY)
        crawl.read([(day * 13 + k) % 100 for k in range(5)], T0 + day * DAY)
        marked = np.flatnonzero((flags(crawl) & at.EXPLORED) != 0)
        rows = crawl.ledger._room.table.pages[marked]
        assert not ((rows["class_"] & 1 == 0) & (rows["visits"] > 0)).any()
        ids = crawl.ledger._room.table.hot[marked, 0].view(np.uint64).tolist()
        assert not any(b"host11." in (crawl.ledger.url(page) or b"") for page in ids)


# Orders


def test_explored_and_other_pages_are_ordered_as_learnt() -> None:
    crawl = crawled(25)
    crawl.tick(T0 + 26 * DAY)
    planned = crawl.preview()
    orders, worth = planned.orders, planned.survey.worth
    assert worth is not None and crawl.ledger._unread.reviews.second > 0
    by = orders.by[orders.why == 1]
    assert set(by.tolist()) == {BY.index("worth"), EXPLORING}
    assert (by == EXPLORING).sum() <= round(worth.share * len(by))
    rows = orders.rows[orders.why == 1]
    assert worth.marked[rows[by == EXPLORING]].all()
    assert (np.diff(orders.priority[orders.why == 1]) <= 0).all()
    assert not orders.by[orders.why != 1].any()


def test_plans_and_previews_learn_nothing() -> None:
    one, other = crawled(8), crawled(8)
    one.preview()
    one.ledger.preview(refresh=replace(REFRESH, discovery_share=0.5))
    assert one.bytes() == other.bytes()


@pytest.mark.parametrize("by", ["importance", "cash", "found"])
def test_other_discoveries_keep_nothing_and_order_by_what_they_are_named_after(by: str) -> None:
    crawl = crawled(6, replace(LEARNT, refresh=replace(REFRESH, discovery_by=by)))
    planned = crawl.preview()
    assert planned.survey.worth is None and not planned.orders.by.any()
    assert len(crawl.ledger._room.table.found_by) == len(crawl.ledger._room.book.url_order) == 0
    is_new = planned.orders.why == 1
    rows = planned.orders.rows[is_new]
    values = {
        "importance": planned.survey.importance,
        "cash": planned.survey.waiting,
        "found": -planned.survey.slots,
    }[by][rows]
    assert len(rows) > 5 and (np.diff(values.astype(float)) <= 0).all()


def test_policies_weigh_unread_pages() -> None:
    crawl = crawl_of(replace(LEARNT, refresh=replace(REFRESH, bandwidth_per_day=3.0)))
    crawl.see(range(100))
    crawl.tick(T0)
    favoured = in_directories(57)
    crawl.publish(Policy(url=favoured, importance_factor=100.0))
    assert favoured.encode() in [crawl.ledger.url(page) for page in ordered(crawl.preview())]


# State


@pytest.mark.slow
@examples(6, 100)
@given(st.integers(0, 24), st.integers(0, 3))
def test_a_restored_ledger_goes_on_with_the_same_bytes(day: int, later: int) -> None:
    crawl = crawled(day)
    other = crawl.restored()
    assert other.bytes() == crawl.bytes()
    for more in range(day, day + later):
        assert a_day(crawl, more) == a_day(other, more)
    assert other.bytes() == crawl.bytes()


def test_when_the_order_of_urls_was_merged_leaves_no_trace() -> None:
    one, other = crawl_of(), crawl_of()
    for day in range(6):
        a_day(one, day)
        one.preview()
        one.ledger._unread.update_order()
        a_day(other, day)
    assert one.bytes() == other.bytes()


def test_the_option_may_change_on_a_ledger() -> None:
    crawl = crawled(6)
    crawl.ledger.change_refreshing(replace(REFRESH, discovery_by="importance"))
    assert not (flags(crawl) & ~at.OF_THE_LEDGER).any()
    assert crawl.preview().survey.worth is None
    assert crawl.restored().bytes() == crawl.bytes()
    crawl.ledger.change_refreshing(REFRESH)
    for day in range(6, 20):
        a_day(crawl, day)
    assert crawl.ledger._unread.reviews.second > T0 + 6 * DAY
    assert crawl.restored().bytes() == crawl.bytes()


def test_discovery_takes_at_most_twelve_bytes_a_page() -> None:
    crawl, plain = crawled(25), crawled(25, replace(LEARNT, refresh=replace(REFRESH, discovery_by="importance")))
    a_page = [sum(map(len, one.bytes())) / one.ledger.pages for one in (crawl, plain)]
    columns = crawl.ledger._room.table.found_by[:1].nbytes + crawl.ledger._room.book.url_order[:1].nbytes
    assert columns == 8
    judged = sum(len(one.page) for one in crawl.ledger.discovery.waiting) * 17 / crawl.ledger.pages
    assert columns + judged < 12 and a_page[0] - a_page[1] < 40  # pages differ, and the state has some plain values


def altered(crawl: Crawl, damage: str) -> list[bytes]:
    """A snapshot with a right digest whose discovery makes no sense."""
    ledger = copy.copy(crawl.ledger)
    chunks = [chunk.data for chunk in ledger.snapshot()]
    values, config, columns, *_ = snapshots.read(chunks)
    table, book = ledger._room.table, ledger._room.book
    judged = {name: columns[name] for name in snapshots.JUDGED_COLUMNS}
    order, reviews = book.url_order.copy(), values["reviews"]
    if damage == "twice":
        order[1] = order[2]
    elif damage == "outside":
        order[1] = 1 << 30
    elif damage == "begins":
        order[0] = ~order[0]
    elif damage == "finder":
        table = table._replace(found_by=table.found_by.copy())
        table.found_by[0] = 1 << 30
    elif damage == "finder removed":
        crawl.ledger._removal.drop(np.array([crawl.id(0)], np.uint64))
        return altered(crawl, "finder of a free slot")
    elif damage == "finder of a free slot":
        table = table._replace(found_by=table.found_by.copy())
        live = np.flatnonzero(table.pages["flags"][: len(table.found_by)])
        table.found_by[live[0]] = 1 + int(table.free[0])
    elif damage == "exchanged":
        order[[3, 9]] = order[[9, 3]]
    elif damage == "host":
        inside = int(np.flatnonzero(order >= 0)[0])
        order[inside] = ~order[inside]
    elif damage == "parts":
        del reviews["read"]
    elif damage == "reviews":
        del values["reviews"]
    elif damage == "explored":
        judged["judged_explored"] = np.full_like(judged["judged_explored"], 7)
    elif damage in judged:
        judged[damage] = np.full_like(judged[damage], np.nan)
    elif damage.startswith("large "):
        name = damage.removeprefix("large ")
        judged[name] = np.full_like(judged[name], 3e38)
    book = book._replace(url_order=order)
    return [chunk.data for chunk in snapshots.write(values, config, table, book, judged, snapshots.NO_QUALITIES)]


DAMAGES = [
    "twice",
    "outside",
    "begins",
    "exchanged",
    "host",
    "finder",
    "finder removed",
    "parts",
    "reviews",
    "explored",
]
DAMAGES += ["judged_own", "judged_siblings", "large judged_own", "large judged_siblings"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_snapshot_whose_discovery_cannot_be_is_refused(damage: str) -> None:
    crawl = crawled(8)
    assert crawl.ledger.discovery.waiting
    with pytest.raises(SnapshotRefused) as refused:
        Ledger.restore(altered(crawl, damage))
    assert "\n" not in str(refused.value)


NO_VALUES: list[Any] = [True, 0, -1, 1 << 70, math.nan, math.inf, -1e308, 1e308, "", "a", [], {}, [None], {"a": 1.0}]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ["second", "read", "share", "seen", "followed", "credits", "waiting"])
def test_a_snapshot_with_any_other_value_of_what_was_learnt_is_refused(name: str) -> None:
    ledger = crawled(8).ledger
    values, config, columns, *_ = snapshots.read([chunk.data for chunk in ledger.snapshot()])
    judged = {column: columns[column] for column in snapshots.JUDGED_COLUMNS}
    stored = values["reviews"][name]
    wrongs = [None, *NO_VALUES]
    if name == "second":
        wrongs.remove(0)  # a review may have begun in 1970
    if isinstance(stored, list):
        inner = NO_VALUES if name == "credits" else [None, *NO_VALUES]  # a credit may be None: nothing was explored
        wrongs += [[*stored[:row], wrong, *stored[row + 1 :]] for row in range(len(stored)) for wrong in inner]
    for wrong in wrongs:
        values["reviews"][name] = wrong
        table, book = ledger._room.table, ledger._room.book
        chunks = snapshots.write(values, config, table, book, judged, snapshots.NO_QUALITIES)
        with pytest.raises(SnapshotRefused) as refused:
            Ledger.restore([chunk.data for chunk in chunks])
        assert "\n" not in str(refused.value)


# Shards


def test_hosts_are_ordered_alike_in_any_number_of_shards() -> None:
    """A host lives in one shard: the worth of its pages differs by what shards know of importance alone."""
    whole, parts = crawl_of(), [Crawl(LEARNT, shard, 4, name=in_directories) for shard in range(4)]
    whole.see(range(600))
    for part in parts:
        first, last = part.ledger.ranges.bounds(part.shard)
        part.see([page for page in range(600) if first <= part.id(page) <= last])
    urls = [order_of(part.ledger)[0] for part in parts]
    assert sum(map(len, urls)) == 600 and sum(map(bool, urls)) > 1
    all_urls = order_of(whole.ledger)[0]
    for part in urls:
        mine = set(part)
        assert part == [url for url in all_urls if url in mine]
        assert {host_of(url) for url in part}.isdisjoint({host_of(url) for url in all_urls if url not in mine})
