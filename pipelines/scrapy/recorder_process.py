"""The recorder of a crawl, as the crawl sees it: a process that is started, asked, started again, and ended."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opicflow.pipelines.recorder.inbox import INBOX_NAME
from opicflow.pipelines.recorder.line_socket import LineSocket
from opicflow.pipelines.recorder.recorder_config import RecorderConfig
from opicflow.schemas.errors import UserError

_LOGGER = logging.getLogger(__name__)
_MODULE = "opicflow.pipelines.recorder.recorder"
_MOST_STARTS = 4
"""A recorder that ends too early is started again. After so many starts the crawl goes on without."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""They end the crawl, which then ends its recorder."""


class RecorderRefused(UserError):
    """The recorder cannot use its folder. The message is its own."""


class RecorderProcess:
    """Chooses pages, and records visits. A crawl never waits for it, but where it has no page to fetch."""

    def __init__(self, config: RecorderConfig, count: Callable[[str, int], None]) -> None:
        """Start the process. `count` gets numbers for the statistics of the crawl."""
        self._config, self._count = config, count
        self._starts = 0
        self._awaited: dict[str, Any] | None = None
        """The question that is not answered yet, or the request to end."""
        self._pages: list[str] | None = None
        self._is_ready = self._has_ended = self._is_given_up = False
        self._begin()

    @property
    def is_asked(self) -> bool:
        """Whether an answer is to come."""
        return self._awaited is not None

    def wait_until_ready(self) -> None:
        """Wait until the frontier is open. Raises `RecorderRefused` if it cannot be."""
        while not self._is_ready:
            _, problem = self._receive(None)
            if problem is not None:
                self._stop()
                raise RecorderRefused(problem)

    def ask(self, pages: int) -> None:
        """Ask for so many pages, which are chosen after all that was reported before."""
        self._request({"ask": pages})

    def answer(self, waits: bool) -> list[str] | None:
        """Return the pages that were asked for. None if they have not come yet; with `waits` they have."""
        while self._awaited is not None and self._pages is None and self._progress(None if waits else 0.0):
            pass
        if self._awaited is not None and self._pages is None:
            return None
        found, self._pages, self._awaited = self._pages or [], None, None
        return found

    def end(self) -> bool:
        """Let the recorder take all reports and save. Returns whether it has done so."""
        self._request({"end": True})
        while self._awaited is not None and not self._has_ended:
            self._progress(None)
        if not self._is_given_up:
            self._stop()
        return self._has_ended

    def _begin(self) -> None:
        self._starts += 1
        ours, theirs = socket.socketpair()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # the process inherits what is blocked
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, self._config.to_json()],
                stdin=theirs.fileno(),
                stdout=sys.__stderr__ or subprocess.DEVNULL,  # the output of the crawl is not for others
                cwd=self._config.folder,  # here no module of the project hides one that the recorder needs
                env=_environment(),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._lines = LineSocket(ours)

    def _request(self, message: dict[str, Any]) -> None:
        if not self._is_given_up:
            self._awaited = message
            self._lines.send(message)

    def _progress(self, timeout_seconds: float | None) -> bool:
        """Take messages, and start a recorder that has ended again. Returns whether anything has happened."""
        some, problem = self._receive(timeout_seconds)
        if problem is None:
            return some
        self._stop()
        if self._starts < _MOST_STARTS:
            _LOGGER.error("opicflow: the recorder is started again: %s", problem)
            self._begin()
            if self._awaited is not None:
                self._lines.send(self._awaited)
        else:
            _LOGGER.error(
                "opicflow: the recorder is not started again: %s. Pages come in the order of their requests, and the "
                "next crawl records the visits that wait in %s",
                problem,
                Path(self._config.folder) / INBOX_NAME,
            )
            self._is_given_up, self._awaited = True, None
        return True

    def _receive(self, timeout_seconds: float | None) -> tuple[bool, str | None]:
        """Take the messages that have come. Returns whether there were some, and why the recorder has ended."""
        try:
            messages = self._lines.receive(timeout_seconds)
        except EOFError:
            code = self._process.wait()
            return False, f"it was ended by signal {-code}" if code < 0 else f"it has ended with code {code}"
        problem = None
        for message in messages:
            problem = message.get("refused", problem)
            self._is_ready |= "ready" in message
            self._has_ended |= "ended" in message
            self._pages = message.get("pages", self._pages)
            if "text" in message:
                _LOGGER.log(message["level"], "%s", message["text"])
            for name in ("opicflow/visits", "opicflow/visits_refused"):
                if message.get(name):
                    self._count(name, message[name])
        return bool(messages), problem

    def _stop(self) -> None:
        """Close the socket, which ends the process, and wait for that."""
        self._lines.close()
        self._process.wait()


def _environment() -> dict[str, str]:
    """Return the environment for a process with another working folder."""
    folders = os.environ.get("PYTHONPATH")
    if not folders:
        return dict(os.environ)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, folders.split(os.pathsep)))}
