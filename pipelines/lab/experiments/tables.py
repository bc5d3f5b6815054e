"""Tables of measured rows of names and numbers: as CSV, grouped, averaged, as markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

Value: TypeAlias = "str | float | int"
Row: TypeAlias = "dict[str, Value]"
Rows: TypeAlias = "Sequence[Row]"


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


Measure: TypeAlias = "Callable[..., list[Row]]"
