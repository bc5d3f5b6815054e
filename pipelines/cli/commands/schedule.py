"""`opicflow schedule`: when the pages of a state are fetched again, under these or other options."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.options import (
    add_json,
    add_refresh_options,
    add_state_options,
    natural,
    refresh_fields_of,
    state_of,
)
from opicflow.pipelines.cli.output_files import check_output
from opicflow.pipelines.cli.states import read_ledger
from opicflow.pipelines.cli.text import date_or_never, span
from opicflow.pipelines.cli.text_tables import print_plan

if TYPE_CHECKING:
    from opicflow.pipelines.results.schedules import Compared

EXAMPLES = """examples:
  opicflow schedule --state state                      the fetches of tomorrow, with the options of the state
  opicflow schedule --state state --bandwidth 100000 --strategy harmonic
  opicflow schedule --state state --bandwidth 100000 --compare
  opicflow schedule --state state --export frontier.csv
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_state_options(parser)
    add_refresh_options(parser, "--strategy")
    parser.add_argument("-n", "--top", type=natural, default=10, metavar="N", help="show so many orders (%(default)s)")
    parser.add_argument("--compare", action="store_true", help="show all strategies side by side")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the plan for a frontier: .csv or .jsonl")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the plan, and write it to a file if one is named."""
    from opicflow.pipelines.replay.keeper import plan_in_words
    from opicflow.pipelines.results.files import order_columns, pages_of
    from opicflow.pipelines.results.schedules import compared, export, plan_notes, planned
    from opicflow.pipelines.transforms.publish import pack_orders

    if options.export is not None:
        check_output(options.export, "frontier.csv")
    ledger, _ = read_ledger(state_of(options))
    budget = ledger.budget()
    published = {"strategy": budget.strategy, "discovery_share": budget.discovery_share}
    refresh = dataclasses.replace(ledger.config.refresh, **{**published, **refresh_fields_of(options)})
    plan = planned(ledger, refresh, options.bandwidth)
    summary = plan_in_words(ledger, plan, refresh)
    rows = list(compared(ledger, refresh, options.bandwidth)) if options.compare else []
    columns = order_columns(pages_of(pack_orders(ledger, plan)))
    best = islice(zip(*columns.values(), strict=True), options.top)
    orders = [dict(zip(columns, values, strict=True)) for values in best]
    if options.export is not None:
        export(options.export, ledger, plan)
    if options.json:
        policies = [row.to_json() for row in rows]
        print(json.dumps({"plan": summary, "orders": orders, **({"policies": policies} if rows else {})}, indent=2))
        return 0
    print_plan(summary)
    for note in plan_notes(summary):
        print(f"note: {note}")
    if rows:
        _print_compared(rows)
    if orders:
        print("\n  why        not before            last visit            page")
    for order in orders:
        not_before, last_visit = date_or_never(order["not_before"]), date_or_never(order["last_visit"])
        print(f"  {order['why']:9}  {not_before:20}  {last_visit:20}  {order['url']}")
    if options.export is not None:
        print(f"written: {options.export}")
    return 0


def _print_compared(rows: Sequence[Compared]) -> None:
    print("\n  strategy    freshness  obsolescence  harmonic  never   shortest     median    longest")
    for row in rows:
        obsolescence, harmonic = (
            "unbounded" if cost is None else f"{cost:.4g}" for cost in (row.obsolescence, row.harmonic_staleness)
        )
        spans = [
            span(seconds)
            for seconds in (
                row.shortest_interval_seconds,
                row.median_interval_seconds,
                row.longest_interval_seconds,
            )
        ]
        print(
            f"  {row.strategy:10} {row.freshness:10.2%} {obsolescence:>13} {harmonic:>9} {row.never_refreshed:6,} "
            + " ".join(f"{span:>10}" for span in spans)
        )
