"""The entry points: they are ready for Ctrl-C before they import anything that takes time."""

from __future__ import annotations

import signal

from opicflow.schemas.interrupts import end_in_one_line


def main(arguments: list[str] | None = None) -> int:
    """Run `opicflow` with the arguments of this process, or with others in a process that handles its own signals."""
    if arguments is None:
        end_in_one_line("opicflow", signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    from opicflow.pipelines.cli.main import main as run

    return run(arguments)


def worker() -> int:
    """Run `opicflow-worker`."""
    end_in_one_line("opicflow-worker")
    from opicflow.pipelines.stream.worker import main as run

    return run()
