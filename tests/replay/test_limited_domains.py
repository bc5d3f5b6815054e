"""Limits of domains by the command line: a flood of made-up pages stays small, and its owner gets no notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.commands import CommandResult, command
from support.logs import FIRST_MS

LIMITS = ["--max-unread-per-domain", "20", "--set", "max-announced-per-domain=5", "--set", "max-share-per-domain=0.05"]
OF_ORDERS = ["--set", "domain-fetches=4", "--set", "domain-discovery=0.1", "--bandwidth", "100"]


def flood(path: Path) -> Path:
    """Write a log of 30 honest pages, one with 3,000 links to subdomains of one domain, and 500 announcements."""
    honest = [f"https://site{number}.org/" for number in range(30)]
    events = [
        {
            "url": url,
            "fetched_at": (FIRST_MS + 1000 * number) / 1000,
            "status": 200,
            "links": [honest[(number + step) % 30] for step in (1, 4)],
        }
        for number, url in enumerate(honest)
    ]
    events[7]["links"] = [f"https://h{number}.trap.com/" for number in range(3000)]
    events += [{"kind": "announce", "url": f"https://told.com/{number}"} for number in range(500)]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def replay(*options: object) -> CommandResult:
    return command("replay", *options, "--quiet")


@pytest.mark.slow
def test_a_flood_of_links_and_announcements_is_limited(tmp_path: Path) -> None:
    log = flood(tmp_path / "crawl.jsonl")
    done = replay(log, "--state", tmp_path / "state", "--out", tmp_path / "out", *LIMITS, *OF_ORDERS)
    assert done.code == 0, done.err
    assert "named pages that were not learnt" in done.out + done.err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["pages"] == 30 + 20 + 5
    assert summary["not_learnt"] >= 2980 + 495
    assert summary["drift"] == 0
    again = replay("--state", tmp_path / "state", *LIMITS)
    assert again.code == 0, again.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "max-share-per-domain=2", "--history", "certified"], "--set max-share-per-domain=2: give a share"),
        (["--set", "max-share-per-domain=0.1", "--history", "interpolation"], "take certified"),
        (["--set", "domain-discovery=7"], "--set domain-discovery=7: give a number"),
    ],
)
def test_impossible_limits_end_in_one_line(tmp_path: Path, options: list[str], message: str) -> None:
    done = replay(flood(tmp_path / "crawl.jsonl"), *options)
    assert done.code == 2
    assert done.err.count("\n") == 1 and message in done.err
