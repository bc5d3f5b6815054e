"""A reader that is fuzzed: how its inputs are made and checked."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from opicflow.schemas.errors import UserError
from support.hostile_values import one_line


class Counts(NamedTuple):
    """How many records of an input were accepted, and how many rejected."""

    accepted: int = 0
    rejected: int = 0


class FuzzedReader(NamedTuple):
    """A reader: `make` makes an input, `check` reads it, and raises an AssertionError if something is wrong.

    `check` may raise `UserError`: the input is refused. `share`: how many thousand inputs `make soak` reads.
    """

    make: Callable[[random.Random], bytes]
    check: Callable[[bytes, random.Random], Counts]
    share: int


def checked(reader: FuzzedReader, data: bytes, draw: random.Random) -> Counts | None:
    """Read an input; None if it is refused, in one line."""
    try:
        return Counts(*reader.check(data, draw))
    except UserError as problem:
        one_line(problem)
        return None
