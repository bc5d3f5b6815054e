"""The addresses of `opicflow serve`: pages for people, JSON and metrics for programs. All only read.

No page loads anything from elsewhere or runs a script but its own file: the content security policy forbids it.
"""

from __future__ import annotations

from asyncio import Future, Lock, ensure_future, shield
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from opicflow.pipelines.serve.connections import RequestLimit
from opicflow.pipelines.serve.guard import Guard, Login
from opicflow.pipelines.serve.html_pages import HtmlPages
from opicflow.pipelines.serve.http_answers import HTML, json_answer, page_answer, wants_page
from opicflow.pipelines.serve.json_api import ENDPOINTS, JsonApi, openapi
from opicflow.pipelines.serve.news import News
from opicflow.pipelines.serve.renderer import static_file
from opicflow.pipelines.serve.sources import PageSource
from opicflow.pipelines.serve.view import View
from opicflow.schemas.errors import UserError

_Answer = Callable[[Request], Response]
_AsyncAnswer = Callable[[Request], Awaitable[Response]]
_STATIC = {"style.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_MOST_MADE = 64
"""The most pages of a view that are remembered."""
_SENTENCES = {
    HTTPStatus.NOT_FOUND: "There is nothing at this address.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This address can only be read: use GET.",
}
"""What errors say that the server raises by itself."""


def web_app(source: PageSource, token: str | None = None, allowed_hosts: list[str] | None = None) -> Starlette:
    """Return the application. `token`: all viewers must give it. `allowed_hosts`: names of the server in requests."""
    pages, api = HtmlPages(source), JsonApi(source)
    of_all, explained = _OncePerView(source), _OneAtATime()
    answers = {one.path: getattr(api, one.path.replace("/", "_")[1:]) for one in ENDPOINTS}
    routes = [
        Route("/", of_all(pages.overview)),
        Route("/pages", of_all(pages.pages)),
        Route("/page/{page}", explained(pages.page, lambda request: "why" in request.query_params)),
        Route("/sites", of_all(pages.sites)),
        Route("/host/{name}", pages.host),
        Route("/domain/{name}", pages.domain),
        Route("/changes", of_all(pages.changes)),
        Route("/plan", of_all(pages.plan)),
        Route("/rejects", of_all(pages.rejects)),
        Route("/search", pages.search),
        Route("/words", pages.words),
        Route("/live", News(source).answer),
        Route("/api", pages.api),
        Route("/login", Login(token).answer, methods=["GET", "POST"]),
        Route("/static/{name}", _static),
        Route("/healthz", _healthz),
        Route("/metrics", api.metrics),
        Route("/api/openapi.json", openapi),
        *(Route(path, answer) for path, answer in {**answers, "/api/why": explained(api.api_why)}.items()),
    ]
    middleware = [Middleware(Guard, token=token), Middleware(RequestLimit)]
    if allowed_hosts is not None:
        middleware.insert(0, Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts))
    handlers: dict[Any, Callable[[Request, Any], Response]] = {HTTPException: _not_found, UserError: _unusable}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)


# The server has some dozens of threads. Who waits for the work of another request must not take one meanwhile.


class _OncePerView:
    """Renders a page once for all viewers of a view: many load it when something new is shown."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._view: View | None = None
        self._made: dict[str, Future[bytes]] = {}

    def __call__(self, answer: _Answer) -> _AsyncAnswer:
        """Return an answer that remembers its pages until there is another view."""

        async def remembered(request: Request) -> Response:
            address = f"{request.url.path}?{request.url.query}"
            view = await run_in_threadpool(self._source.view)
            if view is not self._view or len(self._made) >= _MOST_MADE:
                self._view, self._made = view, {}
            made = self._made
            if address not in made:
                made[address] = ensure_future(_body(answer, request))
            try:
                return Response(await shield(made[address]), media_type=HTML)
            except Exception:
                made.pop(address, None)
                raise

        return remembered


async def _body(answer: _Answer, request: Request) -> bytes:
    return bytes((await run_in_threadpool(answer, request)).body)


class _OneAtATime:
    """Answers one request after the other: the first one may wait for a ledger to be read."""

    def __init__(self) -> None:
        self._turn = Lock()

    def __call__(self, answer: _Answer, is_slow: Callable[[Request], bool] = lambda request: True) -> _AsyncAnswer:
        """Return an answer that waits for its turn where it is slow."""

        async def in_turn(request: Request) -> Response:
            async with self._turn if is_slow(request) else nullcontext():
                return await run_in_threadpool(answer, request)

        return in_turn


# No threads for the smallest answers: they show that the server is there.


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such file")
    return Response(static_file(name), media_type=f"{_STATIC[name]}; charset=utf-8")


async def _healthz(request: Request) -> Response:
    return Response("ok\n", media_type="text/plain; charset=utf-8")


def _not_found(request: Request, problem: HTTPException) -> Response:
    phrase = HTTPStatus(problem.status_code).phrase
    sentence = _SENTENCES.get(HTTPStatus(problem.status_code), phrase) if problem.detail == phrase else problem.detail
    if not wants_page(request):
        return json_answer({"error": sentence}, problem.status_code)
    return page_answer("message.html", problem.status_code, heading=phrase, sentence=sentence)


def _unusable(request: Request, problem: UserError) -> Response:
    """The source cannot be read now: answer with the reason."""
    if not wants_page(request):
        return json_answer({"error": str(problem)}, HTTPStatus.SERVICE_UNAVAILABLE)
    return page_answer(
        "message.html", HTTPStatus.SERVICE_UNAVAILABLE, heading="This cannot be read now", sentence=str(problem)
    )
