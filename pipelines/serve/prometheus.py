"""A view as metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from opicflow.pipelines.serve.view import SPANS, View

_PlanFigure = Literal[
    "freshness", "freshness_low", "freshness_high", "freshness_observed", "bandwidth_per_day", "orders"
]
_LIGHTS = {"right": 0, "look": 1, "wrong": 2}


def metrics_of(view: View) -> str:
    """Return all metrics as text."""
    return "".join(_lines(view))


def _lines(view: View) -> Iterator[str]:
    def gauge(name: str, meaning: str, value: float | None, labels: str = "") -> str:
        if value is None:
            return ""
        return f"# HELP opicflow_{name} {meaning}\n# TYPE opicflow_{name} gauge\nopicflow_{name}{labels} {value!r}\n"

    yield gauge("books", "The light for the books: 0 right, 1 check it, 2 wrong", _LIGHTS[view.light.state])
    yield gauge("pages", "Pages known", view.pages)
    yield gauge("pages_read", "Pages read", view.pages_read)
    yield gauge("pages_waiting", "Pages that were never read", view.waiting)
    yield gauge("pages_overdue", "Pages that should have been fetched before the end of the log", view.overdue)
    yield gauge("orders_waiting", "Fetches that are ordered", view.order_ages.total)
    for name, words, ages in (
        ("orders_waiting", "orders", view.order_ages),
        ("pages_overdue", "overdue pages", view.overdue_ages),
    ):
        if ages.longer:
            yield gauge(f"{name}_longest_seconds", f"For how long the first of the {words} waits", ages.seconds)
            yield f"# HELP opicflow_{name}_longer The {words} that wait for more seconds than in the label\n"
            yield f"# TYPE opicflow_{name}_longer gauge\n"
            for (_, some), (_, span) in zip(ages.longer, SPANS, strict=True):
                yield f'opicflow_{name}_longer{{seconds="{span}"}} {some}\n'
    yield gauge("hosts", "Hosts known", len(view.table.hosts))
    yield gauge("drift_units", "Units of cash that are missing from the books, or too much", view.drift)
    yield gauge("certificate", "The bound of the sum of all errors of importance", view.certificate)
    yield gauge("log_end_seconds", "The last time in the log, in seconds since 1970", view.time_ms // 1000 or None)
    for name, count in view.counts.items():
        yield gauge(f"events_{name.removeprefix('events_')}", f"Counted: {name}", count)
    part: _PlanFigure
    for part in get_args(_PlanFigure):
        yield gauge(f"plan_{part}", f"Of the plan: {part.replace('_', ' ')}", view.plan.get(part))
    known = [check for check in view.light.checks if check.is_right is not None]
    if known:
        yield "# HELP opicflow_check A check of the books: 1 right, 0 not\n# TYPE opicflow_check gauge\n"
        for check in known:
            yield f'opicflow_check{{check="{_label(check.name.lower())}"}} {int(bool(check.is_right))}\n'
    if view.live is not None:
        yield gauge("unread_records", "Records that were published, and are not read here yet", view.live.unread)
    if view.rejects:
        yield "# HELP opicflow_rejects Events that could not be used, by reason\n# TYPE opicflow_rejects gauge\n"
        for reason, count in view.rejects.items():
            yield f'opicflow_rejects{{reason="{_label(reason)}"}} {count}\n'


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
