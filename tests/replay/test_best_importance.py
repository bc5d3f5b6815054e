"""Orders go by the best importance there is: by settled ranks where links are remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.commands import finished
from support.logs import records_of


def log(path: Path) -> Path:
    """A crawl that read each of 300 pages once. Read pages link to unread ones, of which some are linked by many."""
    events = []
    for page in range(300):
        links = [f"http://unread.com/{(page * page + step) % 97}" for step in range(page % 5)]
        links.append(f"http://read.com/{page * 7 % 300}")
        at = 1_767_225_600_000 + 60_000 * page
        events.append({"url": f"http://read.com/{page}", "fetched_at": at, "digest": "a", "links": links})
    path.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return path


def orders(out: Path, crawl: Path, *options: str) -> list[dict[str, Any]]:
    finished("replay", crawl, "--out", out, "--quiet", "--bandwidth", "60", *options)
    return records_of(out / "crawl-orders.jsonl")


def test_settled_ranks_decide_about_orders_under_every_history(tmp_path: Path) -> None:
    """They are those of `certified`, within its certificate: the same pages are ordered."""
    crawl = log(tmp_path / "crawl.jsonl")
    certified = orders(tmp_path / "certified", crawl)
    plain = orders(tmp_path / "plain", crawl, "--history", "interpolation")
    settled = orders(tmp_path / "settled", crawl, "--history", "interpolation", "--settle")
    remembered = orders(tmp_path / "links", crawl, "--history", "interpolation", "--remember-links")

    def best(found: list[dict[str, Any]]) -> list[float]:
        return [order["importance"] for order in found if order["why"] == "DISCOVERY"][:10]

    assert settled == remembered != plain
    assert best(settled) == pytest.approx(best(certified), rel=1e-2)
    shown = {order["url"]: order["importance"] for order in certified}
    both = [order for order in settled if order["url"] in shown]
    assert len(both) > 50
    assert all(abs(order["importance"] / shown[order["url"]] - 1) < 1e-2 for order in both)


def test_a_plan_made_again_from_the_state_has_the_orders_of_the_replay(tmp_path: Path) -> None:
    crawl, state = log(tmp_path / "crawl.jsonl"), tmp_path / "state"
    first = orders(tmp_path / "out", crawl, "--history", "interpolation", "--remember-links", "--state", str(state))
    done = finished("schedule", "--state", state, "--bandwidth", "60", "--json", "-n", "1000")
    assert [order["url"] for order in json.loads(done.out)["orders"]] == [order["url"] for order in first]
