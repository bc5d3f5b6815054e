"""The recorder saves the ledger now and then, and spends little of its time on that."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from opicflow.pipelines.crawl.recorder import recorder as module
from opicflow.pipelines.crawl.recorder.recorder import Recorder
from opicflow.pipelines.replay.state import StateRefused


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


def test_a_recorder_whose_disk_is_full_goes_on_and_ends_in_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise StateRefused("/crawl: the frontier cannot be saved: make room")

    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(module.time, "monotonic", lambda: 60.0)
    closed: list[str] = []
    recorder = Recorder.__new__(Recorder)
    recorder._sender, recorder._save_at = None, 60.0
    recorder._frontier = SimpleNamespace(save=refuse, close=refuse)  # type: ignore[assignment]
    recorder._inbox = SimpleNamespace(close=lambda: closed.append("inbox"))  # type: ignore[assignment]
    recorder._requests = SimpleNamespace(close=lambda: closed.append("requests"))  # type: ignore[assignment]
    recorder._save_sometimes()
    assert recorder._save_at == 120.0
    recorder._close()
    assert caplog.messages == ["opicflow: /crawl: the frontier cannot be saved: make room"] * 2
    assert closed == ["inbox", "requests"]
