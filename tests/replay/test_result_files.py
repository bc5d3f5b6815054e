"""The files of results are written side by side: one that cannot be written ends the others."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from opicflow.pipelines.replay import result_files
from opicflow.pipelines.replay.result_files import FileKinds, write_files


@pytest.mark.parametrize("failing", ["importance", "refresh-schedule", "crawl-orders"])
def test_a_file_that_cannot_be_written_ends_the_others(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others_begun = Event()

    def write(
        folder: Path, name: str, format_: str, kind: Any, packed: Callable[[], Iterable[bytes]], parts: int
    ) -> Any:
        if name != failing:
            for _ in packed():  # there is no end of parts
                others_begun.set()
        others_begun.wait(30)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(result_files, "Parts", lambda work, kind: repeat(b""))
    monkeypatch.setattr(result_files, "write_result", write)
    monkeypatch.setattr(result_files, "_THREADS", 3)
    with pytest.raises(OSError, match="No space left") as raised:
        write_files(tmp_path, tmp_path, FileKinds("jsonl", 1, sites=False, publications=False))
    assert raised.value.filename == str(tmp_path / f"{failing}.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_files_are_named_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "Parts", lambda work, kind: iter(()))
    written = write_files(tmp_path, tmp_path, FileKinds("jsonl", 1, sites=True, publications=True))
    assert [path.name for path in written] == [
        "importance.jsonl",
        "refresh-schedule.jsonl",
        "crawl-orders.jsonl",
        "site-importance.jsonl",
        "publications.jsonl",
        "refresh-publications.jsonl",
        "rejects.jsonl",
        "tombstones.jsonl",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(written)
