"""The entries of a shard log: what a ledger is made from, as columns.

An entry says which source it comes from and which part of it (`start` up to but not including `end`), so that a
ledger can drop what it has, trim what it half has, and refuse what would leave a hole. Page ids are the 64-bit
hashes of canonical URLs; a batch carries them as uint64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger.config import ORDINARY_LINK_WEIGHT
from opicflow.schemas.columns import spans
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.records import Policy

ENTRY_VERSION = 1
NO_CATEGORY = 255
"""A page or link whose category is not known."""

_U64: Any = np.uint64
_STEP, _FIRST, _SECOND = _U64(0x9E3779B97F4A7C15), _U64(0xBF58476D1CE4E5B9), _U64(0x94D049BB133111EB)

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


class LogPosition(NamedTuple):
    """A point in a source: an offset (or cut number) and the place within it, counted from 0."""

    offset: int
    within: int


START = LogPosition(0, 0)


class Kind(IntEnum):
    """What an item of a crawl entry is."""

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


class Fate(IntEnum):
    """What became of a row that was applied."""

    TAKEN = 0
    LATE = 1
    """A visit earlier than the page's latest: taken all the same."""
    DUPLICATE = 2
    """A visit that came before, the same page at the same time: it moved nothing."""
    REFUSED = 3
    """A visit of a page that was forgotten: it moved nothing."""


class RemovalReason(IntEnum):
    """Why a page was let go."""

    DROPPED = 1
    """A policy said so."""
    FORGOTTEN = 2
    """A policy said so, and that it must not be learnt again."""
    GONE = 3
    """It was found gone again and again."""
    LIMIT = 4
    """There were too many unread pages, and it was among the poorest."""


@dataclass(frozen=True)
class CrawlItems:
    """Visits, sightings and announcements in log order, one row each; links and URLs as ragged columns.

    `time_ms` is the time of the fetch (0 = not known), `digest` a hash of the content that came (0 = not known), and
    `modified_ms` when it last changed as somebody says (0 = nobody): the server of a visit, a sitemap's announcement.
    `links_known` tells `[]` (no links) from null (not known).
    Row i has the links `link_starts[i]` up to `link_starts[i+1]`, and its URL likewise (empty = not known).
    `offset` and `within` are the place of each row in its source; they never decrease.
    """

    kind: Bytes
    page: Ids
    time_ms: Ints
    outcome: Bytes
    digest: Ids
    modified_ms: Ints
    category: Bytes
    offset: Ints
    within: Ints
    links_known: Bytes
    link_starts: Ints
    link_pages: Ids
    link_weights: npt.NDArray[np.uint16]
    link_categories: Bytes
    url_starts: Ints
    url_bytes: Bytes

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.kind)

    def rows(self, first: int, last: int) -> CrawlItems:
        """The rows from `first` up to `last`, with their links and URLs. Nothing is copied but the starts."""
        links = slice(int(self.link_starts[first]), int(self.link_starts[last]))
        urls = slice(int(self.url_starts[first]), int(self.url_starts[last]))
        return CrawlItems(
            kind=self.kind[first:last],
            page=self.page[first:last],
            time_ms=self.time_ms[first:last],
            outcome=self.outcome[first:last],
            digest=self.digest[first:last],
            modified_ms=self.modified_ms[first:last],
            category=self.category[first:last],
            offset=self.offset[first:last],
            within=self.within[first:last],
            links_known=self.links_known[first:last],
            link_starts=self.link_starts[first : last + 1] - self.link_starts[first],
            link_pages=self.link_pages[links],
            link_weights=self.link_weights[links],
            link_categories=self.link_categories[links],
            url_starts=self.url_starts[first : last + 1] - self.url_starts[first],
            url_bytes=self.url_bytes[urls],
        )

    def take(self, rows: Ints) -> CrawlItems:
        """These rows, in this order, with their links and URLs."""
        links, link_starts = spans(self.link_starts, rows)
        urls, url_starts = spans(self.url_starts, rows)
        return CrawlItems(
            kind=self.kind[rows],
            page=self.page[rows],
            time_ms=self.time_ms[rows],
            outcome=self.outcome[rows],
            digest=self.digest[rows],
            modified_ms=self.modified_ms[rows],
            category=self.category[rows],
            offset=self.offset[rows],
            within=self.within[rows],
            links_known=self.links_known[rows],
            link_starts=link_starts,
            link_pages=self.link_pages[links],
            link_weights=self.link_weights[links],
            link_categories=self.link_categories[links],
            url_starts=url_starts,
            url_bytes=self.url_bytes[urls],
        )


@dataclass(frozen=True)
class CrawlEntry:
    """What one source of crawl events holds for this shard in [start, end).

    `visits_total` is how many visits the source has sent to this shard up to `end`, all entries together: the
    ledger compares it with what it has applied. None where the source does not count.
    """

    source: str
    start: LogPosition
    end: LogPosition
    items: CrawlItems
    visits_total: int | None = None
    version: int = ENTRY_VERSION


@dataclass(frozen=True)
class PolicyEntry:
    """Rules that hold from here on, and pages to let go. What is None stays as it is.

    `drop` lets pages go for good: they may be born again. `forget` also removes their URLs from the next
    snapshot and never learns them again. `policies` are policies, in their order: the ledger takes those that are
    possible, and says why it does not take the others.
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
    version: int = ENTRY_VERSION


@dataclass(frozen=True)
class TickEntry:
    """Time passes: the second of the clock. A tick that is not later than the last one changes nothing."""

    second: int
    version: int = ENTRY_VERSION


@dataclass(frozen=True)
class Gossip:
    """What shards tell each other at a cut: own advance of the turn clock, cash minted, pages, and sums."""

    advance: int
    minted: int
    pages: int
    weighted_pages: int
    rate_sum: float
    shares: int = 0


@dataclass(frozen=True)
class TransfersEntry:
    """Cash from another shard: the items [first, first + len(pages)) of one cut, sorted by page id.

    The last message of a cut also carries that shard's part of the virtual account and its gossip.
    `sent_total` and `sent_digest` cover all it ever sent to this shard up to the end of this message.
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
    version: int = ENTRY_VERSION

    @property
    def start(self) -> LogPosition:
        """Where in the stream of cuts the message begins."""
        return LogPosition(self.cut, self.first)

    @property
    def end(self) -> LogPosition:
        """Where it ends: the next cut, if it is the last of its own."""
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
            total -= int(amounts.sum()) + virtual
            digest = (digest - transfer_digest(pages, amounts, virtual, self.cut)) % (1 << 64)
        return messages[::-1]


Entry = CrawlEntry | PolicyEntry | TickEntry | TransfersEntry


@dataclass(frozen=True)
class ControlEntry:
    """What holds from here on, or is asked for, in plain values. The first one of a log says how its ledger counts."""

    source: str
    values: dict[str, Any]
    version: int = ENTRY_VERSION


@dataclass(frozen=True)
class EndEntry:
    """The source sends nothing more to this log: it goes on in the logs of another number of shards."""

    source: str
    start: LogPosition
    end: LogPosition
    shards: int
    version: int = ENTRY_VERSION


@dataclass(frozen=True)
class OpenEntry:
    """A part of what a closed ledger hands over to one of its successors: chunk `number`, the last one or not."""

    source_shard: int
    number: int
    last: bool
    chunk: Bytes
    version: int = ENTRY_VERSION


LogEntry = Entry | ControlEntry | EndEntry | OpenEntry
"""What a log may hold. Control is for those who keep the ledger; it applies the others, or refuses them by name."""


class Sums(NamedTuple):
    """What transfers come to. `digest` has the virtual part too, `cash` has not."""

    digest: int
    cash: int
    most: int
    """The largest amount; one below nought counts as enormous."""
    is_rising: bool
    """Whether each page id is above the one before."""


def sum_transfers(pages: Ids, amounts: Ints, virtual: int, cut: int) -> Sums:
    """Look at all transfers once."""
    if pages.ndim != 1 or pages.shape != amounts.shape:
        raise ValueError("pages and amounts must be columns, one as long as the other")
    pages, units = (np.require(one, np.uint64, ["C", "A", "W"]) for one in (pages, amounts.view(np.uint64)))
    digest, high, low, most, is_rising = _sums(pages, units, _U64(index(virtual)), _U64(index(cut)))
    return Sums(int(digest), (int(high) << 32) + int(low), int(most), bool(is_rising))


def transfer_digest(pages: Ids, amounts: Ints, virtual: int, cut: int) -> int:
    """A sum, modulo 2^64, of one hash per transfer: it can be added up and taken apart in any order."""
    return sum_transfers(pages, amounts, virtual, cut).digest


@lean_kernel
def _sums(pages: Any, amounts: Any, virtual: Any, cut: Any) -> Any:
    salt = _mix(cut + _U64(1))
    digest = _mix(_mix(salt) + virtual) if virtual else _U64(0)
    high = low = most = _U64(0)
    is_rising = True
    for row in range(pages.shape[0]):
        amount = amounts[row]
        digest += _mix(_mix(pages[row] ^ salt) + amount)
        high += amount >> _U64(32)
        low += amount & _U64(0xFFFFFFFF)
        most = max(most, amount)
        if row > 0 and pages[row] <= pages[row - 1]:
            is_rising = False
    return digest, high, low, most, is_rising


@inlined_kernel
def _mix(value: Any) -> Any:
    """SplitMix64's finaliser: every bit of the input reaches every bit of the output."""
    x = value + _STEP
    x = (x ^ (x >> _U64(30))) * _FIRST
    x = (x ^ (x >> _U64(27))) * _SECOND
    return x ^ (x >> _U64(31))


class Link(NamedTuple):
    """A link of a visit: the page it leads to, its weight, and the category of that page where it is known."""

    page: int
    weight: int = ORDINARY_LINK_WEIGHT
    category: int = NO_CATEGORY


@dataclass
class ItemWriter:
    """Builds `CrawlItems` row by row: for tests, examples and small sources. Large sources fill the columns.

    Every row takes the next place of its source unless `at` says otherwise.
    """

    next_place: LogPosition = START
    _rows: list[tuple[int, int, int, int, int, int, int, LogPosition, bool]] = field(default_factory=list)
    _links: list[list[Link]] = field(default_factory=list)
    _urls: list[bytes] = field(default_factory=list)

    def visit(
        self,
        page: int,
        links: Sequence[Link | int] | None = None,
        outcome: Outcome = Outcome.FETCHED,
        time_ms: int = 0,
        category: int = NO_CATEGORY,
        url: bytes = b"",
        digest: int = 0,
        modified_ms: int = 0,
    ) -> ItemWriter:
        """A fetch of `page`. `links` None = not known, [] = none; a plain id is an ordinary link."""
        row = (Kind.VISIT, page, time_ms, outcome, digest, modified_ms, category, self._take_place(), links is not None)
        return self._add(row, [Link(x) if isinstance(x, int) else x for x in links or ()], url)

    def sighting(self, page: int, category: int = NO_CATEGORY, url: bytes = b"") -> ItemWriter:
        """A URL seen in a link."""
        return self._add((Kind.SIGHTING, page, 0, Outcome.NONE, 0, 0, category, self._take_place(), False), [], url)

    def announcement(
        self, page: int, category: int = NO_CATEGORY, url: bytes = b"", modified_ms: int = 0
    ) -> ItemWriter:
        """A seed, a sitemap entry, a push from a site."""
        row = (Kind.ANNOUNCEMENT, page, 0, Outcome.NONE, 0, modified_ms, category, self._take_place(), False)
        return self._add(row, [], url)

    def items(self) -> CrawlItems:
        """All rows written so far."""
        kind, page, time_ms, outcome, digest, modified_ms, category, places, known = (
            zip(*self._rows, strict=True) if self._rows else ((),) * 9
        )
        links = [link for of_row in self._links for link in of_row]
        return CrawlItems(
            kind=np.array(kind, np.uint8),
            page=np.array(page, np.uint64),
            time_ms=np.array(time_ms, np.int64),
            outcome=np.array(outcome, np.uint8),
            digest=np.array(digest, np.uint64),
            modified_ms=np.array(modified_ms, np.int64),
            category=np.array(category, np.uint8),
            offset=np.array([p.offset for p in places], np.int64),
            within=np.array([p.within for p in places], np.int64),
            links_known=np.array(known, np.uint8),
            link_starts=_starts([len(of_row) for of_row in self._links]),
            link_pages=np.array([link.page for link in links], np.uint64),
            link_weights=np.array([link.weight for link in links], np.uint16),
            link_categories=np.array([link.category for link in links], np.uint8),
            url_starts=_starts([len(url) for url in self._urls]),
            url_bytes=np.frombuffer(b"".join(self._urls), np.uint8),
        )

    def entry(self, source: str = "crawl", start: LogPosition = START, visits_total: int | None = None) -> CrawlEntry:
        """All rows written so far as one entry that begins at `start` and ends at the next place."""
        return CrawlEntry(source, start, self.next_place, self.items(), visits_total)

    def _take_place(self) -> LogPosition:
        place = self.next_place
        self.next_place = LogPosition(place.offset + 1, 0)
        return place

    def _add(
        self, row: tuple[int, int, int, int, int, int, int, LogPosition, bool], links: list[Link], url: bytes
    ) -> ItemWriter:
        self._rows.append(row)
        self._links.append(links)
        self._urls.append(url)
        return self


def _starts(lengths: Sequence[int]) -> Ints:
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
