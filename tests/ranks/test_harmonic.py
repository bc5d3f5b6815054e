"""`opicflow rank --measure harmonic`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from opicflow.connectors.files.rank_reader import read_ranks
from opicflow.pipelines.cli import progress
from opicflow.pipelines.ranks.graph import harmonic
from opicflow.schemas.pages import page_id
from support.commands import command, output_of, refusal

LINKS = ["a b", "c b", "d c", "e d", "a c", "x y"]
EXACT = {"a": 0, "b": 2 + 1 / 2 + 1 / 3, "c": 2 + 1 / 2, "d": 1, "e": 0, "x": 0, "y": 1}


def url(page: str) -> str:
    return f"https://{page}.example/"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "links.tsv"
    path.write_text("".join("\t".join(map(url, link.split())) + "\n" for link in LINKS))
    return path


@pytest.fixture
def built(log: Path, tmp_path: Path) -> Path:
    output_of("graph", "build", log, "--out", tmp_path / "g", "--quiet")
    return tmp_path / "g"


@pytest.mark.parametrize("ending", ["csv", "jsonl.gz", "parquet"])
def test_exact_values_are_written_in_every_format(built: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"h.{ending}"
    output_of("rank", built, "--measure", "harmonic", "--exact", "--out", out, "--quiet")
    ranks = read_ranks(str(out), "harmonic")
    assert dict(zip(ranks.pages.tolist(), ranks.values.tolist(), strict=True)) == pytest.approx(
        {page_id(url(page)): value for page, value in EXACT.items()}
    )


def test_estimates_of_a_log_and_of_its_graph_are_the_same_and_near(log: Path, built: Path, tmp_path: Path) -> None:
    for name, source in (("log", log), ("graph", built)):
        out = tmp_path / f"{name}.csv"
        output_of("rank", source, "--measure", "harmonic", "--registers", "14", "--out", out, "--quiet")
    assert (tmp_path / "log.csv").read_bytes() == (tmp_path / "graph.csv").read_bytes()
    with open(tmp_path / "log.csv", newline="") as file:
        found = {row["url"]: float(row["harmonic"]) for row in csv.DictReader(file)}
    assert found == pytest.approx({url(page): value for page, value in EXACT.items()}, rel=0.02)


def test_the_output_states_the_registers_the_error_and_the_largest_distance(built: Path) -> None:
    out = output_of("rank", built, "--measure", "harmonic", "-n", "1", "--quiet")
    head, empty, how, top = out.splitlines()
    assert head.startswith("7 pages, 6 links, ") and empty == ""
    assert how == "harmonic: 256 registers a page, standard error at most 6.5%; largest distance 3"
    assert top.split()[1] == url("b")
    exact = output_of("rank", built, "--measure", "harmonic", "--exact", "-n", "1", "--quiet").splitlines()
    assert exact[2:] == ["harmonic: exact; largest distance 3", "          2.83  https://b.example/"]
    short = output_of("rank", built, "--measure", "harmonic", "--max-iterations", "2", "--quiet")
    assert "NOT COMPLETE: only distances up to 2 count: give more --max-iterations" in short
    found = json.loads(output_of("rank", built, "--measure", "harmonic", "--registers", "6", "--json", "--quiet"))
    assert found["harmonic"] == {"registers": 64, "standard_error": 0.13175, "distance": 3, "complete": True}
    assert found["top"]["harmonic"][0]["url"] == url("b")


def test_scans_and_searches_show_their_progress(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    done = command("rank", built, "--measure", "harmonic", "--registers", "14")
    lines = [line for line in done.err.splitlines() if line.startswith("harmonic")]
    assert lines[0] == "harmonic: radius 1, 4 pages with a growing ball"
    assert lines[-1].endswith(", 0 pages with a growing ball")
    done = command("rank", built, "--measure", "harmonic", "--exact")
    assert "harmonic: 7 pages, 100%, 0 s left\n" in done.err


def test_the_seed_decides_the_estimates(log: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    lines = [f"{url(str(a))}\t{url(str(b))}\n" for a, b in random.integers(0, 200, (900, 2)).tolist()]
    log.write_text("".join(lines))
    made = []
    for number, options in enumerate((["--seed", "1"], [], ["--seed", "2"])):
        out = tmp_path / f"{number}.csv"
        output_of("rank", log, "--measure", "harmonic", "--registers", "5", "--out", out, "--quiet", *options)
        made.append(out.read_bytes())
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize(
    "options, words",
    [
        (["--damping", "0.5"], "--damping: harmonic centrality does not use it: omit it"),
        (["--ranks", "hubs"], "--ranks: harmonic centrality does not use it"),
        (["--registers", "3"], "--registers 3: give a number from 4 to 14"),
        (["--registers", "15"], "--registers 15: give a number from 4 to 14"),
        (["--exact", "--seed", "2"], "--exact: exact values need no --registers and no --seed"),
        (["--measure", "nearness"], "unknown value 'nearness'"),
        (["--measure", "pagerank", "--exact"], "--exact: it is for harmonic centrality: give --measure harmonic too"),
        (["--measure", "pagerank", "--registers", "8"], "--registers: it is for harmonic centrality"),
        (["--out", "h.xls"], "ranks end in .csv"),
    ],
)
def test_a_mistake_gives_one_line_of_error(built: Path, options: list[str], words: str) -> None:
    assert words in refusal("rank", built, "--measure", "harmonic", "--quiet", *options)


def test_too_many_pages_for_exact_values_or_for_the_memory_are_refused(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harmonic, "MOST_EXACT_PAGES", 6)
    assert "is for at most 6: omit --exact" in refusal("rank", built, "--measure", "harmonic", "--exact", "--quiet")
    error = refusal("rank", built, "--measure", "harmonic", "--registers", "14", "--memory", "100KB", "--quiet")
    assert "fewer --registers" in error
