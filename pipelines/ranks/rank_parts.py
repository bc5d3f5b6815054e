"""Iterations of a rank in parts: a part is the values of the pages of one slice of the graph (thesis, 2.5).

An element is a part, never a page. In each iteration every slice sends its part to all slices. With the parts of all
slices the new part of one slice is computed. A part carries its change and its sums, so all parts together give the
scale of the vector, and a slice needs nothing else: graph/solver.py has the equations. A large part is sent in pieces:
the elements that a runner sorts must fit its buffers.

Parts arrive in any order. They are used in the order of their slices, and sums are added up in that order. So the
output bytes do not depend on the order, nor on the runner, the workers, or repeated work.

A worker holds the parts sent to one slice, together a vector of the pages that have links, and the values of two
slices. Runners hold them too: `slices` such vectors are stored between two iterations, and the parts sent to one slice
must fit one message of at most 2 GB. So slices should be few and large, about as many as there are workers.

A refusal is a part as well: it is sent to all slices, and reported at the end. If it were raised, runners would retry
it, and some clusters without end.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import xxhash

from opicflow.connectors.files.whole_file import whole_file
from opicflow.pipelines.ranks.graph import scans
from opicflow.pipelines.ranks.graph.equations import NOTHING, RankKind, Sums, add_sums, measure, paying_weights
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph
from opicflow.schemas.arrays import Floats, Ints
from opicflow.schemas.columns import ColumnsRefused, pack, unpack

_KIND = "part of a rank"
_PAGES_OF_A_PIECE = 1 << 17
"""A megabyte. Flink sorts the elements that it groups; with 256 MB for sorting it refused an element of 48 MB."""


class RankPart(NamedTuple):
    """The values of the pages of a slice.

    `change`, `total` and `held` are its `Sums`. A part that is not `whole` omits the pages that pay nothing. A piece of
    it has its values from the `at`-th on. `refused` is the reason why there are no values at all.
    """

    slice_: int
    values: Floats
    change: float = 0.0
    total: float = 0.0
    held: float = 0.0
    whole: bool = True
    at: int = 0
    refused: str = ""

    @property
    def sums(self) -> Sums:
        """The sums of the whole part, which every piece carries."""
        return Sums(self.change, self.total, self.held)


class SavedPart(NamedTuple):
    """The small file beside a saved part: its sums, and a digest of its bytes. Or the reason why there is no part."""

    change: float = 0.0
    total: float = 0.0
    held: float = 0.0
    digest: str = ""
    refused: str = ""

    @property
    def sums(self) -> Sums:
        return Sums(self.change, self.total, self.held)


@dataclass(frozen=True)
class RankTask:
    """The rank that workers compute. `graph` is a folder that all workers can read, `digest` that of its manifest.

    `paid` is a file with the payments of the virtual page, and `start` one with the start of the iteration: vectors
    that sum to 1. Without `paid` payments are uniform; without `start` the iteration starts from the payments.
    """

    graph: str
    digest: str
    kind: RankKind
    damping: float
    paid: str = ""
    start: str = ""


# -- the core: functions of a graph and of parts


def first_part(graph: StoredGraph, task: RankTask, slice_: int) -> RankPart:
    """Return the part of a slice before the first iteration."""
    first, end = graph.bounds(slice_)
    values = np.empty(end - first)
    scans.begin(_stored(task.start or task.paid, graph, first, end), 1.0 / graph.pages, 1.0, values)
    return RankPart(slice_, values, *measure(values, values, 1.0, 1.0, paying_weights(graph, task.kind)[first:end]))


def next_part(graph: StoredGraph, task: RankTask, slice_: int, pieces: Iterable[RankPart]) -> RankPart:
    """Compute the part of a slice after an iteration from these parts: all pieces of each slice, whole for this one."""
    by_slice: list[dict[int, RankPart]] = [{} for _ in range(graph.slices)]
    for piece in pieces:
        by_slice[piece.slice_][piece.at] = piece
    parts = [[one[at] for at in sorted(one)] for one in by_slice]
    scale = add_sums(part[0].sums for part in parts).scale(task.damping)
    first, end = graph.bounds(slice_)
    weights, values = paying_weights(graph, task.kind), np.empty(end - first)
    scans.begin(_stored(task.paid, graph, first, end), 1.0 / graph.pages, 1.0 - task.damping, values)
    receive = _from_sources if task.kind == "importance" else _from_targets
    receive(graph, slice_, parts, task.damping * scale, weights, values)
    assert parts[slice_][0].whole
    before = _joined(parts[slice_], weights[first:end])
    return RankPart(slice_, values, *measure(values, before, 1.0, scale, weights[first:end]))


def sent_part(graph: StoredGraph, task: RankTask, part: RankPart) -> RankPart:
    """Return a part as other slices need it, without pages that pay nothing: in a crawl most pages are unread."""
    first, end = graph.bounds(part.slice_)
    return part._replace(values=part.values[paying_weights(graph, task.kind)[first:end] != 0], whole=False)


def pieces_of(part: RankPart) -> list[RankPart]:
    """Divide a part into pieces, at least one."""
    most = _PAGES_OF_A_PIECE
    return [part._replace(values=part.values[at : at + most], at=at) for at in range(0, len(part.values) or 1, most)]


def _from_sources(
    graph: StoredGraph, slice_: int, parts: list[list[RankPart]], factor: float, weights: Ints, values: Floats
) -> None:
    """Add to `values` the payments of pages that link to the slice: `factor` times their own values, by weight."""
    at = -1
    for block in graph.blocks(slice_):  # all of its sources are in one slice
        if at != block.first // graph.slice_pages:
            at = block.first // graph.slice_pages
            first, end = graph.bounds(at)
            own = _joined(parts[at], weights[first:end])
        scans.spread(
            *block.links, own[block.first - first : block.end - first], weights[block.first : block.end], factor, values
        )


def _from_targets(
    graph: StoredGraph, slice_: int, parts: list[list[RankPart]], factor: float, weights: Ints, values: Floats
) -> None:
    """Add to `values` the payments of pages that the slice links to."""
    here = graph.bounds(slice_)[0]
    for other, part in enumerate(parts):
        first, end = graph.bounds(other)
        own = _joined(part, weights[first:end])
        scans.shares_of(own, weights[first:end], factor, own)
        for block in graph.blocks(other, graph.ranges_in(slice_)):
            scans.collect(*block.links, own, values[block.first - here : block.end - here])


def _joined(pieces: list[RankPart], weights: Ints) -> Floats:
    """Return the value of each page of a slice from its pieces, 0 for omitted pages."""
    values = np.concatenate([piece.values for piece in pieces])
    pay = weights != 0
    assert len(values) == (len(weights) if pieces[0].whole else np.count_nonzero(pay)), "a piece is missing"
    if pieces[0].whole:
        return values
    own = np.zeros(len(weights))
    own[pay] = values
    return own


def _stored(file: str, graph: StoredGraph, first: int, end: int) -> Floats:
    """Read the pages `first` to `end` of a file of all pages; empty without a file."""
    if not file:
        return NOTHING
    try:
        stored = np.load(file, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        raise GraphRefused(f"{file}: missing or damaged: the folder must be one that all workers see") from None
    if stored.shape != (graph.pages,) or stored.dtype != np.float64:
        raise GraphRefused(f"{file}: missing or damaged: remove it, and run again")
    return np.array(stored[first:end])


# -- parts as bytes, and in files


def pack_part(part: RankPart) -> bytes:
    """Encode a part, with a checksum."""
    values = part._asdict()
    return pack(_KIND, values, {"values": values.pop("values")})


def unpack_part(data: bytes) -> RankPart:
    """Decode a part; its values are read-only."""
    found = unpack(data)
    return RankPart(values=found.columns["values"], **found.values)


def digest_of_graph(graph: StoredGraph) -> str:
    """Return a digest of a graph: its manifest holds a digest of every file."""
    return xxhash.xxh64_hexdigest(json.dumps(graph.manifest, sort_keys=True).encode())


def part_file(folder: Path, slice_: int) -> Path:
    return folder / f"{slice_:05}.part"


def sums_file(folder: Path, slice_: int) -> Path:
    """Return the file of a part's sums: written last, so that the part exists if it does."""
    return folder / f"{slice_:05}.json"


def save_part(folder: Path, data: bytes) -> None:
    """Write a part and its sums, each atomically. Of a refusal only the reason is written.

    A refusal never replaces a saved part: the job of a killed run may still run when its input is removed.
    """
    part = unpack_part(data)
    if part.refused and sums_file(folder, part.slice_).exists():
        return
    saved = SavedPart(refused=part.refused)
    if not part.refused:
        saved = SavedPart(*part.sums, xxhash.xxh64_hexdigest(data))
        with whole_file(part_file(folder, part.slice_)) as file:
            file.write(data)
    with whole_file(sums_file(folder, part.slice_)) as file:
        file.write(json.dumps(saved._asdict()).encode())


def read_part(folder: Path, slice_: int, digest: str) -> bytes:
    """Read a saved part; refuse one whose digest is another."""
    path = part_file(folder, slice_)
    try:
        data = path.read_bytes()
    except OSError:
        raise GraphRefused(f"{path}: missing: the folder must be one that all workers see") from None
    if xxhash.xxh64_hexdigest(data) != digest:
        raise GraphRefused(f"{path}: damaged since it was written: remove {folder.parent}, and run again")
    return data


# -- the shell


class ReadParts(beam.DoFn):
    """Read parts: slices in, each with the digest of its saved part, or none; parts out."""

    def __init__(self, task: RankTask, folder: str) -> None:
        """`folder` holds the parts that the last job saved."""
        self._task = task
        self._folder = folder

    def process(self, element: tuple[int, str]) -> Iterator[tuple[int, bytes]]:
        """Read a part, or compute the first one."""
        slice_, digest = element
        try:
            if digest:
                yield slice_, read_part(Path(self._folder), slice_, digest)
            else:
                yield slice_, pack_part(first_part(open_graph(self._task), self._task, slice_))
        except GraphRefused as problem:
            yield slice_, _refusal(slice_, problem)


class SpreadParts(beam.DoFn):
    """Send parts to slices: parts in; their pieces out, keyed by every slice that reads them."""

    def __init__(self, task: RankTask, slices: int) -> None:
        """`slices` is the number of slices of the graph."""
        self._task = task
        self._slices = slices

    def process(self, element: tuple[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Send a part to all slices."""
        slice_, data = element
        try:
            part = unpack_part(data)
            sent = part if part.refused else sent_part(open_graph(self._task), self._task, part)
        except GraphRefused as problem:
            part = sent = RankPart(slice_, NOTHING, refused=str(problem))
        for piece in pieces_of(part):
            yield slice_, pack_part(piece)
        for piece in pieces_of(sent):
            data = pack_part(piece)
            for other in range(self._slices):
                if other != slice_:
                    yield other, data


class ComputeParts(beam.DoFn):
    """Compute parts: the pieces of all parts in, keyed by the slice that reads them; its new part out."""

    def __init__(self, task: RankTask) -> None:
        """The graph is opened by the worker."""
        self._task = task

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[tuple[int, bytes]]:
        """Compute one part."""
        slice_, sent = element
        try:
            pieces = [unpack_part(data) for data in sent]
            refused = min((piece.refused for piece in pieces if piece.refused), default="")
            if refused:
                raise GraphRefused(refused)
            yield slice_, pack_part(next_part(open_graph(self._task), self._task, slice_, pieces))
        except (GraphRefused, ColumnsRefused) as problem:
            yield slice_, _refusal(slice_, problem)


class SaveParts(beam.DoFn):
    """Save parts: parts in, files out. A part that is saved twice gives the same files."""

    def __init__(self, folder: str) -> None:
        """`folder` exists, and all workers see it."""
        self._folder = folder

    def process(self, element: tuple[int, bytes]) -> None:
        """Write one part; or the reason why it cannot be written, if at least that can be."""
        slice_, data = element
        try:
            save_part(Path(self._folder), data)
        except OSError as problem:
            why = GraphRefused(
                f"{part_file(Path(self._folder), slice_)}: {problem.strerror}: solve this, and run again"
            )
            with suppress(OSError):
                save_part(Path(self._folder), _refusal(slice_, why))


def _refusal(slice_: int, problem: Exception) -> bytes:
    return pack_part(RankPart(slice_, NOTHING, refused=str(problem)))


class _Opened(threading.local):
    """The graph that a thread of a worker opened last. A graph has one set of decode buffers: one thread each."""

    task: RankTask | None = None
    graph: StoredGraph | None = None


_OPENED = _Opened()


def open_graph(task: RankTask) -> StoredGraph:
    """Return the graph of a task, kept open for this thread; refuse another graph than the task was made for."""
    if _OPENED.graph is None or _OPENED.task != task:
        graph = StoredGraph(Path(task.graph))
        if digest_of_graph(graph) != task.digest:
            raise GraphRefused(
                f"{task.graph}: another graph than the one the ranks were started with: give all workers the same"
            )
        _OPENED.graph, _OPENED.task = graph, task
    return _OPENED.graph
