"""Console and Python blocks of the documents, and a way to run the commands in them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support.commands import CommandResult, command
from support.paths import TOP

LOG = TOP / "examples" / "crawl.jsonl.gz"


DOCUMENTS = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


DIFFERS = re.compile(r"[\d.]+ s, [\d,]+ events/s|[\d.]+ s$|published at \S+|\b[0-9a-f]{16}\b", re.MULTILINE)
"""Parts of an output that differ each time: times, and page ids, whose key is random as that of users."""

Run = Callable[[Path, str], str]
"""Runs the line of a command in a folder, and returns what a terminal shows."""


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


def printed_by(folder: Path, line: str) -> str:
    """Return what an `opicflow` command prints: nothing if its output goes to a file, and errors if it fails."""
    words, _, file = line.partition(" > ")
    ((code, out, err),) = opicflow(folder, shlex.split(words)[1:])
    return err if code else "" if file else out


class Guide:
    """A page of docs/guides. Its console blocks are what the commands in them print."""

    def __init__(self, name: str) -> None:
        self.path = TOP / "docs" / "guides" / f"{name}.md"
        self.text = self.path.read_text(encoding="utf-8")

    def blocks(self, folder: Path, run: Run = printed_by, instead: Mapping[str, str] | None = None) -> list[str]:
        """Run the commands of all blocks in a folder, with other names `instead` of some in the guide."""
        (folder / LOG.name).symlink_to(LOG)
        (folder / "examples").symlink_to(TOP / "examples")
        made = []
        for block in CONSOLE.findall(self.text):
            text = ""
            for line in re.findall(r"^\$ (.*)", block, re.MULTILINE):
                given = line
                for name, other in (instead or {}).items():
                    given = given.replace(name, other)
                text += f"$ {line}\n{run(folder, given)}"
            for name, other in (instead or {}).items():
                text = text.replace(other, name)
            made.append(text)
        assert made
        return made

    def check(
        self,
        folder: Path,
        run: Run = printed_by,
        instead: Mapping[str, str] | None = None,
        has_any_key: bool = True,
    ) -> None:
        """Assert that the outputs in the guide are real, whatever the key of page ids is; or with the public one."""
        with pytest.MonkeyPatch.context() as patch:
            if has_any_key:
                patch.delenv("OPICFLOW_ID_KEY", raising=False)
            shown, made = CONSOLE.findall(self.text), self.blocks(folder, run, instead)
        assert [DIFFERS.sub("", block) for block in shown] == [DIFFERS.sub("", block) for block in made]

    def write(self, folder: Path, run: Run = printed_by, instead: Mapping[str, str] | None = None) -> None:
        """Write the outputs in the guide again, with the page ids of the public key: so they stay."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPICFLOW_ID_KEY", "public")
            made = iter(self.blocks(folder, run, instead))
        self.path.write_text(CONSOLE.sub(lambda _: f"```console\n{next(made)}```", self.text), encoding="utf-8")
