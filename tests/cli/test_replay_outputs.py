"""`opicflow replay --out -` through real pipes, and `--parts`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from support.commands import command, refusal
from support.logs import WebLog, jsonl

REPLAY = [sys.executable, "-m", "opicflow.pipelines.cli", "replay"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of so many pages that a pipe does not hold their importance."""
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_bytes(jsonl(WebLog(power_law_web(1500, 3)).crawl("random", 300).events))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["jsonl", "avro", "parquet"])
def test_a_pipe_gets_the_bytes_of_the_file_and_standard_error_the_rest(format_: str, log: Path, tmp_path: Path) -> None:
    assert command("replay", log, "--quiet", "--out", tmp_path / "out", "--format", format_).code == 0
    for quiet in ([], ["--quiet"]) if format_ == "jsonl" else (["--quiet"],):
        done = subprocess.run(
            [*REPLAY, log, "--out", "-", "--format", format_, *quiet], capture_output=True, check=True
        )
        assert done.stdout == (tmp_path / f"out/importance.{format_}").read_bytes()
        assert (b"events read = " in done.stderr) == (not quiet) and (done.stderr == b"") == bool(quiet)


@pytest.mark.slow
def test_a_reader_that_ends_early_is_no_error(log: Path, tmp_path: Path) -> None:
    words = [*REPLAY, str(log), "--out", "-", "--state", str(tmp_path / "state"), "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as replay:
        assert replay.stdout is not None and replay.stderr is not None
        first = json.loads(replay.stdout.readline())
        replay.stdout.close()
        assert replay.stderr.read() == b""
        assert replay.wait() == 0
    top = command("top", "--state", tmp_path / "state", "--json", "-n", "1")  # the run counts as finished
    assert json.loads(top.out)[0]["url"] == first["url"]


@pytest.mark.parametrize(
    "format_", [pytest.param("avro", marks=pytest.mark.soak), pytest.param("parquet", marks=pytest.mark.slow)]
)
def test_a_reader_of_bytes_may_end_early_too(format_: str, log: Path) -> None:
    words = [*REPLAY, str(log), "--out", "-", "--format", format_, "--quiet"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as replay:
        assert replay.stdout is not None and replay.stderr is not None
        assert replay.stdout.read(4) in (b"Obj\x01", b"PAR1")
        replay.stdout.close()
        assert (replay.stderr.read(), replay.wait()) == (b"", 0)


@pytest.mark.slow
def test_a_pipe_may_come_from_another_program_and_go_on_to_compare(log: Path, tmp_path: Path) -> None:
    assert command("replay", log, "--quiet", "--out", tmp_path / "out", "--parts", "3").code == 0
    replay = subprocess.run([*REPLAY, "-", "--out", "-", "--quiet"], input=log.read_bytes(), capture_output=True)
    compare = [*REPLAY[:-1], "compare", "-", tmp_path / "out", "--json"]
    done = subprocess.run(compare, input=replay.stdout, capture_output=True, check=True)
    assert json.loads(done.stdout)["l1"] == 0 and replay.stderr == done.stderr == b""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_behind_standard_output_is_one_line(log: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*REPLAY, log, "--out", "-", "--quiet"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == (
        b"opicflow: standard output: No space left on device: correct this, and run the command again\n"
    )


def test_a_terminal_gets_lines_only(log: Path) -> None:
    master, terminal = os.openpty()
    try:
        words = [*REPLAY, log, "--out", "-", "--quiet", "--format", "parquet"]
        done = subprocess.run(words, stdout=terminal, stderr=subprocess.PIPE)
    finally:
        os.close(terminal)
        os.close(master)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"--format parquet: no terminal shows it" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "-", "--json"], "--out -, --json: both write to standard output: omit one"),
        (["--out", "-", "--parts", "2"], "--parts 2: only files have parts: name a folder with --out"),
        (["--parts", "2"], "--parts 2: only files have parts: name a folder with --out"),
        (["--out", "x", "--parts", "100000"], "--parts 100000: at most 99,999 files"),
        (["--report", "-"], "-: here it does not mean standard output: name a file"),
        (["--out", "-", "--publications"], "--publications: nowhere to write them"),
    ],
)
def test_outputs_that_contradict_each_other_are_refused_in_one_line(words: list[str], message: str, log: Path) -> None:
    assert refusal("replay", log, *words).startswith(f"opicflow: {message}")


@pytest.mark.parametrize("format_", ["jsonl", "parquet"])
def test_after_a_run_with_other_parts_only_the_new_files_are_there(format_: str, log: Path, tmp_path: Path) -> None:
    divided = ("importance", "refresh-schedule", "crawl-orders", "site-importance")
    for parts in (4, 2, 1):
        done = command("replay", log, "--quiet", "--out", tmp_path, "--format", format_, "--parts", parts)
        parted = [f"-{number:05}-of-{parts:05}" for number in range(1, parts + 1)] if parts > 1 else [""]
        expected = [f"{name}{part}.{format_}" for name in divided for part in parted]
        expected += [f"rejects.{format_}", "summary.json"]
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(expected)
        assert [line.removeprefix(f"written: {tmp_path}/") for line in done.out.splitlines() if "written" in line] == (
            expected
        )
