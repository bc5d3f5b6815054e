"""Runs tasks on several cores, and stores the rows of each, so that a stopped run can continue."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

from opicflow.connectors.files.whole_file import write_atomically
from opicflow.pipelines.lab.experiments.communities.accuracy import communities, influences
from opicflow.pipelines.lab.experiments.discovery.crawls import discovery
from opicflow.pipelines.lab.experiments.discovery.followed_orders import discovery_by_command, discovery_by_ledger
from opicflow.pipelines.lab.experiments.importance.convergence import convergence, convergence_certified, off_line
from opicflow.pipelines.lab.experiments.importance.extensions import growing, moved, stated, trends, trouble
from opicflow.pipelines.lab.experiments.importance.windows import windows, windows_certified
from opicflow.pipelines.lab.experiments.manipulation.gains import manipulation_gains
from opicflow.pipelines.lab.experiments.manipulation.ordered_pages import manipulation_orders
from opicflow.pipelines.lab.experiments.refresh.closed_loop import loop_refresh
from opicflow.pipelines.lab.experiments.sites.site_measures import site_growth, site_ledger, site_ranks
from opicflow.pipelines.lab.experiments.tables import Measure, Row, Value
from opicflow.schemas.interrupts import WithoutSignals

MEASURES: dict[str, Measure] = {
    one.__name__: one
    for one in (
        *(convergence, convergence_certified, off_line, windows, windows_certified),
        *(
            growing,
            moved,
            trouble,
            stated,
            trends,
            discovery,
            discovery_by_ledger,
            discovery_by_command,
            manipulation_gains,
            manipulation_orders,
            communities,
            influences,
            loop_refresh,
            site_growth,
            site_ledger,
            site_ranks,
        ),
    )
}
EDITION = 1
EDITIONS = {
    "discovery": 5,
    "discovery_by_ledger": 5,
    "discovery_by_command": 3,
    "growing": 2,
    "loop_refresh": 3,
    "manipulation_gains": 2,
    "stated": 2,
    "trouble": 2,
}
"""Those of single measures, `EDITION` for all others. Increased when a measure changes: then its stored rows, and no
others, are measured again."""


@dataclass(frozen=True)
class MeasureTask:
    """A call of a measure, which alone determines its rows."""

    measure: str
    arguments: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, measure: str, **arguments: Value) -> MeasureTask:
        return cls(measure, tuple(arguments.items()))

    def run(self) -> list[Row]:
        return MEASURES[self.measure](**dict(self.arguments))

    @property
    def file_name(self) -> str:
        """The file that stores its rows."""
        key = json.dumps([EDITIONS.get(self.measure, EDITION), self.measure, self.arguments])
        return f"{self.measure}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


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
