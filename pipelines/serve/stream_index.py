"""A bounded index of a stream's topics: the most important pages, sites, the last orders, and counts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np

from opicflow.pipelines.refresh.policies import Policies, check, most_categories
from opicflow.pipelines.results.record_columns import Pages
from opicflow.pipelines.serve.books import Check
from opicflow.pipelines.serve.newest_rows import NewestRows, kinds_of, record_position
from opicflow.pipelines.serve.page_table import PageTable, SiteRow
from opicflow.pipelines.serve.record_rows import (
    IMPORTANCE,
    ORDERS,
    SCHEDULES,
    Column,
    Row,
    columns_of,
    milliseconds,
)
from opicflow.pipelines.serve.view import HISTORY_PAGES, Live, Moment, RejectExample, View
from opicflow.pipelines.serve.wording import number
from opicflow.pipelines.stream.audit import Auditor, AuditRefused, Verdict
from opicflow.schemas.arrays import Array
from opicflow.schemas.columns import Texts
from opicflow.schemas.message_columns import ResultMessage
from opicflow.schemas.policy_json import PolicyRefused
from opicflow.schemas.records import Audit, Policy, from_avro

STREAMS = ("importance", "site-importance", "refresh-schedule", "crawl-orders", "rejects", "audit", "policies")
"""The topics that are read."""
MOST_ORDERS, MOST_SITES = 50_000, 20_000
_BYTES_A_PAGE = 200
"""The bytes of URLs that are kept, on the average of a page."""
MOST_WATCHED = 1_000
_MOST_REASONS, _EXAMPLES_A_REASON, _LONGEST_EXCERPT = 100, 5, 400
_MOST_MOMENTS = 240
_MOMENT_MS = 10_000

_SITES: tuple[Column, ...] = (
    ("importance", lambda row: row["importance"], np.float64),
    ("pages", lambda row: row["pages"], np.int64),
    ("read", lambda row: row["read"], np.int64),
    ("by", lambda row: ("OTHER", "HOST", "DOMAIN").index(row["by"]), np.uint8),
)
_ALSO_OF_SCHEDULES: tuple[Column, ...] = (("importance", lambda row: row["importance"], np.float64),)
_ALSO_OF_ORDERS: tuple[Column, ...] = (("ordered_ms", lambda row: milliseconds(row["ordered_at"]), np.int64),)
_BY = {"host": 1, "domain": 2}


class _Table:
    """The rows of one topic, and how its records become rows."""

    def __init__(self, columns: Sequence[Column], rank: str, text: str, most: int, bytes_a_row: int) -> None:
        """`text` is the field that a row keeps as its text; empty: none."""
        self.rows = NewestRows(kinds_of(columns), rank, most, most * bytes_a_row)
        self._columns, self._rank, self._text = columns, rank, text

    def take(self, arrived: Sequence[ResultMessage]) -> int:
        """Take records; returns how many have impossible values."""
        blank = {name: 0 for name, _, _ in self._columns}
        try:
            self._take(arrived, blank)
        except (ValueError, TypeError, LookupError, ArithmeticError):
            if len(arrived) == 1:
                return 1
            return sum(self.take([one]) for one in arrived)  # find those that are wrong
        return 0

    def _take(self, arrived: Sequence[ResultMessage], blank: Mapping[str, Any]) -> None:
        living = [row for one in arrived if (row := one.values) is not None]
        there = np.array([one.values is not None for one in arrived], bool)
        given = columns_of(living, self._columns)
        if not np.isfinite(given[self._rank]).all():
            raise ValueError(self._rank)
        columns = {}
        for name, column in given.items():
            columns[name] = np.full(len(arrived), blank[name], column.dtype)
            columns[name][there] = column
        self.rows.take(
            [one.key for one in arrived],
            np.array([record_position(one.partition, one.offset) for one in arrived], np.int64),
            ~there,
            columns,
            [_text_of(one.values, self._text) for one in arrived],
        )


class StreamIndex:
    """Takes the records of all topics of a stream in any order, and makes views from them.

    Of pages the `keep` most important ones are kept, of schedules those that were of most importance when they were
    decided, of sites the most important, of orders the last; and counts. Pages that somebody looks for are kept, too.
    """

    def __init__(self, keep: int, prefix: str = "") -> None:
        """Keep so many pages. `prefix` is that of the topics."""
        self.keep = keep
        self._ledger_topic = f"{prefix}page-ledger"
        schedules = (*SCHEDULES, *_ALSO_OF_SCHEDULES)
        self.pages = _Table(IMPORTANCE, "importance", "url", keep, _BYTES_A_PAGE)
        self._tables = {
            "importance": self.pages,
            "site-importance": _Table(_SITES, "importance", "site", MOST_SITES, _BYTES_A_PAGE),
            "refresh-schedule": _Table(schedules, "importance", "", keep, _BYTES_A_PAGE),
            "crawl-orders": _Table((*ORDERS, *_ALSO_OF_ORDERS), "ordered_ms", "url", MOST_ORDERS, _BYTES_A_PAGE),
        }
        self._policies = Policies()
        self._auditor = Auditor()
        self.verdict = Verdict()
        self.rejects: Counter[str] = Counter()
        self.refused_entries = 0
        self._examples: dict[str, deque[RejectExample]] = {}
        self.unreadable: Counter[str] = Counter()
        self._event_second = 0
        self._pages_published = 0
        self._watched: dict[str, None] = {}
        self._looked_at: dict[int, None] = {}
        self._moments: list[Moment] = []
        self._moment_ms = _MOMENT_MS

    def take(self, stream: str, arrived: Sequence[ResultMessage]) -> None:
        """Take records of one of `STREAMS`, those of a partition in their order."""
        if stream == "audit":
            self._take_audits(arrived)
        elif stream == "policies":
            self._take_policies(arrived)
        elif stream == "rejects":
            for one in arrived:
                self._take_reject(one.values)
        else:
            self.unreadable[stream] += self._tables[stream].take(arrived)
            self._note_times(stream, (one.values for one in arrived))

    def look_for(self, url: str) -> None:
        """Keep the page with this URL from its next record on, whatever its importance is."""
        self._watched.pop(url, None)
        self._watched[url] = None
        while len(self._watched) > MOST_WATCHED:
            del self._watched[next(iter(self._watched))]
        self.pages.rows.watched = {hash(one.encode("ascii", "backslashreplace")): None for one in self._watched}

    def look_at(self, page: int) -> None:
        """Note the importance of this page from now on, as of the first ones."""
        self._looked_at.pop(page, None)
        self._looked_at[page] = None
        while len(self._looked_at) > MOST_WATCHED:
            del self._looked_at[next(iter(self._looked_at))]

    def read_pages_again(self) -> None:
        """All records of importance and of schedules come again from the first: a page that was dropped may return."""
        for stream in ("importance", "refresh-schedule"):
            self._tables[stream].rows.clear_floor()

    @property
    def has_large_gaps(self) -> bool:
        """Whether more than half of the kept pages may have others between them: reading all records again helps."""
        return len(self.pages.rows) >= self.keep and self.pages.rows.complete < self.keep / 2

    # -- views --------------------------------------------------------------------------------------------------------

    def kept(self) -> str:
        """Return sentences about the records that are kept, and about those that are not."""
        pages, known = self.pages.rows, self._pages_known()
        if pages.floor == -np.inf:
            words = f"All {number(len(pages))} pages in the topic importance are kept"
            words += (
                f"; {number(known - len(pages))} more are not published yet." if known and known > len(pages) else "."
            )
        else:
            words = (
                f"Of {number(max(known or 0, len(pages)))} pages the {number(len(pages))} most important ones are kept "
                f"(--keep {self.keep}), by their newest records; without a gap the first {number(pages.complete)}. Of "
                "others nothing is known here: lists, search and counts by host leave them out."
            )
        if pages.floor != -np.inf:
            words += " Sums of sites are those of the last plan."
        words += f" Of orders the last {number(MOST_ORDERS)} of a day are kept, and the rejects of a day are counted."
        if any(self.unreadable.values()):
            words += f" {number(sum(self.unreadable.values()))} messages could not be read."
        return words

    def view(self, live: Live, checks: Sequence[Check], title: str, source: str) -> View:
        """Return the current view."""
        table = self._table(live.at_ms)
        known, verdict = self._pages_known(), self.verdict
        view = View(
            title=title,
            source=source,
            version=version("opicflow"),
            table=table,
            counts={"events_read": None, "visits": verdict.visits or None, "rejects": sum(self.rejects.values())},
            known_read=self._pages_read(),
            certificate=verdict.certificate,
            history=self._history(live.at_ms, table, verdict, known),
            rejects=dict(self.rejects.most_common()),
            examples=tuple(one for some in self._examples.values() for one in some),
            known_pages=known,
            checks=checks,
            live=live,
            policies=tuple(one.policy for one in self._policies.expire(live.at_ms)),
        )
        return view.prepared()

    def _table(self, now_ms: int) -> PageTable:
        rows = self.pages.rows
        columns = rows.columns()
        order = np.lexsort((columns["pages"], -columns["importance"]))
        second = max(self._event_second, self.verdict.newest_second)
        moment = {"second": second, "event_time_ms": 1000 * second}
        pages = Pages(rows.texts(order), rows.columns(order), moment)
        schedules = self._columns("refresh-schedule")
        planned = [Pages(Texts.of([]), schedules, moment)] if len(schedules["pages"]) else []
        table = PageTable.of([pages], planned, [self._orders(pages, now_ms, moment)])
        published = {by: self._published_sites(by, table) for by in _BY}
        return replace(table, published_sites={by: sites for by, sites in published.items() if sites})

    def _columns(self, stream: str) -> dict[str, Array]:
        """Return the columns of records of pages, with the page ids that the kept pages of the same URLs have.

        Records of several replays may have ids by several keys; the key of all is the URL.
        """
        rows, pages = self._tables[stream].rows, self.pages.rows
        columns, at = rows.columns(), pages.rows_of(rows)
        known = at >= 0
        columns["pages"][known] = pages.columns(at[known])["pages"]
        return columns

    def _orders(self, pages: Pages, now_ms: int, moment: dict[str, Any]) -> Pages:
        """Return the orders that wait: not expired, and their page was not visited since, as far as it is kept."""
        rows = self._tables["crawl-orders"].rows
        columns = self._columns("crawl-orders")
        waits = (columns["expires_ms"] == 0) | (columns["expires_ms"] > now_ms)
        by_id = np.argsort(pages.columns["pages"])
        ids = pages.columns["pages"][by_id]
        at = np.minimum(np.searchsorted(ids, columns["pages"]), max(len(ids) - 1, 0))
        if len(ids):
            visited = pages.columns["last_visit_ms"][by_id[at]]
            waits &= ~((ids[at] == columns["pages"]) & (visited >= columns["ordered_ms"]))
        chosen = np.flatnonzero(waits)
        some = {name: column[chosen] for name, column in columns.items()}
        chosen = chosen[
            np.lexsort((some["pages"], some["ordered_ms"], -some["priority"], -some["why"].astype(np.int64)))
        ]
        return Pages(rows.texts(chosen), rows.columns(chosen), moment)

    def _published_sites(self, by: str, table: PageTable) -> list[SiteRow]:
        """Return the sites of the topic, the parts of shards added, with orders of each; and those of kept pages.

        Nothing, where all pages in the topic are kept and are more: then their own sums are newer than the last plan.
        """
        sites = self._sites_of(_BY[by])
        if not sites["name"]:
            return []
        sums: dict[str, list[float]] = {}
        for name, importance, pages, read in zip(
            sites["name"], sites["importance"].tolist(), sites["pages"].tolist(), sites["read"].tolist(), strict=True
        ):
            one = sums.setdefault(name, [0.0, 0, 0])
            one[0], one[1], one[2] = one[0] + importance, one[1] + pages, one[2] + read
        own = {one.name: one for one in table.sums_by(by)}
        if self.pages.rows.floor == -np.inf and len(table) >= sum(pages for _, pages, _ in sums.values()):
            return []
        rows = [
            (importance, name, int(pages), int(read), mine.ordered if mine else 0, mine.overdue if mine else 0)
            for name, (importance, pages, read) in sums.items()
            for mine in (own.get(name),)
        ]
        rows += [
            (one.importance, one.name, one.pages, one.read, one.ordered, one.overdue)
            for one in own.values()
            if one.name not in sums
        ]
        rows.sort(key=lambda row: (-row[0], row[1]))
        return [
            SiteRow(name, rank, pages, read, importance, ordered, overdue)
            for rank, (importance, name, pages, read, ordered, overdue) in enumerate(rows, 1)
        ]

    def _sites_of(self, by: int) -> dict[str, Any]:
        rows = self._tables["site-importance"].rows
        chosen = np.flatnonzero(rows.columns()["by"] == by)
        return {**rows.columns(chosen), "name": [name.decode("ascii", "replace") for name in rows.texts(chosen)]}

    def _pages_read(self) -> int | None:
        """Return how many pages were read by the last plan of all sites; None if not all sites, or all pages are kept.

        The pages themselves are newer than a plan.
        """
        if self._keeps_all:
            return None
        rows = self._tables["site-importance"].rows
        columns = rows.columns()
        of_domains, of_hosts = (int(columns["read"][columns["by"] == _BY[by]].sum()) for by in ("domain", "host"))
        return (of_domains or of_hosts or None) if rows.floor == -np.inf else None

    @property
    def _keeps_all(self) -> bool:
        return self.pages.rows.floor == -np.inf and len(self.pages.rows) >= (self._pages_known() or 0)

    def _pages_known(self) -> int | None:
        return self.verdict.pages or self._pages_published or None

    def _history(self, now_ms: int, table: PageTable, verdict: Verdict, known: int | None) -> tuple[Moment, ...]:
        """Return the moments since the start; of too many moments every second one is removed."""
        if len(table) and (not self._moments or now_ms - self._moments[-1].time_ms >= self._moment_ms):
            looked_at = np.fromiter(self._looked_at, np.uint64, len(self._looked_at))
            rows = np.union1d(table.rows_of_ids.find(looked_at)[0], np.arange(min(HISTORY_PAGES, len(table))))
            noted = dict(zip(table.ids[rows].tolist(), table.columns["importance"][rows].tolist(), strict=True))
            self._moments.append(Moment(now_ms, verdict.visits, known or len(table), None, None, noted))
            if len(self._moments) > _MOST_MOMENTS:
                del self._moments[1::2]
                self._moment_ms *= 2
        return tuple(self._moments)

    # -- records ------------------------------------------------------------------------------------------------------

    def _note_times(self, stream: str, rows: Iterable[Row | None]) -> None:
        living = [row for row in rows if row is not None]
        if not living:
            return
        seconds = [milliseconds(row.get("event_time")) // 1000 for row in living]
        self._event_second = max(self._event_second, *seconds)
        if stream == "importance":
            self._pages_published = int(living[-1]["pages"])

    def _take_audits(self, arrived: Sequence[ResultMessage]) -> None:
        for one in arrived:
            if one.values is None:
                continue
            try:
                self._auditor.take(from_avro(Audit, dict(one.values)))
            except (AuditRefused, ValueError, TypeError, LookupError):
                self.unreadable["audit"] += 1
        if arrived:
            self.verdict = self._auditor.verdict()

    def _take_policies(self, arrived: Sequence[ResultMessage]) -> None:
        policies = []
        for one in arrived:
            try:
                if one.values is not None:
                    policy = from_avro(Policy, dict(one.values))
                    check(policy, most_categories(policy))
                    policies.append(policy)
            except (PolicyRefused, ValueError, TypeError, LookupError):  # the ledgers refuse it, too
                self.unreadable["policies"] += 1
        try:
            self._policies = self._policies.add_all(policies, 0)
        except PolicyRefused:
            if len(arrived) == 1:
                self.unreadable["policies"] += 1
            for one in arrived if len(arrived) > 1 else ():  # find those that are refused
                self._take_policies([one])

    def _take_reject(self, row: Row | None) -> None:
        if row is None:
            return
        reason = str(row["reason"])
        if reason not in self.rejects and len(self.rejects) >= _MOST_REASONS:
            reason = "other"
        self.rejects[reason] += 1
        self.refused_entries += str(row["source"]).startswith(f"{self._ledger_topic}/")
        excerpt = bytes(row["bytes"])[:_LONGEST_EXCERPT].decode("utf-8", "backslashreplace")
        where = f"{str(row['source'])[:_LONGEST_EXCERPT]}, {row['offset']:,}"
        detail = str(row["detail"])[:_LONGEST_EXCERPT]
        self._examples.setdefault(reason, deque(maxlen=_EXAMPLES_A_REASON)).append(
            RejectExample(reason, detail, where, excerpt)
        )


def _text_of(row: Row | None, field: str) -> bytes:
    """The text of a record without line feeds, which separate texts in a table."""
    if row is None or not field:
        return b""
    return str(row[field]).encode("ascii", "backslashreplace").replace(b"\n", b"\\n")
