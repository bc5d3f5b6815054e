"""Batches that came before those in front of them wait in bounded memory, and leave as they came."""

from __future__ import annotations

import random

import pytest

from opicflow.pipelines.replay import early_batches
from opicflow.pipelines.replay.early_batches import EarlyBatches


def test_batches_leave_as_they_came_and_take_bounded_memory(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(early_batches, "MOST_IN_MEMORY_BYTES", 1000)
    chance = random.Random(seed)
    batches, expected = EarlyBatches(), dict[int, bytes]()
    for _ in range(3000):
        offset = (chance.randrange(3) << 32) + chance.randrange(20)
        if chance.random() < 0.55:
            batch = expected.setdefault(offset, chance.randbytes(chance.randrange(300)))
            batches[offset] = batch  # also one that is there
        else:
            assert batches.pop(offset, None) == expected.pop(offset, None)
        assert batches._file._rolled or batches._file.seek(0, 2) <= 1000
        assert len(batches) == len(expected)
    assert len(expected) > 5 and batches == expected


@pytest.mark.parametrize("most", [1 << 20, 1])
def test_batches_take_no_space_when_all_were_taken(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_batches, "MOST_IN_MEMORY_BYTES", most)
    batches = EarlyBatches()
    for _ in range(3):
        for number in range(5):
            batches[number] = bytes(100_000)
        assert batches._file.seek(0, 2) == 500_000
        for number in range(5):
            del batches[number]
        assert batches._file.seek(0, 2) == 0
