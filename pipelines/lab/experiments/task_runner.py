"""Runs tasks on several cores, and stores the rows of each, so that a stopped run can continue."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TypeAlias

from opicflow.connectors.files.whole_file import write_atomically
from opicflow.pipelines.lab.experiments.tables import Row, Value
from opicflow.schemas.interrupts import WithoutSignals

Measure: TypeAlias = "Callable[..., list[Row]]"

EDITION = 1
EDITIONS = {
    "convergence": 2,
    "discovery": 5,
    "discovery_by_ledger": 5,
    "discovery_by_command": 3,
    "growing": 3,
    "loop_refresh": 3,
    "manipulation_attacks": 2,
    "manipulation_gains": 2,
    "stated": 3,
    "trouble": 3,
    "windows": 2,
}
"""Those of single measures, `EDITION` for all others. Increased when a measure changes: then its stored rows, and no
others, are measured again."""


@dataclass(frozen=True)
class MeasureTask:
    """A call of a measure, which alone determines its rows."""

    measure: Measure
    arguments: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, measure: Measure, **arguments: Value) -> MeasureTask:
        return cls(measure, tuple(arguments.items()))

    def run(self) -> list[Row]:
        return self.measure(**dict(self.arguments))

    @property
    def file_name(self) -> str:
        """The file that stores its rows."""
        name = self.measure.__name__
        key = json.dumps([EDITIONS.get(name, EDITION), name, self.arguments])
        return f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def grid(measure: Measure, **arguments: Value | Iterable[Value]) -> list[MeasureTask]:
    """Return a task for every combination of these arguments; the first one changes slowest."""
    choices = ([one] if isinstance(one, str | float | int) else one for one in arguments.values())
    return [MeasureTask.of(measure, **dict(zip(arguments, chosen, strict=True))) for chosen in product(*choices)]


def run(
    tasks: Sequence[MeasureTask], folder: Path, processes: int, done: Callable[[MeasureTask], None]
) -> dict[MeasureTask, list[Row]]:
    """Run distinct tasks, and return the rows of each; `done` is called after each task.

    Rows are stored in the folder, and read from there if they exist. A file that is not JSON is measured again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[MeasureTask, list[Row]] = {}
    for task in tasks:
        kept = _read_rows(folder / task.file_name)
        if kept is not None:
            found[task] = kept
            done(task)
    missing = [task for task in tasks if task not in found]
    for task, rows in _run_missing(missing, processes):
        write_atomically(folder / task.file_name, json.dumps(rows).encode())
        found[task] = rows
        done(task)
    return {task: found[task] for task in tasks}


def _run_missing(tasks: Sequence[MeasureTask], processes: int) -> Iterator[tuple[MeasureTask, list[Row]]]:
    if processes == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, task.run()
        return
    # Spawned, not forked: a fork would copy the locks of compiled kernels.
    pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
    try:
        resource_tracker.ensure_running()  # or the first process would start it, which unblocks signals
        with WithoutSignals(signal.SIGINT, signal.SIGHUP):  # they would print tracebacks
            under_way = {pool.submit(task.run): task for task in tasks}
        for future in as_completed(under_way):
            yield under_way[future], future.result()
    except BaseException:  # an interrupt must not wait for tasks of minutes
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    pool.shutdown()


def _read_rows(path: Path) -> list[Row] | None:
    try:
        rows: list[Row] = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return rows
