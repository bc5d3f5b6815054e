"""The scheduler asks for pages that are due again at its own pace, whatever the clock of the machine does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from opicflow.pipelines.crawl.scrapy import frontier_scheduler as module
from opicflow.pipelines.crawl.scrapy.frontier_scheduler import FrontierScheduler


def test_a_crawl_that_is_kept_open_asks_for_due_pages_also_after_the_clock_was_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(second=1_800_000_000.0, passed=100.0)
    times = SimpleNamespace(time=lambda: clock.second, monotonic=lambda: clock.passed)
    monkeypatch.setattr(module, "time", times)
    scheduler = FrontierScheduler.__new__(FrontierScheduler)
    scheduler._last_idle_query_at = 0.0
    assert scheduler._is_due_query() and not scheduler._is_due_query()
    clock.second, clock.passed = clock.second - 3600, clock.passed + 6
    assert scheduler._is_due_query() and not scheduler._is_due_query()
