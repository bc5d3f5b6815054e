"""Kernels of the ranks on disk: a scan of links applies them to blocks, a step to slices."""

from __future__ import annotations

from typing import Any

from opicflow.schemas.kernel import lean_kernel


@lean_kernel
def spread(sources: Any, starts: Any, targets: Any, weights: Any, own: Any, sums: Any, factor: Any, to: Any) -> None:
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
def collect(sources: Any, starts: Any, targets: Any, weights: Any, shares: Any, to: Any) -> None:
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
def give(sources: Any, starts: Any, targets: Any, weights: Any, own: Any, to: Any) -> None:
    """Add the value of each source to every target, times the weight of the link: Kleinberg's K, not normalised."""
    ordinary = weights.shape[0] == 0
    for row in range(sources.shape[0]):
        given = own[sources[row]]
        for link in range(starts[row], starts[row + 1]):
            to[targets[link]] += given if ordinary else given * weights[link] / 1024.0


@lean_kernel
def begin(paid: Any, uniform: Any, constant: Any, to: Any) -> None:
    """Set the payments of the virtual page: `constant` times `paid`, or times `uniform` if `paid` is empty."""
    for page in range(to.shape[0]):
        to[page] = constant * (paid[page] if paid.shape[0] > 0 else uniform)


@lean_kernel
def measure(new: Any, old: Any, scale_new: Any, scale_old: Any, sums: Any, out: Any) -> None:
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
def shares_of(own: Any, sums: Any, factor: Any, to: Any) -> None:
    """Compute the payment of each page per unit of weight; 0 for dangling pages."""
    for page in range(own.shape[0]):
        to[page] = 0.0 if sums[page] == 0 else factor * own[page] / sums[page]


@lean_kernel
def take_residual(residual: Any, own: Any, taken: Any) -> None:
    """Move the residual to the values, and to `taken`; it is 0 afterwards."""
    for page in range(own.shape[0]):
        taken[page] = residual[page]
        own[page] += residual[page]
        residual[page] = 0.0


@lean_kernel
def rescale(
    own: Any, residual: Any, new_own: Any, new_residual: Any, scale: Any, constant: Any, paid: Any, uniform: Any
) -> None:
    """Scale a vector and its residual, damping M x + constant v - x, in which v stays unscaled."""
    for page in range(own.shape[0]):
        start = constant * (paid[page] if paid.shape[0] > 0 else uniform)
        new_own[page] = scale * own[page]
        new_residual[page] = scale * (residual[page] - start) + start


@lean_kernel
def sums_of(own: Any, residual: Any, out: Any) -> None:
    """Add to `out`: the L1 norm of the residual, the sum of the vector, the sum of the residual."""
    norm, total, signed = 0.0, 0.0, 0.0
    for page in range(own.shape[0]):
        norm += abs(residual[page])
        total += own[page]
        signed += residual[page]
    out[0] += norm
    out[1] += total
    out[2] += signed
