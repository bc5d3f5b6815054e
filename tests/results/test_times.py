"""No writer fails on any 64-bit number as a time: all of them are found by the tables that name them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import fastavro
import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opicflow.pipelines.ledger import Outcome
from opicflow.pipelines.results import files
from opicflow.pipelines.results.exports.export_job import ExportJob
from opicflow.pipelines.results.exports.result_rows import _ROW_TYPES, COLUMN_TYPES, KINDS, Rows, rows_of_files
from opicflow.pipelines.results.exports.targets import TARGETS
from opicflow.pipelines.results.files import FORMATS, stream_result, write_tombstones
from opicflow.pipelines.results.record_columns import RESULTS
from opicflow.pipelines.results.schedules import export
from opicflow.pipelines.stages.outputs import CHANGES, FINAL, IMPORTANCE, ORDERS, SCHEDULE, SITES
from opicflow.pipelines.stages.publication_pace import DueChange
from opicflow.pipelines.stages.publish import (
    pack_changes,
    pack_estimates,
    pack_orders,
    pack_schedules,
    pack_tombstones,
)
from opicflow.pipelines.stages.publish_sites import pack_sites
from opicflow.schemas.columns import pack, unpack
from opicflow.schemas.records import Policy
from support.thorough import thorough
from support.written_crawls import DAY, T0, Crawl, url_of, with_refresh

PAIRS = [(name, kind) for name, target in TARGETS.items() for kind in target.writers]
KINDS_OF_RECORDS = [kind for kind in RESULTS if kind not in FINAL]
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
YEAR_33715 = 1_001_780_000_000  # the longest interval of a plan that there was

seconds = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [0, 1, -1, YEAR_33715, 1000 * YEAR_33715, FIRST_MS // 1000, LAST_MS // 1000, LAST_MS, -(2**63), 2**63 - 1]
)
VALUES = {int: seconds, float: st.floats(), str: st.just("https://a.example/"), NoneType: st.none()}


def any_rows(kind: str) -> st.SearchStrategy[Any]:
    """Rows with any numbers of 64 bits, and any times, wherever they have some."""
    hints = get_type_hints(_ROW_TYPES[kind])
    fields = [st.one_of(*(VALUES[one] for one in get_args(hint) or (hint,))) for hint in hints.values()]
    return st.builds(_ROW_TYPES[kind], *fields)


# -- exports


@pytest.mark.thorough
@pytest.mark.parametrize("target, kind", PAIRS)
@given(st.data())
@settings(max_examples=thorough(40, 2000))
def test_no_export_fails_on_any_number(target: str, kind: str, data: st.DataObject) -> None:
    rows = data.draw(st.lists(any_rows(kind), min_size=1, max_size=3))
    name = TARGETS[target].default_name(kind) or "spider:start_urls"
    job = ExportJob(Rows(kind, lambda: iter([rows]), now_ms=-(2**64)), name, TARGETS[target].routing or "none")
    assert b"".join(TARGETS[target].writers[kind](job)) or job.left_out


# -- files of results


@cache
def a_plan() -> tuple[Crawl, Any]:
    crawl = Crawl(with_refresh(bandwidth_per_day=10.0)).read(range(30), T0)
    crawl.visit(3, T0 + 5, Outcome.GONE).tick(T0 + DAY)
    return crawl, crawl.plan()


@cache
def parts() -> dict[str, bytes]:
    """A part of each kind of results, by the name of its kind."""
    crawl, plan = a_plan()
    published = crawl.ledger.publish_movers(10**6, 0.0).estimates
    assert len(published.pages) and len(plan.orders.rows)
    return {
        IMPORTANCE: pack_estimates(crawl.ledger, published),
        SCHEDULE: pack_schedules(crawl.ledger, plan, plan.publish),
        ORDERS: pack_orders(crawl.ledger, plan),
        SITES: pack_sites(crawl.ledger, plan, "host"),
        CHANGES: changes(),
    }


def changes() -> bytes:
    crawl = Crawl().read(range(3), T0)
    crawl.publish(Policy(url_prefix=f"{url_of(1).rpartition('/')[0]}/", notify=True))
    packed = pack_changes(crawl.ledger, [DueChange(crawl.id(page), T0, 1, 2) for page in range(3)])
    assert packed is not None
    return packed


def with_times(packed: bytes, second: int) -> bytes:
    """The same part with this number in place of every time in it."""
    part = unpack(packed)
    values = {name: second if is_time(name) else value for name, value in part.values.items()}
    columns = {
        name: np.full(len(column), second, np.int64) if is_time(name) else column
        for name, column in part.columns.items()
    }
    return pack(part.kind, values, columns)


def is_time(name: str) -> bool:
    return name.endswith(("second", "_ms"))


def numbers_of_times(format_: str, name: str, data: bytes) -> Iterator[int]:
    """Read the times of a file of results as the libraries of its readers do, and yield them as milliseconds."""
    fields = [
        field["name"]
        for field in files.schema(RESULTS[name].schema)["fields"]
        if "timestamp-millis" in str(field["type"])
    ]
    rows: Any
    if format_ == "jsonl":
        rows = map(orjson.loads, data.splitlines())
    elif format_ == "avro":
        rows = fastavro.reader(io.BytesIO(data))
    else:
        rows = pq.read_table(io.BytesIO(data)).to_pylist()
    for row in rows:
        for field in fields:
            if row[field] is not None:
                yield round(row[field].timestamp() * 1000) if hasattr(row[field], "timestamp") else row[field]


def test_there_is_a_part_of_each_kind_of_results() -> None:
    assert [*parts()] == KINDS_OF_RECORDS
    for name, part in parts().items():
        packed = unpack(part)
        assert any(map(is_time, [*packed.columns, *packed.values])), name


@pytest.mark.thorough
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", KINDS_OF_RECORDS)
@given(second=seconds)
@settings(max_examples=thorough(20, 500))
def test_results_are_written_and_read_whatever_their_times_are(name: str, format_: str, second: int) -> None:
    file = io.BytesIO()
    stream_result(file, format_, RESULTS[name], [with_times(parts()[name], second)])
    found = list(numbers_of_times(format_, name, file.getvalue()))
    assert all(FIRST_MS <= time_ms <= LAST_MS for time_ms in found)
    assert found or 0 <= second < 1000


@cache
def tombstone() -> bytes:
    crawl = Crawl().read(range(3), T0)
    for day in (1, 50, 100, 150):
        crawl.visit(1, T0 + DAY * day, Outcome.GONE)
    return pack_tombstones(crawl.ledger, crawl.tick(T0 + 151 * DAY))


@given(second=seconds)
def test_tombstones_are_written_whatever_their_times_are(second: int) -> None:
    file = io.BytesIO()
    write_tombstones(file, [with_times(tombstone(), second)])
    assert file.getvalue()


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_exports_read_files_with_any_times(kind: str, format_: str, tmp_path: Path) -> None:
    """As other programs may write them: without the limits of our own files."""
    row_type = _ROW_TYPES[kind]
    numbers = (0, LAST_MS + 1, 1000 * YEAR_33715, 2**63 - 1, -(2**63))
    some = {str: "https://a.example/", int: 0, float: 0.5, NoneType: None}
    plain = {name: some[(get_args(hint) or (hint,))[0]] for name, hint in get_type_hints(row_type).items()}
    times = {name for name in plain if COLUMN_TYPES[kind][name].is_time}
    rows = [plain | dict.fromkeys(times, number) for number in numbers]
    path = tmp_path / f"x.{format_}"
    write_plain(path, rows, [(name, name in times) for name in plain])
    read = [row for rows_ in rows_of_files(kind, [str(path)], now_ms=-(2**64)) for row in rows_]
    assert read == [row_type(**row) for row in rows]


def write_plain(path: Path, rows: list[dict[str, Any]], fields: list[tuple[str, bool]]) -> None:
    """Write rows as another program does; times are of the types that formats have for them."""
    if path.suffix == ".jsonl":
        path.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
    elif path.suffix == ".avro":
        types = {str: "string", float: "double"}
        time = {"type": "long", "logicalType": "timestamp-millis"}
        names = [{"name": name, "type": time if is_ else types[type(rows[0][name])]} for name, is_ in fields]
        with open(path, "wb") as file:
            fastavro.writer(file, {"type": "record", "name": "Row", "fields": names}, rows)
    else:
        import pyarrow as pa

        columns = {
            name: pa.array([row[name] for row in rows], pa.timestamp("ms", tz="UTC") if is_ else None)
            for name, is_ in fields
        }
        pq.write_table(pa.table(columns), path)


# -- schedules of a ledger


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("second", [0, YEAR_33715, 2**63 - 1])
def test_a_schedule_is_written_whatever_its_times_are(ending: str, second: int, tmp_path: Path) -> None:
    crawl, plan = a_plan()
    late = replace(plan, schedule=replace(plan.schedule, due=np.full(len(plan.schedule.due), second)))
    assert export(tmp_path / f"x.{ending}", crawl.ledger, late) == 30
    assert b"9999-12-31T23:59:59Z" in (tmp_path / f"x.{ending}").read_bytes() or not second
