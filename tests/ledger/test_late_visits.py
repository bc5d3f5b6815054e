"""Late visits: in whatever order the visits of a page arrive, what the newest ones found holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opicflow.pipelines.ledger import (
    All,
    Certified,
    Fate,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    PageLink,
    SnapshotRefused,
    TickEntry,
)
from opicflow.pipelines.ledger.pages.refresh_rows import field_of
from support.same_bytes import assert_same_bytes
from support.thorough import thorough

WEB = [1, 2, 3, 1 << 63, (1 << 63) + 1]
"""Pages of both of two shards."""
CERTIFIED = LedgerConfig(Certified(), class_weights=(16, 16, 32, 16), link_bonus_per_1024=(0, 0))
MEMORY = LedgerConfig(remember_links=True, class_weights=(16, 16, 32, 16), link_bonus_per_1024=(0, 0))
NO_MEMORY = LedgerConfig(All(), class_weights=(16, 16, 32, 16), link_bonus_per_1024=(0, 0))
CONFIGS = pytest.mark.parametrize("config", [CERTIFIED, MEMORY, NO_MEMORY], ids=["certified", "memory", "no memory"])
DAY_MS = 86_400_000
NO_ANSWERS = (Outcome.FAILED, Outcome.BLOCKED, Outcome.BUSY)


class Visit(NamedTuple):
    page: int
    time_ms: int
    outcome: Outcome = Outcome.FETCHED
    links: tuple[int, ...] | None = ()
    digest: int = 0

    @property
    def has_links(self) -> bool:
        return self.links is not None and self.outcome not in (*NO_ANSWERS, Outcome.GONE)


class Page(NamedTuple):
    """The facts that a ledger keeps of a page, whatever the order of its visits."""

    visits: int
    last_visit_ms: int
    outcome: int
    class_: int
    links: dict[int, int]
    digest: int


def category_of(page: int) -> int:
    """Return the category of a page, as URL patterns give it."""
    return page & 1


def write(log: ItemWriter, visits: Sequence[Visit]) -> ItemWriter:
    for visit in visits:
        links = None if visit.links is None else [PageLink(to, 1024, category_of(to)) for to in visit.links]
        log.visit(visit.page, links, visit.outcome, visit.time_ms, category_of(visit.page), digest=visit.digest)
    return log


def apply(ledger: Ledger, visits: Sequence[Visit]) -> list[int]:
    """Apply visits, and return their fates."""
    start = ledger.mark("crawl")
    return ledger.apply(write(ItemWriter(start), visits).entry(start=start)).fates.tolist()


def crawled(visits: Sequence[Visit], config: LedgerConfig = CERTIFIED) -> Ledger:
    ledger = Ledger(config)
    apply(ledger, visits)
    assert ledger.audit().drift == 0
    return ledger


def pages_of(ledger: Ledger) -> dict[int, Page]:
    known = ledger.estimate_all()
    slots = ledger._reader.slots_of(known.pages)
    classes, digests = ledger._room.table.pages["class_"][slots], field_of(ledger._room.table, "digest", slots)
    starts, targets, weights = [0] * (len(slots) + 1), np.empty(0, np.uint64), np.empty(0, np.uint16)
    if ledger.config.remember_links:
        starts, targets, weights = ledger.remembered(known.pages)
    return {
        page: Page(
            int(known.visits[row]),
            int(known.last_visit_ms[row]),
            int(known.last_outcome[row]),
            int(classes[row]),
            dict(zip(targets[first:last].tolist(), weights[first:last].tolist(), strict=True)),
            int(digests[row]),
        )
        for row, (page, first, last) in enumerate(zip(known.pages.tolist(), starts, starts[1:], strict=False))
    }


outcomes = st.sampled_from([*[Outcome.FETCHED] * 4, *(one for one in Outcome if one != Outcome.NONE)])
links = st.none() | st.lists(st.sampled_from(WEB), max_size=3, unique=True).map(tuple)
# Times of one second, of a few, and of some days: what a visit finds is in the order of milliseconds.
times = st.integers(1, 1500) | st.integers(1, 9).map(lambda day: day * DAY_MS)
visits = st.builds(Visit, st.sampled_from(WEB), times, outcomes, links, st.sampled_from([0, 7, 8, 1 << 40]))
crawls = st.lists(visits, min_size=1, max_size=12, unique_by=lambda visit: (visit.page, visit.time_ms))


def newest(visits: Sequence[Visit]) -> Visit | None:
    return max(visits, key=lambda visit: visit.time_ms, default=None)


def expected(visits: Sequence[Visit], page: int) -> Page:
    """Return what is known of a page, by the rules of docs/reference/ledger.md."""
    own = [visit for visit in visits if visit.page == page]
    last = newest(own)
    of_links = newest([visit for visit in own if visit.has_links or visit.outcome == Outcome.GONE])
    of_content = newest([visit for visit in own if visit.outcome not in (*NO_ANSWERS, Outcome.UNCHANGED)])
    has_digest = of_content is not None and of_content.outcome in (Outcome.FETCHED, Outcome.ALIASED)
    return Page(
        len(own),
        last.time_ms if last else 0,
        int(last.outcome) if last else 0,
        2 * category_of(page) + any(visit.outcome not in NO_ANSWERS for visit in own),
        {to: 1024 for to in of_links.links or () if to != page} if of_links and of_links.has_links else {},
        (of_content.digest ^ of_content.digest >> 32) & 0xFFFFFFFF if of_content and has_digest else 0,
    )


def check_any_order(config: LedgerConfig, log: list[Visit], order: list[Visit]) -> None:
    known = {visit.page for visit in log} | {to for visit in log if visit.has_links for to in visit.links or ()}
    in_time, ledger = crawled(sorted(log, key=lambda visit: visit.time_ms), config), crawled(order, config)
    found = {page: expected(log, page) for page in known}
    if not config.remember_links:
        found = {page: of._replace(links={}) for page, of in found.items()}
    assert pages_of(ledger) == pages_of(in_time) == found
    if config == CERTIFIED:
        one, other = ledger.settle(1e-9), in_time.settle(1e-9)
        ranks = [dict(zip(of.pages.tolist(), of.importance.tolist(), strict=True)) for of in (one, other)]
        assert sum(abs(ranks[0][page] - ranks[1][page]) for page in known) <= one.certificate + other.certificate


@pytest.mark.thorough
@CONFIGS
def test_visits_in_any_order_lead_to_the_same_pages(config: LedgerConfig) -> None:
    @settings(max_examples=thorough(30, 1000))
    @given(crawls.flatmap(lambda log: st.tuples(st.just(log), st.permutations(log))))
    def check(case: tuple[list[Visit], list[Visit]]) -> None:
        check_any_order(config, *case)

    check()


def moved(by: int) -> list[Visit]:
    """Return a crawl of a small web, of which 500 visits link to page 7 alone; these are older `by` so many ms."""
    chance = random.Random(1)
    pages = range(1, 601)
    log = [Visit(page, DAY_MS + page, links=tuple(chance.sample(pages, 5))) for page in pages]
    return log + [Visit(page, DAY_MS + page - by, links=(7,)) for page in pages[100:]]


def test_500_older_visits_with_one_link_each_move_no_importance() -> None:
    before, late, newer = (crawled(log).settle() for log in (moved(by=1000)[:600], moved(by=1000), moved(by=-1000)))
    assert (before.pages == late.pages).all()
    assert np.abs(before.importance - late.importance).sum() <= before.certificate + late.certificate
    of_page = [float(settled.importance[settled.pages == 7][0]) for settled in (before, newer)]
    assert of_page[1] > 10 * of_page[0], "newer links move it"


@CONFIGS
def test_a_log_that_is_sent_again_when_its_visits_are_forgotten_changes_nothing(config: LedgerConfig) -> None:
    """Beyond the remembered visits, a repeated visit is a late one."""
    chance = random.Random(3)
    kinds = [*[Outcome.FETCHED] * 6, *Outcome][: 6 + len(Outcome)]
    log = [
        Visit(page, number * DAY_MS, chance.choice(kinds[:-1]), tuple(chance.sample(WEB, 2)), chance.randrange(1, 9))
        for number in range(1, 60)
        for page in WEB
        if chance.random() < 0.7
    ]
    log = [visit for visit in log if visit.outcome != Outcome.NONE]
    ledger = Ledger(LedgerConfig(**{**vars(config), "remembered_visits": 2}))
    apply(ledger, log)
    before, rows = pages_of(ledger), refresh_rows(ledger)
    fates = apply(ledger, log)
    assert fates.count(Fate.LATE) > len(log) // 2
    assert set(fates) == {Fate.LATE, Fate.DUPLICATE}
    assert {page: of._replace(visits=0) for page, of in pages_of(ledger).items()} == {
        page: of._replace(visits=0) for page, of in before.items()
    }
    assert refresh_rows(ledger) == rows, "no digest, no interval and no failure"


def refresh_rows(ledger: Ledger) -> list[bytes]:
    table, slots = ledger._room.table, ledger._reader.slots_of(np.array(WEB, np.uint64))
    return [table.refresh[table.refresh_row[slot]].tobytes() for slot in slots]


@CONFIGS
def test_visits_without_times_hold_in_the_order_of_the_log(config: LedgerConfig) -> None:
    log = [Visit(1, 5000, links=(2,)), Visit(1, 0, Outcome.REDIRECTED, links=(3,)), Visit(1, 4000, links=(2,))]
    for length, links, outcome in [(1, {2: 1024}, Outcome.FETCHED), (2, {3: 1024}, Outcome.REDIRECTED)]:
        page = pages_of(crawled(log[:length], config))[1]
        assert page.outcome == outcome
        assert page.links == (links if config.remember_links else {})
    page = pages_of(crawled(log, config))[1]
    assert page.outcome == Outcome.REDIRECTED, "the visit at 4000 is older than that at 5000"
    assert page.links == ({3: 1024} if config.remember_links else {})
    page = pages_of(crawled([*log, Visit(1, 6000, links=(2,))], config))[1]
    assert page.outcome == Outcome.FETCHED
    assert page.links == ({2: 1024} if config.remember_links else {})


@CONFIGS
def test_late_visits_in_any_pieces_make_the_same_bytes(config: LedgerConfig) -> None:
    chance = random.Random(7)
    pages = [*WEB, *range(10, 40)]
    log = [
        Visit(
            chance.choice(pages),
            chance.randrange(1, 10**9),
            chance.choice([*Outcome][1:]),
            tuple(chance.sample(pages, 3)),
        )
        for _ in range(400)
    ]
    entries = []
    for first in range(0, 400, 100):
        start = LogPosition(first, 0)
        entries += [write(ItemWriter(start), log[first : first + 100]).entry(start=start), TickEntry(first * 3600)]
    assert_same_bytes(lambda: Ledger(config), entries, lambda ledger, entry: ledger.audit())


def test_a_page_that_was_removed_and_is_born_again_has_no_times() -> None:
    ledger = crawled([Visit(1, 5000, links=(2,), digest=7), Visit(2, 5000, links=(1,))])
    ledger._removal.drop(np.array([1], np.uint64))
    apply(ledger, [Visit(1, 4000, links=(3,), digest=8)])
    page = pages_of(ledger)[1]
    assert (page.last_visit_ms, page.links, page.digest) == (4000, {3: 1024}, 8)
    assert ledger.audit().drift == 0


def test_times_of_a_wrong_clock_hold_off_no_visit_and_possible_times_still_hold() -> None:
    ledger = Ledger(CERTIFIED)
    ledger.apply(TickEntry(100 * 86_400))
    now = 100 * DAY_MS
    apply(ledger, [Visit(1, now, links=(2,), digest=7)])
    apply(ledger, [Visit(1, now + 30 * DAY_MS, Outcome.FAILED), Visit(1, now - 1000, links=(3,), digest=8)])
    page = pages_of(ledger)[1]
    assert (page.last_visit_ms, page.links, page.digest) == (now, {2: 1024}, 7)
    apply(ledger, [Visit(2, now + 30 * DAY_MS, links=(1,), digest=7), Visit(2, now, links=(3,), digest=8)])
    page = pages_of(ledger)[2]
    assert (page.last_visit_ms, page.links, page.digest) == (now, {3: 1024}, 8)


def test_a_late_visit_that_is_later_than_all_answers_is_an_observation() -> None:
    first, changed, failed = (
        Visit(1, DAY_MS, digest=7),
        Visit(1, 3 * DAY_MS, digest=8),
        Visit(1, 4 * DAY_MS, Outcome.FAILED),
    )
    in_time, late = crawled([first, changed, failed]), crawled([first, failed, changed])
    names = ("intervals", "digest", "checked", "failures", "earlier", "content_ms", "links_ms")
    one, other = (ledger._room.table.refresh[list(names)][1].tolist() for ledger in (in_time, late))
    assert one == other
    assert one[0] != 0


@pytest.mark.parametrize("name", ["links_ms", "content_ms"])
def test_a_snapshot_with_a_time_before_1970_is_refused(name: str) -> None:
    ledger = crawled([Visit(1, 5000, links=(2,))])
    ledger._room.table.refresh[name][1] = -1
    with pytest.raises(SnapshotRefused, match="visited before 1970"):
        Ledger.restore(chunk.data for chunk in ledger.snapshot())
