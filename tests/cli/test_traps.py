"""`opicflow traps`: the figures of a state, why, and what to write about it; the summary of a replay has them, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.commands import output_of

HOST = "https://www.example.org"
ABOUT = [f"{HOST}/about/{word}" for word in ("us", "jobs", "press", "contact")]
NAMES = "abcdefghijklmnop"


def event(number: int, url: str, links: list[str], **more: Any) -> str:
    at = 1_767_225_600_000 + 1000 * number
    return json.dumps({"url": url, "fetched_at": at, "status": 200, "digest": url, "links": links, **more})


def month(step: int) -> str:
    return f"{HOST}/calendar/{2000 + step // 12}/{1 + step % 12:02}"


def log_of(folder: Path) -> Path:
    """A site with a calendar, to which its pages link, and links with a session on some pages."""
    rows: list[tuple[str, list[str], dict[str, Any]]] = [(f"{HOST}/", [*ABOUT, month(300)], {})]
    rows += [(url, [f"{HOST}/", *ABOUT, month(300)], {}) for url in ABOUT]
    rows += [
        (month(300 + step), [f"{HOST}/", *(month(300 + step + far) for far in (-12, -1, 1, 12))], {})
        for step in range(20)
    ]
    for number, name in enumerate(NAMES):
        page, twin = f"{HOST}/{name}", f"{HOST}/{name}?sid={number:02}af31c9d"
        rows += [(page, [f"{HOST}/", twin], {}), (twin, [f"{HOST}/"], {"canonical": page})]
    log = folder / "log.jsonl"
    log.write_text("".join(event(number, url, links, **more) + "\n" for number, (url, links, more) in enumerate(rows)))
    return log


def replayed(folder: Path, *options: str) -> Path:
    output_of("replay", log_of(folder), "--state", folder / "state", "--out", folder / "out", "--quiet", *options)
    return folder / "state"


def test_the_command_says_what_is_limited_why_and_what_to_write(tmp_path: Path) -> None:
    state = replayed(tmp_path)
    found = {row["what"]: row for row in json.loads(output_of("traps", "--state", state, "--json"))["traps"]}
    calendar, session = found["www.example.org/calendar/*"], found["www.example.org: parameter sid"]
    assert calendar["read"] == 20 and calendar["known"] > 20
    assert json.loads(calendar["refuse"].partition(" in a file")[0]) == {
        "url_prefix": f"{HOST}/calendar/",
        "importance_factor": 1,
    }
    assert session["confirm"] == "--drop-parameters sid"
    assert session["limited"] == len(NAMES)
    text = output_of("traps", "--state", state)
    assert "ever more of themselves" in text and "confirm: --drop-parameters sid" in text
    plan = json.loads((tmp_path / "out" / "summary.json").read_text())["plan"]
    assert (plan["traps"], plan["twins"]) == (1, 1)


def test_validate_names_the_traps_and_twins_of_a_log_and_what_to_write(tmp_path: Path) -> None:
    notes = json.loads(output_of("validate", log_of(tmp_path), "--json"))["notes"]
    (calendar,) = [note for note in notes if note.startswith("www.example.org/calendar/*: ")]
    (session,) = [note for note in notes if note.startswith("www.example.org: parameter sid: ")]
    assert "to confirm it: " in calendar and "refresh_forbidden" in calendar
    assert "--drop-parameters sid" in session
    notes = json.loads(output_of("validate", log_of(tmp_path), "--drop-parameters", "sid", "--json"))["notes"]
    assert not any("parameter" in note for note in notes)


def test_a_policy_that_refuses_a_judgement_is_read_by_the_next_replay(tmp_path: Path) -> None:
    policies = tmp_path / "policies.jsonl"
    policies.write_text(json.dumps({"url_prefix": f"{HOST}/calendar/", "importance_factor": 1}) + "\n")
    replayed(tmp_path, "--policies", str(policies))
    plan = json.loads((tmp_path / "out" / "summary.json").read_text())["plan"]
    assert (plan["traps"], plan["twins"]) == (0, 1)


@pytest.mark.parametrize(
    "options", [("--set", "traps=ignored"), ("--drop-parameters", "sid", "--set", "traps=ignored")]
)
def test_the_setting_switches_the_limits_off(tmp_path: Path, options: tuple[str, ...]) -> None:
    state = replayed(tmp_path, *options)
    plan = json.loads((tmp_path / "out" / "summary.json").read_text())["plan"]
    assert "traps" not in plan
    found = json.loads(output_of("traps", "--state", state, "--json"))
    assert found["are"] == "ignored" and found["traps"]
