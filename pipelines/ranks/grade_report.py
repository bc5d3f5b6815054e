"""`opicflow compare --grades`: how far ranks agree with the grades that people gave."""

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
    from opicflow.pipelines.ranks.graph.grading import DisputedPage, Estimate, GradingPlan, MeasuredAgreement
    from opicflow.schemas.arrays import Floats, Ids, Ints

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FEWEST_GRADES = 3
_EQUAL_WITHIN = 2.0**30
_NAMES = {
    "spearman": "Spearman's correlation",
    "kendall_tau": "Kendall's tau",
    "same_grade": "same grade",
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


class _Graded(NamedTuple):
    """The pages that all rankings have, with everything that is printed."""

    rows: Ints
    grades: Floats
    ranks: list[Floats]
    agreements: list[MeasuredAgreement]
    worst: list[list[DisputedPage]]
    """The most disputed pages of each file; yardsticks have none."""


# -- options -----------------------------------------------------------------------------------------------------------


def add_grade_options(parser: argparse.ArgumentParser) -> None:
    """Add the grades, and how rankings are compared with them."""
    group = parser.add_argument_group("ranks against the grades of people (docs/guides/compare.md)")
    group.add_argument(
        "--grades",
        metavar="FILE",
        help="CSV of a URL or site and a grade, higher is better: how far does each ranking agree? A, B, … are then "
        "one file or more, or FILE#COLUMN; --top gives the sizes of the top",
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
    rows = _common_rows(options.grades, grades, judged)
    plan = _plan(options, grades.values[rows])
    found = _measured(options, grades, judged, rows, len(files), plan)
    notes = _notes(grades, judged, found)
    if options.json:
        value = _as_json(options, grades, judged, found, plan, notes)
        print(safe_json(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))
    else:
        _print(options, grades, judged, found, plan, notes)
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


def _plan(options: argparse.Namespace, grades: Floats) -> GradingPlan:
    from opicflow.pipelines.ranks.graph.grading import GradingPlan

    middle = (float(grades.min()) + float(grades.max())) / 2.0
    return GradingPlan(
        sizes=tuple(dict.fromkeys(options.top)),
        good=middle if options.good is None else options.good,
        resamples=1000 if options.resamples is None else options.resamples,
        seed=1 if options.seed is None else options.seed,
    )


def _measured(
    options: argparse.Namespace, grades: Grades, judged: Sequence[_Judged], rows: Ints, files: int, plan: GradingPlan
) -> _Graded:
    from opicflow.pipelines.ranks.graph.grading import graded_agreement, most_disputed

    some, ranks = grades.values[rows], [one.values[rows] for one in judged]
    return _Graded(
        rows,
        some,
        ranks,
        graded_agreement(some, ranks, plan),
        [most_disputed(some, one, grades.pages[rows], options.worst) for one in ranks[:files]],
    )


def _notes(grades: Grades, judged: Sequence[_Judged], found: _Graded) -> list[str]:
    import numpy as np

    notes = []
    if grades.repeated:
        notes.append(
            f"{counted(grades.repeated, 'grade')} of a page that has one already: the mean of each page counts"
        )
    missing = [(one, int(np.isnan(one.values).sum())) for one in judged]
    if len(found.rows) < len(grades.texts):
        listed = ", ".join(f"{number:,} in {one.title}" for one, number in missing if number)
        left = counted(len(grades.texts) - len(found.rows), "graded page")
        notes.append(f"left out: {left}, because not every ranking has them (missing: {listed})")
    return notes


# -- on a terminal -----------------------------------------------------------------------------------------------------


def _print(
    options: argparse.Namespace,
    grades: Grades,
    judged: Sequence[_Judged],
    found: _Graded,
    plan: GradingPlan,
    notes: Sequence[str],
) -> None:
    good = int((found.grades >= plan.good).sum())
    print_lines(
        f"grades: {options.grades}: {counted(len(found.grades), 'page')} graded from {found.grades.min():g} "
        f"to {found.grades.max():g}; {good:,} are good: {plan.good:g} or more"
    )
    for one in judged:
        print_lines(f"{one.letter or 'yardstick'}: {one.name} of {counted(one.pages, 'page')}")
    for note in notes:
        print_lines(f"note: {note}")
    print_lines(f"in brackets: the middle 95 of 100 of {plan.resamples:,} resamples, seed {plan.seed}")
    width = min(40, max(len(printable(one.title)) for one in judged))
    for measured in found.agreements:
        title = _NAMES[measured.measure] + (f" {measured.top:,}" if measured.top else "")
        if all(agreement.estimate.value is None for agreement in measured.agreements):
            print_lines("", f"  {title}: - ({_undefined(measured)})")
            continue
        print_lines("", f"  {title:<{width + 33}}" + (f"less {judged[0].title}" if len(judged) > 1 else "").rstrip())
        for one, agreement in zip(judged, measured.agreements, strict=True):
            line = f"    {printable(one.title)[:width]:<{width}}  {_interval(agreement.estimate, '')}"
            if agreement.difference is not None:
                line += f"  {_interval(agreement.difference.estimate, '+')}"
                needed = agreement.difference.grades_needed
                if agreement.difference.estimate.excludes_0:
                    line += "  clear"
                elif needed is not None:
                    line += f"  clear with some {_rounded(needed):,} grades"
            print_lines(line.rstrip())
    for one, ranks, worst in zip(judged, found.ranks, found.worst, strict=False):
        _print_worst(one, grades, found, ranks, worst)


def _undefined(measured: MeasuredAgreement) -> str:
    if measured.top is not None:
        return "fewer pages than that are graded, or all have one grade"
    return "too many different grades" if measured.measure == "same_grade" else "all ranks are equal"


def _rounded(number: int) -> int:
    """Return a number with its first two digits."""
    return round(number, 2 - len(str(number)))


def _interval(estimate: Estimate, sign: str) -> str:
    if estimate.value is None:
        return f"{'-':>7}{'':19}"
    value, *bounds = (None if one is None else round(one, 3) + 0.0 for one in estimate)  # never -0
    interval = "" if bounds[0] is None else f"({bounds[0]:{sign}.3f} to {bounds[1]:{sign}.3f})"
    return f"{value:{sign or '-'}7.3f} {interval:<18}"


def _print_worst(one: _Judged, grades: Grades, found: _Graded, ranks: Floats, worst: Sequence[DisputedPage]) -> None:
    if not worst:
        return
    print_lines("", f"  {'grade':>8} {'position':>9} {'by rank':>9}  {one.title}: furthest from the grades")
    for page in worst:
        text = printable(grades.texts[int(found.rows[page.row])])
        print_lines(f"  {found.grades[page.row]:>8g} {page.position_by_grade:>9g} {page.position_by_rank:>9g}  {text}")


# -- as JSON -----------------------------------------------------------------------------------------------------------


def _as_json(
    options: argparse.Namespace,
    grades: Grades,
    judged: Sequence[_Judged],
    found: _Graded,
    plan: GradingPlan,
    notes: Sequence[str],
) -> dict[str, object]:
    """Return everything as JSON. Undefined figures are null."""
    import numpy as np

    return {
        "grades": {
            "file": options.grades,
            "pages": len(grades.texts),
            "repeated": grades.repeated,
            "compared": len(found.grades),
            "lowest": float(found.grades.min()),
            "highest": float(found.grades.max()),
            "good_from": plan.good,
            "good": int((found.grades >= plan.good).sum()),
        },
        "resamples": plan.resamples,
        "seed": plan.seed,
        "rankings": [
            {
                "letter": one.letter or None,
                "name": one.name,
                "pages": one.pages,
                "graded": int((~np.isnan(one.values)).sum()),
            }
            for one in judged
        ],
        "measures": [_measure_as_json(measured, judged) for measured in found.agreements],
        "worst": [
            {
                "name": one.name,
                "pages": [
                    {
                        "url": grades.texts[int(found.rows[page.row])],
                        "grade": float(found.grades[page.row]),
                        "rank": float(ranks[page.row]),
                        "position_by_grade": page.position_by_grade,
                        "position_by_rank": page.position_by_rank,
                    }
                    for page in worst
                ],
            }
            for one, ranks, worst in zip(judged, found.ranks, found.worst, strict=False)
        ],
        "notes": list(notes),
    }


def _measure_as_json(measured: MeasuredAgreement, judged: Sequence[_Judged]) -> dict[str, object]:
    rows: list[dict[str, object]] = []
    for one, agreement in zip(judged, measured.agreements, strict=True):
        row: dict[str, object] = {"name": one.name, **agreement.estimate._asdict()}
        if agreement.difference is not None:
            estimate = agreement.difference.estimate
            row["less_first"] = {
                **estimate._asdict(),
                "excludes_0": estimate.excludes_0,
                "grades_needed": agreement.difference.grades_needed,
            }
        rows.append(row)
    return {"measure": measured.measure, "top": measured.top, "rankings": rows}
