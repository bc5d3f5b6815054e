"""Data that a crawler and its recorder exchange: the configuration, visits, and lines of JSON through a socket."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TypedDict

import orjson

_RECEIVED_BYTES = 1 << 16


class LinkEvent(TypedDict):
    """A link with its rel."""

    url: str
    rel: str


class VisitEvent(TypedDict, total=False):
    """The event of a visit: its fields are those of docs/guides/crawlers.md."""

    url: str
    status: int
    failure: str
    redirects: list[str]
    fetched_at: int
    content_type: str
    last_modified: str
    retry_after: str
    quality: float
    digest: str
    canonical: str
    links: list[str | LinkEvent]
    robots_tag: str
    """The header X-Robots-Tag, by which the recorder reads the content: it is not in the log."""


@dataclass(frozen=True)
class RecorderConfig:
    """The folder of the frontier, the Kafka cluster that visits are sent to, if there is one, and the settings."""

    folder: str
    brokers: str | None = None
    properties: str | None = None
    prefix: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    """Names and values of settings as on the command line."""

    def to_json(self) -> str:
        """Return the argument of a process."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> RecorderConfig:
        """Return the configuration that `to_json` has written."""
        fields = orjson.loads(text)
        return cls(**{**fields, "settings": tuple((name, value) for name, value in fields["settings"])})


class RecorderMessage(TypedDict, total=False):
    """One line."""

    ask: int
    """To the recorder: choose so many pages, after all that was reported before."""
    fetching: list[str]
    """The crawler has chosen these by itself."""
    most_each: int
    """At most so many of a host."""
    rooms: dict[str, int]
    """The same for some hosts."""
    end: bool
    """To the recorder: take the rest, save, and end."""
    ready: bool
    """To the crawler: the folder is open."""
    refused: str
    """It is not, or the log cannot be written to: the process ends."""
    pages: list[str]
    """The answer."""
    later: list[str]
    """With it: pages that are traps or twins, which come after others; each once."""
    visits: int
    """The visits that were recorded since the last such line."""
    visits_refused: int
    level: int
    """Of `text`, which is a line for the crawler's own log."""
    text: str
    ended: bool
    """All is in the log, and saved."""


class LineSocket:
    """Messages through a socket. Several threads may send."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._lock, self._rest = connected, threading.Lock(), b""
        self._arrivals = select.poll()  # `select` has a limit of 1,024 open files, which a crawl may exceed
        self._arrivals.register(connected, select.POLLIN)

    def send(self, message: RecorderMessage) -> None:
        """Send a message. If the other end is closed, it is lost."""
        with self._lock, suppress(OSError):
            self._socket.sendall(orjson.dumps(message) + b"\n")

    def receive(self, timeout_seconds: float) -> list[RecorderMessage]:
        """Return the messages that have come, once there are some; none if time is over first.

        Raises EOFError if the other end is closed.
        """
        while self._arrivals.poll(1000 * timeout_seconds):
            try:
                data = self._socket.recv(_RECEIVED_BYTES)
            except OSError:
                data = b""
            if not data:
                raise EOFError
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return [orjson.loads(line) for line in lines]
        return []

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
