"""Publishes the events of crawl logs to Kafka."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, RejectWriter
from opicflow.connectors.files.log_reader import FileRange, read
from opicflow.connectors.files.opening import expand
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.messages import Framer, encode_event
from opicflow.connectors.kafka.publisher import Publisher, partition_of
from opicflow.connectors.kafka.topics import names
from opicflow.pipelines.replay.inputs import known_format
from opicflow.pipelines.replay.runner import Progress
from opicflow.schemas.crawl_events import CrawlEvent, Reason, Reject
from opicflow.schemas.records import to_avro

_EVENTS_BETWEEN_PROGRESS = 200
_MOST_LEAP_MS = 86_400_000


@dataclass
class Tally:
    """How many events were published, and how many rejected, by reason."""

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
) -> Tally:
    """Publish every event of the logs to crawl-events, and records that are not events to rejects.

    `per_second` limits the rate; `only` is the partition for all events, in the order of the logs.
    """
    files = list(dict.fromkeys(expand(logs)))
    formats = {file: known_format(file) for file in files}  # a mistake is found before anything is sent
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
                for batch in read(FileRange(file, file, format_)):
                    for number, (offset, item) in enumerate(batch.items()):
                        if isinstance(item, Reject):
                            sender.reject(item, tally)
                        else:
                            sender.publish(file, offset, item, clock.time_ms(item.fetched_at_ms), tally)
                        if number % _EVENTS_BETWEEN_PROGRESS == 0 or per_second:
                            limit.wait(tally.read)
                            progress(Progress(tally.read, None, done + offset, None, "B", tally.seconds))
                done += batch.end
            publisher.flush()
        except KeyboardInterrupt:
            print(_so_far(publisher, tally), file=sys.stderr)
            raise
        except KafkaRefused as problem:
            raise KafkaRefused(f"{problem}; {_so_far(publisher, tally)}") from None
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
        self._prefix = events.prefix

    def publish(self, file: str, offset: int, event: CrawlEvent, time_ms: int, tally: Tally) -> None:
        """Send an event, or a reject if it is too large."""
        key = event.url.encode()
        value = self._prefix + encode_event(event)
        partition = partition_of(key, self._partitions) if self._only is None else self._only
        if self._publisher.send(self._topic, key, value, partition, time_ms):
            tally.published += 1
            return
        rejects = RejectWriter(file)
        rejects.add(Reason.TOO_LARGE, f"the event is larger than {self._topic} takes", offset, value)
        self.reject(rejects.rejects[0], tally)

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

    def time_ms(self, fetched_at_ms: int | None) -> int:
        """Return the time of the next record."""
        known_ms = -1 if fetched_at_ms is None or fetched_at_ms > self._now_ms else fetched_at_ms
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

    def wait(self, events: int) -> None:
        """Wait until the next event may be sent, after this many."""
        if self._per_second:
            ahead = events / self._per_second - (time.perf_counter() - self._begun)
            if ahead > 0:
                self._pause.wait(ahead)


def _so_far(publisher: Publisher, tally: Tally) -> str:
    return (
        f"{publisher.acknowledged:,} of {tally.read:,} records sent were acknowledged; publish the logs again: visits "
        "that are published twice are recognised by their times"
    )
