"""Runs `opicflow` commands in this process, and creates topics for them."""

from __future__ import annotations

import io
import signal
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.topics import make, specs
from opicflow.pipelines.cli import main


class CommandResult(NamedTuple):
    """The exit code of a command and its output."""

    code: int
    out: str
    err: str


def command(*arguments: object) -> CommandResult:
    """Run `opicflow` with these arguments; standard output is not a terminal.

    A replay runs by the threads of this process unless a runner is named: Beam takes a quarter of a second more.
    """
    words = [str(argument) for argument in arguments]
    if words[:1] == ["replay"] and not any(
        word.startswith(("--runner", "beam-option", "-h", "--help")) for word in words
    ):
        words[1:1] = ["--runner", "local"]
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in signals}
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main.main(words)
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return CommandResult(code, out.getvalue(), err.getvalue())


def finished(*arguments: object, code: int = 0) -> CommandResult:
    """Run a command that ends with this exit code."""
    result = command(*arguments)
    assert result.code == code, result
    return result


def output_of(*arguments: object) -> str:
    """Run a command that succeeds and prints nothing on standard error; return its standard output."""
    result = command(*arguments)
    assert (result.code, result.err) == (0, ""), result
    return result.out


def refusal(*arguments: object) -> str:
    """Run a command that is refused: exit code 2, one line on standard error, which is returned, and nothing else."""
    result = command(*arguments)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    assert result.err.endswith("\n"), result
    return result.err


def create_topics(brokers: str, prefix: str, event_partitions: int = 1, result_partitions: int = 1) -> Connection:
    """Create all topics with a prefix, and return the connection."""
    connection = Connection(brokers)
    make(connection, specs(prefix, None, result_partitions, event_partitions))
    return connection
