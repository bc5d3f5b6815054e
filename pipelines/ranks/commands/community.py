"""`opicflow community`: the global ranks of a local domain, by reading a few more pages (paper 004)."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from opicflow.connectors.files.opening import InputRefused
from opicflow.pipelines.cli.options import add_json, add_quiet, add_reading, add_rule_options, reading_of, rules_of
from opicflow.pipelines.cli.output_files import check_output
from opicflow.pipelines.cli.parser import add_command
from opicflow.pipelines.cli.progress import ProgressDisplay, announce_compilation
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.values import natural, whole
from opicflow.pipelines.ranks.graph.community import (
    Expansion,
    LocalFrontier,
    RecordedWeb,
    Select,
    chance,
    chosen,
    expected_ranks,
    find_global_ranks,
    flows,
    influence,
    linkers,
    ranks_of,
)
from opicflow.pipelines.ranks.graph.comparison import kendall_tau, l1, linf
from opicflow.schemas.arrays import Floats, Ids, highest
from opicflow.schemas.urls import canonical
from opicflow.schemas.urls import host as host_of

if TYPE_CHECKING:
    from opicflow.connectors.files.rank_writer import RankRows
    from opicflow.pipelines.ranks.crawled_web import Crawled
    from opicflow.pipelines.ranks.graph.oracle import PageRanks
    from opicflow.pipelines.stages.rules import Rules
    from opicflow.schemas.columns import Columns

EXAMPLES = """examples:
  opicflow community plan --local hosts.txt --from own.jsonl --pages 500 --out orders.jsonl    what to read next
  opicflow community plan --local hosts.txt --from own.jsonl fetched.jsonl --pages 500         and then
  opicflow community rank --local hosts.txt --from own.jsonl fetched.jsonl --out ranks.csv     as in the whole web
  opicflow community impact --local hosts.txt --state state                                    candidates to join it
  opicflow community try --local hosts.txt --from crawl.jsonl --pages 100 --rounds 20          is it worth it?

hosts.txt names the local domain: a host or the URL of a page a line.
"""


_Answer: TypeAlias = "tuple[dict[str, object], list[str]]"
"""What `--json` prints, and the lines that are printed otherwise."""

_TRIED = ("influence", "flow", "linkers", "random")
_TOLERANCE = 1e-9
_ROWS_AT_ONCE = 1 << 16
_MOST_LINES = 10_000_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the command, and their options."""
    whats = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    for name, help_ in (
        ("plan", "write the pages to read next, as crawl orders"),
        ("rank", "rank the local domain as the whole web would, as far as it was read"),
        ("impact", "list the other pages that give most to the local domain"),
        ("try", "measure with a crawl that you have how many pages are enough"),
    ):
        what = add_command(whats, name, help_)
        what.add_argument(
            "--local", type=Path, required=True, metavar="FILE", help="the local domain: a host or a URL a line"
        )
        what.add_argument(
            "--from",
            dest="logs",
            nargs="+",
            metavar="LOG",
            help="crawl logs of all that was read: JSON lines, Avro, WARC, WAT or edge lists; - for standard input",
        )
        what.add_argument(
            "--state", dest="links_of", type=Path, metavar="DIR", help="a replay's state with --remember-links instead"
        )
        if name in ("plan", "try"):
            what.add_argument(
                "--pages", type=whole, required=True, metavar="K", help="how many" + " a round" * (name == "try")
            )
            what.add_argument("--seed", type=natural, default=0, metavar="N", help="of random (%(default)s)")
        if name == "plan":
            what.add_argument(
                "--select",
                choices=["influence", "flow", "linkers", "importance", "random"],
                default="influence",
                help="the pages that change the local ranks most; that receive most; that most pages link to; that the "
                "ledger of --state finds most important; any (%(default)s)",
            )
            what.add_argument("--out", type=Path, metavar="FILE", help="write the orders: .jsonl or .avro")
        if name == "try":
            what.add_argument("--rounds", type=whole, default=20, metavar="T", help="how many (%(default)s)")
        if name == "rank":
            what.add_argument("--out", type=Path, metavar="FILE", help="write them: .csv, .jsonl (also .gz), .parquet")
        if name != "try":
            what.add_argument("-n", "--top", type=natural, default=10, metavar="N", help="show so many (%(default)s)")
        what.add_argument(
            "--damping", type=float, default=0.85, metavar="D", help="the share that links get (%(default)s)"
        )
        add_json(what)
        add_quiet(what)
        add_reading(what)
        add_rule_options(what)


def run(options: argparse.Namespace) -> int:
    """Plan the next pages, rank the domain, list impact, or try selections."""
    from opicflow.connectors.files.rank_writer import check_name_of_ranks

    begun = time.perf_counter()
    if (options.logs is None) == (options.links_of is None):
        raise InputRefused(f"community {options.what}: name logs with --from, or a replay's state with --state")
    if not 0.0 < options.damping < 1.0:
        raise InputRefused(f"--damping {options.damping}: must be above 0 and below 1")
    if getattr(options, "select", "") == "importance" and options.links_of is None:
        raise InputRefused("--select importance: only a ledger has it: give the state of a replay with --state")
    if getattr(options, "out", None) is not None:
        if options.what == "rank":
            check_name_of_ranks(options.out)
        elif not options.out.name.endswith((".jsonl", ".avro")):
            raise InputRefused(f"{options.out}: orders end in .jsonl or .avro: name it so")
        check_output(options.out, "ranks.csv" if options.what == "rank" else "orders.jsonl")
    announce_compilation(options.quiet, "pipelines.ranks.graph.oracle")
    surroundings = _Surroundings.read(options)
    what = {"plan": _plan, "rank": _rank, "impact": _impact, "try": _try}[options.what]
    summary, lines = what(surroundings, options)
    summary["seconds"] = round(time.perf_counter() - begun, 3)
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        print_lines(*lines)
    return 0


# -- input -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Surroundings:
    """The links that a crawl read, and the ids of the local domain in ascending order, read or not."""

    crawled: Crawled
    local: Ids
    damping: float

    @classmethod
    def read(cls, options: argparse.Namespace) -> _Surroundings:
        """Read the logs, or the state."""
        from opicflow.pipelines.ranks.crawled_web import crawled_in_ledger, crawled_in_logs
        from opicflow.pipelines.stages.rules import Rules

        if options.links_of is not None:
            from opicflow.pipelines.replay.state import read_ledger

            ledger, rules = read_ledger(options.links_of)
            if not ledger.config.remember_links:
                raise InputRefused(
                    f"{options.links_of}: its ledger remembers no links: replay with --remember-links, or use --from"
                )
            crawled = crawled_in_ledger(ledger)
        else:
            rules = rules_of(options) or Rules()
            display = ProgressDisplay(options.quiet)
            try:
                crawled = crawled_in_logs(
                    options.logs,
                    rules,
                    lambda events, seconds: display.show_words(f"{counted(events, 'event')} read", seconds),
                    reading_of(options),
                )
            finally:
                display.close()
        if crawled.rejects:
            print_lines(f"{counted(crawled.rejects, 'event')} rejected: opicflow validate shows them", file=sys.stderr)
        hosts, pages = local_of(options.local, rules)
        local = np.union1d(crawled.urls.of_hosts(hosts), pages)
        if not np.isin(crawled.fetched.pages, local).any():
            where = options.links_of or ", ".join(options.logs)
            raise InputRefused(
                f"{options.local}: none of its pages is in {str(where)[:200]}: name hosts as they are in URLs"
            )
        return cls(crawled, local, options.damping)

    def expanded(self, only_local: bool = False) -> Expansion:
        """Return the expansion to all pages that were read, or to the local ones alone."""
        fetched, expansion = self.crawled.fetched, Expansion()
        is_local = np.isin(fetched.pages, self.local, assume_unique=True)
        if only_local:
            fetched = RecordedWeb(fetched).fetch(fetched.pages[is_local])
            is_local = is_local[is_local]
        expansion.add(fetched, is_local)
        return expansion

    def counts(self, frontier: LocalFrontier) -> dict[str, int]:
        """Return the numbers of pages."""
        return {
            "local_pages": int(frontier.is_local.sum()),
            "other_pages": int((~frontier.is_local).sum()),
            "failed": len(self.crawled.fetched.failed),
            "frontier": len(frontier.pages),
            "frontier_local": int(np.isin(frontier.pages, self.local, assume_unique=True).sum()),
        }

    def in_words(self, frontier: LocalFrontier) -> str:
        """Return the counts as a sentence."""
        counts = self.counts(frontier)
        inside = f", {counts['frontier_local']:,} of the local domain" if counts["frontier_local"] else ""
        return (
            f"read: {counted(counts['local_pages'], 'page')} of the local domain, {counts['other_pages']:,} others; "
            f"{counts['failed']:,} failed; frontier: {counted(counts['frontier'], 'page')}{inside}"
        )

    def names(self, pages: Ids) -> list[str]:
        """Return the URL of each page, or its id."""
        texts = self.crawled.urls.texts(pages)
        return [text or f"{page:016x}" for text, page in zip(texts, pages.tolist(), strict=True)]


def local_of(path: Path, rules: Rules) -> tuple[list[bytes], Ids]:
    """Return the hosts and pages that a file names: a host or a URL a line; # starts a comment."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as problem:
        raise InputRefused(f"{path}: cannot be read ({problem.strerror}): name another file") from None
    if len(lines) > _MOST_LINES:
        raise InputRefused(f"{path}: more than {_MOST_LINES:,} lines: name hosts rather than pages")
    hosts, pages = [], []
    for number, line in enumerate(lines, 1):
        word = b" ".join(line.split()).split(b" #")[0]
        if not word or word.startswith(b"#"):
            continue
        try:
            text = word.decode("utf-8")
            if "://" in text:
                pages.append(canonical(text, rules=rules.urls))
            else:
                page = canonical(f"http://{text}/", rules=rules.urls)
                if page != b"http://" + host_of(page) + b"/":
                    raise ValueError
                hosts.append(host_of(page))
        except ValueError:
            raise InputRefused(
                f"{path}, line {number}: neither a host nor a URL: write it like example.org or https://example.org/a"
            ) from None
    if not hosts and not pages:
        raise InputRefused(f"{path}: no host in it: name one a line, or the URLs of pages")
    return hosts, rules.page_ids.of_all(pages)


def _ranked(frontier: LocalFrontier, damping: float) -> PageRanks:
    return ranks_of(frontier, damping, _TOLERANCE)


# -- plan --------------------------------------------------------------------------------------------------------------


def _selection(name: str, options: argparse.Namespace, crawled: Crawled) -> Select:
    """Return the scores of the selection with this name."""
    if name == "influence":
        return lambda frontier, ranks, round_: influence(frontier, ranks, options.damping)
    if name == "flow":
        return lambda frontier, ranks, round_: flows(frontier, ranks)
    if name == "linkers":
        return lambda frontier, ranks, round_: linkers(frontier)
    if name == "importance":
        return partial(_importance, crawled)
    return lambda frontier, ranks, round_: chance(frontier, options.seed, round_)


def _importance(crawled: Crawled, frontier: LocalFrontier, ranks: Floats, round_: int) -> Floats:
    """Return the importance of unread pages in a ledger."""
    assert crawled.importance is not None
    found: Floats = crawled.importance[np.searchsorted(crawled.urls.pages, frontier.pages)]
    return found


def _plan(surroundings: _Surroundings, options: argparse.Namespace) -> _Answer:
    """Order the pages of the frontier with the highest scores."""
    from opicflow.pipelines.results.files import write_records

    crawled, frontier = surroundings.crawled, surroundings.expanded().frontier()
    ranks = _ranked(frontier, options.damping)
    scores = _selection(options.select, options, crawled)(frontier, ranks.values, 1)
    has_url = np.array([text != "" for text in crawled.urls.texts(frontier.pages)], np.bool_)
    with_url = int(has_url.sum())
    pages = chosen(frontier, np.where(has_url, scores, -1.0), min(options.pages, with_url))
    at = np.searchsorted(frontier.pages, pages)
    expected = expected_ranks(frontier, ranks.values, options.damping)
    urls = crawled.urls.texts(pages)
    if options.out is not None:
        moment = crawled.newest_ms
        columns = _order_columns(urls, pages, scores[at], expected[at], moment)
        write_records(options.out, options.out.suffix[1:], "CrawlOrder", iter([columns] if urls else []))
    shown = [
        {"url": url, "page": f"{page:016x}", options.select: score, "expected_rank": rank}
        for url, page, score, rank in zip(urls, pages.tolist(), scores[at].tolist(), expected[at].tolist(), strict=True)
    ]
    summary = {**surroundings.counts(frontier), "ordered": len(urls), "select": options.select}
    lines = [surroundings.in_words(frontier), f"{counted(len(urls), 'page')} ordered by {options.select}:"]
    lines += [f"  {row[options.select]:.3e}  {row['url']}" for row in shown[: options.top]]
    if len(urls) < options.pages:
        without = len(frontier.pages) - with_url
        more = f", besides {without:,} whose URL is not known" if without else ""
        lines.append(f"these orders are the whole frontier{more}")
    if options.out is not None:
        lines.append(f"written: {options.out}")
    return {**summary, "orders": shown[: options.top]}, lines


def _order_columns(urls: list[str], pages: Ids, scores: Floats, ranks: Floats, moment_ms: int) -> Columns:
    """Return the columns of `CrawlOrder` records; the priority is the score."""
    nothing: list[object] = [None] * len(urls)
    return {
        "url": urls,
        "page": [f"{page:016x}" for page in pages.tolist()],
        "ordered_at": [moment_ms] * len(urls),
        "why": ["DISCOVERY"] * len(urls),
        "priority": scores.tolist(),
        "due": nothing,
        "expires_at": nothing,
        "importance": ranks.tolist(),
        "waiting_cash": [0] * len(urls),
        "category": nothing,
        "last_visit": nothing,
        "shard": [0] * len(urls),
        "not_before": nothing,
        "host": [url.split("/", 3)[2] for url in urls],
        "by": [""] * len(urls),
    }


# -- rank and impact ---------------------------------------------------------------------------------------------------


def _rank(surroundings: _Surroundings, options: argparse.Namespace) -> _Answer:
    """Return the ranks of the local domain, with the sum 1."""
    from opicflow.connectors.files.rank_writer import write_ranks

    frontier = surroundings.expanded().frontier()
    ranks = _ranked(frontier, options.damping)
    estimate = frontier.local_ranks(ranks.values)
    if options.out is not None:
        write_ranks(options.out, ["importance"], _rank_rows(surroundings, estimate.pages, estimate.values))
    best = highest(estimate.values, estimate.pages, options.top)
    top = [
        {"url": url, "page": f"{page:016x}", "rank": rank}
        for url, page, rank in zip(
            surroundings.names(estimate.pages[best]),
            estimate.pages[best].tolist(),
            estimate.values[best].tolist(),
            strict=True,
        )
    ]
    summary = {**surroundings.counts(frontier), "residual": ranks.residual, "iterations": ranks.iterations, "top": top}
    lines = [surroundings.in_words(frontier), "importance within the local domain:"]
    lines += [f"  {row['rank']:.9f}  {row['url']}" for row in top]
    if options.out is not None:
        lines.append(f"written: {options.out}, {counted(len(estimate.pages), 'page')}")
    return summary, lines


def _rank_rows(surroundings: _Surroundings, pages: Ids, values: Floats) -> Iterator[RankRows]:
    from opicflow.connectors.files.rank_writer import RankRows

    for first in range(0, len(pages), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        yield RankRows(surroundings.crawled.urls.texts(pages[some]), pages[some], [values[some]])


def _impact(surroundings: _Surroundings, options: argparse.Namespace) -> _Answer:
    """Return the other pages that give most to the local domain."""
    expansion = surroundings.expanded()
    frontier = expansion.frontier()
    ranks = _ranked(frontier, options.damping).values
    impact = expansion.impact(ranks)
    rows = np.flatnonzero(~frontier.is_local & (impact > 0.0))
    rows = rows[highest(impact[rows], frontier.ids[rows], options.top)]
    pages = frontier.ids[rows]
    impacts = list(zip(surroundings.names(pages), impact[rows].tolist(), ranks[rows].tolist(), strict=True))
    lines = [surroundings.in_words(frontier)]
    if not impacts:
        lines.append("no other page that was read links to the local domain")
    else:
        lines.append("impact, and its share of the page's rank:")
    lines += [f"  {value:.3e}  {value / rank:4.0%}  {url}" for url, value, rank in impacts]
    shown = [
        {"url": url, "page": f"{page:016x}", "impact": value, "rank": rank}
        for page, (url, value, rank) in zip(pages.tolist(), impacts, strict=True)
    ]
    return {**surroundings.counts(frontier), "pages": shown}, lines


# -- try ---------------------------------------------------------------------------------------------------------------


class _TriedRound(NamedTuple):
    """A round of a selection, and how far its ranks are from those of the whole crawl."""

    select: str
    round: int
    read: int
    failed: int
    l1: float
    linf: float
    kendall_tau: float | None


def _try(surroundings: _Surroundings, options: argparse.Namespace) -> _Answer:
    """Run FindGlobalPR for each selection from the local pages, with the pages of the crawl as the web."""
    frontier = surroundings.expanded().frontier()
    exact = frontier.local_ranks(_ranked(frontier, options.damping).values)
    web = RecordedWeb(surroundings.crawled.fetched)
    rows: list[_TriedRound] = []
    for name in _TRIED:
        select = _selection(name, options, surroundings.crawled)
        read = 0
        for step in find_global_ranks(
            surroundings.expanded(only_local=True), web, select, options.rounds, options.pages, options.damping
        ):
            read += step.fetched
            found = step.estimate.values
            distances = l1(found, exact.values), linf(found, exact.values), kendall_tau(found, exact.values)
            rows.append(_TriedRound(name, step.number, read, step.failed, *distances))
    lines = [
        surroundings.in_words(frontier),
        "",
        "distance from the ranks of the whole crawl: L1 is the sum of all differences, worst that of one page",
        "select      round      read  L1        worst     Kendall's tau",
    ]
    for name in _TRIED:
        some = [row for row in rows if row.select == name]
        shown: Sequence[int] = np.unique(np.linspace(0, len(some) - 1, 6).astype(int)).tolist()
        for row in (some[at] for at in shown):
            tau = "-" if row.kendall_tau is None else f"{row.kendall_tau:.4f}"
            lines.append(f"{name:10}  {row.round:5}  {row.read:8,}  {row.l1:.6f}  {row.linf:.6f}  {tau}")
    return {**surroundings.counts(frontier), "rounds": [row._asdict() for row in rows]}, lines
