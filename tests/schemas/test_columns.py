"""Packed columns and encoded entries are decoded unchanged; damage is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from opicflow.pipelines.ledger import (
    ControlEntry,
    CrawlEntry,
    EntryRefused,
    Gossip,
    ItemWriter,
    Ledger,
    LogPosition,
    PageLink,
    PolicyEntry,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.ledger.errors import EntryUnknown
from opicflow.schemas.columns import ColumnsRefused, pack, unpack

DTYPES = [np.uint8, np.int8, np.uint16, np.int64, np.uint64, np.float64, np.float32]
COLUMNS = st.dictionaries(
    st.text(max_size=8),
    st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, st.integers(0, 20))),
    max_size=5,
)
VALUES = st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.booleans(), st.integers(0, 2**64 - 1), st.text()))


@given(kind=st.text(max_size=9), values=VALUES, columns=COLUMNS)
def test_packed_columns_are_unpacked_unchanged(kind: str, values: dict[str, Any], columns: dict[str, Any]) -> None:
    packed = unpack(pack(kind, values, columns))
    assert (packed.kind, packed.values, list(packed.columns)) == (kind, values, list(columns))
    for name, column in columns.items():
        assert packed.columns[name].dtype == column.dtype
        np.testing.assert_array_equal(packed.columns[name], column)


@given(column=hnp.arrays(np.int64, st.integers(0, 50), elements=st.integers(-(2**63), 2**63 - 1)))
def test_integers_of_any_size_survive_narrowing(column: Any) -> None:
    np.testing.assert_array_equal(unpack(pack("x", {}, {"c": column})).columns["c"], column)


def test_small_and_equal_numbers_need_few_bytes() -> None:
    rows = 10_000
    small = len(pack("x", {}, {"c": np.arange(rows) % 100}))
    same = len(pack("x", {}, {"c": np.full(rows, 7)}))
    assert small < 1.1 * rows
    assert same < 300


def test_columns_that_are_not_contiguous_are_packed() -> None:
    column = np.arange(20)[::-2]
    np.testing.assert_array_equal(unpack(pack("x", {}, {"c": column})).columns["c"], column)


@pytest.mark.parametrize("step", [1, 7])
def test_any_damage_is_refused(step: int) -> None:
    data = pack("x", {"a": 1}, {"c": np.arange(30)})
    for at in range(0, len(data), step):
        for broken in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            with pytest.raises(ColumnsRefused):
                unpack(broken)
    with pytest.raises(ColumnsRefused):
        unpack(data + b"\0")


def crawl_entry() -> CrawlEntry:
    log = ItemWriter(LogPosition(10**12, 0))
    log.announcement(2**64 - 1, url=b"https://example.org/")
    log.visit(1, [PageLink(2, 5, 0), 3], time_ms=10**13).visit(2, []).visit(3).sighting(9, url=b"http://a.example/b")
    return log.entry("log/x", LogPosition(10**12, 0), visits_total=3)


ENTRIES = [
    crawl_entry(),
    ItemWriter().entry("nothing"),
    PolicyEntry("policies", LogPosition(0, 0), LogPosition(1, 0), 0.5, (16, 32), None, (1, 2**64 - 1), ()),
    TickEntry(10**9),
    TransfersEntry(
        3,
        7,
        0,
        True,
        np.array([1, 2**64 - 1], np.uint64),
        np.array([5, 2**62]),
        17,
        2**62 + 22,
        2**64 - 1,
        Gossip(2**64 - 1, 5, 6, 7, 0.1),
    ),
    TransfersEntry(3, 7, 0, False, np.zeros(0, np.uint64), np.zeros(0, np.int64), 0, 0, 0, None),
    ControlEntry("stream", {"origin": {"shards": 2, "rules": {}, "least_move": 0.1}, "more": [None, True, "x"]}),
]


def plain(value: Any) -> Any:
    """Return an entry as plain values, so that entries can be compared."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_every_kind_of_entry_is_decoded(entry: Any) -> None:
    decoded = decode_entry(encode_entry(entry))
    assert type(decoded) is type(entry)
    assert plain(decoded) == plain(entry)


def test_log_positions_are_decoded_as_log_positions() -> None:
    decoded = decode_entry(encode_entry(crawl_entry()))
    assert isinstance(decoded, CrawlEntry)
    assert decoded.start.offset == 10**12
    assert decoded.end == LogPosition(10**12 + 5, 0)


def test_a_ledger_applies_no_control() -> None:
    with pytest.raises(EntryRefused, match="is no entry of a shard log"):
        Ledger().apply(ControlEntry("audit", {}))


def test_columns_that_are_not_an_entry_are_refused() -> None:
    control = {"version": 1, "source": "audit", "values": {}}
    for data in (
        pack("policy", {"version": 1}, {}),
        pack("control", {**control, "minute": 1}, {}),
        pack("control", control, {"pages": np.arange(2)}),
    ):
        with pytest.raises(ColumnsRefused, match="no entry"):
            decode_entry(data)
    for data in (pack("soup", {}, {}), pack("control", {**control, "version": 2}, {})):
        with pytest.raises(EntryUnknown, match="update opicflow"):
            decode_entry(data)
