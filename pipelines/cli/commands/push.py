"""`opicflow push`: orders or a schedule into the frontier of a running crawler."""

from __future__ import annotations

import argparse
import json
import re
import threading
from collections import Counter
from contextlib import closing
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import (
    add_json,
    add_kafka_options,
    add_results,
    add_state_options,
    connection_of,
    results_of,
)
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import natural
from opicflow.schemas.errors import interrupted_after

if TYPE_CHECKING:
    from opicflow.pipelines.results.frontier_push import FrontierPush

EXAMPLES = """examples:
  opicflow push urlfrontier://localhost:7071 orders --state state
  opicflow push urlfrontier://localhost:7071 schedule results --crawl news --key domain
  opicflow push urlfrontier://localhost:7071 orders --brokers localhost:9092 --follow --group push
"""

_ADDRESS = re.compile(r"urlfrontier://((?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5})/?")
_SPACES = 10
_POLL_MS = 500
_STREAMS = {"orders": "crawl-orders", "schedule": "refresh-schedule"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("frontier", metavar="ADDRESS", help="urlfrontier://HOST:PORT (the usual port is 7071)")
    parser.add_argument("what", choices=tuple(_STREAMS), metavar="WHAT", help="orders or schedule")
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
    parser.add_argument("--follow", action="store_true", help="of a stream: continue with what its topic gets")
    parser.add_argument(
        "--group", metavar="NAME", help="of a stream: the brokers keep under this name how far was pushed"
    )
    add_json(parser)
    add_kafka_options(parser)


def run(options: argparse.Namespace) -> int:
    """Send the dates of pages, and print how many were sent and how many were not."""
    address = _ADDRESS.fullmatch(options.frontier)
    if address is None:
        raise InputRefused(f"{options.frontier[:200]}: no address of a frontier: write urlfrontier://HOST:PORT")
    from opicflow.connectors.urlfrontier.frontier_client import FrontierClient
    from opicflow.pipelines.results.frontier_push import FrontierPush, wanted_dates

    of_stream = _is_of_stream(options)
    now = int(_clock())
    rows = None if of_stream else results_of(options, options.what, 1000 * now)
    with FrontierClient(address[1], options.crawl) as client:
        push = FrontierPush(client, options.key, _clock, threading.Event().wait)
        with interrupted_after(lambda: f"{counted(push.counts['sent'], 'page')} sent, or more: push again"):
            if rows is None:
                counts = _push_topic(options, push)
            else:
                counts = push.push(wanted_dates(rows, now), options.wait)
                counts["expired"] = rows.counts["expired"]
    shown = {name: counts[name] for name in _WORDS}
    if options.json:
        print(json.dumps({name.replace(" ", "_"): count for name, count in shown.items()}, indent=2))
        return 0
    for name, explained in _WORDS.items():
        if shown[name] or name == "sent":
            print_lines(f"{shown[name]:{_SPACES},}  {explained}")
    return 0


_WORDS = {
    "sent": "pages sent",
    "new": "new to the frontier",
    "unchanged": "had this date already",
    "under way": "left alone: they may be under way, push again later",
    "refused": "refused by the frontier",
    "expired": "orders left out: they expired",
    "unreadable": "messages of the topic cannot be read",
}


def _is_of_stream(options: argparse.Namespace) -> bool:
    """Whether the topics of a stream are pushed. The command line counts before the configuration."""
    named = [
        name
        for name in ("brokers", "properties", "follow", "group")
        if getattr(options, name) and name not in options.configured
    ]
    has_files = bool(options.results) or (options.state is not None and "state" not in options.configured)
    if named and has_files:
        raise InputRefused(f"--{named[0]}: push reads files, a state or a stream: name only one source")
    has_stream = bool(options.brokers or options.properties)
    return bool(named) or (has_stream and not has_files and options.state is None)


def _push_topic(options: argparse.Namespace, push: FrontierPush) -> Counter[str]:
    """Push the records of the topic, and with --follow those that arrive, until the command is interrupted."""
    from opicflow.connectors.kafka.connection import KafkaRefused
    from opicflow.connectors.kafka.result_follower import ResultFollower
    from opicflow.pipelines.results.exports.result_rows import rows_of_values
    from opicflow.pipelines.results.frontier_push import WantedDate, wanted_dates

    stream, counts = _STREAMS[options.what], push.counts
    connection = connection_of(options)
    position, is_checked = 0, False
    with closing(ResultFollower(connection, {stream: None}, options.prefix, options.group)) as follower:
        if follower.absent:
            topic = options.prefix + stream
            raise KafkaRefused(f"there is no topic {topic}: create it with opicflow topics create, or correct --prefix")
        while True:
            wanted: list[WantedDate] = []
            now = int(_clock())
            for _, messages in follower.poll(_POLL_MS):
                readable = [one for one in messages if one.is_readable]
                counts["unreadable"] += len(messages) - len(readable)
                rows = rows_of_values(options.what, [one.values for one in readable if one.values], 1000 * now)
                found = list(wanted_dates(rows, now, position))
                counts["expired"] += rows.counts["expired"]
                position += len(found)
                if options.what == "schedule":  # a page that was removed is not fetched again
                    dates = iter(found)
                    found = [next(dates) if one.values else WantedDate(one.key.decode(), 0) for one in readable]
                wanted += found
            if wanted and not is_checked:
                push.check(wanted)
                is_checked = True
            if push.take(wanted, options.wait):
                if options.group:
                    follower.commit()
                if not options.follow and follower.behind() == 0:
                    return counts


def _clock() -> float:
    return datetime.now(timezone.utc).timestamp()  # noqa: TID251 - which fetches are under way depends on the time
