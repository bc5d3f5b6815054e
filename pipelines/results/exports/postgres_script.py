"""A script for psql: it makes a table, copies the rows beside it, and replaces those of the same pages, all or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from opicflow.pipelines.results.exports.export_job import ExportJob, text_of_time
from opicflow.pipelines.results.exports.result_rows import COLUMN_TYPES, ColumnType

_TYPES: dict[type, str] = {str: "text", float: "double precision", bool: "boolean", int: "bigint"}
_KEY = "url"
"""A page id is none: two folders of results may have ids by two keys."""
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\v": "\\v", "\0": "%00"}
_SPECIAL = re.compile("[\\\\\t\n\r\b\f\v\0]")
"""The characters that the text format of COPY escapes. A NUL cannot be in a text of Postgres."""


def table_script(job: ExportJob) -> Iterator[bytes]:
    """Yield the script. If a page has several rows, the last one counts."""
    names = job.rows.columns
    types = [COLUMN_TYPES[job.kind][name] for name in names]
    table = ".".join('"' + word.replace('"', '""') + '"' for word in job.name.split("."))
    defined = ", ".join(f"{name} {_type_of(type_)}" for name, type_ in zip(names, types, strict=True))
    listed = ", ".join(names)
    newest = f"SELECT DISTINCT ON ({_KEY}) {listed} FROM opicflow_rows ORDER BY {_KEY}, number DESC"
    replaced = ", ".join(f"{name} = given.{name}" for name in names if name != _KEY)
    yield (
        "\\set ON_ERROR_STOP on\n"
        "SET client_encoding = 'UTF8';\n"
        "BEGIN;\n"
        # An ordinary index takes texts of up to 2,704 bytes, and URLs can be longer: an index of hashes takes all.
        f"CREATE TABLE IF NOT EXISTS {table} ({defined}, EXCLUDE USING hash ({_KEY} WITH =));\n"
        "CREATE TEMPORARY TABLE opicflow_rows "
        f"(number bigint GENERATED ALWAYS AS IDENTITY, {defined}) ON COMMIT DROP;\n"
        f"COPY opicflow_rows ({listed}) FROM stdin;\n"
    ).encode()
    for some in job.rows:
        yield "".join("\t".join(map(_copied, types, row)) + "\n" for row in some).encode()
    yield b"\\.\n"
    if replaced:
        update = f"UPDATE {table} AS kept SET {replaced}\nFROM ({newest}) AS given WHERE kept.{_KEY} = given.{_KEY};\n"
        yield update.encode()
    yield f"INSERT INTO {table} ({listed})\n{newest}\nON CONFLICT DO NOTHING;\nCOMMIT;\n".encode()


def _type_of(column: ColumnType) -> str:
    return "timestamptz" if column.is_time else next(_TYPES[one] for one in column.types if one in _TYPES)


def _copied(column: ColumnType, value: Any) -> str:
    """Return a value in the text format of COPY."""
    if column.is_time:
        value = text_of_time(value)
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], value)
    return repr(value)
