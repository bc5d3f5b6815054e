"""A generator that runs ahead yields and raises the same as otherwise, and ends when its items are not wanted."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from opicflow.pipelines.stages.ahead import run_ahead

SECONDS = 30


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
