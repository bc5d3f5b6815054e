"""Console blocks of the guides, and a way to run the commands in them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from support.paths import TOP

LOG = TOP / "examples" / "crawl.jsonl.gz"


CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


SPEED = re.compile(r"[\d.]+ s, [\d,]+ events/s")


PROGRAM = """
import contextlib, io, json, sys
from opicflow.pipelines.cli.main import main
done = []
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    done.append([code, out.getvalue(), err.getvalue()])
json.dump(done, sys.stdout)
"""


def opicflow(folder: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Run commands in a folder, one after the other. Returns exit code, output and errors of each."""
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, input=json.dumps(commands), capture_output=True, text=True, check=True, cwd=folder)
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
