"""The view of a replay that has just ended, for its report. The same log gives the same view."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import orjson

from opicflow.pipelines.results.record_columns import pages_of
from opicflow.pipelines.serve.page_table import PageTable
from opicflow.pipelines.serve.sources import examples_of, moments, options_of, title_of
from opicflow.pipelines.serve.view import View
from opicflow.pipelines.stages.publish import PlanFigures

if TYPE_CHECKING:
    from opicflow.pipelines.replay.runner import ReplayResult

_COUNTS = ("events_read", "visits", "announcements", "rejects", "duplicates", "late", "links")


def view_of_replay(result: ReplayResult, inputs: Sequence[str]) -> View:
    """Return the view of a replay of the given inputs."""
    summary = result.summary
    table = PageTable.of(
        map(pages_of, result.importance), map(pages_of, result.schedules), map(pages_of, result.orders)
    )
    return View(
        title=title_of(inputs),
        source=f"a replay of {title_of(inputs)}",
        version=version("opicflow"),
        table=table,
        counts={name: summary.get(name) for name in _COUNTS},
        plan=summary["plan"] or PlanFigures(),
        known_read=summary["pages_read"],
        certificate=summary.get("certificate", table.moment.get("certificate")),
        drift=summary["drift"],
        refused_policies=summary["policies_refused"],
        history=moments(result.samples),
        idle=result.idle,
        rejects=summary["rejects_by_reason"],
        examples=examples_of(orjson.loads(line) for part in result.rejects for line in part.splitlines()),
        notes=result.notes,
        options=options_of(result.options),
    )
