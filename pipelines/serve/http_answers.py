"""What pages and the API share: what a request asks for, and the forms of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from http import HTTPStatus

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from opicflow.pipelines.serve import wording
from opicflow.pipelines.serve.page_table import Filter
from opicflow.pipelines.serve.renderer import render
from opicflow.pipelines.serve.sources import LiveSource, PageSource
from opicflow.pipelines.serve.view import DAY_MS, Changes, View
from opicflow.schemas.errors import UserError
from opicflow.schemas.url_forms import LONGEST_URL
from opicflow.schemas.url_patterns import MOST_STARS

HTML = "text/html; charset=utf-8"
MOST_ROWS = 1000


def page_answer(template: str, status: int = HTTPStatus.OK, **values: object) -> Response:
    """A page for people, from a template."""
    return Response(render(template, **values), status, media_type=HTML)


def json_answer(values: object, status: int = HTTPStatus.OK) -> Response:
    """An answer for programs."""
    return Response(orjson.dumps(values, default=str), status, media_type="application/json")


def wants_page(request: Request) -> bool:
    """Whether an error is to be shown as a page, not as JSON."""
    path = request.url.path
    return not path.startswith("/api/") and path != "/metrics" and "text/html" in request.headers.get("accept", "")


def filter_of(given: Mapping[str, str]) -> Filter:
    """The filter that the parameters of a request name; values that cannot be read count as not given."""
    flags = {one.name: given.get(one.name) in ("1", "true", "on") for one in fields(Filter) if one.type == "bool"}
    category = given.get("category", "")
    return Filter(
        host=given.get("host", "").strip(),
        domain=given.get("domain", "").strip(),
        category=int(category) if category.isascii() and category.isdecimal() and len(category) < 4 else None,
        pattern=searched(given, "pattern"),
        **flags,
    )


def searched(given: Mapping[str, str], name: str) -> str:
    """The words or the pattern that a request searches for. Raises a 400 for a long one or one with many stars."""
    words = given.get(name, "").strip()
    if len(words) > LONGEST_URL or words.count("*") > MOST_STARS:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST,
            f"a search has at most {LONGEST_URL:,} characters and {MOST_STARS} stars: shorten it",
        )
    return words


def window(given: Mapping[str, str], usual: int, count_name: str = "") -> tuple[int, int]:
    """The first row and the number of rows that a request asks for."""

    def natural(name: str, default: int, most: int) -> int:
        text = given.get(name, "")
        return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 13 else default

    return natural("first", 0, 1 << 40), natural(count_name, usual, MOST_ROWS) if count_name else usual


def changes_of(view: View, given: Mapping[str, str], count: int) -> Changes | None:
    """Compare the last kept times up to `since` and `until`, in ms: by default the end, and a day before.

    None if fewer than two times are kept.
    """
    times = view.compared_times
    if len(times) < 2:
        return None

    def last_until(name: str, default: int, some: list[int]) -> int:
        text = given.get(name, "")
        wanted = int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else default
        return max((time for time in some if time <= wanted), default=some[0])

    until = last_until("until", times[-1], times[1:])
    since = last_until("since", until - DAY_MS, [time for time in times if time < until])
    return view.changes(since, until, count)


def records_of(view: View, rows: Iterable[int]) -> list[dict[str, object]]:
    """The records of these rows of the table."""
    return [view.table.record(row) for row in rows]


def row_of_id(view: View, page: str) -> int:
    """The row of a page id of 16 hexadecimal digits. Raises a 404 if there is none."""
    try:
        row = view.table.row_of(int(page, 16)) if len(page) <= 16 else None
    except (ValueError, OverflowError):
        row = None
    if row is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"no page has the id {wording.safe(page, 40)}")
    return row


def row_of_url(source: PageSource, view: View, url: str) -> int | None:
    """The row of a URL, as it is written or in its canonical form; None if there is none."""
    row = view.table.row_of_url(url)
    if row is None and url:
        try:
            row = view.table.row_of_url(source.canonical(url))
        except UserError:
            return None
    return row


def not_kept(source: LiveSource, url: str) -> HTTPException:
    """The answer about a page that a live source does not keep; it keeps the page from now on."""
    try:
        sentence = source.look_for(source.canonical(url))
    except UserError as problem:
        sentence = str(problem)
    return HTTPException(HTTPStatus.NOT_FOUND, f"{wording.safe(url)}: {sentence}")
