"""A second process, beside a first replay, compiles exactly the kernels that the replay's ledger needs."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opicflow.pipelines.ledger import LedgerConfig
from opicflow.pipelines.replay import first_compile
from opicflow.pipelines.replay.first_compile import compiled_beside
from opicflow.pipelines.replay.replayed_log import ReplayConfig
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.kernel import _cache_folder
from opicflow.schemas.kernel_cache import SUFFIX

LOG = Path(__file__).resolve().parent.parent.parent / "examples" / "crawl.jsonl.gz"
USED = """
import gc, json, sys
from opicflow.schemas.kernel import Kernel
{}
kernels = [one for one in gc.get_objects() if isinstance(one, Kernel) and one._made is not None]
used = {{one.__module__ + "." + one.__name__: list(map(str, one._made.signatures)) for one in kernels}}
print(json.dumps({{name: types for name, types in used.items() if types and ".pipelines." in name}}))
"""
MOST_MISSING = 0.15
"""Of all machine code. Small kernels make room, judge many pages, or choose when not all can be fetched as often."""
REPLAY = """
from opicflow.pipelines.cli.main import main
from contextlib import redirect_stdout
from io import StringIO
with redirect_stdout(StringIO()):
    assert main(["replay", {!r}, "--quiet", {}]) == 0
"""
COMPILE = """
from opicflow.pipelines.ledger import LedgerConfig
from opicflow.pipelines.replay.first_compile import compile_all
from opicflow.pipelines.replay.replayed_log import ReplayConfig
compile_all(ReplayConfig(LedgerConfig.from_json(json.loads({!r})), settle={}))
"""


def used(script: str) -> dict[str, list[str]]:
    """The kernels of pipelines that a script uses, with the types of their arguments."""
    done = subprocess.run([sys.executable, "-c", USED.format(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kernels: dict[str, list[str]] = json.loads(done.stdout)
    return kernels


@pytest.mark.parametrize("history", ["certified", pytest.param("interpolation", marks=pytest.mark.soak)])
def test_it_compiles_the_ledger_of_a_replay(history: str) -> None:
    config = LedgerOptions(history=history).over(LedgerConfig())
    compiled = used(COMPILE.format(json.dumps(config.to_json()), history == "certified"))
    needed = used(REPLAY.format(str(LOG), f'"--history", "{history}"'))
    missing = {
        name: set(types) - set(compiled.get(name, []))
        for name, types in needed.items()
        if ".ledger." in name or ".refresh." in name or ".discovery." in name
    }
    assert len(compiled) > 20
    folder = _cache_folder("pipelines")
    assert folder is not None
    sizes = {name: max(path.stat().st_size for path in folder.glob(f"{name}-*{SUFFIX}")) for name in missing}
    assert sum(sizes[name] for name, types in missing.items() if types) < MOST_MISSING * sum(sizes.values())
    assert {name for name, types in compiled.items() if set(types) - set(needed.get(name, []))} == set()


def test_no_process_is_started_when_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_compile, "is_compiled", lambda _: True)
    monkeypatch.setattr(subprocess, "Popen", None)  # not to be called
    with compiled_beside(ReplayConfig()):
        pass


def test_the_process_ends_with_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it does; and its output is not shown."""
    monkeypatch.setattr(first_compile, "is_compiled", lambda _: False)
    started: list[Any] = []
    popen = subprocess.Popen

    def start(*command: Any, **options: Any) -> Any:
        started.append(popen(*command, **options))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    with compiled_beside(ReplayConfig(LedgerConfig())):
        assert started[0].poll() is None
    assert started[0].wait(30) is not None


@pytest.mark.parametrize("program", [None, "", "/nowhere/python", "/", "/bin/false"])
def test_a_replay_needs_no_second_process(program: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python within another program may not name one that can be started, or one that ends at once."""
    monkeypatch.setattr(first_compile, "is_compiled", lambda _: False)
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(pickle, "dumps", lambda _: bytes(1 << 20))  # more than a pipe holds
    replayed = False
    with compiled_beside(ReplayConfig()):
        replayed = True
    assert replayed


def test_an_error_of_the_replay_is_not_taken_for_one_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_compile, "is_compiled", lambda _: False)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError, match=r"log\.jsonl"), compiled_beside(ReplayConfig()):
        raise FileNotFoundError("log.jsonl")
