"""The log of a crawl: what a kill -9 must not take, as records with a checksum in files that grow at their end.

    folder/requests          what the spider wants: kept as long as the folder
        WANTED  page, request        a request was made
        CHOSEN  page                 its page is fetched next
        READ    page                 its callback is over, or no callback gets it
    folder/inbox/00000003    what the crawl reports: a file is removed when all its records are in visits.jsonl
        VISIT         event, content     a page was fetched, or could not be
        ANNOUNCEMENT  pages              pages that no link leads to, and how good pages are

A page's records come in this order: WANTED, CHOSEN, VISIT, WANTED for the pages that its callback requests, READ. From
them everything is rebuilt: the scheduler from `requests`, the recorder from both, the frontier from visits.jsonl,
which the recorder writes. One process appends to a file, another one reads it at the same time. A record that is not
whole is not there yet; when a crawl begins, it is cut off.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64, xxh3_64_digest

from opicflow.schemas.errors import UserError

WANTED, CHOSEN, READ = b"+", b".", b"-"
VISIT, ANNOUNCEMENT = b"v", b"a"
REQUESTS_NAME, INBOX_NAME = "requests", "inbox"
_SIZES, _CHECKSUM_BYTES = Struct("<cII"), 8
"""Before every record: its checksum, its kind, and the bytes of its two parts."""
_HEAD_BYTES = _CHECKSUM_BYTES + _SIZES.size
_MARK = Struct("<Q")
"""At the beginning of a file of the inbox: the position up to which its records are taken."""
_BLOCK_BYTES = 1 << 20
_FILE_BYTES = 4 << 20
"""After so many bytes there is another file: most are removed before the system writes them to the disk."""
_MOST_WAITING_BYTES = 256 << 20
"""The bytes of files with records that are not taken: then the crawler should wait. A page has some 20 to 100 KB."""


class InboxRefused(UserError):
    """The inbox cannot be written to."""


class CrawlRecord(NamedTuple):
    """A record: its kind, a page or JSON, and what belongs to that."""

    kind: bytes
    head: bytes
    body: bytes = b""

    def packed(self) -> bytes:
        """Return the bytes of a log."""
        sizes = _SIZES.pack(self.kind, len(self.head), len(self.body))
        checksum = xxh3_64(sizes)
        checksum.update(self.head)
        checksum.update(self.body)
        return b"".join((checksum.digest(), sizes, self.head, self.body))


class AppendedFile:
    """A file that grows at its end. Appended data survives the process at once, and the machine after a sync."""

    def __init__(self, path: Path) -> None:
        """Open a file, or make one. Raises OSError."""
        self.path = path
        self.number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        """Of the file that is open, for functions of `os`."""
        self.end = os.fstat(self.number).st_size

    def append(self, data: bytes) -> None:
        """Append all bytes, or none. Raises OSError, such as for a full disk."""
        try:
            if os.write(self.number, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self.cut(self.end)
            raise
        self.end += len(data)

    def cut(self, end: int) -> None:
        """Remove the bytes behind a position."""
        os.ftruncate(self.number, end)
        self.end = end

    def close(self) -> None:
        """Close the file."""
        os.close(self.number)


def records_of(file: int, start: int) -> Iterator[tuple[CrawlRecord, int]]:
    """Yield the records from a position on, up to one that is not whole, and where each ends."""
    end = os.fstat(file).st_size
    with open(file, "rb", _BLOCK_BYTES, closefd=False) as reader:
        reader.seek(start)
        while len(head := reader.read(_HEAD_BYTES)) == _HEAD_BYTES:
            sizes = head[_CHECKSUM_BYTES:]
            kind, first, second = _SIZES.unpack(sizes)
            start += _HEAD_BYTES + first + second
            if start > end:
                return
            content = reader.read(first + second)
            if xxh3_64_digest(sizes + content) != head[:_CHECKSUM_BYTES]:
                return
            yield CrawlRecord(kind, content[:first], content[first:]), start


class InboxWriter:
    """Appends to an inbox. A folder has one writer at a time."""

    _file: AppendedFile
    _is_full: bool

    def __init__(
        self, folder: Path, file_bytes: int = _FILE_BYTES, most_waiting_bytes: int = _MOST_WAITING_BYTES
    ) -> None:
        """Begin another file behind those that are there. Raises OSError."""
        self._inbox, self._file_bytes, self._most_waiting = folder / INBOX_NAME, file_bytes, most_waiting_bytes
        self._inbox.mkdir(parents=True, exist_ok=True)
        self._begin()

    def append(self, record: CrawlRecord) -> None:
        """Append a record. When this returns, it survives a kill -9. Raises `InboxRefused`: then it is not there."""
        try:
            if self._file.end >= self._file_bytes:
                full = self._file
                self._begin()
                full.close()
            self._file.append(record.packed())
        except OSError as problem:
            raise InboxRefused(f"{self._inbox}: cannot be written to ({problem.strerror}): make room") from None

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
        self._file.close()
        for number in _numbers(self._inbox):
            path = _path(self._inbox, number)
            if all_are_taken or (path == self._file.path and self._file.end == _MARK.size):
                path.unlink(missing_ok=True)

    def _begin(self) -> None:
        file = AppendedFile(_path(self._inbox, max(_numbers(self._inbox), default=0) + 1))
        file.append(_MARK.pack(_MARK.size))
        self._file, self._is_full = file, True  # until `is_full` adds up what waits


class Inbox:
    """Takes the records of an inbox, in their order, and removes its files."""

    def __init__(self, folder: Path) -> None:
        """Go on where the last reader was ended."""
        self._inbox = folder / INBOX_NAME
        self._number, self._file, self._at = 0, -1, 0
        self.damaged_bytes = 0
        """Bytes that are no records: of a file that was damaged, such as by the end of the machine."""

    def take(self) -> Iterator[CrawlRecord]:
        """Yield all records that are there. A record is taken when the next one is requested, or the end is reached."""
        while self._file >= 0 or self._open_next():
            has_next = self._next_number() is not None  # checked before the end is searched for
            for record, end in records_of(self._file, self._at):
                yield record
                self._at = end
                os.pwrite(self._file, _MARK.pack(end), 0)
            if not has_next:
                return
            self.damaged_bytes += max(os.fstat(self._file).st_size - self._at, 0)
            self.close()
            _path(self._inbox, self._number).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open_next(self) -> bool:
        number = self._next_number()
        if number is None:
            return False
        self._number = number
        self._file = os.open(_path(self._inbox, number), os.O_RDWR)
        mark = os.pread(self._file, _MARK.size, 0).ljust(_MARK.size, b"\0")  # of a file that was cut off
        self._at = max(*_MARK.unpack(mark), _MARK.size)
        return True

    def _next_number(self) -> int | None:
        return min((number for number in _numbers(self._inbox) if number > self._number), default=None)


def _numbers(inbox: Path) -> list[int]:
    return [int(path.name) for path in inbox.glob("[0-9]*")]


def _path(inbox: Path, number: int) -> Path:
    return inbox / f"{number:08}"
