"""Shared by all groups: figures, fair races, checks before the clock starts, the table and the file.

Time is CPU time of this process (user and system), because the measured code runs on one core and never waits. Other
jobs on the machine then disturb only through the caches, and not through the scheduler.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

import numba
import numpy as np

from deploy.services.artifacts import ServicesMissing
from deploy.services.supervisor import Services

Work = Callable[[int], float]
"""Does the round of this number, and returns how much it has done."""
T = TypeVar("T")


class Scale(Enum):
    """How large a run is: next to nothing, what takes a group six minutes at most, or the sizes of the documents."""

    TINY = "tiny"
    USUAL = "usual"
    FULL = "full"

    def pick(self, tiny: T, usual: T, full: T | None = None) -> T:
        """Return the value for this scale. The usual one is also that of the documents, unless `full` is given."""
        if self is Scale.TINY:
            return tiny
        return full if self is Scale.FULL and full is not None else usual


@dataclass(frozen=True)
class Figure:
    """A result. `ratio` is ours over the baseline: more is better; `how` describes the comparison."""

    name: str
    value: float
    unit: str
    how: str
    baseline: float | None = None
    ratio: float | None = None


def versus(name: str, value: float, unit: str, baseline: float, how: str) -> Figure:
    """A figure of which more is better, beside a baseline of the same unit."""
    return Figure(name, value, unit, how, baseline, value / baseline)


def race(rounds: int, *works: Work) -> list[float]:
    """Return the work of each in a CPU second: the best of so many rounds, in turns, after one that is not counted."""
    best = [0.0] * len(works)
    for number in range(rounds + 1):
        for i, work in enumerate(works):
            begun = time.process_time()
            done = work(number)
            seconds = time.process_time() - begun
            if number > 0:
                best[i] = max(best[i], done / max(seconds, 1e-9))
    return best


def check(right: bool, what: str) -> None:
    """End the run if a result is wrong: there is no point in timing it."""
    if not right:
        raise SystemExit(f"benchmarks: not so: {what}")


def say(what: str) -> None:
    """Print the current step."""
    print(f"  {what}", file=sys.stderr, flush=True)


def touch_memory(size_bytes: int) -> None:
    """Touch memory and give it back: on a virtual machine memory is slow the first time that anybody uses it."""
    np.ones(size_bytes // 8, np.int64)


def with_services(
    group: str, names: list[str], measured: Callable[[Services, Path], Iterator[Figure]]
) -> Iterator[Figure]:
    """Yield the figures of a group that needs services of its own: none, and a message, without Java or Maven."""
    with tempfile.TemporaryDirectory(prefix="opicflow-bench-") as folder:
        services = Services(Path(folder) / "services", say, attached=True)
        try:
            services.start(names)
        except ServicesMissing as problem:
            say(f"{group}: not measured: {problem}")
            return
        try:
            yield from measured(services, Path(folder))
        finally:
            services.stop()


def machine_seconds() -> float:
    """Return the seconds that all processors of the machine have worked together."""
    user, nice, system = map(int, Path("/proc/stat").read_text(encoding="ascii").split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def machine() -> list[str]:
    """Return the machine and the versions of the measurement."""
    names = [line.split(": ")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) / 2**20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return [
        f"{os.cpu_count()} cores ({names[0] if names else platform.machine()})"
        + (f", {memory[0]:.0f} GiB" if memory else "")
        + f"{load}; Python {platform.python_version()}, numpy {np.__version__}, numba {numba.__version__}",
        "Per CPU second of one core, best of several short runs in turns with the baseline; ratio = ours / baseline.",
    ]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def table(figures: Sequence[Figure]) -> list[str]:
    """The figures as aligned lines."""
    head = ("figure", "value", "unit", "baseline", "ratio", "how")
    rows = [
        (figure.name, _number(figure.value), figure.unit, _number(figure.baseline), _number(figure.ratio), figure.how)
        for figure in figures
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    right = (False, True, False, True, True, False)
    return [
        "  ".join(
            cell.rjust(width) if r else cell.ljust(width) for cell, width, r in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (head, *rows)
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def write(figures: Sequence[Figure], path: Path) -> None:
    """The figures as JSON."""
    names = ("name", "value", "unit", "baseline", "ratio")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({name: _rounded(getattr(figure, name)) for name in names}) for figure in figures]
    path.write_text("[\n  " + ",\n  ".join(rows) + "\n]\n", encoding="utf-8")


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value
