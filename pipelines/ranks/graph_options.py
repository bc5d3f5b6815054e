"""Options of commands that build a graph, and the progress of a build."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_quiet, add_rule_options, rules_of
from opicflow.pipelines.cli.progress import ProgressDisplay
from opicflow.pipelines.cli.settings_table import CATEGORY, add_settings
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import byte_count, whole

if TYPE_CHECKING:
    from opicflow.pipelines.ranks.graph.builder import BuildPlan
    from opicflow.pipelines.ranks.graph.store import StoredGraph
    from opicflow.pipelines.ranks.link_graph import BuildProgress
    from opicflow.pipelines.stages.rules import Rules


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """Add how a graph is built."""
    add_quiet(parser)
    parser.add_argument("--memory", default="512MB", metavar="SIZE", help="how much to use, such as 4GB (%(default)s)")
    group = parser.add_argument_group("the graph")
    group.add_argument("--slice-pages", type=whole, metavar="N", help="the pages of a slice (as the memory allows)")
    group.add_argument(
        "--ranks-at-once",
        type=whole,
        default=2,
        metavar="N",
        help="make slices small enough for so many (%(default)s)",
    )
    group.add_argument(
        "--both-ways", action="store_true", help="every link counts in both directions, once, whatever its weight"
    )
    add_settings(parser, CATEGORY, "the graph")
    add_rule_options(parser)


def plan_of(options: argparse.Namespace) -> tuple[BuildPlan, Rules]:
    """Return how a graph is built, and by which rules for URLs and links."""
    from opicflow.pipelines.ranks.graph.builder import BuildPlan
    from opicflow.pipelines.stages.rules import Rules

    plan = BuildPlan(
        memory_bytes=size_of(options.memory),
        slice_pages=options.slice_pages,
        ranks_at_once=options.ranks_at_once,
        both_ways=options.both_ways,
    )
    return plan, rules_of(options) or Rules()


def size_of(text: str) -> int:
    """Return a number of bytes, such as that of 512MB."""
    size = byte_count(text)
    if size is None:
        raise InputRefused(f"--memory {text[:20]}: not a size: write it like 512MB or 4GB")
    return size


@contextmanager
def show_build(quiet: bool) -> Iterator[Callable[[BuildProgress], None]]:
    """Show the progress of a build."""
    from opicflow.pipelines.replay.read_progress import Progress

    display = ProgressDisplay(quiet)

    def show(at: BuildProgress) -> None:
        if at.step:
            display.show_words(f"{counted(at.events, 'event')} read; {at.step}", at.seconds)
        else:
            display.show(Progress(at.events, None, at.done_bytes, at.total_bytes, "B", at.seconds))

    try:
        yield show
    finally:
        display.close()


def warn_without_links(stored: StoredGraph, name: str) -> None:
    """Say on standard error that a graph has no link, so that all its pages have the same ranks."""
    if stored.pages > 1 and not stored.links:
        print_lines(
            f"note: {name}: no link between its pages, so all have the same ranks: "
            "name crawl logs with links, or edge lists",
            file=sys.stderr,
        )
