"""The addresses of `opicflow serve` for programs: JSON, its description, and metrics."""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from opicflow.pipelines.serve import wording
from opicflow.pipelines.serve.http_answers import (
    MOST_ROWS,
    changes_of,
    filter_of,
    json_answer,
    not_kept,
    records_of,
    row_of_id,
    row_of_url,
    searched,
    window,
)
from opicflow.pipelines.serve.prometheus import metrics_of
from opicflow.pipelines.serve.sources import LiveSource, PageSource
from opicflow.pipelines.serve.view import TOP, Ages, View


class Endpoint(NamedTuple):
    """An address for programs: its result, and its parameters with their meaning."""

    path: str
    summary: str
    parameters: tuple[tuple[str, str], ...] = ()
    example: str = ""
    """Parameters for an example."""


_N = (("n", f"how many rows, at most {MOST_ROWS}"), ("first", "omit so many rows"))
_ONE = (("url", "its URL; it need not be canonical"), ("id", "or its page id"))
ENDPOINTS = (
    Endpoint("/api/health", "the light for the books, and the checks behind it"),
    Endpoint(
        "/api/summary", "counts of events and pages, the plan, options, notes; of a stream how many records are unread"
    ),
    Endpoint(
        "/api/top",
        "pages, the most important first; risers and fallers by how fast",
        (
            *_N,
            *((name, "such as host=example.org") for name in ("host", "domain")),
            ("category", "the number of a category"),
            ("pattern", "a piece of the URL; with *, a pattern for the whole URL"),
            *((name, "1: only such pages") for name in ("read", "unread", "gone", "rising", "falling", "overdue")),
        ),
        "?n=10",
    ),
    Endpoint(
        "/api/page",
        "a page: importance, who pays it, visits, change rate, next fetch, history, policies that hold for it",
        _ONE,
        "?url=",
    ),
    Endpoint("/api/why", "why a page is where it is; reads the ledger", _ONE, "?url="),
    Endpoint("/api/movers", "the pages that rise and fall fastest among the first thousand"),
    Endpoint(
        "/api/changes",
        "two times of the crawl compared: pages that have risen and fallen, new ones, and gone ones",
        (
            ("since", "a time in ms; the last kept time up to it is compared (a day before the end)"),
            ("until", "the same (the end)"),
            ("n", f"how many pages of each list, at most {MOST_ROWS}"),
        ),
        "?n=10",
    ),
    Endpoint("/api/hosts", "hosts, the most important first", _N, "?n=10"),
    Endpoint("/api/domains", "registrable domains, the most important first", _N, "?n=10"),
    Endpoint("/api/orders", "the fetches that are ordered, in their order, and how long they wait", _N, "?n=10"),
    Endpoint("/api/rejects", "events that could not be used: by reason, with examples"),
    Endpoint("/api/history", "how the crawl went: pages known and read, idle cash, the first pages"),
    Endpoint("/api/find", "hosts and pages that fit what somebody types", (("q", "the words"),), "?q=docs"),
)


class JsonApi:
    """The answers, from a source. A method is named after its address: `api_top` answers /api/top."""

    def __init__(self, source: PageSource) -> None:
        self._source = source

    def metrics(self, request: Request) -> Response:
        return Response(metrics_of(self._source.view()), media_type="text/plain; version=0.0.4; charset=utf-8")

    def api_health(self, request: Request) -> Response:
        light = self._source.view().light
        checks = [one._asdict() for one in light.checks]
        return json_answer({"state": light.state, "headline": light.headline, "checks": checks})

    def api_summary(self, request: Request) -> Response:
        view = self._source.view()
        return json_answer(
            {
                "title": view.title,
                "version": view.version,
                "time": view.time_ms or None,
                "pages": view.pages,
                "pages_here": len(view.table),
                "pages_read": view.pages_read,
                "waiting": view.waiting,
                "not_measured": view.default_histories,
                "overdue": view.overdue,
                "overdue_ages": _ages_json(view.overdue_ages),
                "order_ages": _ages_json(view.order_ages),
                "hosts": len(view.table.hosts),
                "importance_of_first_10": view.importance_of_first(10),
                "certificate": view.certificate,
                "drift": view.drift,
                "counts": view.counts,
                "plan": view.plan,
                "scores": [one._asdict() for one in view.scores],
                "due": dict(view.due),
                "outcomes": dict(view.outcomes),
                "orders_by_reason": {one.name: one.orders for one in view.orders_by_reason},
                "orders_by_host": {one.name: one.orders for one in view.orders_by_host},
                "idle": view.idle,
                "options": dict(view.options),
                "notes": view.notes,
                "live": None if view.live is None else asdict(view.live),
            }
        )

    def api_top(self, request: Request) -> Response:
        view, wanted = self._source.view(), filter_of(request.query_params)
        found = view.table.listed(wanted, *window(request.query_params, TOP, "n"))
        return json_answer({"total": found.total, "is_exact": found.is_exact, "pages": records_of(view, found.rows)})

    def api_page(self, request: Request) -> Response:
        view, row = self._asked(request)
        table = view.table
        payers = [
            {"page": f"{page:016x}", "url": None if at is None else table.url(at), "part": part}
            for at, page, part in table.payers(row)
        ]
        history = [{"at": at, "importance": value} for at, value in view.history_of(int(table.ids[row]))]
        return json_answer(
            {
                **table.record(row),
                "order": table.order_of(row),
                "payers": payers if table.has_payers else None,
                "history": history,
                "policies": view.policies_of(row),
            }
        )

    def api_why(self, request: Request) -> Response:
        view, row = self._asked(request)
        found = self._source.reasons(int(view.table.ids[row]))
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "the ledger of this page is not here")
        return json_answer(found.to_json())

    def api_movers(self, request: Request) -> Response:
        view = self._source.view()
        return json_answer({which: view.movers(which) for which in ("rising", "falling")})

    def api_changes(self, request: Request) -> Response:
        view = self._source.view()
        _, count = window(request.query_params, TOP, "n")
        changes = changes_of(view, request.query_params, count)
        found = None if changes is None else changes._asdict()
        return json_answer({"times": view.compared_times, "changes": found})

    def api_hosts(self, request: Request) -> Response:
        return self._api_sites(request, "hosts")

    def api_domains(self, request: Request) -> Response:
        return self._api_sites(request, "domains")

    def _api_sites(self, request: Request, kind: str) -> Response:
        sites = getattr(self._source.view().table, kind)
        first, count = window(request.query_params, TOP, "n")
        return json_answer({"total": len(sites), kind: [asdict(one) for one in sites[first : first + count]]})

    def api_orders(self, request: Request) -> Response:
        view = self._source.view()
        table, total = view.table, len(view.table.order_rows)
        first, count = window(request.query_params, TOP, "n")
        orders = [table.order(position) for position in range(first, min(first + count, total))]
        return json_answer({"total": total, "ages": _ages_json(view.order_ages), "orders": orders})

    def api_rejects(self, request: Request) -> Response:
        view = self._source.view()
        meanings = {reason: wording.REASONS[reason] for reason in view.rejects if reason in wording.REASONS}
        examples = [one._asdict() for one in view.examples]
        return json_answer({"by_reason": view.rejects, "meanings": meanings, "examples": examples})

    def api_history(self, request: Request) -> Response:
        view = self._source.view()
        rows = [{**one._asdict(), "top": {f"{page:016x}": v for page, v in one.top.items()}} for one in view.history]
        return json_answer({"history": rows})

    def api_find(self, request: Request) -> Response:
        """Hosts and pages that fit the words, with shortened names."""
        view, words = self._source.view(), searched(request.query_params, "q")
        if not words:
            return json_answer({"hosts": [], "pages": []})
        hosts = [one.name for one in view.table.find_hosts(words, 3)]
        pages = view.table.search(words, 8).rows
        row = row_of_url(self._source, view, words) if "://" in words else None
        if row is not None and row not in pages:
            pages.insert(0, row)
        return json_answer(
            {
                "hosts": [
                    {"address": f"/host/{quote(name, safe='')}", "shown": wording.safe(name, 70), "kind": "host"}
                    for name in hosts
                ],
                "pages": [
                    {
                        "address": f"/page/{int(view.table.ids[row]):016x}",
                        "shown": wording.safe(view.table.url(row), 90),
                        "kind": f"rank {row + 1:,}",
                    }
                    for row in pages
                ],
            }
        )

    def _asked(self, request: Request) -> tuple[View, int]:
        view = self._source.view()
        if "id" in request.query_params:
            return view, row_of_id(view, request.query_params["id"])
        url = request.query_params.get("url", "")
        row = row_of_url(self._source, view, url)
        if row is None and url and isinstance(self._source, LiveSource):
            raise not_kept(self._source, url)
        if row is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"{wording.safe(url)}: not known: give url=https://… or id=…")
        return view, row


def openapi(request: Request) -> Response:
    """Return what the addresses are, for programs that make clients."""
    paths = {
        one.path: {
            "get": {
                "summary": one.summary,
                "parameters": [
                    {"name": name, "in": "query", "description": meaning, "schema": {"type": "string"}}
                    for name, meaning in one.parameters
                ],
                "responses": {"200": {"description": "JSON", "content": {"application/json": {}}}},
            }
        }
        for one in ENDPOINTS
    }
    return json_answer({"openapi": "3.1.0", "info": {"title": "opicflow", "version": "1"}, "paths": paths})


def _ages_json(ages: Ages) -> dict[str, object]:
    longer = {f"longer_than_{name.split()[1]}": count for name, count in ages.longer}
    return {"total": ages.total, "since": ages.since_ms, "seconds": ages.seconds, **longer}
