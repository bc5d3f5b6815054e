"""Starts the processes that read inputs, ends those that hang, and continues after the input that stopped one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.fuzz import worker
from support.fuzz.worker import Work, journal, readers_named, write_failure
from support.paths import TOP

BOUNDS_CACHE = TOP / "build" / "fuzz-kernels"
"""Kernels with checks of bounds: a cache of their own, as numba does not distinguish them from others."""
BUDGET_SECONDS = 10.0
"""How long one input may take."""
COMPILE_SECONDS = 900.0
"""How long the first input of a process may take: it may compile kernels."""
_SHARED_MEMORY = Path("/dev/shm")
"""Where all files of a run are, if the system has it; they go when the run ends, however its processes did."""
_START_SECONDS = 120.0
_MOST_STOPS = 20
"""After so many crashes of one reader the rest of its inputs is left out."""


@dataclass
class ReaderReport:
    """The outcomes of the inputs of one reader."""

    reader: str
    inputs: int
    accepted: int
    rejected: int
    refused: int
    seconds: float
    worst_milliseconds: float
    worst: int
    failures: list[str] = field(default_factory=list)


@dataclass
class FuzzRun:
    """A run: the inputs of every reader follow from the seed alone."""

    seed: int
    works: list[Work]
    folder: Path
    bounds: bool = False
    budget_seconds: float = BUDGET_SECONDS
    compile_seconds: float = COMPILE_SECONDS
    kind: str = "all"
    reports: list[ReaderReport] = field(default_factory=list)

    def run(self) -> list[ReaderReport]:
        """Read all inputs, and return a report for each reader."""
        readers = readers_named(self.kind)
        names = list(readers)
        shutil.rmtree(self.folder, ignore_errors=True)
        failures: dict[str, list[str]] = {name: [] for name in names}
        with tempfile.TemporaryDirectory(dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None) as temporary:
            path = Path(temporary) / "journal"
            written = journal(path, len(names), "w+")
            left, compiled = list(self.works), set[tuple[int, int]]()
            while left:
                why, output = self._run_once(left, path, written)
                if not why:
                    break
                reader, number = int(written[worker.READER]), int(written[worker.NUMBER])
                name = names[reader]
                at = next(index for index, work in enumerate(left) if work.reader == name)
                left = left[at:]
                if why == "slow" and (reader, number) not in compiled:
                    compiled.add((reader, number))  # it may have compiled a kernel: it is read again
                    left[0] = left[0]._replace(first=number)
                    continue
                failures[name].append(f"input {number}: {why}")
                written[worker.HEAD + 8 * reader + worker.FAILED] += 1
                written[worker.HEAD + 8 * reader + worker.DONE] += 1
                write_failure(self.folder, readers, self.seed, name, number, f"{output[-4000:]}\n{why}")
                is_hopeless = len(failures[name]) >= _MOST_STOPS
                first = left[0].end if is_hopeless else number + 1
                left = [work for work in [left[0]._replace(first=first), *left[1:]] if work.first < work.end]
            rows = written[worker.HEAD :].reshape(-1, 8).tolist()
            self.reports = [self._report(name, row) for name, row in zip(names, rows, strict=True)]
        return self.reports

    def _report(self, name: str, row: list[int]) -> ReaderReport:
        failed = sorted(self.folder.glob(f"{name}-[0-9]*.txt"))
        lines = [f"{path}: {path.read_text(encoding='utf-8').strip().splitlines()[-1][:200]}" for path in failed]
        return ReaderReport(
            name,
            row[worker.DONE],
            row[worker.ACCEPTED],
            row[worker.REJECTED],
            row[worker.REFUSED],
            row[worker.NANOSECONDS] / 1e9,
            row[worker.WORST_NANOSECONDS] / 1e6,
            row[worker.WORST],
            lines,
        )

    def _run_once(self, works: list[Work], path: Path, written: Any) -> tuple[str, str]:
        """Run a process until it ends. Returns why its work is incomplete, and its output."""
        given = {
            "readers": self.kind,
            "seed": self.seed,
            "works": works,
            "journal": str(path),
            "folder": str(self.folder),
        }
        environment = {
            **os.environ,
            "PYTHONPATH": str(TOP / "tests"),
            "PYTHONHASHSEED": "0",
            "TMPDIR": str(path.parent),
        }
        if self.bounds:
            BOUNDS_CACHE.mkdir(parents=True, exist_ok=True)
            environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(BOUNDS_CACHE)}
        written[: worker.HEAD] = -1
        self._seen = ()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "support.fuzz.worker", json.dumps(given)],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                is_slow = any(self._is_slow(written) for _ in _ticks(process))
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGABRT)  # it writes where it is
                    try:
                        process.wait(5)
                    except subprocess.TimeoutExpired:
                        process.kill()
                        process.wait()
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        if written[worker.READER] < 0:
            raise RuntimeError(f"the process of the fuzzing does not start:\n{text[-4000:]}")
        if is_slow:
            return "slow", f"it took longer than {self.budget_seconds:g} s\n{text}"
        return ("" if process.returncode == 0 else f"exit code {process.returncode}"), text

    _seen: tuple[int, ...] = ()
    _since = 0.0

    def _is_slow(self, written: Any) -> bool:
        """Whether the present input has taken too long."""
        seen = tuple(int(value) for value in written[: worker.STAGE + 1])
        now = time.perf_counter()
        if seen != self._seen:
            self._seen, self._since = seen, now
        most = {worker.MEASURED: self.budget_seconds, worker.WARMING: self.compile_seconds}
        return now - self._since > most.get(seen[worker.STAGE], _START_SECONDS)


def _ticks(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Yield some times a second until a process ends."""
    while True:
        try:
            process.wait(0.1)
            return
        except subprocess.TimeoutExpired:
            yield


def works_of(inputs: int = 0, only: Sequence[str] = (), first: int = 0) -> list[Work]:
    """Share out inputs among the readers, by their shares; without a number each gets its own."""
    chosen = {name: reader.share for name, reader in readers_named("all").items() if not only or name in only}
    total = sum(chosen.values())
    inputs = inputs or 1000 * total
    return [Work(name, first, first + max(1, inputs * share // total)) for name, share in chosen.items()]


def table(reports: Sequence[ReaderReport]) -> str:
    """Return the reports as a table."""
    heads = ["reader", "inputs", "accepted", "rejected", "refused", "failed", "seconds", "worst, ms", "its input"]
    rows = [
        [
            report.reader,
            f"{report.inputs:,}",
            f"{report.accepted:,}",
            f"{report.rejected:,}",
            f"{report.refused:,}",
            str(len(report.failures)),
            f"{report.seconds:.1f}",
            f"{report.worst_milliseconds:.1f}",
            str(report.worst),
        ]
        for report in reports
        if report.inputs
    ]
    sums = [sum(getattr(report, name) for report in reports) for name in ("inputs", "accepted", "rejected", "refused")]
    failed, seconds = sum(len(report.failures) for report in reports), sum(report.seconds for report in reports)
    total = ["all", *(f"{one:,}" for one in sums), str(failed), f"{seconds:.1f}", "", ""]
    lines = [heads, *rows, total]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    )
