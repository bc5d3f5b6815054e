"""The newest record of each key as columns in memory: those of the highest rank, so many and so long at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from opicflow.schemas.arrays import Array, Bools, Ints
from opicflow.schemas.columns import Texts

_SLACK = 0.25
"""The part of `most` by which rows may exceed it before some are dropped: dropping sorts all rows."""
_OFFSET_BITS = 48
"""The bits of an offset in the position of a record; the partition is above them."""


class NewestRows:
    """Rows by key, of which only the newest counts.

    It promises: every key whose newest record ranks above `floor` is here, each row is the newest record of its key,
    and there are no more than `most` rows and `most_bytes` of text, but for a quarter. `floor` is the highest rank that
    was ever dropped. Keys in `watched` are never dropped.
    """

    def __init__(self, kinds: Mapping[str, type], rank: str, most: int, most_bytes: int) -> None:
        """`kinds` has the columns and their types, `rank` is the column of which the highest values stay."""
        self.floor = -np.inf
        self.watched: dict[int, None] = {}
        self._rank = rank
        self._most, self._most_bytes = most, most_bytes
        self._keys: Ints = np.zeros(0, np.int64)
        self._columns: dict[str, Array] = {name: np.zeros(0, kind) for name, kind in kinds.items()}
        self._positions, self._begins, self._sizes = (np.zeros(0, np.int64) for _ in range(3))
        self._text = bytearray()

    def __len__(self) -> int:
        return len(self._keys)

    def rows_of(self, others: NewestRows) -> Ints:
        """Return the row here with the same key as each row of `others`, -1 for none."""
        if not len(self):
            return np.full(len(others), -1)
        at = np.minimum(np.searchsorted(self._keys, others._keys), len(self) - 1)
        return np.where(self._keys[at] == others._keys, at, -1)

    @property
    def complete(self) -> int:
        """The number of rows from the highest rank on that have no gap between them."""
        return int(np.count_nonzero(self._columns[self._rank] > self.floor))

    @property
    def text_bytes(self) -> int:
        """The bytes of all texts together."""
        return int(self._sizes.sum())

    def take(
        self,
        keys: Sequence[bytes],
        positions: Ints,
        is_gone: Bools,
        columns: Mapping[str, Array],
        texts: Sequence[bytes],
    ) -> None:
        """Take records in the order of their topic; values of records that remove their key are ignored.

        A record that is not newer than the one that is here, by its position (see `record_position`), changes nothing.
        """
        if not len(keys):
            return
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        hashes, backwards = np.unique(hashes[::-1], return_index=True)
        last = len(keys) - 1 - backwards
        at = np.searchsorted(self._keys, hashes)
        known = np.zeros(len(at), bool)
        known[at < len(self)] = self._keys[at[at < len(self)]] == hashes[at < len(self)]
        gone = is_gone[last]
        newer = known.copy()
        held, given = self._positions[at[known]], positions[last[known]]
        newer[known] = (held >> _OFFSET_BITS != given >> _OFFSET_BITS) | (given > held)
        changed = newer & ~gone
        for name, column in self._columns.items():
            column[at[changed]] = columns[name][last[changed]]
        self._positions[at[changed]] = positions[last[changed]]
        if (newer & gone).any():
            self._select(np.delete(np.arange(len(self)), at[newer & gone]))
        fresh = ~known & ~gone
        if fresh.any():
            self._insert(hashes[fresh], last[fresh], positions, columns, texts)
        if len(self) > (1 + _SLACK) * self._most or self.text_bytes > (1 + _SLACK) * self._most_bytes:
            self._drop()

    def clear_floor(self) -> None:
        """Forget that rows were dropped: all records are read again."""
        self.floor = -np.inf

    def columns(self, rows: Ints | None = None) -> dict[str, Array]:
        """Return copies of all columns, or of some rows."""
        return {name: column.copy() if rows is None else column[rows] for name, column in self._columns.items()}

    def texts(self, rows: Ints) -> Texts:
        """Return the texts of some rows."""
        return Texts(np.frombuffer(bytes(self._text), np.uint8), self._begins[rows], self._sizes[rows])

    def _insert(
        self, hashes: Ints, rows: Ints, positions: Ints, columns: Mapping[str, Array], texts: Sequence[bytes]
    ) -> None:
        at = np.searchsorted(self._keys, hashes)
        sizes = np.array([len(texts[row]) for row in rows.tolist()], np.int64)
        begins = len(self._text) + np.cumsum(sizes) - sizes
        self._text += b"".join(texts[row] for row in rows.tolist())
        self._keys = np.insert(self._keys, at, hashes)
        self._positions = np.insert(self._positions, at, positions[rows])
        self._begins, self._sizes = np.insert(self._begins, at, begins), np.insert(self._sizes, at, sizes)
        for name, column in self._columns.items():
            self._columns[name] = np.insert(column, at, columns[name][rows])

    def _drop(self) -> None:
        """Drop the rows of the lowest ranks."""
        ranks = self._columns[self._rank]
        order = np.argsort(-ranks, kind="stable")
        fits = np.cumsum(self._sizes[order]) <= self._most_bytes
        fits[self._most :] = False
        stays = np.zeros(len(self), bool)
        stays[order[fits]] = True
        dropped = ranks[~stays]
        if len(dropped):
            self.floor = max(self.floor, float(dropped.max()))
        if self.watched:
            stays |= np.isin(self._keys, np.fromiter(self.watched, np.int64, len(self.watched)))
        self._select(np.flatnonzero(stays))

    def _select(self, rows: Ints) -> None:
        self._keys, self._positions = self._keys[rows], self._positions[rows]
        self._begins, self._sizes = self._begins[rows], self._sizes[rows]
        self._columns = {name: column[rows] for name, column in self._columns.items()}
        if len(self._text) > 2 * self.text_bytes + (1 << 16):
            self._text = bytearray(b"".join(self.texts(np.arange(len(self)))))
            self._begins = np.cumsum(self._sizes) - self._sizes


def record_position(partition: int, offset: int) -> int:
    """A number that orders the records of a partition."""
    return partition << _OFFSET_BITS | offset


def kinds_of(columns: Sequence[tuple[str, object, type]]) -> dict[str, type]:
    """The types of columns that are declared with the value of a row."""
    return {name: kind for name, _, kind in columns}
