"""State folders and graphs with right digests and wrong content are refused in one line, whatever it is."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from opicflow.pipelines.cli.main import main
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph, write_manifest
from opicflow.pipelines.replay.answers import read_answers
from opicflow.pipelines.replay.state import STATE_VERSION, StateRefused, _digest_of, read_ledger
from support.hostile_values import altered, one_line
from support.logs import FIRST_MS, WebLog, jsonl, run
from support.stored_graphs import stored

PARTS = ["state", "graph"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("log") / "crawl.jsonl"
    log.write_bytes(jsonl(WebLog(power_law_web(60, 3), announced=False).crawl("random", 150).events))
    return log


@pytest.fixture(scope="module")
def state(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state") / "state"
    run([log], None, state=folder, latest_ms=FIRST_MS + 2_000_000)
    assert len(state_values(folder)["ahead"]) == 1
    return folder


def write_state(folder: Path, values: Any) -> None:
    stored = {"version": STATE_VERSION, "digest": _digest_of(values), "state": values}
    (folder / "state.json").write_text(json.dumps(stored))


def state_values(folder: Path) -> Any:
    return json.loads((folder / "state.json").read_bytes())["state"]


def fuzz_states(state: Path, tmp_path: Path, draw: random.Random, rounds: int) -> None:
    folder = tmp_path / "state"
    shutil.copytree(state, folder)
    sound = state_values(state)
    for _ in range(rounds):
        values = altered(sound, draw)
        if isinstance(values, dict) and draw.random() < 0.3 and isinstance(values.get("notes"), str):
            values = {**sound, "notes": json.dumps(altered(json.loads(sound["notes"]), draw))}
        write_state(folder, values)
        for read in (read_answers, read_ledger):
            try:
                read(folder)
            except StateRefused as problem:
                one_line(problem)


def fuzz_graphs(draw: random.Random, tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "graph"
    stored(path, power_law_web(200, 3), slice_pages=64)
    manifest = json.loads((path / "graph.json").read_bytes())
    sound = {name: value for name, value in manifest.items() if name not in ("format", "version", "digest")}
    for _ in range(rounds):
        values = altered(sound, draw)
        if not isinstance(values, dict):
            continue
        (path / "graph.json").write_bytes(write_manifest(values))
        try:
            graph = StoredGraph(path)
            graph.check()
            graph.ids()
        except GraphRefused as problem:
            one_line(problem)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_altered_folders_are_refused_in_one_line(part: str, state: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    fuzz_states(state, tmp_path, draw, 150) if part == "state" else fuzz_graphs(draw, tmp_path, 300)


@pytest.mark.soak
@pytest.mark.parametrize("part", PARTS)
def test_fuzz_altered_folders(part: str, state: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    fuzz_states(state, tmp_path, draw, 10_000) if part == "state" else fuzz_graphs(draw, tmp_path, 30_000)


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
    where: str, value: Any, log: Path, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "state"
    shutil.copytree(state, folder)
    write_state(folder, {**state_values(state), where: value})
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
    path = tmp_path / "graph"
    stored(path, power_law_web(50, 3), slice_pages=64)
    manifest = json.loads((path / "graph.json").read_bytes())
    values = {name: kept for name, kept in manifest.items() if name not in ("format", "version", "digest")}
    (path / "graph.json").write_bytes(write_manifest({**values, where: value}))
    assert main(["rank", str(path)]) == 2
    assert "build the graph again" in capsys.readouterr().err
