"""A folder that one process uses at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opicflow.schemas.errors import UserError


@contextmanager
def locked_folder(folder: Path, other: str, refused: type[UserError], in_use: type[UserError]) -> Iterator[None]:
    """Keep other processes out of a folder. Raises `in_use`, which names the other one and a remedy, or `refused`."""
    try:
        lock = open(folder / "lock", "w")  # noqa: SIM115 - the handler must not catch errors of its users
    except OSError as problem:
        raise refused(f"{folder}: cannot be written to ({problem.strerror}): name another folder") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise in_use(f"{folder}: in use by {other}, or name another folder") from None
        yield
