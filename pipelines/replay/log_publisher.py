"""Publishes the events of crawl logs to Kafka."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from operator import attrgetter

import numpy as np

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, RejectWriter
from opicflow.connectors.files.event_messages import EventMessages
from opicflow.connectors.files.log_reader import FileRange, known_format, read
from opicflow.connectors.files.opening import expand
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.messages import Framer
from opicflow.connectors.kafka.publisher import Publisher, partitions_of
from opicflow.connectors.kafka.topics import names
from opicflow.pipelines.replay.read_progress import Progress
from opicflow.schemas.arrays import Ints
from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.errors import Interrupted
from opicflow.schemas.records import to_avro

_STEP_SECONDS = 0.05
_MOST_LEAP_MS = 86_400_000


@dataclass
class Tally:
    """The number of events published, and of those rejected, by reason."""

    begun: float
    published: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        return self.published + self.rejected.total()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begun


def publish_logs(
    connection: Connection,
    prefix: str,
    logs: Sequence[str],
    now_ms: int,
    per_second: float | None = None,
    only: int | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
    reading: Reading = ANY,
) -> Tally:
    """Publish every event of the logs to crawl-events, and records that are not events to rejects.

    `per_second` limits the rate; `only` is the partition for all events, in the order of the logs.
    """
    files = list(dict.fromkeys(expand(logs)))
    formats = {file: known_format(file, reading) for file in files}  # a mistake is found before anything is sent
    topics = names(prefix)
    tally = Tally(time.perf_counter())
    with Publisher(connection) as publisher:
        sender = _EventSender(
            publisher,
            Framer(connection, topics.crawl_events, "CrawlEvent"),
            Framer(connection, topics.rejects, "Reject"),
            topics.crawl_events,
            topics.rejects,
            only,
        )
        limit, clock = SendRate(per_second), RecordClock(now_ms)
        done = 0
        try:
            for file, format_ in formats.items():
                if format_ is None:
                    sender.reject(Reject(Reason.EMPTY_FILE, "the file is empty", file, 0, b""), tally)
                    continue
                for batch in read(FileRange(file, file, format_, reading=reading)):
                    events = batch.messages(sender.prefix)
                    events = replace(events, time_ms=clock.times_ms(events.time_ms))
                    for part in events.parts(limit.events_at_once):
                        sender.publish(file, part, tally)
                        limit.wait(tally.read)
                        progress(Progress(tally.read, None, done + part.last_offset, None, "B", tally.seconds))
                done += batch.end
            publisher.flush()
        except KeyboardInterrupt:
            raise Interrupted(_so_far(publisher)) from None
        except KafkaRefused as problem:
            raise KafkaRefused(f"{problem}; {_so_far(publisher)}") from None
    return tally


class _EventSender:
    """Sends events and rejects to their topics, framed."""

    def __init__(
        self, publisher: Publisher, events: Framer, rejects: Framer, topic: str, reject_topic: str, only: int | None
    ) -> None:
        self._publisher = publisher
        self._rejects = rejects
        self._topic, self._reject_topic = topic, reject_topic
        self._partitions = publisher.partitions(topic)
        publisher.partitions(reject_topic)  # refuses a missing topic before anything is sent
        if only is not None and not only < self._partitions:
            raise KafkaRefused(
                f"--partition {only}: {topic} has {self._partitions} partitions: give 0 to {self._partitions - 1}"
            )
        self._only = only
        self.prefix = events.prefix
        """The first bytes of every event in Avro."""

    def publish(self, file: str, events: EventMessages, tally: Tally) -> None:
        """Send events, whose times are those of their records, and rejects. An event that is too large is a reject."""
        if self._only is None:
            partitions = partitions_of(events.urls, self._partitions).tolist()
        else:
            partitions = [self._only] * len(events)
        rows = self._publisher.send_many(self._topic, partitions, events.urls, events.values, events.time_ms)
        tally.published += len(events) - len(rows)
        too_large = [self._too_large(file, int(events.offset[row]), events.values[row]) for row in rows]
        for reject in merge(too_large, events.rejects, key=attrgetter("offset")):
            self.reject(reject, tally)

    def _too_large(self, file: str, offset: int, value: bytes) -> Reject:
        rejects = RejectWriter(file)
        rejects.add(Reason.TOO_LARGE, f"the event is larger than {self._topic} takes", offset, value)
        return rejects.rejects[0]

    def reject(self, reject: Reject, tally: Tally) -> None:
        """Send a reject."""
        value = self._rejects.encode(to_avro(replace(reject, bytes=reject.bytes[:MOST_REJECTED_BYTES])))
        if not self._publisher.send(self._reject_topic, None, value):
            raise KafkaRefused(f"{self._reject_topic}: takes no record of {len(value)} bytes: raise max.message.bytes")
        tally.rejected[reject.reason.value] += 1


class RecordClock:
    """Gives each record the time of its event, at least a millisecond after the record before.

    Readers merge partitions by these times, which restores the order of the log. A time in the future, or a single time
    that is a day ahead of the last, comes from a wrong clock: it would delay all records after it, and is not used.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._last_ms = -1
        self._leapt = False

    def times_ms(self, fetched_at_ms: Ints) -> Ints:
        """Return the times of the next records; 0 = the time of the event is not known."""
        if len(fetched_at_ms) == 0:
            return fetched_at_ms
        known_ms = np.where((fetched_at_ms == 0) | (fetched_at_ms > self._now_ms), -1, fetched_at_ms)
        numbers = np.arange(len(known_ms))
        times_ms = np.maximum(np.maximum.accumulate(known_ms - numbers), self._last_ms + 1) + numbers
        before_ms = np.concatenate(([self._last_ms], times_ms[:-1]))
        if ((known_ms > before_ms + _MOST_LEAP_MS) & (before_ms >= 0)).any():
            return np.array([self._time_ms(time_ms) for time_ms in known_ms.tolist()], np.int64)
        self._last_ms, self._leapt = int(times_ms[-1]), False
        return times_ms

    def _time_ms(self, known_ms: int) -> int:
        """Return the time of the next record; -1 = the time of the event is not known, or in the future."""
        leaps = known_ms > self._last_ms + _MOST_LEAP_MS and self._last_ms >= 0
        if leaps and not self._leapt:
            known_ms = -1
        self._leapt = leaps
        self._last_ms = max(known_ms, self._last_ms + 1)
        return self._last_ms


class SendRate:
    """Limits events a second; None = no limit."""

    def __init__(self, per_second: float | None) -> None:
        self._per_second = per_second
        self._begun = time.perf_counter()
        self._pause = threading.Event()
        self.events_at_once = max(round(per_second * _STEP_SECONDS), 1) if per_second else None
        """The number of events that may be sent without a pause; None = no limit."""

    def wait(self, events: int) -> None:
        """Wait until the next event may be sent, after this many."""
        if self._per_second:
            ahead = events / self._per_second - (time.perf_counter() - self._begun)
            if ahead > 0:
                self._pause.wait(ahead)


def _so_far(publisher: Publisher) -> str:
    return (
        f"{publisher.acknowledged:,} of {publisher.sent:,} records sent were acknowledged; publish the logs again: "
        "visits that are published twice are recognised by their times"
    )
