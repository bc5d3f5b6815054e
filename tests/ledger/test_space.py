"""Where the long columns of a ledger are changes nothing: its bytes are the same."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import (
    START,
    Certified,
    CrawlEntry,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogPosition,
    PageLink,
    PolicyEntry,
    TickEntry,
)
from opicflow.pipelines.ledger.config import History, Interpolation
from opicflow.pipelines.ledger.pages.space import LongColumn, in_memory, moved
from opicflow.pipelines.ledger.shards import snapshot as snapshots
from opicflow.schemas.arrays import Array

HISTORIES = [Certified(), Interpolation()]


class MovingColumn:
    """A column that moves at each resize: its old memory is overwritten, and new rows hold anything."""

    def __init__(self, like: Array) -> None:
        self._rows = like[:0].copy()

    def resized(self, rows: int) -> Array:
        """Return the column with so many rows."""
        fresh = np.empty((rows, *self._rows.shape[1:]), self._rows.dtype)
        fresh.view(np.uint8)[...] = 0xA5
        kept = min(rows, len(self._rows))
        fresh[:kept] = self._rows[:kept]
        self._rows.view(np.uint8)[...] = 0x5A
        self._rows = fresh
        return fresh


def moving(like: Array) -> LongColumn:
    return MovingColumn(like)


def crawl(first: int, visits: int) -> CrawlEntry:
    """Visits of pages with links to more and more others, from an offset on; their links change from visit to visit."""
    writer = ItemWriter(LogPosition(first, 0))
    for number in range(first, first + visits):
        random = np.random.default_rng(number)
        targets = random.integers(0, 50 + number, 6).tolist()
        page = int(random.integers(0, 20 + number // 2))
        writer.visit(
            page + 1,
            [PageLink(target + 1) for target in targets],
            time_ms=1000 * number + 1,
            url=f"https://site{page % 7}.example/{page}".encode(),
        )
    return writer.entry(start=LogPosition(first, 0))


def chunks_of(ledger: Ledger) -> list[bytes]:
    return [chunk.data for chunk in ledger.snapshot()]


def config_of(history: Any) -> LedgerConfig:
    return LedgerConfig(history=history, remember_links=True)


@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_a_ledger_has_the_same_bytes_wherever_its_columns_are(history: Any) -> None:
    ledgers = [Ledger(config_of(history), multiplier=5, space=space) for space in (in_memory, moving)]
    forget = PolicyEntry("rules", START, LogPosition(1, 0), drop=(5, 9), forget=(12, 13))
    for number in range(12):
        for ledger in ledgers:
            ledger.apply(crawl(200 * number, 200))
            ledger.apply(TickEntry(90_000 * (number + 1)))
            if number == 5:
                ledger.apply(forget)
            if number in (3, 8):
                ledger.put_aside()  # and the next entry makes them grow
            if number == 8:
                ledger.take_up()
        assert chunks_of(ledgers[0]) == chunks_of(ledgers[1])
    own = [repr((one.estimate_all(), one.preview(), one.urls(one.ranked()))) for one in ledgers]
    assert own[0] == own[1]
    ledgers[1].put_aside()
    assert ledgers[1].audit() == ledgers[0].audit()
    assert repr((ledgers[1].estimate_all(), ledgers[1].preview(), ledgers[1].urls(ledgers[1].ranked()))) == own[0]
    assert chunks_of(ledgers[1]) == chunks_of(ledgers[0])


@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_a_snapshot_is_restored_to_any_space_and_goes_on_alike(history: Any) -> None:
    ledger = Ledger(config_of(history), space=moving)
    ledger.apply(TickEntry(1))
    ledger.apply(crawl(0, 1500))
    chunks = chunks_of(ledger)
    for space in (in_memory, moving):
        restored = Ledger.restore(chunks, space=space)
        assert chunks_of(restored) == chunks
        restored.apply(crawl(1500, 700))
        restored.apply(TickEntry(100_000))
        restored.audit()
        again = Ledger.restore(chunks)
        again.apply(crawl(1500, 700))
        again.apply(TickEntry(100_000))
        assert chunks_of(restored) == chunks_of(again)


@pytest.mark.parametrize("history", HISTORIES, ids=str)
def test_chunks_do_not_depend_on_how_many_slots_are_stored_at_once(
    history: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(config_of(history))
    ledger.apply(crawl(0, 1500))
    found = []
    for payload_bytes in (snapshots.PAYLOAD_BYTES, 1000):
        monkeypatch.setattr(snapshots, "PAYLOAD_BYTES", payload_bytes)
        for slots in (1 << 16, 1000, 7, 1):
            monkeypatch.setattr(snapshots, "_SLOTS_AT_ONCE", slots)
            found.append(chunks_of(ledger))
            assert max(map(len, found[-1])) <= payload_bytes + snapshots.HEAD_BYTES
    assert found[0] == found[1] == found[2] == found[3]
    assert found[4] == found[5] == found[6] == found[7] != found[0]


def test_a_copy_in_another_space_has_the_same_rows() -> None:
    column = np.arange(4_000_000, dtype=np.int64).reshape(-1, 2)
    copy = moved(column, moving)
    assert copy is not column and np.array_equal(copy, column)
    assert moved(column[:0], moving).shape == (0, 2)


@pytest.mark.parametrize("history", [Interpolation(), Certified()], ids=["interpolation", "certified"])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_ledger_without_references_is_freed_at_once(history: History, shards: int) -> None:
    """Nothing in it refers to the whole, so its columns do not wait for the collector of garbage."""
    ledger = Ledger(LedgerConfig(history=history), 0, shards)
    ledger.apply(ItemWriter().visit(5, [6, 7], time_ms=1000, url=b"https://a.example/").entry())
    ledger.apply(TickEntry(10))
    ledger.plan(10, 0.1)
    other = Ledger.restore([chunk.data for chunk in ledger.snapshot()])
    held = [weakref.ref(part) for one in (ledger, other) for part in (one, one._room)]
    del ledger, other
    assert [one() for one in held] == 4 * [None]
