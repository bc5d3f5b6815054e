"""State folders of an older opicflow are read, and their replays continue."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from opicflow.pipelines.ledger import Ledger, LedgerConfig
from opicflow.pipelines.replay.keeper import KeeperConfig, ReplayHead, ReplayKeeper
from opicflow.schemas.pages import PageIds
from support.logs import run
from support.paths import TOP

STATE = TOP / "tests" / "golden" / "replay-state-0.1.tar.gz"
"""Two logs, and the state of a replay of both with samples and publications, killed at its first checkpoint."""

HEAD = ReplayHead(3, 7, "c", 9, 201, 28, 5, "p", (1, 2))
STORED_HEAD = (
    b'{"portion":3,"part":7,"chain":"c","events":9,"next_sample_visits":201,"visits_at_sweep":28,"visits_at_plan":5,'
    b'"policies_chain":"p","unpublished":[1,2]}'
)


def test_a_killed_replay_of_an_older_version_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(STATE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    logs = [Path("day-1.jsonl"), Path("day-2.jsonl")]
    for name, state in (("whole", None), ("continued", Path("state"))):
        ids = PageIds.unkeyed()  # those of that time
        result = run(logs, Path(name), state=state, samples=True, publications=True, page_ids=ids)
        assert result.summary["events_read"] == 60
    names = [path.name for path in Path("whole").iterdir() if path.name != "summary.json"]
    assert len(names) == 8
    for name in names:
        assert _comparable(Path("whole", name)) == _comparable(Path("continued", name)), name


def _comparable(file: Path) -> bytes:
    """The file without trends, which begin again, since an older state has no scores to compare with.

    Publications of the older version do not say whether importance had settled.
    """
    return re.sub(rb'"trend_per_day":[^,]+,|,"settled":(null|false)', b"", file.read_bytes())


def test_a_head_keeps_its_bytes() -> None:
    assert HEAD.to_bytes() == STORED_HEAD
    assert ReplayHead.from_bytes(STORED_HEAD) == HEAD


def test_the_notes_of_a_keeper_keep_their_bytes() -> None:
    keeper = ReplayKeeper(KeeperConfig(), Ledger(LedgerConfig()), HEAD)
    stored = b"[" + STORED_HEAD + b",{},{},[],[],[]]"
    assert keeper.notes() == stored
    assert ReplayKeeper.from_notes(KeeperConfig(), Ledger(LedgerConfig()), stored).head == HEAD
