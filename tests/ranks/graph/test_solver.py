"""Ranks of a graph on disk are those of the oracle, in every order, interrupted or not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ranks.graph.comparison import kendall_tau
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.ranks.graph.solver import AUTHORITIES, HUBS, Rank, RankRequest, Settings, Vectors, solve
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph
from support.same_bytes import Kill, Killed, run_to_end
from support.stored_graphs import nasty_webs, random_web, stored
from support.thorough import crossed

TIGHT = 1e-13
WEBS = {**nasty_webs(), "at random": random_web()}
KINDS = ("importance", "interest")
ORDERS = [("teleport", False), ("teleport", True), ("normalise", False)]
"""What dangling pages do, and whether the order is that of Gauss and Seidel."""


def personal(pages: int) -> np.ndarray:
    paid = np.random.default_rng(pages).random(pages) ** 4
    if pages > 3:
        paid[::3] = 0.0
    return paid


def oracle(graph: Graph, wanted: RankRequest, settings: Settings) -> np.ndarray:
    forward = graph if wanted.kind == "importance" else graph.transposed()
    most = 20_000 if graph.pages < 10_000 else 300  # it never comes to that residual: sums of so many are not as exact
    ranks = pagerank(forward, settings.damping, wanted.paid, 1e-15, most, dangling=settings.dangling)
    return ranks.values


def hold_it_against_the_oracle(graph: Graph, rank: Rank, wanted: RankRequest, settings: Settings) -> None:
    apart = float(np.abs(rank.values - oracle(graph, wanted, settings)).sum())
    assert apart < 1e-10
    assert rank.converged
    assert abs(rank.values.sum() - 1) < 1e-12
    assert rank.residual <= settings.tolerance
    if rank.error is not None:
        assert apart <= rank.error + 1e-12


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int | None], StoredGraph]:
    folder = tmp_path_factory.mktemp("graphs")

    def graph(name: str, slice_pages: int | None) -> StoredGraph:
        path = folder / f"{name}-{slice_pages}".replace(" ", "-")
        if not path.exists():
            stored(path, WEBS[name], slice_pages=slice_pages, buckets=2)
        found = StoredGraph(path)
        found.hold(16 << 20)
        return found

    return graph


# against the oracle


@pytest.mark.parametrize(
    ("name", "slice_pages", "dangling", "gauss_seidel"),
    crossed(
        [*((name, size) for name in WEBS for size in (17, None)), ("weights", 1), ("one hub", 1), ("at random", 400)],
        ORDERS,
    ),
)
def test_every_order_gives_the_oracles_ranks(graphs, name, slice_pages, dangling, gauss_seidel) -> None:
    graph = WEBS[name]
    settings = Settings(tolerance=TIGHT, dangling=dangling, gauss_seidel=gauss_seidel)
    paid = personal(graph.pages)
    wanted = [
        RankRequest(f"{kind}{number}", kind, given) for kind in KINDS for number, given in enumerate((None, paid))
    ]
    if dangling == "normalise":
        del wanted[3], wanted[1]  # where v is 0 for some pages, which of several answers comes out depends on the start
    for rank, one in zip(solve(graphs(name, slice_pages), wanted, settings), wanted, strict=True):
        hold_it_against_the_oracle(graph, rank, one, settings)


# the inverse PageRank as the thesis prints it


def as_printed(graph: Graph, form: str, paid: np.ndarray, damping: float, iterations: int) -> np.ndarray:
    """Return the interest of thesis 2.2 or 2.3.1 by its text: lists of links, the loop of 2.3.1, eq. 2.6 and 2.7."""
    ends = np.cumsum(graph.out_degrees).tolist()
    out = [graph.targets[begin:end].tolist() for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    personal = [share / sum(paid) for share in paid.tolist()]
    source = list(personal)
    for _ in range(iterations):
        destination = [0.0] * graph.pages
        for i in range(graph.pages):
            for j in out[i]:
                divisor = len(out[i]) if form == "interest-mean" else max(1, len(out[j]))
                destination[i] += source[j] / divisor
        destination = [damping * got + (1 - damping) * own for got, own in zip(destination, personal, strict=True)]
        factor = 1 / sum(destination)  # r: the source sums to 1
        source = [factor * one for one in destination]
    return np.array(source)


@pytest.mark.parametrize("form", ["interest-mean", "interest-sum"])
@pytest.mark.parametrize("slice_pages", [17, None])
def test_interest_as_printed_is_that_of_the_thesis(tmp_path: Path, form: Any, slice_pages: int | None) -> None:
    web = power_law_web(200, seed=3, mean_links=4, dangling=0.2)
    graph = stored(tmp_path / "g", web, slice_pages=slice_pages, buckets=2)
    chance = np.random.default_rng(1)
    for paid in (None, chance.random(200), (chance.random(200) < 0.1) * 1.0):
        wanted = RankRequest("r", form, paid)
        for damping in (0.5, 0.85):
            (rank,) = solve(graph, [wanted], Settings(damping=damping, tolerance=TIGHT))
            expected = as_printed(web, form, np.ones(200) if paid is None else paid, damping, 400)
            assert rank.converged and rank.error is None
            assert np.abs(rank.values - expected).sum() < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dangling", "mean", "loop"), [(0.0, (0.431, None), (0.375, 0.327)), (0.2, (0.411, 0.428), (0.381, 0.514))]
)
def test_how_far_the_printed_forms_are_from_interest(tmp_path: Path, dangling, mean, loop) -> None:
    """The table of docs/guides/ranks.md: L1, and Kendall's tau; None: one form has one value for all pages."""
    graph = stored(tmp_path / "g", power_law_web(10_000, seed=1, dangling=dangling))
    kinds: tuple[Any, ...] = ("interest", "interest-mean", "interest-sum")
    ours, *printed = solve(graph, [RankRequest(kind, kind) for kind in kinds], Settings())
    for one, (apart, tau) in zip(printed, (mean, loop), strict=True):
        assert float(np.abs(one.values - ours.values).sum()) == pytest.approx(apart, abs=6e-4)
        assert kendall_tau(one.values, ours.values) == (tau and pytest.approx(tau, abs=6e-4))


@pytest.mark.parametrize("damping", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("gauss_seidel", [False, True])
def test_other_dampings(graphs, damping, gauss_seidel) -> None:
    settings = Settings(damping=damping, tolerance=TIGHT, gauss_seidel=gauss_seidel)
    wanted = [RankRequest("forward", "importance"), RankRequest("backward", "interest")]
    for rank, one in zip(solve(graphs("at random", 100), wanted, settings), wanted, strict=True):
        hold_it_against_the_oracle(WEBS["at random"], rank, one, settings)


def test_gauss_seidel_takes_fewer_iterations(graphs) -> None:
    wanted = [RankRequest("forward", "importance")]
    (jacobi,) = solve(graphs("at random", 17), wanted, Settings())
    (newer,) = solve(graphs("at random", 17), wanted, Settings(gauss_seidel=True))
    assert newer.iterations < jacobi.iterations


@pytest.fixture(scope="module")
def eigenvectors() -> tuple[np.ndarray, np.ndarray]:
    """The hubs and authorities of the web at random, by linear algebra."""
    graph = WEBS["at random"]
    links = np.zeros((graph.pages, graph.pages))
    links[np.repeat(np.arange(graph.pages), graph.out_degrees), graph.targets] = graph.weights / 1024
    hubs, authorities = (np.abs(np.linalg.eigh(square)[1][:, -1]) for square in (links @ links.T, links.T @ links))
    return hubs / hubs.sum(), authorities / authorities.sum()


@pytest.mark.slow
@pytest.mark.parametrize("slice_pages", [17, 400, None])
def test_hubs_and_authorities_are_eigenvectors(graphs, eigenvectors, slice_pages) -> None:
    hubs, authorities = solve(graphs("at random", slice_pages), [RankRequest(HUBS, "hubs")], Settings(tolerance=TIGHT))
    assert (hubs.name, authorities.name) == (HUBS, AUTHORITIES)
    for rank, vector in zip((hubs, authorities), eigenvectors, strict=True):
        assert np.abs(rank.values - vector).sum() < 1e-10
        assert abs(rank.values.sum() - 1) < 1e-12


def test_hubs_of_a_part_that_slowly_outgrows_another_are_found(tmp_path: Path) -> None:
    """Residuals rise for dozens of sweeps, while the part with the slightly larger eigenvalue takes over."""
    blocks = [(10, 10), (3, 34)]  # hubs and authorities: eigenvalues 100 and 102
    sources, targets, first = [], [], 0
    for hubs, authorities in blocks:
        block = np.arange(first, first + hubs)
        sources.append(np.repeat(block, authorities))
        targets.append(np.tile(np.arange(first + hubs, first + hubs + authorities), hubs))
        first += hubs + authorities
    graph = stored(tmp_path / "g", Graph.from_links(first, np.concatenate(sources), np.concatenate(targets)))
    residuals: list[float] = []
    hubs, _ = solve(
        graph,
        [RankRequest(HUBS, "hubs")],
        Settings(tolerance=1e-10, max_iterations=5000),
        after_scan=lambda scan, left: residuals.append(left[HUBS]),
    )
    assert hubs.converged and hubs.values[:10].max() < 1e-7
    assert hubs.values[20:23] == pytest.approx(1 / 3, abs=1e-7)
    assert residuals[40] > residuals[5]


def test_hubs_of_nothing_are_refused(graphs) -> None:
    with pytest.raises(GraphRefused, match="without links no hubs"):
        solve(graphs("no links", None), [RankRequest(HUBS, "hubs")], Settings())


def test_both_ways_authorities_are_the_eigenvector_of_links_in_either_direction(tmp_path: Path) -> None:
    graph = WEBS["at random"]
    on_disk = stored(tmp_path / "g", graph, both_ways=True, slice_pages=300)
    _, authorities = solve(on_disk, [RankRequest(HUBS, "hubs")], Settings(tolerance=TIGHT))
    either = np.zeros((graph.pages, graph.pages))
    either[np.repeat(np.arange(graph.pages), graph.out_degrees), graph.targets] = 1
    either = np.maximum(either, either.T)
    vector = np.abs(np.linalg.eigh(either)[1][:, -1])
    assert np.abs(authorities.values - vector / vector.sum()).sum() < 1e-10


@pytest.mark.soak
def test_a_page_of_a_million_links(tmp_path: Path) -> None:
    pages = 1_000_001
    back = np.arange(1, pages, 10)
    sources = np.concatenate((np.zeros(pages - 1, np.int64), back))
    graph = Graph.from_links(pages, sources, np.concatenate((np.arange(1, pages), 0 * back)))
    on_disk = stored(tmp_path / "g", graph, memory_bytes=8 << 20, buckets=16)
    settings = Settings(tolerance=1e-11, gauss_seidel=True)
    wanted = [RankRequest("a", "importance"), RankRequest("b", "interest")]
    for rank, one in zip(solve(on_disk, wanted, settings), wanted, strict=True):
        hold_it_against_the_oracle(graph, rank, one, settings)


@pytest.mark.parametrize("gauss_seidel", [False, True])
def test_ranks_of_one_scan_are_those_of_scans_of_their_own(graphs, gauss_seidel) -> None:
    graph, settings = graphs("at random", 100), Settings(gauss_seidel=gauss_seidel)
    wanted = [
        RankRequest("a", "importance"),
        RankRequest("b", "interest"),
        RankRequest("c", "importance", personal(900)),
    ]
    wanted.append(RankRequest(HUBS, "hubs"))
    together = solve(graph, wanted, settings)
    alone = [rank for one in wanted for rank in solve(graph, [one], settings)]
    assert [rank.name for rank in together] == [rank.name for rank in alone]
    assert [rank.values.tobytes() for rank in together] == [rank.values.tobytes() for rank in alone]


def test_a_start_that_is_near_saves_iterations(graphs) -> None:
    graph = graphs("at random", 100)
    for gauss_seidel in (False, True):
        for kind in KINDS:
            settings = Settings(gauss_seidel=gauss_seidel)
            (cold,) = solve(graph, [RankRequest("a", kind)], settings)
            (warm,) = solve(graph, [RankRequest("a", kind, start=cold.values * 3)], settings)
            assert warm.iterations < cold.iterations / 3
            assert np.abs(warm.values - cold.values).sum() < 1e-7


def test_a_rank_that_does_not_converge_reports_it(graphs) -> None:
    (rank,) = solve(graphs("at random", None), [RankRequest("a", "importance")], Settings(max_iterations=3))
    assert (rank.converged, rank.iterations) == (False, 3)
    assert (
        np.abs(rank.values - oracle(WEBS["at random"], RankRequest("a", "importance"), Settings())).sum() <= rank.error
    )


@pytest.mark.parametrize("gauss_seidel", [False, True])
def test_a_tolerance_below_rounding_ends_all_the_same(graphs, gauss_seidel) -> None:
    settings = Settings(tolerance=1e-18, gauss_seidel=gauss_seidel)
    wanted = [RankRequest("a", "importance"), RankRequest("b", "interest"), RankRequest(HUBS, "hubs")]
    for rank in solve(graphs("at random", 100), wanted, settings):
        assert rank.converged or rank.residual < 1e-13
        assert rank.iterations < 120


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"damping": 1.0}, "damping is 1.0: give a number from 0 to below 1"),
        ({"damping": float("nan")}, "give a number from 0"),
        ({"tolerance": 0.0}, "give a number above 0"),
        ({"max_iterations": 0}, "give 1 at least"),
        ({"gauss_seidel": True, "dangling": "normalise"}, "gauss-seidel: it goes with dangling teleport: omit one"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphRefused, match=words):
        Settings(**settings)


@pytest.mark.parametrize("paid", [np.zeros(900), np.full(900, -1.0), np.full(900, np.nan)])
def test_personalisations_that_make_no_sense_are_refused(graphs, paid) -> None:
    with pytest.raises(GraphRefused, match="finite numbers that are not negative, and not only 0"):
        solve(graphs("at random", None), [RankRequest("a", "importance", paid)], Settings())


# interrupted


@pytest.mark.parametrize("dangling, gauss_seidel", ORDERS)
def test_a_computation_that_is_killed_ends_with_the_same_bytes(graphs, tmp_path, gauss_seidel, dangling) -> None:
    graph, settings = graphs("at random", 100), Settings(gauss_seidel=gauss_seidel, dangling=dangling)
    wanted = [RankRequest("a", "importance"), RankRequest("b", "interest"), RankRequest(HUBS, "hubs")]
    whole = solve(graph, wanted, settings)
    kill = Kill(lambda call, scan, residuals: scan % 4 == 0)
    found = run_to_end(lambda: solve(graph, wanted, settings, Vectors(900, tmp_path / "v"), "this", kill))
    assert [scan for scan, _ in kill.calls] == list(range(1, len(kill.calls) + 1))  # none was made twice
    assert [rank.values.tobytes() for rank in found] == [rank.values.tobytes() for rank in whole]
    assert [rank.residual for rank in found] == [rank.residual for rank in whole]


@pytest.mark.parametrize("dangling, gauss_seidel", ORDERS)
def test_a_computation_that_is_killed_within_scans_ends_with_the_same_bytes(
    graphs, tmp_path, gauss_seidel, dangling, monkeypatch
) -> None:
    graph, settings = graphs("at random", 100), Settings(gauss_seidel=gauss_seidel, dangling=dangling)
    wanted = [RankRequest("a", "importance"), RankRequest("b", "interest"), RankRequest(HUBS, "hubs")]
    whole = solve(graph, wanted, settings)
    of_a_scan = sum(1 for slice_ in range(graph.slices) for _ in graph.blocks(slice_))
    # Four scans that read twice, and some: each time to another place.
    kill, blocks = Kill({*accumulate(9 * of_a_scan + 5 * kills + 1 for kills in range(200))}), type(graph).blocks

    def blocks_of(stored: Any, slice_: int) -> Any:
        for block in blocks(stored, slice_):
            kill()
            yield block

    monkeypatch.setattr(type(graph), "blocks", blocks_of)
    found = run_to_end(lambda: solve(graph, wanted, settings, Vectors(900, tmp_path / "v"), "this"))
    assert kill.kills >= 4
    assert [rank.values.tobytes() for rank in found] == [rank.values.tobytes() for rank in whole]


@pytest.mark.parametrize("name", [".ranks.json.partial", "importance-a.f64"])
def test_links_that_others_have_put_among_the_vectors_are_not_followed(graphs, tmp_path: Path, name: str) -> None:
    graph = graphs("at random", None)
    (tmp_path / "precious").write_bytes(b"kept")
    vectors = Vectors(graph.pages, tmp_path / "v")
    (tmp_path / "v" / name).symlink_to(tmp_path / "precious")
    solve(graph, [RankRequest("importance", "importance")], Settings(), vectors, "this")
    assert (tmp_path / "precious").read_bytes() == b"kept" and not (tmp_path / "v" / name).is_symlink()


@pytest.mark.parametrize("dangling", ["teleport", "normalise"])
def test_ranks_that_could_not_be_written_are_there_at_once_when_the_command_runs_again(
    graphs, tmp_path, dangling
) -> None:
    graph, settings = graphs("at random", 100), Settings(dangling=dangling)
    wanted = [RankRequest("a", "importance"), RankRequest("b", "interest"), RankRequest(HUBS, "hubs")]
    found = [solve(graph, wanted, settings, Vectors(900, tmp_path / "v"), "this", after) for after in (print, None)]
    assert [rank.values.tobytes() for rank in found[0]] == [rank.values.tobytes() for rank in found[1]]


def test_vectors_that_were_damaged_meanwhile_are_refused_and_those_of_others_are_not_used(graphs, tmp_path) -> None:
    graph, wanted = graphs("at random", 100), [RankRequest("a", "importance")]

    def begin() -> None:
        with pytest.raises(Killed):
            solve(graph, wanted, Settings(), Vectors(900, tmp_path / "v"), "this", Kill(1))

    begin()
    (other,) = solve(graph, wanted, Settings(), Vectors(900, tmp_path / "v"), "another")
    assert other.iterations > 5
    begin()
    for file in (tmp_path / "v").glob("*.f64"):
        file.write_bytes(bytes(900 * 8))
    with pytest.raises(GraphRefused, match="damaged since the ranks were interrupted: remove it"):
        solve(graph, wanted, Settings(), Vectors(900, tmp_path / "v"), "this")
