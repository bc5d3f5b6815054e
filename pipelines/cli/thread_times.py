"""`ThreadTimes`: the processor time of each part of a command, by the clocks of its threads, which Linux has."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_SECONDS_BETWEEN_READS = 0.02
"""The time of a thread after its last reading is not counted."""
REST = "the rest"


class ThreadTimes:
    """Reads the clocks of all threads of this process many times a second, in a `with` statement.

    `parts` has a part for the beginning of each thread's name; all other threads are `REST`.
    """

    def __init__(self, parts: Mapping[str, str]) -> None:
        self._parts = parts
        self._seconds: dict[tuple[int | None, str], float] = {}
        self._is_over = threading.Event()
        self._reader = threading.Thread(target=self._read_often, name="thread times", daemon=True)

    def __enter__(self) -> ThreadTimes:
        self._begun = time.perf_counter()
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._reader.join()
        self._read()
        self.wall_seconds = time.perf_counter() - self._begun

    def seconds(self) -> dict[str, float]:
        """Return the processor time of each part, the longest first."""
        found: defaultdict[str, float] = defaultdict(float)
        for (_, name), seconds in self._seconds.items():
            found[next((part for begin, part in self._parts.items() if name.startswith(begin)), REST)] += seconds
        return dict(sorted(found.items(), key=lambda one: -one[1]))

    def lines(self) -> list[str]:
        """Return a table of the parts."""
        parts = self.seconds()
        if not parts:
            return ["processor time: only Linux has a clock for each thread"]
        total = max(sum(parts.values()), 1e-9)
        rows = [f"{seconds:8.2f} s {100 * seconds / total:4.0f} %  {part}" for part, seconds in parts.items()]
        return ["processor time:", *rows, f"{total:8.2f} s in {self.wall_seconds:.2f} s"]

    def _read_often(self) -> None:
        while not self._is_over.wait(_SECONDS_BETWEEN_READS):
            self._read()

    def _read(self) -> None:
        for thread in threading.enumerate():
            if thread is not self._reader:
                with suppress(OSError):  # it has ended
                    text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text("ascii")
                    self._seconds[thread.native_id, thread.name] = int(text.split()[0]) / 1e9
