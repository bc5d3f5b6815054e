"""Ranks without small edges (paper 002, 1): those of linear algebra where iterations reach them, and where not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.solver import EIGENVECTORS, Rank, RankRequest, Settings, Vectors, solve
from opicflow.pipelines.ranks.graph.store import GraphRefused
from support.stored_graphs import stored

Pairs = list[tuple[int, int]]
STAR = [(0, leaf) for leaf in (1, 2, 3)] + [(leaf, 0) for leaf in (1, 2, 3)]
"""Strongly connected, and of period 2."""
TWO_CIRCLES = [(0, 1), (1, 0), (1, 2), (2, 3), (3, 2)]
"""A circle that leads to another one. The largest eigenvalue, 1, is that of both."""


def graph_of(pages: int, pairs: Pairs) -> Graph:
    sources, targets = np.array(pairs).T
    return Graph.from_links(pages, sources, targets)


def matrix(graph: Graph) -> np.ndarray:
    """L of the paper: L[i, j] = 1 where page i points to page j."""
    links = np.zeros((graph.pages, graph.pages))
    links[np.repeat(np.arange(graph.pages), graph.out_degrees), graph.targets] = graph.weights / 1024
    return links


def dominant(links: np.ndarray) -> tuple[float, np.ndarray]:
    """The largest eigenvalue of L', and its vector with the sum 1, by linear algebra."""
    values, vectors = np.linalg.eig(links.T)
    at = int(np.argmax(values.real))
    vector = np.abs(vectors[:, at].real)
    return float(values[at].real), vector / vector.sum()


def solved(path: Path, graph: Graph, kind: str, slice_pages: int | None = None, **settings: float) -> Rank:
    requests = [RankRequest("one", "eigenvector" if kind == "eigenvector" else "eigenvector-loops")]
    (rank,) = solve(stored(path, graph, slice_pages=slice_pages), requests, Settings(**settings))  # type: ignore[arg-type]
    return rank


def connected(pages: int = 60) -> Graph:
    """A web at random in which a circle connects all pages; some links have other weights."""
    random = np.random.default_rng(3)
    sources = np.concatenate((np.arange(pages), random.integers(0, pages, 5 * pages)))
    targets = np.concatenate(((np.arange(pages) + 1) % pages, random.integers(0, pages, 5 * pages)))
    return Graph.from_links(pages, sources, targets)


@pytest.mark.parametrize("kind", EIGENVECTORS)
@pytest.mark.parametrize("slice_pages", [7, None])
def test_both_are_the_dominant_eigenvector_of_a_strongly_connected_aperiodic_web(
    tmp_path: Path, kind: str, slice_pages: int | None
) -> None:
    graph = connected()
    rank = solved(tmp_path / "g", graph, kind, slice_pages, tolerance=1e-13)
    largest, vector = dominant(matrix(graph))
    assert rank.converged and np.abs(rank.values - vector).sum() < 1e-9
    values = np.linalg.eigvals(matrix(graph).T + np.eye(graph.pages))
    assert values.real.max() == pytest.approx(largest + 1), "the largest eigenvalue of L + I"
    assert rank.error is None and abs(rank.values.sum() - 1) < 1e-12


def test_a_periodic_web_converges_with_loops_alone(tmp_path: Path) -> None:
    """The counter-example: L of the star moves the hub to the leaves and back, so every second vector is equal."""
    graph = graph_of(4, STAR)
    plain = solved(tmp_path / "a", graph, "eigenvector", max_iterations=500)
    assert not plain.converged and plain.residual > 0.1 and plain.iterations == 500
    values = np.linalg.eigvals(matrix(graph).T)
    assert sorted(np.round(values.real, 9)) == pytest.approx([-(3**0.5), 0, 0, 3**0.5]), "as large as -r"
    loops = solved(tmp_path / "b", graph, "eigenvector-loops", tolerance=1e-13)
    assert loops.converged and np.abs(loops.values - dominant(matrix(graph))[1]).sum() < 1e-10


def test_a_web_without_circles_has_no_such_importance(tmp_path: Path) -> None:
    """L to the power of the longest way is 0. With loops the end of the longest way takes all, but as slowly as 1/k."""
    graph = graph_of(3, [(0, 1), (1, 2)])
    with pytest.raises(GraphRefused, match="nothing is left after 3 steps, because no links lead in a circle"):
        solved(tmp_path / "a", graph, "eigenvector")
    loops = solved(tmp_path / "b", graph, "eigenvector-loops", max_iterations=1000)
    assert not loops.converged and loops.values[2] > 0.99
    assert 1e-6 < loops.residual < 1e-5


def test_equal_circles_one_behind_the_other_do_not_keep_the_part_of_the_start_that_the_paper_promises(
    tmp_path: Path,
) -> None:
    """The eigenspace of 1 has the dimension 1, and 1 is a double root: the first circle fades, as slowly as 1/k."""
    graph = graph_of(4, TWO_CIRCLES)
    links = matrix(graph).T
    assert np.linalg.matrix_rank(links - np.eye(4)) == 3
    assert np.linalg.matrix_rank(np.linalg.matrix_power(links - np.eye(4), 2)) == 2
    found = [
        solved(tmp_path / f"{steps}", graph, "eigenvector-loops", max_iterations=steps) for steps in (100, 200, 400)
    ]
    first = [float(rank.values[:2].sum()) for rank in found]
    assert [first[0] / first[1], first[1] / first[2]] == pytest.approx([2, 2], rel=0.05)
    assert not found[-1].converged


def test_an_interrupted_run_continues_to_the_same_bytes(tmp_path: Path) -> None:
    graph = stored(tmp_path / "g", connected(), slice_pages=7)
    wanted = [RankRequest("one", "eigenvector-loops")]
    (whole,) = solve(graph, wanted, Settings())

    def stop_at_5(scan: int, residuals: dict[str, float]) -> None:
        if scan == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(graph, wanted, Settings(), Vectors(graph.pages, tmp_path / "v"), after_scan=stop_at_5)
    (found,) = solve(graph, wanted, Settings(), Vectors(graph.pages, tmp_path / "v"))
    assert np.array_equal(found.values, whole.values) and found.iterations == whole.iterations > 5


# -- on line -----------------------------------------------------------------------------------------------------------


def opic(links: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, float]:
    """OPIC with any matrix: a page pays C[i] * L[i, j]. Returns H / |H|, and all cash at the end."""
    pages = len(links)
    cash, history = np.full(pages, 1 / pages), np.zeros(pages)
    for page in order.tolist():
        history[page] += cash[page]
        paid, cash[page] = cash[page], 0.0
        cash += paid * links[page]
    return history / history.sum(), float(cash.sum())


def test_on_line_the_matrix_has_to_be_divided_by_its_largest_eigenvalue_which_nobody_knows_then() -> None:
    """With L / r, OPIC converges in any order: cash, weighted by the other eigenvector, is constant, so it is bounded.

    With L itself cash grows without bound, and history follows the last visits: no matrix of a ledger.
    """
    graph = connected(20)
    links = matrix(graph)
    largest, vector = dominant(links)
    weights = dominant(links.T)[1]
    random = np.random.default_rng(1)
    orders = [random.integers(0, 20, 20 * rounds) for rounds in (50, 800)]
    scaled = [opic(links / largest, order) for order in orders]
    apart = [float(np.abs(found - vector).sum()) for found, _ in scaled]
    assert apart[1] < 0.003 and apart[1] < apart[0] / 4
    assert scaled[1][1] < weights.mean() / weights.min(), "all cash, by the weights of the start"
    plain = [opic(links, order[:600]) for order in orders]
    assert plain[0][1] > 1e6
    assert all(np.abs(found - vector).sum() > 0.1 for found, _ in plain)
