"""The addresses of `opicflow serve`: pages for people, JSON and metrics for programs. All only read.

No page loads anything from elsewhere or runs a script but its own file: the content security policy forbids it.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, fields
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opicflow.pipelines.serve import wording
from opicflow.pipelines.serve.access import COOKIE, cookie_of, is_token
from opicflow.pipelines.serve.page_table import Filter
from opicflow.pipelines.serve.prometheus import metrics_of
from opicflow.pipelines.serve.renderer import render, static_file
from opicflow.pipelines.serve.sources import LiveSource, PageSource
from opicflow.pipelines.serve.view import TOP, Ages, View
from opicflow.schemas.errors import UserError

PAGE_ROWS = 50
MOST_ROWS = 1000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC = {"style.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_OPEN = ("/healthz", "/login", "/static/style.css", "/static/icon.svg")
"""The addresses that need no token."""
_MOST_LOGIN_BYTES = 1 << 14
_MOST_MADE = 64
"""The most pages of a view that are remembered."""
_SENTENCES = {
    HTTPStatus.NOT_FOUND: "There is nothing at this address.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This address can only be read: use GET.",
}
"""What errors say that the server raises by itself."""
_HTML = "text/html; charset=utf-8"
_MOST_VIEWERS = 150
"""The most browsers that get news; the pages of others do not change by themselves."""
_KEEP_ALIVE_SECONDS = 15.0
"""Without news a comment is sent after so long: it shows whether the browser is still connected."""


class Endpoint(NamedTuple):
    """An address for programs: its result, and its parameters with their meaning."""

    path: str
    example: str
    summary: str
    parameters: tuple[tuple[str, str], ...] = ()


_N = (("n", f"how many rows, at most {MOST_ROWS}"), ("first", "omit so many rows"))
ENDPOINTS = (
    Endpoint("/api/health", "/api/health", "the light for the books, and the checks behind it"),
    Endpoint(
        "/api/summary", "/api/summary", "counts of events and pages, the plan, options, notes; of a stream its rates"
    ),
    Endpoint(
        "/api/top",
        "/api/top?n=10",
        "pages, the most important first; risers and fallers by how fast",
        (
            *_N,
            *((name, "such as host=example.org") for name in ("host", "domain")),
            ("category", "the number of a category"),
            ("pattern", "a piece of the URL; with *, a pattern for the whole URL"),
            *((name, "1: only such pages") for name in ("read", "unread", "gone", "rising", "falling", "overdue")),
        ),
    ),
    Endpoint(
        "/api/page",
        "/api/page?url=",
        "a page: importance, who pays it, visits, change rate, next fetch, history, policies that hold for it",
        (("url", "its URL; it need not be canonical"), ("id", "or its page id")),
    ),
    Endpoint(
        "/api/why",
        "/api/why?url=",
        "why a page is where it is; reads the ledger",
        (("url", "its URL"), ("id", "or its page id")),
    ),
    Endpoint("/api/movers", "/api/movers", "the pages that rise and fall fastest among the first thousand"),
    Endpoint("/api/hosts", "/api/hosts?n=10", "hosts, the most important first", _N),
    Endpoint("/api/domains", "/api/domains?n=10", "registrable domains, the most important first", _N),
    Endpoint(
        "/api/orders", "/api/orders?n=10", "the fetches that are ordered, in their order, and how long they wait", _N
    ),
    Endpoint("/api/rejects", "/api/rejects", "events that could not be used: by reason, with examples"),
    Endpoint("/api/history", "/api/history", "how the crawl went: pages known and read, idle cash, the first pages"),
    Endpoint("/api/find", "/api/find?q=docs", "hosts and pages that fit what somebody types", (("q", "the words"),)),
)


def web_app(source: PageSource, token: str | None = None, allowed_hosts: list[str] | None = None) -> Starlette:
    """Return the application. `token`: all viewers must give it. `allowed_hosts`: names of the server in requests."""
    pages = _Pages(source, token)
    of_all = _OncePerView(source)
    routes = [
        Route("/", of_all(pages.overview)),
        Route("/pages", of_all(pages.pages)),
        Route("/page/{page}", pages.page),
        Route("/sites", of_all(pages.sites)),
        Route("/host/{name}", pages.host),
        Route("/domain/{name}", pages.domain),
        Route("/plan", of_all(pages.plan)),
        Route("/rejects", of_all(pages.rejects)),
        Route("/search", pages.search),
        Route("/words", pages.words),
        Route("/live", pages.live),
        Route("/api", pages.api),
        Route("/login", pages.login, methods=["GET", "POST"]),
        Route("/static/{name}", _static),
        Route("/healthz", _healthz),
        Route("/metrics", pages.metrics),
        Route("/api/openapi.json", _openapi),
        *(Route(one.path, getattr(pages, one.path.replace("/", "_")[1:])) for one in ENDPOINTS),
    ]
    middleware = [Middleware(_Guard, token=token)]
    if allowed_hosts is not None:
        middleware.insert(0, Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts))
    handlers: dict[Any, Callable[[Request, Any], Response]] = {HTTPException: _not_found, UserError: _unusable}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


class _OncePerView:
    """Renders a page once for all viewers of a view: many load it when something new is shown."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._making = threading.Lock()
        self._view: View | None = None
        self._made: dict[str, bytes] = {}

    def __call__(self, answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """Return an answer that remembers its pages until there is another view."""

        def remembered(request: Request) -> Response:
            address = f"{request.url.path}?{request.url.query}"
            view = self._source.view()
            with self._making:
                if view is not self._view or len(self._made) >= _MOST_MADE:
                    self._view, self._made = view, {}
                if address not in self._made:
                    self._made[address] = bytes(answer(request).body)
                return Response(self._made[address], media_type=_HTML)

        return remembered


class _Guard:
    """Refuses requests without the token, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *given]}
            await send(message)

        request = Request(scope)
        answer: ASGIApp = self._app
        if self._token is not None and scope["path"] not in _OPEN and not self._knows(request):
            if _wants_page(request):
                answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
            else:
                answer = _json({"error": "give the token: Authorization: Bearer TOKEN"}, HTTPStatus.UNAUTHORIZED)
                answer.headers["WWW-Authenticate"] = "Bearer"
        await answer(scope, receive, send_safely)

    def _knows(self, request: Request) -> bool:
        assert self._token is not None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and is_token(given.strip(), self._token):
            return True
        return is_token(request.cookies.get(COOKIE, ""), cookie_of(self._token))


def _wants_page(request: Request) -> bool:
    path = request.url.path
    return not path.startswith("/api/") and path != "/metrics" and "text/html" in request.headers.get("accept", "")


class _Pages:
    """The answers, from a source."""

    def __init__(self, source: PageSource, token: str | None) -> None:
        self._source = source
        self._token = token
        self._viewers = 0

    # -- for people ---------------------------------------------------------------------------------------------------

    def overview(self, request: Request) -> Response:
        view = self._source.view()
        return _page("overview.html", view=view, records=_records(view, range(min(TOP, len(view.table)))))

    def pages(self, request: Request) -> Response:
        view, wanted = self._source.view(), _filter_of(request.query_params)
        first, count = _window(request.query_params, PAGE_ROWS)
        found = view.table.listed(wanted, first, count)
        before, after = _neighbours(request, first, count, found.total)
        heading = "Pages" if wanted == Filter() else f"Pages: {_in_words(wanted, view)}"
        return _page(
            "pages.html",
            view=view,
            heading=heading,
            found=found,
            is_url=False,
            filters=asdict(wanted),
            records=_records(view, found.rows),
            before=before,
            after=after,
        )

    def page(self, request: Request) -> Response:
        view = self._source.view()
        row = _row(view, request.path_params["page"])
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
        return _page(
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
        return _page("words.html", view=self._source.view())

    def sites(self, request: Request) -> Response:
        view = self._source.view()
        by = "domain" if request.query_params.get("by") == "domain" else "host"
        sites = view.table.domains if by == "domain" else view.table.hosts
        first, count = _window(request.query_params, PAGE_ROWS)
        before, after = _neighbours(request, first, count, len(sites))
        some = sites[first : first + count]
        return _page("sites.html", view=view, by=by, sites=some, total=len(sites), before=before, after=after)

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
        records = _records(view, view.table.listed(wanted, 0, 20).rows)
        return _page("site.html", view=view, by=by, site=site, sites=sites, records=records)

    def plan(self, request: Request) -> Response:
        view = self._source.view()
        first, count = _window(request.query_params, PAGE_ROWS)
        total = len(view.table.order_rows)
        before, after = _neighbours(request, first, count, total)
        orders = [view.table.order(position) for position in range(first, min(first + count, total))]
        return _page("plan.html", view=view, orders=orders, first=first, total=total, before=before, after=after)

    def rejects(self, request: Request) -> Response:
        return _page("rejects.html", view=self._source.view())

    def search(self, request: Request) -> Response:
        """The page or host that is meant, or a list of pages that fit; all pages if nothing was written."""
        view, words = self._source.view(), request.query_params.get("q", "").strip()
        if not words:
            return RedirectResponse("/pages", HTTPStatus.SEE_OTHER)
        if view.table.site("host", words) is not None:
            return RedirectResponse(f"/host/{quote(words, safe='')}", HTTPStatus.SEE_OTHER)
        row = self._row_of_url(view, words)
        if row is not None:
            return RedirectResponse(f"/page/{int(view.table.ids[row]):016x}", HTTPStatus.SEE_OTHER)
        if isinstance(self._source, LiveSource) and "://" in words and "*" not in words:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"{wording.safe(words)}: {self._not_kept(self._source, words)}")
        first, count = _window(request.query_params, PAGE_ROWS)
        found = view.table.listed(Filter(pattern=words), first, count)
        before, after = _neighbours(request, first, count, found.total)
        return _page(
            "pages.html",
            view=view,
            heading=f"Found: {words}",
            query=words[:4000],
            found=found,
            is_url="://" in words and "*" not in words,
            filters=None,
            records=_records(view, found.rows),
            before=before,
            after=after,
        )

    def live(self, request: Request) -> Response:
        """Server-sent events: `news` whenever there is something new to show."""
        if not isinstance(self._source, LiveSource):
            raise HTTPException(HTTPStatus.NOT_FOUND, "this source does not change by itself: it has no news")
        if self._viewers >= _MOST_VIEWERS:
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{_MOST_VIEWERS} browsers follow it already: load the page again to see changes",
            )
        return StreamingResponse(self._news(self._source), media_type="text/event-stream")

    async def _news(self, source: LiveSource) -> AsyncIterator[str]:
        self._viewers += 1
        try:
            seen = await source.watchers.wait(-1, 0)
            yield "retry: 3000\n\n"
            while not source.watchers.has_ended:
                views = await source.watchers.wait(seen, _KEEP_ALIVE_SECONDS)
                if views > seen:
                    yield f"event: news\ndata: {views}\n\n"
                elif not source.watchers.has_ended:
                    yield ":\n\n"
                seen = views
        finally:
            self._viewers -= 1

    def api(self, request: Request) -> Response:
        return _page("api.html", endpoints=ENDPOINTS)

    async def login(self, request: Request) -> Response:
        if self._token is None:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        if request.method == "GET":
            return _page("login.html", is_wrong=False)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_LOGIN_BYTES:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this is not a token")
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not is_token(given, self._token):
            return _page("login.html", HTTPStatus.FORBIDDEN, is_wrong=True)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, cookie_of(self._token), httponly=True, samesite="strict", secure=is_secure)
        return answer

    # -- for programs -------------------------------------------------------------------------------------------------

    def metrics(self, request: Request) -> Response:
        return Response(metrics_of(self._source.view()), media_type="text/plain; version=0.0.4; charset=utf-8")

    def api_health(self, request: Request) -> Response:
        light = self._source.view().light
        checks = [one._asdict() for one in light.checks]
        return _json({"state": light.state, "headline": light.headline, "checks": checks})

    def api_summary(self, request: Request) -> Response:
        view = self._source.view()
        return _json(
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
        view, wanted = self._source.view(), _filter_of(request.query_params)
        found = view.table.listed(wanted, *_window(request.query_params, TOP, "n"))
        return _json({"total": found.total, "is_exact": found.is_exact, "pages": _records(view, found.rows)})

    def api_page(self, request: Request) -> Response:
        view, row = self._asked(request)
        table = view.table
        payers = [
            {"page": f"{page:016x}", "url": None if at is None else table.url(at), "part": part}
            for at, page, part in table.payers(row)
        ]
        history = [{"at": at, "importance": value} for at, value in view.history_of(int(table.ids[row]))]
        return _json(
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
        return _json(found.to_json())

    def api_movers(self, request: Request) -> Response:
        view = self._source.view()
        return _json({which: view.movers(which) for which in ("rising", "falling")})

    def api_hosts(self, request: Request) -> Response:
        return self._api_sites(request, "hosts")

    def api_domains(self, request: Request) -> Response:
        return self._api_sites(request, "domains")

    def _api_sites(self, request: Request, kind: str) -> Response:
        sites = getattr(self._source.view().table, kind)
        first, count = _window(request.query_params, TOP, "n")
        return _json({"total": len(sites), kind: [asdict(one) for one in sites[first : first + count]]})

    def api_orders(self, request: Request) -> Response:
        view = self._source.view()
        table, total = view.table, len(view.table.order_rows)
        first, count = _window(request.query_params, TOP, "n")
        orders = [table.order(position) for position in range(first, min(first + count, total))]
        return _json({"total": total, "ages": _ages_json(view.order_ages), "orders": orders})

    def api_rejects(self, request: Request) -> Response:
        view = self._source.view()
        meanings = {reason: wording.REASONS[reason] for reason in view.rejects if reason in wording.REASONS}
        examples = [one._asdict() for one in view.examples]
        return _json({"by_reason": view.rejects, "meanings": meanings, "examples": examples})

    def api_history(self, request: Request) -> Response:
        view = self._source.view()
        rows = [{**one._asdict(), "top": {f"{page:016x}": v for page, v in one.top.items()}} for one in view.history]
        return _json({"history": rows})

    def api_find(self, request: Request) -> Response:
        """Hosts and pages that fit the words, with shortened names."""
        view, words = self._source.view(), request.query_params.get("q", "").strip()
        if not words:
            return _json({"hosts": [], "pages": []})
        hosts = [one.name for one in view.table.find_hosts(words, 3)]
        pages = view.table.search(words, 8).rows
        row = self._row_of_url(view, words) if "://" in words else None
        if row is not None and row not in pages:
            pages.insert(0, row)
        return _json(
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
            return view, _row(view, request.query_params["id"])
        url = request.query_params.get("url", "")
        row = self._row_of_url(view, url)
        if row is None and url and isinstance(self._source, LiveSource):
            raise HTTPException(HTTPStatus.NOT_FOUND, f"{wording.safe(url)}: {self._not_kept(self._source, url)}")
        if row is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"{wording.safe(url)}: not known: give url=https://… or id=…")
        return view, row

    def _not_kept(self, source: LiveSource, url: str) -> str:
        """The sentence about a page that the source does not keep; the source keeps it from now on."""
        try:
            return source.look_for(source.canonical(url))
        except UserError as problem:
            return str(problem)

    def _row_of_url(self, view: View, url: str) -> int | None:
        row = view.table.row_of_url(url)
        if row is None and url:
            try:
                row = view.table.row_of_url(self._source.canonical(url))
            except UserError:
                return None
        return row


def _ages_json(ages: Ages) -> dict[str, Any]:
    longer = {f"longer_than_{name.split()[1]}": count for name, count in ages.longer}
    return {"total": ages.total, "since": ages.since_ms, "seconds": ages.seconds, **longer}


def _records(view: View, rows: Any) -> list[dict[str, Any]]:
    return [view.table.record(row) for row in rows]


def _row(view: View, page: str) -> int:
    try:
        row = view.table.row_of(int(page, 16)) if len(page) <= 16 else None
    except (ValueError, OverflowError):
        row = None
    if row is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"no page has the id {wording.safe(page, 40)}")
    return row


def _factor(one: dict[str, Any]) -> float | None:
    """The factor by which a change rate may be wrong, up or down; None if it is exact, or too uncertain."""
    import math

    error = one.get("changes_error")
    return math.exp(error) if error is not None and 0 < error < 7 else None


def _filter_of(given: Mapping[str, str]) -> Filter:
    flags = {one.name: given.get(one.name) in ("1", "true", "on") for one in fields(Filter) if one.type == "bool"}
    category = given.get("category", "")
    return Filter(
        host=given.get("host", "").strip(),
        domain=given.get("domain", "").strip(),
        category=int(category) if category.isascii() and category.isdecimal() and len(category) < 4 else None,
        pattern=given.get("pattern", "").strip(),
        **flags,
    )


def _in_words(wanted: Filter, view: View) -> str:
    given = asdict(wanted)
    if wanted.category is not None:
        given["category"] = view.category_name(wanted.category)
    named = [(name, value) for name, value in given.items() if value not in ("", None, False)]
    return ", ".join(name if value is True else f"{name} {value}" for name, value in named)


def _window(given: Mapping[str, str], usual: int, count_name: str = "") -> tuple[int, int]:
    def natural(name: str, default: int, most: int) -> int:
        text = given.get(name, "")
        return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 13 else default

    return natural("first", 0, 1 << 40), natural(count_name, usual, MOST_ROWS) if count_name else usual


def _neighbours(request: Request, first: int, count: int, total: int) -> tuple[str | None, str | None]:
    """The addresses of the rows before and after these."""
    given = {name: value for name, value in request.query_params.items() if name != "first" and value}

    def at(first_row: int) -> str:
        return f"{request.url.path}?{urlencode({**given, 'first': first_row})}"

    return (
        at(max(first - count, 0)) if first > 0 else None,
        at(first + count) if first + count < total else None,
    )


def _page(template: str, status: int = HTTPStatus.OK, **values: Any) -> Response:
    return Response(render(template, **values), status, media_type=_HTML)


def _json(values: Any, status: int = HTTPStatus.OK) -> Response:
    return Response(orjson.dumps(values, default=str), status, media_type="application/json")


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such file")
    return Response(static_file(name), media_type=f"{_STATIC[name]}; charset=utf-8")


def _healthz(request: Request) -> Response:
    return Response("ok\n", media_type="text/plain; charset=utf-8")


def _openapi(request: Request) -> Response:
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
    return _json({"openapi": "3.1.0", "info": {"title": "opicflow", "version": "1"}, "paths": paths})


def _not_found(request: Request, problem: HTTPException) -> Response:
    phrase = HTTPStatus(problem.status_code).phrase
    sentence = _SENTENCES.get(HTTPStatus(problem.status_code), phrase) if problem.detail == phrase else problem.detail
    if not _wants_page(request):
        return _json({"error": sentence}, problem.status_code)
    return _page("message.html", problem.status_code, heading=phrase, sentence=sentence)


def _unusable(request: Request, problem: UserError) -> Response:
    """The source cannot be read now: answer with the reason."""
    if not _wants_page(request):
        return _json({"error": str(problem)}, HTTPStatus.SERVICE_UNAVAILABLE)
    return _page(
        "message.html", HTTPStatus.SERVICE_UNAVAILABLE, heading="This cannot be read now", sentence=str(problem)
    )
