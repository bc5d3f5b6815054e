"""`opicflow rank --by host|domain`."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from opicflow.connectors.files.site_lists import reversed_host
from support.commands import finished
from support.thorough import crossed

LINKS = {
    "https://www.a.example/": ["https://www.a.example/1", "https://shop.a.example/", "http://10.0.0.1/"],
    "https://www.a.example/1": ["https://b.co.uk/", "https://b.co.uk/2", "https://www.a.example/"],
    "https://shop.a.example/": ["https://www.a.example/", "https://b.co.uk/"],
    "https://b.co.uk/": ["https://b.co.uk/2", "http://10.0.0.1/"],
    "http://10.0.0.1/": [],
}
DOMAINS = {"www.a.example": "a.example", "shop.a.example": "a.example"}
HARMONIC = {
    "host": {"www.a.example": 1.0, "shop.a.example": 1.0, "b.co.uk": 2.0, "10.0.0.1": 2.5},
    "domain": {"a.example": 0.0, "b.co.uk": 1.0, "10.0.0.1": 2.0},
}
COLUMNS = ["site", "importance", "score", "pages", "internal_links", "links_in", "links_out"]


def site(url: str, by: str) -> str:
    host = url.split("/")[2]
    return DOMAINS.get(host, host) if by == "domain" else host


def one_by_one(by: str, by_pages: bool, internal: float) -> dict[str, float]:
    """Return the ranks of sites, from a dense matrix of the links above."""
    names = sorted({site(url, by) for url in [*LINKS, *(to for links in LINKS.values() for to in links)]})
    weights = np.zeros((len(names), len(names)))
    for url, links in LINKS.items():
        targets = [site(to, by) for to in links]
        for target in set(targets) if by_pages else targets:
            factor = internal if target == site(url, by) else 1.0
            weights[names.index(site(url, by)), names.index(target)] += factor
    n, sums = len(names), weights.sum(axis=1, keepdims=True)
    matrix = np.where(sums > 0, 0.85 * weights / np.where(sums > 0, sums, 1) + 0.15 / n, 1 / n).T
    values, vectors = np.linalg.eig(matrix)
    first = np.real(vectors[:, np.argmax(np.real(values))])
    return dict(zip(names, (first / first.sum()).tolist(), strict=True))


@pytest.fixture
def built(tmp_path: Path) -> Path:
    lines = [json.dumps({"url": url, "status": 200, "links": links}) + "\n" for url, links in LINKS.items()]
    (tmp_path / "crawl.jsonl").write_text("".join(lines))
    finished("graph", "build", tmp_path / "crawl.jsonl", "--out", tmp_path / "g", "--quiet")
    return tmp_path / "g"


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("internal", "site_links", "by"), crossed(["drop", "keep", "0.5"], ["links", "pages"], ["host", "domain"])
)
def test_ranks_of_sites_are_those_of_a_dense_matrix(
    built: Path, tmp_path: Path, by: str, site_links: str, internal: str
) -> None:
    how = ("--by", by, "--site-links", site_links, "--internal", internal, "--tolerance", "1e-14", "--quiet")
    finished("rank", built, *how, "--out", tmp_path / "sites.csv")
    rows = rows_of(tmp_path / "sites.csv")
    found = {row["site"]: float(row["importance"]) for row in rows}
    weight = {"drop": 0.0, "keep": 1.0}.get(internal, 0.5)
    assert found == pytest.approx(one_by_one(by, site_links == "pages", weight), abs=1e-12)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert [float(row["score"]) for row in rows] == pytest.approx([value * len(rows) for value in found.values()])


def test_a_row_has_the_counts_of_its_site(built: Path, tmp_path: Path) -> None:
    finished("rank", built, "--by", "domain", "--internal", "keep", "--out", tmp_path / "sites.csv", "--quiet")
    rows = {row["site"]: [int(row[name]) for name in COLUMNS[3:]] for row in rows_of(tmp_path / "sites.csv")}
    assert rows == {"a.example": [3, 4, 0, 4], "b.co.uk": [2, 1, 3, 1], "10.0.0.1": [1, 0, 2, 0]}


def test_every_format_has_the_same_rows(built: Path, tmp_path: Path) -> None:
    for name in ("s.csv", "s.csv.gz", "s.jsonl", "s.parquet"):
        finished("rank", built, "--by", "host", "--out", tmp_path / name, "--quiet")
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert list(rows[0]) == COLUMNS
    assert pq.read_table(tmp_path / "s.parquet").to_pylist() == rows
    assert [{name: str(value) for name, value in row.items()} for row in rows] == rows_of(tmp_path / "s.csv")
    assert gzip.decompress((tmp_path / "s.csv.gz").read_bytes()) == (tmp_path / "s.csv").read_bytes()
    found = json.loads(finished("rank", built, "--by", "host", "--json", "-n", "2", "--quiet").out)
    assert found["top"]["importance"] == rows[:2]
    assert {name: found[name] for name in ("by", "site_links", "internal", "sites", "addresses")} == {
        "by": "host",
        "site_links": "links",
        "internal": 0.0,
        "sites": 4,
        "addresses": 1,
    }


def test_little_memory_changes_nothing_and_leaves_no_file(built: Path, tmp_path: Path) -> None:
    before = sorted(built.iterdir())
    for name, options in (
        ("a.csv", []),
        ("b.csv", ["--memory", "8"]),
        ("c.csv", ["--memory", "8", "--work", tmp_path]),
    ):
        finished("rank", built, "--by", "domain", "--out", tmp_path / name, "--quiet", *options)
        assert (tmp_path / name).read_bytes() == (tmp_path / "a.csv").read_bytes()
    assert sorted(built.iterdir()) == before
    assert not list(tmp_path.glob("sites-*"))


def test_the_output_has_a_clear_line_of_counts(built: Path, tmp_path: Path) -> None:
    out = finished("rank", built, "--by", "host", "--quiet", "--out", tmp_path / "s.csv").out
    assert "4 hosts, 6 links between them, made of 7 links of pages; 3 links of pages within a host: dropped\n" in out
    assert "1 of the hosts is IP addresses" not in out and "1 of the hosts is an IP address\n" in out
    assert "s.csv, 4 hosts\n" in out
    (tmp_path / "one.jsonl").write_text('{"url": "http://10.0.0.1/", "status": 200, "links": ["http://10.0.0.1/a"]}\n')
    out = finished("rank", tmp_path / "one.jsonl", "--by", "domain", "--internal", "0.5", "--quiet").out
    assert (
        "1 domain, 0 links between them, made of 0 links of pages; 1 link of pages within a domain: each counts 0.5\n"
        in out
    )
    assert "there is one domain only: all importance is there\n" in out
    assert out.splitlines()[-1].split() == ["1.000000000", "1.00", "2", "1", "0", "0", "10.0.0.1"]


def test_lists_in_the_forms_of_others(built: Path, tmp_path: Path) -> None:
    finished("rank", built, "--by", "host", "--out", tmp_path / "s.csv", "--quiet")
    rows = rows_of(tmp_path / "s.csv")
    printed = finished("rank", built, "--by", "host", "--as", "commoncrawl", "--quiet").out
    lines = list(csv.reader(io.StringIO(printed), delimiter="\t"))
    assert lines[0] == ["#harmonicc_pos", "#harmonicc_val", "#pr_pos", "#pr_val", "#host_rev"]
    assert [line[2] for line in lines[1:]] == ["1", "2", "3", "4"]
    assert {reversed_host(line[4]): float(line[1]) for line in lines[1:]} == pytest.approx(HARMONIC["host"], rel=0.1)
    assert [line[3] for line in lines[1:]] == [row["importance"] for row in rows]
    assert {line[4] for line in lines[1:]} == {"example.a.www", "example.a.shop", "uk.co.b", "10.0.0.1"}
    assert [reversed_host(line[4]) for line in lines[1:]] == [row["site"] for row in rows]
    out = finished("rank", built, "--by", "host", "--as", "commoncrawl", "--out", tmp_path / "s.txt.gz", "--quiet").out
    assert gzip.decompress((tmp_path / "s.txt.gz").read_bytes()).decode() == printed
    assert "s.txt.gz, 4 hosts" in out
    printed = finished("rank", built, "--by", "host", "--as", "tranco", "-n", "3", "--quiet").out
    assert printed == "".join(f"{position},{row['site']}\n" for position, row in enumerate(rows[:3], 1))


@pytest.mark.parametrize("by", ["host", "domain"])
def test_harmonic_centrality_of_sites_is_exact_or_near(built: Path, tmp_path: Path, by: str) -> None:
    how, furthest = ("rank", built, "--by", by, "--measure", "harmonic", "--quiet"), {"host": 2, "domain": 1}[by]
    out = finished(*how, "--exact", "--out", tmp_path / "exact.csv").out
    rows = rows_of(tmp_path / "exact.csv")
    assert list(rows[0]) == ["site", "harmonic", *COLUMNS[3:]]
    assert {row["site"]: float(row["harmonic"]) for row in rows} == pytest.approx(HARMONIC[by])
    keys = [(-float(row["harmonic"]), row["site"]) for row in rows]
    assert keys == sorted(keys)
    heads = f"       harmonic     pages  internal  links in  links out  {by}\n"
    assert f"harmonic: exact; largest distance {furthest}\n{heads}" in out
    finished(*how, "--registers", "14", "--out", tmp_path / "near.csv")
    near = {row["site"]: float(row["harmonic"]) for row in rows_of(tmp_path / "near.csv")}
    assert near == pytest.approx(HARMONIC[by], rel=0.03, abs=1e-9)
    found = json.loads(finished(*how, "--json", "-n", "1").out)
    assert found["harmonic"] == {"registers": 256, "standard_error": 0.0651875, "distance": furthest, "complete": True}
    assert "ranks" not in found and found["top"]["harmonic"][0]["site"] == rows[0]["site"]


def test_a_list_of_common_crawl_has_both_ranks_and_their_places(built: Path, tmp_path: Path) -> None:
    """In the order of --measure; positions are those among all sites, however many are shown."""
    values = {}
    for measure, column in (("pagerank", "importance"), ("harmonic", "harmonic")):
        exact = ("--exact",) if measure == "harmonic" else ()
        finished("rank", built, "--by", "host", "--measure", measure, *exact, "--out", tmp_path / "s.csv", "--quiet")
        values[measure] = {row["site"]: row[column] for row in rows_of(tmp_path / "s.csv")}
    for measure, place in (("pagerank", 2), ("harmonic", 0)):
        how = ("--by", "host", "--as", "commoncrawl", "--measure", measure, "--exact", "--quiet")
        lines = list(csv.reader(io.StringIO(finished("rank", built, *how).out), delimiter="\t"))[1:]
        assert [line[place] for line in lines] == ["1", "2", "3", "4"]
        sites = [reversed_host(line[4]) for line in lines]
        assert sites == list(values[measure])
        assert [line[1] for line in lines] == [values["harmonic"][site] for site in sites]
        assert [line[3] for line in lines] == [values["pagerank"][site] for site in sites]
        assert sorted(line[0] for line in lines) == sorted(line[2] for line in lines) == ["1", "2", "3", "4"]
        assert (
            list(csv.reader(io.StringIO(finished("rank", built, *how, "-n", "2").out), delimiter="\t"))[1:] == lines[:2]
        )
    printed = finished(
        "rank", built, "--by", "host", "--as", "tranco", "--measure", "harmonic", "--exact", "--quiet"
    ).out
    assert printed == "".join(f"{place},{site}\n" for place, site in enumerate(values["harmonic"], 1))
    how = ("--by", "host", "--as", "commoncrawl", "--damping", "0.5", "--seed", "2", "--measure", "harmonic", "--quiet")
    assert finished("rank", built, *how).out.count("\n") == 5


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--by", "site"], "--by"),
        (["--site-links", "pages"], "--site-links: it is for sites: give --by host or --by domain"),
        (["--internal", "0"], "--internal: it is for sites: give --by host or --by domain"),
        (["--by", "host", "--internal", "-1"], "'-1' is not keep, drop or a number from 0"),
        (["--by", "host", "--internal", "nan"], "'nan' is not keep, drop or a number from 0"),
        (["--by", "host", "--ranks", "hubs"], "sites have one rank, importance: omit --ranks"),
        (["--by", "host", "--start", "{d}/s.csv"], "--start, --by host"),
        (["--by", "host", "--gauss-seidel", "--dangling", "normalise"], "gauss-seidel: it goes with dangling teleport"),
        (["--by", "host", "--out", "{d}/s.xls"], "ranks end in .csv"),
        (["--by", "host", "--good-share", "0.5"], "--good-share, --by host: sites have no spam mass: omit it"),
        (["--good-share", "0.85"], "--good-share: it is for spam mass: add spam-mass to --ranks, or omit it"),
        (
            ["--by", "host", "--measure", "harmonic", "--good-share", "0.5"],
            "--good-share: harmonic centrality does not",
        ),
        (["--by", "host", "--measure", "harmonic", "--internal", "keep"], "--internal: harmonic centrality does not"),
        (["--by", "host", "--measure", "harmonic", "--site-links", "pages"], "--site-links: harmonic centrality does"),
        (["--by", "host", "--measure", "harmonic", "--damping", "0.5"], "--damping: harmonic centrality does not use"),
        (["--by", "host", "--measure", "harmonic", "--start", "{d}/s.csv"], "--start: harmonic centrality does not"),
        (
            ["--by", "host", "--measure", "harmonic", "--memory", "400B"],
            "4 hosts take 0 MB: give more --memory, or few",
        ),
        (["--by", "host", "--registers", "8"], "--registers: it is for harmonic centrality: give --measure harmonic"),
        (["--by", "host", "--as", "tranco", "--exact"], "--exact: it is for harmonic centrality: give --measure"),
        (["--by", "host", "--as", "commoncrawl", "--exact", "--seed", "1"], "--exact: exact values need no"),
        (["--as", "tranco", "--measure", "harmonic"], "--as tranco: it is a list of sites: give --by host or --by"),
        (["--both-ways"], "--both-ways: {d}/g is built already: build it so, or omit it"),
        (["--by", "host", "--category", "*.pdf"], "--category: {d}/g is built already"),
        (["--measure", "harmonic", "--set", "internal-weight=0"], "--set internal-weight: {d}/g is built already"),
        (["--as", "tranco"], "--as tranco: it is a list of sites: give --by host or --by domain"),
        (["--by", "host", "--as", "tranco", "--json"], "--as, --json: both write to standard output"),
        (["--by", "host", "--as", "tranco", "--out", "{d}/no/s.csv"], "its folder is not there"),
    ],
)
def test_a_mistake_gives_one_line_of_error(built: Path, tmp_path: Path, arguments: list[str], words: str) -> None:
    done = finished("rank", built, *(word.format(d=tmp_path) for word in arguments), code=2)
    assert words.format(d=tmp_path) in done.err
    assert done.err.count("\n") == 1
