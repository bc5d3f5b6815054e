"""Snapshots and packed columns with right checksums and wrong content are refused in one line.

Many more are fuzzed (`support.fuzz.stored_inputs`).
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import Ledger, SnapshotRefused
from opicflow.schemas.columns import ColumnsRefused, pack, unpack
from support.fuzz.stored_inputs import head_of, opened, repacked, sealed, sound
from support.hostile_values import one_line


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
