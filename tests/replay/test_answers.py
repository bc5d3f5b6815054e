"""Answers: a copy of the final results, equal to the ledger's own, and used only where it is whole and up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.replay.answers import answers_of, kept_answers, read_answers
from opicflow.pipelines.replay.state import read_ledger
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.records import Policy
from support.logs import FIRST_MS, WebLog, json_line, run, url

FAST = f"""
import sys
from opicflow.pipelines.cli.main import main
for command in (["top"], ["top", "--by", "host"], ["top", "--unread"], ["schedule"], ["show", "{url(1)}"]):
    assert main([*command, "--state", sys.argv[1]]) == 0
slow = {{"numba", "scipy", "apache_beam", "pyarrow", "fastavro", "kafka"}} & set(sys.modules)
sys.exit("imported: " + ", ".join(slow) if slow else 0)
"""


def write_log(path: Path, order: str, visits: int) -> Path:
    path.write_bytes(b"".join(map(json_line, WebLog(power_law_web(60, 3)).crawl(order, visits).events)))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "log.jsonl", "random", 400)


def snapshot_of(state: Path) -> str:
    (snapshot,) = (folder.name for folder in state.glob("snapshot-*"))
    return snapshot


def is_kept(state: Path) -> bool:
    return kept_answers(state, snapshot_of(state)) is not None


@pytest.mark.parametrize("history", ["interpolation", "certified"])
def test_answers_equal_those_of_the_ledger(log: Path, tmp_path: Path, history: str) -> None:
    state = tmp_path / "state"
    run([log], state=state, counting=LedgerOptions(history=history))
    kept = kept_answers(state, snapshot_of(state))
    assert kept is not None and kept == answers_of(read_ledger(state)[0])


def test_answers_follow_the_next_replay(log: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run([log], state=state)
    before = read_answers(state)[0]
    run([write_log(tmp_path / "more.jsonl", "cycle", 100)], state=state)
    after = read_answers(state)[0]
    assert is_kept(state) and after != before and after == answers_of(read_ledger(state)[0])
    assert len(list(state.glob("answers-*"))) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"settle": True, "counting": LedgerOptions(remember_links=True)},
        {"publications": True},
        {"policies": (Policy(url=url(1), refresh_forbidden=True, published_at_ms=FIRST_MS + 10**12),)},
    ],
    ids=["settled", "published while it ran", "a policy still to come"],
)
def test_final_results_that_are_not_those_of_the_ledger_are_no_answers(
    log: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    state = tmp_path / "state"
    run([log], tmp_path / "out", state=state, **options)
    assert not is_kept(state)
    assert read_answers(state)[0] == answers_of(read_ledger(state)[0])


def test_missing_and_damaged_answers_come_from_the_ledger(log: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run([log], state=state)
    whole = read_answers(state)[0]
    (folder,) = state.glob("answers-*")
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        path.write_bytes(data[:-9] + b"\x00" + data[-8:])
        assert read_answers(state)[0] == whole, path.name
        path.unlink()
        assert read_answers(state)[0] == whole, path.name
        path.write_bytes(data)
    assert is_kept(state)


def test_commands_that_show_answers_load_no_kernel(log: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run([log], state=state)
    subprocess.run([sys.executable, "-c", FAST, str(state)], check=True, capture_output=True)
