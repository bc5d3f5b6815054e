"""Plain values altered as somebody would who wants a reader to fail: types, signs, sizes, missing and doubled parts."""

from __future__ import annotations

import copy
import random
from typing import Any

HOSTILE: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    255,
    65_536,
    1 << 31,
    1 << 40,
    (1 << 53) + 1,
    (1 << 63) - 1,
    (1 << 64) - 1,
    -(1 << 63),
    0.5,
    -1e308,
    1e308,
    "",
    "x",
    "../../etc/passwd",
    "a\nb\x1b[31m",
    "\u202e",
    "9" * 5000,
    [],
    {},
    [1],
    [[]],
    {"x": 1},
    [0] * 300,
]


def altered(value: Any, draw: random.Random) -> Any:
    """A copy of a value with one to three parts altered."""
    whole = [copy.deepcopy(value)]
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        spots = list(_spots(whole))
        holder, key = draw.choice(spots)
        _alter(holder, key, draw)
        if not whole:
            whole = [None]
    return whole[0]


def _spots(holder: Any) -> Any:
    keys = holder.keys() if isinstance(holder, dict) else range(len(holder))
    for key in list(keys):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _spots(holder[key])


def _alter(holder: Any, key: Any, draw: random.Random) -> None:
    old, how = holder[key], draw.randrange(6)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(old))
    elif how == 2 and isinstance(holder, dict):
        holder[draw.choice(["x", "", *holder])] = holder.pop(key)
    elif how == 3 and isinstance(old, int | float):
        holder[key] = draw.choice([-old, old + 1, old - 1, float(old), str(old), not old])
    else:
        holder[key] = copy.deepcopy(draw.choice(HOSTILE))


def one_line(problem: Exception) -> None:
    """A message is one line, not too long, without characters that move a cursor."""
    message = str(problem)
    assert message and message.isprintable(), ascii(message)
    assert len(message) < 700
