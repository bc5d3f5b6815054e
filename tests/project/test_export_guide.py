"""docs/guides/export.md: its commands print the outputs in it, and its table is that of the code.

PYTHONPATH=tests .venv/bin/python tests/project/test_export_guide.py     writes the outputs in the guide again
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from opicflow.pipelines.results.exports.targets import TARGETS
from support.commands import output_of
from support.databases import postgres, redis
from support.guides import CONSOLE, LOG, SPEED, TOP, code

PATH = TOP / "docs" / "guides" / "export.md"
GUIDE = PATH.read_text(encoding="utf-8")


def outputs(folder: Path) -> list[str]:
    """The console blocks of the guide as a shell runs them."""
    (folder / LOG.name).symlink_to(LOG)
    made = []
    with postgres(), redis() as (_, port):
        programs = folder / "bin"
        programs.mkdir()
        (programs / "redis-cli").write_text(f'#!/bin/sh\nexec /usr/bin/env PATH="$OLD_PATH" redis-cli -p {port} "$@"\n')
        (programs / "redis-cli").chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        for block in CONSOLE.findall(GUIDE):
            text = ""
            for line in (line for line in block.splitlines() if line.startswith("$ ")):
                done = subprocess.run(
                    ["bash", "-o", "pipefail", "-c", line[2:]],
                    cwd=folder,
                    env={**os.environ, "OLD_PATH": os.environ["PATH"], "PATH": path},
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                text += f"{line}\n{done.stdout}"
            made.append(text)
    return made


def test_the_outputs_in_the_guide_are_real(tmp_path: Path) -> None:
    shown = CONSOLE.findall(GUIDE)
    assert [SPEED.sub("", block) for block in shown] == [SPEED.sub("", block) for block in outputs(tmp_path)]


def test_the_table_is_that_of_the_code() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in GUIDE.splitlines() if line.startswith("| `")]
    head, *targets = rows
    kinds = [code(cell)[0] for cell in head[1:]]
    told = {code(row[0])[0]: {kind for kind, cell in zip(kinds, row[1:], strict=True) if cell} for row in targets}
    assert told == {name: set(target.writers) for name, target in TARGETS.items()}


def test_the_guide_names_every_option() -> None:
    options = set(re.findall(r"--[a-z-]+", output_of("export", "--help"))) - {"--help", "--config", "--pipe"}
    assert [option for option in options if f"`{option}" not in GUIDE] == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        parts = iter(outputs(Path(name)))
    PATH.write_text(CONSOLE.sub(lambda _: f"```console\n{next(parts)}```", GUIDE), encoding="utf-8")
