"""Batches that came before those in front of them: in memory while they are few, then in a file that has no name."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from tempfile import SpooledTemporaryFile

MOST_IN_MEMORY_BYTES = 64 << 20


class EarlyBatches(MutableMapping[int, bytes]):
    """Batches by their offset in the log. A runner that shuffles its input may give the first batch last."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(MOST_IN_MEMORY_BYTES)  # noqa: SIM115 - it is open as long as the batches
        weakref.finalize(self, self._file.close)
        self._spans: dict[int, tuple[int, int]] = {}
        """Where each batch begins in the file, and its number of bytes."""

    def __setitem__(self, offset: int, batch: bytes) -> None:
        """Add a batch. One that is there already is the same."""
        if offset not in self._spans:
            self._spans[offset] = self._file.seek(0, 2), len(batch)
            self._file.write(batch)

    def __getitem__(self, offset: int) -> bytes:
        begin, size = self._spans[offset]
        self._file.seek(begin)
        return self._file.read(size)

    def __delitem__(self, offset: int) -> None:
        del self._spans[offset]
        if not self._spans:
            self._file.truncate(0)

    def __iter__(self) -> Iterator[int]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)
