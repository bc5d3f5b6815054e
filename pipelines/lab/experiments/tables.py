"""Tables of measured rows of names and numbers: as CSV, grouped, averaged, as markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

Value: TypeAlias = "str | float | int"
Row: TypeAlias = "dict[str, Value]"
Rows: TypeAlias = "Sequence[Row]"
Cell: TypeAlias = "Callable[[Rows], str]"
"""Makes the text of a cell from the rows that the cell is about."""


def to_csv(rows: Sequence[Row]) -> str:
    """A table as CSV: numbers with seven digits, so that what differs in the last bit is the same text.

    It has the columns of all rows; a cell is empty where a row has no such column.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"{value:.7g}" if isinstance(value, float) else value for name, value in row.items()})
    return text.getvalue()


def where(rows: Iterable[Row], **wanted: Value) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def mean(rows: Iterable[Row], name: str, **wanted: Value) -> float:
    """The mean of a column over the rows that have these values; NaN where there are none."""
    values = [float(row[name]) for row in where(rows, **wanted)]
    return float(np.mean(values)) if values else float("nan")


def spread(rows: Iterable[Row], name: str, **wanted: Value) -> float:
    """How far the runs of a column lie apart: half of the way from the lowest to the highest."""
    values = [float(row[name]) for row in where(rows, **wanted)]
    return (max(values) - min(values)) / 2 if values else float("nan")


def distinct(rows: Iterable[Row], name: str) -> list[Value]:
    """The values of a column, each once, in the order in which they come."""
    return list(dict.fromkeys(row[name] for row in rows))


def lines_by(rows: Rows, columns: Sequence[str], cells: Sequence[Cell]) -> Iterator[tuple[Value, ...]]:
    """Return a line for each combination of the values of some columns: these values, and cells of their rows."""
    for values in dict.fromkeys(tuple(row[name] for name in columns) for row in rows):
        chosen = where(rows, **dict(zip(columns, values, strict=True)))
        yield *values, *(cell(chosen) for cell in cells)


def means(*names: str) -> list[Cell]:
    """Return a cell for each of these columns: its mean."""
    return [partial(_mean_of, name) for name in names]


def _mean_of(name: str, rows: Rows) -> str:
    return short(mean(rows, name))


def each(name: str, values: Iterable[Value], *cells: Cell) -> list[Cell]:
    """Return cells of the rows that have each of these values in a column."""
    return [partial(_where, cell, {name: value}) for value in values for cell in cells]


def _where(cell: Cell, wanted: Row, rows: Rows) -> str:
    return cell(where(rows, **wanted))


def pair(one: str, other: str) -> Cell:
    """Return a cell of the means of two columns."""
    return lambda rows: f"{short(mean(rows, one))} / {short(mean(rows, other))}"


def markdown(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table for people."""

    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    return [line(heads), "|" + "---|" * len(heads), *map(line, rows)]


def short(value: float) -> str:
    """A number with two or three digits."""
    if np.isnan(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 0.0995 else f"{value:.2f}" if abs(value) < 0.995 else f"{value:.3g}"
