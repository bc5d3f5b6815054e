"""The entries of a router give the same ledgers for any division of its source into batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import (
    CrawlEntry,
    CrawlItems,
    ItemWriter,
    Kind,
    Ledger,
    LedgerConfig,
    LogPosition,
    PolicyEntry,
)
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.stages import shard as shard_module
from opicflow.pipelines.stages.shard import Sharder, SourceState, ToShard
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges

SOURCE = "kafka/topic/0"
CONFIG = LedgerConfig(remembered_visits=1 << 10)
PAGES = [number << 60 | number for number in range(16)]


@dataclass(frozen=True)
class Rows:
    """The events of a source at offsets 0 to `end`, as rows."""

    items: CrawlItems
    end: int

    def between(self, start: int, end: int, seen: set[int] | None = None) -> CrawlItems:
        """Return the rows of the events from `start` to `end`, without sightings of pages in `seen`."""
        first, last = np.searchsorted(self.items.offset, [start, end]).tolist()
        items = self.items.rows(first, last)
        if seen is None:
            return items
        kept = []
        for row, (kind, page) in enumerate(zip(items.kind.tolist(), items.page.tolist(), strict=True)):
            if kind != Kind.SIGHTING or page not in seen:
                kept.append(row)
            if kind == Kind.SIGHTING:
                seen.add(page)
        return items.take(np.array(kept, np.int64))


@st.composite
def sources(draw: st.DrawFn) -> Rows:
    """Make events of some rows each, at increasing offsets."""
    writer = ItemWriter()
    for number in range(draw(st.integers(0, 12))):
        offset = writer.next_position.offset
        for within in range(draw(st.integers(0, 4))):
            writer.next_position = LogPosition(offset, 2 * within)
            page = draw(st.sampled_from(PAGES))
            if draw(st.booleans()):
                links = draw(st.none() | st.lists(st.sampled_from(PAGES), max_size=4))
                writer.visit(page, links, time_ms=1000 * (number + 1), url=b"http://%016x.example/" % page)
            else:
                writer.sighting(page)
        writer.next_position = LogPosition(offset + draw(st.integers(1, 3)), 0)
    return Rows(writer.items(), writer.next_position.offset)


def cuts_of(end: int) -> st.SearchStrategy[list[int]]:
    """Make the ends of the batches of a source."""
    return st.lists(st.integers(0, end), max_size=6).map(lambda ends: [*sorted(ends), end])


def route(
    source: Rows, ends: list[int], shards: int, all_sightings: bool = False, **options: Any
) -> tuple[list[ToShard], SourceState]:
    """Return the entries of a source in these batches, and the state; repeated sightings are left out by default."""
    sharder = Sharder(SOURCE, SourceState.at(0, shards), ShardRanges.equal(shards), **options)
    sent: list[ToShard] = []
    for end in ends:
        sent += sharder.crawl(source.between(sharder.state.next, end, None if all_sightings else set()), end)
    return sent, sharder.state


def entries_for(sent: list[ToShard], shard: int) -> list[Any]:
    return [decode_entry(one.entry) for one in sent if one.shard == shard]


def applied(sent: list[ToShard], shards: int) -> list[Ledger]:
    """Return the ledgers after these entries."""
    ledgers = [Ledger(CONFIG, shard, shards) for shard in range(shards)]
    for shard, entry in sent:
        ledgers[shard].apply(decode_entry(entry))
    return ledgers


def bytes_of(ledger: Ledger) -> list[bytes]:
    return [chunk.data for chunk in ledger.snapshot()]


@given(data=st.data(), source=sources(), shards=st.sampled_from([1, 2, 3, 5]))
def test_a_source_in_any_batches_gives_the_same_ledgers(data: st.DataObject, source: Rows, shards: int) -> None:
    everywhere = {"everywhere_at": source.end}
    whole = applied(route(source, [source.end], shards, **everywhere)[0], shards)
    ends = data.draw(cuts_of(source.end))
    size = data.draw(st.sampled_from([1, 150, 600, 4 << 20]))
    cut = applied(route(source, ends, shards, most_entry_bytes=size, **everywhere)[0], shards)
    assert [bytes_of(ledger) for ledger in whole] == [bytes_of(ledger) for ledger in cut]


@given(data=st.data(), source=sources(), shards=st.sampled_from([1, 2, 3]))
def test_repeated_rows_in_other_batches_change_nothing(data: st.DataObject, source: Rows, shards: int) -> None:
    """A router restarts behind some batch, and divides the rest differently."""
    everywhere = {"everywhere_at": source.end}
    ends = data.draw(cuts_of(source.end))
    back = data.draw(st.integers(0, len(ends)))
    sent, _ = route(source, ends, shards, **everywhere)
    _, state = route(source, ends[:back], shards, **everywhere)
    size = data.draw(st.sampled_from([1, 9999]))
    again = Sharder(SOURCE, SourceState.from_bytes(state.to_bytes()), ShardRanges.equal(shards), source.end, size)
    arrived = sent[: data.draw(st.integers(len(route(source, ends[:back], shards, **everywhere)[0]), len(sent)))]
    for end in data.draw(cuts_of(source.end)):
        if end > again.state.next:
            arrived += again.crawl(source.between(again.state.next, end, set()), end)
    once = applied(sent, shards)
    assert [bytes_of(one) for one in applied(arrived, shards)] == [bytes_of(one) for one in once]


@given(data=st.data(), source=sources(), shards=st.sampled_from([1, 2, 3, 5]))
def test_entries_of_a_log_are_contiguous_and_have_every_row_of_the_shard_once(
    data: st.DataObject, source: Rows, shards: int
) -> None:
    ends = data.draw(cuts_of(source.end))
    size = data.draw(st.sampled_from([1, 400, 4 << 20]))
    sent, state = route(source, ends, shards, all_sightings=True, most_entry_bytes=size)
    owners = ShardRanges.equal(shards).of(source.items.page)
    for shard in range(shards):
        at, visits, rows = LogPosition(0, 0), 0, []
        for entry in entries_for(sent, shard):
            assert isinstance(entry, CrawlEntry) and entry.source == SOURCE
            assert entry.start == at
            at = entry.end
            visits += int((entry.items.kind == Kind.VISIT).sum())
            assert entry.visits_total == visits
            rows += zip(
                entry.items.page.tolist(), entry.items.offset.tolist(), entry.items.within.tolist(), strict=True
            )
        mine = source.items.take(np.flatnonzero(owners == shard))
        assert rows == list(zip(mine.page.tolist(), mine.offset.tolist(), mine.within.tolist(), strict=True))
        assert int(state.sent_to[shard]) == at.offset
        assert int(state.visits[shard]) == visits
    assert state.next == source.end


def test_a_long_entry_is_split_within_an_event() -> None:
    writer = ItemWriter()
    for within in range(10):
        writer.next_position = LogPosition(7, within)
        writer.visit(within + 1, [1, 2, 3], time_ms=1, url=b"http://a.example/" * 4)
    source = Rows(writer.items(), 8)
    sent, _ = route(source, [8], 1, most_entry_bytes=500)
    assert len(sent) > 3
    assert [entry.start for entry in entries_for(sent, 0)][1].offset == 7
    assert max(len(one.entry) for one in sent) < 2000  # the names of columns, and about `most_entry_bytes`
    assert len(route(source, [8], 1, most_entry_bytes=1)[0]) == 10, "at least one row each"


def test_a_shard_that_lags_behind_is_sent_an_empty_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "MOST_OFFSETS_BEHIND", 10)
    source = Rows(ItemWriter().visit(1, []).items(), 30)
    sent, _ = route(source, [5, 10, 15, 20, 30], 2)
    assert [(entry.start.offset, entry.end.offset) for entry in entries_for(sent, 1)] == [(0, 10), (10, 20), (20, 30)]
    assert [(entry.start.offset, entry.end.offset) for entry in entries_for(sent, 0)] == [(0, 5), (5, 15), (15, 30)]


@pytest.mark.parametrize("ends", [[30], [9, 30], [10, 30], [11, 30], [5, 25, 30]])
def test_all_shards_are_sent_an_entry_that_ends_at_everywhere_at(ends: list[int]) -> None:
    source = Rows(ItemWriter().visit(1, []).items(), 30)
    sent, _ = route(source, ends, 3, everywhere_at=10)
    for shard in range(3):
        assert entries_for(sent, shard)[-1].end.offset >= 10
    assert sum(len(entries_for(sent, shard)) for shard in (1, 2)) == 2, "and only one"


def test_offsets_before_the_start_of_a_source_are_not_missing() -> None:
    writer = ItemWriter(LogPosition(1000, 0))
    source = Rows(writer.visit(1, [], time_ms=1).items(), 1001)
    sharder = Sharder(SOURCE, SourceState.at(1000, 2), ShardRanges.equal(2), everywhere_at=1000)
    ledgers = applied(list(sharder.crawl(source.between(1000, 1001, set()), 1001)), 2)
    assert [ledger.mark(SOURCE) for ledger in ledgers] == [LogPosition(1001, 0)] * 2
    assert ledgers[0].visits == 1


@given(
    next_=st.integers(0, 2**62),
    sent_to=st.lists(st.integers(0, 2**62), min_size=1, max_size=5),
    rules=st.text(max_size=20),
)
def test_the_state_of_a_source_is_read_back_from_bytes(next_: int, sent_to: list[int], rules: str) -> None:
    sent = np.array(sent_to, np.int64)
    state = SourceState(next_, sent, sent[::-1].copy(), rules)
    back = SourceState.from_bytes(state.to_bytes())
    assert (back.next, back.rules) == (next_, rules)
    np.testing.assert_array_equal(back.sent_to, state.sent_to)
    np.testing.assert_array_equal(back.visits, state.visits)


POLICIES = [(offset, Policy(publisher=f"p{offset}", damping=0.5)) for offset in (0, 1, 4, 7)]


def publish(ends: list[int], everywhere_at: int = -1) -> list[ToShard]:
    sharder, sent = Sharder("policies", SourceState.at(0, 2), ShardRanges.equal(2), everywhere_at), []
    for end in ends:
        start = sharder.state.next
        sent += sharder.policies([one for one in POLICIES if start <= one[0] < end], end)
    return sent


@given(ends=cuts_of(12), everywhere_at=st.integers(-1, 12))
def test_policies_in_any_batches_give_the_same_entries_one_each(ends: list[int], everywhere_at: int) -> None:
    sent = publish(ends, everywhere_at)
    assert sent == publish([12], everywhere_at)
    for shard in range(2):
        entries = entries_for(sent, shard)
        assert all(isinstance(entry, PolicyEntry) for entry in entries)
        assert [one.policies[0] for one in entries if one.policies] == [policy for _, policy in POLICIES]
        positions = [LogPosition(0, 0), *(entry.end for entry in entries)]
        assert [entry.start for entry in entries] == positions[:-1]
        assert positions[-1].offset == max(8, everywhere_at), "all shards have reached the offset"
