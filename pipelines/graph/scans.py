"""What a scan of the links does with a block, and a step with a slice: the kernels of the ranks on disk."""

from __future__ import annotations

from typing import Any

from opicflow.schemas.kernel import lean_kernel


@lean_kernel
def spread(sources: Any, starts: Any, targets: Any, weights: Any, own: Any, sums: Any, factor: Any, to: Any) -> None:
    """Each source pays `factor` times what it has to its targets, by weight. `sums` are the weights of all its links.

    `own` and `sums` are those of the block's range of sources, `to` of the slice.
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
    """Each source receives what its targets pay for a unit of weight: the links the other way round."""
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
    """Each source gives what it has to every target, times the weight of the link: Kleinberg's K, not normalised."""
    ordinary = weights.shape[0] == 0
    for row in range(sources.shape[0]):
        given = own[sources[row]]
        for link in range(starts[row], starts[row + 1]):
            to[targets[link]] += given if ordinary else given * weights[link] / 1024.0


@lean_kernel
def begin(paid: Any, uniform: Any, constant: Any, to: Any) -> None:
    """What the virtual page pays: `constant` times `paid`, or times `uniform` where `paid` is empty."""
    for page in range(to.shape[0]):
        to[page] = constant * (paid[page] if paid.shape[0] > 0 else uniform)


@lean_kernel
def measure(new: Any, old: Any, scale_new: Any, scale_old: Any, sums: Any, out: Any) -> None:
    """Add to `out`: the L1 distance of both vectors, each times its scale; the sum of the new one; what of it is held.

    Held is what lies on pages whose links weigh nothing together.
    """
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
    """What each page pays for a unit of weight; nothing where there is none."""
    for page in range(own.shape[0]):
        to[page] = 0.0 if sums[page] == 0 else factor * own[page] / sums[page]


@lean_kernel
def take_residual(residual: Any, own: Any, taken: Any) -> None:
    """Add the residual to what the pages have; it is 0 afterwards, and in `taken`."""
    for page in range(own.shape[0]):
        taken[page] = residual[page]
        own[page] += residual[page]
        residual[page] = 0.0


@lean_kernel
def rescale(
    own: Any, residual: Any, new_own: Any, new_residual: Any, scale: Any, constant: Any, paid: Any, uniform: Any
) -> None:
    """Scale a vector, and with it the residual, damping M x + constant v - x, of which v stays as it is."""
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
