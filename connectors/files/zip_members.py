"""Files within a ZIP file, such as the WARC files of a WACZ file: `site.wacz/archive/data.warc.gz`."""

from __future__ import annotations

import io
import os
import re
import zipfile
from functools import lru_cache

from opicflow.schemas.errors import UserError, in_one_line, printable

_NAME = re.compile(r"(.+?\.(?:wacz|zip))/(.+)", re.IGNORECASE | re.DOTALL)
_MAGIC = b"PK\x03\x04"
_KINDS = (re.compile(r"archive/[^/]+\.warc(\.gz)?", re.IGNORECASE), re.compile(r"pages/[^/]+\.jsonl(\.gz)?"))
"""Which files of a WACZ file are read: those of the first kind that is there. Archives have links, lists have none."""
MOST_MEMBERS = 100_000
"""A ZIP file with more files in it is refused."""
_MOST_OPEN = 4


class ZipRefused(UserError, ValueError):
    """A ZIP file, or a file within it, cannot be read. One line: what, where, and what to do."""


def is_zip(path: str) -> bool:
    """Whether a file on this machine is a ZIP file."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def logs_in(path: str) -> list[str]:
    """Return the names of the crawl logs in a WACZ file: its WARC files; its lists of pages if there are none."""
    try:
        members = sorted(_archive(path).namelist())
    except ZipRefused:
        raise
    except Exception as problem:  # zipfile and its decompressors have no common error for bytes that make no sense
        raise ZipRefused(f"{path}: not a whole ZIP file ({in_one_line(problem)}): fetch it again") from None
    for kind in _KINDS:
        found = [member for member in members if kind.fullmatch(member)]
        for member in found:
            if not member.isprintable():
                raise ZipRefused(f"{path}: {printable(member)}: control characters in a name: unpack it, and rename it")
        if found:
            return [f"{path}/{member}" for member in found]
    raise ZipRefused(
        f"{path}: a ZIP file without archive/*.warc.gz, as WACZ files have them: unpack it, and name its logs"
    )


def member_of(name: str) -> tuple[str, str] | None:
    """Return the ZIP file and the file within it that a name means; None if it means none."""
    found = _NAME.fullmatch(name)
    return (found[1], found[2]) if found and os.path.isfile(found[1]) else None


def _archive(path: str) -> zipfile.ZipFile:
    """Return an open ZIP file. Its directory is read once, not for each of its members."""
    status = os.stat(path)
    archive = _archive_of(path, status.st_ino, status.st_size, status.st_mtime_ns)
    if len(archive.infolist()) > MOST_MEMBERS:
        raise ZipRefused(
            f"{path}: {len(archive.infolist()):,} files in one ZIP file, of at most {MOST_MEMBERS:,}: unpack it"
        )
    return archive


@lru_cache(_MOST_OPEN)
def _archive_of(path: str, inode: int, size: int, changed_ns: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


class ZipMember(io.RawIOBase):
    """The bytes of a file within a ZIP file. Broken data is refused when it is read."""

    def __init__(self, path: str, member: str) -> None:
        self._name = f"{path}/{member}"
        try:
            self._file = _archive(path).open(member)
        except ZipRefused:
            raise
        except KeyError:
            raise ZipRefused(f"{self._name}: no such file: check the name") from None
        except Exception as problem:
            raise self._refused(problem) from None

    def _refused(self, problem: Exception) -> ZipRefused:
        return ZipRefused(f"{self._name}: cannot be read from its ZIP file ({in_one_line(problem)}): fetch it again")

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can seek."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Read at most so many bytes."""
        try:
            data = self._file.read(-1 if size is None else size)
        except Exception as problem:
            raise self._refused(problem) from None
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset."""
        try:
            return int(self._file.seek(offset, whence))
        except Exception as problem:
            raise self._refused(problem) from None

    def tell(self) -> int:
        """Return the offset."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close the ZIP file."""
        if hasattr(self, "_file"):
            self._file.close()
        super().close()
