"""Crawls that are written by hand: a ledger, and the writer of its log."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from opicflow.pipelines.ledger import (
    Applied,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    PageLink,
    PolicyEntry,
    RefreshConfig,
    TickEntry,
)
from opicflow.pipelines.ledger.pages.refresh_rows import rows_of
from opicflow.pipelines.ledger.plan.crawl_orders import WHY
from opicflow.pipelines.ledger.plan.planner import Plan
from opicflow.pipelines.ledger.plan.survey import DECIDED_BY
from opicflow.schemas.pages import page_id
from opicflow.schemas.records import Policy

DAY = 86_400
T0 = 20_000 * DAY
_page_id = cache(page_id)


def url_of(page: int, hosts: int = 4) -> str:
    return f"https://host{page % hosts}.example/page/{page}"


def site_of_its_own(page: int) -> str:
    return f"https://host{page}.example/"


@dataclass
class Crawl:
    """A ledger and the writer of its log. Pages are numbers; the log has their URLs."""

    config: LedgerConfig = field(default_factory=LedgerConfig)
    shard: int = 0
    shards: int = 1
    name: Callable[[int], str] = url_of
    ledger: Ledger = field(init=False)
    applied: list[Applied] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.config, self.shard, self.shards)

    def id(self, page: int) -> int:
        return _page_id(self.name(page))

    def writer(self) -> ItemWriter:
        return ItemWriter(self.ledger.mark("crawl"))

    def apply(self, log: ItemWriter) -> Applied:
        self.applied.append(self.ledger.apply(log.entry(start=self.ledger.mark("crawl"))))
        return self.applied[-1]

    def see(self, pages: Iterable[int]) -> Crawl:
        """Pages become known with their URLs."""
        log = self.writer()
        for page in pages:
            log.sighting(self.id(page), url=self.name(page).encode())
        self.apply(log)
        return self

    def visit(self, page: int, second: int, outcome: Outcome = Outcome.FETCHED, digest: int = 1, **more: Any) -> Crawl:
        self.apply(self.add_visit(self.writer(), page, second, outcome, digest, **more))
        return self

    def add_visit(
        self,
        log: ItemWriter,
        page: int,
        second: int,
        outcome: Outcome = Outcome.FETCHED,
        digest: int = 1,
        links: Iterable[int | PageLink] = (),
        **more: Any,
    ) -> ItemWriter:
        """Add a visit to a log: many in one entry take much less time than each in its own."""
        link_ids = [link if isinstance(link, PageLink) else self.id(link) for link in links]
        url = self.name(page).encode()
        return log.visit(self.id(page), link_ids, outcome, 1000 * second, url=url, digest=digest, **more)

    def read(self, pages: Iterable[int], second: int) -> Crawl:
        log = self.writer()
        for page in pages:
            self.add_visit(log, page, second, links=((page * 7 + 1) % 50, (page * 3 + 2) % 50))
        self.apply(log)
        return self

    def tick(self, second: int) -> Applied:
        self.applied.append(self.ledger.apply(TickEntry(second)))
        return self.applied[-1]

    def tick_at(self, second: int) -> Crawl:
        self.tick(second)
        return self

    def publish(self, *policies: Policy) -> Applied:
        position = self.ledger.mark("policies")
        entry = PolicyEntry("policies", position, LogPosition(position.offset + 1, 0), policies=policies)
        return self.ledger.apply(entry)

    def row(self, page: int) -> Any:
        slot = int(self.ledger._reader.slots_of(np.array([self.id(page)], np.uint64))[0])
        assert slot >= 0
        return rows_of(self.ledger._room.table, np.array([slot]))[0]

    def is_known(self, page: int) -> bool:
        return bool(self.ledger.estimate([self.id(page)]).known[0])

    def plan(self) -> Plan:
        return self.ledger.plan(10**6, 0.1)

    def preview(self) -> Plan:
        return self.ledger.preview()

    def bytes(self) -> list[bytes]:
        return [chunk.data for chunk in self.ledger.snapshot()]

    def restored(self) -> Crawl:
        other = copy.copy(self)
        other.ledger = Ledger.restore(self.bytes())
        return other


def with_refresh(**options: Any) -> LedgerConfig:
    given_config = {name: options.pop(name) for name in ("max_pages", "max_unread_per_host") if name in options}
    return LedgerConfig(refresh=RefreshConfig(**options), **given_config)


def ordered(planned: Plan) -> dict[int, str]:
    """Why each page is ordered, by its id."""
    rows = planned.orders.rows
    assert len(set(rows.tolist())) == len(rows)
    return {
        int(page): WHY[why] for page, why in zip(planned.survey.pages[rows], planned.orders.why.tolist(), strict=True)
    }


def of_page(crawl: Crawl, planned: Plan, page: int, column: str) -> Any:
    row = int(np.flatnonzero(planned.survey.pages == np.uint64(crawl.id(page)))[0])
    source = planned.schedule if hasattr(planned.schedule, column) else planned.survey
    value = getattr(source, column)[row]
    return DECIDED_BY[value] if column in ("decided_by", "reasons") else value
