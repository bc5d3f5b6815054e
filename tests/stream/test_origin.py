"""The origin of a stream: boundaries that are chosen before it begins, and the key of page ids."""

from __future__ import annotations

import base64
import bz2
import json
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange, resolve
from opicflow.connectors.kafka.polls import NO_END, WatchedTopic
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.source import read_range
from opicflow.pipelines.cli.boundaries import chosen_ranges
from opicflow.pipelines.cli.main import parse
from opicflow.pipelines.ledger import ItemWriter, LedgerConfig
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.results.record_columns import reject_columns
from opicflow.pipelines.stages import log_settings
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_settings import LogRefused, Origin, Placement
from opicflow.pipelines.stages.outputs import REJECTS
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.settings import new_page_ids
from opicflow.pipelines.stream import origin
from opicflow.pipelines.stream.origin import begin_logs, origin_of, placement_of, reserve_logs
from opicflow.pipelines.stream.pipeline import Stream, StreamConfig
from opicflow.pipelines.stream.published_rules import control_record
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.pages import PageIds
from opicflow.schemas.shards import ShardRanges
from support.commands import command
from support.services import LocalKafka

SECRET = PageIds(key=b"0123456789abcdef")
PLACEMENT = Placement(SECRET, ShardRanges((0, 1 << 60, 1 << 62)))
ORIGIN = Origin(LedgerConfig(), ShardRanges.equal(3))


def create(kafka: LocalKafka, prefix: str, *options: object) -> str:
    result = command("topics", "create", "--brokers", kafka.brokers, "--prefix", prefix, "--shards", 3, *options)
    assert result.code == 0, result
    return result.out


class Stages(PipelineVisitor):
    """Collects the functions of all stages as a job holds them: pickled, and not compressed here."""

    def __init__(self) -> None:
        self.pickled: list[bytes] = []

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        if isinstance(transform_node.transform, beam.ParDo):
            self.pickled.append(bz2.decompress(base64.b64decode(pickler.dumps(transform_node.transform.fn))))


# -- without a broker ------------------------------------------------------------------------------------------------


def test_a_placement_is_read_back_from_its_entry() -> None:
    assert Placement.of(decode_entry(PLACEMENT.entry())) == PLACEMENT
    assert Placement.of(decode_entry(ORIGIN.entry())) is None


@pytest.mark.parametrize("firsts", [[0, 5, 5], [1, 2, 3], [0, 9, 5], [0, 5], "no list", [0, 1, 1.5]])
def test_a_damaged_placement_is_refused_in_one_line(firsts: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShardRanges, "to_json", lambda self: firsts)
    entry = decode_entry(PLACEMENT.entry())
    with pytest.raises(LogRefused, match="the placement of pages in the log is damaged") as refused:
        Placement.of(entry)
    assert "\n" not in str(refused.value)


def test_a_log_that_was_reserved_for_a_placement_begins_with_it() -> None:
    keeper = LedgerKeeper(1)
    begun = Origin(LedgerConfig(), PLACEMENT.ranges, Rules(page_ids=SECRET))
    outputs = list(keeper.take(MessageBatch.of(0, [(0, 1000, PLACEMENT.entry()), (1, 1000, begun.entry())])))
    assert [output for output in outputs if output.kind == REJECTS] == []
    assert keeper.ledger is not None and keeper.ledger.ranges == PLACEMENT.ranges
    assert keeper.ledger.page_ids == SECRET
    again = LedgerKeeper.from_chunks(1, keeper.chunks())
    assert again.origin == begun and again.ledger is not None
    assert (again.ledger.ranges, again.ledger.page_ids) == (PLACEMENT.ranges, SECRET)


def test_a_log_whose_page_ids_follow_from_another_form_of_urls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Origin(LedgerConfig(), ShardRanges())
    old = decode_entry(begun.entry())
    assert Origin.of(old) == begun
    monkeypatch.setattr(log_settings, "CANONICAL_VERSION", 2)
    newer = decode_entry(begun.entry())
    assert Origin.of(newer) == begun
    with pytest.raises(LogRefused, match="have ids by version 1 of canonical URLs, and this opicflow has version 2"):
        Origin.of(old)
    monkeypatch.undo()
    with pytest.raises(LogRefused, match="have ids by version 2 of canonical URLs, and this opicflow has version 1"):
        Origin.of(newer)


def test_a_url_that_collides_becomes_a_reject_and_the_stream_continues() -> None:
    first, second = b"http://collide.com/33114542", b"http://collide.com/04146534"
    page = PageIds().of(first)
    keeper = LedgerKeeper(0)
    log = ItemWriter().visit(page, [1], time_ms=1000, url=first).visit(page, [2], time_ms=2000, url=second)
    log.visit(5, [page], time_ms=3000, url=b"http://a.com/")
    values = [Origin(LedgerConfig(), ShardRanges()).entry(), encode_entry(log.entry())]
    outputs = list(keeper.take(MessageBatch.of(0, [(at, 1000, value) for at, value in enumerate(values)])))
    (reject,) = [reject_columns(output.data) for output in outputs if output.kind == REJECTS]
    assert (reject["reason"], reject["bytes"]) == (["collision"], [second])
    assert keeper.counts["rejected"] == 1
    assert keeper.ledger is not None and keeper.ledger.visits == 2


def test_the_key_is_in_no_job_and_no_record_of_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def watched(connection: Connection, topic: str, **options: object) -> WatchedTopic:
        return WatchedTopic((PartitionRange("kafka/id/0", connection, topic, "id", 0, 0, NO_END),), **options)  # type: ignore[arg-type]

    monkeypatch.setattr(WatchedTopic, "of", watched)
    secret = Origin(LedgerConfig(), ShardRanges.equal(4), Rules(page_ids=SECRET))
    monkeypatch.setattr(origin, "origin_of", lambda connection, topic, snapshots: secret)
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(["--streaming"]))
    _ = pipeline | "Stream" >> Stream(StreamConfig(Connection("nowhere:9092"), 4))
    stages = Stages()
    pipeline.visit(stages)
    assert len(stages.pickled) > 8
    assert any(b"page-ledger" in one for one in stages.pickled)
    assert not any(SECRET.key in one or SECRET.key.hex().encode() in one for one in stages.pickled)
    rules = Rules(page_ids=SECRET)
    for text in (control_record(rules), json.dumps(rules.to_json()).encode(), repr(rules).encode()):
        assert SECRET.key not in text and SECRET.key.hex().encode() not in text


def test_every_stream_has_a_key_of_its_own() -> None:
    assert len({new_page_ids().key for _ in range(100)}) == 100
    assert not new_page_ids().is_public


# -- with a broker ---------------------------------------------------------------------------------------------------


def write_log(path: Path, sites: int = 40, pages: int = 50) -> Path:
    """Write a log in which sites have very different sizes."""
    random = np.random.default_rng(5)
    with open(path, "w", encoding="utf-8") as file:
        for site in range(sites):
            for page in range(1 + int(pages * 10 ** random.uniform(-1, 1))):
                url = f"http://site{site}.com/{page}"
                file.write(json.dumps({"url": url, "status": 200, "links": [f"http://site{site}.com/"]}) + "\n")
    return path


@pytest.mark.slow
def test_boundaries_like_a_log_are_even_and_kept_by_the_stream(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    log = write_log(tmp_path / "crawl.jsonl")
    out = create(kafka, topic_prefix, "--like", log)
    assert "boundaries: " in out and " pages in 3 shards, the largest 1.0" in out
    connection, topic = Connection(kafka.brokers), f"{topic_prefix}page-ledger"
    placement = placement_of(connection, topic)
    assert placement is not None and not placement.page_ids.is_public
    urls = [json.loads(line)["url"] for line in log.read_text().splitlines()]
    sizes = np.bincount(placement.ranges.of(placement.page_ids.of_all(urls)), minlength=3)
    assert sizes.max() / sizes.mean() <= 1.1
    assert origin_of(connection, topic) is None
    begun = begin_logs(connection, topic, ORIGIN)
    assert begun.placement == placement
    assert origin_of(connection, topic) == begun
    assert begin_logs(connection, topic, ORIGIN) == begun
    for partition in resolve(connection, topic):
        keeper = LedgerKeeper(partition.partition)
        for batch in read_range(partition):
            assert [one for one in keeper.take(batch) if one.kind == REJECTS] == []
        assert keeper.origin == begun
    refused = command(
        "topics", "create", "--brokers", kafka.brokers, "--prefix", topic_prefix, "--shards", 3, "--like", log
    )
    assert refused.code == 2
    assert "its logs are not empty: boundaries are chosen before a stream begins" in refused.err


def test_boundaries_like_a_log_with_other_names_of_fields(tmp_path: Path) -> None:
    log = write_log(tmp_path / "crawl.jsonl")
    (tmp_path / "other.jsonl").write_text(log.read_text().replace('"url"', '"page_url"'))
    topics = ["topics", "create", "--shards", "3", "--like"]
    ranges, _ = chosen_ranges(parse([*topics, str(log)]), 3, Rules())
    options = parse([*topics, str(tmp_path / "other.jsonl"), "--field", "url=page_url", "--input-format", "jsonl"])
    assert chosen_ranges(options, 3, Rules())[0] == ranges


def test_boundaries_like_a_state(kafka: LocalKafka, topic_prefix: str, tmp_path: Path) -> None:
    log = write_log(tmp_path / "crawl.jsonl")
    assert command("replay", log, "--state", tmp_path / "state", "--quiet").code == 0
    for options in (["--even", "visits"], []):
        prefix = f"{topic_prefix}{len(options)}-"
        out = create(kafka, prefix, "--like", tmp_path / "state", *options)
        assert " pages in 3 shards, the largest 1." in out
        placement = placement_of(Connection(kafka.brokers), f"{prefix}page-ledger")
        assert placement is not None and not placement.ranges.is_equal


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"url": "http://one.com/", "status": 200}\n', "it has 1 pages with a URL, too few to choose boundaries"),
        ("", "too few to choose boundaries"),
        (None, "no such file"),
    ],
)
def test_what_gives_no_boundaries_is_refused_before_a_topic_is_made(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path, content: str | None, message: str
) -> None:
    like = tmp_path / "crawl.jsonl"
    if content is not None:
        like.write_text(content)
    result = command(
        "topics", "create", "--brokers", kafka.brokers, "--prefix", topic_prefix, "--shards", 3, "--like", like
    )
    assert result.code == 2 and message in result.err and len(result.err.splitlines()) == 1
    with pytest.raises(KafkaRefused, match="there is no topic"):
        resolve(Connection(kafka.brokers), f"{topic_prefix}page-ledger")


def test_a_log_of_one_site_is_divided_by_url(kafka: LocalKafka, topic_prefix: str, tmp_path: Path) -> None:
    log = tmp_path / "crawl.jsonl"
    log.write_text("".join(json.dumps({"url": f"http://one.com/{n}", "status": 200}) + "\n" for n in range(500)))
    assert "2 boundaries lie within a site" in create(kafka, topic_prefix, "--like", log)


def test_partitions_with_different_boundaries_are_refused(kafka: LocalKafka, topic_prefix: str) -> None:
    create(kafka, topic_prefix)
    connection, topic = Connection(kafka.brokers), f"{topic_prefix}page-ledger"
    reserve_logs(connection, topic, PLACEMENT)
    with Publisher(connection) as publisher:
        other = Origin(LedgerConfig(), ShardRanges.equal(3))
        publisher.send(topic, None, other.entry(), 0)
        publisher.send(topic, None, Origin(LedgerConfig(), PLACEMENT.ranges).entry(), 1)
        publisher.flush()
    with pytest.raises(LogRefused, match="its partitions begin with different settings"):
        origin_of(connection, topic)
