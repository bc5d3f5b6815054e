"""Texts as cells of CSV: a spreadsheet that opens the file must not take the name of a host for a formula."""

from __future__ import annotations

_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def harmless_cell(value: object) -> object:
    """Return the value of a cell: a text that begins like a formula gets an apostrophe before it (OWASP)."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGIN_FORMULAS) else value
