"""The process of the recorder, from the side of the crawl, which starts it, requests pages, and ends it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from opicflow.pipelines.crawl.log import INBOX_NAME
from opicflow.pipelines.crawl.recorder.protocol import LineSocket, RecorderConfig, RecorderMessage
from opicflow.schemas.errors import UserError
from opicflow.schemas.interrupts import WithoutSignals

_LOGGER = logging.getLogger(__name__)
_MODULE = "opicflow.pipelines.crawl.recorder.recorder"
_MOST_STARTS = 4
"""A recorder that ends too early is started again. After so many starts the crawl goes on without."""
_LONGEST_WAIT_SECONDS = 10.0
"""So long the crawl waits for an answer at most: longer than it takes to plan for millions of pages."""
_MOST_SECONDS_TO_END = 30.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""They end the crawl, which then ends its recorder."""


class RecorderRefused(UserError):
    """The recorder cannot be started, or cannot use its folder; then the message is its own."""


class RecorderProcess:
    """Chooses pages, and records visits. A crawl waits for it only where it has no page to fetch."""

    def __init__(self, config: RecorderConfig, count: Callable[[str, int], None]) -> None:
        """Start the process. `count` gets numbers for the statistics of the crawl."""
        self._config, self._count = config, count
        self._starts = 0
        self._awaited: RecorderMessage | None = None
        """The question that is not answered yet, or the request to end."""
        self._pages: list[str] | None = None
        self._later = list[str]()
        self._is_ready = self._has_ended = self._is_late = False
        self.is_given_up = False
        """Whether the crawl goes on without it."""
        self._begin()

    @property
    def is_asked(self) -> bool:
        """Whether an answer is to come."""
        return self._awaited is not None

    def is_ready(self) -> bool:
        """Whether the frontier is open. Raises `RecorderRefused` if it cannot be."""
        if not self._is_ready:
            _, problem = self._receive(0.0)
            if problem is not None:
                self._stop()
                raise RecorderRefused(problem)
        return self._is_ready

    def ask(self, pages: int, fetching: list[str], most_each: int, rooms: dict[str, int]) -> None:
        """Ask for so many pages, which are chosen after all that was reported before.

        At most so many are of one host, or as many as `rooms` has for it; none that the crawl has begun by itself.
        """
        self._request({"ask": pages, "fetching": fetching, "most_each": most_each, "rooms": rooms})

    def answer(self, waits: bool) -> list[str] | None:
        """Return the pages that were requested. None if they have not come yet.

        With `waits` the crawl waits for them, but not so long that it could not be interrupted.
        """
        longest = _LONGEST_WAIT_SECONDS if waits and not self._is_late else 0.0
        while self._awaited is not None and self._pages is None and self.progress(longest):
            pass
        if self._awaited is not None and self._pages is None:
            if waits and not self._is_late:
                _LOGGER.warning(
                    "opicflow: the recorder, process %d, has not answered for %d seconds: until it does, pages come in "
                    "the order of their requests",
                    self._process.pid,
                    _LONGEST_WAIT_SECONDS,
                )
                self._is_late = True
            return None
        found, self._pages, self._awaited, self._is_late = self._pages or [], None, None, False
        return found

    def take_later(self) -> list[str]:
        """Return the pages that come after others, of all answers since the last call."""
        later, self._later = self._later, []
        return later

    def begin_to_end(self) -> None:
        """Let the recorder take all reports, save, and end."""
        self._request({"end": True})

    def has_saved(self) -> bool | None:
        """Return whether the recorder has saved everything before it ended; None while it has not ended."""
        while self._awaited is not None and not self._has_ended:
            if not self.progress(0.0):
                return None
        if not self.is_given_up:
            self._stop()
        return self._has_ended

    def _begin(self) -> None:
        self._starts += 1
        ours, theirs = socket.socketpair()
        try:
            with WithoutSignals(*_SIGNALS):
                self._process = subprocess.Popen(
                    [sys.executable or "", "-m", _MODULE, self._config.to_json()],
                    stdin=theirs.fileno(),
                    stdout=sys.__stderr__ or subprocess.DEVNULL,  # the output of the crawl is not for others
                    cwd=self._config.folder,  # here no module of the project hides one that the recorder needs
                    env=_environment(),
                )
        except OSError as problem:
            ours.close()
            raise RecorderRefused(
                f"the recorder cannot be started ({sys.executable}: {problem.strerror}): run Scrapy with the Python "
                "that has opicflow"
            ) from None
        finally:
            theirs.close()
        self._lines = LineSocket(ours)

    def _request(self, message: RecorderMessage) -> None:
        if not self.is_given_up:
            self._awaited = message
            self._lines.send(message)

    def progress(self, longest_seconds: float = 0.0) -> bool:
        """Take messages, and start a recorder that has ended again. Returns whether anything has happened."""
        some, problem = self._receive(longest_seconds)
        if problem is None:
            return some
        self._stop()
        if not self._begins_again(problem):
            _LOGGER.error(
                "opicflow: %s: the recorder is not started again. Pages come in the order of their requests, and the "
                "next crawl records the visits that wait in %s",
                problem,
                Path(self._config.folder) / INBOX_NAME,
            )
            self.is_given_up, self._awaited = True, None
        return True

    def _begins_again(self, problem: str) -> bool:
        if self._starts >= _MOST_STARTS:
            return False
        _LOGGER.error("opicflow: %s: the recorder is started again", problem)
        try:
            self._begin()
        except RecorderRefused as refused:
            _LOGGER.error("opicflow: %s", refused)
            return False
        if self._awaited is not None:
            self._lines.send(self._awaited)
        return True

    def _receive(self, longest_seconds: float) -> tuple[bool, str | None]:
        """Take the messages that have come. Returns whether there were some, and why the recorder has ended."""
        try:
            messages = self._lines.receive(longest_seconds)
        except EOFError:
            code = self._wait_for_end()
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            return False, f"the recorder {how}"
        problem = None
        for message in messages:
            problem = message.get("refused", problem)
            self._is_ready |= "ready" in message
            self._has_ended |= "ended" in message
            self._pages = message.get("pages", self._pages)
            self._later += message.get("later", ())
            if "text" in message:
                _LOGGER.log(message["level"], "%s", message["text"])
            if visits := message.get("visits"):
                self._count("opicflow/visits", visits)
            if refused := message.get("visits_refused"):
                self._count("opicflow/visits_refused", refused)
        return bool(messages), problem

    def _stop(self) -> None:
        """Close the socket, which ends the process, and wait for that."""
        self._lines.close()
        self._wait_for_end()

    def _wait_for_end(self) -> int:
        """Return the code of the process, which is ending. One that does not end is killed: its log has all visits."""
        try:
            return self._process.wait(_MOST_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _environment() -> dict[str, str]:
    """Return the environment for a process with another working folder."""
    folders = os.environ.get("PYTHONPATH")
    if not folders:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, folders.split(os.pathsep)))}
