"""The bounds of the closed loop, and the rules that decide whether they hold.

At 5 % of the pages a day every strategy is to use all of its bandwidth, to have orders on every day and to leave no
page longer than the longest interval, and the strategies that use change rates are to come within a point of the
oracle. A bound that does not hold is a fault of the scheduler: it is not to be widened here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from opicflow.pipelines.lab.experiments.experiment import Claim
from opicflow.pipelines.lab.experiments.refresh.adaptive_schedules import NUTCH
from opicflow.pipelines.lab.experiments.refresh.closed_loop import LONGEST_DAYS
from opicflow.pipelines.lab.experiments.refresh.competitors import ORACLE, ROUND_ROBIN
from opicflow.pipelines.lab.experiments.tables import Rows, distinct, mean, where
from opicflow.pipelines.refresh.strategies import STRATEGIES

PERCENT = 5.0
"""The bandwidth of the bounds: this percentage of the pages a day."""
FOR_FRESHNESS = ("thesis", "freshness", "harmonic")
"""The strategies that use change rates. The others are baselines, or have another purpose."""
MOST_BEHIND = 1.0
"""Points of weighted freshness."""
_ALL_USED = 99.95, 100.05
"""Per cent of the bandwidth, as it may be rounded to 100.0: parts of a fetch are carried over to the next day."""

_LOOP = "the closed loop"


def of_loop_refresh(rows: Rows) -> list[Claim]:
    """Return the claims of the closed loop. Those at 5 % a day need that bandwidth among the rows."""
    years = where(rows, day=0)
    at_bound = where(years, percent=PERCENT)
    claims = []
    if at_bound:
        used, gap = f"at {PERCENT:g} % of the pages a day", f"{LONGEST_DAYS} days"
        claims = [
            *(_near_oracle(at_bound, name) for name in FOR_FRESHNESS),
            _of_every_strategy(
                at_bound,
                f"Every strategy uses all of its bandwidth, {used}.",
                "used",
                "%",
                lambda share: _ALL_USED[0] <= share <= _ALL_USED[1],
            ),
            _of_every_strategy(
                at_bound, f"No strategy has a day without orders, {used}.", "idle_days", "", lambda days: days == 0
            ),
            _of_every_strategy(
                at_bound,
                f"No page is left longer than the longest interval, {gap} (whole days count), {used}.",
                "longest_gap_days",
                "days",
                lambda days: math.floor(days) <= LONGEST_DAYS,
            ),
        ]
    return [*claims, _never_idle(years), *(_fresher_than(years, other) for other in (ROUND_ROBIN, NUTCH))]


def _near_oracle(rows: Rows, strategy: str) -> Claim:
    oracle, own = (mean(rows, "fresh_weighted", scheduler=name) for name in (ORACLE, strategy))
    return Claim(
        f"Weighted freshness of `{strategy}` is within {MOST_BEHIND:g} point of the oracle's, at {PERCENT:g} % a day.",
        _LOOP,
        f"{own:.1f} %, the oracle {oracle:.1f} %",
        own >= oracle - MOST_BEHIND,
    )


def _of_every_strategy(rows: Rows, statement: str, name: str, unit: str, holds: Callable[[float], bool]) -> Claim:
    """A claim about each strategy of opicflow and each seed."""
    found = [row for row in rows if row["scheduler"] in STRATEGIES]
    measured = ", ".join(
        f"{strategy} {mean(found, name, scheduler=strategy):.1f}" for strategy in distinct(found, "scheduler")
    )
    return Claim(
        statement, _LOOP, f"{measured} {unit}".rstrip(), bool(found) and all(holds(float(row[name])) for row in found)
    )


def _never_idle(rows: Rows) -> Claim:
    """No strategy of opicflow has a day without orders, at any bandwidth."""
    found = [row for row in rows if row["scheduler"] in STRATEGIES]
    percents = distinct(found, "percent")
    idle = [row for row in found if float(row["idle_days"]) > 0]
    worst = "; ".join(
        f"{row['scheduler']} at {row['percent']:g} %: {row['idle_days']} days (seed {row['seed']})" for row in idle
    )
    bandwidths = ", ".join(f"{percent:g}" for percent in percents)
    return Claim(
        f"The loop runs at {bandwidths} % of the pages a day without a day without orders.",
        _LOOP,
        worst or f"none in {len(found)} runs",
        bool(found) and not idle,
    )


def _fresher_than(rows: Rows, other: str) -> Claim:
    """The strategies that use change rates are fresher than a scheduler, at every bandwidth."""
    behind, measured = [], []
    for percent in distinct(rows, "percent"):
        theirs = mean(rows, "fresh_weighted", scheduler=other, percent=percent)
        ours = {name: mean(rows, "fresh_weighted", scheduler=name, percent=percent) for name in FOR_FRESHNESS}
        behind += [name for name, share in ours.items() if not share > theirs]
        measured.append(f"at {percent:g} %: {min(ours.values()):.1f} % or more, {other} {theirs:.1f} %")
    names = ", ".join(f"`{name}`" for name in FOR_FRESHNESS)
    return Claim(
        f"{names} have a higher weighted freshness than {other}, at every bandwidth.",
        _LOOP,
        "; ".join(measured),
        not behind,
    )
