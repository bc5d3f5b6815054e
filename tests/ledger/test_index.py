"""The id index by itself, against a dict: whatever ids it is given, however it grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger.entries import ItemWriter, LogPosition, PolicyEntry
from opicflow.pipelines.ledger.kernels import index
from opicflow.pipelines.ledger.kernels.batches import FULLEST
from opicflow.pipelines.ledger.layout import PAGE_ROW
from opicflow.pipelines.ledger.ledger import Ledger

MULTIPLIER = 0x9E3779B97F4A7C15
INVERSE = pow(MULTIPLIER, -1, 1 << 64)
TOP = (1 << 64) - 1


def with_hash(high: int, low: int) -> int:
    """The page id whose hash has these halves: its search begins at `high`, its tag is `low`."""
    return ((high << 32) | low) * INVERSE % (1 << 64)


# Ids that share a home, a tag, or both but for a bit; homes at both ends of the array; and plain ones.
ADVERSARIAL = sorted(
    {
        *(0, 1, 2, 3, TOP, TOP - 1, 1 << 63, (1 << 63) - 1),
        *(k << 32 for k in range(1, 9)),
        *(with_hash(0, low) for low in (0, 1, 2, 3, 0xFFFFFFFF)),
        *(with_hash(0xFFFFFFFF, low) for low in range(8)),
        *(with_hash(high, 7) for high in range(0, 1 << 32, 1 << 29)),
        *(with_hash(0xFFFFFFFF - k, 0) for k in range(4)),
    }
)
pages_of = st.lists(st.sampled_from(ADVERSARIAL) | st.integers(0, TOP), unique=True, min_size=1, max_size=40)


def bits(page: int) -> int:
    """A page id as kernels take it."""
    return page - (1 << 64) if page >= 1 << 63 else page


class Pages:
    """An index, the rows it is checked against, and its expected content."""

    def __init__(self, capacity: int, rows: int = 128) -> None:
        self.index = np.zeros(capacity, np.uint64)
        self.old = np.zeros(0, np.uint64)
        self.hot = np.zeros((rows, 2), np.int64)
        self.hot[:, 0] = -3  # the content of rows without an entry does not matter
        self.slots: dict[int, int] = {}
        self._next = 0

    def add(self, page: int) -> None:
        slot, self._next = self._next, self._next + 1
        self.hot[slot, 0] = bits(page)
        index.insert(self.index, bits(page), slot)
        self.slots[page] = slot

    def take_out(self, page: int) -> None:
        index.remove(self.index, self.hot, bits(page))
        self.hot[self.slots.pop(page)] = 0  # as a dropped page's row is left

    def find(self, page: int) -> int:
        return int(index.find(self.index, self.old, self.hot, bits(page)))

    def check(self, strangers: Sequence[int] = ()) -> None:
        assert {page: self.find(page) for page in self.slots} == self.slots
        assert [self.find(page) for page in strangers if page not in self.slots] == [
            -1 for page in strangers if page not in self.slots
        ]


def test_adversarial_ids_do_share_homes_and_tags() -> None:
    last = [with_hash(0xFFFFFFFF, low) for low in range(8)]
    assert {int(index.home(bits(page), 64)) for page in last} == {63}
    tags = {page * MULTIPLIER % (1 << 32) for page in (with_hash(high, 7) for high in range(0, 1 << 32, 1 << 29))}
    assert tags == {7}
    assert len(ADVERSARIAL) > 30


def test_an_empty_index_finds_nothing() -> None:
    Pages(8).check(ADVERSARIAL)


@given(pages_of, pages_of)
def test_what_was_added_is_found_and_nothing_else(added: list[int], strangers: list[int]) -> None:
    pages = Pages(len(added) + 1)
    for page in added:
        pages.add(page)
        pages.check()
    pages.check([*strangers, *ADVERSARIAL])


@given(pages_of, st.data())
def test_taking_pages_out_in_any_order_loses_no_other(added: list[int], data: st.DataObject) -> None:
    pages = Pages(data.draw(st.integers(len(added) + 1, 2 * len(added) + 2), label="capacity"))
    for page in added:
        pages.add(page)
    for page in data.draw(st.permutations(added), label="out"):
        pages.take_out(page)
        pages.check(added)
    assert not pages.index.any()


@given(st.lists(st.sampled_from(ADVERSARIAL), max_size=120))
def test_pages_that_come_and_go_are_found_while_they_are_there(toggled: list[int]) -> None:
    pages = Pages(len(ADVERSARIAL) + 1, rows=256)
    for page in toggled:
        if page in pages.slots:
            pages.take_out(page)
        else:
            pages.add(page)
        pages.check(ADVERSARIAL)


@pytest.mark.parametrize("capacity", [9, 16, 61])
@pytest.mark.parametrize("out", range(8))
def test_a_gap_is_closed_over_the_end_of_the_array(capacity: int, out: int) -> None:
    pages = Pages(capacity)
    crowd = [with_hash(0xFFFFFFFF, low) for low in range(6)]  # all hash to the last position
    settled = [with_hash(0, 5), with_hash(0, 6)]
    for page in (*crowd[:3], *settled, *crowd[3:]):
        pages.add(page)
    pages.take_out([*crowd, *settled][out])
    pages.check([*crowd, *settled])
    assert np.count_nonzero(pages.index) == 7


def test_a_page_in_its_own_home_is_not_moved_into_a_gap_before_it() -> None:
    pages = Pages(64)
    first, second = with_hash(0, 1), with_hash(1 << 26, 1)  # homes 0 and 1
    pages.add(first)
    pages.add(second)
    pages.take_out(first)
    assert index.home(bits(second), 64) == 1
    assert pages.index[1] != 0
    assert pages.index[0] == 0


@given(pages_of, pages_of, st.integers(1, 7), st.integers(0, 40))
def test_while_it_grows_pages_are_found_in_either_half(
    before: list[int], during: list[int], step: int, grown_by: int
) -> None:
    pages = Pages(len(before) + 1)
    for page in before:
        pages.add(page)
    pages.old, pages.index = pages.index, np.zeros(len(before) + len(during) + 1 + grown_by, np.uint64)
    fresh = [page for page in during if page not in pages.slots]
    for first in range(0, len(pages.old), step):
        pages.check([*during, *ADVERSARIAL])
        index.move(pages.index, pages.old, pages.hot, first, min(first + step, len(pages.old)))
        if fresh:
            pages.add(fresh.pop())
    pages.check([*during, *ADVERSARIAL])
    pages.old = np.zeros(0, np.uint64)
    pages.check([*during, *ADVERSARIAL])
    assert np.count_nonzero(pages.index) == len(pages.slots)


@given(pages_of)
def test_an_index_made_anew_from_the_rows_holds_the_live_ones(added: list[int]) -> None:
    pages = Pages(len(added) + 1)
    rows = np.zeros(len(pages.hot), PAGE_ROW)
    for page in added:
        pages.add(page)
        rows["flags"][pages.slots[page]] = 1
    dropped = added[::3]
    for page in dropped:
        rows["flags"][pages.slots.pop(page)] = 0
    pages.index[:] = 0
    index.fill(pages.index, pages.hot, rows, len(added))
    pages.check(dropped)


def test_a_ledger_finds_its_pages_at_every_step_of_growth_and_after_drops() -> None:
    ledger = Ledger()
    known: set[int] = set()
    position, policies = LogPosition(0, 0), 0
    random = np.random.default_rng(3)
    growing = 0
    for batch in range(150):
        writer = ItemWriter(position)
        pages = [int(page) for page in random.integers(0, TOP, 40, dtype=np.uint64, endpoint=True)]
        for page in pages:
            writer.sighting(page)
        ledger.apply(writer.entry(start=position))
        position = writer.next_position
        known.update(pages)
        if batch % 25 == 24:
            gone = sorted(known)[::7]
            ledger.apply(
                PolicyEntry("policy", LogPosition(policies, 0), LogPosition(policies + 1, 0), drop=tuple(gone))
            )
            policies += 1
            known.difference_update(gone)
            assert not ledger.estimate(gone).known.any()
        growing += len(ledger._room.table.id_index_old) > 0
        assert ledger.pages == len(known)
        assert ledger.estimate(sorted(known)).known.all()
        assert len(known) <= FULLEST * len(ledger._room.table.id_index)
    assert growing > 5  # it was looked at while it moved
