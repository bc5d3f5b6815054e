"""CSV and lines of JSON: all columns of the rows, for everything that reads tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from opicflow.pipelines.results.exports.export_job import ExportJob, text_of_time
from opicflow.pipelines.results.exports.result_rows import TIME_FIELDS, field_names


def csv_table(job: ExportJob) -> Iterator[bytes]:
    """Yield a line of names, and a line of CSV for each row. Missing values are empty."""
    yield _csv([field_names(job.kind)])
    for some in _with_times(job):
        yield _csv(some)


def json_table(job: ExportJob) -> Iterator[bytes]:
    """Yield an object of JSON a line."""
    names = field_names(job.kind)
    for some in _with_times(job):
        objects = (dict(zip(names, row, strict=True)) for row in some)
        yield b"".join(orjson.dumps(one, option=orjson.OPT_APPEND_NEWLINE) for one in objects)


def _with_times(job: ExportJob) -> Iterator[list[Sequence[Any]]]:
    """Yield the rows with their times as text."""
    times = [number for number, name in enumerate(field_names(job.kind)) if name in TIME_FIELDS]
    for some in job.rows:
        yield [_with_texts(row, times) for row in some] if times else some


def _with_texts(row: Sequence[Any], times: Sequence[int]) -> list[Any]:
    values = list(row)
    for number in times:
        values[number] = text_of_time(values[number])
    return values


def _csv(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
