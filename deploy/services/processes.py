"""Processes that outlive the process that started them, identified by pid and start time."""

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
    """A process that was started here. `born` is its start time, because the system may reuse a pid."""

    name: str
    pid: int
    born: str
    log: str

    @property
    def lives(self) -> bool:
        """Whether this process still runs."""
        return birth(self.pid) == self.born

    def send(self, number: int) -> None:
        """Send a signal to this process if it runs, never to another process with the same pid."""
        if self.lives:
            os.kill(self.pid, number)


def birth(pid: int) -> str | None:
    """Return the start time of a process, which no later process has; None if no process has this pid."""
    try:
        # The name is in brackets and may contain anything, so count after it: the first field there is the state.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self").exists() else _birth_by_ps(pid)
    # The first thread of a killed process may be dead while others still run, and its ports are still open.
    dead, threads, started = fields[0] in "ZX", int(fields[17]), fields[19]
    return _reap(pid) if dead and threads <= 1 else f"{boot} {started}"


def _birth_by_ps(pid: int) -> str | None:
    """Return the start time on systems without /proc, in seconds."""
    listed = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], text=True, capture_output=True).stdout
    state, _, started = listed.strip().partition(" ")
    return _reap(pid) if not state or state.startswith("Z") else " ".join(started.split())


def _reap(pid: int) -> None:
    """Release the pid of a child that has ended."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def launch(name: str, command: Sequence[str], log: Path, attached: bool) -> Process:
    """Start `command` in a session of its own, with its output appended to `log`.

    `attached`: the system ends it when this process ends for any reason (on Linux, which has `setpriv`).
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
    """Terminate processes, kill them after `limit_seconds`, and return when they have ended."""
    left = [process for process in processes if process.lives]
    for process in left:
        process.send(signal.SIGTERM)
        process.send(signal.SIGCONT)  # a paused process handles no signal
    if not wait_until(lambda: not any(process.lives for process in left), limit_seconds):
        kill(left)


def kill(processes: Sequence[Process]) -> None:
    """Kill processes, and return when they have ended."""
    for process in processes:
        process.send(signal.SIGKILL)
    wait_until(lambda: not any(process.lives for process in processes), 60.0)


def wait_until(condition: Callable[[], bool], limit_seconds: float) -> bool:
    """Call a condition until it is true; returns False after the time limit."""
    deadline = monotonic() + limit_seconds
    while not condition():
        if monotonic() > deadline:
            return False
        Event().wait(0.05)
    return True
