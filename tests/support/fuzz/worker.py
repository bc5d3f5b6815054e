"""The process that reads inputs and may crash. It records its work in a journal in shared memory.

After a crash the journal has the reader and the number of the input, and the counts of all inputs before it.
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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from support.fuzz.fuzzed_reader import Counts, FuzzedReader, checked

READER, NUMBER, STAGE = range(3)
WARMING, MEASURED = 1, 2
"""The stages of an input. The first one of a process is read twice: the first time may compile kernels."""
DONE, ACCEPTED, REJECTED, REFUSED, FAILED, NANOSECONDS, WORST_NANOSECONDS, WORST = range(8)
HEAD = 8
MOST_BYTES = 3 << 30
"""How much memory the inputs may take, more than the process has at its start."""


class Work(NamedTuple):
    """The inputs [first, end) of a reader."""

    reader: str
    first: int
    end: int


def journal(path: Path, readers: int, mode: str = "r+") -> Any:
    """Return the journal: numbers of the present input, then a row for each reader."""
    return np.memmap(path, np.int64, mode, shape=(HEAD + 8 * readers,))


def source_of(seed: int, reader: str, number: int) -> random.Random:
    """Return the random source of one input: no other input matters for it."""
    return random.Random(f"{seed} {reader} {number}")


def input_of(readers: dict[str, FuzzedReader], seed: int, reader: str, number: int) -> tuple[bytes, random.Random]:
    """Return an input, and the random source that continues for its check."""
    draw = source_of(seed, reader, number)
    return readers[reader].make(draw), draw


def run(readers: dict[str, FuzzedReader], seed: int, works: list[Work], journal_path: Path, folder: Path) -> None:
    """Read inputs, one after the other."""
    faulthandler.enable()
    _limit()
    names = list(readers)
    written = journal(journal_path, len(names))
    for work in works:
        row = written[HEAD + 8 * names.index(work.reader) :][:8]
        written[READER] = names.index(work.reader)
        for number in range(work.first, work.end):
            written[NUMBER] = number
            if number == work.first:
                written[STAGE] = WARMING
                _outcome(readers, seed, work.reader, number)
            written[STAGE] = MEASURED
            begin = time.perf_counter_ns()
            found = _outcome(readers, seed, work.reader, number)
            took = time.perf_counter_ns() - begin
            if isinstance(found, str):
                row[FAILED] += 1
                write_failure(folder, readers, seed, work.reader, number, found)
            elif found is None:
                row[REFUSED] += 1
            else:
                row[ACCEPTED] += found.accepted
                row[REJECTED] += found.rejected
            row[NANOSECONDS] += took
            if took > row[WORST_NANOSECONDS]:
                row[WORST_NANOSECONDS], row[WORST] = took, number
            row[DONE] += 1


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most_bytes = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _outcome(readers: dict[str, FuzzedReader], seed: int, reader: str, number: int) -> Counts | str | None:
    """The counts of an input, None if it is refused, or a text with the error."""
    try:
        data, draw = input_of(readers, seed, reader, number)
        return checked(readers[reader], data, draw)
    except Exception:
        return traceback.format_exc()


def write_failure(
    folder: Path, readers: dict[str, FuzzedReader], seed: int, reader: str, number: int, what: str
) -> None:
    """Write an input that failed, and why, into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{reader}-{number}.txt").write_text(what, encoding="utf-8", errors="backslashreplace")
    (folder / f"{reader}-{number}.input").write_bytes(input_of(readers, seed, reader, number)[0])


def main() -> None:
    """Run as the process that `runner` starts: the arguments are JSON."""
    given = json.loads(sys.argv[1])
    readers = readers_named(given["readers"])
    works = [Work(*work) for work in given["works"]]
    run(readers, given["seed"], works, Path(given["journal"]), Path(given["folder"]))
    sys.stdout.flush()
    os._exit(0)


def readers_named(kind: str) -> dict[str, FuzzedReader]:
    """Return the readers, or those that do wrong, for the tests of the fuzzing itself."""
    if kind == "broken":
        from support.fuzz.broken_readers import BROKEN

        return BROKEN
    from support.fuzz.readers import READERS

    return READERS


if __name__ == "__main__":
    main()
