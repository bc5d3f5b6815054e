"""Readers that do wrong in every way, for the tests of the fuzzing itself."""

from __future__ import annotations

import ctypes
import os
import random

from opicflow.schemas.errors import UserError
from support.fuzz.fuzzed_reader import Counts, FuzzedReader


def _make(draw: random.Random) -> bytes:
    return draw.randbytes(3)


def _sound(data: bytes, draw: random.Random) -> Counts:
    return Counts(1, 0)


_SOME = 0x40
"""The inputs whose first byte is less do wrong: a quarter of all."""


def _crash(data: bytes, draw: random.Random) -> Counts:
    if data[0] < _SOME:
        ctypes.string_at(0)
    return Counts(1, 0)


def _abort(data: bytes, draw: random.Random) -> Counts:
    if data[0] < _SOME:
        os.abort()
    return Counts(1, 0)


def _hang(data: bytes, draw: random.Random) -> Counts:
    while data[0] < _SOME:
        pass
    return Counts(1, 0)


def _take_memory(data: bytes, draw: random.Random) -> Counts:
    return Counts(len(bytearray(8 << 30)) if data[0] < _SOME else 1, 0)


def _raise(data: bytes, draw: random.Random) -> Counts:
    if data[0] < _SOME:
        raise KeyError("of the reader")
    raise UserError("it is refused in one line")


def _say_two_lines(data: bytes, draw: random.Random) -> Counts:
    raise UserError("one line\nand another" if data[0] < _SOME else "one line")


BROKEN = {
    name: FuzzedReader(_make, check, 1)
    for name, check in {
        "sound": _sound,
        "crash": _crash,
        "abort": _abort,
        "hang": _hang,
        "memory": _take_memory,
        "raise": _raise,
        "two-lines": _say_two_lines,
    }.items()
}
