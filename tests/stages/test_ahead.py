"""A generator that runs ahead yields and raises the same as otherwise, and ends when its items are not wanted."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from threading import Thread, get_native_id

import pytest

from opicflow.pipelines.stages import ahead
from opicflow.pipelines.stages.ahead import give_way, run_ahead

SECONDS = 30
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")


def counted(
    upto: int, made: list[int], closed: threading.Event, problem: Exception | None = None
) -> Generator[int, None, None]:
    try:
        for number in range(upto):
            made.append(number)
            yield number
        if problem:
            raise problem
    finally:
        closed.set()


def test_items_come_in_order_and_the_end_closes_their_source() -> None:
    closed = threading.Event()
    assert list(run_ahead(counted(1000, [], closed), 3)) == list(range(1000))
    assert closed.wait(SECONDS)


@pytest.mark.parametrize("upto", [0, 7])
def test_an_error_comes_after_the_items_before_it(upto: int) -> None:
    found, closed = [], threading.Event()
    with pytest.raises(ValueError, match="as it is"):
        for number in run_ahead(counted(upto, [], closed, ValueError("as it is")), 3):
            found.append(number)
    assert found == list(range(upto)) and closed.wait(SECONDS)


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_only_so_many_items_wait_and_closing_ends_the_thread(taken: int) -> None:
    made: list[int] = []
    closed = threading.Event()
    ahead = run_ahead(counted(1000, made, closed), 3)
    for _ in range(taken):
        next(ahead)
    ahead.close()
    assert taken == 0 or closed.wait(SECONDS)  # a generator that was never begun has begun no thread
    assert len(made) <= taken + 6


def niceness() -> int:
    """Return that of this thread: the higher, the more it gives way."""
    return os.getpriority(os.PRIO_PROCESS, get_native_id())


@on_linux
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


@on_linux
def test_where_it_is_not_allowed_a_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: int) -> None:
        raise PermissionError

    monkeypatch.setattr(ahead.os, "setpriority", refuse)
    before = niceness()
    give_way()
    assert niceness() == before
