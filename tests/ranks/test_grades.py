"""`opicflow compare --grades`: rankings against the grades of people."""

from __future__ import annotations

import io
import json
import runpy
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import scipy

from opicflow.pipelines.ranks.graph.harmonic import hyperball
from opicflow.pipelines.ranks.graph.store import StoredGraph
from support.commands import output_of, refusal
from support.paths import TOP

PAGES = 60
CHANCE = np.random.default_rng(1)
GRADES = CHANCE.integers(1, 5, PAGES)
NEAR, FAR = GRADES + CHANCE.normal(0, 1, PAGES) + 9, CHANCE.random(PAGES)


def url(page: int) -> str:
    return f"https://site-{page % 5}.example/{page}"


def grade_json(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output_of("compare", *arguments, "--json"))
    return found


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Grades, and two columns of ranks."""
    grades, ranks = tmp_path / "grades.csv", tmp_path / "ranks.csv"
    grades.write_text("url,grade\n" + "".join(f"{url(page)},{grade}\n" for page, grade in enumerate(GRADES)))
    rows = zip(map(url, range(PAGES)), NEAR, FAR, strict=True)
    ranks.write_text("url,importance,other\n" + "".join(f"{url},{near},{far}\n" for url, near, far in rows))
    return {"grades": grades, "ranks": ranks}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    links = CHANCE.integers(0, PAGES, (300, 2)).tolist()
    (tmp_path / "links.tsv").write_text("".join(f"{url(a)}\t{url(b)}\n" for a, b in links))
    output_of("graph", "build", tmp_path / "links.tsv", "--out", tmp_path / "g", "--quiet")
    return tmp_path / "g"


def test_measures_are_those_of_scipy_and_the_better_ranking_is_clear(files: dict[str, Path]) -> None:
    ranks = files["ranks"]
    found = grade_json("--grades", files["grades"], ranks, f"{ranks}#other", "--top", "10,999")
    assert found["grades"] == {
        "file": str(files["grades"]),
        "pages": PAGES,
        "repeated": 0,
        "compared": PAGES,
        "lowest": 1,
        "highest": 4,
        "good_from": 2.5,
        "good": int((GRADES > 2).sum()),
    }
    assert [one["letter"] for one in found["rankings"]] == ["A", "B"]
    by_name = {(one["measure"], one["top"]): one["rankings"] for one in found["measures"]}
    assert list(by_name) == [
        ("spearman", None),
        ("kendall_tau", None),
        ("same_grade", None),
        *(("ndcg", top) for top in (10, 999)),
        *(("precision", top) for top in (10, 999)),
    ]
    for name, measure in (("spearman", scipy.stats.spearmanr), ("kendall_tau", scipy.stats.kendalltau)):
        for row, values in zip(by_name[name, None], (NEAR, FAR), strict=True):
            assert row["value"] == pytest.approx(measure(GRADES, values).statistic)
            assert row["low"] < row["value"] < row["high"]
        less = by_name[name, None][1]["less_first"]
        assert less["value"] == pytest.approx(by_name[name, None][1]["value"] - by_name[name, None][0]["value"])
        assert less["high"] < 0 and less["excludes_0"] and less["grades_needed"] < PAGES
    top = np.argsort(-NEAR)[:10]
    assert by_name["precision", 10][0]["value"] == pytest.approx((GRADES[top] > 2).mean())
    assert by_name["precision", 10][1]["less_first"]["grades_needed"] is None
    assert by_name["ndcg", 999][0]["value"] is None
    worst = found["worst"][1]["pages"]
    apart = [abs(page["position_by_grade"] - page["position_by_rank"]) for page in worst]
    assert len(worst) == 10 and apart == sorted(apart, reverse=True)
    assert worst[0]["rank"] == pytest.approx(FAR[[url(page) for page in range(PAGES)].index(worst[0]["url"])])


@pytest.mark.slow
def test_the_table_shows_the_figures_of_json(files: dict[str, Path]) -> None:
    ranks = files["ranks"]
    words = ("--grades", files["grades"], ranks, f"{ranks}#other", "--top", "10,999", "-n", "2", "--good", "4")
    out, found = output_of("compare", *words), grade_json(*words)
    good = int((GRADES == 4).sum())
    assert f"60 pages graded from 1 to 4; {good} are good: 4 or more" in out
    assert f"B: {ranks}#other of 60 pages" in out
    assert "NDCG of the top 999: - (fewer pages than that are graded" in out
    for measured in found["measures"]:
        for row in measured["rankings"]:
            if row["value"] is not None:
                assert f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})" in out.replace("(-0.000", "(0.000")
    assert out.count("furthest from the grades") == 2
    assert [page["url"] in out for one in found["worst"] for page in one["pages"]] == [True] * 4
    alone = output_of("compare", ranks, "--grades", files["grades"], "--worst", "0")
    assert "less" not in alone and "furthest" not in alone


def test_graders_are_beside_the_rankings_and_their_median_is_compared_with_the_first(
    files: dict[str, Path], tmp_path: Path
) -> None:
    grades = {name: np.clip(GRADES + CHANCE.integers(-1, 2, PAGES), 1, 4) for name in ("Ana", "Ben\x1b[31m", "Cleo")}
    rows = [f"{url(page)},{given[page]},{who}\n" for who, given in grades.items() for page in range(PAGES)]
    (tmp_path / "people.csv").write_text("url,grade,grader\n" + "".join(rows))
    words = ("--grades", tmp_path / "people.csv", files["ranks"], "--top", "10", "--resamples", "60")
    found, out = grade_json(*words), output_of("compare", *words)
    assert found["graders"] == [{"name": who, "graded": PAGES} for who in grades]
    assert f"60 pages graded from 1 to 4 by 3 graders; {found['grades']['good']} are good: 2.5 or more" in out
    by_name = {one["measure"]: one for one in found["measures"]}
    means = np.mean(list(grades.values()), axis=0)
    assert by_name["spearman"]["rankings"][0]["value"] == pytest.approx(scipy.stats.spearmanr(means, NEAR).statistic)
    of_others, of_all = by_name["same_grade"]["graders"][0], by_name["same_grade_of_all"]["graders"][0]
    both = "      ".join(f"{one['value']:.3f} ({one['low']:.3f} to {one['high']:.3f})" for one in (of_others, of_all))
    assert both in out and out.count("median grader") == 6 and "\x1b" not in out
    less = by_name["spearman"]["median_grader"]["less_first"]
    assert f"{less['value']:+.3f} ({less['low']:+.3f} to {less['high']:+.3f})" in out


def test_the_example_has_grades_of_known_skill_and_the_command_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(TOP / "examples" / "make_grades.py"))
    monkeypatch.setattr(sys, "argv", ["make_grades.py", str(tmp_path / "grades.csv")])
    script["main"]()
    assert (tmp_path / "grades.csv").read_bytes() == (TOP / "examples" / "grades.csv").read_bytes()
    truth = script["true_grades"](Random(script["SEED"]))
    (tmp_path / "truth.csv").write_text(
        "url,importance\n" + "".join(f"{url},{grade}\n" for url, grade in truth.items())
    )
    found = grade_json("--grades", TOP / "examples" / "grades.csv", tmp_path / "truth.csv")
    scores = next(one["graders"] for one in found["measures"] if one["measure"] == "same_grade")
    assert [one["name"] for one in found["graders"]] == list(script["SKILLS"])
    assert [
        one["low"] <= skill <= one["high"] for one, skill in zip(scores, script["SKILLS"].values(), strict=True)
    ] == [True] * 8


@pytest.mark.slow
def test_yardsticks_are_the_in_degree_harmonic_centrality_and_pagerank_of_the_graph(
    files: dict[str, Path], graph: Path
) -> None:
    found = grade_json("--grades", files["grades"], files["ranks"], "--graph", graph)
    assert [one["name"] for one in found["rankings"][1:]] == ["in-degree", "harmonic centrality", "PageRank"]
    stored = StoredGraph(graph)
    text, ends = stored.url_bytes.tobytes().decode(), stored.url_ends.tolist()
    urls = [text[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    values = dict(zip(urls, hyperball(stored).values.tolist(), strict=True))
    known = [page for page in range(PAGES) if url(page) in values]
    expected = scipy.stats.spearmanr(GRADES[known], [values[url(page)] for page in known]).statistic
    assert found["measures"][0]["rankings"][2]["value"] == pytest.approx(expected)
    assert found["grades"]["compared"] == len(known)


@pytest.mark.slow
def test_unknown_and_repeated_pages_are_counted_in_one_line_each(files: dict[str, Path], tmp_path: Path) -> None:
    with open(files["grades"], "a") as file:
        file.write(f"{url(0)},4\n{url(1)}#part,1\nhttps://elsewhere.example/,4\n")
    some = tmp_path / "some.csv"
    some.write_text("".join(files["ranks"].read_text().splitlines(keepends=True)[:-3]))
    found = grade_json("--grades", files["grades"], files["ranks"], some)
    assert found["notes"] == [
        "2 grades of a page that has one already: the mean of each page counts",
        f"left out: 4 graded pages, because not every ranking has them (missing: 1 in A {files['ranks']}#importance, "
        f"4 in B {some}#importance)",
    ]
    assert (found["grades"]["pages"], found["grades"]["compared"]) == (PAGES + 1, PAGES - 3)
    assert [one["graded"] for one in found["rankings"]] == [PAGES, PAGES - 3]
    out = output_of("compare", "--grades", files["grades"], files["ranks"], some)
    assert all(f"note: {note}\n" in out for note in found["notes"])


def test_a_graded_url_matches_as_it_is_written_or_by_its_canonical_form(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("HTTPS://a.example,1\nhttps://b.example:443/#x,2\nexample.org,3\n")
    (tmp_path / "r.csv").write_text("url,importance\nhttps://a.example/,1\nhttps://b.example:443/#x,2\nexample.org,3\n")
    found = grade_json("--grades", tmp_path / "g.csv", tmp_path / "r.csv")
    assert (found["grades"]["compared"], found["measures"][0]["rankings"][0]["value"]) == (3, pytest.approx(1))


def test_values_that_differ_by_roundings_are_equal(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("a,1\nb,2\nc,3\n")
    (tmp_path / "r.csv").write_text("url,importance\na,0.30000000000000004\nb,0.3\nc,0.3000003\n")
    found = grade_json("--grades", tmp_path / "g.csv", tmp_path / "r.csv")
    tau = scipy.stats.kendalltau([1, 2, 3], [0, 0, 1]).statistic
    assert found["measures"][1]["rankings"][0]["value"] == pytest.approx(tau)


def test_the_seed_decides_the_intervals(files: dict[str, Path]) -> None:
    words = ("--grades", files["grades"], files["ranks"], "--resamples", "50")
    one, same, other = (grade_json(*words, "--seed", seed) for seed in (1, 1, 2))
    assert one == same and one["measures"] != other["measures"]
    assert one == grade_json(*words)


def test_three_rankings_and_one_of_standard_input(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = files["ranks"]
    with open(ranks, "rb") as feed:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(feed))
        found = grade_json("--grades", files["grades"], "-", f"{ranks}#other", ranks)
    assert [one["letter"] for one in found["rankings"]] == ["A", "B", "C"]
    assert [row["value"] for row in found["measures"][0]["rankings"]][::2] == [
        pytest.approx(scipy.stats.spearmanr(GRADES, NEAR).statistic)
    ] * 2


@pytest.mark.parametrize(
    "words, message",
    [
        (["{r}"], "one ranking: name B too, or give --grades"),
        (["{r}", "{r}", "{r}"], "more than two rankings: give --grades too"),
        (["{r}", "{r}", "--graph", "{d}"], "--graph: it is for grades: give --grades too"),
        (["{r}", "{r}", "--seed", "1"], "--seed: it is for grades"),
        (["--grades", "{g}", "{r}", "--normalise"], "--normalise: grades are compared with the order"),
        (["--grades", "{g}", "{r}", "--by", "host"], "--by: with --grades of sites, name rankings of sites"),
        (["--grades", "{g}", "{r}", "--rank-b", "other"], "--rank-b: with --grades, name a column like"),
        (["--grades", "{g}", "{r}#nope"], "no column of ranks nope: name one of importance, other"),
        (["--grades", "{g}", "{d}/none.csv"], "none.csv: no such file"),
        (["--grades", "{d}/none.csv", "{r}"], "none.csv: no such file"),
        (["--grades", "{d}/bad.csv", "{r}"], "bad.csv, line 2: 'x' is no grade"),
        (["--grades", "{d}/other.csv", "{r}"], "other.csv: of 3 graded pages 0 are in all rankings: at least 3"),
        (["--grades", "{d}/same.csv", "{r}"], "same.csv: all pages that are in the rankings have one grade"),
        (["--grades", "{g}", "{r}", "--graph", "{d}"], "no graph there"),
        (["--grades", "-", "-"], "standard input: it is named twice"),
        (["--grades", "{g}", "{r}", "--good", "nan"], "'nan' is not a number"),
        (["--grades", "{g}", "{r}", "--resamples", "0"], "'0' is not a positive whole number"),
        (["--grades", "{g}"], "the following arguments are required: A"),
    ],
)
def test_a_mistake_gives_one_line_of_error(
    files: dict[str, Path], tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "bad.csv").write_text("https://a.example/,1\nhttps://b.example/,x\n")
    (tmp_path / "other.csv").write_text("a,1\nb,2\nc,3\n")
    (tmp_path / "same.csv").write_text("".join(f"{url(page)},3\n" for page in range(9)))
    error = refusal("compare", *(word.format(g=files["grades"], r=files["ranks"], d=tmp_path) for word in words))
    assert message in error
