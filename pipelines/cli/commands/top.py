"""`opicflow top`: the most important pages or sites of a state, or the sites of a file of ranks."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opicflow.connectors.files.opening import STDIN, InputRefused
from opicflow.pipelines.cli.options import add_json, add_list_form, add_site_kind, add_state_options, state_of
from opicflow.pipelines.cli.output_files import check_output, file_or_stdout
from opicflow.pipelines.cli.text import counted, print_lines
from opicflow.pipelines.cli.text_tables import first_rows, print_pages
from opicflow.pipelines.cli.values import natural

if TYPE_CHECKING:
    from opicflow.pipelines.replay.answers import Answers
    from opicflow.pipelines.results.record_columns import Pages, SiteTotals

EXAMPLES = """examples:
  opicflow top --state state -n 20
  opicflow top --state state --unread                  the most important pages that were never read
  opicflow top --state state --by host                 the most important hosts
  opicflow top ranks.csv --by domain --as tranco       a list of domains from a file of ranks
"""

_SHOWN = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("file", nargs="?", metavar="FILE", help="a file of ranks instead of a state: only with --by")
    add_state_options(parser)
    parser.add_argument("-n", "--top", type=natural, metavar="N", help="how many (10; all of a list)")
    add_site_kind(parser, "hosts or registrable domains instead of pages, by the sum of their pages")
    parser.add_argument("--rank", default="importance", metavar="NAME", help="the column of FILE (%(default)s)")
    parser.add_argument("--unread", action="store_true", help="only pages that were never read")
    add_list_form(parser)
    parser.add_argument("--out", type=file_or_stdout, metavar="FILE", help="where to write the list: .gz compresses it")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the most important pages, or sites, of a state or a file of ranks."""
    from opicflow.pipelines.replay.answers import read_answers

    _check(options)
    if options.by is not None:
        _print_sites(options, _sites_of_file(options) if options.file else _sites_of_state(options))
        return 0
    from opicflow.pipelines.results.record_columns import importance_columns
    from opicflow.schemas.columns import plain_rows

    answers, _ = read_answers(state_of(options))
    pages = _pages_of(answers, options.unread)
    top = _SHOWN if options.top is None else options.top
    if options.json:
        parts = map(importance_columns, first_rows(pages, top))
        print(json.dumps([row for part in parts for row in plain_rows(part)], indent=2))
    else:
        print_pages(first_rows(pages, top))
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.file is not None:
        if options.by is None:
            raise InputRefused(
                f"{options.file}: a file of ranks: give --by host or --by domain, or a state: --state DIR"
            )
        if options.unread:
            raise InputRefused(f"--unread, {options.file}: it is for the pages of a state: omit it")
        if options.state is not None and "state" not in options.configured:
            raise InputRefused(f"{options.file}, --state: both have ranks: name one")
    elif options.rank != "importance":
        raise InputRefused("--rank: it is a column of a file of ranks: name the file")
    if options.form is not None and options.by is None:
        raise InputRefused(f"--as {options.form}: it is a list of sites: give --by host or --by domain")
    if options.out is not None and options.form is None:
        raise InputRefused("--out: it is for lists of sites: give --as tranco or --as commoncrawl")
    if options.form is not None and options.json:
        raise InputRefused("--as, --json: a list has a form of its own: omit one")
    if options.out is not None:
        check_output(options.out, "sites.csv")


def _pages_of(answers: Answers, only_unread: bool) -> Iterator[Pages]:
    """Yield the pages, the most important first; each part is unpacked on demand."""
    import numpy as np

    from opicflow.pipelines.results.record_columns import pages_of

    for part in answers.importance:
        pages = pages_of(part)
        yield pages.rows(np.flatnonzero(pages.columns["visits"] == 0)) if only_unread else pages


def _sites_of_state(options: argparse.Namespace) -> list[SiteTotals]:
    from opicflow.pipelines.replay.answers import read_answers
    from opicflow.pipelines.results.record_columns import ranked_sites

    answers, _ = read_answers(state_of(options))
    return ranked_sites(_pages_of(answers, options.unread), options.by)


def _sites_of_file(options: argparse.Namespace) -> list[SiteTotals]:
    from opicflow.connectors.files.rank_reader import read_ranks
    from opicflow.pipelines.results.record_columns import SiteTotals

    ranks = read_ranks(options.file, options.rank)
    sums = ranks.sites(options.by)
    if not sums.names:
        raise InputRefused(f"{options.file}: no row has a URL, so there are no sites: name a file with a column url")
    read: dict[str, int] = {}
    if "visits" in ranks.columns and options.file != STDIN and not ranks.of_sites:  # which cannot be read again
        visited = read_ranks(options.file, "visits").sites(options.by)
        read = dict(zip(visited.names, visited.rows_above_0.tolist(), strict=True))
    rows = zip(sums.names, sums.rows.tolist(), sums.values.tolist(), strict=True)
    found = [
        SiteTotals(name, None if ranks.of_sites else pages, read.get(name), importance)
        for name, pages, importance in rows
    ]
    return sorted(found, key=lambda one: (-one.importance, one.site))


def _print_sites(options: argparse.Namespace, sites: Sequence[SiteTotals]) -> None:
    if options.form is not None:
        from opicflow.connectors.files.site_lists import SiteList, write_site_list

        some = sites[: options.top]
        listed = SiteList([one.site for one in some], [one.importance for one in some])
        write_site_list(options.out, options.form, listed)
        if options.out is not None:
            print_lines(f"written: {options.out}, {counted(len(some), options.by)}")
        return
    some = sites[: _SHOWN if options.top is None else options.top]
    if options.json:
        rows = [
            {options.by: one.site, "pages": one.pages, "read": one.read, "importance": one.importance} for one in some
        ]
        print(json.dumps(rows, indent=2))
        return
    print_lines(f"  importance    pages     read  {options.by}")
    for one in some:
        pages, read = ("-" if count is None else f"{count:,}" for count in (one.pages, one.read))
        print_lines(f"  {one.importance:10.6f} {pages:>8} {read:>8}  {one.site}")
