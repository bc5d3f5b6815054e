"""Readers that do wrong in every way, for the tests of the fuzzing itself."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Callable
from threading import Event

from opicflow.schemas.errors import UserError
from support.fuzz.worker import Counts, FuzzedReader

_SOME = 0x40
"""The inputs whose first byte is less do wrong: a quarter of all."""


def _raise(problem: Exception) -> None:
    raise problem


def _reader(do_wrong: Callable[[], object], otherwise: Callable[[], object] = lambda: None) -> FuzzedReader:
    def check(data: bytes, draw: random.Random) -> Counts:
        (do_wrong if data[0] < _SOME else otherwise)()
        return Counts(1, 0)

    return FuzzedReader(lambda draw: draw.randbytes(3), check, 1)


BROKEN = {
    "sound": _reader(lambda: None),
    "crash": _reader(lambda: ctypes.string_at(0)),
    "abort": _reader(os.abort),
    "hang": _reader(lambda: Event().wait(600)),
    "slow": _reader(lambda: Event().wait(0.3)),
    "memory": _reader(lambda: bytearray(8 << 30)),
    "raise": _reader(lambda: _raise(KeyError("of the reader")), lambda: _raise(UserError("it is refused in one line"))),
    "two-lines": _reader(
        lambda: _raise(UserError("one line\nand another")), lambda: _raise(UserError("it is refused in one line"))
    ),
}
