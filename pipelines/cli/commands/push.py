"""`opicflow push`: orders or a schedule into the frontier of a running crawler."""

from __future__ import annotations

import argparse
import json
import re
import threading
from datetime import datetime, timezone

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_json, add_results, add_state_options, natural, results_of

EXAMPLES = """examples:
  opicflow push urlfrontier://localhost:7071 orders --state state
  opicflow push urlfrontier://localhost:7071 schedule results --crawl news --key domain
"""

_ADDRESS = re.compile(r"urlfrontier://((?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5})/?")
_SPACES = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("frontier", metavar="ADDRESS", help="urlfrontier://HOST:PORT (the usual port is 7071)")
    parser.add_argument("what", choices=("orders", "schedule"), metavar="WHAT", help="orders or schedule")
    add_results(parser)
    add_state_options(parser)
    parser.add_argument("--crawl", default="", metavar="ID", help="the crawler's crawl ID (the frontier's DEFAULT)")
    parser.add_argument(
        "--key", choices=("host", "domain"), default="host", help="what the crawler names its queues by (%(default)s)"
    )
    parser.add_argument(
        "--wait",
        type=natural,
        default=30,
        metavar="SECONDS",
        help="try pages that may be under way again for so long (%(default)s)",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Send the dates of pages, and print how many were sent and how many were not."""
    address = _ADDRESS.fullmatch(options.frontier)
    if address is None:
        raise InputRefused(f"{options.frontier[:200]}: no address of a frontier: write urlfrontier://HOST:PORT")
    from opicflow.connectors.urlfrontier.frontier_client import FrontierClient
    from opicflow.pipelines.results.frontier_push import FrontierPush, wanted_dates

    now = int(_clock())
    rows = results_of(options, options.what, 1000 * now)
    with FrontierClient(address[1], options.crawl) as client:
        push = FrontierPush(client, options.key, _clock, threading.Event().wait)
        counts = push.push(wanted_dates(rows, now), options.wait)
    counted = {name: counts[name] for name in ("sent", "new", "unchanged", "under way", "refused")}
    counted["expired"] = rows.counts["expired"]
    if options.json:
        print(json.dumps({name.replace(" ", "_"): count for name, count in counted.items()}, indent=2))
        return 0
    for name, explained in _WORDS.items():
        if counted[name] or name == "sent":
            print(f"{counted[name]:{_SPACES},}  {explained}")
    return 0


_WORDS = {
    "sent": "pages sent",
    "new": "of them new to the frontier",
    "unchanged": "had this date already",
    "under way": "left alone: they may be under way, push again later",
    "refused": "refused by the frontier",
    "expired": "orders left out: they expired",
}


def _clock() -> float:
    return datetime.now(timezone.utc).timestamp()  # noqa: TID251 - what is under way depends on the time
