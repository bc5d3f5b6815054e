"""Runs the installed command `opicflow` in this process, as a crawler would run it."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypedDict, cast

import orjson

from opicflow.schemas.dates import iso_time


def installed_command() -> Callable[[list[str]], int]:
    """Return what the command `opicflow` runs, as it is installed."""
    (command,) = entry_points(group="console_scripts", name="opicflow")
    return cast("Callable[[list[str]], int]", command.load())


class OrderLine(TypedDict):
    """What is read of a crawl order."""

    url: str
    why: str
    not_before: int


class DailyReplays:
    """Runs `opicflow replay LOG --state … --out … --now …` day by day in a folder, without Beam, with some options."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.out = folder / "out"
        self._folder, self._main = folder, installed_command()
        self._command = ["replay", "--runner", "local", "--state", str(folder / "state"), "--out", str(self.out)]
        self._command += ["--top", "0", "--quiet", *options]

    def orders(self, lines: Sequence[bytes], now_ms: int) -> list[OrderLine]:
        """Replay the lines of a day's log at the time `now_ms`, and return the crawl orders that are written.

        A day without lines has no log: then time passes by `--now` alone. Raises RuntimeError if the command fails.
        """
        logs = [self._folder / f"{now_ms}.jsonl"] if lines else []
        for log in logs:
            log.write_bytes(b"\n".join(lines) + b"\n")
        run_quietly(self._main, [*self._command, *map(str, logs), "--now", iso_time(now_ms)])
        for log in logs:
            log.unlink()
        return [orjson.loads(line) for line in (self.out / "crawl-orders.jsonl").read_bytes().splitlines()]


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
