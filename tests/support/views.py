"""Views of made-up crawls, and a server for them on a free port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import uvicorn

from opicflow.pipelines.results.reasons import Reasons
from opicflow.pipelines.results.record_columns import Pages
from opicflow.pipelines.serve.page_table import PageTable
from opicflow.pipelines.serve.server import bound_socket, settings_of
from opicflow.pipelines.serve.sources import PageSource
from opicflow.pipelines.serve.view import Live, Moment, RejectExample, View
from opicflow.pipelines.serve.watchers import Watchers
from opicflow.pipelines.serve.web_app import web_app
from opicflow.schemas.columns import Texts

NOW = 1_778_306_396
DAY = 86_400


def table_of(urls: Sequence[str], seed: int = 1) -> PageTable:
    """A table with these pages, the first the most important; every third is unread, every fifth gone."""
    count, random = len(urls), np.random.default_rng(seed)
    number = np.arange(count)
    importance = 1.0 / (1 + number) / max(float((1.0 / (1 + number)).sum()), 1e-9)
    ids = random.permutation(np.arange(1, count + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    visits = np.where(number % 3 == 2, 0, 1 + number % 7)
    columns = {
        "pages": ids,
        "importance": importance,
        "window_importance": importance,
        "score": importance * count,
        "trend_per_day": importance * random.normal(0, 0.02, count),
        "visits": visits,
        "last_visit_ms": np.where(visits > 0, 1000 * (NOW - 3600 * (number % 50)), 0),
        "last_outcome": np.where(visits == 0, 0, np.where(number % 5 == 0, 4, 1)).astype(np.uint8),
        "measured": (visits > 1).astype(np.uint8),
    }
    texts = Texts.of([url.encode() for url in urls])
    part = Pages(texts, columns, {"event_time_ms": 1000 * NOW})
    order = random.permutation(count)
    interval = np.where(number % 11 == 10, np.inf, DAY * (1.0 + number % 9))
    schedule = {
        "pages": ids,
        "due_second": NOW + DAY * (number % 7 - 1),
        "interval_seconds": interval,
        "decided_by": np.where(visits == 0, 4, 1).astype(np.uint8),
        "changes_per_day": 0.1 * (1 + number % 4),
        "changes_error": np.full(count, 0.5),
        "known_from": np.full(count, 2, np.uint8),
        "category": (number % 3).astype(np.uint8),
    }
    scheduled = Pages(texts, schedule, {"second": NOW}).rows(order)
    ordered = {
        "pages": ids[::2],
        "why": np.where(visits == 0, 1, 2)[::2].astype(np.uint8),
        "by": np.zeros(len(ids[::2]), np.uint8),
        "priority": importance[::2],
        "not_before_second": schedule["due_second"][::2],
    }
    return PageTable.of([part], [scheduled], [Pages(texts, ordered, {"second": NOW})])


def view_of(table: PageTable) -> View:
    """A healthy crawl with this table."""
    shown = [(int(page), float(one)) for page, one in zip(table.ids[:10], table.columns["importance"], strict=False)]
    history = tuple(
        Moment(
            1000 * (NOW - 6 * DAY + k * DAY), 100 * k, 50 * k, 20 * k, 0.01, {page: one * k / 6 for page, one in shown}
        )
        for k in range(1, 7)
    )
    plan = {
        "policy": "harmonic",
        "cycle_hours": 24.0,
        "freshness": 0.887,
        "freshness_low": 0.82,
        "freshness_high": 0.92,
        "freshness_observed": 0.81,
        "orders": len(table.order_rows),
        "bandwidth_per_day": 100.0,
        "feasible": True,
        "why": "",
    }
    return View(
        title="crawl.jsonl",
        source="a test",
        version="1",
        table=table,
        counts={"events_read": 1000, "visits": 985, "announcements": 5, "rejects": 4, "duplicates": 6},
        plan=plan,
        certificate=0.0001,
        drift=0,
        history=history,
        idle={"FAILED": 0.02},
        rejects={"not-json": 3, "bad-time": 1},
        examples=(RejectExample("not-json", "no end", "crawl.jsonl, byte 7", '{"url": '),),
        options=(("history", "certified"),),
    )


EMPTY = View(title="nothing", source="a test", version="1", table=PageTable.of([], [], []))
SMALL = view_of(
    table_of(
        [
            f"https://host{k % 7}.example/{'docs' if k % 2 else 'wiki'}/{k}.{'pdf' if k % 4 else 'html'}"
            for k in range(200)
        ]
    )
)


@dataclass
class GivenView(PageSource):
    """A source that shows a given view."""

    given: View = SMALL
    can_explain: bool = False

    def view(self) -> View:
        return self.given

    def canonical(self, url: str) -> str:
        return url

    def reasons(self, page: int) -> Reasons | None:
        return None


@dataclass
class GivenStream(GivenView):
    """A live source that shows the view given last."""

    watchers: Watchers = field(default_factory=Watchers)
    looked_for: list[str] = field(default_factory=list)

    def show(self, view: View) -> None:
        """Show another view, and notify all viewers."""
        self.given = view
        self.watchers.notify()

    def look_for(self, url: str) -> str:
        self.looked_for.append(url)
        return "it is not among the pages that are kept"

    def look_at(self, page: int) -> None:
        pass

    def close(self) -> None:
        self.watchers.end()


def live_view(view: View, **live: Any) -> View:
    """A view as of a stream, of which more pages are known than are shown."""
    moment = {"at_ms": 1000 * NOW, "kept": "Of 9,999 pages the first are kept.", **live}
    return replace(view, live=Live(**moment), known_pages=9_999, plan={})


def hostile_view(urls: Sequence[str], text: str) -> View:
    """A view with hostile URLs, and this text wherever something from a log is shown."""
    table = table_of(urls)
    examples = (RejectExample(text, text, text, text),)
    return replace(
        view_of(table),
        title=text,
        source=text,
        rejects={text: 4},
        examples=examples,
        notes=(text,),
        options=((text, text),),
    )


@contextmanager
def served(source: PageSource, token: str | None = None) -> Iterator[str]:
    """Serve a source; yields the address."""
    listening = bound_socket("127.0.0.1", 0)
    port = listening.getsockname()[1]
    app = web_app(source, token, ["127.0.0.1", "localhost"])
    server = uvicorn.Server(settings_of(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
