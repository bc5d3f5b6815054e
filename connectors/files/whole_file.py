"""Writes files that are whole, or not there at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, is_secret: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, that is at `path` once all was written to disk, and nowhere when anything went wrong.

    `is_secret`: only its owner may read it.
    """
    with _renamed_at_the_end(path) as partial, synced_file(partial, is_secret) as file:
        yield file


@contextmanager
def synced_file(path: Path, is_secret: bool = False) -> Iterator[BinaryIO]:
    """A new file to write to, all of which is on the disk at the end. An earlier one at this path is removed."""
    with _new_file(path, 0o600 if is_secret else 0o666) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file, whole or not at all. It survives the process; to survive the machine takes `whole_file`."""
    with _renamed_at_the_end(path) as partial, _new_file(partial) as file:
        file.write(data)


def _new_file(path: Path, mode: int = 0o666) -> BinaryIO:
    """Open a new file: a link that others have put at its path is removed, and never followed."""
    path.unlink(missing_ok=True)
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))


@contextmanager
def _renamed_at_the_end(path: Path) -> Iterator[Path]:
    partial = partial_path(path)
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        with suppress(FileNotFoundError):
            partial.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """See to it that the names in a folder survive the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def partial_path(path: Path) -> Path:
    """The path that a file is written to before it gets its name."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def remove_leftovers(folder: Path, names: str) -> None:
    """Remove what killed processes have left of files whose names match. No other process may be writing them."""
    pattern = re.compile(rf"\.(?:{names})\.\d+\.partial")
    for path in folder.glob(".*.partial"):
        if pattern.fullmatch(path.name):
            path.unlink(missing_ok=True)
