"""Texts as cells of CSV: a spreadsheet that opens the file must not take the name of a host for a formula."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from io import StringIO

_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def harmless_cell(value: object) -> object:
    """Return the value of a cell: a text that begins like a formula gets an apostrophe before it (OWASP)."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGIN_FORMULAS) else value


def csv_text(rows: Iterable[Iterable[object]], divider: str = ",", line_end: str = "\r\n") -> str:
    """Return rows as CSV with harmless cells."""
    text = StringIO(newline="")
    csv.writer(text, delimiter=divider, lineterminator=line_end).writerows(map(harmless_cell, row) for row in rows)
    return text.getvalue()
