"""A frontier for a crawler in one process: its ledger, the log of what the crawler reported, and what to fetch next.

    folder/visits.jsonl    every event that was reported: a crawl log as `opicflow replay` reads it
    folder/state.json, …   the ledger at some point of that log: the state folder of a replay

The ledger is a function of the log alone: that of a replay. Pages that were given out and not visited are not in it:
after a restart they are given out again. Times come from the clock that the crawler gives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import NamedTuple

import numpy as np
import orjson

from opicflow.connectors.files.crawlers.dispatch import event_of_line
from opicflow.connectors.files.decoded import Decoded
from opicflow.connectors.files.jsonl import decode_jsonl
from opicflow.connectors.files.opening import head_of
from opicflow.connectors.files.reading import ANY
from opicflow.pipelines.crawl.frontier.event_log import EventLog
from opicflow.pipelines.crawl.frontier.fetch_limits import daily_limits, days_to_wait, host_gaps
from opicflow.pipelines.crawl.frontier.growing_pages import GrowingPages
from opicflow.pipelines.crawl.frontier.host_queues import HostQueues, QueuedPage
from opicflow.pipelines.ledger import Certified, ConfigRefused, LedgerConfig
from opicflow.pipelines.ledger.plan.busy_hosts import FIRST_WAIT_SECONDS
from opicflow.pipelines.ledger.plan.crawl_orders import WHY
from opicflow.pipelines.ledger.plan.survey import DAY, DISCOVERY, Survey
from opicflow.pipelines.refresh.orders import rank_within
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLogFactory
from opicflow.pipelines.replay.state import (
    FRONTIER_LOG_NAME,
    Run,
    Source,
    State,
    StateFolder,
    StateRefused,
    identify,
    remember_end,
)
from opicflow.pipelines.stages.decoded_batch import (
    DecodedBatch,
    RoutedBatch,
    first_offset,
    route_rows,
    segment_at,
    urls_of,
)
from opicflow.pipelines.stages.freed_memory import return_freed_memory
from opicflow.pipelines.stages.route import Seen
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.settings import new_page_ids
from opicflow.schemas.arrays import Array, Floats, Ids, Ints
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, MOST_LINKS, CrawlEvent, EventRefused, Reason
from opicflow.schemas.event_columns import EventWriter
from opicflow.schemas.json_events import FIELD_NAMES
from opicflow.schemas.urls import Canonicaliser, canonical, host

_SOURCE = "log/frontier"
_EVENTS_AT_ONCE = 256
_SEEN_BITS = 18
"""A small number, for the memory: to give the ledger a URL again costs nothing within a process."""
_MOST_QUEUED = 10_000
"""The number of unread pages in a plan, if there are as many."""
_PLANS_QUEUED = 4
"""A multiple of the pages fetched before the next plan: enough where hosts need not be changed."""
_MOST_HOSTS = 1 << 14
"""The number of hashes of hosts that are remembered."""
_LEAST_NEWS = 64
_PAGES_A_NEWS, _PAGES_A_NEWS_STARVED = 64, 1024
"""A plan takes time for all pages: it is made again after one event for so many pages."""
_LONGEST_PLAN_SECONDS = 3600
_SOON_SECONDS = 60
"""A crawler waits so long for a page rather than fetch traps."""
_LEAST_TAIL_BYTES = 32 << 20
"""The bytes of the log since the last snapshot, before there is another one."""
_DISCOVERY, _REQUESTED = WHY.index("DISCOVERY"), WHY.index("REQUESTED")


class Flight(NamedTuple):
    """A page that was given out: its host, and when that was."""

    host: int
    second: float


class Wait(NamedTuple):
    """The wait of a busy host that began before the clock was put back."""

    stated: int
    """Until when it is by the ledger, whose times are those of the clock as it was."""
    until: float
    """The same by the clock as it is."""


class Frontier:
    """Returns what a crawler fetches next. Several threads may share one; a folder has one at a time.

    Close it, or use it in a `with` statement.
    """

    def __init__(
        self,
        folder: StateFolder,
        state: State,
        ledger: LedgerConfig,
        clock: Callable[[], float],
        delay_seconds: float | None,
        timeout_seconds: float,
    ) -> None:
        """Use `open` instead."""
        self._folder, self._state, self._clock = folder, state, clock
        self._delay, self._timeout = delay_seconds or 0.0, timeout_seconds
        self._held = ExitStack()
        self._rules = state.last_rules
        config = ReplayConfig(
            ledger, page_ids=state.rules_of_page_ids, multiplier=int.from_bytes(os.urandom(8), "little")
        )
        self._replayed = folder.log(state, config) if state.snapshot else ReplayedLogFactory(config).new(0)
        self._replayed.ledger.change_refreshing(ledger.refresh)
        self._canonicaliser = Canonicaliser(self._rules.urls, self._rules.page_ids)
        self._seen = Seen(_SEEN_BITS)
        self._lock = RLock()
        self._log = EventLog(folder.path / FRONTIER_LOG_NAME)
        self._applied_to = self._saved_at = state.sources[0].at
        self._unapplied = 0
        """The number of events of the log that this process has written, and that the ledger has not applied yet."""
        self._in_flight: dict[bytes, Flight] = {}
        self._queues = HostQueues(one_each=delay_seconds is not None)
        self._visited_since: set[bytes] = set()
        self._news, self._planned_at = 1, -float("inf")
        self._latest = -float("inf")
        """The clock as it was read last."""
        self._is_cut = self._holds_back = False
        """Whether there were more pages than the last plan took; and whether these are traps or twins."""
        self._limited = self._reported = np.zeros(0, np.uint64)
        """The unread traps and twins that the last plan found first, and all that `limited` has returned."""
        self._among: Collection[str] | GrowingPages | None = None
        """The pages of the last plan; None: all."""
        self._busy: dict[int, float] = {}
        """Until when busy hosts wait."""
        self._waits: dict[int, Wait] = {}
        """The waits of hosts that were busy when the clock was put back."""
        self._promised: dict[int, float] = {}
        """From when the pages may be given out whose time had not come when the clock was put back."""
        self._host_hashes: dict[bytes, int] = {}
        self._gaps: dict[int, float] = {}
        """The seconds between two fetches of hosts that have such a limit, of the last plan."""
        if self._log.end < self._applied_to:
            raise StateRefused(f"{self._log.path}: it is shorter than it was: restore the folder, or begin another one")
        self._apply()

    @classmethod
    def open(
        cls,
        folder: str | Path,
        clock: Callable[[], float],
        *,
        delay_seconds: float | None = 1.0,
        timeout_seconds: float = 600.0,
        ledger: LedgerConfig | None = None,
        rules: Rules | None = None,
    ) -> Frontier:
        """Open the frontier of a folder, or begin one there. It is as it was, also after a kill -9.

        `clock` returns the seconds since 1970, such as `time.time`. Two fetches of a host are `delay_seconds` apart,
        from the end of one to the beginning of the next; None: the crawler is polite by itself. A page that was given
        out and not visited for `timeout_seconds` may be given out again. `ledger`: how pages are counted and fetched
        again; None: as the folder has it, or certified importance. `rules`: of URLs, links and categories, from here
        on; None: as the folder has them. Raises `StateRefused` if another process uses the folder, or if it is damaged.
        """
        if not ((delay_seconds is None or delay_seconds >= 0) and timeout_seconds > 0):
            raise ConfigRefused("a frontier needs a delay of at least 0 seconds, and a timeout above 0")
        path = Path(folder)
        with ExitStack() as stack:
            locked = stack.enter_context(StateFolder.locked(path, create=True))
            stored = locked.read()
            config = ledger or LedgerConfig(history=Certified())
            if stored is not None:
                kept = LedgerConfig.from_json(stored.ledger)
                config = ledger or kept
                if not kept.counts_alike(config):
                    raise StateRefused(f"{path}: its ledger counts in another way: omit ledger, or name another folder")
            state = stored or _new_state(path, config)
            if rules is not None and (own := replace(rules, page_ids=state.rules_of_page_ids)) != state.last_rules:
                state.rules.append(own.to_json())
            frontier = cls(locked, state, config, clock, delay_seconds, timeout_seconds)
            frontier._held = stack.pop_all()
        return frontier

    def __enter__(self) -> Frontier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _now(self) -> float:
        """Read the clock. If it was put back, all that waits for a time is put back too: hosts, and pages."""
        now = self._clock()
        if (back := self._latest - now) > 0:
            self._queues.put_back(back)
            self._planned_at -= back
            self._in_flight = {
                url: Flight(flight.host, flight.second - back) for url, flight in self._in_flight.items()
            }
            self._promised = {page: second - back for page, second in self._promised.items()} | self._queues.later()
            self._waits = {
                each: Wait(stated, self._until(each, stated) - back)
                for each, stated in self._replayed.ledger.busy_hosts(int(now)).items()
            }
            self._read_busy(now)
        self._latest = now
        return now

    def _until(self, of_host: int, stated: int) -> float:
        """Return until when a host is busy by the clock as it is."""
        wait = self._waits.get(of_host)
        return stated if wait is None or wait.stated != stated else wait.until

    def _read_busy(self, now: float) -> None:
        busy = {each: self._until(each, stated) for each, stated in self._replayed.ledger.busy_hosts(int(now)).items()}
        self._busy = {each: until for each, until in busy.items() if until > now}

    # -- what the crawler reports ----------------------------------------------------------------------------------

    def announce(self, urls: Iterable[str], quality: float | None = None) -> None:
        """Report pages that are not known from links: seeds, the entries of a sitemap.

        `quality`: how good they are, from 0 to 1, by a classifier; also of pages that are known. When it returns, this
        survives a kill -9. Raises `NotAPage` for a URL that is none; those before it count.
        """
        with self._lock:
            for url in urls:
                self._append({"kind": "announce", "url": url} | ({} if quality is None else {"quality": quality}))

    def visited(self, event: Mapping[str, object]) -> None:
        """Report a fetch, also one that failed: an event as docs/guides/crawlers.md describes it.

        `fetched_at` is now if the event does not have it. When it returns, this survives a kill -9. Raises
        `EventRefused` or `NotAPage` if this is no event of a page; then nothing has changed.
        """
        with self._lock:
            now = self._now()
            if all(event.get(name) is None for name in FIELD_NAMES["fetched_at"]):
                event = {**event, "fetched_at": int(now * 1000)}
            visit, urls = self._append(event)
            self._visited_since.update(urls)
            if visit.status in (429, 503) or visit.failure:
                self._apply()
                wait = self._waits.get(of_host := self._hash_of(host(urls[0])))
                if wait is not None and (visit.status == 429 or visit.retry_after):
                    seconds = visit.retry_after or FIRST_WAIT_SECONDS
                    self._waits[of_host] = wait._replace(until=max(wait.until, now + seconds))
                self._read_busy(now)
            for page in self._rules.page_ids.of_all([url.decode() for url in urls]).tolist() if self._promised else ():
                self._promised.pop(page, None)
            self._land(urls, now)

    def fetching(self, urls: Iterable[str]) -> None:
        """Report pages, by their canonical URLs, that are in flight although `next` has not returned them."""
        with self._lock:
            for url in map(str.encode, urls):
                self._in_flight[url] = Flight(self._hash_of(host(url)), self._now())

    def _append(self, event: Mapping[str, object]) -> tuple[CrawlEvent, list[bytes]]:
        """Write an event to the log, once it is sure that it can be read from there.

        Returns it as it was read, without the links that are texts, and its URLs.
        """
        try:
            line = orjson.dumps(event)
            doubtful = line if len(line) > MOST_EVENT_BYTES else orjson.dumps(_without_plain_links(event))
        except TypeError as problem:
            raise EventRefused(Reason.NOT_JSON, f"it is no JSON ({problem}): give texts, numbers, lists") from None
        read = event_of_line(doubtful, "event", ANY)
        if read is None:
            raise EventRefused(Reason.NOT_AN_EVENT, "it reports no page")
        EventWriter().add(0, read)  # refuses what a log must not have
        urls = self._urls_of(read)
        self._log.append(line)
        self._news += 1
        self._unapplied += 1
        if self._unapplied >= _EVENTS_AT_ONCE:
            self._apply()
        return read, urls

    def _urls_of(self, event: CrawlEvent) -> list[bytes]:
        """Return the canonical URL of an event, and of the URLs that led to it. Raises `NotAPage`."""
        return [canonical(url, None, self._rules.urls) for url in (event.url, *event.redirects)]

    def _land(self, urls: list[bytes], now: float) -> None:
        """Note that pages are no longer in flight: their hosts rest, and the hosts that were fetched from."""
        hosts = {flight.host for url in urls if (flight := self._in_flight.pop(url, None)) is not None}
        fetched = {self._hash_of(host(url)) for url in urls}
        hosts.update(each for each in fetched if not self._queues.is_in_flight(each))
        for each in hosts:
            delay = max(self._delay, self._gaps.get(each, 0.0))
            self._queues.rest(each, max(now + delay, self._busy.get(each, 0)))

    def _hash_of(self, name: bytes) -> int:
        """Return the hash of a host, by which ledgers know it."""
        found = self._host_hashes.get(name)
        if found is None:
            if len(self._host_hashes) >= _MOST_HOSTS:
                self._host_hashes.clear()
            found = self._host_hashes[name] = int(self._rules.page_ids.host_hashes([name])[0])
        return found

    # -- the next fetches ------------------------------------------------------------------------------------------

    def next(
        self,
        n: int,
        among: Collection[str] | GrowingPages | None = None,
        *,
        most_each: int | None = None,
        rooms: Mapping[str, int] | None = None,
    ) -> list[str]:
        """Return at most so many pages to fetch now, the first one first; fewer if no more may be fetched now.

        They are in flight until they are visited. No host has two in flight, unless the crawler is polite by itself.
        Unread pages come in the order of discovery, others when they are due, as crawl orders do. `among`: the pages
        to choose among, by their canonical URLs, such as a set, or `GrowingPages` if they are many: pages that were
        added since the last plan take part in the next one. None: all pages. `most_each`: return at most so
        many pages of a host, or as many as `rooms` has for it, by its name, with the port where the URL has one.
        """
        with self._lock:
            if most_each is not None:
                self._queues.limit(most_each, {self._hash_of(at.encode()): room for at, room in (rooms or {}).items()})
            if self._log.end - self._saved_at > max(_LEAST_TAIL_BYTES, self._replayed.sizes.snapshot_bytes // 2):
                self.save()  # before pages are given out: if it fails, they are not lost
            now = self._now()
            self._expire(now)
            pages = self._replayed.ledger.pages
            is_other, self._among = among is not self._among, among
            is_old = is_other or self._news >= _news_of(pages)
            if is_old or now - self._planned_at >= _LONGEST_PLAN_SECONDS:
                self._plan(now, n)
            found = list(self._give_out(n, now))
            if len(found) < n and (self._is_cut or self._news > pages // _PAGES_A_NEWS_STARVED):
                self._plan(now, _MOST_QUEUED)
                found += self._give_out(n - len(found), now)
            if not found and self._holds_back and self._is_idle(now):
                self._plan(now, n + pages // _PAGES_A_NEWS_STARVED, limits_traps=False)
                found += self._give_out(n, now)
            return found

    def _is_idle(self, now: float) -> bool:
        """Whether no page waits that may be given out soon."""
        soon = self._queues.next_second(now)
        return not self._queues.is_one_awaited and (soon is None or soon > now + _SOON_SECONDS)

    def limited(self) -> list[str]:
        """Return the unread pages of the last plan that get few orders, because they are traps or twins; each once."""
        with self._lock:
            if not len(self._limited):
                return []
            new, self._limited = self._limited, self._limited[:0]
            self._reported = np.union1d(self._reported, new)
            urls = map(self._replayed.ledger.url, new.tolist())
            return [url.decode() for url in urls if url is not None]

    def due(self) -> float | None:
        """Return the second from which `next` may return a page, if nothing is visited before; None if there is none.

        A page may be in flight then: its visit may lead to others.
        """
        with self._lock:
            now = self._now()
            if self._news:
                self._plan(now)
            found = self._queues.next_second(now)
            timeouts = [flight.second + self._timeout for flight in self._in_flight.values()]
            return min([*timeouts, *([] if found is None else [found])], default=None)

    def _give_out(self, n: int, now: float) -> Iterator[str]:
        while n > 0 and (taken := self._queues.take(now)) is not None:
            page, of_host = taken
            url = self._replayed.ledger.url(page)
            is_free = url is not None and url not in self._in_flight and url not in self._visited_since
            if url is None or not is_free or not self._is_among(url):
                self._queues.rest(of_host, now)
                continue
            self._in_flight[url] = Flight(of_host, now)
            self._promised.pop(page, None)
            if of_host in self._gaps:
                self._queues.pause(of_host, now + self._gaps[of_host])
            n -= 1
            yield url.decode()

    def _expire(self, now: float) -> None:
        """Pages that were given out long ago are no longer in flight."""
        late = [url for url, flight in self._in_flight.items() if flight.second + self._timeout <= now]
        for url in late:
            self._queues.rest(self._in_flight.pop(url).host, now)
        self._news += len(late)

    def _plan(self, now: float, n: int = 0, limits_traps: bool = True) -> None:
        """Make a plan from which so many pages can be given at once.

        Traps and twins get few orders, unless nothing else is to be fetched.
        """
        self._apply()
        ledger = self._replayed.ledger
        news, self._news, self._planned_at = self._news, 0, now
        self._visited_since.clear()
        if not ledger.pages:
            return
        self._read_busy(now)
        self._queues.fill((), now)  # makes room: a plan takes memory
        return_freed_memory()
        self._queues.fill(self._queued(now, n, news if limits_traps else None), now)
        return_freed_memory()
        for each, until in self._busy.items():
            if not self._queues.is_in_flight(each):
                self._queues.rest(each, until)

    def _queued(self, now: float, n: int, news: int | None) -> Iterator[QueuedPage]:
        """Return the orders of a plan. Unread pages and others take turns, as their shares of the bandwidth are.

        Traps and twins get their shares of the `news`, the events since the last plan; with None they have no limit.
        """
        ledger, among = self._replayed.ledger, self._pages_to_choose_among()
        enough = n + len(self._in_flight) + _PLANS_QUEUED * _news_of(ledger.pages)
        most = _MOST_QUEUED if self._queues.has_limit else min(enough, _MOST_QUEUED)  # those of many hosts
        most = max(n, 1) if news is None else most
        planned = ledger.preview(second=int(now), least=most, among=among, limits_traps=news is not None)
        limited = planned.survey.limited
        self._holds_back = limited is not None and bool((limited.of > 0).any())
        if limited is not None:
            is_waiting = (limited.of > 0) & planned.survey.has_url & (planned.survey.decided_by == DISCOVERY)
            self._limited = np.setdiff1d(planned.survey.pages[is_waiting], self._reported)
        orders, schedule = planned.orders, planned.schedule
        rows, why, not_before = orders.rows, orders.why, orders.not_before
        if limited is not None and news is not None:
            of = np.where(why == _DISCOVERY, limited.of[rows], 0)
            is_kept = rank_within(of, len(limited.share)) < limited.left(news, int(now))[of]
            rows, why, not_before = rows[is_kept], why[is_kept], not_before[is_kept]
        pages = planned.survey.pages[rows]
        per_day = schedule.discovery_per_day + schedule.refresh_per_day
        share = float(np.clip(schedule.discovery_per_day / max(per_day, 1e-9), 0.01, 0.99))
        is_new = why == _DISCOVERY
        due = schedule.due[rows]
        is_overdue = ~is_new & ((due <= now) | (why == _REQUESTED))  # the crawler may have been away for days
        self._is_cut = most <= max(int(is_new.sum()), int(is_overdue.sum())) and most < _MOST_QUEUED
        number = np.where(is_new, np.cumsum(is_new), np.cumsum(~is_new))
        rank = np.where(is_new, number / share, number / (1 - share))
        rank[why == _REQUESTED] = 0.0
        is_ahead = planned.survey.second > now + 1  # the clock was put back: the ledger has its times from before
        not_before = np.where(is_new | is_overdue, now, due if is_ahead else not_before)
        if self._promised:
            not_before = np.minimum(not_before, [self._promised.get(page, np.inf) for page in pages.tolist()])
        times = self._times_within_limits(planned.survey, rows, rank, now, not_before)
        hosts = ledger.host_hashes(pages)
        self._note_gaps(planned.survey, rows, hosts, now)
        columns = (rank, pages, hosts, times)
        return map(QueuedPage, *(column.tolist() for column in columns))

    def _times_within_limits(self, survey: Survey, rows: Ints, rank: Floats, now: float, not_before: Array) -> Array:
        """Return when pages may be given out, with the limits of hosts and domains a day."""
        limits = daily_limits(survey, self._replayed.ledger.budget())
        if not limits:
            return not_before
        flying = self._rules.page_ids.of_all([url.decode() for url in self._in_flight])
        waits = days_to_wait(survey, limits, rows, rank, flying, now)
        return np.where(waits > 0, np.maximum(not_before, (now // DAY + waits) * DAY), not_before)

    def _note_gaps(self, survey: Survey, rows: Ints, hosts: Ids, now: float) -> None:
        """Note which hosts need more time between two fetches, and let those wait that were fetched from lately."""
        gaps = host_gaps(survey, rows, hosts)
        self._gaps = {of_host: gap for of_host, (gap, _) in gaps.items()}
        for of_host, (gap, last) in gaps.items():
            if last + gap > now and not self._queues.is_in_flight(of_host):
                self._queues.pause(of_host, last + gap)

    def _is_among(self, url: bytes) -> bool:
        """Whether a page of the plan is still to be chosen."""
        return self._among is None or isinstance(self._among, GrowingPages) or url.decode() in self._among

    def _pages_to_choose_among(self) -> Ids | None:
        among = self._among
        if among is None:
            return None
        pages = among if isinstance(among, GrowingPages) else GrowingPages(among)
        return pages.ids(self._rules.page_ids.of_all)

    # -- the ledger and its snapshots ------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the log and a snapshot to the disk: opening takes as long as the log since then is.

        It happens by itself as the log grows. `opicflow top --state FOLDER` shows the pages of the last snapshot.
        Raises `StateRefused` if the disk is full: then the snapshot before counts, and the log has all visits.
        """
        with self._lock:
            self._apply()
            self._log.sync()
            self._take(Decoded(EventWriter().events(), []), self._applied_to, self._applied_to, is_last=True)
            source = self._state.sources[0]
            if self._log.end:
                path = str(self._log.path)
                head = identify(path, head_of(path), [], set()).source
                source.head_bytes, source.head_digest = head.head_bytes, head.head_digest
            source.at = self._log.end
            remember_end(source)
            try:
                self._replayed.sizes.snapshot_bytes = self._folder.write(self._state, self._replayed)
            except OSError as problem:
                raise StateRefused(
                    f"{self._folder.path}: the frontier cannot be saved ({problem.strerror}); its log has all visits: "
                    "make room, and save or open it again"
                ) from None
            self._saved_at = self._log.end

    def close(self) -> None:
        """Save, and let others use the folder."""
        with self._lock, self._held, closing(self._log):
            if self._log.end != self._saved_at:
                self.save()

    def _apply(self) -> None:
        """Apply the events of the log that the ledger does not have yet."""
        self._unapplied = 0
        if self._applied_to == self._log.end:
            return
        for lines in self._log.blocks(self._applied_to):
            start, end = self._applied_to, self._applied_to + len(lines)
            decoded = decode_jsonl(lines, _SOURCE, start)
            if decoded.rejects:
                at = decoded.rejects[0].offset
                raise StateRefused(f"{self._log.path}: it was damaged at byte {at}: restore the folder")
            self._take(decoded, start, end)
            self._applied_to = end

    def _take(self, decoded: Decoded, start: int, end: int, is_last: bool = False) -> None:
        offset = self._replayed.head.next
        segment = segment_at(offset)
        urls = urls_of(decoded, self._canonicaliser)
        batch = DecodedBatch(
            _SOURCE,
            start,
            end,
            end - start,
            decoded,
            urls,
            segment=segment,
            number=offset - first_offset(segment),
            is_last=is_last,
        )
        routed = route_rows(decoded, urls, _SOURCE, self._rules, self._seen)
        for _ in self._replayed.take(RoutedBatch.of(batch, routed)):
            pass  # a frontier publishes nothing


def _news_of(pages: int) -> int:
    """Return after how many events a plan for so many pages is old."""
    return max(_LEAST_NEWS, pages // _PAGES_A_NEWS)


def _without_plain_links(event: Mapping[str, object]) -> Mapping[str, object]:
    """Return an event without links that are texts: as such, these are always right."""
    links = event.get("links")
    if not isinstance(links, list) or len(links) > MOST_LINKS:
        return event
    return {**event, "links": [link for link in links if not isinstance(link, str)]}


def _new_state(path: Path, config: LedgerConfig) -> State:
    rules = Rules(page_ids=new_page_ids())
    source = Source(_SOURCE, str(path / FRONTIER_LOG_NAME), 0, "")
    return State(config.to_json(), [rules.to_json()], [source], Run(), page_ids=rules.page_ids.to_json())
