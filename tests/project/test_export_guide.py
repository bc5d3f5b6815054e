"""docs/guides/export.md: its commands print the outputs in it, and its table is that of the code.

PYTHONPATH=tests .venv/bin/python tests/project/test_export_guide.py     writes the outputs in the guide again
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opicflow.pipelines.results.exports.targets import TARGETS
from support.databases import postgres, redis
from support.guides import Guide, Run, code

GUIDE = Guide("export")


@contextmanager
def shell(folder: Path) -> Iterator[Run]:
    """Return a shell beside the databases of the guide."""
    with postgres(), redis() as (_, port):
        programs = folder / "bin"
        programs.mkdir()
        (programs / "redis-cli").write_text(f'#!/bin/sh\nexec /usr/bin/env PATH="$OLD_PATH" redis-cli -p {port} "$@"\n')
        (programs / "redis-cli").chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"

        def run(folder: Path, line: str) -> str:
            environment = {**os.environ, "OLD_PATH": os.environ["PATH"], "PATH": path}
            words = ["bash", "-o", "pipefail", "-c", line]
            return subprocess.run(
                words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
            ).stdout

        yield run


def test_the_outputs_in_the_guide_are_real(tmp_path: Path) -> None:
    with shell(tmp_path) as run:
        GUIDE.check(tmp_path, run, has_any_key=False)  # due times are spread by page ids


def test_the_table_is_that_of_the_code() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in GUIDE.text.partition("## What may go wrong")[0].splitlines()
        if line.startswith("| `")
    ]
    head, *targets = rows
    kinds = [code(cell)[0] for cell in head[1:]]
    told = {code(row[0])[0]: {kind for kind, cell in zip(kinds, row[1:], strict=True) if cell} for row in targets}
    assert told == {name: set(target.writers) for name, target in TARGETS.items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, shell(Path(name)) as run:
        GUIDE.write(Path(name), run)
