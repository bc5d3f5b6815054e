"""`opicflow graph`: the link graph of a crawl on disk."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_json, add_logs, add_quiet, reading_of
from opicflow.pipelines.cli.parser import add_command
from opicflow.pipelines.cli.progress import ProgressDisplay, announce_compilation
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.ranks.graph_options import add_graph_options, plan_of, show_build, warn_without_links
from opicflow.schemas.errors import interrupted_after

if TYPE_CHECKING:
    from opicflow.pipelines.ranks.graph.store import StoredGraph

EXAMPLES = """examples:
  opicflow graph build 'logs/*.avro' --out web.graph --memory 512MB      out of core; continues if it was killed
  opicflow graph build --state state --out web.graph                     from the links that a replay remembers
  opicflow graph build edges.txt.gz --vertices vertices.txt.gz --out hosts.graph   numbered, as Common Crawl's
  opicflow graph info web.graph
  opicflow graph check web.graph                                         is every byte as it was written?
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the command, and their options."""
    whats = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    build = add_command(whats, "build", "build the graph of crawl logs, or of the links in a state")
    add_logs(build, "*")
    build.add_argument(
        "--state", dest="links_of", type=Path, metavar="DIR", help="the remembered links of a replay's state instead"
    )
    build.add_argument(
        "--vertices",
        metavar="FILE",
        help="the logs are edges between numbers, and this file has their names: NUMBER<TAB>NAME, a URL or a host",
    )
    build.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the graph")
    add_json(build)
    add_graph_options(build)
    info = add_command(whats, "info", "show the sizes of a graph")
    check = add_command(whats, "check", "read every byte of a graph, and verify it")
    for action in (info, check):
        action.add_argument("graph", type=Path, metavar="GRAPH", help="the folder of a graph")
    add_json(info)
    add_quiet(check)


def run(options: argparse.Namespace) -> int:
    """Build a graph, describe one, or verify one."""
    from opicflow.pipelines.ranks.graph.store import StoredGraph

    if options.what == "build":
        with interrupted_after(lambda: f"{options.out} is not complete: run the same command again"):
            return _build(options)
    stored = StoredGraph(options.graph)
    if options.what == "check":
        return _check(stored, options.quiet)
    facts = _facts(stored)
    if options.json:
        print(json.dumps(facts, indent=2))
        return 0
    for name, value in facts.items():
        if isinstance(value, dict):
            print_lines(f"{name}:")
            for word, count in value.items():
                print_lines(f"  {count:14,}  {word}")
        else:
            print_lines(f"{value:16,}  {name}" if not isinstance(value, float) else f"{value:16.2f}  {name}")
    return 0


def _build(options: argparse.Namespace) -> int:
    from opicflow.connectors.files.vertices import VertexFile
    from opicflow.pipelines.ranks.link_graph import graph_of_ledger, graph_of_logs
    from opicflow.pipelines.ranks.numbered_graph import graph_of_numbered_edges
    from opicflow.pipelines.replay.state import read_ledger

    begun = time.perf_counter()
    plan, rules = plan_of(options)
    if bool(options.logs) == (options.links_of is not None):
        raise InputRefused("graph build: name logs, or a replay's state with --state DIR")
    if options.vertices is not None and options.links_of is not None:
        raise InputRefused("--vertices, --state: a state has no numbered edges: omit one")
    announce_compilation(options.quiet, "pipelines.ranks.graph.builder")
    reasons: dict[str, int] = {}
    are_reversed: bool | None = None
    if options.links_of is not None:
        ledger, rules = read_ledger(options.links_of)
        if not ledger.config.remember_links:
            raise InputRefused(f"{options.links_of}: its ledger remembers no links: replay with --remember-links")
        stored = graph_of_ledger(ledger, rules, options.out, plan, f"{options.links_of} {ledger.pages}")
    elif options.vertices is not None:
        vertices = VertexFile(options.vertices)
        with show_build(options.quiet) as progress:
            stored = graph_of_numbered_edges(options.logs, vertices, options.out, plan, rules, progress)
        are_reversed = vertices.is_reversed
    else:
        with show_build(options.quiet) as progress:
            stored, reasons = graph_of_logs(options.logs, options.out, plan, rules, progress, reading_of(options))
    seconds = time.perf_counter() - begun
    warn_without_links(stored, str(options.out))
    if options.json:
        rejects = {"rejects": sum(reasons.values()), "rejects_by_reason": reasons}
        hosts = {} if are_reversed is None else {"hosts_are_reversed": are_reversed}
        print(json.dumps({**_facts(stored), **rejects, **hosts, "seconds": round(seconds, 3)}, indent=2))
        return 0
    if are_reversed:
        print_lines(f"{options.vertices}: its hosts are reversed (com.example.www), as in files of Common Crawl")
    _print_built(stored, reasons, seconds)
    print_lines(f"written: {options.out}")
    return 0


def _print_built(stored: StoredGraph, reasons: dict[str, int], seconds: float) -> None:
    from opicflow.connectors.files.decoded import most_first

    counts = stored.manifest
    print_lines(
        f"{counted(stored.pages, 'page')}, {counted(stored.links, 'link')} in {stored.slices:,} "
        f"slice{'s' * (stored.slices != 1)}, {stored.bytes_of_links / max(stored.links, 1):.2f} bytes a link; "
        f"{seconds:,.1f} s"
    )
    print_lines(
        f"{counted(counts['read'], 'page')} with known links, {counts['dangling']:,} without any; dropped: "
        f"{counted(counts['to_themselves'], 'link')} of pages to themselves, {counts['merged']:,} repeated"
    )
    for reason, count in most_first(reasons).items():
        print_lines(f"  {count:10,}  rejected: {reason} (opicflow validate shows them)")


def _facts(stored: StoredGraph) -> dict[str, int | float | dict[str, int]]:
    import numpy as np

    from opicflow.pipelines.ranks.graph.store import NO_CATEGORY

    manifest = stored.manifest
    counts = np.bincount(stored.page_categories, minlength=NO_CATEGORY + 1)
    names = dict(enumerate(stored.categories))
    by_category = {names.get(number, "not known"): int(counts[number]) for number in np.flatnonzero(counts).tolist()}
    return {
        "pages": stored.pages,
        "links": stored.links,
        "pages_read": manifest["read"],
        "dangling": manifest["dangling"],
        "links_to_themselves": manifest["to_themselves"],
        "links_merged": manifest["merged"],
        "slices": stored.slices,
        "pages_a_slice": stored.slice_pages,
        "bytes": stored.bytes,
        "bytes_per_link": stored.bytes_of_links / max(stored.links, 1),
        "pages_by_category": by_category,
    }


def _check(stored: StoredGraph, quiet: bool) -> int:
    from opicflow.pipelines.replay.read_progress import Progress

    begun = time.perf_counter()
    display = ProgressDisplay(quiet)
    done = 0

    def show(size: int) -> None:
        nonlocal done
        done += size
        display.show(Progress(0, None, done, stored.bytes, "B", time.perf_counter() - begun))

    try:
        stored.check(show)
    finally:
        display.close()
    print_lines(
        f"{stored.path}: sound: {counted(stored.pages, 'page')}, {counted(stored.links, 'link')}, "
        "every byte as it was written"
    )
    return 0
