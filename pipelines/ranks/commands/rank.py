"""`opicflow rank`: ranks of the pages or sites of a whole graph, or harmonic centrality, out of core."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from opicflow.connectors.files.locked_folder import temporary_folder
from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_json, add_list_form, add_reading, add_site_kind, reading_of
from opicflow.pipelines.cli.output_files import check_output
from opicflow.pipelines.cli.progress import Convergence, ProgressDisplay, announce_compilation
from opicflow.pipelines.cli.settings_table import shown_name
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import internal_weight, natural, share, whole
from opicflow.pipelines.ranks.graph_options import (
    add_graph_options,
    plan_of,
    show_build,
    size_of,
    warn_without_links,
)
from opicflow.pipelines.ranks.rank_report import list_sites, print_ranks, print_sites, ranks_as_json, sites_as_json

if TYPE_CHECKING:
    from opicflow.pipelines.ranks.graph.harmonic import HarmonicCentrality, HarmonicOptions
    from opicflow.pipelines.ranks.graph.solver import Rank
    from opicflow.pipelines.ranks.graph.store import StoredGraph
    from opicflow.pipelines.ranks.graph_ranks import RankOptions
    from opicflow.pipelines.ranks.site_ranks import SiteRankOptions

EXAMPLES = """examples:
  opicflow rank crawl.jsonl                                              PageRank of all pages
  opicflow rank web.graph --out ranks.csv --memory 256MB --ranks importance,interest:xml,hubs,authorities
  opicflow rank web.graph --out ranks.parquet --ranks importance:@hosts.txt --gauss-seidel
  opicflow rank web.graph --out ranks.csv --start yesterday.csv
  opicflow rank web.graph --by domain --out domains.csv                  PageRank of registrable domains
  opicflow rank web.graph --by host --as commoncrawl --out ranks.txt.gz  as Common Crawl writes its ranks
  opicflow rank web.graph --out harmonic.csv --measure harmonic          how near other pages are by links
  opicflow rank web.graph --by host --measure harmonic                   the same of hosts
"""

_SHOWN = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "logs", nargs="+", metavar="GRAPH|LOG", help="the folder of a graph, or crawl logs to build one from"
    )
    parser.add_argument(
        "--ranks",
        default="importance",
        metavar="LIST",
        help="with commas: importance, interest (also as the thesis prints it: interest-mean, interest-sum), hubs, "
        "authorities, eigenvector, eigenvector-loops; personal with a colon: interest:xml (a category), "
        "importance:@FILE (ranks by page, #COLUMN; or a .txt of hosts), interest:importance, "
        "interest:importance:xml; trust:@FILE, distrust:@FILE, spam-mass (%(default)s)",
    )
    parser.add_argument(
        "--good-share",
        type=share,
        metavar="S",
        help="of all pages, that those of trust stand for, in spam-mass (0.85)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write them: .csv, .jsonl (also .gz), .parquet")
    parser.add_argument("-n", "--top", type=natural, metavar="N", help="show so many pages or sites (10)")
    add_json(parser)
    sites = parser.add_argument_group("sites instead of pages")
    add_site_kind(sites, "add up pages to hosts, or to registrable domains (%(default)s)", ["page", "host", "domain"])
    sites.add_argument(
        "--site-links",
        choices=["links", "pages"],
        help="a link between sites weighs its links of pages, or the pages that have such links (links)",
    )
    sites.add_argument(
        "--internal",
        type=internal_weight,
        metavar="keep|drop|WEIGHT",
        help="links within a site count fully, not at all, or so much each (drop)",
    )
    add_list_form(sites)
    how = parser.add_argument_group("how")
    how.add_argument("--damping", type=float, default=0.85, metavar="D", help="the share that links get (%(default)s)")
    how.add_argument(
        "--dangling",
        choices=["teleport", "normalise"],
        default="teleport",
        help="the rank of dangling pages goes to all pages, or is lost and all ranks are scaled, eq. 2.6 (%(default)s)",
    )
    how.add_argument(
        "--tolerance", type=float, default=1e-9, metavar="E", help="stop at this residual, in L1 (%(default)g)"
    )
    how.add_argument("--max-iterations", type=whole, default=1000, metavar="N", help="or after so many (%(default)s)")
    how.add_argument("--start", type=Path, metavar="FILE", help="begin with the ranks of this file")
    how.add_argument("--gauss-seidel", action="store_true", help="of importance: use new slices as soon as computed")
    how.add_argument(
        "--work", type=Path, metavar="DIR", help="the folder of vectors, from which a killed run continues (GRAPH)"
    )
    _add_measure_options(parser)
    add_reading(parser)
    add_graph_options(parser)
    parser.set_defaults(defaults_of_builds={name: parser.get_default(name) for name in _OF_BUILDS})


def run(options: argparse.Namespace) -> int:
    """Compute ranks of a graph, or of the graph of logs."""
    _check_measure(options)
    begun = time.perf_counter()
    how = _rank_options(options)
    _check_output(options)
    if options.by == "page":
        _check_pages(options, how)
        kernels = "harmonic" if options.measure == "harmonic" else "scans"
        announce_compilation(options.quiet, f"pipelines.ranks.graph.{kernels}")
        with _graph_of(options) as stored:
            _rank_pages(options, how, stored, begun)
    else:
        of_sites = _site_options(options, how)
        announce_compilation(options.quiet, "pipelines.ranks.graph.site_graph")
        with _graph_of(options) as stored:
            _rank_sites(options, of_sites, stored, begun)
    return 0


def _rank_pages(options: argparse.Namespace, how: RankOptions, stored: StoredGraph, begun: float) -> None:
    from opicflow.connectors.files.rank_writer import write_ranks
    from opicflow.pipelines.ranks.graph.harmonic import harmonic_within
    from opicflow.pipelines.ranks.graph_ranks import Ranker
    from opicflow.pipelines.ranks.graph_rows import top_pages, value_rows

    with closing(_RankDisplay(options)) as display:
        ranked: Sequence[Rank | HarmonicCentrality]
        if options.measure == "harmonic":
            ranker, harmonic = None, _harmonic_options(options)
            ranked = [harmonic_within(stored, "page", harmonic, how.memory_bytes, display)]
        else:
            ranker = Ranker(stored, how, display.show_iterations)
            ranked = ranker.ranks()
        if options.out is not None:
            write_ranks(options.out, [one.name for one in ranked], value_rows(stored, [one.values for one in ranked]))
        if ranker is not None:
            ranker.clean()
    seconds = time.perf_counter() - begun
    top = _SHOWN if options.top is None else options.top
    if options.json:
        computed = {"pages": stored.pages, "links": stored.links, **ranks_as_json(ranked)}
        tops = {one.name: top_pages(stored, one.values, top) for one in ranked}
        print(json.dumps({**computed, "seconds": round(seconds, 3), "top": tops}, indent=2))
        return
    print_ranks(stored, ranked, top, seconds)
    if options.out is not None:
        print_lines(f"written: {options.out}, {counted(stored.pages, 'page')}")


def _rank_sites(options: argparse.Namespace, how: SiteRankOptions, stored: StoredGraph, begun: float) -> None:
    from opicflow.connectors.files.rank_writer import write_table
    from opicflow.connectors.files.site_lists import write_site_list
    from opicflow.pipelines.ranks.site_ranks import rank_sites

    with closing(_RankDisplay(options)) as display:
        ranked = rank_sites(stored, how, display)
    if options.form is not None:
        write_site_list(options.out, options.form, list_sites(ranked, options.top))
        if options.out is None:
            return
    elif options.out is not None:
        write_table(options.out, ranked.rows())
    seconds = time.perf_counter() - begun
    top = ranked.top(_SHOWN if options.top is None else options.top)
    if options.json:
        name = "harmonic" if how.is_by_harmonic else "importance"
        print(json.dumps({**sites_as_json(stored, how, ranked, seconds), "top": {name: top}}, indent=2))
        return
    print_sites(stored, how, ranked, top, seconds)
    if options.out is not None:
        count = ranked.graph.sites if options.form is None else len(ranked.order[: options.top])
        print_lines(f"written: {options.out}, {counted(count, how.rules.by)}")


def _rank_options(options: argparse.Namespace) -> RankOptions:
    from opicflow.pipelines.ranks.graph.solver import Settings
    from opicflow.pipelines.ranks.graph_ranks import RankOptions, parse_ranks

    return RankOptions(
        ranks=parse_ranks(options.ranks),
        settings=Settings(
            damping=options.damping,
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            dangling=options.dangling,
            gauss_seidel=options.gauss_seidel,
        ),
        memory_bytes=size_of(options.memory),
        start=options.start,
        work=options.work,
        **({} if options.good_share is None else {"good_share": options.good_share}),
    )


def _check_output(options: argparse.Namespace) -> None:
    from opicflow.connectors.files.rank_writer import check_name_of_ranks

    if options.form is not None and options.by == "page":
        raise InputRefused(f"--as {options.form}: it is a list of sites: give --by host or --by domain")
    if options.form is not None and options.out is None and options.json:
        raise InputRefused("--as, --json: both write to standard output: name a file with --out, or omit one")
    if options.out is not None:
        if options.form is None:
            check_name_of_ranks(options.out)
        check_output(options.out, "ranks.csv")


def _check_pages(options: argparse.Namespace, how: RankOptions) -> None:
    for name in ("site_links", "internal"):
        if getattr(options, name) is not None:
            raise InputRefused(f"{shown_name(name, options.settings)}: it is for sites: give --by host or --by domain")
    if options.good_share is not None and not any(one.called == "spam_mass" for one in how.ranks):
        raise InputRefused("--good-share: it is for spam mass: add spam-mass to --ranks, or omit it")


def _site_options(options: argparse.Namespace, how: RankOptions) -> SiteRankOptions:
    """Return how sites are ranked; refuse what only ranks of pages have."""
    from opicflow.pipelines.ranks.graph.site_graph import SiteRules
    from opicflow.pipelines.ranks.graph_ranks import RankSpec
    from opicflow.pipelines.ranks.site_ranks import SiteRankOptions

    if how.ranks != (RankSpec("importance"),):
        raise InputRefused(f"--ranks, --by {options.by}: sites have one rank, importance: omit --ranks")
    if options.good_share is not None:
        raise InputRefused(f"--good-share, --by {options.by}: sites have no spam mass: omit it")
    if how.start:
        raise InputRefused(f"--start, --by {options.by}: sites are ranked from the start: omit it")
    rules = SiteRules(options.by, options.site_links or "links", options.internal or 0.0)
    return SiteRankOptions(
        rules,
        how.settings if _has_importance(options) else None,
        _harmonic_options(options) if _has_harmonic(options) else None,
        options.measure == "harmonic",
        how.memory_bytes,
        options.work,
    )


def _has_importance(options: argparse.Namespace) -> bool:
    """Whether importance is computed: Common Crawl's lists of sites have it beside harmonic centrality."""
    return bool(options.measure == "pagerank" or (options.by != "page" and options.form == "commoncrawl"))


def _has_harmonic(options: argparse.Namespace) -> bool:
    """Whether harmonic centrality is computed."""
    return bool(options.measure == "harmonic" or (options.by != "page" and options.form == "commoncrawl"))


def _harmonic_options(options: argparse.Namespace) -> HarmonicOptions:
    from opicflow.pipelines.ranks.graph.harmonic import DEFAULT_LOG2, HarmonicOptions

    return HarmonicOptions(
        DEFAULT_LOG2 if options.registers is None else options.registers,
        1 if options.seed is None else options.seed,
        options.exact,
        options.max_iterations,
    )


@contextmanager
def _graph_of(options: argparse.Namespace) -> Iterator[StoredGraph]:
    """Open the graph that was named, or build one from logs and remove it afterwards."""
    from opicflow.pipelines.ranks.graph.store import StoredGraph
    from opicflow.pipelines.ranks.link_graph import graph_of_logs

    folders = [path for path in map(Path, options.logs) if path.is_dir()]
    if folders:
        if len(options.logs) > 1:
            raise InputRefused(f"{folders[0]}: a folder: name one graph, or logs")
        for name, default in options.defaults_of_builds.items():
            if getattr(options, name) != default and name not in options.configured:
                raise InputRefused(
                    f"{shown_name(name, options.settings)}: {folders[0]} is built already: build it so, or omit it"
                )
        stored = StoredGraph(folders[0])
        warn_without_links(stored, str(folders[0]))
        yield stored
        return
    if options.work is not None and not options.work.is_dir():
        raise InputRefused(f"--work {options.work}: there is no such folder: make it, or name another one")
    with temporary_folder("opicflow-rank-", options.work) as folder:
        plan, rules = plan_of(options)
        with show_build(options.quiet) as progress:
            stored, reasons = graph_of_logs(options.logs, folder / "graph", plan, rules, progress, reading_of(options))
        if reasons:
            print_lines(
                f"{counted(sum(reasons.values()), 'event')} rejected: opicflow validate shows them", file=sys.stderr
            )
        warn_without_links(stored, options.logs[0])
        yield stored


class _RankDisplay(ProgressDisplay):
    """Shows how far ranks are, and the time left: as the residuals suggest it, or as what is done of all."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options.quiet)
        self._noun, self._tolerance = options.by, options.tolerance
        self._begun = time.perf_counter()
        self._convergence: dict[str, Convergence] = {}

    def show_iterations(self, name: str, iterations: float, residual: float) -> None:
        """Show the iterations of a rank."""
        seconds = time.perf_counter() - self._begun
        one = self._convergence.setdefault(name, Convergence(self._tolerance))
        words = f"{name}: {iterations:,.0f} iterations, residual {residual:.1e}"
        self.show_words(words, seconds, one.share(residual), one.left_seconds(residual, seconds))

    def show_folding(self, done: int, of: int) -> None:
        """Show how much of the scan of the links is done."""
        self._show_part("adding up links of sites", done, of)
        if done == of:
            self.close()
            self._begun = time.perf_counter()

    def show_search(self, done: int, of: int) -> None:
        """Show how many searches for exact harmonic centrality are done."""
        self._show_part(f"harmonic: {counted(done, self._noun)}", done, of)

    def show_scan(self, radius: int, growing: int) -> None:
        """Show a scan for harmonic centrality, and how many balls still grow."""
        words = f"harmonic: radius {radius:,}, {counted(growing, self._noun)} with a growing ball"
        self.show_words(words, time.perf_counter() - self._begun)

    def _show_part(self, words: str, done: int, of: int) -> None:
        seconds = time.perf_counter() - self._begun
        self.show_words(words, seconds, done / of, seconds * (of / done - 1))


# -- harmonic centrality -----------------------------------------------------------------------------------------------


_OF_IMPORTANCE = ("damping", "dangling", "tolerance", "gauss_seidel", "site_links", "internal")
"""Options of importance, of pages and of sites."""
_OF_PAGES = ("ranks", "good_share", "start")
"""Options of ranks that pages alone have, and harmonic centrality has not."""
_OF_BUILDS = (
    "input_format",
    "field",
    "slice_pages",
    "ranks_at_once",
    "both_ways",
    "category",
    "drop_parameters",
    "fold_www",
    "fold_https",
    "internal_weight",
    "external_weight",
    "nofollow_weight",
    "same_site",
)
"""Options without a meaning for a graph that is built already."""


def _add_measure_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("harmonic centrality instead of the ranks above (docs/guides/ranks.md)")
    group.add_argument(
        "--measure",
        choices=["pagerank", "harmonic"],
        default="pagerank",
        help="pagerank: those of --ranks; harmonic: each page that leads to a page, over its distance (%(default)s)",
    )
    group.add_argument(
        "--registers",
        type=natural,
        metavar="B",
        help="2^B registers a page, from 4 to 14; 8, the default: a standard error of 6.5 %%; each 2 more halve it",
    )
    group.add_argument("--seed", type=natural, metavar="N", help="of the hash of pages (1)")
    group.add_argument("--exact", action="store_true", help="exact values, for graphs of some ten thousand pages")
    parser.set_defaults(defaults_of_pagerank={name: parser.get_default(name) for name in (*_OF_IMPORTANCE, *_OF_PAGES)})


def _check_measure(options: argparse.Namespace) -> None:
    """Refuse options of a measure that is not computed."""
    if options.measure == "harmonic":
        for name, default in options.defaults_of_pagerank.items():
            is_used = name in _OF_IMPORTANCE and _has_importance(options)
            if getattr(options, name) != default and name not in options.configured and not is_used:
                raise InputRefused(
                    f"{shown_name(name, options.settings)}: harmonic centrality does not use it: omit it"
                )
    if options.exact and (options.registers, options.seed) != (None, None):
        raise InputRefused("--exact: exact values need no --registers and no --seed: omit them")
    if options.registers is not None:
        from opicflow.pipelines.ranks.graph.harmonic import FEWEST_LOG2, MOST_LOG2

        if not FEWEST_LOG2 <= options.registers <= MOST_LOG2:
            raise InputRefused(f"--registers {options.registers}: give a number from {FEWEST_LOG2} to {MOST_LOG2}")
    for name in ("registers", "seed", "exact"):
        if getattr(options, name) not in (None, False) and not _has_harmonic(options):
            raise InputRefused(f"--{name}: it is for harmonic centrality: give --measure harmonic too")
