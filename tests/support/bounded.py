"""Runs work in a process of its own that may use only so much processor time and memory."""

from __future__ import annotations

import os
import pickle
import resource
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

CPU_SECONDS = 20
"""Ample for all that is run with this limit: without a bound of its own it takes minutes to hours, or never ends."""


def bounded(work: Callable[[], T], memory_bytes: int = 1 << 30) -> T:
    """Return what `work` returns. An AssertionError if it raises, takes too long, needs more memory, or crashes."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _run(work, write_end, memory_bytes)
    os.close(write_end)
    with open(read_end, "rb") as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, f"exit code {os.waitstatus_to_exitcode(status)}: {answer.decode()}"
    result: T = pickle.loads(answer)
    return result


def _run(work: Callable[[], object], write_end: int, memory_bytes: int) -> None:
    code = 1
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most_bytes = pages * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        answer = pickle.dumps(work())
        code = 0
    except BaseException:
        answer = traceback.format_exc().encode()
    with open(write_end, "wb") as answers:
        answers.write(answer)
    os._exit(code)
