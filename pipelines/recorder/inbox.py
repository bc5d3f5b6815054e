"""The reports of a crawler, kept in files until the recorder has written them to the log.

    folder/inbox/00000003          a head, then the records
    folder/inbox/00000004          …
    folder/inbox/00000002.taken    a file that will be written over as a next one

The head has two positions: up to where records are taken, and up to where they are appended. One process appends,
another one takes, at the same time. A record that was appended survives both processes. A file has all its room from
its beginning, and is written as memory. When its records are all taken it is written over: to find memory for what a
crawler reports takes longer than to copy it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from opicflow.schemas.errors import UserError

INBOX_NAME = "inbox"
_HEAD = Struct("=QQ")
"""The positions in a file up to which its records are taken, and up to which they are appended."""
_TAKEN, _APPENDED = 0, 1
_RECORD = Struct("<cIIII")
"""Before every record: its kind, the number of its file, and the bytes of its three parts."""
VISIT, ANNOUNCEMENT = b"v", b"a"
_KINDS = (VISIT, ANNOUNCEMENT)
_FILE_BYTES = 4 << 20
"""After so many bytes there is another file: most are written over before the system writes them to the disk."""
_MOST_KEPT_BYTES = 4 * _FILE_BYTES
_MOST_KEPT_FILES = 4
_MOST_WAITING_BYTES = 256 << 20
"""The bytes of records that are not taken: then the crawler should wait. A page has some 20 to 100 KB."""
_BLOCK_BYTES = 1 << 20
_TAKEN_SUFFIX, _NEXT_NAME = ".taken", "next"


class InboxRefused(UserError):
    """The inbox cannot be written to."""


class Report(NamedTuple):
    """A record: an event as JSON, and of an HTML page its header X-Robots-Tag and its content.

    An announcement has many pages, with their quality or null: `{"pages": {"https://…": null}}`.
    """

    kind: bytes
    event: bytes
    robots: bytes = b""
    body: bytes = b""


class InboxWriter:
    """Appends to an inbox. A folder has one writer at a time."""

    _content: mmap
    """The memory of the file that is written."""
    _marks: memoryview
    """The positions in its head."""
    _end: int
    _is_full: bool
    """As it was when the file was begun, or since then."""

    def __init__(
        self, folder: Path, file_bytes: int = _FILE_BYTES, most_waiting_bytes: int = _MOST_WAITING_BYTES
    ) -> None:
        """Begin another file behind those that are there."""
        self._inbox, self._file_bytes, self._most_waiting = folder / INBOX_NAME, file_bytes, most_waiting_bytes
        self._inbox.mkdir(parents=True, exist_ok=True)
        self._number = max(_numbers(self._inbox), default=0)
        self._kept: dict[int, mmap] = {}
        """The memory of files that may be written over: to get it again takes longer than to write it."""
        self._begin(0)

    def append(self, report: Report) -> None:
        """Append a record. When this returns, it survives a kill -9. Raises `InboxRefused`: then it is not there."""
        kind, event, robots, body = report
        size = _RECORD.size + len(event) + len(robots) + len(body)
        if self._end + size > len(self._content):
            self._begin(size)
        content, at = self._content, self._end
        _RECORD.pack_into(content, at, kind, self._number, len(event), len(robots), len(body))
        at += _RECORD.size
        for part in (event, robots, body):
            content[at : at + len(part)] = part
            at += len(part)
        self._end = self._marks[_APPENDED] = at

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be taken that the crawler should report no more, until this is false again."""
        if self._is_full:
            self._is_full = self.waiting_bytes >= self._most_waiting
        return self._is_full

    @property
    def waiting_bytes(self) -> int:
        """The bytes of all files with records that may not be taken yet."""
        waiting = 0
        for number in _numbers(self._inbox):
            with suppress(FileNotFoundError):  # it was taken meanwhile
                waiting += _path(self._inbox, number).stat().st_size
        return waiting

    def close(self, all_are_taken: bool) -> None:
        """Remove the file that is written if nothing was appended to it, and all files if all records are taken."""
        if all_are_taken or self._end == _HEAD.size:
            _path(self._inbox, self._number).unlink(missing_ok=True)
        if all_are_taken:
            for path in _taken(self._inbox):
                path.unlink(missing_ok=True)

    def _begin(self, record_bytes: int) -> None:
        """Begin a file with room for a record: one whose records are taken, if there is such a one."""
        path = self._inbox / _NEXT_NAME
        size = max(self._file_bytes, _HEAD.size + record_bytes)
        try:
            if (taken := max(_taken(self._inbox), default=None)) is not None:
                os.replace(taken, path)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                _make_room(file, size)
                os.pwrite(file, _HEAD.pack(_HEAD.size, _HEAD.size), 0)
                content = self._memory_of(file, size)
            finally:
                os.close(file)
            os.replace(path, _path(self._inbox, self._number + 1))
        except OSError as problem:
            raise InboxRefused(f"{self._inbox}: cannot be written to ({problem.strerror}): make room") from None
        self._number, self._content, self._end = self._number + 1, content, _HEAD.size
        self._is_full = self.waiting_bytes >= self._most_waiting
        self._marks = memoryview(content)[: _HEAD.size].cast("Q")

    def _memory_of(self, file: int, size: int) -> mmap:
        identity = os.fstat(file).st_ino
        memory = self._kept.pop(identity, None)
        if memory is None or len(memory) < size:
            memory = mmap(file, size)
        self._kept[identity] = memory
        if len(self._kept) > _MOST_KEPT_FILES:
            del self._kept[next(iter(self._kept))]
        return memory


class Inbox:
    """Takes the records of an inbox, in their order."""

    def __init__(self, folder: Path) -> None:
        """Go on where the last reader was ended."""
        self._inbox = folder / INBOX_NAME
        self._number, self._file, self._at = 0, -1, 0
        self._marks = memoryview(b"")
        self.damaged_bytes = 0
        """Bytes that are no records: of a file that was damaged, such as by the end of the machine."""

    def take(self) -> Iterator[Report]:
        """Yield all records that are there. A record is taken when the next one is requested, or the end is reached."""
        while self._file >= 0 or self._open_next():
            has_next = self._next_number() is not None  # checked before the end is searched for
            for report, end in self._records():
                yield report
                self._at = end
                self._marks[_TAKEN] = end
            if not has_next:
                return
            self._release()

    def _records(self) -> Iterator[tuple[Report, int]]:
        """Yield the records that are appended now, and where each ends."""
        appended, size = min(self._marks[_APPENDED], os.fstat(self._file).st_size), _BLOCK_BYTES
        while (start := self._at) < appended:
            is_rest = size >= appended - start
            data = os.pread(self._file, min(size, appended - start), start)
            size *= 2  # unless there is a whole record, which then may be larger
            for report, end in _whole_records(data, self._number):
                yield report, start + end
                size = _BLOCK_BYTES
            if is_rest and self._at < appended:
                self.damaged_bytes += appended - self._at
                self._at = appended

    def _open_next(self) -> bool:
        number = self._next_number()
        if number is None:
            return False
        self._number = number
        self._file = os.open(_path(self._inbox, number), os.O_RDWR)
        self._marks = _marks(self._file)
        self._at = max(self._marks[_TAKEN], _HEAD.size)
        return True

    def _release(self) -> None:
        """Leave a file whose records are all taken to the writer; remove it if it is very large, or one of many."""
        path, size = _path(self._inbox, self._number), os.fstat(self._file).st_size
        self.close()
        with suppress(FileNotFoundError):
            is_kept = size <= _MOST_KEPT_BYTES and len(list(_taken(self._inbox))) < _MOST_KEPT_FILES
            path.replace(path.with_suffix(_TAKEN_SUFFIX)) if is_kept else path.unlink()

    def _next_number(self) -> int | None:
        return min((number for number in _numbers(self._inbox) if number > self._number), default=None)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self._marks = -1, memoryview(b"")


def _whole_records(data: bytes, number: int) -> Iterator[tuple[Report, int]]:
    """Yield the records at the beginning of a block that are of this file, and where each ends."""
    at = 0
    while len(data) - at >= _RECORD.size:
        kind, of_file, *sizes = _RECORD.unpack_from(data, at)
        parts_end = at + _RECORD.size + sum(sizes)
        if kind not in _KINDS or of_file != number or parts_end > len(data):
            return
        at += _RECORD.size
        parts = []
        for size in sizes:
            parts.append(data[at : at + size])
            at += size
        yield Report(kind, *parts), at


def _marks(file: int) -> memoryview:
    """Return the two positions of a file's head: each is read and written as one word. A cut-off head has zeros."""
    has_head = os.fstat(file).st_size >= _HEAD.size
    return memoryview(mmap(file, _HEAD.size) if has_head else bytearray(_HEAD.size)).cast("Q")


def _numbers(inbox: Path) -> Iterator[int]:
    try:
        return (int(name) for name in os.listdir(inbox) if name.isdecimal())
    except FileNotFoundError:
        return iter(())


def _taken(inbox: Path) -> Iterator[Path]:
    return inbox.glob(f"*{_TAKEN_SUFFIX}")


def _make_room(file: int, size: int) -> None:
    """Let a file have at least this size, and its room on the disk: without room, writing to its memory would fail."""
    start = os.fstat(file).st_size
    while start < size:
        start += os.pwrite(file, bytes(size - start), start)


def _path(inbox: Path, number: int) -> Path:
    return inbox / f"{number:08}"
