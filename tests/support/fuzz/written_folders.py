"""Results and the state of a replay, and a graph, with other content: values, types, or bytes."""

from __future__ import annotations

import gzip
import io
import json
import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from opicflow.connectors.files.rank_reader import read_ranks
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ranks.graph.store import StoredGraph, write_manifest
from opicflow.pipelines.replay.answers import read_answers
from opicflow.pipelines.replay.state import STATE_VERSION, _digest_of, read_ledger
from opicflow.pipelines.results.exports.export_job import ExportJob
from opicflow.pipelines.results.exports.result_rows import rows_of_files
from opicflow.pipelines.results.exports.targets import TARGETS
from opicflow.pipelines.serve.results_source import ResultsSource
from opicflow.schemas.errors import UserError
from opicflow.schemas.published_schemas import schema
from support.fuzz.mutations import spoilt
from support.hostile_values import altered, one_line
from support.logs import FIRST_MS, WebLog, jsonl, run
from support.paths import TOP
from support.stored_graphs import stored

# -- results


_SCHEMAS = {"importance": "Importance", "refresh-schedule": "RefreshSchedule", "crawl-orders": "CrawlOrder"}
_KINDS = {"importance": "importance", "refresh-schedule": "schedule", "crawl-orders": "orders"}
_FORMATS = ("parquet", "parquet", "parquet", "parquet", "avro", "jsonl")
_ROWS, _LINES = 9, 150
_EXTREME = [0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), None]
_COLUMNS: list[Callable[[random.Random, int], Any]] = [
    lambda draw, rows: pa.array([draw.choice(_EXTREME) for _ in range(rows)], pa.int64()),
    lambda draw, rows: pa.array([draw.choice([0, 1, 200, None]) for _ in range(rows)], pa.uint8()),
    lambda draw, rows: pa.array(
        [draw.choice([0.5, 0.0, -1.0, 1e308, float("nan"), float("inf"), None]) for _ in range(rows)],
        draw.choice([pa.float64(), pa.float32()]),
    ),
    lambda draw, rows: pa.array(
        [draw.choice(["", "x", "00000000000000ab", "a\nb\x1b[31m", "9" * 300, "\u202e", None]) for _ in range(rows)],
        draw.choice([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]),
    ),
    lambda draw, rows: pa.array([draw.choice([b"", b"\xff\xfe", b"x"]) for _ in range(rows)], pa.binary()),
    lambda draw, rows: pa.array(
        [draw.choice(_EXTREME) for _ in range(rows)],
        pa.timestamp(draw.choice(["ms", "us", "ns"]), draw.choice([None, "UTC"])),
    ),
    lambda draw, rows: pa.array([draw.choice([[], [1], None]) for _ in range(rows)], pa.list_(pa.int64())),
    lambda draw, rows: pa.array([{"x": 1}] * rows),
    lambda draw, rows: pa.array([draw.choice([True, False, None]) for _ in range(rows)], pa.bool_()),
    lambda draw, rows: pa.nulls(rows),
]


@cache
def _results() -> dict[str, Any]:
    """Return some rows of the results of a replay of the example."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        lines = gzip.decompress((TOP / "examples" / "crawl.jsonl.gz").read_bytes()).splitlines(keepends=True)
        (folder / "log.jsonl").write_bytes(b"".join(lines[:_LINES]))
        run([folder / "log.jsonl"], folder / "out", format="parquet")
        return {name: pq.read_table(folder / "out" / f"{name}.parquet").slice(0, _ROWS) for name in _SCHEMAS}


def _parquet(table: Any, draw: random.Random) -> bytes:
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        compression=draw.choice(["zstd", "zstd", "snappy", "gzip", "none"]),
        data_page_version=draw.choice(["1.0", "2.0"]),
        row_group_size=draw.choice([2, 100]),
        use_dictionary=draw.random() < 0.5,
    )
    return file.getvalue()


def _plain_rows(table: Any) -> list[dict[str, Any]]:
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.itercolumns()
    ]
    return pa.table(columns, table.column_names).to_pylist()


def _avro(table: Any, draw: random.Random) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema(_SCHEMAS[_name_of(table)]), _plain_rows(table), sync_marker=bytes(16))
    return file.getvalue()


def _name_of(table: Any) -> str:
    return next(name for name, sound in _results().items() if sound.column_names == table.column_names)


def make_result(draw: random.Random) -> bytes:
    """Return the name of a file of results, a line break, and the file, with other columns, values or bytes."""
    name, format_ = draw.choice(list(_SCHEMAS)), draw.choice(_FORMATS)
    table = _results()[name]
    if format_ == "parquet":
        if draw.random() < 0.5:
            for _ in range(draw.choice([1, 1, 2])):
                column = draw.randrange(table.num_columns)
                other = draw.choice(_COLUMNS)(draw, table.num_rows)
                table = table.set_column(column, draw.choice([table.column_names[column]] * 9 + ["x", "page"]), other)
        data = _parquet(table, draw)
    elif format_ == "avro":
        data = _avro(table, draw)
    else:
        rows = [altered(row, draw) if draw.random() < 0.1 else row for row in _plain_rows(table)]
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    if draw.random() < 0.5:
        data = spoilt(data, draw)
    return f"{name}.{format_}\n".encode() + data


@cache
def _sound_files() -> dict[str, bytes]:
    return {f"{name}.parquet": _parquet(table, random.Random(1)) for name, table in _results().items()}


def check_result(data: bytes, _: random.Random) -> tuple[int, int]:
    """It is shown, exported and compared, or refused, each in one line; where it is read, with all its rows."""
    name, _, content = data.partition(b"\n")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for other, sound in _sound_files().items():
            if Path(other).stem != Path(name.decode()).stem:
                (folder / other).write_bytes(sound)
        file = folder / name.decode()
        file.write_bytes(content)
        kind = _KINDS[file.stem]
        exported = _or_refused(lambda: _exported(kind, file))
        shown = _or_refused(lambda: _shown(folder))
        if kind == "importance":
            ranked = _or_refused(lambda: read_ranks(str(file), "importance").rows)
            assert shown is None or exported is None or shown == exported
            assert ranked is None or exported is None or ranked == exported
        return exported or 0, int(exported is None) + int(shown is None)


def _or_refused(read: Callable[[], int]) -> int | None:
    try:
        return read()
    except UserError as problem:
        one_line(problem)
        return None


def _exported(kind: str, file: Path) -> int:
    rows = rows_of_files(kind, [str(file)])
    lines = b"".join(TARGETS["nutch"].writers[kind](ExportJob(rows, "")))
    assert kind != "orders" or lines.count(b"\n") == lines.count(b"\t") == rows.total
    return rows.counts["rows"] + rows.counts["expired"]


def _shown(folder: Path) -> int:
    table = ResultsSource(folder).view().table
    for row in range(len(table)):
        table.record(row)
    for place in range(len(table.order_rows)):
        table.order(place)
    return len(table)


# -- the state of a replay


@cache
def _kept_folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is removed when the process ends."""
    return tempfile.TemporaryDirectory(suffix=name)


@cache
def sound_state() -> tuple[Path, Any]:
    """Return the folder of a state, and its values. The log is beside it; something of it is ahead of the clock."""
    folder = Path(_kept_folder("state").name)
    log, state = folder / "crawl.jsonl", folder / "state"
    log.write_bytes(jsonl(WebLog(power_law_web(60, 3), announced=False).crawl("random", 150).events))
    run([log], None, state=state, latest_ms=FIRST_MS + 2_000_000)
    values = json.loads((state / "state.json").read_bytes())["state"]
    assert len(values["ahead"]) == 1
    return state, values


def write_state(folder: Path, values: Any) -> None:
    """Write the values of a state with the right digest."""
    written = {"version": STATE_VERSION, "digest": _digest_of(values), "state": values}
    (folder / "state.json").write_text(json.dumps(written))


def make_state(draw: random.Random) -> bytes:
    """Return other values of a state."""
    sound = sound_state()[1]
    values = altered(sound, draw)
    if isinstance(values, dict) and draw.random() < 0.3 and isinstance(values.get("notes"), str):
        values = {**sound, "notes": json.dumps(altered(json.loads(sound["notes"]), draw))}
    return json.dumps(values).encode()


def check_state(data: bytes, _: random.Random) -> tuple[int, int]:
    """Its answers and its ledger are read, or refused."""
    state, values = sound_state()
    try:
        write_state(state, json.loads(data))
        read = [_or_refused(lambda: bool(read_answers(state))), _or_refused(lambda: bool(read_ledger(state)))]
    finally:
        write_state(state, values)
    return len(read) - read.count(None), read.count(None)


# -- graphs


@cache
def sound_graph() -> tuple[Path, Any]:
    """Return the folder of a graph, and the values of its manifest."""
    path = Path(_kept_folder("graph").name) / "graph"
    stored(path, power_law_web(200, 3), slice_pages=64)
    manifest = json.loads((path / "graph.json").read_bytes())
    return path, {name: value for name, value in manifest.items() if name not in ("format", "version", "digest")}


def make_graph(draw: random.Random) -> bytes:
    """Return the manifest of a graph with other values, and the right digest."""
    values = altered(sound_graph()[1], draw)
    return write_manifest(values if isinstance(values, dict) else {})


def check_graph(data: bytes, _: random.Random) -> tuple[int, int]:
    """It is read, or refused."""
    path, values = sound_graph()
    try:
        (path / "graph.json").write_bytes(data)
        graph = StoredGraph(path)
        graph.check()
        return len(graph.ids()), 0
    finally:
        (path / "graph.json").write_bytes(write_manifest(values))
