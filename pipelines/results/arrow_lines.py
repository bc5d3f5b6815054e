"""Many rows as lines of JSON: each column becomes texts at once, and Arrow joins them row by row."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from opicflow.pipelines.results.arrow_columns import Values, text_array, word_array
from opicflow.schemas.arrays import Array, Bytes
from opicflow.schemas.columns import Columns, NumberedWords, Texts, WithNulls, row_count

Piece: TypeAlias = "str | pa.Array"
"""A text that all rows have, or a text for each."""
_ROWS_AT_ONCE = 1 << 13
"""So few that their texts stay in the cache, and within 2 GiB whatever their length is."""
_FIRST_PRINTABLE = 0x20
_NULL = ":null"


def many_lines(columns: Columns) -> bytes:
    """Return a line of JSON for each row, as `json_lines` does."""
    rows = row_count(columns)
    if rows == 0:
        return b""
    pieces: list[Piece] = []  # texts that all rows have, and arrays
    for number, (name, values) in enumerate(columns.items()):
        _append(pieces, f'{"," if number else "{"}"{name}"')
        for piece in _values(values):
            _append(pieces, piece)
    _append(pieces, "}\n")
    if len(pieces) == 1:
        return bytes(pieces[0].encode() * rows)
    return b"".join(_joined(pieces, first) for first in range(0, rows, _ROWS_AT_ONCE))


def _append(pieces: list[Piece], piece: Piece) -> None:
    if pieces and isinstance(pieces[-1], str) and isinstance(piece, str):
        pieces[-1] += piece
    else:
        pieces.append(piece)


def _joined(pieces: list[Piece], first: int) -> bytes:
    some = [piece if isinstance(piece, str) else piece.slice(first, _ROWS_AT_ONCE) for piece in pieces]
    lines = pc.binary_join_element_wise(*some, "")
    _, offsets, text = lines.buffers()
    first_byte, end = np.frombuffer(offsets, np.int32)[[lines.offset, lines.offset + len(lines)]].tolist()
    return bytes(text.slice(first_byte, end - first_byte))


def _values(values: Values) -> list[Piece]:
    """Return the values of a field as pieces, each with the colon before it."""
    if isinstance(values, WithNulls):
        if not values.present.any():
            return [_NULL]
        texts = _numbers(values.values)
        return [
            texts if values.present.all() else pc.if_else(pa.array(values.present), _as_array(texts, values), _NULL)
        ]
    if isinstance(values, np.ndarray):
        return [_numbers(values)]
    if isinstance(values, NumberedWords):
        return [':"', _escaped(word_array(values), "".join(values.symbols).encode()), '"']
    if isinstance(values, Texts):
        return [':"', _escaped(text_array(values), _bytes_of(values)), '"']
    if isinstance(values[0], str):
        return [':"', _escaped(pa.array(values, pa.string()), "".join(map(str, values)).encode()), '"']
    return [_split(orjson.dumps(values), len(values))]


def _bytes_of(texts: Texts) -> Bytes:
    """Return the bytes that have all these texts: they may be few rows of a long column."""
    if len(texts) == 0:
        return texts.text[:0]
    return texts.text[texts.starts.min() : (texts.starts + texts.lengths).max()]


def _as_array(texts: Piece, values: WithNulls) -> pa.Array:
    return pa.repeat(texts, len(values)) if isinstance(texts, str) else texts


def _numbers(column: Array) -> Piece:
    """Return numbers or truth values as texts; as one text if all are the same."""
    bits = column.view(f"u{column.itemsize}")  # of 0.0 and -0.0 they differ
    if (bits == bits[0]).all():
        return ":" + orjson.dumps(column[0].item()).decode()
    if column.dtype == np.bool_:
        return pa.array([":false", ":true"]).take(pa.array(bits))
    return _split(orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY), len(column))


def _split(listed: bytes, rows: int) -> pa.Array:
    """Return the numbers of a JSON array as texts: every separator before one becomes a colon."""
    text = np.frombuffer(bytearray(listed), np.uint8)
    bounds = np.empty(rows + 1, np.int32)
    bounds[0], bounds[1:rows], bounds[rows] = 0, np.flatnonzero(text == ord(",")), len(text) - 1
    text[bounds[:-1]] = ord(":")
    return pa.StringArray.from_buffers(rows, pa.py_buffer(bounds), pa.py_buffer(text))


def _escaped(texts: pa.Array, data: Bytes | bytes) -> pa.Array:
    """Return texts as they are within quotes in JSON. `data` has all their bytes."""
    text = np.frombuffer(data, np.uint8)
    if not len(text) or (text.min() >= _FIRST_PRINTABLE and not ((text == ord('"')) | (text == ord("\\"))).any()):
        return texts
    found = set(np.flatnonzero(np.bincount(text, minlength=_FIRST_PRINTABLE)).tolist())
    for character in ("\\", '"', *map(chr, range(_FIRST_PRINTABLE))):  # the first one is in what the others become
        if ord(character) in found:
            texts = pc.replace_substring(texts, character, orjson.dumps(character)[1:-1].decode())
    return texts
