"""Snapshots and packed columns with right checksums and wrong content: they are refused in one line, whatever it is."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import (
    Ledger,
    SnapshotRefused,
)
from opicflow.pipelines.ledger.errors import EntryUnknown
from opicflow.schemas.columns import ColumnsRefused, pack, unpack
from support.fuzz.stored_inputs import (
    head_of,
    opened,
    other_columns,
    read_columns,
    repacked,
    restored_or_refused,
    restored_or_refused_quietly,
    sealed,
    snapshot_of_other_numbers,
    snapshot_of_other_values,
    sound,
)
from support.hostile_values import one_line


def fuzz_states(draw: random.Random, rounds: int) -> None:
    for _ in range(rounds):
        restored_or_refused(snapshot_of_other_values(draw))


def fuzz_columns_of_snapshots(draw: random.Random, rounds: int) -> None:
    for _ in range(rounds):
        restored_or_refused_quietly(snapshot_of_other_numbers(draw))


def fuzz_columns(draw: random.Random, rounds: int) -> None:
    for _ in range(rounds):
        try:
            read_columns(other_columns(draw))
        except (ColumnsRefused, EntryUnknown) as problem:
            one_line(problem)


FUZZED = {"states": fuzz_states, "columns-of-snapshots": fuzz_columns_of_snapshots, "packed-columns": fuzz_columns}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("part", FUZZED)
def test_altered_content_is_refused_in_one_line(part: str) -> None:
    FUZZED[part](random.Random(7), 300)


@pytest.mark.soak
@pytest.mark.parametrize("part", FUZZED)
def test_fuzz_altered_content(part: str, seed: int) -> None:
    FUZZED[part](random.Random(seed), 60_000)


def test_pages_that_share_a_url_are_refused() -> None:
    manifest, columns = opened(sound("interpolation"))
    starts = np.frombuffer(columns["url_start"], np.int64).copy()
    known = np.flatnonzero(starts)
    starts[known] = starts[known[0]]
    with pytest.raises(SnapshotRefused, match="two pages share a part of the arena"):
        Ledger.restore(sealed(manifest, {**columns, "url_start": starts.tobytes()}))


def test_urls_that_overlap_are_refused() -> None:
    manifest, columns = opened(sound("interpolation"))
    starts, urls = np.frombuffer(columns["url_start"], np.int64).copy(), bytearray(columns["urls"])
    first = int(starts[starts != 0].min())
    urls[first - 1] += 2  # its URL ends within the next one
    with pytest.raises(SnapshotRefused, match="two pages share a part of the arena"):
        Ledger.restore(sealed(manifest, {**columns, "urls": bytes(urls)}))


@pytest.mark.parametrize("shards", [0, -1, 1 << 20, 1 << 70, 1e300, "1", None, True])
def test_an_impossible_number_of_shards_is_refused(shards: Any) -> None:
    manifest, columns = opened(sound("interpolation"))
    manifest["state"]["shards"] = shards
    with pytest.raises(SnapshotRefused) as caught:
        Ledger.restore(sealed(manifest, columns))
    one_line(caught.value)


def test_a_column_of_more_rows_than_memory_is_refused() -> None:
    manifest, columns = opened(sound("interpolation"))
    manifest = copy.deepcopy(manifest)
    manifest["columns"]["hot"][1][0] = 1 << 49
    with pytest.raises(SnapshotRefused) as caught:
        Ledger.restore(sealed(manifest, columns))
    one_line(caught.value)


def test_one_value_does_not_become_gigabytes() -> None:
    head, rest = head_of(pack("x", {}, {"c": np.full(30, 7)}))
    head["columns"][0][3] = 1 << 40
    with pytest.raises(ColumnsRefused, match="another type or length"):
        unpack(repacked(head, rest))


@pytest.mark.parametrize("kind", ["|O", "<U8", "|V8", "<M8[s]", "i8,i8", "<f16", ">i8", "x", "", 8, None, ["a"]])
def test_columns_of_other_types_are_refused(kind: Any) -> None:
    head, rest = head_of(pack("x", {}, {"c": np.arange(30)}))
    for at in (1, 2):
        changed = copy.deepcopy(head)
        changed["columns"][0][at] = kind
        with pytest.raises(ColumnsRefused):
            unpack(repacked(changed, rest))
