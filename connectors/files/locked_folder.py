"""Folders that one process uses at a time: those of users, and temporary ones of processes that may be killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from opicflow.schemas.errors import UserError


@contextmanager
def locked_folder(folder: Path, other: str, refused: type[UserError], in_use: type[UserError]) -> Iterator[None]:
    """Keep other processes out of a folder. Raises `in_use`, which names the other one and a remedy, or `refused`."""
    try:
        lock = open(folder / "lock", "w", opener=_open_unless_a_link)  # noqa: SIM115 - the handler must not catch errors of its users
    except OSError as problem:
        raise refused(f"{folder}: cannot be written to ({problem.strerror}): name another folder") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise in_use(f"{folder}: in use by {other}, or name another folder") from None
        yield


def _open_unless_a_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder among the temporary files, or in `parent`, and remove it at the end.

    Folders of the same prefix and user whose process was killed are removed first. A process locks its folder; on a
    disk without locks nothing of others is removed.
    """
    where = parent or Path(tempfile.gettempdir())
    _remove_abandoned(where, prefix)
    with ExitStack() as lock:
        folder = _new_folder(where, prefix, lock)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(where: Path, prefix: str) -> None:
    for path in where.glob(f"{prefix}*"):
        with ExitStack() as lock, suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            lock.callback(os.close, handle)
            if os.fstat(handle).st_uid == os.getuid():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)


def _new_folder(where: Path, prefix: str, lock: ExitStack) -> Path:
    """Make a folder that is locked until the stack is closed, or the process is killed."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=where))
        with ExitStack() as mine, suppress(FileNotFoundError, BlockingIOError):  # another process took it for abandoned
            handle = os.open(folder, os.O_RDONLY)
            mine.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:  # a disk without locks
                pass
            os.stat(folder)
            lock.push(mine.pop_all())
            return folder
