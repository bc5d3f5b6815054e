"""The form of entries: few bytes, decoded unchanged, one form for each entry, and nothing else is read."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from opicflow.pipelines.ledger import (
    CrawlEntry,
    Gossip,
    ItemWriter,
    LogEntry,
    LogPosition,
    PolicyEntry,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.ledger.entries import ITEM_COLUMNS, CrawlItems, ResidualSums
from opicflow.pipelines.ledger.errors import EntryUnknown
from opicflow.schemas.columns import ColumnsRefused
from opicflow.schemas.varint import encode_numbers
from support.fuzz.stored_inputs import other_entry, sealed_entry, sound_entries

WORDS = st.integers(0, (1 << 64) - 1) | st.integers(0, 300)
OFFSETS = st.integers(0, 1 << 40)


@st.composite
def columns(draw: Any, length: int, dtype: Any, default: int) -> Any:
    """A column whose numbers are all the default, all the same, near each other, or anything."""
    info = np.iinfo(dtype)
    anything = st.integers(int(info.min), int(info.max))
    first = draw(st.just(default) | anything)
    near = st.integers(max(first - 300, int(info.min)), min(first + 300, int(info.max)))
    values = draw(st.sampled_from([st.just(first), near, anything]))
    return draw(hnp.arrays(dtype, length, elements=values))


@st.composite
def crawl_entries(draw: Any) -> CrawlEntry:
    """Entries with any columns of the right lengths, in most of which no ledger would find sense."""
    lengths = {"": draw(st.integers(0, 5)), "link_starts": draw(st.integers(0, 20)), "url_starts": draw(OFFSETS) % 9}
    given = {}
    for one in ITEM_COLUMNS:
        length = lengths[""] + 1 if one.is_starts else lengths[one.starts]
        given[one.name] = draw(columns(length, one.dtype, one.default))
    start = LogPosition(draw(OFFSETS), draw(st.integers(0, 3)))
    end = LogPosition(start.offset + draw(OFFSETS), draw(st.integers(0, 3)))
    visits = draw(st.none() | OFFSETS)
    return CrawlEntry(draw(st.text(max_size=9)), start, end, CrawlItems(**given), visits, draw(OFFSETS))


@st.composite
def transfers(draw: Any) -> TransfersEntry:
    """Messages with any pages and amounts."""
    rows = draw(st.integers(0, 20))
    pages = draw(columns(rows, np.uint64, 0))
    amounts = draw(columns(rows, np.int64, 0))
    sums = st.builds(
        ResidualSums,
        WORDS,
        WORDS,
        st.integers(-(1 << 62), 1 << 62),
        WORDS,
        WORDS,
        st.lists(WORDS, max_size=9).map(tuple),
        st.lists(WORDS, max_size=9).map(tuple),
    )
    rate = st.floats(allow_nan=False, allow_infinity=False)
    second = st.integers(-1, 1 << 40)
    gossip = st.builds(Gossip, WORDS, WORDS, WORDS, WORDS, rate, WORDS, st.none() | sums, second)
    numbers = [draw(WORDS) for _ in range(6)]
    return TransfersEntry(
        *numbers[:3],
        draw(st.booleans()),
        draw(st.just(np.sort(pages))),
        amounts,
        *numbers[3:],
        draw(st.none() | gossip),
    )


ENTRIES = crawl_entries() | transfers() | st.builds(TickEntry, WORDS)


def plain(value: Any) -> Any:
    """Return an entry as plain values, so that entries can be compared."""
    if dataclasses.is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    return (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else value


@given(entry=ENTRIES)
def test_every_entry_is_decoded_unchanged(entry: LogEntry) -> None:
    assert plain(decode_entry(encode_entry(entry))) == plain(entry)


def test_an_entry_has_one_form_and_other_bytes_are_refused() -> None:
    draw, read = random.Random(5), 0
    for _ in range(3000):
        data = other_entry(draw)
        try:
            decoded = decode_entry(data)
        except (ColumnsRefused, EntryUnknown):
            continue
        read += 1
        assert encode_entry(decoded) == data
    assert 100 < read < 2500


@pytest.mark.parametrize("number", range(len(sound_entries())))
def test_any_damage_is_refused(number: int) -> None:
    data = sound_entries()[number]
    for at in range(len(data)):
        for broken in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            with pytest.raises(ColumnsRefused):
                decode_entry(broken)
    for broken in (data + b"\0", sealed_entry(data[10:] + b"\0"), sealed_entry(data[10:-1])):
        with pytest.raises(ColumnsRefused):
            decode_entry(broken)


@pytest.mark.parametrize(("at", "value"), [(0, 0), (0, 2), (1, 0), (1, 9)])
def test_an_entry_of_another_version_or_kind_needs_a_newer_opicflow(at: int, value: int) -> None:
    checked = bytearray(encode_entry(TickEntry(5))[10:])
    checked[at] = value
    with pytest.raises(EntryUnknown, match="update opicflow"):
        decode_entry(sealed_entry(bytes(checked)))


@pytest.mark.parametrize("rows", [1 << 20, 1 << 40, (1 << 64) - 1])
def test_few_bytes_do_not_become_many_rows(rows: int) -> None:
    crawl = [1, 0, 0, 0, 1, 0, 0]
    for numbers, kind in (
        ([*crawl, rows, 0, 0], 1),
        ([*crawl, 0, rows, 0], 1),
        ([*crawl, 0, 0, rows], 1),
        ([1, 0, 0, 0, 0, 0, 0, rows], 2),
    ):
        with pytest.raises(ColumnsRefused, match="longer than the bytes"):
            decode_entry(sealed_entry(bytes((1, kind)) + encode_numbers(numbers) + bytes(100)))


def test_entries_that_no_ledger_would_apply_are_not_written() -> None:
    items = ItemWriter().visit(5, [6, 7]).items()
    entry = CrawlEntry("x", LogPosition(0, 0), LogPosition(1, 0), items)
    for column in ("page", "link_starts", "link_weights", "url_starts"):
        longer = dataclasses.replace(items, **{column: np.append(getattr(items, column), getattr(items, column)[-1:])})
        other = dataclasses.replace(items, **{column: getattr(items, column).astype(np.float64)})
        for wrong in (longer, other):
            if len(getattr(wrong, column)) != len(getattr(items, column)) or wrong is other:
                with pytest.raises(ValueError, match="another type, or another length"):
                    encode_entry(dataclasses.replace(entry, items=wrong))
    for tick in (TickEntry(-1), TickEntry(1 << 64)):
        with pytest.raises((OverflowError, ValueError)):
            encode_entry(tick)


# -- how many bytes ----------------------------------------------------------------------------------------------------

SITE, OTHER = 17 << 48, 18 << 48
SOURCE = "kafka/AAAAAAAAAAAAAAAAAAAAAA/12"


def visits(rows: int, links: int) -> CrawlEntry:
    """Visits as crawlers send them: every fifth link leaves the site."""
    draw, writer = random.Random(1), ItemWriter(LogPosition(10**9, 0))
    for row in range(rows):
        targets = [(OTHER if link % 5 == 0 else SITE) + draw.getrandbits(48) for link in range(links)]
        page, digest = SITE + draw.getrandbits(48), draw.getrandbits(64)
        writer.visit(page, targets, time_ms=1_700_000_000_000 + 97 * row, digest=digest)
    return writer.entry(SOURCE, LogPosition(10**9 - 500, 0), visits_total=10**7)


def message(amounts: int, shards: int = 0) -> TransfersEntry:
    """A message with amounts of some shares of pages, under `certified` with the sums of so many shards."""
    draw = random.Random(2)
    pages = np.sort(np.array([SITE + draw.getrandbits(48) for _ in range(amounts)], np.uint64))
    cash = np.array([draw.getrandbits(20) for _ in range(amounts)], np.int64)
    flows = tuple(draw.getrandbits(45) for _ in range(shards))
    sums = ResidualSums(1 << 44, 1 << 46, -(1 << 40), 1 << 41, 10**6, flows, flows) if shards else None
    gossip = Gossip(1 << 62, 1 << 45, 10**5, 10**6, 1234.5, 10**5, sums, 1_700_000_000)
    return TransfersEntry(3, 10**5, 0, True, pages, cash, 0, 1 << 50, draw.getrandbits(64), gossip)


@pytest.mark.parametrize(
    ("entry", "most"),
    [
        (message(0), 80),
        (message(0, 16), 80 + 32 * 6.5 + 35),
        (message(1000), 80 + 9.5 * 1000),
        (visits(1, 0), 100),
        (visits(1, 30), 100 + 30 * 6 + 6 * 2 + 8),
        (visits(1000, 30), 100 + 1000 * (30 * 6 + 6 * 2 + 4 + 8 + 8 + 3)),
        (TickEntry(1_700_000_000), 20),
    ],
    ids=["message", "message-certified", "message-of-1000", "visit", "visit-links", "visits", "tick"],
)
def test_entries_take_few_bytes(entry: LogEntry, most: float) -> None:
    assert len(encode_entry(entry)) <= most


def test_policies_and_controls_are_packed_values() -> None:
    policy = PolicyEntry("p", LogPosition(0, 0), LogPosition(1, 0), 0.5)
    assert encode_entry(policy).startswith(b"OPFC\1\0")
