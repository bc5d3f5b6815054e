"""The quality of pages in logs: read from JSON, CSV and Avro alike, shown, and orders go by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from opicflow.pipelines.serve.sources import StateSource
from support.commands import finished, output_of
from support.views import served

HOME, GOOD, POOR = (f"https://a.example/{name}" for name in ("", "good", "poor"))


def state_of(folder: Path, log: Path, *options: str) -> Path:
    output_of("replay", log, "--state", folder / "state", "--quiet", *options)
    return folder / "state"


def shown(state: Path, url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output_of("show", url, "--state", state, "--json"))
    return found


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_orders_go_by_the_quality_of_a_log(tmp_path: Path, form: str) -> None:
    rows: list[dict[str, Any]] = [
        {"url": HOME, "spam_score": "", "links": [POOR, GOOD], "kind": "visit"},
        {"url": POOR, "spam_score": 0.25, "links": None, "kind": "announce"},
        {"url": GOOD, "spam_score": "high", "links": None, "kind": "announce"},
    ]
    log = tmp_path / f"log.{form}"
    if form == "jsonl":
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [",".join(rows[0])]
        lines += [f"{row['url']},{row['spam_score']},{' '.join(row['links'] or ())},{row['kind']}" for row in rows]
        log.write_text("\n".join(lines) + "\n")
    state = state_of(tmp_path, log, "--field", "quality=spam_score")
    summary = json.loads(output_of("validate", log, "--field", "quality=spam_score", "--json"))["summary"]
    assert summary["qualities_dropped"] == 1
    poor, good = shown(state, POOR), shown(state, GOOD)
    assert poor["quality"] == pytest.approx(0.25, abs=0.005) and good["quality"] == 1.0
    assert poor["importance"] == good["importance"]
    assert "quality        0.252" in output_of("show", POOR, "--state", state)
    orders = json.loads(output_of("schedule", "--state", state, "--json", "--bandwidth", "100", "--top", "9"))["orders"]
    priorities = {order["url"]: order["priority"] for order in orders}
    assert priorities[POOR] == pytest.approx(priorities[GOOD] * poor["quality"], rel=0.01)
    plain = state_of(tmp_path / "plain", log)
    assert "quality" not in shown(plain, POOR)


def test_a_page_in_the_browser_and_why_it_is_ordered_say_its_quality(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    events = [{"url": HOME, "links": [POOR, GOOD]}, {"kind": "announce", "url": POOR, "quality": 0.25}]
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    state = state_of(tmp_path, log)
    reason = "its importance counts 0.252 times, by its quality"
    assert reason in output_of("show", POOR, "--state", state, "--why")
    assert "by its quality" not in output_of("show", GOOD, "--state", state, "--why")
    with served(StateSource(state)) as at:
        poor, good = (requests.get(f"{at}/api/page", {"url": url}, timeout=60).json() for url in (POOR, GOOD))
        assert (poor["quality"], good["quality"]) == (0.252, 1.0)
        page = requests.get(f"{at}/page/{poor['page']}?why=1", timeout=60).text
        assert "Quality 0.252 of 1" in page and reason in page


def test_the_results_of_a_crawl_without_quality_do_not_mention_it(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"url": HOME, "quality": 1, "links": [GOOD]}) + "\n")
    assert "quality" not in finished("show", HOME, "--state", state_of(tmp_path, log)).out
    with served(StateSource(tmp_path / "state")) as at:
        one = requests.get(f"{at}/api/page", {"url": HOME}, timeout=60).json()
        assert "quality" not in one and "Quality" not in requests.get(f"{at}/page/{one['page']}", timeout=60).text
