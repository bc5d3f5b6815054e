"""`opicflow graph build --vertices`: numbered edge lists."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from opicflow.connectors.files import line_blocks
from opicflow.pipelines.ranks.graph.store import StoredGraph
from opicflow.pipelines.ranks.graph_rows import urls_of
from support.commands import CommandResult, finished
from support.stored_graphs import links_on_disk

HOSTS = ["10.0.0.1", "com.example", "com.example.1", "com.example.www", "org.b", "uk.co.c"]
URLS = ["10.0.0.1", "example.com", "1.example.com", "www.example.com", "b.org", "c.co.uk"]
EDGES = [(1, 0), (1, 3), (2, 1), (3, 1), (3, 5), (5, 2)]


def lines(rows: list[tuple[object, ...]]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def build(folder: Path, vertices: str, edges: str, *options: object, code: int = 0) -> CommandResult:
    (folder / "vertices.txt").write_text(vertices)
    (folder / "edges.txt").write_text(edges)
    words = ("--vertices", folder / "vertices.txt", "--out", folder / "g", "--quiet", *options)
    return finished("graph", "build", folder / "edges.txt", *words, code=code)


def links_of(path: Path) -> dict[tuple[str, str], int]:
    graph = StoredGraph(path)
    urls = urls_of(graph, 0, graph.pages)
    return {(urls[source], urls[target]): weight for (source, target), weight in links_on_disk(graph).items()}


def home(number: int) -> str:
    return f"https://{URLS[number]}/"


EXPECTED = {(home(source), home(target)): 1024 for source, target in EDGES}


def test_reversed_hosts_become_pages_with_links(tmp_path: Path) -> None:
    done = build(tmp_path, lines([*enumerate(HOSTS)]), lines(EDGES))
    assert links_of(tmp_path / "g") == EXPECTED
    graph = StoredGraph(tmp_path / "g")
    assert sorted(urls_of(graph, 0, graph.pages)) == sorted(map(home, range(6)))
    assert "vertices.txt: its hosts are reversed (com.example.www), as in files of Common Crawl\n" in done.out
    assert "6 pages, 6 links" in done.out


@pytest.mark.parametrize("name_of", [lambda host: host, lambda host: f"https://{host}/"])
def test_hosts_and_urls_are_taken_as_they_are(tmp_path: Path, name_of) -> None:
    done = build(tmp_path, lines([*enumerate(map(name_of, URLS))]), lines(EDGES), "--json")
    assert links_of(tmp_path / "g") == EXPECTED
    assert json.loads(done.out)["hosts_are_reversed"] is False


def test_files_are_read_in_blocks_in_any_order_and_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_blocks, "_BLOCK_BYTES", 40)
    random = np.random.default_rng(2)
    numbers = (random.permutation(300) * 7 + 5).tolist()
    vertices = [(number, f"com.site{number}", 1) for number in numbers]
    pairs = {(numbers[a], numbers[b]) for a, b in random.integers(0, 300, (900, 2)).tolist() if a != b}
    rows = random.permutation(sorted(pairs)).tolist()
    (tmp_path / "v.gz").write_bytes(gzip.compress(lines(vertices).encode()))
    for number, some in enumerate((rows[:500], rows[500:])):
        (tmp_path / f"e{number}.gz").write_bytes(gzip.compress(lines(some).encode()))
    files = (tmp_path / "e0.gz", tmp_path / "e1.gz", "--vertices", tmp_path / "v.gz")
    finished("graph", "build", *files, "--out", tmp_path / "g", "--quiet", "--slice-pages", "100")
    assert links_of(tmp_path / "g") == {(f"https://site{a}.com/", f"https://site{b}.com/"): 1024 for a, b in pairs}
    assert StoredGraph(tmp_path / "g").pages == 300


def test_weights_add_up_and_links_to_oneself_are_dropped(tmp_path: Path) -> None:
    edges = lines([(1, 4, 0.5), (1, 4, 2), (4, 4, 1), (4, 1, 0), (4, 0, 1000)])
    build(tmp_path, lines([*enumerate(HOSTS)]), edges)
    assert links_of(tmp_path / "g") == {(home(1), home(4)): 2560, (home(4), home(0)): 65_535}


def test_pages_of_numbered_edges_are_ranked_by_domain(tmp_path: Path) -> None:
    build(tmp_path, lines([*enumerate(HOSTS)]), lines(EDGES))
    found = json.loads(finished("rank", tmp_path / "g", "--by", "domain", "--json", "--quiet").out)
    assert {row["site"]: row["pages"] for row in found["top"]["importance"]} == {
        "example.com": 3,
        "10.0.0.1": 1,
        "b.org": 1,
        "c.co.uk": 1,
    }


GOOD = lines([*enumerate(HOSTS)])
BAD = {
    "no number": (GOOD + "x\tcom.a\n", "1\t2\n", [], "vertices.txt, line 7: 'x' is no number of a vertex"),
    "negative": (GOOD + "-1\tcom.a\n", "1\t2\n", [], "vertices.txt, line 7: no number below"),
    "too large": (GOOD + "99999999999\tcom.a\n", "1\t2\n", [], "vertices.txt, line 7: no number below"),
    "no name": (GOOD + "6\t\n", "1\t2\n", [], "vertices.txt, line 7: no name: correct the line, or remove it"),
    "one column": (GOOD + "6\n", "1\t2\n", [], "vertices.txt, line 7: 1 columns, not 2: divide them by '\\t'"),
    "no tabs": ("0 com.a\n", "1\t2\n", [], "vertices.txt, line 1: 1 columns, not 2: divide them by '\\t'"),
    "no host": (GOOD + "6\ta b\n", "1\t2\n", [], "vertices.txt, line 7: 'https://a b/' is no URL of a page"),
    "mail": (GOOD + "6\tmailto://a\n", "1\t2\n", [], "vertices.txt, line 7: 'mailto://a' is no URL of a page"),
    "twice": (GOOD + "\n3\tcom.a\n", "1\t2\n", [], "vertices.txt, line 8: vertex 3 is there twice: remove one line"),
    "empty": ("\n", "1\t2\n", [], "vertices.txt: it is empty: name a file of vertices"),
    "unknown vertex": (GOOD, "1\t2\n\n1\t6\n", [], "edges.txt, line 3: vertex 6 is not in "),
    "edge of names": (GOOD, "1\t2\ncom.a\t2\n", [], "edges.txt, line 2: 'com.a' is no number of a vertex"),
    "one number": (GOOD, "1\t2\n1\n", [], "edges.txt, line 2: 1 columns, not 2"),
    "weight": (GOOD, "1\t2\t1\n1\t3\tx\n", [], "edges.txt, line 2: 'x' is no weight"),
    "negative weight": (GOOD, "1\t2\t1\n1\t3\t-1\n", [], "edges.txt, line 2: the weight is not a number from 0"),
    "with a state": (GOOD, "1\t2\n", ["--state", "s"], "name logs, or a replay's state"),
    "weights of kinds": (GOOD, "1\t2\n", ["--set", "internal-weight=0.5"], "are for crawl logs: omit them"),
    "categories": (GOOD, "1\t2\n", ["--category", "*.pdf"], "are for crawl logs: omit them"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_mistake_gives_one_line_of_error(tmp_path: Path, what: str) -> None:
    vertices, edges, options, words = BAD[what]
    done = build(tmp_path, vertices, edges, *options, code=2)
    assert words in done.err
    assert done.err.count("\n") == 1 and done.out == ""


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("1\t2\n")
    words = ("--vertices", tmp_path / "none.txt", "--out", tmp_path / "g", "--quiet")
    assert "none.txt: no such file" in finished("graph", "build", tmp_path / "edges.txt", *words, code=2).err
    done = finished("graph", "build", "--state", tmp_path, *words, code=2)
    assert "--vertices, --state: a state has no numbered edges" in done.err
