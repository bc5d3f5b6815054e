"""Files of results, in every format and in parts, are shown as the state of the same replay is."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import fastavro
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.results.arrow_columns import arrow_schema
from opicflow.pipelines.serve.access import ServeRefused
from opicflow.pipelines.serve.results_source import ResultsSource
from opicflow.pipelines.serve.sources import StateSource
from opicflow.pipelines.serve.view import View
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.published_schemas import schema
from support.commands import command, refusal
from support.hostile_values import one_line
from support.logs import WebLog, json_line, records_of, run
from support.views import served
from support.waiting import wait_for

IMPORTANCE_LINE = orjson.dumps(
    {"page": "00000000000000ab", "url": "https://a.example/", "importance": 0.5, "window_importance": 0.5}
    | {"score": 0.5, "trend_per_day": 0.0, "visits": 3, "last_visit": 5, "last_outcome": "FETCHED", "measured": True}
    | {"event_time": 5}
)
FORMATS = [("jsonl", 1), ("avro", 1), ("parquet", 1), ("jsonl", 3), ("parquet", 2)]


def results(folder: Path, format_: str, parts: int) -> View:
    events = WebLog(power_law_web(60, 3)).crawl("random", 300).events
    log = folder / "log.jsonl"
    log.write_bytes(b"".join(map(json_line, events)) + b'{"url": \xff\n' + b"{}\n")
    counting = LedgerOptions(history="certified")
    out = folder / "out"
    run([log], out=out, state=folder / "state", counting=counting, format=format_, parts=parts)
    return StateSource(folder / "state").view()


@pytest.mark.parametrize(("format_", "parts"), FORMATS)
def test_results_are_shown_as_the_state_is(tmp_path: Path, format_: str, parts: int) -> None:
    expected = results(tmp_path, format_, parts)
    view = ResultsSource(tmp_path / "out").view()
    table, other = view.table, expected.table
    assert [table.record(row) for row in range(len(table))] == [other.record(row) for row in range(len(other))]
    assert table.hosts == other.hosts and table.second == other.second
    orders = [table.order(place) for place in range(len(table.order_rows))]
    assert orders == [other.order(place) for place in range(len(other.order_rows))] and len(orders) > 5
    for name in ("plan", "drift", "certificate", "rejects", "known_read", "examples", "light", "lost_events"):
        assert getattr(view, name) == getattr(expected, name), name
    assert len(view.examples) == 2


def test_orders_of_earlier_cycles_wait_if_they_were_not_carried_out(tmp_path: Path) -> None:
    events = WebLog(power_law_web(600, 3)).crawl("random", 900).events
    (tmp_path / "log.jsonl").write_bytes(b"".join(map(json_line, events)))
    run([tmp_path / "log.jsonl"], tmp_path / "out", publications=True)
    stated = records_of(tmp_path / "out" / "crawl-orders.jsonl")
    view = ResultsSource(tmp_path / "out").view()
    orders = [view.table.order(place) for place in range(len(view.table.order_rows))]
    last = {one["url"]: one["last_visit"] or 0 for one in records_of(tmp_path / "out" / "importance.jsonl")}
    now = 1000 * view.table.second
    waiting = [
        one
        for one in stated
        if one["expires_at"] > now and (one["ordered_at"] == now or last[one["url"]] < one["ordered_at"])
    ]
    assert 0 < len(waiting) < len(stated)
    waiting.sort(key=lambda one: max(one["not_before"] or 0, one["ordered_at"]))
    assert [(one["url"], one["ordered_at"]) for one in orders] == [(one["url"], one["ordered_at"]) for one in waiting]
    assert view.order_ages.total == len(waiting)
    assert view.order_ages.seconds == (now - min(one["ordered_at"] for one in waiting)) // 1000


def test_results_that_were_written_again_are_read_again(tmp_path: Path) -> None:
    results(tmp_path, "jsonl", 1)
    source = ResultsSource(tmp_path / "out")
    before = source.view()
    assert source.view() is before
    (tmp_path / "out" / "importance.jsonl").write_bytes(
        b"".join((tmp_path / "out" / "importance.jsonl").read_bytes().splitlines(keepends=True)[:7])
    )
    wait_for("they are read again", lambda: len(source.view().table) == 7)


def test_a_page_of_results_says_what_only_a_state_has(tmp_path: Path) -> None:
    results(tmp_path, "jsonl", 1)
    source = ResultsSource(tmp_path / "out")
    with served(source) as at:
        text = requests.get(f"{at}/page/{int(source.view().table.ids[0]):016x}", timeout=60).text
    assert text.count("the state of a replay has") == 3 and "--remember-links" not in text


def test_results_without_a_summary_say_what_is_not_known(tmp_path: Path) -> None:
    results(tmp_path, "jsonl", 1)
    (tmp_path / "out" / "summary.json").unlink()
    view = ResultsSource(tmp_path / "out").view()
    assert view.lost_events is None and view.drift is None and view.plan == {} and len(view.rejects) == 2
    assert view.light.state == "right" and "as far as is known" in view.light.headline
    assert dataclasses.replace(view, rejects={}).light.state == "right"


def test_results_that_are_removed_stay_on_the_pages(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "importance.jsonl").write_bytes(b"")
    source = ResultsSource(folder)
    before = source.view()
    shutil.rmtree(folder)
    assert source.view() is before


def test_missing_or_unreadable_results_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ServeRefused, match="parquet: name the folder of results"):
        ResultsSource(tmp_path).view()
    with pytest.raises(ServeRefused, match="no such folder: check the name"):
        ResultsSource(tmp_path / "none").view()
    (tmp_path / "summary.json").write_text("{}")
    result = command("serve", "--state", tmp_path, "--port", "0")
    assert (result.code, result.err) == (
        2,
        f"opicflow: {tmp_path}: no state of a replay: it has results: name the folder that replay --state wrote\n",
    )
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(ServeRefused, match=f"it is a state: --state {tmp_path}"):
        ResultsSource(tmp_path).view()
    (tmp_path / "state.json").unlink()
    for name, content in (
        ("importance.jsonl", b"not json\n"),
        ("importance.jsonl", b'{"url": 1}\n'),
        ("importance.avro", b"Obj"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ServeRefused, match="cannot be read") as refused:
            ResultsSource(tmp_path).view()
        assert "\n" not in str(refused.value)
        (tmp_path / name).unlink()
    assert "omit one" in refusal("serve", "--state", tmp_path, "--results", tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("importance.parquet", b"PAR1" + bytes(8) + b"PAR1"),
        ("rejects.jsonl", b"not json\n"),
        ("importance.jsonl", IMPORTANCE_LINE.replace(b"https://a.example/", b"https://a.example/\\nx")),
        ("importance.jsonl", IMPORTANCE_LINE.replace(b'"https://a.example/"', b"null")),
        ("importance.jsonl", IMPORTANCE_LINE.replace(b'"score"', b'"certificate": [], "score"')),
        ("summary.json", b'{"certificate": []}'),
    ],
    ids=["parquet", "rejects", "line-break", "no-url", "certificate", "summary"],
)
def test_damaged_results_are_refused_in_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "importance.jsonl").write_bytes(IMPORTANCE_LINE)
    assert len(ResultsSource(tmp_path).view().table) == 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ServeRefused, match=f"{name.partition('.')[0]} cannot be read") as refused:
        ResultsSource(tmp_path).view()
    one_line(refused.value)


@pytest.mark.parametrize("format_", ["jsonl", "avro", "parquet"])
@pytest.mark.parametrize("time_ms", [253_402_300_800_000, 2**63 - 1, -(2**63)])
def test_results_with_a_time_that_is_no_date_are_shown(tmp_path: Path, format_: str, time_ms: int) -> None:
    results(tmp_path, "jsonl", 1)
    rows = records_of(tmp_path / "out" / "importance.jsonl")
    for row in rows:
        row["last_visit"] = time_ms
    (tmp_path / "out" / "importance.jsonl").unlink()
    with open(tmp_path / "out" / f"importance.{format_}", "wb") as file:
        if format_ == "jsonl":
            file.writelines(orjson.dumps(row) + b"\n" for row in rows)
        elif format_ == "avro":
            fastavro.writer(file, schema("Importance"), rows)
        else:
            pq.write_table(pa.Table.from_pylist(rows, arrow_schema(schema("Importance"))), file)
    table = ResultsSource(tmp_path / "out").view().table
    assert {table.record(row)["last_visit"] for row in range(len(table))} == {time_ms}
