"""The output and the code that README and the first guides show are real."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import fastavro
import pyarrow.parquet as pq
import pytest

from opicflow.schemas.published_schemas import schema
from support.guides import python_blocks
from support.paths import TOP

README = (TOP / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
BLOCKS = BLOCK.findall(README)


def run(*arguments: str) -> str:
    """Run Python as a user does: the tests' key of page ids is not in the environment."""
    users = {name: value for name, value in os.environ.items() if name != "OPICFLOW_ID_KEY"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=TOP, env=users).stdout


@pytest.mark.slow
def test_the_python_guide_shows_the_real_output(tmp_path: Path) -> None:
    ledger, pipeline, files = python_blocks("docs/guides/python.md")
    _, *shown = (TOP / "docs/guides/python.md").read_text(encoding="utf-8").split("```text\n")
    printed = [one.split("```")[0] for one in shown]
    assert [run("-c", ledger), run("-c", pipeline)] == printed
    event = {"url": "https://a.example/", "links": [{"url": "https://b.example/"}]}
    with open(tmp_path / "events.avro", "wb") as file:
        fastavro.writer(file, schema("CrawlEvent"), [event])
    run("-c", f"{files}\n\nrank({str(tmp_path / 'events.avro')!r}, {str(tmp_path / 'ranks')!r})")
    (written,) = tmp_path.glob("ranks*")
    assert set(pq.read_table(written).column("url").to_pylist()) == {"https://a.example/", "https://b.example/"}


def test_the_demo_prints_the_output_in_the_readme() -> None:
    printed = run("examples/demo.py").splitlines()
    shown = [line for line in BLOCKS[0][1].splitlines() if line]
    assert len(shown) >= 7
    assert [line for line in shown if line not in printed] == []


def test_readme_fits_a_page() -> None:
    assert len(README.splitlines()) <= 100


def test_readme_shows_an_example_with_its_output_by_line_25() -> None:
    before = "\n".join(README.splitlines()[:25])
    assert "make demo" in before
    assert "make test" in before
    assert "PageRank  certified    window" in before
