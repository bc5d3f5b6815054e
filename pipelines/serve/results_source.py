"""The files of a replay's results, as pages are shown from them: whole or in parts, JSON lines, Avro or Parquet."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from opicflow.connectors.files.divided_files import found_paths
from opicflow.connectors.files.record_files import read_records
from opicflow.pipelines.results.reasons import Reasons
from opicflow.pipelines.results.record_columns import Pages
from opicflow.pipelines.serve.access import ServeRefused
from opicflow.pipelines.serve.page_table import PageTable
from opicflow.pipelines.serve.record_rows import IMPORTANCE, ORDERS, SCHEDULES, Column, Row, columns_of, milliseconds
from opicflow.pipelines.serve.sources import RereadView, examples_of
from opicflow.pipelines.serve.view import View
from opicflow.pipelines.stages.publish import PlanFigures
from opicflow.schemas.columns import Texts
from opicflow.schemas.errors import in_one_line
from opicflow.schemas.urls import named_page

_ROWS_AT_ONCE = 1 << 15
_FORMATS = ("parquet", "avro", "jsonl")
_COUNTS = ("events_read", "visits", "announcements", "rejects", "duplicates", "late", "links")


class ResultsSource:
    """A folder of results. They are read again when they have been written again."""

    can_explain = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shown = RereadView(self._stamp, self._read)

    def view(self) -> View:
        """The current view."""
        return self._shown.get()

    def canonical(self, url: str) -> str:
        """The canonical form of a URL, by the usual rules: results do not say which others."""
        return named_page(url)

    def reasons(self, page: int) -> Reasons | None:
        """Nothing: there is no ledger."""
        return None

    def _stamp(self) -> object:
        try:
            return [(path.name, path.stat().st_mtime_ns) for path in self._paths("importance")] or None
        except OSError:  # the view before is better than none
            return None

    def _read(self, before: View | None) -> View:
        if not self._path.is_dir():
            raise ServeRefused(f"{self._path}: no such folder: check the name")
        if not self._paths("importance"):
            advice = "name the folder of results"
            if (self._path / "state.json").exists():
                advice = f"it is a state: --state {self._path}"
            raise ServeRefused(f"{self._path}: no importance.jsonl, .avro or .parquet: {advice}")
        table = PageTable.of(self._pages("importance", IMPORTANCE), self._pages("refresh-schedule", SCHEDULES), ())
        table = table.with_orders(_waiting(table, part) for part in self._pages("crawl-orders", ORDERS))
        if np.any(np.diff(table.columns["importance"]) > 0):
            raise ServeRefused(f"{self._path}: importance is not in falling order: name results that a replay wrote")
        summary = self._summary()
        by_reason = summary.get("rejects_by_reason")
        with self._readable("rejects"):
            examples = examples_of(self._rows("rejects"))
            if by_reason is None:
                by_reason = Counter(row["reason"] for row in self._rows("rejects"))
        with self._readable("summary"):
            return View(
                title=self._path.resolve().name,
                source=f"the results in {self._path.resolve().name}",
                version=version("opicflow"),
                table=table,
                counts={name: summary.get(name) for name in _COUNTS},
                plan=summary.get("plan") or PlanFigures(),
                known_read=summary.get("pages_read"),
                certificate=summary.get("certificate", table.moment.get("certificate")),
                drift=summary.get("drift"),
                refused_policies=summary.get("policies_refused", 0),
                rejects=dict(by_reason),
                examples=examples,
                options=[("history", str(summary["history"]))] if "history" in summary else [],
            ).prepared()

    def _summary(self) -> dict[str, Any]:
        path = self._path / "summary.json"
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ServeRefused(f"{path}: it is damaged: replay again")
        return found

    def _paths(self, name: str) -> list[Path]:
        for format_ in _FORMATS:
            if found := found_paths(self._path, name, format_):
                return found
        return []

    def _rows(self, name: str) -> Iterator[Row]:
        return (row for path in self._paths(name) for block in read_records(str(path)) for row in block.rows)

    def _pages(self, name: str, columns: tuple[Column, ...]) -> Iterator[Pages]:
        """Yield the rows of a result as columns, so many at a time."""
        rows = self._rows(name)
        with self._readable(name):
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                read = columns_of(some, columns)
                second = milliseconds(some[0].get("event_time", some[0].get("ordered_at"))) // 1000
                moment: dict[str, float] = {"second": second, "event_time_ms": 1000 * second}
                if some[0].get("certificate") is not None:
                    moment["certificate"] = float(some[0]["certificate"])
                urls = [row["url"].encode("ascii", "backslashreplace") for row in some]
                if any(b"\n" in url for url in urls):  # a table keeps them as lines
                    raise ValueError("a URL has a line break")
                yield Pages(Texts.of(urls), read, moment)

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        """Refuse a result that cannot be read. Readers raise errors of any kind for bytes that make no sense."""
        try:
            yield
        except Exception as problem:
            why = f"{type(problem).__name__}: {in_one_line(problem)}"[:100]
            raise ServeRefused(f"{self._path}: {name} cannot be read ({why}): replay again") from None


def _waiting(table: PageTable, orders: Pages) -> Pages:
    """The orders that wait at the time of the plan: earlier ones may have been carried out, or have expired."""
    ordered, expires = orders.columns["ordered_second"], orders.columns["expires_ms"]
    waits = (expires == 0) | (expires > 1000 * table.second)
    rows, there = table.rows_of_ids.find(orders.columns["pages"])
    is_earlier = ordered[there] < table.second
    waits[there] &= ~(is_earlier & (table.columns["last_visit_ms"][rows] >= 1000 * ordered[there]))
    return orders.rows(np.flatnonzero(waits))
