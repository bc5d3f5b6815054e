"""Programs end in one line while they import their modules, and their processes do not get what a terminal sends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from opicflow.schemas.interrupts import WithoutSignals

END = """
import os, signal
from opicflow.schemas.interrupts import end_in_one_line
{before}
end_in_one_line("a program", signal.SIGINT, signal.SIGHUP)
try:
    os.kill(os.getpid(), signal.{number})
    print("goes on")
except BaseException:
    print("an exception")
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGHUP"])
def test_a_signal_ends_the_process_in_one_line_and_raises_nothing(number: str) -> None:
    done = subprocess.run([sys.executable, "-c", END.format(before="", number=number)], capture_output=True, text=True)
    words = "a program: interrupted; nothing was left half-written\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", words)


def test_a_signal_that_is_ignored_stays_so() -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    code = END.format(before=ignored, number="SIGINT")
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "goes on\n"


def test_signals_do_not_reach_the_processes_that_are_started_without_them() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.{}); print('goes on')"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with WithoutSignals(signal.SIGINT, signal.SIGHUP):
        found = [
            subprocess.run([sys.executable, "-c", code.format(number)], capture_output=True, text=True).stdout
            for number in ("SIGINT", "SIGHUP", "SIGTERM")
        ]
    assert found == ["goes on\n", "goes on\n", ""]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
