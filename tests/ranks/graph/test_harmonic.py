"""Harmonic centrality: exact values are those of plain searches, estimates keep their bounds of error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opicflow.pipelines.ranks.graph import harmonic
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.harmonic import (
    LinksInMemory,
    exact_harmonic,
    first_registers,
    hyperball,
    hyperball_bytes,
    in_degrees,
    relative_error,
)
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph
from support.stored_graphs import nasty_webs, random_web, stored
from support.thorough import crossed

WEBS = {**nasty_webs(), "at random": random_web()}
MOST_REGISTERS = 14


def by_searches(graph: Graph) -> tuple[list[float], int]:
    """Return the harmonic centrality of every page and the largest distance, by a plain search from every page."""
    followers: list[list[int]] = [[] for _ in range(graph.pages)]
    for page in range(graph.pages):
        for target in graph.targets[graph.starts[page] : graph.starts[page + 1]].tolist():
            followers[target].append(page)
    values, furthest = [], 0
    for page in range(graph.pages):
        distances, level = {page: 0}, [page]
        while level:
            found = {other for one in level for other in followers[one]} - distances.keys()
            distances |= dict.fromkeys(found, distances[level[0]] + 1)
            level = sorted(found)
        values.append(sum(1 / distance for distance in distances.values() if distance))
        furthest = max(furthest, *distances.values())
    return values, furthest


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int | None], StoredGraph]:
    folder = tmp_path_factory.mktemp("graphs")

    def graph(name: str, slice_pages: int | None) -> StoredGraph:
        path = folder / f"{name}-{slice_pages}".replace(" ", "-")
        if not path.exists():
            stored(path, WEBS[name], slice_pages=slice_pages, buckets=2)
        return StoredGraph(path)

    return graph


# -- exact -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "slice_pages"), crossed(list(WEBS), [17, None]))
def test_exact_values_are_those_of_plain_searches(graphs, name, slice_pages) -> None:
    found = exact_harmonic(graphs(name, slice_pages))
    values, furthest = by_searches(WEBS[name])
    assert found.values == pytest.approx(values, rel=1e-12)
    assert (found.distance, found.error, found.complete) == (furthest, 0.0, True)


def test_known_values() -> None:
    sums = np.cumsum([0, *(1 / distance for distance in range(1, 60))])
    assert by_searches(WEBS["a chain"])[0] == pytest.approx(sums.tolist())
    assert by_searches(WEBS["a ring"])[0] == pytest.approx([sums[59]] * 60)
    assert by_searches(WEBS["into one page"])[0] == [59, *[0] * 59]
    assert by_searches(WEBS["one hub"])[0] == [59, *[1 + 58 / 2] * 59]


def test_exact_values_of_many_pages_are_refused(graphs, monkeypatch) -> None:
    monkeypatch.setattr(harmonic, "MOST_EXACT_PAGES", 899)
    with pytest.raises(GraphRefused, match="900 pages: exact harmonic centrality is for at most 899: omit --exact"):
        exact_harmonic(graphs("at random", None))


@pytest.mark.parametrize("name", WEBS)
@pytest.mark.parametrize("slice_pages", [17, None])
def test_in_degrees_are_those_of_the_graph(graphs, name, slice_pages) -> None:
    assert in_degrees(graphs(name, slice_pages)).tolist() == WEBS[name].in_degrees.tolist()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", WEBS)
def test_a_graph_in_memory_has_the_values_of_one_on_disk(graphs, name, tmp_path) -> None:
    on_disk = graphs(name, 17)
    in_memory = LinksInMemory(WEBS[name], on_disk.ids(), tmp_path)
    assert exact_harmonic(in_memory).values.tolist() == exact_harmonic(on_disk).values.tolist()
    for log2_registers in (4, 8):
        ours, other = (hyperball(graph, log2_registers, seed=3) for graph in (in_memory, on_disk))
        assert ours.values.tolist() == other.values.tolist() and ours.distance == other.distance


# -- estimates ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", WEBS)
def test_with_most_registers_estimates_are_near_the_exact_values(graphs, name) -> None:
    found = hyperball(graphs(name, 17), MOST_REGISTERS)
    values, furthest = by_searches(WEBS[name])
    assert np.abs(found.values - values).max() <= 4 * found.error * (max(values) + 1)
    assert found.complete and furthest - 1 <= found.distance <= furthest  # a page may change no register


def test_pages_that_none_or_only_direct_links_lead_to_are_exact(graphs) -> None:
    for name in ("no links", "one page", "into one page"):
        assert hyperball(graphs(name, None), 4).values.tolist() == by_searches(WEBS[name])[0]


@pytest.mark.parametrize("log2_registers", [4, 6, 8])
def test_standard_errors_keep_their_bound(graphs, log2_registers) -> None:
    graph, values = graphs("at random", None), np.array(by_searches(WEBS["at random"])[0])
    seeds = 60
    squares = np.zeros(graph.pages)
    for seed in range(seeds):
        found = hyperball(graph, log2_registers, seed)
        squares += ((found.values - values) / (values + 1)) ** 2
    errors = np.sqrt(squares / seeds) / relative_error(log2_registers)
    assert errors.max() < 1.3  # a standard error of 60 samples is itself only known to 9 %
    assert np.median(errors) < 1.0


@pytest.mark.parametrize("log2_registers", [4, 7, 10])
@pytest.mark.parametrize("pages", [1, 3, 40, 700, 6000])
def test_sizes_of_balls_have_the_error_of_hyperloglog(log2_registers, pages) -> None:
    random = np.random.default_rng(pages)
    balls = [
        first_registers(random.integers(0, 1 << 64, pages, np.uint64), log2_registers, 1).max(axis=0)
        for _ in range(200)
    ]
    errors = sizes_of(np.stack(balls)) / pages - 1
    bound = relative_error(log2_registers)
    assert np.sqrt((errors**2).mean()) < 1.15 * bound
    assert abs(errors.mean()) < 0.25 * bound + 4 * errors.std() / np.sqrt(len(errors))


def sizes_of(registers: np.ndarray) -> np.ndarray:
    """Return the estimated size of the ball of each row of registers."""
    sizes, values, grown = np.zeros(len(registers)), np.zeros(len(registers)), np.ones(len(registers), np.bool_)
    estimator = harmonic._estimator(registers.shape[1].bit_length() - 1)
    harmonic._measure(np.zeros_like(registers), registers, 2, 1 << 62, *estimator, sizes, values, grown)
    return sizes


def test_sizes_never_fall_when_a_register_rises() -> None:
    random = np.random.default_rng(2)
    rows = np.zeros((400, 32), np.uint8)
    rows[0, 5] = 1
    for row in range(1, len(rows)):
        rows[row] = rows[row - 1]
        rows[row, random.integers(32)] += 1
    assert (np.diff(sizes_of(rows)) > 0).all()


def test_first_registers_hold_one_page_each() -> None:
    ids = np.arange(1 << 40, (1 << 40) + 20_000, dtype=np.uint64)  # ids of one site begin alike
    registers = first_registers(ids, 6, 1)
    assert ((registers > 0).sum(axis=1) == 1).all()
    values = registers.max(axis=1)
    shares = np.bincount(values)[1:8] / len(values)
    assert shares == pytest.approx(0.5 ** np.arange(1, 8), abs=0.01)
    assert np.bincount(registers.argmax(axis=1)) == pytest.approx(len(ids) / 64, rel=0.3)
    assert (first_registers(ids, 6, 2) != registers).any()


def test_values_depend_on_the_seed_and_not_on_slices(graphs) -> None:
    for seed in (1, 2):
        some = [hyperball(graphs("at random", slice_pages), 6, seed).values for slice_pages in (17, 400, None)]
        assert some[0].tobytes() == some[1].tobytes() == some[2].tobytes()
    assert hyperball(graphs("at random", None), 6, 1).values.tobytes() != some[0].tobytes()


@pytest.mark.slow
def test_later_scans_skip_blocks_without_growing_pages(tmp_path: Path, monkeypatch) -> None:
    chain, star = np.arange(799), np.arange(801, 2000)
    web = Graph.from_links(2000, np.append(chain, star), np.append(chain + 1, 0 * star + 800))
    graph = stored(tmp_path / "g", web, slice_pages=200)
    read = 0
    blocks = StoredGraph.blocks

    def counted(*given):
        nonlocal read
        for block in blocks(*given):
            read += 1
            yield block

    monkeypatch.setattr(StoredGraph, "blocks", counted)
    progress: list[tuple[int, int]] = []
    found = hyperball(graph, 8, after_scan=lambda radius, growing: progress.append((radius, growing)))
    everything = sum(1 for slice_ in range(graph.slices) for _ in blocks(graph, slice_))
    assert len(graph.ranges) == 11
    assert len(graph.ranges) == 11
    assert found.complete and found.distance > 600
    assert read < 0.5 * everything * len(progress)
    assert [radius for radius, _ in progress] == list(range(1, found.distance + 2))
    assert progress[-1][1] == 0


def test_a_limit_of_the_radius_ends_early_and_says_so(graphs) -> None:
    short = hyperball(graphs("a chain", None), 10, most_radius=3)
    assert (short.complete, short.distance) == (False, 3)
    assert short.values[59] == pytest.approx(1 + 1 / 2 + 1 / 3, rel=0.1)


@pytest.mark.parametrize("log2_registers", [3, 15])
def test_numbers_of_registers_out_of_range_are_refused(graphs, log2_registers) -> None:
    with pytest.raises(GraphRefused, match=f"registers: {log2_registers} is not from 4 to 14"):
        hyperball(graphs("a ring", None), log2_registers)


def test_errors_and_memory_are_those_of_the_registers() -> None:
    assert relative_error(8) == pytest.approx(0.065, abs=0.001)
    assert all(relative_error(one) > relative_error(one + 1) for one in range(4, 14))
    assert hyperball_bytes(1_000_000, 8) == pytest.approx(2 * 256 * 1_000_000, rel=0.05)
