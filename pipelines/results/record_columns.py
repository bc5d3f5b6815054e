"""Packed results as columns of records, and as lines of JSON.

This module reads columns with numpy alone: commands that only show results start quickly.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from opicflow.pipelines.ledger import Outcome, RemovalReason
from opicflow.pipelines.ledger.choice import BY, WHY
from opicflow.pipelines.ledger.survey import DECIDED_BY, KNOWN_FROM
from opicflow.schemas.arrays import Array, Ints
from opicflow.schemas.columns import Packed, Texts, unpack
from opicflow.schemas.public_suffixes import installed_suffixes

if TYPE_CHECKING:
    from opicflow.schemas.sites import SiteKind

_OUTCOMES = [outcome.name for outcome in Outcome]


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
        texts = Texts(self.texts.text, self.texts.starts[rows], self.texts.lengths[rows])
        return Pages(texts, {name: column[rows] for name, column in self.columns.items()}, self.moment)


def pages_of(part: bytes) -> Pages:
    """The pages of a part that was published."""
    packed: Packed = unpack(part)
    columns = dict(packed.columns)
    lengths, text = columns.pop("url_lengths"), columns.pop("url_bytes")
    return Pages(Texts.joined(text, lengths), columns, packed.values)


def tombstone_columns(pages: Pages) -> dict[str, list[Any]]:
    rows = len(pages.urls)
    return {
        "page": _page_words(pages.columns["pages"]),
        "why": [RemovalReason(why).name for why in pages.columns["why"].tolist()],
        "event_time": [1000 * pages.moment["second"] or None] * rows,
    }


def schedule_columns(pages: Pages) -> dict[str, list[Any]]:
    """The values of `RefreshSchedule` records, by field."""
    c, rows = pages.columns, len(pages.urls)
    second = pages.moment["second"]
    never = np.isinf(c["interval_seconds"])
    return {
        "url": pages.urls,
        "page": _page_words(c["pages"]),
        "due": _times(np.where(never | (second == 0), 0, c["due_second"])),
        "interval_seconds": [
            None if none else seconds
            for none, seconds in zip(never.tolist(), c["interval_seconds"].tolist(), strict=True)
        ],
        "decided_by": [DECIDED_BY[number] for number in c["decided_by"].tolist()],
        "changes_per_day": c["changes_per_day"].tolist(),
        "changes_known_from": [KNOWN_FROM[number] for number in c["known_from"].tolist()],
        "importance": c["importance"].tolist(),
        "category": [number or None for number in c["category"].tolist()],
        "last_visit": _times(c["last_visit_second"]),
        "event_time": [1000 * second or None] * rows,
        "shard": [pages.moment["shard"]] * rows,
        "changes_error": c["changes_error"].tolist(),
        "staleness_cost": c["staleness_cost"].tolist(),
        "host": _hosts(pages.urls),
    }


def site_columns(pages: Pages) -> dict[str, list[Any]]:
    """Return the sites that have pages as the columns of `SiteImportance` records."""
    pages = pages.rows(np.flatnonzero(pages.columns["pages"] > 0))
    columns, at, rows = pages.columns, pages.moment, len(pages.texts)
    counts = columns["pages"]
    return {
        "site": [name.decode("utf-8") for name in pages.texts],
        "by": [at["by"].upper()] * rows,
        "importance": columns["importance"].tolist(),
        "mean_score": (columns["importance"] * at["pages"] / counts).tolist(),
        "pages": counts.tolist(),
        "read": columns["read"].tolist(),
        "changes_per_day": columns["changes_per_day"].tolist(),
        "trend_per_day": columns["trend_per_day"].tolist(),
        "event_time": [at["event_time_ms"] or None] * rows,
        "shard": [at["shard"]] * rows,
        "shards": columns["shards"].tolist(),
        "certificate": [at["certificate"]] * rows,
        "settled": [at["settled"]] * rows,
    }


def order_columns(pages: Pages) -> dict[str, list[Any]]:
    """The values of `CrawlOrder` records, by field."""
    c, rows = pages.columns, len(pages.urls)
    second = pages.moment["second"]
    return {
        "url": pages.urls,
        "page": _page_words(c["pages"]),
        "ordered_at": [1000 * second] * rows,
        "why": [WHY[number] for number in c["why"].tolist()],
        "priority": c["priority"].tolist(),
        "due": _times(np.where(second == 0, 0, np.maximum(c["due_second"], 0))),
        "expires_at": [1000 * pages.moment["expires_second"]] * rows,
        "importance": c["importance"].tolist(),
        "waiting_cash": c["waiting"].tolist(),
        "category": [number or None for number in c["category"].tolist()],
        "last_visit": _times(c["last_visit_second"]),
        "shard": [pages.moment["shard"]] * rows,
        "not_before": _times(np.where(second == 0, 0, c["not_before_second"])),
        "host": _hosts(pages.urls),
        "by": [BY[number] for number in c["by"].tolist()] if "by" in c else [""] * rows,  # older states have none
    }


def _page_words(pages: Array) -> list[str]:
    return [f"{page:016x}" for page in pages.tolist()]


def _times(seconds: Any) -> list[int | None]:
    """Milliseconds since 1970; None for 0."""
    return [1000 * second or None for second in seconds.tolist()]


def _hosts(urls: list[str]) -> list[str]:
    return [url.split("/", 3)[2] for url in urls]


def importance_lines(pages: Pages) -> bytes:
    """Pages as lines of JSON, the fields in the order of the schema."""
    c, moment = pages.columns, pages.moment
    event_time = moment["event_time_ms"] or "null"
    certificate = "null" if moment.get("certificate") is None else repr(moment["certificate"])
    settled = orjson.dumps(moment.get("settled")).decode()
    tail = (
        f',"pages":{moment["pages"]},"clock":{moment["clock"]!r},"event_time":{event_time},'
        f'"shard":{moment["shard"]},"cut":{moment["cut"]},"certificate":{certificate},"settled":{settled}}}\n'
    )
    line = (
        '{"url":"%s","page":"%016x","importance":%s,"score":%s,"trend_per_day":%s,"cash":%s,"waiting_cash":%s,'
        '"history":%s,"error_factor":%s,"visits":%s,"last_visit":%s,"last_outcome":"%s","measured":%s' + tail
    )
    urls = pages.urls
    if any("\\" in url for url in urls):  # the one character of canonical URLs that JSON escapes
        urls = [url.replace("\\", "\\\\") for url in urls]
    numbers = ("importance", "score", "trend_per_day", "cash", "waiting", "rate", "error_factor", "visits")
    rows = zip(
        urls,
        c["pages"].tolist(),
        *(_numbers(c[name]) for name in numbers),
        [time_ms or "null" for time_ms in c["last_visit_ms"].tolist()],
        [_OUTCOMES[outcome] for outcome in c["last_outcome"].tolist()],
        ["true" if measured else "false" for measured in c["measured"].tolist()],
        strict=True,
    )
    return "".join(map(line.__mod__, rows)).encode("ascii")


def _numbers(column: Array) -> list[str]:
    """Numbers as in JSON. orjson writes a whole column in the time that Python takes for a few values."""
    text = orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY).decode("ascii")
    return text[1:-1].split(",") if len(column) else []


def importance_columns(pages: Pages) -> dict[str, Any]:
    """The values of `Importance` records, by field: whole columns where they can be, because there are so many."""
    c, rows = pages.columns, len(pages.texts)
    words = np.frombuffer(c["pages"].astype(">u8").tobytes().hex().encode("ascii"), np.uint8)
    return {
        "url": pages.texts,
        "page": Texts.joined(words, np.full(rows, 16)),
        "importance": c["importance"],
        "score": c["score"],
        "trend_per_day": c["trend_per_day"],
        "cash": c["cash"],
        "waiting_cash": c["waiting"],
        "history": c["rate"],
        "error_factor": c["error_factor"],
        "visits": c["visits"],
        "last_visit": [time_ms or None for time_ms in c["last_visit_ms"].tolist()],
        "last_outcome": [_OUTCOMES[outcome] for outcome in c["last_outcome"].tolist()],
        "measured": c["measured"] != 0,
        "pages": np.full(rows, pages.moment["pages"]),
        "clock": np.full(rows, float(pages.moment["clock"])),
        "event_time": [pages.moment["event_time_ms"] or None] * rows,
        "shard": np.full(rows, pages.moment["shard"]),
        "cut": np.full(rows, pages.moment["cut"]),
        "certificate": [pages.moment.get("certificate")] * rows,
        "settled": [pages.moment.get("settled")] * rows,
    }


def reject_columns(lines: bytes) -> dict[str, list[Any]]:
    """The values of `Reject` records, by field, from lines of JSON."""
    records = [orjson.loads(line) for line in lines.splitlines()]
    original = [
        record["bytes"].encode() if "bytes" in record else base64.b64decode(record["bytes_base64"])
        for record in records
    ]
    named = {name: [record[name] for record in records] for name in ("reason", "detail", "source", "offset")}
    return {**named, "bytes": original}


def json_lines(columns: dict[str, list[Any]]) -> bytes:
    """Columns of texts, or of numbers and nothing, as lines of JSON, a row each."""
    texts = []
    line = []
    for name, values in columns.items():
        is_text = bool(values) and isinstance(values[0], str)
        line.append(f'"{name}":"%s"' if is_text else f'"{name}":%s')
        if not is_text:
            texts.append(orjson.dumps(values).decode("ascii")[1:-1].split(",") if values else [])
        elif {'"', "\\"} & set("".join(values)):
            texts.append([orjson.dumps(value).decode("utf-8")[1:-1] for value in values])
        else:
            texts.append(values)
    template = "{" + ",".join(line) + "}\n"
    return "".join(map(template.__mod__, zip(*texts, strict=True))).encode("utf-8")


@dataclass(frozen=True)
class SiteTotals:
    """A host or a domain with its pages, how many were read (None: not known), and the sum of their importance."""

    site: str
    pages: int | None
    read: int | None
    importance: float


def ranked_sites(pages: Iterable[Pages], by: SiteKind) -> list[SiteTotals]:
    """Return all hosts or domains of these pages, the most important first."""
    total: Counter[str] = Counter()
    count: Counter[str] = Counter()
    read: Counter[str] = Counter()
    for part in pages:
        names = _hosts(part.urls)
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
