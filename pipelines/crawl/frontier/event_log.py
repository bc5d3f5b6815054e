"""The log of a frontier: crawl events, a line of JSON each, in a file that grows at its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path

from opicflow.pipelines.crawl.log import AppendedFile
from opicflow.pipelines.replay.state import StateRefused

EVENTS_PER_SYNC = 1000
"""After so many events the log is written to the disk: they are the most that the end of the machine can take."""
_BLOCK_BYTES = 4 << 20


class EventLog:
    """A file of lines. A line that was appended survives the process at once, and the machine after `sync`."""

    def __init__(self, path: Path) -> None:
        """Open a log, or make one. A last line that is not whole was never acknowledged: it is cut off."""
        self.path, self._unsynced = path, 0
        try:
            self._file = AppendedFile(path)
        except OSError as problem:
            raise StateRefused(f"{path}: cannot be written to ({problem.strerror}): name another folder") from None
        if self._file.end:
            with mmap(self._file.number, 0, access=ACCESS_READ) as content:
                self._file.cut(content.rfind(b"\n") + 1)

    @property
    def end(self) -> int:
        """The offset behind the last line."""
        return self._file.end

    def append(self, line: bytes) -> None:
        """Append a line, without its newline."""
        try:
            self._file.append(line + b"\n")
        except OSError as problem:
            raise StateRefused(
                f"{self.path}: cannot be written to ({problem.strerror}): the event was not taken: make room, "
                "and give it again"
            ) from None
        self._unsynced += 1
        if self._unsynced >= EVENTS_PER_SYNC:
            self.sync()

    def sync(self) -> None:
        """Write everything to the disk."""
        if self._unsynced:
            os.fsync(self._file.number)
            self._unsynced = 0

    def blocks(self, start: int) -> Iterator[bytes]:
        """Yield all lines from an offset on, some megabytes at once."""
        with open(self.path, "rb") as file:
            file.seek(start)
            while lines := file.read(_BLOCK_BYTES):
                yield lines + file.readline()

    def close(self) -> None:
        """Write everything to the disk, and close the file."""
        self.sync()
        self._file.close()
