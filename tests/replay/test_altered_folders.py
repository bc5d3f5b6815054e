"""State folders and graphs with right digests and wrong content are refused in one line.

Many more are fuzzed (`support.fuzz.written_folders`).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from opicflow.pipelines.cli.main import main
from opicflow.pipelines.ranks.graph.store import write_manifest
from support.fuzz.written_folders import sound_graph, sound_state, write_state


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("rules", []),
        ("rules", [{"urls": 5}]),
        ("sources", None),
        ("ahead", [{"name": "log/1", "source": "of no name", "at": 0, "end": 1, "after_ms": 0, "earliest_ms": 1}]),
        ("snapshot", "../elsewhere"),
        ("checkpoints", "12"),
        ("ledger", {}),
        ("run", {"logs": 7}),
        ("unknown", 1),
    ],
)
def test_a_wrong_part_of_a_state_ends_a_command_with_one_line(
    where: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, values = sound_state()
    folder = tmp_path / "state"
    shutil.copytree(state, folder)
    write_state(folder, {**values, where: value})
    log = state.with_name("crawl.jsonl")
    for command in (["top", "--state", str(folder)], ["replay", str(log), "--state", str(folder)]):
        assert main(command) == 2
        shown = capsys.readouterr().err.strip().splitlines()[-1]
        assert "state.json was damaged" in shown


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("pages", -1),
        ("pages", 1 << 61),
        ("slice_pages", 0),
        ("block_sources", 0),
        ("categories", [1]),
        ("files", {"../graph.json": [5, ""]}),
    ],
)
def test_a_wrong_part_of_a_graph_ends_a_command_with_one_line(
    where: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, values = sound_graph()
    path = tmp_path / "graph"
    shutil.copytree(graph, path)
    (path / "graph.json").write_bytes(write_manifest({**values, where: value}))
    assert main(["rank", str(path)]) == 2
    assert "build the graph again" in capsys.readouterr().err
