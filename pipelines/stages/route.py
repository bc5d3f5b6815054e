"""Routes crawl events: turns them into the rows of crawl entries. A pure function of events and rules.

A visit becomes one row for every page that redirected, with its last redirect, a row for the page that answered, and a
sighting for every URL that the ledger may not have yet. The interpretation of events is here and nowhere else:

- 2xx and unknown statuses are FETCHED; 304 is UNCHANGED; other 3xx are REDIRECTED to the first link; 404 and 410 are
  GONE; 401, 402, 403, 407, 451 and visits that a rule forbade are BLOCKED; 429, and 503 with a Retry-After, are BUSY:
  the row has the time until which the host wants no request; all others are FAILED.
- A page that names another one as canonical is ALIASED: that is its only link. Its other links are not those of the
  canonical page, which may belong to another site.
- "Not modified" with an empty list of links means that there was no body: the links are unknown.
- The quality of an event is that of the page that answered, or was announced; one that is no number from 0 to 1 is
  dropped, and counted.
- The category of a page is the first URL pattern that it matches; a visited page without a match has the category of
  its media type, if the rules use these.
- The weight of a link is the weight in the event times the weight of its kind. A link of weight 0 makes a sighting too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger.entries import ITEM_COLUMNS, NO_CATEGORY, CrawlItems, Kind, Outcome
from opicflow.pipelines.stages.rules import MEDIA_CATEGORIES, ORDINARY_WEIGHT, LinkWeights, Rules
from opicflow.schemas.arrays import Array, Bools, Bytes, ColumnSpec, ColumnTuple, Hashes, Ids, Int, Ints, Word
from opicflow.schemas.crawl_events import Reason
from opicflow.schemas.dates import iso_time
from opicflow.schemas.event_columns import (
    BLOCKED,
    BUSY,
    GONE,
    LEAST_STATUS,
    UNKNOWN_MEDIA,
    UNKNOWN_STATUS,
    CrawlEvents,
)
from opicflow.schemas.hashing import byte_at, copy_bytes, hash_bytes
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, prefetch
from opicflow.schemas.url_forms import NO_PAGE, PAGE
from opicflow.schemas.url_patterns import NO_PATTERN, first_patterns
from opicflow.schemas.urls import CanonicalUrls, NotAPage, UrlRules, canonical

_SEEN_BITS = 22
_FIRST_SEEN_BITS = 13
_ROOM_FOR_TWO_PAGES = 3
"""The entries of the table for two remembered pages: a smaller table would forget more pages."""
_BUCKET = 8
"""The number of adjacent entries that are searched for a page: they are as long as a line of the processor's cache."""
_MULTIPLIER = 0x9E3779B97F4A7C15

ANY_TIME = 1 << 62
MOST_AHEAD_MS = 24 * 3600 * 1000
"""An event may be this far ahead of the clock. A later one would stop all schedules until its time."""
_TOO_FAR_AHEAD = "is too far ahead: the limit is a day after the clock, or --latest"


class Routed(NamedTuple):
    """The rows of a batch, the rejected events (index, reason, detail), and counts of events and links."""

    items: CrawlItems
    rejected: list[tuple[int, Reason, str]]
    counts: dict[str, int]


class Seen:
    """The page ids whose URL was sent recently. A forgotten one is sent again, which changes nothing.

    Make a new one for every bundle: the records of a failed bundle may be lost.
    """

    def __init__(self, bits: int = _SEEN_BITS) -> None:
        """`bits`: its table has at most 2 ** `bits` entries; from 3 to 22."""
        self._most = 1 << bits
        self.ids = np.zeros(1 << min(bits, _FIRST_SEEN_BITS), np.uint64)
        self._most_known = 0
        """At most so many are known: to count them takes as long as to route a batch."""

    def make_room(self, pages: int) -> None:
        """Grow for so many more pages, as far as it may."""
        size = len(self.ids)
        if size >= min(self._most, _places_for(self._most_known + pages)):
            return
        ids = self.ids[self.ids != 0]
        self._most_known = len(ids)
        while size < min(self._most, _places_for(self._most_known + pages)):
            size *= 2
        if size > len(self.ids):
            self.ids = np.zeros(size, np.uint64)
            remember_all(self.ids, ids)

    def count(self, most_new: int) -> None:
        """Note that at most so many were sent for the first time."""
        self._most_known += most_new


def _places_for(pages: int) -> int:
    return _ROOM_FOR_TWO_PAGES * pages // 2


def accepted(events: CrawlEvents, urls: CanonicalUrls, latest_ms: int = ANY_TIME) -> Bools:
    """Return which events `route` does not reject."""
    good: Bools = (urls.states[events.url_starts[:-1]] == PAGE) & (events.time_ms <= latest_ms)
    return good


def route(events: CrawlEvents, urls: CanonicalUrls, rules: Rules, seen: Seen, latest_ms: int = ANY_TIME) -> Routed:
    """Return the rows of events; `urls` are their URLs in canonical form. Events after `latest_ms` are rejected."""
    starts = events.url_starts
    pages, is_ahead = accepted(events, urls, latest_ms), events.time_ms > latest_ms
    if is_ahead.any():
        states = urls.states.copy()
        states[starts[:-1][is_ahead]] = NO_PAGE
        urls = replace(urls, states=states)
    sites = _sites(events, urls, rules.links)
    most_rows = int((events.hops + 1)[pages].sum()) + len(urls.ids)
    columns = {
        one.name: _room(one, len(urls.ids) if one.starts else most_rows)
        for one in ITEM_COLUMNS
        if one.name != "url_bytes"
    }
    out = _Out(**columns, url_begins=np.empty(most_rows, np.int64), counts=np.zeros(len(COUNTS), np.int64))
    seen.make_room(len(urls.ids))
    outcomes = _OUTCOMES[events.status.astype(np.int64) - LEAST_STATUS]
    outcomes[(events.status == _UNAVAILABLE) & (events.retry_seconds > 0)] = Outcome.BUSY
    is_busy = (outcomes == Outcome.BUSY) & (events.announce == 0)
    given = _In(
        offset=events.offset,
        announce=events.announce,
        time_ms=events.time_ms,
        outcome=outcomes,
        digest=events.digest,
        modified_ms=np.where(is_busy, _waits_until(events), events.modified_ms),
        links_known=events.links_known,
        quality=events.quality,
        hops=events.hops,
        starts=starts,
        nofollow=events.nofollow,
        weights=events.weights,
        begins=urls.begins,
        ends=urls.ends,
        states=urls.states,
        ids=urls.ids,
        sites=sites,
        media=events.media if rules.categories.by_media else np.zeros(0, np.uint8),
        patterns=first_patterns(rules.categories.patterns, urls),
    )
    rows = int(fill_rows(given, rules.links.quantised(), seen.ids, out))
    seen.count(rows)  # a row has one URL, or none
    url_bytes = np.empty(int(out.url_starts[rows]), np.uint8)
    if rows:
        copy_urls(urls.text, out.url_begins, out.url_starts, rows, url_bytes)
    links = int(out.link_starts[rows])
    ends = {one.name: links if one.starts else rows + one.is_starts for one in ITEM_COLUMNS}
    items = CrawlItems(**{name: column[: ends[name]] for name, column in columns.items()}, url_bytes=url_bytes)
    rejected = [
        (row, Reason.BAD_TIME, f"{iso_time(int(events.time_ms[row]))} {_TOO_FAR_AHEAD}")
        if is_ahead[row]
        else (row, Reason.NOT_A_PAGE, _why_no_page(_text_of(events, int(starts[row])), rules.urls))
        for row in np.flatnonzero(~pages).tolist()
    ]
    return Routed(items, rejected, dict(zip(COUNTS, out.counts.tolist(), strict=True)))


def _room(column: ColumnSpec, rows: int) -> Array:
    """Return a column for so many rows, which the kernel fills where its values differ from the default."""
    if column.default == 0 and not column.is_starts:
        return np.empty(rows, column.dtype)
    return np.full(rows + column.is_starts, column.default, column.dtype)


COUNTS = (
    "visits",
    "announcements",
    "links",
    "links_nofollow",
    "links_not_pages",
    "visits_links_unknown",
    "visits_unchanged",
    "visits_failed",
    "visits_without_time",
    "redirects",
    "aliases",
    "qualities_dropped",
)
"""The counts of routed events. Visits include duplicates, which only a ledger finds."""

(
    _VISITS,
    _ANNOUNCEMENTS,
    _LINKS,
    _NOFOLLOW,
    _NOT_PAGES,
    _UNKNOWN,
    _UNCHANGED_VISITS,
    _FAILED_VISITS,
    _TIMELESS,
    _REDIRECTS,
    _ALIASES,
    _NO_QUALITIES,
) = range(len(COUNTS))


def _outcome_table() -> Bytes:
    """Return the outcome of every status from LEAST_STATUS to 999."""
    table = np.full(1000 - LEAST_STATUS, Outcome.FAILED, np.uint8)
    for outcome, statuses in (
        (Outcome.FETCHED, (UNKNOWN_STATUS, *range(200, 300))),
        (Outcome.REDIRECTED, range(300, 400)),
        (Outcome.UNCHANGED, (304,)),
        (Outcome.GONE, (GONE, 404, 410)),
        (Outcome.BLOCKED, (BLOCKED, 401, 402, 403, 407, 451)),
        (Outcome.BUSY, (BUSY, 429)),
    ):
        table[[status - LEAST_STATUS for status in statuses]] = outcome
    return table


def _waits_until(events: CrawlEvents) -> Ints:
    """Return until when the host of each event wants no request; 0 where it does not, or the time is unknown."""
    waits = (events.retry_seconds > 0) & (events.time_ms > 0)
    return np.where(waits, events.time_ms + 1000 * events.retry_seconds, 0)


_OUTCOMES = _outcome_table()
_UNAVAILABLE = 503
_FETCHED, _REDIRECTED, _ALIASED = int(Outcome.FETCHED), int(Outcome.REDIRECTED), int(Outcome.ALIASED)
_GONE, _UNCHANGED = int(Outcome.GONE), int(Outcome.UNCHANGED)
_VISIT, _SIGHTING, _ANNOUNCEMENT = int(Kind.VISIT), int(Kind.SIGHTING), int(Kind.ANNOUNCEMENT)
_FIRST_PATTERN = len(MEDIA_CATEGORIES)


@ColumnTuple.register
class _In(NamedTuple):
    offset: Ints
    announce: Bytes
    time_ms: Ints
    outcome: Bytes
    digest: Ids
    modified_ms: Ints
    links_known: Bytes
    quality: npt.NDArray[np.int16]
    hops: Ints
    starts: Ints
    nofollow: Bytes
    weights: npt.NDArray[np.uint16]
    begins: Ints
    ends: Ints
    states: Bytes
    ids: Ids
    sites: Hashes
    media: Bytes  # empty without categories by media type
    patterns: Bytes  # the index of the first pattern that each URL matches; empty without patterns


@ColumnTuple.register
class _Out(NamedTuple):
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
    quality: Bytes
    link_starts: Ints
    link_pages: Ids
    link_weights: npt.NDArray[np.uint16]
    link_categories: Bytes
    url_starts: Ints
    url_begins: Ints
    counts: Ints


@lean_kernel
def fill_rows(given: _In, weights: Ints, seen: Ids, out: _Out) -> Int:
    """Write the rows of all events whose URL is a page. Returns the number of rows."""
    at = np.int64(0)
    by_media, by_pattern = given.media.shape[0] > 0, given.patterns.shape[0] > 0
    for i in range(given.offset.shape[0]):
        url = given.starts[i]
        if given.states[url] != PAGE:
            continue
        quality = given.quality[i]
        out.counts[_NO_QUALITIES] += quality < 0
        if given.announce[i]:
            out.counts[_ANNOUNCEMENTS] += 1
            at = _write(given, out, seen, at, i, _ANNOUNCEMENT, url, 0)
            out.modified_ms[at - 1] = given.modified_ms[i]
            out.quality[at - 1] = max(quality, 0)
            continue
        out.counts[_VISITS] += 1
        out.counts[_TIMELESS] += given.time_ms[i] == 0
        first_link = url + 2 + given.hops[i]
        end = given.starts[i + 1]
        within = np.int64(0)
        for hop in range(url + 2, first_link):
            target = url
            is_last = given.ids[hop] != given.ids[url]  # a page that answers in the end is no hop
            for later in range(first_link - 1, hop, -1):
                if given.states[later] == PAGE:
                    target = later
                    is_last &= given.ids[hop] != given.ids[later]
            if given.states[hop] == PAGE and is_last:
                at = _write(given, out, seen, at, i, _VISIT, hop, within)
                out.time_ms[at - 1] = given.time_ms[i]
                out.outcome[at - 1] = _REDIRECTED
                _link_to(given, out, at, target)
                out.counts[_REDIRECTS] += 1
            within += 1
        at = _write(given, out, seen, at, i, _VISIT, url, within)
        is_content = given.outcome[i] == _FETCHED  # an error page has a media type of its own
        if by_media and is_content and out.category[at - 1] == NO_CATEGORY and given.media[i] != UNKNOWN_MEDIA:
            out.category[at - 1] = given.media[i]
        outcome = given.outcome[i]
        known = given.links_known[i] != 0
        alias = given.states[url + 1] == PAGE and given.ids[url + 1] != given.ids[url] and outcome == _FETCHED
        if alias:
            outcome = _ALIASED
            known = False
            _link_to(given, out, at, url + 1)
            out.counts[_ALIASES] += 1
        elif outcome == _UNCHANGED:
            known = known and end > first_link
            out.counts[_UNCHANGED_VISITS] += 1
        elif outcome > _GONE:
            known = False
            out.counts[_FAILED_VISITS] += 1
        elif outcome == _GONE:
            known = False
        out.counts[_UNKNOWN] += outcome == _FETCHED and not known
        out.outcome[at - 1] = outcome
        out.time_ms[at - 1] = given.time_ms[i]
        out.digest[at - 1] = given.digest[i]
        out.modified_ms[at - 1] = given.modified_ms[i]
        out.quality[at - 1] = max(quality, 0)
        visit = at
        for link in range(first_link, end):
            if given.states[link] != PAGE:
                out.counts[_NOT_PAGES] += 1
                continue
            prefetch(seen, _bucket(seen, _mixed(given.ids[link])))
            out.counts[_LINKS] += 1
            out.counts[_NOFOLLOW] += given.nofollow[link] != 0
            if known and not (outcome == _REDIRECTED and out.links_known[visit - 1]):
                kind = 2 if given.nofollow[link] else 0 if given.sites[link] == given.sites[url] else 1
                weight = min((given.weights[link] * weights[kind] + 512) >> 10, 65535)
                if weight > 0:
                    slot = out.link_starts[visit]
                    out.link_pages[slot] = given.ids[link]
                    out.link_weights[slot] = weight
                    if by_pattern:
                        out.link_categories[slot] = _category(given, link)
                    out.link_starts[visit] = slot + 1
                    out.links_known[visit - 1] = outcome == _REDIRECTED
        out.links_known[visit - 1] = known or alias
        if given.states[url + 1] == PAGE:
            at = _sight(given, out, seen, at, i, url + 1, within + 1)
        for link in range(first_link, end):
            if given.states[link] == PAGE:
                at = _sight(given, out, seen, at, i, link, within + 2 + link - first_link)
    return at


@inlined_kernel
def _write(given: _In, out: _Out, seen: Ids, at: Int, event: Int, kind: Int, url: Int, within: Int) -> np.int64:
    """Write a row without links. Returns the index of the next row."""
    out.kind[at] = kind
    out.page[at] = given.ids[url]
    out.time_ms[at] = 0
    out.outcome[at] = 0
    out.digest[at] = np.uint64(0)
    out.modified_ms[at] = 0
    if given.patterns.shape[0] > 0:
        out.category[at] = _category(given, url)
    out.offset[at] = given.offset[event]
    out.within[at] = within
    out.links_known[at] = 0
    out.quality[at] = 0
    out.link_starts[at + 1] = out.link_starts[at]
    out.url_begins[at] = given.begins[url]
    out.url_starts[at + 1] = out.url_starts[at] + (
        given.ends[url] - given.begins[url] if _is_fresh(seen, given.ids[url]) or kind != _SIGHTING else 0
    )
    return np.int64(at + 1)


@inlined_kernel
def _category(given: _In, url: Int) -> Int:
    """Return the category of the pattern that a URL matches."""
    pattern = given.patterns[url]
    return NO_CATEGORY if pattern == NO_PATTERN else _FIRST_PATTERN + np.int64(pattern)


@inlined_kernel
def _link_to(given: _In, out: _Out, at: Int, target: Int) -> None:
    """Give the row before `at` one ordinary link."""
    slot = out.link_starts[at]
    out.link_pages[slot] = given.ids[target]
    out.link_weights[slot] = ORDINARY_WEIGHT
    if given.patterns.shape[0] > 0:
        out.link_categories[slot] = _category(given, target)
    out.link_starts[at] = slot + 1
    out.links_known[at - 1] = 1


@inlined_kernel
def _sight(given: _In, out: _Out, seen: Ids, at: np.int64, event: Int, url: Int, within: Int) -> np.int64:
    """Write a sighting unless the URL was sent recently. Returns the index of the next row."""
    page = given.ids[url]
    if seen[_place(seen, page)] == page:
        return at
    return _write(given, out, seen, at, event, _SIGHTING, url, within)


@inlined_kernel
def _place(seen: Ids, page: Word) -> Int:
    """Return where a page is in `Seen`, or where it belongs: an empty entry, or that of a page to forget.

    It depends on all bits of the id, because pages of one site begin alike.
    """
    mixed = _mixed(page)
    first = _bucket(seen, mixed)
    for at in range(first, first + _BUCKET):
        if seen[at] == page or seen[at] == 0:
            return at
    return first + np.int64(mixed & np.uint64(_BUCKET - 1))


@inlined_kernel
def _mixed(page: Word) -> Word:
    return (page * np.uint64(_MULTIPLIER)) >> np.uint64(64 - _SEEN_BITS)


@inlined_kernel
def _bucket(seen: Ids, mixed: Word) -> np.int64:
    return np.int64(mixed & np.uint64(seen.shape[0] - _BUCKET))


@inlined_kernel
def _is_fresh(seen: Ids, page: Word) -> bool:
    """Whether the URL of a page was not sent recently. Marks it as sent."""
    at = _place(seen, page)
    if seen[at] == page:
        return False
    seen[at] = page
    return True


@lean_kernel
def remember_all(seen: Ids, pages: Ids) -> None:
    """Mark pages as sent."""
    for i in range(pages.shape[0]):
        seen[_place(seen, pages[i])] = pages[i]


@lean_kernel
def copy_urls(text: Bytes, begins: Ints, starts: Ints, rows: Int, out: Bytes) -> None:
    """Copy the URLs of all rows that have one."""
    for row in range(rows):
        copy_bytes(text, begins[row], out, starts[row], starts[row + 1] - starts[row])


@lean_kernel
def hash_hosts(text: Bytes, begins: Ints, states: Bytes, out: Hashes) -> None:
    """Hash host and port of every URL."""
    for i in range(begins.shape[0]):
        if states[i] == PAGE:
            at = begins[i] + 7 + (byte_at(text, begins[i] + 4) == 115)  # behind http:// or https://
            first = at
            while byte_at(text, at) != 47:
                at += 1
            out[i] = hash_bytes(text, first, at)


def _sites(events: CrawlEvents, urls: CanonicalUrls, links: LinkWeights) -> Hashes:
    """Return a number for the site of every URL; zeros if internal and external links weigh the same."""
    sites = np.zeros(len(urls.ids), np.uint64)
    if links.internal == links.external:
        return sites
    if links.same_site == "domain":
        return urls.sites
    hash_hosts(urls.text, urls.begins, urls.states, sites)
    return sites


def _text_of(events: CrawlEvents, url: int) -> bytes:
    return events.text[int(events.begins[url]) : int(events.ends[url])].tobytes()


def _why_no_page(given: bytes, rules: UrlRules) -> str:
    try:
        canonical(given.decode("utf-8"), None, rules)
    except NotAPage as problem:
        return f"url: {problem}"
    except UnicodeError:
        return "url: it is not UTF-8"
    return "url: it is not a page"
