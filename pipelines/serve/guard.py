"""Who may see the pages, and the headers that protect those who do."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opicflow.pipelines.serve.access import COOKIE, cookie_of, is_token
from opicflow.pipelines.serve.http_answers import json_answer, page_answer, wants_page

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
_OPEN = ("/healthz", "/login", "/static/style.css", "/static/icon.svg")
"""The addresses that need no token."""
_MOST_LOGIN_BYTES = 1 << 14
_OWN_SITES = ("same-origin", "none")
"""Values of Sec-Fetch-Site for requests of our own pages, and of addresses that a person has written."""


class Guard:
    """Refuses requests without the token or by pages of other sites, and adds the security headers to every answer."""

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
        if _is_of_other_site(request):
            answer = json_answer(
                {"error": "a page of another site sent this request: open it here"}, HTTPStatus.FORBIDDEN
            )
        elif self._token is not None and scope["path"] not in _OPEN and not self._knows(request):
            if wants_page(request):
                answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
            else:
                answer = json_answer({"error": "give the token: Authorization: Bearer TOKEN"}, HTTPStatus.UNAUTHORIZED)
                answer.headers["WWW-Authenticate"] = "Bearer"
        await answer(scope, receive, send_safely)

    def _knows(self, request: Request) -> bool:
        assert self._token is not None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and is_token(given.strip(), self._token):
            return True
        return is_token(request.cookies.get(COOKIE, ""), cookie_of(self._token))


def _is_of_other_site(request: Request) -> bool:
    """Whether a page of another site sent a request. A link that a person follows is none: it shows a page of ours."""
    headers = request.headers
    if headers.get("origin", "null").partition("://")[2] not in ("", headers.get("host", "")):
        return True
    is_followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return headers.get("sec-fetch-site", "none") not in _OWN_SITES and not (is_followed and request.method == "GET")


class Login:
    """The form that asks for the token, and its answer: a cookie that a browser keeps."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    async def answer(self, request: Request) -> Response:
        """Show the form, or let in who gives the token."""
        if self._token is None:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        if request.method == "GET":
            return page_answer("login.html", is_wrong=False)
        body = b""
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_LOGIN_BYTES:
                    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "this is not a token")
        except ClientDisconnect:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "the token has not arrived") from None
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not is_token(given, self._token):
            return page_answer("login.html", HTTPStatus.FORBIDDEN, is_wrong=True)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, cookie_of(self._token), httponly=True, samesite="strict", secure=is_secure)
        return answer
