"""The pages that a crawler chooses among, such as those that its spider wants: they grow, and take eight bytes each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from opicflow.schemas.arrays import Ids

_FIRST_ROOM = 1 << 10
_URLS_AT_ONCE = 1 << 16


class GrowingPages:
    """Pages to choose among for `Frontier.next`. Others may be added at any time, none is removed."""

    def __init__(self) -> None:
        """Begin with none."""
        self._ids: Ids = np.zeros(_FIRST_ROOM, np.uint64)
        self._pages = 0
        self._new: list[str] = []

    def add(self, url: str) -> None:
        """Add a page by its canonical URL."""
        self._new.append(url)

    def ids(self, of_all: Callable[[list[str]], Ids]) -> Ids:
        """Return the ids of all pages. `of_all` returns those of canonical URLs."""
        for start in range(0, len(self._new), _URLS_AT_ONCE):
            found = of_all(self._new[start : start + _URLS_AT_ONCE])
            end = self._pages + len(found)
            if end > len(self._ids):
                self._ids = np.concatenate([self._ids[: self._pages], np.zeros(end, np.uint64)])
            self._ids[self._pages : end] = found
            self._pages = end
        self._new = []
        return self._ids[: self._pages]
