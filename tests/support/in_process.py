"""Commands run in this process, as somebody types them, and topics made for them."""

from __future__ import annotations

import io
import signal
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.topics import make, specs
from opicflow.pipelines.cli import main


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def command(*arguments: object) -> Said:
    """Run `opicflow` with these arguments; standard output is no terminal."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in signals}
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main.main([str(argument) for argument in arguments])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Said(code, out.getvalue(), err.getvalue())


def done(*arguments: object) -> str:
    """What a command prints that does what it should, and says nothing on standard error."""
    said = command(*arguments)
    assert (said.code, said.err) == (0, ""), said
    return said.out


def made(brokers: str, prefix: str, event_partitions: int = 1, result_partitions: int = 1) -> Any:
    """All topics with a prefix. Returns the connection."""
    connection = Connection(brokers)
    make(connection, specs(prefix, None, result_partitions, event_partitions))
    return connection
