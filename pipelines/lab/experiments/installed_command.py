"""Runs the installed command `opicflow` in this process, as a crawler would run it."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast


def installed_command() -> Callable[[list[str]], int]:
    """Return what the command `opicflow` runs, as it is installed."""
    (command,) = entry_points(group="console_scripts", name="opicflow")
    return cast("Callable[[list[str]], int]", command.load())


def replay_words(folder: Path) -> list[str]:
    """Return the first words of a replay as a crawler runs it: without Beam, with state and results in a folder."""
    return ["replay", "--runner", "local", "--state", str(folder / "state"), "--out", str(folder / "out")]


def run_quietly(main: Callable[[list[str]], int], arguments: list[str]) -> str:
    """Run the command in this process, without its start of seconds; return its output.

    Raises RuntimeError, with its output, if it does not succeed.
    """
    out, errors = io.StringIO(), io.StringIO()
    before = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    }
    try:
        with redirect_stdout(out), redirect_stderr(errors):
            code = main(arguments)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:
        raise RuntimeError(f"opicflow {' '.join(arguments)}: exit code {code}: {errors.getvalue().strip()}")
    return out.getvalue()
