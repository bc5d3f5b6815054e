"""`opicflow serve` as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Serving(NamedTuple):
    """A command that serves pages."""

    address: str
    pid: int

    def mib(self, what: str = "VmRSS") -> int:
        """Its memory now; with `VmHWM` the most that it had."""
        (kib,) = re.findall(rf"{what}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(encoding="ascii"))
        return int(kib) >> 10


@contextmanager
def serving(*words: object) -> Iterator[Serving]:
    """Serve on a free port, until the end of the block."""
    command = [sys.executable, "-m", "opicflow.pipelines.cli", "serve", *map(str, words), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[\d.]+:\d+", line)
        assert found, f"opicflow serve has ended with {process.wait(60)}: {line}"
        try:
            yield Serving(found[0], process.pid)
        finally:
            process.terminate()
            process.wait(60)
