"""Page ids of a replay: their key, the state that keeps it, states of older versions, and URLs that collide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opicflow.pipelines.replay.state import StateRefused
from opicflow.schemas.pages import PageIds
from support.commands import command
from support.logs import records_of, run

FIRST, SECOND = "http://collide.com/33114542", "http://collide.com/04146534"
"""Two URLs with one page id by the public key."""


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


def visit(url: str, *links: str, second: int = 1000) -> dict[str, Any]:
    return {"url": url, "status": 200, "fetched_at": second, "links": list(links)}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    events = [
        visit(FIRST, "http://a.com/", second=1_700_000_000),
        visit(SECOND, "http://b.com/", second=1_700_000_100),
        {"url": SECOND, "announce": True},
        visit("http://a.com/", FIRST, SECOND, second=1_700_000_200),
    ]
    return write(tmp_path / "crawl.jsonl", events)


def test_a_url_that_collides_is_rejected_with_its_reason_and_counted(log: Path, tmp_path: Path) -> None:
    result = run([log], tmp_path / "out")
    rejects = records_of(tmp_path / "out" / "rejects.jsonl")
    assert [(one["reason"], one["bytes"], one["source"]) for one in rejects] == [
        ("collision", SECOND, str(log)),
        ("collision", SECOND, str(log)),
    ]
    assert "another URL has the page id of this one, 46e50c3e48609126: it was known first" in rejects[0]["detail"]
    assert result.summary["rejects_by_reason"] == {"collision": 2}
    assert (result.summary["events_read"], result.summary["visits"], result.summary["announcements"]) == (4, 2, 0)
    ranks = {one["url"]: one for one in records_of(tmp_path / "out" / "importance.jsonl")}
    assert set(ranks) == {FIRST, "http://a.com/", "http://b.com/"}
    assert ranks[FIRST]["visits"] == 1
    assert ranks[FIRST]["importance"] > ranks["http://b.com/"]["importance"]


def test_with_another_key_nothing_collides(log: Path, tmp_path: Path) -> None:
    """So collisions cannot be made without the key."""
    result = run([log], tmp_path / "out", page_ids=PageIds.with_secret(b"sixteen bytes or more"))
    assert result.summary["rejects_by_reason"] == {}
    assert len(records_of(tmp_path / "out" / "importance.jsonl")) == 4


def test_a_collision_gives_the_same_results_in_any_segments(log: Path, tmp_path: Path) -> None:
    run([log], tmp_path / "whole")
    run([log], tmp_path / "cut", segment_bytes=1)
    for name in ("importance.jsonl", "rejects.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def test_the_same_log_and_key_give_the_same_bytes(log: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"0123456789abcdef\n")
    names = ["one", "two", "public"]
    for name in names:
        key = ["--set", f"id-key={tmp_path / 'key'}"] if name != "public" else []
        assert command("replay", log, "--out", tmp_path / name, "--quiet", *key).code == 0
    files = [(tmp_path / name / "importance.jsonl").read_bytes() for name in names]
    assert files[0] == files[1] != files[2]


def test_a_state_keeps_its_key(log: Path, tmp_path: Path) -> None:
    key, state = tmp_path / "key", tmp_path / "state"
    key.write_text("0123456789abcdef")
    assert command("replay", log, "--state", state, "--set", f"id-key={key}", "--quiet").code == 0
    assert (state / "state.json").stat().st_mode & 0o077 == 0, "it holds the key"
    later = write(tmp_path / "later.jsonl", [visit("http://c.com/", SECOND, second=1_700_000_300)])
    result = command("replay", later, "--state", state, "--quiet", "--out", tmp_path / "out")
    assert result.code == 0 and "0123456789abcdef" not in result.out + result.err
    assert len(records_of(tmp_path / "out" / "importance.jsonl")) == 5
    assert command("show", SECOND, "--state", state).code == 0
    other = tmp_path / "other"
    other.write_text("another key of sixteen")
    refused = command("replay", later, "--state", state, "--set", f"id-key={other}")
    assert (refused.code, refused.out) == (2, "")
    assert "its pages have ids by another key: omit id-key, or name another folder" in refused.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"", "it has 0 bytes, and a key needs 16"),
        (b"short\n", "it has 5 bytes, and a key needs 16: make one with openssl rand -hex 16"),
    ],
)
def test_a_key_that_is_none_is_refused_in_one_line(
    log: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    refused = command("replay", log, "--set", f"id-key={tmp_path / 'key'}")
    assert refused.code == 2 and message in refused.err and len(refused.err.splitlines()) == 1


def test_a_secret_key_stays_in_this_process(log: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef")
    refused = command("replay", log, "--set", f"id-key={tmp_path / 'key'}", "--runner", "BundleBasedDirectRunner")
    assert refused.code == 2 and "id-key needs --runner DirectRunner or local" in refused.err


def test_a_state_with_rules_of_a_later_version_is_refused_in_one_line(log: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run([log], state=state)
    from opicflow.pipelines.replay import state as states

    stored = json.loads((state / "state.json").read_bytes())
    stored["state"]["page_ids"]["version"] = 3
    stored["digest"] = states._digest_of(stored["state"])
    (state / "state.json").write_text(json.dumps(stored))
    with pytest.raises(StateRefused, match=r"page ids have version 3, this opicflow supports 1: update"):
        run([log], state=state)
