"""The pages of `opicflow serve` for people."""

from __future__ import annotations

import math
from dataclasses import asdict
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from opicflow.pipelines.serve import wording
from opicflow.pipelines.serve.http_answers import (
    changes_of,
    filter_of,
    not_kept,
    page_answer,
    records_of,
    row_of_id,
    row_of_url,
    searched,
    window,
)
from opicflow.pipelines.serve.json_api import ENDPOINTS
from opicflow.pipelines.serve.page_table import Filter
from opicflow.pipelines.serve.sources import LiveSource, PageSource
from opicflow.pipelines.serve.view import TOP, View

PAGE_ROWS = 50
_SITE_PAGES = 20


class HtmlPages:
    """The pages, from a source."""

    def __init__(self, source: PageSource) -> None:
        self._source = source

    def overview(self, request: Request) -> Response:
        view = self._source.view()
        return page_answer("overview.html", view=view, records=records_of(view, range(min(TOP, len(view.table)))))

    def pages(self, request: Request) -> Response:
        view, wanted = self._source.view(), filter_of(request.query_params)
        heading = "Pages" if wanted == Filter() else f"Pages: {_in_words(wanted, view)}"
        return _listed(request, view, wanted, heading, is_url=False, filters=asdict(wanted))

    def page(self, request: Request) -> Response:
        view = self._source.view()
        row = row_of_id(view, request.path_params["page"])
        if isinstance(self._source, LiveSource):
            self._source.look_at(int(view.table.ids[row]))
        one, table = view.table.record(row), view.table
        payers = [
            (table.url(at) if at is not None else "", f"{page:016x}", part) for at, page, part in table.payers(row)
        ]
        why = None
        if "why" in request.query_params:
            found = self._source.reasons(int(table.ids[row]))
            why = found.to_json() if found else None
        return page_answer(
            "page.html",
            view=view,
            one=one,
            order=table.order_of(row),
            payers=payers,
            rest=max(1 - sum(part for _, _, part in payers), 0),
            history=view.history_of(int(table.ids[row])),
            policies=view.policies_of(row),
            rate_factor=_factor(one),
            why=why,
            can_explain=self._source.can_explain,
        )

    def words(self, request: Request) -> Response:
        return page_answer("words.html", view=self._source.view())

    def sites(self, request: Request) -> Response:
        view = self._source.view()
        by = "domain" if request.query_params.get("by") == "domain" else "host"
        sites = view.table.domains if by == "domain" else view.table.hosts
        first, count = window(request.query_params, PAGE_ROWS)
        before, after = _neighbours(request, first, count, len(sites))
        some = sites[first : first + count]
        return page_answer("sites.html", view=view, by=by, sites=some, total=len(sites), before=before, after=after)

    def host(self, request: Request) -> Response:
        return self._site("host", request.path_params["name"])

    def domain(self, request: Request) -> Response:
        return self._site("domain", request.path_params["name"])

    def _site(self, by: str, name: str) -> Response:
        view = self._source.view()
        sites = view.table.domains if by == "domain" else view.table.hosts
        site = view.table.site(by, name)
        if site is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"no {by} {wording.safe(name)} is known")
        wanted = Filter(host=name) if by == "host" else Filter(domain=name)
        records = records_of(view, view.table.listed(wanted, 0, _SITE_PAGES).rows)
        return page_answer(
            "site.html",
            view=view,
            by=by,
            site=site,
            sites=sites,
            records=records,
            outcomes=view.outcomes_of(by, name),
            visited=view.visits_of(by, name),
            due=view.due_of(by, name),
        )

    def changes(self, request: Request) -> Response:
        """Two times of the crawl, compared."""
        view = self._source.view()
        return page_answer("changes.html", view=view, changes=changes_of(view, request.query_params, PAGE_ROWS))

    def plan(self, request: Request) -> Response:
        view = self._source.view()
        first, count = window(request.query_params, PAGE_ROWS)
        total = len(view.table.order_rows)
        before, after = _neighbours(request, first, count, total)
        orders = [view.table.order(position) for position in range(first, min(first + count, total))]
        return page_answer("plan.html", view=view, orders=orders, first=first, total=total, before=before, after=after)

    def rejects(self, request: Request) -> Response:
        return page_answer("rejects.html", view=self._source.view())

    def search(self, request: Request) -> Response:
        """The page or host that is meant, or a list of pages that fit; all pages if nothing was written."""
        view, words = self._source.view(), searched(request.query_params, "q")
        if not words:
            return RedirectResponse("/pages", HTTPStatus.SEE_OTHER)
        if view.table.site("host", words) is not None:
            return RedirectResponse(f"/host/{quote(words, safe='')}", HTTPStatus.SEE_OTHER)
        row = row_of_url(self._source, view, words)
        if row is not None:
            return RedirectResponse(f"/page/{int(view.table.ids[row]):016x}", HTTPStatus.SEE_OTHER)
        if isinstance(self._source, LiveSource) and "://" in words and "*" not in words:
            raise not_kept(self._source, words)
        is_url = "://" in words and "*" not in words
        wanted, heading = Filter(pattern=words), f"Found: {words}"
        return _listed(request, view, wanted, heading, is_url=is_url, filters=None, query=words[:4000])

    def api(self, request: Request) -> Response:
        return page_answer("api.html", endpoints=ENDPOINTS)


def _listed(request: Request, view: View, wanted: Filter, heading: str, **values: object) -> Response:
    """Return the part of a list of pages that a request names."""
    first, count = window(request.query_params, PAGE_ROWS)
    found = view.table.listed(wanted, first, count)
    before, after = _neighbours(request, first, count, found.total)
    records = records_of(view, found.rows)
    more = {"records": records, "before": before, "after": after}
    return page_answer("pages.html", HTTPStatus.OK, view=view, heading=heading, found=found, **values, **more)


def _factor(one: dict[str, Any]) -> float | None:
    """The factor by which a change rate may be wrong, up or down; None if it is exact, or too uncertain."""
    error = one.get("changes_error")
    return math.exp(error) if error is not None and 0 < error < 7 else None


def _in_words(wanted: Filter, view: View) -> str:
    given = asdict(wanted)
    if wanted.category is not None:
        given["category"] = view.category_name(wanted.category)
    named = [
        (wording.FILTERS.get(name, name), value) for name, value in given.items() if value not in ("", None, False)
    ]
    return ", ".join(name if value is True else f"{name} {value}" for name, value in named)


def _neighbours(request: Request, first: int, count: int, total: int) -> tuple[str | None, str | None]:
    """The addresses of the rows before and after these."""
    given = {name: value for name, value in request.query_params.items() if name != "first" and value}

    def at(first_row: int) -> str:
        return f"{request.url.path}?{urlencode({**given, 'first': first_row})}"

    return (
        at(max(first - count, 0)) if first > 0 else None,
        at(first + count) if first + count < total else None,
    )
