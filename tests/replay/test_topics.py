"""A replay between topics gives the results of one between files, also when brokers and processes fail."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pytest
import requests
from kafka import KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from deploy.services.processes import wait_until
from opicflow.connectors.kafka import partitions, topic_log
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.record_reader import Arrived, records
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.replay.inputs import AllRejected, NothingRead
from opicflow.pipelines.replay.read_progress import Progress
from opicflow.pipelines.replay.runner import ReplayRequest, ReplayResult, replayed
from opicflow.pipelines.replay.state import StateRefused
from opicflow.pipelines.replay.topic_input import Topic
from opicflow.pipelines.results.topic_writer import Destination
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.framing import encode_single_object
from opicflow.schemas.hashing import hash_text
from opicflow.schemas.pages import PageIds
from opicflow.schemas.published_schemas import fingerprint, schema
from opicflow.schemas.records import Audit, CrawlOrder, Policy, RefreshSchedule, to_avro
from support.commands import create_topics, finished, output_of
from support.logs import FIRST_MS, WebLog, adds_up, json_line, jsonl, records_of, run, url, without_times
from support.paths import TOP
from support.same_bytes import Kill, run_to_end
from support.services import OUTSIDE, LocalKafka, raw_records

STREAMS = ("importance", "site-importance", "refresh-schedule", "crawl-orders")
RESULTS = tuple(f"{stream}.jsonl" for stream in STREAMS)
NO_PAGE = json_line(CrawlEvent("mailto:somebody@site.example", fetched_at_ms=FIRST_MS))
OURS = ("files", "partitions", "rejects", "events_read", "rejects_by_reason")
"""The values in which the summaries of a file and of its topic differ: lines that are not events are not published."""


class Published(NamedTuple):
    """A log, the results of its replay, and the topics to which it was published, in one partition."""

    log: Path
    out: Path
    summary: dict[str, Any]
    kafka: LocalKafka
    prefix: str

    @property
    def connection(self) -> Connection:
        return Connection(self.kafka.brokers)

    @property
    def topic(self) -> Topic:
        return Topic(self.connection, f"{self.prefix}crawl-events")


@pytest.fixture(scope="module")
def published(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A crawl with announcements, duplicates, lines that are not events, and events that are not pages."""
    folder = tmp_path_factory.mktemp("published")
    crawl = WebLog(power_law_web(300, 3, dangling=0.1), seconds_between=97.0).crawl("random", 2000)
    lines = jsonl(crawl.events).splitlines(keepends=True)
    lines += lines[-5:]
    lines[400::500] = [b"nonsense\n", b'{"url": 3}\n', NO_PAGE, b"nonsense\n"]
    log = folder / "log.jsonl"
    log.write_bytes(b"".join(lines))
    summary = run([log], folder / "out").summary
    create_topics(kafka.brokers, "shared-")
    output_of("publish", "events", log, *at(kafka, "shared-"), "--quiet")
    return Published(log, folder / "out", summary, kafka, "shared-")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read little ahead, so that segments end within a small log."""
    for name, value in SMALL.items():
        monkeypatch.setattr(topic_log if name.startswith("BATCH") else partitions, name, value)


SMALL = {"BATCH_RECORDS": 200, "_FETCH_BYTES": 10_000, "_POLL_RECORDS": 100}


def at(kafka: LocalKafka, prefix: str) -> tuple[str, ...]:
    return ("--brokers", kafka.brokers, "--prefix", prefix)


def replay(
    topic: Topic,
    out: Path | None = None,
    prefix: str | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
    **options: Any,
) -> ReplayResult:
    """Replay a topic in this process; with a prefix the results go to topics too."""
    to = None if prefix is None else Destination(topic.connection, prefix)
    options.setdefault("counting", LedgerOptions(history="interpolation"))
    options.setdefault("page_ids", PageIds())
    with replayed(ReplayRequest(topic=topic, out=out, to=to, **options), progress) as result:
        return result


def subscribed(kafka: LocalKafka, prefix: str, stream: str) -> list[str]:
    return output_of("subscribe", stream, *at(kafka, prefix)).splitlines()


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def same_results(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in RESULTS)


@contextmanager
def producing(to: LocalKafka | Connection) -> Iterator[Any]:
    """Yield a producer of kafka-python. All records are sent at the end."""
    producer = KafkaProducer(**OUTSIDE, bootstrap_servers=to.brokers)
    try:
        yield producer
        producer.flush()
    finally:
        producer.close()


def copy_events(
    published: Published, to: Topic, partition_of: Callable[[Any], int] = lambda record: 0, with_times: bool = True
) -> None:
    """Copy the events of the published log to another topic, in their order."""
    with producing(to.connection) as producer:
        for record in raw_records(published.kafka.brokers, published.topic.topic):
            time_ms = record.timestamp if with_times else None
            producer.send(to.topic, record.value, record.key, partition=partition_of(record), timestamp_ms=time_ms)


def skewed(record: Any) -> int:
    """Return a partition of three: nine of ten pages have the first."""
    return 0 if hash_text(record.key) % 10 else 1 + hash_text(record.key) // 10 % 2


def numbered_events(numbers: Iterable[int]) -> list[CrawlEvent]:
    return [
        CrawlEvent(
            url(number * 7 % 50),
            fetched_at_ms=FIRST_MS + number * 60_000,
            status=200,
            links=(Link(url(number * 3 % 50)), Link(url(number * 11 % 50))),
        )
        for number in numbers
    ]


def iso(time_ms: int) -> str:
    return f"{np.datetime64(time_ms, 'ms')}Z"


def produce(kafka: LocalKafka, topic: str, events: list[CrawlEvent], partitions: int = 1) -> None:
    with producing(kafka) as producer:
        for number, event in enumerate(events):
            producer.send(topic, json_line(event), partition=number % partitions, timestamp_ms=event.fetched_at_ms)


def wait_for(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, 60)


# -- the same results as with files


@pytest.mark.slow
def test_a_replay_between_topics_gives_the_bytes_of_one_between_files(published: Published, tmp_path: Path) -> None:
    kafka, prefix = published.kafka, published.prefix
    address = f"kafka://{kafka.brokers}"
    words = (
        "replay",
        "--from",
        address,
        "--to",
        address,
        "--prefix",
        prefix,
        "--json",
        "--quiet",
        "--history",
        "interpolation",
    )
    summary = json.loads(output_of(*words))
    for stream in STREAMS:
        assert subscribed(kafka, prefix, stream) == lines_of(published.out / f"{stream}.jsonl"), stream
    assert adds_up(summary) and adds_up(published.summary)
    assert {**without_times(summary), **dict.fromkeys(OURS)} == {
        **without_times(published.summary),
        **dict.fromkeys(OURS),
    }
    (audit,) = map(json.loads, subscribed(kafka, prefix, "audit"))
    held = sum(audit[name] for name in ("cash", "uncollected", "virtual", "absorbed", "sent")) - audit["received"]
    assert audit["minted"] == held
    assert (audit["pages"], audit["visits"]) == (summary["pages"], summary["visits"])

    def why(lines: Iterable[str]) -> Counter[tuple[str, str]]:
        return Counter((reject["reason"], reject["detail"]) for reject in map(json.loads, lines))

    rejects = subscribed(kafka, prefix, "rejects")
    assert why(rejects) == why(lines_of(published.out / "rejects.jsonl"))
    assert len(rejects) == published.summary["rejects"] == 4
    (of_replay,) = [one for one in map(json.loads, rejects) if one["source"] != str(published.log)]
    assert of_replay["source"] == f"{prefix}crawl-events/0"
    (rejected,) = [
        one for one in raw_records(kafka.brokers, f"{prefix}crawl-events") if one.offset == of_replay["offset"]
    ]
    assert b"mailto:" in rejected.value


@pytest.mark.slow
def test_three_partitions_with_most_events_in_one_give_the_same_bytes(
    published: Published, topic_prefix: str, tmp_path: Path
) -> None:
    connection = create_topics(published.kafka.brokers, topic_prefix, event_partitions=3, result_partitions=3)
    topic = Topic(connection, f"{topic_prefix}crawl-events")
    copy_events(published, topic, skewed)
    sizes = Counter(record.partition for record in raw_records(published.kafka.brokers, topic.topic))
    assert len(sizes) == 3 and sizes[0] > 0.8 * sizes.total()
    result = replay(topic, tmp_path, topic_prefix)
    assert result.summary["partitions"] == 3
    assert same_results(tmp_path, published.out)
    for stream in STREAMS:
        found = subscribed(published.kafka, topic_prefix, stream)
        assert sorted(found) == sorted(lines_of(published.out / f"{stream}.jsonl"))
    for record in raw_records(published.kafka.brokers, f"{topic_prefix}importance"):
        assert record.partition == hash_text(record.key) * 3 >> 64


def test_events_without_record_times_are_all_counted(published: Published, topic_prefix: str, tmp_path: Path) -> None:
    connection = create_topics(published.kafka.brokers, topic_prefix, event_partitions=3)
    topic = Topic(connection, f"{topic_prefix}crawl-events")
    copy_events(published, topic, skewed, with_times=False)
    summary = replay(topic, tmp_path).summary
    assert adds_up(summary)
    assert summary["drift"] == 0
    names = ("visits", "announcements", "duplicates", "pages", "pages_read")
    assert [summary[name] for name in names] == [published.summary[name] for name in names]
    ours, theirs = (records_of(folder / "importance.jsonl") for folder in (tmp_path, published.out))
    assert {page["url"]: page["visits"] for page in ours} == {page["url"]: page["visits"] for page in theirs}


@pytest.mark.slow
def test_poison_between_good_events_is_rejected_with_its_offset_and_the_rest_is_counted(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topic = Topic(create_topics(kafka.brokers, topic_prefix, event_partitions=2), f"{topic_prefix}crawl-events")
    good = [json_line(event) for event in numbered_events(range(40))]
    unknown = b"\xc3\x01" + bytes(range(8)) + b"body"
    cut = good[0][:30]
    avro = encode_single_object("CrawlEvent", to_avro(numbered_events([40])[0]))
    poison = [b"\xff\xfe garbage", unknown, None, cut, avro[:-3]]
    with producing(kafka) as producer:
        for number, value in enumerate([*good[:20], *poison, *good[20:], avro]):
            producer.send(topic.topic, value, b"key", partition=number % 2, timestamp_ms=FIRST_MS + number)
    summary = replay(topic, tmp_path, topic_prefix).summary
    assert adds_up(summary)
    assert (summary["events_read"], summary["visits"], summary["rejects"]) == (46, 41, 5)
    expected = {
        (f"{topic.topic}/{number % 2}", number // 2, value or b"") for number, value in enumerate(poison, start=20)
    }
    found = [one.record for one in records(topic.connection, "rejects", prefix=topic_prefix)]
    assert {(one.source, one.offset, one.bytes) for one in found} == expected
    assert Counter(one.reason.value for one in found) == summary["rejects_by_reason"]
    assert len(lines_of(tmp_path / "rejects.jsonl")) == 5


# -- states


@pytest.fixture(scope="module")
def scattered(published: Published) -> Topic:
    """The published log in three partitions."""
    topic = Topic(create_topics(published.kafka.brokers, "scattered-", 3), "scattered-crawl-events")
    copy_events(published, topic, skewed)
    return topic


@pytest.mark.slow
def test_a_replay_that_is_stopped_repeatedly_ends_with_the_same_bytes(
    published: Published, scattered: Topic, small_batches: None, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"state": tmp_path / "state", "segment_bytes": 50_000}
    kill = Kill(lambda call, progress: call % 3 == 0)
    result = run_to_end(lambda: replay(scattered, tmp_path / "out", progress=kill, **options))
    assert kill.kills >= 2
    assert adds_up(result.summary)
    assert result.summary["events_read"] == published.summary["events_read"] - 3
    assert same_results(tmp_path / "out", published.out)
    again = replay(scattered, tmp_path / "again", **options)
    assert again.notes[0].startswith("Nothing new since these logs were replayed")
    assert same_results(tmp_path / "again", published.out)


_DYING = f"""
import os, signal, sys
from pathlib import Path
from opicflow.connectors.kafka import topic_log
from opicflow.connectors.kafka import partitions
from opicflow.connectors.kafka.connection import Connection
from opicflow.pipelines.replay.topic_input import Topic
from opicflow.pipelines.replay.runner import ReplayRequest, replayed
from opicflow.pipelines.stages.settings import LedgerOptions
from opicflow.schemas.pages import PageIds
for name, value in {SMALL!r}.items():
    setattr(topic_log if name.startswith("BATCH") else partitions, name, value)
left = 3
def progress(progress):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
brokers, topic, state = sys.argv[1:]
counting = LedgerOptions(history="interpolation")
log = Topic(Connection(brokers), topic)
request = ReplayRequest(topic=log, state=Path(state), segment_bytes=50_000, counting=counting, page_ids=PageIds())
with replayed(request, progress):
    pass
"""


def test_a_replay_whose_process_is_killed_ends_with_the_same_bytes(
    published: Published, scattered: Topic, small_batches: None, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", _DYING, scattered.connection.brokers, scattered.topic, str(tmp_path / "state")]
    killed = subprocess.run(words, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    shown: list[Progress] = []
    replay(scattered, tmp_path / "out", progress=shown.append, state=tmp_path / "state", segment_bytes=50_000)
    assert shown[0].events > 600  # it continued
    assert same_results(tmp_path / "out", published.out)


def test_a_replay_of_new_events_gives_the_same_as_one_replay_of_all(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topic = Topic(create_topics(kafka.brokers, topic_prefix, 3), f"{topic_prefix}crawl-events")
    days = [tmp_path / "monday.jsonl", tmp_path / "tuesday.jsonl"]
    for day, numbers in zip(days, (range(150), range(150, 330)), strict=True):
        day.write_bytes(jsonl(numbered_events(numbers)))
    state = tmp_path / "state"
    with pytest.raises(NothingRead, match=r"nothing to replay: publish a log"):
        replay(topic, state=state)
    output_of("publish", "events", days[0], *at(kafka, topic_prefix), "--quiet")
    assert replay(topic, state=state).summary["events_read"] == 150
    output_of("publish", "events", days[1], *at(kafka, topic_prefix), "--quiet")
    second = replay(topic, tmp_path / "both", state=state)
    assert second.summary["events_read"] == 180
    assert not [note for note in second.notes if "othing new" in note]
    run(days, tmp_path / "files")
    replay(topic, tmp_path / "once")
    assert same_results(tmp_path / "both", tmp_path / "once")
    assert same_results(tmp_path / "both", tmp_path / "files")
    third = replay(topic, tmp_path / "third", state=state)
    assert third.notes[0].startswith("Nothing new since these logs were replayed")
    assert same_results(tmp_path / "third", tmp_path / "files")


@pytest.mark.parametrize("partitions", [2, 1])
def test_a_recreated_topic_is_refused(kafka: LocalKafka, topic_prefix: str, tmp_path: Path, partitions: int) -> None:
    topic = Topic(create_topics(kafka.brokers, topic_prefix, 2), f"{topic_prefix}crawl-events")
    produce(kafka, topic.topic, numbered_events(range(20)), 2)
    replay(topic, state=tmp_path)
    with closing(topic.connection.admin()) as admin:
        admin.delete_topics([topic.topic])
        wait_for(lambda: topic.topic not in admin.list_topics())
        admin.create_topics([NewTopic(topic.topic, partitions, 1)])
    produce(kafka, topic.topic, numbered_events(range(40)), partitions)
    with pytest.raises(StateRefused, match="created again since it was replayed into this state"):
        replay(topic, state=tmp_path)


@pytest.mark.slow
def test_events_of_a_topic_that_were_ahead_of_the_clock_are_read_again(
    kafka: LocalKafka, topic_prefix: str, small_batches: None, tmp_path: Path
) -> None:
    topic = Topic(create_topics(kafka.brokers, topic_prefix, 3), f"{topic_prefix}crawl-events")
    day_ms, hour_ms = 86_400_000, 3_600_000

    def some(numbers: range) -> list[CrawlEvent]:
        """Events of which every fifth is by a clock that is three days ahead, but for the first ones."""
        events = numbered_events(numbers)
        return [
            replace(event, fetched_at_ms=(event.fetched_at_ms or 0) + 3 * day_ms * (number % 5 == 0 and number >= 200))
            for number, event in zip(numbers, events, strict=True)
        ]

    def replay_at(latest_ms: int) -> dict[str, Any]:
        summary = replay(topic, tmp_path / "out", state=tmp_path / "state", latest_ms=latest_ms, segment_bytes=20_000)
        return summary.summary

    produce(kafka, topic.topic, some(range(600)), 3)
    first = replay_at(FIRST_MS + day_ms)
    assert (first["visits"], first["events_ahead"], first["partitions"]) == (520, 80, 3)
    produce(kafka, topic.topic, some(range(600, 800)), 3)
    second = replay_at(FIRST_MS + 3 * day_ms + 7 * hour_ms)
    assert (second["visits"], second["events_ahead"], second["duplicates"]) == (45 + 160, 35 + 40, 0)
    third = replay_at(FIRST_MS + 9 * day_ms)
    assert (third["visits"], third["events_read"], third["duplicates"]) == (75, 75, 0)
    found = Counter({one["url"]: one["visits"] for one in records_of(tmp_path / "out/importance.jsonl")})
    assert found == Counter(event.url for event in some(range(800)))
    fourth = replay(topic, state=tmp_path / "state", latest_ms=FIRST_MS + 99 * day_ms)
    assert fourth.notes[0].startswith("Nothing new since these logs were replayed")


def test_events_ahead_that_were_deleted_meanwhile_do_not_end_a_replay(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topic = Topic(create_topics(kafka.brokers, topic_prefix), f"{topic_prefix}crawl-events")
    produce(kafka, topic.topic, numbered_events(range(20)))
    with pytest.raises(AllRejected):
        replay(topic, state=tmp_path, latest_ms=FIRST_MS - 1)
    with closing(topic.connection.admin()) as admin:
        admin.delete_records({TopicPartition(topic.topic, 0): 15})
    result = replay(topic, state=tmp_path, latest_ms=FIRST_MS + 86_400_000)
    assert result.summary["visits"] == 5
    assert f"{topic.topic}: some events that were ahead of the clock were deleted before they counted." in result.notes


def test_events_that_were_deleted_before_they_were_read_are_an_error(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topic = Topic(create_topics(kafka.brokers, topic_prefix), f"{topic_prefix}crawl-events")
    produce(kafka, topic.topic, numbered_events(range(20)))
    replay(topic, state=tmp_path)
    with closing(topic.connection.admin()) as admin:
        admin.delete_records({TopicPartition(topic.topic, 0): 10})
        assert replay(topic, state=tmp_path).notes[0].startswith("Nothing new")  # events that were read may be deleted
        produce(kafka, topic.topic, numbered_events(range(20, 40)))
        admin.delete_records({TopicPartition(topic.topic, 0): 30})
    with pytest.raises(KafkaRefused, match="partition 0: offsets 20 to 29 were deleted before they were read"):
        replay(topic, state=tmp_path)


@pytest.mark.slow
def test_a_part_of_a_topic_is_replayed_between_two_times(published: Published, tmp_path: Path) -> None:
    events = [json.loads(line) for line in lines_of(published.log) if "fetched_at" in line and "mailto" not in line]
    times_ms = sorted({event["fetched_at"] for event in events})
    since_ms, until_ms = times_ms[700], times_ms[1500]
    since, until_ = iso(since_ms), iso(until_ms)
    words = (
        "replay",
        "--history",
        "interpolation",
        "--from",
        f"kafka://{published.kafka.brokers}",
        "--prefix",
        published.prefix,
        "--json",
        "--quiet",
    )
    assert json.loads(output_of(*words, "--since", since, "--until", until_))["visits"] == 800
    until_then = ("--state", tmp_path / "state", "--until", until_)
    first = json.loads(output_of(*words, *until_then))
    assert json.loads(output_of(*words, *until_then, "--out", tmp_path / "again"))["visits"] == first["visits"]
    rest = json.loads(output_of(*words, "--state", tmp_path / "state", "--out", tmp_path / "out"))
    assert first["visits"] + rest["visits"] == published.summary["visits"]
    assert same_results(tmp_path / "out", published.out)


# -- failures of brokers


STARTER = ThreadPoolExecutor(1)
"""Its thread stays: a broker ends with the thread that started it."""


@contextmanager
def trouble(kafka: LocalKafka, kind: str, seconds: float) -> Iterator[Callable[[], None]]:
    """Yield a function that kills a broker or pauses it for some seconds. At the end of the body it runs again."""
    returns: list[Future[None]] = []

    def come_back() -> None:
        if kind == "crash":
            kafka.restart()
        else:
            threading.Event().wait(seconds)
            kafka.resume()

    def strike() -> None:
        for one in returns:
            one.result()
        kafka.kill() if kind == "crash" else kafka.pause()
        returns.append(STARTER.submit(come_back))

    try:
        yield strike
    finally:
        for one in returns:
            one.result()


@pytest.mark.parametrize(
    ("kind", "seconds"), [("crash", 0), ("pause", 2), pytest.param("pause", 60, marks=pytest.mark.soak)]
)
def test_a_broker_that_fails_and_returns_changes_no_result(
    published: Published,
    mortal_kafka: LocalKafka,
    small_batches: None,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    seconds: float,
) -> None:
    topic = Topic(create_topics(mortal_kafka.brokers, topic_prefix, result_partitions=2), f"{topic_prefix}crawl-events")
    copy_events(published, topic)
    shown: list[Progress] = []
    sends = 0
    with trouble(mortal_kafka, kind, seconds) as strike:

        def progress(progress: Progress) -> None:
            shown.append(progress)
            if len(shown) == 1:
                strike()

        def send_many(publisher: Publisher, *columns: Any) -> list[int]:
            nonlocal sends
            sends += 1
            if sends == 2:
                strike()
            return before(publisher, *columns)

        before = Publisher.send_many
        monkeypatch.setattr(Publisher, "send_many", send_many)
        result = replay(topic, tmp_path, topic_prefix, progress, segment_bytes=50_000)
    assert shown[0].events < result.summary["events_read"] / 4
    assert sends > 3
    assert same_results(tmp_path, published.out)
    for stream in STREAMS:
        found = subscribed(mortal_kafka, topic_prefix, stream)
        assert set(found) == set(lines_of(published.out / f"{stream}.jsonl"))
        newest = {json.loads(line).get("url", json.loads(line).get("site")): line for line in found}
        assert set(newest.values()) == set(found)


@pytest.mark.slow
def test_following_a_stream_continues_when_the_broker_is_back(mortal_kafka: LocalKafka, topic_prefix: str) -> None:
    connection = create_topics(mortal_kafka.brokers, topic_prefix)
    audit = Audit(0, 1, 0, 0.0, *[0] * 9)
    found = []
    following = records(connection, "audit", prefix=topic_prefix, follow=True)
    with closing(following), trouble(mortal_kafka, "crash", 0) as strike, Publisher(connection) as publisher:
        for second in range(3):
            value = encode_single_object("Audit", to_avro(replace(audit, second=second)))
            publisher.send(f"{topic_prefix}audit", b"0", value)
            publisher.flush()
            found.append(next(following).record.second)
            if second == 1:
                strike()
    assert found == [0, 1, 2]


# -- other programs


def by_fastavro(value: bytes, begin: int, writer: Any) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value[begin:]), writer, None)


@pytest.mark.slow
def test_any_consumer_and_any_avro_reader_can_read_importance(
    published: Published, topic_prefix: str, tmp_path: Path
) -> None:
    kafka = published.kafka
    with_registry = Connection(kafka.brokers, registry=kafka.registry)
    create_topics(kafka.brokers, topic_prefix)
    replay(published.topic, tmp_path, topic_prefix)
    expected = [(page["url"], page["importance"]) for page in records_of(tmp_path / "importance.jsonl")]
    file = TOP / "schemas" / "published" / "Importance-1.avsc"
    alone = json.loads(file.read_bytes())
    mark = b"\xc3\x01" + int(
        fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(alone), "CRC-64-AVRO"), 16
    ).to_bytes(8, "big")
    found = []
    for record in raw_records(kafka.brokers, f"{topic_prefix}importance"):
        assert record.value.startswith(mark)
        page = by_fastavro(record.value, 10, alone)
        assert record.key.decode() == page["url"]
        found.append((page["url"], page["importance"]))
    assert found == expected
    counting = LedgerOptions(history="interpolation")
    with replayed(
        ReplayRequest(topic=published.topic, to=Destination(with_registry, topic_prefix), counting=counting),
        lambda progress: None,
    ):
        pass
    framed = raw_records(kafka.brokers, f"{topic_prefix}importance")[len(expected) :]
    numbers = {record.value[:5] for record in framed}
    assert len(numbers) == 1
    number = int.from_bytes(numbers.pop()[1:], "big")
    writer = json.loads(requests.get(f"{kafka.registry}/schemas/ids/{number}", timeout=10).json()["schema"])
    pages = [by_fastavro(record.value, 5, writer) for record in framed]
    assert [(page["url"], page["importance"]) for page in pages] == expected


def test_a_plain_json_producer_of_ten_lines_is_all_a_crawler_needs(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    connection = create_topics(kafka.brokers, topic_prefix, event_partitions=3, result_partitions=2)
    producer = KafkaProducer(**OUTSIDE, bootstrap_servers=kafka.brokers)
    for page, links in [("https://a.example/", ["/b", "/c"]), ("https://a.example/b", ["/"])]:
        event = {"url": page, "fetched_at": "2026-05-01T12:00:00Z", "status": 200, "links": links}
        producer.send(f"{topic_prefix}crawl-events", json.dumps(event).encode(), key=page.encode())
    producer.flush()
    producer.close()
    address = f"kafka://{kafka.brokers}"
    output_of("replay", "--from", address, "--to", address, "--prefix", topic_prefix, "--quiet")
    scores = {one.record.url: one.record.score for one in records(connection, "importance", prefix=topic_prefix)}
    assert scores.keys() == {"https://a.example/", "https://a.example/b", "https://a.example/c"}
    assert scores["https://a.example/"] == max(scores.values())


def written(record: Any, writer: Any) -> bytes:
    """Return the body of a record that was written with a schema."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, writer, to_avro(record))
    return body.getvalue()


def registered(kafka: LocalKafka, topic: str, writer: Any) -> int:
    address = f"{kafka.registry}/subjects/{topic}-value/versions"
    return int(requests.post(address, json={"schema": json.dumps(writer)}, timeout=10).json()["id"])


@pytest.mark.parametrize(
    ("stream", "record"),
    [
        (
            "refresh-schedule",
            RefreshSchedule(url(1), 1, FIRST_MS, 60.0, "BUDGET", 0.5, "DEFAULT", 0.25, None, FIRST_MS, FIRST_MS, 0),
        ),
        ("crawl-orders", CrawlOrder(url(1), 1, FIRST_MS, "REFRESH", 0.5, FIRST_MS, None, 0.25, 7, None, None, 0)),
        ("policies", Policy(published_at_ms=FIRST_MS, url=url(1), refresh_interval_seconds=60.0)),
    ],
)
def test_records_of_this_version_and_of_a_newer_one_are_read_from_one_topic(
    kafka: LocalKafka, topic_prefix: str, stream: str, record: Any
) -> None:
    create_topics(kafka.brokers, topic_prefix)
    name, topic = type(record).__name__, topic_prefix + stream
    with producing(kafka) as producer:
        now = schema(name)
        newer = {**now, "fields": [*now["fields"], {"name": "added", "type": "int", "default": 7}]}
        for writer in (now, newer, now):
            number = registered(kafka, topic, writer)
            producer.send(topic, b"\x00" + number.to_bytes(4, "big") + written(record, writer), b"key")
            producer.send(topic, b"\xc3\x01" + fingerprint(name).to_bytes(8, "little") + written(record, now), b"key")
    connection = Connection(kafka.brokers, registry=kafka.registry)
    assert [one.record for one in records(connection, stream, prefix=topic_prefix)] == [record] * 6


def test_events_of_a_writer_with_fewer_fields_are_read_by_its_schema_in_the_registry(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    create_topics(kafka.brokers, topic_prefix)
    topic = Topic(Connection(kafka.brokers, registry=kafka.registry), f"{topic_prefix}crawl-events")
    now = schema("CrawlEvent")
    names = ("url", "fetched_at", "status", "links")
    writer = {**now, "fields": [field for field in now["fields"] if field["name"] in names]}
    number = registered(kafka, topic.topic, writer)
    events = numbered_events(range(100))
    with producing(kafka) as producer:
        for event in events:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, writer, {name: to_avro(event)[name] for name in names})
            value = b"\x00" + number.to_bytes(4, "big") + body.getvalue()
            producer.send(topic.topic, value, timestamp_ms=event.fetched_at_ms)
    log = tmp_path / "log.jsonl"
    log.write_bytes(jsonl(events))
    run([log], tmp_path / "file")
    assert replay(topic, tmp_path / "out").summary["visits"] == 100
    assert same_results(tmp_path / "out", tmp_path / "file")


def test_a_reader_of_a_stream_without_its_beginning_gets_all_other_records(
    kafka: LocalKafka, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = create_topics(kafka.brokers, topic_prefix)
    topic = f"{topic_prefix}audit"
    with Publisher(connection) as publisher:
        for second in range(10):
            value = encode_single_object("Audit", to_avro(Audit(0, 1, second, 0.0, *[0] * 9)))
            publisher.send(topic, b"0", value)

    def resolved(*where: Any, **how: Any) -> Any:
        found = partitions.resolve(*where, **how)
        with closing(connection.admin()) as admin:
            admin.delete_records({TopicPartition(topic, 0): 6})
        return found

    monkeypatch.setattr(import_module("opicflow.connectors.kafka.record_reader"), "resolve", resolved)
    assert [one.record.second for one in records(connection, "audit", prefix=topic_prefix)] == [6, 7, 8, 9]


# -- results in their topics


@pytest.mark.slow
def test_compaction_keeps_the_newest_record_of_each_page_and_none_of_a_removed_one(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    topic = Topic(create_topics(kafka.brokers, topic_prefix), f"{topic_prefix}crawl-events")
    settings = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0"}
    names = [f"{topic_prefix}{stream}" for stream in ("importance", "refresh-schedule")]
    with closing(topic.connection.admin()) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, settings) for name in names])
    produce(kafka, topic.topic, numbered_events(range(120)))
    replay(topic, None, topic_prefix, state=tmp_path / "state")
    produce(kafka, topic.topic, numbered_events(range(120, 240)))
    gone = Policy(published_at_ms=FIRST_MS + 180 * 60_000, url=url(7), forget=True)
    result = replay(topic, tmp_path / "out", topic_prefix, state=tmp_path / "state", policies=(gone,))
    assert [sent.tombstones for sent in result.published] == [1, 0, 1, 0, 0, 0, 0]
    for name, file in zip(names, ("importance.jsonl", "refresh-schedule.jsonl"), strict=True):
        before = raw_records(kafka.brokers, name)
        assert [record.key.decode() for record in before if record.value is None] == [url(7)]
        assert len(before) > 2 * len({record.key for record in before}) - 3

        def is_clean(name: str = name) -> bool:
            with producing(kafka) as producer:
                producer.send(name, None, b"end")  # begins a new segment: the last one is never cleaned
            keys = [record.key.decode() for record in raw_records(kafka.brokers, name) if record.key != b"end"]
            return len(keys) == len(set(keys)) and url(7) not in keys

        wait_for(is_clean)
        kept = [line for line in subscribed(kafka, topic_prefix, file.removesuffix(".jsonl")) if '"end"' not in line]
        assert sorted(kept) == sorted(lines_of(tmp_path / "out" / file))


def test_a_published_page_that_was_dropped_has_tombstones_at_the_end(kafka: LocalKafka, topic_prefix: str) -> None:
    topic = Topic(create_topics(kafka.brokers, topic_prefix), f"{topic_prefix}crawl-events")
    events = numbered_events(range(120))
    lone = CrawlEvent("https://lone.example/", fetched_at_ms=FIRST_MS + 90_000, links=())
    produce(kafka, topic.topic, [*events[:2], lone, *events[2:]])
    gone = Policy(published_at_ms=FIRST_MS + 60 * 60_000, url=lone.url, drop=True)
    replay(topic, None, topic_prefix, publications=True, policies=(gone,))
    for stream in ("importance", "refresh-schedule"):
        newest: dict[bytes | None, Arrived] = {
            one.key: one for one in records(topic.connection, stream, prefix=topic_prefix)
        }
        assert newest[lone.url.encode()].value is None
        assert sum(one.value is None for one in newest.values()) == 1
    sites = {one.key: one.value for one in records(topic.connection, "site-importance", prefix=topic_prefix)}
    assert {key for key, value in sites.items() if value is None} == {b"lone.example", b"lone.example#0"}
    assert len([value for value in sites.values() if value is not None]) > 10


def test_a_reject_that_is_too_large_for_its_topic_is_an_error_and_not_lost(
    kafka: LocalKafka, topic_prefix: str
) -> None:
    topic = Topic(create_topics(kafka.brokers, topic_prefix), f"{topic_prefix}crawl-events")
    settings = {"max.message.bytes": "2000"}
    with closing(topic.connection.admin()) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, f"{topic_prefix}rejects", settings)])
    produce(kafka, topic.topic, numbered_events(range(10)))
    with producing(kafka) as producer:
        producer.send(topic.topic, random.Random(0).randbytes(20_000))
    with pytest.raises(
        KafkaRefused, match=rf"{topic_prefix}rejects: takes no record of \d+ bytes: raise its max.message"
    ):
        replay(topic, None, topic_prefix)


def test_policies_from_their_topic_have_the_same_effect_as_from_a_file(
    published: Published, topic_prefix: str, tmp_path: Path
) -> None:
    kafka = published.kafka
    create_topics(kafka.brokers, topic_prefix)
    policies = [
        {"host": "site-3.example", "refresh_forbidden": True, "published_at": FIRST_MS + 3_600_000},
        {"url": url(5), "refresh_interval_seconds": 21_600.0, "published_at": FIRST_MS + 7_200_000},
    ]
    file = tmp_path / "policies.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in policies), encoding="utf-8")
    when = iso(FIRST_MS + 3_600_000)
    output_of("publish", "policy", "--host", "site-3.example", "--never", "--at", when, *at(kafka, topic_prefix))
    with producing(kafka) as producer:
        producer.send(f"{topic_prefix}policies", b'{"hots": "site-4.example"}')
        producer.send(f"{topic_prefix}policies", json.dumps(policies[1], indent=1).encode())
    copy_events(published, Topic(published.connection, f"{topic_prefix}crawl-events"))
    address = f"kafka://{kafka.brokers}"
    words = ("replay", "--from", address, "--prefix", topic_prefix, "--quiet", "--json", "--policies")
    by_topic = finished(*words, address, "--out", tmp_path / "topic")
    assert by_topic.err == (
        f"{topic_prefix}policies, offset 1: skipped: the message, line 1: 'hots' is no field of a policy: did "
        "you mean host?\n"
    )
    by_file = output_of(*words, file, "--out", tmp_path / "file")
    assert json.loads(by_file)["policies"] == json.loads(by_topic.out)["policies"] == 2
    assert same_results(tmp_path / "topic", tmp_path / "file")
    assert not same_results(tmp_path / "file", published.out)


# -- load

_MEASURED = """
import resource, sys
from opicflow.pipelines.cli.main import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def measure(*arguments: object) -> tuple[dict[str, Any], int]:
    """Run a command; return its output as JSON, and the peak memory of its process in KiB."""
    words = [sys.executable, "-c", _MEASURED, *map(str, arguments)]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout), int(ended.stderr.split()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("events", [30_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_load_of_events_is_counted_completely_in_bounded_memory(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path, events: int
) -> None:
    create_topics(kafka.brokers, topic_prefix, event_partitions=3)
    log = tmp_path / "log.jsonl"
    with open(log, "w", encoding="utf-8") as file:
        for number in range(events):
            links = ",".join(f'"{url((number * step + step) % 4999)}"' for step in (7, 31, 101, 499, 997))
            time_ms = FIRST_MS + number * 1000
            file.write(f'{{"url":"{url(number * 13 % 4999)}","fetched_at":{time_ms},"links":[{links}]}}\n')
    result = json.loads(output_of("publish", "events", log, *at(kafka, topic_prefix), "--quiet", "--json"))
    assert result["summary"]["published"] == events
    words = (
        "replay",
        "--from",
        f"kafka://{kafka.brokers}",
        "--prefix",
        topic_prefix,
        "--json",
        "--quiet",
        "--history",
        "interpolation",
    )
    fifth, least_kib = measure(*words, "--until", iso(FIRST_MS + events // 5 * 1000))
    assert fifth["visits"] == events // 5
    whole, most_kib = measure(*words, "--out", tmp_path / "out")
    assert (whole["visits"], whole["drift"]) == (events, 0)
    assert most_kib <= 1.3 * least_kib, (least_kib, most_kib)
    run([log], tmp_path / "file")
    assert same_results(tmp_path / "out", tmp_path / "file")
