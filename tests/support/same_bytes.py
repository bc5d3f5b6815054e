"""The harness of one law: the same log gives the same bytes, in any batches and after any kill.

A ledger gets its log in pieces, twice, and from its snapshot (`assert_same_bytes`). Work that can be killed is killed
at calls that a test chooses, in this process (`Kill`, `run_to_end`) or as a process of its own (`kill_process`), and
what it has made is compared (`bytes_of`).
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import ParamSpec, TypeVar

import pytest

from opicflow.pipelines.ledger import CrawlEntry, Ledger, LogEntry, LogPosition
from support.paths import TOP

P, T = ParamSpec("P"), TypeVar("T")


# -- what is compared --------------------------------------------------------------------------------------------------


def bytes_of(made: Ledger | Path) -> dict[str, bytes]:
    """Return the bytes of a ledger, chunk by chunk, or of all files in a folder and its folders, by their names."""
    if isinstance(made, Ledger):
        return {chunk.name: chunk.data for chunk in made.snapshot()}
    files = (file for file in sorted(made.rglob("*")) if file.is_file())
    return {file.relative_to(made).as_posix(): file.read_bytes() for file in files}


def restored(ledger: Ledger) -> Ledger:
    """Return the ledger that its snapshot leads to."""
    return Ledger.restore([chunk.data for chunk in ledger.snapshot()], ledger.page_ids)


# -- a log in pieces ---------------------------------------------------------------------------------------------------


def pieces(entry: LogEntry, cuts: Iterable[int]) -> Iterator[LogEntry]:
    """Yield an entry in pieces: a crawl entry is cut before these rows, any other one is whole."""
    if not isinstance(entry, CrawlEntry):
        yield entry
        return
    items, rows = entry.items, len(entry.items)
    for first, last in pairwise(sorted({0, rows, *(cut for cut in cuts if 0 < cut < rows)})):
        start = LogPosition(int(items.offset[first]), int(items.within[first])) if first else entry.start
        end = LogPosition(int(items.offset[last]), int(items.within[last])) if last < rows else entry.end
        yield replace(entry, start=start, end=end, items=items.rows(first, last), visits_total=None)


def assert_same_bytes(
    new: Callable[[], Ledger],
    log: Sequence[LogEntry],
    after: Callable[[Ledger, LogEntry], object] = lambda ledger, entry: None,
    seed: int = 0,
) -> Ledger:
    """Assert that a ledger has the same bytes after every entry of a log, however the log comes.

    It comes whole; row by row; in any pieces, some of them twice; and with a restart from the snapshot now and then.
    `after` is called after every entry, and returns what has to be equal beside the bytes. Returns the ledger.
    """
    chance, whole, states = random.Random(seed), new(), list[object]()
    for entry in log:
        whole.apply(entry)
        states.append((after(whole, entry), bytes_of(whole)))
    for way in ("row by row", "any pieces", "twice", "restarts"):
        ledger = new()
        for number, entry in enumerate(log):
            rows = len(entry.items) if isinstance(entry, CrawlEntry) else 0
            cuts = range(rows) if way == "row by row" else chance.sample(range(rows), min(rows, 5))
            done: list[LogEntry] = []
            for piece in pieces(entry, cuts):
                ledger.apply(piece)
                done.append(piece)
                if way == "twice":
                    ledger.apply(chance.choice(done))
                if way == "restarts" and chance.random() < 0.3:
                    ledger = restored(ledger)
            found = after(ledger, entry), bytes_of(ledger)
            assert found == states[number], f"{way}: after entry {number} of {len(log)}"
    return whole


# -- kills -------------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of a process: the code under test does not handle it."""


class Kill:
    """Ends the work at chosen calls: as a callback of the work, or before or after a function that it calls.

    `at` is the number of the call, counted from 1, or several of them, or a function of the number and the arguments.
    With 0 nothing is killed.
    """

    def __init__(self, at: int | Collection[int] | Callable[..., bool]) -> None:
        self._at = at if callable(at) else frozenset([at] if isinstance(at, int) else at)
        self.calls: list[tuple[object, ...]] = []
        """The arguments of all calls."""
        self.kills = 0

    def __call__(self, *arguments: object) -> None:
        self.calls.append(arguments)
        call = len(self.calls)
        if self._at(call, *arguments) if callable(self._at) else call in self._at:
            self.kills += 1
            raise Killed

    def before(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function with a kill before it."""

        def killed(*arguments: P.args, **options: P.kwargs) -> T:
            self(*arguments)
            return function(*arguments, **options)

        return killed

    def after(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function with a kill after it."""

        def killed(*arguments: P.args, **options: P.kwargs) -> T:
            result = function(*arguments, **options)
            self(*arguments)
            return result

        return killed


@contextmanager
def killed_at(owner: object, name: str, at: int | Callable[..., bool], after: bool = False) -> Iterator[Kill]:
    """Kill the work in this block before, or after, a call of a function that is an attribute of a module or class."""
    kill = Kill(at)
    function = getattr(owner, name)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, kill.after(function) if after else kill.before(function))
        yield kill


def run_to_end(work: Callable[[], T], most_kills: int = 200) -> T:
    """Start work again whenever it is killed, until it ends."""
    for _ in range(most_kills):
        try:
            return work()
        except Killed:
            continue
    raise AssertionError(f"killed {most_kills} times, and not at its end")


def kill_process(
    command: Sequence[str | Path],
    is_time: Callable[[subprocess.Popen[str]], bool],
    env: dict[str, str] | None = None,
) -> bool:
    """Run a command, and kill it with SIGKILL when it is time. Returns False if it ended before without an error."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=TOP, env=env) as process:
        while process.poll() is None and not is_time(process):
            Event().wait(0.002)
        is_running = process.poll() is None
        process.kill()
        _, errors = process.communicate(timeout=120)
    assert is_running or process.returncode == 0, errors
    return is_running
