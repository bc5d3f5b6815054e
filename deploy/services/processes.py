"""Processes that outlive whoever started them, and are told from others that got their number later."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic


@dataclass(frozen=True)
class Process:
    """A process that was started here. `born` is when, as the system tells it: a pid alone may be used again."""

    name: str
    pid: int
    born: str
    log: str

    @property
    def lives(self) -> bool:
        """It still runs, and it is this very process."""
        return birth(self.pid) == self.born

    def send(self, number: int) -> None:
        """Send a signal to this process, if it lives; never to another one that has its pid now."""
        if self.lives:
            os.kill(self.pid, number)


def birth(pid: int) -> str | None:
    """When process `pid` was started, in words that no later process has. None if none runs by that number."""
    try:
        # The name is in brackets and may hold anything, so count from behind it: there field 3, the state, comes first.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self").exists() else _birth_by_ps(pid)
    # Of a killed process the first thread may be dead before the others: until then its ports are still open.
    dead, threads, started = fields[0] in "ZX", int(fields[17]), fields[19]
    return _bury(pid) if dead and threads <= 1 else f"{boot} {started}"


def _birth_by_ps(pid: int) -> str | None:
    """The same on systems without /proc, to the second."""
    listed = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], text=True, capture_output=True).stdout
    state, _, started = listed.strip().partition(" ")
    return _bury(pid) if not state or state.startswith("Z") else " ".join(started.split())


def _bury(pid: int) -> None:
    """A child that has ended keeps its number until its parent looks."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def launch(name: str, command: Sequence[str], log: Path, attached: bool) -> Process:
    """Start `command` in a session of its own, with all it says added to `log`.

    `attached`: the system ends it when this process ends, however that comes (where there is `setpriv`, so on Linux).
    """
    setpriv = shutil.which("setpriv") if attached else None
    whole = [*([setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []), *command]
    write = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        whole[0],
        whole,
        os.environ,
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), write, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    return Process(name, pid, birth(pid) or "ended at once", str(log))


def end(processes: Iterable[Process], limit_seconds: float) -> None:
    """Ask the processes to end, make them after `limit_seconds`, and return when they are gone."""
    left = [process for process in processes if process.lives]
    for process in left:
        process.send(signal.SIGTERM)
        process.send(signal.SIGCONT)  # one that was paused hears nothing
    if not wait_until(lambda: not any(process.lives for process in left), limit_seconds):
        kill(left)


def kill(processes: Sequence[Process]) -> None:
    """End the processes with no chance to tidy up, and return when they are gone."""
    for process in processes:
        process.send(signal.SIGKILL)
    wait_until(lambda: not any(process.lives for process in processes), 60.0)


def wait_until(true: Callable[[], bool], limit_seconds: float) -> bool:
    """Ask again and again until it is true. False when it is not within the limit."""
    deadline = monotonic() + limit_seconds
    while not true():
        if monotonic() > deadline:
            return False
        Event().wait(0.05)
    return True
