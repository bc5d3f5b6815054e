"""The log of a replay applies batches in order; its outputs do not depend on the division of the events."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import (
    Certified,
    CrawlEntry,
    History,
    Interpolation,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogEntry,
    LogPosition,
    Outcome,
    RemovalReason,
    TickEntry,
)
from opicflow.pipelines.ledger import ledger as ledgers
from opicflow.pipelines.ledger.config import Absorbing
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.ledger.entries import CheckedEntry
from opicflow.pipelines.ledger.errors import EntryRefused
from opicflow.pipelines.replay import early_batches
from opicflow.pipelines.replay.event_clock import answering, hours, rows_of, ticks_in
from opicflow.pipelines.replay.replayed_log import ReplayConfig, ReplayedLog, ReplayedLogFactory
from opicflow.pipelines.stages.decoded_batch import RoutedBatch, first_offset
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.outputs import FINAL_IMPORTANCE, IMPORTANCE, ORDERS, REJECTS, REPORT, SCHEDULE, Output
from opicflow.pipelines.stages.publish import pack_estimates
from opicflow.schemas.columns import unpack
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.pages import page_id

HOUR = 3600
HOUR_MS = 3_600_000
MAY = 1_777_600_800  # the beginning of an hour


def a_log(events: int = 400, pages: int = 60, seed: int = 1) -> CrawlEntry:
    """Return visits with URLs and links, some minutes apart; a few are late, duplicates, or follow a redirect."""
    chance = random.Random(seed)
    urls = [f"https://example.org/{page}".encode() for page in range(pages)]
    ids = [page_id(url) for url in urls]
    log = ItemWriter()
    for event in range(events):
        page = chance.randrange(pages)
        time_ms = (MAY * 1000) + event * 600_000 - (event % 50 == 7) * 9 * HOUR_MS
        log.next_position = LogPosition(2 * event, 0)
        if event % 20 == 3:
            log.visit(ids[(page + 1) % pages], [ids[page]], Outcome.REDIRECTED, time_ms)
            log.next_position = LogPosition(2 * event, 1)
        log.visit(ids[page], [ids[chance.randrange(pages)] for _ in range(3)], time_ms=time_ms, url=urls[page])
        if event % 40 == 11:
            log.visit(ids[page], [], time_ms=time_ms)
    return log.entry("log/x")


def batches(entry: CrawlEntry, cuts: list[int], segments: int = 1) -> list[RoutedBatch]:
    """Divide an entry before these rows, into batches of one or more segments."""
    bounds = [0, *cuts, len(entry.items)]
    batches = []
    for number, (first, last) in enumerate(pairwise(bounds)):
        items = entry.items.rows(first, last)
        start = entry.start if first == 0 else LogPosition(int(items.offset[0]), int(items.within[0]))
        following = entry.items.rows(last, len(entry.items))
        end = LogPosition(int(following.offset[0]), int(following.within[0])) if len(following) else entry.end
        ended = last == len(entry.items)
        segment, part = divmod(number, max(1, len(bounds) // segments))
        is_last = ended or (number + 1) % max(1, len(bounds) // segments) == 0
        offset = first_offset(segment) + part
        following = first_offset(segment + 1) if is_last else offset + 1
        counts = {"events_read": len(np.unique(items.offset))}
        rows = CrawlEntry(entry.source, start, end, items)
        batches.append(RoutedBatch(offset, following, rows, "x", counts, {}, (), is_last, ended))
    return batches


def events_at(entry: CrawlEntry) -> list[int]:
    """Return the first rows of all events."""
    return [0, *(np.flatnonzero(np.diff(entry.items.offset)) + 1).tolist()]


def kept(data: list[RoutedBatch], config: ReplayConfig | None = None) -> tuple[ReplayedLog, list[Output]]:
    log = ReplayedLogFactory(config or ReplayConfig()).new(0)
    return log, [output for batch in data for output in log.take(batch)]


def totals_of(outputs: list[Output]) -> dict[str, Any]:
    """Add up the tallies and collect the samples of all reports."""
    total: dict[str, Any] = {"samples": []}
    for output in outputs:
        if output.kind == REPORT:
            report = json.loads(output.data)
            total["samples"] += report["counts"]["samples"]
            for name, count in report["counts"]["tally"].items():
                total[name] = total.get(name, 0) + count
    return total


def published(outputs: list[Output], kind: str) -> list[tuple[Any, ...]]:
    """Return page, importance and time of all publications, in order."""
    result = []
    for output in outputs:
        if output.kind == kind:
            packed = unpack(output.data)
            pages, importance = packed.columns["pages"].tolist(), packed.columns["importance"].tolist()
            result += [(p, i, packed.values["event_time_ms"]) for p, i in zip(pages, importance, strict=True)]
    return result


CONFIG = ReplayConfig(samples=True, publications=True)


@pytest.mark.parametrize("seed", range(4))
def test_reports_publications_and_ledger_do_not_depend_on_the_division_of_the_log(seed: int) -> None:
    entry = a_log()
    whole, outputs = kept(batches(entry, []), CONFIG)
    chance = random.Random(seed)
    cuts = sorted(chance.sample(events_at(entry)[1:], 13))
    other, others = kept(batches(entry, cuts, segments=3), CONFIG)
    assert [c.data for c in other.ledger.snapshot()] == [c.data for c in whole.ledger.snapshot()]
    assert totals_of(others) == totals_of(outputs)
    assert len(totals_of(outputs)["samples"]) >= 3
    for kind in (IMPORTANCE, FINAL_IMPORTANCE):
        assert published(others, kind) == published(outputs, kind) != []


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_and_repeated_batches_are_applied_once_and_in_order(seed: int) -> None:
    entry = a_log()
    data = batches(entry, events_at(entry)[20::20], segments=2)
    in_order, outputs = kept(data, CONFIG)
    shuffled = [*data, *data[:5]]
    random.Random(seed).shuffle(shuffled)
    keeper, others = kept(shuffled, CONFIG)
    assert keeper.early == {}
    assert [c.data for c in keeper.ledger.snapshot()] == [c.data for c in in_order.ledger.snapshot()]
    assert totals_of(others) == totals_of(outputs)
    assert keeper.head.next == in_order.head.next


@pytest.mark.parametrize("most_bytes", [0, 20_000, 1 << 30])
def test_batches_wait_for_the_first_one_however_many_there_are(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_batches, "MOST_IN_MEMORY_BYTES", most_bytes)
    entry = a_log(events=1500)
    data = batches(entry, events_at(entry)[1:], segments=5)
    assert len(data) > sys.getrecursionlimit() and sum(len(one.to_bytes()) for one in data) > 10 * 20_000
    in_order, outputs = kept(batches(entry, []), CONFIG)
    keeper, others = kept(data[:0:-1], CONFIG)
    assert others == [] and len(keeper.early) == len(data) - 1
    others = list(keeper.take(data[0]))
    assert len(keeper.early) == 0
    assert [c.data for c in keeper.ledger.snapshot()] == [c.data for c in in_order.ledger.snapshot()]
    assert totals_of(others) == totals_of(outputs)


@pytest.mark.parametrize("most_bytes", [0, 4_000, 1 << 30])
def test_a_keeper_continues_from_its_chunks_with_the_batches_that_wait(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_batches, "MOST_IN_MEMORY_BYTES", most_bytes)
    entry = a_log()
    data = batches(entry, events_at(entry)[30::30], segments=2)
    whole, outputs = kept(data, CONFIG)
    first, before = kept([data[0], data[1], data[5], data[4], data[7]], CONFIG)
    second = ReplayedLogFactory(CONFIG).restore(0, first.chunks())
    assert sorted(second.early.items()) == sorted(first.early.items()) and len(second.early) == 3
    assert sorted(second.chunks()) == sorted(first.chunks())
    after = [output for batch in data[2:] for output in second.take(batch)]
    assert [c.data for c in second.ledger.snapshot()] == [c.data for c in whole.ledger.snapshot()]
    assert published(before + after, IMPORTANCE) == published(outputs, IMPORTANCE)
    assert totals_of(before + after) == totals_of(outputs)


def test_notes_without_the_batches_that_wait_are_refused() -> None:
    entry = a_log()
    data = batches(entry, events_at(entry)[30::30])
    keeper, _ = kept([data[0], data[2]])
    with pytest.raises(ValueError, match="batches that wait for their turn are missing"):
        ReplayedLog.from_notes(keeper.config, keeper.ledger, keeper.notes())


def test_ticks_are_at_the_hours_of_event_time_and_never_decrease() -> None:
    log = ItemWriter()
    for minutes in (0, 10, 70, 65, 130, 20, 400):
        log.visit(1, [], time_ms=(MAY + 60 * minutes) * 1000).sighting(2)
    pieces = list(hours(log.items(), -1))
    assert [(piece.first, piece.last) for piece in pieces] == [(0, 4), (4, 8), (8, 12), (12, 14)]
    assert [piece.tick_second for piece in pieces] == [MAY, MAY + HOUR, MAY + 2 * HOUR, MAY + 6 * HOUR]
    again = list(hours(log.items(), MAY + 2 * HOUR))
    assert [(piece.tick_second, piece.first, piece.last) for piece in again] == [
        (None, 0, 12),
        (MAY + 6 * HOUR, 12, 14),
    ]


def test_a_time_at_the_end_of_all_times_is_one_hour() -> None:
    """The millisecond at which the next hour begins is no number of 64 bits."""
    last_ms = (1 << 63) - 1
    items = (
        ItemWriter()
        .visit(1, [], time_ms=last_ms)
        .visit(2, [], time_ms=MAY * 1000)
        .visit(3, [], time_ms=last_ms)
        .items()
    )
    assert [tuple(piece) for piece in hours(items, -1)] == [(last_ms // 1000 // HOUR * HOUR, 0, 3)]


def test_visits_without_a_time_cause_no_ticks() -> None:
    assert [tuple(piece) for piece in hours(ItemWriter().visit(1).sighting(2).items(), -1)] == [(None, 0, 2)]
    assert [tuple(piece) for piece in hours(ItemWriter().items(), MAY)] == [(None, 0, 0)]


def test_the_row_that_answers_is_the_last_visit_of_its_event() -> None:
    log = ItemWriter()
    for position, kind in [((0, 0), "v"), ((0, 1), "v"), ((0, 2), "s"), ((1, 0), "v"), ((2, 0), "a"), ((3, 0), "v")]:
        log.next_position = LogPosition(*position)
        {"v": log.visit, "s": log.sighting, "a": log.announcement}[kind](1)
    assert answering(log.items()).tolist() == [False, True, False, True, False, True]


def test_duplicates_are_counted_by_event_and_not_by_hop() -> None:
    log = ItemWriter()
    for event in range(2):
        for hop, page in enumerate((1, 2, 3)):
            log.next_position = LogPosition(event, hop)
            log.visit(page, [page + 1], time_ms=MAY * 1000)
    _, outputs = kept(batches(log.entry(), []))
    assert totals_of(outputs)["duplicates"] == 1


def test_visits_and_time_limit_the_pages_that_moved() -> None:
    entry = a_log(events=1500, pages=1200)
    few, outputs = kept(batches(entry, []), ReplayConfig(publications=True, records_per_visit=0.2))
    assert few.ledger.visits > 1000
    _, visited = kept(batches(entry, []), ReplayConfig(publications=True, records_per_visit=0.0))
    movers = len(published(outputs, IMPORTANCE)) - len(published(visited, IMPORTANCE))
    hours = (few.ledger.tick_second - MAY) / 3600
    assert 0 < movers <= 0.2 * few.ledger.visits + hours * few.ledger.pages


def test_the_final_importance_is_that_of_the_ledger_ranked_with_sum_1() -> None:
    keeper, outputs = kept(batches(a_log(), []))
    final = published(outputs, FINAL_IMPORTANCE)
    importance = [row[1] for row in final]
    assert importance == sorted(importance, reverse=True)
    assert sum(importance) == pytest.approx(1.0)
    ledger = keeper.ledger
    assert [row[0] for row in final] == ledger.ranked().tolist()
    everything = unpack(pack_estimates(ledger, ledger.estimate(ledger.ranked())))
    assert everything.columns["importance"].tolist() == importance


def test_rows_are_checked_once_a_batch_and_a_bad_row_is_refused_before_any_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[int] = []
    check = ledgers.check_crawl
    monkeypatch.setattr(
        ledgers, "check_crawl", lambda entry, *given: (checked.append(len(entry.items)), check(entry, *given))[1]
    )
    log = a_log()
    some = batches(log, events_at(log)[100:300:50])
    kept(some, CONFIG)
    assert checked == [len(batch.entry.items) for batch in some] and len(some) > 3

    keeper, _ = kept(some[:1], CONFIG)
    before = [chunk.data for chunk in keeper.ledger.snapshot()]
    entry = some[1].entry
    kinds = entry.items.kind.copy()
    kinds[-1] = 77
    with pytest.raises(EntryRefused, match="kind 77"):
        list(keeper.take(some[1]._replace(entry=replace(entry, items=replace(entry.items, kind=kinds)))))
    assert [chunk.data for chunk in keeper.ledger.snapshot()] == before


def test_settled_importance_is_that_of_the_remembered_graph() -> None:
    config = ReplayConfig(ledger=LedgerConfig(remember_links=True), settle=True)
    keeper, outputs = kept(batches(a_log(), []), config)
    settled = keeper.ledger.settle()
    expected = dict(zip(settled.pages.tolist(), settled.importance.tolist(), strict=True))
    final = published(outputs, FINAL_IMPORTANCE)
    assert {page: importance for page, importance, _ in final} == expected
    assert [row[1] for row in final] == sorted(expected.values(), reverse=True)


def a_hard_log(seed: int) -> CrawlEntry:
    """Return visits of two months: hosts are busy, pages fail or are gone for good, times are late or missing."""
    chance = random.Random(seed)
    urls = [f"https://host{page % 9}.example/{page}".encode() for page in range(300)]
    ids = [page_id(url) for url in urls]
    log, second = ItemWriter(), MAY
    for event in range(2_000):
        second += chance.choice((0, 60, 600, 9 * HOUR))
        page = chance.randrange(min(300, 5 + event))
        log.next_position = LogPosition(event, 0)
        outcome = chance.choices((Outcome.FETCHED, Outcome.BUSY, Outcome.FAILED), (8, 1, 1))[0]
        if page % 5 == 0 and event > 500:
            outcome = Outcome.GONE
        late_ms = chance.choice((0, 0, 0, 5 * HOUR_MS))
        time_ms = 1000 * second - late_ms if chance.random() < 0.97 else 0
        targets = [ids[chance.randrange(300)] for _ in range(3)] if outcome == Outcome.FETCHED else []
        log.visit(ids[page], targets, outcome, time_ms, url=urls[page], digest=chance.randrange(1, 9))
    return log.entry("log/x")


@pytest.mark.parametrize("history", [Certified(), Interpolation(), Interpolation(8.0, 3.0), Absorbing()])
@pytest.mark.parametrize("seed", range(2))
def test_ticks_within_an_entry_are_ticks_between_its_parts(seed: int, history: History) -> None:
    remembers = isinstance(history, Certified)
    config = LedgerConfig(history=history, remember_links=remembers, max_pages=150)
    entry, apart, at_once = a_hard_log(seed), Ledger(config), Ledger(config)
    removed, fates, has_waited = [], [], False
    for piece in hours(entry.items, -1):
        if piece.tick_second is not None:
            removed += apart.apply(TickEntry(piece.tick_second)).removed
        fates.append(apart.apply(rows_of(entry, piece.first, piece.last)).fates)
        has_waited |= bool(apart._busy.waits)
    applied = at_once.apply(replace(at_once.checked(entry), ticks=ticks_in(entry.items, -1)))
    assert [chunk.data for chunk in at_once.snapshot()] == [chunk.data for chunk in apart.snapshot()]
    assert applied.fates.tolist() == np.concatenate(fates).tolist()
    assert [(why, pages.tolist()) for why, pages in applied.removed] == [
        (why, pages.tolist()) for why, pages in removed
    ]
    assert {why for why, _ in removed} == {RemovalReason.GONE, RemovalReason.LIMIT}
    assert has_waited


def test_samples_are_taken_within_batches_and_change_nothing() -> None:
    entry = a_hard_log(3)
    quiet, _ = kept(batches(entry, []))
    samples = []
    for cuts in ([], events_at(entry)[1::37], events_at(entry)[5::211]):
        log, outputs = kept(batches(entry, cuts), ReplayConfig(samples=True))
        assert [c.data for c in log.ledger.snapshot()] == [c.data for c in quiet.ledger.snapshot()]
        samples.append(totals_of(outputs))
    assert samples[0] == samples[1] == samples[2] and len(samples[0]["samples"]) >= 3


def test_samples_are_those_of_a_replay_that_publishes_and_goes_hour_by_hour() -> None:
    entry = a_log(1_000)
    (_, at_once), (_, by_hour) = (
        kept(batches(entry, []), ReplayConfig(samples=True, publications=publishes)) for publishes in (False, True)
    )
    assert len(totals_of(at_once)["samples"]) >= 3
    one, other = (
        [(sample["time_ms"], sample["visits"]) for sample in totals_of(each)["samples"]] for each in (at_once, by_hour)
    )
    assert one == other


def test_a_topic_with_the_log_of_a_replay_gives_its_ledger_and_its_publications(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replay makes entries, and a stream reads such entries from a topic: both have one keeper."""
    applied: list[LogEntry] = []
    apply = LedgerKeeper.apply
    monkeypatch.setattr(LedgerKeeper, "apply", lambda keeper, entry: (applied.append(entry), apply(keeper, entry))[1])
    replayed, outputs = kept(batches(a_log(), []), CONFIG)
    assert {type(entry) for entry in applied} == {CheckedEntry, TickEntry}
    monkeypatch.undo()

    records, time_ms = [(0, 0, CONFIG.origin().entry())], 0
    for offset, entry in enumerate(applied, 1):
        time_ms = 1000 * entry.second if isinstance(entry, TickEntry) else time_ms
        records.append((offset, time_ms, encode_entry(entry)))
    keeper = LedgerKeeper(0, visits_per_publication=500)
    others = list(keeper.take(MessageBatch.of(0, records)))
    assert keeper.ledger is not None
    assert [c.data for c in keeper.ledger.snapshot()] == [c.data for c in replayed.ledger.snapshot()]
    for kind in (IMPORTANCE, SCHEDULE, ORDERS):
        assert [one.data for one in others if one.kind == kind] == [one.data for one in outputs if one.kind == kind]
    assert not [one for one in others if one.kind == REJECTS]
