"""A certified replay: its results are exact ranks within the certificate of its summary, in however many runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import ConfigRefused
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.replay.answers import read_answers
from opicflow.pipelines.results.record_columns import pages_of
from opicflow.pipelines.stages.publish import MOST_PAYERS
from opicflow.pipelines.stages.rules import Categories, Rules
from opicflow.pipelines.stages.settings import CashFocus, LedgerOptions
from opicflow.schemas.crawl_events import Link
from support.crawls import exact_ranks
from support.logs import WebLog, id_of, importance_of, json_line, jsonl, records_of, run, url

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


def test_the_lines_of_a_log_in_any_order_lead_to_the_same_records(web: Graph, tmp_path: Path) -> None:
    """Every page is visited twice; its older links lead to one page."""
    events = WebLog(web).crawl("cycle", 200).events
    older = [
        replace(event, fetched_at_ms=event.fetched_at_ms - 10**6, links=(Link(url(7)),), status=404 + number % 9)
        for number, event in enumerate(events)
        if event.fetched_at_ms
    ]
    orders = {"older first": [*older, *events], "older last": [*events, *older]}
    records = {}
    for name, order in orders.items():
        log, out = tmp_path / f"{name}.jsonl", tmp_path / name
        log.write_bytes(jsonl(order))
        result = run([log], out, counting=CERTIFIED)
        assert result.summary["late"] == (len(older) if name == "older last" else 0)
        assert distance(out, web) <= result.summary["certificate"] <= 1e-4
        fields = ("url", "last_visit", "last_outcome", "visits", "read")
        records[name] = sorted(
            tuple(record.get(field) for field in fields) for record in records_of(out / "importance.jsonl")
        )
    assert records["older last"] == records["older first"]


@pytest.mark.parametrize(
    ("options", "history"),
    [
        ({}, "certified"),
        ({"counting": LedgerOptions(damping=0.7)}, "certified"),
        ({"counting": LedgerOptions(window_turns=4.0)}, "interpolation"),
        ({"counting": LedgerOptions(window_days=4.0)}, "certified"),
        ({"counting": LedgerOptions(damping=1.0)}, "interpolation"),
        ({"counting": LedgerOptions(history="all")}, "all"),
        ({"focus": CashFocus(bonus={"other": 0.5})}, "interpolation"),
        ({"focus": CashFocus(unread_weight=2.0)}, "certified"),
    ],
)
def test_a_new_ledger_is_certified_unless_an_option_needs_another_policy(
    options: dict[str, Any], history: str, logs: list[Path]
) -> None:
    summary = run(logs, prefers_certified=True, rules=Rules(categories=Categories(by_media=True)), **options).summary
    assert summary["history"] == history
    assert ("certificate" in summary) == (history == "certified")


def test_a_state_keeps_its_policy(logs: list[Path], tmp_path: Path) -> None:
    first = run(logs[:1], state=tmp_path / "state", counting=LedgerOptions(history="interpolation"))
    second = run(logs[1:], state=tmp_path / "state", prefers_certified=True)
    assert first.summary["history"] == second.summary["history"] == "interpolation"


def test_every_record_has_the_certificate(logs: list[Path], tmp_path: Path) -> None:
    summary = run(logs, tmp_path / "out", counting=CERTIFIED, publications=True).summary
    assert {record["certificate"] for record in records_of(tmp_path / "out/importance.jsonl")} == {
        summary["certificate"]
    }
    early = [record["certificate"] for record in records_of(tmp_path / "out/publications.jsonl")]
    assert all(bound > 0 for bound in early)
    run(logs, tmp_path / "other")
    assert {record["certificate"] for record in records_of(tmp_path / "other/importance.jsonl")} == {None}


@pytest.mark.parametrize("counting", [CERTIFIED, LedgerOptions(remember_links=True)])
def test_the_pages_that_pay_most_are_those_of_the_graph(
    counting: LedgerOptions, web: Graph, logs: list[Path], tmp_path: Path
) -> None:
    """The amount that a page receives along a link is damping x importance / links of the page that pays."""
    run(logs, state=tmp_path / "state", counting=counting)
    (pages,) = (pages_of(part) for part in read_answers(tmp_path / "state")[0].importance)
    columns = pages.columns
    number = {page: row for row, page in enumerate(columns["pages"].tolist())}
    paid: dict[int, dict[int, float]] = {row: {} for row in number.values()}
    log = WebLog(web)
    for page in range(web.pages):
        row, targets = number[id_of(page)], [one for one in log.targets(page) if one != page]
        for target in targets:
            to = number[id_of(target)]
            part = 0.85 * columns["importance"][row] / len(targets) / columns["importance"][to]
            paid[to][row] = part
    for row, payers in paid.items():
        parts = {
            number[int(columns[f"payer_{i}"][row])]: float(columns[f"payer_part_{i}"][row])
            for i in range(MOST_PAYERS)
            if columns[f"payer_part_{i}"][row] > 0
        }
        most = sorted(payers.values(), reverse=True)[:MOST_PAYERS]
        assert list(parts.values()) == pytest.approx(most, rel=1e-6)
        assert parts == pytest.approx({payer: payers[payer] for payer in parts}, rel=1e-6)


def test_a_bonus_of_links_is_refused(logs: list[Path]) -> None:
    rules = Rules(categories=Categories(by_media=True))
    with pytest.raises(ConfigRefused, match="certified"):
        run(logs, counting=CERTIFIED, rules=rules, focus=CashFocus(bonus={"pdf": 0.5}))
