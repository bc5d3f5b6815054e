"""`opicflow publish`: events of logs, policies and rules, and refusals before anything is sent."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES
from opicflow.connectors.files.event_encoding import encode_event
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange, format_of, read
from opicflow.connectors.files.opening import Block, decompressed
from opicflow.connectors.kafka.client import compressed_size
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import partitions_of_topic
from opicflow.connectors.kafka.topics import TopicSpec, make, names, specs
from opicflow.pipelines.cli import main
from opicflow.pipelines.cli.commands import publish
from opicflow.pipelines.ledger import LedgerConfig
from opicflow.pipelines.replay import log_publisher
from opicflow.pipelines.results.policy_words import in_words
from opicflow.pipelines.stages.log_settings import Origin
from opicflow.pipelines.stages.rules import Categories, Rules
from opicflow.pipelines.stream import origin, published_rules
from opicflow.pipelines.stream.published_rules import RulesNote, rules_of
from opicflow.schemas.arrays import Ints
from opicflow.schemas.crawl_events import EARLIEST_MS, LATEST_MS, CrawlEvent, Link, Reason, Reject
from opicflow.schemas.errors import Interrupted
from opicflow.schemas.framing import Decoder, encode_single_object
from opicflow.schemas.hashing import hash_text
from opicflow.schemas.json_events import event_of
from opicflow.schemas.pages import PageIds, page_id
from opicflow.schemas.policy_json import PolicyRefused
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.records import Policy, from_avro, to_avro
from opicflow.schemas.shards import ShardRanges
from opicflow.schemas.urls import UrlRules
from support.commands import command, finished, output_of, refusal
from support.fake_kafka import LIMIT, FakeConnection, FakeProducer
from support.logs import FIRST_MS, avro, edges, jsonl, url, warc
from support.services import raw_records
from support.thorough import crossed

DAY_MS = 86_400_000
BROKERS = ("--brokers", "127.0.0.1:1")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeConnection:
    """A fake cluster; every command connects to it."""
    connection = FakeConnection("127.0.0.1:1")
    monkeypatch.setattr(publish, "connection_of", lambda options: connection)
    return connection


@pytest.fixture
def events() -> list[CrawlEvent]:
    """A small crawl."""
    return [
        CrawlEvent(
            url(number * 7 % 40),
            fetched_at_ms=FIRST_MS + number * 20_000,
            status=200,
            links=tuple(Link(url((number + link) * 3 % 40)) for link in range(number % 5)),
        )
        for number in range(120)
    ]


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def decoded(name: str, kind: type[Any], message: bytes) -> Any:
    return from_avro(kind, Decoder(name).decode(message))


# -- events as Avro ----------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.text("é\0", min_size=62, max_size=66)
times = st.none() | st.integers(EARLIEST_MS, LATEST_MS - 1)
some_links = st.builds(
    Link, texts, st.none() | st.floats(0, 1e9) | st.integers(0, 70), st.none() | st.sampled_from(["", "nofollow ugc"])
)
crawl_events = st.builds(
    CrawlEvent,
    url=texts,
    announce=st.booleans(),
    fetched_at_ms=times,
    status=st.none() | st.integers(-(2**31), 2**31 - 1),
    failure=st.none() | texts,
    redirects=st.lists(texts, max_size=3).map(tuple),
    canonical=st.none() | texts,
    content_type=st.none() | texts,
    digest=st.none() | texts,
    last_modified_ms=times,
    links=st.none() | st.lists(some_links, max_size=70).map(tuple),
)


@given(crawl_events)
def test_the_bytes_of_an_event_equal_those_of_fastavro(event: CrawlEvent) -> None:
    assert encode_event(event) == encode_single_object("CrawlEvent", to_avro(event))[10:]


def test_the_bytes_of_long_texts_and_many_links_equal_those_of_fastavro() -> None:
    event = CrawlEvent("u" * 5000, links=tuple(Link(f"https://a.example/{number}") for number in range(9000)))
    assert encode_event(event) == encode_single_object("CrawlEvent", to_avro(event))[10:]


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**64])
def test_unused_numbers_that_avro_cannot_hold_are_omitted(number: int) -> None:
    event = CrawlEvent("a", status=number, failure="timeout", last_modified_ms=number)
    assert encode_event(event) == encode_event(CrawlEvent("a", failure="timeout"))


# -- events ------------------------------------------------------------------------------------------------------------


def test_an_event_is_sent_to_the_partition_of_its_page_with_its_url_and_time(
    cluster: FakeConnection, tmp_path: Path, events: list[CrawlEvent]
) -> None:
    log = written(tmp_path / "log.jsonl", jsonl(events))
    out = output_of("publish", "events", log, *BROKERS, "--prefix", "p-", "--quiet")
    assert out.startswith("120 events read = 120 published to p-crawl-events + 0 rejected\n")
    sent = cluster.fakes[0].sent
    assert [value + b"\n" for _, _, value, _, _ in sent] == log.read_bytes().splitlines(keepends=True)
    for event, (topic, key, _, partition, time_ms) in zip(events, sent, strict=True):
        assert (topic, key, time_ms) == ("p-crawl-events", event.url.encode(), event.fetched_at_ms)
        assert partition == hash_text(event.url) * 4 >> 64
    assert len({partition for _, _, _, partition, _ in sent}) == 4


@given(st.lists(st.none() | st.integers(0, 10**13), max_size=50))
def test_times_of_records_always_increase(times_ms: list[int | None]) -> None:
    given_ = log_publisher.RecordClock(10**13).times_ms(column(times_ms)).tolist()
    assert all(later > earlier for earlier, later in pairwise(given_))


def column(times_ms: Iterable[int | None]) -> Ints:
    return np.array([time_ms or 0 for time_ms in times_ms], np.int64)


def times_one_by_one(times_ms: Iterable[int | None], now_ms: int) -> list[int]:
    """Return the times of records by the rule for one record."""
    found: list[int] = []
    last_ms, leapt = -1, False
    for time_ms in times_ms:
        known_ms = -1 if time_ms is None or time_ms > now_ms else time_ms
        leaps = last_ms >= 0 and known_ms > last_ms + DAY_MS
        last_ms = max(-1 if leaps and not leapt else known_ms, last_ms + 1)
        leapt = leaps
        found.append(last_ms)
    return found


near = st.integers(FIRST_MS, FIRST_MS + 20)
far = st.integers(-3, 3).map(lambda days: FIRST_MS + days * DAY_MS)
times_of_batch = st.lists(st.none() | near | near | far | st.integers(1, 2 * FIRST_MS), max_size=12)


@given(st.lists(times_of_batch, max_size=5))
def test_the_times_of_a_batch_are_those_of_its_records_one_by_one(batches: list[list[int | None]]) -> None:
    now_ms = FIRST_MS + 2 * DAY_MS
    clock = log_publisher.RecordClock(now_ms)
    given_ = [clock.times_ms(column(batch)).tolist() for batch in batches]
    assert list(chain(*given_)) == times_one_by_one(chain(*batches), now_ms)


def test_the_time_of_a_record_is_that_of_its_event_if_plausible() -> None:
    day = DAY_MS
    clock = log_publisher.RecordClock(30 * day)
    start = 5 * day
    events = [None, start, start + 5, start + 5, None, start, 40 * day, 20 * day, start + 90, 9 * day, 9 * day + 1]
    assert [time_ms for event in events for time_ms in clock.times_ms(column([event])).tolist()] == [
        0,  # no time yet
        1,  # the first time may come from a wrong clock
        start + 5,
        start + 6,
        start + 7,
        start + 8,
        start + 9,  # in the future
        start + 10,  # a single outlier
        start + 90,
        start + 91,
        9 * day + 1,  # a second event confirms it
    ]


def test_invalid_and_too_large_records_are_sent_to_rejects_in_order(cluster: FakeConnection, tmp_path: Path) -> None:
    large = CrawlEvent("https://a.example/large", links=tuple(Link(f"{page_id(str(n)):x}") for n in range(2000)))
    first, last = CrawlEvent("https://a.example/1"), CrawlEvent("https://a.example/2")
    text = jsonl([first]) + b"{broken\n" + jsonl([large]) + b'{"url": 3}\n' + jsonl([last])
    log = written(tmp_path / "log.jsonl", text)
    written(tmp_path / "empty.jsonl", b"")
    code, out, _ = command("publish", "events", log, tmp_path / "empty.jsonl", *BROKERS, "--json", "--partition", "3")
    summary = json.loads(out)["summary"]
    assert code == 0
    assert summary["events_read"] == summary["published"] + summary["rejects"] == 6
    assert summary["rejects_by_reason"] == {"not-json": 1, "too-large": 1, "bad-field": 1, "empty-file": 1}
    sent = cluster.fakes[0].sent
    assert [partition for topic, _, _, partition, _ in sent if topic == "crawl-events"] == [3, 3]
    broken, too_large, _, empty = [decoded("Reject", Reject, one[2]) for one in sent if one[0] == "rejects"]
    assert (broken.source, broken.offset, broken.bytes) == (str(log), text.index(b"{broken"), b"{broken")
    assert (too_large.offset, too_large.source) == (text.index(jsonl([large])), str(log))
    assert len(too_large.bytes) > LIMIT
    assert empty.source == str(tmp_path / "empty.jsonl")


def one_by_one(log: Path, only: int | None, topic: str = "crawl-events") -> list[list[tuple[Any, ...]]]:
    """Return the events and rejects that a publisher without batches and kernels would send to each topic."""
    kind = format_of(str(log))
    lines = b"".join(block.data for block in decompressed(str(log)) if isinstance(block, Block))
    assert kind is not None
    rows = [row for batch in read(FileRange(str(log), str(log), kind)) for row in batch.items()]
    events = [(offset, item) for offset, item in rows if isinstance(item, CrawlEvent)]
    times = dict(
        zip(
            [offset for offset, _ in events],
            times_one_by_one([event.fetched_at_ms for _, event in events], 10**15),
            strict=True,
        )
    )
    sent: list[list[tuple[Any, ...]]] = [[], []]
    for offset, item in rows:
        reject = item
        if isinstance(item, CrawlEvent):
            value = encode_single_object("CrawlEvent", to_avro(item))
            if kind is Format.JSONL:
                value = lines[offset:].partition(b"\n")[0]
            if (compressed_size(item.url.encode(), value, 1 << 30) or 0) <= LIMIT:
                partition = hash_text(item.url) * 4 >> 64 if only is None else only
                sent[0].append((topic, item.url.encode(), value, partition, times[offset]))
                continue
            detail = f"the event is larger than {topic} takes"
            if len(value) > MOST_REJECTED_BYTES:
                detail += f" (the first {MOST_REJECTED_BYTES} of {len(value)} bytes are kept)"
            reject = Reject(Reason.TOO_LARGE, detail, str(log), offset, value[:MOST_REJECTED_BYTES])
        sent[1].append(("rejects", None, encode_single_object("Reject", to_avro(reject)), None, None))
    return sent


def odd_lines(events: list[CrawlEvent]) -> bytes:
    """Events as lines that kernels read, between lines that they leave to others and lines that are no events."""
    large = jsonl(
        [CrawlEvent("https://a.example/large", links=tuple(Link(f"{page_id(str(n)):x}") for n in range(4000)))]
    )
    others = [
        b'{"url":"https://a.example/\\u00e9","fetched_at":1700000000,"links":["https://b.example/\\n"]}',
        '{"url":"https://a.example/é","content_type":"text/html;é","links":[{"url":"é","rel":"ugc é"}]}'.encode(),
        b'{"url":"https://a.example/r","retry_after":"120","status":429,"digest":"\\t"}',
        b'{"url":"https://a.example/w","links":[{"url":"x","weight":0.1,"nofollow":true},{"url":"y","weight":1e-7}]}',
        b'{"kind":"seed","url":"https://a.example/s","links":[],"fetched_at":4000000000}',
        b'{"url":"https://a.example/f","status":503,"failure":"timeout","redirects":["x","y"],"canonical":"z"}',
        b'{"url":"https://a.example/d","digest":5,"status":"not-found","lastmod":"Thu, 02 Jan 2020 03:04:05 GMT"}',
        b'{"url":"https://a.example/q","quality":0.123456789012345,"links":["x"]}',
        b'{"url":"https://a.example/q2","quality":0.12345678901234567}',
        b'{"url":"https://a.example/q3","quality":"low"}',
        b"{broken",
        b'{"url":3}',
        b"",
        b"  \t",
        b'\xef\xbb\xbf{"url":"https://a.example/bom"}',
        b'{"url":"https://a.example/\xff"}',
        large.strip(),
    ]
    lines = jsonl(events).splitlines()
    mixed = [line for number, plain in enumerate(lines) for line in (plain, others[number % len(others)])]
    return b"\n".join(mixed) + b'\n{"url":"https://a.example/last"}'


@pytest.mark.parametrize(
    ("name", "write", "rate", "only"),
    crossed(
        [
            ("log.jsonl", odd_lines),
            ("plain.jsonl", jsonl),
            ("log.jsonl.gz", lambda events: gzip.compress(odd_lines(events))[:-300]),
            ("log.avro", avro),
            ("log.warc", warc),
            ("log.tsv", edges),
        ],
        [60, None, 100_000],
        [None, 2],
    ),
)
def test_the_messages_are_those_of_events_that_are_sent_one_by_one(
    cluster: FakeConnection,
    tmp_path: Path,
    events: list[CrawlEvent],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    write: Callable[[list[CrawlEvent]], bytes],
    only: int | None,
    rate: float | None,
) -> None:
    monkeypatch.setattr(log_publisher.SendRate, "wait", lambda self, events: None)
    log = written(tmp_path / name, write(events))
    options = [*(() if only is None else ("--partition", only)), *(() if rate is None else ("--rate", rate))]
    code, out, _ = command("publish", "events", log, *BROKERS, "--quiet", *options)
    sent = [[one for one in cluster.fakes[0].sent if one[0] == topic] for topic in ("crawl-events", "rejects")]
    expected = one_by_one(log, only)
    assert sent == expected
    assert len(expected[0]) > 50
    assert code == 0 and f"{len(sent[0]) + len(sent[1])} events read = {len(sent[0])} published" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition", "4"], "--partition 4: crawl-events has 4 partitions: give 0 to 3"),
        (["--rate", "0"], "'0' is not a number from 0.001"),
        (["--partition", "-1"], "'-1' is not a whole number from 0"),
        (["--brokers"], "expected one argument"),
    ],
)
def test_wrong_options_of_publish_events_give_one_line_of_error(
    cluster: FakeConnection, tmp_path: Path, options: list[str], message: str
) -> None:
    log = written(tmp_path / "log.jsonl", b'{"url": "https://a.example/"}\n')
    assert message in refusal("publish", "events", log, *BROKERS, *options)
    assert all(not fake.sent for fake in cluster.fakes)


def test_an_error_of_the_broker_reports_the_acknowledged_records(
    cluster: FakeConnection, tmp_path: Path, events: list[CrawlEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = FakeProducer.send

    def answer(fake: FakeProducer, *record: Any) -> Any:
        future = send(fake, *record)
        if len(fake.sent) == 50:
            fake.answer(20)
            fake.answer(1, KafkaRefused("lost"))  # type: ignore[arg-type]
        return future

    monkeypatch.setattr(FakeProducer, "send", answer)
    log = written(tmp_path / "log.jsonl", jsonl(events))
    error = refusal("publish", "events", log, *BROKERS)
    assert "publishing to crawl-events" in error
    assert "; 20 of 50 records sent were acknowledged; publish the logs again" in error


def test_an_interrupt_reports_the_acknowledged_records(
    cluster: FakeConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = FakeProducer.send

    def interrupt(fake: FakeProducer, *record: Any) -> Any:
        if len(fake.sent) == 2:
            send(fake, *record)
            fake.answer(2)
            raise KeyboardInterrupt
        return send(fake, *record)

    monkeypatch.setattr(FakeProducer, "send", interrupt)
    log = written(tmp_path / "log.jsonl", jsonl([CrawlEvent(f"https://a.example/{number}") for number in range(9)]))
    options = main.parse(["publish", "events", str(log), *BROKERS])
    with pytest.raises(Interrupted, match=r"^2 of 3 records sent were acknowledged; publish the logs again: "):
        publish.run(options)
    assert cluster.fakes[0].closed


def test_an_interrupt_of_policies_or_rules_says_that_some_may_have_been_sent(
    cluster: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeProducer, "flush", interrupt)
    with pytest.raises(Interrupted, match=r"^policies may have been sent: opicflow subscribe policies shows which$"):
        publish.run(main.parse(["publish", "policy", "--host", "a.example", "--never", *BROKERS]))
    monkeypatch.setattr(origin, "origin_of", lambda *_: Origin(LedgerConfig(), ShardRanges.equal(2)))
    monkeypatch.setattr(published_rules, "publish_rules", interrupt)
    with pytest.raises(Interrupted, match=r"^the rules may apply to a part of the events from now on: publish them "):
        publish.run(main.parse(["publish", "rules", *BROKERS]))


def test_a_rate_waits_when_events_are_ahead_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Pause:
        def wait(self, seconds: float) -> None:
            waits.append(seconds)

    pace = log_publisher.SendRate(0.5)
    monkeypatch.setattr(pace, "_pause", Pause())
    for events in (0, 500, 1000):
        pace.wait(events)
    assert len(waits) == 2
    assert 900 < waits[0] <= 1000
    assert 1900 < waits[1] <= 2000
    log_publisher.SendRate(None).wait(10**9)


@pytest.mark.parametrize(("per_second", "events"), [(None, None), (0.5, 1), (19.0, 1), (1000.0, 50)])
def test_a_rate_is_kept_within_a_twentieth_of_a_second(per_second: float | None, events: int | None) -> None:
    assert log_publisher.SendRate(per_second).events_at_once == events


# -- policies ----------------------------------------------------------------------------------------------------------

AT = 1_777_000_000_000


def policy_of(*arguments: str) -> Policy:
    options = main.parse(["publish", "policy", *BROKERS, *arguments])
    return publish._policy_of(options, AT)


@pytest.mark.parametrize(
    ("arguments", "policy", "words"),
    [
        (
            ["--url", "HTTPS://Example.org", "--every", "6h", "--expires", "2026-12-31T00:00:00Z"],
            Policy(url="https://example.org/", refresh_interval_seconds=21600.0, expires_at_ms=1_798_675_200_000),
            "https://example.org/ is fetched every 6 hours until 2026-12-31T00:00:00Z",
        ),
        (
            ["--host", "a.example", "--crawl-now", "--set", "importance_factor=2", "--publisher", "ada"],
            Policy(host="a.example", fetch_now=True, importance_factor=2.0, publisher="ada"),
            "pages of a.example are fetched now, have 2 times the importance in refreshing",
        ),
        (
            ["--host", "a.example", "--notify", "--publisher", "desk"],
            Policy(host="a.example", notify=True, publisher="desk"),
            "pages of a.example are published when they have changed",
        ),
        (
            ["--url-prefix", "https://a.example/old/", "--never"],
            Policy(url_prefix="https://a.example/old/", refresh_forbidden=True),
            "pages under https://a.example/old/ are not fetched again",
        ),
        (
            ["--category", "0", "--set", "changes_per_day=0.5", "--set", "shortest_interval_seconds=5400"],
            Policy(category=0, changes_per_day=0.5, shortest_interval_seconds=5400.0),
            "pages of category 0 are taken to change 0.5 times a day, are fetched not sooner than after 90 minutes",
        ),
        (
            [
                "--all",
                *(f"--set={one}" for one in ("fetches_per_second=1", "discovery_share=0.4", "refresh_policy=harmonic")),
            ],
            Policy(fetches_per_second=1.0, discovery_share=0.4, refresh_policy="harmonic"),
            "the whole crawl: 86,400 fetches a day, 40% of the fetches for unread pages, refreshed by harmonic",
        ),
        (
            ["--host", "a.example", "--set", "host_fetches_per_hour=60"],
            Policy(host="a.example", host_fetches_per_hour=60.0),
            "pages of a.example at most 60 fetches an hour",
        ),
        (["--url", "https://a.example/x", "--forget"], Policy(url="https://a.example/x", forget=True), None),
        (["--host", "a.example", "--drop"], Policy(host="a.example", drop=True), "pages of a.example are removed"),
        (
            ["--host", "a.example", "--default"],
            Policy(host="a.example"),
            "pages of a.example: their earlier policy is withdrawn",
        ),
    ],
)
def test_options_become_a_policy_and_a_sentence(arguments: list[str], policy: Policy, words: str | None) -> None:
    found = policy_of(*arguments)
    assert found.published_at_ms == AT
    assert to_avro(found) == {**to_avro(policy), "published_at": AT}
    assert words is None or in_words(found) == words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to publish: name its pages with --url, --host"),
        (["--host", "a.example"], "no statement: give one, such as --every 6h"),
        (["--host", "a.example", "--default", "--every", "2d"], "--default withdraws the policy: omit --every"),
        (["--host", "a.example", "--every", "soon"], "--every: 'soon' is not a duration: write it like 30min"),
        (["--host", "a.example", "--default", "--set", "drop=true"], "--default withdraws the policy: omit --set"),
        (
            ["--host", "a.example", "--set", "host_fetches=5"],
            "'host_fetches' is no field of a policy: did you mean host",
        ),
        (
            ["--host", "a.example", "--set", "crawl_delay_seconds=5s"],
            "crawl_delay_seconds is '5s': give a finite number",
        ),
        (["--host", "a.example", "--every", "6h", "--never"], "contradict each other"),
        (["--host", "a.example", "--never", "--expires", "later"], "--expires later: not a time"),
        (["--host", "a.example", "--never", "--expires", "2020-01-01T00:00:00Z"], "not after published_at"),
        (["--all", "--never"], "it cannot hold for all pages"),
        (["--all", "--notify"], "it cannot hold for all pages"),
        (["--category", "1", "--notify"], "it cannot hold for a whole category"),
        (["--all", "--default"], "no setting of the whole crawl"),
        (["--url", "a.example", "--never"], "do you mean https://a.example ?"),
        (["--url", "mailto:a@a.example", "--never"], "mailto: is neither http nor https: give the URL of a page"),
        (["--url", "", "--never"], "argument --url: it is empty: give a value"),
        (["--url", "https://a.example/", "--host", "a.example", "--never"], "not allowed with argument"),
        (["nowhere.jsonl", "--host", "a.example"], "--host: a file has its own policies: omit one"),
        (["nowhere.jsonl"], "nowhere.jsonl: No such file"),
    ],
)
def test_a_wrong_policy_is_refused_before_anything_is_sent(
    cluster: FakeConnection, arguments: list[str], message: str
) -> None:
    assert message in refusal("publish", "policy", *BROKERS, *arguments)
    assert not cluster.fakes


def test_a_policy_has_the_time_of_its_publishing_or_a_given_one(cluster: FakeConnection) -> None:
    command("publish", "policy", *BROKERS, "--host", "a.example", "--never", "--at", "2026-05-01T00:00:00Z")
    command("publish", "policy", *BROKERS, "--host", "a.example", "--never")
    then, now = (decoded("Policy", Policy, fake.sent[0][2]).published_at_ms for fake in cluster.fakes)
    assert then == 1_777_593_600_000
    assert now > 1_700_000_000_000


def test_all_policies_of_a_file_are_checked_before_any_is_sent(cluster: FakeConnection, tmp_path: Path) -> None:
    good = b'{"host": "a.example", "refresh_forbidden": true, "published_at": 1777593600000}\n'
    more = b'{"class_weights": [16, 16, 16, 0]}\n'
    bad = b'{"host": "a.example", "refresh_interval_seconds": -1}\n'
    file = written(tmp_path / "policies.jsonl", good + more + bad)
    assert f"{file}, policy 3: refresh_interval_seconds is -1" in refusal("publish", "policy", file, *BROKERS)
    assert not cluster.fakes
    file.write_bytes(good + more)
    out = finished("publish", "policy", file, *BROKERS, "--json", "--at", "2026-05-02T00:00:00Z").out
    assert [row["offset"] for row in json.loads(out)] == [0, 1]
    sent = [decoded("Policy", Policy, value) for _, _, value, _, _ in cluster.fakes[0].sent]
    assert [policy.published_at_ms for policy in sent] == [1_777_593_600_000, 1_777_680_000_000]
    assert sent[1].class_weights == (16, 16, 16, 0)


def test_an_empty_file_of_policies_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "policies.jsonl", b"\n")
    options = main.parse(["publish", "policy", str(file), *BROKERS])
    with pytest.raises(PolicyRefused, match="it holds no policies"):
        publish.run(options)


# -- rules -------------------------------------------------------------------------------------------------------------


def test_rules_are_sent_to_every_partition_and_keep_the_categories(
    cluster: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Rules(UrlRules(fold_https=True), categories=Categories(by_media=True))
    monkeypatch.setattr(
        origin, "origin_of", lambda connection, topic, snapshots: Origin(LedgerConfig(), ShardRanges.equal(4), before)
    )
    monkeypatch.setattr(published_rules, "partitions_of_topic", lambda connection, topic: ("id", 3))
    out = output_of("publish", "rules", "--fold-www", *BROKERS, "--prefix", "p-", "--json")
    rules = Rules(UrlRules(fold_www=True), categories=before.categories)
    assert Rules.from_json(json.loads(out)["rules"], PageIds()) == rules
    *sent, note = cluster.fakes[0].sent
    assert [(topic, key, partition) for topic, key, _, partition, _ in sent] == [
        ("p-crawl-events", None, partition) for partition in range(3)
    ]
    for _, _, value, _, _ in sent:
        assert rules_of(value, before, "p-crawl-events") == rules
    assert note[0] == "p-policies"
    assert note[2] == RulesNote(rules.to_json(), "id", (0, 0, 0)).to_bytes()


def test_rules_that_partitions_were_added_under_are_to_be_published_again(
    cluster: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Origin(LedgerConfig(), ShardRanges.equal(4))
    monkeypatch.setattr(origin, "origin_of", lambda connection, topic, snapshots: begun)
    counts = iter((3, 4))
    monkeypatch.setattr(published_rules, "partitions_of_topic", lambda connection, topic: ("id", next(counts)))
    error = refusal("publish", "rules", "--fold-www", *BROKERS)
    assert "partitions were added while the rules were published: publish them again" in error


def test_rules_for_a_stream_that_was_never_started_are_refused(
    cluster: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "origin_of", lambda connection, topic, snapshots: None)
    assert "page-ledger: no stream was started there" in refusal("publish", "rules", "--fold-www", *BROKERS)
    assert cluster.fakes == []


# -- on a broker, read by other clients --------------------------------------------------------------------------------


def by_fastavro(value: bytes, header_bytes: int, name: str) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value[header_bytes:]), schema(name), None)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("log.jsonl", lambda events: jsonl(events[:60]) + b'{"url"\n' + jsonl(events[60:])),
        ("log.jsonl.gz", lambda events: gzip.compress(jsonl(events))),
        ("log.avro", avro),
        ("log.warc", warc),
        ("log.tsv", edges),
    ],
)
def test_another_client_reads_logs_of_every_format_complete_and_in_order(
    kafka: Any,
    topic_prefix: str,
    tmp_path: Path,
    events: list[CrawlEvent],
    name: str,
    write: Callable[[list[CrawlEvent]], bytes],
) -> None:
    log = written(tmp_path / name, write(events))
    make(Connection(kafka.brokers), [spec for spec in specs(topic_prefix) if "e" in spec.name])
    out = output_of(
        "publish", "events", log, "--brokers", kafka.brokers, "--prefix", topic_prefix, "--partition", 0, "--quiet"
    )
    kind = format_of(str(log))
    assert isinstance(kind, Format)
    items = [item for batch in read(FileRange("s", str(log), kind)) for _, item in batch.items()]
    records = raw_records(kafka.brokers, f"{topic_prefix}crawl-events")
    found = [
        event_of(json.loads(record.value))
        if kind is Format.JSONL
        else from_avro(CrawlEvent, by_fastavro(record.value, 10, "CrawlEvent"))
        for record in records
    ]
    assert found == [item for item in items if isinstance(item, CrawlEvent)]
    assert len(found) >= 90
    assert [record.key.decode() for record in records] == [event.url for event in found]
    assert [record.partition for record in records] == [0] * len(found)
    rejects = [by_fastavro(one.value, 10, "Reject") for one in raw_records(kafka.brokers, f"{topic_prefix}rejects")]
    assert [(one["offset"], one["bytes"]) for one in rejects] == [
        (item.offset, item.bytes) for item in items if isinstance(item, Reject)
    ]
    assert f"{len(items)} events read = {len(found)} published" in out


def test_with_a_registry_a_plain_avro_reader_finds_the_schema(
    kafka: Any, topic_prefix: str, tmp_path: Path, events: list[CrawlEvent]
) -> None:
    make(Connection(kafka.brokers), specs(topic_prefix))
    where = ("--brokers", kafka.brokers, "--registry", kafka.registry, "--prefix", topic_prefix)
    log = written(tmp_path / "log.jsonl", jsonl(events))
    code, _, err = command("publish", "events", log, *where, "--quiet")
    assert (code, err) == (0, "")
    out = finished("publish", "policy", *where, "--host", "a.example", "--every", "2d").out
    assert out == f"pages of a.example are fetched every 2 days  ({topic_prefix}policies, partition 0, offset 0)\n"
    found = []
    for record in raw_records(kafka.brokers, f"{topic_prefix}crawl-events"):
        assert record.value[0] == 0
        number = int.from_bytes(record.value[1:5], "big")
        registered = requests.get(f"{kafka.registry}/schemas/ids/{number}", timeout=10).json()["schema"]
        found.append(fastavro.schemaless_reader(io.BytesIO(record.value[5:]), json.loads(registered), None)["url"])
    assert sorted(found) == sorted(event.url for event in events)
    (policy,) = raw_records(kafka.brokers, f"{topic_prefix}policies")
    assert by_fastavro(policy.value, 5, "Policy")["refresh_interval_seconds"] == 2 * 86400.0
    versions = requests.get(f"{kafka.registry}/subjects/{topic_prefix}policies-value/versions", timeout=10).json()
    assert versions == [1]


def test_a_log_of_nothing_but_rejects_ends_with_1(cluster: FakeConnection, tmp_path: Path) -> None:
    log = written(tmp_path / "log.jsonl", b'{"url": 3}\n' * 4)
    code, out, err = command("publish", "events", log, *BROKERS, "--prefix", "p-", "--quiet")
    assert (code, err) == (1, "")
    assert out.startswith("4 events read = 0 published to p-crawl-events + 4 rejected\n")


def test_an_event_over_the_topics_limit_is_rejected_between_good_ones(
    kafka: Any, topic_prefix: str, tmp_path: Path
) -> None:
    limits = (("crawl-events", 20_000), ("rejects", 1 << 20))
    make(
        Connection(kafka.brokers),
        [TopicSpec(topic_prefix + name, 1, "delete", "CreateTime", most_bytes=limit) for name, limit in limits],
    )
    links = tuple(Link(f"https://{page_id(str(n)):x}.example/") for n in range(3000))
    around = [CrawlEvent(f"https://a.example/{number}") for number in range(10)]
    log = written(tmp_path / "log.jsonl", jsonl([*around[:5], CrawlEvent("https://a.example/x", links=links), *around]))
    out = finished("publish", "events", log, "--brokers", kafka.brokers, "--prefix", topic_prefix).out
    assert "16 events read = 15 published" in out
    assert "1  too-large" in out
    assert len(raw_records(kafka.brokers, f"{topic_prefix}crawl-events")) == 15
    (reject,) = raw_records(kafka.brokers, f"{topic_prefix}rejects")
    assert by_fastavro(reject.value, 10, "Reject")["reason"] == "too-large"


def test_a_partition_that_is_added_finds_the_rules_that_were_published(kafka: Any, topic_prefix: str) -> None:
    connection, topics = Connection(kafka.brokers), names(topic_prefix)
    make(connection, specs(topic_prefix, 2))
    origin.begin_logs(connection, topics.page_ledger, Origin(LedgerConfig(), ShardRanges.equal(2)))
    policy = ("publish", "policy", "--host", "a.example", "--never")
    for words in (policy, ("publish", "rules", "--fold-www"), policy):
        output_of(*words, "--brokers", kafka.brokers, "--prefix", topic_prefix)
    (note,) = published_rules.StoredNotes(connection, topics.policies)()
    assert note.offsets == (0,) * 6
    events, _ = partitions_of_topic(connection, topics.crawl_events)
    assert published_rules.first_rules([note], events, 6, 0, Rules()) == Rules(UrlRules(fold_www=True))
    assert published_rules.first_rules([note], events, 5, 0, Rules()) == Rules()
