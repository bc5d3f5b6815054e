"""CSV and lines of JSON: all columns of the rows, for everything that reads tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import orjson

from opicflow.pipelines.results.exports.export_job import ExportJob, text_of_time
from opicflow.pipelines.results.exports.result_rows import TIME_FIELDS, field_names


def csv_table(job: ExportJob) -> Iterator[bytes]:
    """Yield a line of names, and a line of CSV for each row. What is not there is empty."""
    yield _csv([field_names(job.kind)])
    for some in job.rows:
        yield _csv([list(_with_times(row).values()) for row in some])


def json_table(job: ExportJob) -> Iterator[bytes]:
    """Yield an object of JSON a line."""
    for some in job.rows:
        yield b"".join(orjson.dumps(_with_times(row), option=orjson.OPT_APPEND_NEWLINE) for row in some)


def _with_times(row: Any) -> dict[str, Any]:
    values: dict[str, Any] = row._asdict()
    for name in TIME_FIELDS & values.keys():
        values[name] = text_of_time(values[name])
    return values


def _csv(rows: list[Any]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
