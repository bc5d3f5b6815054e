"""A stream as it is shown live, from a real broker's topics: news, tombstones, a broker that dies and comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import requests

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.publisher import Publisher, partition_of
from opicflow.connectors.kafka.topics import make, specs
from opicflow.pipelines.serve.stream_source import StreamSource
from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.framing import encode_single_object
from opicflow.schemas.records import Policy, to_avro
from serve.test_stream_index import NOON_MS, books, due, order, page, url
from serve.test_web_app import HOSTILE_URLS
from support.browser import browser, require_browser
from support.commands import refusal
from support.services import LocalKafka
from support.views import served
from support.waiting import wait_for

COMMAND = [sys.executable, "-m", "opicflow.pipelines.cli"]
KEYS = {"rejects": lambda one: f"{one.source}/{one.offset}", "audit": lambda one: str(one.shard)}


class Topics:
    """The topics of a stream; a test publishes to them."""

    def __init__(self, brokers: str, prefix: str) -> None:
        self.connection, self.prefix = Connection(brokers), prefix
        make(self.connection, specs(prefix, 2, 2, 1))

    def publish(self, topic: str, *records: Any) -> None:
        """Publish records; of a page that is bytes, a tombstone."""
        with Publisher(self.connection) as publisher:
            for one in records:
                key = one if isinstance(one, bytes) else KEYS.get(topic, lambda one: one.url)(one).encode()
                value = None if isinstance(one, bytes) else encode_single_object(type(one).__name__, to_avro(one))
                partition = 0 if topic == "audit" else partition_of(key.decode(), 2 if topic != "rejects" else 3)
                publisher.send(self.prefix + topic, key, value, partition)

    def source(self, keep: int = 1_000) -> StreamSource:
        """Show them, at noon."""
        return StreamSource(self.connection, self.prefix, keep, lambda: NOON_MS + 5_000, since_ms={})


@pytest.fixture
def topics(kafka: LocalKafka, topic_prefix: str) -> Topics:
    return Topics(kafka.brokers, topic_prefix)


@pytest.fixture
def source(topics: Topics) -> Iterator[StreamSource]:
    with closing(topics.source()) as one:
        yield one


def first_urls(source: StreamSource, count: int) -> list[str]:
    table = source.view().table
    return [table.url(row) for row in range(min(count, len(table)))]


def test_what_is_there_and_what_arrives_is_shown(topics: Topics) -> None:
    topics.publish("importance", *(page(n, 1 / (2 + n)) for n in range(100)))
    topics.publish("refresh-schedule", due(3, NOON_MS - 1_000))
    topics.publish("crawl-orders", order(4, NOON_MS))
    topics.publish("rejects", Reject(Reason.NOT_JSON, "no", "log/0", 7, b"<script>"))
    topics.publish("audit", books())
    with closing(topics.source()) as source:
        wait_for("all is read", lambda: source.view().rejects and len(source.view().table) == 100, 60)
        wait_for("the light is right", lambda: source.view().light.state == "right", 60)
        wait_for("nothing is behind", lambda: source.view().live.read_part == 1, 60)
        view = source.view()
        assert first_urls(source, 3) == [url(0), url(1), url(2)]
        assert view.overdue == 1 and view.table.order(0)["url"] == url(4)
        assert view.live is not None and "All 100 pages" in view.live.kept
        topics.publish("importance", page(50, 0.9), url(0).encode())
        wait_for("news are shown", lambda: first_urls(source, 2) == [url(50), url(1)], 60)
        assert source.view().table.row_of_url(url(0)) is None
        topics.publish("audit", books(drift=3))
        wait_for("the light is wrong", lambda: source.view().light.state == "wrong", 60)


def test_policies_are_shown_by_hand_as_json_or_in_avro(topics: Topics) -> None:
    topics.publish("importance", page(1, 0.5))
    forbidden = Policy(host="h1.example", refresh_forbidden=True)
    with Publisher(topics.connection) as publisher:
        for value in (
            f'{{"url": "{url(1)}", "importance_factor": 3}}'.encode(),
            b'{"urk": 1}',
            encode_single_object("Policy", to_avro(forbidden)),
        ):
            publisher.send(f"{topics.prefix}policies", None, value, 0)
    with closing(topics.source()) as source, served(source) as at:
        wait_for("both are read", lambda: len(source.view().policies or ()) == 2, 60)
        wait_for("the page is read", lambda: first_urls(source, 1) == [url(1)], 60)
        shown = requests.get(f"{at}/api/page", {"url": url(1)}, timeout=60).json()["policies"]
        assert [(one["policy"].get("host"), one["holds"]) for one in shown] == [("h1.example", True), (None, False)]
        text = requests.get(f"{at}/search", {"q": url(1)}, headers={"Accept": "text/html"}, timeout=60).text
        assert "pages of h1.example are not fetched again" in text and "a later one holds instead" in text


def test_few_pages_are_kept_and_one_that_is_looked_for(topics: Topics) -> None:
    topics.publish("importance", *(page(n, 1 / (2 + n)) for n in range(400)))
    with closing(topics.source(keep=50)) as source, served(source) as at:
        wait_for("all is read", lambda: source.view().live.read_part == 1, 60)
        assert len(source.view().table) <= 62 and first_urls(source, 2) == [url(0), url(1)]
        answer = requests.get(f"{at}/search", {"q": url(399)}, headers={"Accept": "text/html"}, timeout=60)
        assert answer.status_code == 404 and f"--url {url(399)}" in answer.text
        wait_for("it is looked for", lambda: not source._looked_for, 60)
        topics.publish("importance", page(399, 1 / 401))
        wait_for("it is kept", lambda: source.view().table.row_of_url(url(399)) is not None, 60)


def test_a_hostile_record_is_shown_live_and_runs_nothing(topics: Topics, source: StreamSource) -> None:
    require_browser()
    with served(source) as at, browser() as window:
        window.open(at)
        assert "No page is known yet" in window.run("return document.body.innerText")
        records = [replace(page(n, 0.5 - n / 100), url=hostile) for n, hostile in enumerate(HOSTILE_URLS[:-1])]
        topics.publish("importance", *records)
        wait_for("all are read", lambda: len(source.view().table) == len(records), 60)
        window.until("return document.querySelectorAll('#top tbody tr').length >= 6")
        assert window.run("return window.hacked === undefined && !document.querySelector('main script')")
        topics.publish("importance", page(7, 0.9))
        wait_for("it is read", lambda: first_urls(source, 1) == [url(7)], 60)
        window.until("return document.querySelector('#top tbody th').textContent.includes('h2.example/7')")
        assert [one for one in window.complaints() if "favicon" not in one] == []


@pytest.mark.slow
def test_a_broker_that_dies_is_reported_with_its_time_and_it_heals(mortal_kafka: LocalKafka) -> None:
    topics = Topics(mortal_kafka.brokers, "my-")
    topics.publish("importance", page(1, 0.5))
    with closing(topics.source()) as source, served(source) as at:
        wait_for("the page is read", lambda: first_urls(source, 1) == [url(1)], 60)
        mortal_kafka.kill()
        wait_for("the broker is missed", lambda: source.view().live.problem, 60)
        text = requests.get(at, headers={"Accept": "text/html"}, timeout=60).text
        assert "Nothing new since" in text and "2026-05-01 12:00 UTC" in text and url(1) in text
        assert requests.get(f"{at}/api/health", timeout=60).json()["state"] == "look"
        mortal_kafka.restart()
        wait_for("the broker is back", lambda: not source.view().live.problem, 120)
        topics.publish("importance", page(2, 0.9))
        wait_for("a record published then is shown", lambda: first_urls(source, 1) == [url(2)], 60)


def test_a_browser_sees_that_a_broker_dies_and_that_it_is_back(mortal_kafka: LocalKafka) -> None:
    require_browser()
    topics = Topics(mortal_kafka.brokers, "seen-")
    topics.publish("importance", page(1, 0.5))
    with closing(topics.source()) as source, served(source) as at, browser() as window:
        wait_for("the page is read", lambda: first_urls(source, 1) == [url(1)], 60)
        window.open(at)
        mortal_kafka.kill()
        seen = "return document.querySelector('main').innerText"
        wait_for("the broker is missed", lambda: "Brokers ✕" in window.run(seen), 120)
        text = window.run(seen)
        assert "Nothing new since" in text and "Not live at" in text and url(1) in text
        mortal_kafka.restart()
        wait_for("the broker is back", lambda: "Brokers ✓" in window.run(seen), 120)
        topics.publish("importance", page(2, 0.9))
        wait_for("a record published then is visible", lambda: url(2) in window.run(seen), 60)
        assert "Nothing new since" not in window.run(seen)


def test_a_topic_that_is_created_again_is_read_from_its_beginning(topics: Topics) -> None:
    topics.publish("importance", *(page(n, 1 / (2 + n)) for n in range(20)))
    with closing(topics.source()) as source:
        wait_for("all is read", lambda: len(source.view().table) == 20, 60)
        with closing(topics.connection.admin()) as admin:
            admin.delete_topics([f"{topics.prefix}importance"])
        wait_for("the topic is missed", lambda: source.view().live.problem, 60)
        make(topics.connection, specs(topics.prefix, 2, 2, 1))
        topics.publish("importance", page(77, 0.5))
        wait_for("the new one is read", lambda: first_urls(source, 3) == [url(77)], 120)
        assert not source.view().live.problem


def test_without_a_broker_or_a_topic_the_command_ends_with_a_line(kafka: LocalKafka, topic_prefix: str) -> None:
    for brokers, words in (("127.0.0.1:1", "no broker answers"), (kafka.brokers, "there is no topic")):
        assert words in refusal("serve", "--brokers", brokers, "--prefix", topic_prefix, "--port", "0")


def test_the_command_serves_a_stream_and_ends_when_interrupted(topics: Topics) -> None:
    topics.publish("importance", page(1, 0.5))
    words = [*COMMAND, "serve", "--brokers", topics.connection.brokers, "--prefix", topics.prefix, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        said = process.stdout.readline()
        address = said.partition(": ")[2].partition(" ")[0]
        assert said.startswith("a stream, live: http://127.0.0.1:")
        with requests.get(f"{address}live", stream=True, timeout=60) as news:
            lines = news.iter_lines()
            assert next(lines) == b"retry: 3000"
            wait_for(
                "the page is shown", lambda: requests.get(f"{address}api/top", timeout=60).json()["total"] == 1, 60
            )
            process.terminate()
            assert process.wait(30) in (0, 130, -15, 143)
        said = process.stderr.read()
        assert said.startswith("opicflow: interrupted") and said.count("\n") == 1


def test_a_stream_and_a_state_are_not_served_together() -> None:
    for words in (("--state", "x"), ("--results", "x")):
        assert "both are sources of pages" in refusal("serve", "--brokers", "127.0.0.1:1", *words)
    assert "--flink-master goes with a stream" in refusal("serve", "--state", "x", "--flink-master", "127.0.0.1:1")
