"""Tables of CSV as columns, in blocks of whole rows: by pyarrow, in a tenth of the time of Python's csv.

pyarrow takes wrong quotes in silence, and cannot know where the last row of a block ends. So Python's csv reads a block
with quotes first: then it takes some two microseconds a row.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from itertools import chain, islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as pa_csv

from opicflow.connectors.files.csv_rows import parsed
from opicflow.connectors.files.line_blocks import MOST_LINE_BYTES
from opicflow.connectors.files.opening import InputRefused
from opicflow.schemas.errors import printable

_UNFINISHED = "unexpected end of data"
"""The words of Python's csv for a text that ends within quotes."""
_MOST_SHOWN = 60


class RowBlock(NamedTuple):
    """Whole rows, the first of which begins on the line of this number."""

    number: int
    text: bytes
    divider: str

    @property
    def columns(self) -> int:
        """The number of values in the first row."""
        return len(next(self.rows(), (0, []))[1])

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that are not empty, each with the number of its first line."""
        text = self.text.decode("utf-8", "surrogateescape")
        rows = parsed(StringIO(text, newline=""), self.divider, skips_blanks=False)
        number = self.number
        for row in rows:
            if row:
                yield number, row
            number = self.number + rows.line_num

    def line_of(self, row: int) -> int:
        """The number of the line on which this row begins."""
        return next(islice(self.rows(), row, None), (self.number, []))[0]

    def split_head(self) -> tuple[list[str], RowBlock]:
        """Return the first row, and the rows behind it."""
        lines = _Lines(self.text)
        head: list[str] = next(parsed(lines, self.divider, skips_blanks=False), [])
        number = self.number + self.text.count(b"\n", 0, lines.end)
        return [cell.encode("latin-1").decode("utf-8", "replace") for cell in head], RowBlock(
            number, self.text[lines.end :], self.divider
        )


def whole_rows(name: str, pieces: Iterator[bytes], divider: str) -> Iterator[RowBlock]:
    """Yield the whole rows of pieces of a file, some at a time. Raises `InputRefused` with the line of wrong quotes."""
    number, held = 1, b""
    for piece in chain(pieces, (b"",)):
        held += piece
        end = _end_of_rows(name, RowBlock(number, held, divider), is_last=not piece)
        if held[:end]:
            yield RowBlock(number, held[:end], divider)
        number += held.count(b"\n", 0, end)
        held = held[end:]
        if len(held) > MOST_LINE_BYTES:
            raise InputRefused(f"{name}, line {number}: longer than {MOST_LINE_BYTES:,} bytes: name another file")


def read_columns(
    name: str,
    rows: RowBlock,
    names: Sequence[str],
    types: dict[str, pa.DataType],
    problem_of: Callable[[list[str]], str],
) -> pa.Table:
    """Return the columns that `types` names. Raises `InputRefused` with the line and the problem of a wrong row."""
    try:
        return pa_csv.read_csv(
            pa.BufferReader(rows.text),
            pa_csv.ReadOptions(use_threads=False, block_size=len(rows.text) + 1, column_names=names),
            pa_csv.ParseOptions(delimiter=rows.divider, newlines_in_values=b'"' in rows.text),
            pa_csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as problem:
        for number, cells in rows.rows():
            if not are_utf_8(cells):
                why = "not UTF-8: write it again"
            elif len(cells) != len(names):
                why = f"{len(cells)} columns, not {len(names)}: divide them by {rows.divider!r}"
            else:
                why = problem_of(cells)
            if why:
                raise InputRefused(f"{name}, line {number}: {why}") from None
        words = printable(" ".join(str(problem).split()))[:_MOST_SHOWN]
        raise InputRefused(f"{name}, from line {rows.number}: {words}: write it as CSV") from None


def are_utf_8(cells: Sequence[str]) -> bool:
    """Whether the bytes of a row's cells were UTF-8: `RowBlock.rows` returns others as surrogates."""
    return not any("\udc80" <= character <= "\udcff" for cell in cells for character in cell)


class _Lines(Iterator[str]):
    """The lines of a text, a character for each byte; `end` is where the last one ends that was taken."""

    def __init__(self, text: bytes) -> None:
        self._lines = StringIO(text.decode("latin-1"), newline="")
        self.end = 0

    def __next__(self) -> str:
        line = next(self._lines)
        self.end += len(line)
        return line


def _end_of_rows(name: str, block: RowBlock, is_last: bool) -> int:
    """Return where the last row ends that is whole, by Python's csv if there are quotes."""
    if b'"' not in block.text:
        return len(block.text) if is_last else block.text.rfind(b"\n") + 1
    lines, end = _Lines(block.text), 0
    try:
        for _ in parsed(lines, block.divider, skips_blanks=False):
            if is_last or block.text.endswith((b"\n", b"\r"), 0, lines.end):
                end = lines.end
    except csv.Error as problem:
        if is_last or str(problem) != _UNFINISHED:
            number = block.number + block.text.count(b"\n", 0, end)
            raise InputRefused(f"{name}, line {number}: {printable(str(problem))}: write it as CSV") from None
    return end
