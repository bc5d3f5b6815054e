"""Sends the log of a frontier to the topic crawl-events while a crawl writes it. The log stays the truth."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from opicflow.connectors.files.event_messages import messages_of_lines
from opicflow.connectors.files.whole_file import write_atomically
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.messages import Framer
from opicflow.connectors.kafka.publisher import Publisher, partitions_of
from opicflow.connectors.kafka.topics import names
from opicflow.schemas.errors import UserError

_LOGGER = logging.getLogger(__name__)
_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_LONGEST_END_SECONDS = 30.0
_BYTES_AT_ONCE = 4 << 20
_ACKNOWLEDGED_SECONDS = 20.0


class VisitSender:
    """A thread that sends new visits of a log. The position that was acknowledged is kept beside the log.

    A broker that is away is tried again, also by the next crawl: every event is sent, some twice after a kill -9, which
    are recognised by their times.
    """

    def __init__(self, log: Path, connection: Connection, prefix: str, clock: Callable[[], float]) -> None:
        """Begin to send. An event without a time gets that of the clock, in seconds since 1970."""
        self._clock = clock
        self._log, self._kept = log, log.with_name("sent")
        self._connection, self._topic = connection, names(prefix).crawl_events
        self._publisher: Publisher | None = None
        self._at = self._position()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="opicflow-visits", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes of the log that are not acknowledged yet."""
        return self._log.stat().st_size - self._at

    def close(self) -> None:
        """Send the rest, within half a minute. Visits not acknowledged by then are sent by the next crawl."""
        self._ended.set()
        self._thread.join(_LONGEST_END_SECONDS)
        if self.waiting_bytes:
            _LOGGER.warning(
                "opicflow: %d bytes of %s are not in %s yet: the next crawl sends them",
                self.waiting_bytes,
                self._log,
                self._topic,
            )

    def _position(self) -> int:
        """Return up to where the log was acknowledged; 0 if the file with it was damaged, or is of another log."""
        if not self._kept.exists():
            return 0
        with suppress(ValueError, OverflowError, OSError), self._log.open("rb") as file:
            at = int(self._kept.read_text())
            file.seek(max(at - 1, 0))
            if at == 0 or file.read(1) == b"\n":
                return at
        _LOGGER.warning(
            "opicflow: %s holds no position in the log: all visits are sent again, and recognised by their times",
            self._kept,
        )
        return 0

    def _run(self) -> None:
        pause = _PAUSE_SECONDS
        while True:
            is_last = self._ended.wait(pause)
            try:
                self._send()
                pause = _PAUSE_SECONDS
            except (UserError, OSError) as problem:
                _LOGGER.warning("opicflow: visits wait in the log: %s", problem)
                self._disconnect()
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            if is_last:
                self._disconnect()
                return

    def _send(self) -> None:
        """Send all whole lines that are there, and wait until they are acknowledged."""
        while self.waiting_bytes:
            with self._log.open("rb") as file:
                file.seek(self._at)
                block = file.read(_BYTES_AT_ONCE)
                while b"\n" not in block and (more := file.read(_BYTES_AT_ONCE)):
                    block += more
            lines = block[: block.rfind(b"\n") + 1]
            if not lines:
                return
            if self._publisher is None:
                self._publisher = Publisher(self._connection, _ACKNOWLEDGED_SECONDS)
                self._prefix = Framer(self._connection, self._topic, "CrawlEvent").prefix
            events = messages_of_lines(lines, str(self._log), self._at, self._prefix)
            partitions = partitions_of(events.urls, self._publisher.partitions(self._topic)).tolist()
            times_ms = np.where(events.time_ms > 0, events.time_ms, int(1000 * self._clock()))
            too_large = self._publisher.send_many(self._topic, partitions, events.urls, events.values, times_ms)
            self._publisher.flush()
            if too_large:
                _LOGGER.warning("opicflow: %d visits are larger than %s takes", len(too_large), self._topic)
            self._at += len(lines)
            self._keep()

    def _keep(self) -> None:
        write_atomically(self._kept, str(self._at).encode())

    def _disconnect(self) -> None:
        if self._publisher is not None:
            self._publisher.abandon()
            self._publisher = None
