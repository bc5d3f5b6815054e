"""Selections: which pages of the frontier to read next (paper 004, section 5). Each scores every page in O(F).

`influence` is the paper's own: how far the ranks of the local domain would move if the page were part of F, estimated
by one step of the power method over the stochastic complement (SC-Select, algorithm 3). `flows` are the payments that
the page would receive (PF-Select), `linkers` is the number of pages that link to it (OutlinkCount), `chance` is the
baseline (Random).

Two additions to the paper: links have weights (with equal weights nothing changes), and pages of F without links within
F pay all pages, as in the paper's implementation; such a page that links to candidate j no longer does so once j is
part of F. With D the rank of all pages without links within F, and D_j the same without the pages that link to j,
equations 15 to 18 become

    S f - f = x + y_j e + g_j z         y_j = (1 - a + a D_j) / (l + 1) - (1 - a + a D) / l
    g_j = a sum_k f_k u_k / (o_k + u_k) + (1 - a + a D_j) / (l + 1)
    z   = (a s + (1 - a) e / (l + 1)) / (1 - w)       w = (1 - a) / (l + 1)
    x_k' = -a sum_k f_k F_k'k u_k / (o_k (o_k + u_k))

which are the paper's where D = 0. s, the expected links of j, is proportional to the links of F: the paper's text
defines it so, while its formula (5) has F transposed, which would be the linkers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opicflow.pipelines.ranks.graph.community.expansion import LocalFrontier
from opicflow.schemas.arrays import Floats
from opicflow.schemas.kernel import kernel

Select = Callable[[LocalFrontier, Floats, int], Floats]
"""Scores the pages of a frontier by the ranks of F; the integer is the number of the round, from 1."""

_FEWEST_STEPS = 2


def influence(frontier: LocalFrontier, ranks: Floats, damping: float = 0.85, norm_steps: int | None = None) -> Floats:
    """Estimate by (11) how far each page would move the ranks of the local domain (7): SC-Select.

    The norms of y_j e + g_j z are exact, or from a table of `norm_steps` values as in algorithm 3.
    """
    if not 0.0 < damping < 1.0:
        raise ValueError(f"damping must be above 0 and below 1, not {damping}")
    if norm_steps is not None and norm_steps < _FEWEST_STEPS:
        raise ValueError(f"norm_steps must be {_FEWEST_STEPS} or more, not {norm_steps}")
    inside, count = frontier.links, frontier.links.pages
    if not len(frontier.pages):
        return np.empty(0)
    outs = inside.out_weights
    flow, freed = _flows(*frontier.linkers, ranks, outs)
    held = float(ranks[outs == 0].sum())
    everywhere = 1.0 - damping
    g = _received(flow, freed, held, count, damping)
    y = -(everywhere + damping * held) / (count * (count + 1.0)) - damping * freed / (count + 1)
    ins = np.bincount(inside.targets, inside.weights, minlength=count)
    expected = ins / ins.sum() if inside.links else np.full(count, 1.0 / count)
    z = (damping * expected + everywhere / (count + 1)) / (1.0 - everywhere / (count + 1))
    local = z[frontier.is_local]
    norms = _norms(y, g, local) if norm_steps is None else _norms_of_a_table(y, g, local, norm_steps)
    siblings = (inside.starts, inside.targets, inside.weights, outs)
    _add_siblings(*frontier.linkers, *siblings, frontier.is_local, ranks, damping, y, g, z, norms)
    return norms


def flows(frontier: LocalFrontier, ranks: Floats) -> Floats:
    """Return the payments that each page would receive along links: f'(D + diag(u))^-1 u, PF-Select (5.2.2)."""
    flow: Floats = _flows(*frontier.linkers, ranks, frontier.links.out_weights)[0]
    return flow


def expected_ranks(frontier: LocalFrontier, ranks: Floats, damping: float = 0.85) -> Floats:
    """Return the rank that each page itself would have as part of F: x_j of (6), from the payments to it."""
    if not len(frontier.pages):
        return np.empty(0)
    outs, count = frontier.links.out_weights, frontier.links.pages
    flow, freed = _flows(*frontier.linkers, ranks, outs)
    g = _received(flow, freed, float(ranks[outs == 0].sum()), count, damping)
    expected: Floats = g / (1.0 - (1.0 - damping) / (count + 1) + g)
    return expected


def linkers(frontier: LocalFrontier) -> Floats:
    """Return the number of pages of F that link to each page: OutlinkCount."""
    return np.diff(frontier.linkers[0]).astype(np.float64)


def chance(frontier: LocalFrontier, seed: int, round_: int) -> Floats:
    """Return random numbers, other ones in each round: Random."""
    return np.random.Generator(np.random.PCG64([seed, round_])).random(len(frontier.pages))


def _received(flow: Floats, freed: Floats, held: float, count: int, damping: float) -> Floats:
    """Return g_j: payments along links and to all pages. `freed` is D - D_j: rank that no longer goes to all pages."""
    received: Floats = damping * flow + (1.0 - damping + damping * (held - freed)) / (count + 1)
    return received


def _norms(y: Floats, g: Floats, z: Floats) -> Floats:
    """Return |y_j e + g_j z| in L1 for every j, exactly, given y_j < 0: in O(l log l), for sorting z once."""
    z = np.sort(z)
    sums = np.concatenate(([0.0], np.cumsum(z)))
    below = np.searchsorted(z, -y / g)
    norms: Floats = y * (len(z) - 2 * below) + g * (sums[-1] - 2.0 * sums[below])
    return norms


def _norms_of_a_table(y: Floats, g: Floats, z: Floats, steps: int) -> Floats:
    """Return the norms from a table of |Y e + a_i z| for uniform values of a_i: the nearest entry.

    Y is y of a page that has no linkers without links within F. Others are scaled: |y e + g z| is |Y e + (g Y / y) z|
    times y / Y.
    """
    shared = y.max()
    scale = y / shared
    wanted = g / scale
    low, high = float(wanted.min()), float(wanted.max())
    values = np.linspace(low, high, steps)
    # Entries of z below the threshold -Y / a_i count as negative; thresholds fall as a_i grows.
    bins = np.searchsorted((-shared / values)[::-1], z, side="right")
    counts = np.cumsum(np.bincount(bins, minlength=steps + 1))[:steps][::-1]
    sums = np.cumsum(np.bincount(bins, z, minlength=steps + 1))[:steps][::-1]
    table = shared * (len(z) - 2 * counts) + values * (z.sum() - 2.0 * sums)
    nearest = np.rint((wanted - low) * ((steps - 1) / max(high - low, 1e-300))).astype(np.int64)
    norms: Floats = scale * table[np.minimum(nearest, steps - 1)]
    return norms


@kernel
def _flows(starts: Any, sources: Any, weights: Any, ranks: Any, outs: Any) -> Any:
    """Return for every page of the frontier: Σ f_k u_k / (o_k + u_k), and Σ f_k of linkers without links within F."""
    count = starts.shape[0] - 1
    flow, freed = np.zeros(count), np.zeros(count)
    for page in range(count):
        for link in range(starts[page], starts[page + 1]):
            source, weight = sources[link], weights[link]
            flow[page] += ranks[source] * weight / (outs[source] + weight)
            if outs[source] == 0:
                freed[page] += ranks[source]
    return flow, freed


@kernel
def _add_siblings(
    linker_starts: Any,
    linkers_: Any,
    linker_weights: Any,
    starts: Any,
    targets: Any,
    weights: Any,
    outs: Any,
    is_local: Any,
    ranks: Any,
    damping: float,
    y: Any,
    g: Any,
    z: Any,
    scores: Any,
) -> None:
    """Add |x + c| - |c| to every score, c = y_j + g_j z, for the local siblings of j, which alone have an x (20).

    Most pages have one linker. All pages of one linker with the same weight have the same x, y and g, so the same
    score: it is computed once. Otherwise a page with a thousand links within F and a thousand to other pages would take
    a million steps.
    """
    x = np.zeros(ranks.shape[0])
    touched = np.empty(ranks.shape[0], np.int64)
    known = np.zeros(ranks.shape[0])
    known_weight = np.zeros(ranks.shape[0], np.int64)
    for page in range(scores.shape[0]):
        begin, end = linker_starts[page], linker_starts[page + 1]
        first = linkers_[begin]
        if end - begin == 1 and known_weight[first] == linker_weights[begin]:
            scores[page] = known[first]
            continue
        found = 0
        for link in range(begin, end):
            source, weight = linkers_[link], np.float64(linker_weights[link])
            if outs[source] == 0:
                continue
            total = np.float64(outs[source])
            leak = -damping * ranks[source] * weight / (total * (total + weight))
            if leak == 0.0:
                continue
            for row in range(starts[source], starts[source + 1]):
                target = targets[row]
                if is_local[target]:
                    if x[target] == 0.0:
                        touched[found] = target
                        found += 1
                    x[target] += leak * weights[row]
        change = 0.0
        for at in range(found):
            target = touched[at]
            without = y[page] + g[page] * z[target]
            change += abs(x[target] + without) - abs(without)
            x[target] = 0.0
        scores[page] += change
        if end - begin == 1:
            known[first], known_weight[first] = scores[page], linker_weights[begin]
