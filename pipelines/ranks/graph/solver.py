"""Ranks of a graph on disk, any number at once in a scan of its links (thesis, 2.2 to 2.3.4).

*Importance* moves forward along links, *interest* backward: the same equations on the inverse graph, from the same
slices. With M what pages pay along their links (a column of a dangling page is 0) and v the personalisation,

    y = d M y + (1 - d) v,     x = y / |y|

is the rank of a web where dangling pages pay all pages as the virtual page does, `"teleport"`, as in oracle.py: what
they lose only changes the sum. So each slice is computed from the others alone, in any order: Gauss-Seidel over slices
(2.3.3) needs no norm. And there is a proven bound of the residual. One sweep
moves a vector from y to y'; then |d M y' + (1 - d) v - y'| is at most d |y' - y|, in L1, in Jacobi's order and in
Gauss-Seidel's: a change after a slice was computed moves that slice by d times the change at most. Before a sweep y is
scaled such that the sum of the residual is 0; otherwise the sum alone would take hundreds of sweeps to converge where
pages dangle.

`"normalise"` is eq. 2.6 to 2.8 and not linear: only Jacobi's order computes the residual of the result.

Interest, on slices that are cut by targets: each slice pays its values, and every source collects. No source is
complete before the last slice, so its order is always Jacobi's.

*Interest as printed*: the thesis prints its inverse PageRank twice, and neither is that of the inverse graph. By the
matrix M^out of 2.2, `"interest-mean"`, a page has the mean of the pages that it links to; by the loop of 2.3.1,
`"interest-sum"`, each such page passes on its value divided by the number of its own links, to every page that links to
it. Both are iterated by eq. 2.6 from the personalisation, whatever dangling pages do elsewhere.

*Hubs and authorities* are Kleinberg's: a = K' h, h = K a, for both a slice is read twice while it is in memory.

*Eigenvectors* have no small edges (paper 002, 1): a page gets the whole value of every page that points to it, x = L' x
scaled to a sum of 1, or x = (L' + I) x, as if every page pointed to itself as well (`eigenvector-loops`). Where
iterations reach them, and where not: docs/decisions/ranks.md.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import xxhash

from opicflow.pipelines.ranks.graph import scans
from opicflow.pipelines.ranks.graph.store import GraphRefused, LinkBlock, StoredGraph, new_file, pieces, write_whole
from opicflow.schemas.arrays import Array, Floats, Ints
from opicflow.schemas.event_columns import ORDINARY_WEIGHT

RankKind = Literal[
    "importance", "interest", "interest-mean", "interest-sum", "hubs", "eigenvector", "eigenvector-loops"
]
"""`hubs` are hubs and authorities: two ranks, found together."""

State: TypeAlias = "dict[str, object]"
"""Everything that an interrupted rank continues from, but its vectors: plain values."""

HUBS, AUTHORITIES = "hubs", "authorities"
EIGENVECTORS = ("eigenvector", "eigenvector-loops")
_NOTHING = np.empty(0)
_STATE = "ranks.json"
_ROUNDINGS = 1e-12
_ORDINARY_WEIGHT = 1024.0
_MOST_FRUITLESS_SWEEPS = 20
"""After so many sweeps without a smaller residual, the rest is rounding."""


@dataclass(frozen=True, eq=False)
class RankRequest:
    """A rank to compute: its name, and what the virtual page pays each page, in any unit; uniform if `paid` is None.

    `start` is the vector that the iteration starts from.
    """

    name: str
    kind: RankKind
    paid: Floats | None = None
    start: Floats | None = None


@dataclass(frozen=True)
class Settings:
    """How ranks are computed. `tolerance` is of the residual |f(x) - x| in L1, f being one step."""

    damping: float = 0.85
    tolerance: float = 1e-9
    max_iterations: int = 1000
    dangling: Literal["teleport", "normalise"] = "teleport"
    gauss_seidel: bool = False

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if not 0.0 <= self.damping < 1.0:
            raise GraphRefused(f"damping is {self.damping}: give a number from 0 to below 1")
        if not self.tolerance > 0.0:
            raise GraphRefused(f"tolerance is {self.tolerance}: give a number above 0")
        if self.max_iterations < 1:
            raise GraphRefused(f"iterations: {self.max_iterations} are too few: give 1 at least")
        if self.gauss_seidel and self.dangling != "teleport":
            raise GraphRefused("gauss-seidel: it goes with dangling teleport: omit one")


@dataclass(frozen=True, eq=False)
class Rank:
    """The rank of every page; the values sum to 1.

    `residual` is |f(x) - x| in L1, or a bound for it. `error` bounds the distance from the true rank in L1; it is None
    with `"normalise"`, and for ranks without small edges, which have no such bound.
    """

    name: str
    values: Floats
    residual: float
    error: float | None
    iterations: int
    converged: bool


class Vectors:
    """Storage of vectors: in memory, or in a folder, from which an interrupted computation continues."""

    def __init__(self, pages: int, folder: Path | None = None) -> None:
        self.pages, self.folder = pages, folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, name: str, keep: bool) -> Floats:
        """Return a vector by name: with its stored values if there are any and `keep` is set, otherwise 0."""
        if self.folder is None:
            return np.zeros(self.pages)
        path = self.folder / f"{name}.f64"
        if not (keep and path.exists() and path.stat().st_size == 8 * self.pages):
            with new_file(path) as file:
                file.truncate(8 * self.pages)
        return np.memmap(path, np.float64, mode="r+")


class _Sums(NamedTuple):
    """Sums of a vector: its L1 distance from the previous one, its sum, the sum over dangling pages."""

    change: float
    total: float
    held: float

    def scale(self, damping: float) -> float:
        """Return the factor for this vector that makes the residual of the next one sum to 0, with "teleport"."""
        return (1.0 - damping) / (self.total - damping * (self.total - self.held))

    def residual_bound(self, damping: float) -> float:
        """Return a bound of |f(x) - x| in L1, x being this vector scaled to sum 1, with "teleport"."""
        return 2.0 * damping * self.change / self.total


class _Iteration(ABC):
    """The computation of one rank: it receives every block of links in every scan."""

    reads_twice = False

    def __init__(
        self, graph: StoredGraph, wanted: RankRequest, settings: Settings, vectors: Vectors, state: State | None
    ) -> None:
        self.graph, self.wanted, self.settings = graph, wanted, settings
        self.iterations, self.done, self.residual = 0, False, float("inf")
        self.best, self.best_at = float("inf"), 0
        self.sides = [vectors(f"{wanted.name}-{side}", state is not None) for side in "ab"]
        self.side = 0
        self.uniform = 1.0 / graph.pages
        self.paid = _NOTHING if wanted.paid is None else _distribution(f"{wanted.name}: personalisation", wanted.paid)
        self.first = self.end = 0
        self.buffer = np.empty(graph.slice_pages)
        if state is not None:
            self._load(state)

    @property
    def now(self) -> Floats:
        """The vector that a sweep starts from."""
        return self.sides[self.side]

    @property
    def next(self) -> Floats:
        """The vector that a sweep makes."""
        return self.sides[1 - self.side]

    @property
    def goes_on(self) -> bool:
        """Whether another sweep may bring the rank nearer."""
        stuck = self.iterations - self.best_at >= _MOST_FRUITLESS_SWEEPS
        return not (self.done or (stuck and self.ends_when_stuck) or self.iterations >= self.settings.max_iterations)

    @property
    def ends_when_stuck(self) -> bool:
        """Whether sweeps that do not reduce the residual show that it consists of rounding errors."""
        return True

    def note_residual(self) -> None:
        """Remember the smallest residual, and the sweep that reached it."""
        if self.residual < self.best:
            self.best, self.best_at = self.residual, self.iterations

    def begin_scan(self) -> None:  # noqa: B027 - most iterations do nothing here
        """Called before all slices."""

    @abstractmethod
    def begin_slice(self, slice_: int) -> None:
        """Called before the links of a slice."""
        self.first, self.end = self.graph.bounds(slice_)

    @abstractmethod
    def block(self, block: LinkBlock) -> None:
        """Called with links of the slice."""

    def begin_second(self) -> None:  # noqa: B027 - most iterations do nothing here
        """Called before the links of a slice are read a second time."""

    def block_again(self, block: LinkBlock) -> None:  # noqa: B027 - most iterations do nothing here
        """Called with links of the slice, read a second time."""

    def end_slice(self) -> None:  # noqa: B027 - most iterations do nothing here
        """Called after the links of a slice."""

    @abstractmethod
    def end_scan(self) -> None:
        """Called after all slices: update the residual and `done`."""

    def finish(self) -> None:
        """Scale the result, after the last scan and before its state is written: no older state names this vector."""
        _normalise(self.now)

    @abstractmethod
    def ranks(self) -> list[Rank]:
        """Return the computed ranks."""

    def state(self) -> State:
        """Return everything but the vectors, as plain values: what an interrupted computation continues from."""
        kept = {name: getattr(self, name) for name in self._stored_names()}
        return {**kept, "digests": [_digest_of(vector) for vector in self._vectors()]}

    def _stored_names(self) -> list[str]:
        return ["iterations", "done", "residual", "side", "best", "best_at"]

    def _vectors(self) -> list[Floats]:
        return [self.now]

    def _load(self, state: State) -> None:
        for name in self._stored_names():
            setattr(self, name, state[name])

    def _slice(self, vector: Array) -> Array:
        return vector[self.first : self.end]

    def _paid(self, first: int, end: int) -> Floats:
        return self.paid[first:end] if len(self.paid) else _NOTHING


class _Linear(_Iteration):
    """The common part of importance and interest, in Jacobi's order: sums, scales, and when to stop."""

    def __init__(
        self, graph: StoredGraph, wanted: RankRequest, settings: Settings, vectors: Vectors, state: State | None
    ) -> None:
        self.sums = graph.in_weights if wanted.kind == "interest" else graph.out_weights
        self.teleports = settings.dangling == "teleport" and wanted.kind in ("importance", "interest")
        self.scale = self.scale_next = 1.0
        self.total = self.held = 0.0
        self.in_order = settings.gauss_seidel and wanted.kind == "importance"  # each slice uses those before it
        super().__init__(graph, wanted, settings, vectors, state)
        self.constant = 1.0 - settings.damping
        if state is None:
            self._begin()

    def _begin(self) -> None:
        if self.wanted.start is not None:
            self.now[:] = _distribution(f"{self.wanted.name}: start", self.wanted.start)
        else:
            for first, end in pieces(self.graph.pages):
                scans.begin(self._paid(first, end), self.uniform, 1.0, self.now[first:end])
        _, self.total, self.held = _measure(self.now, self.now, 1.0, 1.0, self.sums)
        self._set_scales()

    def _stored_names(self) -> list[str]:
        return [*super()._stored_names(), "scale", "scale_next", "total", "held"]

    def end_scan(self) -> None:
        self.iterations += 1
        damping, tolerance = self.settings.damping, self.settings.tolerance
        if self.teleports:
            swept = _measure(self.next, self.now, 1.0, self.scale, self.sums)
            self.residual = swept.residual_bound(damping)
            self.done = self.residual <= tolerance
        else:
            swept = _measure(self.next, self.next, 1.0, 1.0, self.sums)
            if swept.total == 0.0:
                raise GraphRefused(f"{self.wanted.name}: all rank is lost at dangling pages: nothing is left to share")
            change = _measure(self.next, self.now, 1.0 / swept.total, 1.0 / self.total, self.sums).change
            self.residual = change  # of the vector that the sweep started from
            if change <= tolerance:
                self.done = True
                self.next[:] = self.now
        self.total, self.held = swept.total, swept.held
        self.side = 1 - self.side
        self._set_scales()

    def _set_scales(self) -> None:
        """Set the factors of the old vector, and of slices that are computed already."""
        damping, total, held = self.settings.damping, self.total, self.held
        if self.teleports:
            self.scale, self.scale_next = _Sums(0.0, total, held).scale(damping), 1.0
        else:
            self.scale, self.scale_next = 1.0 / total, 1.0 / (1.0 - damping * held / total)

    def ranks(self) -> list[Rank]:
        bound = self.residual / (1.0 - self.settings.damping) if self.teleports else None
        return [Rank(self.wanted.name, self.now, self.residual, bound, self.iterations, self.done)]


class _Importance(_Linear):
    """Pages pay along links: the slice is written, sources are read in their order."""

    def begin_slice(self, slice_: int) -> None:
        super().begin_slice(slice_)
        size = self.end - self.first
        scans.begin(self._paid(self.first, self.end), self.uniform, self.constant, self.buffer[:size])

    def block(self, block: LinkBlock) -> None:
        is_new = self.in_order and block.end <= self.first
        own = (self.next if is_new else self.now)[block.first : block.end]
        factor = self.settings.damping * (self.scale_next if is_new else self.scale)
        scans.spread(*block.links, own, self.sums[block.first : block.end], factor, self.buffer)

    def end_slice(self) -> None:
        self.next[self.first : self.end] = self.buffer[: self.end - self.first]


class _Interest(_Linear):
    """Pages pay against links: the shares of the slice are read, sources are written in their order."""

    def begin_scan(self) -> None:
        for first, end in pieces(self.graph.pages):
            scans.begin(self._paid(first, end), self.uniform, self.constant, self.next[first:end])

    def begin_slice(self, slice_: int) -> None:
        super().begin_slice(slice_)
        scans.shares_of(self._slice(self.now), self._slice(self.sums), self.settings.damping * self.scale, self.buffer)

    def block(self, block: LinkBlock) -> None:
        scans.collect(*block.links, self.buffer, self.next[block.first : block.end])


class _PrintedInterest(_Interest):
    """The interest of thesis 2.2, `"interest-mean"`, or 2.3.1, `"interest-sum"`."""

    @property
    def is_mean(self) -> bool:
        return self.wanted.kind == "interest-mean"

    def begin_scan(self) -> None:
        if self.is_mean:
            self.next[:] = 0.0
        else:
            super().begin_scan()

    def begin_slice(self, slice_: int) -> None:
        _Iteration.begin_slice(self, slice_)
        own, sums, factor = self._slice(self.now), self._slice(self.sums), self.settings.damping * self.scale
        if self.is_mean:
            np.multiply(own, factor, out=self.buffer[: len(own)])
        else:  # a page without links, by which the thesis divides, counts as one with a single link
            scans.shares_of(own, np.where(sums == 0, ORDINARY_WEIGHT, sums), factor, self.buffer)

    def end_scan(self) -> None:
        for first, end in pieces(self.graph.pages) if self.is_mean else ():
            paid = np.empty(end - first)
            scans.begin(self._paid(first, end), self.uniform, self.constant, paid)
            self.next[first:end] = self.next[first:end] / np.maximum(self.sums[first:end], 1) + paid
        super().end_scan()

    @property
    def ends_when_stuck(self) -> bool:
        """Only near the precision of doubles: nothing bounds how fast these residuals fall."""
        return self.residual <= _ROUNDINGS


class _WithoutSmallEdges(_Iteration):
    """Whole values move along links, and the vector is scaled to a sum of 1 after every scan."""

    def __init__(
        self, graph: StoredGraph, wanted: RankRequest, settings: Settings, vectors: Vectors, state: State | None
    ) -> None:
        super().__init__(graph, wanted, settings, vectors, state)
        if graph.links == 0:
            raise GraphRefused(f"{graph.path}: it has no links, and without links no {wanted.name}")
        if state is None:
            start = wanted.start
            self.now[:] = self.uniform if start is None else _distribution(f"{wanted.name}: start", start)

    def end_scan(self) -> None:
        self.iterations += 1
        if not self.next.max() > 0.0:
            raise GraphRefused(
                f"{self.wanted.name}: nothing is left after {self.iterations} steps, because no links lead in a "
                "circle: request eigenvector-loops or importance"
            )
        _normalise(self.next)
        self.residual = sum(
            float(np.abs(self.next[first:end] - self.now[first:end]).sum()) for first, end in pieces(self.graph.pages)
        )
        self.done = self.residual <= self.settings.tolerance
        self.side = 1 - self.side

    @property
    def ends_when_stuck(self) -> bool:
        """Only near the precision of doubles: where one part of a graph slowly outgrows another, residuals rise."""
        return self.residual <= _ROUNDINGS

    def ranks(self) -> list[Rank]:
        return [Rank(self.wanted.name, self.now, self.residual, None, self.iterations, self.done)]


class _Eigenvector(_WithoutSmallEdges):
    """Pages get the values of all pages that point to them, with loops also their own."""

    def begin_slice(self, slice_: int) -> None:
        super().begin_slice(slice_)
        own = self._slice(self.now) if self.wanted.kind == "eigenvector-loops" else 0.0
        self.buffer[: self.end - self.first] = own

    def block(self, block: LinkBlock) -> None:
        scans.give(*block.links, self.now[block.first : block.end], self.buffer)

    def end_slice(self) -> None:
        self.next[self.first : self.end] = self.buffer[: self.end - self.first]


class _Hubs(_WithoutSmallEdges):
    """Hubs and authorities."""

    reads_twice = True

    def __init__(
        self, graph: StoredGraph, wanted: RankRequest, settings: Settings, vectors: Vectors, state: State | None
    ) -> None:
        super().__init__(graph, wanted, settings, vectors, state)
        self.authorities = vectors(f"{wanted.name}-authorities", state is not None)

    def _vectors(self) -> list[Floats]:
        return [self.now] if self.goes_on else [self.now, self.authorities]  # every scan computes all authorities again

    def begin_scan(self) -> None:
        self.next[:] = 0.0

    def begin_slice(self, slice_: int) -> None:
        super().begin_slice(slice_)
        self.buffer[:] = 0.0

    def block(self, block: LinkBlock) -> None:
        scans.give(*block.links, self.now[block.first : block.end], self.buffer)

    def begin_second(self) -> None:
        self.authorities[self.first : self.end] = self.buffer[: self.end - self.first]
        self.buffer /= _ORDINARY_WEIGHT

    def block_again(self, block: LinkBlock) -> None:
        scans.collect(*block.links, self.buffer, self.next[block.first : block.end])

    def finish(self) -> None:
        super().finish()
        _normalise(self.authorities)

    def ranks(self) -> list[Rank]:
        found = (self.residual, None, self.iterations, self.done)
        return [Rank(HUBS, self.now, *found), Rank(AUTHORITIES, self.authorities, *found)]


def _measure(new: Floats, old: Floats, scale_new: float, scale_old: float, weights: Ints) -> _Sums:
    """Measure `scale_new * new` against `scale_old * old`; pages whose `weights` are 0 are dangling."""
    out = np.zeros(3)
    for first, end in pieces(len(new)):
        scans.measure(new[first:end], old[first:end], scale_new, scale_old, weights[first:end], out)
    return _Sums(*out.tolist())


def _distribution(name: str, given: Floats) -> Floats:
    """Return the vector scaled to sum 1; refuse one that cannot be."""
    if not (np.isfinite(given).all() and (given >= 0.0).all() and given.max(initial=0.0) > 0.0):
        raise GraphRefused(f"{name}: it must hold finite numbers that are not negative, and not only 0")
    scaled = given / given.max()  # so that no sum overflows
    found: Floats = scaled / scaled.sum()
    return found


def _normalise(vector: Floats) -> None:
    """Scale a vector to sum 1, in place."""
    largest = float(vector.max())
    if not largest > 0.0:
        raise GraphRefused("nothing is left of a rank: it is 0 for every page")
    vector /= largest  # so that no sum overflows
    vector /= float(vector.sum())


def _digest_of(vector: Floats) -> str:
    return xxhash.xxh64_hexdigest(np.ascontiguousarray(vector).data)


def memory_bytes(graph: StoredGraph, wanted: Sequence[RankRequest]) -> int:
    """Return the memory that these ranks need in one scan, links not counted."""
    return 8 * graph.slice_pages * len(wanted)


def solve(
    graph: StoredGraph,
    wanted: Sequence[RankRequest],
    settings: Settings,
    vectors: Vectors | None = None,
    identity: str = "",
    after_scan: Callable[[int, dict[str, float]], None] = lambda scan, residuals: None,
) -> list[Rank]:
    """Compute ranks, each to the tolerance, all in the same scans; a finished one takes no part in later scans.

    With vectors in a folder, an interrupted computation continues with the scan it was in, and ends with the same
    bytes; `identity` names its input. `after_scan` is called with the number of scans so far, and the residuals.
    """
    vectors = vectors or Vectors(graph.pages)
    states = _read_states(vectors, identity, [one.name for one in wanted])
    under_way = [_iteration_of(one)(graph, one, settings, vectors, states.get(one.name)) for one in wanted]
    for one in under_way:
        stored = states.get(one.wanted.name)
        if stored is not None and one.state()["digests"] != stored["digests"]:
            raise GraphRefused(f"{vectors.folder}: damaged since the ranks were interrupted: remove it, and run again")
    scan = max((one.iterations for one in under_way), default=0)
    while running := [one for one in under_way if one.goes_on]:
        scan += 1
        _scan(graph, running)
        for one in running:
            if not one.goes_on:
                one.finish()
        _write_states(vectors, identity, {one.wanted.name: one.state() for one in under_way})
        after_scan(scan, {one.wanted.name: one.residual for one in running})
    return [rank for one in under_way for rank in one.ranks()]


def _iteration_of(wanted: RankRequest) -> type[_Iteration]:
    if wanted.kind == "hubs":
        return _Hubs
    if wanted.kind in EIGENVECTORS:
        return _Eigenvector
    if wanted.kind == "importance":
        return _Importance
    return _Interest if wanted.kind == "interest" else _PrintedInterest


def _scan(graph: StoredGraph, running: Sequence[_Iteration]) -> None:
    """Read all links once; those of a slice twice, while they are in memory, if an iteration needs it."""
    for one in running:
        one.begin_scan()
    again = [one for one in running if one.reads_twice]
    for slice_ in range(graph.slices):
        for one in running:
            one.begin_slice(slice_)
        for block in graph.blocks(slice_):
            for one in running:
                one.block(block)
        for one in again:
            one.begin_second()
        for block in graph.blocks(slice_) if again else ():
            for one in again:
                one.block_again(block)
        for one in running:
            one.end_slice()
    for one in running:
        one.end_scan()
        one.note_residual()


def _read_states(vectors: Vectors, identity: str, names: Sequence[str]) -> dict[str, State]:
    """Read the states of interrupted ranks; empty if there are none, or those of another input."""
    if vectors.folder is None:
        return {}
    try:
        stored = json.loads((vectors.folder / _STATE).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    if stored["identity"] != identity or list(stored["ranks"]) != list(names):
        return {}
    ranks: dict[str, State] = stored["ranks"]
    return ranks


def _write_states(vectors: Vectors, identity: str, states: dict[str, State]) -> None:
    """Write the states of ranks, atomically."""
    if vectors.folder is None:
        return
    write_whole(vectors.folder / _STATE, json.dumps({"identity": identity, "ranks": states}).encode())
