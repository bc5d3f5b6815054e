"""The parts of results that a replay keeps in its work folder until they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Parts(Sequence[bytes]):
    """The parts of a kind, in the order of the log, read when they are asked for."""

    def __init__(self, work: Path, kind: str) -> None:
        """The parts that are there now."""
        self._paths = sorted(work.glob(f"{kind}-*"))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._paths)

    def __getitem__(self, number: Any) -> Any:
        """One of them, or a list of some."""
        found = self._paths[number]
        return [path.read_bytes() for path in found] if isinstance(found, list) else found.read_bytes()
