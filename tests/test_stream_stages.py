"""The stages of the stream by hand, as a runner calls them; and that docs/operations.md names all there is."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.messages import Messages
from opicflow.connectors.kafka.sink import Message
from opicflow.connectors.kafka.source import MessageBatch
from opicflow.pipelines import cli
from opicflow.pipelines.ledger import CrawlEntry, PolicyEntry, TickEntry
from opicflow.pipelines.ledger.encoding import decode_entry
from opicflow.pipelines.transforms.keeping import OutOfOrder
from opicflow.pipelines.transforms.routing import Categories, LinkWeights, Rules
from opicflow.pipelines.transforms.streaming import (
    ControlUnknown,
    RouteEvents,
    RoutePolicies,
    RouterConfig,
    Tick,
    batch_of,
    control_record,
    shard_batch_of,
)
from opicflow.schemas.pages import page_id, shard_of
from opicflow.schemas.urls import UrlRules

OPERATIONS = (Path(__file__).resolve().parent.parent / "docs" / "operations.md").read_text(encoding="utf-8")
SHARDS = 4
CONFIG = RouterConfig(Connection("nobody:9092"), "page-ledger", "rejects", SHARDS)


class Cell:
    """A cell of state."""

    value: bytes | None = None

    def read(self) -> bytes | None:
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value


def batch(start: int, values: Iterable[bytes | None], partition: int = 0, end: int | None = None) -> tuple[str, bytes]:
    rows = list(values)
    ends = np.cumsum([len(value or b"") + 1 for value in rows]) - 1
    begins = np.array([-1 if v is None else e - len(v) for v, e in zip(rows, ends, strict=True)], np.int64)
    offsets = np.arange(start, start + len(rows))
    text = b"\n".join(value or b"" for value in rows)
    messages = Messages(offsets, offsets * 0, text, begins, np.where(begins < 0, -1, ends))
    return batch_of(MessageBatch("topic", "id", partition, start, start + len(rows) if end is None else end, messages))


def event(number: int, links: Iterable[str] = ()) -> bytes:
    return json.dumps({"url": f"https://a.example/{number}", "status": 200, "links": list(links)}).encode()


class Routing:
    """A router and its state; a new object goes on with the state of the one before."""

    def __init__(self, config: RouterConfig = CONFIG, kind: type[Any] = RouteEvents) -> None:
        self.router, self.cell = kind(config, "topic"), Cell()
        self.router.setup()

    def route(self, given: tuple[str, bytes]) -> list[Message]:
        return list(self.router.process(given, self.cell))


def crawled(messages: Iterable[Message]) -> list[tuple[int | None, CrawlEntry]]:
    entries = [(m.partition, decode_entry(m.value or b"").entry) for m in messages if m.topic == "page-ledger"]
    assert all(isinstance(entry, CrawlEntry) for _, entry in entries)
    return entries  # type: ignore[return-value]


def visited(messages: Iterable[Message]) -> list[int]:
    return sorted(int(page) for _, e in crawled(messages) for page in e.items.page[e.items.kind == 0])


# -- routing


def test_visits_go_to_the_shards_of_their_pages_and_rejects_to_their_topic() -> None:
    routed = Routing().route(batch(0, [event(1), b"nonsense", event(2), event(3)]))
    assert visited(routed) == sorted(page_id(f"https://a.example/{number}") for number in (1, 2, 3))
    for shard, entry in crawled(routed):
        assert set(shard_of(entry.items.page, SHARDS).tolist()) <= {shard}
        assert (entry.source, entry.start.offset, entry.end.offset) == ("kafka/id/0", 0, 4)
    (reject,) = [message for message in routed if message.topic == "rejects"]
    assert reject.key == b"topic/0:1" and b"nonsense" in (reject.value or b"")


def test_what_was_routed_is_dropped_and_what_comes_early_waits() -> None:
    routing = Routing()
    assert routing.route(batch(6, [event(6), event(7)])) == []
    assert visited(routing.route(batch(0, [event(0), event(1), event(2)]))) == pages(0, 1, 2)
    assert visited(routing.route(batch(1, [event(number) for number in range(1, 5)]))) == pages(3, 4)
    assert routing.route(batch(0, [event(0)])) == []
    assert visited(routing.route(batch(5, [event(5)]))) == pages(5, 6, 7)


def test_too_many_that_wait_say_so() -> None:
    routing = Routing()
    with pytest.raises(OutOfOrder, match=r"kafka/id/0: .* wait for offset 0"):
        for start in range(1, 100):
            routing.route(batch(start, [event(start)]))


def test_a_partition_begins_where_the_stream_was_told() -> None:
    routing = Routing(replace(CONFIG, starts={"kafka/id/0": 100}))
    assert visited(routing.route(batch(98, [event(number) for number in range(98, 102)]))) == pages(100, 101)


def test_a_url_is_sent_once_while_its_bundles_succeed_and_again_by_another_worker() -> None:
    routing = Routing()
    link = "https://b.example/"

    def sent(messages: list[Message]) -> int:
        return sum(e.items.url_bytes.tobytes().count(link.encode()) for _, e in crawled(messages))

    assert sent(routing.route(batch(0, [event(0, [link]), event(1, [link])]))) == 1
    assert sent(routing.route(batch(2, [event(2, [link])]))) == 0
    again = Routing()
    again.cell = routing.cell
    assert sent(again.route(batch(3, [event(3, [link])]))) == 1


def pages(*numbers: int) -> list[int]:
    return sorted(page_id(f"https://a.example/{number}") for number in numbers)


# -- control records


def test_rules_hold_from_their_record_on_for_this_partition_and_whoever_goes_on_with_its_state() -> None:
    rules = Rules(UrlRules(fold_www=True))
    url = b'{"url": "https://www.c.example/", "status": 200, "links": []}'
    routing = Routing()
    routed = routing.route(batch(0, [url, control_record(rules), url]))
    assert visited(routed) == sorted([page_id("https://www.c.example/"), page_id("https://c.example/")])
    assert [message for message in routed if message.topic == "rejects"] == []
    again = Routing()
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
def test_a_control_record_that_cannot_be_followed_stops_the_router_by_name(record: bytes) -> None:
    with pytest.raises(ControlUnknown, match=r"^topic, offset 1: a control record that this opicflow cannot follow"):
        Routing().route(batch(0, [event(0), record]))


def test_an_event_that_looks_like_a_control_record_is_an_event() -> None:
    looks = b'{"opicflow-contrary": 1, "url": "https://d.example/", "status": 200, "links": []}'
    assert visited(Routing().route(batch(0, [looks]))) == [page_id("https://d.example/")]


def test_rules_of_links_travel_whole() -> None:
    rules = Rules(UrlRules(drop_parameters=("a*",)), LinkWeights(internal=0.5))
    record = control_record(rules)
    assert Rules.from_json(json.loads(record)["opicflow-control"]["rules"]) == rules


# -- publications and ticks


def test_publications_go_to_every_shard_in_the_same_entries_however_they_come() -> None:
    said = [
        b'{"url": "https://a.example/", "forget": true}',
        b"soup",
        None,
        b'{"drop": true, "url": "https://a.example/1"}',
    ]
    whole, pieces = Routing(kind=RoutePolicies), Routing(kind=RoutePolicies)
    at_once = whole.route(batch(0, said))
    bit_by_bit = [m for at in range(4) for m in pieces.route(batch(at, said[at : at + 1]))]
    assert sorted(at_once, key=str) == sorted(bit_by_bit, key=str)
    entries = [(m.partition, decode_entry(m.value or b"").entry) for m in at_once if m.topic == "page-ledger"]
    rejects = [m.key for m in at_once if m.topic == "rejects"]
    assert rejects == [b"topic/0:1", b"topic/0:2"]
    for shard in range(SHARDS):
        own = [entry for partition, entry in entries if partition == shard]
        assert all(isinstance(entry, PolicyEntry) for entry in own)
        assert own[-1].end == (4, 0) and all(one.end == other.start for one, other in pairwise(own))


def test_a_beat_is_a_tick_for_every_shard() -> None:
    ticks = list(Tick("page-ledger", SHARDS).process(0.0))
    assert [tick.partition for tick in ticks] == list(range(SHARDS))
    assert {type(decode_entry(tick.value or b"").entry) for tick in ticks} == {TickEntry}


def test_a_batch_of_a_log_is_keyed_by_its_shard() -> None:
    messages = Messages(*(np.zeros(0, np.int64),) * 2, b"", *(np.zeros(0, np.int64),) * 2)
    assert shard_batch_of(MessageBatch("page-ledger", "id", 3, 0, 0, messages))[0] == 3


# -- docs/operations.md


def options_of(command: str) -> set[str]:
    parsers = next(a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    groups = [
        g for g in parsers[command]._action_groups if g.title in ("options", "where it runs (docs/operations.md)")
    ]
    actions = [action for group in groups for action in group._group_actions if action.help != argparse.SUPPRESS]
    return {option for action in actions for option in action.option_strings if option.startswith("--")}


@pytest.mark.parametrize("command", ["stream", "rebuild", "audit"])
def test_the_guide_names_every_option(command: str) -> None:
    assert {option for option in options_of(command) - {"--help"} if option not in OPERATIONS} == set()


def test_the_guide_names_every_metric() -> None:
    folder = Path(__file__).resolve().parent.parent / "pipelines"
    sources = [folder / "transforms" / name for name in ("streaming.py", "keep_ledger.py", "log_keeping.py")]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    counted = set(re.findall(r'count\("(\w+)"', text)) | set(re.findall(r'self\.counts\["(\w+)"\]', text))
    gauges = {f"{name}_shard_N" for name in re.findall(r'^            "(\w+)": ', text, re.MULTILINE)} - {
        f"{name}_shard_N"
        for name in ("sent_to", "received_from", "fingerprint", "detail", "shard", "offset", "reason", "size")
    }
    assert len(counted) > 8 and len(gauges) == 4
    assert {name for name in counted | gauges if name not in OPERATIONS} == set()
