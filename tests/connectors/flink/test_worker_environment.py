"""The program of a worker is found beside this Python, or on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opicflow.connectors.flink.rest import FlinkRefused
from opicflow.connectors.flink.worker_environment import worker_command


@pytest.mark.parametrize("program", [None, "", "/nowhere/python"])
def test_a_python_without_a_program_finds_the_worker_on_the_path(
    program: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FlinkRefused, match="not on the path: give its path"):
        worker_command()
    (tmp_path / "bin").mkdir()
    worker = tmp_path / "bin" / "opicflow-worker"
    worker.touch(0o755)
    monkeypatch.setenv("PATH", str(worker.parent))
    assert worker_command() == str(worker)
