"""`opicflow serve`: how long a page takes to answer while a million pages are known, and what a stream costs.

The pages are made up: 10 a host, importance by a power law. Requests go to the application itself, without a network.
Of a stream, the records of a million pages come twice in any order, and 200,000 pages are kept.

Other numbers of pages, without a stream: .venv/bin/python -m benchmarks.serve --pages 10000000
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.harness import Figure, Scale, check, machine, say
from benchmarks.harness import table as in_table
from opicflow.pipelines.results.reasons import Reasons
from opicflow.pipelines.results.record_columns import Pages
from opicflow.pipelines.serve.page_table import PageTable
from opicflow.pipelines.serve.stream_index import StreamIndex
from opicflow.pipelines.serve.view import Live, View
from opicflow.pipelines.serve.web_app import web_app
from opicflow.schemas.columns import Texts
from opicflow.schemas.message_columns import ResultMessage

NOW, DAY = 1_778_306_396, 86_400
ROUNDS = 5
WORDS = ("docs", "wiki", "zebra", "news", "shop")
ADDRESSES = {
    "first_screen": "/",
    "list": "/pages?first=POSITION",
    "unread": "/pages?unread=1&first=POSITION",
    "gone": "/pages?gone=1",
    "rising": "/pages?rising=1",
    "falling": "/pages?falling=1&first=1000",
    "overdue": "/pages?overdue=1",
    "category": "/pages?category=2&first=POSITION",
    "list_of_host": "/pages?host=HOST",
    "list_of_domain": "/pages?domain=HOST",
    "all_filters": "/pages?unread=1&overdue=1&category=1&pattern=zebra",
    "piece": "/pages?pattern=docs&first=40000",
    "pattern": "/pages?pattern=https://*.example/*/9*.pdf",
    "search": "/api/find?q=zebra",
    "search_everywhere": "/api/find?q=nothing-has-this",
    "search_url": "/search?q=URL",
    "search_unknown_url": "/search?q=https://nobody.example/",
    "search_host": "/search?q=HOST",
    "page": "/page/PAGE",
    "host": "/host/HOST",
    "domain": "/domain/HOST",
    "hosts": "/sites?first=1000",
    "plan": "/plan?first=1000",
    "top_1000": "/api/top?n=1000",
    "summary": "/api/summary",
    "metrics": "/metrics",
}


class _Given:
    """A source that shows a given view."""

    can_explain = False

    def __init__(self, view: View) -> None:
        self._view = view

    def view(self) -> View:
        return self._view

    def canonical(self, url: str) -> str:
        return url

    def reasons(self, page: int) -> Reasons | None:
        return None


def measure(scale: Scale) -> Iterator[Figure]:
    """All figures of the group."""
    pages = scale.pick(5_000, 1_000_000)
    yield from _pages(pages)
    yield from _stream(pages)


def main() -> None:
    """Measure the pages of a state of another size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=main.__doc__)
    parser.add_argument("--pages", type=int, required=True)
    print("\n".join([*machine(), "", *in_table(list(_pages(parser.parse_args().pages)))]))


def _pages(pages: int) -> Iterator[Figure]:
    """How long each page takes, without a network."""
    say(f"serve: {pages:,} pages")
    begun = time.process_time()
    table = _table(pages)
    yield Figure("serve.load", time.process_time() - begun, "s", f"{pages:,} pages put in memory")
    begun = time.process_time()
    view = View(title="made up", source="made up", version="1", table=table).prepared()
    yield Figure("serve.prepare", time.process_time() - begun, "s", "their sites, sums and indices")
    app, row = web_app(_Given(view)), pages // 2
    words = {
        "PAGE": f"{int(table.ids[row]):016x}",
        "URL": table.url(row),
        "HOST": table.host(row),
        "POSITION": str(pages // 10),
    }
    for name, address in ADDRESSES.items():
        for word, value in words.items():
            address = address.replace(word, value)
        seconds = []
        for number in range(1 + ROUNDS):
            other = f"{address}{'&' if '?' in address else '?'}round={number}"  # pages are remembered by their address
            begun = time.process_time()
            status, size = asyncio.run(_answer(app, other))
            seconds.append(time.process_time() - begun)
            check(status in (200, 303) and (size > 20 or status == 303), f"{address} answers")
        yield Figure(f"serve.{name}", 1000 * max(seconds[1:]), "ms", f"{address}, the slowest of {ROUNDS}")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Figure("serve.memory", most, "MiB", "the most of the process, while it was loaded")


def _stream(pages: int) -> Iterator[Figure]:
    """The cost of the index of a stream, without Kafka and without decoding."""
    keep = pages // 5
    index, random = StreamIndex(keep), np.random.default_rng(2)
    seconds, newest = 0.0, np.zeros(pages)
    order = random.permutation(np.tile(np.arange(pages), 2))
    for start in range(0, len(order), 2_000):
        numbers = order[start : start + 2_000]
        values = random.pareto(1.2, len(numbers)) / pages
        newest[numbers] = values
        batch = [
            ResultMessage(row["url"].encode(), row, 0, start + n)
            for n, (number, value) in enumerate(zip(numbers.tolist(), values.tolist(), strict=True))
            for row in (_record(number, value, pages),)
        ]
        at = time.process_time()
        index.take("importance", batch)
        seconds += time.process_time() - at
    words = f"{len(order):,} records of {pages:,} pages, {keep:,} kept"
    yield Figure("serve.stream_take", 1e6 * seconds / len(order), "us a record", words)
    at = time.process_time()
    view = index.view(Live(1000 * NOW), (), "made up", "made up")
    yield Figure("serve.stream_view", time.process_time() - at, "s", f"the view of {keep:,} pages, rebuilt")
    complete = index.pages.rows.complete
    first = np.sort(newest)[::-1][:complete]
    check(
        complete > keep // 2 and bool((view.table.columns["importance"][:complete] == first).all()), "the first pages"
    )


def _record(number: int, importance: float, pages: int) -> dict[str, Any]:
    return {
        "url": f"https://h{number // 10}.example/docs/{number}.html",
        "page": f"{number:016x}",
        "importance": importance,
        "window_importance": importance,
        "score": importance * pages,
        "trend_per_day": 0.0,
        "visits": number % 4,
        "last_visit": 1000 * NOW,
        "last_outcome": "FETCHED",
        "measured": True,
        "pages": pages,
        "event_time": 1000 * NOW,
    }


def _table(pages: int) -> PageTable:
    """A table of so many pages, in parts, as a state has it."""
    random = np.random.default_rng(1)
    hosts = random.permutation(np.arange(pages) // 10)
    ids = random.permutation(np.arange(1, pages + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    total = float(((1.0 + np.arange(pages)) ** -0.8).sum())
    at = {"second": NOW, "event_time_ms": 1000 * NOW}

    def parts() -> Iterator[Pages]:
        for rows in _slices(pages):
            number = np.arange(pages)[rows]
            urls = [
                f"https://h{host}.example/{WORDS[n % 5]}/{n}.{'pdf' if n % 4 else 'html'}".encode()
                for host, n in zip(hosts[rows].tolist(), number.tolist(), strict=True)
            ]
            importance = (1.0 + number) ** -0.8 / total
            visits = number % 4
            columns: dict[str, Any] = {
                "pages": ids[rows],
                "importance": importance,
                "window_importance": importance,
                "score": importance * pages,
                "trend_per_day": importance * random.normal(0, 0.02, len(number)),
                "visits": visits,
                "last_visit_ms": np.where(visits > 0, 1000 * (NOW - number % DAY), 0),
                "last_outcome": np.where(number % 50 == 1, 4, visits > 0).astype(np.uint8),
                "measured": (visits > 1).astype(np.uint8),
            }
            yield Pages(Texts.of(urls), columns, at)

    def schedules() -> Iterator[Pages]:
        for rows in _slices(pages):
            number = np.arange(pages)[rows]
            columns: dict[str, Any] = {
                "pages": ids[rows],
                "due_second": NOW + number % (9 * DAY) - DAY,
                "interval_seconds": np.full(len(number), 7.0 * DAY),
                "decided_by": np.ones(len(number), np.uint8),
                "changes_per_day": np.full(len(number), 0.1),
                "changes_error": np.full(len(number), 0.5),
                "known_from": np.full(len(number), 2, np.uint8),
                "category": (number % 3).astype(np.uint8),
            }
            yield Pages(Texts.of([]), columns, at)

    ordered = ids[::20]
    orders: dict[str, Any] = {
        "pages": ordered,
        "why": np.full(len(ordered), 2, np.uint8),
        "by": np.zeros(len(ordered), np.uint8),
        "priority": (1.0 + np.arange(pages)[::20]) ** -0.8 / total,
        "not_before_second": np.full(len(ordered), NOW),
    }
    return PageTable.of(parts(), schedules(), [Pages(Texts.of([]), orders, at)])


def _slices(pages: int) -> Iterator[slice]:
    return (slice(start, start + (1 << 18)) for start in range(0, pages, 1 << 18))


async def _answer(app: Any, address: str) -> tuple[int, int]:
    """Return the status and the size of the answer to a request."""
    path, _, query = address.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"accept", b"text/html")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8321),
    }
    status, size = 0, 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, size
        status, size = message.get("status", status), size + len(message.get("body", b""))

    await app(scope, receive, send)
    return status, size


if __name__ == "__main__":
    main()
