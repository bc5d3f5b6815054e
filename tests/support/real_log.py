"""The log of a crawler as crawlers really write it, of a made-up web: a gzip file for each day.

Lines come from three programs, with other forms of times and of JSON each. Pages move, disappear, answer "not modified"
or "too many requests"; some gone ones are visited every day. One day is read after the next one.
Files have several members, bytes behind the last one, lines that are no events, and lines of the file before; one file
ends within a member, and the last line of all is not finished.

With every file comes the meaning of its lines, as numbers of pages: so a test can count without a parser of URLs.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import format_datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import orjson

from support.real_web import BLOCKED, GONE, MOVED, NO_PAGE, SHAKY, TWIN, Floats, Ints, RealWeb, noise

FIRST_MS = 1_740_787_200_000
"""The midnight before the first day."""
DAY_MS = 86_400_000
_REPEATED = 5
"""So many lines of a file are in the next one, too."""
_MOST_VERSIONS = 1 << 20
_READ_SHARE = 0.6
"""So much of the web is read by the end, if there are enough events."""

Fields = dict[str, Any]


class Lines(NamedTuple):
    """What the lines of a file mean, in numbers of pages; NO_PAGE where a line names none.

    Line i has the links `targets[starts[i]:starts[i + 1]]`, in its own order.
    """

    pages: Ints
    canonicals: Ints
    hops: list[tuple[int, ...]]
    starts: Ints
    targets: Ints


class LogFile(NamedTuple):
    """A file of the log. `rest` is what the crawler writes next, if the file ends within a line."""

    name: str
    data: bytes
    lines: Lines
    rest: bytes = b""


@dataclass(frozen=True)
class RealLog:
    """A log of so many events of this web, so many days long."""

    web: RealWeb
    events: int
    days: int

    def files(self) -> Iterator[LogFile]:
        """Make the files, in the order in which they are read."""
        before: list[_Line] = []
        order = [*range(self.days)]
        if self.days > 4:
            order[2], order[3] = order[3], order[2]
        for number, day in enumerate(order):
            lines = [*before, *self._lines(day)]
            before = [line for line in lines[-4 * _REPEATED :] if line.means is not None][-_REPEATED:]
            yield self._file(number, lines)

    # -- lines ---------------------------------------------------------------------------------------------------------

    def _lines(self, day: int) -> list[_Line]:
        """Return the lines of a day: events, a few of which are repeated, and lines that are none."""
        random = np.random.default_rng([self.web.seed, 100, day])
        visits = self._visits(day, random)
        lines = [self._announcement(day, number) for number in range(max(2, len(visits.pages) // 100))]
        lines += self._events(visits, random)
        for at in random.integers(5, len(lines), len(lines) // 300 + 1).tolist():
            lines.insert(at, lines[at - 5])
        dirt = [*_dirt(day), *_dirt(day)[: len(lines) // 1000]]
        for line in dirt:
            lines.insert(int(random.integers(1, len(lines))), _Line(line, None))
        return lines

    def _visits(self, day: int, random: np.random.Generator) -> _Visits:
        """Choose the pages of a day: some are read for the first time, some again, some daily though they are gone."""
        each, new = self.events // self.days, self._new_a_day
        watched = self._watched[self._gone_from[self._watched] < day][: each // 12]
        known = self._order[: new * (day + 1)]
        again = max(0, each - new - len(watched))
        chosen = known[(len(known) * random.random(again) ** 2).astype(np.int64)]
        pages = random.permutation(np.concatenate((self._order[new * day : new * (day + 1)], chosen, watched)))
        written_ms = np.sort(random.integers(0, DAY_MS, len(pages)))
        late_ms = np.minimum(random.exponential(20_000, len(pages)), 600_000).astype(np.int64)
        return _Visits(pages, FIRST_MS + day * DAY_MS + np.maximum(written_ms - late_ms, 0), random.random(len(pages)))

    @property
    def _new_a_day(self) -> int:
        return max(1, min(self.events // self.days // 2, int(_READ_SHARE * self.web.pages / self.days)))

    @cached_property
    def _order(self) -> Ints:
        """The order in which pages are read for the first time: home pages and large hosts are mostly before others."""
        pages, hosts = np.arange(self.web.pages), self.web.host_of
        depth = pages - self.web.first[hosts]
        return np.argsort(noise(self.web.seed, 101, pages) * (1.0 + depth) ** 0.4 * (1.0 + hosts) ** 0.2, kind="stable")

    @cached_property
    def _first_day(self) -> Ints:
        """The day on which each page is read for the first time, if it is."""
        days = np.empty(self.web.pages, np.int64)
        days[self._order] = np.arange(self.web.pages) // self._new_a_day
        return days

    @cached_property
    def _gone_from(self) -> Ints:
        """The day from which each page is gone; pages that stay are never gone."""
        pages = np.arange(self.web.pages)
        from_day = (noise(self.web.seed, 102, pages) * 0.6 * self.days - 1).astype(np.int64)
        return np.where(self.web.fates == GONE, from_day, self.days + 1)

    @cached_property
    def _watched(self) -> Ints:
        """The pages that are visited every day after they are gone."""
        pages = self._order[self.web.fates[self._order] == GONE]
        return pages[: max(3, len(pages) // 12)]

    def _announcement(self, day: int, number: int) -> _Line:
        """Return a line about a page of a seed list or a sitemap."""
        chance = float(noise(self.web.seed, 103, day, number)[0])
        page = int(self._order[int(chance**3 * len(self._order))])
        fields = {"kind": ("seed", "sitemap", "announce")[number % 3], "url": self.web.write_url(page, 7 * chance % 1)}
        if number % 3 == 1:
            fields["lastmod"] = _iso(FIRST_MS + (day - number % 50) * DAY_MS)[:10]
        return _Line(_WRITERS[number % 3](fields), (page, NO_PAGE, (), np.zeros(0, np.int64)))

    def _events(self, visits: _Visits, random: np.random.Generator) -> list[_Line]:
        """Return the lines of visits."""
        web = self.web
        pages = visits.pages
        followed = noise(web.seed, 104, pages, visits.time_ms // DAY_MS) < 0.5
        moved = (web.fates[pages] == MOVED) & followed
        answered = np.where(moved, web.ends[pages], pages)
        days = (visits.time_ms - FIRST_MS) / DAY_MS
        rates = web.changes_per_day[answered]
        versions = (days * rates + noise(web.seed, 105, answered)).astype(np.int64)
        before = ((days - 1) * rates + noise(web.seed, 105, answered)).astype(np.int64)
        is_same = (versions == before) & (self._first_day[answered] < days.astype(np.int64))
        content = self._content(answered, versions)
        times = _times(visits.time_ms)
        lines = []
        columns = (pages, answered, visits.time_ms, visits.chance, versions, is_same, np.arange(len(pages)))
        for page, to, time_ms, chance, version, same, row in zip(*(one.tolist() for one in columns), strict=True):
            visit = _Visit(to, time_ms, chance, version, same, *content.of(row))
            fields, targets, canonical = self._answer(visit)
            hops: tuple[int, ...] = ()
            if page != to:
                hops = tuple(self._way_of(page))
                fields["redirects"] = [web.write_url(hop, (chance * 37 + hop) % 1) for hop in hops]
            writer = (to + time_ms // 1000) % 3
            if chance < 0.997:
                fields["fetched_at"] = times[writer][row]
            lines.append(_Line(_WRITERS[writer](fields), (to, canonical, hops, targets)))
        return lines

    def _way_of(self, page: int) -> list[int]:
        """Return the pages that lead, one to the next, to a page that has not moved."""
        way = []
        while self._fates[page] == MOVED:
            way.append(page)
            page = self._leads_to[page]
        return way

    @cached_property
    def _fates(self) -> list[int]:
        return self.web.fates.tolist()

    @cached_property
    def _leads_to(self) -> list[int]:
        return self.web.leads_to.tolist()

    def _content(self, pages: Ints, versions: Ints) -> _Content:
        """Return the links of pages, those of each version once."""
        keys, rows = np.unique(pages * _MOST_VERSIONS + versions, return_inverse=True)
        owners = keys // _MOST_VERSIONS
        links = self.web.links_of(owners, keys % _MOST_VERSIONS)
        texts = self.web.write(links)
        spice = links.spice.tolist()
        rel = np.where(links.spice > 0.95, (links.spice * 1e4).astype(np.int64) % len(_RELS), -1).tolist()
        as_objects = np.repeat(owners % 4 == 1, np.diff(links.starts)).tolist()
        values = [
            text if not is_object and rel[at] < 0 else _link(text, rel[at], spice[at])
            for at, (text, is_object) in enumerate(zip(texts, as_objects, strict=True))
        ]
        return _Content(values, links.targets, links.starts.tolist(), rows.tolist())

    def _answer(self, visit: _Visit) -> tuple[Fields, Ints, int]:
        """Return what the crawler reports about a visit but for its time, the pages of its links, and the canonical."""
        page, chance = visit.page, visit.chance
        fields: Fields = {"url": self.web.write_url(page, 11 * chance % 1), "depth": page % 9}
        targets, canonical = visit.targets, NO_PAGE
        error = self._error(visit)
        if error is not None:
            fields |= error
        elif self._fates[page] == MOVED:
            targets = np.array([self._leads_to[page]])
            location = self.web.write_url(self._leads_to[page], chance)
            return {**fields, "status": (301, 302, 307, 308)[page % 4], "links": [location]}, targets, NO_PAGE
        elif visit.is_same and chance < 0.4:
            fields |= {"status": 304, **_links_or_none(visit, chance / 0.4)}
        else:
            fields |= self._content_fields(visit)
            if self._fates[page] == TWIN or page % 7 == 3:
                canonical = self._leads_to[page]
                fields["canonical"] = self.web.write_url(canonical, chance)
        return fields, targets if fields.get("links") is visit.links else targets[:0], canonical

    def _error(self, visit: _Visit) -> Fields | None:
        """Return what the crawler reports if it got no page."""
        page, chance, day = visit.page, visit.chance, (visit.time_ms - FIRST_MS) // DAY_MS
        fate = self._fates[page]
        if (int(self.web.host_of[page]) * 7 + day) % 31 == 3 and chance < 0.5:
            return _BUSY[int(chance * 8) % len(_BUSY)](visit.time_ms)
        if fate == BLOCKED:
            return {"status": 403, "links": []} if chance < 0.5 else {"failure": "robots"}
        if fate == SHAKY and chance < 0.5:
            return _FAILURES[int(chance * 2 * len(_FAILURES))]
        if fate == GONE and day >= self._gone_from[page]:  # some crawlers read the links of the page with the error
            return {"status": 404 if page % 3 else 410, **_links_or_none(visit, chance)}
        return None

    def _content_fields(self, visit: _Visit) -> Fields:
        """Return what the crawler reports about a page that it got."""
        page = visit.page
        fields: Fields = {
            "status": 200,
            "content_type": _TYPES[page % len(_TYPES)],
            "digest": f"sha1:{page * 0x9E3779B1 % 2**32:08x}{visit.version:08x}",
            "title": _TITLES[page % len(_TITLES)].format(page),
        }
        if page % 11 == 0:
            fields["headers"] = {"server": ["nginx", None], "x-cache": {"hit": visit.chance < 0.5, "age": 1.5e2}}
        if page % 5 == 2:
            changed_ms = visit.time_ms - int(visit.chance * 30 * DAY_MS)
            fields["last_modified"] = _http_date(changed_ms) if page % 2 else "a long time ago"
        if page % 6 == 4:
            fields["text"] = fields["title"] * 12
        fields["links"] = None if fields["content_type"] == "application/pdf" else visit.links
        return fields

    # -- files ---------------------------------------------------------------------------------------------------------

    def _file(self, number: int, lines: list[_Line]) -> LogFile:
        """Pack the lines of a day as the crawler leaves them."""
        random = np.random.default_rng([self.web.seed, 106, number])
        end = b"\r\n" if number % 7 == 3 else b"\n"
        lines = [*lines, *([_Line(b"", None), _Line(b" \t", None)] if number % 3 == 0 else [])]
        text = b"\xef\xbb\xbf" * (number % 5 == 2) + b"".join(line.text + end for line in lines)
        is_last, is_cut = number == self.days - 1, number == self.days // 2
        rest = b""
        if is_last or is_cut:
            unfinished = self._announcement(self.days, number).text + end
            text += unfinished[: len(unfinished) // 2]
            rest = _member(unfinished[len(unfinished) // 2 :]) if is_last else b""
            lines = [*lines, _Line(b"", self._announcement(self.days, number).means)]
        cuts = [0, *sorted(random.integers(1, len(text), number % 4).tolist()), len(text)]
        members = [_member(text[begin:end]) for begin, end in pairwise(cuts)]
        if is_cut:
            members[-1] = _unfinished_member(text[cuts[-2] :])
        elif number % 4 == 1:
            members.append(bytes(512 * (1 + number % 3)))
        elif number % 6 == 4 and not is_last:
            members.append(b"-- rotated by the machine of the crawler --\n")
        return LogFile(f"crawl-{number:03}.jsonl.gz", b"".join(members), _meaning(lines), rest)


class _Line(NamedTuple):
    """The bytes of a line, and its meaning: its page, the canonical one, hops, links. None: it is no event."""

    text: bytes
    means: tuple[int, int, tuple[int, ...], Ints] | None


class _Visits(NamedTuple):
    pages: Ints
    time_ms: Ints
    chance: Floats


class _Visit(NamedTuple):
    """A visit, and what the page has then."""

    page: int
    time_ms: int
    chance: float
    version: int
    is_same: bool
    links: list[Any]
    targets: Ints


class _Content(NamedTuple):
    values: list[Any]
    targets: Ints
    starts: list[int]
    rows: list[int]

    def of(self, visit: int) -> tuple[list[Any], Ints]:
        """Return the links that a visit finds, and their pages."""
        begin, end = self.starts[self.rows[visit]], self.starts[self.rows[visit] + 1]
        return self.values[begin:end], self.targets[begin:end]


_NOTHING = (NO_PAGE, NO_PAGE, (), np.zeros(0, np.int64))


def _meaning(lines: list[_Line]) -> Lines:
    means = [line.means or _NOTHING for line in lines]
    pages, canonicals, hops, targets = zip(*means, strict=True)
    starts = np.concatenate(([0], np.cumsum([len(some) for some in targets])))
    return Lines(np.array(pages), np.array(canonicals), list(hops), starts, np.concatenate(targets))


# -- forms of times, JSON and links ------------------------------------------------------------------------------------


def _iso(time_ms: int) -> str:
    return str(np.datetime64(time_ms, "ms")) + "Z"


def _http_date(time_ms: int) -> str:
    return format_datetime(datetime.fromtimestamp(time_ms // 1000, timezone.utc), usegmt=True)


def _times(time_ms: Ints) -> list[list[Any]]:
    """Return the times of the visits of a day as each of the three programs writes them."""
    east = np.datetime_as_string((time_ms + 7_200_000).astype("datetime64[ms]")).tolist()
    clock = np.datetime_as_string((time_ms // 1000).astype("datetime64[s]")).tolist()
    date = "" if len(time_ms) == 0 else _http_date(int(time_ms[0]))[:17]
    return [time_ms.tolist(), [f"{one}+02:00" for one in east], [f"{date}{one[11:19]} GMT" for one in clock]]


_ASCII = json.JSONEncoder().encode
_WRITERS: tuple[Callable[[Fields], bytes], ...] = (
    orjson.dumps,
    lambda fields: _ASCII(fields).encode("ascii"),
    lambda fields: orjson.dumps(fields).replace(b"/", b"\\/"),
)
_RELS = ("nofollow", "noopener noreferrer", "ugc nofollow", ["sponsored"], "tag", "me", None, "weight")


def _link(text: str | None, rel: int, spice: float) -> Any:
    """Return a link as an object, as some pages have them."""
    if text is None:
        return None if spice < 0.5 else {"text": "no address"}
    value = {"url": text, "text": "Read more \u2192"}
    if rel >= 0:
        value |= {"weight": (2, 0.5, 0.25, 3)[int(spice * 1e5) % 4]} if _RELS[rel] == "weight" else {"rel": _RELS[rel]}
    return value


def _links_or_none(visit: _Visit, chance: float) -> Fields:
    """Return the links of a page, an empty list, or no field, as crawlers report them if there is no page."""
    return {"links": visit.links} if chance < 0.25 else {"links": []} if chance < 0.6 else {}


_TYPES = (*["text/html"] * 7, "text/html; charset=utf-8", "Application/XHTML+xml", "application/pdf", "text/plain")
_TITLES = ('"{}" & more', "Neuigkeiten für {}", "第{}页", "{} \u2013 home \\ index", "\t{}\n", "page {}", "\u2028{} 🦆")
_FAILURES: tuple[Fields, ...] = (
    {"status": 500},
    {"status": 502, "links": []},
    {"status": 504},
    {"failure": "timeout"},
    {"failure": "DNS_Lookup_Failed"},
    {"failure": "connection reset", "status": None},
)
_BUSY: tuple[Callable[[int], Fields], ...] = (
    lambda time_ms: {"status": 429},
    lambda time_ms: {"status": 429, "retry_after": 3600, "links": []},
    lambda time_ms: {"status": 503, "retry_after": "120"},
    lambda time_ms: {"status": 503},
    lambda time_ms: {"status": 429, "retry_after": _http_date(time_ms + 7_200_000)},
)


def _dirt(day: int) -> list[bytes]:
    """Return lines that are no events."""
    url, today = b"https://dirt.example/%d" % day, _iso(FIRST_MS + day * DAY_MS).encode()
    return [
        b'{"url":"%s","fetched_at":"%s","links":["https://dirt.exa' % (url, today),
        b'{"url":"%s"}{"url":"%s"}' % (url, url),
        b"<html><body>502 Bad Gateway</body></html>",
        b"\0\0\0\0\0\0\0\0",
        b'{"url":"%s","title":"cut \\ud83d"}' % url,
        b'{"url":"%s/caf\xe9"}' % url,
        b"null",
        b'{"status":200,"fetched_at":"%s","links":[]}' % today,
        b'{"url":"mailto:kim@dirt.example","status":200}',
        b'{"url":"https://dirt example/","status":200}',
        b'{"url":"%s%s","status":200}' % (url, 9_000 * b"x"),
        b'{"url":"%s","fetched_at":"1970-01-01T00:00:12Z"}' % url,
        b'{"url":"%s","fetched_at":"yesterday"}' % url,
        b'{"url":"%s","fetched_at":4000000000000}' % url,
        b'{"url":"%s","links":3}' % url,
        b'{"url":"%s","status":"banana"}' % url,
        b'{"url":"%s","links":[{"url":"/","weight":-1}]}' % url,
    ]


def _member(text: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(text) + packer.flush()


def _unfinished_member(text: bytes) -> bytes:
    """Return a gzip member that somebody still writes, or whose writer has died."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH)
