"""A graph on disk equals the same graph in memory, however it was built; damaged graphs are refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opicflow.pipelines.ranks.graph import builder as builder_module
from opicflow.pipelines.ranks.graph.builder import BuildPlan, GraphBuilder
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.slices import DecodeBuffers, decode, encode, key_of
from opicflow.pipelines.ranks.graph.store import GraphRefused, StoredGraph, mixed, write_manifest
from support.paths import TOP
from support.same_bytes import Killed, bytes_of, kill_process, killed_at
from support.stored_graphs import fill, ids_of, links_in_memory, links_on_disk, nasty_webs, random_web, stored
from support.thorough import crossed

# blocks


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2**31 - 2), st.integers(1, 65_535)), max_size=60),
    st.integers(0, 2**31 - 300),
)
@settings(deadline=None)
def test_a_block_comes_back(links, first_source):
    unique = {(source, target): weight for source, target, weight in links}
    pairs = sorted(unique)
    sources = np.array([source for source, _ in pairs], np.int64)
    targets = np.array([target for _, target in pairs], np.int64)
    weights = np.array([unique[pair] for pair in pairs], np.uint16)
    block = encode(key_of(first_source + sources, targets), weights, first_source, 0)
    found = decode(block, len(pairs), DecodeBuffers.of(len(pairs), 201))
    assert found is not None
    assert np.repeat(found.sources, np.diff(found.starts)).tolist() == sources.tolist()
    assert found.targets.tolist() == targets.tolist()
    assert (found.weights.tolist() or [1024] * len(pairs)) == weights.tolist()


@given(st.binary(max_size=80), st.integers(0, 40))
@settings(deadline=None)
def test_a_damaged_block_is_detected_and_never_read_past_its_end(data, links):
    found = decode(np.frombuffer(data, np.uint8), links, DecodeBuffers.of(links, 40))
    if found is not None:
        assert len(found.targets) == links == found.starts[-1]


# the content of a graph


@pytest.mark.parametrize(("name", "slice_pages"), crossed(list(nasty_webs()), [1, 7, None]))
def test_a_graph_on_disk_is_the_one_in_memory(tmp_path: Path, name: str, slice_pages: int | None) -> None:
    graph = nasty_webs()[name]
    on_disk = stored(tmp_path / "g", graph, slice_pages=slice_pages, buckets=4)
    assert links_on_disk(on_disk) == links_in_memory(graph)
    assert on_disk.slices == (1 if slice_pages is None else -(-graph.pages // slice_pages))
    assert on_disk.out_weights.tolist() == graph.out_weights.tolist()
    assert on_disk.in_weights.tolist() == graph.transposed().out_weights.tolist()
    assert on_disk.ids().tolist() == ids_of(graph.pages).tolist()
    assert on_disk.page_categories.tolist() == [page % 256 % 3 for page in range(graph.pages)]
    urls = bytes(on_disk.url_bytes).decode()
    assert urls == "".join(f"https://example.org/{page}" for page in range(graph.pages))
    assert on_disk.manifest["dangling"] == int((graph.out_degrees == 0).sum())
    on_disk.check()


def test_the_bytes_do_not_depend_on_buckets_or_on_how_pages_came(tmp_path: Path) -> None:
    graph = random_web()
    stored(tmp_path / "a", graph, slice_pages=250, buckets=2)
    stored(tmp_path / "b", graph, slice_pages=250, buckets=64)
    builder = GraphBuilder(tmp_path / "c", BuildPlan(categories=("zero", "one", "two"), slice_pages=250))
    ids = ids_of(graph.pages)
    for page in np.random.default_rng(1).permutation(graph.pages).tolist():
        low, high = int(graph.starts[page]), int(graph.starts[page + 1])
        url = np.frombuffer(b"https://example.org/%d" % page, np.uint8)
        one = ids[page : page + 1]
        builder.add_pages(one, np.array([page % 256 % 3], np.uint8), np.array([0, len(url)]), url)
        weights = graph.weights[low:high].astype(np.uint16)
        builder.add_visits(one, np.array([0, high - low]), ids[graph.targets[low:high]], weights, together=False)
    builder.finish()
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b") == bytes_of(tmp_path / "c")


def test_little_memory_makes_small_slices_and_the_same_links(tmp_path: Path) -> None:
    graph = random_web(100_000, 300_000)
    on_disk = stored(tmp_path / "g", graph, memory_bytes=1 << 20)
    assert on_disk.slices == 4
    assert on_disk.slice_pages * 8 * 2 <= 1 << 19
    assert links_on_disk(on_disk) == links_in_memory(graph)


def test_of_a_page_the_last_visit_counts_and_edge_lists_add_up(tmp_path: Path) -> None:
    ids = ids_of(5)

    def links_of(*visits: tuple[int, list[int], bool]) -> dict[tuple[int, int], int]:
        path = tmp_path / "g"
        shutil.rmtree(path, ignore_errors=True)
        builder = GraphBuilder(path, BuildPlan(buckets=2))
        for page, links, together in visits:
            weights = np.full(len(links), 1024, np.uint16)
            builder.add_visits(ids[[page]], np.array([0, len(links)]), ids[links], weights, together)
        found = builder.finish()
        numbers = np.searchsorted(mixed(ids), mixed(found.ids())).tolist()
        return {(numbers[a], numbers[b]): weight for (a, b), weight in links_on_disk(found).items()}

    assert links_of((0, [1, 2], False), (0, [3], False)) == {(0, 3): 1024}
    assert links_of((0, [1, 1, 0], False)) == {(0, 1): 2048}
    assert links_of((0, [1], False), (0, [], False)) == {}
    assert links_of((0, [1], True), (1, [2], True), (0, [3], True)) == {(0, 1): 1024, (0, 3): 1024, (1, 2): 1024}
    assert links_of((0, [1], False), (0, [2], True)) == {(0, 1): 1024}  # a crawl is more reliable than a list


def test_both_ways_every_link_counts_once_in_either_direction(tmp_path: Path) -> None:
    graph = nasty_webs()["weights"]
    on_disk = stored(tmp_path / "g", graph, both_ways=True, slice_pages=13)
    pairs = set(links_in_memory(graph))
    assert links_on_disk(on_disk) == {pair: 1024 for one in pairs for pair in (one, one[::-1])}
    assert on_disk.out_weights.tolist() == on_disk.in_weights.tolist()
    sums = np.bincount([a for a, _ in links_on_disk(on_disk)], minlength=60) * 1024
    assert on_disk.out_weights.tolist() == sums.tolist()


@pytest.mark.parametrize(
    "name",
    ["pages.ids", "slice-00000.links", "slice-00000.blocks", ".graph.json.partial", "work/.progress.json.partial"],
)
def test_links_that_others_have_put_into_the_folder_of_a_graph_are_not_followed(name: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"kept")
    builder = GraphBuilder(tmp_path / "g", BuildPlan(categories=("zero", "one", "two")))
    (tmp_path / "g" / name).symlink_to(tmp_path / "precious")
    fill(builder, random_web())
    assert builder.finish().pages > 0 and (tmp_path / "precious").read_bytes() == b"kept"


# interrupted


@pytest.mark.parametrize(("kill_at", "when"), crossed([0, 1, 2, 5, 6, 9, 10, 13, 14, 17, 18], ["before", "after"]))
def test_a_build_that_is_killed_goes_on_and_makes_the_same_bytes(tmp_path: Path, kill_at: int, when: str) -> None:
    graph = random_web()
    plan = BuildPlan(categories=("zero", "one", "two"), buckets=4, slice_pages=250)
    stored(tmp_path / "whole", graph, buckets=4, slice_pages=250)
    with pytest.raises(Killed), killed_at(builder_module, "write_whole", kill_at + 1, when == "after"):
        builder = GraphBuilder(tmp_path / "g", plan)
        fill(builder, graph)
        builder.checkpoint("all")
        builder.finish()
    for file in [*(tmp_path / "g").glob("pages.*"), *(tmp_path / "g" / "work").glob("*-*")]:
        if not (tmp_path / "g" / "graph.json").exists():
            with open(file, "ab") as more:
                more.write(b"half-writt")  # what a process that dies may leave behind
    if (tmp_path / "g" / "graph.json").exists():  # it was killed when all was done
        with pytest.raises(GraphRefused, match="a graph already"):
            GraphBuilder(tmp_path / "g", plan)
        assert bytes_of(tmp_path / "g") == bytes_of(tmp_path / "whole")
    else:
        again = GraphBuilder(tmp_path / "g", plan)
        if not again.is_read:
            assert again.position in (None, "all")
            if again.position is None:
                fill(again, graph)
        again.finish()
        assert bytes_of(tmp_path / "g") == bytes_of(tmp_path / "whole")


@pytest.mark.slow
def test_a_process_that_builds_survives_kill_9(tmp_path: Path) -> None:
    """A real one, killed where it happens to be, again and again until it is done."""
    graph = random_web(50_000, 400_000)
    stored(tmp_path / "whole", graph, buckets=64, slice_pages=20_000)
    script = """
import sys
from pathlib import Path
from support.stored_graphs import fill, random_web
from opicflow.pipelines.ranks.graph.builder import BuildPlan, GraphBuilder
builder = GraphBuilder(Path(sys.argv[1]), BuildPlan(categories=("zero", "one", "two"), buckets=64, slice_pages=20_000))
if not builder.is_read:
    fill(builder, random_web(50_000, 400_000))
builder.finish()
"""
    command = [sys.executable, "-c", script, tmp_path / "g"]
    environment = {**os.environ, "PYTHONPATH": str(TOP / "tests")}
    progress = tmp_path / "g" / "work" / "progress.json"

    def steps() -> int:
        with suppress(OSError, ValueError):
            return int(json.loads(progress.read_bytes())["steps"])
        return -1

    for kill_at in (0, 30, 100, 180):
        assert kill_process(command, lambda process, kill_at=kill_at: steps() >= kill_at, env=environment)  # type: ignore[misc]
    assert not kill_process(command, lambda process: False, env=environment)
    assert bytes_of(tmp_path / "g") == bytes_of(tmp_path / "whole")


def test_a_build_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    builder = GraphBuilder(tmp_path / "g", BuildPlan(identity="one"))
    fill(builder, random_web())
    builder.checkpoint(1)
    with pytest.raises(GraphRefused, match="was interrupted there: remove the folder"):
        GraphBuilder(tmp_path / "g", BuildPlan(identity="another"))
    (tmp_path / "g" / "work" / "links-0").unlink()
    with pytest.raises(GraphRefused, match="lost since the build was interrupted"):
        GraphBuilder(tmp_path / "g", BuildPlan(identity="one"))


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(GraphRefused, match="not empty, and not a graph"):
        GraphBuilder(tmp_path, BuildPlan())
    assert os.listdir(tmp_path) == ["mine"]
    stored(tmp_path / "g", random_web())
    with pytest.raises(GraphRefused, match="there is a graph already"):
        GraphBuilder(tmp_path / "g", BuildPlan())


@pytest.mark.parametrize(
    "plan, words",
    [
        ({"memory_bytes": 1000}, "memory is 1,000 bytes: give at least 1MB"),
        ({"buckets": 3}, "not a power of two"),
        ({"slice_pages": 0}, "give at least 1"),
        ({"ranks_at_once": 0}, "give at least 1"),
    ],
)
def test_plans_that_make_no_sense_are_refused(plan, words) -> None:
    with pytest.raises(GraphRefused, match=words):
        BuildPlan(**plan)


def test_a_graph_without_pages_is_none(tmp_path: Path) -> None:
    builder = GraphBuilder(tmp_path / "g", BuildPlan())
    with pytest.raises(GraphRefused, match="the input has no pages"):
        builder.finish()


# damaged


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "g"
    stored(path, random_web(), slice_pages=300)
    return path


def read_everything(path: Path) -> None:
    graph = StoredGraph(path)
    graph.check()


FILES = ["graph.json", "pages.ids", "pages.out", "pages.in", "pages.categories", "pages.urls", "pages.ends"]
FILES += [f"slice-0000{n}.{kind}" for n in range(3) for kind in ("links", "blocks")]


@pytest.mark.parametrize("name", FILES)
def test_damage_is_refused_wherever_it_is(tmp_path: Path, sound: Path, name: str) -> None:
    random = np.random.default_rng(len(name))
    whole = (sound / name).read_bytes()
    positions = {0, len(whole) // 2, len(whole) - 1, *random.integers(0, len(whole), 20).tolist()}
    damaged = [whole[:-1], whole + b"\0", b"", *(_flipped(whole, position) for position in sorted(positions))]
    for number, data in enumerate(damaged):
        path = tmp_path / str(number)
        shutil.copytree(sound, path)
        (path / name).write_bytes(data)
        if name == "graph.json" and _same_json(data, whole):
            continue
        with pytest.raises(GraphRefused, match=r"damaged|has version|no graph"):
            read_everything(path)
    shutil.copytree(sound, tmp_path / "missing")
    (tmp_path / "missing" / name).unlink()
    with pytest.raises(GraphRefused, match=r"missing|no graph"):
        read_everything(tmp_path / "missing")


def _flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x20]) + data[position + 1 :]


def _same_json(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def test_a_damaged_block_is_refused_while_ranks_are_computed(tmp_path: Path, sound: Path) -> None:
    path = tmp_path / "g"
    shutil.copytree(sound, path)
    links = (path / "slice-00001.links").read_bytes()
    (path / "slice-00001.links").write_bytes(_flipped(links, len(links) // 2))
    graph = StoredGraph(path)
    with pytest.raises(GraphRefused, match=r"slice-00001\.links: missing or damaged: build the graph again"):
        links_on_disk(graph)


def test_another_version_is_refused_by_name(tmp_path: Path, sound: Path) -> None:
    path = tmp_path / "g"
    shutil.copytree(sound, path)
    manifest = json.loads((path / "graph.json").read_bytes())
    (path / "graph.json").write_text(json.dumps({**manifest, "version": 2}))
    with pytest.raises(GraphRefused, match="version '2', this version reads 1: build it again"):
        StoredGraph(path)
    body = {name: value for name, value in manifest.items() if name not in ("format", "version", "digest", "pages")}
    (path / "graph.json").write_bytes(write_manifest(body))
    with pytest.raises(GraphRefused, match="damaged"):
        StoredGraph(path)


def test_a_graph_in_memory_is_the_one_on_disk(tmp_path: Path) -> None:
    graph = nasty_webs()["weights"]
    on_disk = stored(tmp_path / "g", graph, slice_pages=20)
    for most in (0, 700, 1 << 20):
        on_disk.hold(most)
        assert links_on_disk(on_disk) == links_on_disk(on_disk) == links_in_memory(graph)
    assert sum(column.nbytes for one in on_disk._held.values() for column in one) <= 1 << 20
    assert len(on_disk._held) == 9  # three ranges of sources in each of three slices


@pytest.mark.slow
def test_a_page_of_a_million_links(tmp_path: Path) -> None:
    pages = 1_000_001
    graph = Graph.from_links(pages, np.zeros(pages - 1, np.int64), np.arange(1, pages))
    on_disk = stored(tmp_path / "g", graph, memory_bytes=8 << 20, buckets=16)
    assert on_disk.links == pages - 1
    assert on_disk.slices > 1
    assert on_disk.bytes_of_links < 1.1 * (pages - 1)  # neighbours are one byte apart
    targets = [on_disk.bounds(s)[0] + block.links.targets for s in range(on_disk.slices) for block in on_disk.blocks(s)]
    assert np.array_equal(np.concatenate(targets), np.arange(1, pages))
