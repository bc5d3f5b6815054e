"""Replays by threads and by Beam have the same states and results (docs/decisions/segments.md)."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from apache_beam.coders.typecoders import registry

from opicflow.connectors.files import log_reader
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.replay.pipeline import DecodedBatchCoder
from opicflow.pipelines.replay.runner import ReplayRequest, replayed
from opicflow.pipelines.replay.segment_steps import SHARD
from opicflow.pipelines.replay.segments import DIRECT_RUNNER, LOCAL
from opicflow.pipelines.stages.decode import Segment, decode_segment
from opicflow.pipelines.stages.decoded_batch import DecodedBatch
from opicflow.pipelines.stages.keep_ledger import KeepLedger
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.pages import PageIds
from support.event_rows import rows_of
from support.logs import WebLog, jsonl, run, state_files, without_times
from support.same_bytes import Kill, Killed

IMPORTS = """
import json, sys
from opicflow.pipelines.cli.main import main
assert main(["replay", {!r}, "--state", {!r}, "--out", {!r}, "--quiet", *{!r}]) == 0
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


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


@pytest.mark.parametrize(
    "options",
    [
        {"publications": True, "parts": 3},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"urls_on_disk": True}, marks=pytest.mark.slow),
    ],
)
def test_both_ways_give_the_same_bytes(options: dict[str, Any], log: Path, small_batches: None, tmp_path: Path) -> None:
    for runner in (DIRECT_RUNNER, LOCAL):
        out, state = tmp_path / f"{runner}.out", tmp_path / runner
        run([log], out, state=state, segment_bytes=60_000, runner=runner, **options)
    assert state_files(tmp_path / DIRECT_RUNNER) == state_files(tmp_path / LOCAL)
    notes = [
        json.loads((tmp_path / one / "state.json").read_bytes())["state"]["notes"] for one in (DIRECT_RUNNER, LOCAL)
    ]
    assert notes[0] == notes[1] and json.loads(notes[0])[0][0]["chain"]
    found = results_of(tmp_path / f"{DIRECT_RUNNER}.out")
    assert found == results_of(tmp_path / f"{LOCAL}.out")
    assert found["summary.json"]["rejects"] == 1 and len(found) >= 5


def test_batches_go_from_one_stage_of_beam_to_the_next_as_they_are(
    log: Path, small_batches: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam measures the sizes of elements, and would encode every other batch for that."""
    sizes = []
    monkeypatch.setattr(DecodedBatchCoder, "encode", never)
    monkeypatch.setattr(DecodedBatchCoder, "estimate_size", lambda coder, batch: sizes.append(batch.size_bytes) or 1)
    run([log], tmp_path / "out", runner=DIRECT_RUNNER)
    assert len(sizes) > 1 and max(sizes) > 10_000


def never(*given: object) -> bytes:
    raise AssertionError(given)


def test_a_batch_is_the_same_after_its_coder(log: Path) -> None:
    """A runner may have the stages in processes of their own."""
    whole = FileRange("f", str(log), Format.JSONL)
    batch, last = decode_segment(Segment(0, (whole,), 1 << 30, ends_input=True), Rules())
    for one in (batch, last):
        coder = registry.get_coder(DecodedBatch)
        again = coder.decode(coder.encode(one))
        assert again._replace(decoded=None, urls=None) == one._replace(decoded=None, urls=None)
        assert rows_of(again.decoded.events) == rows_of(one.decoded.events)
        assert again.decoded.rejects == one.decoded.rejects
        assert again.urls.ids.tolist() == one.urls.ids.tolist()


@pytest.mark.parametrize(
    "runners",
    [(DIRECT_RUNNER, LOCAL), pytest.param((LOCAL, DIRECT_RUNNER), marks=pytest.mark.slow)],
    ids=["beam first", "beam last"],
)
def test_what_one_way_began_the_other_one_ends(
    runners: tuple[str, ...], log: Path, small_batches: None, tmp_path: Path
) -> None:
    run([log], tmp_path / "alone.out", state=tmp_path / "alone", segment_bytes=60_000, publications=True)
    for runner, kill in zip(runners, (Kill(4), Kill(0)), strict=True):
        options: dict[str, Any] = {"segment_bytes": 60_000, "publications": True, "runner": runner}
        options["counting"] = LedgerOptions(history="interpolation")
        options["page_ids"] = PageIds()
        request = ReplayRequest((str(log),), tmp_path / "out", state=tmp_path / "state", **options)
        with pytest.raises(Killed) if runner == runners[0] else nullcontext(), replayed(request, kill):
            pass
    assert kill.calls
    assert state_files(tmp_path / "state") == state_files(tmp_path / "alone")
    assert results_of(tmp_path / "out") == results_of(tmp_path / "alone.out")


def test_a_compressed_log_is_as_small_as_its_file_and_a_pipe_is_not(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    (one,), (pipe,) = _ranges([str(packed)]), _ranges(["-"])
    assert (one.stored_bytes, pipe.stored_bytes) == (packed.stat().st_size, None)


def _ranges(files: list[str]) -> list[log_reader.FileRange]:
    return [log_reader.FileRange(file, file, log_reader.Format.JSONL) for file in files]


def test_a_replay_by_threads_imports_what_it_needs(log: Path, tmp_path: Path) -> None:
    """Its second run: the first one compiles, and numba imports scipy where it is installed."""
    for name in ("a", "b"):
        imported = imported_by(log, tmp_path / name, "--runner", LOCAL)
    slow = {"apache_beam", "kafka", "grpc", "requests", "rich", "jinja2", "pyarrow", "scipy.linalg"}
    assert slow & set(imported) == set()
    assert len(imported) <= 800, len(imported)


def imported_by(log: Path, folder: Path, *options: str) -> list[str]:
    code = IMPORTS.format(str(log), str(folder), str(folder.with_suffix(".out")), options)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stderr.splitlines()[-1])
    return names


@pytest.mark.parametrize("options", [(), pytest.param(("--runner", DIRECT_RUNNER), marks=pytest.mark.slow)])
def test_beam_replays_a_log_of_3_kb_whether_its_runner_is_named_or_not(
    options: tuple[str, ...], log: Path, tmp_path: Path
) -> None:
    short = tmp_path / "short.jsonl"
    short.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:6]))
    assert short.stat().st_size < 3 << 10
    assert "apache_beam.runners.portability.fn_api_runner" in imported_by(short, tmp_path / "state", *options)


def test_beam_keeps_the_ledger_in_a_keyed_stage_with_state(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, keep = [], KeepLedger.keep

    def noted(self: KeepLedger, shard: int, batch: Any, head_state: Any, *others: Any) -> Any:
        seen.append((shard, type(head_state).__module__.partition(".")[0]))
        return (yield from keep(self, shard, batch, head_state, *others))

    monkeypatch.setattr(KeepLedger, "keep", noted)
    run([log], tmp_path / "out", runner=DIRECT_RUNNER)
    assert set(seen) == {(SHARD, "apache_beam")}
