"""The input of an export: the rows, and the user's options about the system that takes them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from opicflow.pipelines.results.exports.result_rows import Rows
from opicflow.schemas.dates import iso_time

NEVER_AGAIN = "not to be fetched again"
_NOT_ON_A_LINE = re.compile(r"[\x00-\x20\x7f\x85\u2028\u2029]")


@dataclass(frozen=True)
class ExportJob:
    """The rows; `name`: of the index, table or key that takes them; `routing`: by host, by domain, or none."""

    rows: Rows
    name: str
    routing: str = "host"
    left_out: Counter[str] = field(default_factory=Counter)
    """Pages that the format cannot say anything about, by reason."""

    @property
    def kind(self) -> str:
        """The kind of the rows: importance, schedule or orders."""
        return self.rows.kind

    def dated(self) -> Iterator[list[Any]]:
        """Yield the rows of a schedule that have a time, and count the others."""
        for some in self.rows:
            dated = [row for row in some if row.due is not None]
            if len(dated) < len(some):
                self.left_out[NEVER_AGAIN] += len(some) - len(dated)
            yield dated

    def ranked_orders(self) -> Iterator[list[tuple[int, str]]]:
        """Yield a number and the URL of each order: the first order has the highest number, the last one 1.

        Priorities can be compared between orders of one reason only; the order of the rows holds for all.
        """
        left = self.rows.total
        for some in self.rows:
            yield [(left - index, order.url) for index, order in enumerate(some)]
            left -= len(some)


Writer = Callable[[ExportJob], Iterator[bytes]]


def url_on_a_line(url: str) -> str:
    """Return a URL without blanks and control characters, which are percent-encoded: no canonical URL has any."""
    return _NOT_ON_A_LINE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), url)


def text_of_time(time_ms: int | None) -> str | None:
    """Return a time as in 2026-05-01T12:00:00Z."""
    return None if time_ms is None else iso_time(time_ms)
