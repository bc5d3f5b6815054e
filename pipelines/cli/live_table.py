"""Tables with columns of a fixed width: as lines, and on a terminal as one that is redrawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column: its title, and its width, below 0 to the left. The last one is as wide as its text: 0."""

    title: str
    width: int = 0


def head_of(columns: Sequence[Column]) -> str:
    """Return the titles as a line."""
    return line_of(columns, [one.title for one in columns])


def line_of(columns: Sequence[Column], cells: Sequence[str]) -> str:
    """Return a row as a line. Cells have no control characters: see `printable`."""
    return "".join(
        f" {cell:>{column.width}}" if column.width > 0 else f"  {cell:<{-column.width}}"
        for column, cell in zip(columns, cells, strict=True)
    )


class LiveTable:
    """A table on a terminal that is redrawn; its last state stays when it is closed."""

    def __init__(self, columns: Sequence[Column]) -> None:
        from rich.console import Console
        from rich.live import Live

        self._columns = columns
        self._console = Console(file=sys.stdout, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._is_open = False

    @property
    def most_rows(self) -> int:
        """The number of rows that fit."""
        return max(self._console.size.height - 4, 1)

    def show(self, rows: Sequence[Sequence[str]]) -> None:
        """Draw these rows instead of the earlier ones."""
        if not self._is_open:
            self._live.start()
            self._is_open = True
        self._live.update(self._drawn(rows), refresh=True)

    def close(self) -> None:
        """Draw no more."""
        if self._is_open:
            self._live.stop()
            self._is_open = False

    def _drawn(self, rows: Sequence[Sequence[str]]) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for title, width in self._columns:
            table.add_column(title, no_wrap=True, overflow="ellipsis", min_width=abs(width) or None)
            table.columns[-1].justify = "right" if width > 0 else "left"
        for row in rows:
            table.add_row(*map(Text, row))  # text: nothing in it is markup
        return table
