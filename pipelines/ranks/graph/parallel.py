"""One rank by several worker processes, each with a part of the pages (thesis, 2.5): in step, or each at its own speed.

A part is a range of slices. Its worker computes it from the whole vector, reading only the links that concern it: those
to its pages for importance, those from its pages for interest. The vector is in files that all workers map; each writes
its own part only.

*In step*, a sweep computes a new vector from the old one, and the coordinator adds up the sums of all parts.

*Chaotic iterations* write into the vector that all workers read: no worker waits for another. Such iterations converge,
because payments are never negative and shrink (Chazan and Miranker, 1969). When to stop is harder to decide: the vector
changes while it is read, and a worker that lags behind finds no change, so small changes everywhere prove nothing. They
only show when a check may pay. For a check all workers pause, and one sweep in step computes the residual. If its bound
is within the tolerance, the result of that sweep is the answer; otherwise the workers go on from it.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from opicflow.pipelines.ranks.graph import scans
from opicflow.pipelines.ranks.graph.equations import (
    NOTHING,
    RankKind,
    Sums,
    add_sums,
    digest_of,
    distribution,
    measure,
    normalise,
    paying_weights,
)
from opicflow.pipelines.ranks.graph.solver import Rank, RankRequest, Settings, Vectors, read_states, write_states
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph
from opicflow.schemas.arrays import Floats
from opicflow.schemas.interrupts import WithoutSignals

_STORED_NAMES = ("side", "sweeps", "checks", "residual", "done", "total", "held")
"""The fields of `RankProgress` that an interrupted computation continues with."""
_ANY = "any"
"""The digest of a vector that chaotic iterations change in place: whatever it is, they go on from it."""
_MOST_ROUNDS_UNCHECKED = 100
_SECONDS_TO_END = 10.0


class PartSolver:
    """Computes the slices `first` up to `end` of a rank."""

    def __init__(self, graph: StoredGraph, wanted: RankRequest, settings: Settings, first: int, end: int) -> None:
        """`wanted.paid` sums to 1, or is None."""
        self.graph, self.wanted, self.settings = graph, wanted, settings
        self.slices = range(first, end)
        self.first, self.end = graph.bounds(first)[0], graph.bounds(end - 1)[1]
        self.ranges = graph.ranges_in(first)[0], graph.ranges_in(end - 1)[1]
        self.weights = paying_weights(graph, wanted.kind)
        self.paid = NOTHING if wanted.paid is None else wanted.paid
        self.buffer = np.empty(graph.slice_pages if wanted.kind == "importance" else self.end - self.first)
        self.shares = np.empty(graph.slice_pages)

    def sweep(self, old: Floats, new: Floats, scale: float) -> Sums:
        """Compute this part of `new` from all of `old`, times `scale`. Both may be the same vector."""
        if self.wanted.kind == "importance":
            return add_sums([self._forward(slice_, old, new, scale) for slice_ in self.slices])
        return self._backward(old, new, scale)

    def measure(self, new: Floats, old: Floats, scale_new: float, scale_old: float) -> Sums:
        """Return how far two vectors are apart on this part, and the sums of `new`."""
        part = slice(self.first, self.end)
        return measure(new[part], old[part], scale_new, scale_old, self.weights[part])

    def _forward(self, slice_: int, old: Floats, new: Floats, scale: float) -> Sums:
        first, end = self.graph.bounds(slice_)
        own = self.buffer[: end - first]
        self._begin(first, end, own)
        for block in self.graph.blocks(slice_):
            there = slice(block.first, block.end)
            scans.spread(*block.links, old[there], self.weights[there], self.settings.damping * scale, own)
        return self._written(own, first, end, old, new, scale)

    def _backward(self, old: Floats, new: Floats, scale: float) -> Sums:
        self._begin(self.first, self.end, self.buffer)
        for slice_ in range(self.graph.slices):
            first, end = self.graph.bounds(slice_)
            scans.shares_of(old[first:end], self.weights[first:end], self.settings.damping * scale, self.shares)
            for block in self.graph.blocks(slice_, self.ranges):
                own = self.buffer[block.first - self.first : block.end - self.first]
                scans.collect(*block.links, self.shares, own)
        return self._written(self.buffer, self.first, self.end, old, new, scale)

    def _begin(self, first: int, end: int, to: Floats) -> None:
        paid = self.paid[first:end] if len(self.paid) else NOTHING
        scans.begin(paid, 1.0 / self.graph.pages, 1.0 - self.settings.damping, to)

    def _written(self, own: Floats, first: int, end: int, old: Floats, new: Floats, scale: float) -> Sums:
        out = np.zeros(3)
        scans.measure(own, old[first:end], 1.0, scale, self.weights[first:end], out)
        new[first:end] = own
        return Sums(*out.tolist())


class Workers(Protocol):
    """Workers that compute all parts of two vectors, the sides 0 and 1."""

    count: int

    def sweep(self, side: int, scale: float) -> list[Sums]:
        """Compute all parts of the other side from this one, in step."""

    def measure(self, new: int, old: int, scale_new: float, scale_old: float) -> list[Sums]:
        """Return how far the sides are apart, part by part."""

    def run(self, side: int) -> None:
        """Start repeated sweeps of all workers within this side."""

    def changes(self) -> list[tuple[int, float]]:
        """Wait for running workers: return a worker and the change of its last sweep, for each that has ended one."""

    def pause(self) -> list[Sums]:
        """Stop all workers after their current sweeps; return the sums of their parts."""

    def close(self) -> None:
        """End the workers."""


def divide_slices(slices: int, workers: int) -> list[tuple[int, int]]:
    """Return a range of slices for each worker: equal to within one slice, none empty."""
    bounds = np.linspace(0, slices, min(workers, slices) + 1).round().astype(int).tolist()
    return list(pairwise(bounds))


@dataclass
class RankProgress:
    """The state of a rank between sweeps. `sweeps` counts whole vectors, whichever workers computed them."""

    settings: Settings
    side: int = 0
    sweeps: float = 0.0
    checks: int = 0
    residual: float = float("inf")
    done: bool = False
    total: float = 1.0
    held: float = 0.0

    @property
    def goes_on(self) -> bool:
        """Whether another sweep may bring the rank nearer."""
        return not self.done and self.sweeps < self.settings.max_iterations

    def sweep_in_step(self, workers: Workers) -> None:
        """Have all workers sweep once, and compute the residual."""
        damping, total = self.settings.damping, self.total
        teleports = self.settings.dangling == "teleport"
        scale = Sums(0.0, total, self.held).scale(damping) if teleports else 1.0 / total
        swept = add_sums(workers.sweep(self.side, scale))
        self.sweeps += 1
        self.checks += 1
        if teleports:
            self.residual = swept.residual_bound(damping)
            self.done = self.residual <= self.settings.tolerance
        else:
            if swept.total == 0.0:
                raise GraphRefused("all rank is lost at dangling pages: nothing is left to share")
            self.residual = add_sums(workers.measure(1 - self.side, self.side, 1.0 / swept.total, scale)).change
            if self.residual <= self.settings.tolerance:  # of the vector that the sweep started from
                self.done = True
                return
        self.side = 1 - self.side
        self.total, self.held = swept.total, swept.held

    def run_freely(self, workers: Workers) -> None:
        """Let the workers run until each has little to change, and pause them."""
        damping, tolerance = self.settings.damping, self.settings.tolerance
        workers.run(self.side)
        latest: dict[int, float] = {}
        rounds = 0
        while rounds < _MOST_ROUNDS_UNCHECKED * workers.count:
            for worker, change in workers.changes():
                latest[worker] = change
                rounds += 1
            if len(latest) == workers.count and 2.0 * damping * sum(latest.values()) / self.total <= tolerance:
                break
        paused = add_sums(workers.pause())
        self.sweeps += rounds / workers.count
        self.total, self.held = paused.total, paused.held


def iterate(
    progress: RankProgress,
    workers: Workers,
    chaotic: bool,
    after_check: Callable[[float, float], None] = lambda sweeps, residual: None,
) -> None:
    """Sweep until the bound of the residual is within the tolerance, or there were too many sweeps."""
    while progress.goes_on:
        if chaotic and progress.checks:
            progress.run_freely(workers)
        progress.sweep_in_step(workers)
        after_check(progress.sweeps, progress.residual)


def solve_with_workers(
    path: Path,
    wanted: RankRequest,
    settings: Settings,
    vectors: Vectors,
    workers: int,
    chaotic: bool = False,
    hold_bytes: int = 0,
    identity: str = "",
    after_check: Callable[[float, float], None] = lambda sweeps, residual: None,
) -> Rank:
    """Compute a rank with worker processes. An interrupted computation continues from the last check, in its folder.

    Chaotic iterations depend on the speed of the workers: their last digits may differ from run to run.
    """
    graph = StoredGraph(path)
    if vectors.folder is None:
        raise ValueError("workers share vectors in files: give the vectors a folder")
    if wanted.kind == "hubs":
        raise GraphRefused("hubs and authorities: one process computes them: omit --workers")
    if settings.gauss_seidel:
        raise GraphRefused(
            "--gauss-seidel: several workers have no order: use --chaotic, which reads new values at once"
        )
    if chaotic and settings.dangling == "normalise":
        raise GraphRefused(
            "--chaotic: with normalisation no worker can go on alone: omit it, or omit --dangling normalise"
        )
    state = read_states(vectors, identity, [wanted.name]).get(wanted.name)
    sides = [vectors(f"{wanted.name}-{side}", state is not None) for side in "ab"]
    paid = None if wanted.paid is None else vectors(f"{wanted.name}-paid", False)
    if paid is not None:
        paid[:] = distribution(f"{wanted.name}: personalisation", np.asarray(wanted.paid))
    progress = RankProgress(settings)
    if state is not None:
        for name in _STORED_NAMES:
            setattr(progress, name, state[name])
        if state["digest"] not in (_ANY, digest_of(sides[progress.side])):
            raise GraphRefused(f"{vectors.folder}: damaged since the ranks were interrupted: remove it, and run again")
    else:
        start = paid if wanted.start is None else distribution(f"{wanted.name}: start", wanted.start)
        sides[0][:] = 1.0 / graph.pages if start is None else start
        dangling = paying_weights(graph, wanted.kind) == 0
        progress.total, progress.held = float(sides[0].sum()), float(sides[0][dangling].sum())

    stored_side = progress.side

    def save(sweeps: float, residual: float) -> None:
        nonlocal stored_side
        if not progress.goes_on:
            if progress.side == stored_side:  # the older state names this vector: it must stay as it is
                sides[1 - progress.side][:] = sides[progress.side]
                progress.side = 1 - progress.side
            normalise(sides[progress.side])
        stored = {name: getattr(progress, name) for name in _STORED_NAMES}
        digest = _ANY if chaotic and progress.goes_on else digest_of(sides[progress.side])
        write_states(vectors, identity, {wanted.name: {**stored, "digest": digest}})
        stored_side = progress.side
        after_check(sweeps, residual)

    processes = WorkerProcesses(
        path, wanted.name, wanted.kind, settings, vectors.folder, paid is not None, workers, hold_bytes
    )
    try:
        iterate(progress, processes, chaotic, save)
    finally:
        processes.close()
    values = sides[progress.side]
    error = progress.residual / (1.0 - settings.damping) if settings.dangling == "teleport" else None
    return Rank(wanted.name, values, progress.residual, error, round(progress.sweeps), progress.done)


class WorkerProcesses:
    """Workers, each a process of its own."""

    def __init__(
        self,
        path: Path,
        name: str,
        kind: RankKind,
        settings: Settings,
        folder: Path,
        personal: bool,
        workers: int,
        hold_bytes: int,
    ) -> None:
        """Start the processes. They read the vectors in `folder`."""
        parts = divide_slices(StoredGraph(path).slices, workers)
        self.count = len(parts)
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        resource_tracker.ensure_running()  # or the first process would start it, which unblocks signals
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for part in parts:
            own, other = context.Pipe()
            arguments = (other, path, name, kind, settings, folder, personal, part, hold_bytes // self.count)
            process = context.Process(target=_work, args=arguments, daemon=True, name=f"rank-{part[0]}")
            with WithoutSignals(signal.SIGINT, signal.SIGHUP):  # it would print a traceback while it imports modules
                process.start()
            other.close()
            self._pipes.append(own)
            self._processes.append(process)

    def sweep(self, side: int, scale: float) -> list[Sums]:
        """See `Workers`."""
        return self._call("sweep", side, scale)

    def measure(self, new: int, old: int, scale_new: float, scale_old: float) -> list[Sums]:
        """See `Workers`."""
        return self._call("measure", new, old, scale_new, scale_old)

    def run(self, side: int) -> None:
        """See `Workers`."""
        self._send("run", side)

    def changes(self) -> list[tuple[int, float]]:
        """See `Workers`."""
        ready = wait(self._pipes)
        return [(worker, self._receive_sums(worker).change) for worker, one in enumerate(self._pipes) if one in ready]

    def pause(self) -> list[Sums]:
        """See `Workers`."""
        self._send("pause")
        paused = []
        for worker in range(self.count):
            while (message := self._receive(worker))[0] != "paused":
                pass
            paused.append(Sums(*message[1]))
        return paused

    def close(self) -> None:
        """See `Workers`."""
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.close()  # which ends a worker
        for process in self._processes:
            process.join(_SECONDS_TO_END)
            if process.is_alive():
                process.kill()
                process.join()

    def _call(self, *command: Any) -> list[Sums]:
        self._send(*command)
        return [self._receive_sums(worker) for worker in range(self.count)]

    def _send(self, *command: Any) -> None:
        for worker, pipe in enumerate(self._pipes):
            try:
                pipe.send(command)
            except OSError:
                raise self._lost(worker) from None

    def _receive_sums(self, worker: int) -> Sums:
        return Sums(*self._receive(worker)[1])

    def _receive(self, worker: int) -> Any:
        try:
            message = self._pipes[worker].recv()
        except (EOFError, OSError):
            raise self._lost(worker) from None
        if message[0] == "refused":
            raise GraphRefused(message[1])
        return message

    def _lost(self, worker: int) -> GraphRefused:
        self._processes[worker].join(_SECONDS_TO_END)
        code = self._processes[worker].exitcode
        return GraphRefused(f"a worker process ended (exit code {code}): run the same command again: it continues")


def _work(
    pipe: Connection,
    path: Path,
    name: str,
    kind: RankKind,
    settings: Settings,
    folder: Path,
    personal: bool,
    part: tuple[int, int],
    hold_bytes: int,
) -> None:
    """Run a worker, until the coordinator closes the pipe."""
    try:
        graph = StoredGraph(path)
        graph.hold(hold_bytes)
        vectors = Vectors(graph.pages, folder)
        sides = [vectors(f"{name}-{side}", True) for side in "ab"]
        paid = vectors(f"{name}-paid", True) if personal else None
        _serve(pipe, PartSolver(graph, RankRequest(name, kind, paid), settings, *part), sides)
    except (EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass
    except GraphRefused as problem:
        with suppress(OSError):
            pipe.send(("refused", str(problem)))


def _serve(pipe: Connection, part: PartSolver, sides: list[Floats]) -> None:
    """Carry out the coordinator's commands."""
    while True:
        command, *arguments = pipe.recv()
        if command == "sweep":
            side, scale = arguments
            pipe.send(("sums", part.sweep(sides[side], sides[1 - side], scale)))
        elif command == "measure":
            new, old, scale_new, scale_old = arguments
            pipe.send(("sums", part.measure(sides[new], sides[old], scale_new, scale_old)))
        elif command == "run":
            vector = sides[arguments[0]]
            while not pipe.poll():
                pipe.send(("sums", part.sweep(vector, vector, 1.0)))
        else:
            pipe.send(("paused", part.measure(vector, vector, 1.0, 1.0)))
