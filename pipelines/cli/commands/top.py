"""`opicflow top`: the most important pages or hosts of a state."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from opicflow.pipelines.cli.options import add_json, add_state_options, natural, state_of
from opicflow.pipelines.cli.states import read_answers
from opicflow.pipelines.cli.text_tables import first_rows, print_pages

if TYPE_CHECKING:
    from opicflow.pipelines.replay.answers import Answers
    from opicflow.pipelines.results.record_columns import Pages

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
    from opicflow.pipelines.results.record_columns import importance_lines

    answers, _ = read_answers(state_of(options))
    pages = _pages_of(answers, options.unread)
    if options.host:
        _print_hosts(options, pages)
    elif options.json:
        lines = (line for part in first_rows(pages, options.top) for line in importance_lines(part).splitlines())
        print(json.dumps([json.loads(line) for line in lines], indent=2))
    else:
        print_pages(first_rows(pages, options.top))
    return 0


def _pages_of(answers: Answers, only_unread: bool) -> Iterator[Pages]:
    """Yield the pages, the most important first; each part is unpacked on demand."""
    import numpy as np

    from opicflow.pipelines.results.record_columns import pages_of

    for part in answers.importance:
        pages = pages_of(part)
        yield pages.rows(np.flatnonzero(pages.columns["visits"] == 0)) if only_unread else pages


def _print_hosts(options: argparse.Namespace, pages: Iterable[Pages]) -> None:
    from opicflow.pipelines.results.record_columns import ranked_hosts

    hosts = ranked_hosts(pages)[: options.top]
    if options.json:
        print(json.dumps([dataclasses.asdict(host) for host in hosts], indent=2))
        return
    print("  importance    pages     read  host")
    for host in hosts:
        print(f"  {host.importance:10.6f} {host.pages:8,} {host.read:8,}  {host.host}")
