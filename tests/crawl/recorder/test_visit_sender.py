"""Which visits of a log are sent, whatever the file has that keeps the position."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from opicflow.connectors.kafka.connection import Connection
from opicflow.pipelines.crawl.recorder import visit_sender
from opicflow.pipelines.crawl.recorder.visit_sender import VisitSender

FIRST, SECOND = (
    b'{"url":"https://a.example/%d","fetched_at":"2026-05-01T12:00:00Z","status":200,"links":[]}\n' % n for n in (1, 2)
)


class Brokers:
    """Brokers that take everything, or fail at first."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.problem: Exception | None = None

    def publisher(self, *_: Any) -> Brokers:
        return self

    def partitions(self, topic: str) -> int:
        return 1

    def send_many(self, topic: str, partitions: Any, urls: Any, values: Any, times_ms: Any) -> list[int]:
        self.urls += [bytes(url).decode() for url in urls]
        return []

    def flush(self) -> None:
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem

    def abandon(self) -> None:
        pass


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()
    monkeypatch.setattr(visit_sender, "Publisher", found.publisher)
    monkeypatch.setattr(visit_sender, "_PAUSE_SECONDS", 0.01)
    return found


def send(folder: Path, position: bytes | None) -> None:
    log = folder / "log.jsonl"
    log.write_bytes(FIRST + SECOND)
    if position is not None:
        (folder / "sent").write_bytes(position)
    VisitSender(log, Connection("b:9092"), "", lambda: 0.0).close()


@pytest.mark.parametrize(
    "position",
    [b"", b"\xff\x00", b"one", b"-5", b"7", b"1000000", b"9" * 30, b"9" * 5000],
    ids=lambda one: one[:8].hex(),
)
def test_a_damaged_position_is_reported_and_all_visits_are_sent_again(
    tmp_path: Path, brokers: Brokers, caplog: pytest.LogCaptureFixture, position: bytes
) -> None:
    with caplog.at_level(logging.WARNING):
        send(tmp_path, position)
    assert brokers.urls == ["https://a.example/1", "https://a.example/2"]
    assert "holds no position in the log: all visits are sent again" in caplog.text
    assert (tmp_path / "sent").read_text() == str(len(FIRST + SECOND))


@pytest.mark.parametrize("sent", [None, 0, 1, 2])
def test_visits_behind_the_position_are_sent(
    tmp_path: Path, brokers: Brokers, caplog: pytest.LogCaptureFixture, sent: int | None
) -> None:
    send(tmp_path, None if sent is None else str(sent * len(FIRST)).encode())
    assert brokers.urls == ["https://a.example/1", "https://a.example/2"][sent or 0 :]
    assert not caplog.text


def test_a_folder_that_is_full_for_a_while_does_not_end_the_sending(
    tmp_path: Path, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    brokers.problem = OSError(28, "No space left on device")
    send(tmp_path, None)
    assert "visits wait in the log: [Errno 28] No space left on device" in caplog.text
    send(tmp_path, None)
    assert (tmp_path / "sent").read_text() == str(len(FIRST + SECOND))
