"""The log of a frontier: crawl events, a line of JSON each, in a file that grows at its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from opicflow.pipelines.replay.state import StateRefused

EVENTS_PER_SYNC = 1000
"""After so many events the log is written to the disk: they are the most that the end of the machine can take."""
_BLOCK_BYTES = 4 << 20


class LogBlock(NamedTuple):
    """Whole lines of a log, and the offsets where they begin and end."""

    start: int
    end: int
    lines: bytes


class EventLog:
    """A file of lines. A line that was appended survives the process at once, and the machine after `sync`."""

    def __init__(self, path: Path) -> None:
        """Open a log, or make one. A last line that is not whole was never acknowledged: it is cut off."""
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as problem:
            raise StateRefused(f"{path}: cannot be written to ({problem.strerror}): name another folder") from None
        self._unsynced = 0
        self.end = self._end_of_lines()
        os.ftruncate(self._file, self.end)

    def append(self, line: bytes) -> int:
        """Append a line, without its newline. Returns the offset where it begins."""
        start, data = self.end, line + b"\n"
        try:
            written = os.write(self._file, data)
            if written < len(data):
                raise OSError(0, "the disk is full")
        except OSError as problem:
            os.ftruncate(self._file, start)
            raise StateRefused(
                f"{self.path}: cannot be written to ({problem.strerror}): the event was not taken: make room, "
                "and give it again"
            ) from None
        self.end += len(data)
        self._unsynced += 1
        if self._unsynced >= EVENTS_PER_SYNC:
            self.sync()
        return start

    def sync(self) -> None:
        """Write everything to the disk."""
        if self._unsynced:
            os.fsync(self._file)
            self._unsynced = 0

    def blocks(self, start: int) -> Iterator[LogBlock]:
        """Yield all lines from an offset on, so many bytes at once, or one line."""
        size = _BLOCK_BYTES
        while start < self.end:
            data = os.pread(self._file, min(size, self.end - start), start)
            whole = data.rfind(b"\n") + 1
            if not whole:  # a long line
                size *= 2
                continue
            yield LogBlock(start, start + whole, data[:whole])
            start, size = start + whole, _BLOCK_BYTES

    def close(self) -> None:
        """Write everything to the disk, and close the file."""
        self.sync()
        os.close(self._file)

    def _end_of_lines(self) -> int:
        end = os.fstat(self._file).st_size
        while end > 0:
            first = max(end - _BLOCK_BYTES, 0)
            newline = os.pread(self._file, end - first, first).rfind(b"\n")
            if newline >= 0:
                return first + newline + 1
            end = first
        return 0
