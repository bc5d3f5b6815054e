"""`MemoryLimit`: a command ends with one line before it takes more memory than it may.

A thread looks at the process's memory many times a second. Beyond the limit it interrupts the command, as Ctrl+C would:
a state is then as after any interrupt, and the same command continues from it. If the command does not end, or memory
still grows, the thread ends the process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

from opicflow.pipelines.cli.values import byte_count
from opicflow.schemas.errors import UserError

DEFAULT_SHARE = 0.75
"""The share of the machine's memory, or of that of the container, which a command may take."""
LEAST_BYTES = 256 << 20
"""A command with Beam takes so much before it begins."""

_SECONDS_BETWEEN_LOOKS = 0.01
_MOST_BEYOND = 1.1
_SECONDS_TO_END = 20.0
_STATM = Path("/proc/self/statm")
_LIMITS_OF_CONTAINERS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

_reached = ""


def size_in_bytes(text: str) -> int:
    """Return the bytes of a size such as `4GiB`."""
    size = byte_count(text) or 0
    if size < LEAST_BYTES:
        raise UserError(f"--memory {text[:40]}: give {LEAST_BYTES >> 20}MiB or more, such as 4GiB")
    return size


def default_limit() -> int:
    """Return the limit of a command without `--memory`."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _LIMITS_OF_CONTAINERS:
        try:
            sizes.append(int(Path(path).read_text("ascii")))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
    return max(int(DEFAULT_SHARE * min(sizes)), LEAST_BYTES)


def memory_in_use() -> int:
    """Return the bytes of the process's own memory, without mapped files; 0 where the system does not say."""
    try:
        _, resident, shared, *_ = map(int, _STATM.read_bytes().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def limit_reached() -> str:
    """Return the message about the limit that a command has reached; empty if it has not."""
    return _reached


class MemoryLimit:
    """Ends the command that runs within it before it takes more than so many bytes.

    `progress` returns how far the command is, in words, and `remedy` describes what helps.
    """

    def __init__(self, most_bytes: int, progress: Callable[[], str], remedy: str) -> None:
        self._most_bytes = most_bytes
        self._progress = progress
        self._remedy = remedy
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="memory limit", daemon=True)

    def __enter__(self) -> MemoryLimit:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if isinstance(problem, MemoryError):
            raise UserError(self._message("the system gave no more memory")) from None

    def _watch(self) -> None:
        global _reached
        while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            if memory_in_use() > self._most_bytes:
                break
        else:
            return
        _reached = self._message(f"the limit of {_in_mib(self._most_bytes)} of memory is reached")
        os.kill(os.getpid(), signal.SIGALRM)  # `main` interrupts the command
        looks = int(_SECONDS_TO_END / _SECONDS_BETWEEN_LOOKS)
        while looks > 0 and not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            looks -= 1
            if memory_in_use() > _MOST_BEYOND * self._most_bytes:
                looks = 0
        if not self._ended.is_set():
            os.write(sys.stderr.fileno(), f"opicflow: {_reached}\n".encode())
            os._exit(2)

    def _message(self, what: str) -> str:
        return f"{what}, {self._progress()}: {self._remedy}"


def _in_mib(size: int) -> str:
    return f"{size >> 20:,} MiB"
