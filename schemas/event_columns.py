"""Crawl events as columns: the form in which batches go from the readers to the router.

Checks that need more than one event are made later. URLs are as the crawler wrote them, as parts of one text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt

from opicflow.schemas.arrays import Bytes, Ids, Int, Ints
from opicflow.schemas.crawl_events import (
    BROKEN_LINK,
    EARLIEST_MS,
    LATEST_MS,
    LONGEST_RETRY_SECONDS,
    MOST_LINKS,
    MOST_REDIRECTS,
    CrawlEvent,
    EventRefused,
    Link,
    Reason,
)
from opicflow.schemas.hashing import byte_at, hash_text
from opicflow.schemas.kernel import lean_kernel

UNKNOWN_STATUS = 0
FAILED, BLOCKED, GONE, BUSY = -1, -2, -3, -4
"""Statuses of visits without one: the fetch failed, was not allowed, the page is gone, the host is busy."""
LEAST_STATUS = BUSY

ORDINARY_WEIGHT = 1024
HEAVIEST_WEIGHT = 65535

UNKNOWN_QUALITY, NO_QUALITY = 0, -1
"""Steps of pages whose quality is not reported, and of pages whose quality is no number from 0 to 1."""
BEST_QUALITY = 255
"""The step of the quality 1. That of the quality 0 is 1."""

UNKNOWN_MEDIA, HTML, XML, FEED, PDF, OTHER_MEDIA = range(6)
"""Kinds of content, by the content type."""
MEDIA_TYPES = {
    "text/html": HTML,
    "application/xhtml+xml": HTML,
    "application/rss+xml": FEED,
    "application/atom+xml": FEED,
    "application/rdf+xml": FEED,
    "application/feed+json": FEED,
    "application/pdf": PDF,
    "text/xml": XML,
    "application/xml": XML,
    "+xml": XML,
}
"""Content types of each kind; what begins with + is how one ends. The first that fits counts."""

URL, CANONICAL, FIRST_HOP = 0, 1, 2
"""The order of an event's URLs: its own, the canonical one, the hops that led to it, then its links."""

_BLANKS = re.compile(r"[\x00-\x20]+")
_BLOCKED_WORDS = ("robots", "robots-txt", "robotstxt", "blocked", "filtered", "forbidden", "denied", "excluded")
_GONE_WORDS = ("gone", "not-found", "notfound")
_BUSY_WORDS = ("too-many-requests", "toomanyrequests", "rate-limited", "rate-limit", "throttled")
_FAILING = re.compile(
    "fail|error|exception|time-?d?-?out|dns|refused|reset|lost|unreach|unavail|abort|cancel|too-large|too-long|ssl|tls"
)


OF_URLS = ("begins", "ends", "weights", "nofollow")
"""The columns of `CrawlEvents` with a value for each URL."""


@dataclass(frozen=True)
class CrawlEvents:
    """Events in the order of their source, a row each; their URLs in a column of parts of `text`.

    `offset` is the position in the source and increases. `status` is an HTTP status, `UNKNOWN_STATUS`, or one of
    `FAILED`, `BLOCKED`, `GONE`, `BUSY`. Unknown times and digests are 0; `media` is a kind of content. `retry_seconds`
    is for how long the host wants no requests, 0 = not given. `quality` is a step from 1 to `BEST_QUALITY`, or
    `UNKNOWN_QUALITY`, or `NO_QUALITY`.
    Event i has the URLs `url_starts[i]` up to `url_starts[i+1]`: its own, its canonical one (begin -1 = none),
    `hops[i]` hops, its links (begin -1 = without a URL).
    """

    offset: Ints
    announce: Bytes
    time_ms: Ints
    modified_ms: Ints
    status: npt.NDArray[np.int16]
    digest: Ids
    media: Bytes
    links_known: Bytes
    hops: Ints
    url_starts: Ints
    begins: Ints
    ends: Ints
    weights: npt.NDArray[np.uint16]
    nofollow: Bytes
    retry_seconds: Ints
    quality: npt.NDArray[np.int16]
    text: Bytes

    def __len__(self) -> int:
        """The number of events."""
        return len(self.offset)

    @property
    def links(self) -> int:
        """The number of their links, together."""
        return int(len(self.begins) - FIRST_HOP * len(self) - self.hops.sum())

    @property
    def broken_links(self) -> int:
        """The number of their links without a URL."""
        canonical = self.begins[self.url_starts[:-1] + CANONICAL]
        return int(np.count_nonzero(self.begins < 0) - np.count_nonzero(canonical < 0))

    def take(self, rows: Ints) -> CrawlEvents:
        """These rows, in this order, on the same text."""
        sizes = np.diff(self.url_starts)[rows]
        starts = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        urls = np.arange(starts[-1]) + np.repeat(self.url_starts[rows] - starts[:-1], sizes)
        of_rows = [f.name for f in fields(self) if f.name not in (*OF_URLS, "url_starts", "text")]
        kept = {name: getattr(self, name)[rows] for name in of_rows}
        kept |= {name: getattr(self, name)[urls] for name in OF_URLS}
        return CrawlEvents(**kept, url_starts=starts, text=self.text)


def merge(first: CrawlEvents, second: CrawlEvents) -> CrawlEvents:
    """The events of both in the order of their offsets."""
    if len(second) == 0:
        return first
    size = len(first.text)
    shifted = {name: getattr(second, name) + size * (second.begins >= 0) for name in ("begins", "ends")}
    joined = {
        f.name: np.concatenate((getattr(first, f.name), shifted.get(f.name, getattr(second, f.name))))
        for f in fields(first)
        if f.name != "url_starts"
    }
    starts = np.concatenate((first.url_starts, second.url_starts[1:] + first.url_starts[-1]))
    both = CrawlEvents(**joined, url_starts=starts)
    if len(first) == 0:
        return both
    return both.take(np.argsort(both.offset, kind="stable"))


def urls_with(events: CrawlEvents, part: bytes) -> int:
    """Count the URLs of events that have these bytes in them."""
    text = events.text.tobytes()
    found = np.array([match.start() for match in re.finditer(re.escape(part), text)], np.int64)
    if len(found) == 0 or len(events.begins) == 0:
        return 0
    order = np.argsort(events.begins, kind="stable")
    begins, ends = events.begins[order], events.ends[order]
    rows = np.searchsorted(begins, found, side="right") - 1
    is_within = (rows >= 0) & (found + len(part) <= ends[rows])
    return len(np.unique(rows[is_within]))


@dataclass
class EventWriter:
    """Builds `CrawlEvents` event by event: for everything that no kernel reads."""

    _rows: list[tuple[int, bool, int, int, int, int, int, int, int, bool, int, int]] = field(default_factory=list)
    _urls: list[bytes | None] = field(default_factory=list)
    _weights: list[int] = field(default_factory=list)
    _nofollow: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        """The number of events that were added."""
        return len(self._rows)

    def add(self, offset: int, event: CrawlEvent) -> None:
        """Add an event, or raise `EventRefused` and add nothing."""
        links = event.links or ()
        if len(links) > MOST_LINKS:
            raise EventRefused(Reason.TOO_MANY_LINKS, f"it has {len(links)} links, more than {MOST_LINKS}")
        if len(event.redirects) > MOST_REDIRECTS:
            raise EventRefused(Reason.BAD_FIELD, f"redirects: more than {MOST_REDIRECTS}")
        weights = [quantised(link.weight) for link in links]
        times = (
            checked_time_ms(event.fetched_at_ms, "fetched_at"),
            0 if event.last_modified_ms is None or not _is_time(event.last_modified_ms) else event.last_modified_ms,
        )
        digest = 0
        if event.digest:
            digest = hash_text(event.digest.encode("utf-8", "surrogatepass"))
        urls = [_encoded(event.url), None if event.canonical is None else _encoded(event.canonical)]
        urls += [_encoded(hop) for hop in event.redirects]
        urls += [None if link is BROKEN_LINK else _encoded(link.url) for link in links]
        self._rows.append(
            (
                offset,
                event.announce,
                *times,
                _retry_seconds(event),
                quality_step(event.quality),
                _status(event),
                digest,
                _media(event.content_type),
                event.links is not None and not event.announce,
                len(event.redirects),
                len(urls),
            )
        )
        before = len(urls) - len(links)
        self._urls += urls
        self._weights += [0] * before + weights
        self._nofollow += [False] * before + [is_nofollow(link) for link in links]

    def events(self) -> CrawlEvents:
        """All events added so far."""
        offset, announce, time_ms, modified_ms, retry_seconds, quality, status, digest, media, known, hops, sizes = (
            zip(*self._rows, strict=True) if self._rows else ((),) * 12
        )
        lengths = np.array([-1 if url is None else len(url) for url in self._urls], np.int64)
        ends = np.cumsum(np.maximum(lengths, 0))
        begins = np.where(lengths >= 0, ends - lengths, -1)
        starts = np.zeros(len(self._rows) + 1, np.int64)
        np.cumsum(np.array(sizes, np.int64), out=starts[1:])
        return CrawlEvents(
            offset=np.array(offset, np.int64),
            announce=np.array(announce, np.uint8),
            time_ms=np.array(time_ms, np.int64),
            modified_ms=np.array(modified_ms, np.int64),
            status=np.array(status, np.int16),
            digest=np.array(digest, np.uint64),
            media=np.array(media, np.uint8),
            links_known=np.array(known, np.uint8),
            hops=np.array(hops, np.int64),
            url_starts=starts,
            begins=begins,
            ends=np.where(begins >= 0, ends, -1),
            weights=np.array(self._weights, np.uint16),
            nofollow=np.array(self._nofollow, np.uint8),
            retry_seconds=np.array(retry_seconds, np.int64),
            quality=np.array(quality, np.int16),
            text=np.frombuffer(b"".join(url for url in self._urls if url), np.uint8),
        )


def quantised(weight: float | None) -> int:
    """A link's weight in units of 1/1024 of an ordinary link, at most 65535."""
    if weight is None:
        return ORDINARY_WEIGHT
    if not (math.isfinite(weight) and weight >= 0):
        raise EventRefused(Reason.BAD_WEIGHT, f"a link has the weight {weight}: give a finite number from 0")
    return round(min(weight * ORDINARY_WEIGHT, HEAVIEST_WEIGHT))


def quality_step(quality: float | None) -> int:
    """The step of a quality: `BEST_QUALITY` - 1 steps lie between 0 and 1."""
    if quality is None:
        return UNKNOWN_QUALITY
    return 1 + round(quality * (BEST_QUALITY - 1)) if 0.0 <= quality <= 1.0 else NO_QUALITY


def quality_of(step: int) -> float:
    """Return the quality that a step from 1 on represents."""
    return (step - 1) / (BEST_QUALITY - 1)


@lean_kernel
def step_of_number(quality: float) -> Int:
    """Within kernels: the result of `quality_step` for a number, which may be NaN."""
    if not 0.0 <= quality <= 1.0:
        return np.int64(NO_QUALITY)
    return np.int64(1) + np.int64(np.rint(quality * np.float64(BEST_QUALITY - 1)))


def checked_time_ms(time_ms: int | None, name: str) -> int:
    """A time of a fetch, 0 where it is not known; refused outside the years of the web."""
    if time_ms is None:
        return 0
    if not _is_time(time_ms):
        raise EventRefused(Reason.BAD_TIME, f"{name}: it is outside the years 1990 to 2099")
    return time_ms


def is_nofollow(link: Link) -> bool:
    """Whether the page does not vouch for a link: nofollow, ugc or sponsored among its rel words."""
    return link.rel is not None and not set(_BLANKS.split(link.rel.lower())).isdisjoint(_NOFOLLOW_WORDS)


def _is_time(time_ms: int) -> bool:
    return EARLIEST_MS <= time_ms < LATEST_MS


def is_known_failure(word: str) -> bool:
    """Whether a word in the field of a status surely names a failure: it may also be a crawler's word for a success."""
    plain = _plain_word(word)
    return any(plain in words for _, words in _STATUSES_OF_WORDS) or _FAILING.search(plain) is not None


def _plain_word(word: str) -> str:
    return word.strip().lower().replace("_", "-").replace(".", "-")


def _retry_seconds(event: CrawlEvent) -> int:
    return min(max(event.retry_after or 0, 0), LONGEST_RETRY_SECONDS)


def _status(event: CrawlEvent) -> int:
    if event.failure:
        word = _plain_word(event.failure)
        return next((status for status, words in _STATUSES_OF_WORDS if word in words), FAILED)
    status = event.status
    if status is None:
        return UNKNOWN_STATUS
    if not -32768 < status < 1000:
        raise EventRefused(Reason.BAD_FIELD, f"status: {str(status)[:20]} is no HTTP status")
    if status >= 100:
        return status
    return BLOCKED if status in _HERITRIX_BLOCKED else FAILED


_HERITRIX_BLOCKED = frozenset({-9998, -5000, -5001, -5002, -5003, -5004})
"""Statuses below 100 are Heritrix's: these say that a rule kept it out, the others that the fetch failed."""


_STATUSES_OF_WORDS = ((BLOCKED, _BLOCKED_WORDS), (GONE, _GONE_WORDS), (BUSY, _BUSY_WORDS))
_FAILURE_WORDS = [word for _, words in _STATUSES_OF_WORDS for word in words]
_FAILURE_BYTES = np.array([list(word.encode().ljust(17, b"\0")) for word in _FAILURE_WORDS], np.uint8)
_FAILURE_SIZES = np.array([len(word) for word in _FAILURE_WORDS], np.int64)
_FAILURE_STATUSES = np.array([status for status, words in _STATUSES_OF_WORDS for _ in words], np.int64)


@lean_kernel
def failure_status(text: Bytes, begin: Int, end: Int) -> Int:
    """Within kernels: the status of a failure in ASCII; 1 where it has to be looked at."""
    if begin == end:
        return np.int64(1)
    for at in range(begin, end):
        c = byte_at(text, at)
        if c >= 128 or c < 32:
            return np.int64(1)
    while begin < end and byte_at(text, begin) == 32:
        begin += 1
    while end > begin and byte_at(text, end - 1) == 32:
        end -= 1
    for word in range(_FAILURE_SIZES.shape[0]):
        if _FAILURE_SIZES[word] == end - begin:
            same = True
            for i in range(end - begin):
                c = byte_at(text, begin + i)
                same &= (45 if c in (46, 95) else c | 32 if 65 <= c <= 90 else c) == _FAILURE_BYTES[word, i]
            if same:
                return np.int64(_FAILURE_STATUSES[word])
    return np.int64(FAILED)


_NOFOLLOW_WORDS = ("nofollow", "ugc", "sponsored")
_NOFOLLOW_BYTES = np.array([list(word.encode().ljust(9, b"\0")) for word in _NOFOLLOW_WORDS], np.uint8)


@lean_kernel
def says_nofollow(text: Bytes, begin: Int, end: Int) -> bool:
    """Within kernels: the result of `is_nofollow` for a rel attribute."""
    at = begin
    while at < end:
        word = at
        while at < end and byte_at(text, at) > 32:
            at += 1
        for i in range(_NOFOLLOW_BYTES.shape[0]):
            length = 0
            while length < 9 and _NOFOLLOW_BYTES[i, length] != 0:
                length += 1
            if length == at - word:
                same = True
                for j in range(length):
                    same &= (byte_at(text, word + j) | 32) == _NOFOLLOW_BYTES[i, j]
                if same:
                    return True
        at += 1
    return False


_NAMES_OF_TYPES = np.array([list(name.encode().ljust(24, b"\0")) for name in MEDIA_TYPES], np.uint8)
_SIZES_OF_TYPES = np.array([len(name) for name in MEDIA_TYPES], np.int64)
_MEDIA_OF_TYPES = np.array(list(MEDIA_TYPES.values()), np.int64)


@lean_kernel
def media_of(text: Bytes, begin: Int, end: Int) -> Int:
    """Within kernels: the kind of content of a content type, whatever its parameters."""
    last = begin
    while last < end and byte_at(text, last) != 59:  # ;
        last += 1
    while begin < last and byte_at(text, begin) <= 32:
        begin += 1
    while last > begin and byte_at(text, last - 1) <= 32:
        last -= 1
    if begin == last:
        return UNKNOWN_MEDIA
    for row in range(_SIZES_OF_TYPES.shape[0]):
        first = last - _SIZES_OF_TYPES[row]
        if first == begin or (first > begin and _NAMES_OF_TYPES[row, 0] == 43):  # +
            same = True
            for i in range(_SIZES_OF_TYPES[row]):
                c = byte_at(text, first + i)
                same &= (c | 32 if 65 <= c <= 90 else c) == _NAMES_OF_TYPES[row, i]
            if same:
                return np.int64(_MEDIA_OF_TYPES[row])
    return OTHER_MEDIA


def _media(content_type: str | None) -> int:
    if not content_type:
        return UNKNOWN_MEDIA
    given = content_type.encode("utf-8", "surrogatepass")
    return int(media_of(np.frombuffer(given, np.uint8), 0, len(given)))


def _encoded(url: str) -> bytes:
    return url.encode("utf-8", "surrogatepass")  # a lone surrogate is no URL: found out where it is judged
