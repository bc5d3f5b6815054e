"""Rows of CSV (RFC 4180) of a text that is read block by block, by Python's csv.

A value in double quotes may have the divider, quotes (each written twice) and line breaks in it. Rows have the offsets
at which they begin: a reader that starts at one yields that row and all after it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any, NamedTuple

from opicflow.connectors.files.crawlers.dispatch import BOM
from opicflow.connectors.files.growing_text import GrowingText
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, EventRefused, Reason

HEAD_BYTES = 1 << 16
"""The form of a file is decided by so many of its first bytes."""


class Row(NamedTuple):
    """A row: where it begins, its bytes, and its values, or the problem. The last one may have no line break.

    `line` is the number of its first line, counted from where reading began.
    """

    offset: int
    original: bytes
    values: list[str] | EventRefused
    has_ended: bool
    line: int


def parsed(lines: Iterable[str], divider: str, skips_blanks: bool = True) -> Any:
    """Return a reader of the rows of lines, which raises `csv.Error` where quotes are wrong.

    `skips_blanks`: those before a value do not count.
    """
    if csv.field_size_limit() < MOST_EVENT_BYTES:
        csv.field_size_limit(MOST_EVENT_BYTES)  # of the process: the default is less than the links of a page may take
    if divider == " ":  # several ones count as one
        lines = (" ".join(line.split()) + "\n" for line in lines)
    return csv.reader(lines, delimiter=divider, skipinitialspace=skips_blanks, strict=True)


def first_rows(head: bytes, divider: str, most: int, comment: str = "") -> list[list[str]]:
    """Return the rows with which a file begins, up to wrong quotes, without those that are blank, with bare values.

    The last one is left out if it may be cut off.
    """
    text = head[:HEAD_BYTES].removeprefix(BOM).decode("utf-8", "replace")
    lines = (line for line in StringIO(text, newline="\n") if not (comment and line.lstrip().startswith(comment)))
    bare = ([value.strip() for value in row] for row in parsed(lines, divider))
    found: list[list[str]] = []
    try:
        for row in filter(any, bare):
            if len(found) == most:
                return found
            found.append(row)
    except csv.Error:
        pass
    return found[:-1] if len(head) >= HEAD_BYTES and len(found) > 1 else found


def rows_of(text: GrowingText, divider: str, comment: bytes = b"") -> Iterator[Row]:
    """Yield the rows of a text, without blank lines, and without lines between rows that begin with a comment.

    Of a row that is wrong the first line is lost, and reading goes on behind it. Damage ends a row, and the first line
    behind it is lost with it.
    """
    if text.head(len(BOM)) == BOM and text.offset == 0:
        text.at += len(BOM)
    lines = _Lines(text, comment)
    rows = parsed(lines, divider)
    while True:
        values = problem = None
        try:
            values = next(rows, None)
        except csv.Error as error:
            problem = _refused(str(error))
        except EventRefused as refused:  # of a row that is too long
            problem = refused
        offset, original, number = text.offset, lines.row, lines.number
        is_cut = values is None or not original.endswith(b"\n")
        if is_cut and text.damage is not None and text.at + len(original) == len(text.data):
            offset = offset if original else text.damage.offset
            yield Row(offset, original, EventRefused(Reason.CORRUPT, text.damage.detail), True, number)
            text.go_behind_damage()
        elif problem is not None:
            line, has_ended = text.next_line()
            yield Row(offset, line, problem, has_ended, number)
        elif values is None:
            return
        else:
            if not lines.are_utf8:
                yield Row(offset, original, EventRefused(Reason.NOT_UTF8, "the row is not UTF-8"), not is_cut, number)
            elif values not in ([], [""]):
                yield Row(offset, original, values, not is_cut, number)
            text.at += len(original)
            lines.begin_row(original.count(b"\n"))
            continue
        lines.begin_row(1)
        rows = parsed(lines, divider)


class _Lines(Iterator[str]):
    """The lines behind the position of a text, which stays: a row may be wrong, and only its first line lost."""

    def __init__(self, text: GrowingText, comment: bytes) -> None:
        self._text = text
        self._comment = comment
        self.number = 1
        self.begin_row(0)

    def begin_row(self, passed: int) -> None:
        self.number += passed
        self._bytes = 0
        self.are_utf8 = True

    @property
    def row(self) -> bytes:
        """The lines that were taken since the row began."""
        return self._text.data[self._text.at : self._text.at + self._bytes]

    def __next__(self) -> str:
        text = self._text
        while True:
            begin = text.at + self._bytes
            end = text.data.find(b"\n", begin) + 1
            if (end or len(text.data)) - text.at > MOST_EVENT_BYTES:
                detail = f"the row is longer than {MOST_EVENT_BYTES >> 20} MiB, or a quote is never closed"
                raise EventRefused(Reason.TOO_LARGE, detail)
            if not end and text.grow():
                continue
            line = text.data[begin : end or len(text.data)]
            if not line:
                raise StopIteration
            if self._comment and not self._bytes and line.lstrip().startswith(self._comment):
                text.at += len(line)
                self.number += 1
                continue
            self._bytes += len(line)
            if b"\0" in line:
                raise csv.Error("a NUL character")  # not all versions of Python take it
            try:
                return line.decode()
            except UnicodeDecodeError:
                self.are_utf8 = False
                return line.decode("utf-8", "surrogateescape")


def _refused(problem: str) -> EventRefused:
    detail = "the quotes of the row are wrong: a quote within a value in quotes is written twice"
    if "new-line character" in problem:
        detail = "the row has a carriage return: put the value in double quotes"
    elif "NUL" in problem:
        detail = "the row has a NUL character: write it again"
    return EventRefused(Reason.NOT_AN_EVENT, detail)
