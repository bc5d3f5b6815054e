"""A reader that is fuzzed, and the process that reads its inputs and may crash.

The process records its work in a journal in shared memory. After a crash it has the reader and the number of the input,
and the counts of all inputs before it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opicflow.schemas.errors import UserError
from support.hostile_values import one_line

MOST_BYTES = 3 << 30
"""How much memory the inputs may take, more than the process has at its start."""


class Counts(NamedTuple):
    """How many records of an input were accepted, and how many rejected."""

    accepted: int = 0
    rejected: int = 0


class FuzzedReader(NamedTuple):
    """A reader: `make` makes an input, `check` reads it, and raises an AssertionError if something is wrong.

    `check` may raise `UserError`: the input is refused. `share`: how many thousand inputs `make soak` reads.
    """

    make: Callable[[random.Random], bytes]
    check: Callable[[bytes, random.Random], Counts]
    share: int


class Work(NamedTuple):
    """The inputs [first, end) of a reader."""

    reader: str
    first: int
    end: int


class Limits(NamedTuple):
    """How many seconds an input may take, and after how many it is stopped: it may compile kernels."""

    read_seconds: float = 10.0
    stop_seconds: float = 900.0


LIMITS = Limits()


def journal(path: Path, readers: int, mode: str = "r+") -> Any:
    """Return the journal: a row with the present reader and input, then a row for each reader.

    A row has the numbers of inputs, of records accepted and rejected, and of inputs refused.
    """
    return np.memmap(path, np.int64, mode, shape=(1 + readers, 4))


def input_of(reader: FuzzedReader, name: str, seed: int, number: int) -> tuple[bytes, random.Random]:
    """Return an input, and the random source that continues for its check: no other input matters for it."""
    draw = random.Random(f"{seed} {name} {number}")
    return reader.make(draw), draw


def write_failure(folder: Path, reader: FuzzedReader, name: str, seed: int, number: int, what: str) -> None:
    """Write an input that failed, and why, into the folder."""
    (folder / f"{name}-{number}.txt").write_text(what, encoding="utf-8", errors="backslashreplace")
    (folder / f"{name}-{number}.input").write_bytes(input_of(reader, name, seed, number)[0])


def read_inputs(kind: str, seed: int, works: list[Work], journal_path: Path, folder: Path, limits: Limits) -> None:
    """Read inputs, one after the other."""
    faulthandler.enable()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most_bytes = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    readers = readers_named(kind)
    written = journal(journal_path, len(readers))
    for name, first, end in works:
        row = 1 + list(readers).index(name)
        for number in range(first, end):
            written[0, :2] = row, number
            found = _outcome(readers[name], name, seed, number, limits)
            if isinstance(found, str):
                write_failure(folder, readers[name], name, seed, number, found)
                found = Counts()
            written[row] += (1, 0, 0, 1) if found is None else (1, *found, 0)


def _outcome(reader: FuzzedReader, name: str, seed: int, number: int, limits: Limits) -> Counts | str | None:
    """The counts of an input, None if it is refused, or a text with the error.

    One that takes too long is read again: it may have compiled kernels. One that hangs ends the process.
    """
    for _ in range(2):
        faulthandler.dump_traceback_later(limits.stop_seconds, exit=True)
        begin = time.perf_counter()
        try:
            found = _checked(reader, *input_of(reader, name, seed, number))
        except Exception:
            return traceback.format_exc()
        if time.perf_counter() - begin <= limits.read_seconds:
            return found
    return f"it took longer than {limits.read_seconds:g} s"


def _checked(reader: FuzzedReader, data: bytes, draw: random.Random) -> Counts | None:
    try:
        return Counts(*reader.check(data, draw))
    except UserError as problem:
        one_line(problem)
        return None


def readers_named(kind: str) -> dict[str, FuzzedReader]:
    """Return the readers, or those that do wrong, for the tests of the fuzzing itself."""
    if kind == "broken":
        from support.fuzz.broken_readers import BROKEN

        return BROKEN
    from support.fuzz.readers import READERS

    return READERS


if __name__ == "__main__":
    kind, seed, works, journal_path, folder, limits = json.loads(sys.argv[1])
    read_inputs(kind, seed, [Work(*work) for work in works], Path(journal_path), Path(folder), Limits(*limits))
    sys.stdout.flush()
    os._exit(0)
