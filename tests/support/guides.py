"""Console blocks of the guides, and a way to run the commands in them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from support.commands import CommandResult, command
from support.paths import TOP

LOG = TOP / "examples" / "crawl.jsonl.gz"


CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


SPEED = re.compile(r"[\d.]+ s, [\d,]+ events/s")


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
