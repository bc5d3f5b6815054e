"""The pages of `opicflow serve`: every address answers, nothing from a crawl becomes markup, only the token opens."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import requests
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from opicflow.pipelines.cli.main import parse
from opicflow.pipelines.serve import access, json_api, news
from opicflow.pipelines.serve.access import ServeRefused, is_this_machine, read_token
from opicflow.pipelines.serve.html_pages import HtmlPages
from opicflow.pipelines.serve.http_answers import json_answer
from opicflow.pipelines.serve.json_api import JsonApi
from opicflow.pipelines.serve.renderer import render_report
from opicflow.pipelines.serve.sources import RereadView
from opicflow.pipelines.serve.view import View
from opicflow.pipelines.serve.web_app import web_app
from opicflow.schemas.arrays import Array
from support.commands import refusal
from support.views import (
    DAY,
    EMPTY,
    NOW,
    SMALL,
    GivenStream,
    GivenView,
    hostile_view,
    live_view,
    served,
    table_of,
    view_of,
)
from support.waiting import wait_for

TOKEN = "correct-horse-battery"
PAGES = [
    "/",
    "/pages",
    "/pages?unread=1&first=50",
    "/sites",
    "/sites?by=domain",
    "/plan",
    "/changes",
    "/rejects",
    "/api",
    "/search?q=docs",
]
TIMES = {"last_visit_ms", "due_second", "ordered_second", "not_before_second"}
VOID = {"meta", "link", "input", "br"}
HOSTILE_URLS = [
    "https://a.example/</script><script>window.hacked=1</script>",
    "https://a.example/\"onmouseover='window.hacked=1'",
    "https://a.example/\u202egnp.exe",
    "https://a.example/?a\x01b\x1b[31m\x7f",
    "javascript:window.hacked=1",
    "https://a.example/{{7*7}}{%raw%}",
    "https://a.example/" + "long" * 250_000,
]
HOSTILE = "</title></style><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e\x00"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(GivenView()) as at:
        yield at


class Checked(HTMLParser):
    """A page whose elements are balanced, and which runs and loads nothing but its own files."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.links: list[str] = []
        self.feed(page)
        self.close()
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = dict(attrs)
        assert not any(name.startswith("on") or name in ("style", "srcdoc") for name in held), held
        assert tag not in ("img", "iframe", "object", "embed", "base")
        if tag in ("script", "link"):
            assert (held.get("src") or held.get("href") or "").startswith("/static/")
        if tag == "a":
            href = held["href"] or ""
            assert (href.startswith("/") and not href.startswith("//")) or href.startswith("#"), href
            self.links.append(href)
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


def html(at: str, path: str) -> str:
    answer = requests.get(at + path, headers={"Accept": "text/html"}, timeout=60)
    assert answer.status_code == 200, answer.text[:300]
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    return answer.text


@pytest.mark.parametrize("view", [SMALL, EMPTY], ids=["small", "empty"])
def test_every_page_is_whole_and_every_link_leads_to_a_page(view) -> None:
    with served(GivenView(view)) as at:
        links = {link for path in PAGES for link in Checked(html(at, path)).links}
        seen = set(PAGES)
        for link in sorted(link for link in links if link.startswith("/")):
            kind = re.sub(r"[0-9a-f]{16}|host\d|first=\d+", "*", link)
            if kind in seen:
                continue
            seen.add(kind)
            answer = requests.get(at + link, headers={"Accept": "text/html"}, timeout=60)
            assert answer.status_code == 200 or link.startswith(("/api/page", "/api/why")), link
        if view is SMALL:
            assert {"/page/*", "/host/*.example", "/pages?overdue=1"} <= seen


def test_the_plan_shows_how_many_pages_are_limited_as_traps_and_twins() -> None:
    limited = dataclasses.replace(SMALL, plan={**SMALL.plan, "traps": 2, "twins": 1, "pages_limited": 12})
    for view, shown in ((limited, True), (SMALL, False)):
        with served(GivenView(view)) as at:
            assert (">12</data> pages in traps, and twins, get few orders" in html(at, "/plan")) is shown


def test_hostile_text_is_shown_and_never_becomes_markup() -> None:
    with served(GivenView(hostile_view(HOSTILE_URLS, HOSTILE))) as at:
        ids = [one["page"] for one in requests.get(f"{at}/api/top?n=50", timeout=60).json()["pages"]]
        for path in [*PAGES, *(f"/page/{page}" for page in ids)]:
            page = html(at, path)
            Checked(page)
            assert "<script>window" not in page and "\u202e" not in page and "\x00" not in page and "\x1b" not in page
            assert len(page) < 300_000, "a long URL is cut"
            assert "49" not in re.findall(r"a\.example/(\d+)", page), "a URL is no template"


def test_the_api_has_all_of_a_url_of_a_megabyte() -> None:
    with served(GivenView(hostile_view(HOSTILE_URLS, HOSTILE))) as at:
        ids = [one["page"] for one in requests.get(f"{at}/api/top?n=50", timeout=60).json()["pages"]]
        assert requests.get(f"{at}/api/page?id={ids[-1]}", timeout=60).json()["url"] == HOSTILE_URLS[-1]


def test_the_api_returns_the_rows_of_the_table(address: str) -> None:
    def get(path: str):
        answer = requests.get(address + path, timeout=60)
        assert answer.status_code == 200 and answer.headers["Content-Type"] == "application/json", path
        return answer.json()

    table = SMALL.table
    assert get("/api/top?n=3")["pages"] == [table.record(row) for row in range(3)]
    assert get("/api/top?n=3&first=10&unread=1")["total"] == SMALL.waiting
    url = table.url(5)
    assert get(f"/api/page?url={url}")["rank"] == 6
    assert get("/api/hosts?n=100") == {"total": 7, "hosts": [dataclasses.asdict(one) for one in table.hosts]}
    assert get("/api/health")["state"] == "right"
    assert get("/api/summary")["pages"] == 200 and get("/api/summary")["live"] is None
    assert get("/api/movers")["rising"] == SMALL.movers("rising") and len(get("/api/movers")["falling"]) == 6
    assert get("/api/orders?n=2")["orders"] == [table.order(0), table.order(1)]
    ages = {"longer_than_hour": 0, "longer_than_day": 0, "longer_than_week": 0}
    assert get("/api/orders")["ages"] == {"total": 100, "since": 1000 * NOW, "seconds": 0, **ages}
    due = table.columns["due_second"][table.overdue]
    overdue = {"total": len(due), "since": 1000 * int(due.min()), "seconds": NOW - int(due.min())}
    longer = {"longer_than_hour": len(due), "longer_than_day": int((due < NOW - DAY).sum()), "longer_than_week": 0}
    assert get("/api/summary")["overdue_ages"] == {**overdue, **longer} and len(due) == SMALL.overdue > 0
    assert get("/api/rejects")["by_reason"] == {"not-json": 3, "bad-time": 1}
    assert set(get("/api/rejects")["meanings"]) == {"not-json", "bad-time"}
    assert len(get("/api/history")["history"]) == 6
    assert get("/api/changes") == {"times": [1000 * NOW], "changes": None}, "no moments are kept"
    found = get("/api/find?q=docs")["pages"]
    assert len(found) == 8 and found[0]["address"] == f"/page/{int(table.ids[1]):016x}"
    described = get("/api/openapi.json")
    assert set(described["paths"]) == {one.path for one in json_api.ENDPOINTS}


def with_times(view: View, number: int) -> View:
    """The same view with this number in place of every time in it, in seconds or milliseconds."""

    def changed(columns: dict[str, Array]) -> dict[str, Array]:
        names = [name for name in columns if name.endswith(("_second", "_ms"))]
        return columns | {name: np.full_like(columns[name], number) for name in names}

    assert {name for name in (*view.table.columns, *view.table.orders) if name.endswith(("_second", "_ms"))} == TIMES
    table = dataclasses.replace(
        view.table,
        columns=changed(view.table.columns),
        orders=changed(view.table.orders),
        second=number,
        moment={"event_time_ms": number},
    )
    history = tuple(
        moment._replace(time_ms=max(number - k, -(2**63))) for k, moment in enumerate(reversed(view.history))
    )[::-1]
    return dataclasses.replace(view, table=table, history=history)


@pytest.mark.parametrize("number", [0, 1, -1, 10**12, 10**15, 253_402_300_800, 2**63 - 1, -(2**63)])
def test_no_address_fails_whatever_the_times_are(number: int) -> None:
    view = with_times(SMALL, number)
    page, host = f"{int(view.table.ids[0]):016x}", view.table.host(0)
    for source in (GivenView(view), GivenStream(live_view(view, at_ms=number, problem="none", problem_ms=number))):
        paths = {
            route.path.replace("{page}", page).replace("{name}", "example" if "domain" in route.path else host)
            for route in web_app(source).routes
            if isinstance(route, Route) and not route.path.startswith(("/live", "/login", "/static"))
        }
        assert len(paths) > 20
        with served(source) as at:
            for path in sorted(paths):
                asks = {"id": page} if path in ("/api/page", "/api/why") else {"q": "docs"} if "search" in path else {}
                answer = requests.get(at + path, asks, headers={"Accept": "text/html"}, timeout=60)
                assert answer.status_code == (404 if path in ("/api/why", "/domain/example") else 200), path
        assert render_report(view)


@pytest.mark.parametrize(
    "path", ["/api/page?url=https://nobody.example/", "/api/page?id=zz", "/api/page", "/api/why?id=1", "/api/none"]
)
def test_an_unknown_page_or_address_is_a_404_with_a_sentence(address: str, path: str) -> None:
    answer = requests.get(address + path, timeout=60)
    assert answer.status_code == 404 and answer.json()["error"]


@pytest.mark.parametrize(
    "query", ["first=-1", "first=1e9", "first=99999999999", "n=abc", "category=x", "n=0", "pattern=***", "host=%00"]
)
def test_odd_parameters_are_no_error(address: str, query: str) -> None:
    assert requests.get(f"{address}/api/top?{query}", timeout=60).status_code == 200
    Checked(html(address, f"/pages?{query}"))


def test_it_only_reads(address: str) -> None:
    for method in ("POST", "PUT", "DELETE"):
        answer = requests.request(method, f"{address}/api/top", timeout=60)
        assert (answer.status_code, answer.json()) == (405, {"error": "This address can only be read: use GET."})


def test_metrics_are_lines_that_prometheus_reads(address: str) -> None:
    text = requests.get(f"{address}/metrics", timeout=60).text
    label = r'\{(reason|check|seconds)="[^"\n]*"\}'
    line = re.compile(rf"(# (HELP|TYPE) opicflow_\w+ .+|opicflow_\w+({label})? -?[0-9.e+-]+)")
    assert all(line.fullmatch(one) for one in text.splitlines())
    assert "\nopicflow_pages 200\n" in text and 'opicflow_rejects{reason="not-json"} 3\n' in text
    assert "\nopicflow_books 0\n" in f"\n{text}" and '\nopicflow_check{check="cash"} 1\n' in text


def test_a_program_gets_what_is_kept_of_a_stream_and_what_is_unread() -> None:
    view = live_view(SMALL, unread=12, kept="the first are kept", problem="no broker")
    with served(GivenStream(view)) as at:
        summary = requests.get(f"{at}/api/summary", timeout=60).json()
        assert summary["live"]["unread"] == 12
        assert (summary["live"]["kept"], summary["live"]["problem"]) == ("the first are kept", "no broker")
        assert (summary["pages"], summary["pages_here"]) == (9_999, 200)
        text = requests.get(f"{at}/metrics", timeout=60).text
        assert "\nopicflow_unread_records 12\n" in text and "\nopicflow_pages 9999\n" in text


def test_another_name_of_the_host_is_refused(address: str) -> None:
    assert requests.get(address, headers={"Host": "evil.example"}, timeout=60).status_code == 400


def test_a_long_search_or_one_with_many_stars_is_refused(address: str) -> None:
    for words in ("x" * 8193, "*a" * 9):
        for path in (
            f"/api/find?q={words}",
            f"/search?q={words}",
            f"/api/top?pattern={words}",
            f"/pages?pattern={words}",
        ):
            answer = requests.get(address + path, timeout=60)
            assert (answer.status_code, "a search has at most 8,192" in answer.text) == (400, True)
    assert requests.get(f"{address}/api/find?q={'x' * 8192}", timeout=60).status_code == 200


@pytest.mark.parametrize(
    "headers, code",
    [
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Origin": "null"}, 200),
        ({}, 200),
    ],
)
def test_pages_of_other_sites_may_link_to_pages_and_request_nothing(
    address: str, headers: dict[str, str], code: int
) -> None:
    assert requests.get(f"{address}/pages", headers=headers, timeout=60).status_code == code
    own = {**headers, "Origin": address} if "Origin" not in headers else headers
    assert requests.get(f"{address}/pages", headers=own, timeout=60).status_code == code


def test_search_leads_to_the_host_or_the_page_that_is_meant(address: str) -> None:
    for words, leads_to in (
        ("host1.example", "/host/host1.example"),
        (SMALL.table.url(3), f"/page/{int(SMALL.table.ids[3]):016x}"),
    ):
        answer = requests.get(f"{address}/search", params={"q": words}, allow_redirects=False, timeout=60)
        assert (answer.status_code, answer.headers["location"]) == (303, leads_to)


def test_a_search_for_nothing_shows_all_pages_and_one_for_an_unknown_url_says_so(address: str) -> None:
    answer = requests.get(f"{address}/search?q=+", allow_redirects=False, timeout=60)
    assert (answer.status_code, answer.headers["location"]) == (303, "/pages")
    assert "The crawl does not know this URL" in html(address, "/search?q=https://nobody.example/")
    assert "No page fits." in html(address, "/search?q=nowhere") and "No page fits." in html(address, "/pages?host=x")


def test_categories_have_names_where_they_are_known(address: str) -> None:
    assert 'name="category" value=""' in html(address, "/pages")
    for names, is_asked in ((("unknown",), False), (("unknown", "html", "<b>*.pdf"), True)):
        with served(GivenView(dataclasses.replace(SMALL, categories=names))) as at:
            text = html(at, "/pages?category=2")
            assert ('<option value="2" selected>&lt;b&gt;*.pdf</option>' in text) == is_asked
            assert ('name="category"' in text) == is_asked
            assert ("Pages: category &lt;b&gt;*.pdf</bdi>" in text) == is_asked


def test_pages_read_and_pages_visited_are_told_apart() -> None:
    visited = len(SMALL.table) - SMALL.waiting
    for read, words in ((visited - 7, f"of {visited:,} visited"), (visited, "")):
        with served(GivenView(dataclasses.replace(SMALL, known_read=read))) as at:
            tile = re.sub("<[^>]*>", " ", html(at, "/").split("pages read</dt>")[1].split("</div>")[0]).split()
            assert tile == [f"{read:,}", *words.split()]
            listed = html(at, "/pages?read=1")
            assert "Pages: visited" in listed and f">{visited:,}</data> pages" in listed
            assert "Pages: never visited" in html(at, "/pages?unread=1")


def test_one_of_something_has_no_plural(address: str) -> None:
    with served(GivenView(view_of(table_of(["https://only.example/"])))) as at:
        shown = " ".join(re.sub("<[^>]*>", "", html(at, path)) for path in ("/pages", "/sites", "/host/only.example"))
        assert "1 page" in shown and "1 host" in shown
        assert not re.search(r"\b1 (pages|hosts|orders)\b", shown)


# -- the light


@pytest.mark.parametrize(
    ("change", "state", "words"),
    [
        ({}, "right", "The books are right"),
        ({"drift": 5}, "wrong", "cash"),
        ({"counts": {**SMALL.counts, "visits": 900}}, "wrong", "events"),
        ({"counts": {**SMALL.counts, "visits": 889, "rejects": 100}}, "look", "rejects"),
        ({"refused_policies": 2}, "look", "policies"),
        ({"certificate": 2.0}, "look", "ranks"),
        ({"drift": None}, "right", "as far as is known"),
    ],
)
def test_the_light_names_the_fault(change, state: str, words: str) -> None:
    light = dataclasses.replace(SMALL, **change).light
    assert light.state == state and words in light.headline


# -- the token


def test_without_the_token_nothing_is_seen() -> None:
    with served(GivenView(), TOKEN) as at:
        for path in ["/api/top", "/metrics", "/api/openapi.json", "/static/page.js"]:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"opicflow={TOKEN}"}):
                assert requests.get(at + path, headers=headers, timeout=60).status_code == 401, path
        page = requests.get(at, headers={"Accept": "text/html"}, timeout=60)
        assert page.url == f"{at}/login" and "docs" not in page.text
        assert requests.get(f"{at}/healthz", timeout=60).text == "ok\n"


def test_the_token_opens_for_programs_and_for_browsers() -> None:
    with served(GivenView(), TOKEN) as at:
        assert requests.get(f"{at}/api/top", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60).ok
        session = requests.Session()
        assert session.post(f"{at}/login", data={"token": "wrong" * 5}, timeout=60).status_code == 403
        assert not session.cookies
        assert session.post(f"{at}/login", data={"token": TOKEN}, timeout=60).url == f"{at}/"
        (cookie,) = session.cookies
        assert TOKEN not in str(cookie.value) and cookie.has_nonstandard_attr("HttpOnly")
        assert session.get(f"{at}/api/top", timeout=60).ok


def test_a_token_is_read_from_a_file_or_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    assert read_token(file, {}) == TOKEN and read_token(None, {access.TOKEN_VARIABLE: TOKEN}) == TOKEN
    assert read_token(None, {}) is None and TOKEN not in repr(read_token(file, {}))
    for bad in ("short", "two\nlines are no token", "zeichen-\u00fc-zeichen-zeichen"):
        file.write_text(bad)
        with pytest.raises(ServeRefused) as refused:
            read_token(file, {})
        assert bad not in str(refused.value)
    with pytest.raises(ServeRefused, match="cannot be read"):
        read_token(tmp_path / "none", {})


def test_this_machine_is_what_only_this_machine_reaches() -> None:
    names = ["127.0.0.1", "localhost", "::1", "127.8.8.8", "0.0.0.0", "::", "192.168.1.1", "example.org"]
    assert [is_this_machine(name) for name in names] == [True, True, True, True, False, False, False, False]


# -- the command


def test_others_are_let_in_with_a_token_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(access.TOKEN_VARIABLE, raising=False)
    assert "--token-file" in refusal("serve", "--state", tmp_path, "--host", "0.0.0.0")
    assert "no state of a replay" in refusal("serve", "--state", tmp_path)
    assert parse(["serve", "--state", str(tmp_path)]).host == "127.0.0.1"


def test_other_commands_do_not_import_the_server() -> None:
    code = """
import json, sys
from opicflow.pipelines.cli.main import main
for words in (["top", "--help"], ["replay", "--help"], ["serve", "--help"]):
    try:
        main(words)
    except SystemExit:
        pass
print(json.dumps(sorted({"starlette", "uvicorn", "jinja2", "anyio"} & set(sys.modules))), file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(ended.stderr) == []


# -- live --------------------------------------------------------------------------------------------------------------


def test_a_live_page_says_what_is_kept_and_works_without_a_script() -> None:
    with served(GivenStream(live_view(SMALL))) as at:
        for path in PAGES:
            page = html(at, path)
            Checked(page)
            if path != "/api":
                assert '<noscript><meta http-equiv="refresh"' in page and "the first are kept" in page, path
        assert "pages kept here" in html(at, "/") and "pages read, of those kept" in html(at, "/")
    with served(GivenView()) as at:
        assert "refresh" not in html(at, "/").partition("<body>")[0]
        assert requests.get(f"{at}/live", timeout=60).status_code == 404


def test_a_page_that_is_not_kept_is_looked_for() -> None:
    source = GivenStream(live_view(SMALL))
    with served(source) as at:
        for path in ("/search?q=https://far.example/", "/api/page?url=https://far.example/"):
            answer = requests.get(at + path, headers={"Accept": "text/html"}, timeout=60)
            assert answer.status_code == 404 and "not among the pages that are kept" in answer.text, path
        assert source.looked_for == ["https://far.example/"] * 2
        for words in ("docs", "https://*.pdf"):
            assert requests.get(f"{at}/search?q={words}", timeout=60).status_code == 200, words


def test_news_are_sent_once_for_each_view_and_need_the_token() -> None:
    source = GivenStream(live_view(SMALL))
    with served(source, TOKEN) as at:
        assert requests.get(f"{at}/live", timeout=60).status_code == 401
        with requests.get(f"{at}/live", headers={"Authorization": f"Bearer {TOKEN}"}, stream=True, timeout=60) as news:
            assert news.headers["Content-Type"].startswith("text/event-stream")
            assert "default-src 'none'" in news.headers["Content-Security-Policy"]
            lines = news.iter_lines()
            assert next(lines) == b"retry: 3000"
            for _ in range(3):
                source.show(source.given)
                blank, event, data = (next(lines) for _ in range(3))
                assert (blank, event) == (b"", b"event: news") and data.startswith(b"data: ")
            source.watchers.end()
            assert list(lines) == [b""]


def test_only_so_many_browsers_get_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "_MOST_VIEWERS", 1)
    source = GivenStream(live_view(SMALL))
    with served(source) as at, requests.get(f"{at}/live", stream=True, timeout=60) as first:
        lines = first.iter_lines()
        assert next(lines) == b"retry: 3000"
        with requests.get(f"{at}/live", stream=True, timeout=60) as second:
            assert second.status_code == 503
        source.watchers.end()


def test_pages_are_shown_while_the_next_view_is_read() -> None:
    may_end, stamps = threading.Event(), [1]

    def read(before: View | None) -> View:
        if before is not None:
            assert may_end.wait(60)
            return dataclasses.replace(before, title="the next one")
        return SMALL

    class Reread(GivenView):
        def view(self) -> View:
            return shown.get()

    shown = RereadView(lambda: stamps[-1], read)
    with served(Reread()) as at:
        assert SMALL.title in requests.get(at, timeout=60).text
        stamps.append(2)
        for _ in range(60):  # more than there are threads for requests
            assert SMALL.title in requests.get(at, timeout=5).text
        may_end.set()
        wait_for("the next one is shown", lambda: "the next one" in requests.get(at, timeout=5).text)


# -- slow pages --------------------------------------------------------------------------------------------------------

MORE_THAN_THREADS = 60
"""More requests than there are threads for them."""


class Slow:
    """Replaces a method that makes an answer, and does not answer until it may."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        self.may_end, self.calls, answer = threading.Event(), 0, getattr(owner, name)

        def slow(*given: object) -> object:
            self.calls += 1
            assert self.may_end.wait(60)
            return answer(*given)

        patch.setattr(owner, name, slow)


@contextmanager
def many_waiting(at: str, paths: list[str], slow: Slow) -> Iterator[None]:
    """Let many viewers wait for slow answers; at the end all get them."""
    with ThreadPoolExecutor(MORE_THAN_THREADS) as viewers:
        addresses = [at + paths[number % len(paths)] for number in range(MORE_THAN_THREADS)]
        answers = [viewers.submit(requests.get, address, timeout=60) for address in addresses]
        try:
            wait_for("the first is being made", lambda: slow.calls, 60)
            yield
        finally:
            slow.may_end.set()
        assert {one.result().status_code for one in answers} == {200}


def test_viewers_who_wait_for_a_slow_page_do_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch, HtmlPages, "plan")
    with served(GivenView()) as at:
        with many_waiting(at, ["/plan"], slow):
            for path in ("/", "/pages", "/sites", "/rejects", "/words", "/api/top", "/healthz", "/static/style.css"):
                assert requests.get(at + path, timeout=60).status_code == 200, path
        assert slow.calls == 1, "one view, one page"


def test_viewers_who_wait_for_reasons_do_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request for reasons waits until the ledger was read."""
    slow = Slow(monkeypatch, GivenView, "reasons")
    page = f"{int(SMALL.table.ids[0]):016x}"
    monkeypatch.setattr(JsonApi, "api_why", lambda self, request: json_answer(self._source.reasons(0)))
    with served(GivenView(can_explain=True)) as at:
        with many_waiting(at, [f"/page/{page}?why", f"/api/why?id={page}"], slow):
            for path in ("/", "/pages", f"/page/{page}", f"/api/page?id={page}", "/search?q=docs", "/metrics"):
                assert requests.get(at + path, timeout=60).status_code == 200, path
            assert slow.calls == 1, "the others wait without a thread"
        assert slow.calls == MORE_THAN_THREADS


def test_a_page_that_could_not_be_made_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problems, answer = [ServeRefused("away"), ValueError("a bug")], HtmlPages.plan

    def failing(self: HtmlPages, request: Request) -> Response:
        if problems:
            raise problems.pop()
        return answer(self, request)

    monkeypatch.setattr(HtmlPages, "plan", failing)
    with served(GivenView()) as at:
        assert [requests.get(f"{at}/plan", timeout=60).status_code for _ in range(3)] == [500, 503, 200]
