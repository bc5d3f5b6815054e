"""Small logs are replayed without Beam, with the same states and results (docs/decisions/small-logs.md)."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opicflow.connectors.files import log_reader
from opicflow.pipelines.replay.inputs import LogFiles
from opicflow.pipelines.replay.read_progress import Progress
from opicflow.pipelines.replay.runner import ReplayRequest, replayed
from opicflow.pipelines.replay.segments import IN_PROCESS, SegmentRunner
from opicflow.pipelines.web.webs import power_law_web
from support.logs import WebLog, jsonl, run, state_files, without_times

WITH_BEAM, WITHOUT = {"small_log_bytes": 0}, {"small_log_bytes": 1 << 20}
IMPORTS = """
import json, sys
from opicflow.pipelines.cli.main import main
assert main(["replay", {!r}, "--state", {!r}, "--out", {!r}, "--quiet"]) == 0
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


class Stopped(Exception):
    pass


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl, with lines that are not events."""
    web = WebLog(power_law_web(300, 3, dangling=0.1), announced=False, seconds_between=97.0)
    lines = jsonl(web.crawl("random", 1500).events).splitlines(keepends=True)
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_bytes(b"".join([*lines[:700], b"nonsense\n", *lines[700:]]))
    return path


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read little at once, so that segments end within a small log."""
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 20_000)


def results_of(out: Path) -> dict[str, Any]:
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    return {**files, "summary.json": without_times(json.loads(files["summary.json"]))}


@pytest.mark.parametrize("options", [{}, {"publications": True, "parts": 3}, {"urls_on_disk": True}])
def test_both_ways_give_the_same_bytes(options: dict[str, Any], log: Path, small_batches: None, tmp_path: Path) -> None:
    for name, way in (("beam", WITH_BEAM), ("alone", WITHOUT)):
        run([log], tmp_path / f"{name}.out", state=tmp_path / name, segment_bytes=60_000, **options, **way)
    assert state_files(tmp_path / "beam") == state_files(tmp_path / "alone")
    found = results_of(tmp_path / "beam.out")
    assert found == results_of(tmp_path / "alone.out")
    assert found["summary.json"]["rejects"] == 1 and len(found) >= 5


@pytest.mark.parametrize("ways", [(WITH_BEAM, WITHOUT), (WITHOUT, WITH_BEAM)], ids=["beam first", "beam last"])
def test_what_one_way_began_the_other_one_ends(
    ways: tuple[dict[str, int], ...], log: Path, small_batches: None, tmp_path: Path
) -> None:
    run([log], tmp_path / "alone.out", state=tmp_path / "alone", segment_bytes=60_000, publications=True)
    for way, segments in zip(ways, (3, 1000), strict=True):
        request = ReplayRequest(
            (str(log),), tmp_path / "out", state=tmp_path / "state", segment_bytes=60_000, publications=True, **way
        )
        left = iter(range(segments))

        def stop(progress: Progress, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Stopped

        try:
            with replayed(request, stop):
                assert segments > 3
        except Stopped:
            assert segments == 3
    assert state_files(tmp_path / "state") == state_files(tmp_path / "alone")
    assert results_of(tmp_path / "out") == results_of(tmp_path / "alone.out")


@pytest.mark.parametrize(
    ("is_small", "changes"),
    [
        (True, {}),
        (False, {"small_log_bytes": 1000}),
        (False, {"beam_options": ("--streaming",)}),
    ],
)
def test_a_log_is_small_by_its_bytes_on_disk(is_small: bool, changes: dict[str, Any], log: Path) -> None:
    ranges = LogFiles([str(log)]).files
    runner = SegmentRunner(_ranges(ranges), None, None, Path(), runner=IN_PROCESS, **changes)  # type: ignore[arg-type]
    assert runner._is_small is is_small


def test_a_compressed_log_is_as_small_as_its_file_and_a_pipe_is_not(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    (one,), (pipe,) = _ranges([str(packed)]), _ranges(["-"])
    assert (one.stored_bytes, pipe.stored_bytes) == (packed.stat().st_size, None)


def _ranges(files: list[str]) -> list[log_reader.FileRange]:
    return [log_reader.FileRange(file, file, log_reader.Format.JSONL) for file in files]


def test_a_small_replay_imports_what_it_needs(log: Path, tmp_path: Path) -> None:
    """Its second run: the first one compiles, and numba imports scipy where it is installed."""
    for name in ("a", "b"):
        code = IMPORTS.format(str(log), str(tmp_path / name), str(tmp_path / f"{name}.out"))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    imported = json.loads(done.stderr.splitlines()[-1])
    slow = {"apache_beam", "kafka", "grpc", "requests", "rich", "jinja2", "pyarrow", "scipy.linalg"}
    assert slow & set(imported) == set()
    assert len(imported) <= 800, len(imported)
