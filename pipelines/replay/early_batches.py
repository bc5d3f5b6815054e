"""Batches that came before those in front of them: the first in memory, the others in a file that has no name."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, MutableMapping
from itertools import chain
from typing import BinaryIO

MOST_IN_MEMORY_BYTES = 64 << 20


class EarlyBatches(MutableMapping[int, bytes]):
    """Batches by their offset in the log. A runner that shuffles its input may give the first batch last."""

    def __init__(self) -> None:
        self._in_memory: dict[int, bytes] = {}
        self._bytes = 0
        self._in_file: dict[int, tuple[int, int]] = {}
        """The place of each batch in the file, and its number of bytes."""
        self._file: BinaryIO | None = None

    def __setitem__(self, offset: int, batch: bytes) -> None:
        """Add a batch. One that is there already is the same."""
        if offset in self:
            return
        if self._bytes + len(batch) <= MOST_IN_MEMORY_BYTES:
            self._in_memory[offset] = batch
            self._bytes += len(batch)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is open until its last batch was taken
            weakref.finalize(self, self._file.close)
        self._in_file[offset] = self._file.seek(0, 2), len(batch)
        self._file.write(batch)

    def __getitem__(self, offset: int) -> bytes:
        if offset in self._in_memory:
            return self._in_memory[offset]
        at, size = self._in_file[offset]
        assert self._file is not None
        self._file.seek(at)
        return self._file.read(size)

    def __delitem__(self, offset: int) -> None:
        if offset in self._in_memory:
            self._bytes -= len(self._in_memory.pop(offset))
            return
        del self._in_file[offset]
        if not self._in_file:
            assert self._file is not None
            self._file.truncate(0)

    def __iter__(self) -> Iterator[int]:
        return chain(self._in_memory, self._in_file)

    def __len__(self) -> int:
        return len(self._in_memory) + len(self._in_file)
