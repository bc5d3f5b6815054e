"""Which pages have a refresh row, and that a snapshot has one for every slot."""

from __future__ import annotations

import numpy as np
import pytest

from opicflow.pipelines.ledger.errors import LedgerBroken
from opicflow.pipelines.ledger.ledger import Ledger
from opicflow.pipelines.ledger.pages import refresh_rows
from opicflow.pipelines.ledger.pages.layout import REFRESH_ROW, Table
from opicflow.pipelines.ledger.pages.space import in_memory
from opicflow.schemas.arrays import Array
from tests.support.written_crawls import T0, Crawl, with_refresh

DAY = 86_400


def crawl_of_unread_pages() -> Crawl:
    crawl = Crawl(with_refresh(bandwidth_per_day=2.0))
    crawl.see(range(40))
    crawl.tick(T0)
    return crawl


def table_of(crawl: Crawl) -> Table:
    return crawl.ledger.parts().table


def pages_with_a_row(crawl: Crawl) -> set[int]:
    ids, slots = crawl.ledger._reader.live()
    return {int(page) for page in ids[table_of(crawl).refresh_row[slots] != 0]}


def test_a_page_gets_its_refresh_row_with_its_first_visit_or_order() -> None:
    crawl = crawl_of_unread_pages()
    assert pages_with_a_row(crawl) == set()
    crawl.visit(7, T0 + 10, links=[8, 9])
    assert pages_with_a_row(crawl) == {crawl.id(7)}
    crawl.tick(T0 + DAY)
    planned = crawl.plan()
    ordered = {int(page) for page in planned.survey.pages[planned.orders.rows]}
    assert len(ordered) == 2
    assert pages_with_a_row(crawl) == {crawl.id(7)} | ordered
    assert crawl.row(7)["checked"] == T0 + 10
    assert (table_of(crawl).interval[:40] != 0).all()  # that of unread pages is published as well


def test_pages_without_a_row_read_zeros_and_cannot_be_written_by_a_copy() -> None:
    crawl = crawl_of_unread_pages()
    rows = refresh_rows.rows_of(table_of(crawl), slice(3))
    rows["checked"] = 5
    assert not refresh_rows.field_of(table_of(crawl), "checked", slice(3)).any()
    crawl.ledger.audit()


@pytest.mark.parametrize(
    ("slot", "row", "problem"),
    [(1, 1, "two slots have one row"), (0, 0, "a row is lost"), (2, 2, "a row is not counted")],
)
def test_the_audit_finds_rows_that_are_not_apart(slot: int, row: int, problem: str) -> None:
    crawl = crawl_of_unread_pages()
    crawl.visit(0, T0 + 10)
    table = table_of(crawl)
    assert table.refresh_row[:3].tolist() == [1, 0, 0]
    table.refresh_row[slot] = row
    with pytest.raises(LedgerBroken, match="refresh row of its own"):
        crawl.ledger.audit()


def test_the_audit_finds_that_the_row_of_unread_pages_was_written() -> None:
    crawl = crawl_of_unread_pages()
    table_of(crawl).refresh["checked"][0] = 1
    with pytest.raises(LedgerBroken, match="refresh row of its own"):
        crawl.ledger.audit()


def test_the_slot_of_a_removed_page_keeps_its_row_and_the_next_page_finds_it_empty() -> None:
    crawl = crawl_of_unread_pages()
    crawl.visit(7, T0 + 10)
    (slot,) = crawl.ledger._reader.slots_of(np.array([crawl.id(7)], np.uint64)).tolist()
    table_of(crawl).refresh[1:2].view(np.uint8)[:] = 0xFF
    table_of(crawl).refresh["share"][1] = 0.0
    table_of(crawl).interval[slot] = 9
    crawl.ledger._removal.forget(np.array([crawl.id(7)], np.uint64), T0)
    assert table_of(crawl).refresh_row[slot] == 1
    assert not refresh_rows.rows_of(table_of(crawl), slice(slot, slot + 1)).tobytes().strip(b"\0")
    crawl.see([100])
    crawl.visit(100, T0 + 20)
    assert crawl.ledger._reader.slots_of(np.array([crawl.id(100)], np.uint64)).tolist() == [slot]
    assert crawl.row(100)["checked"] == T0 + 20
    crawl.ledger.audit()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 64])
def test_rows_are_the_same_after_they_were_stored(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh_rows, "_SLOTS_AT_ONCE", 4)
    random = np.random.default_rng(size)
    stored = np.zeros(size, REFRESH_ROW)
    for name in REFRESH_ROW.names or ():
        stored[name] = random.integers(0, 2, size) * random.integers(0, 256, size)
    stored[random.random(size) < 0.5] = np.zeros(1, REFRESH_ROW)[0]
    stored["interval"] = random.integers(0, 3, size)
    kept = stored.copy()
    columns = refresh_rows.take_stored(stored, in_memory)
    row_of, rows = columns["refresh_row"], columns["refresh"]
    used = np.any([kept[name] != 0 for name in REFRESH_ROW.names or () if name != "interval"], axis=0)
    assert row_of[used].tolist() == list(range(1, 1 + used.sum()))
    assert not row_of[~used].any()
    assert len(rows) == 1 + used.sum()
    table = table_of(Crawl(with_refresh()))._replace(**columns)
    blocks: list[Array] = list(refresh_rows.stored_rows(table, size))
    assert b"".join(block.tobytes() for block in blocks) == kept.tobytes()


def test_there_is_room_for_every_row() -> None:
    crawl = Crawl(with_refresh())
    for page in range(600):
        crawl.see([page])  # first, so that few other columns have to grow later
    for page in range(600):
        crawl.visit(page, T0 + page)
        rows, room = int(crawl.ledger.parts().book.store[0].refresh_rows), len(table_of(crawl).refresh)
        assert rows == page + 1 < room


def test_a_restored_ledger_has_rows_of_visited_pages_only_and_the_same_snapshot() -> None:
    crawl = crawl_of_unread_pages()
    for page in (30, 3, 17):
        crawl.visit(page, T0 + 10 + page)
    snapshot = crawl.ledger.snapshot()
    restored = Ledger.restore([chunk.data for chunk in snapshot], crawl.ledger.page_ids)
    assert int(restored.parts().book.store[0].refresh_rows) == 3
    assert restored.snapshot() == snapshot
