"""Schedules of a ledger: plans under other options, strategies side by side, files for a frontier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from opicflow.connectors.files.csv_cells import csv_text
from opicflow.connectors.files.whole_file import whole_file
from opicflow.pipelines.ledger import Ledger, Plan, RefreshConfig
from opicflow.pipelines.ledger.plan.schedule import cost_of
from opicflow.pipelines.ledger.plan.survey import DECIDED_BY, Budget
from opicflow.pipelines.refresh.strategies import STRATEGIES, freshness_range
from opicflow.schemas.arrays import Floats, Ints
from opicflow.schemas.dates import iso_time

_ROWS_AT_ONCE = 1 << 16
_FIELDS = ("url", "refetchable_from", "priority", "interval_seconds", "decided_by")


@dataclass(frozen=True)
class Compared:
    """The plan of one strategy, in numbers. `obsolescence` is None where a page is never refreshed: it has no bound."""

    strategy: str
    freshness: float
    freshness_low: float
    freshness_high: float
    """If all pages change faster, or slower, by the standard error of their change rates."""
    obsolescence: float | None
    harmonic_staleness: float | None
    never_refreshed: int
    shortest_interval_seconds: float
    median_interval_seconds: float
    longest_interval_seconds: float
    why: str

    def to_json(self) -> dict[str, object]:
        """Return the line of `opicflow schedule --compare --json`, in which a strategy has its first name, "policy"."""
        values = asdict(self)
        return {"policy": values.pop("strategy"), **values}


def planned(ledger: Ledger, refresh: RefreshConfig, bandwidth_per_day: float | None, importance: Floats | None) -> Plan:
    """Return the plan by the given options; policies decide where an option is not given."""
    return ledger.preview(refresh, _budget(ledger, refresh, bandwidth_per_day), importance=importance)


def compared(
    ledger: Ledger, refresh: RefreshConfig, bandwidth_per_day: float | None, importance: Floats | None
) -> Iterator[Compared]:
    """The plans of all strategies for the same pages, limits and bandwidth."""
    for strategy in STRATEGIES:
        config = replace(refresh, strategy=strategy)
        plan = planned(ledger, config, bandwidth_per_day, importance)
        survey, schedule = plan.survey, plan.schedule
        costs = cost_of(survey, schedule, refresh.alpha)
        low, high = freshness_range(
            survey.wanted, survey.changes_error[survey.sharing], schedule.allocation.frequencies
        )
        intervals = plan.schedule.intervals[plan.survey.sharing]
        finite = intervals[np.isfinite(intervals)]
        shortest, median, longest = np.quantile(finite, (0, 0.5, 1)).tolist() if len(finite) else (0.0, 0.0, 0.0)
        yield Compared(
            strategy=strategy,
            freshness=costs.freshness,
            freshness_low=low,
            freshness_high=high,
            obsolescence=costs.obsolescence if np.isfinite(costs.obsolescence) else None,
            harmonic_staleness=costs.harmonic_staleness if np.isfinite(costs.harmonic_staleness) else None,
            never_refreshed=costs.never_refreshed,
            shortest_interval_seconds=shortest,
            median_interval_seconds=median,
            longest_interval_seconds=longest,
            why=plan.schedule.allocation.why,
        )


def export(path: Path, ledger: Ledger, plan: Plan) -> int:
    """Write who is fetched from when on, soonest first, in the shape that a frontier takes. Returns how many.

    CSV where the name ends like that, else lines of JSON. Priority is the page's score times the factor of a policy,
    1 = an average page. Pages that are not to be fetched again are left out.
    """
    survey, schedule = plan.survey, plan.schedule
    rows = plan.publish[schedule.due[plan.publish] >= 0]
    rows = rows[np.lexsort((-survey.weights(rows), schedule.due[rows]))]
    with whole_file(path) as file:
        as_csv = path.suffix.lower() == ".csv"
        if as_csv:
            file.write(csv_text([_FIELDS]).encode())
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            values = _values(ledger, plan, rows[first : first + _ROWS_AT_ONCE])
            if as_csv:
                file.write(csv_text(values).encode())
            else:
                lines = (dict(zip(_FIELDS, row, strict=True)) for row in values)
                file.write(b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines))
    return len(rows)


def _budget(ledger: Ledger, refresh: RefreshConfig, bandwidth_per_day: float | None) -> Budget:
    budget, before = ledger.budget(), ledger.config.refresh
    limits: dict[str, Any] = {}
    for name, of_refresh, none in (
        ("host_most", "host_fetches_per_day", np.inf),
        ("host_per_hour", "host_fetches_per_hour", np.inf),
        ("host_delay_seconds", "crawl_delay_seconds", 0.0),
    ):
        if getattr(refresh, of_refresh) != getattr(before, of_refresh):
            limits[name] = getattr(refresh, of_refresh) or none
    return replace(
        budget,
        strategy=refresh.strategy,
        per_day=budget.per_day if bandwidth_per_day is None else bandwidth_per_day,
        discovery_share=refresh.discovery_share,
        **limits,
    )


def _values(ledger: Ledger, plan: Plan, rows: Ints) -> Iterator[tuple[object, ...]]:
    survey, schedule, reasons = plan.survey, plan.schedule, plan.schedule.reasons
    starts, text = ledger.urls(survey.pages[rows])
    urls = text.tobytes().decode("ascii")
    columns = (rows, survey.weights(rows), starts[:-1], starts[1:])
    for row, weight, begin, end in zip(*(column.tolist() for column in columns), strict=True):
        seconds = float(schedule.intervals[row])
        yield (
            urls[begin:end],
            iso_time(1000 * int(schedule.due[row])),
            float(f"{weight:.6g}"),
            round(seconds, 1) if np.isfinite(seconds) else None,
            DECIDED_BY[reasons[row]],
        )
