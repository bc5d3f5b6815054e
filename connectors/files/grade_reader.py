"""Reads the grades that people gave to pages or sites: CSV with a URL or the name of a site, and a number."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from opicflow.connectors.files.csv_tables import are_utf_8, whole_rows
from opicflow.connectors.files.line_blocks import pieces_of
from opicflow.connectors.files.opening import STDIN, InputRefused
from opicflow.schemas.arrays import Floats, Ids
from opicflow.schemas.errors import printable
from opicflow.schemas.pages import page_ids
from opicflow.schemas.urls import NotAPage, canonical

_URL_NAMES = ("url", "page", "site", "host", "domain")
_GRADE_NAME = "grade"
_MOST_SHOWN = 60


class Grades(NamedTuple):
    """The grade of each page, in the order of the file; several grades of a page are replaced by their mean.

    `pages` are the ids of the canonical URLs, `written` those of the texts as they are in the file, `texts` these
    texts. `repeated`: how many grades were of a page that had one.
    """

    pages: Ids
    written: Ids
    texts: list[str]
    values: Floats
    repeated: int


def read_grades(name: str) -> Grades:
    """Read the grades of a file, plain or compressed, or of standard input ("-").

    The first line may hold the names of the columns. Raises `InputRefused`, with the line, for anything that is no
    grade.
    """
    texts: dict[str, str] = {}
    grades: dict[str, list[float]] = {}
    for text, grade in _rows(name):
        form = _canonical(text)
        texts.setdefault(form, text)
        grades.setdefault(form, []).append(grade)
    if not grades:
        raise InputRefused(f"{_shown_name(name)}: no grade is in it: write lines such as https://example.org/,3")
    return Grades(
        page_ids(grades),
        page_ids(texts.values()),
        list(texts.values()),
        np.array([math.fsum(some) / len(some) for some in grades.values()]),
        sum(map(len, grades.values())) - len(grades),
    )


def _rows(name: str) -> Iterator[tuple[str, float]]:
    url_at, grade_at, columns = 0, 1, 2
    is_first = True
    for number, cells in _cells(name):
        if is_first:
            is_first = False
            names = [cell.strip().lower() for cell in cells]
            url_names = [column for column in _URL_NAMES if column in names]
            if _GRADE_NAME in names and url_names:
                url_at, grade_at, columns = names.index(url_names[0]), names.index(_GRADE_NAME), len(names)
                continue
            if len(cells) != 2:
                raise InputRefused(
                    f"{_shown_name(name)}, line {number}: {len(cells)} columns: write a URL and a grade, or name the "
                    "columns url and grade in the first line"
                )
            if _number(cells[1]) is None and not set("./") & set(names[0]):
                continue  # names of columns in other words, not a site
        if len(cells) != columns:
            raise InputRefused(f"{_shown_name(name)}, line {number}: {len(cells)} columns, not {columns}")
        text, grade = cells[url_at].strip(), _number(cells[grade_at])
        if not text:
            raise InputRefused(f"{_shown_name(name)}, line {number}: no URL: write it before its grade")
        if grade is None:
            raise InputRefused(f"{_shown_name(name)}, line {number}: {_shown(cells[grade_at])!r} is no grade: a number")
        yield text, grade


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
