"""Packed results as columns of records, in the order of the published schemas.

This module reads columns with numpy alone: commands that only show results start quickly.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from opicflow.pipelines.ledger import Outcome, RemovalReason
from opicflow.pipelines.ledger.plan.crawl_orders import BY, WHY
from opicflow.pipelines.ledger.plan.survey import DECIDED_BY, KNOWN_FROM
from opicflow.pipelines.stages.outputs import (
    CHANGES,
    FINAL_IMPORTANCE,
    FINAL_ORDERS,
    FINAL_SCHEDULE,
    FINAL_SITES,
    IMPORTANCE,
    ORDERS,
    SCHEDULE,
    SITES,
)
from opicflow.schemas.arrays import Array, Bytes, Ints
from opicflow.schemas.columns import Columns, NumberedWords, Packed, Texts, WithNulls, unpack
from opicflow.schemas.dates import FIRST_SECOND, LAST_SECOND, time_ms
from opicflow.schemas.public_suffixes import installed_suffixes

if TYPE_CHECKING:
    from opicflow.schemas.sites import SiteKind

_DATES_MS = (1000 * FIRST_SECOND, 1000 * LAST_SECOND)


@dataclass(frozen=True)
class Pages:
    """Packed estimates as columns of plain values, a row a page."""

    texts: Texts
    columns: dict[str, Array]
    moment: dict[str, Any]

    @cached_property
    def urls(self) -> list[str]:
        """The URLs of all pages: canonical ones are ASCII."""
        return [url.decode("ascii") for url in self.texts]

    def rows(self, rows: Ints) -> Pages:
        """Return some rows."""
        return Pages(self.texts.take(rows), {name: column[rows] for name, column in self.columns.items()}, self.moment)


def pages_of(part: bytes) -> Pages:
    """The pages of a part that was published."""
    packed: Packed = unpack(part)
    columns = dict(packed.columns)
    lengths, text = columns.pop("url_lengths"), columns.pop("url_bytes")
    return Pages(Texts.joined(text, lengths), columns, packed.values)


def tombstone_columns(pages: Pages) -> Columns:
    """Return removed pages as columns. They have no URLs: some are forgotten."""
    why = pages.columns["why"]
    return {
        "page": _page_words(pages.columns["pages"]),
        "why": NumberedWords(why - 1, [reason.name for reason in RemovalReason]),
        "event_time": _same_time(pages.moment["second"], len(why)),
    }


def schedule_columns(pages: Pages) -> Columns:
    """Return the columns of `RefreshSchedule` records."""
    c, rows = pages.columns, len(pages.texts)
    second = pages.moment["second"]
    never = np.isinf(c["interval_seconds"])
    return {
        "url": pages.texts,
        "page": _page_words(c["pages"]),
        "due": _times(np.where(never | (second == 0), 0, c["due_second"])),
        "interval_seconds": WithNulls(c["interval_seconds"], ~never),
        "decided_by": NumberedWords(c["decided_by"], DECIDED_BY),
        "changes_per_day": c["changes_per_day"],
        "changes_known_from": NumberedWords(c["known_from"], KNOWN_FROM),
        "importance": c["importance"],
        "category": WithNulls(c["category"], c["category"] != 0),
        "last_visit": _times(c["last_visit_second"]),
        "event_time": _same_time(second, rows),
        "shard": np.full(rows, pages.moment["shard"]),
        "changes_error": c["changes_error"],
        "staleness_cost": c["staleness_cost"],
        "host": hosts_of(pages.texts),
    }


def site_columns(pages: Pages) -> Columns:
    """Return the sites that have pages as the columns of `SiteImportance` records."""
    pages = pages.rows(np.flatnonzero(pages.columns["pages"] > 0))
    c, at, rows = pages.columns, pages.moment, len(pages.texts)
    return {
        "site": pages.texts,
        "by": NumberedWords.same(at["by"].upper(), rows),
        "importance": c["importance"],
        "mean_score": c["importance"] * at["pages"] / c["pages"],
        "pages": c["pages"],
        "read": c["read"],
        "changes_per_day": c["changes_per_day"],
        "trend_per_day": c["trend_per_day"],
        "event_time": _same_time(at["event_time_ms"] // 1000, rows),
        "shard": np.full(rows, at["shard"]),
        "shards": c["shards"],
        "certificate": WithNulls.same(at["certificate"], rows, np.float64),
        "settled": WithNulls.same(at["settled"], rows, np.bool_),
    }


def order_columns(pages: Pages) -> Columns:
    """Return the columns of `CrawlOrder` records."""
    c, rows = pages.columns, len(pages.texts)
    second = pages.moment["second"]
    return {
        "url": pages.texts,
        "page": _page_words(c["pages"]),
        "ordered_at": np.full(rows, time_ms(second)),
        "why": NumberedWords(c["why"], WHY),
        "priority": c["priority"],
        "due": _times(np.where(second == 0, 0, np.maximum(c["due_second"], 0))),
        "expires_at": np.full(rows, time_ms(pages.moment["expires_second"])),
        "importance": c["importance"],
        "waiting_cash": c["waiting"],
        "category": WithNulls(c["category"], c["category"] != 0),
        "last_visit": _times(c["last_visit_second"]),
        "shard": np.full(rows, pages.moment["shard"]),
        "not_before": _times(np.where(second == 0, 0, c["not_before_second"])),
        "host": hosts_of(pages.texts),
        "by": NumberedWords(c["by"], BY),
    }


def change_columns(pages: Pages) -> Columns:
    """Return the columns of `PageChange` records."""
    c, rows = pages.columns, len(pages.texts)
    subscribers = Texts.joined(c["name_bytes"], c["name_lengths"]).take(c["subscribers"])
    return {
        "url": pages.texts,
        "page": _page_words(c["pages"]),
        "time": np.clip(c["time_ms"], *_DATES_MS),
        "digest_before": _digests(c["digest_before"]),
        "digest": _digests(c["digest"]),
        "changes": c["changes"],
        "importance": c["importance"],
        "score": c["score"],
        "subscribers": subscribers,
        "shard": np.full(rows, pages.moment["shard"]),
        "host": hosts_of(pages.texts),
    }


def _digests(folded: Ints) -> Texts:
    """Return digests of 32 bits as 8 hexadecimal digits; empty where they are not known."""
    return Texts(_hexadecimal(folded, ">u4"), 8 * np.arange(len(folded)), np.where(folded != 0, 8, 0))


def importance_columns(pages: Pages) -> Columns:
    """Return the columns of `Importance` records."""
    c, at, rows = pages.columns, pages.moment, len(pages.texts)
    return {
        "url": pages.texts,
        "page": _page_words(c["pages"]),
        "importance": c["importance"],
        "score": c["score"],
        "trend_per_day": c["trend_per_day"],
        "cash": c["cash"],
        "waiting_cash": c["waiting"],
        "history": c["rate"],
        "error_factor": c["error_factor"],
        "visits": c["visits"],
        "last_visit": WithNulls(np.clip(c["last_visit_ms"], *_DATES_MS), c["last_visit_ms"] != 0),
        "last_outcome": NumberedWords(c["last_outcome"], [outcome.name for outcome in Outcome]),
        "measured": c["measured"] != 0,
        "pages": np.full(rows, at["pages"]),
        "clock": np.full(rows, float(at["clock"])),
        "event_time": _same_time(at["event_time_ms"] // 1000, rows),
        "shard": np.full(rows, at["shard"]),
        "cut": np.full(rows, at["cut"]),
        "certificate": WithNulls.same(at.get("certificate"), rows, np.float64),
        "settled": WithNulls.same(at.get("settled"), rows, np.bool_),
        "window_importance": c["window_importance"],
    }


class ResultKind(NamedTuple):
    """Records of results: their published schema, and the function that makes columns of pages."""

    schema: str
    columns_of_pages: Callable[[Pages], Columns]

    def columns_of(self, part: bytes) -> Columns:
        """Return the columns of a part that was published."""
        return self.columns_of_pages(pages_of(part))


RESULTS: dict[str, ResultKind] = {
    **dict.fromkeys((IMPORTANCE, FINAL_IMPORTANCE), ResultKind("Importance", importance_columns)),
    **dict.fromkeys((SCHEDULE, FINAL_SCHEDULE), ResultKind("RefreshSchedule", schedule_columns)),
    **dict.fromkeys((ORDERS, FINAL_ORDERS), ResultKind("CrawlOrder", order_columns)),
    **dict.fromkeys((SITES, FINAL_SITES), ResultKind("SiteImportance", site_columns)),
    CHANGES: ResultKind("PageChange", change_columns),
}
"""The outputs that are packed pages or sites, by their kinds."""


def _page_words(pages: Array) -> Texts:
    """Return page ids as 16 hexadecimal digits."""
    return Texts.joined(_hexadecimal(pages, ">u8"), np.full(len(pages), 16))


def _hexadecimal(numbers: Array, kind: str) -> Bytes:
    """Return the digits of numbers of this kind, one after the other."""
    return np.frombuffer(numbers.astype(kind).tobytes().hex().encode("ascii"), np.uint8)


def _times(seconds: Array) -> WithNulls:
    """Milliseconds since 1970; none for 0."""
    return WithNulls(1000 * np.clip(seconds, FIRST_SECOND, LAST_SECOND).astype(np.int64), seconds != 0)


def _same_time(second: int, rows: int) -> WithNulls:
    """The same time in every row; none for 0."""
    return WithNulls.same(time_ms(second) or None, rows, np.int64)


def hosts_of(urls: Texts) -> Texts:
    """Return the hosts of canonical URLs: the text between the second and the third slash."""
    slashes = np.flatnonzero(urls.text == ord("/"))
    at = np.searchsorted(slashes, urls.starts)
    starts = slashes[at + 1] + 1
    return Texts(urls.text, starts, slashes[at + 2] - starts)


def reject_columns(lines: bytes) -> Columns:
    """Return the columns of `Reject` records, from lines of JSON."""
    records = [orjson.loads(line) for line in lines.splitlines()]
    original = [
        record["bytes"].encode() if "bytes" in record else base64.b64decode(record["bytes_base64"])
        for record in records
    ]
    named = {name: [record[name] for record in records] for name in ("reason", "detail", "source", "offset")}
    return {**named, "bytes": original}


@dataclass(frozen=True)
class SiteTotals:
    """A host or a domain with its pages, how many were read (None: not known), and the sum of their importance."""

    site: str
    pages: int | None
    read: int | None
    importance: float


def ranked_sites(pages: Iterable[Pages], by: SiteKind) -> list[SiteTotals]:
    """Return all hosts or domains of the pages, the most important first."""
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    read: Counter[str] = Counter()
    for part in pages:
        names = [host.decode("ascii") for host in hosts_of(part.texts)]
        count.update(names)
        for name, importance, visits in zip(
            names, part.columns["importance"].tolist(), part.columns["visits"].tolist(), strict=True
        ):
            total[name] += importance
            read[name] += visits > 0
    if by == "domain":
        total, count, read = (_by_domain(counter) for counter in (total, count, read))
    ranked = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return [SiteTotals(name, count[name], read[name], importance) for name, importance in ranked]


def _by_domain(of_hosts: Counter[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for host, value in of_hosts.items():
        found[site_of_host(host)] += value
    return found


def site_of_host(host: str) -> str:
    """Return the registrable domain of a host."""
    return installed_suffixes().site(host.encode()).decode()
