"""`opicflow top`: the most important pages or hosts of a state."""

from __future__ import annotations

import argparse
import dataclasses
import json

from opicflow.pipelines.cli.options import add_json, add_state_options, natural, state_of
from opicflow.pipelines.cli.states import read_ledger
from opicflow.pipelines.cli.text_tables import print_pages

EXAMPLES = """examples:
  opicflow top --state state -n 20
  opicflow top --state state --unread                  the most important pages that were never read
  opicflow top --state state --host                    the most important hosts
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_state_options(parser)
    parser.add_argument("-n", "--top", type=natural, default=10, metavar="N", help="how many (%(default)s)")
    parser.add_argument("--host", action="store_true", help="hosts instead of pages")
    parser.add_argument("--unread", action="store_true", help="only pages that were never read")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the most important pages, or hosts, of a state."""
    import numpy as np

    from opicflow.pipelines.ledger.estimates import richest
    from opicflow.pipelines.replay.report_data import ranked_hosts
    from opicflow.pipelines.results.files import importance_lines, pages_of
    from opicflow.pipelines.transforms.publish import pack_estimates, rows_of

    ledger, _ = read_ledger(state_of(options))
    estimates = ledger.estimate_all()
    if options.unread:
        estimates = rows_of(estimates, np.flatnonzero(estimates.visits == 0))
    if options.host:
        hosts = ranked_hosts([pages_of(pack_estimates(ledger, estimates))])[: options.top]
        if options.json:
            print(json.dumps([dataclasses.asdict(host) for host in hosts], indent=2))
            return 0
        print("  importance    pages     read  host")
        for host in hosts:
            print(f"  {host.importance:10.6f} {host.pages:8,} {host.read:8,}  {host.host}")
        return 0
    best = richest(estimates.pages, estimates.importance, options.top)
    part = pack_estimates(ledger, rows_of(estimates, best))
    if options.json:
        print(json.dumps([json.loads(line) for line in importance_lines(pages_of(part)).splitlines()], indent=2))
    else:
        print_pages([part], options.top)
    return 0
