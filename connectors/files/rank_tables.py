"""Files of ranks that are tables: Parquet and Avro."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, BinaryIO

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.rank_rows import (
    FIELD_OF_RECORDS,
    SITE,
    BadRow,
    RankBatch,
    RankLayout,
    batch_of_rows,
    check_names,
    checked_batch,
    instead,
    key_of,
    shown,
)

_ROWS_AT_ONCE = 1 << 16


def read_parquet(name: str, file: BinaryIO, rank: str) -> RankLayout:
    """The layout of a file of Parquet. Rows that are wrong are refused while batches are read."""
    damaged = (pa.ArrowException, OSError, ValueError, KeyError)  # KeyError: two columns of one name
    try:
        table = pq.ParquetFile(file)
    except damaged as problem:
        raise InputRefused(f"{name}: damaged ({shown(str(problem))}): write it again") from None
    types = {field.name: field.type for field in table.schema_arrow}
    check_names(name, list(types), rank)
    numeric = [column for column, kind in types.items() if pa.types.is_floating(kind) or pa.types.is_integer(kind)]
    if rank not in numeric:
        raise InputRefused(f"{name}: column {rank} holds {types[rank]}, no numbers: {instead(numeric)}")
    key = key_of(types)
    for column in {key, "page"} & types.keys():
        if not _is_text(types[column]):
            raise InputRefused(f"{name}: column {column} holds {types[column]}, no texts: name a file of ranks")
    columns = [column for column in (key, "page", rank) if column in types]

    def batches() -> Iterator[RankBatch]:
        row = 1
        parts = table.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False)
        while True:
            try:
                part = next(parts, None)
                if part is None:
                    return
                values = part.column(rank).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
                urls, pages = (
                    part.column(column).cast(pa.string()) if column in columns else None for column in (key, "page")
                )
            except damaged as problem:
                raise InputRefused(f"{name}, from row {row}: damaged ({shown(str(problem))}): write it again") from None
            try:
                none_is_gone = np.zeros(len(values), np.bool_)
                yield checked_batch(values, _teller(part.column(rank)), none_is_gone, urls, pages, rank, key)
            except BadRow as bad:
                raise InputRefused(f"{name}, row {row + bad.row}: {bad}") from None
            row += len(values)

    return RankLayout(FIELD_OF_RECORDS in types, batches(), types, key == SITE)


def _teller(column: pa.Array) -> Callable[[int], str]:
    return lambda row: str(column[row])


def _is_text(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_null(type_))


def read_avro(name: str, file: BinaryIO, rank: str) -> RankLayout:
    """Read records one by one: fastavro skips the fields that are not requested."""

    def damaged(row: int, problem: Exception) -> InputRefused:
        detail = shown(str(problem)) or type(problem).__name__
        return InputRefused(f"{name}, from row {row}: damaged ({detail}): write it again")

    try:
        written: Any = fastavro.reader(file).writer_schema
        file.seek(0)
    except Exception as problem:  # fastavro has no errors of its own for bytes that make no sense
        raise damaged(1, problem) from None
    is_record = isinstance(written, dict) and written.get("type") == "record"
    fields = {field["name"]: field for field in written["fields"]} if is_record else {}
    check_names(name, list(fields), rank)
    key = key_of(fields)
    requested = {**written, "fields": [fields[column] for column in (key, "page", rank) if column in fields]}

    def batches() -> Iterator[RankBatch]:
        row = 1
        records: Any = None
        while True:
            try:
                records = records or fastavro.reader(file, requested)
                rows = list(islice(records, _ROWS_AT_ONCE))
            except Exception as problem:
                raise damaged(row, problem) from None
            if not rows:
                return
            try:
                yield batch_of_rows(rows, rank, key)
            except BadRow as bad:
                raise InputRefused(f"{name}, row {row + bad.row}: {bad}") from None
            row += len(rows)

    return RankLayout(FIELD_OF_RECORDS in fields, batches(), fields, key == SITE)
