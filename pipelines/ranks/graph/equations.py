"""Equations that all solvers of ranks on disk share: sums of a vector, its scale, bounds of the residual.

solver.py derives them. One process, worker processes and Beam jobs all compute with these functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import xxhash

from opicflow.pipelines.ranks.graph import scans
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph
from opicflow.schemas.arrays import Floats, Ints

RankKind = Literal["importance", "interest", "hubs"]
"""`hubs` are hubs and authorities: two ranks, found together."""

NOTHING = np.empty(0)
_PAGES_AT_ONCE = 1 << 16


class Sums(NamedTuple):
    """Sums of a vector or of a part: its L1 distance from the previous one, its sum, the sum over dangling pages."""

    change: float = 0.0
    total: float = 0.0
    held: float = 0.0

    def scale(self, damping: float) -> float:
        """Return the factor for this vector that makes the residual of the next one sum to 0, with "teleport"."""
        return (1.0 - damping) / (self.total - damping * (self.total - self.held))

    def residual_bound(self, damping: float) -> float:
        """Return a bound of |f(x) - x| in L1, x being this vector scaled to sum 1, with "teleport"."""
        return 2.0 * damping * self.change / self.total


def add_sums(parts: Iterable[Sums]) -> Sums:
    """Add up the sums of the parts of a vector, in their order."""
    return Sums(*(sum(column) for column in zip(*parts, strict=True)))


def measure(new: Floats, old: Floats, scale_new: float, scale_old: float, weights: Ints) -> Sums:
    """Measure `scale_new * new` against `scale_old * old`; pages whose `weights` are 0 are dangling."""
    out = np.zeros(3)
    for first, end in pieces(len(new)):
        scans.measure(new[first:end], old[first:end], scale_new, scale_old, weights[first:end], out)
    return Sums(*out.tolist())


def pieces(pages: int) -> Iterator[tuple[int, int]]:
    """Return ranges of pages that are summed on their own: sums of sums lose fewer digits."""
    return ((first, min(first + _PAGES_AT_ONCE, pages)) for first in range(0, pages, _PAGES_AT_ONCE))


def paying_weights(graph: StoredGraph, kind: RankKind) -> Ints:
    """Return for each page the summed weights of the links that it pays along: 0 for a page that pays nothing."""
    return graph.out_weights if kind == "importance" else graph.in_weights


def distribution(name: str, given: Floats) -> Floats:
    """Return the vector scaled to sum 1; refuse one that cannot be."""
    if not (np.isfinite(given).all() and (given >= 0.0).all() and given.max(initial=0.0) > 0.0):
        raise GraphRefused(f"{name}: it must hold finite numbers that are not negative, and not only 0")
    scaled = given / given.max()  # so that no sum overflows
    found: Floats = scaled / scaled.sum()
    return found


def normalise(vector: Floats) -> None:
    """Scale a vector to sum 1, in place."""
    largest = float(vector.max())
    if not largest > 0.0:
        raise GraphRefused("nothing is left of a rank: it is 0 for every page")
    vector /= largest  # so that no sum overflows
    vector /= float(vector.sum())


def digest_of(vector: Floats) -> str:
    """Return a digest of the vector's bytes."""
    return xxhash.xxh64_hexdigest(np.ascontiguousarray(vector).data)
