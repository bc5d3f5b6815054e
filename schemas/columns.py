"""Named columns and plain values as bytes, for shuffles, results and logs.

    magic "OPFC", version (2 bytes), XXH64 of all that follows (8 bytes)
    length of the head (4 bytes), the head: JSON with the kind, plain values, and name, type and length of each column
    the columns, one after the other, each at a multiple of 8 bytes

A column whose values are all the same is stored once, and one of whole numbers in the fewest bytes that hold it: most
of a crawl's columns are like that.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import orjson
import xxhash

from opicflow.schemas.arrays import Array, Bytes, Ints
from opicflow.schemas.errors import UserError

COLUMNS_VERSION = 1
_START = struct.Struct("<4sHQ")
_LENGTH = struct.Struct("<I")
MAGIC = b"OPFC"
_NARROW = {"<i8": (np.int8, np.int16, np.int32), "<u8": (np.uint8, np.uint16, np.uint32)}
_MOST = {kind: int(np.iinfo(kind).max) for kinds in _NARROW.values() for kind in kinds}
_NUMBERS = re.compile(r"[<|][iufb][1248]")
"""The types of columns: numbers and truth values, nothing that would run code or take memory when it is read."""
MOST_ALIKE = 1 << 26
"""The longest column that is stored as one value: a few bytes must not become gigabytes."""


def spans(starts: Ints, rows: Ints) -> tuple[Array, Array]:
    """The indices of a ragged column's values for these rows, and where each row's values start among them."""
    lengths = starts[rows + 1] - starts[rows]
    new_starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=new_starts[1:])
    return np.arange(new_starts[-1]) + np.repeat(starts[rows] - new_starts[:-1], lengths), new_starts


class Texts(Sequence[bytes]):
    """A column of byte strings: one array with all bytes, where each string starts, and how long it is."""

    def __init__(self, text: Bytes, starts: Ints, lengths: Ints):
        self.text, self.starts, self.lengths = text, starts, lengths

    @classmethod
    def joined(cls, text: Bytes, lengths: npt.NDArray[np.integer]) -> Texts:
        """Strings that are stored one after the other."""
        sizes = lengths.astype(np.int64)
        return cls(text, np.cumsum(sizes) - sizes, sizes)

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Texts:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        return cls.joined(np.frombuffer(b"".join(values), np.uint8), lengths)

    def take(self, rows: npt.NDArray[np.integer]) -> Texts:
        """These rows, in this order, on the same bytes."""
        return Texts(self.text, self.starts[rows], self.lengths[rows])

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[bytes]:
        text = self.text.tobytes()
        ends = (self.starts + self.lengths).tolist()
        return (text[start:end] for start, end in zip(self.starts.tolist(), ends, strict=True))

    @overload
    def __getitem__(self, row: int) -> bytes: ...

    @overload
    def __getitem__(self, row: slice) -> Texts: ...

    def __getitem__(self, row: int | slice) -> bytes | Texts:
        if isinstance(row, slice):
            return Texts(self.text, self.starts[row], self.lengths[row])
        start = int(self.starts[row])
        return self.text[start : start + int(self.lengths[row])].tobytes()


class NumberedWords(Sequence[str]):
    """A column of words of a small set: for each row the number of its word in `symbols`."""

    def __init__(self, numbers: npt.NDArray[np.integer], symbols: Sequence[str]):
        self.numbers, self.symbols = numbers, tuple(symbols)

    @classmethod
    def same(cls, word: str, rows: int) -> NumberedWords:
        """The same word in every row."""
        return cls(np.zeros(rows, np.int8), [word])

    def texts(self) -> Texts:
        """The words as texts in UTF-8."""
        return Texts.of([symbol.encode("utf-8") for symbol in self.symbols]).take(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return map(self.symbols.__getitem__, self.numbers.tolist())

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> NumberedWords: ...

    def __getitem__(self, row: int | slice) -> str | NumberedWords:
        if isinstance(row, slice):
            return NumberedWords(self.numbers[row], self.symbols)
        return self.symbols[int(self.numbers[row])]


class WithNulls(Sequence[float | bool | None]):
    """A column of numbers or truth values that some rows do not have: those where `present` is false."""

    def __init__(self, values: Array, present: npt.NDArray[np.bool_]):
        self.values, self.present = values, present

    @classmethod
    def same(cls, value: float | bool | None, rows: int, kind: npt.DTypeLike) -> WithNulls:
        """The same value in every row, or none."""
        return cls(np.full(rows, value or 0, kind), np.full(rows, value is not None))

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[float | bool | None]:
        pairs = zip(self.values.tolist(), self.present.tolist(), strict=True)
        return (value if here else None for value, here in pairs)

    @overload
    def __getitem__(self, row: int) -> float | bool | None: ...

    @overload
    def __getitem__(self, row: slice) -> WithNulls: ...

    def __getitem__(self, row: int | slice) -> float | bool | WithNulls | None:
        if isinstance(row, slice):
            return WithNulls(self.values[row], self.present[row])
        return self.values[row].item() if self.present[row] else None


Columns = Mapping[str, Sequence[object] | Array]
"""The columns of records, by field: `Texts`, `NumberedWords`, `WithNulls`, arrays, or lists of plain values."""


def row_count(columns: Columns) -> int:
    """The number of rows of these columns."""
    return len(next(iter(columns.values())))


def row_slice(columns: Columns, first: int, end: int) -> Columns:
    """Return the rows from `first` to before `end`."""
    return {name: values[first:end] for name, values in columns.items()}


def plain_rows(columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield each row as plain values: for few rows."""
    for values in zip(*map(_plain, columns.values()), strict=True):
        yield dict(zip(columns, values, strict=True))


def _plain(values: Sequence[object] | Array) -> Sequence[object]:
    if isinstance(values, Texts):
        return [text.decode("utf-8") for text in values]
    return values.tolist() if isinstance(values, np.ndarray) else values


class ColumnsRefused(UserError, ValueError):
    """Bytes are not what `pack` wrote. The message is one line."""


class Packed(NamedTuple):
    """Unpacked bytes: a kind, plain values, and columns. The columns may be read-only."""

    kind: str
    values: dict[str, Any]
    columns: dict[str, Array]


def pack(kind: str, values: Mapping[str, object], columns: dict[str, Array]) -> bytes:
    """The bytes of plain values and of one-dimensional columns."""
    described, parts = [], []
    for name, column in columns.items():
        stored = np.ascontiguousarray(_narrowed(column))
        constant = 1 < len(stored) <= MOST_ALIKE and stored[0] == stored[-1] and bool((stored == stored[0]).all())
        if constant:
            stored = stored[:1]
        described.append([name, column.dtype.str, stored.dtype.str, len(column), bool(constant)])
        parts += [stored.data if len(stored) else b"", bytes(-stored.nbytes % 8)]
    head = orjson.dumps({"kind": kind, "values": values, "columns": described}, default=list)
    head += b" " * (-(_START.size + _LENGTH.size + len(head)) % 8)
    parts = [_LENGTH.pack(len(head)), head, *parts]
    digest = xxhash.xxh64()
    for part in parts:
        digest.update(part)
    return b"".join((_START.pack(MAGIC, COLUMNS_VERSION, digest.intdigest()), *parts))


def unpack(data: bytes) -> Packed:
    """The arguments of `pack`; `ColumnsRefused` for anything but its bytes."""
    if len(data) < _START.size + _LENGTH.size or not data.startswith(MAGIC):
        raise ColumnsRefused("these are no packed columns")
    _, version, digest = _START.unpack_from(data)
    if version != COLUMNS_VERSION:
        raise ColumnsRefused(f"the columns have version {version}, this code reads version {COLUMNS_VERSION}")
    view = memoryview(data)[_START.size :]
    if xxhash.xxh64_intdigest(view) != digest:
        raise ColumnsRefused("the columns were damaged: their checksum does not fit")
    try:
        return _unpacked(view)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, SyntaxError) as problem:
        if isinstance(problem, ColumnsRefused):
            raise
        raise ColumnsRefused(f"these are no packed columns ({type(problem).__name__})") from None


def _unpacked(view: memoryview) -> Packed:
    (size,) = _LENGTH.unpack_from(view)
    head = orjson.loads(view[_LENGTH.size : _LENGTH.size + size])
    kind, values, described = head["kind"], head["values"], head["columns"]
    if type(kind) is not str or type(values) is not dict or type(described) is not list:
        raise ColumnsRefused("these are no packed columns: the head has other parts")
    at = _LENGTH.size + size
    columns: dict[str, Array] = {}
    for name, given, stored_as, length, constant in described:
        dtype = _type_of(given)
        if type(name) is not str or name in columns or type(length) is not int or type(constant) is not bool:
            raise ColumnsRefused("a packed column has no name, or no length")
        kinds = (dtype, *map(np.dtype, _NARROW.get(dtype.str, ())))
        if _type_of(stored_as) not in kinds or length < 0 or (constant and not 1 < length <= MOST_ALIKE):
            raise ColumnsRefused("a packed column has another type or length")
        rows = 1 if constant else length
        if rows * np.dtype(stored_as).itemsize > len(view) - at:
            raise ColumnsRefused("a packed column is longer than the bytes that follow")
        stored = np.frombuffer(view, stored_as, rows, at) if rows else np.zeros(0, stored_as)
        at += -(-stored.nbytes // 8) * 8
        column = stored.astype(dtype, copy=False)
        columns[name] = np.full(length, column[0], dtype) if constant else column
    if at != len(view):
        raise ColumnsRefused("the packed columns end before the bytes do")
    return Packed(kind, values, columns)


def _type_of(given: object) -> np.dtype:
    if type(given) is not str or _NUMBERS.fullmatch(given) is None:
        raise ColumnsRefused("a packed column is of a type that is never packed")
    return np.dtype(given)


def _narrowed(column: Array) -> Array:
    """The column in the smallest integers that hold its values."""
    kinds = _NARROW.get(column.dtype.str, ())
    if not kinds or len(column) == 0:
        return column
    least, most = int(column.min()), int(column.max())
    for kind in kinds:
        if most <= _MOST[kind] and least >= (-_MOST[kind] if least < 0 else 0):
            return column.astype(kind)
    return column
