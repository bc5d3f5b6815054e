"""Results in the formats of other systems: each is read back as the system reads it, whatever is in URLs."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.commands.export import _KINDS, _TARGETS
from opicflow.pipelines.results.arrow_columns import arrow_schema
from opicflow.pipelines.results.exports.export_job import ExportJob
from opicflow.pipelines.results.exports.heritrix_files import precedence_of
from opicflow.pipelines.results.exports.result_rows import (
    KINDS,
    ImportanceRow,
    OrderRow,
    Rows,
    ScheduleRow,
    rows_of_files,
)
from opicflow.pipelines.results.exports.targets import TARGETS
from opicflow.pipelines.results.queue_keys import host_of_url, queue_key
from opicflow.schemas.published_schemas import schema
from support.commands import command, refusal
from support.databases import postgres, redis
from support.exports import commands_in, copied_rows, injected
from support.thorough import crossed

NOW = 1_778_306_396_000
HOSTILE = [
    "https://a.example/plain",
    "https://a.example/tab\tand\nnew line\r\n",
    "https://a.example/\"quotes\",commas;'and'",
    "https://a.example/back\\slash\\N\\.",
    "https://[2001:db8::1]:8080/port",
    "https://b.example:8443/?q=%20&x=<script>",
    "https://c.co.uk/ünïcödé/\u2028/😀",
    "https://d.example/\x01\x07\x0b\x0c\x7f",
    "\\.",
    "#no-url",
]
IMPORTANCE = [ImportanceRow(url, f"{n:016x}", 0.5**n, 10 * 0.5**n) for n, url in enumerate(HOSTILE)]
SCHEDULE = [
    ScheduleRow(url, f"{n:016x}", *((None, None) if n == 3 else (NOW + 1000 * n, 3600.4 * (n + 1))), "BUDGET", 0.1)
    for n, url in enumerate(HOSTILE)
]
ORDERS = [
    OrderRow(url, f"{n:016x}", NOW, "REFRESH", 0.1 * n, None if n % 2 else NOW + 5000, NOW + 86_400_000, 0.1, None)
    for n, url in enumerate(HOSTILE)
]
ROWS: dict[str, list[Any]] = {"importance": IMPORTANCE, "schedule": SCHEDULE, "orders": ORDERS}
SCHEMAS = {"importance": "Importance", "schedule": "RefreshSchedule", "orders": "CrawlOrder"}
PAIRS = [(name, kind) for name, target in TARGETS.items() for kind in target.writers]


def rows_of(kind: str, rows: list[Any] | None = None) -> Rows:
    return Rows(kind, lambda: iter([ROWS[kind] if rows is None else rows]))


def job_of(target: str, kind: str, rows: list[Any] | None = None, **changes: Any) -> ExportJob:
    name = TARGETS[target].default_name(kind) or "spider:start_urls"
    return ExportJob(rows_of(kind, rows), name, **{"routing": TARGETS[target].routing or "none", **changes})


def exported(target: str, kind: str, rows: list[Any] | None = None) -> bytes:
    return b"".join(TARGETS[target].writers[kind](job_of(target, kind, rows)))


def iso(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# -- the formats, read as their systems read them ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_csv_is_read_back_by_the_csv_module(kind: str) -> None:
    read = list(csv.DictReader(io.StringIO(exported("csv", kind).decode(), newline="")))
    assert [row["url"] for row in read] == HOSTILE
    for row, given in zip(read, ROWS[kind], strict=True):
        for name, value in given._asdict().items():
            if name in ("due", "ordered_at", "not_before", "expires_at", "last_visit"):
                value = iso(value)
            assert row[name] == ("" if value is None else str(value))


@pytest.mark.parametrize("kind", KINDS)
def test_lines_of_json_are_read_back(kind: str) -> None:
    read = [json.loads(line) for line in exported("jsonl", kind).split(b"\n")[:-1]]
    assert [row["url"] for row in read] == HOSTILE
    assert list(read[0]) == list(ROWS[kind][0]._fields)


def exported_by_command(kind: str, path: Path, target: str, *options: str) -> str:
    out = path.with_name("out")
    assert command("export", kind, path, "--as", target, "--out", out, *options).code == 0
    return out.read_bytes().decode()


@pytest.mark.parametrize(("kind", "ending"), crossed(list(KINDS), ["jsonl", "avro", "parquet"]))
def test_tables_have_all_columns_of_the_files_or_those_that_are_named(kind: str, ending: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"any.{ending}", kind, ROWS[kind])
    names = [field["name"] for field in schema(SCHEMAS[kind])["fields"]]
    read = list(csv.DictReader(io.StringIO(exported_by_command(kind, path, "csv"), newline="")))
    assert list(read[0]) == names and [row["url"] for row in read] == HOSTILE
    lines = [json.loads(line) for line in exported_by_command(kind, path, "jsonl").split("\n")[:-1]]
    assert [list(line) for line in lines] == [names] * len(HOSTILE)
    for row, line in zip(read, lines, strict=True):
        assert row == {name: "" if value is None else str(value) for name, value in line.items()}
    chosen = exported_by_command(kind, path, "csv", "--columns", "importance, url,importance")
    assert list(csv.reader(io.StringIO(chosen, newline="")))[1:] == [[row["importance"], row["url"]] for row in read]


def test_nutch_injects_every_page_with_its_score_and_interval() -> None:
    def lines(kind: str) -> list[Any]:
        return [injected(line) for line in re.split(r"\r\n|\n|\r", exported("nutch", kind, ROWS[kind][:-1]).decode())]

    *importance, last = lines("importance")
    assert last is None  # after the last end of a line
    assert [float(metadata["nutch.score"]) for _, metadata in importance] == [row.score for row in IMPORTANCE[:-1]]
    assert importance[0][0] == HOSTILE[0] and importance[1][0] == "https://a.example/tab%09and%0Anew%20line%0D%0A"
    *schedule, _ = lines("schedule")
    assert [int(metadata["nutch.fetchInterval"]) for _, metadata in schedule] == [
        round(3600.4 * (n + 1)) for n in range(9) if n != 3
    ]
    assert {float(metadata["nutch.score"]) for _, metadata in schedule} == {0.9}
    *orders, _ = lines("orders")
    scores = [float(metadata["nutch.score"]) for _, metadata in orders]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == len(scores)


def test_intervals_fit_into_nutchs_32_bits() -> None:
    row = SCHEDULE[0]._replace(interval_seconds=1e12)
    assert exported("nutch", "schedule", [row]).endswith(b"nutch.fetchInterval=2147483647\n")


def test_heritrix_reads_a_precedence_of_every_page_and_the_best_comes_first() -> None:
    lines = exported("heritrix", "importance").decode().split("\n")
    splits = [re.split(r"\s", line) for line in lines[:-1]]  # as PrecedenceLoader splits
    assert [len(words) for words in splits] == [2] * len(HOSTILE)
    precedences = [int(words[1]) for words in splits]
    assert precedences == sorted(precedences) and 1 <= precedences[0] < precedences[-1] <= 120


def test_precedences_stay_within_what_heritrix_sorts_by() -> None:
    assert [precedence_of(score) for score in (1e30, 2.0, 1.0, 0.5, 1e-30, 0.0)] == [1, 59, 62, 65, 120, 120]


def test_heritrix_schedules_every_order() -> None:
    lines = re.split(r"\r\n|\n|\r", exported("heritrix", "orders").decode())  # as BufferedReader.readLine
    assert lines.pop() == ""
    assert [line[:3] for line in lines] == ["F+ "] * len(HOSTILE)
    assert [len(line[3:].strip().split()) for line in lines] == [1] * len(HOSTILE)


@pytest.mark.parametrize(
    "target, kind", [("stormcrawler", "schedule"), ("stormcrawler", "orders"), ("opensearch", "importance")]
)
def test_bulk_requests_update_the_documents_with_the_sha_256_of_the_url(target: str, kind: str) -> None:
    lines = exported(target, kind).split(b"\n")
    assert lines.pop() == b"" and len(lines) == 2 * len(HOSTILE)
    actions, documents = ([json.loads(line) for line in lines[first::2]] for first in (0, 1))
    assert [list(action) for action in actions] == [["update"]] * len(HOSTILE)
    assert [action["update"]["_id"] for action in actions] == [hashlib.sha256(u.encode()).hexdigest() for u in HOSTILE]
    assert {action["update"]["_index"] for action in actions} == {TARGETS[target].name}
    assert [list(document) for document in documents] == [["doc"]] * len(HOSTILE)


def test_stormcrawlers_next_fetch_is_when_the_page_is_due() -> None:
    def dates(kind: str) -> list[Any]:
        return [json.loads(line)["doc"]["nextFetchDate"] for line in exported("stormcrawler", kind).split(b"\n")[1::2]]

    assert dates("schedule") == [iso(row.due) for row in SCHEDULE] and None in dates("schedule")
    assert dates("orders") == [iso(NOW if row.not_before is None else row.not_before) for row in ORDERS]


def test_routing_is_by_host_by_domain_or_none() -> None:
    def routings(routing: str) -> list[Any]:
        job = job_of("stormcrawler", "schedule", routing=routing)
        lines = b"".join(TARGETS["stormcrawler"].writers["schedule"](job)).split(b"\n")[:-1:2]
        return [json.loads(line)["update"].get("routing") for line in lines]

    assert routings("host")[4:7] == ["[2001:db8::1]", "b.example", "c.co.uk"]
    assert routings("domain")[5:7] == ["b.example", "c.co.uk"]
    assert set(routings("none")) == {None}
    assert queue_key("domain")("https://www.shop.example.co.uk:81/") == "example.co.uk"
    assert host_of_url("https://user:secret@host.example:80/a@b") == "host.example"


def test_scores_are_what_a_rank_feature_takes() -> None:
    rows = [
        row._replace(score=score) for row, score in zip(IMPORTANCE, (0.0, 1 / 3, 1e-40, 123456.789012), strict=False)
    ]
    found = [json.loads(line)["doc"]["score"] for line in exported("opensearch", "importance", rows).split(b"\n")[1::2]]
    assert found == [1.17549435e-38, 0.333333333, 1.17549435e-38, 123456.789]


@pytest.mark.parametrize("kind", KINDS)
def test_sorted_sets_have_every_page(kind: str) -> None:
    commands = commands_in(exported("redis", kind))
    there = [row for row in ROWS[kind] if kind != "schedule" or row.due is not None]
    assert [words[3].decode() for words in commands] == [row.url for row in there]
    assert {(words[0], words[1].decode()) for words in commands} == {(b"ZADD", f"opicflow:{kind}")}
    scores = [float(words[2]) for words in commands]
    if kind == "importance":
        assert scores == [row.score for row in there]
    elif kind == "schedule":
        assert scores == [row.due / 1000 for row in there]
    else:
        assert scores == list(range(len(there), 0, -1))


def test_scrapy_redis_takes_requests_that_have_nothing_but_a_url() -> None:
    """All other fields but method and meta would become a form: RedisMixin.make_request_from_data."""
    commands = commands_in(exported("scrapy-redis", "orders"))
    assert [json.loads(words[3]) for words in commands] == [{"url": url} for url in HOSTILE]
    assert [float(words[2]) for words in commands] == list(range(len(HOSTILE), 0, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_copy_has_every_value(kind: str) -> None:
    rows = copied_rows(exported("postgres", kind).decode())
    assert [row[0] for row in rows] == HOSTILE
    assert {len(row) for row in rows} == {len(ROWS[kind][0])}


@pytest.fixture(scope="module")
def psql() -> Iterator[Callable[[bytes], bytes]]:
    with postgres() as send:
        yield send


@pytest.mark.parametrize("kind", KINDS)
def test_postgres_takes_the_script_twice_and_has_every_url_once(kind: str, psql: Callable[[bytes], bytes]) -> None:
    """The second time the page ids are by another key, and a URL comes twice: its last row counts."""
    nul = [row._replace(url="https://e.example/\0", page="e" * 16) for row in ROWS[kind][:1]]
    again = [row._replace(page=f"{number:016x}") for number, row in enumerate(ROWS[kind][:5])]
    for rows in (ROWS[kind], [*again, *nul, again[0]._replace(page="f" * 16)]):
        psql(exported("postgres", kind, rows))
    answer = psql(f"\\copy (SELECT url, page FROM opicflow_{kind}) TO STDOUT (FORMAT csv)\n".encode())
    there = list(csv.reader(io.StringIO(answer.decode(), newline="")))
    pages = {row.url: row.page for row in (*ROWS[kind], *again)} | {"https://e.example/%00": "e" * 16}
    assert sorted(there) == sorted([url, page] for url, page in (pages | {again[0].url: "f" * 16}).items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_postgres_has_all_columns(kind: str, psql: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = write(tmp_path / "any.avro", kind, ROWS[kind])
    psql(exported_by_command(kind, path, "postgres", "--name", f"whole_{kind}").encode())
    answer = psql(f"\\copy (SELECT * FROM whole_{kind} ORDER BY page) TO STDOUT (FORMAT csv, HEADER)\n".encode())
    rows = list(csv.DictReader(io.StringIO(answer.decode(), newline="")))
    assert list(rows[0]) == [field["name"] for field in schema(SCHEMAS[kind])["fields"]]
    assert [(row["url"], float(row["importance"])) for row in rows] == [(row.url, row.importance) for row in ROWS[kind]]


def test_a_script_that_fails_changes_nothing(psql: Callable[[bytes], bytes]) -> None:
    psql(exported("postgres", "importance"))
    broken = exported("postgres", "importance", [IMPORTANCE[0]._replace(score=2.0)]).replace(b"\n\\.\n", b"\nx\n\\.\n")
    with pytest.raises(subprocess.CalledProcessError):
        psql(broken)
    assert psql(b"\\copy (SELECT max(score) FROM opicflow_importance) TO STDOUT\n") == b"10\n"


def test_redis_takes_what_is_piped_to_it() -> None:
    with redis() as (client, _):
        for kind in KINDS:
            assert b"errors: 0, replies: " in client(["--pipe"], exported("redis", kind))
        client(["--pipe"], exported("scrapy-redis", "orders"))
        assert client(["ZCARD", "opicflow:importance"]).strip() == b"%d" % len(HOSTILE)
        assert client(["ZREVRANGE", "spider:start_urls", "0", "0"]).strip() == b'{"url":"https://a.example/plain"}'
        client(["--pipe"], exported("redis", "importance"))
        assert client(["ZCARD", "opicflow:importance"]).strip() == b"%d" % len(HOSTILE)


# -- laws of all formats -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target, kind", PAIRS)
def test_an_export_depends_on_the_rows_alone_and_not_on_how_they_come(target: str, kind: str) -> None:
    def source() -> Iterator[list[Any]]:
        return iter([[row] for row in ROWS[kind]])

    job = ExportJob(Rows(kind, source), job_of(target, kind).name, TARGETS[target].routing or "none")
    assert b"".join(TARGETS[target].writers[kind](job)) == exported(target, kind) == exported(target, kind)


@pytest.mark.parametrize("target, kind", PAIRS)
def test_memory_does_not_grow_with_the_rows(target: str, kind: str) -> None:
    def peak(batches: int) -> int:
        row = ROWS[kind][0]
        job = ExportJob(
            Rows(kind, lambda: ([row] * 400 for _ in range(batches))), "name", TARGETS[target].routing or "none"
        )
        tracemalloc.start()
        for _ in TARGETS[target].writers[kind](job):
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(2)  # imports and caches
    assert peak(20) < 1.2 * peak(5) + 100_000


@pytest.mark.parametrize("target, kind", PAIRS)
def test_nothing_is_left_out_in_silence(target: str, kind: str) -> None:
    job = job_of(target, kind)
    for _ in TARGETS[target].writers[kind](job):
        pass
    said = job.left_out["not to be fetched again"]
    assert job.rows.counts["rows"] == len(HOSTILE)
    assert said == (1 if kind == "schedule" and target in ("nutch", "redis") else 0)


def test_the_command_offers_every_target() -> None:
    assert list(TARGETS) == list(_TARGETS) and list(KINDS) == list(_KINDS)


# -- files of results --------------------------------------------------------------------------------------------------


def full_record(kind: str, row: Any) -> dict[str, Any]:
    empty = {"string": "", "double": 0.0, "long": 0, "int": 0, "boolean": False}
    record = {}
    for field in schema(SCHEMAS[kind])["fields"]:
        type_ = field["type"]
        if isinstance(type_, dict):
            record[field["name"]] = type_["symbols"][0] if type_["type"] == "enum" else 0
        else:
            record[field["name"]] = None if isinstance(type_, list) else empty[type_]
    return {**record, **row._asdict()}


def write(path: Path, kind: str, rows: list[Any]) -> Path:
    records = [full_record(kind, row) for row in rows]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif path.suffix == ".avro":
        with open(path, "wb") as file:
            fastavro.writer(file, fastavro.parse_schema(dict(schema(SCHEMAS[kind]))), records)
    else:
        pq.write_table(pa.Table.from_pylist(records, arrow_schema(schema(SCHEMAS[kind]))), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ending"), crossed(list(KINDS), ["jsonl", "avro", "parquet"]))
def test_files_of_results_give_their_rows(kind: str, ending: str, tmp_path: Path) -> None:
    many = [row._replace(page=f"{number:016x}") for number in range(500) for row in ROWS[kind]]
    path = write(tmp_path / f"any.{ending}", kind, many)
    rows = rows_of_files(kind, [str(path)])
    assert [row for some in rows for row in some] == many and rows.total == len(many)
    assert [row for some in rows_of_files(kind, [str(path)] * 2) for row in some] == many * 2


def test_a_folder_of_results_gives_its_file(tmp_path: Path) -> None:
    write(tmp_path / "crawl-orders-00001-of-00002.jsonl", "orders", ORDERS[:4])
    write(tmp_path / "crawl-orders-00002-of-00002.jsonl", "orders", ORDERS[4:])
    assert [row for some in rows_of_files("orders", [str(tmp_path)]) for row in some] == ORDERS
    with pytest.raises(InputRefused, match="no file importance in this folder"):
        rows_of_files("importance", [str(tmp_path)])


def test_orders_that_expired_are_left_out_and_counted() -> None:
    old = ORDERS[0]._replace(ordered_at=NOW - 86_400_000, expires_at=NOW)
    never = old._replace(expires_at=None)
    rows = rows_of("orders", [old, never, *ORDERS])
    assert [row for some in rows for row in some] == [never, *ORDERS]
    assert (rows.total, rows.counts["expired"]) == (11, 1)
    later = Rows("orders", lambda: iter([[old, *ORDERS]]), now_ms=NOW + 86_400_000)
    assert (later.total, later.counts["expired"]) == (0, 11)


@pytest.mark.parametrize(
    "data, reason",
    [
        (b'{"url":"https://a.example/"}\n', "line 1: no page as results have it: name a file of importance"),
        (b'{"url":"u","page":"p","importance":1,"score":1}\n\n{"url":1}\n', "line 3: no url"),
        (b'{"url":"u","page":"p","importance":"1","score":1}\n', "line 1: no importance"),
        (b"url,page\n", "line 1: no JSON"),
        (b"[]\n", "line 1: no JSON object"),
        (b"PAR1 and no more", "damaged"),
        (b"Obj\x01 and no more", "from row 1: damaged"),
    ],
)
def test_an_invalid_result_is_refused_with_its_position(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(InputRefused, match=re.escape(reason)):
        list(rows_of_files("importance", [str(path)]))


def test_a_table_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path / "any.parquet", "orders", ORDERS))
    pq.write_table(table.append_column("page", table["page"]), tmp_path / "any.parquet")
    with pytest.raises(InputRefused, match=r'any\.parquet: damaged .*"page" exists 2 times'):
        list(rows_of_files("orders", [str(tmp_path / "any.parquet")]))


def test_a_file_of_another_result_is_refused(tmp_path: Path) -> None:
    missing = "interval_seconds"
    for ending in ("jsonl", "avro", "parquet"):
        path = write(tmp_path / f"any.{ending}", "orders", ORDERS)
        with pytest.raises(InputRefused, match=re.escape(f"no {missing} as results have it")):
            list(rows_of_files("schedule", [str(path)]))


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, reason",
    [
        (["importance", "--as", "nutch"], "no results: name their folder or files, or a state with --state DIR"),
        (["importance", "-", "--as", "nutch"], "standard input: results are read twice: name a file"),
        (["importance", "FILE", "--state", "x", "--as", "nutch"], "both have results: name one"),
        (["orders", "FILE", "--as", "opensearch"], "this format is for importance: export that"),
        (["orders", "FILE", "--as", "scrapy-redis"], "give the key with --name, such as spider:start_urls"),
        (["importance", "FILE", "--as", "csv", "--name", "x"], "this format names nothing: omit --name"),
        (["importance", "FILE", "--as", "csv", "--routing", "host"], "it is for stormcrawler and opensearch"),
        (["importance", "FILE", "--as", "csv", "--now", "now"], "only orders expire: omit it"),
        (["orders", "FILE", "--as", "csv", "--all"], "--all, export orders --as csv: it is for queues of orders"),
        (["importance", "FILE", "--as", "redis", "--due-by", "now"], "it is for queues of orders: omit it"),
        (["orders", "FILE", "--as", "redis", "--due-by", "now", "--all"], "--all, --due-by: all orders have no time"),
        (["orders", "FILE", "--as", "redis", "--due-by", "soon"], "--due-by soon: not a time"),
        (["importance", "FILE", "--as", "csv", "--out", "no/where"], "its folder is not there"),
        (
            ["importance", "FILE", "--as", "csv", "--columns", "url,rank"],
            "'rank': no column of importance: name some of",
        ),
        (["importance", "FILE", "--as", "csv", "--columns", "url,"], "'': no column of importance: name some of url, "),
        (["importance", "FILE", "--as", "nutch", "--columns", "url"], "this format has columns of its own"),
        (["importance", "FILE", "--as", "postgres", "--columns", "page"], "the table has url as its key: name it too"),
        (["importance", "FILE", "--as", "solr"], "unknown value 'solr'"),
        (["importance", "missing", "--as", "csv"], "missing: no such file"),
    ],
)
def test_a_mistake_of_a_user_is_reported_in_one_line(words: list[str], reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "importance.jsonl", "importance", IMPORTANCE)
    assert reason in refusal("export", *(str(path) if word == "FILE" else word for word in words))


@pytest.mark.parametrize("target", ["nutch", "heritrix", "scrapy-redis", "redis"])
def test_a_queue_gets_the_orders_that_are_due_or_all_in_the_order_of_their_times(target: str, tmp_path: Path) -> None:
    path = write(tmp_path / "orders.jsonl", "orders", ORDERS)
    words = ["export", "orders", str(path), "--as", target, "--name", "key"][: 7 if "redis" in target else 5]
    now, later = [order for order in ORDERS if not order.not_before], [order for order in ORDERS if order.not_before]
    out = tmp_path / "out"
    assert now and later
    for given, rows in (
        (["--due-by", iso(NOW)], now),
        (["--due-by", iso(NOW + 5000)], ORDERS),
        ([], ORDERS),  # years after they were due
        (["--all"], [*now, *later]),
    ):
        code, _, errors = command(*words, *map(str, given), "--out", str(out))
        job = replace(job_of(target, "orders", rows), name="key")
        assert code == 0 and out.read_bytes() == b"".join(TARGETS[target].writers["orders"](job))
        missing = f"{len(later)} orders that are not due: export them later, or with --all" if rows is now else ""
        assert errors == (f"opicflow: left out: {missing}\n" if missing else "")


def test_a_file_is_whole_and_the_rows_left_out_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "any.jsonl", "schedule", SCHEDULE)
    out = tmp_path / "seeds.txt"
    code, printed, errors = command("export", "schedule", str(path), "--as", "nutch", "--out", str(out))
    assert (code, printed) == (0, f"written: {out}, 9 rows\n")
    assert errors == "opicflow: left out: 1 not to be fetched again\n"
    assert out.read_bytes() == exported("nutch", "schedule")
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_a_hyphen_is_standard_output(tmp_path: Path) -> None:
    path = write(tmp_path / "importance.jsonl", "importance", IMPORTANCE)
    words = [sys.executable, "-m", "opicflow.pipelines.cli", "export", "importance", str(path), "--as", "csv"]
    words += ["--columns", "url,page,importance,score", "--out", "-"]
    done = subprocess.run(words, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, exported("csv", "importance"), b"")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_standard_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "importance.jsonl", "importance", IMPORTANCE)
    words = [sys.executable, "-m", "opicflow.pipelines.cli", "export", "importance", str(path), "--as", "csv"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        2,
        "opicflow: standard output: No space left on device: correct this, and run the command again\n",
    )
    closed = subprocess.run(words, stderr=subprocess.PIPE, timeout=60, preexec_fn=lambda: os.close(1))
    assert (closed.returncode, closed.stderr) == (0, b"")
