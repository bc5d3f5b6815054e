"""Replays in one process do not disturb each other, and leave nothing in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from apache_beam.runners.worker.statesampler import DEFAULT_SAMPLING_PERIOD_MS, StateSampler

from opicflow.connectors import runs
from opicflow.connectors.files import log_reader
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange
from opicflow.connectors.files.reading import Reading
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLog
from opicflow.pipelines.replay.segments import DIRECT_RUNNER, LOCAL, SegmentRunner
from opicflow.pipelines.stages import decode
from opicflow.pipelines.stages.decode import decode_range
from opicflow.pipelines.stages.rules import Rules
from support.logs import FIRST_MS

EVENTS = 2_000


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of several segments, whose events have two fields that may be the URL."""
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 20_000)
    path = tmp_path / "log.jsonl"
    lines = (
        {
            "first_url": f"https://a.example/{n % 70}",
            "last_url": f"https://b.example/{n % 90}",
            "at": FIRST_MS + 60_000 * n,
        }
        for n in range(EVENTS)
    )
    path.write_text("".join(json.dumps({**line, "status": 200}) + "\n" for line in lines))
    return path


def runner_of(
    log: Path, work: Path, url: str = "first_url", part: slice = slice(0, None), **options: Any
) -> SegmentRunner:
    work.mkdir(exist_ok=True)
    reading = Reading(fields=(("url", url), ("fetched_at", "at")))
    read = FileRange("log", str(log), Format.JSONL, part.start, part.stop, reading=reading)
    return SegmentRunner([read], ReplayConfig(multiplier=1), Rules(), work, segment_bytes=60_000, **options)


def parts(work: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in work.iterdir()}


def test_replays_that_take_turns_in_one_process_are_as_each_alone(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[decode._ReadAhead] = []

    class Counted(decode._ReadAhead):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    def begun(name: str, until: int) -> ReplayedLog | None:
        """Replay the other field as the URL, up to a position."""
        *_, done = runner_of(log, tmp_path / name, "last_url", slice(0, until)).run(None)
        return done.log

    def go_on(name: str, keeper: ReplayedLog | None, at: int) -> None:
        list(runner_of(log, tmp_path / name, "last_url", slice(at, None)).run(keeper))

    done, *_ = runner_of(log, tmp_path / "first alone").run(None)
    (border,) = (one.at for one in done.report.files)
    go_on("other alone", begun("other alone", border), border)
    monkeypatch.setattr(decode, "_ReadAhead", Counted)
    keeper, first = begun("other", border), runner_of(log, tmp_path / "first").run(None)
    next(first)  # its reader is paused at the border
    go_on("other", keeper, border)
    list(decode_range(FileRange("log", str(log), Format.JSONL, border), Rules()))
    list(first)
    assert len(made) == 4, "none has read anything twice"
    for name in ("first", "other"):
        assert parts(tmp_path / name) == parts(tmp_path / f"{name} alone")


@pytest.mark.parametrize("runner", [DIRECT_RUNNER, LOCAL, "BundleBasedDirectRunner"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_replay_leaves_nothing_in_its_process(runner: str, is_whole: bool, log: Path, tmp_path: Path) -> None:
    before = set(runs._runs)
    segments = runner_of(log, tmp_path / "work", runner=runner).run(None)
    next(segments)
    if is_whole:
        list(segments)
    segments.close()
    assert set(runs._runs) == before
    assert StateSampler.__init__.__defaults__ == (DEFAULT_SAMPLING_PERIOD_MS,), "Beam is as it was"
