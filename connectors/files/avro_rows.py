"""Rows of columns as Avro records, a whole column at a time: what fastavro does record by record, far slower.

It writes records whose fields are plain values, or null and a plain value. Others (arrays, maps, other unions) are for
fastavro.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from opicflow.schemas.arrays import Array, Bytes, Ints
from opicflow.schemas.columns import Columns, NumberedWords, Texts, WithNulls, row_count
from opicflow.schemas.kernel import lean_kernel
from opicflow.schemas.published_schemas import Schema
from opicflow.schemas.varint import MOST_BYTES, put_bytes, put_signed

_DOUBLE_BYTES = 8


def encode_rows(schema: Schema, columns: Columns, prefix: bytes = b"") -> Texts:
    """A record of each row, as the fields of the schema say, each after `prefix`. Columns are in the schema's order.

    A column is a list of values. These cost least: of numbers an array, of texts `Texts` in UTF-8, of an enum or texts
    `NumberedWords`, of numbers or null `WithNulls`.
    """
    if list(columns) != [field["name"] for field in schema["fields"]]:
        raise ValueError(f"these are not the fields of {schema['name']}: {', '.join(columns)}")
    rows = row_count(columns)
    if rows == 0:
        return Texts.of([])
    everywhere = np.ones(rows, np.uint8)
    fields = zip(schema["fields"], columns.values(), strict=True)
    written = [_column(field["type"], values, everywhere) for field, values in fields]
    most: Ints = np.full(rows, len(prefix), np.int64)
    for column in written:
        most += column.most_bytes
    begins = np.zeros(rows + 1, np.int64)
    np.cumsum(most, out=begins[1:])
    out = np.empty(begins[-1], np.uint8)
    at = begins[:-1].copy()
    _write_prefix(out, at, np.frombuffer(prefix, np.uint8))
    for column in written:
        if column.branches is not None:
            _write_longs(out, at, column.branches, everywhere)
        if isinstance(column.values, Texts):
            texts = column.values
            _write_texts(out, at, texts.text, texts.starts, texts.lengths, column.present)
        elif column.values.dtype == np.float64:
            _write_doubles(out, at, column.values.view(np.uint8), column.present)
        else:
            _write_longs(out, at, column.values, column.present)
    out.setflags(write=False)
    return Texts(out, begins[:-1], at - begins[:-1])


class _Column(NamedTuple):
    """A field of all rows, as the kernels take it. `branches`: which of a union."""

    values: Texts | Array
    present: Bytes
    most_bytes: Ints | int
    branches: Ints | None


def _column(type_: Any, values: Any, everywhere: Bytes) -> _Column:
    if not isinstance(type_, list):
        return _plain(type_, values, everywhere, None)
    rows = len(values)
    null_at, kind = type_.index("null"), next(branch for branch in type_ if branch != "null")
    if len(type_) != 2:
        raise ValueError(f"a union of {len(type_)} types is for fastavro")
    if isinstance(values, WithNulls):
        branches = np.where(values.present, 1 - null_at, null_at).astype(np.int64)
        return _plain(kind, values.values, values.present.view(np.uint8), branches)
    nulls = 0 if isinstance(values, (np.ndarray, Texts, NumberedWords)) else list(values).count(None)
    if nulls == 0:  # most columns have no null, or nothing else
        return _plain(kind, values, everywhere, np.full(rows, 1 - null_at, np.int64))
    empty: Any = "" if kind == "string" else b"" if kind == "bytes" else 0
    if nulls == rows:
        return _plain(kind, [empty] * rows, np.zeros(rows, np.uint8), np.full(rows, null_at, np.int64))
    present = np.fromiter((value is not None for value in values), np.uint8, rows)
    branches = np.where(present, 1 - null_at, null_at).astype(np.int64)
    return _plain(kind, [empty if value is None else value for value in values], present, branches)


def _plain(type_: Any, values: Any, present: Bytes, branches: Ints | None) -> _Column:
    kind = type_["type"] if isinstance(type_, dict) else type_
    branch_bytes = 0 if branches is None else 1
    if kind in ("string", "bytes"):
        values = values.texts() if isinstance(values, NumberedWords) else values
        texts = values if isinstance(values, Texts) else Texts.of(_encoded(values) if kind == "string" else values)
        return _Column(texts, present, texts.lengths + (branch_bytes + MOST_BYTES), branches)
    if kind == "double":
        return _Column(np.array(values, "<f8"), present, branch_bytes + _DOUBLE_BYTES, branches)
    if kind == "enum":
        numbers = {symbol: number for number, symbol in enumerate(type_["symbols"])}
        if isinstance(values, NumberedWords):
            values = np.array([numbers[symbol] for symbol in values.symbols], np.int64)[values.numbers]
        else:
            values = [numbers[value] for value in values]
    elif kind not in ("boolean", "int", "long"):
        raise ValueError(f"a field of type {kind} is for fastavro")
    whole = np.array(values, np.int64)
    if kind == "boolean":
        whole = -whole  # the zigzag of -1 is 1
    return _Column(whole, present, branch_bytes + MOST_BYTES, branches)


def _encoded(values: Iterable[str]) -> list[bytes]:
    return [value.encode("utf-8") for value in values]


@lean_kernel
def _write_prefix(out: Bytes, at: Ints, prefix: Bytes) -> None:
    for row in range(at.shape[0]):
        for i in range(prefix.shape[0]):
            out[at[row] + i] = prefix[i]
        at[row] += prefix.shape[0]


@lean_kernel
def _write_longs(out: Bytes, at: Ints, values: Ints, present: Bytes) -> None:
    for row in range(at.shape[0]):
        if present[row]:
            at[row] = put_signed(out, at[row], values[row])


@lean_kernel
def _write_doubles(out: Bytes, at: Ints, values: Bytes, present: Bytes) -> None:
    for row in range(at.shape[0]):
        if present[row]:
            for i in range(8):
                out[at[row] + i] = values[8 * row + i]
            at[row] += 8


@lean_kernel
def _write_texts(out: Bytes, at: Ints, text: Bytes, starts: Ints, lengths: Ints, present: Bytes) -> None:
    for row in range(at.shape[0]):
        if present[row]:
            begin = put_signed(out, at[row], lengths[row])
            at[row] = put_bytes(out, begin, text, starts[row], starts[row] + lengths[row])
