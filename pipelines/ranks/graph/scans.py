"""Kernels of the ranks on disk: a scan of links applies them to blocks, a step to slices."""

from __future__ import annotations

from opicflow.pipelines.ranks.graph.csr import Int32s, LinkWeights
from opicflow.schemas.arrays import Floats, Ints
from opicflow.schemas.kernel import lean_kernel


@lean_kernel
def spread(
    sources: Int32s,
    starts: Int32s,
    targets: Int32s,
    weights: LinkWeights,
    own: Floats,
    sums: Ints,
    factor: float,
    to: Floats,
) -> None:
    """Pay `factor` times the value of each source to its targets, by weight.

    `sums` are the summed weights of each source's links. `own` and `sums` cover the block's range of sources, `to` the
    slice.
    """
    ordinary = weights.shape[0] == 0
    for row in range(sources.shape[0]):
        share = factor * own[sources[row]] / sums[sources[row]]
        if ordinary:
            share *= 1024.0
            for link in range(starts[row], starts[row + 1]):
                to[targets[link]] += share
        else:
            for link in range(starts[row], starts[row + 1]):
                to[targets[link]] += share * weights[link]


@lean_kernel
def collect(sources: Int32s, starts: Int32s, targets: Int32s, weights: LinkWeights, shares: Floats, to: Floats) -> None:
    """Add to each source the payments of its targets, by weight: links in the other direction."""
    ordinary = weights.shape[0] == 0
    for row in range(sources.shape[0]):
        total = 0.0
        if ordinary:
            for link in range(starts[row], starts[row + 1]):
                total += shares[targets[link]]
            total *= 1024.0
        else:
            for link in range(starts[row], starts[row + 1]):
                total += shares[targets[link]] * weights[link]
        to[sources[row]] += total


@lean_kernel
def give(sources: Int32s, starts: Int32s, targets: Int32s, weights: LinkWeights, own: Floats, to: Floats) -> None:
    """Add the value of each source to every target, times the weight of the link: Kleinberg's K, not normalised."""
    ordinary = weights.shape[0] == 0
    for row in range(sources.shape[0]):
        given = own[sources[row]]
        for link in range(starts[row], starts[row + 1]):
            to[targets[link]] += given if ordinary else given * weights[link] / 1024.0


@lean_kernel
def begin(paid: Floats, uniform: float, constant: float, to: Floats) -> None:
    """Set the payments of the virtual page: `constant` times `paid`, or times `uniform` if `paid` is empty."""
    for page in range(to.shape[0]):
        to[page] = constant * (paid[page] if paid.shape[0] > 0 else uniform)


@lean_kernel
def measure(new: Floats, old: Floats, scale_new: float, scale_old: float, sums: Ints, out: Floats) -> None:
    """Add to `out`: the L1 distance of both scaled vectors; the sum of the new one; its sum over dangling pages."""
    change, total, held = 0.0, 0.0, 0.0
    for page in range(new.shape[0]):
        change += abs(scale_new * new[page] - scale_old * old[page])
        total += new[page]
        if sums[page] == 0:
            held += new[page]
    out[0] += change
    out[1] += total
    out[2] += held


@lean_kernel
def shares_of(own: Floats, sums: Ints, factor: float, to: Floats) -> None:
    """Compute the payment of each page per unit of weight; 0 for dangling pages."""
    for page in range(own.shape[0]):
        to[page] = 0.0 if sums[page] == 0 else factor * own[page] / sums[page]
