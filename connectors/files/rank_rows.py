"""Rows of files of ranks, as columns: they are checked, and get the ids of their pages or sites."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from operator import itemgetter
from types import NoneType
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from opicflow.connectors.files.opening import InputRefused
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ids, Ints
from opicflow.schemas.errors import printable
from opicflow.schemas.pages import PageIds

_MOST_SHOWN = 60
_MOST_NAMES_SHOWN = 400
_ID_DIGITS = 16
SITE = "site"
FIELD_OF_RECORDS = "clock"
"""Records of importance have the moment of the estimate: a file with this field is a stream, in which newer records
replace older ones. In a file without it every page is expected once."""

_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_DIGITS[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


class RankBatch(NamedTuple):
    """Consecutive rows. The rank of a page that is gone is NaN."""

    pages: Ids
    values: Floats
    urls: pa.Array | None


class RankLayout(NamedTuple):
    """The rows of a file, and its columns; whether it is a stream, or a list of sites, perhaps with positions only."""

    is_stream: bool
    batches: Iterator[RankBatch]
    columns: Collection[str]
    of_sites: bool = False
    by_position: bool = False


class BadRow(Exception):
    """A row of a batch, counted from 0, that is none: why, and what to do."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def check_names(name: str, names: list[str], rank: str) -> None:
    """Refuse a file without a column of pages or sites, or without that of the rank."""
    keys = ("url", "page", SITE)
    if not set(keys) & set(names):
        found = f"none of {_listed(names)} is" if names else "nothing in it is"
        raise InputRefused(f"{name}: {found} a column url, page or site: name a file of ranks")
    if rank not in names or rank in keys:
        others = [other for other in names if other not in keys]
        raise InputRefused(f"{name}: no column of ranks {shown(rank)}: {instead(others)}")


def key_of(names: Collection[str]) -> str:
    """Return the column with the names of rows: their URLs, or their sites."""
    return SITE if SITE in names and not {"url", "page"} & set(names) else "url"


def batch_of_rows(rows: list[dict[str, object]], rank: str, key: str = "url") -> RankBatch:
    """Columns of rows with names."""
    given = _column(rows, rank)
    if not set(map(type, given)) <= {float, int, NoneType}:  # True and "1" are no ranks either
        given = [value if type(value) in (float, int) else None for value in given]
    values = np.array(given, np.float64)
    gone = np.isnan(values)
    for row in np.flatnonzero(gone).tolist():
        gone[row] = rank not in rows[row] and rows[row].get("gone") is True

    def say(row: int) -> str:
        value = rows[row].get(rank)
        if rank in rows[row]:
            return str(value) if isinstance(value, float) else orjson.dumps(value, default=str).decode()
        numbers = [name for name, value in rows[row].items() if type(value) in (int, float)]
        raise BadRow(row, f"no {shown(rank)}: {instead(numbers)}")

    pages = None if key == SITE else _texts(rows, "page")
    return checked_batch(values, say, gone, _texts(rows, key), pages, rank, key)


def _column(rows: list[dict[str, object]], name: str) -> list[object]:
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:  # of a row that is gone, or wrong
        return [row.get(name) for row in rows]


def _texts(rows: list[dict[str, object]], name: str) -> pa.Array:
    texts = _column(rows, name)
    try:
        return pa.array(texts, pa.string())
    except (pa.ArrowException, TypeError, UnicodeError):
        row = next((row for row, text in enumerate(texts) if not isinstance(text, str | None)), 0)
        raise BadRow(row, f"{name} is no text: write it as one") from None


def checked_batch(
    values: Floats,
    rank_text: Callable[[int], str],
    gone: Bools,
    urls: pa.Array | None,
    pages: pa.Array | None,
    rank: str,
    key: str,
) -> RankBatch:
    """Check rows and return them as a batch. `rank_text` returns the rank of a row as it was written."""
    ids = ids_of(urls, pages, len(values), "neither url nor page" if key == "url" else f"no {key}")
    wrong = ~(np.isfinite(values) & (values >= 0.0)) & ~gone
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadRow(row, no_rank(rank, rank_text(row)))
    return RankBatch(ids, np.where(gone, np.nan, values) if gone.any() else values, urls)


def no_rank(rank: str, written: str) -> str:
    """What is said of a value that is no rank."""
    return f"{rank} {shown(written) or 'is empty'}: a rank is a number from 0: mend it, or name another column"


def ids_of(urls: pa.Array | None, pages: pa.Array | None, rows: int, missing: str = "") -> Ids:
    """Return the page id of every row: that of its URL by the default rules, or its own where it has none.

    Streams have page ids by keys of their own: so two files are compared by URLs.
    """
    hashed = starts_and_text(urls, rows)
    named = starts_and_text(pages, rows)
    lengths = np.diff(named.starts)
    has_url = np.diff(hashed.starts) > 0
    ids = PageIds().of_text(hashed.text, hashed.starts)
    by_id = np.flatnonzero(lengths == _ID_DIGITS)
    wrong = np.flatnonzero((lengths != _ID_DIGITS) & (lengths != 0))
    if len(by_id):
        digits = _DIGITS[named.text[named.starts[by_id][:, None] + np.arange(_ID_DIGITS)]]
        wrong = np.concatenate((by_id[(digits > 15).any(axis=1)], wrong))
        own = (digits[:, 0::2] << 4 | digits[:, 1::2]).view(">u8")[:, 0]
        ids[by_id] = np.where(has_url[by_id], ids[by_id], own)
    if pages is not None and len(wrong):
        row = int(wrong.min())
        raise BadRow(row, f"page {shown(pages[row].as_py())} is no page id: give 16 hexadecimal digits")
    empty = ~has_url & (lengths == 0)
    if empty.any():
        raise BadRow(int(np.argmax(empty)), f"{missing}: give one")
    return ids


class _Texts(NamedTuple):
    """Texts as the kernels take them: text i is `text[starts[i]:starts[i + 1]]`."""

    starts: Ints
    text: Bytes


def starts_and_text(array: pa.Array | None, rows: int) -> _Texts:
    """The texts of a column; empty ones if there is no column."""
    if array is None:
        return _Texts(np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8))
    if array.null_count:
        array = array.fill_null("")
    _, offsets, text = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + rows + 1].astype(np.int64)
    return _Texts(starts, np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8))


def instead(ranks: Sequence[str]) -> str:
    """The advice to name another column, of those that there are."""
    return f"name one of {_listed(ranks)}" if ranks else "name a file of ranks"


def _listed(names: Sequence[str]) -> str:
    return shown(", ".join(names), _MOST_NAMES_SHOWN)


def shown(text: str, most: int = _MOST_SHOWN) -> str:
    """Return a text of a file as one short line without control characters."""
    text = printable(" ".join(text[: 2 * most].split()))
    return text if len(text) <= most else text[:most] + "…"
