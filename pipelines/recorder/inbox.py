"""What a crawler has reported, in files, until the recorder has written it to the log.

    folder/inbox/00000001    a head with the position up to which its records are taken, then the records
    folder/inbox/00000002    …

One process appends, another one takes, at the same time. A record that was appended survives both processes. A file
whose records are all taken is removed when the next one has begun.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from opicflow.schemas.errors import UserError

INBOX_NAME = "inbox"
_HEAD = Struct("<Q")
"""Of a file: up to where its records are taken."""
_RECORD = Struct("<cIII")
"""Before every record: its kind, and the bytes of its three parts."""
VISIT, ANNOUNCEMENT = b"v", b"a"
_KINDS = (VISIT, ANNOUNCEMENT)
_FILE_BYTES = 4 << 20
"""After so many bytes there is another file: most are removed before the system writes them to the disk."""
_BLOCK_BYTES = 1 << 20


class InboxRefused(UserError):
    """The inbox cannot be written to."""


class Report(NamedTuple):
    """A record: an event as JSON, and of an HTML page its header X-Robots-Tag and its content."""

    kind: bytes
    event: bytes
    robots: bytes = b""
    body: bytes = b""


class InboxWriter:
    """Appends to an inbox. A folder has one writer at a time."""

    def __init__(self, folder: Path, file_bytes: int = _FILE_BYTES) -> None:
        """Begin another file behind those that are there."""
        self._inbox, self._file_bytes = folder / INBOX_NAME, file_bytes
        self._inbox.mkdir(parents=True, exist_ok=True)
        self._number = max(_numbers(self._inbox), default=0)
        self._file = -1
        self._begin()

    def append(self, report: Report) -> None:
        """Append a record. When this returns, it survives a kill -9. Raises `InboxRefused`: then it is not there."""
        kind, event, robots, body = report
        head = _RECORD.pack(kind, len(event), len(robots), len(body))
        try:
            if os.writev(self._file, (head, event, robots, body)) < len(head) + len(event) + len(robots) + len(body):
                raise OSError(28, "No space left on device")
        except OSError as problem:
            os.ftruncate(self._file, self._end)
            raise InboxRefused(f"{self._inbox}: cannot be written to ({problem.strerror}): make room") from None
        self._end += len(head) + len(event) + len(robots) + len(body)
        if self._end >= self._file_bytes:
            os.close(self._file)
            self._begin()

    def close(self, all_are_taken: bool) -> None:
        """Close the file, and remove it if all of its records are taken."""
        os.close(self._file)
        if all_are_taken:
            _path(self._inbox, self._number).unlink(missing_ok=True)

    def _begin(self) -> None:
        self._number += 1
        self._file = os.open(
            _path(self._inbox, self._number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
        )
        self._end = os.write(self._file, _HEAD.pack(_HEAD.size))


class Inbox:
    """Takes the records of an inbox, in their order."""

    def __init__(self, folder: Path) -> None:
        """Go on where the last reader was ended."""
        self._inbox = folder / INBOX_NAME
        self._number, self._file, self._at = 0, -1, 0
        self.damaged_bytes = 0
        """Bytes that are no records: of a file that was damaged, such as by the end of the machine."""

    def take(self) -> Iterator[Report]:
        """Yield all records that are there. One is taken when the next one is asked for, or the end is reached."""
        while self._file >= 0 or self._open_next():
            has_next = self._next_number() is not None  # asked before the end is looked for
            for report, end in self._records():
                yield report
                self._at = end
                os.pwrite(self._file, _HEAD.pack(end), 0)
            if not has_next:
                return
            os.close(self._file)
            self._file = -1
            _path(self._inbox, self._number).unlink(missing_ok=True)

    def _records(self) -> Iterator[tuple[Report, int]]:
        """Yield the whole records of the file, and where each ends."""
        size = _BLOCK_BYTES
        while True:
            start = self._at
            data = os.pread(self._file, size, start)
            at, needed = 0, _RECORD.size
            while len(data) - at >= _RECORD.size:
                kind, *sizes = _RECORD.unpack_from(data, at)
                if kind not in _KINDS:
                    self.damaged_bytes += os.fstat(self._file).st_size - self._at
                    self._at = os.fstat(self._file).st_size
                    return
                needed = _RECORD.size + sum(sizes)
                if len(data) - at < needed:
                    break
                parts, begin = [], at + _RECORD.size
                for part in sizes:
                    parts.append(data[begin : begin + part])
                    begin += part
                at += needed
                yield Report(kind, *parts), start + at
            if len(data) < size:  # the end of the file: a record that is not whole is not appended yet
                return
            size = max(_BLOCK_BYTES, needed)

    def _open_next(self) -> bool:
        number = self._next_number()
        if number is None:
            return False
        self._number = number
        self._file = os.open(_path(self._inbox, number), os.O_RDWR)
        head = os.pread(self._file, _HEAD.size, 0)
        self._at = max(_HEAD.unpack(head)[0], _HEAD.size) if len(head) == _HEAD.size else _HEAD.size
        return True

    def _next_number(self) -> int | None:
        return min((number for number in _numbers(self._inbox) if number > self._number), default=None)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _numbers(inbox: Path) -> Iterator[int]:
    try:
        return (int(name) for name in os.listdir(inbox) if name.isdecimal())
    except FileNotFoundError:
        return iter(())


def _path(inbox: Path, number: int) -> Path:
    return inbox / f"{number:08}"
