"""Values of options and settings: functions from text, which argparse calls. They refuse in a few words."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_SIZE_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s?(?:([kmgt]?)(?:i?b)?)", re.IGNORECASE)
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(s|min|h|d|w)")


def whole(text: str) -> int:
    """Return a positive whole number."""
    return _whole_number(text, 1, (1 << 40) - 1, "a positive whole number")


def natural(text: str) -> int:
    """Return a whole number from 0."""
    return _whole_number(text, 0, (1 << 31) - 1, "a whole number from 0")


def _whole_number(text: str, least: int, most: int, called: str) -> int:
    if not text.isdecimal() or (len(text) < 20 and int(text) < least):
        raise ArgumentTypeError(f"{text[:20]!r} is not {called}")
    if len(text) >= 20 or int(text) > most:
        raise ArgumentTypeError(f"{text[:20]} is too large: give {most} at most")
    return int(text)


def number(text: str) -> float:
    """Return a number."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text[:20]!r} is not a number") from None


def number_or_auto(text: str) -> float | str:
    """Return a number, or the word auto."""
    return text if text == "auto" else number(text)


def positive(text: str) -> float:
    """Return a number from 0.001."""
    return _number_between(text, 1e-3, 1e9, "a number from 0.001")


def not_negative(text: str) -> float:
    """Return a number from 0."""
    return _number_between(text, 0.0, 1e9, "a number from 0")


def share(text: str) -> float:
    """Return a share from 0 to 1."""
    return _number_between(text, 0.0, 1.0, "a share from 0 to 1")


def _number_between(text: str, least: float, most: float, called: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise ArgumentTypeError(f"{text[:20]!r} is not {called}")
    return value


def span_seconds(text: str) -> float:
    """Return a span such as 30min, 6h, 2d or 1w in seconds."""
    match = _SPAN.fullmatch(text.strip().lower())
    if match is None:
        raise ArgumentTypeError(f"{text[:40]!r} is not a duration: write it like 30min, 6h, 2d or 1w")
    return float(match[1]) * _UNITS[match[2]]


def byte_count(text: str) -> int | None:
    """Return the bytes of a size; units are powers of 1024. None for another text.

    >>> byte_count("1.5 GiB"), byte_count("512m"), byte_count("1073741824")
    (1610612736, 536870912, 1073741824)
    """
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * (1 << _SIZE_UNITS[match[2].lower()])) if match else None


def internal_weight(text: str) -> float:
    """Return the weight of links within a site: `keep` is 1, `drop` is 0."""
    try:
        weight = {"keep": 1.0, "drop": 0.0}.get(text) if text in ("keep", "drop") else float(text)
    except ValueError:
        weight = None
    if weight is None or not 0.0 <= weight <= 1e6:
        raise ArgumentTypeError(f"{text[:20]!r} is not keep, drop or a number from 0")
    return weight


def flag(text: str) -> bool:
    """Return true or false."""
    if text not in ("true", "false"):
        raise ArgumentTypeError(f"{text[:20]!r} is not true or false")
    return text == "true"


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a function that accepts these words."""

    def read(text: str) -> str:
        if text not in choices:
            raise ArgumentTypeError(f"unknown value {text[:40]!r}: give one of {', '.join(choices)}")
        return text

    return read


def named_number(text: str) -> tuple[str, float]:
    """Return the name and the number of NAME=NUMBER."""
    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ArgumentTypeError(f"{text[:80]!r} is not NAME=NUMBER, such as pdf=0.5") from None


def parameters(text: str) -> tuple[str, ...]:
    """Return the names of query parameters; `tracking` and `session` stand for the usual ones."""
    from opicflow.schemas.urls import SESSION_PARAMETERS, TRACKING_PARAMETERS

    names: list[str] = []
    for name in filter(None, (name.strip().lower() for name in text.split(","))):
        names += {"tracking": TRACKING_PARAMETERS, "session": SESSION_PARAMETERS}.get(name, (name,))
    if not names:
        raise ArgumentTypeError(f"{text!r} names none: give names with commas between, or omit it")
    return tuple(dict.fromkeys(names))
