"""`opicflow compare`: measures equal those of plain loops and scipy, for every file format."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from opicflow.connectors.files import csv_tables, line_blocks, rank_rows
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.rank_reader import Ranks, read_ranks
from opicflow.connectors.files.record_files import RecordBlock
from opicflow.connectors.kafka.record_reader import Arrived
from opicflow.pipelines.cli.commands.subscribe import json_line
from opicflow.pipelines.ranks.graph.comparison import (
    Ranking,
    compared,
    kendall_tau,
    l1,
    linf,
    mean_relative_error,
    overlaps,
)
from opicflow.schemas.arrays import highest
from opicflow.schemas.pages import page_id
from support.commands import command, output_of, refusal
from support.logs import records_of
from support.thorough import crossed

few_values = st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 3.0])
values = st.one_of(few_values, st.floats(0.0, 1e6, allow_subnormal=False))
pairs = st.lists(st.tuples(values, values), max_size=40)
ranked = st.dictionaries(st.integers(0, 60), values, max_size=40)


def columns(rows: Sequence[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.array(rows, np.float64).reshape(-1, 2).T
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


def ranking(of: dict[int, float]) -> Ranking:
    pages = sorted(of)
    return Ranking(np.array(pages, np.uint64), np.array([of[page] for page in pages], np.float64))


def best(of: dict[int, float], count: int) -> list[int]:
    """Return the highest pages, by sorting."""
    return sorted(of, key=lambda page: (-of[page], page))[:count]


# -- laws --------------------------------------------------------------------------------------------------------------


@given(pairs)
def test_tau_equals_that_of_scipy_with_ties(rows: list[tuple[float, float]]) -> None:
    first, second = columns(rows)
    tau = kendall_tau(first, second)
    if len(set(first.tolist())) < 2 or len(set(second.tolist())) < 2:
        assert tau is None
    else:
        assert tau == pytest.approx(scipy.stats.kendalltau(first, second).statistic, rel=1e-12, abs=1e-15)
        assert -1.0 <= tau <= 1.0


@pytest.mark.parametrize("different", [3, 100, 1_000_000])
def test_tau_equals_that_of_scipy_for_many_pages(different: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    first = chance.integers(0, different, 20_011).astype(np.float64)
    second = np.rint(first + chance.normal(0, different / 3, len(first)))
    expected = scipy.stats.kendalltau(first, second).statistic
    assert kendall_tau(first, second) == pytest.approx(expected, rel=1e-13)


def test_tau_is_1_for_the_same_order_and_minus_1_for_the_reverse() -> None:
    up = np.array([0.1, 0.2, 0.5, 0.9])
    assert (kendall_tau(up, up**3), kendall_tau(up, -up), kendall_tau(up[::-1], up)) == (1.0, -1.0, -1.0)


@given(pairs)
def test_distances_are_symmetric_and_tau_depends_on_the_order_only(rows: list[tuple[float, float]]) -> None:
    first, second = columns(rows)
    kept = first.copy(), second.copy()
    assert l1(first, second) == l1(second, first) == pytest.approx(sum(abs(a - b) for a, b in rows))
    assert linf(first, second) == linf(second, first) == max((abs(a - b) for a, b in rows), default=0.0)
    tau = kendall_tau(first, second)
    assert tau == kendall_tau(second, first)
    assert tau == kendall_tau(first[::-1], second[::-1])
    assert tau == kendall_tau(np.unique(first, return_inverse=True)[1].astype(np.float64), 3 * second)
    assert (first.tolist(), second.tolist()) == (kept[0].tolist(), kept[1].tolist())


@given(ranked)
def test_a_ranking_does_not_differ_from_itself(of: dict[int, float]) -> None:
    one = ranking(of)
    found = compared(one, one, [1, 5, 1000], 5)
    assert (found.l1, found.linf, found.most_apart, found.furthest_ratios) == (0.0, 0.0, (), ())
    assert found.kendall_tau == (1.0 if len(set(of.values())) > 1 else None)
    assert {overlap.share for overlap in found.overlaps} <= {1.0, None}
    assert found.mean_relative_error in (0.0, None)


@given(ranked, st.integers(0, 50))
def test_the_highest_pages_are_those_of_a_sort_with_ties_by_page_id(of: dict[int, float], count: int) -> None:
    one = ranking(of)
    assert one.pages[highest(one.values, one.pages, count)].tolist() == best(of, count)


@given(ranked, ranked, st.lists(st.integers(1, 45), max_size=4))
def test_the_top_in_common_is_counted_page_by_page(
    first: dict[int, float], second: dict[int, float], sizes: list[int]
) -> None:
    found = overlaps(ranking(first), ranking(second), sizes)
    assert found == overlaps(ranking(second), ranking(first), sizes)
    for size, (pages, share) in zip(sizes, found, strict=True):
        assert pages == size
        if size > min(len(first), len(second)):
            assert share is None
        else:
            assert share == len(set(best(first, size)) & set(best(second, size))) / size


@given(ranked, ranked, st.integers(0, 45))
def test_a_comparison_equals_one_by_loops_over_pages(
    first: dict[int, float], second: dict[int, float], worst: int
) -> None:
    found = compared(ranking(first), ranking(second), [3], worst)
    both, either = sorted(first.keys() & second.keys()), first.keys() | second.keys()
    apart = {page: abs(first.get(page, 0.0) - second.get(page, 0.0)) for page in either}
    errors = {page: abs(first[page] - second[page]) / second[page] for page in both if second[page] > 0}
    top = best({page: second[page] for page in errors}, max(1, len(errors) // 10))
    counts = (found.pages_of_both, found.pages_of_first_only, found.pages_of_second_only, found.errors_over)
    assert counts == (len(both), len(first) - len(both), len(second) - len(both), len(errors))
    assert found.l1 == pytest.approx(sum(apart.values()))
    assert found.linf == max(apart.values(), default=0.0)
    assert found.rank_of_first_only == pytest.approx(sum(first[page] for page in first.keys() - second.keys()))
    assert found.rank_of_second_only == pytest.approx(sum(second[page] for page in second.keys() - first.keys()))
    if errors:
        assert found.mean_relative_error == pytest.approx(sum(errors.values()) / len(errors))
        assert found.mean_relative_error_of_top_tenth == pytest.approx(sum(errors[page] for page in top) / len(top))
    else:
        assert found.mean_relative_error is found.mean_relative_error_of_top_tenth is None
    differing = {page: distance for page, distance in apart.items() if distance > 0}
    assert [one.page for one in found.most_apart] == best(differing, worst)
    for one in found.most_apart:
        assert (one.first, one.second) == (first.get(one.page, 0.0), second.get(one.page, 0.0))
        assert one.difference == one.first - one.second
    ratios = [max(one.ratio, 1 / one.ratio) for one in found.furthest_ratios]
    every = [max(first[p] / second[p], second[p] / first[p]) for p in both if first[p] > 0 and second[p] > 0]
    expected = sorted((ratio for ratio in every if ratio > 1), reverse=True)
    assert ratios == pytest.approx(expected[:worst], rel=1e-9) or len(ratios) < len(expected[:worst])  # log(1 + ε) is 0
    mirrored = compared(ranking(second), ranking(first), [3], worst)
    assert (mirrored.l1, mirrored.linf, mirrored.overlaps) == (pytest.approx(found.l1), found.linf, found.overlaps)
    assert mirrored.kendall_tau == found.kendall_tau
    assert [one.page for one in mirrored.furthest_ratios] == [one.page for one in found.furthest_ratios]


def test_an_error_too_large_for_a_float_is_infinite() -> None:
    assert mean_relative_error(np.array([1e10]), np.array([1e-310])) == np.inf


# -- files -------------------------------------------------------------------------------------------------------------

Rows = list[tuple[str, Any]]
A_FEW: Rows = [(f"https://site-{number % 7}.example/é/{number}?q={number}", 1 / (number + 2)) for number in range(90)]


def as_jsonl(rows: Rows, *names: str, **more: Any) -> bytes:
    return b"".join(json.dumps(record(url, value, *names) | more).encode() + b"\n" for url, value in rows)


def record(url: str, value: Any, *names: str) -> dict[str, Any]:
    every = {"url": url, "page": written_page(url), "visits": 3, "importance": value, "score": value}
    return {name: every[name] for name in names or every}


@cache
def written_page(url: str) -> str:
    return f"{page_id(url):016x}"


def as_csv(rows: Rows, *names: str) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(record("", 0.0, *names)))
    writer.writeheader()
    writer.writerows(record(url, value, *names) for url, value in rows)
    return text.getvalue().encode()


def with_titles(data: bytes) -> bytes:
    """Return CSV with a column that has line breaks, quotes and commas in it."""
    head, *rows = csv.reader(io.StringIO(data.decode(), newline=""))
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["title\r\n", *head], *(['a "title"\n, and more', *row] for row in rows)])
    return text.getvalue().encode()


def as_parquet(rows: Rows, *names: str, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([record(url, value, *names) for url, value in rows]), out, **options)
    return out.getvalue()


def with_two_columns(name: str) -> bytes:
    """Return Parquet with two columns of this name."""
    out = io.BytesIO()
    columns = {"url": ["http://a.example/"], "importance": [1.0]}
    pq.write_table(pa.table([*columns.values(), columns[name]], [*columns, name]), out)
    return out.getvalue()


def as_avro(rows: Rows, *names: str) -> bytes:
    types = {"url": "string", "page": "string", "visits": "long", "importance": "double", "score": ["null", "double"]}
    fields = [{"name": name, "type": types[name]} for name in record("", 0.0, *names)]
    out = io.BytesIO()
    schema = {"type": "record", "name": "Rank", "fields": fields}
    fastavro.writer(out, schema, [record(url, value, *names) for url, value in rows], codec="deflate")
    return out.getvalue()


FORMATS = {
    "a.csv": as_csv(A_FEW),
    "urls.csv": as_csv(A_FEW, "importance", "url"),
    "ids.csv": as_csv(A_FEW, "page", "importance"),
    "breaks.csv": with_titles(as_csv(A_FEW)),
    "crlf.csv": b"\xef\xbb\xbf" + as_csv(A_FEW),
    "lf.csv": as_csv(A_FEW).replace(b"\r\n", b"\n\n").rstrip(),
    "a.csv.gz": gzip.compress(as_csv(A_FEW)),
    "a.jsonl": as_jsonl(A_FEW),
    "urls.jsonl": as_jsonl(A_FEW, "url", "importance"),
    "blank.jsonl": as_jsonl(A_FEW).replace(b"\n", b" \r\n \n").rstrip(),
    "nested.jsonl": as_jsonl(A_FEW, more={"a": [{"b": None}]}, text='"\\\n}'),
    "a.jsonl.gz": gzip.compress(as_jsonl(A_FEW)[:3000]) + gzip.compress(as_jsonl(A_FEW)[3000:]),
    "a.jsonl.zst": zstandard.compress(as_jsonl(A_FEW)),
    "a.parquet": as_parquet(A_FEW),
    "urls.parquet": as_parquet(A_FEW, "url", "importance", use_dictionary=["url"], row_group_size=17),
    "a.avro": as_avro(A_FEW),
    "ids.avro": as_avro(A_FEW, "page", "importance"),
    "named-otherwise": as_jsonl(A_FEW),
}


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def as_dict(of: Ranks) -> dict[int, float]:
    return dict(zip(of.pages.tolist(), of.values.tolist(), strict=True))


@pytest.mark.parametrize(("name", "at_once"), crossed(list(FORMATS), [16, 997, 1 << 20]))
def test_every_format_gives_the_same_ranks_for_any_block_size(
    name: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_blocks, "_BLOCK_BYTES", at_once)
    monkeypatch.setattr(rank_rows, "_ROWS_AT_ONCE", at_once)
    found = read_ranks(str(write(tmp_path / name, FORMATS[name])), "importance")
    assert as_dict(found) == {page_id(url): value for url, value in A_FEW}
    assert found.pages.tolist() == sorted(found.pages.tolist())
    assert (found.rows, found.repeated, found.gone, found.is_stream) == (90, 0, 0, False)
    urls = {page_id(url): url for url, _ in A_FEW}
    wanted = random.Random(1).sample(sorted(urls), 20)
    known = {} if name.startswith("ids") else {page: urls[page] for page in wanted}
    assert found.urls([*wanted, 0, 2**64 - 1]) == known


@given(st.lists(st.text(min_size=1).filter(str.isprintable), min_size=1, max_size=20, unique=True))
def test_a_row_without_a_page_id_is_the_page_of_its_url(urls: list[str]) -> None:
    rows = [{"url": url, "importance": 1} for url in urls]
    rows[::2] = [{"url": "https://other.example/", "page": f"{page_id(row['url']):016X}"} | row for row in rows[::2]]
    batch = rank_rows.batch_of(RecordBlock(rows, str), "importance", "url")
    assert batch.pages.tolist() == [page_id(url) for url in urls]


def test_a_row_names_its_page_by_url_or_by_id(tmp_path: Path) -> None:
    url = "https://a.example/"
    text = f"url,page,importance\n{url},,1\n,{page_id(url):016x},2\n,00000000000000ff,3\n"
    found = read_ranks(str(write(tmp_path / "a.csv", text.encode())), "importance")
    assert as_dict(found) == {page_id(url): 2.0, 255: 3.0}
    assert found.urls([255]) == {}


def test_the_newest_record_of_a_page_counts_and_tombstones_remove_pages(tmp_path: Path) -> None:
    def row(url: str, value: float) -> bytes:
        return as_jsonl([(url, value)], clock=1.5, event_time=None, cut=3)

    def tombstone(url: str) -> bytes:
        return json_line(Arrived(url.encode(), None, None, 0, 0)).encode()

    a, b, c, d = (f"https://{letter}.example/" for letter in "abcd")
    lines = row(a, 0.5) + row(b, 0.25) + tombstone(a) + row(a, 0.75) + row(b, 0.125) + row(c, 1) + tombstone(c)
    stream = write(tmp_path / "stream.jsonl", lines + tombstone(d))
    found = read_ranks(str(stream), "importance")
    assert as_dict(found) == {page_id(a): 0.75, page_id(b): 0.125}
    assert (found.rows, found.repeated, found.gone, found.is_stream) == (8, 4, 2, True)
    last = write(tmp_path / "last.csv", as_csv([(a, 0.75), (b, 0.125)]))
    out = output_of("compare", stream, last)
    assert re.search(r"L1 +0\n", out)
    assert "A: 8 records: the newest of each page counts" in out and "A: left out: 2 pages whose last" in out
    write(tmp_path / "all.jsonl", tombstone(a) + row(a, 1) + tombstone(a))
    assert "all its pages are gone" in command("compare", tmp_path / "all.jsonl", last).err


def test_a_page_that_is_repeated_in_a_file_gives_a_note(tmp_path: Path) -> None:
    twice = write(tmp_path / "twice.csv", as_csv([*A_FEW, (A_FEW[4][0], 7.0)]))
    once = write(tmp_path / "once.csv", as_csv(A_FEW))
    assert as_dict(read_ranks(str(twice), "importance"))[page_id(A_FEW[4][0])] == 7.0
    assert "note: A: 1 row of a page that has one already: the last one of each page counts" in output_of(
        "compare", twice, once
    )


# -- the command -------------------------------------------------------------------------------------------------------


def compare_json(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output_of("compare", *arguments, "--json"))
    return found


def test_pages_in_one_file_only_are_counted_with_their_rank(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", b"url,x\na,4\nb,2\nc,1\nd,0.5\n")
    b = write(tmp_path / "b.jsonl", b'{"url":"b","y":2}\n{"url":"c","y":3}\n{"url":"e","y":0.5}\n')
    found = compare_json(a, b, "--rank", "x", "--rank-b", "y", "--top", "1,3,9")
    assert (found["pages_in_both"], found["a"]["only_here"], found["b"]["only_here"]) == (2, 2, 1)
    assert (found["a"]["rank_only_here"], found["b"]["rank_only_here"]) == (4.5, 0.5)
    assert (found["l1"], found["linf"], found["kendall_tau"]) == (7, 4, -1)
    assert found["mean_relative_error"] == pytest.approx((0 + 2 / 3) / 2)
    assert found["mean_relative_error_of_top_tenth"] == pytest.approx(2 / 3)
    assert [row["in_common"] for row in found["top"]] == [0, pytest.approx(2 / 3), None]
    names = [(page["url"], page["a"], page["b"], page["difference"]) for page in found["differ_most"]]
    assert [name[0] for name in names] == ["a", "c", *sorted("de", key=page_id)]
    assert names[0] == ("a", 4, 0, 4) and names[1] == ("c", 1, 3, -2)
    assert [(page["url"], page["ratio"]) for page in found["largest_ratios"]] == [("c", pytest.approx(1 / 3))]
    scaled = compare_json(a, b, "--rank", "x", "--rank-b", "y", "--normalise")
    assert scaled["normalised"] and scaled["a"]["rank_only_here"] == pytest.approx(4.5 / 7.5)
    assert scaled["l1"] == pytest.approx(4.5 / 7.5 + 1 / 11 + abs(2 / 7.5 - 4 / 11) + abs(1 / 7.5 - 6 / 11))
    assert (scaled["a"]["sum"], scaled["b"]["sum"]) == (7.5, 5.5)
    assert any("the sums differ" in note for note in found["notes"])
    assert not any("the sums differ" in note for note in scaled["notes"])


def test_an_undefined_measure_is_a_dash_and_null(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", b"url,x\na,1\n")
    b = write(tmp_path / "b.csv", b"url,x\nb,0\n")
    out = output_of("compare", a, b, "--rank", "x")
    assert "no page is in both" in out and re.search(r"Kendall's tau +-\n", out)
    assert compare_json(a, b, "--rank", "x")["kendall_tau"] is None
    assert "left out of relative errors: 1 page with 0 in B" in output_of("compare", b, b, "--rank", "x")
    huge, tiny = write(tmp_path / "c.csv", b"url,x\na,1e200\n"), write(tmp_path / "d.csv", b"url,x\na,1e-200\n")
    found = compare_json(huge, tiny, "--rank", "x")
    assert found["mean_relative_error"] is None and found["largest_ratios"][0]["ratio"] is None


def test_the_table_shows_the_numbers_of_json(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.csv", as_csv(A_FEW)), write(tmp_path / "b.csv", as_csv(A_FEW[::-1][3:]))
    out, found = output_of("compare", a, b, "--worst", "2"), compare_json(a, b, "--worst", "2")
    assert f"A: {a}: importance of 90 pages, sum {found['a']['sum']:.6g}" in out
    assert f"only in A                                3  sum of their ranks: {found['a']['rank_only_here']:.4g}" in out
    lines = [line.split() for line in out.splitlines()]
    for page in found["differ_most"]:
        assert [f"{page['a']:.4g}", f"{page['b']:.4g}", f"{page['difference']:+.4g}", page["url"]] in lines
    assert len(found["differ_most"]) == 2
    assert compare_json(a, b, "--worst", "0")["differ_most"] == []


def test_a_page_without_a_url_has_its_id_and_control_characters_are_escaped(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", b"page,url,x\n00000000000000ff,,5\n,\x1b[31m,1\n")
    b = write(tmp_path / "b.csv", b"url,x\n\x1b[31m,2\n")
    out = output_of("compare", a, b, "--rank", "x")
    assert "  00000000000000ff" in out and "\\x1b[31m" in out and "\x1b" not in out
    assert [page["url"] for page in compare_json(a, b, "--rank", "x")["differ_most"]] == [None, "\x1b[31m"]


def test_one_of_the_two_files_may_be_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = write(tmp_path / "a.csv", as_csv(A_FEW))
    with open(write(tmp_path / "b.jsonl", as_jsonl(A_FEW)), "rb") as feed:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(feed))
        assert compare_json("-", a)["l1"] == 0
    for data in (as_avro(A_FEW), as_parquet(A_FEW)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert "from files only" in refusal("compare", "-", a)


@pytest.mark.slow
def test_a_simulated_crawl_is_close_to_its_exact_ranks(tmp_path: Path) -> None:
    log, exact = tmp_path / "x.jsonl", tmp_path / "exact.csv"
    output_of("simulate", "--out", log, "--ranks", exact, "--pages", "300", "--visits", "3000", "--quiet")
    for format_ in ("jsonl", "avro", "parquet"):
        output_of("replay", log, "--out", tmp_path / format_, "--format", format_, "--quiet", "--publications")
    found = compare_json(tmp_path / "jsonl", exact)
    values = {row["page"]: row["importance"] for row in records_of(tmp_path / "jsonl/importance.jsonl")}
    with open(exact, encoding="utf-8") as file:
        right = {f"{page_id(row['url']):016x}": float(row["importance"]) for row in csv.DictReader(file)}
    assert values.keys() == right.keys()
    assert found["pages_in_both"] == 300 and found["b"]["sum"] == pytest.approx(1)
    assert found["l1"] == pytest.approx(sum(abs(values[page] - right[page]) for page in right))
    assert found["mean_relative_error"] == pytest.approx(
        sum(abs(values[page] - right[page]) / right[page] for page in right) / 300
    )
    assert found["l1"] < 0.1 and found["kendall_tau"] > 0.85 and found["top"][0]["in_common"] >= 0.9
    for format_ in ("avro", "parquet"):
        again = compare_json(tmp_path / format_, exact)
        assert {**again, "a": None} == {**found, "a": None}
        same = compare_json(tmp_path / format_, tmp_path / "jsonl")
        assert (same["l1"], same["kendall_tau"], same["differ_most"]) == (0, 1, [])
        publications = read_ranks(str(tmp_path / format_ / f"publications.{format_}"), "importance")
        assert publications.is_stream


# -- refusals and help -------------------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[str, bytes, str]] = {
    "empty": ("a.csv", b"", "a.csv: it is empty"),
    "empty gzip": ("a.csv.gz", gzip.compress(b""), "a.csv.gz: it is empty"),
    "head only": ("a.csv", b"url,importance\n\n", "a.csv: no page is in it"),
    "no records": ("a.avro", as_avro([]), "a.avro: no page is in it"),
    "no column": ("a.csv", b"url,score,hubs\na,1,2\n", "no column of ranks importance: name one of score, hubs"),
    "no columns": ("a.csv", b"url\na\n", "no column of ranks importance: name a file of ranks"),
    "no field": ("a.jsonl", b'{"url":"a","score":1,"x":"y"}\n', "a.jsonl, line 1: no importance: name one of score"),
    "no field later": ("a.jsonl", as_jsonl(A_FEW) + b'\n{"url":"a","gone":false}', "line 92: no importance"),
    "no parquet column": ("a.parquet", as_parquet(A_FEW, "url", "score"), "no column of ranks importance: name one of"),
    "no avro field": ("a.avro", as_avro(A_FEW, "url", "score"), "no column of ranks importance: name one of score"),
    "no pages": ("a.csv", b"name;importance\na;1\n", "none of name;importance is a column url, page or site"),
    "several columns": ("a.csv", b"url,importance,importance\na,1,2\n", "several columns importance"),
    "negative": (
        "a.csv",
        as_csv(A_FEW) + b"a,,1,-0.5,1\n",
        "a.csv, line 92: importance -0.5: a rank is a number from 0",
    ),
    "nan": ("a.csv", b"url,importance\na,1\n\n\nb,nan\n", "a.csv, line 5: importance nan"),
    "inf": ("a.csv", b"url,importance\na,1\nb,inf\n", "a.csv, line 3: importance inf"),
    "nothing": ("a.csv", b"url,importance\na,1\nb,\n", "a.csv, line 3: importance is empty"),
    "word": ("a.csv", b"url,importance\na,1\nb,\x1b[31mx\n", "a.csv, line 3: importance \\x1b[31mx"),
    "null": ("a.jsonl", b'{"url":"a","importance":null}\n', "a.jsonl, line 1: importance null"),
    "text": ("a.jsonl", as_jsonl(A_FEW) + b'{"url":"a","importance":"1"}\n', 'a.jsonl, line 91: importance "1"'),
    "true": ("a.jsonl", b'{"url":"a","importance":true}\n', "a.jsonl, line 1: importance true"),
    "negative in json": ("a.jsonl", as_jsonl(A_FEW) + b'{"url":"a","importance":-1}\n', "line 91: importance -1"),
    "too large": ("a.jsonl", b'{"url":"a","importance":1e999}\n', "a.jsonl, line 1: no JSON"),
    "sum": ("a.csv", b"url,importance\na,1e308\nb,1e308\n", "importance adds up to more than 1e+300"),
    "parquet null": ("a.parquet", as_parquet([*A_FEW, ("a", None)]), "a.parquet, row 91: importance None"),
    "parquet text": ("a.parquet", as_parquet([("a", "1")], "url", "importance"), "holds string, no numbers"),
    "avro nan": ("a.avro", as_avro([*A_FEW, ("a", np.nan)]), "a.avro, row 91: importance nan"),
    "cells": ("a.csv", b"url,importance\na,1\nb,1,2\n", "a.csv, line 3: 3 columns, not 2"),
    "quotes": ("a.csv", b'url,importance\n"a\nb",1\n"c"d,1\n', "a.csv, line 4: ',' expected after '\"'"),
    "open quotes": ("a.csv", b'url,importance\n"a,1\nb,2\n', "line 2: "),
    "latin": ("a.csv", b"url,importance\na,1\n\xe9,1\n", "a.csv, line 3: not UTF-8"),
    "tabs": ("a.csv", b"url\timportance\na\t1\n", "is a column url, page or site"),
    "no url": ("a.csv", b"url,importance\na,1\n,1\n", "a.csv, line 3: neither url nor page"),
    "no url in json": ("a.jsonl", b'{"importance":1}\n', "a.jsonl, line 1: neither url nor page"),
    "url": ("a.jsonl", b'{"url":"a","importance":1}\n{"url":7,"importance":1}\n', "a.jsonl, line 2: url is no text"),
    "page": ("a.csv", b"page,importance\nffffffffffffffff,1\nfffffffffffffffg,1\n", "line 3: page fffffffffffffffg is"),
    "short page": ("a.csv", b"page,importance\nff,1\n", "line 2: page ff is no page id"),
    "page numbers": ("a.parquet", as_parquet([("a", 1.0)], "visits", "importance"), "is a column url, page or site"),
    "no json": ("a.jsonl", as_jsonl(A_FEW) + b"{\n", "a.jsonl, line 91: no JSON"),
    "no object": ("a.jsonl", as_jsonl(A_FEW) + b"null\n", "a.jsonl, line 91: no JSON object"),
    "two objects": ("a.jsonl", b'{"url":"a","importance":1},{"url":"b","importance":1}\n', "line 1: no JSON"),
    "array": ("a.jsonl", b'[{"url":"a"}]\n', "is a column url, page or site"),
    "bytes": ("a.csv", random.Random(1).randbytes(5000), "neither CSV nor JSON lines, Parquet or Avro"),
    "cut gzip": ("a.csv.gz", gzip.compress(as_csv(A_FEW))[:-9], "damaged"),
    "two ranks": (
        "a.parquet",
        with_two_columns("importance"),
        'damaged (\'Field "importance" exists 2 times in schema',
    ),
    "two urls": ("a.parquet", with_two_columns("url"), 'damaged (\'Field "url" exists 2 times in schema'),
    "cut parquet": ("a.parquet", as_parquet(A_FEW)[:-1], "a.parquet: damaged"),
    "cut avro": ("a.avro", as_avro(A_FEW)[:-30], "a.avro, from row 1: damaged"),
    "avro head": ("a.avro", b"Obj\x01", "a.avro, from row 1: damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_file_gives_one_line_of_error(name: str, tmp_path: Path) -> None:
    file, data, message = REFUSED[name]
    right = write(tmp_path / "right.csv", as_csv(A_FEW))
    path = write(tmp_path / file, data)
    for arguments in ((path, right), (right, path)):
        error = refusal("compare", *arguments)
        assert message in error and str(path) in error and error[:-1].isprintable() and len(error) < 600


def test_wrong_options_give_one_line_of_error(tmp_path: Path) -> None:
    right = write(tmp_path / "right.csv", as_csv(A_FEW))
    zeros = write(tmp_path / "zeros.csv", b"url,importance\na,0\n")
    (tmp_path / "none").mkdir()
    (tmp_path / "two").mkdir()
    for ending in ("jsonl", "avro"):
        write(tmp_path / f"two/importance.{ending}", b"")
    cases: dict[str, tuple[object, ...]] = {
        "missing: no such file": (right, tmp_path / "missing"),
        "no file importance in this folder": (tmp_path / "none", right),
        "importance.jsonl and importance.avro are in it": (tmp_path / "two", right),
        "both A and B": ("-", "-"),
        "no column of ranks url": (right, right, "--rank", "url"),
        "no column of ranks nope: name one of visits, importance, score": (right, right, "--rank-b", "nope"),
        "importance is 0 for every page": (right, zeros, "--normalise"),
        "'0' is not a positive whole number": (right, right, "--top", "10,0"),
        "'' is not a positive whole number": (right, right, "--top", "10,"),
        "'-1' is not a whole number from 0": (right, right, "--worst", "-1"),
    }
    for message, arguments in cases.items():
        assert message in refusal("compare", *arguments)


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (line_blocks, csv_tables):
        monkeypatch.setattr(module, "MOST_LINE_BYTES", 1 << 20)
    for begin in (b"url,importance\n", b"{"):
        path = write(tmp_path / "long", begin + b"a" * (4 << 20))
        assert "longer than 1,048,576 bytes" in command("compare", path, path).err


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.csv.gz", "a.parquet", "a.avro"])
def test_a_damaged_file_is_read_or_gives_one_line_of_error(name: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    refused = 0
    for _ in range(100):
        data = bytearray(FORMATS[name])
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.randint(0, 3)] = chance.choice(
                [b"", b"\n", b"\0", b'"', b"null\n", chance.randbytes(2)]
            )
        try:
            read_ranks(str(write(tmp_path / name, bytes(data))), "importance")
        except InputRefused as problem:
            assert str(problem).isprintable() and len(str(problem)) < 600
            refused += 1
    assert refused > 50
