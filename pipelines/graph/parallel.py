"""One rank by several workers, each with a part of the pages (thesis, 2.5): in step, or as fast as each of them can.

A part is some slices that follow one another. Its worker computes them from the whole vector, reading only the links
that concern them: those to its pages for importance, those of its pages for interest. The vector lies in files that all
workers map; each writes its own part only.

*In step*, a sweep makes a new vector of the old one, and the coordinator adds up what the workers say of their parts.

*Chaotic iterations* write into the vector that all read: nobody waits. Such iterations converge, for what pages pay is
never negative and shrinks (Chazan and Miranker, 1969). When to stop is the harder question, as the vector changes while
it is read, and a worker that lags behind finds nothing new to do: that all have little to change proves nothing. So the
workers' words only tell when it is worth asking. Then all of them pause, and one sweep in step says how much is left.
Its result is the answer if the bound holds, otherwise where they go on.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from opicflow.pipelines.graph import scans
from opicflow.pipelines.graph.solver import (
    Floats,
    Rank,
    Settings,
    Vectors,
    Wanted,
    digest_of,
    distribution,
    normalise,
    read_states,
    write_states,
)
from opicflow.pipelines.graph.store import GraphRefused, StoredGraph

_NOTHING = np.empty(0)
_PAGES_AT_ONCE = 1 << 16
_MOST_ROUNDS_UNCHECKED = 100
_SECONDS_TO_END = 10.0


class Told(NamedTuple):
    """What a sweep did to a part: how much it changed in L1, its sum, the sum over pages without links."""

    change: float
    total: float
    held: float


class Part:
    """The slices `first` up to `end` of a rank."""

    def __init__(self, graph: StoredGraph, wanted: Wanted, settings: Settings, first: int, end: int) -> None:
        """`wanted.paid` sums to 1, or is None."""
        self.graph, self.wanted, self.settings = graph, wanted, settings
        self.slices = range(first, end)
        self.first, self.end = graph.bounds(first)[0], graph.bounds(end - 1)[1]
        self.ranges = graph.ranges_in(first)[0], graph.ranges_in(end - 1)[1]
        self.sums = graph.out_weights if wanted.kind == "importance" else graph.in_weights
        self.paid = _NOTHING if wanted.paid is None else wanted.paid
        self.buffer = np.empty(graph.slice_pages if wanted.kind == "importance" else self.end - self.first)
        self.shares = np.empty(graph.slice_pages)

    def sweep(self, old: Floats, new: Floats, scale: float) -> Told:
        """Compute the part of `new` from all of `old`, times `scale`. Both may be the same vector."""
        if self.wanted.kind == "importance":
            told = [self._forward(slice_, old, new, scale) for slice_ in self.slices]
            return Told(*(sum(column) for column in zip(*told, strict=True)))
        return self._backward(old, new, scale)

    def measure(self, new: Floats, old: Floats, scale_new: float, scale_old: float) -> Told:
        """How far two vectors are apart on this part, and the sums of `new`."""
        out = np.zeros(3)
        for first in range(self.first, self.end, _PAGES_AT_ONCE):
            end = min(first + _PAGES_AT_ONCE, self.end)
            scans.measure(new[first:end], old[first:end], scale_new, scale_old, self.sums[first:end], out)
        return Told(*out.tolist())

    def _forward(self, slice_: int, old: Floats, new: Floats, scale: float) -> Told:
        first, end = self.graph.bounds(slice_)
        own = self.buffer[: end - first]
        self._begin(first, end, own)
        for block in self.graph.blocks(slice_):
            there = slice(block.first, block.end)
            scans.spread(*block.links, old[there], self.sums[there], self.settings.damping * scale, own)
        return self._written(own, first, end, old, new, scale)

    def _backward(self, old: Floats, new: Floats, scale: float) -> Told:
        self._begin(self.first, self.end, self.buffer)
        for slice_ in range(self.graph.slices):
            first, end = self.graph.bounds(slice_)
            scans.shares_of(old[first:end], self.sums[first:end], self.settings.damping * scale, self.shares)
            for block in self.graph.blocks(slice_, self.ranges):
                own = self.buffer[block.first - self.first : block.end - self.first]
                scans.collect(*block.links, self.shares, own)
        return self._written(self.buffer, self.first, self.end, old, new, scale)

    def _begin(self, first: int, end: int, to: Floats) -> None:
        paid = self.paid[first:end] if len(self.paid) else _NOTHING
        scans.begin(paid, 1.0 / self.graph.pages, 1.0 - self.settings.damping, to)

    def _written(self, own: Floats, first: int, end: int, old: Floats, new: Floats, scale: float) -> Told:
        out = np.zeros(3)
        scans.measure(own, old[first:end], 1.0, scale, self.sums[first:end], out)
        new[first:end] = own
        return Told(*out.tolist())


class Crew(Protocol):
    """Workers that hold all parts, and two vectors, the sides 0 and 1."""

    workers: int

    def sweep(self, side: int, scale: float) -> list[Told]:
        """All parts of the other side from this one, in step."""

    def measure(self, new: int, old: int, scale_new: float, scale_old: float) -> list[Told]:
        """How far the sides are apart."""

    def run(self, side: int) -> None:
        """Have all workers sweep within this side, again and again."""

    def news(self) -> list[tuple[int, float]]:
        """What running workers have done since: a worker, and how much it changed. Waits until there is something."""

    def pause(self) -> list[Told]:
        """Have all workers stop after what they are doing; the sums of their parts as they stand."""

    def close(self) -> None:
        """Let the workers go."""


def cut(slices: int, workers: int) -> list[tuple[int, int]]:
    """The slices of each worker: about as many each, none without."""
    bounds = np.linspace(0, slices, min(workers, slices) + 1).round().astype(int).tolist()
    return list(pairwise(bounds))


@dataclass
class Course:
    """How far a rank is, between sweeps. `sweeps` are counted in whole vectors, whoever computed them."""

    settings: Settings
    side: int = 0
    sweeps: float = 0.0
    checks: int = 0
    residual: float = float("inf")
    done: bool = False
    total: float = 1.0
    held: float = 0.0

    def sweep_in_step(self, crew: Crew) -> None:
        """A sweep of all workers, and what is left after it."""
        damping, total = self.settings.damping, self.total
        if self.settings.dangling == "teleport":
            scale = (1.0 - damping) / (total - damping * (total - self.held))
        else:
            scale = 1.0 / total
        told = _added(crew.sweep(self.side, scale))
        self.sweeps += 1
        self.checks += 1
        if self.settings.dangling == "teleport":
            self.residual = 2.0 * damping * told.change / told.total
            self.done = self.residual <= self.settings.tolerance
        else:
            if told.total == 0.0:
                raise GraphRefused("all rank is lost at dangling pages: nothing is left of it")
            self.residual = _added(crew.measure(1 - self.side, self.side, 1.0 / told.total, scale)).change
            if self.residual <= self.settings.tolerance:  # of the vector that the sweep started from
                self.done = True
                return
        self.side = 1 - self.side
        self.total, self.held = told.total, told.held

    def run_freely(self, crew: Crew) -> None:
        """Let the workers run until all of them have little to change, and pause them."""
        damping, tolerance = self.settings.damping, self.settings.tolerance
        crew.run(self.side)
        latest: dict[int, float] = {}
        rounds = 0
        while rounds < _MOST_ROUNDS_UNCHECKED * crew.workers:
            for worker, change in crew.news():
                latest[worker] = change
                rounds += 1
            if len(latest) == crew.workers and 2.0 * damping * sum(latest.values()) / self.total <= tolerance:
                break
        told = _added(crew.pause())
        self.sweeps += rounds / crew.workers
        self.total, self.held = told.total, told.held


def iterate(
    course: Course, crew: Crew, chaotic: bool, after_check: Callable[[float, float], None] = lambda sweeps, left: None
) -> None:
    """Sweep until the bound of the residual is within the tolerance, or there were too many sweeps."""
    while not course.done and course.sweeps < course.settings.max_iterations:
        if chaotic and course.checks:
            course.run_freely(crew)
        course.sweep_in_step(crew)
        after_check(course.sweeps, course.residual)


def solve_with_workers(
    path: Path,
    wanted: Wanted,
    settings: Settings,
    vectors: Vectors,
    workers: int,
    chaotic: bool = False,
    hold_bytes: int = 0,
    identity: str = "",
    after_check: Callable[[float, float], None] = lambda sweeps, left: None,
) -> Rank:
    """A rank by so many processes. Vectors lie in a folder: a computation that was killed goes on from the last check.

    The order of chaotic iterations is that of the machine, so their last digits may differ from run to run.
    """
    graph = StoredGraph(path)
    if vectors.folder is None:
        raise ValueError("workers share vectors by files: give them a folder")
    if wanted.kind == "hubs":
        raise GraphRefused("hubs and authorities: one process computes them: leave --workers away")
    if settings.gauss_seidel:
        raise GraphRefused("--gauss-seidel: several workers have no order; --chaotic uses new slices as they come")
    if chaotic and settings.dangling == "normalise":
        raise GraphRefused(
            "--chaotic: with normalisation no worker can go on alone: leave it away, or --dangling normalise"
        )
    state = read_states(vectors, identity, [wanted.name]).get(wanted.name)
    sides = [vectors(f"{wanted.name}-{side}", state is not None) for side in "ab"]
    paid = None if wanted.paid is None else vectors(f"{wanted.name}-paid", False)
    if paid is not None:
        paid[:] = distribution(f"{wanted.name}: personalisation", np.asarray(wanted.paid))
    course = Course(settings)
    if state is not None:
        for name in ("side", "sweeps", "checks", "residual", "done", "total", "held"):
            setattr(course, name, state[name])
        if digest_of(sides[course.side]) != state["digest"]:
            raise GraphRefused(f"{vectors.folder}: damaged since the ranks were interrupted: remove it, and run again")
    else:
        start = paid if wanted.start is None else distribution(f"{wanted.name}: start", wanted.start)
        sides[0][:] = 1.0 / graph.pages if start is None else start
        sums = graph.out_weights if wanted.kind == "importance" else graph.in_weights
        course.total, course.held = float(sides[0].sum()), float(sides[0][sums == 0].sum())

    def checked(sweeps: float, left: float) -> None:
        kept = {name: value for name, value in vars(course).items() if name != "settings"}
        write_states(vectors, identity, {wanted.name: {**kept, "digest": digest_of(sides[course.side])}})
        after_check(sweeps, left)

    crew = Processes(path, wanted.name, wanted.kind, settings, vectors.folder, paid is not None, workers, hold_bytes)
    try:
        iterate(course, crew, chaotic, checked)
    finally:
        crew.close()
    values = sides[course.side]
    normalise(values)
    error = course.residual / (1.0 - settings.damping) if settings.dangling == "teleport" else None
    return Rank(wanted.name, values, course.residual, error, round(course.sweeps), course.done)


class Processes:
    """A crew of processes."""

    def __init__(
        self,
        path: Path,
        name: str,
        kind: str,
        settings: Settings,
        folder: Path,
        personal: bool,
        workers: int,
        hold_bytes: int,
    ) -> None:
        """Start the processes; they find the vectors in `folder`."""
        parts = cut(StoredGraph(path).slices, workers)
        self.workers = len(parts)
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        self._ends: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for part in parts:
            own, its = context.Pipe()
            told = (path, name, kind, settings, folder, personal, part, hold_bytes // self.workers)
            process = context.Process(target=_work, args=(its, *told), daemon=True, name=f"rank-{part[0]}")
            process.start()
            its.close()
            self._ends.append(own)
            self._processes.append(process)

    def sweep(self, side: int, scale: float) -> list[Told]:
        """See `Crew`."""
        return self._asked("sweep", side, scale)

    def measure(self, new: int, old: int, scale_new: float, scale_old: float) -> list[Told]:
        """See `Crew`."""
        return self._asked("measure", new, old, scale_new, scale_old)

    def run(self, side: int) -> None:
        """See `Crew`."""
        self._send("run", side)

    def news(self) -> list[tuple[int, float]]:
        """See `Crew`."""
        ready = wait(self._ends)
        return [(worker, self._heard(worker).change) for worker, end in enumerate(self._ends) if end in ready]

    def pause(self) -> list[Told]:
        """See `Crew`."""
        self._send("pause")
        last = []
        for worker in range(self.workers):
            while (heard := self._received(worker))[0] != "paused":
                pass
            last.append(Told(*heard[1]))
        return last

    def close(self) -> None:
        """See `Crew`."""
        for end in self._ends:
            with suppress(OSError):
                end.close()  # which ends a worker
        for process in self._processes:
            process.join(_SECONDS_TO_END)
            if process.is_alive():
                process.kill()
                process.join()

    def _asked(self, *order: Any) -> list[Told]:
        self._send(*order)
        return [self._heard(worker) for worker in range(self.workers)]

    def _send(self, *order: Any) -> None:
        for worker, end in enumerate(self._ends):
            try:
                end.send(order)
            except OSError:
                raise self._lost(worker) from None

    def _heard(self, worker: int) -> Told:
        return Told(*self._received(worker)[1])

    def _received(self, worker: int) -> Any:
        try:
            heard = self._ends[worker].recv()
        except (EOFError, OSError):
            raise self._lost(worker) from None
        if heard[0] == "refused":
            raise GraphRefused(heard[1])
        return heard

    def _lost(self, worker: int) -> GraphRefused:
        self._processes[worker].join(_SECONDS_TO_END)
        code = self._processes[worker].exitcode
        return GraphRefused(f"a worker of the ranks ended (exit code {code}): run the same command again: it goes on")


def _work(
    end: Connection,
    path: Path,
    name: str,
    kind: Any,
    settings: Settings,
    folder: Path,
    personal: bool,
    part: tuple[int, int],
    hold_bytes: int,
) -> None:
    """The process of a worker: until the coordinator is gone."""
    try:
        graph = StoredGraph(path)
        graph.hold(hold_bytes)
        vectors = Vectors(graph.pages, folder)
        sides = [vectors(f"{name}-{side}", True) for side in "ab"]
        paid = vectors(f"{name}-paid", True) if personal else None
        _obey(end, Part(graph, Wanted(name, kind, paid), settings, *part), sides)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass
    except GraphRefused as problem:
        with suppress(OSError):
            end.send(("refused", str(problem)))


def _obey(end: Connection, part: Part, sides: list[Floats]) -> None:
    while True:
        order, *given = end.recv()
        if order == "sweep":
            side, scale = given
            end.send(("told", part.sweep(sides[side], sides[1 - side], scale)))
        elif order == "measure":
            new, old, scale_new, scale_old = given
            end.send(("told", part.measure(sides[new], sides[old], scale_new, scale_old)))
        elif order == "run":
            vector = sides[given[0]]
            while not end.poll():
                end.send(("told", part.sweep(vector, vector, 1.0)))
        else:
            end.send(("paused", part.measure(vector, vector, 1.0, 1.0)))


def _added(told: list[Told]) -> Told:
    return Told(*(sum(column) for column in zip(*told, strict=True)))
