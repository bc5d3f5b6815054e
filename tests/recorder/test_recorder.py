"""The recorder saves the ledger now and then, and spends little of its time on that."""

from __future__ import annotations

import pytest

from opicflow.pipelines.recorder import recorder as module
from opicflow.pipelines.recorder.recorder import Recorder


class SlowFrontier:
    """A frontier that takes three seconds to save."""

    def __init__(self) -> None:
        self.now = 0.0
        self.saved_at: list[float] = []

    def save(self) -> None:
        self.saved_at.append(self.now)
        self.now += 3.0


def test_the_ledger_is_saved_each_minute_or_as_rarely_as_its_size_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    frontier = SlowFrontier()
    monkeypatch.setattr(module.time, "monotonic", lambda: frontier.now)
    recorder = Recorder.__new__(Recorder)
    recorder._frontier, recorder._save_at = frontier, 60.0  # type: ignore[assignment]
    while frontier.now < 400.0:
        recorder._save_sometimes()
        frontier.now += 1.0
    assert frontier.saved_at == [60.0, 213.0, 366.0]
