"""Writes files of ranks, a page or a site a row: CSV or JSON lines, gzip or not, or Parquet."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from opicflow.connectors.files.csv_cells import harmless_cell
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.whole_file import whole_file
from opicflow.schemas.arrays import Array, Floats, Ids

TableRows = Mapping[str, list[str] | Array]
"""Rows as columns: texts are lists, numbers are arrays."""

_ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet")


class RankRows(NamedTuple):
    """Some rows: the URLs, empty where only the page id is known, page ids, and a column of values for every rank."""

    urls: list[str]
    pages: Ids
    values: list[Floats]


def check_name_of_ranks(path: Path) -> None:
    """Refuse a name that does not say which format it is."""
    if not path.name.endswith(_ENDINGS):
        raise InputRefused(f"{path}: ranks end in {', '.join(_ENDINGS)}: name it so")


def write_ranks(path: Path, names: Sequence[str], rows: Iterable[RankRows]) -> None:
    """Write ranks under their names, in the format of the file's name. The file is written whole or not at all."""
    write_table(path, (_columns(names, some) for some in rows))


def _columns(names: Sequence[str], some: RankRows) -> TableRows:
    return {"url": some.urls, "page": _words(some.pages), **dict(zip(names, some.values, strict=True))}


def write_table(path: Path, parts: Iterable[TableRows]) -> None:
    """Write rows, in the format of the file's name. Every part has the same columns.

    The file is written whole or not at all.
    """
    write = _write_parquet if path.name.endswith(".parquet") else _write_text
    with whole_file(path) as file:
        write(file, path.name, parts)


def _write_parquet(file: BinaryIO, name: str, parts: Iterable[TableRows]) -> None:
    writer: Any = None
    try:
        for some in parts:
            table = pa.table({column: pa.array(values) for column, values in some.items()})
            writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _write_text(file: BinaryIO, name: str, parts: Iterable[TableRows]) -> None:
    packed = gzip.GzipFile("", "wb", 6, file, mtime=0) if name.endswith(".gz") else nullcontext(file)
    lines = _json_lines if ".jsonl" in name else _csv_lines
    with packed as out:
        for number, some in enumerate(parts):
            if number == 0 and lines is _csv_lines:
                out.write(",".join(some).encode() + b"\n")
            out.write(lines(some))


def _json_lines(some: TableRows) -> bytes:
    line = "{" + ",".join(f'"{name}":%s' for name in some) + "}\n"
    columns = [
        [orjson.dumps(text).decode() for text in values] if isinstance(values, list) else _numbers(values)
        for values in some.values()
    ]
    return "".join(map(line.__mod__, zip(*columns, strict=True))).encode()


def _csv_lines(some: TableRows) -> bytes:
    text = io.StringIO()
    columns = [
        list(map(harmless_cell, values)) if isinstance(values, list) else _numbers(values) for values in some.values()
    ]
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
    return text.getvalue().encode()


def _words(pages: Ids) -> list[str]:
    return [f"{page:016x}" for page in pages.tolist()]


def _numbers(column: Array) -> list[str]:
    return orjson.dumps(column, option=orjson.OPT_SERIALIZE_NUMPY).decode()[1:-1].split(",")
