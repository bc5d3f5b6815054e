"""The plan at the end of a replay, and the ranks that it is made by.

`opicflow replay` ends with them; `schedule`, `show` and `serve` make them again from the ledger of a state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from opicflow.pipelines.discovery.trap_rule import TWIN
from opicflow.pipelines.ledger import ConfigRefused, Ledger, Plan, RefreshConfig, Settled
from opicflow.pipelines.ledger.pages.refresh_rows import field_of
from opicflow.pipelines.ledger.plan.crawl_orders import EXPLORING
from opicflow.pipelines.ledger.plan.schedule import cost_of
from opicflow.pipelines.ledger.plan.survey import Survey
from opicflow.pipelines.refresh.rates import latest_intervals
from opicflow.pipelines.refresh.strategies import freshness_range
from opicflow.pipelines.stages.publish import ROWS_PER_PART, DiscoveryFigures, PlanFigures, pack_orders, pack_schedules
from opicflow.schemas.arrays import Floats

_PAGES_AT_ONCE = 1 << 20
_ORDERS_PER_PART = 1 << 20
"""A ledger that keeps answers (answers.py) has no more pages than this, so its orders are one part."""


def final_ranks(ledger: Ledger, settle: bool) -> Settled | None:
    """Return the ranks at the end of a replay if they are not those of the ledger: settled ones, or certified ones."""
    if ledger.pages and (settle or ledger.is_certified):
        return ledger.settle()
    return None


def importance_for_plans(ledger: Ledger, settled: Settled | None = None) -> Floats | None:
    """Return the settled importance of all pages, if links are remembered; otherwise None, for the ledger's own.

    `settled` are the final ranks, where they are known already.
    """
    if settled is not None:
        return settled.importance
    if not ledger.pages:
        return None
    with suppress(ConfigRefused):  # without links, or with a damping of 1, ranks cannot settle
        return ledger.settle().importance
    return None


def plan_notes(plan: PlanFigures) -> list[str]:
    """Return a sentence for each wish that a plan, as in a summary, could not fulfil."""
    return [f"refresh: {why}." for why in plan["why"].split("; ") if why]


def schedule_parts(ledger: Ledger, planned: Plan) -> Iterator[bytes]:
    """Yield the schedules that a plan publishes, as packed columns, so many rows at a time."""
    for first in range(0, max(len(planned.publish), 1), ROWS_PER_PART):
        yield pack_schedules(ledger, planned, planned.publish[first : first + ROWS_PER_PART])


def order_parts(ledger: Ledger, planned: Plan) -> Iterator[bytes]:
    """Yield the orders of a plan, as packed columns, so many at a time."""
    for first in range(0, max(len(planned.orders.rows), 1), _ORDERS_PER_PART):
        yield pack_orders(ledger, planned, slice(first, first + _ORDERS_PER_PART))


def plan_in_words(ledger: Ledger, planned: Plan, refresh: RefreshConfig | None = None) -> PlanFigures:
    """Return a plan in numbers: the bandwidth, the costs, and the orders.

    `refresh`: the options of the plan, if they are not those of the ledger.
    """
    survey, schedule = planned.survey, planned.schedule
    costs = cost_of(survey, schedule, (refresh or ledger.config.refresh).alpha)
    low, high = freshness_range(survey.wanted, survey.changes_error[survey.sharing], schedule.allocation.frequencies)
    figures: PlanFigures = {
        "policy": refresh.strategy if refresh else ledger.budget().strategy,
        "bandwidth_per_day": round(schedule.refresh_per_day + schedule.discovery_per_day, 6),
        "cycle_hours": (refresh or ledger.config.refresh).cycle_hours,
        "refresh_per_day": round(schedule.refresh_per_day, 6),
        "discovery_per_day": round(schedule.discovery_per_day, 6),
        "feasible": schedule.allocation.feasible and not survey.suspended,
        "why": "; ".join(filter(None, (survey.suspended, schedule.allocation.why))),
        "pages_refreshed": len(survey.sharing) - costs.never_refreshed,
        "freshness": round(costs.freshness, 6),
        "freshness_low": round(low, 6),
        "freshness_high": round(high, 6),
        "freshness_observed": _observed_freshness(ledger, survey),
        "obsolescence": float(f"{costs.obsolescence:.6g}") if np.isfinite(costs.obsolescence) else None,
        "orders": len(planned.orders.rows),
        "orders_refresh": planned.orders.refreshed,
        "orders_discovery": planned.orders.discovered,
    }
    if survey.worth is not None:
        figures["discovery"] = _discovery_in_words(ledger, planned)
    if survey.limited is not None:
        groups = np.unique(survey.limited.of[survey.limited.of > 0])
        twins = int((survey.limited.why[groups] == TWIN).sum())
        figures |= {"traps": len(groups) - twins, "twins": twins, "pages_limited": int((survey.limited.of > 0).sum())}
    return figures


def _observed_freshness(ledger: Ledger, survey: Survey) -> float | None:
    """Return the part, by importance, of the pages visited twice whose last visit found nothing new."""
    table, fresh, known = ledger.parts().table, 0.0, 0.0
    for first in range(0, len(survey), _PAGES_AT_ONCE):
        some = slice(first, first + _PAGES_AT_ONCE)
        intervals, importance = field_of(table, "intervals", survey.slots[some]), survey.importance[some]
        is_known, is_change = latest_intervals(intervals)
        fresh += float(importance[is_known & ~is_change].sum())
        known += float(importance[is_known].sum())
    return round(fresh / known, 6) if known else None


def _discovery_in_words(ledger: Ledger, planned: Plan) -> DiscoveryFigures:
    """Return what discovery has learnt, and how many of its orders explore."""
    learnt = ledger.discovery
    return {
        "orders_exploring": int((planned.orders.by == EXPLORING).sum()),
        "exploring_share": round(learnt.share, 6),
        "siblings_weight": round(learnt.siblings_weight, 6),
        "exploring_bonus": learnt.rule.bonus,
        "credit_explored": _rounded(learnt.credit_explored),
        "credit_others": _rounded(learnt.credit_others),
    }


def _rounded(credit: float) -> float | None:
    return round(credit, 6) if np.isfinite(credit) else None
