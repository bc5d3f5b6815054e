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


_SCHEMAS = {
    "importance": "Importance",
    "refresh-schedule": "RefreshSchedule",
    "crawl-orders": "CrawlOrder",
    "rejects": "Reject",
}
_KINDS = {"importance": "importance", "refresh-schedule": "schedule", "crawl-orders": "orders"}
"""The results that are exported."""
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
def _results() -> tuple[dict[str, Any], Any]:
    """Return some rows of each result of a replay of the example, and its summary."""
    with tempfile.TemporaryDirectory() as temporary:
        log, out = Path(temporary) / "log.jsonl", Path(temporary) / "out"
        lines = gzip.decompress((TOP / "examples" / "crawl.jsonl.gz").read_bytes()).splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:_LINES]) + b"{}\n")
        run([log], out, format="parquet")
        tables = {name: pq.read_table(out / f"{name}.parquet").slice(0, _ROWS) for name in _SCHEMAS}
        return tables, json.loads((out / "summary.json").read_bytes())


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


def _with_other_columns(table: Any, draw: random.Random) -> Any:
    for _ in range(draw.choice([1, 1, 2])):
        at = draw.randrange(table.num_columns)
        name = draw.choice([table.column_names[at]] * 18 + ["x", "page"])
        table = table.set_column(at, name, draw.choice(_COLUMNS)(draw, table.num_rows))
    return table


def _plain_rows(table: Any) -> list[dict[str, Any]]:
    columns = [one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one for one in table.itercolumns()]
    rows: list[dict[str, Any]] = pa.table(columns, table.column_names).to_pylist()
    return rows


def make_result(draw: random.Random) -> bytes:
    """Return the name of a file of results, a line break, and the file, with other columns, values or bytes."""
    tables, summary = _results()
    name, format_ = draw.choice(list(tables)), draw.choice(_FORMATS)
    file = io.BytesIO()
    if draw.random() < 0.05:
        name, format_ = "summary", "json"
        file.write(json.dumps(altered(summary, draw)).encode())
    elif format_ == "parquet":
        table = _with_other_columns(tables[name], draw) if draw.random() < 0.5 else tables[name]
        file.write(_parquet(table, draw))
    elif format_ == "avro":
        fastavro.writer(file, schema(_SCHEMAS[name]), _plain_rows(tables[name]), sync_marker=bytes(16))
    else:
        rows = [altered(row, draw) if draw.random() < 0.1 else row for row in _plain_rows(tables[name])]
        file.write(b"".join(json.dumps(row, default=str).encode() + b"\n" for row in rows))
    data = spoilt(file.getvalue(), draw) if draw.random() < 0.5 else file.getvalue()
    return f"{name}.{format_}\n".encode() + data


@cache
def _sound_files() -> dict[str, bytes]:
    tables, summary = _results()
    files = {f"{name}.parquet": _parquet(table, random.Random(1)) for name, table in tables.items()}
    return {**files, "summary.json": json.dumps(summary).encode()}


def check_result(data: bytes, _: random.Random) -> tuple[int, int]:
    """It is shown, exported and compared, or refused, each in one line; where it is read, with all its rows."""
    name, _, content = data.partition(b"\n")
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / name.decode()
        for other, sound in _sound_files().items():
            if not other.startswith(f"{file.stem}."):
                (file.parent / other).write_bytes(sound)
        file.write_bytes(content)
        read = [_or_refused(lambda: _shown(file.parent))]
        if file.stem in _KINDS:
            read.append(_or_refused(lambda: _exported(_KINDS[file.stem], file)))
        if file.stem == "importance":
            read.append(_or_refused(lambda: read_ranks(str(file), "importance").rows))
            assert len({rows for rows in read if rows is not None}) <= 1, read
        return sum(rows or 0 for rows in read), read.count(None)


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
    for position in range(len(table.order_rows)):
        table.order(position)
    return len(table)


# -- the state of a replay


@cache
def _kept_folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is removed when the process ends."""
    return tempfile.TemporaryDirectory(suffix=name)


@cache
def sound_state() -> tuple[Path, Any]:
    """Return the folder of a state, and its values. The log is beside it; some events are ahead of the clock."""
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
