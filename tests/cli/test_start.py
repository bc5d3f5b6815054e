"""Ctrl-C ends a command in one line from its first instruction on, whatever it imports at that moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from support.logs import WebLog, jsonl
from support.paths import TOP
from support.thorough import thorough

RUN = """
import os, signal, sys

class Interrupt:
    "Interrupts this process when it imports one module, and writes down the names of all."

    def find_spec(self, name, path=None, target=None):
        names.append(name)
        if name == interrupted:
            os.kill(os.getpid(), getattr(signal, number))

names = []
number, interrupted, written, *sys.argv[1:] = sys.argv[1:]
sys.meta_path.insert(0, Interrupt())
try:
    {run}
finally:
    open(written, "w").write("\\n".join(names))
"""
STARTS = {
    "opicflow": "from opicflow.pipelines.cli.start import main; sys.exit(main())",
    "python -m": "import runpy; runpy.run_module('opicflow.pipelines.cli', run_name='__main__', alter_sys=True)",
}
WORKERS = {
    "opicflow-worker": "from opicflow.pipelines.cli.start import worker; sys.exit(worker())",
    "python -m": "import runpy; runpy.run_module('opicflow.pipelines.stream.worker', run_name='__main__')",
}


def run(start: str, interrupted: str, number: str, written: Path, *arguments: object) -> Any:
    words = [sys.executable, "-c", RUN.format(run=start), number, interrupted, written, *arguments]
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)


def modules_of(start: str, folder: Path, *arguments: object) -> list[str]:
    """The modules that a command imports after its first instruction, in their order."""
    done = run(start, "", "SIGINT", folder / "names", *arguments)
    names = list(dict.fromkeys((folder / "names").read_text().split("\n")))
    assert len(names) > 20, done.stderr
    return names[names.index("opicflow.schemas.interrupts") + 1 :]


def spread(names: list[str], most: int) -> list[str]:
    """The first name, the last one, and some between."""
    return [names[(len(names) - 1) * number // (most - 1)] for number in range(most)]


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("start", STARTS)
def test_an_interrupt_while_modules_are_imported_is_one_line(start: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(WebLog(power_law_web(30, 3), announced=False).crawl("random", 50).events))
    names = modules_of(STARTS[start], tmp_path, "validate", log)
    assert "numpy" in names and "argparse" in names[:20]
    of_the_command = names.index("opicflow.pipelines.cli.commands.validate")
    chosen = [*spread(names[:of_the_command], 2), *spread(names[of_the_command:], thorough(2, 300))]
    for number, name in enumerate(chosen):
        signal_ = ("SIGINT", "SIGTERM", "SIGHUP")[number % 3]
        done = run(STARTS[start], name, signal_, tmp_path / "names", "validate", log)
        if done.returncode == 0 and name in names[of_the_command:]:
            assert done.stderr == "", "a library has caught the exception, and the command ended before the next one"
            continue
        shown = "opicflow: interrupted; nothing was left half-written\n"
        assert (done.returncode, done.stdout, done.stderr) == (130, "", shown), name


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("start", WORKERS)
def test_an_interrupted_worker_ends_in_one_line(start: str, tmp_path: Path) -> None:
    arguments = ("--id=1-1", "--provision_endpoint=127.0.0.1:1", "--logs", "/proc/nowhere")
    names = modules_of(WORKERS[start], tmp_path, *arguments)
    assert "grpc" in names
    for name in spread(names, thorough(2, 100)):
        done = run(WORKERS[start], name, "SIGINT", tmp_path / "names", *arguments)
        *others, shown = done.stderr.splitlines()
        assert (done.returncode, shown) == (130, "opicflow-worker: interrupted; nothing was left half-written"), name
        assert all(line.startswith("WARNING:root:") for line in others), "Beam warns of libraries for some clouds"


def test_the_entry_points_are_those_that_are_ready_at_once() -> None:
    setup = (TOP / "setup.py").read_text(encoding="utf-8")
    for name, function in (("opicflow", "main"), ("opicflow-worker", "worker")):
        assert f'"{name} = opicflow.pipelines.cli.start:{function}"' in setup
    code = "import sys, opicflow.pipelines.cli.start; print('argparse' in sys.modules, 'numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False False\n"
