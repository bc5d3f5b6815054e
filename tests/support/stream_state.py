"""State of a stage in memory, as Beam's runner would give it."""

from __future__ import annotations

from collections.abc import Iterable

POISON = b"not an entry of a log"


class Value:
    """A value in keyed state."""

    def __init__(self, value: bytes | None = None) -> None:
        self.value = value

    def read(self) -> bytes | None:
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value


class Bag:
    """A bag in keyed state."""

    def __init__(self, values: Iterable[bytes] = ()) -> None:
        self.values = list(values)

    def read(self) -> list[bytes]:
        return self.values

    def add(self, value: bytes) -> None:
        self.values.append(value)

    def clear(self) -> None:
        self.values = []
