"""Pages due in a cycle (thesis, 3.6): by a scan over all pages, or from a calendar with a folder for each cycle.

Cycles are numbered from the epoch; cycle c ends at (c + 1) * cycle_s, and a page is due in it if its due time is at its
end or before. As long as intervals stay, both methods give the same pages in the same cycles. When S changes, all
intervals change with it. The scan uses the new intervals at once. The calendar keeps the due times of the old ones, so
an interval that changed from I to I' is off by |I' - I|, rounded up to a whole cycle: the thesis' "larger error". To
bound it, empty the calendar and put all pages in again whenever S has changed by some share: an interval is then off by
about twice this share at most.
"""

from __future__ import annotations

import numpy as np

from opicflow.schemas.arrays import Floats, Ints

DAY_S = 86_400


def due_times(last_fetch_s: Ints, interval_s: Floats) -> Ints:
    """Return the due times of pages in whole seconds, rounded up. Intervals must be finite."""
    times: Ints = np.ceil(last_fetch_s + interval_s).astype(np.int64)
    return times


def due_by_scan(last_fetch_s: Ints, interval_s: Floats, now_s: int) -> Ints:
    """Return the rows of all pages due at `now_s`, the end of a cycle, in order. Infinite intervals never end."""
    return np.flatnonzero(interval_s <= now_s - last_fetch_s)


class Calendar:
    """Rows of pages in folders: one for each cycle within the horizon, and one for everything later.

    A row that is put in twice is returned twice.
    """

    def __init__(self, first_cycle: int, cycle_s: int = DAY_S, horizon: int = 366) -> None:
        """The first folder is that of `first_cycle`; there are folders for `horizon` cycles."""
        if cycle_s < 1:
            raise ValueError(f"a cycle must last at least a second, not {cycle_s}")
        if not 1 <= horizon < 1 << 15:
            raise ValueError(f"the horizon must be from 1 to {(1 << 15) - 1} cycles, not {horizon}")
        self._cycle_s = cycle_s
        self._horizon = horizon
        self._next = first_cycle
        self._end = first_cycle + horizon
        self._folders: dict[int, list[Ints]] = {}
        self._later: list[tuple[Ints, Ints]] = []

    def put(self, rows: Ints, due_s: Ints) -> None:
        """File rows by their due times; overdue rows are filed in the next cycle."""
        cycles = np.maximum((due_s - 1) // self._cycle_s, self._next)
        later = cycles >= self._end
        if later.any():
            self._later.append((rows[later], due_s[later]))
            rows, cycles = rows[~later], cycles[~later]
        ahead = (cycles - self._next).astype(np.int16)
        rows = rows[np.argsort(ahead, kind="stable")]
        counts = np.bincount(ahead, minlength=1)
        ends = np.cumsum(counts)
        for folder in np.flatnonzero(counts):
            piece = rows[ends[folder] - counts[folder] : ends[folder]].copy()
            self._folders.setdefault(self._next + int(folder), []).append(piece)

    def take(self, cycle: int) -> Ints:
        """Remove and return the rows due in this cycle, and in skipped cycles before it, in order."""
        if cycle < self._next:
            raise ValueError(f"cycle {cycle} was taken before: the next is {self._next}")
        self._next = cycle
        if cycle >= self._end:
            self._end = cycle + self._horizon
            later, self._later = self._later, []
            for rows, due_s in later:
                self.put(rows, due_s)
        pieces = [self._folders.pop(known) for known in sorted(self._folders) if known <= cycle]
        self._next = cycle + 1
        return _sorted_rows([piece for folder in pieces for piece in folder])

    def empty(self) -> Ints:
        """Remove and return all rows, in order, to be put in again with new due times."""
        pieces = [piece for folder in self._folders.values() for piece in folder]
        pieces += [rows for rows, _ in self._later]
        self._folders, self._later = {}, []
        return _sorted_rows(pieces)

    def __len__(self) -> int:
        return sum(len(piece) for folder in self._folders.values() for piece in folder) + sum(
            len(rows) for rows, _ in self._later
        )

    @property
    def nbytes(self) -> int:
        return sum(piece.nbytes for folder in self._folders.values() for piece in folder) + sum(
            rows.nbytes + due_s.nbytes for rows, due_s in self._later
        )


def _sorted_rows(pieces: list[Ints]) -> Ints:
    return np.sort(np.concatenate(pieces)) if pieces else np.zeros(0, np.int64)
