"""The closed loop beside other crawlers: its tasks, its claims, its orders, and its report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from opicflow.pipelines.lab.commands import experiment as experiment_command
from opicflow.pipelines.lab.experiments.discovery import crawls
from opicflow.pipelines.lab.experiments.discovery.crawled_webs import crawled_web
from opicflow.pipelines.lab.experiments.discovery.followed_orders import BY_COMMAND, BY_COMMANDS, ReplayOrders
from opicflow.pipelines.lab.experiments.discovery.reading_orders import OMNISCIENT
from opicflow.pipelines.lab.experiments.loop import loop_experiment
from opicflow.pipelines.lab.experiments.loop.loop_experiment import (
    MARKS,
    ORDERS,
    PERCENT,
    READ_WEBS,
    SCHEDULERS,
    loop,
    of_loop,
)
from opicflow.pipelines.lab.experiments.refresh.closed_loop import crawl, scheduler_named
from opicflow.pipelines.lab.experiments.refresh.command_orders import CommandOrders
from opicflow.pipelines.lab.experiments.refresh.crawler import Crawler
from opicflow.pipelines.lab.experiments.refresh.living_web import LIVING, living_web
from opicflow.pipelines.lab.experiments.tables import Row
from support.commands import finished

OPICFLOW = str(Path(sys.executable).parent / "opicflow")


# Orders


@pytest.mark.slow
@pytest.mark.parametrize("order", ["cash, by the command", BY_COMMAND])
def test_orders_of_the_loop_are_those_of_the_command_line(order: str, tmp_path: Path) -> None:
    """The same logs, given to the command in a process of its own, bring the same orders."""
    crawled = crawled_web("archive", 1_000, 1)
    (tmp_path / "loop").mkdir()
    loop_orders = ReplayOrders(crawled, tmp_path / "loop", BY_COMMANDS[order])
    urls = [url.decode() for url in crawled.pages.urls]
    events = [{"kind": "announce", "url": urls[number]} for number in crawled.seeds.tolist()]
    for day in (20_001, 20_002, 20_003):
        log = tmp_path / "log.jsonl"
        log.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
        now = f"2024-10-0{day - 20_001 + 5}T00:00:00Z"
        subprocess.run(
            [
                *(OPICFLOW, "replay", str(log), "--state", str(tmp_path / "state"), "--out", str(tmp_path / "out")),
                *("--bandwidth", "10", "--set", "discovery-share=1", "--now", now, "--quiet", *BY_COMMANDS[order]),
            ],
            check=True,
            capture_output=True,
        )
        lines = (tmp_path / "out" / "crawl-orders.jsonl").read_bytes().splitlines()
        found = loop_orders.order(day)
        assert [order["url"] for order in map(orjson.loads, lines)] == [urls[number] for number in found.tolist()]
        assert len(found) == 10
        loop_orders.read(day, found)
        starts, targets = crawled.pages.graph.starts, crawled.pages.graph.targets
        events = [
            {
                "url": urls[page],
                "fetched_at": 1000 * (86_400 * day + second),
                "status": 200,
                "links": [urls[target] for target in targets[starts[page] : starts[page + 1]].tolist()],
            }
            for second, page in enumerate(found.tolist())
        ]


def test_a_refresh_strategy_keeps_its_bandwidth_on_a_web_of_directories(tmp_path: Path) -> None:
    crawler = Crawler(living_web(200, 1, 6, kind="news"))
    scheduler = scheduler_named("harmonic", crawler, 10.0, tmp_path)
    assert isinstance(scheduler, CommandOrders)
    history = crawl(crawler, scheduler, 10.0)
    assert history.orders.tolist() == [10] * 6


# The experiment


def test_every_order_reads_every_web_and_every_scheduler_crawls_every_living_one() -> None:
    tasks = [(task.measure.__name__, dict(task.arguments)) for task in loop(30).tasks(20_000, [1, 2])]
    assert len(tasks) == 2 * (len(READ_WEBS) * len(ORDERS) + len(LIVING) * len(SCHEDULERS))
    living = [found for measure, found in tasks if measure == "loop_refresh"]
    assert {(found["pages"], found["percent"], found["days"]) for found in living} == {(1_000, PERCENT, 30)}
    assert {found["order"] for measure, found in tasks if measure == "discovery_by_command"} == set(BY_COMMANDS)


def rows_of(**changed: float) -> list[Row]:
    """Figures with which every claim holds, but for these: of an order its lead, of a scheduler its freshness."""
    leads = {OMNISCIENT: 9.0, BY_COMMAND: 2.0} | changed
    fresh = {"oracle": 80.0, "harmonic": 79.0, "thesis": 70.0} | changed
    behind = {"behind thesis": 1.0} | changed
    rows: list[Row] = [
        {"web": web, "order": order, "mark": mark} | dict.fromkeys(("read", "best"), mark + leads.get(order, 0.0))
        for web in READ_WEBS
        for order in ORDERS
        for mark in MARKS
    ]
    return rows + [
        {
            "web": web, "scheduler": name, "day": 0, "used": changed.get("used", 100.0),
            "fresh_weighted": fresh.get(name, 60.0), "behind_weighted": behind.get(f"behind {name}", 2.0),
        }
        for web in LIVING
        for name in SCHEDULERS
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "broken"),
    [
        ({}, []),
        ({"in-degree": 2.5}, ["read more of all importance", "most important hundredth"]),
        ({"recomputed": 9.5}, ["read more of all importance", "most important hundredth", "omniscient"]),
        ({"LambdaCrawl": 79.5}, ["more copies up to date"]),
        ({"behind round robin": 0.5}, ["lag behind less"]),
        ({"oracle": 83.0}, ["of an oracle"]),
        ({"used": 101.0}, ["more than its bandwidth"]),
    ],
)
def test_a_claim_that_is_broken_does_not_hold(values: dict[str, float], broken: list[str]) -> None:
    found = of_loop(rows_of(**values))
    assert len(found) == 7
    failed = [claim.statement for claim in found if not claim.holds]
    assert len(failed) == len(broken)
    for part, statement in zip(broken, failed, strict=True):
        assert part in statement


@pytest.mark.slow
def test_the_command_writes_tables_plots_and_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_command, "LEAST_PAGES", 200)
    monkeypatch.setattr(experiment_command, "LEAST_DAYS", 8)
    monkeypatch.setattr(loop_experiment, "READ_WEBS", ("hosted",))
    monkeypatch.setattr(loop_experiment, "LIVING", ("news",))
    monkeypatch.setattr(crawls, "ROUNDS", 10)
    options = ("--pages", 200, "--days", 8, "--processes", 1, "--quiet")
    done = finished("experiment", "loop", "--out", tmp_path, *options)
    assert "By default a crawl has read more of all importance" in done.out
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    for text in ("**hosted: importance read", "**news: means over days 2 to 8", "| omniscient |", "| LambdaCrawl |"):
        assert text in report
    for name in ("loop-reading-hosted", "loop-refreshing-news"):
        assert f"](plots/{name}.svg)" in report and (tmp_path / "plots" / f"{name}.svg").stat().st_size > 5_000
