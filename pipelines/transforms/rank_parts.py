"""Iterations of a rank in parts: a part is what the pages of a slice of the graph have (thesis, 2.5).

An element is a part, never a page. Of each iteration every slice sends its part to all slices; whoever has the parts of
all slices computes the new part of one of them. A part tells its own change and sums, so whoever has all of them also
knows the scale of the vector, and no slice has to ask for anything else: see solving.py for the equations. A large part
is sent in pieces: what a runner sorts has to fit its buffers.

Parts come in any order. They are taken by the number of their slice, and sums are added up in that order, so the bytes
that come out do not depend on it, nor on the runner, on which worker did what, or on what was done twice.

What a worker holds: the parts sent to one slice, together a vector of the pages that have links, and the values of two
slices. Runners hold them too: `slices` such vectors lie between two iterations, and what one slice is sent has to fit
one message of at most 2 GB. So slices should be few and large, about as many as there are workers.

A refusal is a part as well: it goes to all slices, and comes out at the end. Raised, it would be tried again, on some
clusters for ever.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import apache_beam as beam
import numpy as np
import xxhash

from opicflow.connectors.files.whole_file import whole_file
from opicflow.pipelines.graph import scans
from opicflow.pipelines.graph.solver import Floats
from opicflow.pipelines.graph.store import GraphRefused, Int64s, StoredGraph
from opicflow.schemas.columns import ColumnsRefused, pack, unpack

_KIND = "part of a rank"
_NOTHING = np.empty(0)
_PAGES_AT_ONCE = 1 << 16
_PAGES_OF_A_PIECE = 1 << 17
"""A megabyte. Flink sorts what it groups: with 256 MB to do so it refused an element of 48 MB."""


class Part(NamedTuple):
    """What the pages of a slice have.

    `change` is how far that is from what they had before, in L1; `total` is its sum, and `held` the sum over pages that
    pay nothing. A part that is not `whole` leaves these pages out. A piece of it has its values from the `at`-th on.
    `refused` is why there are no values at all.
    """

    slice_: int
    values: Floats
    change: float = 0.0
    total: float = 0.0
    held: float = 0.0
    whole: bool = True
    at: int = 0
    refused: str = ""


class Told(NamedTuple):
    """What a small file beside a saved part says of it: its sums, and a digest of its bytes. Or why there is none."""

    change: float = 0.0
    total: float = 0.0
    held: float = 0.0
    digest: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Task:
    """A rank as workers are told of it. `graph` is a folder that all of them see, `digest` the one of its manifest.

    `paid` is a file of what the virtual page pays, and `start` one of where to begin: vectors that sum to 1; none is
    the uniform one, and to begin with what is paid.
    """

    graph: str
    digest: str
    kind: Literal["importance", "interest"]
    damping: float
    paid: str = ""
    start: str = ""


# -- the core: functions of a graph and of parts


def sums_of(graph: StoredGraph, task: Task) -> Int64s:
    """Of each page the weights of the links that it pays by: 0 for one that pays nothing."""
    return graph.out_weights if task.kind == "importance" else graph.in_weights


def first_part(graph: StoredGraph, task: Task, slice_: int) -> Part:
    """Where a slice begins."""
    first, end = graph.bounds(slice_)
    values = np.empty(end - first)
    scans.begin(_stored(task.start or task.paid, graph, first, end), 1.0 / graph.pages, 1.0, values)
    return _measured(slice_, values, values, 1.0, sums_of(graph, task)[first:end])


def next_part(graph: StoredGraph, task: Task, slice_: int, pieces: Iterable[Part]) -> Part:
    """What a slice has after an iteration from these parts: all pieces of each slice, whole ones of this slice."""
    by_slice: list[dict[int, Part]] = [{} for _ in range(graph.slices)]
    for piece in pieces:
        by_slice[piece.slice_][piece.at] = piece
    parts = [[one[at] for at in sorted(one)] for one in by_slice]
    total, held = sum(part[0].total for part in parts), sum(part[0].held for part in parts)
    scale = (1.0 - task.damping) / (total - task.damping * (total - held))
    first, end = graph.bounds(slice_)
    sums, values = sums_of(graph, task), np.empty(end - first)
    scans.begin(_stored(task.paid, graph, first, end), 1.0 / graph.pages, 1.0 - task.damping, values)
    receive = _from_sources if task.kind == "importance" else _from_targets
    receive(graph, slice_, parts, task.damping * scale, sums, values)
    assert parts[slice_][0].whole
    return _measured(slice_, values, _joined(parts[slice_], sums[first:end]), scale, sums[first:end])


def sent_part(graph: StoredGraph, task: Task, part: Part) -> Part:
    """A part as other slices need it: in a crawl most pages were never read, and pay nothing."""
    first, end = graph.bounds(part.slice_)
    return part._replace(values=part.values[sums_of(graph, task)[first:end] != 0], whole=False)


def pieces_of(part: Part) -> list[Part]:
    """The pieces of a part: one at least."""
    most = _PAGES_OF_A_PIECE
    return [part._replace(values=part.values[at : at + most], at=at) for at in range(0, len(part.values) or 1, most)]


def _from_sources(
    graph: StoredGraph, slice_: int, parts: list[list[Part]], factor: float, sums: Int64s, values: Floats
) -> None:
    """Add what the pages of a slice receive from those that link to them, `factor` times what these have."""
    at = -1
    for block in graph.blocks(slice_):  # all of its sources are in one slice
        if at != block.first // graph.slice_pages:
            at = block.first // graph.slice_pages
            first, end = graph.bounds(at)
            own = _joined(parts[at], sums[first:end])
        scans.spread(
            *block.links, own[block.first - first : block.end - first], sums[block.first : block.end], factor, values
        )


def _from_targets(
    graph: StoredGraph, slice_: int, parts: list[list[Part]], factor: float, sums: Int64s, values: Floats
) -> None:
    """Add what the pages of a slice receive from those that they link to."""
    here = graph.bounds(slice_)[0]
    for other, part in enumerate(parts):
        first, end = graph.bounds(other)
        own = _joined(part, sums[first:end])
        scans.shares_of(own, sums[first:end], factor, own)
        for block in graph.blocks(other, graph.ranges_in(slice_)):
            scans.collect(*block.links, own, values[block.first - here : block.end - here])


def _joined(pieces: list[Part], sums: Int64s) -> Floats:
    """What each page of a slice has, 0 where that was left out."""
    values = np.concatenate([piece.values for piece in pieces])
    pay = sums != 0
    assert len(values) == (len(sums) if pieces[0].whole else np.count_nonzero(pay)), "a piece is missing"
    if pieces[0].whole:
        return values
    own = np.zeros(len(sums))
    own[pay] = values
    return own


def _measured(slice_: int, new: Floats, old: Floats, scale: float, sums: Int64s) -> Part:
    out = np.zeros(3)
    for first in range(0, len(new), _PAGES_AT_ONCE):  # so that sums are of pieces: they lose less
        end, piece = first + _PAGES_AT_ONCE, np.zeros(3)
        scans.measure(new[first:end], old[first:end], 1.0, scale, sums[first:end], piece)
        out += piece
    change, total, held = out.tolist()
    return Part(slice_, new, change, total, held)


def _stored(file: str, graph: StoredGraph, first: int, end: int) -> Floats:
    """The pages of a slice in a file of all pages; empty without a file."""
    if not file:
        return _NOTHING
    try:
        stored = np.load(file, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        raise GraphRefused(f"{file}: missing or damaged: the folder must be one that all workers see") from None
    if stored.shape != (graph.pages,) or stored.dtype != np.float64:
        raise GraphRefused(f"{file}: missing or damaged: remove it, and run again")
    return np.array(stored[first:end])


# -- parts as bytes, and in files


def packed(part: Part) -> bytes:
    """A part as bytes, with a checksum."""
    values = part._asdict()
    return pack(_KIND, values, {"values": values.pop("values")})


def unpacked(data: bytes) -> Part:
    """The part that was packed; its values are read-only."""
    found = unpack(data)
    return Part(values=found.columns["values"], **found.values)


def digest_of_graph(graph: StoredGraph) -> str:
    """What tells a graph from others: its manifest holds a digest of every file."""
    return xxhash.xxh64_hexdigest(json.dumps(graph.manifest, sort_keys=True).encode())


def part_file(folder: Path, slice_: int) -> Path:
    """Where a part is saved."""
    return folder / f"{slice_:05}.part"


def told_file(folder: Path, slice_: int) -> Path:
    """Where it is told what was saved: written last, so what it tells of is there."""
    return folder / f"{slice_:05}.json"


def save_part(folder: Path, data: bytes) -> None:
    """Write a part and what is told of it, each whole or not at all. A refusal is only told.

    And only of a part that was not saved: the job of a run that was killed may go on, and find its input removed.
    """
    part = unpacked(data)
    if part.refused and told_file(folder, part.slice_).exists():
        return
    told = Told(refused=part.refused)
    if not part.refused:
        told = Told(part.change, part.total, part.held, xxhash.xxh64_hexdigest(data))
        with whole_file(part_file(folder, part.slice_)) as file:
            file.write(data)
    with whole_file(told_file(folder, part.slice_)) as file:
        file.write(json.dumps(told._asdict()).encode())


def read_part(folder: Path, slice_: int, digest: str) -> bytes:
    """A part as it was saved; refused if it is not what was told of it."""
    path = part_file(folder, slice_)
    try:
        data = path.read_bytes()
    except OSError:
        raise GraphRefused(f"{path}: not there: the folder must be one that all workers see") from None
    if xxhash.xxh64_hexdigest(data) != digest:
        raise GraphRefused(f"{path}: damaged since it was written: remove {folder.parent}, and run again")
    return data


# -- the shell


class ReadParts(beam.DoFn):
    """Slices in, each with the digest of what was saved of it, or none; their parts out."""

    def __init__(self, task: Task, folder: str) -> None:
        """`folder` is where the last job saved its parts."""
        self._task = task
        self._folder = folder

    def process(self, element: tuple[int, str]) -> Iterator[tuple[int, bytes]]:
        """Read a part, or begin one."""
        slice_, digest = element
        try:
            if digest:
                yield slice_, read_part(Path(self._folder), slice_, digest)
            else:
                yield slice_, packed(first_part(opened(self._task), self._task, slice_))
        except GraphRefused as problem:
            yield slice_, _refusal(slice_, problem)


class SpreadParts(beam.DoFn):
    """Parts in; out they come in pieces, by the slices that are to read them: every one."""

    def __init__(self, task: Task, slices: int) -> None:
        """The graph has so many slices, wherever it may be."""
        self._task = task
        self._slices = slices

    def process(self, element: tuple[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Send a part to all slices."""
        slice_, data = element
        try:
            part = unpacked(data)
            sent = part if part.refused else sent_part(opened(self._task), self._task, part)
        except GraphRefused as problem:
            part = sent = Part(slice_, _NOTHING, refused=str(problem))
        for piece in pieces_of(part):
            yield slice_, packed(piece)
        for piece in pieces_of(sent):
            data = packed(piece)
            for other in range(self._slices):
                if other != slice_:
                    yield other, data


class ComputeParts(beam.DoFn):
    """The pieces of all parts in, by the slice that they were sent to; its new part out."""

    def __init__(self, task: Task) -> None:
        """The graph is opened where it is needed."""
        self._task = task

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        """Compute one part."""
        slice_, sent = element
        try:
            pieces = [unpacked(data) for data in sent]
            refused = min((piece.refused for piece in pieces if piece.refused), default="")
            if refused:
                raise GraphRefused(refused)
            yield slice_, packed(next_part(opened(self._task), self._task, slice_, pieces))
        except (GraphRefused, ColumnsRefused) as problem:
            yield slice_, _refusal(slice_, problem)


class SaveParts(beam.DoFn):
    """Parts in, files out. Saved again, they are the same."""

    def __init__(self, folder: str) -> None:
        """The folder is there, and seen by all workers."""
        self._folder = folder

    def process(self, element: tuple[int, bytes]) -> None:
        """Write one part; or why it cannot be, as far as that can be written."""
        slice_, data = element
        try:
            save_part(Path(self._folder), data)
        except OSError as problem:
            why = GraphRefused(f"{part_file(Path(self._folder), slice_)}: {problem.strerror}: see to it, and run again")
            with suppress(OSError):
                save_part(Path(self._folder), _refusal(slice_, why))


def _refusal(slice_: int, problem: Exception) -> bytes:
    return packed(Part(slice_, _NOTHING, refused=str(problem)))


class _Opened(threading.local):
    """The graph that a thread of a worker read last. A graph decodes all links into the same room: one thread each."""

    task: Task | None = None
    graph: StoredGraph | None = None


_OPENED = _Opened()


def opened(task: Task) -> StoredGraph:
    """The graph of a task, kept open for this thread; refused if it is not the one that the task was made for."""
    if _OPENED.graph is None or _OPENED.task != task:
        graph = StoredGraph(Path(task.graph))
        if digest_of_graph(graph) != task.digest:
            raise GraphRefused(
                f"{task.graph}: another graph than where the ranks were started: give all workers the same"
            )
        _OPENED.graph, _OPENED.task = graph, task
    return _OPENED.graph
