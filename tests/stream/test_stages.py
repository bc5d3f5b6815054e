"""The stages of the stream without a runner. docs/guides/operations.md names all their options and metrics."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.connectors.kafka.partitions import PartitionRange
from opicflow.connectors.kafka.polls import UNKNOWN_END, Ends, WatchedTopic
from opicflow.connectors.kafka.sink import Message
from opicflow.connectors.runs import close_run
from opicflow.pipelines.cli.parser import build_parser
from opicflow.pipelines.ledger import CrawlEntry, Kind, LedgerConfig, PolicyEntry, TickEntry
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.stages.keepers import LostLedger
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper, LedgerKeeperFactory, request_fingerprint
from opicflow.pipelines.stages.log_head import LogHead
from opicflow.pipelines.stages.log_settings import Continuation, Origin
from opicflow.pipelines.stages.outputs import APPLIED, REJECTS
from opicflow.pipelines.stages.rules import Categories, LinkWeights, Rules
from opicflow.pipelines.stream import ledgers
from opicflow.pipelines.stream.clock import PollClock, WriteTicks
from opicflow.pipelines.stream.ledgers import KeepLogLedger
from opicflow.pipelines.stream.published_rules import ControlUnknown, RulesNote, control_record, first_rules
from opicflow.pipelines.stream.routers import RouteEvents, RoutePolicies, RouterConfig
from opicflow.pipelines.stream.submit import FlinkJob, checkpoint_folder, newest_checkpoint
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.pages import PageIds, page_id
from opicflow.schemas.public_suffixes import PublicSuffixes
from opicflow.schemas.shards import ShardRanges
from opicflow.schemas.urls import UrlRules
from support.paths import TOP
from support.stages import UNUSED, FakeReader, batch, watched
from support.stream_state import Bag, Value

OPERATIONS = (TOP / "docs" / "guides" / "operations.md").read_text(encoding="utf-8")
SHARDS = 4
ORIGIN = Origin(LedgerConfig(), ShardRanges.equal(SHARDS))
ONE_SHARD = Origin(LedgerConfig(), ShardRanges())
CONFIG = RouterConfig(UNUSED, "page-ledger", "rejects", lambda: ORIGIN, lambda: ())


def event(number: int, links: Iterable[str] = ()) -> bytes:
    return json.dumps({"url": f"https://a.example/{number}", "status": 200, "links": list(links)}).encode()


class RoutingStage:
    """A router and its state, which another object may continue with."""

    def __init__(
        self,
        start: int = 0,
        kind: type[Any] = RouteEvents,
        notes: Iterable[RulesNote] = (),
        continues: Continuation | None = None,
        begun: Origin = ORIGIN,
    ) -> None:
        origin = replace(begun, continues=continues)
        config = replace(CONFIG, notes=lambda: list(notes), origin=lambda: origin)
        self.router, self.cell = kind(config, watched(start)), Value()
        self.router.setup()

    def route(self, messages: MessageBatch, partition: int = 0) -> list[Message]:
        self.router._reader = FakeReader(messages)
        return list(self.router.process((partition, (0.0, UNKNOWN_END)), self.cell))


def crawled(messages: Iterable[Message]) -> list[tuple[int | None, CrawlEntry]]:
    entries = [(m.partition, decode_entry(m.value or b"")) for m in messages if m.topic == "page-ledger"]
    assert all(isinstance(entry, CrawlEntry) for _, entry in entries)
    return entries  # type: ignore[return-value]


def visited(messages: Iterable[Message]) -> list[int]:
    return sorted(int(page) for _, e in crawled(messages) for page in e.items.page[e.items.kind == 0])


# -- routing


def test_logs_that_continue_others_are_sent_what_the_others_had_not() -> None:
    """Entries begin where the others ended, also if that is deleted; a source that they did not know, at 0."""
    source = watched(0).partition(0).source
    for start, sources, begins in ((0, {source: 5}, 5), (7, {source: 5}, 5), (0, {"another/0": 5}, 0)):
        stage = RoutingStage(start, continues=Continuation("old", "id", (), sources))
        first = max(start, sources.get(source, 0))
        entries = [entry for _, entry in crawled(stage.route(batch(first, [event(1)])))]
        assert {(entry.start.offset, entry.counted_from) for entry in entries} == {(begins, first)}
    policies = RoutingStage(0, RoutePolicies, continues=Continuation("old", "id", (), {source: 3}))
    (policy,) = {
        (entry.start.offset, entry.end.offset)
        for message in policies.route(batch(3, [b'{"host": "a.example", "importance_factor": 2}']))
        for entry in [decode_entry(message.value or b"")]
        if isinstance(entry, PolicyEntry)
    }
    assert policy == (3, 4)


def test_each_partition_sends_the_urls_that_its_events_link_to() -> None:
    """A bundle's entry of partition 1 arrived, that of partition 0 did not: both are routed again, 1 first."""
    linked, found = page_id("https://linked.example/"), []
    routing = RoutingStage()
    for partition in (1, 0):
        routing.cell = Value()
        routed = routing.route(batch(0, [event(partition, ["https://linked.example/"])]), partition)
        sightings = [int(page) for _, e in crawled(routed) for page in e.items.page[e.items.kind == Kind.SIGHTING]]
        found.append(sightings.count(linked))
        assert routing.route(batch(1, [event(2, ["https://linked.example/"])]), partition)
    assert found == [1, 1], "the ledger drops the entry of partition 1, so it needs the URL in that of 0"


def test_a_topic_that_was_created_again_is_read_from_its_beginning_by_the_same_rules() -> None:
    stage = RoutingStage()
    stage.route(batch(0, [control_record(Rules(urls=UrlRules(fold_www=True))), event(1), event(2)]))
    again = RoutingStage()
    again.cell = stage.cell
    again.router._topic = WatchedTopic(
        tuple(replace(one, source="kafka/other/0") for one in again.router._topic.partitions)
    )
    www = b'{"url": "https://www.a.example/3", "status": 200, "links": []}'
    entries = crawled(again.route(batch(0, [www, event(4)])))
    assert {entry.source for _, entry in entries} == {"kafka/other/0"}
    assert {int(entry.start.offset) for _, entry in entries} == {0}
    assert sum(entry.visits_total or 0 for _, entry in entries) == 2
    pages = sorted(int(page) for _, e in entries for page in e.items.page[e.items.kind == 0])
    assert pages == sorted(page_id(f"https://a.example/{number}") for number in (3, 4))


def test_visits_go_to_the_shards_of_their_pages_and_rejects_to_their_topic() -> None:
    routed = RoutingStage().route(batch(0, [event(1), b"nonsense", event(2), event(3)]))
    assert visited(routed) == sorted(page_id(f"https://a.example/{number}") for number in (1, 2, 3))
    for shard, entry in crawled(routed):
        assert set(ShardRanges.equal(SHARDS).of(entry.items.page).tolist()) <= {shard}
        assert (entry.source, entry.start.offset, entry.end.offset) == ("kafka/id/0", 0, 4)
    (reject,) = [message for message in routed if message.topic == "rejects"]
    assert reject.key == b"topic/0:1" and b"nonsense" in (reject.value or b"")


def test_a_router_continues_at_the_offset_in_its_state() -> None:
    routing = RoutingStage()
    assert routing.route(batch(6, [event(6)])) == []
    assert visited(routing.route(batch(0, [event(0), event(1), event(2)]))) == pages(0, 1, 2)
    assert routing.route(batch(0, [event(0)])) == []
    again = RoutingStage()
    again.cell = routing.cell
    assert visited(again.route(batch(3, [event(3)]))) == pages(3)


def test_a_partition_begins_at_the_offset_of_the_start() -> None:
    routing = RoutingStage(start=100)
    assert visited(routing.route(batch(100, [event(100), event(101)]))) == pages(100, 101)
    (entry,) = {
        (entry.start.offset, entry.end.offset) for _, entry in crawled(RoutingStage(100).route(batch(100, [event(0)])))
    }
    assert entry == (0, 101), "earlier offsets are not missing"


def test_a_url_is_sent_once_until_a_bundle_fails_or_another_worker_continues() -> None:
    routing = RoutingStage()
    link = "https://b.example/"

    def sent(messages: list[Message]) -> int:
        return sum(e.items.url_bytes.tobytes().count(link.encode()) for _, e in crawled(messages))

    assert sent(routing.route(batch(0, [event(0, [link]), event(1, [link])]))) == 1
    assert sent(routing.route(batch(2, [event(2, [link])]))) == 0
    again = RoutingStage()
    again.cell = routing.cell
    assert sent(again.route(batch(3, [event(3, [link])]))) == 1


def pages(*numbers: int) -> list[int]:
    return sorted(page_id(f"https://a.example/{number}") for number in numbers)


def ledger_of(entries: Iterable[bytes]) -> LedgerKeeper:
    """Return the ledger of a log with these entries, none of which is refused."""
    keeper = LedgerKeeper(0)
    log = [ONE_SHARD.entry(), *entries]
    outputs = list(keeper.take(MessageBatch.of(0, [(offset, 1000, value) for offset, value in enumerate(log)])))
    assert not [one.data for one in outputs if one.kind == REJECTS]
    return keeper


@pytest.mark.xfail(strict=True, reason="policies come first in a rebuild: docs/decisions/reshard.md")
def test_a_rebuild_keeps_the_order_of_policies_and_events() -> None:
    visit = [m.value or b"" for m in RoutingStage(begun=ONE_SHARD).route(batch(0, [event(1)]))]
    dropped = batch(0, [b'{"url": "https://a.example/1", "drop": true}'])
    policy = [m.value or b"" for m in RoutingStage(kind=RoutePolicies, begun=ONE_SHARD).route(dropped)]
    old, rebuilt = ledger_of([*visit, *policy]), ledger_of([*policy, *visit])
    assert old.ledger is not None and rebuilt.ledger is not None
    assert rebuilt.ledger.ranked().tolist() == old.ledger.ranked().tolist()


def test_an_event_of_the_far_future_is_routed() -> None:
    """It may be routed again at any time, and must be sent again then: its ledger judges its time."""
    far = json.dumps({"url": "https://a.example/9", "status": 200, "fetched_at": "2099-01-01T00:00:00Z"}).encode()
    routed = RoutingStage().route(batch(0, [event(1), far]))
    assert visited(routed) == sorted(page_id(f"https://a.example/{number}") for number in (1, 9))
    assert [message for message in routed if message.topic == "rejects"] == []


# -- control records


def test_rules_apply_from_their_record_on_for_this_partition_also_after_a_restart() -> None:
    rules = Rules(UrlRules(fold_www=True))
    url = b'{"url": "https://www.c.example/", "status": 200, "links": []}'
    routing = RoutingStage()
    routed = routing.route(batch(0, [url, control_record(rules), url]))
    assert visited(routed) == sorted([page_id("https://www.c.example/"), page_id("https://c.example/")])
    assert [message for message in routed if message.topic == "rejects"] == []
    again = RoutingStage()
    again.cell = routing.cell
    assert visited(again.route(batch(3, [url]))) == [page_id("https://c.example/")]


@pytest.mark.parametrize(
    "record",
    [
        b'{"opicflow-control":{"version":2,"rules":{}}}',
        b'{"opicflow-control":{"version":1,"rules":{},"shards":32}}',
        b'{"opicflow-control":{"version":1,"rules":{"urls":3}}}',
        b'{"opicflow-control":soup}',
        control_record(Rules(categories=Categories(by_media=True))),
    ],
)
def test_an_unsupported_control_record_stops_the_router_with_its_reason(record: bytes) -> None:
    with pytest.raises(ControlUnknown, match=r"^topic, offset 1: a control record that this opicflow does not support"):
        RoutingStage().route(batch(0, [event(0), record]))


def test_an_event_that_looks_like_a_control_record_is_an_event() -> None:
    looks = b'{"opicflow-contrary": 1, "url": "https://d.example/", "status": 200, "links": []}'
    assert visited(RoutingStage().route(batch(0, [looks]))) == [page_id("https://d.example/")]


def test_rules_of_links_are_read_back_completely() -> None:
    rules = Rules(UrlRules(drop_parameters=("a*",)), LinkWeights(internal=0.5))
    record = control_record(rules)
    assert Rules.from_json(json.loads(record)["opicflow-control"]["rules"], PageIds()) == rules


WWW = b'{"url": "https://www.c.example/", "status": 200, "links": []}'
FOLDED, UNFOLDED = Rules(UrlRules(fold_www=True)), Rules()


def note(rules: Rules, *offsets: int, topic: str = "id") -> RulesNote:
    return RulesNote(rules.to_json(), topic, offsets)


def test_a_partition_that_was_added_after_rules_were_published_begins_with_them_and_keeps_them() -> None:
    added = RoutingStage(notes=[note(FOLDED, 7)])
    assert visited(added.route(batch(0, [WWW]), partition=1)) == [page_id("https://c.example/")]
    later = RoutingStage(notes=[note(FOLDED, 7), note(UNFOLDED, 9, 1)])  # it has a record of these
    later.cell = added.cell
    assert visited(later.route(batch(1, [WWW]), partition=1)) == [page_id("https://c.example/")]


def test_a_partition_without_its_oldest_events_begins_with_the_rules_that_were_among_them() -> None:
    assert visited(RoutingStage(5, notes=[note(FOLDED, 4)]).route(batch(5, [WWW]))) == [page_id("https://c.example/")]
    assert visited(RoutingStage(5, notes=[note(FOLDED, 5)]).route(batch(5, [WWW]))) == [
        page_id("https://www.c.example/")
    ]


@given(data=st.data())
def test_every_event_is_routed_by_the_newest_rules_before_it_wherever_reading_begins(data: st.DataObject) -> None:
    """Partitions are added and rules published in any order; then partitions lose their beginning."""
    rules = [Rules(UrlRules(drop_parameters=(f"p{number}",))) for number in range(5)]
    logs: list[list[int | None]] = [[]]
    added_under: list[int | None] = [None]
    newest: int | None = None
    notes: list[RulesNote] = []
    for step in data.draw(st.lists(st.sampled_from(["event", "publish", "add"]), max_size=30)):
        if step == "add":
            logs.append([])
            added_under.append(newest)
        elif step == "event":
            logs[data.draw(st.integers(0, len(logs) - 1))].append(None)
        elif len(notes) < len(rules):
            newest = len(notes)
            notes.append(note(rules[newest], *map(len, logs)))
            for log in logs:
                log.append(newest)
    known = [note(FOLDED, 0, topic="another"), *notes]
    for number, log in enumerate(logs):
        start = data.draw(st.integers(0, len(log)))
        before = [one for one in log[:start] if one is not None]
        expected = before[-1] if before else added_under[number]
        found = first_rules(known, "id", number, start, UNFOLDED)
        assert found == (UNFOLDED if expected is None else rules[expected])


def test_a_note_of_rules_is_read_back_and_is_no_policy() -> None:
    one = note(FOLDED, 3, 0)
    read = RulesNote.of(one.to_bytes(), "policies, offset 0")
    assert read.to_bytes() == one.to_bytes() and first_rules([read], "id", 2, 0, UNFOLDED) == FOLDED
    with pytest.raises(ControlUnknown, match=r"^policies, offset 4: a control record that this opicflow does not"):
        RulesNote.of(control_record(FOLDED), "policies, offset 4")
    routed = RoutingStage(kind=RoutePolicies).route(
        batch(0, [one.to_bytes(), b'{"url": "https://a.example/", "drop": true}'])
    )
    entries = [decode_entry(message.value or b"") for message in routed]
    assert [(len(entry.policies), entry.end.offset) for entry in entries] == [(1, 2)] * SHARDS  # type: ignore[union-attr]


# -- policies and ticks


def test_policies_go_to_every_shard_in_the_same_entries_for_any_batches() -> None:
    values = [
        b'{"url": "https://a.example/", "forget": true}',
        b"soup",
        None,
        b'{"drop": true, "url": "https://a.example/1"}',
    ]
    whole, pieces = RoutingStage(kind=RoutePolicies), RoutingStage(kind=RoutePolicies)
    at_once = whole.route(batch(0, values))
    bit_by_bit = [m for at in range(4) for m in pieces.route(batch(at, values[at : at + 1]))]
    assert sorted(at_once, key=str) == sorted(bit_by_bit, key=str)
    entries = [(m.partition, decode_entry(m.value or b"")) for m in at_once if m.topic == "page-ledger"]
    rejects = [m.key for m in at_once if m.topic == "rejects"]
    assert rejects == [b"topic/0:1", b"topic/0:2"]
    for shard in range(SHARDS):
        own = [entry for partition, entry in entries if partition == shard]
        assert all(isinstance(entry, PolicyEntry) for entry in own)
        assert own[-1].end == (4, 0) and all(one.end == other.start for one, other in pairwise(own))


def test_the_clock_writes_a_tick_for_every_shard() -> None:
    ticks = list(WriteTicks("page-ledger", SHARDS).process((0, (1.7e9, None)), None))
    assert [tick.partition for tick in ticks] == list(range(SHARDS))
    assert [decode_entry(tick.value or b"") for tick in ticks] == [TickEntry(1_700_000_000)] * SHARDS


def test_the_clock_ticks_once_per_interval_and_does_not_make_up_for_missed_ones() -> None:
    clock = PollClock("page-ledger", 1.0)
    times = (0.0, 0.2, 0.9, 1.0, 1.1, 60.0, 60.5, 61.0, 3.0, 3.5)
    polls = [poll for at in times for poll in clock.process(Ends(at, {"page-ledger": [7], "events": [9]}, False))]
    assert polls == [(0, (at, [7])) for at in (0.0, 1.0, 60.0, 61.0, 3.0)]
    assert list(clock.process(Ends(4.0, None, False))) == [(0, (4.0, None))]


class TickedLogs:
    """Where logs end. Ticks are added when they are written, other entries by the test."""

    def __init__(self, shards: int) -> None:
        self.ends: list[int] | None = [0] * shards
        self.clock = WriteTicks("page-ledger", shards)

    def tick(self, second: int) -> list[int]:
        ticks = [tick.partition for tick in self.clock.process((0, (float(second), self.ends)), None)]
        for shard in ticks:
            if self.ends is not None and shard is not None:
                self.ends[shard] += 1
        return [shard for shard in ticks if shard is not None]


def test_a_log_in_which_nothing_happens_gets_few_ticks_and_one_at_once_when_something_does() -> None:
    logs = TickedLogs(2)
    ends = logs.ends
    assert ends is not None
    written: dict[int, list[int]] = {0: [], 1: []}
    for second in range(600):
        if second % 20 == 0 or second == 301:
            ends[0] += 1
        if second == 301:
            ends[1] += 1
        for shard in logs.tick(second):
            written[shard].append(second)
    assert written[0] == list(range(600)), "something happens there"
    assert written[1][:46] == list(range(46)), "shards send what waits"
    assert 301 in written[1] and set(range(301, 347)) <= set(written[1])
    assert len(written[1]) <= 2 * 46 + 20
    assert max(np.diff(written[1])) == 30


def test_without_an_answer_of_the_cluster_every_log_gets_its_ticks() -> None:
    logs = TickedLogs(2)
    for second in range(100):
        logs.tick(second)
    assert logs.tick(100) == []
    logs.ends = None
    assert logs.tick(101) == [0, 1]


def test_a_tick_that_did_not_arrive_is_written_again() -> None:
    logs = TickedLogs(1)
    for second in range(100):
        logs.tick(second)
    assert logs.ends is not None
    written = next(second for second in range(100, 200) if logs.tick(second))
    logs.ends[0] -= 1
    assert logs.tick(written + 1) == [0]


class Logged:
    """A ledger whose log is a list of values, one per second, and its state."""

    def __init__(self, patch: pytest.MonkeyPatch, log: list[bytes]) -> None:
        self.log = log
        self.head, self.snapshot = Value(), Bag()
        self.least_log_mb = 1.0
        self.read_again: list[tuple[int, int]] = []
        patch.setattr(ledgers, "read_range", self._again)

    def batch(self, start: int, end: int) -> MessageBatch:
        return batch(start, self.log[start:end], second=1)

    def at(self) -> int:
        return LogHead.from_bytes(self.head.value).next

    def snapshot_at(self) -> int:
        return LedgerKeeperFactory().restore(0, self.snapshot.values).head.next if self.snapshot.values else 0

    def apply(self, start: int, end: int, run: str = "stages") -> list[str]:
        topic = replace(watched(), partitions=(replace(watched().partitions[0], topic="page-ledger"),))
        stage = KeepLogLedger(topic, LedgerKeeperFactory(), run, self.least_log_mb)
        stage._reader = FakeReader(self.batch(start, end))  # type: ignore[assignment]
        try:
            outputs = stage.process((0, (0.0, UNKNOWN_END)), self.head, self.snapshot)
            return [output.kind for output in outputs if output.kind != APPLIED]
        finally:
            if run != "stages":
                close_run(run)

    def _again(self, input_range: PartitionRange) -> Iterator[MessageBatch]:
        self.read_again.append((input_range.start, input_range.end))
        return (self.batch(at, at + 1) for at in range(input_range.start, input_range.end))


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Logged]:
    origin = Origin(
        LedgerConfig(), ShardRanges(), Rules(page_ids=PageIds(suffixes=PublicSuffixes("none", b"com")))
    )  # short: it holds no long list
    yield Logged(monkeypatch, [origin.entry(), *[request_fingerprint()] * 9])
    close_run("stages")


def test_a_ledger_reads_its_log_from_the_offset_in_its_state(logged: Logged) -> None:
    assert logged.apply(0, 2) == ["audit", "fingerprint"]
    assert logged.apply(0, 3) == [], "it does not go back"
    assert logged.apply(2, 3) == ["audit", "fingerprint"] and not logged.read_again


def test_a_lost_ledger_is_rebuilt_from_its_log(logged: Logged) -> None:
    logged.apply(0, 3)
    assert logged.apply(3, 4, "another process") == ["audit", "fingerprint"], "no output is repeated"
    assert logged.read_again == [(0, 3)] and not logged.snapshot.values


def test_a_snapshot_is_written_when_the_log_since_the_last_one_is_twice_its_size(logged: Logged) -> None:
    logged.least_log_mb = 1000 / (1 << 20)
    logged.log += [request_fingerprint()] * 290
    begins = set()
    for end in range(1, 300):
        logged.apply(end - 1, end)
        begin = logged.snapshot_at()
        begins.add(begin)
        size, since = sum(map(len, logged.snapshot.values)), sum(map(len, logged.log[begin:end]))
        assert since <= max(2 * size, 1000)
    assert 2 < len(begins) < 20
    logged.apply(299, 300, "another process")
    assert logged.read_again == [(max(begins), 299)]


def test_a_snapshot_is_written_after_some_hours_of_the_log(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "OLDEST_SNAPSHOT_MS", 2500)
    for end, at in (3, 0), (6, 6), (7, 6), (8, 6), (9, 6), (10, 10):
        logged.apply(max(end - 3, logged.at()), end)
        assert logged.snapshot_at() == at, end


def test_a_log_that_does_not_lead_to_the_head_is_refused(logged: Logged) -> None:
    logged.apply(0, 3)
    for log in logged.log[:2], [logged.log[0], b"something else", *logged.log[2:]]:
        logged.log = log
        with pytest.raises(LostLedger, match=r"^shard 0: its snapshot and the batches since then do not lead to"):
            logged.apply(3, 4, "another process")


def test_removed_pages_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()
    monkeypatch.setattr(ledgers, "count", lambda name, number: counted.update({name: number}))
    keeper = LedgerKeeperFactory().new(0)
    keeper.counts["removed"] = 3
    ledgers.record_metrics(keeper)
    assert counted == {"removed": 3}
    assert not keeper.counts


# -- docs/guides/operations.md


def options_of(command: str) -> set[str]:
    parsers = next(a for a in build_parser([command])._actions if isinstance(a, argparse._SubParsersAction)).choices
    groups = [
        g for g in parsers[command]._action_groups if g.title == "options" or str(g.title).startswith("deployment")
    ]
    actions = [action for group in groups for action in group._group_actions if action.help != argparse.SUPPRESS]
    return {option for action in actions for option in action.option_strings if option.startswith("--")}


@pytest.mark.parametrize("given", ["file:/var/lib", "file:///var/lib", "/var/lib", "s3://bucket/streams/"])
def test_a_folder_of_checkpoints_may_be_a_path_or_a_url_as_flink_writes_it_too(given: str) -> None:
    folder = checkpoint_folder(FlinkJob(checkpoints=given, name="my crawl"))
    expected = {"/var/lib": "file:///var/lib", "s3://bucket/streams/": "s3://bucket/streams"}.get(given, given)
    assert folder == f"{expected}/my%20crawl"


def test_the_newest_checkpoint_is_found_while_a_job_deletes_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert newest_checkpoint(tmp_path) is None
    folders = ["job/chk-9", "savepoints/savepoint-1", "job/chk-10", "job/shared", "job/chk-11"]
    for age, folder in enumerate(folders):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "_metadata").touch()
        os.utime(tmp_path / folder / "_metadata", (1000 - age, 1000 - age))
    (tmp_path / "job/chk-12").mkdir()  # not complete yet
    assert newest_checkpoint(tmp_path) == tmp_path / "job/chk-9"
    scan, deleted = os.scandir, {str(tmp_path / "job" / name) for name in ("chk-9", "chk-12")}

    def scan_late(path: Any) -> Any:
        if path in deleted:
            deleted.discard(path)
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_late)
    assert newest_checkpoint(tmp_path) == tmp_path / "savepoints/savepoint-1"
    assert not deleted


@pytest.mark.parametrize("command", ["stream", "rebuild", "audit"])
def test_the_guide_names_every_option(command: str) -> None:
    assert {option for option in options_of(command) - {"--help"} if option not in OPERATIONS} == set()


def test_the_guide_names_every_metric() -> None:
    folder = TOP / "pipelines"
    modules = ("stream/routers.py", "stages/keep_ledger.py", "stages/ledger_keeper.py", "stream/ledgers.py")
    sources = [folder / name for name in modules]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    counted = set(re.findall(r'count\("(\w+)"', text)) | set(re.findall(r'self\.counts\["(\w+)"\]', text))
    returned = re.search(r"def gauges\(.*?return \{(.*?)\n        \}", text, re.DOTALL)
    assert returned is not None
    gauges = {f"{name}_shard_N" for name in re.findall(r'^ +"(\w+)": ', returned[1], re.MULTILINE)}
    assert len(counted) > 8 and len(gauges) == 9
    assert {name for name in counted | gauges if name not in OPERATIONS} == set()
