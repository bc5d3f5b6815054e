"""A ledger never accepts what breaks it: it refuses in one line that names the source, and is as it was before."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import (
    NO_CATEGORY,
    START,
    Absorbing,
    All,
    CrawlEntry,
    CrawlItems,
    EntryRefused,
    Gossip,
    ItemWriter,
    Kind,
    Ledger,
    LedgerBroken,
    LedgerConfig,
    LogPosition,
    Outcome,
    PageLink,
    PolicyEntry,
    TickEntry,
    TransfersEntry,
    Variable,
)
from opicflow.pipelines.ledger.cash import batches
from opicflow.pipelines.ledger.entries import transfer_digest
from opicflow.schemas.shards import ShardRanges
from support.thorough import examples

SHARDS = 3
SHARD = 1
FIRST, LAST = ShardRanges.equal(SHARDS).bounds(SHARD)
MARK = LogPosition(8, 0)
ENORMOUS = (1 << 62) + 1
CONFIG = LedgerConfig(class_weights=(16, 16, 32, 8), link_bonus_per_1024=(0, 512), remember_links=True)


def here(number: int) -> int:
    """A page of the shard that these tests ask."""
    return FIRST + 1 + number * 1_000_003


def rows(first: int = 8) -> ItemWriter:
    """Rows of every kind from offset `first` on."""
    return (
        ItemWriter(LogPosition(first, 0))
        .visit(
            here(1), [here(2), PageLink(here(3), 7, 1), 5, PageLink(6, 0), here(1)], time_ms=1000, url=b"http://one/"
        )
        .visit(here(2), [], time_ms=2000)
        .sighting(here(4), category=1, url=b"http://four/")
        .announcement(here(5))
        .visit(here(3), None, Outcome.FAILED)
        .visit(here(6), [here(7), here(8), 9], category=1, url=b"http://six/")
        .visit(here(1), None, Outcome.UNCHANGED, time_ms=3000)
        .visit(here(2), None, Outcome.GONE)
    )


def crawl_entry() -> CrawlEntry:
    """Return the next entry for the ledger of the tests."""
    return rows().entry(start=MARK, visits_total=12)


def policy_entry() -> PolicyEntry:
    return PolicyEntry(
        "rules", LogPosition(1, 0), LogPosition(2, 0), 0.9, (1, 2, 3, 4), (5, 6), (here(2),), (here(3), 77)
    )


def transfers_entry(**changes: Any) -> TransfersEntry:
    """The next transfers from shard 0. Total and digest fit the changes where they can."""
    pages = np.array([here(1), here(2), here(9)], np.uint64)
    entry = TransfersEntry(
        source_shard=0,
        cut=1,
        first=0,
        last=True,
        pages=pages,
        amounts=np.array([5, 1 << 40, 0], np.int64),
        virtual=1 << 20,
        sent_total=0,
        sent_digest=0,
        gossip=Gossip(advance=5 << 40, minted=40 << 24, pages=40, weighted_pages=640, rate_sum=39.5),
    )
    return with_audit(dataclasses.replace(entry, **changes))


def with_audit(entry: TransfersEntry) -> TransfersEntry:
    try:
        digest = transfer_digest(entry.pages, entry.amounts, entry.virtual, entry.cut)
        total = sum(int(amount) for amount in entry.amounts) + entry.virtual
    except (ArithmeticError, AttributeError, TypeError, ValueError, np.ma.MaskError, DeprecationWarning):
        return entry  # its rows cannot be counted
    return dataclasses.replace(entry, sent_total=SENT[0] + total, sent_digest=(SENT[1] + digest) % (1 << 64))


FIRST_PAGES = np.array([here(1), here(10)], np.uint64)
FIRST_AMOUNTS = np.array([1 << 24, 1 << 20], np.int64)
SENT = (
    (1 << 24) + (1 << 20) + 17,
    transfer_digest(FIRST_PAGES, FIRST_AMOUNTS, 17, 0),
)
"""The totals that shard 0 had sent before."""


def ledger_of_these_tests(config: LedgerConfig = CONFIG) -> Ledger:
    """It has had eight rows, a policy, a cut of shard 0, and a tick."""
    ledger = Ledger(config, SHARD, SHARDS)
    ledger.apply(rows(0).entry(visits_total=6))
    ledger.apply(PolicyEntry("rules", START, LogPosition(1, 0), drop=(here(4),)))
    gossip = Gossip(advance=1 << 40, minted=30 << 24, pages=30, weighted_pages=480, rate_sum=29.5)
    ledger.apply(TransfersEntry(0, 0, 0, True, FIRST_PAGES, FIRST_AMOUNTS, 17, *SENT, gossip))
    ledger.apply(TickEntry(1_000_000))
    return ledger


def snapshot_of(ledger: Ledger) -> list[bytes]:
    return [chunk.data for chunk in ledger.snapshot()]


@pytest.fixture(scope="module")
def chunks() -> list[bytes]:
    return snapshot_of(ledger_of_these_tests())


@pytest.fixture
def ledger(chunks) -> Ledger:
    return Ledger.restore(chunks)


def assert_refused(ledger: Ledger, entry: Any, *words: str) -> None:
    before = snapshot_of(ledger)
    with pytest.raises(EntryRefused) as caught:
        ledger.apply(entry)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message
    assert snapshot_of(ledger) == before
    assert ledger.audit().drift == 0


def arrays(entry: CrawlEntry, **columns: Any) -> CrawlEntry:
    return dataclasses.replace(entry, items=dataclasses.replace(entry.items, **columns))


def with_value(entry: CrawlEntry, column: str, position: Any, value: Any) -> CrawlEntry:
    changed = getattr(entry.items, column).copy()
    changed[position] = value
    return arrays(entry, **{column: changed})


def cases(values: dict[str, Any]) -> Any:
    return [pytest.param(value, id=name) for name, value in values.items()]


# Right entries are applied, before and after


@pytest.mark.parametrize(
    "entry", cases({"crawl": crawl_entry(), "policy": policy_entry(), "transfers": transfers_entry()})
)
def test_a_valid_entry_is_taken(ledger: Ledger, entry: Any) -> None:
    before = snapshot_of(ledger)
    ledger.apply(entry)
    assert snapshot_of(ledger) != before
    assert ledger.audit().drift == 0


def test_after_a_refusal_the_right_entry_is_taken_as_if_nothing_had_been(ledger: Ledger, chunks) -> None:
    untroubled = Ledger.restore(chunks)
    wrong: dict[Any, dict[str, Any]] = {
        crawl_entry: {"source": ""},
        policy_entry: {"source": ""},
        transfers_entry: {"source_shard": 99},
        lambda: TickEntry(1_000_060): {"second": -1},
    }
    for make, fields in wrong.items():
        entry = make()
        assert_refused(ledger, dataclasses.replace(entry, **fields))
        assert repr(ledger.apply(entry)) == repr(untroubled.apply(entry))
    assert snapshot_of(ledger) == snapshot_of(untroubled)


# Entries of any kind


NO_ENTRIES: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "words": "crawl",
    "an object": object(),
    "a dict": {"source": "crawl"},
    "items": crawl_entry().items,
    "a class": CrawlEntry,
    "gossip": Gossip(0, 0, 0, 0, 0.0),
    "something with a second": type("Control", (), {"source": "crawl", "second": 10**7})(),
}


@pytest.mark.parametrize("entry", cases(NO_ENTRIES))
def test_an_invalid_entry_is_refused(ledger: Ledger, entry: Any) -> None:
    assert_refused(ledger, entry, "no entry")


@pytest.mark.parametrize("source", [None, 7, "", b"crawl", ["crawl"], "two\nlines", "tab\t", ("crawl",)], ids=repr)
@pytest.mark.parametrize("entry", cases({"crawl": crawl_entry(), "policy": policy_entry()}))
def test_a_source_needs_a_name_of_one_line(ledger: Ledger, entry: Any, source: Any) -> None:
    assert_refused(ledger, dataclasses.replace(entry, source=source, start=START), "source")


@pytest.mark.parametrize("entry", cases({"crawl": crawl_entry(), "policy": policy_entry()}))
def test_no_source_may_pass_for_a_shard(ledger: Ledger, entry: Any) -> None:
    """Shards keep their marks among those of sources: such an entry would move what the shard has sent."""
    assert_refused(ledger, dataclasses.replace(entry, source="shard/0", start=LogPosition(1, 0)), "shard/0")


NO_POSITIONS: dict[str, Any] = {
    "None": None,
    "a number": 8,
    "a tuple": (8, 0),
    "negative": LogPosition(-1, 0),
    "negative within": LogPosition(8, -1),
    "a float": LogPosition(8.0, 0),
    "no number": LogPosition(math.nan, 0),
    "words": LogPosition("8", "0"),
    "truth": LogPosition(True, 0),
    "nothing": LogPosition(None, None),
    "numpy": LogPosition(np.int64(8), 0),
    "numpy within": LogPosition(8, np.int64(0)),
    "beyond 64 bits": LogPosition(1 << 70, 0),
    "beyond 64 bits within": LogPosition(8, 1 << 63),
}


@pytest.mark.parametrize("end", ["start", "end"])
@pytest.mark.parametrize("position", cases(NO_POSITIONS))
@pytest.mark.parametrize("entry", cases({"crawl": crawl_entry(), "policy": policy_entry()}))
def test_an_impossible_position_is_refused(ledger: Ledger, entry: Any, end: str, position: Any) -> None:
    assert_refused(ledger, dataclasses.replace(entry, **{end: position}), entry.source)


@pytest.mark.parametrize("entry", cases({"crawl": crawl_entry(), "policy": policy_entry()}))
def test_a_range_that_ends_before_it_begins_is_refused(ledger: Ledger, entry: Any) -> None:
    assert_refused(ledger, dataclasses.replace(entry, start=entry.end, end=entry.start), entry.source, "no range")


@pytest.mark.parametrize("entry", cases({"crawl": crawl_entry(), "policy": policy_entry()}))
@pytest.mark.parametrize("beyond", [LogPosition(9, 0), LogPosition(8, 1), LogPosition(1 << 62, 0)])
def test_a_hole_is_refused_and_the_error_names_the_gap(ledger: Ledger, entry: Any, beyond: LogPosition) -> None:
    entry = dataclasses.replace(entry, start=beyond, end=LogPosition((1 << 62) + 1, 0))
    assert_refused(ledger, entry, entry.source, "send the entries between them first")


# Crawl entries


@pytest.mark.parametrize("total", [0, 5, 11, 13, -1, 1 << 70, "12", 12.0, True, math.nan, [12], np.int64(12)], ids=repr)
def test_a_count_of_visits_that_does_not_fit_is_refused(ledger: Ledger, total: Any) -> None:
    assert_refused(ledger, dataclasses.replace(crawl_entry(), visits_total=total), "crawl")


@pytest.mark.parametrize("offset", [-1, 1 << 70, "0", 0.0, True, math.nan, None, [0], np.int64(0)], ids=repr)
def test_what_a_count_of_visits_begins_at_must_be_an_offset(ledger: Ledger, offset: Any) -> None:
    assert_refused(ledger, dataclasses.replace(crawl_entry(), counted_from=offset), "crawl", "counted_from")


def test_a_source_may_count_its_visits_again_from_where_its_events_begin_now() -> None:
    """The ledger has eight rows with six visits; then the source has lost its state, and begins at offset 5."""
    ledger, whole = ledger_of_these_tests(), ledger_of_these_tests()
    for one in (rows(5).entry(visits_total=2), rows(5).entry(visits_total=3)):  # nothing is above the mark
        ledger.apply(dataclasses.replace(one, start=START, end=MARK, counted_from=5))
    whole.apply(crawl_entry())
    again = dataclasses.replace(crawl_entry(), start=LogPosition(0, 0), counted_from=5, visits_total=9)
    ledger.apply(again)
    assert ledger.visits == whole.visits and ledger.mark("crawl") == whole.mark("crawl")
    restored = Ledger.restore(snapshot_of(ledger))
    assert snapshot_of(restored) == snapshot_of(ledger) != snapshot_of(whole)
    at = ledger.mark("crawl")
    more = ItemWriter(at).visit(here(30), []).entry(start=at)
    for one in (ledger, restored):
        assert_refused(one, dataclasses.replace(more, counted_from=5, visits_total=13), "it counts 13", "the ledger 10")
        one.apply(dataclasses.replace(more, counted_from=5, visits_total=10))
    whole.apply(dataclasses.replace(more, visits_total=13))
    assert ledger.visits == restored.visits == whole.visits
    ledger.apply(TickEntry(2_000_000)), whole.apply(TickEntry(2_000_000))
    assert ledger.audit() == whole.audit()


def test_a_source_may_count_again_behind_the_mark(ledger: Ledger) -> None:
    """Whether the ledger has missed anything there is not known to it."""
    entry = dataclasses.replace(rows(9).entry(start=START), counted_from=9, visits_total=6)
    before = ledger.visits
    ledger.apply(entry)
    assert ledger.visits > before and ledger.mark("crawl") == entry.end
    more = ItemWriter(entry.end).visit(here(30), []).entry(start=entry.end)
    assert_refused(ledger, dataclasses.replace(more, counted_from=9, visits_total=8), "it counts 8", "the ledger 7")
    ledger.apply(dataclasses.replace(more, counted_from=9, visits_total=7))
    new = dataclasses.replace(rows(9).entry("another"), start=START, counted_from=9, visits_total=6)
    ledger.apply(new)
    assert ledger.mark("another") == new.end, "a ledger without entries of a source begins where the source does"


@pytest.mark.parametrize("items", [None, [], (), {}, 5, "items", np.zeros(8)], ids=repr)
def test_items_must_be_crawl_items(ledger: Ledger, items: Any) -> None:
    assert_refused(ledger, dataclasses.replace(crawl_entry(), items=items), "crawl")


COLUMNS = [field.name for field in dataclasses.fields(CrawlItems)]


class Subclass(np.ndarray):
    """An array that is not a plain one."""


def masked(array: Any) -> Any:
    return np.ma.masked_array(array, mask=np.ones(len(array), bool))


NO_COLUMNS = {
    "nothing": lambda a: None,
    "a number": lambda a: 5,
    "words": lambda a: "column",
    "a list": lambda a: a.tolist(),
    "bytes": lambda a: a.tobytes(),
    "masked": masked,
    "of a subclass": lambda a: a.view(Subclass),
    "of objects": lambda a: a.astype(object),
    "of floats": lambda a: a.astype(np.float64),
    "of truth": lambda a: a.astype(bool),
    "of words": lambda a: a.astype("U5"),
    "of other bytes": lambda a: a.astype(np.uint32),
    "of signed numbers or not": lambda a: a.view(np.dtype(a.dtype.str.translate(str.maketrans("iu", "ui")))),
    "of the other end first": lambda a: a.astype(np.dtype(np.int64).newbyteorder(">")),
    "of two dimensions": lambda a: a.reshape(-1, 1),
    "of two equal dimensions": lambda a: np.repeat(a.reshape(-1, 1), max(len(a), 2), 1),
    "of no dimension": lambda a: np.array(a[0]),
    "shorter": lambda a: a[:-1],
    "longer": lambda a: np.concatenate((a, a[-1:])),
    "empty": lambda a: a[:0],
}


@pytest.mark.parametrize("change", cases(NO_COLUMNS))
def test_a_column_of_the_wrong_length_or_type_is_refused(ledger: Ledger, change: Any) -> None:
    entry = crawl_entry()
    for column in COLUMNS:
        assert_refused(ledger, arrays(entry, **{column: change(getattr(entry.items, column))}), "crawl")


@pytest.mark.parametrize("change", cases({n: c for n, c in NO_COLUMNS.items() if "dimension" in n}))
def test_columns_of_links_that_are_wrong_alike_are_refused(ledger: Ledger, change: Any) -> None:
    items = crawl_entry().items
    names = ("link_pages", "link_weights", "link_categories")
    entry = arrays(crawl_entry(), **{name: change(getattr(items, name)) for name in names})
    assert_refused(ledger, entry, "crawl")


def test_all_columns_a_row_short_are_refused(ledger: Ledger) -> None:
    entry = crawl_entry()
    short = {name: getattr(entry.items, name)[:-1] for name in COLUMNS}
    assert_refused(ledger, arrays(entry, **short), "crawl")


OUT_OF_BOUNDS: dict[str, tuple[int, list[int], str]] = {
    "kind": (2, [3, 4, 255], "kind"),
    "outcome": (0, [0, 9, 255], "outcome"),
    "category": (1, [2, 3, 127, 128, 254], "category"),
    "link_categories": (1, [2, 3, 127, 128, 254], "category"),
    "time_ms": (3, [-1, -(1 << 63)], "1970"),
    "page": (3, [0, FIRST - 1, LAST + 1, (1 << 64) - 1], "shard"),
    "links_known": (0, [0], "links"),
}
"""By column: a row, values that it must not have, and a word of the refusal."""


@pytest.mark.parametrize(
    ("column", "value"), [(column, value) for column, (_, values, _) in OUT_OF_BOUNDS.items() for value in values]
)
def test_a_value_out_of_bounds_is_refused(ledger: Ledger, column: str, value: int) -> None:
    row, _, word = OUT_OF_BOUNDS[column]
    assert_refused(ledger, with_value(crawl_entry(), column, row, value), "crawl", word)


@pytest.mark.parametrize("row", [2, 3])
def test_a_sighting_or_announcement_with_links_is_refused(ledger: Ledger, row: int) -> None:
    entry = crawl_entry()
    starts = entry.items.link_starts.copy()
    starts[row + 1 :] += 1
    one_more = {name: np.append(getattr(entry.items, name), getattr(entry.items, name)[:1]) for name in LINK_COLUMNS}
    known = entry.items.links_known.copy()
    known[row] = 1
    assert_refused(ledger, arrays(entry, link_starts=starts, links_known=known, **one_more), "crawl", "links")


LINK_COLUMNS = ("link_pages", "link_weights", "link_categories")


RAGGED = {
    "not from 0": lambda s: s + 1,
    "below 0": lambda s: s - 1,
    "backwards": lambda s: s[::-1].copy(),
    "down and up": lambda s: np.where(np.arange(len(s)) == 1, s[-1] + 3, s),
    "negative inside": lambda s: np.where(np.arange(len(s)) == 1, -4, s),
    "too far": lambda s: np.where(np.arange(len(s)) == len(s) - 1, s[-1] + 1, s),
    "not far enough": lambda s: np.where(np.arange(len(s)) == len(s) - 1, s[-1] - 1, s),
    "least number": lambda s: np.where(np.arange(len(s)) == 2, -(1 << 63), s),
    "greatest number": lambda s: np.where(np.arange(len(s)) == 2, (1 << 63) - 1, s),
    "once around": lambda s: np.array([0, (1 << 63) - 1, -(1 << 63), -1, *s[4:]]),
    "once around at the end": lambda s: np.array([*s[:-4], (1 << 63) - 1, -(1 << 63), -5, s[-1]]),
}


@pytest.mark.parametrize("change", cases(RAGGED))
@pytest.mark.parametrize("column", ["link_starts", "url_starts"])
def test_starts_that_do_not_cut_up_their_column_are_refused(ledger: Ledger, column: str, change: Any) -> None:
    starts = change(getattr(crawl_entry().items, column))
    assert_refused(ledger, arrays(crawl_entry(), **{column: starts}), "crawl", column)


@pytest.mark.parametrize("column", ["link_starts", "url_starts"])
def test_starts_that_wrap_around_are_refused_where_the_entry_would_be_trimmed(ledger: Ledger, column: str) -> None:
    """The rows below the mark are cut off by these very numbers."""
    entry = dataclasses.replace(rows(4).entry(start=LogPosition(4, 0)), visits_total=None)
    starts = getattr(entry.items, column)
    around = np.array([0, (1 << 63) - 1, -(1 << 63), -3, -3, *starts[5:]])
    assert_refused(ledger, arrays(entry, **{column: around}), "crawl", column)
    ledger.apply(entry)
    assert ledger.mark("crawl") == LogPosition(12, 0)


def test_more_links_than_a_page_may_have_are_refused(ledger: Ledger) -> None:
    most = (1 << 20) + 1
    entry = crawl_entry()
    first = entry.items.rows(0, 1)
    columns = {
        "link_pages": np.full(most, here(2), np.uint64),
        "link_weights": np.ones(most, np.uint16),
        "link_categories": np.full(most, NO_CATEGORY, np.uint8),
        "link_starts": np.array([0, most]),
    }
    entry = dataclasses.replace(entry, items=dataclasses.replace(first, **columns), visits_total=None)
    assert_refused(ledger, entry, "crawl", "links")


def test_a_url_that_is_too_long_is_refused(ledger: Ledger) -> None:
    writer = ItemWriter(MARK).sighting(here(20), url=b"x" * 65_535)
    ledger.apply(writer.entry(start=MARK))
    writer = ItemWriter(LogPosition(9, 0)).sighting(here(21), url=b"x" * 65_536)
    assert_refused(ledger, writer.entry(start=LogPosition(9, 0)), "crawl", "URL")
    assert ledger.url(here(20)) == b"x" * 65_535


NO_ORDER = {
    "the same twice": [8, 8, 10, 11, 12, 13, 14, 15],
    "backwards": [8, 10, 9, 11, 12, 13, 14, 15],
    "before the range": [7, 9, 10, 11, 12, 13, 14, 15],
    "after the range": [8, 9, 10, 11, 12, 13, 14, 16],
    "negative": [-8, 9, 10, 11, 12, 13, 14, 15],
    "once around": [8, (1 << 63) - 1, -(1 << 63), -1, 12, 13, 14, 15],
    "up and down": [8, (1 << 63) - 1, 10, 11, 12, 13, 14, 15],
}


@pytest.mark.parametrize("offsets", cases(NO_ORDER))
def test_rows_out_of_order_or_of_the_range_are_refused(ledger: Ledger, offsets: list[int]) -> None:
    entry = dataclasses.replace(crawl_entry(), visits_total=None)  # no audit that would refuse it anyway
    assert_refused(ledger, arrays(entry, offset=np.array(offsets)), "crawl")


@pytest.mark.parametrize("within", [[0, 1, 2, 3, 3, 5, 6, 7], [0, 1, 2, 3, 2, 5, 6, 7], [-1, 1, 2, 3, 4, 5, 6, 7]])
def test_places_within_an_event_must_increase(ledger: Ledger, within: list[int]) -> None:
    entry = arrays(crawl_entry(), offset=np.full(8, 8), within=np.array(within))
    assert_refused(ledger, entry, "crawl")
    ledger.apply(arrays(entry, within=np.arange(8)))


def test_rows_in_an_empty_range_change_nothing(ledger: Ledger) -> None:
    before = snapshot_of(ledger)
    ledger.apply(dataclasses.replace(crawl_entry(), end=MARK))
    assert snapshot_of(ledger) == before


@pytest.mark.parametrize("column", COLUMNS)
def test_it_does_not_matter_how_a_column_lies_in_memory(ledger: Ledger, chunks, column: str) -> None:
    entry = crawl_entry()
    plain = getattr(entry.items, column)
    doubled = np.repeat(plain, 2)
    doubled[1::2] += 1  # the values between must not be read
    read_only = plain.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"x" + plain.tobytes(), np.uint8)[1:].view(plain.dtype)
    expected = snapshot_of(after(Ledger.restore(chunks), entry))
    compiled = len(batches.apply_items.signatures)
    for other in (doubled[::2], plain[::-1].copy()[::-1], read_only, unaligned):
        assert snapshot_of(after(Ledger.restore(chunks), arrays(entry, **{column: other}))) == expected
    assert len(batches.apply_items.signatures) == compiled  # no layout compiles again


def after(ledger: Ledger, entry: Any) -> Ledger:
    ledger.apply(entry)
    assert ledger.audit().drift == 0
    return ledger


# Policies


NO_POLICIES: dict[str, dict[str, Any]] = {
    **{
        f"damping {value!r}": {"damping": value}
        for value in (math.nan, math.inf, 2, -1, 1.01, "x", True, [0.5], 1 << 70, 10**400, ...)
    },
    **{
        f"class weights {value!r}": {"class_weights": value}
        for value in (
            *((), (1,), (1, 2, 3), (1, 2, 3, 4, 5), (0, 0, 0, 0), (1, 2, 3, -4), (1, 2, 3, 65_537), (1, 2, 3, 1 << 70)),
            *((1, 2, 3, True), (1, 2, 3, 4.0), (1, 2, 3, "4"), (1, 2, 3, None), [1, 2, 3, 4], "abcd", 4, math.nan),
        )
    },
    "class weights of numpy": {"class_weights": np.array([1, 2, 3, 4])},
    "class weights of two dimensions": {"class_weights": np.ones((4, 4), int)},
    **{
        f"link bonus {value!r}": {"link_bonus_per_1024": value}
        for value in ((), (1,), (1, 2, 3), (1, -1), (1, 1025), (1, True), (1, 1.0), (1, None), [1, 2], "ab", 7)
    },
    **{
        f"{name} {value!r}": {name: value}
        for name in ("drop", "forget")
        for value in (
            *((-1,), (1 << 64,), (1.0,), (1.7,), (math.nan,), ("1",), (None,), (True,), ((1,),), (np.uint64(1),)),
            *(None, 5, "12", b"12", [1], {1: 1}),
        )
    },
    "drop of numpy": {"drop": np.array([1, 2], np.uint64)},
}


@pytest.mark.parametrize("changes", cases(NO_POLICIES))
def test_rules_that_make_no_sense_are_refused(ledger: Ledger, changes: dict[str, Any]) -> None:
    assert_refused(ledger, dataclasses.replace(policy_entry(), **changes), "rules")


def test_a_policy_that_overlaps_is_refused_whole(ledger: Ledger) -> None:
    assert_refused(ledger, dataclasses.replace(policy_entry(), start=START), "rules", "send it whole")


def test_a_policy_keeps_the_count_of_visits_of_its_source(ledger: Ledger) -> None:
    ledger.apply(PolicyEntry("crawl", MARK, LogPosition(9, 0), damping=0.5))
    ledger.apply(rows(9).entry(start=LogPosition(9, 0), visits_total=12))


# Transfers


@pytest.mark.parametrize("shard", [SHARD, SHARDS, -1, 1 << 70, 0.0, False, "0", None, [0], np.int64(0)], ids=repr)
def test_transfers_of_oneself_or_of_no_shard_are_refused(ledger: Ledger, shard: Any) -> None:
    assert_refused(ledger, transfers_entry(source_shard=shard), "transfers of shard")


def test_a_shard_that_has_another_name_cannot_send_a_cut_twice(ledger: Ledger) -> None:
    """0.0 == 0 == False: they are the same key, but not the same mark."""
    gossip = Gossip(advance=1 << 40, minted=30 << 24, pages=30, weighted_pages=480, rate_sum=29.5)
    again = TransfersEntry(0, 0, 0, True, FIRST_PAGES, FIRST_AMOUNTS, 17, *SENT, gossip)
    before = snapshot_of(ledger)
    ledger.apply(again)
    assert snapshot_of(ledger) == before
    for name in (0.0, False):
        assert_refused(ledger, dataclasses.replace(again, source_shard=name), "transfers")


def test_a_ledger_alone_takes_no_transfers() -> None:
    assert_refused(Ledger(), transfers_entry(source_shard=0), "transfers of shard 0")
    assert_refused(Ledger(), transfers_entry(source_shard=1), "transfers of shard 1")


def ids(*pages: int) -> Any:
    return np.array(pages, np.uint64)


def cash(*amounts: int) -> Any:
    return np.array(amounts, np.int64)


NO_TRANSFERS: dict[str, dict[str, Any]] = {
    "a negative amount": {"amounts": cash(5, -1, 0)},
    "the least amount": {"amounts": cash(5, -(1 << 63), 0)},
    "an enormous amount": {"amounts": cash(5, ENORMOUS, 0)},
    "amounts that are enormous together": {"amounts": cash(1 << 62, 1 << 62, 0)},
    "amounts that wrap around": {"amounts": cash(1 << 62, 1 << 62, 1 << 62)},
    "enormous with the virtual part": {"amounts": cash(1 << 61, 0, 0), "virtual": (1 << 61) + 1},
    "more than 64 bits with the cash before": {"amounts": cash(0, 0, 0), "virtual": 1 << 62},
    "a negative virtual part": {"virtual": -1},
    "an enormous virtual part": {"virtual": ENORMOUS},
    "a virtual part beyond 64 bits": {"virtual": 1 << 70},
    "unsorted pages": {"pages": ids(here(2), here(1), here(9))},
    "a page twice": {"pages": ids(here(1), here(1), here(9))},
    "a page of a shard below": {"pages": ids(5, here(2), here(9))},
    "a page of a shard above": {"pages": ids(here(1), here(2), LAST + 1)},
    "no gossip": {"gossip": None},
    "gossip before the last message": {"last": False, "virtual": 0},
    "a virtual part before the last message": {"last": False, "gossip": None},
    "a hole between cuts": {"cut": 2},
    "a hole within a cut": {"first": 1},
    "a negative cut": {"cut": -1},
    "a negative position": {"first": -1},
    **{
        f"{name} is {value!r}": {name: value}
        for name in ("cut", "first", "virtual")
        for value in (None, "0", 0.5, 1.0, math.nan, True, [1], np.int64(1), 1 << 70)
        if (name, value) != ("virtual", 1 << 70)
    },
    **{f"last is {value!r}": {"last": value} for value in (None, 1, 2, "yes", [True], np.bool_(True))},
}


@pytest.mark.parametrize("changes", cases(NO_TRANSFERS))
def test_transfers_that_break_the_books_are_refused(ledger: Ledger, changes: dict[str, Any]) -> None:
    assert_refused(ledger, transfers_entry(**changes), "shard")


@pytest.mark.parametrize("column", ["pages", "amounts"])
@pytest.mark.parametrize("change", cases(NO_COLUMNS))
def test_transfers_of_the_wrong_length_or_type_are_refused(ledger: Ledger, column: str, change: Any) -> None:
    entry = transfers_entry()
    assert_refused(ledger, transfers_entry(**{column: change(getattr(entry, column))}), "transfers of shard 0, cut 1")


def test_it_does_not_matter_how_transfers_lie_in_memory(chunks) -> None:
    entry = transfers_entry()
    expected = snapshot_of(after(Ledger.restore(chunks), entry))
    for column in ("pages", "amounts"):
        plain = getattr(entry, column)
        read_only = plain.copy()
        read_only.flags.writeable = False
        for other in (np.repeat(plain, 2)[::2], read_only):
            changed = dataclasses.replace(entry, **{column: other})
            assert snapshot_of(after(Ledger.restore(chunks), changed)) == expected


@pytest.mark.parametrize("field", ["sent_total", "sent_digest"])
@pytest.mark.parametrize("change", [1, -1, 1 << 64, None, 0.5, "x", np.array([1, 2])], ids=repr)
def test_an_audit_that_does_not_fit_is_refused(ledger: Ledger, field: str, change: Any) -> None:
    entry = transfers_entry()
    value = getattr(entry, field) + change if isinstance(change, int) else change
    assert_refused(ledger, dataclasses.replace(entry, **{field: value}), "shard", "0")


def test_cash_that_is_lost_on_the_way_is_refused(ledger: Ledger) -> None:
    entry = transfers_entry()
    without = dataclasses.replace(entry, pages=entry.pages[:2], amounts=entry.amounts[:2] - 1)
    swapped = dataclasses.replace(entry, amounts=entry.amounts[[1, 0, 2]])
    assert_refused(ledger, without, "shard/0, cut 1", "the audit does not fit")
    assert_refused(ledger, swapped, "shard/0, cut 1", "the audit does not fit")


NO_GOSSIP = {
    **{f"{name} {value}": {name: value} for name in ("minted", "pages", "weighted_pages") for value in (-1, ENORMOUS)},
    **{f"advance {value}": {"advance": value} for value in (-1, 1 << 64)},
    **{f"rate_sum {value}": {"rate_sum": value} for value in (math.nan, math.inf, -math.inf, -1.0)},
    **{
        f"{name} is {value!r}": {name: value}
        for name in ("advance", "minted", "pages", "weighted_pages")
        for value in (None, "1", 1.0, True, [1], np.int64(1), math.nan)
    },
    **{f"rate_sum is {value!r}": {"rate_sum": value} for value in (None, "1", [1.0], np.float32(1), True)},
}


@pytest.mark.parametrize("changes", cases(NO_GOSSIP))
def test_gossip_out_of_bounds_is_refused(ledger: Ledger, changes: dict[str, Any]) -> None:
    gossip = transfers_entry().gossip
    assert gossip
    entry = transfers_entry(gossip=dataclasses.replace(gossip, **changes))
    assert_refused(ledger, entry, "transfers of shard 0, cut 1", "gossip")


@pytest.mark.parametrize("gossip", [5, "gossip", {}, (1, 2, 3, 4, 5.0), ..., Gossip], ids=repr)
def test_invalid_gossip_is_refused(ledger: Ledger, gossip: Any) -> None:
    assert_refused(ledger, transfers_entry(gossip=gossip), "transfers of shard 0, cut 1")


def test_the_most_cash_that_is_taken_can_be_kept(ledger: Ledger) -> None:
    """On the page, as its opening balance, in the virtual account: a snapshot holds whatever was taken."""
    most = (1 << 62) - SENT[0]
    newcomer = transfers_entry(pages=ids(here(50)), amounts=cash(most), virtual=0)
    assert_refused(ledger, transfers_entry(pages=ids(here(50)), amounts=cash(most + 1), virtual=0), "shard")
    ledger.apply(newcomer)
    assert_restored(ledger)
    ledger.apply(ItemWriter(MARK).sighting(here(51)).visit(here(50), []).entry(start=MARK))
    assert_restored(ledger)
    ledger.apply(TickEntry(2_000_000))
    assert_restored(ledger)


def test_the_most_cash_that_is_taken_can_wait_for_another_shard() -> None:
    ledger = Ledger(LedgerConfig(damping=1, cut_visits_per_1000_pages=1000), SHARD, SHARDS)
    most = 1 << 62
    entry = transfers_entry(cut=0, pages=ids(here(50)), amounts=cash(most), virtual=0)
    digest = transfer_digest(entry.pages, entry.amounts, 0, 0)
    ledger.apply(dataclasses.replace(entry, sent_total=most, sent_digest=digest))
    writer = ItemWriter().sighting(here(1)).sighting(here(2)).visit(here(50), [5])
    ledger.apply(writer.entry())
    assert ledger.balance().sent > most  # nothing was sealed: all cash waits
    assert_restored(ledger)


def test_a_dividend_that_no_class_could_hold_can_be_kept() -> None:
    """The account of a class without pages may run over: only differences between its readings mean anything."""
    ledger = Ledger(LedgerConfig(class_weights=(1, 65_536)), SHARD, SHARDS)
    ledger.apply(ItemWriter().sighting(here(1)).entry())
    entry = transfers_entry(cut=0, pages=ids(), amounts=cash(), virtual=1 << 47)
    digest = transfer_digest(entry.pages, entry.amounts, entry.virtual, 0)
    ledger.apply(dataclasses.replace(entry, sent_total=1 << 47, sent_digest=digest))
    assert_restored(ledger)
    ledger.apply(ItemWriter(LogPosition(1, 0)).visit(here(1), []).entry(start=LogPosition(1, 0)))
    assert_restored(ledger)
    assert ledger.balance().cash == 0


def assert_restored(ledger: Ledger) -> None:
    assert ledger.audit().drift == 0
    assert snapshot_of(Ledger.restore(snapshot_of(ledger))) == snapshot_of(ledger)


# Ticks


@pytest.mark.parametrize(
    "second",
    [-1, -(1 << 63), 1 << 40, 1 << 70, math.nan, math.inf, 2e6, "2000000", None, True, [5], np.int64(2_000_000)],
)
def test_a_tick_that_is_no_second_is_refused(ledger: Ledger, second: Any) -> None:
    assert_refused(ledger, TickEntry(second), "tick", "seconds since 1970")


def test_a_tick_that_is_not_later_changes_nothing(ledger: Ledger) -> None:
    before = snapshot_of(ledger)
    for second in (0, 999_999, 1_000_000):
        assert ledger.apply(TickEntry(second)).sealed == ()
    assert snapshot_of(ledger) == before


# Anything at all


EXTREMES = [0, 1, -1, 2, 3, 255, 1 << 16, (1 << 31) - 1, 1 << 32, 1 << 62, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1]
DTYPES = ["i1", "u1", "u2", "i4", "u4", "i8", "u8", ">i8", ">u8", "f4", "f8", "?", "O", "U2", "M8[s]", "i8,i8"]
nonsense = st.one_of(
    st.sampled_from(EXTREMES),
    st.sampled_from([None, True, 1.5, math.nan, math.inf, "x", "shard/0", b"x", (), [], {}, (1,), 1 << 70, START]),
    st.sampled_from(
        [np.int64(1), np.uint64(1), np.float64(1), np.array(1), np.array([1, 2]), object(), LogPosition(1, 1)]
    ),
    st.builds(LogPosition, st.sampled_from(EXTREMES), st.sampled_from(EXTREMES)),
)


@st.composite
def damaged_arrays(draw: st.DrawFn, array: np.ndarray) -> Any:
    """The array with another number in it, or of another length, type or shape."""
    how = draw(st.sampled_from(["number", "number", "number", "numbers", "length", "type", "shape", "anything"]))
    size = draw(st.integers(0, 12))
    if how in ("number", "numbers") and len(array):
        array = array.copy()
        low, high = np.iinfo(array.dtype).min, np.iinfo(array.dtype).max
        for _ in range(1 if how == "number" else 4):
            near = int(array[draw(st.integers(0, len(array) - 1))]) + draw(st.integers(-2, 2))
            number = draw(st.sampled_from(EXTREMES) | st.just(near) | st.integers(low, high))
            array[draw(st.integers(0, len(array) - 1))] = min(max(number, low), high)
        return array
    if how == "length":
        return np.resize(array, size) if len(array) else np.zeros(size, array.dtype)
    if how == "type":
        return np.zeros(len(array), np.dtype(draw(st.sampled_from(DTYPES))))
    if how == "shape":
        return np.zeros(draw(st.sampled_from([(), (0,), (1, 1), (8, 2), (2, 8), (8, 1), (3, 0)])), array.dtype)
    return draw(nonsense)


@st.composite
def damaged_entries(draw: st.DrawFn) -> Any:
    """A right entry in which a field or two are wrong."""
    entry: Any = draw(
        st.sampled_from([crawl_entry(), crawl_entry(), transfers_entry(), policy_entry(), TickEntry(2_000_000)])
    )
    if isinstance(entry, CrawlEntry) and draw(st.booleans()):
        entry = dataclasses.replace(rows(5).entry(start=LogPosition(5, 0)), visits_total=None)  # it will be trimmed
    for _ in range(draw(st.integers(1, 2))):
        part = entry
        if isinstance(entry, CrawlEntry) and isinstance(entry.items, CrawlItems) and draw(st.integers(0, 4)):
            part = entry.items
        elif isinstance(entry, TransfersEntry) and isinstance(entry.gossip, Gossip) and not draw(st.integers(0, 3)):
            part = entry.gossip
        name = draw(st.sampled_from([field.name for field in dataclasses.fields(part)]))
        value = getattr(part, name)
        whole_numbers = type(value) is np.ndarray and value.ndim == 1 and value.dtype.kind in "iu"
        new = draw(damaged_arrays(value) if whole_numbers else nonsense)
        changed = dataclasses.replace(part, **{name: new})
        if part is entry:
            entry = changed
        else:
            entry = dataclasses.replace(entry, **{"items" if isinstance(part, CrawlItems) else "gossip": changed})
    if isinstance(entry, TransfersEntry) and draw(st.integers(0, 3)):
        entry = with_audit(entry)  # a sender that means it
    if isinstance(entry, CrawlEntry) and draw(st.booleans()):
        entry = dataclasses.replace(entry, visits_total=None)
    return entry


HISTORIES = [CONFIG, *(dataclasses.replace(CONFIG, history=h) for h in (All(), Absorbing(), Variable(2)))]
LEDGERS: list[Ledger | None] = [None] * len(HISTORIES)


@cache
def snapshot_with(which: int) -> list[bytes]:
    """Made by the test, not while tests are collected: then every worker would wait for the same compiler."""
    return snapshot_of(ledger_of_these_tests(HISTORIES[which]))


@pytest.mark.slow
@examples(150, 2000)
@given(st.integers(0, len(LEDGERS) - 1), damaged_entries())
def test_a_damaged_entry_is_refused_or_the_books_balance(which: int, entry: Any) -> None:
    ledger = LEDGERS[which] or Ledger.restore(snapshot_with(which))
    LEDGERS[which] = None
    try:
        ledger.apply(entry)
    except EntryRefused as problem:
        assert "\n" not in str(problem)
        assert snapshot_of(ledger) == snapshot_with(which)
        LEDGERS[which] = ledger  # as good as new for the next example
        return
    assert ledger.audit().drift == 0
    again = Ledger.restore(snapshot_of(ledger))
    assert snapshot_of(again) == snapshot_of(ledger)
    # It can go on from there.
    position = ledger.mark("another")
    ledger.apply(rows(position.offset).entry("another"))
    assert ledger.audit().drift == 0


def test_an_interrupted_entry_is_not_applied_twice(ledger: Ledger, monkeypatch) -> None:
    """Something else goes wrong half-way (no memory, an interrupt): the ledger must not go on as if nothing was."""
    real, calls = batches.apply_items, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(batches, "apply_items", interrupted)
    writer = ItemWriter(MARK)
    for number in range(2000):
        writer.visit(here(100 + number), [here(5000 + number)])
    with pytest.raises(KeyboardInterrupt):
        ledger.apply(writer.entry(start=MARK))
    monkeypatch.undo()
    for forbidden in (lambda: ledger.apply(writer.entry(start=MARK)), ledger.snapshot, ledger.audit):
        with pytest.raises(LedgerBroken, match="restore its last snapshot"):
            forbidden()


def test_these_tests_know_every_kind() -> None:
    assert set(crawl_entry().items.kind.tolist()) == set(Kind)
