"""Starts the processes that read inputs, and continues after the input that stopped one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from support.fuzz.worker import LIMITS, Limits, Work, journal, readers_named, write_failure
from support.paths import TOP

BOUNDS_CACHE = TOP / "build" / "fuzz-kernels"
"""Kernels with checks of bounds: a cache of their own, as numba does not distinguish them from others."""
_SHARED_MEMORY = Path("/dev/shm")
"""Where all files of a run are, if the system has it; they go when the run ends, however its processes did."""
_MOST_STOPS = 20
"""After so many crashes of one reader the rest of its inputs is left out."""


class ReaderReport(NamedTuple):
    """The outcomes of the inputs of one reader: a line for each failure, with the file that has all about it."""

    reader: str
    inputs: int
    accepted: int
    rejected: int
    refused: int
    failures: list[str]


def fuzz(
    seed: int, works: Sequence[Work], folder: Path, bounds: bool = False, kind: str = "all", limits: Limits = LIMITS
) -> list[ReaderReport]:
    """Read inputs, which follow from the seed alone, and return a report for each reader that has some."""
    readers = readers_named(kind)
    names, left, stops = list(readers), list(works), Counter[str]()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None) as temporary:
        path = Path(temporary) / "journal"
        written = journal(path, len(names), "w+")
        while left:
            written[0] = 0
            why, output = _run_once([kind, seed, left, str(path), str(folder), limits], path.parent, bounds)
            if not why:
                break
            row, number = written[0, :2].tolist()
            if not row:
                raise RuntimeError(f"the process of the fuzzing does not start:\n{output[-4000:]}")
            name = names[row - 1]
            write_failure(folder, readers[name], name, seed, number, f"{output[-4000:]}\n{why}")
            written[row, 0] += 1
            stops[name] += 1
            while left[0].reader != name:
                del left[0]
            left[0] = left[0]._replace(first=left[0].end if stops[name] >= _MOST_STOPS else number + 1)
        counts = written[1:].tolist()
    reports = [ReaderReport(name, *row, _failures(folder, name)) for name, row in zip(names, counts, strict=True)]
    return [report for report in reports if report.inputs]


def _failures(folder: Path, name: str) -> list[str]:
    failed = sorted(folder.glob(f"{name}-[0-9]*.txt"))
    return [f"{path}: {path.read_text(encoding='utf-8').strip().splitlines()[-1][:200]}" for path in failed]


def _run_once(given: Any, temporary: Path, bounds: bool) -> tuple[str, str]:
    """Run a process until it ends. Returns why its work is incomplete, and its output."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(TOP / "tests"),
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(temporary),
    }
    if bounds:
        BOUNDS_CACHE.mkdir(parents=True, exist_ok=True)
        environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(BOUNDS_CACHE)}
    command = [sys.executable, "-m", "support.fuzz.worker", json.dumps(given)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode == 1 and "Timeout (" in output:
        return "it hangs", output
    return f"exit code {done.returncode}" if done.returncode else "", output


def works_of(inputs: int = 0, only: Sequence[str] = (), first: int = 0) -> list[Work]:
    """Share out inputs among the readers, by their shares; without a number each gets its own."""
    chosen = {name: reader.share for name, reader in readers_named("all").items() if not only or name in only}
    total = sum(chosen.values())
    inputs = inputs or 1000 * total
    return [Work(name, first, first + max(1, inputs * share // total)) for name, share in chosen.items()]


def table(reports: Sequence[ReaderReport]) -> str:
    """Return the reports as a table."""
    rows = [(*report[:5], len(report.failures)) for report in reports]
    total = ("all", *map(sum, zip(*(row[1:] for row in rows), strict=True)))
    heads = f"{'reader':20}{'inputs':>12}{'accepted':>12}{'rejected':>12}{'refused':>12}{'failed':>12}"
    return "\n".join([heads, *(f"{name:20}" + "".join(f"{one:>12,}" for one in row) for name, *row in [*rows, total])])
