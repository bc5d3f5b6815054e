"""All pages of a state or of results as columns in memory, the most important first: lists, search, one page.

A row is a rank. Lists and searches read columns, not pages: ten million pages answer in less than half a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh32_intdigest

from opicflow.pipelines.ledger import Outcome
from opicflow.pipelines.ledger.plan.crawl_orders import BY, WHY
from opicflow.pipelines.ledger.plan.survey import DECIDED_BY, KNOWN_FROM
from opicflow.pipelines.results.record_columns import Pages, hosts_of, site_of_host
from opicflow.schemas.arrays import Array, Bools, Ids, Ints
from opicflow.schemas.columns import Texts
from opicflow.schemas.dates import time_ms

MOST_LOOKED_AT = 50_000
"""A search compares at most this many URLs with a pattern: those that contain its longest piece."""
NEVER = -1
"""The due time of a page that is not fetched again."""
_ROWS_AT_ONCE = 1 << 16
_OF_PAGES = (
    "importance",
    "window_importance",
    "score",
    "trend_per_day",
    "visits",
    "last_visit_ms",
    "last_outcome",
    "measured",
)
_OF_SCHEDULES = ("due_second", "interval_seconds", "decided_by", "changes_per_day", "changes_error", "known_from")
_OF_ORDERS = ("why", "by", "not_before_second", "priority", "ordered_second")
_site_of = lru_cache(1 << 16)(site_of_host)
"""The table of a stream is rebuilt every few seconds, mostly with the same hosts."""
RISING = 0.0005
"""A smaller change a day, as a part of the importance, is steady."""


@dataclass(frozen=True)
class Filter:
    """Which pages a list has: all conditions hold."""

    host: str = ""
    domain: str = ""
    category: int | None = None
    read: bool = False
    unread: bool = False
    gone: bool = False
    rising: bool = False
    falling: bool = False
    overdue: bool = False
    pattern: str = ""
    """A piece of the URL; a pattern with * must match the whole URL."""


class Found(NamedTuple):
    """A part of a list: its rows, how many there are in all, and whether that is exact."""

    rows: list[int]
    total: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A host or a domain: sums over its pages, and its fetches in the next cycle."""

    name: str
    rank: int
    pages: int
    read: int
    importance: float
    ordered: int
    overdue: int


@dataclass(frozen=True)
class PageTable:
    """The columns of all pages. Of a page without a schedule `decided_by` is 0."""

    text: bytes
    """All URLs, each before a line feed."""
    starts: Ints
    ids: Ids
    rows_of_ids: _RowsOfIds = field(repr=False)
    columns: dict[str, Array]
    moment: dict[str, Any]
    second: int
    """The time of the plan; 0 = not known."""
    has_schedules: bool
    order_rows: Ints
    """The rows of the pages to fetch in the next cycle, in the order of their times; of one time, as in the plan."""
    orders: dict[str, Array]
    orders_without_row: dict[int, tuple[str, int]] = field(default_factory=dict, repr=False)
    """Orders of pages that are not in the table, by their position in the plan: URL and page id. Their row is -1."""
    published_sites: dict[str, list[SiteRow]] = field(default_factory=dict, repr=False)
    """Sites as others have added them up, by `host` or `domain`, the most important first: instead of own sums."""
    _hosts: list[tuple[list[str], Ints]] = field(default_factory=list, repr=False)
    _named_sites: dict[str, dict[str, SiteRow]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, parts: Iterable[Pages], schedules: Iterable[Pages], orders: Iterable[Pages]) -> PageTable:
        """Join the parts of all pages, their schedules and the orders."""
        text, ids, columns, moment = _joined(parts)
        rows_of = _RowsOfIds(ids)
        second = _add_schedules(columns, rows_of, schedules)
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
        table = cls(
            text=text,
            starts=np.concatenate([[0], ends + 1]).astype(np.int64),
            ids=ids,
            rows_of_ids=rows_of,
            columns=columns,
            moment=moment,
            second=second or 0,
            has_schedules=second is not None,
            order_rows=np.zeros(0, np.int64),
            orders={},
        )
        return table.with_orders(orders)

    def with_orders(self, orders: Iterable[Pages]) -> PageTable:
        """The same pages with these orders."""
        order_rows: list[Ints] = [np.zeros(0, np.int64)]
        kept: dict[str, list[Array]] = {}
        without_row: dict[int, tuple[str, int]] = {}
        for part in orders:
            pages = part.columns["pages"]
            found, there = self.rows_of_ids.find(pages)
            rows = np.full(len(pages), -1)
            rows[there] = found
            before = sum(map(len, order_rows))
            for row in np.flatnonzero(rows < 0).tolist():
                without_row[before + row] = part.texts[row].decode("ascii"), int(pages[row])
            order_rows.append(rows)
            ordered = {"ordered_second": np.full(len(pages), part.moment["second"])}  # all at the time of the plan
            for name, column in (ordered | part.columns).items():
                if name in _OF_ORDERS:
                    kept.setdefault(name, []).append(column)
        columns = {name: np.concatenate(values) for name, values in kept.items()}
        all_rows = np.concatenate(order_rows)
        if "not_before_second" in columns:
            times = np.maximum(columns["not_before_second"], columns["ordered_second"])
            by_time = np.argsort(times, kind="stable")
            all_rows, columns = all_rows[by_time], {name: column[by_time] for name, column in columns.items()}
            positions = np.argsort(by_time)
            without_row = {int(positions[before]): named for before, named in without_row.items()}
        return replace(self, order_rows=all_rows, orders=columns, orders_without_row=without_row)

    def __len__(self) -> int:
        return len(self.ids)

    def make_indices(self) -> None:
        """Make the indices of searches now: otherwise each is made by the first search that needs it."""
        _ = self._fingerprints, self._host_names, self._sites_by_name("host"), self._sites_by_name("domain")

    # -- one page -----------------------------------------------------------------------------------------------------

    def url(self, row: int) -> str:
        """The URL at a row."""
        return self._url_bytes(row).decode("ascii", "backslashreplace")

    def row_of(self, page: int) -> int | None:
        """The row of a page id; None if it is not known."""
        rows, _ = self.rows_of_ids.find(np.array([page], np.uint64))
        return int(rows[0]) if len(rows) else None

    def row_of_url(self, url: str) -> int | None:
        """The row of a canonical URL; None if it is not known."""
        wanted = url.encode("ascii", "backslashreplace")
        if not wanted:
            return None
        rows = np.flatnonzero(self._fingerprints == np.uint32(xxh32_intdigest(wanted))).tolist()
        return next((row for row in rows if self._url_bytes(row) == wanted), None)

    def record(self, row: int) -> dict[str, Any]:
        """Everything about a page as plain values: a row of the lists, and of the API."""
        c, url = {name: column[row].item() for name, column in self.columns.items()}, self.url(row)
        importance, scheduled = c["importance"], bool(c["decided_by"])
        growth = c["trend_per_day"] / importance if importance > 0 else 0.0
        record: dict[str, Any] = {
            "rank": 1 + int(np.searchsorted(self._falling, -importance)),
            "page": f"{int(self.ids[row]):016x}",
            "url": url,
            "host": self.host(row),
            "importance": importance,
            "window_importance": c["window_importance"],
            "score": c["score"],
            "trend_per_day": c["trend_per_day"],
            "growth_per_day": growth if abs(growth) < 1 else None,
            "visits": c["visits"],
            "last_visit": c["last_visit_ms"] or None,
            "last_outcome": Outcome(int(c["last_outcome"])).name,
            "measured": bool(c["measured"]),
            "category": int(c["category"]) or None,
        }
        if "quality" in c:
            record["quality"] = round(c["quality"], 3)
        if scheduled:
            never = c["due_second"] == NEVER
            record |= {
                "due": None if never or not c["due_second"] else time_ms(c["due_second"]),
                "interval_seconds": None if never else c["interval_seconds"],
                "decided_by": DECIDED_BY[int(c["decided_by"])],
                "changes_per_day": c["changes_per_day"],
                "changes_error": c["changes_error"],
                "changes_known_from": KNOWN_FROM[int(c["known_from"])],
                "overdue": bool(0 < c["due_second"] < self.second),
            }
        return record

    def payers(self, row: int) -> list[tuple[int | None, int, float]]:
        """The pages that pay a page most, if links are remembered: row, page id, and part of its importance."""
        found = []
        for name in self.columns:
            if name.startswith("payer_part_"):
                part = float(self.columns[name][row])
                page = int(self.columns[name.replace("_part", "")][row])
                if part > 0:
                    found.append((self.row_of(page), page, part))
        return sorted(found, key=lambda one: -one[2])

    @property
    def has_payers(self) -> bool:
        """Whether links are remembered."""
        return "payer_part_0" in self.columns

    def order_of(self, row: int) -> dict[str, Any] | None:
        """The order of the next cycle for the page at a row; None if there is none."""
        found = np.flatnonzero(self.order_rows == row)
        return self.order(int(found[0])) if len(found) else None

    def order(self, position: int) -> dict[str, Any]:
        """The order at a position of the plan."""
        values = {name: column[position].item() for name, column in self.orders.items()}
        row = int(self.order_rows[position])
        url, page = self.orders_without_row[position] if row < 0 else (self.url(row), int(self.ids[row]))
        return {
            "url": url,
            "page": f"{page:016x}",
            "why": WHY[values["why"]],
            "by": BY[values["by"]] if values.get("by") else "",
            "ordered_at": time_ms(values["ordered_second"]) or None,
            "not_before": time_ms(values["not_before_second"]) or None,
            "priority": values["priority"],
        }

    # -- lists --------------------------------------------------------------------------------------------------------

    def listed(self, wanted: Filter, first: int = 0, count: int = 50) -> Found:
        """The pages of a list from number `first` on, the most important first; risers by how fast they rise."""
        if wanted == Filter():
            return Found(list(range(min(first, len(self)), min(first + count, len(self)))), len(self))
        mask = self._mask(wanted)
        if wanted.pattern:
            is_all = replace(wanted, pattern="") == Filter()
            return self._listed_by_pattern(wanted.pattern, None if is_all else mask, first, count)
        rows = np.flatnonzero(mask)
        if wanted.rising or wanted.falling:
            growth = self.growth[rows] * (1 if wanted.falling else -1)
            most = min(first + count, len(rows))
            if most < len(rows):
                nearest = np.argpartition(growth, most)[:most]
                chosen = nearest[np.lexsort((nearest, growth[nearest]))]
            else:
                chosen = np.lexsort((np.arange(len(rows)), growth))
            return Found(rows[chosen][first : first + count].tolist(), len(rows))
        return Found(rows[first : first + count].tolist(), len(rows))

    def search(self, words: str, count: int = 10) -> Found:
        """The most important pages whose URL has these words, or fits the pattern with stars."""
        return self._listed_by_pattern(words, None, 0, count, counts_all=False)

    @cached_property
    def growth(self) -> Array:
        """The change of importance a day, divided by importance; 0 where no trend is known yet."""
        importance = self.columns["importance"]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            growth: Array = np.where(importance > 0, self.columns["trend_per_day"] / importance, 0.0)
        growth[~(np.abs(growth) < 1) | (self.columns["measured"] == 0)] = 0
        return growth

    def _mask(self, wanted: Filter) -> Bools:
        c, mask = self.columns, np.ones(len(self), bool)
        if wanted.read:
            mask &= c["visits"] > 0
        if wanted.unread:
            mask &= c["visits"] == 0
        if wanted.gone:
            mask &= c["last_outcome"] == int(Outcome.GONE)
        if wanted.rising:
            mask &= self.growth > RISING
        if wanted.falling:
            mask &= self.growth < -RISING
        if wanted.overdue:
            mask &= self.overdue
        if wanted.category is not None:
            mask &= c["category"] == wanted.category
        for by, name in (("host", wanted.host), ("domain", wanted.domain)):
            if name:
                names, of_pages = self.sites(by)
                mask &= of_pages == names.index(name) if name in names else False
        return mask

    @cached_property
    def overdue(self) -> Bools:
        """Whether the time of the plan is after the due time, by page."""
        due: Array = self.columns["due_second"]
        overdue: Bools = (due > 0) & (due < self.second)
        return overdue

    def _listed_by_pattern(
        self, pattern: str, mask: Bools | None, first: int, count: int, counts_all: bool = True
    ) -> Found:
        pieces = [piece.encode("ascii", "backslashreplace") for piece in pattern.strip().split("*")]
        longest = max(pieces, key=len)
        if not longest:
            return Found([], 0)
        is_whole, text = len(pieces) > 1, self.text
        rows: list[int] = []
        total = looked_at = at = 0
        while (at := text.find(longest, at)) >= 0:
            begin, end = text.rfind(b"\n", 0, at) + 1, text.index(b"\n", at)
            looked_at += 1
            if not is_whole or _fits(text[begin:end], pieces):
                row = int(np.searchsorted(self.starts, begin)) if mask is not None or len(rows) < count else 0
                if mask is None or mask[row]:
                    total += 1
                    if total > first and len(rows) < count:
                        rows.append(row)
                        if not counts_all and len(rows) == count:
                            break
            if looked_at >= MOST_LOOKED_AT:
                return Found(rows, total, is_exact=False)
            at = end
        return Found(rows, total)

    # -- sites --------------------------------------------------------------------------------------------------------

    def host(self, row: int) -> str:
        """The host of the page at a row."""
        parts = self.url(row).split("/", 3)
        return parts[2] if len(parts) > 2 else ""

    def sites(self, by: str) -> tuple[list[str], Ints]:
        """The names of all hosts or domains, and the number of the one of each page."""
        if not self._hosts:
            numbers: dict[bytes, int] = {}
            lengths = np.diff(self.starts) - 1
            named = np.flatnonzero(lengths)
            hosts = hosts_of(Texts(self._bytes, self.starts[named], lengths[named])) if len(named) else ()
            of_named = np.fromiter((numbers.setdefault(host, len(numbers)) for host in hosts), np.int64, len(named))
            of_pages = np.full(len(self), len(numbers))
            of_pages[named] = of_named
            if len(named) < len(self):
                numbers[b""] = len(numbers)
            self._hosts.append(([name.decode("ascii") for name in numbers], of_pages))
            domains: dict[str, int] = {}
            of_hosts = np.array(
                [domains.setdefault(_site_of(name), len(domains)) for name in self._hosts[0][0]], np.int64
            )
            self._hosts.append((list(domains), of_hosts[of_pages] if len(of_pages) else of_pages))
        return self._hosts[by == "domain"]

    @cached_property
    def hosts(self) -> list[SiteRow]:
        """All hosts, the most important first."""
        return self.published_sites.get("host") or list(self.sums_by("host"))

    @cached_property
    def domains(self) -> list[SiteRow]:
        """All registrable domains, the most important first."""
        return self.published_sites.get("domain") or list(self.sums_by("domain"))

    def site(self, by: str, name: str) -> SiteRow | None:
        """The host or domain of this name; None if it is not known."""
        return self._sites_by_name(by).get(name)

    def find_hosts(self, words: str, count: int) -> list[SiteRow]:
        """The most important hosts that have these words in their names."""
        text, wanted = self._host_names, words.lower().encode("ascii", "replace")
        found: list[SiteRow] = []
        at = -1 if b"\n" in wanted else text.find(wanted)
        while at >= 0 and len(found) < count:
            found.append(self.hosts[text.count(b"\n", 0, at)])
            end = text.find(b"\n", at)
            at = -1 if end < 0 else text.find(wanted, end + 1)
        return found

    def sums_by(self, by: str) -> Iterator[SiteRow]:
        """Yield the sums over the pages of each host or domain, the most important first."""
        names, of_pages = self.sites(by)

        def sums(weights: Any) -> list[float]:
            added: list[float] = np.bincount(of_pages, weights, len(names)).tolist()
            return added

        pages = np.bincount(of_pages, minlength=len(names)).tolist()
        read, importance = sums(self.columns["visits"] > 0), sums(self.columns["importance"])
        ordered = np.bincount(of_pages[self.order_rows[self.order_rows >= 0]], minlength=len(names)).tolist()
        overdue = sums(self.overdue)
        for rank, i in enumerate(_in_order(np.array(importance), names), 1):
            yield SiteRow(names[i], rank, pages[i], int(read[i]), importance[i], ordered[i], int(overdue[i]))

    def is_of_site(self, by: str, name: str) -> Bools:
        """Whether each page is of a host or domain."""
        names, of_pages = self.sites(by)
        is_of_it: Bools = of_pages == (names.index(name) if name in names else -1)
        return is_of_it

    def _sites_by_name(self, by: str) -> dict[str, SiteRow]:
        if by not in self._named_sites:
            self._named_sites[by] = {one.name: one for one in (self.domains if by == "domain" else self.hosts)}
        return self._named_sites[by]

    @cached_property
    def _host_names(self) -> bytes:
        """The names of all hosts in the order of `hosts`, with line feeds between them."""
        return "\n".join(one.name for one in self.hosts).encode("ascii", "replace")

    @cached_property
    def _falling(self) -> Array:
        falling: Array = -self.columns["importance"]
        return falling

    def _url_bytes(self, row: int) -> bytes:
        return self.text[self.starts[row] : self.starts[row + 1] - 1]

    @cached_property
    def _fingerprints(self) -> Array:
        """A short hash of every URL: few of other URLs are equal to it, so a URL is found without a large index."""
        found = np.zeros(len(self), np.uint32)
        for first in range(0, len(self), _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, len(self))
            urls = self.text[self.starts[first] : self.starts[last] - 1].split(b"\n")
            found[first:last] = np.fromiter(map(xxh32_intdigest, urls), np.uint32, last - first)
        return found

    @cached_property
    def _bytes(self) -> Array:
        return np.frombuffer(self.text, np.uint8)


def _joined(parts: Iterable[Pages]) -> tuple[bytes, Ids, dict[str, Array], dict[str, Any]]:
    """Join the parts of all pages: their URLs, ids and columns, and the moment of the last part."""
    texts: list[bytes] = []
    ids: list[Ids] = [np.zeros(0, np.uint64)]
    columns: dict[str, list[Array]] = {name: [] for name in _OF_PAGES}
    moment: dict[str, Any] = {}
    for part in parts:
        moment = part.moment
        texts.append(b"".join(url + b"\n" for url in part.texts))
        ids.append(part.columns["pages"])
        for name in (*_OF_PAGES, *(name for name in part.columns if name.startswith("payer_"))):
            columns.setdefault(name, []).append(part.columns[name])
    text = b"".join(texts)
    del texts  # all URLs would be in memory twice while columns are joined
    joined = {name: np.concatenate(values) if values else np.zeros(0) for name, values in columns.items()}
    return text, np.concatenate(ids), joined, moment


def _add_schedules(columns: dict[str, Array], rows_of: _RowsOfIds, schedules: Iterable[Pages]) -> int | None:
    """Add the columns of schedules to those of pages; returns the time of the plan, None if there is no schedule."""
    pages = len(columns["importance"])
    columns |= {name: np.zeros(pages, np.float64) for name in _OF_SCHEDULES}
    columns["due_second"] = np.zeros(pages, np.int64)
    columns |= {name: np.zeros(pages, np.uint8) for name in ("decided_by", "known_from", "category")}
    second: int | None = None
    for part in schedules:
        second = max(second or 0, int(part.moment["second"]))
        found, there = rows_of.find(part.columns["pages"])
        for name in (*_OF_SCHEDULES, "category"):
            columns[name][found] = part.columns[name][there]
        if "quality" in part.columns:
            columns.setdefault("quality", np.ones(pages))[found] = part.columns["quality"][there]
    columns["due_second"][np.isinf(columns["interval_seconds"])] = NEVER
    return second


def _in_order(importance: Array, names: list[str]) -> list[int]:
    """The order of sites, the most important first; equal ones by name. Numpy sorts while other threads go on."""
    order = np.argsort(-importance, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(importance[order])) + 1, len(order)).tolist()
    found: list[int] = order.tolist()
    first = 0
    for end in ends:
        if end - first > 1:
            found[first:end] = sorted(found[first:end], key=names.__getitem__)
        first = end
    return found


class _RowsOfIds:
    """Finds the rows of page ids."""

    def __init__(self, ids: Ids) -> None:
        self._order = np.argsort(ids)
        self._sorted = ids[self._order]

    def find(self, pages: Ids) -> tuple[Ints, Ints]:
        """Return the rows of the pages that are known, and which of `pages` these are."""
        if not len(self._sorted):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, pages), len(self._sorted) - 1)
        there = np.flatnonzero(self._sorted[at] == pages)
        return self._order[at[there]], there


def _fits(url: bytes, pieces: list[bytes]) -> bool:
    """Whether a URL begins with the first piece, ends with the last, and has the others in between in their order."""
    first, *between, last = pieces
    if not url.startswith(first) or not url.endswith(last) or len(url) < len(first) + len(last):
        return False
    at, end = len(first), len(url) - len(last)
    for piece in between:
        at = url.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True
