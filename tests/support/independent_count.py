"""Counts the log of a crawl, and ranks its pages, by json, zlib, numpy and scipy alone.

What the lines of a log mean comes with it, as numbers of pages (support/real_log.py): everything else is read from the
files here, by the rules of docs/reference/formats.md. Importance is the PageRank of the graph seen: the newest links of
every page, links of weight 0 and to the page itself left out. A page whose newest links are those of a redirect has no
part of the teleport.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from support.real_log import Lines

_MOST_WEIGHT = 65_535
_NO_ANSWERS = ("FAILED", "BLOCKED", "BUSY")
_ANNOUNCED = ("announce", "seed", "sitemap")
_EARLIEST = datetime(1990, 1, 1, tzinfo=timezone.utc)
_MAGIC = b"\x1f\x8b\x08"


class _Rejected(Exception):
    """A line is no event. The message is the reason."""


@dataclass
class IndependentCount:
    """What a replay must find in a log. `may_grow`: unfinished ends of files wait, as they do with a state.

    `same_page` has the number of the page that each page is, where rules make several URLs one page.
    """

    same_page: npt.NDArray[np.int64]
    latest_ms: int
    may_grow: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    rejects: Counter[str] = field(default_factory=Counter)
    visits: Counter[int] = field(default_factory=Counter)
    outcomes: dict[int, str] = field(default_factory=dict)
    """The outcome of the last visit of each page."""
    last_ms: dict[int, int] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    links: dict[int, dict[int, int]] = field(default_factory=dict)
    """The newest links of each page, with their weights in 1/1024."""
    redirects: set[int] = field(default_factory=set)
    """The pages whose newest links are those of a redirect."""
    links_ms: dict[int, int] = field(default_factory=dict)
    """The time of the visit that found these links, or found the page gone."""
    _times: set[tuple[int, int]] = field(default_factory=set)

    def add(self, data: bytes, lines: Lines) -> None:
        """Count a file."""
        text, corrupt, is_cut = unpacked(data)
        if is_cut and not self.may_grow:
            corrupt += 1
        self.rejects["corrupt"] += corrupt
        self.counts["events_read"] += corrupt
        *whole, last = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        assert len(lines.pages) == len(whole) + bool(last)
        if last and not self.may_grow:
            whole.append(last)
        numbers = self.same_page.tolist()
        starts, targets = lines.starts.tolist(), lines.targets.tolist()
        columns = zip(lines.pages.tolist(), lines.canonicals.tolist(), lines.hops, strict=True)
        for row, (line, (page, canonical, hops)) in enumerate(zip(whole, columns, strict=False)):
            if not line.strip():
                continue
            self.counts["events_read"] += 1
            try:
                event, time_ms = self._read(line)
                if page < 0:
                    raise _Rejected("not-a-page")
            except _Rejected as reason:
                self.rejects[str(reason)] += 1
                continue
            meant = [numbers[one] if one >= 0 else -1 for one in (page, canonical, *hops)]
            linked = [numbers[one] if one >= 0 else -1 for one in targets[starts[row] : starts[row + 1]]]
            self._add_event(event, time_ms, meant[0], meant[1], meant[2:], linked)

    def _read(self, line: bytes) -> tuple[dict[str, Any], int]:
        """Return an event, and its time; 0 for none."""
        try:
            event = json.loads(line.decode("utf-8"))
            json.dumps(event, ensure_ascii=False).encode("utf-8")  # half of a pair of surrogates is no text
        except UnicodeDecodeError:
            raise _Rejected("not-utf8") from None
        except ValueError:
            raise _Rejected("not-json") from None
        if not isinstance(event, dict) or event.get("url") is None:
            raise _Rejected("not-an-event")
        if not isinstance(event.get("status", 0), (int, type(None))):
            raise _Rejected("bad-field")
        if not isinstance(event.get("links", []), (list, type(None))):
            raise _Rejected("bad-field")
        time_ms = self._time_of(event.get("fetched_at"))
        if any(link.get("weight", 0) < 0 for link in event.get("links") or () if isinstance(link, dict)):
            raise _Rejected("bad-weight")
        return event, time_ms

    def _time_of(self, given: int | str | None) -> int:
        if given is None:
            return 0
        try:
            if isinstance(given, int):
                moment = datetime.fromtimestamp(given / 1000, timezone.utc)
            elif given.endswith("GMT"):
                moment = parsedate_to_datetime(given)
            else:
                moment = datetime.fromisoformat(given.replace("Z", "+00:00"))
        except ValueError:
            raise _Rejected("bad-time") from None
        time_ms = round(moment.timestamp() * 1000)
        if moment < _EARLIEST or time_ms > self.latest_ms:
            raise _Rejected("bad-time")
        return time_ms

    def _add_event(
        self, event: dict[str, Any], time_ms: int, page: int, canonical: int, hops: list[int], linked: list[int]
    ) -> None:
        self.known |= {one for one in (page, canonical, *hops, *linked) if one >= 0}
        if event.get("kind") in _ANNOUNCED:
            self.counts["announcements"] += 1
            return
        self.counts["visits_without_time"] += time_ms == 0
        for number, hop in enumerate(hops):
            to = [*hops, page][number + 1]
            if hop not in (*hops[number + 1 :], page):
                self._visit(hop, time_ms, "REDIRECTED", {to: 1024})
                self.counts["redirects"] += 1
        outcome, given = outcome_of(event), event.get("links")
        links: dict[int, int] | None = {}
        for link, target in zip(given or (), linked, strict=False):
            if target < 0:
                self.counts["links_not_pages"] += 1
                continue
            weight = weight_of(link)
            self.counts["links"] += 1
            self.counts["links_nofollow"] += weight == 0
            if weight > 0 and (outcome != "REDIRECTED" or not links):
                links[target] = min(links.get(target, 0) + weight, _MOST_WEIGHT)
        if outcome == "FETCHED" and canonical not in (-1, page):
            outcome, links = "ALIASED", {canonical: 1024}
            self.counts["aliases"] += 1
        elif given is None or outcome in _NO_ANSWERS or (outcome == "UNCHANGED" and not given):
            links = None
        self.counts["visits_failed"] += outcome in _NO_ANSWERS
        self.counts["visits_unchanged"] += outcome == "UNCHANGED"
        self.counts["visits_links_unknown"] += outcome == "FETCHED" and links is None
        fate = self._visit(page, time_ms, outcome, links)
        self.counts["visits"] += fate != "duplicates"
        self.counts[fate] += 1

    def _visit(self, page: int, time_ms: int, outcome: str, links: dict[int, int] | None) -> str:
        """Apply a visit. Returns whether it is one of "duplicates", is "late", or neither."""
        if time_ms and (page, time_ms) in self._times:
            return "duplicates"
        if time_ms:
            self._times.add((page, time_ms))
        is_late = 0 < time_ms < self.last_ms.get(page, 0)
        self.visits[page] += 1
        if not is_late:
            self.outcomes[page] = outcome
        if outcome not in _NO_ANSWERS:
            self.answered.add(page)
        self.last_ms[page] = max(self.last_ms.get(page, 0), time_ms)
        brings_links = outcome == "GONE" or links is not None
        if brings_links and (time_ms == 0 or time_ms > self.links_ms.get(page, 0)):
            self.links_ms[page] = max(time_ms, self.links_ms.get(page, 0))
            self.links.pop(page, None)
            self.redirects.discard(page)
            if outcome == "REDIRECTED":
                self.redirects.add(page)
            if outcome != "GONE":
                self.links[page] = {to: weight for to, weight in (links or {}).items() if to != page}
        return "late" if is_late else "in time"

    def ranks(self, damping: float = 0.85) -> npt.NDArray[np.float64]:
        """Return the PageRank of each page; 0 for pages that are not known."""
        known = np.array(sorted(self.known))
        number = {page: at for at, page in enumerate(known.tolist())}
        rows = [(number[page], number[to], links[to]) for page, links in self.links.items() for to in links]
        sources, targets, weights = (np.array(column) for column in zip(*rows, strict=True))
        sums = np.bincount(sources, weights, len(known))
        matrix = csr_matrix((weights / sums[sources], (targets, sources)), (len(known), len(known)))
        votes = ~np.isin(known, sorted(self.redirects))
        ranks = votes / votes.sum()
        change = 1.0
        while change > 1e-13:
            following = damping * (matrix @ ranks)
            following += (1 - following.sum()) * votes / votes.sum()
            change = float(np.abs(following - ranks).sum())
            ranks = following
        found = np.zeros(len(self.same_page))
        found[known] = ranks
        return found

    def summary(self) -> dict[str, int]:
        """Return the counts that the summary of a replay has, too."""
        names = ("events_read", "visits", "announcements", "duplicates", "late", "links", "links_nofollow")
        names += ("links_not_pages", "visits_links_unknown", "visits_unchanged", "visits_failed")
        names += ("visits_without_time", "redirects", "aliases")
        counts = {name: self.counts[name] for name in names}
        return {**counts, "pages": len(self.known), "pages_read": len(self.answered), "rejects": self.rejects.total()}


def outcome_of(event: dict[str, Any]) -> str:
    """Return the outcome of a visit that names no canonical page."""
    failure, status = event.get("failure"), event.get("status")
    if failure is not None:
        return "BLOCKED" if failure == "robots" else "FAILED"
    if status == 429 or (status == 503 and event.get("retry_after") is not None):
        return "BUSY"
    known = {None: "FETCHED", 304: "UNCHANGED", 403: "BLOCKED", 404: "GONE", 410: "GONE"}
    return known.get(status) or {2: "FETCHED", 3: "REDIRECTED"}.get(status // 100, "FAILED")


def weight_of(link: Any) -> int:
    """Return the weight of a link, in 1/1024."""
    if not isinstance(link, dict):
        return 1024
    rel = link.get("rel") or ""
    words = rel.split() if isinstance(rel, str) else rel
    return 0 if {"nofollow", "ugc", "sponsored"} & set(words) else round(1024 * link.get("weight", 1))


def unpacked(data: bytes) -> tuple[bytes, int, bool]:
    """Return the text of a gzip file, how often there are bytes that belong to no member, and whether it is cut off."""
    text, corrupt, at = [], 0, 0
    while at < len(data):
        if data[at] == 0:
            at += 1
        elif data.startswith(_MAGIC, at):
            unpacker = zlib.decompressobj(31)
            text.append(unpacker.decompress(data[at:]))
            if not unpacker.eof:
                return b"".join(text), corrupt, True
            at = len(data) - len(unpacker.unused_data)
        else:
            corrupt += 1
            following = data.find(_MAGIC, at)
            at = len(data) if following < 0 else following
    return b"".join(text), corrupt, False
