"""The entries of a shard log, as columns. A ledger is a function of its entries.

An entry names its source and the range of offsets that it holds (from `start` up to but not including `end`), so that a
ledger can skip rows that it has applied and refuse an entry that would leave a hole. Page ids are uint64, made from
site and URL (schemas/pages.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger.config import ORDINARY_LINK_WEIGHT, UNITS_PER_PAGE
from opicflow.pipelines.ledger.sums import sum_columns
from opicflow.schemas.arrays import (
    Array,
    Bytes,
    ColumnTuple,
    Ids,
    Ints,
    columns_of,
    for_kernel,
    per_row,
    ragged,
    starts,
)
from opicflow.schemas.columns import spans
from opicflow.schemas.records import Policy

ENTRY_VERSION = 1
NO_CATEGORY = 255
"""A page or link whose category is not known."""


class LogPosition(NamedTuple):
    """A point in a source: an offset (or cut number) and an index within it, both from 0."""

    offset: int
    within: int


START = LogPosition(0, 0)


class Kind(IntEnum):
    """The kinds of rows of a crawl entry."""

    VISIT = 0
    SIGHTING = 1
    ANNOUNCEMENT = 2


class Outcome(IntEnum):
    """How a visit ended; `NONE` is the last outcome of a page that was never visited."""

    NONE = 0
    FETCHED = 1
    REDIRECTED = 2
    ALIASED = 3
    GONE = 4
    UNCHANGED = 5
    FAILED = 6
    BLOCKED = 7
    BUSY = 8
    """The host was busy: the fetch gave no information about the page."""


class Fate(IntEnum):
    """The result of applying a row."""

    TAKEN = 0
    LATE = 1
    """A visit earlier than the page's latest; it counts."""
    DUPLICATE = 2
    """The same page at the same time as an earlier visit; it moves nothing."""
    REFUSED = 3
    """A visit of a forgotten page; it moves nothing."""
    COLLIDED = 4
    """A visit or an announcement with another URL than the page of this id has; it moves nothing."""


class RemovalReason(IntEnum):
    """Why a page was removed."""

    DROPPED = 1
    """A policy drops it."""
    FORGOTTEN = 2
    """A policy forgets it: it must not be learnt again."""
    GONE = 3
    """Several visits in a row found it gone."""
    LIMIT = 4
    """There were too many unread pages, and it was among the poorest."""


@dataclass(frozen=True)
class CrawlItems:
    """Visits, sightings and announcements in log order, one row each; links and URLs are ragged columns.

    `time_ms` is the time of the fetch and `digest` a hash of its content (0 = not known). `modified_ms` is when the
    content last changed, as the server of a visit or a sitemap reports it (0 = not reported); of a BUSY visit it is the
    time until which the host wants no requests (0 = not reported). `links_known` distinguishes a page without links
    from one whose links are not known. `quality` is a step of the page's quality (`quality_of`), 0 = not reported. An
    empty URL is not known. `offset` and `within` are the position of each row in its source; they never decrease.
    """

    kind: Bytes = field(metadata=per_row(np.uint8))
    page: Ids = field(metadata=per_row(np.uint64))
    time_ms: Ints = field(metadata=per_row(np.int64))
    outcome: Bytes = field(metadata=per_row(np.uint8))
    digest: Ids = field(metadata=per_row(np.uint64))
    modified_ms: Ints = field(metadata=per_row(np.int64))
    category: Bytes = field(metadata=per_row(np.uint8, NO_CATEGORY))
    offset: Ints = field(metadata=per_row(np.int64, is_rising=True))
    within: Ints = field(metadata=per_row(np.int64))
    links_known: Bytes = field(metadata=per_row(np.uint8))
    quality: Bytes = field(metadata=per_row(np.uint8))
    link_starts: Ints = field(metadata=starts())
    link_pages: Ids = field(metadata=ragged("link_starts", np.uint64))
    link_weights: npt.NDArray[np.uint16] = field(metadata=ragged("link_starts", np.uint16, ORDINARY_LINK_WEIGHT))
    link_categories: Bytes = field(metadata=ragged("link_starts", np.uint8, NO_CATEGORY))
    url_starts: Ints = field(metadata=starts())
    url_bytes: Bytes = field(metadata=ragged("url_starts", np.uint8))

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def filled(cls, rows: int, **given: Array) -> CrawlItems:
        """Rows with these columns. The others hold their default: no links, no URLs, nothing known."""
        columns = {}
        for column in ITEM_COLUMNS:
            if column.name in given:
                columns[column.name] = given[column.name]
            elif column.is_starts:
                columns[column.name] = np.zeros(rows + 1, np.int64)
            else:
                length = int(columns[column.starts][-1]) if column.starts else rows
                columns[column.name] = np.full(length, column.default, column.dtype)
        return cls(**columns)

    def rows(self, first: int, last: int) -> CrawlItems:
        """The rows from `first` up to `last`, with their links and URLs. Only starts are copied."""
        if first == 0 and last == len(self):
            return self
        columns = {}
        for column in ITEM_COLUMNS:
            values = getattr(self, column.name)
            if column.is_starts:
                columns[column.name] = values[first : last + 1] - values[first]
            elif column.starts:
                starts = getattr(self, column.starts)
                columns[column.name] = values[int(starts[first]) : int(starts[last])]
            else:
                columns[column.name] = values[first:last]
        return CrawlItems(**columns)

    def take(self, rows: Ints) -> CrawlItems:
        """The rows at these indices, in this order, with their links and URLs."""
        cut = {column.name: spans(getattr(self, column.name), rows) for column in ITEM_COLUMNS if column.is_starts}
        columns = {}
        for column in ITEM_COLUMNS:
            if column.is_starts:
                columns[column.name] = cut[column.name][1]
            else:
                columns[column.name] = getattr(self, column.name)[cut[column.starts][0] if column.starts else rows]
        return CrawlItems(**columns)


ITEM_COLUMNS = columns_of(CrawlItems)


@ColumnTuple.register
class KernelItems(NamedTuple):
    """The columns of `CrawlItems` that change a ledger; page ids as int64 with the same bits."""

    kind: Bytes
    page: Ints
    time_ms: Ints
    outcome: Bytes
    digest: Ints
    modified_ms: Ints
    category: Bytes
    links_known: Bytes
    link_starts: Ints
    link_pages: Ints
    link_weights: npt.NDArray[np.uint16]
    link_categories: Bytes
    url_starts: Ints
    url_bytes: Bytes
    fates: Bytes
    """The fate of each row, which kernels write."""
    changed: Array
    """Of rows that found a change: 1 + the digest before, and that after; no rows without subscriptions."""


def kernel_items(items: CrawlItems, fates: Bytes, changed: Array) -> KernelItems:
    """The columns for kernels. All are contiguous, aligned and writable, so that kernels are compiled once."""
    plain = (for_kernel(getattr(items, name)) for name in KernelItems._fields[:-2])
    columns = (column.view(np.int64) if column.dtype == np.uint64 else column for column in plain)
    return KernelItems._make((*columns, fates, changed))


@dataclass(frozen=True)
class CrawlEntry:
    """The rows for this shard in the range [start, end) of a source of crawl events.

    `visits_total` is how many visits the source has sent to this shard up to `end`, all entries together: the
    ledger compares it with the visits it has applied. None where the source does not count. It counts from the offset
    `counted_from` on: 0, or later where it lost its state and the records before were deleted.
    """

    source: str
    start: LogPosition
    end: LogPosition
    items: CrawlItems
    visits_total: int | None = None
    counted_from: int = 0


@dataclass(frozen=True)
class CheckedEntry(CrawlEntry):
    """An entry whose rows `Ledger.checked` has looked at, or a part of one. No log has such entries.

    `ticks` are the rows that a tick comes before, and its second: as if they were entries between parts of this one.
    They need a ledger without policies, which a tick may end.
    """

    ticks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class PolicyEntry:
    """Rules that hold from here on, and pages to remove. A rule that is None does not change.

    Pages in `drop` are removed, and may be born again. Pages in `forget` also lose their URLs, and are never learnt
    again. `policies` are accepted in their order; impossible ones are refused, each with a reason.
    """

    source: str
    start: LogPosition
    end: LogPosition
    damping: float | None = None
    class_weights: tuple[int, ...] | None = None
    link_bonus_per_1024: tuple[int, ...] | None = None
    drop: tuple[int, ...] = ()
    forget: tuple[int, ...] = ()
    policies: tuple[Policy, ...] = ()


@dataclass(frozen=True)
class TickEntry:
    """Time passes: the second of the clock. A tick that is not later than the last one changes nothing."""

    second: int


@dataclass(frozen=True)
class ResidualSums:
    """Sums over the pages of a `certified` shard, or of all shards, from which a certificate is computed.

    `sent` and `received` have one value for each shard: the sizes of all amounts ever sent to it, or received from it.
    A shard's own element of `sent` is the size of all amounts that it has not sent yet.
    """

    bases: int
    paid: int
    residual: int
    residual_size: int
    links: int
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()

    @property
    def scale(self) -> float:
        """The factor by which payments are scaled, so that all residuals together are nothing; 1 if there is none."""
        rest = self.bases - self.residual
        return self.bases / rest if self.bases > 0 and rest > 0 else 1.0

    def rate_sum(self, scale: float) -> float:
        """Return the sum of the rates of these pages, whose payments are scaled by so much."""
        return (self.bases + scale * (self.paid + self.residual - self.bases)) / UNITS_PER_PAGE


@dataclass(frozen=True)
class Gossip:
    """The message of a shard to the others at a cut: its advance of the turn clock, cash minted, pages, and sums."""

    advance: int
    minted: int
    pages: int
    weighted_pages: int
    rate_sum: float
    shares: int = 0
    residuals: ResidualSums | None = None
    """Under `certified`, and only there."""
    second: int = -1
    """The shard's last tick; -1 if there was none."""


@dataclass(frozen=True)
class TransfersEntry:
    """Cash from another shard: the items [first, first + len(pages)) of one cut, sorted by page id.

    The last message of a cut also carries that shard's part of the virtual account and its gossip.
    `sent_total` and `sent_digest` cover all it ever sent to this shard up to the end of this message. Under `certified`
    amounts may be negative; `sent_total` sums their sizes, so that it never falls.
    """

    source_shard: int
    cut: int
    first: int
    last: bool
    pages: Ids
    amounts: Ints
    virtual: int
    sent_total: int
    sent_digest: int
    gossip: Gossip | None

    @property
    def start(self) -> LogPosition:
        """The position at which the message begins in the stream of cuts."""
        return LogPosition(self.cut, self.first)

    @property
    def end(self) -> LogPosition:
        """The position at which it ends; the next cut after the last message of a cut."""
        return LogPosition(self.cut + 1, 0) if self.last else LogPosition(self.cut, self.first + len(self.pages))

    def split(self, most_items: int) -> list[TransfersEntry]:
        """The same cash in messages of at most `most_items` items, in order."""
        if len(self.pages) <= most_items:
            return [self]
        messages = []
        total, digest = self.sent_total, self.sent_digest
        starts = range(0, len(self.pages), most_items)
        for begin in reversed(starts):
            pages, amounts = self.pages[begin : begin + most_items], self.amounts[begin : begin + most_items]
            last = self.last and begin == starts[-1]
            virtual = self.virtual if last else 0
            gossip = self.gossip if last else None
            messages.append(
                TransfersEntry(
                    self.source_shard,
                    self.cut,
                    self.first + begin,
                    last,
                    pages,
                    amounts,
                    virtual,
                    total,
                    digest,
                    gossip,
                )
            )
            sums = sum_transfers(pages, amounts, virtual, self.cut)
            total -= sums.size + virtual
            digest = (digest - sums.digest) % (1 << 64)
        return messages[::-1]


Entry = CrawlEntry | PolicyEntry | TickEntry | TransfersEntry


@dataclass(frozen=True)
class ControlEntry:
    """Settings or requests, in plain values. The first one of a log holds the configuration of its ledger."""

    source: str
    values: dict[str, Any]


LogEntry = Entry | ControlEntry
"""All entries of a log. A ledger refuses control entries: its keeper handles them."""


class TransferSums(NamedTuple):
    """Sums over transfers. `digest` includes the virtual part, the others do not."""

    digest: int
    size: int
    """The sum of the sizes of all amounts."""
    most: int
    """The largest size."""
    has_negative: bool
    is_rising: bool
    """Whether page ids increase."""


def sum_transfers(pages: Ids, amounts: Ints, virtual: int, cut: int) -> TransferSums:
    """Sum transfers in one pass."""
    if pages.ndim != 1 or pages.shape != amounts.shape:
        raise ValueError("pages and amounts must be columns, one as long as the other")
    digest, high, low, most, has_negative, is_rising = sum_columns(
        for_kernel(pages, np.uint64),
        for_kernel(amounts.view(np.uint64)),
        np.uint64(index(virtual)),
        np.uint64(index(cut)),
    )
    return TransferSums(int(digest), (int(high) << 32) + int(low), int(most), bool(has_negative), bool(is_rising))


def transfer_digest(pages: Ids, amounts: Ints, virtual: int, cut: int) -> int:
    """A sum, modulo 2^64, of one hash per transfer: it can be added up and taken apart in any order."""
    return sum_transfers(pages, amounts, virtual, cut).digest


class PageLink(NamedTuple):
    """A link of a visit: the page it leads to, its weight, and the category of that page where it is known."""

    page: int
    weight: int = ORDINARY_LINK_WEIGHT
    category: int = NO_CATEGORY


@dataclass
class ItemWriter:
    """Builds `CrawlItems` row by row: for tests, examples and small sources. Large sources fill the columns.

    Every row takes the next offset of its source.
    """

    next_position: LogPosition = START
    _rows: list[dict[str, int]] = field(default_factory=list)
    _links: list[list[PageLink]] = field(default_factory=list)
    _urls: list[bytes] = field(default_factory=list)

    def visit(
        self,
        page: int,
        links: Sequence[PageLink | int] | None = None,
        outcome: Outcome = Outcome.FETCHED,
        time_ms: int = 0,
        category: int = NO_CATEGORY,
        url: bytes = b"",
        digest: int = 0,
        modified_ms: int = 0,
        quality: int = 0,
    ) -> ItemWriter:
        """A fetch of `page`. `links` None = not known, [] = none; a plain id is an ordinary link."""
        return self._add(
            url,
            [PageLink(x) if isinstance(x, int) else x for x in links or ()],
            kind=Kind.VISIT,
            page=page,
            time_ms=time_ms,
            outcome=outcome,
            digest=digest,
            modified_ms=modified_ms,
            category=category,
            links_known=links is not None,
            quality=quality,
        )

    def sighting(self, page: int, category: int = NO_CATEGORY, url: bytes = b"") -> ItemWriter:
        """A URL seen in a link."""
        return self._add(url, kind=Kind.SIGHTING, page=page, category=category)

    def announcement(
        self, page: int, category: int = NO_CATEGORY, url: bytes = b"", modified_ms: int = 0, quality: int = 0
    ) -> ItemWriter:
        """A seed, a sitemap entry, a push from a site."""
        kind = Kind.ANNOUNCEMENT
        return self._add(url, kind=kind, page=page, category=category, modified_ms=modified_ms, quality=quality)

    def items(self) -> CrawlItems:
        """All rows written so far."""
        links = [link for of_row in self._links for link in of_row]
        names = self._rows[0] if self._rows else ()
        given: dict[str, Any] = {name: [row[name] for row in self._rows] for name in names}
        given |= {
            "link_starts": _starts([len(of_row) for of_row in self._links]),
            "link_pages": [link.page for link in links],
            "link_weights": [link.weight for link in links],
            "link_categories": [link.category for link in links],
            "url_starts": _starts([len(url) for url in self._urls]),
            "url_bytes": np.frombuffer(b"".join(self._urls), np.uint8),
        }
        dtypes = {column.name: column.dtype for column in ITEM_COLUMNS}
        arrays = {name: np.asarray(values, dtypes[name]) for name, values in given.items()}
        return CrawlItems.filled(len(self._rows), **arrays)

    def entry(self, source: str = "crawl", start: LogPosition = START, visits_total: int | None = None) -> CrawlEntry:
        """All rows written so far as one entry that begins at `start` and ends at the next position."""
        return CrawlEntry(source, start, self.next_position, self.items(), visits_total)

    def _add(self, url: bytes, links: Sequence[PageLink] = (), **values: int) -> ItemWriter:
        offset, within = self.next_position
        self.next_position = LogPosition(offset + 1, 0)
        defaults = {column.name: column.default for column in ITEM_COLUMNS if not (column.starts or column.is_starts)}
        self._rows.append({**defaults, **values, "offset": offset, "within": within})
        self._links.append(list(links))
        self._urls.append(url)
        return self


def _starts(lengths: Sequence[int]) -> Ints:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
