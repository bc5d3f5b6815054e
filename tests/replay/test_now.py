"""Time passes for a state with `--now`, with visits or without: the loop of orders and fetches never stops."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from support.commands import command, finished, refusal
from support.logs import records_of

BEGUN = datetime(2026, 5, 1, tzinfo=timezone.utc)
PAGES = 60


def stamp(day: float) -> str:
    return (BEGUN + timedelta(days=day)).strftime("%Y-%m-%dT%H:%M:%SZ")


def fetches(urls: list[str], day: float) -> list[dict[str, Any]]:
    return [
        {"url": url, "status": 200, "fetched_at": stamp(day + number / 86_400), "digest": "a", "links": []}
        for number, url in enumerate(urls)
    ]


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state whose whole crawl was made within a minute."""
    log = write(tmp_path / "first.jsonl", fetches([f"http://site{n}.com/" for n in range(PAGES)], 0))
    budget = ["--bandwidth", "10", "--set", "discovery-share=0", "--refresh-strategy", "uniform"]
    assert command("replay", log, "--state", tmp_path / "state", "--quiet", *budget).code == 0
    return tmp_path / "state"


def cycle(state: Path, out: Path, day: float, *logs: Path) -> list[str]:
    """Replay the logs at a time, and return the ordered URLs."""
    finished("replay", *logs, "--state", state, "--now", stamp(day), "--out", out, "--quiet")
    return [order["url"] for order in records_of(out / "crawl-orders.jsonl")]


@pytest.mark.slow
def test_the_loop_goes_on_after_a_first_crawl_within_a_minute(state: Path, tmp_path: Path) -> None:
    """Without --now the clock was the latest visit: a cycle without orders brought no visit, and there it stayed."""
    ordered: list[str] = []
    log: list[Path] = []
    for day in range(1, 13):
        orders = cycle(state, tmp_path / f"out{day}", day, *log)
        ordered += orders
        log = [write(tmp_path / f"day{day}.jsonl", fetches(orders, day + 0.1))] if orders else []
    assert len(set(ordered)) == PAGES
    assert len(ordered) >= PAGES


def test_a_cycle_without_a_log_passes_time_and_is_repeatable(state: Path, tmp_path: Path) -> None:
    first = cycle(state, tmp_path / "a", 7)
    assert len(first) > 0
    assert cycle(state, tmp_path / "b", 7) == first
    assert (tmp_path / "a" / "crawl-orders.jsonl").read_bytes() == (tmp_path / "b" / "crawl-orders.jsonl").read_bytes()


def test_an_empty_log_is_a_cycle_too(state: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert len(cycle(state, tmp_path / "out", 7, empty)) > 0


def test_time_does_not_go_back(state: Path, tmp_path: Path) -> None:
    cycle(state, tmp_path / "out", 7)
    error = refusal("replay", "--state", state, "--now", stamp(6))
    assert error == f"opicflow: --now: {state} is at {stamp(7)}: give a later time\n"
    error = refusal("schedule", "--state", state, "--now", stamp(6))
    assert f"--now: the state is at {stamp(7)}: give a later time" in error


def test_a_time_before_the_end_of_the_logs_is_reported(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", fetches(["http://site.com/"], 5))
    words = "note: The logs end later than --now, which changes nothing.\n"
    assert words in command("replay", log, "--quiet", "--now", stamp(-365)).out
    assert words not in command("replay", log, "--quiet", "--now", stamp(6)).out


@pytest.mark.parametrize("text, why", [("soon", "not a time"), ("", "it is empty"), ("2026-13-01", "not a time")])
def test_an_invalid_time_is_refused_in_one_line(state: Path, text: str, why: str) -> None:
    assert why in refusal("replay", "--state", state, "--now", text)


def test_without_a_state_a_log_is_needed_as_before(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert "empty: there is nothing to replay" in refusal("replay", empty, "--now", stamp(1))


def test_schedule_plans_for_a_time_and_leaves_the_state_alone(state: Path) -> None:
    before = {path: path.read_bytes() for path in sorted(state.rglob("*")) if path.is_file()}

    def first_order(*options: str) -> int:
        printed = json.loads(finished("schedule", "--state", state, "--json", *options).out)
        return int(printed["orders"][0]["ordered_at"])

    then = round(datetime.fromisoformat(stamp(7)).timestamp() * 1000)
    assert first_order("--now", stamp(7)) == then
    assert first_order() < then < first_order("--now", "now")
    assert {path: path.read_bytes() for path in sorted(state.rglob("*")) if path.is_file()} == before


def test_a_state_needs_no_log_and_a_new_state_does(state: Path, tmp_path: Path) -> None:
    assert command("replay", "--state", state, "--quiet").code == 0
    error = refusal("replay", "--state", tmp_path / "new")
    assert error.endswith(f"opicflow: {tmp_path / 'new'}: no ledger yet: name a log to begin with\n")


def test_options_of_the_plan_hold_from_the_run_that_gives_them(state: Path, tmp_path: Path) -> None:
    def planned(*options: str) -> tuple[str, float, str]:
        done = finished("replay", "--state", state, "--out", tmp_path / "out", *options)
        summary = json.loads((tmp_path / "out" / "summary.json").read_text())
        return summary["plan"]["policy"], summary["plan"]["bandwidth_per_day"], done.out + done.err

    note = "From here on pages are fetched again by other options than before."
    assert planned()[:2] == ("uniform", 10.0)
    name, bandwidth, said = planned("--refresh-strategy", "harmonic", "--bandwidth", "20")
    assert (name, bandwidth) == ("harmonic", 20.0) and note in said
    name, bandwidth, said = planned("--now", stamp(3))
    assert (name, bandwidth) == ("harmonic", 20.0) and note not in said
    error = refusal("replay", "--state", state, "--set", "damping=0.5")
    assert "its ledger counts with other options (damping: 0.85)" in error


def test_a_strategy_that_a_policy_sets_is_not_changed_by_an_option(state: Path, tmp_path: Path) -> None:
    policies = write(tmp_path / "policies.jsonl", [{"refresh_policy": "thesis", "published_at": stamp(1)}])
    assert command("replay", "--state", state, "--policies", policies, "--now", stamp(2), "--quiet").code == 0
    error = refusal("replay", "--state", state, "--refresh-strategy", "harmonic")
    assert "--refresh-strategy harmonic: a policy of this crawl sets thesis" in error


def test_orders_may_be_left_out_of_the_terminal(state: Path) -> None:
    assert "not before" not in finished("schedule", "--state", state, "-n", "0").out


def test_a_bandwidth_above_all_limits_is_reported(state: Path) -> None:
    done = finished("schedule", "--state", state, "--bandwidth", "50000", "--compare", "-n", "0")
    assert "note: all strategies give the same: with this bandwidth" in done.out
    done = command("schedule", "--state", state, "--bandwidth", "5", "--compare", "-n", "0")
    assert "all strategies give the same" not in done.out


def test_an_event_of_the_far_future_is_a_reject_and_schedules_go_on(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    pages = [f"http://site{number}.com/" for number in range(4)]
    lines = [json.dumps(event) for day in (0, 1) for event in fetches(pages, day)]
    far = json.dumps({"url": pages[2], "fetched_at": "2099-01-01T00:00:00Z", "status": 200})
    log.write_text("\n".join([*lines[:5], far, *lines[5:]]) + "\n")
    clean = tmp_path / "clean.jsonl"
    clean.write_text("\n".join(lines) + "\n")
    for name in ("log", "clean"):
        command("replay", tmp_path / f"{name}.jsonl", "--out", tmp_path / name, "--quiet")
    (reject,) = map(json.loads, (tmp_path / "log/rejects.jsonl").read_text().splitlines())
    assert reject["reason"] == "bad-time" and reject["detail"].startswith("2099-01-01T00:00:00Z")
    for stream in ("importance", "refresh-schedule", "crawl-orders"):
        assert (tmp_path / f"log/{stream}.jsonl").read_bytes() == (tmp_path / f"clean/{stream}.jsonl").read_bytes()
    command("replay", log, "--out", tmp_path / "latest", "--quiet", "--latest", "2099-06-01")
    assert not (tmp_path / "latest/rejects.jsonl").read_text()
