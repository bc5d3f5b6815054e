"""Threads that work ahead give way to the one that everything waits for."""

from __future__ import annotations

import os
import sys
from threading import Thread, get_native_id

import pytest

from opicflow.pipelines.stages import background
from opicflow.pipelines.stages.background import give_way

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")


def niceness() -> int:
    """Return that of this thread: the higher, the more it gives way."""
    return os.getpriority(os.PRIO_PROCESS, get_native_id())


def test_a_thread_gives_way_and_the_others_do_not() -> None:
    seen: list[int] = []

    def run() -> None:
        give_way()
        seen.append(niceness())

    before = niceness()
    thread = Thread(target=run)
    thread.start()
    thread.join()
    assert seen[0] > before or before == 19
    assert niceness() == before


def test_where_it_is_not_allowed_a_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: int) -> None:
        raise PermissionError

    monkeypatch.setattr(background.os, "setpriority", refuse)
    before = niceness()
    give_way()
    assert niceness() == before
