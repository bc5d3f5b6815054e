"""Errors of importance, by all measures that the papers name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.ledger import Ledger
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.schemas.arrays import Floats

DAMPING = 0.85
_PAIRS = 200_000


@dataclass(frozen=True)
class Errors:
    """Relative errors of pages, in per cent of the exact importance.

    `everywhere` is the mean over all pages, `top` over the most important tenth, `weighted` with importance as weight.
    `spread` is the standard deviation, `over_twice` the share of pages whose error is more than twice the mean.
    `disorder` is the share of random pairs of pages that importance puts in the wrong order.
    """

    everywhere: float
    top: float
    weighted: float
    spread: float
    over_twice: float
    disorder: float


def errors(importance: Floats, exact: Floats) -> Errors:
    """How far importance is from the exact one. Both are scaled to sum to 1."""
    importance, exact = importance / importance.sum(), exact / exact.sum()
    off = np.abs(importance - exact) / exact * 100.0
    best = np.argsort(-exact, kind="stable")[: max(1, len(exact) // 10)]
    random = np.random.Generator(np.random.PCG64(len(exact)))
    one, other = random.integers(0, len(exact), (2, _PAIRS))
    differ = exact[one] != exact[other]
    wrong = (importance[one] - importance[other]) * (exact[one] - exact[other]) <= 0
    return Errors(
        everywhere=float(off.mean()),
        top=float(off[best].mean()),
        weighted=float((off * exact).sum()),
        spread=float(off.std()),
        over_twice=float((off > 2 * off.mean()).mean()) * 100.0,
        disorder=float(wrong[differ].mean()) * 100.0 if differ.any() else 0.0,
    )


def exact_importance(web: Graph) -> Floats:
    """Return the PageRank of a web; raise RuntimeError if it does not converge."""
    ranks = pagerank(web, DAMPING, tolerance=1e-10)
    if not ranks.converged:
        raise RuntimeError(f"PageRank of {web.pages} pages did not converge: there is nothing to measure against")
    return ranks.values


def distance_from_seen(ledger: Ledger) -> float:
    """Return the L1 distance of importance from the exact ranks of the graph that a ledger with all links has seen."""
    known = ledger.estimate_all()
    order = np.argsort(known.pages)
    pages = known.pages[order]
    starts, targets, weights = ledger.remembered(pages)
    seen = Graph(starts, np.searchsorted(pages, targets), weights.astype(np.int64))
    return float(np.abs(known.importance[order] - exact_importance(seen)).sum())


def imbalance(web: Graph, importance: Floats) -> float:
    """Return the L1 distance of importance from one more step of PageRank: |L'X - X| of the papers."""
    return pagerank(web, DAMPING, max_iterations=0, start=importance).residual


def correlation(one: Floats, other: Floats) -> float:
    """Spearman's rank correlation; 0 where all of one side are equal."""
    return linear_correlation(_ranks(one), _ranks(other))


def linear_correlation(one: Floats, other: Floats) -> float:
    """Pearson's correlation; 0 where all of one side are equal."""
    spreads = one.std(), other.std()
    if min(spreads) == 0.0:
        return 0.0
    return float(((one - one.mean()) * (other - other.mean())).mean() / (spreads[0] * spreads[1]))


def _ranks(values: Floats) -> Floats:
    """The rank of each value; equal ones share the mean of theirs."""
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: Floats = (ends - (counts - 1) / 2.0)[groups]
    return means
