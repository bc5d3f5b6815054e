"""The options that choose the boundaries of shards by the pages that are known."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_reading, reading_of

if TYPE_CHECKING:
    from opicflow.connectors.files.reading import Reading
    from opicflow.pipelines.replay.known_pages import KnownPages
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.schemas.shards import ShardRanges


def add_boundary_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--like",
        metavar="PATH",
        help="choose boundaries by the pages of a crawl log or of a replay's state: shards are even then",
    )
    parser.add_argument(
        "--even", choices=["pages", "visits"], default="pages", help="make these even with --like (%(default)s)"
    )
    add_reading(parser)


def chosen_ranges(options: argparse.Namespace, shards: int, rules: Rules) -> tuple[ShardRanges, str]:
    """Return the ranges of so many shards, and a sentence about them. Without --like they are of equal width."""
    from opicflow.schemas.shards import ShardRanges

    if options.like is None:
        return ShardRanges.equal(shards), ""
    known = _known_pages(options.like, rules, reading_of(options))
    if len(known.ids) < 2 * shards:
        raise InputRefused(
            f"{options.like}: it has {len(known.ids):,} pages with a URL, too few to choose boundaries of {shards} "
            "shards: give a larger one, or omit --like"
        )
    ranges = known.ranges(shards, options.even)
    return ranges, known.describe(ranges)


def _known_pages(like: str, rules: Rules, reading: Reading) -> KnownPages:
    from opicflow.pipelines.replay.known_pages import pages_of_ledger, pages_of_logs
    from opicflow.pipelines.replay.state import read_ledger

    path = Path(like)
    if path.is_dir():
        ledger, _ = read_ledger(path)
        return pages_of_ledger(ledger, rules)
    return pages_of_logs(like, rules, reading)
