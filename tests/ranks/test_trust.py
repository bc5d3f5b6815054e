"""Trust, distrust and spam mass: ranks personal to good and to bad pages, on a web with a link farm and a trap."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from opicflow.pipelines.lab.experiments.discovery.crawled_webs import crawled_web
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.hosts import weights_of_hosts
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.ranks.graph.trust import spam_mass
from opicflow.pipelines.ranks.graph_ranks import RankSpec, parse_ranks
from support.commands import output_of, refusal


def test_spam_mass_is_the_part_of_importance_that_good_pages_do_not_explain() -> None:
    importance, trust = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.8, 0.0, 0.2, 0.0])
    assert spam_mass(importance, trust, 0.5) == pytest.approx([1 - 0.4 / 0.5, 1.0, 0.5, 0.0])


def test_names_are_those_of_the_columns() -> None:
    named = parse_ranks("importance,trust:@good.txt,distrust:@bad.csv#interest,spam-mass")
    assert [one.name for one in named] == ["importance", "trust", "distrust", "spam_mass"]
    assert named[1] == RankSpec("importance", "@good.txt", "trust")
    assert named[2] == RankSpec("interest", "@bad.csv#interest", "distrust")


def test_a_name_with_a_dot_first_stands_for_all_hosts_below() -> None:
    urls = [
        b"https://a.example/",
        b"https://b.a.example/x",
        b"http://ba.example/",
        b"https://c.b.a.example/.a.example",
        b"https://x/",
    ]
    ends = np.cumsum([len(url) for url in urls])
    text = np.frombuffer(b"".join(urls), np.uint8)
    weights = {b".a.example": 2.0, b".b.a.example": 3.0, b"x": 1.0}
    assert weights_of_hosts(text, ends, weights).tolist() == [2.0, 3.0, 0.0, 3.0, 1.0]
    assert weights_of_hosts(text, ends, {b"a.example": 1.0}).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ("trust", "trust: of which pages? Give a file, such as trust:@hosts.txt"),
        ("importance,distrust:xml", "distrust:xml: of which pages? Give a file, such as distrust:@hosts.txt"),
        ("importance,spam-mass", "it compares two ranks: add importance and trust:@FILE"),
        ("trust:@a.txt,trust:@b.txt", "trust is there already: give one file"),
    ],
)
def test_a_mistake_gives_one_line(ranks: str, why: str, tmp_path: Path) -> None:
    log = tmp_path / "edges.tsv"
    log.write_text("https://a.example/\thttps://b.example/\n")
    assert why in refusal("rank", log, "--ranks", ranks)


def test_on_a_web_with_a_farm_and_a_trap(tmp_path: Path) -> None:
    """Trust and distrust are the ranks of an oracle; of the important pages all hostile ones have nearly full mass."""
    web = crawled_web("archive with traps", 3_000, 1).pages
    source = np.repeat(np.arange(web.graph.pages), web.graph.out_degrees)
    lines = [
        web.urls[a] + b"\t" + web.urls[b] for a, b in zip(source.tolist(), web.graph.targets.tolist(), strict=True)
    ]
    (tmp_path / "edges.tsv").write_bytes(b"\n".join(lines) + b"\n")
    hosts = [url.split(b"/")[2] for url in web.urls]
    good = sorted({host for host, bad in zip(hosts, web.is_hostile.tolist(), strict=True) if not bad})[::10]
    (tmp_path / "good.txt").write_bytes(b"\n".join(good))
    (tmp_path / "bad.txt").write_bytes(b"farm0.example\nfarm1.example\n")
    ranks = f"importance,trust:@{tmp_path}/good.txt,distrust:@{tmp_path}/bad.txt,spam-mass"
    text = output_of(
        "rank", tmp_path / "edges.tsv", "--ranks", ranks, "--out", tmp_path / "ranks.csv", "-n", "5", "--quiet"
    )
    assert "times the importance of an average page" in text
    with (tmp_path / "ranks.csv").open(newline="") as file:
        rows = {row["url"]: row for row in csv.DictReader(file)}
    values = {
        name: np.array([float(rows[url.decode()][name]) if url.decode() in rows else 0.0 for url in web.urls])
        for name in ("importance", "trust", "distrust", "spam_mass")
    }
    plain = Graph.from_links(web.graph.pages, source, web.graph.targets.astype(np.int64))
    linked = [number for number, url in enumerate(web.urls) if url.decode() in rows]
    assert len(linked) == len(web.urls)
    for name, graph, listed in (
        ("trust", plain, good),
        ("distrust", inverse(plain), [b"farm0.example", b"farm1.example"]),
    ):
        paid = np.isin(np.array(hosts), np.array(listed)).astype(float)
        assert values[name] == pytest.approx(pagerank(graph, personalisation=paid).values, abs=1e-8)
    assert values["spam_mass"] == pytest.approx(spam_mass(values["importance"], values["trust"]), abs=1e-6)
    matters = values["importance"] * len(web.urls) >= 10
    hostile = web.is_hostile & matters
    assert hostile.sum() > 5 and (values["spam_mass"][hostile] > 0.9).all()
    farm = np.array([host.startswith(b"farm") for host in hosts])
    assert (values["distrust"][farm] > 0).all() and values["distrust"][farm].sum() > 0.5


def inverse(graph: Graph) -> Graph:
    source = np.repeat(np.arange(graph.pages), graph.out_degrees)
    return Graph.from_links(graph.pages, graph.targets.astype(np.int64), source)
