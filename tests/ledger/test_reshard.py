"""Another number of shards: every page keeps its cash and history, and nothing is lost, to the unit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import (
    HISTORIES,
    Balance,
    Certified,
    CrawlEntry,
    DomainLimits,
    Interpolation,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    PolicyEntry,
    RefreshConfig,
    TickEntry,
)
from opicflow.pipelines.ledger.pages.announcements import IN_USE
from opicflow.pipelines.ledger.pages.layout import UNSETTLED_RECORD
from opicflow.pipelines.ledger.pages.refresh_rows import rows_of
from opicflow.pipelines.ledger.shards.reshard import ReshardRefused, exchange, reshard
from opicflow.pipelines.ledger.shards.whole_web import divided
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.schemas.pages import PageIds
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges
from support.crawls import Crawl as WebCrawl
from support.ranges import any_ranges
from support.shards import Faults, Shards
from support.strategies import Log, Row, configs, entries_of, logs
from support.thorough import crossed, examples, thorough
from support.written_crawls import DAY, T0, Crawl


def run(config: LedgerConfig, steps: Log, ranges: ShardRanges) -> list[Ledger]:
    """Shards that have applied a log, and all that they have sealed for each other, and published some pages."""
    ledgers = [Ledger(config, shard, ranges) for shard in range(ranges.count)]
    sealed = []
    for shard, ledger in enumerate(ledgers):
        for entry in entries_of(steps, lambda row: row % 3 == 0, is_of(ranges, shard)):
            sealed += ledger.apply(entry).sealed
    for other, entry in sealed:
        ledgers[other].apply(entry)
    exchange(ledgers)
    for ledger in ledgers:
        ledger.publish_movers(3, 0.1)
    return ledgers


def balance_of(ledgers: list[Ledger]) -> Balance:
    books = [ledger.audit() for ledger in ledgers]
    return Balance(*(sum(getattr(one, column.name) for one in books) for column in fields(Balance)))


def pages_of(ledgers: list[Ledger]) -> dict[int, tuple[object, ...]]:
    """Return all data of every page, whatever its shard is."""
    found = {}
    for ledger in ledgers:
        estimates = ledger.estimate_all()
        ids = estimates.pages
        starts, text = ledger.urls(ids)
        link_starts, links, weights = ledger.remembered(ids)
        columns = [ids, estimates.cash, ledger.waiting_cash(ids), estimates.rate, ledger.categories(ids)]
        _, table, _, _ = ledger.parts()
        slots = ledger._reader.slots_of(ids)
        for row, (page, *values) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            first, last = link_starts[row : row + 2].tolist()
            kept = table.pages[slots[row]]
            found[page] = (
                *values,
                bytes(text[starts[row] : starts[row + 1]]),
                list(zip(links[first:last].tolist(), weights[first:last].tolist(), strict=True)),
                [int(kept[name]) for name in ("visits", "aside", "theta", "last_visit_ms", "class_", "outcome")],
                [float(kept["published_importance"]), float(kept["published_score"])],
                bool(kept["flags"] & UNSETTLED_RECORD),
                rows_of(table, slots[row : row + 1]).tobytes(),
                ledger.quality(page),
            )
    return found


def check_same(old: list[Ledger], new: list[Ledger], ranges: ShardRanges) -> None:
    for shard, ledger in enumerate(new):
        assert (ledger.shard, ledger.ranges) == (shard, ranges)
        ids = ledger.estimate_all().pages
        assert (ranges.of(ids) == shard).all()
        snapshot = ledger.snapshot()
        assert Ledger.restore([chunk.data for chunk in snapshot], ledger.page_ids).snapshot() == snapshot
    assert pages_of(new) == pages_of(old)
    before, after = balance_of(old), balance_of(new)
    assert after.drift == 0 and after.minted == before.minted and after.absorbed == before.absorbed
    assert after.sent == after.received
    assert (
        after.cash + after.virtual == before.cash + before.uncollected + before.virtual + before.sent - before.received
    )
    for name in ("visits", "transfers", "clock", "shares"):
        assert sum(getattr(one, name) for one in new) == pytest.approx(sum(getattr(one, name) for one in old))
    assert {one.pages_everywhere for one in new} == {sum(one.pages for one in old)}
    if len(old) == len(new) == 1:
        assert new[0].estimate_all().importance.tolist() == old[0].estimate_all().importance.tolist()


def is_of(ranges: ShardRanges, shard: int) -> Callable[[int], bool]:
    return lambda page: int(ranges.of(np.array([page], np.uint64))[0]) == shard


@pytest.mark.slow
@examples(40, 1000)
@given(st.data(), st.sampled_from([1, 2, 3, 5]), st.sampled_from([1, 2, 4, 7]), st.integers(0, 1 << 16))
def test_any_log_in_any_shards(data: st.DataObject, shards: int, others: int, seed: int) -> None:
    config = data.draw(configs())
    steps = data.draw(logs(config.categories))
    ranges = any_ranges(others, seed + 1)
    old = run(config, steps, any_ranges(shards, seed))
    check_same(old, list(reshard(old, ranges)), ranges)


@pytest.mark.slow_but_first
@pytest.mark.thorough
@pytest.mark.parametrize(("history", "shards", "others"), crossed(sorted(HISTORIES), [1, 4], [1, 3, 8]))
def test_a_crawl_goes_on_in_other_shards(history: str, shards: int, others: int) -> None:
    web = power_law_web(thorough(150, 400), 1)
    config = LedgerConfig(HISTORIES[history](), remember_links=history == "certified")
    world = Shards(config, shards, 1, Faults())
    crawl = WebCrawl(world, web, "random", 1).run(3)
    world.drain(T0)
    exchange(world.ledgers)
    ranges = any_ranges(others, 2)
    new = list(reshard(world.ledgers, ranges))
    check_same(world.ledgers, new, ranges)
    later = Shards(config, others, 2, Faults())
    later.ranges, later.ledgers = ranges, new
    for feed in later._feeds:
        feed.end = LogPosition(crawl._offset, 0)
        assert new[0].mark("crawl") in (feed.end, new[-1].mark("crawl"))
    crawl.ledger = later
    for second in range(6):
        crawl.run(1)
        later.drain(T0 + 60 * second + 60)
    assert later.balance().drift == 0
    assert sum(ledger.visits for ledger in new) == round(9 * web.pages)
    exact = pagerank(web).values
    if history == "certified":
        for second in range(60):
            later.drain(T0 + 1000 + second)
        certificate = max(ledger.certificate() or 0.0 for ledger in new)
        assert np.abs(later.importance(crawl.ids) - exact).sum() <= certificate <= 0.01
    else:
        assert np.abs(later.shares(crawl.ids) - exact).sum() < 0.35


def test_a_certificate_is_the_same_in_other_shards() -> None:
    web = power_law_web(500, 3)
    world = Shards(LedgerConfig(Certified()), 3, 1)
    crawl = WebCrawl(world, web, "cycle", 1).run(2)
    world.drain(T0)
    exchange(world.ledgers)
    before = {ledger.certificate() for ledger in world.ledgers}
    (certificate,) = before
    importance = world.importance(crawl.ids)
    for shards in (2, 5, 1):
        ranges = any_ranges(shards, 4)
        new = list(reshard(world.ledgers, ranges))
        assert [ledger.certificate() for ledger in new] == pytest.approx([certificate] * shards)
        owners = ranges.of(crawl.ids)
        same = np.concatenate([new[shard].estimate(crawl.ids[owners == shard]).importance for shard in range(shards)])
        order = np.argsort(owners, kind="stable")
        assert same == pytest.approx(importance[order], rel=1e-9)


@pytest.mark.slow
@examples(40, 500)
@given(
    logs().map(lambda steps: [step for step in steps if isinstance(step, Row)]).filter(len),
    st.sampled_from([2, 3]),
    st.sampled_from([1, 2, 5]),
    st.integers(0, 1 << 16),
)
def test_what_one_shard_had_and_another_had_not_counts_once(steps: Log, shards: int, others: int, seed: int) -> None:
    """Each shard had its own part of a source. The source is read again from the hindmost shard's position."""
    chance = np.random.default_rng(seed)
    ranges, later = any_ranges(shards, seed), any_ranges(others, seed + 1)
    config = LedgerConfig(remembered_visits=0)
    old = [Ledger(config, shard, ranges) for shard in range(shards)]
    sealed = []
    for shard, ledger in enumerate(old):
        entries = entries_of(
            steps, lambda row: True, lambda page, s=shard: int(ranges.of(np.array([page], np.uint64))[0]) == s
        )
        for entry in entries[: int(chance.integers(0, len(entries) + 1))]:
            sealed += ledger.apply(entry).sealed
    for other, entry in sealed:
        old[other].apply(entry)
    exchange(old)
    new = list(reshard(old, later))
    check_same(old, new, later)
    (start,) = {ledger.mark("crawl") for ledger in new}
    assert start == LogPosition(min(ledger.mark("crawl") for ledger in old).offset, 0)
    rest = [step for step in steps if isinstance(step, Row) and step.position.offset >= start.offset]
    for shard, ledger in enumerate(new):
        here = is_of(later, shard)
        for entry in entries_of(rest, lambda row: row % 2 == 0, here):
            assert isinstance(entry, CrawlEntry)
            ledger.apply(replace(entry, start=max(entry.start, start), counted_from=start.offset))
            chunks = [chunk.data for chunk in ledger.snapshot()]
            assert [chunk.data for chunk in Ledger.restore(chunks).snapshot()] == chunks
        assert ledger.mark("crawl") >= max((row.position for row in rest if here(row.page)), default=start)
    whole = Ledger(config)
    for entry in entries_of(steps):
        whole.apply(entry)
    assert visits_of(new) == visits_of([whole])


def visits_of(ledgers: list[Ledger]) -> dict[int, int]:
    counted = [ledger.estimate_all() for ledger in ledgers]
    return {
        page: visits for one in counted for page, visits in zip(one.pages.tolist(), one.visits.tolist(), strict=True)
    }


def busy_crawl(config: LedgerConfig, page_ids_: PageIds) -> Ledger:
    """A ledger with something of everything that is no page."""
    crawl = Crawl(config)
    crawl.ledger = Ledger(config, page_ids=page_ids_)
    crawl.id = lambda page: page_ids_.of(crawl.name(page))  # type: ignore[method-assign]
    crawl.see(range(60)).tick(T0)
    for day in range(1, 6):
        log = crawl.writer()
        for page in range(day * 8):
            url, changed_ms = crawl.name(page).encode(), 1000 * (T0 + day * DAY)
            log.announcement(crawl.id(page), url=url, modified_ms=changed_ms, quality=page % 5)
        crawl.apply(log)
        crawl.read(range(day * 8), T0 + day * DAY)
        crawl.visit(50 + day, T0 + day * DAY, Outcome.BUSY)
        crawl.tick(T0 + day * DAY + 1)
    crawl.publish(Policy(url=crawl.name(3), forget=True), Policy(host="host1.example", importance_factor=3.0))
    crawl.tick(T0 + 6 * DAY)
    crawl.plan()
    return crawl.ledger


@pytest.mark.parametrize("limits", [DomainLimits(), DomainLimits(most_unread=30)])
def test_what_is_no_page_goes_to_all_that_it_concerns(limits: DomainLimits) -> None:
    ids = PageIds(key=bytes(16))
    config = LedgerConfig(
        Certified(), domains=limits, refresh=RefreshConfig(discovery_by="learnt", bandwidth_per_day=100)
    )
    old = busy_crawl(config, ids)
    state, _, book, _ = old.parts()
    assert state.busy_hosts and state.reviews.discovery.waiting and len(book.forgotten) and len(state.policies)
    assert book.announced[:, IN_USE].any()
    ranges = ShardRanges.even(old.estimate_all().pages, 3)
    new = list(reshard([old], ranges))
    check_same([old], new, ranges)
    parts = [ledger.parts() for ledger in new]
    assert all(one.state.busy_hosts == state.busy_hosts for one in parts)
    assert all(one.state.policies.to_json() == state.policies.to_json() for one in parts)
    assert sum(len(one.book.forgotten) for one in parts) == len(book.forgotten)
    assert sum(ledger.planned_second for ledger in new) == 3 * old.planned_second
    (back,) = reshard(new, ShardRanges())
    check_same(new, [back], ShardRanges())
    assert back.policies.to_json() == old.policies.to_json()
    judged = [sorted(one.page.tolist()) for one in state.reviews.discovery.waiting]
    assert [sorted(one.page.tolist()) for one in back.discovery.waiting] == judged
    if not limits.limit_anything:
        assert np.allclose(back.parts().book.announced[:, IN_USE], book.announced[:, IN_USE])
    for ledger in (back, *new):
        ledger.apply(TickEntry(T0 + 8 * DAY))
        ledger.audit()


def test_only_whole_webs_with_the_same_rules_are_divided() -> None:
    ranges = ShardRanges.equal(2)
    first, second = Ledger(None, 0, 2), Ledger(None, 1, 2)
    for wrong in ([], [first], [second, first]):
        with pytest.raises(ReshardRefused, match="not those of all shards"):
            list(reshard(wrong, ranges))
    with pytest.raises(ReshardRefused, match="shard 1 has other rules"):
        list(reshard([first, Ledger(LedgerConfig(Interpolation(3.0)), 1, 2)], ranges))
    first.apply(
        PolicyEntry(
            "p", LogPosition(0, 0), LogPosition(1, 0), policies=(Policy(host="a.example", importance_factor=2.0),)
        )
    )
    with pytest.raises(ReshardRefused, match="shard 1 has other rules"):
        list(reshard([first, second], ranges))


def test_counts_are_divided_without_a_rest() -> None:
    for count, weights in product([0, 1, 7, 10**15], [(1,), (0, 1), (3, 1, 0), (5, 5, 5)]):
        parts = divided(count, weights)
        assert sum(parts) == count and all(part >= 0 for part in parts)
        assert all(part == 0 for part, weight in zip(parts, weights, strict=True) if weight == 0)


def test_no_two_shards_know_the_same_page() -> None:
    ids = page_ids(1000, 5)
    counted: dict[int, int] = defaultdict(int)
    ledger = Ledger()
    world = WebCrawl(ledger, power_law_web(1000, 5), "cycle", 5).run(1)
    for one in reshard([ledger], ShardRanges.equal(7)):
        for page in one.estimate_all().pages.tolist():
            counted[page] += 1
    assert set(counted.values()) == {1} and set(counted) == set(world.ids.tolist()) == set(ids.tolist())
