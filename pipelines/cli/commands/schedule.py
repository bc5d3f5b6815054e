"""`opicflow schedule`: when the pages of a state are fetched again, under these or other options."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import (
    add_json,
    add_state_options,
    now_second_of,
    state_of,
)
from opicflow.pipelines.cli.output_files import check_output
from opicflow.pipelines.cli.settings_table import REFRESH, add_settings, fields_of
from opicflow.pipelines.cli.text import date_or_never, print_lines, span
from opicflow.pipelines.cli.text_tables import first_rows, print_plan
from opicflow.pipelines.cli.values import natural
from opicflow.schemas.dates import iso_time

if TYPE_CHECKING:
    from opicflow.pipelines.results.schedules import Compared
    from opicflow.pipelines.stages.publish import PlanFigures

EXAMPLES = """examples:
  opicflow schedule --state state                      the fetches of tomorrow, with the options of the state
  opicflow schedule --state state --bandwidth 100000 --refresh-strategy harmonic
  opicflow schedule --state state --bandwidth 100000 --compare
  opicflow schedule --state state --export frontier.csv
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_state_options(parser)
    add_settings(parser, REFRESH, "when pages are fetched again (docs/guides/refresh.md)")
    parser.add_argument("-n", "--top", type=natural, default=10, metavar="N", help="show so many orders (%(default)s)")
    parser.add_argument("--now", metavar="TIME", help="plan for this time, such as 2026-05-01T12:00:00Z, or 'now'")
    parser.add_argument("--compare", action="store_true", help="show all strategies side by side")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the plan for a frontier: .csv or .jsonl")
    add_json(parser)


@dataclasses.dataclass(frozen=True)
class _Plan:
    """A plan in words, its orders as packed columns, and all strategies side by side where they were requested."""

    summary: PlanFigures
    orders: bytes
    compared: Sequence[Compared] = ()
    note: str = ""


_NOT_LEARNT = (
    "the state has not learnt which unread pages come first: they are ordered by importance. It learns in a "
    "replay with --set discovery-by=learnt"
)


def run(options: argparse.Namespace) -> int:
    """Print the plan, and write it to a file if one is named."""
    from opicflow.pipelines.replay.final_plan import plan_notes
    from opicflow.pipelines.results.record_columns import order_columns, pages_of
    from opicflow.schemas.columns import plain_rows

    if options.export is not None:
        if options.export.suffix.lower() not in (".csv", ".jsonl"):
            raise InputRefused(f"{options.export}: a plan ends in .csv or .jsonl: name it so")
        check_output(options.export, "frontier.csv")
    plan = _planned(options) if _changes_plan(options) else _kept(options)
    summary, rows = plan.summary, plan.compared
    best = map(order_columns, first_rows([pages_of(plan.orders)], options.top))
    orders = [row for columns in best for row in plain_rows(columns)]
    if options.json:
        policies = [row.to_json() for row in rows]
        print(json.dumps({"plan": summary, "orders": orders, **({"policies": policies} if rows else {})}, indent=2))
        return 0
    print_plan(summary)
    for note in (*plan_notes(summary), *filter(None, [plan.note])):
        print_lines(f"note: {note}")
    if rows:
        _print_compared(rows)
    if orders:
        print("\n  why        by         not before            last visit            page")
    for order in orders:
        not_before, last_visit = date_or_never(order["not_before"]), date_or_never(order["last_visit"])
        print_lines(f"  {order['why']:9}  {order['by'] or '-':9}  {not_before:20}  {last_visit:20}  {order['url']}")
    if options.export is not None:
        print_lines(f"written: {options.export}")
    return 0


def _changes_plan(options: argparse.Namespace) -> bool:
    return bool(fields_of(options, "refresh") or options.compare or options.export or options.now)


def _kept(options: argparse.Namespace) -> _Plan:
    """Return the plan at the end of the last replay."""
    from opicflow.pipelines.replay.answers import read_answers

    answers, _ = read_answers(state_of(options))
    return _Plan(answers.plan, answers.orders)


def _planned(options: argparse.Namespace) -> _Plan:
    """Plan with the ledger and these options."""
    from opicflow.pipelines.replay.final_plan import importance_for_plans, plan_in_words
    from opicflow.pipelines.replay.result_files import path_in_errors
    from opicflow.pipelines.replay.state import read_ledger
    from opicflow.pipelines.results.schedules import compared, export, planned
    from opicflow.pipelines.stages.publish import pack_orders

    ledger, _ = read_ledger(state_of(options))
    now = now_second_of(options.now)
    if now is not None:
        from opicflow.pipelines.ledger import TickEntry

        if now < ledger.tick_second:
            raise InputRefused(f"--now: the state is at {iso_time(1000 * ledger.tick_second)}: give a later time")
        ledger.apply(TickEntry(now))  # in memory: the state does not change
    budget = ledger.budget()
    stated = {"strategy": budget.strategy, "discovery_share": budget.discovery_share}
    refresh = dataclasses.replace(ledger.config.refresh, **{**stated, **fields_of(options, "refresh")})
    importance = importance_for_plans(ledger)
    plan = planned(ledger, refresh, options.bandwidth, importance)
    rows = list(compared(ledger, refresh, options.bandwidth, importance)) if options.compare else []
    if options.export is not None:
        with path_in_errors(options.export):
            export(options.export, ledger, plan)
    is_learnt = ledger.config.learns_discovery or refresh.discovery_by != "learnt"
    note = "" if is_learnt else _NOT_LEARNT
    return _Plan(plan_in_words(ledger, plan, refresh), pack_orders(ledger, plan), rows, note)


def _print_compared(rows: Sequence[Compared]) -> None:
    if len({(row.shortest_interval_seconds, row.longest_interval_seconds, row.freshness) for row in rows}) == 1:
        print("note: all strategies give the same: with this bandwidth every page gets all that limits allow.")
    print(
        "\n  strategy    freshness   by error of rates  obsolescence  harmonic  never   shortest     median    longest"
    )
    for row in rows:
        obsolescence, harmonic = (
            "unbounded" if cost is None else f"{cost:.4g}" for cost in (row.obsolescence, row.harmonic_staleness)
        )
        between = f"{row.freshness_low:.1%} to {row.freshness_high:.1%}"
        spans = [
            span(seconds)
            for seconds in (
                row.shortest_interval_seconds,
                row.median_interval_seconds,
                row.longest_interval_seconds,
            )
        ]
        print_lines(
            f"  {row.strategy:10} {row.freshness:10.2%} {between:>19} {obsolescence:>13} {harmonic:>9} "
            f"{row.never_refreshed:6,} " + " ".join(f"{span:>10}" for span in spans)
        )
