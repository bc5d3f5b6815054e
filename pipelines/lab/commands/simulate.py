"""`opicflow simulate`: the log of a crawl of a synthetic web. The same options give the same bytes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_quiet, moment
from opicflow.pipelines.cli.output_files import check_output
from opicflow.pipelines.cli.progress import ProgressDisplay, announce_compilation
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import natural, share, whole

if TYPE_CHECKING:
    from opicflow.pipelines.lab.experiments.simulated_log import Scenario, SimulatedCrawl, Site
    from opicflow.schemas.crawl_events import CrawlEvent

EXAMPLES = """examples:
  opicflow simulate --out crawl.avro                   100,000 visits of a web of 10,000 pages
  opicflow simulate --out crawl.jsonl.gz --web hosts --strategy greedy --announce 10 --not-modified 0.5
  opicflow simulate --out crawl.avro --edges links.tsv --visits 1000000 --ranks exact.csv
then, with a parameter of the papers (a table of all: docs/guides/simulate.md), compared with exact importance:
  opicflow replay crawl.avro --history variable --set measures=16 --out results
  opicflow replay crawl.avro --refresh-strategy thesis --set alpha=2 --set rates=thesis --out results
  opicflow compare results exact.csv
"""

_ENDINGS = (".jsonl", ".jsonl.gz", ".avro")
_PAGES, _LINKS, _DANGLING, _SEEDS = 10_000, 10.0, 0.1, 10
_EVENTS_BETWEEN_PROGRESS = 1 << 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="the log to write: .avro, .jsonl or .jsonl.gz"
    )
    parser.add_argument("--ranks", type=Path, metavar="FILE", help="also write the exact importance of all pages: CSV")
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="S", help="another seed, another crawl (%(default)s)"
    )
    add_quiet(parser)
    web = parser.add_argument_group("the web")
    web.add_argument("--web", choices=["power-law", "poisson", "hosts"], help="how pages link (power-law)")
    web.add_argument("--edges", metavar="FILE", help="the links of this edge list instead")
    web.add_argument("--pages", type=whole, metavar="N", help="how many (10000)")
    web.add_argument("--links", type=float, metavar="N", help="mean links of a page (10)")
    web.add_argument("--dangling", type=share, metavar="SHARE", help="of pages without links (0.1)")
    crawl = parser.add_argument_group("the crawl")
    crawl.add_argument("--visits", type=whole, default=100_000, metavar="N", help="how many (%(default)s)")
    crawl.add_argument(
        "--strategy",
        choices=["random", "cycle", "greedy", "xyleme", "breadth-first"],
        default="random",
        help="which page next; greedy = with the most waiting cash, xyleme = as often as important (%(default)s)",
    )
    crawl.add_argument(
        "--history",
        choices=["interpolation", "certified"],
        default="interpolation",
        help="of the ledger whose cash greedy and xyleme follow (%(default)s)",
    )
    crawl.add_argument(
        "--announce",
        type=_all_or_some,
        metavar="N",
        help="so many pages, and find the others by links; or all (all; breadth-first: 10)",
    )
    crawl.add_argument("--per-day", type=float, metavar="N", help="visits a day (every page once a week)")
    crawl.add_argument("--start", metavar="TIME", help="of the first visit (2026-01-01)")
    met = parser.add_argument_group("failures and changes")
    met.add_argument("--blocked", type=share, default=0.05, metavar="SHARE", help="of pages, by robots (%(default)s)")
    met.add_argument("--failing", type=share, default=0.02, metavar="SHARE", help="of all other visits (%(default)s)")
    met.add_argument("--never-read", type=share, default=0.0, metavar="SHARE", help="of pages (%(default)g)")
    met.add_argument(
        "--not-modified", type=share, default=0.0, metavar="SHARE", help="of servers: they answer 304 (%(default)g)"
    )


def _all_or_some(text: str) -> int:
    """Return a number of pages; 0 = all."""
    return 0 if text == "all" else whole(text)


def run(options: argparse.Namespace) -> int:
    """Write a crawl log and, with --ranks, the exact importance of its web."""
    from opicflow.pipelines.lab.experiments.simulated_log import (
        SimulatedCrawl,
        site_of_edges,
        write_exact_ranks,
        write_log,
    )
    from opicflow.pipelines.replay.read_progress import Progress

    begun = time.perf_counter()
    _check_files(options)
    announce_compilation(options.quiet, "pipelines.lab.web")
    try:
        site = site_of_edges(options.edges) if options.edges is not None else _synthetic_site(options)
        crawl = SimulatedCrawl(site, _scenario(options, site.graph.pages))
    except InputRefused:
        raise
    except ValueError as problem:
        raise InputRefused(_by_options(str(problem), options.links is None)) from None
    display = ProgressDisplay(options.quiet)

    def events() -> Iterator[CrawlEvent]:
        for event in crawl.events():
            yield event
            if crawl.written % _EVENTS_BETWEEN_PROGRESS == 0:
                seconds = time.perf_counter() - begun
                found = len(crawl.found)
                display.show(Progress(crawl.written, found, crawl.visited, options.visits, "visits", seconds))

    with closing(display):
        write_log(options.out, events())
    if options.ranks is not None:
        write_exact_ranks(options.ranks, site, crawl.unreadable)
    _print_summary(options, site, crawl, time.perf_counter() - begun)
    return 0


def _synthetic_site(options: argparse.Namespace) -> Site:
    from opicflow.pipelines.lab.experiments.simulated_log import WEBS, site_named

    pages = _PAGES if options.pages is None else options.pages
    links = _LINKS if options.links is None else options.links
    dangling = _DANGLING if options.dangling is None else options.dangling
    return site_named(options.web or WEBS[0], pages, options.seed, links, dangling)


def _scenario(options: argparse.Namespace, pages: int) -> Scenario:
    from opicflow.pipelines.lab.experiments.simulated_log import START_MS, Scenario, usual_rate

    seeds: int | None = options.announce
    if seeds is None and options.strategy == "breadth-first":
        seeds = min(_SEEDS, pages)
    start_ms = moment("--start", options.start)
    return Scenario(
        visits=options.visits,
        strategy=options.strategy,
        seeds=seeds or None,
        blocked=options.blocked,
        failing=options.failing,
        never_read=options.never_read,
        not_modified=options.not_modified,
        first_ms=START_MS if start_ms is None else start_ms,
        visits_per_day=options.per_day if options.per_day is not None else usual_rate(options.visits, pages),
        seed=options.seed,
        history=options.history,
    )


def _check_files(options: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    if not options.out.name.endswith(_ENDINGS):
        raise InputRefused(f"{options.out}: a log ends in {', '.join(_ENDINGS)}: name it so")
    check_output(options.out, "crawl.avro")
    if options.ranks is not None:
        if options.ranks.resolve() == options.out.resolve():
            raise InputRefused(f"{options.ranks}: both --out and --ranks: name two files")
        check_output(options.ranks, "ranks.csv")
    if options.edges is not None:
        for name in ("web", "pages", "links", "dangling"):
            if getattr(options, name) is not None:
                raise InputRefused(f"--{name}: an edge list defines that: omit this or --edges")


def _by_options(problem: str, has_default_links: bool) -> str:
    """A refusal in the words of the command line."""
    first, _, rest = problem.partition(" ")
    options = {"mean_links": "links", "visits_per_day": "per-day", "seeds": "announce"}
    names = ("strategy", "history", "dangling", "blocked", "failing", "never_read", "not_modified", *options)
    if first == "mean_links" and has_default_links:
        rest += " (the default)"
    return f"--{options.get(first, first).replace('_', '-')} {rest}" if first in names else problem


def _print_summary(options: argparse.Namespace, site: Site, crawl: SimulatedCrawl, seconds: float) -> None:
    from opicflow.pipelines.lab.experiments.simulated_log import MS_PER_DAY
    from opicflow.pipelines.ledger import Outcome

    words = {
        Outcome.FETCHED: "fetched",
        Outcome.UNCHANGED: "not modified",
        Outcome.FAILED: "failed",
        Outcome.BLOCKED: "blocked",
    }
    graph, scenario = site.graph, crawl.scenario
    counts = [(crawl.outcomes[outcome], word) for outcome, word in words.items()]
    days = (scenario.last_ms - scenario.first_ms) / MS_PER_DAY
    print_lines(
        f"{counted(graph.pages, 'page')}, {counted(graph.links, 'link')}; "
        f"{counted(len(crawl.found), 'page')} announced or found by links"
    )
    print_lines(
        f"{counted(crawl.visited, 'visit')} in {days:,.1f} days: {', '.join(f'{n:,} {word}' for n, word in counts)}"
    )
    print_lines("", f"{seconds:.1f} s, {crawl.written / seconds:,.0f} events/s")
    for path in (options.out, options.ranks):
        if path is not None:
            print_lines(f"written: {path}")
    print_lines(f"next:    opicflow replay {quote(str(options.out))}")
