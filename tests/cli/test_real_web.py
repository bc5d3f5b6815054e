"""Ranks of a small real web, which is not in the repository: their measures are the table in docs/guides/compare.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from support.commands import output_of
from support.paths import TOP
from support.real_data import real_data

GUIDE = (TOP / "docs" / "guides" / "compare.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| ([\w -]+), ([\w -]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
COLUMNS = {
    "PageRank": "ranks.csv#importance",
    "interest": "ranks.csv#interest",
    "authorities": "ranks.csv#authorities",
    "harmonic centrality": "harmonic.csv#harmonic",
    "in-degree": "in-degree.csv#importance",
}


def url(number: str) -> str:
    return f"https://web.example/{number}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ranks of the web: numbers of pages, made URLs."""
    lines = real_data("hollins/hollins.dat").read_text(encoding="utf-8").splitlines()[1:]
    links = sorted({(source, target) for source, target in map(str.split, lines) if source != target})
    folder = tmp_path_factory.mktemp("real")
    (folder / "links.tsv").write_text("".join(f"{url(source)}\t{url(target)}\n" for source, target in links))
    degrees = Counter({page: 0 for link in links for page in link})
    degrees.update(target for _, target in links)
    rows = "".join(f"{url(page)},{degree}\n" for page, degree in degrees.items())
    (folder / "in-degree.csv").write_text(f"url,importance\n{rows}")
    output_of("graph", "build", folder / "links.tsv", "--out", folder / "g", "--quiet")
    ranks = ("--ranks", "importance,interest,hubs,authorities", "--out", folder / "ranks.csv", "--quiet")
    output_of("rank", folder / "g", *ranks)
    output_of("rank", folder / "g", "--measure", "harmonic", "--exact", "--out", folder / "harmonic.csv", "--quiet")
    return folder


@pytest.mark.parametrize("row", ROW.findall(GUIDE), ids=lambda row: f"{row[0]}, {row[1]}")
def test_the_table_in_the_guide_is_what_the_ranks_give(folder: Path, row: tuple[str, ...]) -> None:
    (one, column), (other, other_column) = (COLUMNS[name].split("#") for name in row[:2])
    how = ("--rank", column, "--rank-b", other_column, "--normalise", "--json")
    found = json.loads(output_of("compare", folder / one, folder / other, *how))
    assert f"{found['kendall_tau']:.3f}" == row[2]
    assert [f"{top['in_common']:.2f}" for top in found["top"]] == list(row[3:])


def test_the_guide_has_the_size_of_the_web(folder: Path) -> None:
    found = json.loads(output_of("graph", "info", folder / "g", "--json"))
    assert f"{found['pages']:,} pages, {found['links']:,} links" in GUIDE and len(ROW.findall(GUIDE)) == 5


def test_estimates_of_harmonic_centrality_order_a_real_web_as_exact_values_do(folder: Path) -> None:
    output_of("rank", folder / "g", "--measure", "harmonic", "--out", folder / "near.csv", "--quiet")
    how = ("--rank", "harmonic", "--normalise", "--json")
    found = json.loads(output_of("compare", folder / "near.csv", folder / "harmonic.csv", *how))
    assert found["kendall_tau"] > 0.97
