"""CSV and lines of JSON, for everything that reads tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from opicflow.connectors.files.csv_cells import csv_text
from opicflow.pipelines.results.exports.export_job import ExportJob, text_of_time
from opicflow.pipelines.results.exports.result_rows import COLUMN_TYPES


def csv_table(job: ExportJob) -> Iterator[bytes]:
    """Yield a line of names, and a line of CSV for each row. Missing values are empty."""
    yield csv_text([job.rows.columns]).encode()
    for some in _with_times(job):
        yield csv_text(some).encode()


def json_table(job: ExportJob) -> Iterator[bytes]:
    """Yield an object of JSON a line."""
    names = job.rows.columns
    for some in _with_times(job):
        objects = (dict(zip(names, row, strict=True)) for row in some)
        yield b"".join(orjson.dumps(one, option=orjson.OPT_APPEND_NEWLINE) for one in objects)


def _with_times(job: ExportJob) -> Iterator[list[Sequence[object]]]:
    """Yield the rows with their times as text."""
    columns = job.rows.columns
    times = [number for number, name in enumerate(columns) if COLUMN_TYPES[job.kind][name].is_time]
    for some in job.rows:
        yield [_with_texts(row[: len(columns)], times) for row in some]


def _with_texts(row: Sequence[Any], times: Sequence[int]) -> list[object]:
    values = list(row)
    for number in times:
        values[number] = text_of_time(values[number])
    return values
