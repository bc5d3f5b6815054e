"""Laws of quality: it scales importance where orders are chosen and bandwidth is shared, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import Ledger, LedgerConfig, LogPosition, PolicyEntry, SnapshotRefused
from opicflow.pipelines.ledger.plan.planner import Plan
from opicflow.pipelines.ledger.shards import snapshot as snapshots
from opicflow.schemas.arrays import Floats
from opicflow.schemas.event_columns import BEST_QUALITY, NO_QUALITY, UNKNOWN_QUALITY, quality_of, quality_step
from opicflow.schemas.records import Policy
from support.same_bytes import assert_same_bytes
from support.thorough import crossed
from support.written_crawls import DAY, T0, Crawl, url_of, with_refresh

PAGES = 60
LOW, HALF = quality_step(0.1), quality_step(0.5)


def announce(crawl: Crawl, qualities: dict[int, int]) -> Crawl:
    log = crawl.writer()
    for page, quality in qualities.items():
        log.announcement(crawl.id(page), url=crawl.name(page).encode(), quality=quality)
    crawl.apply(log)
    return crawl


def grown(config: LedgerConfig | None = None) -> Crawl:
    """A crawl of which a third is not read yet."""
    crawl = Crawl(config or with_refresh(bandwidth_per_day=20.0))
    for day in (40, 20, 3):
        log = crawl.writer()
        for page in range(0, PAGES, 2):
            crawl.add_visit(
                log, page, T0 - day * DAY + page, digest=1 + day * (page % 3), links=(1, 7, page + 1, page * 7 % PAGES)
            )
        crawl.apply(log)
    return crawl.tick_at(T0)


def told(crawl: Crawl) -> Floats:
    """The quality of all pages, in slot order."""
    ids, _ = crawl.ledger._reader.live()
    return np.array([crawl.ledger.quality(int(page)) for page in ids])


def fetches(planned: Plan) -> list[Any]:
    """Return the pages that a plan orders, and their times."""
    survey, schedule, orders = planned.survey, planned.schedule, planned.orders
    columns = (orders.rows, orders.why, orders.by, orders.priority, orders.not_before)
    return [
        survey.pages.tolist(),
        schedule.due.tolist(),
        schedule.intervals.tolist(),
        *(one.tolist() for one in columns),
    ]


SOME = {page: (page * 37) % BEST_QUALITY + 1 for page in range(PAGES) if page % 3}


@pytest.mark.parametrize(
    ("strategy", "discovery_by"), crossed(["harmonic", "thesis", "freshness"], ["importance", "found", "learnt"])
)
def test_pages_are_fetched_as_if_they_were_quality_times_as_important(strategy: str, discovery_by: str) -> None:
    config = with_refresh(bandwidth_per_day=20.0, strategy=strategy, discovery_by=discovery_by)
    plain, crawl = announce(grown(config), dict.fromkeys(SOME, UNKNOWN_QUALITY)), announce(grown(config), SOME)
    for one in (plain, crawl):
        one.publish(Policy(url=url_of(3), fetch_now=True), Policy(url=url_of(4), fetch_now=True))
    importance = crawl.ledger.estimate_all().importance
    quality = told(crawl)
    assert 0.0 < quality.min() < 0.5 < quality.max() == 1.0
    found = crawl.ledger.preview(importance=importance)
    assert fetches(found) != fetches(plain.ledger.preview(importance=importance))
    assert (found.survey.importance == importance).all(), "published importance does not change"
    if discovery_by == "learnt":  # what a page is worth by its siblings stays as it is, too
        return
    assert fetches(found) == fetches(plain.ledger.preview(importance=importance * quality))


@pytest.mark.parametrize("discovery_by", ["importance", "learnt"])
def test_a_quality_weighs_as_much_as_the_importance_factor_of_a_policy(discovery_by: str) -> None:
    config = with_refresh(bandwidth_per_day=20.0, discovery_by=discovery_by)
    by_quality, by_policy = grown(config), grown(config)
    announce(by_quality, SOME)
    announce(by_policy, dict.fromkeys(SOME, UNKNOWN_QUALITY))
    by_policy.publish(
        *(Policy(url=url_of(page), importance_factor=quality_of(step)) for page, step in SOME.items() if step > 1)
    )
    found, expected = by_quality.preview(), by_policy.preview()
    assert found.orders.rows.tolist() == expected.orders.rows.tolist()
    for one, other in zip(fetches(found), fetches(expected), strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1)  # the factors of a product come in another order


def test_greedy_orders_go_by_cash_alone() -> None:
    config = with_refresh(bandwidth_per_day=20.0, strategy="greedy", discovery_by="cash")
    plain, crawl = announce(grown(config), dict.fromkeys(SOME, UNKNOWN_QUALITY)), announce(grown(config), SOME)
    assert [*ordered_pages(plain)] == [*ordered_pages(crawl)]


def ordered_pages(crawl: Crawl) -> list[int]:
    planned = crawl.preview()
    return [int(page) for page in planned.survey.pages[planned.orders.rows]]


def test_a_page_of_no_quality_is_not_forbidden_and_comes_last() -> None:
    crawl = grown(with_refresh(bandwidth_per_day=1000.0))
    announce(crawl, {1: quality_step(0.0)})
    unread = [page for page in ordered_pages(crawl) if page in {crawl.id(number) for number in range(1, PAGES, 2)}]
    assert unread[-1] == crawl.id(1)


def test_the_best_quality_or_none_changes_no_byte() -> None:
    plain, best = (announce(grown(), {1: step, 2: step}) for step in (UNKNOWN_QUALITY, BEST_QUALITY))
    assert plain.bytes() == best.bytes()
    announce(plain, {1: UNKNOWN_QUALITY})
    announce(announce(best, {}), {1: LOW})
    assert plain.bytes() != best.bytes()
    back = announce(announce(grown(), {1: LOW}), {1: BEST_QUALITY})
    assert back.bytes() == announce(announce(grown(), {1: UNKNOWN_QUALITY}), {1: UNKNOWN_QUALITY}).bytes()


def test_the_last_quality_wins_and_silence_keeps_it() -> None:
    crawl = grown()
    announce(crawl, {1: LOW})
    crawl.visit(1, T0 + 10, quality=HALF)
    assert crawl.ledger.quality(crawl.id(1)) == quality_of(HALF)
    crawl.visit(1, T0 + 20)
    announce(crawl, {1: UNKNOWN_QUALITY})
    assert crawl.ledger.quality(crawl.id(1)) == quality_of(HALF)
    log = crawl.writer()
    for step in (LOW, HALF, LOW):
        log.announcement(crawl.id(1), quality=step)
    crawl.apply(log)
    assert crawl.ledger.quality(crawl.id(1)) == quality_of(LOW)
    assert crawl.ledger.quality(crawl.id(2)) == 1.0 and crawl.ledger.quality(12345) == 1.0


def test_late_visits_and_duplicates_do_not_change_it() -> None:
    crawl = grown()
    crawl.visit(1, T0 + 10, quality=LOW)
    crawl.visit(1, T0 + 10, quality=HALF)
    crawl.visit(1, T0 + 5, quality=HALF)
    assert crawl.ledger.quality(crawl.id(1)) == quality_of(LOW)


def test_a_page_that_is_removed_and_born_again_has_none() -> None:
    crawl = announce(grown(), {1: LOW, 3: LOW})
    position = crawl.ledger.mark("policies")
    entry = PolicyEntry("policies", position, LogPosition(position.offset + 1, 0), drop=(crawl.id(1),))
    crawl.ledger.apply(entry)
    crawl.see([1000, 1])  # one page has the slot
    assert [crawl.ledger.quality(crawl.id(page)) for page in (1000, 1, 3)] == [1.0, 1.0, quality_of(LOW)]


def test_cash_and_importance_know_nothing_of_it() -> None:
    plain, crawl = grown(), grown()
    announce(plain, dict.fromkeys(SOME, UNKNOWN_QUALITY))
    announce(crawl, SOME)
    for one in (plain, crawl):
        for page in range(PAGES):
            one.visit(page, T0 + page, links=(page * 3 % PAGES, 5))
        one.tick(T0 + DAY)
    assert crawl.ledger.audit() == plain.ledger.audit()
    assert (crawl.ledger.estimate_all().importance == plain.ledger.estimate_all().importance).all()
    assert (crawl.ledger.waiting_cash() == plain.ledger.waiting_cash()).all()


def test_the_same_log_in_any_entries_gives_the_same_bytes() -> None:
    crawl = Crawl()
    log = crawl.writer()
    for number in range(24):
        step = (number * 53) % (BEST_QUALITY + 1)
        crawl.add_visit(log, number % 7, T0 + number % 5, links=(1, 2), quality=step)
    assert_same_bytes(lambda: Crawl().ledger, [log.entry()])


# -- stored quality ----------------------------------------------------------------------------------------------------


def test_a_restored_ledger_plans_as_the_first_and_goes_on() -> None:
    crawl = announce(grown(), SOME)
    other = crawl.restored()
    assert fetches(crawl.preview()) == fetches(other.preview()) and crawl.bytes() == other.bytes()
    for one in (crawl, other):
        announce(one, {1: LOW, 2: BEST_QUALITY})
        one.see(range(500, 700))
        announce(one, {699: HALF})
    assert crawl.bytes() == other.bytes() and other.ledger.quality(other.id(699)) == quality_of(HALF)


@pytest.mark.parametrize("damage", ["short", "best", "nothing", "free slot"])
def test_a_snapshot_with_qualities_that_cannot_be_is_refused(damage: str) -> None:
    crawl = announce(grown(), SOME)
    state, config, columns, *_ = snapshots.read(crawl.bytes())
    quality = columns[snapshots.QUALITY_COLUMN].copy()
    ledger = crawl.ledger
    if damage == "short":
        quality = quality[:-1]
    elif damage == "best":
        quality[0] = BEST_QUALITY
    elif damage == "nothing":
        quality[:] = 0
    else:
        position = ledger.mark("policies")
        ledger.apply(PolicyEntry("policies", position, LogPosition(1, 0), drop=(crawl.id(1),)))
        state, config, columns, *_ = snapshots.read(crawl.bytes())
    judged = {name: columns[name] for name in snapshots.JUDGED_COLUMNS if name in columns}
    chunks = [
        chunk.data for chunk in snapshots.write(state, config, ledger._room.table, ledger._room.book, judged, quality)
    ]
    with pytest.raises(SnapshotRefused) as refused:
        Ledger.restore(chunks)
    assert "qualit" in str(refused.value)


# -- steps -------------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1))
def test_a_step_is_as_near_as_can_be(quality: float) -> None:
    step = quality_step(quality)
    assert 1 <= step <= BEST_QUALITY
    assert abs(quality_of(step) - quality) <= 0.5 / (BEST_QUALITY - 1) + 1e-12


def test_the_ends_are_exact_and_what_is_no_quality_has_no_step() -> None:
    assert quality_of(quality_step(0.0)) == 0.0 and quality_of(quality_step(1.0)) == 1.0
    assert {quality_step(value) for value in (-0.1, 1.0000001, float("nan"), float("inf"))} == {NO_QUALITY}
    assert quality_step(None) == UNKNOWN_QUALITY
