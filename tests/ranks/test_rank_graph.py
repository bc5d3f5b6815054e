"""Ranks as Beam jobs equal those of the oracle; their bytes are the same on any runner and after any kill."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from opicflow.pipelines.ranks import rank_parts
from opicflow.pipelines.ranks.graph.builder import BuildPlan, GraphBuilder
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.ranks.graph.solver import Rank, RankRequest, Settings
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph, unmixed
from opicflow.pipelines.ranks.rank_graph import rank_with_beam
from opicflow.pipelines.ranks.rank_parts import (
    ComputeParts,
    RankPart,
    RankTask,
    ReadParts,
    SaveParts,
    SpreadParts,
    digest_of_graph,
    first_part,
    next_part,
    pack_part,
    pieces_of,
    save_part,
    sent_part,
    unpack_part,
)
from opicflow.schemas.arrays import Floats
from support.paths import TOP
from support.thorough import crossed

PAGES, SLICE_PAGES = 400, 60
IN_PROCESS = PipelineOptions([])
ROUNDING = 1e-14
TO_THE_END = Settings(tolerance=1e-9)


class Web(NamedTuple):
    """A graph on disk, and the same one in memory."""

    stored: StoredGraph
    graph: Graph

    def exact(self, wanted: RankRequest, damping: float = 0.85) -> Floats:
        """Return the ranks of the oracle."""
        graph = self.graph if wanted.kind == "importance" else self.graph.transposed()
        return pagerank(graph, damping, wanted.paid, tolerance=1e-15, max_iterations=1000).values

    def task(self, wanted: RankRequest) -> RankTask:
        """Return the task of workers for a rank."""
        assert wanted.kind != "hubs"
        return RankTask(str(self.stored.path), digest_of_graph(self.stored), wanted.kind, 0.85)


def built(path: Path, pages: int, links: list[tuple[int, int, int]], slice_pages: int) -> Web:
    """Return a web of links (source, target, weight)."""
    sources, targets, weights = (np.array(column, np.int64) for column in zip(*sorted(links), strict=True))
    ids = unmixed(np.arange(1, pages + 1, dtype=np.uint64) << np.uint64(50))
    builder = GraphBuilder(path, BuildPlan(slice_pages=slice_pages, buckets=4))
    starts = np.searchsorted(sources, np.arange(pages + 1)).astype(np.int64)
    builder.add_visits(ids, starts, ids[targets], weights.astype(np.uint16), False)
    builder.add_pages(ids, np.full(pages, 255, np.uint8), np.arange(pages + 1), np.full(pages, 65, np.uint8))
    return Web(builder.finish(), Graph.from_links(pages, sources, targets, weights))


def links_of_a_web(seed: int = 1) -> list[tuple[int, int, int]]:
    """A third of the pages dangle, some link to themselves; there is a hub, and a slice without links to it."""
    rng = np.random.default_rng(seed)
    alone = range(2 * SLICE_PAGES, 3 * SLICE_PAGES)
    links = [(0, page, 1024) for page in range(1, PAGES, 2)]
    for page in range(1, 2 * PAGES // 3):
        links += [(page, 0, 1024)] if page % 3 else [(page, page, 1024)]
        links += [(page, int(target), int(rng.integers(1, 3000))) for target in rng.integers(0, PAGES, 4)]
    return [link for link in links if link[1] not in alone]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Web:
    """A web in seven slices; the last one is smaller."""
    made = built(tmp_path_factory.mktemp("web") / "graph", PAGES, links_of_a_web(), SLICE_PAGES)
    assert made.stored.slices == 7 and made.stored.manifest["dangling"] > PAGES // 4
    return made


@pytest.fixture(scope="module")
def whole_web(tmp_path_factory: pytest.TempPathFactory) -> Web:
    """The same web in one slice."""
    return built(tmp_path_factory.mktemp("web") / "graph", PAGES, links_of_a_web(), PAGES)


SOME = np.random.default_rng(5).random(PAGES) ** 4 * (np.arange(PAGES) % 3 > 0)
IMPORTANCE, INTEREST = RankRequest("importance", "importance"), RankRequest("interest", "interest")


def ranked(web: Web, wanted: RankRequest, settings: Settings, work: Path, per_job: int = 20, **more: Any) -> Rank:
    """Compute a rank in this process."""
    return rank_with_beam(web.stored.path, wanted, settings, work, IN_PROCESS, per_job, **more)


def bytes_of(rank: Rank) -> bytes:
    return np.asarray(rank.values).tobytes()


def distance(one: Floats, other: Floats) -> float:
    return float(np.abs(one - other).sum())


def stopped_after(iterations: int) -> Callable[[int, float], None]:
    """Ends a run after a job, as a kill does."""

    def stop(done: int, residual: float) -> None:
        if done >= iterations:
            raise KeyboardInterrupt

    return stop


def parts_after(
    web: Web, wanted: RankRequest, iterations: int, arrive: Callable[[list[RankPart]], list[RankPart]] = list
) -> list[RankPart]:
    """Return the computed parts, without Beam. `arrive` reorders the pieces that were sent in order."""
    graph, task = web.stored, web.task(wanted)
    parts = [first_part(graph, task, slice_) for slice_ in range(graph.slices)]
    for _ in range(iterations):
        sent = [sent_part(graph, task, part) for part in parts]
        to = [[*sent[:slice_], parts[slice_], *sent[slice_ + 1 :]] for slice_ in range(graph.slices)]
        parts = [
            next_part(graph, task, slice_, arrive([piece for part in to[slice_] for piece in pieces_of(part)]))
            for slice_ in range(graph.slices)
        ]
    return parts


# -- results


@pytest.mark.parametrize(
    ("wanted", "slices"),
    [
        pytest.param(IMPORTANCE, 7, id="importance"),
        pytest.param(INTEREST, 1, id="interest-one-slice"),
        pytest.param(replace(INTEREST, paid=SOME, start=np.arange(float(PAGES))), 7, id="interest-paid"),
        pytest.param(IMPORTANCE, 1, id="importance-one-slice", marks=pytest.mark.soak),
        pytest.param(replace(INTEREST, start=np.arange(float(PAGES))), 7, id="interest", marks=pytest.mark.soak),
        pytest.param(replace(IMPORTANCE, paid=SOME), 7, id="paid", marks=pytest.mark.soak),
    ],
)
def test_ranks_are_those_of_the_oracle(
    wanted: RankRequest, slices: int, web: Web, whole_web: Web, tmp_path: Path
) -> None:
    where = web if slices > 1 else whole_web
    assert where.stored.slices == slices
    rank = ranked(where, wanted, TO_THE_END, tmp_path)
    assert rank.converged and rank.residual <= TO_THE_END.tolerance and rank.name == wanted.name
    assert distance(rank.values, where.exact(wanted)) <= 1e-10
    assert abs(float(rank.values.sum()) - 1.0) <= 1e-12


@pytest.mark.parametrize(("damping", "wanted"), crossed([0.0, 0.5, 0.85, 0.99], [IMPORTANCE, INTEREST]))
def test_the_bound_is_true_before_the_end(damping: float, wanted: RankRequest, web: Web, tmp_path: Path) -> None:
    settings, exact = Settings(damping=damping, max_iterations=3, tolerance=1e-15), web.exact(wanted, damping)
    for iterations in (1, 3):
        rank = ranked(web, wanted, replace(settings, max_iterations=iterations), tmp_path, per_job=2)
        assert (rank.iterations, rank.converged) == (iterations, False) or (damping == 0.0 and rank.converged)
        assert rank.error is not None
        assert distance(rank.values, exact) <= rank.error + ROUNDING
        assert abs(float(rank.values.sum()) - 1.0) <= 1e-12


def test_a_web_without_links_has_the_ranks_of_its_virtual_page(tmp_path: Path) -> None:
    web = built(tmp_path / "graph", 10, [(3, 3, 1024)], 4)
    paid = np.arange(10.0)
    for wanted, expected in ((IMPORTANCE, np.full(10, 0.1)), (replace(INTEREST, paid=paid), paid / 45)):
        rank = ranked(web, wanted, TO_THE_END, tmp_path / "work", per_job=1)
        assert rank.converged and rank.iterations == 1
        np.testing.assert_allclose(rank.values, expected, rtol=1e-14)


def test_a_part_is_sent_without_pages_that_pay_nothing(web: Web) -> None:
    for wanted, sums in ((IMPORTANCE, web.stored.out_weights), (INTEREST, web.stored.in_weights)):
        for part in parts_after(web, wanted, 1):
            first, end = web.stored.bounds(part.slice_)
            assert len(sent_part(web.stored, web.task(wanted), part).values) == np.count_nonzero(sums[first:end])
            assert len(part.values) == end - first


# -- the same bytes


@pytest.mark.parametrize("most_pages", [1 << 17, SLICE_PAGES, 7, 1])
@pytest.mark.parametrize("wanted", [IMPORTANCE, INTEREST], ids=["importance", "interest"])
def test_parts_in_another_order_and_in_pieces_give_the_same_bytes(
    wanted: RankRequest, most_pages: int, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)

    def shuffled(pieces: list[RankPart]) -> list[RankPart]:
        return [pieces[number] for number in rng.permutation(len(pieces))]

    def twice(pieces: list[RankPart]) -> list[RankPart]:
        return [*pieces[::-1], *pieces]

    expected = [pack_part(part) for part in parts_after(web, wanted, 3)]
    monkeypatch.setattr(rank_parts, "_PAGES_OF_A_PIECE", most_pages)
    for arrive in (list, shuffled, twice):
        assert [pack_part(part) for part in parts_after(web, wanted, 3, arrive)] == expected
    with pytest.raises((AssertionError, IndexError)):
        parts_after(web, wanted, 3, lambda pieces: pieces[1:])


def test_large_parts_are_sent_in_pieces(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(max_iterations=3, tolerance=1e-15)
    expected = ranked(web, INTEREST, settings, tmp_path / "whole")
    monkeypatch.setattr(rank_parts, "_PAGES_OF_A_PIECE", 10)
    part = pack_part(parts_after(web, INTEREST, 1)[1])
    sent = list(SpreadParts(web.task(INTEREST), web.stored.slices).process((1, part)))
    assert max(len(unpack_part(data).values) for _, data in sent) == 10
    assert bytes_of(ranked(web, INTEREST, settings, tmp_path / "pieces")) == bytes_of(expected)


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_iterations_of_a_job(web: Web, tmp_path: Path) -> None:
    settings = Settings(max_iterations=7, tolerance=1e-15)
    found = [ranked(web, IMPORTANCE, settings, tmp_path / str(per_job), per_job) for per_job in (1, 3, 7, 100)]
    assert [rank.iterations for rank in found] == [7] * 4
    assert len({bytes_of(rank) for rank in found}) == 1
    assert len({(rank.residual, rank.error) for rank in found}) == 1
    without_beam = np.concatenate([part.values for part in parts_after(web, IMPORTANCE, 7)])
    np.testing.assert_allclose(found[0].values, without_beam / without_beam.sum(), rtol=1e-14)


def test_a_stopped_run_continues_after_its_last_job(web: Web, tmp_path: Path) -> None:
    wanted, settings = replace(INTEREST, paid=SOME), Settings(max_iterations=9, tolerance=1e-15)
    expected = ranked(web, wanted, settings, tmp_path / "straight", 3)
    with pytest.raises(KeyboardInterrupt):
        ranked(web, wanted, settings, tmp_path / "work", 3, after_job=stopped_after(6))
    jobs: list[int] = []
    again = ranked(web, wanted, settings, tmp_path / "work", 3, after_job=lambda done, residual: jobs.append(done))
    assert jobs == [9] and bytes_of(again) == bytes_of(expected)
    ended = ranked(web, wanted, settings, tmp_path / "work", 3, after_job=stopped_after(0))
    assert (ended.residual, ended.iterations) == (expected.residual, 9) and bytes_of(ended) == bytes_of(expected)
    more = ranked(web, wanted, replace(settings, max_iterations=12), tmp_path / "work", 3)
    assert more.iterations == 12 and more.residual < ended.residual
    (folder,) = (tmp_path / "work").iterdir()
    assert sorted(one.name for one in folder.iterdir()) == ["000012", "paid.npy", "rank.f64"]


_KILLED = """
import sys
from pathlib import Path
from apache_beam.options.pipeline_options import PipelineOptions
from opicflow.pipelines.ranks.graph.solver import Settings, RankRequest
from opicflow.pipelines.ranks.rank_graph import rank_with_beam
rank_with_beam(
    Path(sys.argv[1]), RankRequest("importance", "importance"), Settings(max_iterations=1000, tolerance=1e-300),
    Path(sys.argv[2]), PipelineOptions([]), 4, lambda done, residual: print(done, flush=True),
)
"""


@pytest.mark.slow
def test_a_process_that_was_killed_in_a_job_changes_nothing(web: Web, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(web.stored.path), str(tmp_path / "work")]
    with subprocess.Popen(command, cwd=TOP, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "4\n"
        process.kill()
    settings = Settings(max_iterations=12, tolerance=1e-300)
    expected = ranked(web, IMPORTANCE, settings, tmp_path / "straight", 4)
    begun: list[int] = []
    again = ranked(web, IMPORTANCE, settings, tmp_path / "work", 4, after_job=lambda done, residual: begun.append(done))
    assert begun == [8, 12] or begun == [12], "the first job ended, and the second one may have"
    assert bytes_of(again) == bytes_of(expected)


def test_different_ranks_share_a_folder(web: Web, tmp_path: Path) -> None:
    settings = Settings(max_iterations=2, tolerance=1e-15)
    other_damping = replace(settings, damping=0.5)
    paid = replace(IMPORTANCE, paid=SOME)
    cases = [(IMPORTANCE, settings), (IMPORTANCE, other_damping), (paid, settings), (INTEREST, settings)]
    found = [bytes_of(ranked(web, wanted, how, tmp_path / "work", 2)) for wanted, how in cases]
    assert len(set(found)) == 4
    assert found == [bytes_of(ranked(web, *case, tmp_path / str(n), 2)) for n, case in enumerate(cases)]


# -- failures


def refused(*arguments: Any, **more: Any) -> str:
    """Return the message of a refusal, which is one line."""
    with pytest.raises(GraphRefused) as problem:
        ranked(*arguments, **more)
    words = str(problem.value)
    assert len(words.splitlines()) == 1
    return words


def test_impossible_requests_are_refused(web: Web, tmp_path: Path) -> None:
    settings = Settings()
    assert "'normalise'" in refused(web, IMPORTANCE, replace(settings, dangling="normalise"), tmp_path)
    assert "Gauss-Seidel" in refused(web, IMPORTANCE, replace(settings, gauss_seidel=True), tmp_path)
    assert "hubs" in refused(web, RankRequest("hubs", "hubs"), settings, tmp_path)
    assert "0 are too few" in refused(web, IMPORTANCE, settings, tmp_path, 0)
    assert "400 numbers" in refused(web, replace(IMPORTANCE, paid=SOME[1:]), settings, tmp_path)
    assert "not only 0" in refused(web, replace(IMPORTANCE, start=0 * SOME), settings, tmp_path)
    with pytest.raises(GraphRefused, match="--streaming"):
        rank_with_beam(web.stored.path, IMPORTANCE, settings, tmp_path, PipelineOptions(["--streaming"]))
    with pytest.raises(GraphRefused, match="Unknown: Beam has no such runner"):
        rank_with_beam(web.stored.path, IMPORTANCE, settings, tmp_path, PipelineOptions(["--runner=Unknown"]))
    with pytest.raises(GraphRefused, match="no graph"):
        rank_with_beam(tmp_path / "nowhere", IMPORTANCE, settings, tmp_path, IN_PROCESS)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_a_worker_does_not_see_is_refused_in_one_line(web: Web, tmp_path: Path) -> None:
    settings = Settings(max_iterations=4, tolerance=1e-15)
    path, away = tmp_path / "graph", tmp_path / "away"
    shutil.copytree(web.stored.path, path)
    mine = Web(StoredGraph(path), web.graph)

    def leave(done: int, residual: float) -> None:
        if done == 2:
            path.rename(away)
            rank_parts._OPENED.task = None  # as a worker that starts now

    words = refused(mine, IMPORTANCE, settings, tmp_path / "work", 2, after_job=leave)
    assert words.startswith(f"{path}: no graph")
    away.rename(path)
    again = ranked(mine, IMPORTANCE, settings, tmp_path / "work", 2)
    assert bytes_of(again) == bytes_of(ranked(web, IMPORTANCE, settings, tmp_path / "straight", 4))


def test_a_worker_with_another_graph_is_refused(web: Web, whole_web: Web) -> None:
    task = replace(web.task(IMPORTANCE), graph=str(whole_web.stored.path))
    slices = web.stored.slices
    (read,) = ReadParts(task, "").process((3, ""))
    assert "another graph" in unpack_part(read[1]).refused
    right = pack_part(parts_after(web, IMPORTANCE, 0)[3])
    for sums_json in (read[1], right):
        sent = dict(SpreadParts(task, slices).process((3, sums_json)))
        assert sorted(sent) == list(range(slices))
        assert all("another graph" in unpack_part(data).refused for data in sent.values())
        ((slice_, out),) = ComputeParts(web.task(IMPORTANCE)).process((5, [right, sent[5]]))
        assert slice_ == 5 and "another graph" in unpack_part(out).refused


def test_damage_between_two_jobs_is_refused(web: Web, tmp_path: Path) -> None:
    wanted, settings = replace(IMPORTANCE, paid=SOME), Settings(max_iterations=2, tolerance=1e-15)
    more = replace(settings, max_iterations=4)
    ranked(web, wanted, settings, tmp_path, 2)
    (folder,) = tmp_path.iterdir()
    part, sums_json, paid = folder / "000002/00003.part", folder / "000002/00005.json", folder / "paid.npy"
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for how in (settings, more):
        assert f"{part}: damaged since it was written: remove {folder}" in refused(web, wanted, how, tmp_path, 2)
    part.unlink()
    assert f"{part}: missing" in refused(web, wanted, more, tmp_path, 2)
    part.write_bytes(whole)
    stored = paid.read_bytes()
    paid.write_bytes(stored[:500])
    assert f"{paid}: missing or damaged" in refused(web, wanted, more, tmp_path, 2)
    paid.write_bytes(stored)
    sums_json.write_bytes(b"{")  # then the job did not end
    assert ranked(web, wanted, settings, tmp_path, 2).iterations == 2
    assert ranked(web, wanted, more, tmp_path, 2).iterations == 4


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (
            OSError(28, "No space left on device"),
            "000004/00004.part: No space left on device: solve this, and run again",
        ),
        (MemoryError("too much"), "iterations 3 to 4: the job failed: MemoryError: too much"),
    ],
    ids=["disk", "memory"],
)
def test_a_failed_job_is_reported_in_one_line_and_repeated(
    problem: Exception, words: str, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(max_iterations=4, tolerance=1e-15)

    def fails(folder: Path, data: bytes) -> None:
        part = unpack_part(data)
        if folder.name == "000004" and part.slice_ > 3 and not part.refused:
            raise problem
        save_part(folder, data)

    with monkeypatch.context() as patch:
        patch.setattr(rank_parts, "save_part", fails)
        assert words in refused(web, IMPORTANCE, settings, tmp_path / "work", 2)
    begun: list[int] = []
    again = ranked(web, IMPORTANCE, settings, tmp_path / "work", 2, after_job=lambda done, residual: begun.append(done))
    assert begun == [4]
    assert bytes_of(again) == bytes_of(ranked(web, IMPORTANCE, settings, tmp_path / "straight", 4))


def test_workers_that_write_to_another_folder_are_noticed(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(rank_parts, "save_part", lambda folder, data: save_part(tmp_path / "elsewhere", data))
    words = refused(web, IMPORTANCE, Settings(max_iterations=1), tmp_path / "work")
    assert "00000.json: the job ended without this file" in words


def test_a_part_written_again_is_the_same(web: Web, tmp_path: Path) -> None:
    part = pack_part(parts_after(web, IMPORTANCE, 1)[2])
    found = []
    for _ in range(2):
        SaveParts(str(tmp_path)).process((2, part))
        found.append({one.name: one.read_bytes() for one in tmp_path.iterdir()})
    assert found[0] == found[1] and sorted(found[0]) == ["00002.json", "00002.part"]
    assert found[0]["00002.part"] == part
