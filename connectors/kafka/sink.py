"""Sends the records of a pipeline to topics: a bundle ends when all of its records are acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import apache_beam as beam

from opicflow.connectors.files.decoded import RejectWriter
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.runs import kept
from opicflow.schemas.crawl_events import Reason

REJECTS, SENT = "rejects", "sent"
NOTE = ""
"""The topic of a note: it is not sent, and handed over when all messages before it have arrived."""


class Message(NamedTuple):
    """A record to send. The default timestamp is the current time; the default partition is chosen by the producer."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None


class PublishMessages(beam.PTransform[Any, Any]):
    """Sends messages, those of a key and bundle in order. Messages that are too large go to the output `rejects`.

    A failure fails the bundle. A runner that retries the bundle sends the whole bundle again, so messages may arrive
    twice.
    """

    def __init__(
        self,
        connection: Connection,
        all_or_none: bool = False,
        run: str = "",
        on_noted: Callable[[Message], None] | None = None,
    ) -> None:
        """`all_or_none`: a message that is too large fails its bundle.

        `on_noted` is called with the last note of each key, when all messages before it have arrived. The publishers of
        a process stay open until `close_run(run)`.
        """
        super().__init__()
        self._publish = _Publish(connection, all_or_none, run, on_noted)

    def expand(self, messages: Any) -> Any:
        """Send; the only output is rejects."""
        par_do: Any = beam.ParDo  # comes without types
        return messages | "Publish" >> par_do(self._publish).with_outputs(REJECTS, main=SENT)


class SendingDoFn(beam.DoFn):
    """A `DoFn` that sends: a bundle ends when all records sent in it are acknowledged."""

    def __init__(self, connection: Connection, run: str = "") -> None:
        """`run` is the run that has the publisher."""
        self._connection = connection
        self._run = run
        self._publisher: Publisher | None = None  # made by the worker: this object is pickled

    def start_bundle(self) -> None:
        """Use the publisher of the run in this process, which is made for the first bundle."""
        self._publisher = kept(self._run, Publishers).of(self._connection)

    @contextmanager
    def sending(self) -> Iterator[Publisher]:
        """The publisher. An exception in the context discards it, and fails all bundles that use it."""
        assert self._publisher is not None
        try:
            yield self._publisher
        except BaseException:
            kept(self._run, Publishers).discard(self._publisher)
            raise

    def finish_bundle(self) -> None:
        """Wait until all records are acknowledged."""
        with self.sending() as publisher:
            publisher.flush()
        self._publisher = None


class _Publish(SendingDoFn):
    def __init__(
        self, connection: Connection, all_or_none: bool, run: str, on_noted: Callable[[Message], None] | None
    ) -> None:
        super().__init__(connection, run)
        self._all_or_none = all_or_none
        self._on_noted = on_noted
        self._notes: dict[bytes | None, Message] = {}

    def start_bundle(self) -> None:
        super().start_bundle()
        self._notes = {}

    def process(self, element: Message) -> Iterator[Any]:
        if element.topic == NOTE:
            self._notes[element.key] = element
            return
        with self.sending() as publisher:
            taken = publisher.send(*element)
            if not taken and self._all_or_none:
                size = len(element.value or b"")
                raise KafkaRefused(
                    f"{element.topic}: does not accept a record of {size} bytes: raise its max.message.bytes"
                )
        if not taken:
            rejects = RejectWriter(element.topic)
            rejects.add(Reason.TOO_LARGE, "the message is larger than its topic accepts", -1, element.value or b"")
            yield beam.pvalue.TaggedOutput(REJECTS, rejects.rejects[0])

    def finish_bundle(self) -> None:
        super().finish_bundle()
        if self._on_noted is not None:
            for note in self._notes.values():
                self._on_noted(note)


class Publishers:
    """The publishers of a run, one per cluster for all its bundles, so records sent by one thread stay in order."""

    def __init__(self) -> None:
        self._publishers: dict[Connection, Publisher] = {}
        self._lock = Lock()

    def of(self, connection: Connection) -> Publisher:
        """Return the publisher of a cluster. Raises `KafkaRefused` if it cannot be reached."""
        with self._lock:
            if connection not in self._publishers:
                self._publishers[connection] = Publisher(connection)
            return self._publishers[connection]

    def discard(self, publisher: Publisher) -> None:
        """Give it to no further bundle; bundles that use it fail, because their records may be lost."""
        with self._lock:
            for key in [key for key, one in self._publishers.items() if one is publisher]:
                del self._publishers[key]
        publisher.abandon()

    def close(self) -> None:
        """Close all. Records without an acknowledgement are of bundles that did not end, and may be lost."""
        with self._lock:
            publishers, self._publishers = list(self._publishers.values()), {}
        for publisher in publishers:
            publisher.abandon()
