"""Columns in files that are mapped: the system keeps the used parts in memory, and writes and reads the rest.

A file never has a name, so it disappears when the process ends, in whatever way.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from mmap import mmap
from pathlib import Path

import numpy as np

from opicflow.schemas.arrays import Array

_LEAST_MAPPED_BYTES = 64 << 20


class MappedFiles:
    """A folder for such files, which must have room for them. Calling it makes an empty column."""

    def __init__(self, folder: Path) -> None:
        """Put files into this folder."""
        self._folder = folder

    def __call__(self, like: Array) -> MappedColumn:
        """Make an empty column with rows like those of an array."""
        return MappedColumn(self._folder, like)


class MappedColumn:
    """A column in a file of its own."""

    def __init__(self, folder: Path, like: Array) -> None:
        """Make an empty column with rows like those of an array."""
        self._folder = folder
        self._kind, self._row_shape = like.dtype, like.shape[1:]
        self._row_bytes = int(like.dtype.itemsize * np.prod(self._row_shape, dtype=np.int64))
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it is open for as long as the column
        weakref.finalize(self, self._file.close)  # a mapping that is still in use has a handle of its own
        self._bytes = 0
        self._mapping: mmap | None = None

    def resized(self, rows: int) -> Array:
        """Return the column with so many rows. Raises `OSError` if the disk has no room for them.

        The blocks of a file are allocated before they are used: a mapping could not report that the disk is full. The
        mapping reaches far behind the used blocks, so it is rarely made a second time.
        """
        size = rows * self._row_bytes
        if rows == 0:
            return np.zeros((0, *self._row_shape), self._kind)
        try:
            if self._mapping is None or size > len(self._mapping):
                os.ftruncate(self._file.fileno(), max(2 * size, _LEAST_MAPPED_BYTES))
                self._mapping = mmap(self._file.fileno(), max(2 * size, _LEAST_MAPPED_BYTES))
            if size > self._bytes:
                os.posix_fallocate(self._file.fileno(), self._bytes, size - self._bytes)
                self._bytes = size
        except OSError as problem:
            problem.filename = str(self._folder)
            raise
        flat = np.frombuffer(self._mapping, self._kind, rows * int(np.prod(self._row_shape, dtype=np.int64)))
        return flat.reshape((rows, *self._row_shape))
