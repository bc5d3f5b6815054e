"""Reads the grades that people gave to pages or sites: CSV of a URL or a site, a number, and who gave it."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from opicflow.connectors.files.csv_tables import are_utf_8, whole_rows
from opicflow.connectors.files.line_blocks import pieces_of
from opicflow.connectors.files.opening import STDIN, InputRefused
from opicflow.schemas.arrays import Floats, Ids, Ints
from opicflow.schemas.errors import printable
from opicflow.schemas.pages import page_ids
from opicflow.schemas.urls import NotAPage, canonical

_URL_NAMES = ("url", "page", "site", "host", "domain")
_GRADE_NAME, _GRADER_NAME = "grade", "grader"
_MOST_GRADERS = 1000
_MOST_SHOWN = 60
_DIGITS = 9
"""After the point, of means: those that differ by the order of their grades only are equal."""


class Grader(NamedTuple):
    """A person who graded, and the numbers of the pages with the grades that this person gave them."""

    name: str
    rows: Ints
    grades: Floats


class Grades(NamedTuple):
    """The grade of each page, in the order of the file; several grades of a page are replaced by their mean.

    `pages` are the ids of the canonical URLs, `written` those of the texts as they are in the file, `texts` these
    texts. `scale` has the different grades that were given, in their order. `repeated`: how many grades were of a page
    that had one, from the same person where the file names graders. `graders` is empty where it does not.
    """

    pages: Ids
    written: Ids
    texts: list[str]
    values: Floats
    scale: Floats
    repeated: int
    graders: tuple[Grader, ...]


def read_grades(name: str) -> Grades:
    """Read the grades of a file, plain or compressed, or of standard input ("-").

    The first line may hold the names of the columns; with a column `grader` every line needs the name of one, and the
    last grade of each person counts. Raises `InputRefused`, with the line, for anything that is no grade.
    """
    texts: dict[str, str] = {}
    numbers: dict[str, int] = {}
    given: dict[tuple[int, int | str], float] = {}
    line = 0
    for line, (text, grade, grader) in enumerate(_rows(name), 1):
        form = _canonical(text)
        texts.setdefault(form, text)
        given[numbers.setdefault(form, len(numbers)), grader or line] = grade
    if not given:
        raise InputRefused(f"{_shown_name(name)}: no grade is in it: write lines such as https://example.org/,3")
    graders = list(dict.fromkeys(who for _, who in given if isinstance(who, str)))
    if len(graders) > _MOST_GRADERS:
        raise InputRefused(
            f"{_shown_name(name)}: {len(graders):,} graders: give {_MOST_GRADERS:,} at most, or no names"
        )
    rows = np.fromiter((page for page, _ in given), np.int64, len(given))
    values = np.fromiter(given.values(), np.float64, len(given))
    by_name: dict[int | str, list[int]] = {who: [] for who in graders}
    for at, (_, who) in enumerate(given if graders else ()):
        by_name[who].append(at)
    return Grades(
        page_ids(numbers),
        page_ids(texts.values()),
        list(texts.values()),
        np.round(np.bincount(rows, values) / np.bincount(rows), _DIGITS),
        np.unique(values),
        line - len(given if graders else numbers),
        tuple(Grader(who, rows[by_name[who]], values[by_name[who]]) for who in graders),
    )


def _rows(name: str) -> Iterator[tuple[str, float, str]]:
    """Yield pages, their grades, and who gave them: an empty name if the file does not have the graders."""
    url_at, grade_at, grader_at, columns = 0, 1, -1, 2
    is_first = True
    for number, cells in _cells(name):
        where = f"{_shown_name(name)}, line {number}"
        if is_first:
            is_first = False
            names = [cell.strip().lower() for cell in cells]
            url_names = [column for column in _URL_NAMES if column in names]
            if _GRADE_NAME in names and url_names:
                url_at, grade_at, columns = names.index(url_names[0]), names.index(_GRADE_NAME), len(names)
                grader_at = names.index(_GRADER_NAME) if _GRADER_NAME in names else -1
                continue
            if len(cells) != 2:
                raise InputRefused(
                    f"{where}: {len(cells)} columns: write a URL and a grade, or name the columns url and grade, and "
                    "perhaps grader, in the first line"
                )
            if _number(cells[1]) is None and not set("./") & set(names[0]):
                continue  # names of columns in other words, not a site
        if len(cells) != columns:
            raise InputRefused(f"{where}: {len(cells)} columns, not {columns}")
        text, grade, grader = cells[url_at].strip(), _number(cells[grade_at]), cells[grader_at].strip()
        if not text:
            raise InputRefused(f"{where}: no URL: write it before its grade")
        if grade is None:
            raise InputRefused(f"{where}: {_shown(cells[grade_at])!r} is no grade: a number")
        if not grader:
            raise InputRefused(f"{where}: no grader: write a name, or omit the column")
        yield text, grade, grader if grader_at >= 0 else ""


def _cells(name: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the cells of every row that is not empty, and the number of the line on which it begins."""
    number = 1
    try:
        for block in whole_rows(_shown_name(name), pieces_of(name), ","):
            for number, cells in block.rows():
                if not are_utf_8(cells):
                    raise InputRefused(f"{_shown_name(name)}, line {number}: not UTF-8: write it again")
                if any(map(str.strip, cells)):
                    yield number, cells
    except csv.Error as problem:
        raise InputRefused(f"{_shown_name(name)}, after line {number}: {problem}: write it as CSV") from None


def _canonical(text: str) -> str:
    """Return the canonical URL; the text itself if it is none, such as the name of a site."""
    try:
        return canonical(text).decode()
    except NotAPage:
        return text


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and abs(number) <= 1e9 and "_" not in text else None


def _shown(text: str) -> str:
    return printable(text[:_MOST_SHOWN])


def _shown_name(name: str) -> str:
    return "standard input" if name == STDIN else name
