"""The systems that results are exported to: a row for each, with the results it takes and their writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opicflow.pipelines.results.exports.export_job import Writer
from opicflow.pipelines.results.exports.heritrix_files import forced_urls, precedences
from opicflow.pipelines.results.exports.index_updates import order_updates, schedule_updates, score_updates
from opicflow.pipelines.results.exports.nutch_seeds import importance_seeds, order_seeds, schedule_seeds
from opicflow.pipelines.results.exports.plain_tables import csv_table, json_table
from opicflow.pipelines.results.exports.postgres_script import table_script
from opicflow.pipelines.results.exports.result_rows import KINDS
from opicflow.pipelines.results.exports.sorted_sets import (
    due_pages,
    important_pages,
    ordered_pages,
    start_requests,
)


class Target(NamedTuple):
    """How each kind of result is written; the name of what takes it, where it has one (KIND is replaced)."""

    writers: Mapping[str, Writer]
    name: str | None = None
    named: str = ""
    """The thing that has the name. If the name is None, the user must give it."""
    routing: str | None = None
    """The routing of updates if the user gives none; None: the target has no routing."""
    is_table: bool = False
    """Whether it takes all columns."""
    is_queue: bool = False
    """Whether it fetches all orders that it takes at once: it has no time for them."""

    def default_name(self, kind: str) -> str | None:
        """Return the name for a kind of result."""
        return self.name and self.name.replace("KIND", kind)


TARGETS: dict[str, Target] = {
    "csv": Target(dict.fromkeys(KINDS, csv_table), is_table=True),
    "jsonl": Target(dict.fromkeys(KINDS, json_table), is_table=True),
    "nutch": Target({"importance": importance_seeds, "schedule": schedule_seeds, "orders": order_seeds}, is_queue=True),
    "heritrix": Target({"importance": precedences, "orders": forced_urls}, is_queue=True),
    "stormcrawler": Target({"schedule": schedule_updates, "orders": order_updates}, "status", "index", "host"),
    "scrapy-redis": Target({"orders": start_requests}, None, "key", is_queue=True),
    "opensearch": Target({"importance": score_updates}, "pages", "index", "none"),
    "postgres": Target(dict.fromkeys(KINDS, table_script), "opicflow_KIND", "table", is_table=True),
    "redis": Target(
        {"importance": important_pages, "schedule": due_pages, "orders": ordered_pages},
        "opicflow:KIND",
        "key",
        is_queue=True,
    ),
}
