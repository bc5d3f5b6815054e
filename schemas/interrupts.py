"""Ctrl-C before a program has imported its modules, and in the processes that it starts.

This module imports next to nothing: it is ready for Ctrl-C before anything else is imported.
"""

from __future__ import annotations

import os
import signal

EXIT_INTERRUPTED = 130


def end_in_one_line(program: str, *numbers: int) -> None:
    """Let these signals end the process in one line from now on; without any, SIGINT does.

    Signals that are ignored stay so, as those of a script's background commands.
    """
    line = f"{program}: interrupted; nothing was left half-written\n".encode()

    def end(number: int, frame: object) -> None:
        os.write(2, line)  # an exception would pass through imports, and some modules turn it into another one
        os._exit(EXIT_INTERRUPTED)

    for number in numbers or (signal.SIGINT,):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


class WithoutSignals:
    """Starts processes that these signals do not reach, in a `with` statement: they go to all processes of a terminal.

    The process that has started them ends them.
    """

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def __enter__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)  # which a process inherits

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
