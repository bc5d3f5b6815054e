"""`opicflow compare`: how far the ranks of two files are apart, or how far ranks agree with people's grades."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from opicflow.connectors.files.opening import STDIN, InputRefused
from opicflow.pipelines.cli.options import add_json, add_site_kind
from opicflow.pipelines.cli.text import counted, print_lines, safe_json
from opicflow.pipelines.cli.values import natural, whole
from opicflow.pipelines.ranks.grade_report import add_grade_options, check_without_grades, run_grades

if TYPE_CHECKING:
    from opicflow.connectors.files.rank_reader import Ranks, SiteSums
    from opicflow.pipelines.ranks.graph.comparison import Apart, Comparison, Ranking
    from opicflow.schemas.sites import SiteKind

EXAMPLES = """examples:
  opicflow compare results exact.csv                   a replay --out results, and simulate --ranks exact.csv
  opicflow compare yesterday.parquet today.parquet --top 100,10000 --worst 20
  opicflow compare web.csv cc-main-host-ranks.txt.gz --by host --normalise     with ranks of Common Crawl
  opicflow compare ranks.csv ranks.csv --rank hubs --rank-b authorities --normalise
  opicflow subscribe importance --brokers localhost:9092 --format jsonl | opicflow compare - results --json
  opicflow compare --grades grades.csv --graph web.graph results ranks.csv#hubs    which one do people agree with?
"""

_MOST_SUM = 1e300  # so that no sum of differences overflows
_SAME_SUM = 1e-3


class _Side(NamedTuple):
    """One of the two files: its name, its ranks and their sum; `sites` are the ranks added up by site."""

    letter: str
    file: str
    rank: str
    ranks: Ranks
    sum: float
    sites: SiteSums | None = None

    @property
    def rows(self) -> int:
        """The number of pages or sites."""
        return len(self.ranks.pages) if self.sites is None else len(self.sites.names)


def _rankings(a: _Side, b: _Side, normalise: bool) -> tuple[Ranking, Ranking, dict[int, str]]:
    """Return the rankings of both sides, and the names of sites: these are numbered in the order of their names."""
    import numpy as np

    from opicflow.pipelines.ranks.graph.comparison import Ranking

    if a.sites is None or b.sites is None:
        first, second = (
            Ranking(side.ranks.pages, side.ranks.values / side.sum if normalise else side.ranks.values)
            for side in (a, b)
        )
        return first, second, {}
    names = sorted({*a.sites.names, *b.sites.names})
    number_of = {name: number for number, name in enumerate(names)}
    rankings = []
    for side, sites in ((a, a.sites), (b, b.sites)):
        numbers = np.fromiter((number_of[name] for name in sites.names), np.uint64, len(sites.names))
        order = np.argsort(numbers)
        values = sites.values[order]
        rankings.append(Ranking(numbers[order], values / side.sum if normalise else values))
    return rankings[0], rankings[1], dict(enumerate(names))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "a",
        metavar="A",
        help="ranks of pages or sites: JSON lines, CSV, Avro, Parquet, a list of Common Crawl or Tranco; a folder that "
        "a replay wrote; - for stdin",
    )
    second = parser.add_argument("b", metavar="B", help="the same; relative errors are those of A, if B is right")
    second.required = False  # with --grades
    parser.add_argument("more", nargs="*", default=(), metavar="MORE", help="more ranks, with --grades")
    parser.add_argument("--rank", default="importance", metavar="NAME", help="the column to compare (%(default)s)")
    parser.add_argument("--rank-b", metavar="NAME", help="the column of B, if it has another name there")
    add_site_kind(parser, "add up pages to hosts or domains, and compare these; needed if a file is a list of sites")
    parser.add_argument(
        "--top",
        type=_sizes,
        default=(10, 100, 1000),
        metavar="K,K",
        help="how many of the K most important pages are in common (10,100,1000)",
    )
    parser.add_argument(
        "-n", "--worst", type=natural, default=10, metavar="N", help="show so many pages that differ most (%(default)s)"
    )
    parser.add_argument("--normalise", action="store_true", help="scale the ranks of each file to a sum of 1 first")
    add_json(parser)
    add_grade_options(parser)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(whole, text.split(",")))


def run(options: argparse.Namespace) -> int:
    """Compare the ranks of two files, or ranks with grades."""
    import orjson

    from opicflow.pipelines.ranks.graph.comparison import compared

    if options.grades is not None:
        return run_grades(options)
    check_without_grades(options)
    if options.a == options.b == STDIN:
        raise InputRefused("standard input: it is both A and B: name a file for one")
    a = _side("A", options.a, options.rank, options.normalise, options.by)
    b = _side("B", options.b, options.rank_b or options.rank, options.normalise, options.by)
    first, second, names = _rankings(a, b, options.normalise)
    found = compared(first, second, options.top, options.worst)
    if options.by is None:
        pages = [one.page for one in (*found.most_apart, *found.furthest_ratios)]
        names = b.ranks.urls(pages) | a.ranks.urls(pages)
    kind = options.by or "page"
    notes = _notes(a, b, found, options.normalise, kind)
    if options.json:
        value = _as_json(a, b, found, names, notes, options.normalise, kind)
        print(safe_json(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))
    else:
        _print(a, b, found, names, notes, kind)
    return 0


def _side(letter: str, file: str, rank: str, normalise: bool, by: SiteKind | None) -> _Side:
    import numpy as np

    from opicflow.connectors.files.rank_reader import read_ranks

    ranks = read_ranks(file, rank)
    if ranks.of_sites and by is None:
        raise InputRefused(f"{file}: a list of sites: give --by host, or --by domain if it lists registrable domains")
    sites = None if by is None else ranks.sites(by)
    if sites is not None and not sites.names:
        raise InputRefused(f"{file}: no row has a URL, so there are no sites: name a file with a column url or site")
    with np.errstate(over="ignore"):
        total = float((ranks.values if sites is None else sites.values).sum())
    if not total <= _MOST_SUM:
        raise InputRefused(f"{file}: {rank} adds up to more than {_MOST_SUM:g}: name another column, or scale it")
    if normalise and total == 0.0:
        raise InputRefused(f"{file}: {rank} is 0 for every page: it cannot be scaled: omit --normalise")
    return _Side(letter, file, rank, ranks, total, sites)


def _notes(a: _Side, b: _Side, found: Comparison, normalise: bool, kind: str) -> list[str]:
    notes = []
    for side in (a, b):
        ranks = side.ranks
        if ranks.repeated and ranks.is_stream:
            notes.append(f"{side.letter}: {counted(ranks.rows, 'record')}: the newest of each page counts")
        elif ranks.repeated:
            row = "site" if ranks.of_sites else "page"
            again = counted(ranks.repeated, "row")
            notes.append(f"{side.letter}: {again} of a {row} that has one already: the last one of each {row} counts")
        if ranks.gone:
            notes.append(f"{side.letter}: left out: {counted(ranks.gone, 'page')} whose last record is a tombstone")
        if side.sites is not None and side.sites.rows_without_site:
            without = counted(side.sites.rows_without_site, "row")
            notes.append(f"{side.letter}: {without} without a URL, so without a {kind}: left out")
        if ranks.by_position:
            notes.append(
                f"{side.letter}: it has positions only: {side.rank} is 1 / position, and only the order counts"
            )
    if not found.pages_of_both and kind == "page":
        notes.append("no page is in both: are they from one crawl, with canonical URLs?")
    elif not found.pages_of_both:
        notes.append(f"no {kind} is in both: do both list {kind}s?")
    elif found.errors_over < found.pages_of_both:
        left = found.pages_of_both - found.errors_over
        notes.append(f"left out of relative errors: {counted(left, kind)} with 0 in B")
    if not normalise and abs(a.sum - b.sum) > _SAME_SUM * max(a.sum, b.sum):
        notes.append("the sums differ: --normalise compares shares")
    return notes


# -- on a terminal -----------------------------------------------------------------------------------------------------


def _print(a: _Side, b: _Side, found: Comparison, urls: dict[int, str], notes: list[str], kind: str) -> None:
    for side in (a, b):
        print_lines(f"{side.letter}: {side.file}: {side.rank} of {side.rows:,} {kind}s, sum {side.sum:.6g}")
    for note in notes:
        print_lines(f"note: {note}")
    print()
    print_lines(f"  {f'{kind}s in both':<31} {found.pages_of_both:>10,}")
    for name, pages, rank in (
        ("A", found.pages_of_first_only, found.rank_of_first_only),
        ("B", found.pages_of_second_only, found.rank_of_second_only),
    ):
        print_lines(f"  only in {name}                       {pages:>10,}  sum of their ranks: {rank:.4g}")
    print_lines(f"  L1                              {found.l1:>10.4g}")
    print_lines(f"  largest difference              {found.linf:>10.4g}")
    print_lines(f"  Kendall's tau                   {_or_dash(found.kendall_tau, '.4f'):>10}")
    print_lines(f"  mean relative error             {_or_dash(found.mean_relative_error, '.4g'):>10}")
    print_lines(f"  … of the top tenth of B         {_or_dash(found.mean_relative_error_of_top_tenth, '.4g'):>10}")
    for overlap in found.overlaps:
        name = f"in common of the top {overlap.pages:,}"
        print_lines(f"  {name:<31} {_or_dash(overlap.share, '.4f'):>10}")
    _print_pages("differ most", "difference", found.most_apart, urls)
    _print_pages("largest ratios", "A / B", found.furthest_ratios, urls)


def _print_pages(title: str, measure: str, pages: tuple[Apart, ...], urls: dict[int, str]) -> None:
    if not pages:
        return
    print_lines("", f"  {'A':>10} {'B':>10} {measure:>11}  {title}")
    for one in pages:
        value = f"{one.difference:+.4g}" if measure == "difference" else f"{one.ratio:.4g}"
        print_lines(f"  {one.first:>10.4g} {one.second:>10.4g} {value:>11}  {urls.get(one.page, _digits(one))}")


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


# -- as JSON -----------------------------------------------------------------------------------------------------------


def _as_json(
    a: _Side, b: _Side, found: Comparison, urls: dict[int, str], notes: list[str], normalise: bool, kind: str
) -> dict[str, object]:
    """Return the comparison as JSON. Undefined and infinite values are null."""
    return {
        "a": _side_as_json(a, found.pages_of_first_only, found.rank_of_first_only),
        "b": _side_as_json(b, found.pages_of_second_only, found.rank_of_second_only),
        "by": kind,
        "normalised": normalise,
        "pages_in_both": found.pages_of_both,
        "l1": found.l1,
        "linf": found.linf,
        "kendall_tau": found.kendall_tau,
        "mean_relative_error": found.mean_relative_error,
        "mean_relative_error_of_top_tenth": found.mean_relative_error_of_top_tenth,
        "relative_errors_over": found.errors_over,
        "top": [{"pages": overlap.pages, "in_common": overlap.share} for overlap in found.overlaps],
        "differ_most": [_row_as_json(one, urls, kind) | {"difference": one.difference} for one in found.most_apart],
        "largest_ratios": [_row_as_json(one, urls, kind) | {"ratio": one.ratio} for one in found.furthest_ratios],
        "notes": notes,
    }


def _side_as_json(side: _Side, pages_only_here: int, rank_only_here: float) -> dict[str, object]:
    return {
        "file": side.file,
        "rank": side.rank,
        "pages": side.rows,
        "sum": side.sum,
        "only_here": pages_only_here,
        "rank_only_here": rank_only_here,
        "rows": side.ranks.rows,
        "repeated": side.ranks.repeated,
        "gone": side.ranks.gone,
    }


def _row_as_json(one: Apart, urls: dict[int, str], kind: str) -> dict[str, object]:
    if kind != "page":
        return {"site": urls[one.page], "a": one.first, "b": one.second}
    return {"url": urls.get(one.page), "page": _digits(one), "a": one.first, "b": one.second}


def _digits(one: Apart) -> str:
    return f"{one.page:016x}"
