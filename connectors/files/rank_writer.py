"""Writes files of ranks, a page a row, as `ranks` reads them: CSV or JSON lines, gzip or not, or Parquet."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.whole_file import whole_file
from opicflow.schemas.arrays import Floats, Ids

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
    write = _write_parquet if path.name.endswith(".parquet") else _write_text
    with whole_file(path) as file:
        write(file, path.name, names, rows)


def _write_parquet(file: BinaryIO, name: str, names: Sequence[str], rows: Iterable[RankRows]) -> None:
    layout = pa.schema([("url", pa.string()), ("page", pa.string()), *((column, pa.float64()) for column in names)])
    with pq.ParquetWriter(file, layout, compression="zstd") as writer:
        for some in rows:
            writer.write_table(pa.table([some.urls, _words(some.pages), *some.values], schema=layout))


def _write_text(file: BinaryIO, name: str, names: Sequence[str], rows: Iterable[RankRows]) -> None:
    packed = gzip.GzipFile("", "wb", 6, file, mtime=0) if name.endswith(".gz") else nullcontext(file)
    lines = _json_lines if ".jsonl" in name else _csv_lines
    with packed as out:
        if lines is _csv_lines:
            out.write(",".join(("url", "page", *names)).encode() + b"\n")
        for some in rows:
            out.write(lines(some, names))


def _json_lines(some: RankRows, names: Sequence[str]) -> bytes:
    line = '{"url":%s,"page":"%s",' + ",".join(f'"{name}":%s' for name in names) + "}\n"
    texts = [orjson.dumps(url).decode() for url in some.urls]
    rows = zip(texts, _words(some.pages), *map(_numbers, some.values), strict=True)
    return "".join(map(line.__mod__, rows)).encode()


def _csv_lines(some: RankRows, names: Sequence[str]) -> bytes:
    text = io.StringIO()
    rows = zip(some.urls, _words(some.pages), *map(_numbers, some.values), strict=True)
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _words(pages: Ids) -> list[str]:
    return [f"{page:016x}" for page in pages.tolist()]


def _numbers(column: Floats) -> list[str]:
    return orjson.dumps(column, option=orjson.OPT_SERIALIZE_NUMPY).decode()[1:-1].split(",")
