"""What README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys

from support.paths import TOP

README = (TOP / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def run(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, cwd=TOP).stdout


def test_the_python_example_prints_what_readme_says() -> None:
    languages = [language for language, _ in BLOCKS]
    example = languages.index("python")
    assert languages[example + 1] == "text"
    assert run("-c", BLOCKS[example][1]) == BLOCKS[example + 1][1]


def test_the_demo_prints_what_readme_says() -> None:
    printed = run("examples/demo.py").splitlines()
    shown = [line for line in BLOCKS[0][1].splitlines() if line]
    assert len(shown) >= 7
    assert [line for line in shown if line not in printed] == []


def test_readme_shows_an_example_with_its_output_by_line_25() -> None:
    before = "\n".join(README.splitlines()[:25])
    assert "make demo" in before
    assert "make test" in before
    assert "PageRank      off" in before
