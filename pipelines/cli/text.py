"""Text for terminals: lines that are safe whatever is in them, numbers with their unit, spans of time."""

from __future__ import annotations

import math
from typing import TextIO

from opicflow.schemas.errors import printable


def print_lines(*lines: object, file: TextIO | None = None, flush: bool = False) -> None:
    """Print lines whatever is in them: a name from outside moves no cursor, turns no text round and begins no line."""
    for line in lines:
        print(printable(str(line)), file=file, flush=flush)


def safe_json(text: str) -> str:
    r"""Return JSON with the codes of characters that a terminal would execute: the same values.

    >>> safe_json(f'"{chr(0x202E)}"')
    '"\\u202e"'
    """
    if text.isascii():  # no string of JSON has control characters of ASCII
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    code = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural where it has to be.

    >>> counted(1, "page"), counted(2000, "page")
    ('1 page', '2,000 pages')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def date_or_never(time_ms: int | None) -> str:
    """Return a time as ISO 8601, or `never` for None."""
    from opicflow.schemas.dates import iso_time  # with Python's own module of dates, which --help need not import

    return "never" if time_ms is None else iso_time(time_ms)


def span(seconds: float) -> str:
    """Return a duration in days, hours, minutes or seconds: the largest unit of which it has two.

    >>> span(90), span(7200), span(86400 * 2)
    ('90 s', '2.0 hours', '2.0 days')
    """
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def certified_in_words(certificate: float) -> str:
    """Return how near importance is to the exact ranks, in words; rounded up, because it is a bound."""
    if certificate >= 2:  # the largest distance that there can be
        return "not proven to be near the exact ranks yet (certified)"
    return f"within {math.ceil(certificate * 1e6) / 1e4:g} % of the exact ranks of the graph seen (certified)"
