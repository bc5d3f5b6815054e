"""`opicflow push --brokers`: a frontier gets the records in the topics of a stream, and new ones as they arrive."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.services.processes import wait_until
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.publisher import Publisher, partition_of
from opicflow.schemas.framing import encode_single_object
from opicflow.schemas.pages import page_id
from opicflow.schemas.records import CrawlOrder, RefreshSchedule, to_avro
from support.commands import command, create_topics, finished, refusal
from support.frontier_service import FrontierService, served
from support.services import LocalKafka

NOW = 1_800_000_000
YEARS_MS = 100_000_000_000
A, B, C = (f"https://www.a.example/{name}" for name in "abc")
KEY = "www.a.example"


def order(url: str, not_before_ms: int | None = None, expires_at_ms: int = 1000 * NOW + YEARS_MS) -> CrawlOrder:
    times = (1000 * NOW, expires_at_ms, 0.25, 1, None, None, 0, not_before_ms)
    ordered, expires, importance, waiting, category, visit, shard, begins = times
    return CrawlOrder(
        url, page_id(url), 1000, "REFRESH", 1.0, ordered, expires, importance, waiting, category, visit, shard, begins
    )


def due(url: str, due_ms: int | None) -> RefreshSchedule:
    how = ("BUDGET", 0.5, "DEFAULT", 0.25, None, 1000 * NOW, 1000 * NOW, 0)
    return RefreshSchedule(url, page_id(url), due_ms, 7200.0, *how)


class Stream:
    """The topics of a stream, and a frontier."""

    def __init__(self, kafka: LocalKafka, prefix: str, service: FrontierService, address: str) -> None:
        self.brokers, self.prefix, self.service, self.address = kafka.brokers, prefix, service, address
        self.connection: Connection = create_topics(kafka.brokers, prefix, result_partitions=2)

    def publish(self, topic: str, *records: Any) -> None:
        """Publish records; of a page that is bytes, a tombstone."""
        with Publisher(self.connection) as publisher:
            for one in records:
                key = one if isinstance(one, bytes) else one.url.encode()
                value = None if isinstance(one, bytes) else encode_single_object(type(one).__name__, to_avro(one))
                publisher.send(self.prefix + topic, key, value, partition_of(key.decode(), 2))

    def arguments(self, what: str, *more: str) -> list[str]:
        where = ["--brokers", self.brokers, "--prefix", self.prefix, "--json", "--wait", "0"]
        return ["push", f"urlfrontier://{self.address}", what, *where, *more]

    def push(self, what: str, *more: str) -> dict[str, int]:
        counts: dict[str, int] = json.loads(finished(*self.arguments(what, *more)).out)
        return {name: count for name, count in counts.items() if count}

    def dates(self) -> dict[str, int]:
        queue = self.service.queue(KEY)
        return dict.fromkeys(queue.completed, 0) | {url: page.date for url, page in queue.waiting.items()}


@pytest.fixture
def stream(kafka: LocalKafka, topic_prefix: str) -> Iterator[Stream]:
    service = FrontierService(NOW)
    with served(service) as address:
        yield Stream(kafka, topic_prefix, service, address)


def test_the_newest_schedule_of_each_page_is_pushed_and_removed_pages_are_not_fetched_again(stream: Stream) -> None:
    later = 1000 * NOW + YEARS_MS
    stream.publish("refresh-schedule", due(A, later), due(B, later), due(C, None), due(A, later + 5000), B.encode())
    assert stream.push("schedule") == {"sent": 3, "new": 3}
    assert stream.dates() == {A: later // 1000 + 5, B: 0, C: 0}
    assert stream.push("schedule") == {"unchanged": 3}


def test_orders_are_pushed_but_for_those_that_expired(stream: Stream) -> None:
    later = 1000 * NOW + YEARS_MS
    stream.publish("crawl-orders", order(A), order(B, expires_at_ms=2000), order(C, not_before_ms=later))
    assert stream.push("orders") == {"sent": 2, "new": 2, "expired": 1}
    assert stream.dates() == {A: 1, C: later // 1000} or stream.dates() == {A: 2, C: later // 1000}


def test_a_group_goes_on_where_it_was(stream: Stream) -> None:
    stream.publish("crawl-orders", order(A), order(B))
    assert stream.push("orders", "--group", stream.prefix + "push")["sent"] == 2
    stream.service.update(A, KEY, NOW + 500)  # it was fetched
    assert stream.push("orders", "--group", stream.prefix + "push") == {}
    stream.publish("crawl-orders", order(C))
    assert stream.push("orders", "--group", stream.prefix + "push") == {"sent": 1, "new": 1}
    assert stream.dates()[A] == NOW + 500


@pytest.mark.slow
def test_a_push_that_follows_sends_what_arrives_and_waits_for_pages_under_way(stream: Stream) -> None:
    stream.service.update(A, KEY, 5)
    assert stream.service.give(KEY, 1) == [A]
    stream.publish("crawl-orders", order(A))
    group = ("--group", stream.prefix + "push")
    following = [*stream.arguments("orders", "--follow", *group), "--wait", "600"]
    process = subprocess.Popen(
        [sys.executable, "-m", "opicflow.pipelines.cli", *following], stderr=subprocess.PIPE, text=True
    )
    try:
        stream.publish("crawl-orders", order("https://www.b.example/"))
        assert wait_until(lambda: bool(stream.service.queue("www.b.example").waiting), 120)
        assert stream.dates() == {A: 5}, "it is under way"
        stream.service.update(A, KEY, NOW + 500)  # its crawler has fetched it
        assert wait_until(lambda: stream.dates()[A] != NOW + 500, 120)
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.fullmatch(r"opicflow: interrupted; \d pages? sent, or more: push again\n", err)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--follow", "--state", "x"), "name only one source"),
        (("--group", "g"), "no brokers"),
        (("results", "--brokers", "127.0.0.1:1"), "name only one source"),
    ],
)
def test_a_push_is_of_one_source(arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal("push", "urlfrontier://127.0.0.1:1", "orders", *arguments)


def test_a_topic_that_is_not_there_is_named(kafka: LocalKafka, topic_prefix: str) -> None:
    with served(FrontierService(NOW)) as address:
        where = ("--brokers", kafka.brokers, "--prefix", topic_prefix)
        result = command("push", f"urlfrontier://{address}", "orders", *where)
    assert result.code == 2 and f"no topic {topic_prefix}crawl-orders" in result.err
