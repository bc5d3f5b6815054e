"""The rows kept of a topic are bounded, and above the floor they are those of a reader that keeps everything."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.serve.newest_rows import NewestRows, record_position

KINDS = {"rank": np.float64, "value": np.int64}


class Given(NamedTuple):
    key: bytes
    rank: float | None
    """None: the key is removed."""
    value: int
    place: int


def take(rows: NewestRows, batch: list[Given]) -> None:
    rows.take(
        [one.key for one in batch],
        np.array([one.place for one in batch], np.int64),
        np.array([one.rank is None for one in batch], bool),
        {
            "rank": np.array([one.rank or 0.0 for one in batch]),
            "value": np.array([one.value for one in batch], np.int64),
        },
        [b"text of " + one.key for one in batch],
    )


def held(rows: NewestRows) -> dict[bytes, tuple[float, int]]:
    columns = rows.columns()
    texts = list(rows.texts(np.arange(len(rows))))
    found = dict(zip(texts, zip(columns["rank"].tolist(), columns["value"].tolist(), strict=True), strict=True))
    assert len(found) == len(rows), "a key has one row"
    return {text.removeprefix(b"text of "): row for text, row in found.items()}


def check(rows: NewestRows, newest: dict[bytes, tuple[float, int]]) -> None:
    """Compare with all newest records: the rows are newest ones, and no row above the floor is missing."""
    found = held(rows)
    assert found.items() <= newest.items()
    above = {key: row for key, row in newest.items() if row[0] > rows.floor}
    assert above.items() <= found.items()
    assert rows.complete == len(above)


CHANGES = st.lists(st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 9)), st.booleans()), max_size=200)


@given(CHANGES, st.integers(1, 12), st.integers(1, 400))
def test_rows_are_those_of_a_reader_that_forgets_nothing(changes, most: int, most_bytes: int) -> None:
    rows = NewestRows(KINDS, "rank", most, most_bytes)
    newest: dict[bytes, tuple[float, int]] = {}
    batch: list[Given] = []
    for number, (key, rank, ends_batch) in enumerate(changes):
        one = Given(b"k%d" % key, rank, number, record_position(0, number))
        batch.append(one)
        if rank is None:
            newest.pop(one.key, None)
        else:
            newest[one.key] = (rank, number)
        if ends_batch:
            take(rows, batch)
            batch = []
            check(rows, newest)
            assert len(rows) <= 1.25 * most and rows.text_bytes <= 1.25 * most_bytes
    take(rows, batch)
    check(rows, newest)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_topic_leaves_the_first_pages(seed: int) -> None:
    chance = random.Random(seed)
    rows = NewestRows(KINDS, "rank", 500, 1 << 20)
    newest: dict[bytes, tuple[float, int]] = {}
    for batch_number in range(60):
        batch = []
        for number in range(500):
            key, place = b"p%d" % chance.randrange(6_000), record_position(0, 1_000 * batch_number + number)
            rank = None if chance.random() < 0.05 else chance.paretovariate(1)
            batch.append(Given(key, rank, place, place))
            if rank is None:
                newest.pop(key, None)
            else:
                newest[key] = (rank, place)
        take(rows, batch)
        check(rows, newest)
    assert len(rows) <= 625 and rows.complete >= 250
    ranks = sorted((rank for rank, _ in newest.values()), reverse=True)
    first = sorted(rows.columns()["rank"].tolist(), reverse=True)
    assert first[: rows.complete] == ranks[: rows.complete]


def test_a_record_that_comes_again_changes_nothing() -> None:
    rows = NewestRows(KINDS, "rank", 10, 1000)
    take(rows, [Given(b"a", 1.0, 1, record_position(3, 1)), Given(b"a", 2.0, 2, record_position(3, 2))])
    take(rows, [Given(b"a", 1.0, 1, record_position(3, 1))])
    take(rows, [Given(b"a", None, 0, record_position(3, 0))])
    assert held(rows) == {b"a": (2.0, 2)}
    take(rows, [Given(b"a", 3.0, 3, record_position(1, 0))])  # another partition has its own offsets
    assert held(rows) == {b"a": (3.0, 3)}


def test_watched_rows_stay_and_texts_of_dropped_rows_are_freed() -> None:
    rows = NewestRows(KINDS, "rank", 10, 1 << 20)
    rows.watched = {hash(b"last"): None}
    take(rows, [Given(b"last", 0.0, 7, 0)])
    for number in range(3_000):
        take(rows, [Given(b"%04d" % number + b"x" * 100, float(number), 1, number + 1)])
    assert held(rows)[b"last"] == (0.0, 7)
    assert len(rows._text) < 1 << 18


def test_after_all_is_read_again_what_was_dropped_is_there() -> None:
    """The first rows lose rank: dropped ones may be first now, and reading a compacted topic again finds them."""
    rows = NewestRows(KINDS, "rank", 4, 1 << 20)
    topic = [Given(b"%d" % n, float(n), n, n) for n in range(20)]
    take(rows, topic)
    fallen = [Given(b"%d" % n, 0.5, 100 + n, 100 + n) for n in range(10, 20)]
    take(rows, fallen)
    newest = {one.key: (one.rank, one.value) for one in topic + fallen}
    check(rows, newest)
    assert rows.complete == 0
    rows.clear_floor()
    for one in topic[:10] + fallen:
        take(rows, [one])
    check(rows, newest)
    assert rows.complete >= 3
    assert {b"9", b"8", b"7"} <= held(rows).keys()
