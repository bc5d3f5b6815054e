"""The id index by itself, against a dict: whatever ids it is given, however it grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import HISTORIES, LedgerConfig
from opicflow.pipelines.ledger.cash.batches import FULLEST
from opicflow.pipelines.ledger.entries import ItemWriter, LogPosition, PolicyEntry
from opicflow.pipelines.ledger.ledger import Ledger
from opicflow.pipelines.ledger.pages import index
from opicflow.pipelines.ledger.pages.layout import PAGE_ROW
from opicflow.schemas.pages import PageIds

MULTIPLIER = 0x9E3779B97F4A7C15
TOP = (1 << 64) - 1


def with_hash(high: int, low: int) -> int:
    """The page id whose hash has these halves: its search begins at `high`, its tag is `low`."""
    return unhashed((high << 32) | low, MULTIPLIER)


def unhashed(word: int, multiplier: int) -> int:
    """The page id with this hash."""
    inverse = pow(multiplier, -1, 1 << 64)
    for _ in range(2):
        word = word * inverse % (1 << 64)
        word ^= word >> 32
    return word * inverse % (1 << 64)


# Ids that share a home, a tag, or both but for a bit; homes at both ends of the array; and plain ones.
ADVERSARIAL = sorted(
    {
        *(0, 1, 2, 3, TOP, TOP - 1, 1 << 63, (1 << 63) - 1),
        *(k << 32 for k in range(1, 9)),
        *(with_hash(0, low) for low in (0, 1, 2, 3, 0xFFFFFFFF)),
        *(with_hash(0xFFFFFFFF, low) for low in range(8)),
        *(with_hash(high, 7) for high in range(0, 1 << 32, 1 << 28)),
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
        self.index = index.empty(capacity, MULTIPLIER)
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
    assert {int(index.home(index.empty(64, MULTIPLIER), bits(page))) for page in last} == {56}  # the last line
    tags = {
        int(index.hashed(np.int64(bits(page)), np.uint64(MULTIPLIER))) % (1 << 32)
        for page in (with_hash(high, 7) for high in range(0, 1 << 32, 1 << 28))
    }
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
    assert not pages.index[:-1].any()


@given(st.lists(st.sampled_from(ADVERSARIAL), max_size=120))
def test_pages_that_come_and_go_are_found_while_they_are_there(toggled: list[int]) -> None:
    pages = Pages(len(ADVERSARIAL) + 1, rows=256)
    for page in toggled:
        if page in pages.slots:
            pages.take_out(page)
        else:
            pages.add(page)
        pages.check(ADVERSARIAL)


@pytest.mark.parametrize("capacity", [16, 24, 61])
@pytest.mark.parametrize("out", range(13))
def test_a_gap_is_closed_over_the_end_of_the_array(capacity: int, out: int) -> None:
    pages = Pages(capacity)
    crowd = [with_hash(0xFFFFFFFF, low) for low in range(11)]  # all hash to the last line, which holds eight
    settled = [with_hash(0, 5), with_hash(0, 6)]
    for page in (*crowd[:9], *settled, *crowd[9:]):
        pages.add(page)
    pages.take_out([*crowd, *settled][out])
    pages.check([*crowd, *settled])
    assert np.count_nonzero(pages.index[:-1]) == 12


def test_a_page_in_its_own_home_is_not_moved_into_a_gap_before_it() -> None:
    pages = Pages(64)
    crowd = [with_hash(0, low) for low in range(9)]  # home 0: a line and one more
    neighbour = with_hash(1 << 29, 1)
    assert index.home(pages.index, bits(neighbour)) == 8
    for page in (neighbour, *crowd):
        pages.add(page)
    assert np.flatnonzero(pages.index[:-1]).tolist() == list(range(10))
    pages.take_out(crowd[0])
    pages.check(crowd)
    assert np.flatnonzero(pages.index[:-1]).tolist() == list(range(9))
    pages.take_out(crowd[1])
    pages.check(crowd)
    assert np.flatnonzero(pages.index[:-1]).tolist() == [*range(7), 8]


def test_pages_with_one_tag_are_told_apart_in_a_line_and_beyond_it() -> None:
    pages = Pages(128)
    alike = [with_hash(high, 7) for high in range(20)]  # home 0, one tag
    for page in alike[:-1]:
        pages.add(page)
        pages.check(alike)
    pages.take_out(alike[3])
    pages.check(alike)


@given(pages_of, pages_of, st.integers(1, 7), st.integers(0, 40))
def test_while_it_grows_pages_are_found_in_either_half(
    before: list[int], during: list[int], step: int, grown_by: int
) -> None:
    pages = Pages(len(before) + 1)
    for page in before:
        pages.add(page)
    pages.old, pages.index = pages.index, index.empty(len(before) + len(during) + 1 + grown_by, MULTIPLIER)
    fresh = [page for page in during if page not in pages.slots]
    for first in range(0, len(pages.old) - 1, step):
        pages.check([*during, *ADVERSARIAL])
        index.move(pages.index, pages.old, pages.hot, first, min(first + step, len(pages.old) - 1))
        if fresh:
            pages.add(fresh.pop())
    pages.check([*during, *ADVERSARIAL])
    pages.old = np.zeros(0, np.uint64)
    pages.check([*during, *ADVERSARIAL])
    assert np.count_nonzero(pages.index[:-1]) == len(pages.slots)


@given(pages_of)
def test_an_index_rebuilt_from_the_rows_holds_the_live_ones(added: list[int]) -> None:
    pages = Pages(len(added) + 1)
    rows = np.zeros(len(pages.hot), PAGE_ROW)
    for page in added:
        pages.add(page)
        rows["flags"][pages.slots[page]] = 1
    dropped = added[::3]
    for page in dropped:
        rows["flags"][pages.slots.pop(page)] = 0
    pages.index[:-1] = 0
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
        assert len(known) <= FULLEST * (len(ledger._room.table.id_index) - 1)
    assert growing > 5  # it was looked at while it moved


# hostile ids

HOSTILE_PAGES = 20_000


def lines_beyond_home(placed: np.ndarray, hot: np.ndarray) -> int:
    """Return the sum of the entries' distances from their homes, in lines: a lookup takes one probe more than that."""
    lines = (len(placed) - 1) // 8
    at = np.flatnonzero(placed[:-1])
    pages = hot[(placed[at] & np.uint64(0xFFFFFFFF)).astype(np.int64) - 1, 0]
    homes = np.array([index.home(placed, page) for page in pages.tolist()], np.int64)
    return int(((at - homes) // 8 % lines).sum())


def probes(pages: np.ndarray, multiplier: int) -> int:
    """The probes that finding each page takes, in an index as full as it may be."""
    placed = index.empty(int(len(pages) / FULLEST) + 2, multiplier)
    hot = np.zeros((len(pages), 2), np.int64)
    hot[:, 0] = pages.view(np.int64)
    rows = np.zeros(len(pages), PAGE_ROW)
    rows["flags"] = 1
    assert index.fill(placed, hot, rows, len(pages)) == 0
    return len(pages) + lines_beyond_home(placed, hot)


def crafted_for(multiplier: int, pages: int = HOSTILE_PAGES) -> np.ndarray:
    """Ids that all begin at one position of any index with this multiplier."""
    return np.array([unhashed(low, multiplier) for low in range(1, pages + 1)], np.uint64)


STRUCTURED = {
    "crafted": crafted_for(PageIds().multiplier),
    "crafted for one multiplication": np.arange(1, HOSTILE_PAGES + 1, dtype=np.uint64)
    * np.uint64(pow(MULTIPLIER, -1, 1 << 64)),
    "in a row": np.arange(1, HOSTILE_PAGES + 1, dtype=np.uint64),
    "low bits alike": np.arange(1, HOSTILE_PAGES + 1, dtype=np.uint64) << np.uint64(32),
    "high bits only": np.arange(1, HOSTILE_PAGES + 1, dtype=np.uint64) << np.uint64(49),
    "a grid": (np.arange(HOSTILE_PAGES, dtype=np.uint64) % np.uint64(141) << np.uint64(40))
    + np.arange(HOSTILE_PAGES, dtype=np.uint64) // np.uint64(141),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("kind", STRUCTURED)
def test_ids_cost_about_as_many_probes_as_random_ones_whoever_made_them(kind: str) -> None:
    random = np.random.default_rng(9)
    multipliers = [int(number) | 1 for number in random.integers(0, TOP, 40, np.uint64, endpoint=True)]
    ordinary = probes(random.integers(0, TOP, HOSTILE_PAGES, np.uint64, endpoint=True), multipliers[0])
    found = [probes(STRUCTURED[kind], multiplier) for multiplier in multipliers]
    assert max(found) < 1.5 * ordinary


def test_who_knows_the_multiplier_can_make_ids_collide() -> None:
    assert probes(crafted_for(MULTIPLIER), MULTIPLIER) > 1000 * HOSTILE_PAGES


@pytest.mark.parametrize("history", ["interpolation", "certified"])
def test_no_result_depends_on_the_multiplier(history: str) -> None:
    found = []
    for multiplier in (1, MULTIPLIER, 0xDEADBEEF12345677):
        ledger = Ledger(LedgerConfig(history=HISTORIES[history](), remember_links=True), multiplier=multiplier)
        random, position = np.random.default_rng(4), LogPosition(0, 0)
        for batch in range(20):
            writer = ItemWriter(position)
            for page in random.integers(1, 900, 40):
                links = [int(to) << 50 for to in random.integers(1, 1200, 5)]
                writer.visit(int(page) << 50, links, time_ms=1000 * batch + int(page))
            ledger.apply(writer.entry(start=position))
            position = writer.next_position
            if batch == 10:
                gone = tuple(int(page) << 50 for page in range(1, 200))
                ledger.apply(PolicyEntry("policy", LogPosition(0, 0), LogPosition(1, 0), drop=gone))
                ledger = Ledger.restore([chunk.data for chunk in ledger.snapshot()], multiplier=multiplier + 2)
        found.append(ledger.snapshot())
        assert ledger.audit().drift == 0
    assert found[0] == found[1] == found[2]


def test_a_secret_key_of_page_ids_makes_a_secret_multiplier() -> None:
    keys = [PageIds(), PageIds.with_secret(b"a" * 16), PageIds.with_secret(b"b" * 16)]
    assert len({ids.multiplier for ids in keys}) == 3
    assert all(ids.multiplier % 2 == 1 and ids.multiplier < 1 << 64 for ids in keys)
    ledger = Ledger(page_ids=keys[1])
    assert int(ledger._room.table.id_index[-1]) == keys[1].multiplier
    assert int(Ledger(multiplier=8)._room.table.id_index[-1]) == 9
