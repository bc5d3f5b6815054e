"""Ranks of a graph that is too large for one machine, as batch jobs (thesis, 2.5). The pipeline is `RankGraph`.

A job is some iterations, as successive stages of one pipeline: Beam has no loops. `rank_with_beam` runs as many jobs
as necessary. Between two jobs the vector is in a folder, one file per slice. A job is complete when it has written all
its files, so a killed run continues after the last complete job. The result depends only on the number of iterations:
its bytes are the same on any runner.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
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
from opicflow.pipelines.ranks.graph.equations import add_sums, distribution
from opicflow.pipelines.ranks.graph.solver import Rank, RankRequest, Settings
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph
from opicflow.pipelines.ranks.rank_parts import (
    ComputeParts,
    RankTask,
    ReadParts,
    SavedPart,
    SaveParts,
    SpreadParts,
    digest_of_graph,
    read_part,
    sums_file,
    unpack_part,
)
from opicflow.pipelines.stages.bundle_ends import bundles_end_sooner
from opicflow.schemas.arrays import Floats

_IN_PROCESS = (None, "DirectRunner")
"""These names mean Beam's in-process FnApi runner; by default Beam would download Prism."""
_MOST_CHARACTERS = 300
_PART: Any = typehints.KV[int, bytes]


class RankGraph(beam.PTransform):
    """Iterate a vector: its parts in, one for each slice; its parts after some iterations out."""

    def __init__(self, task: RankTask, slices: int, iterations: range) -> None:
        """`iterations` are the numbers of the iterations to do: stages are named after them."""
        super().__init__()
        self._task = task
        self._slices = slices
        self._iterations = iterations

    def expand(self, parts: Any) -> Any:
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
    wanted: RankRequest,
    settings: Settings,
    work: Path,
    options: PipelineOptions,
    iterations_per_job: int = 10,
    after_job: Callable[[int, float], None] = lambda iterations, residual: None,
) -> Rank:
    """Compute a rank, to the tolerance or to `max_iterations`; the last job may do more iterations than needed.

    All workers must see the graph and `work` under the paths given here. Without a runner in `options` this process
    does the work. `after_job` is called with the number of iterations so far, and the residual. The values are a file
    in `work`, mapped into memory. A run with the same `work` continues after the last complete job, also with another
    tolerance.

    Refusals of workers are reported at once: a graph that a worker does not see, a full disk. Where workers die, the
    cluster decides how often a job is restarted; some restart it until somebody cancels the job.
    """
    _check(wanted, settings, options, iterations_per_job)
    graph = StoredGraph(graph_path)
    if graph.pages == 0:
        raise GraphRefused(f"{graph_path}: a graph without pages has no ranks")
    run = _BeamRun(graph, wanted, settings, work.absolute())
    while not run.is_done and run.iterations < settings.max_iterations:
        run.run_job(min(run.iterations + iterations_per_job, settings.max_iterations), options)
        after_job(run.iterations, run.residual)
    error = run.residual / (1.0 - settings.damping)
    return Rank(wanted.name, run.values(), run.residual, error, run.iterations, run.is_done)


class _BeamRun:
    """The computation of one rank, continued from the last complete job in its folder."""

    def __init__(self, graph: StoredGraph, wanted: RankRequest, settings: Settings, work: Path) -> None:
        """Continue after the last complete job, or start."""
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
        # Named after everything that the values depend on: files of another rank are never used for this one.
        self.folder = work / f"{wanted.name}-{_digest(json.dumps(identity).encode())}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.task = RankTask(
            str(graph.path.absolute()),
            digest,
            "interest" if wanted.kind == "interest" else "importance",
            settings.damping,
            self._stored("paid.npy", paid),
            self._stored("start.npy", start),
        )
        self.iterations, self.saved = 0, [SavedPart()] * graph.slices
        for number in sorted(self._jobs(), reverse=True):
            with suppress(_IncompleteJob):
                saved = self._read_saved(number)
                if not any(one.refused for one in saved):
                    self.iterations, self.saved = number, saved
                    break

    @property
    def residual(self) -> float:
        """A bound of |f(x) - x| in L1."""
        if self.iterations == 0:
            return math.inf
        return add_sums(one.sums for one in self.saved).residual_bound(self.settings.damping)

    @property
    def is_done(self) -> bool:
        return self.residual <= self.settings.tolerance

    def run_job(self, until: int, options: PipelineOptions) -> None:
        """Run one job with the iterations up to this number."""
        to = self._job(until)
        to.mkdir(exist_ok=True)
        for slice_ in range(self.graph.slices):
            sums_file(to, slice_).unlink(missing_ok=True)  # it may hold a refusal
        in_process = options.view_as(StandardOptions).runner in _IN_PROCESS
        pipeline = beam.Pipeline(runner=FnApiRunner() if in_process else None, options=options)
        slices: Any = [(slice_, one.digest) for slice_, one in enumerate(self.saved)]
        read = ReadParts(self.task, str(self._job(self.iterations)))
        _ = (
            pipeline
            | "ListParts" >> beam.Create(slices, reshuffle=not in_process)
            | "ReadParts" >> beam.ParDo(read).with_output_types(_PART)
            | "RankGraph" >> RankGraph(self.task, self.graph.slices, range(self.iterations + 1, until + 1))
            | "SaveParts" >> beam.ParDo(SaveParts(str(to)))
        )
        try:
            with bundles_end_sooner() if in_process else nullcontext():
                pipeline.run().wait_until_finish()
        except Exception as problem:  # runners have no errors in common
            job = f"iterations {self.iterations + 1} to {until}"
            raise GraphRefused(
                f"{job}: the job failed: {_last_line(problem)}: run again: it continues there"
            ) from problem
        try:
            saved = self._read_saved(until)
        except _IncompleteJob as missing:
            raise GraphRefused(
                f"{missing}: the job ended without this file: all workers must see and write to the folder"
            ) from None
        refused = [one.refused for one in saved if one.refused]
        if refused:
            raise GraphRefused(refused[0])
        self.iterations, self.saved = until, saved
        for number in self._jobs():
            if number != until:
                shutil.rmtree(self._job(number), ignore_errors=True)

    def values(self) -> Floats:
        """Write the rank, scaled to sum 1, to a file, one slice at a time; return the file, mapped."""
        if self.iterations == 0:
            raise GraphRefused("no iteration was done")
        path, folder = self.folder / "rank.f64", self._job(self.iterations)
        total = math.fsum(float(self._read(folder, slice_).sum()) for slice_ in range(self.graph.slices))
        with whole_file(path) as file:
            for slice_ in range(self.graph.slices):
                file.write((self._read(folder, slice_) / total).tobytes())
        return np.memmap(path, np.float64, mode="r")

    def _read(self, folder: Path, slice_: int) -> Floats:
        return unpack_part(read_part(folder, slice_, self.saved[slice_].digest)).values

    def _job(self, until: int) -> Path:
        return self.folder / f"{until:06}"

    def _jobs(self) -> list[int]:
        """Return the last iteration of each job that has a folder."""
        return [int(one.name) for one in self.folder.iterdir() if one.name.isdigit()]

    def _read_saved(self, until: int) -> list[SavedPart]:
        """Read the sums of all parts of a job."""
        saved = []
        for slice_ in range(self.graph.slices):
            path = sums_file(self._job(until), slice_)
            try:
                saved.append(SavedPart(**json.loads(path.read_bytes())))
            except (OSError, ValueError, TypeError):
                raise _IncompleteJob(path) from None
        return saved

    def _stored(self, name: str, vector: Floats | None) -> str:
        """Write a vector of all pages for the workers; return its path, empty if there is no vector."""
        if vector is None:
            return ""
        path = self.folder / name
        if not path.exists():  # written atomically, and of this vector: the folder is named after it
            with whole_file(path) as file:
                np.save(file, vector)
        return str(path)


class _IncompleteJob(Exception):
    """This file of a job is missing or damaged."""


def _check(wanted: RankRequest, settings: Settings, options: PipelineOptions, iterations_per_job: int) -> None:
    if wanted.kind == "hubs":
        raise GraphRefused("hubs and authorities: one process computes them, not Beam")
    if settings.dangling != "teleport":
        raise GraphRefused(f"dangling {settings.dangling!r}: one process computes such ranks, not Beam")
    if settings.gauss_seidel:
        raise GraphRefused("Gauss-Seidel: the workers of a job have no order: omit it")
    if iterations_per_job < 1:
        raise GraphRefused(f"iterations of a job: {iterations_per_job} are too few: give 1 at least")
    chosen = options.view_as(StandardOptions)
    if chosen.streaming:
        raise GraphRefused("--streaming: ranks are a batch job: omit it")
    if chosen.runner not in _IN_PROCESS:
        try:
            create_runner(chosen.runner)
        except (ValueError, ImportError, AttributeError):
            raise GraphRefused(f"--runner {chosen.runner}: Beam has no such runner here: check its name") from None


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
    """Return the error in a runner's message, most of which is a traceback."""
    lines = "".join(traceback.format_exception_only(problem)).splitlines()
    return next(line.strip() for line in reversed(lines) if re.search(r"\w", line))[:_MOST_CHARACTERS]
