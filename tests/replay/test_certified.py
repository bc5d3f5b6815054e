"""A certified replay: its results are exact ranks within the certificate of its summary, in however many runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opicflow.pipelines.graph.csr import Graph
from opicflow.pipelines.ledger import ConfigRefused
from opicflow.pipelines.transforms.settings import LedgerOptions
from opicflow.pipelines.web.webs import power_law_web
from support.crawls import exact_ranks
from support.logs import WebLog, importance_of, json_line, run

CERTIFIED = LedgerOptions(history="certified")


@pytest.fixture(scope="module")
def web() -> Graph:
    return power_law_web(200, 5)


@pytest.fixture
def logs(web: Graph, tmp_path: Path) -> list[Path]:
    """Two days of a crawl that read every page."""
    lines = [json_line(event) for event in WebLog(web).crawl("cycle", 500).events]
    paths = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for path, part in zip(paths, (lines[:350], lines[350:]), strict=True):
        path.write_bytes(b"".join(part))
    return paths


def distance(out: Path, web: Graph) -> float:
    return float(np.abs(importance_of(out / "importance.jsonl", web.pages) - exact_ranks(web)).sum())


def test_importance_is_within_the_certificate_of_the_exact_ranks(web: Graph, logs: list[Path], tmp_path: Path) -> None:
    certificate = run(logs, tmp_path / "out", counting=CERTIFIED).summary["certificate"]
    assert distance(tmp_path / "out", web) <= certificate <= 1e-4


def test_two_replays_into_a_state_end_as_one(web: Graph, logs: list[Path], tmp_path: Path) -> None:
    run(logs, tmp_path / "one", counting=CERTIFIED)
    for path in logs:
        result = run([path], tmp_path / "two", state=tmp_path / "state", counting=CERTIFIED)
    assert distance(tmp_path / "two", web) <= result.summary["certificate"] <= 1e-4
    one, two = ((tmp_path / name / "importance.jsonl").read_bytes() for name in ("one", "two"))
    assert one == two


def test_a_bonus_of_links_is_refused(logs: list[Path]) -> None:
    from opicflow.pipelines.transforms.rules import Categories, Rules
    from opicflow.pipelines.transforms.settings import CashFocus

    rules = Rules(categories=Categories(by_media=True))
    with pytest.raises(ConfigRefused, match="certified"):
        run(logs, counting=CERTIFIED, rules=rules, focus=CashFocus(bonus={"pdf": 0.5}))
