"""A visit that comes twice is a duplicate, whatever came between; memory for that is bounded."""

from __future__ import annotations

import random

import numpy as np
import pytest

from opicflow.pipelines.ledger import CrawlEntry, Fate, ItemWriter, Ledger, LedgerConfig, LogPosition, SnapshotRefused
from opicflow.pipelines.ledger.ledger_state import Mark, encode_state, judged_columns, new_state
from opicflow.pipelines.ledger.shards.snapshot import write as write_snapshot
from opicflow.schemas.pages import PageIds
from opicflow.schemas.shards import ShardRanges
from support.same_bytes import assert_same_bytes


def visits(times: list[tuple[int, int]], first: int = 0, source: str = "log") -> CrawlEntry:
    """Return visits, each of a page at a time."""
    log = ItemWriter(LogPosition(first, 0))
    for page, time_ms in times:
        log.visit(page, [page % 97 + 1], time_ms=time_ms)
    return log.entry(source, LogPosition(first, 0))


def a_crawl(events: int, pages: int, seed: int = 1) -> list[tuple[int, int]]:
    chance = random.Random(seed)
    return [(chance.randrange(1, pages), 1000 + event) for event in range(events)]


def test_a_log_that_is_read_twice_moves_nothing_the_second_time() -> None:
    times = a_crawl(2000, 100)
    ledger = Ledger()
    ledger.apply(visits(times))
    before = ledger.estimate_all().importance.tolist()
    applied = ledger.apply(visits(times, source="the same log under another name"))
    assert (applied.duplicates, applied.visits, applied.late) == (2000, 0, 0)
    assert set(applied.fates.tolist()) == {Fate.DUPLICATE}
    assert ledger.estimate_all().importance.tolist() == before


def test_a_late_visit_is_taken_once() -> None:
    ledger = Ledger()
    applied = ledger.apply(visits([(1, 5000), (1, 3000), (1, 4000), (1, 3000), (1, 4000), (1, 5000)]))
    fates = [Fate.TAKEN, Fate.LATE, Fate.LATE, Fate.DUPLICATE, Fate.DUPLICATE, Fate.DUPLICATE]
    assert applied.fates.tolist() == fates


@pytest.mark.parametrize("remembered", [1, 2, 7, 50])
def test_at_least_the_last_visits_are_known_and_at_most_twice_as_many(remembered: int) -> None:
    ledger = Ledger(LedgerConfig(remembered_visits=remembered))
    times = [(1, 10_000 + n) for n in range(6 * remembered)]
    ledger.apply(visits(times))
    back = list(reversed(times[:-1]))
    fates = Ledger.restore(chunk.data for chunk in ledger.snapshot()).apply(visits(back, len(times))).fates
    known = fates == Fate.DUPLICATE
    assert known[: remembered - 1].all()
    assert not known[2 * remembered :].any()
    assert (np.diff(known.astype(int)) <= 0).all() or remembered == 1


def test_without_memory_only_the_latest_visit_of_a_page_is_known() -> None:
    ledger = Ledger(LedgerConfig(remembered_visits=0))
    applied = ledger.apply(visits([(1, 1), (1, 2), (1, 1), (1, 2)]))
    assert applied.fates.tolist() == [Fate.TAKEN, Fate.TAKEN, Fate.LATE, Fate.DUPLICATE]


def test_visits_without_a_time_are_never_duplicates() -> None:
    ledger = Ledger()
    assert ledger.apply(visits([(1, 0), (1, 0), (1, 5), (1, 0)])).duplicates == 0


def test_however_visits_come_in_batches_the_snapshot_is_the_same() -> None:
    assert_same_bytes(lambda: Ledger(LedgerConfig(remembered_visits=400)), [visits(a_crawl(1500, 60, seed=3))])


def test_a_ledger_goes_on_from_its_snapshot_as_if_nothing_had_happened() -> None:
    times = a_crawl(3000, 80, seed=5)
    chance = random.Random(9)
    tail = [times[chance.randrange(3000)] for _ in range(500)]
    config = LedgerConfig(remembered_visits=1000)
    ledger = Ledger(config)
    ledger.apply(visits(times))
    restored = Ledger.restore(chunk.data for chunk in ledger.snapshot())
    rest = visits(tail, 3000)
    assert restored.apply(rest).fates.tolist() == ledger.apply(rest).fates.tolist()
    assert [chunk.data for chunk in restored.snapshot()] == [chunk.data for chunk in ledger.snapshot()]


def test_memory_for_visits_has_a_bound() -> None:
    ledger = Ledger(LedgerConfig(remembered_visits=1000))
    for first in range(0, 20_000, 500):
        ledger.apply(visits([(n % 50 + 1, 1000 + n) for n in range(first, first + 500)], first))
    assert ledger._room.book.recent.nbytes <= 2 * 8 * 4096


@pytest.mark.parametrize("damage", ["order", "count", "older"])
def test_a_snapshot_with_visits_that_cannot_be_is_refused(damage: str) -> None:
    ledger = Ledger(LedgerConfig(remembered_visits=10))
    ledger.apply(visits([(1, n + 1) for n in range(17)]))
    state = new_state(0, 1, PageIds())
    state.marks["log"] = Mark(LogPosition(17, 0), 17)
    values = encode_state(state, ledger.config, 0, ShardRanges())
    ledger._room.turn_recent()
    book = ledger._room.book
    if damage == "count":
        book.counts[0].recent = 3
    elif damage == "older":
        book.recent[1, np.flatnonzero(book.recent[1])[0]] = 0
    elif damage == "order":
        book.counts[0].recent += 10**6
    judged, none = judged_columns(state.reviews), np.zeros(0, np.uint8)
    chunks = write_snapshot(values, ledger.config, ledger._room.table, book, judged, none)
    with pytest.raises(SnapshotRefused, match="visits"):
        Ledger.restore(chunk.data for chunk in chunks)
