"""`opicflow graph` and `opicflow rank`."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from opicflow.connectors.files.rank_reader import read_ranks
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.hosts import weights_of_hosts
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.ranks.graph.store import StoredGraph, mixed, unmixed
from opicflow.pipelines.ranks.graph_options import size_of
from opicflow.pipelines.ranks.graph_ranks import parse_ranks
from opicflow.schemas.errors import Interrupted
from opicflow.schemas.pages import page_id, page_ids
from support.commands import finished
from support.guides import python_blocks

PAGES = {
    "https://a.example/": ["https://a.example/1", "https://b.example/", "https://a.example/feed.xml"],
    "https://a.example/1": ["https://a.example/", "https://b.example/"],
    "https://b.example/": ["https://a.example/", "https://c.example/unread"],
    "https://a.example/feed.xml": [],
}
KINDS = {"https://a.example/feed.xml": "application/rss+xml"}


def events() -> list[dict[str, object]]:
    return [
        {"url": url, "status": 200, "links": links, "content_type": KINDS.get(url, "text/html")}
        for url, links in PAGES.items()
    ]


def write(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "crawl.jsonl", events())


@pytest.fixture
def built(log: Path, tmp_path: Path) -> Path:
    finished("graph", "build", log, "--out", tmp_path / "g", "--quiet")
    return tmp_path / "g"


def exact(personal: dict[str, float] | list[str] | None = None, backward: bool = False) -> dict[str, float]:
    """Return the oracle's ranks of the web above."""
    urls = sorted({*PAGES, *(link for links in PAGES.values() for link in links)})
    pairs = [(urls.index(url), urls.index(link)) for url, links in PAGES.items() for link in links]
    graph = Graph.from_links(len(urls), *np.array(pairs).T)
    weights = personal if isinstance(personal, dict) else dict.fromkeys(personal or urls, 1.0)
    paid = np.array([weights.get(url, 0.0) for url in urls])
    ranks = pagerank(graph.transposed() if backward else graph, personalisation=paid, tolerance=1e-15).values
    return dict(zip(urls, ranks.tolist(), strict=True))


def columns(path: Path) -> dict[str, dict[str, float]]:
    """Return the ranks of a CSV, by name and URL."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["page"], 16) for row in rows] == unmixed(
        np.sort(mixed(page_ids([row["url"] for row in rows])))
    ).tolist()
    names = [name for name in rows[0] if name not in ("url", "page")]
    return {name: {row["url"]: float(row[name]) for row in rows} for name in names}


def test_ranks_of_a_log_are_the_oracles(log: Path, tmp_path: Path) -> None:
    ranks = "importance,interest,hubs,authorities,interest:feed,interest:importance"
    done = finished("rank", log, "--ranks", ranks, "--out", tmp_path / "ranks.csv", "--tolerance", "1e-14", "--quiet")
    found = columns(tmp_path / "ranks.csv")
    assert list(found) == ["importance", "interest", "hubs", "authorities", "interest_feed", "interest_importance"]
    assert found["importance"] == pytest.approx(exact(), abs=1e-12)
    assert found["interest"] == pytest.approx(exact(backward=True), abs=1e-12)
    assert found["interest_feed"] == pytest.approx(exact(["https://a.example/feed.xml"], backward=True), abs=1e-12)
    for rank in found.values():
        assert sum(rank.values()) == pytest.approx(1, abs=1e-12)
    assert "5 pages, 7 links" in done.out
    assert "at most" in done.out
    assert "ranks.csv, 5 pages" in done.out


def test_interest_is_computed_as_printed_and_by_the_importance_of_a_category(log: Path, tmp_path: Path) -> None:
    ranks = "importance,interest-mean:feed,interest-sum,interest:importance:html"
    finished("rank", log, "--ranks", ranks, "--out", tmp_path / "ranks.csv", "--tolerance", "1e-14", "--quiet")
    found = columns(tmp_path / "ranks.csv")
    assert list(found) == ["importance", "interest_mean_feed", "interest_sum", "interest_importance_html"]
    html = {
        url: value for url, value in exact().items() if url in PAGES and url not in KINDS
    }  # the unread page is none
    assert found["interest_importance_html"] == pytest.approx(exact(html, backward=True), abs=1e-12)
    feed, unread = "https://a.example/feed.xml", "https://c.example/unread"
    mean, both = found["interest_mean_feed"], found["interest_sum"]
    kept = mean[feed] / 0.15  # the virtual page pays the feed alone: r (1 - c) is its value, as it links to nothing
    assert mean[unread] == 0
    for url, links in PAGES.items():
        if links:
            assert mean[url] == pytest.approx(kept * 0.85 * sum(mean[link] for link in links) / len(links), abs=1e-12)
            received = sum(both[link] / max(1, len(PAGES.get(link, ()))) for link in links)
            assert both[url] == pytest.approx(both[feed] / 0.03 * (0.85 * received + 0.03), abs=1e-12)
    refused = finished("rank", log, "--ranks", "importance,interest:importance:nope", "--quiet", code=2)
    assert "interest:importance:nope: no such category: the graph has" in refused.err


def test_a_log_with_other_names_of_fields_has_the_same_ranks(log: Path, tmp_path: Path) -> None:
    names = {"url": "page_url", "links": "found"}
    other = write(tmp_path / "x", [{names.get(key, key): value for key, value in event.items()} for event in events()])
    reading = ("--field", "url=page_url", "--field", "links=found", "--input-format", "jsonl")
    finished("rank", log, "--out", tmp_path / "a.csv", "--quiet")
    finished("rank", other, *reading, "--out", tmp_path / "b.csv", "--quiet")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    refused = finished("rank", other, "--quiet", code=2)
    assert refused.err == (
        f"opicflow: {other}: nothing could be read: every record was rejected (opicflow validate shows why)\n"
    )


def test_rejects_are_counted_without_progress_too(log: Path, tmp_path: Path) -> None:
    log.write_text(log.read_text() + "nonsense\n")
    done = finished("rank", log, "--quiet")
    assert done.err == "1 event rejected: opicflow validate shows them\n"
    (tmp_path / "hosts.txt").write_text("a.example\n")
    done = finished("community", "rank", "--local", tmp_path / "hosts.txt", "--from", log, "--quiet")
    assert done.err == "1 event rejected: opicflow validate shows them\n"


def test_a_hop_has_no_vote_off_line_either(log: Path, tmp_path: Path) -> None:
    """A replay, a graph of its log and one of its state agree; only the last redirect or answer of a page counts."""
    hops = [f"https://b.example/hop{number}" for number in range(4)]
    more = events()
    more[0] |= {"redirects": hops[:3]}
    more.insert(0, {"url": hops[1], "status": 200, "links": []})
    more.insert(0, {"url": "https://b.example/", "status": 301, "links": [hops[0]]})
    more.append({"url": hops[2], "status": 200, "links": ["https://c.example/unread", hops[3]]})
    log = write(tmp_path / "redirected.jsonl", more)
    finished("rank", log, "--out", tmp_path / "ranks.csv", "--tolerance", "1e-14", "--quiet")
    found = columns(tmp_path / "ranks.csv")["importance"]

    links = PAGES | {hops[0]: [hops[1]], hops[1]: [hops[2]], hops[2]: ["https://c.example/unread", hops[3]]}
    urls = sorted({*links, *(link for targets in links.values() for link in targets)})
    pairs = [(urls.index(url), urls.index(link)) for url, targets in links.items() for link in targets]
    votes = [float(url not in hops[:2]) for url in urls]
    ranks = pagerank(Graph.from_links(len(urls), *np.array(pairs).T), personalisation=votes, tolerance=1e-15).values
    assert found == pytest.approx(dict(zip(urls, ranks.tolist(), strict=True)), abs=1e-12)

    finished("replay", log, "--state", tmp_path / "state", "--out", tmp_path / "out", "--quiet")
    replayed = [json.loads(line) for line in (tmp_path / "out/importance.jsonl").read_bytes().splitlines()]
    assert {one["url"]: one["importance"] for one in replayed} == pytest.approx(found, abs=1e-4)
    finished("graph", "build", "--state", tmp_path / "state", "--out", tmp_path / "g", "--quiet")
    finished("rank", tmp_path / "g", "--out", tmp_path / "state.csv", "--tolerance", "1e-14", "--quiet")
    assert columns(tmp_path / "state.csv")["importance"] == pytest.approx(found, abs=1e-12)


def test_every_format_has_the_same_ranks(built: Path, tmp_path: Path) -> None:
    for name in ("r.csv", "r.csv.gz", "r.jsonl", "r.jsonl.gz", "r.parquet"):
        finished("rank", built, "--ranks", "importance,hubs", "--out", tmp_path / name, "--quiet")
    csv_ = (tmp_path / "r.csv").read_bytes()
    assert gzip.decompress((tmp_path / "r.csv.gz").read_bytes()) == csv_
    lines = (tmp_path / "r.jsonl").read_bytes()
    assert gzip.decompress((tmp_path / "r.jsonl.gz").read_bytes()) == lines
    rows = [json.loads(line) for line in lines.splitlines()]
    assert pq.read_table(tmp_path / "r.parquet").to_pylist() == rows
    assert list(rows[0]) == ["url", "page", "importance", "hubs", "authorities"]
    for column in ("importance", "authorities"):
        values = [
            read_ranks(str(tmp_path / name), column).values.tolist() for name in ("r.csv", "r.jsonl", "r.parquet")
        ]
        assert values[0] == values[1] == values[2]
    again = tmp_path / "again.parquet"
    finished("rank", built, "--ranks", "importance,hubs", "--out", again, "--quiet")
    assert again.read_bytes() == (tmp_path / "r.parquet").read_bytes()


def test_both_orders_agree(built: Path, tmp_path: Path) -> None:
    found = []
    for number, options in enumerate(([], ["--gauss-seidel"])):
        out = tmp_path / f"{number}.csv"
        finished("rank", built, "--out", out, "--tolerance", "1e-13", "--quiet", *options)
        found.append(columns(out)["importance"])
    for one in found:
        assert one == pytest.approx(exact(), abs=1e-12)
    assert sorted(path.name for path in built.iterdir() if path.is_dir()) == []  # no temporary folder is left


def test_personal_to_hosts_and_to_pages_of_a_file(built: Path, tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("# hosts\nB.example 2 # weighs\n\nelsewhere.example\n")
    (tmp_path / "mine.csv").write_text("url,worth\nhttps://a.example/1,3\nhttps://b.example/,1\n")
    ranks = f"importance:@{tmp_path}/good.txt,interest:@{tmp_path}/mine.csv#worth"
    out = tmp_path / "r.csv"
    finished("rank", built, "--ranks", ranks, "--out", out, "--tolerance", "1e-14", "--quiet")
    found = columns(out)
    assert found["importance_good"] == pytest.approx(exact(["https://b.example/"]), abs=1e-12)
    expected = exact({"https://a.example/1": 3.0, "https://b.example/": 1.0}, backward=True)
    assert found["interest_mine"] == pytest.approx(expected, abs=1e-12)


def test_a_start_saves_iterations(built: Path, tmp_path: Path) -> None:
    def iterations(*options: object) -> int:
        return int(json.loads(finished("rank", built, "--json", "--quiet", *options).out)["ranks"][0]["iterations"])

    finished("rank", built, "--out", tmp_path / "r.csv", "--tolerance", "1e-13", "--quiet")
    assert iterations("--start", tmp_path / "r.csv") == 1 < iterations()


def test_categories_of_urls_and_of_content(log: Path, tmp_path: Path) -> None:
    finished("graph", "build", log, "--out", tmp_path / "g", "--category", "*unread*", "--quiet")
    info = json.loads(finished("graph", "info", tmp_path / "g", "--json").out)
    assert info["pages_by_category"] == {"html": 3, "feed": 1, "*unread*": 1}
    out = tmp_path / "r.csv"
    finished("rank", tmp_path / "g", "--ranks", "interest:*unread*", "--out", out, "--tolerance", "1e-14", "--quiet")
    expected = exact(["https://c.example/unread"], backward=True)
    assert columns(out)["interest_unread"] == pytest.approx(expected, abs=1e-12)


def test_info_and_check(built: Path) -> None:
    info = json.loads(finished("graph", "info", built, "--json").out)
    kept = {name: info[name] for name in ("pages", "links", "pages_read", "dangling", "slices")}
    assert kept == {"pages": 5, "links": 7, "pages_read": 4, "dangling": 1, "slices": 1}
    assert "7  links" in finished("graph", "info", built).out
    assert re.search(r"sound: 5 pages, 7 links, every byte", finished("graph", "check", built).out)
    (built / "pages.in").write_bytes(bytes(40))
    done = finished("graph", "check", built, code=2)
    assert re.fullmatch(r"opicflow: \S+pages\.in: missing or damaged: build the graph again\n", done.err)


def test_a_page_has_the_links_of_its_last_visit_and_a_page_that_is_gone_has_none(tmp_path: Path) -> None:
    later = [
        {"url": "https://a.example/1", "status": 200, "links": ["https://b.example/"]},
        {"url": "https://b.example/", "status": 404},
        {"url": "https://a.example/", "status": 503},
        {"url": "https://a.example/feed.xml", "status": 200},
        {"url": "https://d.example/", "announce": True},
        {"url": "no page"},
    ]
    log = write(tmp_path / "crawl.jsonl", events() + later)
    done = finished("graph", "build", log, "--out", tmp_path / "g", "--quiet")
    assert "1  rejected: not-a-page (opicflow validate shows them)" in done.out
    graph = StoredGraph(tmp_path / "g")
    out = dict(zip(graph.ids().tolist(), graph.out_weights.tolist(), strict=True))
    weights = {"https://a.example/": 3, "https://a.example/1": 1, "https://b.example/": 0, "https://d.example/": 0}
    assert {url: out[page_id(url)] / 1024 for url in weights} == weights
    assert graph.pages == 6


def test_the_graph_of_remembered_links_equals_that_of_the_log(log: Path, tmp_path: Path) -> None:
    finished("replay", log, "--state", tmp_path / "state", "--remember-links", "--by-media", "--quiet")
    finished("graph", "build", "--state", tmp_path / "state", "--out", tmp_path / "g", "--quiet")
    out = tmp_path / "r.csv"
    finished(
        "rank", tmp_path / "g", "--ranks", "importance,interest:feed", "--out", out, "--tolerance", "1e-14", "--quiet"
    )
    found = columns(out)
    assert found["importance"] == pytest.approx(exact(), abs=1e-12)
    assert found["interest_feed"] == pytest.approx(exact(["https://a.example/feed.xml"], backward=True), abs=1e-12)
    finished("replay", log, "--state", tmp_path / "other", "--history", "interpolation", "--quiet")
    done = finished("graph", "build", "--state", tmp_path / "other", "--out", tmp_path / "h", "--quiet", code=2)
    assert "remembers no links: replay with --remember-links" in done.err


def test_edge_lists_add_up_over_files(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("https://a.example/\thttps://b.example/\nhttps://b.example/\thttps://a.example/\n")
    (tmp_path / "b.tsv").write_text("https://a.example/\thttps://c.example/\t2\n")
    finished("graph", "build", tmp_path / "a.tsv", tmp_path / "b.tsv", "--out", tmp_path / "g", "--quiet")
    graph = StoredGraph(tmp_path / "g")
    assert (graph.pages, graph.links) == (3, 3)
    assert sorted(graph.out_weights.tolist()) == [0, 1024, 3072]


def test_an_interrupted_build_of_several_logs_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opicflow.pipelines.ranks import link_graph

    logs = [write(tmp_path / f"{number}.jsonl", events()[number:] + events()[:number]) for number in range(4)]
    finished("graph", "build", *logs, "--out", tmp_path / "whole", "--quiet")
    monkeypatch.setattr(link_graph, "_BYTES_BETWEEN_CHECKPOINTS", 0)
    route, calls = link_graph.route_rows, 0

    def killed(*given: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise RuntimeError("killed")
        return route(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(link_graph, "route_rows", killed)
    finished("graph", "build", *logs, "--out", tmp_path / "g", "--quiet", code=1)
    before = calls
    finished("graph", "build", *logs, "--out", tmp_path / "g", "--quiet")
    assert 0 < calls - before < 8  # files already read are skipped: each file is two parts
    assert {file.name: file.read_bytes() for file in (tmp_path / "g").iterdir()} == {
        file.name: file.read_bytes() for file in (tmp_path / "whole").iterdir()
    }


def test_an_interrupted_build_says_that_the_graph_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opicflow.pipelines.cli import main
    from opicflow.pipelines.ranks import link_graph
    from opicflow.pipelines.ranks.commands import graph

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    log = write(tmp_path / "log.jsonl", events())
    monkeypatch.setattr(link_graph, "route_rows", interrupt)
    with pytest.raises(Interrupted, match="/g is not complete: run the same command again"):
        graph.run(main.parse(["graph", "build", str(log), "--out", str(tmp_path / "g"), "--quiet"]))


def test_pages_without_links_are_noted(tmp_path: Path) -> None:
    ranks = tmp_path / "ranks.csv"
    ranks.write_text("url,importance\nhttps://a.example/,0.7\nhttps://b.example/,0.3\n")
    note = "no link between its pages, so all have the same ranks: name crawl logs with links, or edge lists\n"
    numbered = tmp_path / "g"
    assert finished("graph", "build", ranks, "--out", numbered, "--quiet").err == f"note: {numbered}: {note}"
    assert finished("rank", numbered, "--quiet").err == f"note: {numbered}: {note}"
    assert finished("rank", ranks, "--measure", "harmonic", "--quiet").err == f"note: {ranks}: {note}"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["rank", "{g}", "--ranks", "nonsense"], "no such rank: give importance (PageRank)"),
        (["rank", "{g}", "--ranks", "interest:pdf"], "no page of the graph is in this category"),
        (["rank", "{g}", "--ranks", "interest:nothing"], "no such category: the graph has unknown, html, xml"),
        (["rank", "{g}", "--ranks", "interest:importance"], "it needs importance: add importance to --ranks"),
        (["rank", "{g}", "--ranks", "importance:@{d}/none.csv"], "none.csv: cannot be read"),
        (["rank", "{g}", "--ranks", "importance:@{d}/empty.txt"], "no host in it"),
        (["rank", "{g}", "--ranks", "importance:@{d}/bad.txt"], "bad.txt, line 1: no host with a weight"),
        (["rank", "{g}", "--ranks", "importance:@{d}/other.txt"], "none of its pages is in the graph"),
        (["rank", "{g}", "--out", "{d}/r.xls"], "ranks end in .csv, .csv.gz"),
        (["rank", "{g}", "--out", "{d}/no/r.csv"], "its folder is not there"),
        (["rank", "{g}", "--damping", "1"], "--damping 1: give a number from 0 to below 1"),
        (["rank", "{g}", "--tolerance", "0"], "--tolerance 0: give a number above 0"),
        (["rank", "{g}", "--field", "url=page_url"], "--field: {g} is built already: build it so, or omit it"),
        (["rank", "{log}", "--input-format", "jsonlines"], "--input-format jsonlines: not known"),
        (["rank", "{g}", "{log}"], "name one graph, or logs"),
        (["rank", "{g}", "--memory", "lots"], "--memory lots: not a size: write it like 512MB"),
        (["rank", "{d}"], "no graph there: build one with opicflow graph build"),
        (["rank", "{d}/none.jsonl"], "none.jsonl"),
        (["rank", "{log}", "--work", "{d}/none"], "--work {d}/none: there is no such folder: make it"),
        (["graph", "build", "--out", "{d}/h"], "name logs, or a replay's state"),
        (["graph", "build", "{log}", "--out", "{g}"], "there is a graph already"),
        (["graph", "build", "{log}", "--out", "{d}"], "not empty, and not a graph"),
        (["graph", "build", "{log}", "--out", "{d}/h", "--memory", "1KB"], "give at least 1MB"),
        (["graph", "build", "{d}/empty.txt", "--out", "{d}/h"], "empty: there is nothing"),
        (["graph", "info", "{log}"], "no graph"),
    ],
)
def test_a_mistake_gives_one_line_of_error(
    built: Path, log: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "bad.txt").write_text("example.org much\n")
    (tmp_path / "other.txt").write_text("example.net\n")
    done = finished(*(word.format(g=built, d=tmp_path, log=log) for word in arguments), code=2)
    assert words.format(g=built, d=tmp_path) in done.err
    assert done.err.count("\n") == 1


def test_sizes_and_ranks_are_parsed() -> None:
    assert [size_of(text) for text in ("1", "2KB", "512MB", "1.5 GiB", "4g")] == [1, 2048, 512 << 20, 3 << 29, 4 << 30]
    names = [one.name for one in parse_ranks("importance, interest:xml,hubs,authorities,importance:@a/b-c.csv.gz#x")]
    assert names == ["importance", "interest_xml", "hubs", "importance_b_c"]


def test_a_host_matches_by_its_full_name() -> None:
    urls = [b"https://a.example/x", b"http://a.example/", b"https://b.a.example/", b"", b"https://a.example:81/"]
    text = np.frombuffer(b"".join(urls), np.uint8)
    found = weights_of_hosts(text, np.cumsum([len(url) for url in urls]), {b"a.example": 2.0, b"b.a.example": 0.5})
    assert found.tolist() == [2.0, 2.0, 0.5, 0.0, 0.0]


def test_the_python_example_in_the_guide_prints_ids_and_ranks(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = python_blocks("docs/guides/ranks.md")
    monkeypatch.chdir(built.parent)
    built.rename("web.graph")
    exec(compile(code, "docs/guides/ranks.md", "exec"), {})
    assert re.fullmatch(r"\[(\d+\s*)+.*\] \[.*\] \S+e-\d+\n", capsys.readouterr().out, re.DOTALL)
