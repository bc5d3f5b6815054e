"""Records to topics at the end of a pipeline: a bundle is done when all of its records have arrived."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import apache_beam as beam

from opicflow.connectors.files.decoded import RejectWriter
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.schemas.crawl_events import Reason

REJECTS, SENT = "rejects", "sent"


class Message(NamedTuple):
    """A record to be sent. Without a time it gets that of the moment; without a partition any."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None


class PublishMessages(beam.PTransform[Any, Any]):
    """Sends messages, those of one key and bundle in their order. Under `rejects` come those that are too large.

    What fails fails its bundle: a runner that tries it again sends all of it again, so that messages may come twice.
    """

    def __init__(self, connection: Connection, timeout_seconds: float = 120.0, all_or_none: bool = False) -> None:
        """The time limit is a publisher's. `all_or_none`: a message that is too large fails its bundle."""
        super().__init__()
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._all_or_none = all_or_none

    def expand(self, messages: Any) -> Any:
        """Nothing but rejects comes out."""
        par_do: Any = beam.ParDo  # comes without types
        publish = par_do(_Publish(self._connection, self._timeout_seconds, self._all_or_none))
        return messages | "Publish" >> publish.with_outputs(REJECTS, main=SENT)


class SendingDoFn(beam.DoFn):
    """A `DoFn` that sends: a bundle is done when everything that was sent in it has arrived."""

    def __init__(self, connection: Connection, timeout_seconds: float = 120.0) -> None:
        """The time limit is a publisher's."""
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._publisher: Publisher | None = None  # made where it is used: this object travels

    def start_bundle(self) -> None:
        """Take part in the publisher of this process, or make one."""
        self._publisher = _shared(self._connection, self._timeout_seconds)

    @contextmanager
    def sending(self) -> Iterator[Publisher]:
        """The publisher. It is thrown away with all bundles that use it if anything is raised within."""
        assert self._publisher is not None
        try:
            yield self._publisher
        except BaseException:
            _throw_away(self._publisher)
            raise

    def finish_bundle(self) -> None:
        """Wait until everything has arrived."""
        with self.sending() as publisher:
            publisher.flush()
        self._publisher = None


class _Publish(SendingDoFn):
    def __init__(self, connection: Connection, timeout_seconds: float, all_or_none: bool = False) -> None:
        super().__init__(connection, timeout_seconds)
        self._all_or_none = all_or_none

    def process(self, element: Message) -> Iterator[Any]:
        """Send one."""
        with self.sending() as publisher:
            taken = publisher.send(*element)
            if not taken and self._all_or_none:
                size = len(element.value or b"")
                raise KafkaRefused(f"{element.topic}: takes no record of {size} bytes: raise its max.message.bytes")
        if not taken:
            rejects = RejectWriter(element.topic)
            rejects.add(Reason.TOO_LARGE, "the message is larger than its topic takes", -1, element.value or b"")
            yield beam.pvalue.TaggedOutput(REJECTS, rejects.rejects[0])


_publishers: dict[tuple[Connection, float], Publisher] = {}
"""One of each cluster for all bundles of this process: so what comes from one thread stays in order."""
_lock = threading.Lock()


def _shared(connection: Connection, timeout_seconds: float) -> Publisher:
    with _lock:
        found = _publishers.get((connection, timeout_seconds))
        if found is None:
            found = _publishers[connection, timeout_seconds] = Publisher(connection, timeout_seconds)
        return found


def _throw_away(publisher: Publisher) -> None:
    """No bundle gets it any more; those that have it fail, as their records may be among what was lost."""
    with _lock:
        for key in [key for key, one in _publishers.items() if one is publisher]:
            del _publishers[key]
    publisher.abandon()


def close_publishers() -> None:
    """Let go of the connections of this process. A bundle after that makes new ones."""
    with _lock:
        publishers = list(_publishers.values())
        _publishers.clear()
    for publisher in publishers:
        publisher.close()
