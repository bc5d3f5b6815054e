"""The files of a replay's results, all but the summary: written side by side, from the parts in the work folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event
from typing import NamedTuple

from opicflow.pipelines.results.files import (
    IMPORTANCE,
    ORDERS,
    SCHEDULES,
    SITES,
    ResultKind,
    write_rejects,
    write_result,
    write_tombstones,
)
from opicflow.pipelines.results.part_files import Parts
from opicflow.pipelines.transforms.parts import PartKind

_THREADS = min(2, os.cpu_count() or 1)
"""Each has some tens of thousands of rows in memory."""


class FileKinds(NamedTuple):
    """Which files there are, in which format, and into how many each is divided."""

    format: str
    parts: int
    sites: bool
    publications: bool


class _Stopped(Exception):
    """Another file could not be written."""


@contextmanager
def path_in_errors(path: Path) -> Iterator[None]:
    """Add the path to errors of the system: an error for lack of space has none."""
    try:
        yield
    except OSError as problem:
        problem.filename = str(path)
        raise


def write_files(out: Path, work: Path, kinds: FileKinds) -> list[Path]:
    """Write all files of results but the summary. Returns their paths. If one cannot be written, the others end."""
    stop = Event()
    with ThreadPoolExecutor(_THREADS, "write") as threads:
        writing = [threads.submit(_unless_stopped, write) for write in _writers(out, work, kinds, stop)]
        try:
            wait(writing, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
            threads.shutdown(cancel_futures=True)
    return [path for one in writing if not one.cancelled() for path in one.result()]


def _unless_stopped(write: Callable[[], list[Path]]) -> list[Path]:
    try:
        return write()
    except _Stopped:
        return []


def _writers(out: Path, work: Path, kinds: FileKinds, stop: Event) -> Iterator[Callable[[], list[Path]]]:
    """Yield what writes each file, those that take longest first."""
    results: list[tuple[str, ResultKind, tuple[PartKind, ...]]] = [
        ("importance", IMPORTANCE, (PartKind.IMPORTANCE,)),
        ("refresh-schedule", SCHEDULES, (PartKind.SCHEDULE,)),
        ("crawl-orders", ORDERS, (PartKind.ORDERED, PartKind.ORDERS)),
    ]
    if kinds.sites:
        results.append(("site-importance", SITES, (PartKind.SITES,)))
    if kinds.publications:
        results += [
            ("publications", IMPORTANCE, (PartKind.PUBLICATIONS,)),
            ("refresh-publications", SCHEDULES, (PartKind.REPLANNED,)),
        ]

    def parts(*part_kinds: PartKind) -> Iterator[bytes]:
        for part in chain.from_iterable(Parts(work, kind) for kind in part_kinds):
            if stop.is_set():
                raise _Stopped
            yield part

    def write_records(name: str, kind: ResultKind, part_kinds: tuple[PartKind, ...]) -> list[Path]:
        with path_in_errors(out / f"{name}.{kinds.format}"):
            return write_result(out, name, kinds.format, kind, partial(parts, *part_kinds), kinds.parts)

    def write_one(name: str, write: Callable[[Path], None]) -> list[Path]:
        path = out / name
        with path_in_errors(path):
            write(path)
        return [path]

    for name, kind, part_kinds in results:
        yield partial(write_records, name, kind, part_kinds)

    rejects = f"rejects.{kinds.format}"
    yield partial(write_one, rejects, lambda path: write_rejects(path, kinds.format, parts(PartKind.REJECTS)))
    if kinds.publications:
        yield partial(write_one, "tombstones.jsonl", lambda path: write_tombstones(path, parts(PartKind.TOMBSTONES)))
