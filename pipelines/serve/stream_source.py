"""A stream, live: a thread reads its topics into an index, another one requests the state of the job from Flink."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from shlex import quote
from typing import NamedTuple

from opicflow.connectors.flink.rest import FlinkCluster, FlinkRefused
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.result_follower import ResultFollower, TopicReplaced
from opicflow.pipelines.results.reasons import Reasons
from opicflow.pipelines.serve import wording
from opicflow.pipelines.serve.books import Check
from opicflow.pipelines.serve.stream_checks import JobState, checks_of
from opicflow.pipelines.serve.stream_index import STREAMS, StreamIndex
from opicflow.pipelines.serve.view import Live, View
from opicflow.pipelines.serve.watchers import Watchers
from opicflow.pipelines.stream.status import StreamStatus
from opicflow.schemas.errors import UserError
from opicflow.schemas.urls import named_page

_HOUR_MS = 3_600_000
_SINCE_MS = {"audit": _HOUR_MS, "crawl-orders": 24 * _HOUR_MS, "rejects": 24 * _HOUR_MS}
"""How far back these topics are read: their older records do not matter today. The others are read whole."""
_POLL_MS = 200
_PROBE_SECONDS = 2.0
_SHOW_SECONDS = 1.0
_QUIET_SHOW_SECONDS = 5.0
_FLINK_SECONDS = 5.0
_RATE_SECONDS = 10.0
_RETRY_SECONDS = 1.0
_READ_AGAIN_SECONDS = 3_600.0


class FlinkWatch:
    """Requests the state of a job from a cluster, again and again."""

    def __init__(self, cluster: FlinkCluster, job_name: str) -> None:
        self.job = JobState()
        self._cluster, self._name = cluster, job_name
        self._events: tuple[float, int] | None = None

    def ask(self) -> None:
        """Request it once. A refusal of the cluster becomes the problem of the job."""
        try:
            found = self._cluster.find(self._name)
            status = StreamStatus(
                self._cluster.details(found.id),
                self._cluster.checkpoints(found.id),
                self._cluster.beam_metrics(found.id),
                "",
            )
        except FlinkRefused as problem:
            self.job = JobState(problem=str(problem))
            return
        at, events = time.monotonic(), status.count("events_read")
        rate = self.job.events_per_second
        if self._events is None or events < self._events[1]:  # a step that starts again counts from 0
            self._events, rate = (at, events), None
        elif at - self._events[0] >= _RATE_SECONDS:
            rate = (events - self._events[1]) / (at - self._events[0])
            self._events = at, events
        self.job = JobState(status, events_per_second=rate)


class _Problem(NamedTuple):
    sentence: str
    since_ms: int


class StreamSource:
    """The topics of a stream. `clock` returns the milliseconds since 1970."""

    can_explain = False

    def __init__(
        self,
        connection: Connection,
        prefix: str,
        keep: int,
        clock: Callable[[], int],
        flink: FlinkWatch | None = None,
        since_ms: Mapping[str, int] = _SINCE_MS,
    ) -> None:
        """Connect, and begin to read. Raises `KafkaRefused` if no broker answers, or nothing was published ever."""
        self.watchers = Watchers()
        self._connection, self._prefix, self._keep, self._clock = connection, prefix, keep, clock
        self._flink, self._since_ms = flink, since_ms
        self._ended = threading.Event()
        self._problem: _Problem | None = None
        self._looked_for: list[str] = []
        self._looked_at: list[int] = []
        self._failure: BaseException | None = None
        self._behind = 0
        self._read_again_at = time.monotonic()
        self._follower = self._opened()
        self._view = self._shown(None)
        self._threads = [threading.Thread(target=self._run, args=(self._read,), daemon=True)]
        if flink is not None:
            self._threads.append(threading.Thread(target=self._run, args=(self._ask_flink,), daemon=True))
        for thread in self._threads:
            thread.start()

    # -- called by viewers, in their threads --------------------------------------------------------------------------

    def view(self) -> View:
        """The current view."""
        if self._failure is not None:
            raise RuntimeError("the reader of the topics has ended") from self._failure
        return self._view

    def canonical(self, url: str) -> str:
        """The canonical form of a URL, by the usual rules: topics do not say which others."""
        return named_page(url)

    def reasons(self, page: int) -> Reasons | None:
        """Nothing: the ledgers are in the workers of the stream."""
        return None

    def look_for(self, url: str) -> str:
        """Keep this page from its next record on; returns sentences about it until then."""
        self._looked_for.append(url)
        where = f"--brokers {self._connection.brokers}" + (f" --prefix {self._prefix}" if self._prefix else "")
        return (
            "it is not among the pages that are kept: its importance, visits and next fetch are not known here. "
            "It is kept as soon as a new record for it arrives. To see its record in the topic: "
            f"opicflow subscribe importance {where} --url {quote(wording.safe(url))}"
        )

    def look_at(self, page: int) -> None:
        """Note the importance of a page from now on."""
        self._looked_at.append(page)

    def close(self) -> None:
        """Stop, and close the connections to the brokers."""
        self._ended.set()
        self.watchers.end()
        for thread in self._threads:
            thread.join(10)
        self._follower.close()

    # -- the threads --------------------------------------------------------------------------------------------------

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as problem:
            self._failure = problem
            raise

    def _ask_flink(self) -> None:
        assert self._flink is not None
        while not self._ended.is_set():
            self._flink.ask()
            self._ended.wait(_FLINK_SECONDS)

    def _read(self) -> None:
        shown_at = probe_at = took = 0.0
        has_news = False
        while not self._ended.is_set():
            try:
                has_news |= self._take(_POLL_MS)
                if time.monotonic() >= probe_at:
                    self._probe()
                    probe_at = time.monotonic() + _PROBE_SECONDS
            except TopicReplaced as problem:
                self._note(problem)
                has_news |= self._start_again()
            except KafkaRefused as problem:
                self._note(problem)
                self._ended.wait(_RETRY_SECONDS)
            now = time.monotonic()
            pause = _SHOW_SECONDS if has_news else _QUIET_SHOW_SECONDS
            if now - shown_at >= max(pause, 9 * took):  # a tenth of the time at most
                self._view = self._shown(None if has_news else self._view)
                self.watchers.notify()
                has_news, shown_at = False, time.monotonic()
                took = shown_at - now

    def _take(self, timeout_ms: int) -> bool:
        while self._looked_for:
            self._index.look_for(self._looked_for.pop())
        while self._looked_at:
            self._index.look_at(self._looked_at.pop())
        has_any = False
        for stream, messages in self._follower.poll(timeout_ms):
            has_any = True
            self._index.unreadable[stream] += sum(not one.is_readable for one in messages)
            self._index.take(stream, [one for one in messages if one.is_readable])
        return has_any

    def _probe(self) -> None:
        self._behind = self._follower.behind()
        if self._problem is not None:
            if not self._follower.is_same():
                raise TopicReplaced("topics are other ones than before: everything is read again")
            self._problem = None
        is_rested = time.monotonic() - self._read_again_at >= _READ_AGAIN_SECONDS
        if self._index.has_large_gaps and self._follower.read_part >= 1 and is_rested:
            self._follower.read_again("importance", "refresh-schedule")
            self._index.read_pages_again()
            self._read_again_at = time.monotonic()

    def _start_again(self) -> bool:
        try:
            follower = self._opened()
        except UserError:  # the next probe has the same problem
            return False
        self._follower.close()
        self._follower, self._problem = follower, None
        return True

    def _opened(self) -> ResultFollower:
        now = self._clock()
        since = {name: now - self._since_ms[name] if name in self._since_ms else None for name in STREAMS}
        follower = ResultFollower(self._connection, since, self._prefix)
        if "importance" in follower.absent:
            topic = f"{self._prefix}importance"
            raise KafkaRefused(f"there is no topic {topic}: create it with opicflow topics create, or correct --prefix")
        self._index = StreamIndex(self._keep, self._prefix)
        return follower

    def _note(self, problem: KafkaRefused) -> None:
        since = self._problem.since_ms if self._problem else self._clock()
        self._problem = _Problem(str(problem), since)

    # -- views --------------------------------------------------------------------------------------------------------

    def _shown(self, before: View | None) -> View:
        """Return the current view; `before` is the last one, if no record has arrived since."""
        now_ms, index, problem = self._clock(), self._index, self._problem
        verdict, job = index.verdict, None if self._flink is None else self._flink.job
        read_part = self._follower.read_part
        kept = index.kept()
        if self._follower.absent:
            kept += f" There is no topic {', '.join(self._prefix + name for name in self._follower.absent)}."
        live = Live(
            at_ms=now_ms,
            unread=self._behind,
            read_part=read_part,
            kept=kept,
            problem=problem.sentence if problem else "",
            problem_ms=problem.since_ms if problem else 0,
        )
        refused, rejects = index.refused_entries, sum(index.rejects.values())
        checks = (
            *self._reading(read_part),
            *checks_of(verdict, refused, job, now_ms, read_part < 1, rejects - refused),
        )
        if before is not None:
            return replace(before, live=live, checks=checks).prepared()
        brokers = self._connection.brokers
        return index.view(live, checks, f"The stream at {brokers}", f"the topics {self._prefix}* at {brokers}")

    def _reading(self, read_part: float) -> list[Check]:
        if self._problem is not None:
            since = wording.minute(self._problem.since_ms)
            return [Check("Brokers", False, f"no new records since {since}")]
        if read_part < 1:
            return [Check("Brokers", None, f"the topics are being read: {wording.percent(read_part)} is done")]
        return [Check("Brokers", True, "answer")]
