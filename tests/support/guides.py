"""Console and Python blocks of the documents, and a way to run the commands in them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from support.commands import CommandResult, command
from support.paths import TOP

LOG = TOP / "examples" / "crawl.jsonl.gz"


DOCUMENTS = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


SPEED = re.compile(r"[\d.]+ s, [\d,]+ events/s")


def python_blocks(document: str) -> list[str]:
    """Return the Python blocks of a document. A test that runs them unpacks the list, so that none is left out."""
    return re.findall(r"```py[^\n]*\n(.*?)```", (TOP / document).read_text(encoding="utf-8"), re.DOTALL)


def opicflow(folder: Path, *commands: list[str]) -> list[CommandResult]:
    """Run commands in a folder, one after the other."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        return [command(*words) for words in commands]
    finally:
        os.chdir(before)


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
