"""The file of the requests that a spider has made: the crawler appends, the recorder reads which pages are wanted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

REQUESTS_NAME = "requests"
HEAD = Struct("<cII")
"""Before every record: its kind, the bytes of the URL, and of the request."""
WANTED, CHOSEN, READ = b"+", b".", b"-"
"""A request was made; its page is fetched next; its callback is over."""
_BLOCK_BYTES = 1 << 20


class StoredPage(NamedTuple):
    """A record: its page, and where its request begins and ends."""

    kind: bytes
    url: str
    start: int
    end: int


def stored_pages(file: int, start: int) -> Iterator[StoredPage]:
    """Yield the whole records from a position on."""
    size = _BLOCK_BYTES
    while True:
        data, at, needed = os.pread(file, size, start), 0, HEAD.size
        while len(data) - at >= HEAD.size:
            kind, name, request = HEAD.unpack_from(data, at)
            needed = HEAD.size + name + request
            if len(data) - at < needed:
                break
            begin = at + HEAD.size
            url = data[begin : begin + name].decode()
            at += needed
            yield StoredPage(kind, url, start + begin + name, start + at)
        if len(data) < size:
            return
        start, size = start + at, max(_BLOCK_BYTES, needed)


class StoredPages:
    """Reads which pages a spider wants, as a crawler adds them."""

    def __init__(self, folder: Path) -> None:
        """Begin with the first one."""
        self._path, self._file, self._at = folder / REQUESTS_NAME, -1, 0

    def wanted(self) -> Iterator[str]:
        """Yield the pages that were added since the last call."""
        if self._file < 0:
            if not self._path.exists():
                return
            self._file = os.open(self._path, os.O_RDONLY)
        for kind, url, _, end in stored_pages(self._file, self._at):
            self._at = end
            if kind == WANTED:
                yield url

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
