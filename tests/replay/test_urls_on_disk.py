"""`urls-on-disk`: the same bytes, in files that leave nothing behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import ConfigRefused
from opicflow.pipelines.ledger.pages.layout import PAGE_ROW
from opicflow.pipelines.replay import final_plan
from opicflow.pipelines.replay.mapped_files import MappedFiles
from opicflow.pipelines.results.part_files import Parts, read_part, write_part
from opicflow.pipelines.stages import publish
from opicflow.pipelines.stages.outputs import FINAL_IMPORTANCE, REJECTS, Output
from support.logs import WebLog, jsonl, run, state_files, without_times

COMMAND = [sys.executable, "-m", "opicflow.pipelines.cli"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl of 2,000 pages, most more than once."""
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_bytes(jsonl(WebLog(power_law_web(2000, 3), seconds_between=40.0).crawl("random", 6000).events))
    return path


@pytest.mark.parametrize("history", ["certified", pytest.param("interpolation", marks=pytest.mark.soak)])
def test_results_and_state_are_the_same_bytes(
    history: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "ROWS_PER_PART", 300)
    monkeypatch.setattr(final_plan, "ROWS_PER_PART", 300)
    monkeypatch.setattr(final_plan, "_ORDERS_PER_PART", 70)
    monkeypatch.setattr(publish, "_SHARE_AT_ONCE", 2)
    monkeypatch.setattr(publish.everything, "__defaults__", (300,))
    from opicflow.pipelines.stages.settings import LedgerOptions

    for name, on_disk in (("memory", False), ("disk", True)):
        run(
            [log],
            tmp_path / f"{name}.out",
            state=tmp_path / name,
            urls_on_disk=on_disk,
            counting=LedgerOptions(history=history),
            segment_bytes=400_000,
        )
    results = {path.name for path in (tmp_path / "memory.out").iterdir()} - {"summary.json"}
    assert {"importance.jsonl", "refresh-schedule.jsonl", "crawl-orders.jsonl", "site-importance.jsonl"} < results
    for result in results:
        assert (tmp_path / "disk.out" / result).read_bytes() == (tmp_path / "memory.out" / result).read_bytes(), result
    summaries = [json.loads((tmp_path / f"{name}.out/summary.json").read_bytes()) for name in ("memory", "disk")]
    assert without_times(summaries[0]) == without_times(summaries[1])
    assert state_files(tmp_path / "disk") == state_files(tmp_path / "memory")
    left = {path.name for path in (tmp_path / "disk/work").iterdir()}
    assert left == {path.name for path in (tmp_path / "memory/work").iterdir()}
    answers = ["top", "schedule"]
    for what in answers:
        said = [
            subprocess.run([*COMMAND, what, "--state", str(tmp_path / name)], capture_output=True, check=True).stdout
            for name in ("memory", "disk")
        ]
        assert said[0] == said[1] != b""


@pytest.mark.slow
def test_a_state_goes_on_with_the_option_and_without(log: Path, tmp_path: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    days = []
    for number in range(3):
        days.append(tmp_path / f"{number}.jsonl")
        days[-1].write_bytes(b"".join(lines[2000 * number : 2000 * (number + 1)]))
    for name, on_disk in (("memory", [False] * 3), ("mixed", [False, True, False]), ("disk", [True] * 3)):
        for day, here in zip(days, on_disk, strict=True):
            run([day], state=tmp_path / name, urls_on_disk=here)
    assert state_files(tmp_path / "memory") == state_files(tmp_path / "mixed") == state_files(tmp_path / "disk")


@pytest.mark.slow
def test_a_ledger_that_grows_too_large_goes_to_disk_by_others(log: Path, tmp_path: Path) -> None:
    moves = []
    for name, most in (("memory", None), ("large", 1 << 40), ("moved", 100_000), ("disk", 0)):
        result = run([log], tmp_path / f"{name}.out", state=tmp_path / name, segment_bytes=300_000, most_in_memory=most)
        assert (tmp_path / f"{name}.out/importance.jsonl").read_bytes() == (
            tmp_path / "memory.out/importance.jsonl"
        ).read_bytes()
        assert state_files(tmp_path / name) == state_files(tmp_path / "memory")
        moves.append(any("are on disk, as with urls-on-disk=true" in note for note in result.notes))
    assert moves == [False, False, True, True]
    again = run([log], state=tmp_path / "memory", most_in_memory=0)  # a snapshot that is too large
    assert again.summary["pages"] > 0 and state_files(tmp_path / "memory") == state_files(tmp_path / "disk")


def test_no_file_is_left_without_a_state(log: Path, tmp_path: Path) -> None:
    run([log], tmp_path / "out", urls_on_disk=True)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".jsonl", ".json"}
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("days", [0, 1])
def test_a_full_disk_gives_one_line_of_error(days: int, log: Path, tmp_path: Path) -> None:
    """Also where a state is restored, which stays as it is."""
    limit = 1 << 20
    if days:
        run([log], state=tmp_path / "state")
        before = state_files(tmp_path / "state")
    done = subprocess.run(
        [*COMMAND, "replay", str(log), "--quiet", "--set", "urls-on-disk=true", "--state", str(tmp_path / "state")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"opicflow: {tmp_path}/state/work: File too large: correct this, and run the command again\n"
    assert not days or state_files(tmp_path / "state") == before


def test_other_runners_are_refused(log: Path) -> None:
    with pytest.raises(ConfigRefused, match=r"^urls-on-disk needs --runner DirectRunner or local"):
        run([log], urls_on_disk=True, runner="PrismRunner")


# -- the files


@pytest.mark.parametrize("like", [np.zeros(0, np.uint8), np.zeros((0, 2), np.int64), np.zeros(0, PAGE_ROW)], ids=str)
def test_a_column_keeps_its_rows_as_it_grows_and_its_file_has_no_name(
    like: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opicflow.pipelines.replay.mapped_files._LEAST_MAPPED_BYTES", 1 << 12)
    column = MappedFiles(tmp_path)(like)
    random = np.random.default_rng(0)
    expected = column.resized(0).copy()
    assert (expected.dtype, expected.shape) == (like.dtype, like.shape)
    for rows in (1, 100, 5000, 5001, 300, 40_000, 40_000):
        found = column.resized(rows)
        kept = min(rows, len(expected))
        assert found.shape == (rows, *like.shape[1:]) and found.flags.writeable
        assert found[:kept].tobytes() == expected[:kept].tobytes()
        found.reshape(-1).view(np.uint8)[:] = random.integers(0, 256, found.nbytes, np.uint8)
        expected = found.copy()
    assert list(tmp_path.iterdir()) == []


def test_blocks_are_allocated_before_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write to a mapping that the disk has no block for would end the process."""
    allocated = []

    def allocate(handle: int, begin: int, size: int) -> None:
        if begin + size > 3000:
            raise OSError(28, "No space left on device")
        allocated.append((begin, size))

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    column = MappedFiles(tmp_path)(np.zeros(0, np.int64))
    for rows in (100, 50, 300, 375):
        column.resized(rows)
    assert allocated == [(0, 800), (800, 1600), (2400, 600)]
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device") as caught:
        column.resized(376)
    assert caught.value.filename == str(tmp_path)


def test_a_part_is_read_compressed_or_not(tmp_path: Path) -> None:
    data = b"OPIC" + bytes(10_000)
    for compressed in (False, True):
        for kind in (FINAL_IMPORTANCE, REJECTS):
            write_part(tmp_path, Output(kind, data, offset=1, number=2), compressed)
            (path,) = tmp_path.glob(f"{kind}-*")
            assert read_part(path) == data == Parts(tmp_path, kind)[0]
            assert (path.stat().st_size < 1000) == (compressed and kind is FINAL_IMPORTANCE)
