"""The pace of publications: movers are limited while there are visits, changes to one a minute for each page."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.stages import publication_pace
from opicflow.pipelines.stages.publication_pace import (
    COMPARE_SECONDS,
    LEAST_MS_BETWEEN_CHANGES,
    TICKS_TO_REST,
    ChangePace,
    DueChange,
    MoverPace,
)
from opicflow.schemas.plain_values import read_plain

A_MINUTE = 60
PER_VISIT = 2.0


def publish(pace: MoverPace, second: int, visits: int, pages: int, movers: int) -> int:
    """Tick, and publish of so many movers as many as the pace allows."""
    pace.tick(second, visits, pages, PER_VISIT)
    if not pace.is_due:
        return 0
    published = min(pace.most(pages), movers)
    pace.note(published, movers - published, pages)
    return published


@pytest.mark.parametrize("pages", [1, 30, 5_000, 64_000, 5_000_001])
def test_a_minute_after_the_last_visit_all_movers_are_published(pages: int) -> None:
    pace, visits, random_ = MoverPace(), 0, random.Random(pages)
    for second in range(random_.randint(50, 99)):
        visits += 1 + random_.randrange(pages)
        publish(pace, second, visits, pages, pages)  # at every tick all pages have moved
    left, last = pages, pace.tick_second
    for second in range(last + 1, last + A_MINUTE):
        left -= publish(pace, second, visits, pages, left)
    assert left == 0 and pace.off == 0


def test_a_quiet_log_with_a_tick_in_thirty_seconds_publishes_all_movers_in_two() -> None:
    pace, pages = MoverPace(), 1_000_000
    for second in range(60):
        publish(pace, second, 0, pages, 0)
    assert sum(publish(pace, second, 0, pages, pages) for second in (90,)) > pages // 2
    assert pace.is_going_on


def test_a_log_with_a_tick_in_thirty_seconds_is_at_rest_with_the_second_one_and_an_outage_is_no_rest() -> None:
    pace = MoverPace()
    found = []
    for second, visits in ((0, 5), (30, 9), (60, 9), (90, 9), (4000, 10), (8000, 10), (8001, 10)):
        publish(pace, second, visits, 100, 0)
        found.append(pace.is_at_rest)
    assert found == [False, False, False, True, False, False, False]


@pytest.mark.parametrize("seconds_between_visits", [1, 3])
def test_while_there_are_visits_they_and_time_limit_the_movers(seconds_between_visits: int) -> None:
    pace, pages, sent, hours = MoverPace(), 100_000, 0, 2
    for second in range(3600 * hours + 1):
        sent += publish(pace, second, second // seconds_between_visits, pages, pages)
    visits = 3600 * hours // seconds_between_visits
    limit = PER_VISIT * visits + hours * pages
    assert 0.99 * limit < sent <= limit


def test_no_more_than_all_pages_are_saved_up() -> None:
    pace, pages = MoverPace(), 1000
    for second in range(100):
        publish(pace, second, 1000 * second, pages, 0)
    assert pace.allowance == pages
    pace.tick(100, 10**9, pages, PER_VISIT)
    assert pace.allowance == pages


def test_pages_are_compared_every_ten_seconds_while_few_move() -> None:
    pace, compared = MoverPace(), []
    for second in range(100, 195):
        pace.tick(second, second, 1000, PER_VISIT)
        if pace.is_due:
            compared.append(second)
            pace.note(1, 0, 1000)
    assert compared == list(range(100, 195, COMPARE_SECONDS))


def test_a_tick_that_publishes_all_it_may_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication_pace, "MOVERS_A_SECOND", 10)
    pace = MoverPace(allowance=25.0)
    assert [publish(pace, second, 0, 100, 1000) for second in range(100, 104)] == [10, 10, 5, 0]


def test_a_tick_after_an_outage_is_no_rest() -> None:
    """The events that were sent meanwhile come after it."""
    pace, pages = MoverPace(), 320_000
    for second in range(20):
        publish(pace, second, second + 1, pages, pages)
    assert publish(pace, 3000, 20, pages, pages) <= pages * 3000 / 3600 + 2
    assert not pace.is_at_rest


def test_a_request_publishes_all_pages_as_fast_as_at_rest() -> None:
    pace, pages, left = MoverPace(), 64_000, 64_000
    publish(pace, 0, 1, pages, 0)
    pace.publish_all(pages)
    assert pace.off == pages
    for second in range(1, 40):
        left -= publish(pace, second, second + 1, pages, left)  # visits go on
    assert left == 0


def test_a_pace_that_was_stored_goes_on_alike() -> None:
    random_, one = random.Random(7), MoverPace()
    second = visits = 0
    for _ in range(300):
        second, visits = second + random_.choice([1, 1, 1, 30]), visits + random_.choice([0, 0, 0, 5])
        other = read_plain(MoverPace, asdict(one))
        assert other == one == replace(one)
        movers = random_.randrange(5000)
        assert publish(one, second, visits, 90_000, movers) == publish(other, second, visits, 90_000, movers)
        assert other == one
    assert TICKS_TO_REST > 1 and one.allowance > 0


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([7, 8]), st.sampled_from([1, 20_000, 59_999, 60_000, 200_000])),
        st.sampled_from([1, 30, 60, 90]),  # seconds to a tick
    ),
    max_size=40,
)


@given(steps)
def test_a_page_has_a_record_a_minute_at_most_and_no_change_is_lost(log: list[tuple[int, int] | int]) -> None:
    """Also when the pace is restored from its stored values before every step."""
    pace, now_ms = ChangePace(), 1_000_000
    found: dict[int, list[int]] = defaultdict(lambda: [0])
    published: dict[int, list[DueChange]] = defaultdict(list)
    moments: dict[int, list[int]] = defaultdict(list)

    def publish_due(due: list[DueChange], at_ms: int) -> None:
        for one in due:
            published[one.page].append(one)
            moments[one.page].append(at_ms)

    for step in log:
        pace = read_plain(ChangePace, json.loads(json.dumps(asdict(pace))))
        if isinstance(step, int):
            now_ms = (now_ms // 1000 + step) * 1000
            publish_due(pace.tick(now_ms // 1000), now_ms)
        else:
            page, later_ms = step
            now_ms += later_ms
            found[page].append(len(found[page]))
            change = DueChange(page, now_ms, found[page][-2], found[page][-1])
            publish_due(pace.take([change]), now_ms)
    last_ms = now_ms + LEAST_MS_BETWEEN_CHANGES + 1000
    publish_due(pace.tick(last_ms // 1000), last_ms)
    for page, digests in found.items():
        records = published[page]
        assert sum(one.changes for one in records) == len(digests) - 1
        assert [one.digest_before for one in records] == [0, *(one.digest for one in records[:-1])]
        assert records[-1].digest == digests[-1]
        gaps = [later - earlier for earlier, later in zip(moments[page], moments[page][1:], strict=False)]
        assert all(gap >= LEAST_MS_BETWEEN_CHANGES for gap in gaps)
    pace.tick(last_ms // 1000 + 61)
    assert pace == ChangePace(), "it forgets the pages of earlier minutes"
