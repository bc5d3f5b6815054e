"""A state is shown as the commands print it, and again after the next replay."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import requests

from opicflow.pipelines.crawl.frontier import Frontier
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.replay.state import StateFolder
from opicflow.pipelines.serve.page_table import Filter
from opicflow.pipelines.serve.sources import EXAMPLES_A_REASON, StateSource, examples_of
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.errors import UserError
from opicflow.schemas.records import Policy
from support.commands import output_of
from support.frontier_crawl import StandInClock
from support.logs import WebLog, json_line, run, url
from support.views import served
from support.waiting import wait_for

NOT_JSON = b'{"url": "https://a.example/<script>"\n'


def write_log(path: Path, order: str, visits: int) -> Path:
    events = WebLog(power_law_web(60, 3)).crawl(order, visits).events
    path.write_bytes(b"".join(map(json_line, events)) + NOT_JSON)
    return path


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crawl")
    path = folder / "state"
    policies = (
        Policy(url=url(1), refresh_interval_seconds=7200.0),
        Policy(host="nobody.example", importance_factor=2.0),
    )
    counting = LedgerOptions(history="certified")
    run(
        [write_log(folder / "log.jsonl", "random", 400)], state=path, counting=counting, policies=policies, samples=True
    )
    return path


def test_a_state_is_shown_as_top_and_show_and_schedule_print_it(state: Path) -> None:
    view = StateSource(state).view()
    top = json.loads(output_of("top", "--state", state, "-n", "100", "--json"))
    shown = [view.table.record(row) for row in range(len(view.table))]
    for mine, told in zip(shown, top, strict=True):
        for name in ("url", "page", "importance", "score", "visits", "last_outcome", "measured", "last_visit"):
            assert mine[name] == told[name], name
    hosts = json.loads(output_of("top", "--state", state, "--by", "host", "--json"))
    assert [(one.name, one.pages, one.read) for one in view.table.hosts][:10] == [
        (one["host"], one["pages"], one["read"]) for one in hosts
    ]
    one = json.loads(output_of("show", url(1), "--state", state, "--json"))
    row = view.table.row_of_url(url(1))
    assert row is not None
    record = view.table.record(row)
    for name in (
        "rank",
        "due",
        "interval_seconds",
        "decided_by",
        "changes_per_day",
        "changes_known_from",
        "changes_error",
    ):
        assert record[name] == one[name], name
    paid = [(view.table.url(at) if at is not None else "", part) for at, _, part in view.table.payers(row)]
    assert [(page, round(part, 6)) for page, part in paid] == [(one["url"], one["part"]) for one in one["payers"]]
    plan = json.loads(output_of("schedule", "--state", state, "-n", "1000", "--json"))
    assert view.plan == plan["plan"]
    orders = [view.table.order(place) for place in range(len(view.table.order_rows))]
    planned = sorted(plan["orders"], key=lambda one: one["not_before"] or 0)
    assert [(one["url"], one["why"], one["not_before"]) for one in orders] == [
        (one["url"], one["why"], one["not_before"]) for one in planned
    ]


def test_the_facts_are_those_of_the_replay(state: Path) -> None:
    view = StateSource(state).view()
    assert view.lost_events == 0 and view.counts["rejects"] == 1 and view.rejects == {"not-json": 1}
    assert [one.excerpt for one in view.examples] == [NOT_JSON.decode().strip()]
    assert view.title == "log.jsonl" and view.light.state != "wrong" and len(view.history) > 1
    assert view.table.listed(Filter(unread=True)).total == view.waiting


def test_a_rare_reason_has_its_example_behind_many_of_another() -> None:
    lines = [{"reason": "not-json", "source": "log", "offset": n, "bytes": "{"} for n in range(500)]
    rare = {"reason": "bad-time", "detail": "no", "source": "log", "offset": 1234, "bytes_base64": "/w=="}
    found = examples_of([*lines, rare])
    assert Counter(one.reason for one in found) == {"not-json": EXAMPLES_A_REASON, "bad-time": 1}
    assert (found[-1].where, found[-1].excerpt) == ("log, byte 1,234", "\\xff")


def test_policies_of_a_page_are_known_without_its_ledger(state: Path) -> None:
    source = StateSource(state)
    view = source.view()
    row, other = view.table.row_of_url(url(1)), view.table.row_of_url(url(2))
    assert row is not None and other is not None
    (found,) = view.policies_of(row) or ()
    assert found["holds"] and found["sentence"] == f"{url(1)} is fetched every 2 hours"
    assert view.policies_of(other) == [] and source._ledger is None


def test_the_history_goes_on_from_replay_to_replay(tmp_path: Path) -> None:
    state, times = tmp_path / "state", []
    for name, visits in (("first", 300), ("second", 300)):
        run([write_log(tmp_path / f"{name}.jsonl", "random", visits)], state=state, samples=True)
        times.append([one.visits for one in StateSource(state).view().history])
    first, both = times
    assert len(first) >= 2 and both[: len(first)] == first and len(both) > len(first)
    assert both == sorted(both)


def test_the_reasons_for_a_page_are_those_of_show(state: Path) -> None:
    source = StateSource(state)
    told = json.loads(output_of("show", url(1), "--state", state, "--why", "--json"))
    reasons = source.reasons(int(told["page"], 16))
    assert reasons is not None
    shown = json.loads(json.dumps(reasons.to_json()))
    assert shown == told["why"]
    assert source.reasons(7) is None
    with served(source) as at:
        assert requests.get(f"{at}/api/why?id={told['page']}", timeout=60).json() == shown


def test_a_replay_on_its_way_is_shown_when_it_has_finished(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run([write_log(tmp_path / "log.jsonl", "random", 200)], state=state)
    source = StateSource(state)
    before, folder = source.view(), StateFolder(state)
    kept = folder.read()
    assert kept is not None
    kept.run.finished = False
    folder.write_state(kept)
    assert source.view() is before
    wait_for("it was looked at", lambda: not source._shown._reading.locked())
    assert source.view() is before
    kept.run.finished = True
    folder.write_state(kept)
    wait_for("the finished one is shown", lambda: source.view() is not before)


def test_a_frontier_is_shown_again_when_it_was_saved_and_has_no_count_of_events(tmp_path: Path) -> None:
    with Frontier.open(tmp_path, StandInClock()) as frontier:
        frontier.visited({"url": url(1), "status": 200, "links": [url(2)]})
        frontier.save()
        source = StateSource(tmp_path)
        before = source.view()
        assert before.pages == 2 and before.lost_events is None
        with served(source) as at:
            assert "were read are accounted for" not in requests.get(at, timeout=60).text
            assert requests.get(f"{at}/rejects", timeout=60).ok
        frontier.visited({"url": url(2), "status": 200, "links": [url(3)]})
        frontier.save()
        wait_for("the next one is shown", lambda: source.view() is not before)
        assert source.view().pages == 3


def test_who_looks_while_a_state_is_read_or_explained_does_not_wait(state: Path) -> None:
    source = StateSource(state)
    before = source.view()
    with source._explaining, source._shown._reading:
        source._shown._stamp = None
        assert source.view() is before


def test_the_next_replay_is_shown_and_a_state_that_is_damaged_is_reported(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run([write_log(tmp_path / "log.jsonl", "random", 200)], state=state)
    source = StateSource(state)
    before = source.view()
    assert source.view() is before
    run([write_log(tmp_path / "more.jsonl", "cycle", 100)], state=state)
    wait_for("the next one is shown", lambda: source.view() is not before)
    assert source.view().title == "more.jsonl"
    (state / "state.json").write_bytes(b"{}")

    def is_told() -> bool:
        try:
            source.view()
        except UserError as problem:
            return "damaged" in str(problem)
        return False

    wait_for("the damage is reported", is_told)
    with served(source) as at:
        answer = requests.get(at, headers={"Accept": "text/html"}, timeout=60)
        assert answer.status_code == 503 and "damaged" in answer.text
