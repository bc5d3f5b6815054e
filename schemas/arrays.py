"""Names for types of arrays, arrays in lines of the cache, and declarations of columns that belong together.

A dataclass of columns declares each column once, in the metadata of its field. Slices, checks, encodings and the
arguments of kernels are derived from `columns_of`.

>>> import numpy as np
>>> from dataclasses import dataclass, field
>>> @dataclass(frozen=True)
... class Visits:
...     page: Ids = field(metadata=per_row(np.uint64))
...     link_starts: Ints = field(metadata=starts())
...     links: Ids = field(metadata=ragged("link_starts", np.uint64))
>>> [(column.name, column.starts) for column in columns_of(Visits)]
[('page', ''), ('link_starts', ''), ('links', 'link_starts')]
"""

from __future__ import annotations

from abc import ABC
from collections import namedtuple
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

Int = int | np.int64
"""A whole number within kernels, such as a position: numba makes an int64 of it. Python passes its own integers."""
Word = np.uint64
"""64 bits within kernels. Constants beside it have this type, or numba computes with floats."""

LINE_WORDS = 8
"""The words of a line of the processor's cache."""

_KEY = "column"


class ColumnTuple(ABC):  # noqa: B024
    """The classes of tuples of arrays that kernels get as one pointer: `@ColumnTuple.register` above a `NamedTuple`."""


def words_in_lines(words: int) -> Words:
    """Make so many words of zeros. The first begins a line of the cache, so each eight of them are in one, not two."""
    room = np.zeros(words + LINE_WORDS, np.uint64)
    first = -(room.ctypes.data // room.itemsize) % LINE_WORDS
    return room[first : first + words]


@dataclass(frozen=True)
class ColumnSpec:
    """One column: a value for each row, or ragged: row i has the values from `starts[i]` up to `starts[i + 1]`."""

    name: str
    dtype: type[np.generic]
    default: int = 0
    starts: str = ""
    """The column with the start of the values of each row; empty where each row has one value."""
    is_starts: bool = False
    """Whether it holds the starts of ragged columns: one value more than there are rows, the first is 0."""
    is_rising: bool = False
    """Whether its values never decrease: encodings may store differences."""


def per_row(dtype: type[np.generic], default: int = 0, is_rising: bool = False) -> Mapping[str, ColumnSpec]:
    """Metadata of a column with one value for each row. `default` fills it where no values are given."""
    return {_KEY: ColumnSpec("", dtype, default, is_rising=is_rising)}


def starts() -> Mapping[str, ColumnSpec]:
    """Metadata of a column that holds the starts of ragged columns."""
    return {_KEY: ColumnSpec("", np.int64, is_starts=True, is_rising=True)}


def ragged(starts: str, dtype: type[np.generic], default: int = 0) -> Mapping[str, ColumnSpec]:
    """Metadata of a column whose rows are cut up by the column `starts`."""
    return {_KEY: ColumnSpec("", dtype, default, starts)}


def columns_of(declared: Any) -> tuple[ColumnSpec, ...]:
    """The columns that a dataclass declares, in the order of its fields."""
    return tuple(replace(one.metadata[_KEY], name=one.name) for one in fields(declared) if _KEY in one.metadata)


def for_kernel(column: Array, dtype: type[np.generic] | None = None) -> Array:
    """Return a column as kernels take it: in one piece and writable, which unpacked bytes are not. Copies if it is not.

    `np.require` does the same, but takes as long as a kernel does for a small column.
    """
    if column.flags.carray and (dtype is None or column.dtype == dtype):
        return column
    return np.require(column, dtype, ["C", "A", "W"])


def tuple_of(name: str, columns: Iterable[str], module: str) -> Any:
    """A named tuple of columns, for kernels: they compute with tuples of arrays. `module` is where it is assigned."""
    names = list(columns)
    return ColumnTuple.register(namedtuple(name, names, module=module))


def highest(values: Floats, pages: Ids, count: int) -> Ints:
    """Return the rows of the `count` highest values, the highest first; equal values by page id.

    So the order depends on values and page ids alone.
    """
    count = min(count, len(values))
    if count <= 0:
        return np.zeros(0, np.int64)
    least = np.partition(values, len(values) - count)[len(values) - count]
    rows = np.flatnonzero(values >= least)
    best: Ints = rows[np.lexsort((pages[rows], -values[rows]))][:count]
    return best
