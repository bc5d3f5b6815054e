"""Batches that came before their turn wait in bounded memory, and leave as they came."""

from __future__ import annotations

import random

import pytest

from opicflow.pipelines.replay import early_batches
from opicflow.pipelines.replay.early_batches import EarlyBatches


def test_batches_leave_as_they_came_and_take_bounded_memory(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(early_batches, "MOST_IN_MEMORY_BYTES", 1000)
    chance = random.Random(seed)
    batches, expected = EarlyBatches(), dict[tuple[int, int], bytes]()
    for _ in range(3000):
        turn = (chance.randrange(3), chance.randrange(20))
        if chance.random() < 0.55:
            batch = expected.setdefault(turn, chance.randbytes(chance.randrange(300)))
            batches[turn] = batch  # also one that is there
        else:
            assert batches.pop(turn, None) == expected.pop(turn, None)
        in_memory = sum(map(len, batches._in_memory.values()))
        assert in_memory == batches._bytes <= 1000
        assert len(batches) == len(expected)
    assert len(expected) > 5 and batches == expected


def test_the_file_takes_no_space_when_no_batch_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_batches, "MOST_IN_MEMORY_BYTES", 0)
    batches = EarlyBatches()
    for _ in range(3):
        for number in range(5):
            batches[0, number] = bytes(100_000)
        assert batches._file is not None and batches._file.seek(0, 2) == 500_000
        for number in range(5):
            del batches[0, number]
        assert batches._file.seek(0, 2) == 0
