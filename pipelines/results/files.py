"""Results as files: lines of JSON, Avro or Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from opicflow.connectors.files.whole_file import whole_file
from opicflow.pipelines.results.record_columns import (
    importance_columns,
    importance_lines,
    json_lines,
    order_columns,
    pages_of,
    reject_columns,
    schedule_columns,
    site_columns,
    tombstone_columns,
)
from opicflow.schemas.columns import Texts
from opicflow.schemas.published_schemas import schema

_SYNC_MARKER = b"opicflow-results"
"""The same results are the same bytes: a marker drawn by chance would be another one every time."""

_ARROW = {
    "string": pa.string(),
    "double": pa.float64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
}


def write_importance(path: Path, format_: str, parts: Iterable[bytes]) -> int:
    """Write published pages as `Importance` records. Returns how many."""
    if format_ == "jsonl":
        return _write_lines(path, map(importance_lines, map(pages_of, parts)))
    return _write(path, format_, "Importance", map(importance_columns, map(pages_of, parts)))


def write_rejects(path: Path, format_: str, parts: Iterable[bytes]) -> int:
    """Write rejects, which come as lines of JSON. Returns how many."""
    if format_ == "jsonl":
        return _write_lines(path, parts)
    return _write(path, format_, "Reject", map(reject_columns, parts))


def write_schedules(path: Path, format_: str, parts: Iterable[bytes]) -> int:
    """Write when pages are to be fetched again as `RefreshSchedule` records. Returns how many."""
    return write_records(path, format_, "RefreshSchedule", map(schedule_columns, map(pages_of, parts)))


def write_orders(path: Path, format_: str, parts: Iterable[bytes]) -> int:
    """Write `CrawlOrder` records. Returns how many."""
    return write_records(path, format_, "CrawlOrder", map(order_columns, map(pages_of, parts)))


def write_sites(path: Path, format_: str, parts: Iterable[bytes]) -> int:
    """Write `SiteImportance` records. Returns how many."""
    return write_records(path, format_, "SiteImportance", map(site_columns, map(pages_of, parts)))


def write_tombstones(path: Path, parts: Iterable[bytes]) -> int:
    """Write which pages are no longer there, as lines of JSON, without URLs: some are forgotten. Returns how many."""
    return _write_lines(path, map(json_lines, map(tombstone_columns, map(pages_of, parts))))


def _listed(values: Any) -> Any:
    """A column as a list of plain values."""
    if isinstance(values, Texts):
        return [text.decode("ascii") for text in values]
    return values.tolist() if isinstance(values, np.ndarray) else values


def write_records(path: Path, format_: str, name: str, parts: Iterator[dict[str, list[Any]]]) -> int:
    """Write columns as records of a published schema, in the requested format."""
    if format_ != "jsonl":
        return _write(path, format_, name, parts)
    return _write_lines(path, map(json_lines, parts))


def _write_lines(path: Path, parts: Iterable[bytes]) -> int:
    lines = 0
    with whole_file(path) as file:
        for part in parts:
            file.write(part)
            lines += part.count(b"\n")
    return lines


def _write(path: Path, format_: str, name: str, parts: Iterator[dict[str, list[Any]]]) -> int:
    """Write columns as records of a published schema, as Avro or Parquet."""
    rows = 0
    with whole_file(path) as file:
        if format_ == "avro":

            def records() -> Iterator[dict[str, Any]]:
                nonlocal rows
                for columns in parts:
                    for values in zip(*map(_listed, columns.values()), strict=True):
                        rows += 1
                        yield dict(zip(columns, values, strict=True))

            fastavro.writer(file, schema(name), records(), codec="deflate", sync_marker=_SYNC_MARKER)
            return rows
        layout = pa.schema([(field["name"], _arrow_type(field["type"])) for field in schema(name)["fields"]])
        empty: list[dict[str, list[Any]]] = [{field.name: [] for field in layout}]
        with pq.ParquetWriter(file, layout, compression="zstd") as writer:
            for columns in chain(parts, empty):
                table = pa.table({field: _listed(values) for field, values in columns.items()}, schema=layout)
                if table.num_rows:
                    writer.write_table(table)
                rows += table.num_rows
    return rows


def _arrow_type(avro_type: Any) -> Any:
    if isinstance(avro_type, list):  # null, or something
        return _arrow_type(avro_type[1])
    if isinstance(avro_type, dict):
        if avro_type.get("logicalType") == "timestamp-millis":
            return pa.timestamp("ms", tz="UTC")
        return pa.string() if avro_type["type"] == "enum" else _arrow_type(avro_type["type"])
    return _ARROW[avro_type]
