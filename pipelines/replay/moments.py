"""The importance of all pages at some moments of a crawl: a file each, beside the ledger.

    moments/00000000031200-01778306396000   after so many visits, at this time of the crawl in ms

A file has a line of JSON, the first row of each block, and the blocks: 511 rows in order, and their checksum. A row is
one number: the 48 bits of a page id that are of its URL, then its importance in 16 bits, on a log scale. So the
importance of one page is one small read, and a page that is not there is known to be absent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import xxhash

from opicflow.schemas.arrays import Floats, Ids

MOST_PAGES = 1 << 24
"""Larger ledgers keep no moments: making one would take too much memory."""
MOST_MOMENTS, MOST_BYTES = 64, 1 << 30
"""All moments of a state together have no more files, and no more bytes."""
_VERSION = 1
_ROWS = 511
_BLOCK_BYTES = 8 * (_ROWS + 1)
_VALUE_BITS = 16
_VALUES = (1 << _VALUE_BITS) - 1
_WORD = (1 << 64) - 1
_STEPS, _LEAST_EXPONENT = 1024, -64
"""Importance has so many steps from each number to twice that number, and begins above 2 to the power of -64."""
_LONGEST_LINE = 1 << 10


class PageMoment(NamedTuple):
    """The importance of a page at a moment (a time of 0 is not known)."""

    time_ms: int
    visits: int
    importance: float


class _MomentFile(NamedTuple):
    path: Path
    time_ms: int
    visits: int
    firsts: Ids
    begin: int


def pack_moment(pages: Ids, importance: Floats, time_ms: int, visits: int) -> bytes:
    """Return the file of a moment. It does not depend on the order of the pages."""
    rows = (pages << np.uint64(_VALUE_BITS)) | _steps_of(importance)
    rows.sort()
    blocks = np.full((-(-len(rows) // _ROWS), _ROWS + 1), _WORD, "<u8")
    whole = len(rows) // _ROWS
    blocks[:whole, :_ROWS] = rows[: whole * _ROWS].reshape(whole, _ROWS)
    if whole < len(blocks):
        blocks[whole, : len(rows) - whole * _ROWS] = rows[whole * _ROWS :]
    blocks[:, _ROWS] = [xxhash.xxh3_64_intdigest(block[:_ROWS].data) for block in blocks]
    firsts = blocks[:, 0].tobytes()
    line = {"version": _VERSION, "time_ms": time_ms, "visits": visits, "blocks": len(blocks)}
    line["checksum"] = _checksum_of(line, firsts)
    return b"".join((orjson.dumps(line), b"\n", firsts, blocks.data))


class Moments:
    """The moments of a state, for reading. Those that are damaged are left out."""

    def __init__(self, state: Path) -> None:
        """Read where the pages are in each file."""
        self._files = [file for path in _paths(state) if (file := _opened(path)) is not None]

    def __len__(self) -> int:
        return len(self._files)

    @property
    def times(self) -> list[int]:
        """The known times of the moments, in their order."""
        return [file.time_ms for file in self._files if file.time_ms]

    def importance_at(self, time_ms: int, pages: Ids) -> Floats:
        """The importance of pages at the moment of this time; NaN where a page was not known."""
        file = next((file for file in self._files if file.time_ms == time_ms), None)
        rows = np.zeros(0, np.uint64) if file is None else _rows_of(file)
        found = np.full(len(pages), np.nan)
        if len(rows):
            rows_at = np.searchsorted(rows, pages << np.uint64(_VALUE_BITS) | np.uint64(_VALUES), "right") - 1
            at = rows[np.maximum(rows_at, 0)]
            are_known = at >> np.uint64(_VALUE_BITS) == pages & np.uint64(_WORD >> _VALUE_BITS)
            found[are_known] = _importance_of(at[are_known] & np.uint64(_VALUES))
        return found

    def of_page(self, page: int) -> list[PageMoment]:
        """The importance of a page at all moments at which it was known, in their order."""
        found = ((file, _importance_in(file, page)) for file in self._files)
        return [PageMoment(file.time_ms, file.visits, value) for file, value in found if value is not None]


def keep_moments(state: Path, parts: Sequence[Path]) -> None:
    """Move these files to the moments of a state. Of too many, every second one is removed."""
    if not parts:
        return
    folder = state / "moments"
    folder.mkdir(exist_ok=True)
    for part in parts:
        if (file := _opened(part)) is None:  # it was cut when the machine went down
            part.unlink()
            continue
        os.replace(part, folder / f"{file.visits:014}-{file.time_ms:014}")
    kept = _paths(state)
    while len(kept) > 1 and (len(kept) > MOST_MOMENTS or sum(path.stat().st_size for path in kept) > MOST_BYTES):
        for path in kept[-2::-2]:
            path.unlink()
        kept = kept[-1::-2][::-1]


def moments_apart(pages: int, visits: int) -> int:
    """The visits from one moment to the next: moments cost a small part of the time in between."""
    return max(pages, visits // 4, 200)


def _paths(state: Path) -> list[Path]:
    return sorted((state / "moments").glob("*-*"))


def _checksum_of(values: dict[str, int], firsts: bytes) -> int:
    return int(xxhash.xxh3_64_intdigest(orjson.dumps(values) + firsts))


def _steps_of(importance: Floats) -> Ids:
    with np.errstate(divide="ignore"):
        steps = np.rint((np.log2(importance) - _LEAST_EXPONENT) * _STEPS)
    return np.where(importance > 0, np.clip(steps, 1, _VALUES), 0).astype(np.uint64)


def _importance_of(steps: Ids) -> Floats:
    return np.where(steps > 0, 2.0 ** (steps.astype(np.float64) / _STEPS + _LEAST_EXPONENT), 0.0)


def _opened(path: Path) -> _MomentFile | None:
    try:
        with open(path, "rb") as file:
            line = file.readline(_LONGEST_LINE)
            values = orjson.loads(line)
            checksum = values.pop("checksum")
            if not all(type(values[name]) is int and values[name] >= 0 for name in ("time_ms", "visits", "blocks")):
                return None
            blocks, size = values["blocks"], os.fstat(file.fileno()).st_size
            begin = len(line) + 8 * blocks
            if values["version"] != _VERSION or size != begin + _BLOCK_BYTES * blocks:
                return None
            firsts = file.read(8 * blocks)
        if checksum != _checksum_of(values, firsts):
            return None
        return _MomentFile(path, values["time_ms"], values["visits"], np.frombuffer(firsts, "<u8"), begin)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _rows_of(file: _MomentFile) -> Ids:
    """Return the rows of all pages, in their order; those of damaged blocks are left out."""
    try:
        data = file.path.read_bytes()[file.begin :]
    except OSError:  # a replay has removed it
        return np.zeros(0, np.uint64)
    blocks = np.frombuffer(data, "<u8", len(data) // _BLOCK_BYTES * (_ROWS + 1)).reshape(-1, _ROWS + 1)
    are_whole = [xxhash.xxh3_64_intdigest(block[:_ROWS].data) == block[_ROWS] for block in blocks]
    rows = blocks[np.array(are_whole, np.bool_), :_ROWS].ravel()
    return np.asarray(rows[rows != np.uint64(_WORD)], np.uint64)


def _importance_in(file: _MomentFile, page: int) -> float | None:
    last = np.uint64((page << _VALUE_BITS | _VALUES) & _WORD)
    block = int(np.searchsorted(file.firsts, last, "right")) - 1
    if block < 0:
        return None
    try:
        with open(file.path, "rb", buffering=0) as opened:
            data = os.pread(opened.fileno(), _BLOCK_BYTES, file.begin + block * _BLOCK_BYTES)
    except OSError:  # a replay has removed it
        return None
    digest = int.from_bytes(data[8 * _ROWS :], "little")
    if len(data) != _BLOCK_BYTES or xxhash.xxh3_64_intdigest(data[: 8 * _ROWS]) != digest:
        return None
    rows = np.frombuffer(data, "<u8", _ROWS)
    row = int(rows[max(int(np.searchsorted(rows, last, "right")) - 1, 0)])
    if row == _WORD or row >> _VALUE_BITS != int(last) >> _VALUE_BITS:
        return None
    return float(f"{_importance_of(np.array([row & _VALUES], np.uint64))[0]:.5g}")
