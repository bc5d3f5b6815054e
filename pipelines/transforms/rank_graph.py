"""Ranks of a graph that is too much for one machine, as batch jobs (thesis, 2.5). The pipeline is `RankGraph`.

A job is some iterations, one after the other as stages of one pipeline: Beam has no loops. `rank_with_beam` runs as
many jobs as it takes. Between two of them the vector lies in a folder, a file for each slice; a job counts once all of
these are there, so a run that was killed goes on after the last job that ended. What comes out depends on the number of
iterations alone: on any runner it is the same, to the last byte.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import xxhash
from apache_beam import typehints
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import create_runner

from opicflow.connectors.files.whole_file import whole_file
from opicflow.pipelines.graph.solver import Floats, Rank, Settings, Wanted, distribution
from opicflow.pipelines.graph.store import GraphRefused, StoredGraph
from opicflow.pipelines.transforms.rank_parts import (
    ComputeParts,
    ReadParts,
    SaveParts,
    SpreadParts,
    Task,
    Told,
    digest_of_graph,
    read_part,
    told_file,
    unpacked,
)

_IN_PROCESS = (None, "DirectRunner")
"""By these names it is Beam's in-process FnApi runner, and never the Prism that Beam would download."""
_MOST_SAID = 300
_PART: Any = typehints.KV[int, bytes]


class RankGraph(beam.PTransform):
    """The parts of a vector in, one a slice; the parts of the vector some iterations later out."""

    def __init__(self, task: Task, slices: int, iterations: range) -> None:
        """`iterations` are the numbers of those to be done: every stage is named after its own."""
        super().__init__()
        self._task = task
        self._slices = slices
        self._iterations = iterations

    def expand(self, parts: Any) -> Any:
        """One screen: what happens in an iteration, as often as there are."""
        spread = beam.ParDo(SpreadParts(self._task, self._slices)).with_output_types(_PART)
        compute = beam.ParDo(ComputeParts(self._task)).with_output_types(_PART)
        for number in self._iterations:
            parts = (
                parts
                | f"SpreadParts {number}" >> spread
                | f"GroupParts {number}" >> beam.GroupByKey()
                | f"ComputeParts {number}" >> compute
            )
        return parts


def rank_with_beam(
    graph_path: Path,
    wanted: Wanted,
    settings: Settings,
    work: Path,
    options: PipelineOptions,
    iterations_per_job: int = 10,
    after_job: Callable[[int, float], None] = lambda iterations, residual: None,
) -> Rank:
    """The rank, to the tolerance or after `max_iterations`; the last job may do some more than the tolerance takes.

    All workers see the graph and `work` under the paths given here. Without a runner in `options` it is this process.
    `after_job` is told how many iterations were done, and of the residual. The values are a file in `work`, mapped into
    memory. Run again with the same `work`, it goes on after the last job that ended, with another tolerance too.

    What is told of is refused at once: a graph that a worker does not see, a full disk. Where workers die, the cluster
    decides how often a job is started again: some do it until somebody cancels the job.
    """
    _check(wanted, settings, options, iterations_per_job)
    graph = StoredGraph(graph_path)
    if graph.pages == 0:
        raise GraphRefused(f"{graph_path}: a graph without pages has no ranks")
    course = _Course(graph, wanted, settings, work.absolute())
    while not course.is_done and course.iterations < settings.max_iterations:
        course.run_job(min(course.iterations + iterations_per_job, settings.max_iterations), options)
        after_job(course.iterations, course.residual)
    error = course.residual / (1.0 - settings.damping)
    return Rank(wanted.name, course.values(), course.residual, error, course.iterations, course.is_done)


class _Course:
    """How far a rank is: what the last job that ended left in its folder."""

    def __init__(self, graph: StoredGraph, wanted: Wanted, settings: Settings, work: Path) -> None:
        """Begin, or go on."""
        self.graph, self.settings = graph, settings
        digest = digest_of_graph(graph)
        paid = _vector(f"{wanted.name}: personalisation", wanted.paid, graph.pages)
        start = _vector(f"{wanted.name}: start", wanted.start, graph.pages)
        identity = [
            digest,
            wanted.kind,
            settings.damping,
            *(None if one is None else _digest(one) for one in (paid, start)),
        ]
        # Named after all that decides about the values: what belongs to another rank is never mixed up with this one.
        self.folder = work / f"{wanted.name}-{_digest(json.dumps(identity).encode())}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.task = Task(
            str(graph.path.absolute()),
            digest,
            "interest" if wanted.kind == "interest" else "importance",
            settings.damping,
            self._stored("paid.npy", paid),
            self._stored("start.npy", start),
        )
        self.iterations, self.told = 0, [Told()] * graph.slices
        for number in sorted(self._jobs(), reverse=True):
            with suppress(_NotAllThere):
                told = self._read_told(number)
                if not any(one.refused for one in told):
                    self.iterations, self.told = number, told
                    break

    @property
    def residual(self) -> float:
        """A bound of |f(x) - x| in L1."""
        if self.iterations == 0:
            return math.inf
        change, total = sum(one.change for one in self.told), sum(one.total for one in self.told)
        return 2.0 * self.settings.damping * change / total

    @property
    def is_done(self) -> bool:
        """Whether the tolerance is met."""
        return self.residual <= self.settings.tolerance

    def run_job(self, until: int, options: PipelineOptions) -> None:
        """Do the iterations up to this one, in one job."""
        to = self._job(until)
        to.mkdir(exist_ok=True)
        for slice_ in range(self.graph.slices):
            told_file(to, slice_).unlink(missing_ok=True)  # it may tell of a refusal
        in_process = options.view_as(StandardOptions).runner in _IN_PROCESS
        pipeline = beam.Pipeline(runner=FnApiRunner() if in_process else None, options=options)
        slices: Any = [(slice_, one.digest) for slice_, one in enumerate(self.told)]
        read = ReadParts(self.task, str(self._job(self.iterations)))
        _ = (
            pipeline
            | "ListParts" >> beam.Create(slices, reshuffle=not in_process)
            | "ReadParts" >> beam.ParDo(read).with_output_types(_PART)
            | "RankGraph" >> RankGraph(self.task, self.graph.slices, range(self.iterations + 1, until + 1))
            | "SaveParts" >> beam.ParDo(SaveParts(str(to)))
        )
        try:
            pipeline.run().wait_until_finish()
        except Exception as problem:  # runners have no errors in common
            doing = f"iterations {self.iterations + 1} to {until}"
            raise GraphRefused(
                f"{doing}: the job failed: {_last_line(problem)}: run again: it goes on there"
            ) from problem
        try:
            told = self._read_told(until)
        except _NotAllThere as missing:
            raise GraphRefused(
                f"{missing}: the job ended, and left nothing there: all workers must see and write to the folder"
            ) from None
        refused = [one.refused for one in told if one.refused]
        if refused:
            raise GraphRefused(refused[0])
        self.iterations, self.told = until, told
        for number in self._jobs():
            if number != until:
                shutil.rmtree(self._job(number), ignore_errors=True)

    def values(self) -> Floats:
        """The rank, scaled to sum 1, in a file; what is in memory at once is a slice."""
        if self.iterations == 0:
            raise GraphRefused("no iteration was done")
        path, folder = self.folder / "rank.f64", self._job(self.iterations)
        total = math.fsum(float(self._read(folder, slice_).sum()) for slice_ in range(self.graph.slices))
        with whole_file(path) as file:
            for slice_ in range(self.graph.slices):
                file.write((self._read(folder, slice_) / total).tobytes())
        return np.memmap(path, np.float64, mode="r")

    def _read(self, folder: Path, slice_: int) -> Floats:
        return unpacked(read_part(folder, slice_, self.told[slice_].digest)).values

    def _job(self, until: int) -> Path:
        return self.folder / f"{until:06}"

    def _jobs(self) -> list[int]:
        """Up to which iteration jobs have left something."""
        return [int(one.name) for one in self.folder.iterdir() if one.name.isdigit()]

    def _read_told(self, until: int) -> list[Told]:
        """What was told of all parts of a job."""
        told = []
        for slice_ in range(self.graph.slices):
            path = told_file(self._job(until), slice_)
            try:
                told.append(Told(**json.loads(path.read_bytes())))
            except (OSError, ValueError, TypeError):
                raise _NotAllThere(path) from None
        return told

    def _stored(self, name: str, vector: Floats | None) -> str:
        """Where workers find a vector of all pages; nowhere if there is none."""
        if vector is None:
            return ""
        path = self.folder / name
        if not path.exists():  # whole, and of this vector, as the folder is named after it
            with whole_file(path) as file:
                np.save(file, vector)
        return str(path)


class _NotAllThere(Exception):
    """A job did not end: this file is missing, or none."""


def _check(wanted: Wanted, settings: Settings, options: PipelineOptions, iterations_per_job: int) -> None:
    """Refuse what cannot be."""
    if wanted.kind == "hubs":
        raise GraphRefused("hubs and authorities: one process computes them, not Beam")
    if settings.dangling != "teleport":
        raise GraphRefused(f"dangling {settings.dangling!r}: one process computes such ranks, not Beam")
    if settings.gauss_seidel:
        raise GraphRefused("Gauss-Seidel: the workers of a job have no order: leave it away")
    if iterations_per_job < 1:
        raise GraphRefused(f"iterations of a job: {iterations_per_job} are too few: give 1 at least")
    chosen = options.view_as(StandardOptions)
    if chosen.streaming:
        raise GraphRefused("--streaming: ranks are a batch job: leave it away")
    if chosen.runner not in _IN_PROCESS:
        try:
            create_runner(chosen.runner)
        except (ValueError, ImportError, AttributeError):
            raise GraphRefused(f"--runner {chosen.runner}: Beam knows no such runner here: check its name") from None


def _vector(name: str, given: Floats | None, pages: int) -> Floats | None:
    if given is None:
        return None
    vector = np.asarray(given, np.float64)
    if vector.shape != (pages,):
        raise GraphRefused(f"{name}: it must hold {pages:,} numbers, one for each page, not {vector.shape}")
    return distribution(name, vector)


def _digest(data: Any) -> str:
    return xxhash.xxh64_hexdigest(data)


def _last_line(problem: Exception) -> str:
    """What went wrong, of what a runner says: most of it is a traceback."""
    lines = "".join(traceback.format_exception_only(problem)).splitlines()
    return next(line.strip() for line in reversed(lines) if re.search(r"\w", line))[:_MOST_SAID]
