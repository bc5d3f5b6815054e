"""Lists of sites: `opicflow top --by`, the forms of Common Crawl and Tranco, and `opicflow compare --by`."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest

from opicflow.connectors.files.rank_reader import read_ranks
from opicflow.connectors.files.site_lists import SiteList, reversed_host, write_site_list
from support.commands import finished, output_of
from support.logs import records_of

PAGES = {
    "https://www.a.example/": 0.3,
    "https://www.a.example/1": 0.2,
    "https://shop.a.example/": 0.1,
    "https://b.co.uk:8080/": 0.25,
    "http://10.0.0.1/x": 0.15,
}
HOSTS = {"www.a.example": 0.5, "b.co.uk:8080": 0.25, "10.0.0.1": 0.15, "shop.a.example": 0.1}
DOMAINS = {"a.example": 0.6, "b.co.uk": 0.25, "10.0.0.1": 0.15}
CRAWL = (
    "#harmonicc_pos\t#harmonicc_val\t#pr_pos\t#pr_val\t#host_rev\t#n_hosts\n"
    "1\t2.5E7\t2\t0.25\tuk.co.b\t3\n"
    "2\t2.0E7\t1\t0.5\texample.a.www\t1\n"
    "3\t1.5E7\t3\t1.5e-1\t10.0.0.1\t1\n"
)


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    with open(tmp_path / "ranks.csv", "w", newline="") as file:
        csv.writer(file).writerows([("url", "importance", "other"), *((url, x, 1) for url, x in PAGES.items())])
    return tmp_path / "ranks.csv"


def sums(path: Path, by: str, rank: str = "importance") -> dict[str, float]:
    found = read_ranks(str(path), rank).sites(by)  # type: ignore[arg-type]
    return dict(zip(found.names, found.values.tolist(), strict=True))


# -- top


@pytest.mark.parametrize("by, expected", [("host", HOSTS), ("domain", DOMAINS)])
def test_sites_of_a_file_of_ranks_are_sums_of_its_pages(ranks: Path, by: str, expected: dict[str, float]) -> None:
    rows = json.loads(output_of("top", ranks, "--by", by, "--json"))
    assert {row[by]: row["importance"] for row in rows} == pytest.approx(expected)
    assert [row[by] for row in rows] == list(expected)
    assert (rows[0]["pages"], rows[0]["read"]) == ({"host": 2, "domain": 3}[by], None)
    lines = output_of("top", ranks, "--by", by, "-n", "1").splitlines()
    assert [line.split() for line in lines] == [
        ["importance", "pages", "read", by],
        [f"{next(iter(expected.values())):.6f}", str(rows[0]["pages"]), "-", next(iter(expected))],
    ]
    assert json.loads(output_of("top", ranks, "--by", by, "--rank", "other", "--json"))[0]["importance"] >= 2


def test_domains_of_a_state_are_sums_of_its_hosts(tmp_path: Path) -> None:
    links = [*PAGES, "https://c.example/unread"]
    events = [{"url": url, "status": 200, "links": links} for url in PAGES]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    finished("replay", tmp_path / "log.jsonl", "--state", tmp_path / "s", "--out", tmp_path / "out", "--quiet")
    domains: dict[str, list[float]] = defaultdict(lambda: [0.0, 0, 0])
    of = {"www.a.example": "a.example", "shop.a.example": "a.example", "b.co.uk:8080": "b.co.uk"}
    for record in records_of(tmp_path / "out" / "importance.jsonl"):
        host = record["url"].split("/")[2]
        for column, value in enumerate((record["importance"], 1, record["visits"] > 0)):
            domains[of.get(host, host)][column] += value
    rows = json.loads(output_of("top", "--state", tmp_path / "s", "--by", "domain", "--json"))
    found = {row["domain"]: [row["importance"], row["pages"], row["read"]] for row in rows}
    assert found == {name: pytest.approx(values) for name, values in domains.items()}
    for file in (tmp_path / "out", tmp_path / "out" / "importance.jsonl"):  # the results have the same pages
        again = json.loads(output_of("top", file, "--by", "domain", "--json"))
        assert [{**row, "importance": pytest.approx(row["importance"])} for row in rows] == again
    unread = json.loads(output_of("top", "--state", tmp_path / "s", "--by", "domain", "--unread", "--json"))
    assert [(row["domain"], row["pages"], row["read"]) for row in unread] == [("c.example", 1, 0)]
    printed = output_of("top", "--state", tmp_path / "s", "--by", "domain", "--as", "tranco")
    assert printed == "".join(f"{position},{row['domain']}\n" for position, row in enumerate(rows, 1))


# -- lists


@pytest.mark.parametrize("by, expected", [("host", HOSTS), ("domain", DOMAINS)])
def test_lists_round_trip(ranks: Path, tmp_path: Path, by: str, expected: dict[str, float]) -> None:
    for name in ("list.txt", "list.txt.gz"):
        out = output_of("top", ranks, "--by", by, "--as", "commoncrawl", "--out", tmp_path / name)
        assert out == f"written: {tmp_path / name}, {len(expected)} {by}s\n"
        assert sums(tmp_path / name, "host") == pytest.approx(expected)
        output_of("top", ranks, "--by", by, "--as", "tranco", "--out", tmp_path / name)
        assert sums(tmp_path / name, "host") == {name: 1 / place for place, name in enumerate(expected, 1)}
    again = output_of("top", tmp_path / "list.txt.gz", "--by", "host", "--as", "tranco")
    assert again == gzip.decompress((tmp_path / "list.txt.gz").read_bytes()).decode()
    assert output_of("top", ranks, "--by", by, "--as", "tranco", "-n", "1") == f"1,{next(iter(expected))}\n"


def test_ranks_of_sites_round_trip_in_every_format(tmp_path: Path) -> None:
    events = [{"url": url, "status": 200, "links": [*PAGES]} for url in PAGES]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    finished("graph", "build", tmp_path / "log.jsonl", "--out", tmp_path / "g", "--quiet")
    first = None
    for name in ("s.csv", "s.csv.gz", "s.jsonl", "s.jsonl.gz", "s.parquet"):
        finished("rank", tmp_path / "g", "--by", "host", "--out", tmp_path / name, "--quiet")
        found = sums(tmp_path / name, "host")
        first = first or found
        assert found == first and set(found) == set(HOSTS)
        assert sums(tmp_path / name, "host", "links_in")["10.0.0.1"] == 4
    assert first is not None and sums(tmp_path / "s.jsonl", "domain")["a.example"] == pytest.approx(
        first["www.a.example"] + first["shop.a.example"]
    )


def test_lists_of_sites_with_commas_and_quotes_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text('url,importance\n"http://a,b.example/",0.75\n"http://c.""d/",0.25\n')
    for form in ("commoncrawl", "tranco"):
        for path in (tmp_path / f"{form}.txt", tmp_path / f"{form}.txt.gz"):
            output_of("top", tmp_path / "r.csv", "--by", "host", "--as", form, "--out", path)
            assert set(sums(path, "host")) == {"a,b.example", 'c."d'}
        printed = output_of("top", tmp_path / "r.csv", "--by", "host", "--as", form)
        assert printed == (tmp_path / f"{form}.txt").read_text()


def test_files_of_common_crawl_are_read(tmp_path: Path) -> None:
    path = tmp_path / "ranks.txt"
    path.write_text(CRAWL)
    assert sums(path, "host") == {"b.co.uk": 0.25, "www.a.example": 0.5, "10.0.0.1": 0.15}
    assert sums(path, "domain", "pr_val") == {"b.co.uk": 0.25, "a.example": 0.5, "10.0.0.1": 0.15}
    assert sums(path, "host", "harmonicc_val") == {"b.co.uk": 2.5e7, "www.a.example": 2e7, "10.0.0.1": 1.5e7}


@pytest.mark.parametrize(
    "host", ["www.example.com", "com", "1.example.com", "a.example:8080", "10.0.0.1", "[::1]:80", "10.0.0.1:80", ""]
)
def test_a_host_reversed_twice_is_itself(host: str) -> None:
    assert reversed_host(reversed_host(host)) == host
    assert (reversed_host(host) == host) == (host in ("com", "") or "0" in host.partition(".")[0] or host[0] == "[")


# -- compare


def test_a_list_of_sites_is_compared_with_pages(ranks: Path, tmp_path: Path) -> None:
    (tmp_path / "cc.txt").write_text(CRAWL)
    found = json.loads(output_of("compare", ranks, tmp_path / "cc.txt", "--by", "host", "--top", "1", "--json"))
    assert (found["by"], found["a"]["pages"], found["b"]["pages"], found["pages_in_both"]) == ("host", 4, 3, 2)
    assert found["l1"] == pytest.approx(0.25 + 0.1 + 0.25)
    assert found["top"] == [{"pages": 1, "in_common": 1.0}]
    assert {row["site"]: (row["a"], row["b"]) for row in found["differ_most"]} == {
        "b.co.uk:8080": (0.25, 0.0),
        "b.co.uk": (0.0, 0.25),
        "shop.a.example": (0.1, 0.0),
    }
    found = json.loads(output_of("compare", tmp_path / "cc.txt", ranks, "--by", "domain", "--json"))
    assert (found["pages_in_both"], found["a"]["only_here"]) == (3, 0)
    assert found["l1"] == pytest.approx(0.1)
    out = output_of("compare", ranks, tmp_path / "cc.txt", "--by", "domain", "--worst", "1")
    assert "ranks.csv: importance of 3 domains, sum 1\n" in out
    assert "  domains in both                          3\n" in out
    assert out.splitlines()[-4].split() == ["0.6", "0.5", "+0.1", "a.example"]


def test_two_files_of_pages_are_compared_by_domain(ranks: Path, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("url,importance\nhttps://x.a.example/,0.6\nhttps://b.co.uk/,0.4\n")
    found = json.loads(output_of("compare", ranks, tmp_path / "b.csv", "--by", "domain", "--json"))
    assert (found["pages_in_both"], found["l1"]) == (2, pytest.approx(0.15 + 0.15))


def test_positions_compare_the_order(ranks: Path, tmp_path: Path) -> None:
    (tmp_path / "tranco.csv").write_text("1,a.example\r\n2,b.co.uk\r\n3,c.example\r\n")
    out = output_of("compare", ranks, tmp_path / "tranco.csv", "--by", "domain")
    assert "note: B: it has positions only: importance is 1 / position, and only the order counts\n" in out
    assert "  Kendall's tau                       1.0000\n" in out


def test_rows_without_a_url_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("url,page,importance\nhttps://a.example/,,1\n,0123456789abcdef,2\n")
    out = output_of("compare", tmp_path / "a.csv", tmp_path / "a.csv", "--by", "host")
    assert "note: A: 1 row without a URL, so without a host: left out\n" in out
    (tmp_path / "b.csv").write_text("page,importance\n0123456789abcdef,2\n")
    done = finished("compare", tmp_path / "b.csv", tmp_path / "a.csv", "--by", "host", code=2)
    assert "no row has a URL, so there are no sites" in done.err


HEAD = CRAWL.splitlines(keepends=True)[0]
BAD = {
    "no --by": ("compare", "s.csv", "site,importance\na,1\n", [], "a list of sites: give --by host"),
    "columns": ("compare", "cc.txt", HEAD + "1\t2\t3\n", ["--by", "host"], "line 2: 3 columns, not 6"),
    "value": (
        "compare",
        "cc.txt",
        CRAWL + "1\t1\t1\tx\tcom\t1\n",
        ["--by", "host"],
        "line 5: pr_val x: a rank is a num",
    ),
    "negative": ("compare", "cc.txt", CRAWL + "1\t1\t1\t-1\tcom\t1\n", ["--by", "host"], "line 5: pr_val -1"),
    "no host": ("compare", "cc.txt", CRAWL + "1\t1\t1\t1\t\t1\n", ["--by", "host"], "line 5: no host_rev: give one"),
    "head": (
        "compare",
        "cc.txt",
        "#pos\t#val\n1\t2\n",
        ["--by", "host"],
        "line 1: no head of a file of ranks of Common",
    ),
    "column": (
        "compare",
        "cc.txt",
        CRAWL,
        ["--by", "host", "--rank", "x"],
        "no column of ranks x: name one of harmonicc",
    ),
    "no harmonic": (
        "compare",
        "cc.txt",
        HEAD + "\t\t1\t1\tcom\t1\n",
        ["--by", "host", "--rank", "harmonicc_val"],
        "line 2: harmonicc_val is empty",
    ),
    "position": ("compare", "t.csv", "1,a.example\n0,b.example\n", ["--by", "host"], "line 2: no position from 1"),
    "no position": ("compare", "t.csv", "1,a.example\nx,b.example\n", ["--by", "host"], "line 2: position x"),
    "three": ("compare", "t.csv", "1,a.example\n2,b,c\n", ["--by", "host"], "line 2: 3 columns, not 2"),
    "rank of positions": ("compare", "t.csv", "1,a.example\n", ["--by", "host", "--rank", "x"], "no column of ranks x"),
    "no site": ("compare", "s.csv", "site,importance\na,1\n,1\n", ["--by", "host"], "line 3: no site: give one"),
    "top pages": ("top", "s.csv", "url,importance\na,1\n", [], "a file of ranks: give --by host or --by domain"),
    "top unread": (
        "top",
        "s.csv",
        "url,importance\na,1\n",
        ["--by", "host", "--unread"],
        "it is for the pages of a state",
    ),
    "top state": ("top", "s.csv", "url,importance\na,1\n", ["--by", "host", "--state", "x"], "name one"),
    "top list of pages": ("top", "s.csv", "", ["--by", "host", "--as", "tranco", "--json"], "omit one"),
    "top out": ("top", "s.csv", "", ["--by", "host", "--out", "x"], "--out: it is for lists of sites"),
    "top pages only": ("top", "s.csv", "page,importance\n0123456789abcdef,1\n", ["--by", "host"], "no row has a URL"),
    "top empty": ("top", "s.csv", "", ["--by", "host"], "s.csv: it is empty"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_mistake_gives_one_line_of_error(tmp_path: Path, what: str) -> None:
    name, file, text, options, words = BAD[what]
    (tmp_path / file).write_text(text)
    (tmp_path / "right.csv").write_text("site,importance\na,1\n")
    files = [tmp_path / file] if name == "top" else [tmp_path / file, tmp_path / "right.csv"]
    done = finished(name, *files, *options, code=2)
    assert words in done.err
    assert done.err.count("\n") == 1 and done.out == ""


def test_options_of_lists_without_sites_are_refused() -> None:
    for arguments, words in (
        (["--as", "tranco"], "--as tranco: it is a list of sites"),
        (["--rank", "hubs"], "--rank: it is a column of a file of ranks: name the file"),
    ):
        assert words in finished("top", *arguments, "--state", "s", code=2).err


def test_a_list_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_site_list(tmp_path / "list.txt", "commoncrawl", SiteList(["a", "b"], [1.0]))
    assert list(tmp_path.iterdir()) == []
