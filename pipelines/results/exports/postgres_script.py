"""A script for psql: it makes a table, copies the rows beside it, and replaces those of the same pages, all or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from opicflow.pipelines.results.exports.export_job import ExportJob, text_of_time
from opicflow.pipelines.results.exports.result_rows import TIME_FIELDS, field_names

_TYPES = {"importance": "double precision", "score": "double precision", "priority": "double precision"}
_TYPES |= dict.fromkeys(TIME_FIELDS, "timestamptz") | {"interval_seconds": "double precision"}
_KEY = "page"
"""An index takes texts of up to 2,704 bytes: URLs can be longer."""
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\v": "\\v", "\0": "%00"}
_SPECIAL = re.compile("[\\\\\t\n\r\b\f\v\0]")
"""The characters that the text format of COPY escapes. A NUL cannot be in a text of Postgres."""


def table_script(job: ExportJob) -> Iterator[bytes]:
    """Yield the script. If a page has several rows, the last one counts."""
    names = field_names(job.kind)
    table = ".".join('"' + word.replace('"', '""') + '"' for word in job.name.split("."))
    defined = ", ".join(f"{name} {_TYPES.get(name, 'text')}" for name in names)
    listed = ", ".join(names)
    replaced = ", ".join(f"{name} = excluded.{name}" for name in names if name != _KEY)
    yield (
        "\\set ON_ERROR_STOP on\n"
        "SET client_encoding = 'UTF8';\n"
        "BEGIN;\n"
        f"CREATE TABLE IF NOT EXISTS {table} ({defined}, PRIMARY KEY ({_KEY}));\n"
        "CREATE TEMPORARY TABLE opicflow_rows "
        f"(number bigint GENERATED ALWAYS AS IDENTITY, {defined}) ON COMMIT DROP;\n"
        f"COPY opicflow_rows ({listed}) FROM stdin;\n"
    ).encode()
    for some in job.rows:
        yield "".join("\t".join(map(_copied, names, row)) + "\n" for row in some).encode()
    yield (
        "\\.\n"
        f"INSERT INTO {table} ({listed})\n"
        f"SELECT DISTINCT ON ({_KEY}) {listed} FROM opicflow_rows ORDER BY {_KEY}, number DESC\n"
        f"ON CONFLICT ({_KEY}) DO UPDATE SET {replaced};\n"
        "COMMIT;\n"
    ).encode()


def _copied(name: str, value: Any) -> str:
    """Return a value in the text format of COPY."""
    if name in TIME_FIELDS:
        value = text_of_time(value)
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], value)
    return repr(value)
