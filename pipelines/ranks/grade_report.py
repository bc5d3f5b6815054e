"""`opicflow compare --grades`: how far ranks, and the graders themselves, agree with the grades that people gave."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opicflow.connectors.files.opening import STDIN, InputRefused
from opicflow.pipelines.cli.text import counted, print_lines, safe_json
from opicflow.pipelines.cli.values import natural, whole
from opicflow.schemas.errors import printable

if TYPE_CHECKING:
    from opicflow.connectors.files.grade_reader import Grades
    from opicflow.pipelines.ranks.graph.grading import Agreement, DisputedPage, Estimate, GradingPlan, MeasuredAgreement
    from opicflow.schemas.arrays import Floats, Ids, Ints

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FEWEST_GRADES = 3
_EQUAL_WITHIN = 2.0**30
_WIDEST = 40
_MEDIAN = "median grader"
_NAMES = {
    "spearman": "Spearman's correlation",
    "kendall_tau": "Kendall's tau",
    "same_grade": "same grade",
    "same_grade_of_all": "same grade, graders by the mean of all",
    "ndcg": "NDCG of the top",
    "precision": "good pages in the top",
}


class _Judged(NamedTuple):
    """Ranks that are compared with grades: a value for each graded page, NaN where they have none."""

    letter: str
    name: str
    pages: int
    values: Floats

    @property
    def title(self) -> str:
        return f"{self.letter} {self.name}".strip()


class _Report(NamedTuple):
    """Everything that is printed.

    `rows` are the pages that all rankings have; `graders` are the names of the people, and how many of these pages each
    one graded.
    """

    file: str
    grades: Grades
    judged: Sequence[_Judged]
    rows: Ints
    graders: dict[str, int]
    plan: GradingPlan
    agreements: list[MeasuredAgreement]
    worst: list[list[DisputedPage]]
    """The most disputed pages of each file; yardsticks have none."""

    @property
    def good(self) -> int:
        """How many pages are good."""
        return int((self.grades.values[self.rows] >= self.plan.good).sum())


# -- options -----------------------------------------------------------------------------------------------------------


def add_grade_options(parser: argparse.ArgumentParser) -> None:
    """Add the grades, and how rankings are compared with them."""
    group = parser.add_argument_group("ranks against the grades of people (docs/guides/compare.md)")
    group.add_argument(
        "--grades",
        metavar="FILE",
        help="CSV with the columns url (or site), grade (higher is better) and perhaps grader: how far does each "
        "ranking agree with the mean, and each grader with the others? A, B, … are then one file or more, or "
        "FILE#COLUMN; --top gives the sizes of the top",
    )
    group.add_argument(
        "--graph", type=Path, metavar="DIR", help="judge in-degree, harmonic centrality and PageRank of this graph too"
    )
    group.add_argument(
        "--good", type=_grade, metavar="GRADE", help="a page is good from this grade (the middle of the scale)"
    )
    group.add_argument("--resamples", type=whole, metavar="N", help="resamples for the intervals (1000)")
    group.add_argument("--seed", type=natural, metavar="N", help="of the resamples (1)")


def _grade(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number")
    return number


def check_without_grades(options: argparse.Namespace) -> None:
    """Refuse options that are only for grades."""
    for name in ("graph", "good", "resamples", "seed"):
        if getattr(options, name) is not None:
            raise InputRefused(f"--{name}: it is for grades: give --grades too")
    if options.b is None:
        raise InputRefused(f"{options.a}: one ranking: name B too, or give --grades")
    if options.more:
        raise InputRefused(f"{options.more[0]}: more than two rankings: give --grades too, or omit it")


def _check_with_grades(options: argparse.Namespace, files: Sequence[str]) -> None:
    if options.normalise:
        raise InputRefused("--normalise: grades are compared with the order of pages alone: omit it")
    if options.by is not None:
        raise InputRefused("--by: with --grades of sites, name rankings of sites (opicflow rank --by): omit it")
    if options.rank_b is not None:
        raise InputRefused("--rank-b: with --grades, name a column like ranks.csv#hubs")
    if [options.grades, *files].count(STDIN) > 1:
        raise InputRefused("standard input: it is named twice: name a file instead of one")
    if len(files) > len(_LETTERS):
        raise InputRefused(f"{len(files)} rankings: give at most {len(_LETTERS)}")


# -- running -----------------------------------------------------------------------------------------------------------


def run_grades(options: argparse.Namespace) -> int:
    """Compare rankings with grades."""
    import orjson

    from opicflow.connectors.files.grade_reader import read_grades

    files = [file for file in (options.a, options.b, *options.more) if file is not None]
    _check_with_grades(options, files)
    grades = read_grades(options.grades)
    judged = [_read(letter, file, options.rank, grades) for letter, file in zip(_LETTERS, files, strict=False)]
    if options.graph is not None:
        judged += _yardsticks(options.graph, grades)
    report = _report(options, grades, judged, len(files))
    if options.json:
        print(safe_json(orjson.dumps(_as_json(report), option=orjson.OPT_INDENT_2).decode()))
    else:
        _print(report)
    return 0


def _read(letter: str, text: str, rank: str, grades: Grades) -> _Judged:
    """Read the ranks of FILE or FILE#COLUMN."""
    import numpy as np

    from opicflow.connectors.files.rank_reader import read_ranks

    file, _, column = (text, "", "") if Path(text).exists() else text.partition("#")
    ranks = read_ranks(file, column or rank)

    def values_of(pages: Ids) -> Floats:
        at = np.minimum(np.searchsorted(ranks.pages, pages), len(ranks.pages) - 1)
        return np.where(ranks.pages[at] == pages, ranks.values[at], np.nan)

    name = f"{'standard input' if text == STDIN else text}{'' if column else f'#{rank}'}"
    return _Judged(letter, name, len(ranks.pages), _matched(grades, values_of))


def _yardsticks(path: Path, grades: Grades) -> list[_Judged]:
    """Return the in-degree, the harmonic centrality and the PageRank of a graph."""
    import numpy as np

    from opicflow.pipelines.ranks.graph.harmonic import hyperball, in_degrees
    from opicflow.pipelines.ranks.graph.solver import RankRequest, Settings, solve
    from opicflow.pipelines.ranks.graph.store import StoredGraph

    graph = StoredGraph(path)
    (pagerank,) = solve(graph, [RankRequest("PageRank", "importance")], Settings())
    vectors = {
        "in-degree": in_degrees(graph).astype(np.float64),
        "harmonic centrality": hyperball(graph).values,
        "PageRank": pagerank.values,
    }

    def judged(name: str, vector: Floats) -> _Judged:
        def values_of(pages: Ids) -> Floats:
            at = graph.numbers_of(pages)
            return np.where(at >= 0, vector[at], np.nan)

        return _Judged("", name, graph.pages, _matched(grades, values_of))

    return [judged(name, vector) for name, vector in vectors.items()]


def _matched(grades: Grades, values_of: Callable[[Ids], Floats]) -> Floats:
    """Return the value of each graded page: that of its URL as written, or else of its canonical form.

    Values are rounded: pages that differ only by the rounding of a solver are equal.
    """
    import numpy as np

    written = values_of(grades.written)
    mantissa, exponent = np.frexp(np.where(np.isnan(written), values_of(grades.pages), written))
    rounded: Floats = np.ldexp(np.rint(mantissa * _EQUAL_WITHIN), exponent) / _EQUAL_WITHIN
    return rounded


def _common_rows(file: str, grades: Grades, judged: Sequence[_Judged]) -> Ints:
    import numpy as np

    rows = np.flatnonzero(~np.isnan([one.values for one in judged]).any(axis=0))
    if len(rows) < _FEWEST_GRADES:
        raise InputRefused(
            f"{file}: of {counted(len(grades.texts), 'graded page')} {len(rows)} are in all rankings: at "
            f"least {_FEWEST_GRADES} are needed: are they from one crawl, pages or sites in both?"
        )
    if len(np.unique(grades.values[rows])) == 1:
        raise InputRefused(f"{file}: all pages that are in the rankings have one grade: there is no order")
    return rows


def _report(options: argparse.Namespace, grades: Grades, judged: Sequence[_Judged], files: int) -> _Report:
    """Compare everything with the grades. The first rankings are those of files, the others yardsticks."""
    import numpy as np

    from opicflow.pipelines.ranks.graph.grading import GradedPages, GradingPlan, graded_agreement, most_disputed

    plan = GradingPlan(
        sizes=tuple(dict.fromkeys(options.top)),
        good=float(grades.scale[0] + grades.scale[-1]) / 2.0 if options.good is None else options.good,
        resamples=1000 if options.resamples is None else options.resamples,
        seed=1 if options.seed is None else options.seed,
    )
    rows = _common_rows(options.grades, grades, judged)
    number_of = np.full(len(grades.texts), -1)
    number_of[rows] = np.arange(len(rows))
    graders = [(number_of[one.rows], one.grades) for one in grades.graders]
    graders = [(some[some >= 0], given[some >= 0]) for some, given in graders]
    pages, ranks = GradedPages(grades.values[rows], grades.scale, graders), [one.values[rows] for one in judged]
    return _Report(
        options.grades,
        grades,
        judged,
        rows,
        {one.name: len(some) for one, (some, _) in zip(grades.graders, graders, strict=True)},
        plan,
        graded_agreement(pages, ranks, plan),
        [most_disputed(pages.means, one, grades.pages[rows], options.worst) for one in ranks[:files]],
    )


def _notes(report: _Report) -> list[str]:
    import numpy as np

    notes, grades = [], report.grades
    if grades.repeated and grades.graders:
        notes.append(f"{counted(grades.repeated, 'grade')} of a page by the same grader: the last one counts")
    elif grades.repeated:
        notes.append(
            f"{counted(grades.repeated, 'grade')} of a page that has one already: the mean of each page counts"
        )
    if len(report.rows) < len(grades.texts):
        missing = [(one, int(np.isnan(one.values).sum())) for one in report.judged]
        listed = ", ".join(f"{number:,} in {one.title}" for one, number in missing if number)
        left = counted(len(grades.texts) - len(report.rows), "graded page")
        notes.append(f"left out: {left}, because not every ranking has them (missing: {listed})")
    return notes


# -- on a terminal -----------------------------------------------------------------------------------------------------


def _print(report: _Report) -> None:
    scale, plan = report.grades.scale, report.plan
    by = f" by {counted(len(report.graders), 'grader')}" if report.graders else ""
    print_lines(
        f"grades: {report.file}: {counted(len(report.rows), 'page')} graded from {scale[0]:g} to {scale[-1]:g}{by}; "
        f"{report.good:,} are good: {plan.good:g} or more"
    )
    for one in report.judged:
        print_lines(f"{one.letter or 'yardstick'}: {one.name} of {counted(one.pages, 'page')}")
    for note in _notes(report):
        print_lines(f"note: {note}")
    print_lines(f"in brackets: the middle 95 of 100 of {plan.resamples:,} resamples, seed {plan.seed}")
    titles = [*(one.title for one in report.judged), *report.graders, *([_MEDIAN] if report.graders else [])]
    width = min(_WIDEST, max(len(printable(title)) for title in titles))
    if report.graders:
        _print_graders(report, width)
    for measured in report.agreements:
        if measured.measure != "same_grade_of_all":
            _print_measure(measured, titles, width)
    for one, worst in zip(report.judged, report.worst, strict=False):
        if worst:
            print_lines("", f"  {'grade':>8} {'position':>9} {'by rank':>9}  {one.title}: furthest from the grades")
        for page in worst:
            row = report.rows[page.row]
            text, grade = printable(report.grades.texts[row]), report.grades.values[row]
            print_lines(f"  {grade:>8g} {page.position_by_grade:>9g} {page.position_by_rank:>9g}  {text}")


def _print_graders(report: _Report, width: int) -> None:
    """Print the score of each grader, as in the paper and without the grader's own part of the mean."""
    by_others, by_all = (one for one in report.agreements if one.measure.startswith("same_grade"))
    print_lines("", f"  {'same grade as the mean':<{width + 13}}{'of the other graders':<27}of all graders".rstrip())
    rows = zip(report.graders, report.graders.values(), by_others.graders, by_all.graders, strict=True)
    for name, pages, *scores in rows:
        print_lines(_line(name, width, f"{pages:>7,}", *(_interval(score, "") for score in scores)))
    medians = [_interval(one, "") for one in (by_others.median_grader, by_all.median_grader) if one is not None]
    print_lines(_line(_MEDIAN, width, f"{'':7}", *medians))


def _print_measure(measured: MeasuredAgreement, titles: Sequence[str], width: int) -> None:
    title = _NAMES[measured.measure] + (f" {measured.top:,}" if measured.top else "")
    rows: list[tuple[str, Agreement]] = list(zip(titles, measured.rankings, strict=False))
    if all(one.value is None for _, one in rows):
        print_lines("", f"  {title}: - ({_undefined(measured)})")
        return
    if measured.median_grader is not None:
        rows.append((titles[-1], measured.median_grader))
    print_lines("", f"  {title:<{width + 33}}" + (f"less {titles[0]}" if len(rows) > 1 else "").rstrip())
    for name, one in rows:
        cells = [_interval(one, "")]
        if one.less_first is not None:
            cells.append(_interval(one.less_first, "+"))
            if one.less_first.excludes_0:
                cells.append("clear")
            elif one.less_first.grades_needed is not None:
                cells.append(f"clear with some {_rounded(one.less_first.grades_needed):,} grades")
        print_lines(_line(name, width, *cells))


def _line(name: str, width: int, *cells: str) -> str:
    return "  ".join([f"    {printable(name)[:width]:<{width}}", *cells]).rstrip()


def _undefined(measured: MeasuredAgreement) -> str:
    if measured.top is not None:
        return "fewer pages than that are graded, or all have one grade"
    return "all ranks are equal"


def _rounded(number: int) -> int:
    """Return a number with its first two digits."""
    return round(number, 2 - len(str(number)))


def _interval(estimate: Estimate, sign: str) -> str:
    if estimate.value is None:
        return f"{'-':>7}{'':19}"
    value, low, high = (
        math.nan if one is None else round(one, 3) + 0.0 for one in (estimate.value, estimate.low, estimate.high)
    )  # never -0
    interval = "" if estimate.low is None else f"({low:{sign}.3f} to {high:{sign}.3f})"
    return f"{value:{sign or '-'}7.3f} {interval:<18}"


# -- as JSON -----------------------------------------------------------------------------------------------------------


def _as_json(report: _Report) -> dict[str, object]:
    """Return everything as JSON. Undefined figures are null.

    The figures of a measure have the order of the rankings and of the graders.
    """
    import numpy as np

    grades, values, rows = report.grades, report.grades.values, report.rows.tolist()
    return {
        "grades": {
            "file": report.file,
            "pages": len(grades.texts),
            "repeated": grades.repeated,
            "compared": len(rows),
            "lowest": float(grades.scale[0]),
            "highest": float(grades.scale[-1]),
            "good_from": report.plan.good,
            "good": report.good,
        },
        "resamples": report.plan.resamples,
        "seed": report.plan.seed,
        "rankings": [
            {
                "letter": one.letter or None,
                "name": one.name,
                "pages": one.pages,
                "graded": int((~np.isnan(one.values)).sum()),
            }
            for one in report.judged
        ],
        "graders": [{"name": name, "graded": pages} for name, pages in report.graders.items()],
        "measures": report.agreements,
        "worst": [
            {
                "name": one.name,
                "pages": [
                    {
                        "url": grades.texts[rows[page.row]],
                        "grade": float(values[rows[page.row]]),
                        "rank": float(one.values[rows[page.row]]),
                        "position_by_grade": page.position_by_grade,
                        "position_by_rank": page.position_by_rank,
                    }
                    for page in worst
                ],
            }
            for one, worst in zip(report.judged, report.worst, strict=False)
        ],
        "notes": _notes(report),
    }
