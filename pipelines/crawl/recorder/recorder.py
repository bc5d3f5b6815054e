"""The process that keeps the frontier of a crawler: it takes what the crawler reports, and answers which page is next.

The crawler holds the other end of a socket (protocol.py). The process ends when its crawler has ended, also by a
kill -9: first it takes what the inbox has.
"""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import orjson

from opicflow.connectors.files.html_links import decode_html, links_of_html
from opicflow.pipelines.cli.configuration import Value, variable_of
from opicflow.pipelines.cli.error_text import by_option
from opicflow.pipelines.cli.options import focus_of, ledger_options_of, rules_of
from opicflow.pipelines.cli.settings_table import CRAWL, dest_of, options_of
from opicflow.pipelines.crawl.frontier import Frontier, GrowingPages
from opicflow.pipelines.crawl.log import (
    ANNOUNCEMENT,
    REQUESTS_NAME,
    WANTED,
    AppendedFile,
    Inbox,
    records_of,
)
from opicflow.pipelines.crawl.recorder.protocol import LineSocket, RecorderConfig, VisitEvent
from opicflow.pipelines.crawl.recorder.visit_sender import VisitSender
from opicflow.pipelines.ledger import ConfigRefused, LedgerConfig
from opicflow.pipelines.replay.state import FRONTIER_LOG_NAME, FolderInUse, StateRefused
from opicflow.pipelines.stages.rules import Categories, Rules
from opicflow.pipelines.stages.settings import LedgerOptions, default_ledger
from opicflow.schemas.crawl_events import EventRefused
from opicflow.schemas.errors import UserError, printable
from opicflow.schemas.urls import NotAPage

_LOGGER = logging.getLogger(__name__)
_DAY = 86400.0
_LONGEST_SILENCE_SECONDS = 0.5
"""So long a report waits at most for the log, if the crawler requests nothing."""
_PAUSE_SECONDS, _MOST_PAUSES = 0.1, 600
"""While the recorder of a crawl that was killed saves its ledger."""
_PAUSES_UNSAID = 20
"""After so many pauses a line of the crawl's log gives the reason."""
_LESS_URGENT = 5
"""The priority of the recorder below that of the crawl: it may be late until the crawl requests something."""
_SAVE_SECONDS, _SAVES_SHARE = 60.0, 0.02
"""The ledger is saved at this interval, or at a longer one: saving takes at most this share of the time."""


class Recorder:
    """Takes the reports of a crawler into the frontier of a folder, until the crawler ends."""

    def __init__(self, config: RecorderConfig, crawler: LineSocket) -> None:
        """Open the frontier. Raises `StateRefused` if another process uses the folder, or if it is damaged."""
        self._crawler, self._parent = crawler, os.getppid()
        folder = Path(config.folder)
        self._frontier = self._opened(folder, config)
        self._inbox, self._wanted = Inbox(folder), GrowingPages()
        self._requests, self._read_to = AppendedFile(folder / REQUESTS_NAME), 0
        self._recorded = self._refused = self._damaged_bytes = 0
        self._sender = _new_sender(config, folder / FRONTIER_LOG_NAME)
        self._save_at = time.monotonic() + _SAVE_SECONDS

    def run(self) -> None:
        """Take reports and answer, until the crawler has ended; then save."""
        self._crawler.send({"ready": True})
        os.nice(_LESS_URGENT)
        is_over = False
        while not is_over:
            try:
                messages = self._crawler.receive(_LONGEST_SILENCE_SECONDS)
            except EOFError:
                messages = [{"end": True}]
            is_over = any("end" in message for message in messages) or os.getppid() != self._parent
            self._take()
            self._save_sometimes()
            for message in messages:
                if "ask" in message:
                    self._read_requests()
                    self._frontier.fetching(message["fetching"])
                    most_each, rooms = message["most_each"], message["rooms"]
                    pages = self._frontier.next(message["ask"], self._wanted, most_each=most_each, rooms=rooms)
                    self._crawler.send({"pages": pages, "later": self._frontier.limited()})
        self._close()
        self._crawler.send({"ended": True})

    def _save_sometimes(self) -> None:
        """Save the ledger, so that the importance of pages can be read during the crawl."""
        begun = time.monotonic()
        if begun >= self._save_at:
            try:
                self._frontier.save()
            except StateRefused as problem:
                _LOGGER.warning("opicflow: %s", problem)
            ended = time.monotonic()
            self._save_at = ended + max(_SAVE_SECONDS, (ended - begun) / _SAVES_SHARE)

    def _close(self) -> None:
        if self._sender is not None:
            self._sender.close()
        try:
            self._frontier.close()
        except StateRefused as problem:  # all is in the log: the next crawl reads it
            _LOGGER.error("opicflow: %s", problem)
        self._inbox.close()
        self._requests.close()

    def _read_requests(self) -> None:
        """Read which pages the crawler wants more."""
        for record, end in records_of(self._requests.number, self._read_to):
            self._read_to = end
            if record.kind == WANTED:
                self._wanted.add(record.head.decode())

    def _take(self) -> None:
        """Bring into the frontier what the crawler has reported."""
        for record in self._inbox.take():
            if record.kind == ANNOUNCEMENT:
                self._announce(orjson.loads(record.head))
                continue
            event: VisitEvent = orjson.loads(record.head)
            try:
                self._bring(event, record.body)
            except StateRefused:
                raise  # the log cannot be written to: the report stays in the inbox
            except UserError as problem:
                _LOGGER.warning("opicflow: the visit of %s is not recorded: %s", *_shown(event.get("url"), problem))
                self._refused += 1
        if self._recorded or self._refused:
            self._crawler.send({"visits": self._recorded, "visits_refused": self._refused})
            self._recorded = self._refused = 0
        if self._inbox.damaged_bytes > self._damaged_bytes:
            _LOGGER.warning("opicflow: %d bytes of the inbox are damaged, and passed over", self._inbox.damaged_bytes)
            self._damaged_bytes = self._inbox.damaged_bytes

    def _announce(self, pages: dict[str, float | None]) -> None:
        for url, quality in pages.items():
            try:
                self._frontier.announce([url], quality)
            except NotAPage as problem:
                _LOGGER.warning("opicflow: %s is not announced: %s", *_shown(url, problem))

    def _bring(self, event: VisitEvent, body: bytes) -> None:
        robots_tag = event.pop("robots_tag", "")
        try:
            self._frontier.visited(event | _content_or_none(event, robots_tag, body))
        except EventRefused as problem:
            if not body:
                raise
            _LOGGER.warning("opicflow: the links of %s are not recorded: %s", *_shown(event["url"], problem))
            self._frontier.visited(event | {"digest": _digest(body)})
        except NotAPage as problem:
            if not event.get("redirects"):
                raise
            first = event["redirects"][0]
            _LOGGER.warning("opicflow: %s leads to no page, and is recorded as failed: %s", *_shown(first, problem))
            self._frontier.visited({"url": first, "failure": "NotAPage", "fetched_at": event.get("fetched_at")})
        self._recorded += 1

    def _opened(self, folder: Path, config: RecorderConfig) -> Frontier:
        """Open the frontier; wait for the recorder of a crawl that was killed, which saves it."""
        for number in count():
            try:
                ledger, rules = ledger_and_rules(config.settings)
                return Frontier.open(
                    folder, _clock, delay_seconds=None, timeout_seconds=_DAY, ledger=ledger, rules=rules
                )
            except FolderInUse:
                if os.getppid() != self._parent or number >= _MOST_PAUSES:
                    raise
            if number == _PAUSES_UNSAID:
                _LOGGER.warning(
                    "opicflow: %s is in use by another process, such as the recorder of a crawl that was killed, "
                    "which still saves: waiting for it, up to %d seconds",
                    folder,
                    _MOST_PAUSES * _PAUSE_SECONDS,
                )
            threading.Event().wait(_PAUSE_SECONDS)
        raise AssertionError


def ledger_and_rules(settings: Iterable[tuple[str, str]]) -> tuple[LedgerConfig | None, Rules | None]:
    """Return what settings make; None where there are none. Raises `ConfigRefused`, which names the setting."""
    given = list(settings)
    options = options_of(CRAWL, given)
    options.configured = {dest_of(name): Value((text,), "setting", variable_of(name)) for name, text in given}
    try:
        rules, ledger, focus = rules_of(options), ledger_options_of(options), focus_of(options)
        categories = (rules or Rules()).categories
        is_plain = ledger == LedgerOptions() and focus is None and categories == Categories()
        return None if is_plain else default_ledger(ledger, focus, categories), rules
    except ConfigRefused as problem:
        raise ConfigRefused(by_option(str(problem), options)) from None


def content_of(event: VisitEvent, robots_tag: str, body: bytes) -> VisitEvent:
    """Return what an event has from the content of its HTML page: the digest, the links, the canonical URL."""
    if not body:
        return {}
    links, canonical = links_of_html(decode_html(body, event.get("content_type")), event["url"], robots_tag)
    found: VisitEvent = {"digest": _digest(body)}
    if canonical:
        found["canonical"] = canonical
    found["links"] = [{"url": link.url, "rel": link.rel} if link.rel else link.url for link in links]
    return found


def _shown(url: object, problem: Exception) -> tuple[str, str]:
    """Return what the web has written for a line of a log."""
    return printable(str(url)), printable(str(problem))


def _digest(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


def _content_or_none(event: VisitEvent, robots_tag: str, body: bytes) -> VisitEvent:
    """Return what an event has from its content; nothing if that cannot be read. Raises `EventRefused`."""
    try:
        return content_of(event, robots_tag, body)
    except UserError:
        raise
    except Exception:  # a page of a stranger must not end the recorder, nor that of the next crawl
        _LOGGER.exception("opicflow: the content of %s cannot be read", event["url"])
        return {}


def _clock() -> float:
    return time.time()  # noqa: TID251 - a crawl happens now


def _new_sender(config: RecorderConfig, log: Path) -> VisitSender | None:
    """Begin to send visits to Kafka, if the settings name brokers. Raises `KafkaRefused` if these cannot be used."""
    if not config.brokers:
        return None
    from opicflow.connectors.kafka.connection import Connection

    connection = Connection(config.brokers, config.properties)
    connection.registry_access()  # reads the file of properties: a mistake there is reported at once
    return VisitSender(log, connection, config.prefix, _clock)


class _ToCrawler(logging.Handler):
    """Shows warnings in the log of the crawler."""

    def __init__(self, crawler: LineSocket) -> None:
        super().__init__(logging.WARNING)
        self._crawler = crawler

    def emit(self, record: logging.LogRecord) -> None:
        self._crawler.send({"level": record.levelno, "text": self.format(record)})


def main() -> int:
    """Run with the configuration in the first argument. The standard input is the socket."""
    crawler = LineSocket(socket.socket(fileno=0))
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_ToCrawler(crawler)])
    try:
        Recorder(RecorderConfig.from_json(sys.argv[1]), crawler).run()
    except UserError as problem:
        crawler.send({"refused": str(problem)})
        return 2
    except Exception:
        crawler.send({"level": logging.ERROR, "text": f"opicflow: the recorder failed:\n{traceback.format_exc()}"})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
