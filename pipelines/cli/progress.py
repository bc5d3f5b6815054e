"""Progress on standard error: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opicflow.pipelines.cli.text import counted, print_lines

if TYPE_CHECKING:
    from opicflow.pipelines.replay.read_progress import Progress

_SECONDS_BETWEEN_LINES = 5.0


def announce_compilation(quiet: bool, modules: str) -> None:
    """Print why nothing happens at first, if the kernels of these modules have to be compiled."""
    from opicflow.schemas.kernel import is_compiled

    if not (quiet or is_compiled(modules)):
        print("compiling, once for this version: about fifteen seconds", file=sys.stderr, flush=True)


@contextmanager
def explained_wait(words: str, after_seconds: float = 2.0) -> Iterator[None]:
    """Print these words on standard error if the block takes longer: nothing else shows that it goes on."""
    timer = threading.Timer(after_seconds, print, (words,), {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class ProgressDisplay:
    """Shows the progress of a command."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._shown_at = 0.0

    def show(self, progress: Progress) -> None:
        """Show how many events and bytes were read."""
        words = f"{counted(progress.events, 'event')}, {progress.events / max(progress.seconds, 1e-9):,.0f}/s"
        words += "" if progress.pages is None else f", {counted(progress.pages, 'page')}"
        left = None
        if progress.total and progress.done:
            left = progress.seconds * (progress.total / progress.done - 1)
        self._show(words, progress.done, progress.total, progress.seconds, left)

    def show_words(
        self, words: str, seconds: float, share: float | None = None, left_seconds: float | None = None
    ) -> None:
        """Show words, and if they are known the share that is done and the time that is left."""
        self._show(words, int(1000 * (share or 0.0)), None if share is None else 1000, seconds, left_seconds)

    def _show(self, words: str, done: int, total: int | None, seconds: float, left_seconds: float | None) -> None:
        from opicflow.schemas.errors import printable

        if self._quiet:
            return
        left = f", {left_seconds:.0f} s left" if left_seconds is not None else ""
        if sys.stderr.isatty():
            if self._bar is None:
                self._bar = _new_bar()
                self._bar.add_task("", total=total)
                self._bar.tasks[0].start_time -= seconds  # its clock is that of the command
                self._bar.start()
            (task,) = self._bar.tasks
            task.total = total  # `update` takes None for no change, and here it is an unknown total
            self._bar.update(task.id, completed=done, description=printable(words + left))
        elif seconds - self._shown_at >= _SECONDS_BETWEEN_LINES:
            self._shown_at = seconds
            words += f", {done / total:.0%}" if total and done else ""
            print_lines(words + left, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _new_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    return Progress(
        TaskProgressColumn(),
        BarColumn(bar_width=20),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )


class Convergence:
    """Estimates the time until a residual that falls geometrically reaches a tolerance.

    The first observation begins the measurement, so that the time of compiling and reading does not count.
    """

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._first: tuple[float, float] | None = None

    def share(self, residual: float) -> float:
        """Return how much of the way from 1 to the tolerance is done, on a logarithmic scale."""
        if residual >= 1.0 or self._tolerance >= 1.0:
            return 0.0
        return min(1.0, math.log(max(residual, 1e-300)) / math.log(self._tolerance))

    def left_seconds(self, residual: float, seconds: float) -> float | None:
        """Return the estimated time left; None as long as the residual did not fall to a tenth of the first one."""
        if self._first is None:
            self._first = residual, seconds
        first, began = self._first
        if not 0.0 < residual < 0.1 * first or seconds <= began:
            return None
        per_second = math.log(first / residual) / (seconds - began)
        return max(0.0, math.log(residual / self._tolerance) / per_second)
