"""The publications of a stream's ledgers have the time of their log position, whoever sends them, however often."""

from __future__ import annotations

from typing import Any

from opicflow.connectors.kafka.publisher import partition_of
from opicflow.connectors.runs import close_run
from opicflow.pipelines.ledger import ItemWriter, LedgerConfig, LogPosition, PolicyEntry, TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.results.topic_writer import Destination, SendOutputs
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_settings import Origin
from opicflow.schemas.framing import Decoder
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.pages import page_id
from opicflow.schemas.records import PageChange, Policy, from_avro
from opicflow.schemas.shards import ShardRanges
from support.fake_kafka import FakeConnection
from support.logs import FIRST_MS

PAGE = "https://a.example/"


def outputs() -> list[tuple[str, bool, int]]:
    """Send what visits and a removal cause. Return topic and time of each record, and whether it is a tombstone."""
    keeper, log = LedgerKeeper(0), list[bytes]()
    log.append(Origin(LedgerConfig(), ShardRanges(), sites="domain").entry())
    log.append(encode_entry(TickEntry(FIRST_MS // 1000)))
    start = LogPosition(0, 0)
    for number in range(2):
        writer = ItemWriter(start)
        writer.visit(page_id(PAGE), [2], time_ms=FIRST_MS + number, url=PAGE.encode())
        log.append(encode_entry(writer.entry("kafka/x/0", start)))
        start = writer.next_position
    drop = PolicyEntry("p", LogPosition(0, 0), LogPosition(1, 0), policies=(Policy(url=PAGE, drop=True),))
    log.append(encode_entry(drop))
    return [(topic, value is None, time_ms) for topic, _, value, _, time_ms in sent_by(keeper, log)]


def sent_by(keeper: LedgerKeeper, log: list[bytes]) -> list[tuple[Any, ...]]:
    """Send the outputs that a log causes. Return topic, key, value, partition and time of each record."""
    connection = FakeConnection("127.0.0.1:1")
    sending = SendOutputs(Destination(connection), "page-ledger")
    sending.start_bundle()
    for output in keeper.take(MessageBatch.of(0, [(at, FIRST_MS, value) for at, value in enumerate(log)])):
        sending.process(output)
    sending.finish_bundle()
    close_run("")  # the next call has a connection of its own
    return connection.fakes[0].sent


def test_records_have_the_time_of_their_log_position_and_the_same_when_they_are_sent_again() -> None:
    sent = outputs()
    removed = [(topic, time_ms) for topic, is_gone, time_ms in sent if is_gone]
    tick_ms = FIRST_MS // 1000 * 1000
    assert {topic for topic, _ in removed} == {"importance", "refresh-schedule"}
    assert len({time_ms for _, time_ms in removed}) == 1
    assert all(tick_ms <= time_ms < tick_ms + 1000 for _, _, time_ms in sent)
    assert outputs() == sent


def test_a_change_is_sent_with_its_url_as_key_into_the_partition_of_the_url() -> None:
    subscription = Policy(host="a.example", notify=True, publisher="desk")
    log = [
        Origin(LedgerConfig(), ShardRanges()).entry(),
        encode_entry(PolicyEntry("p", LogPosition(0, 0), LogPosition(1, 0), policies=(subscription,))),
    ]
    start = LogPosition(0, 0)
    for number, digest in enumerate((5, 5, 7)):
        writer = ItemWriter(start)
        time_ms = FIRST_MS + 600_000 * number
        writer.visit(page_id(PAGE), [2], time_ms=time_ms, url=PAGE.encode(), digest=digest)
        log.append(encode_entry(writer.entry("kafka/x/0", start)))
        start = writer.next_position
    ((_, key, value, partition, _),) = [one for one in sent_by(LedgerKeeper(0), log) if one[0] == "page-changes"]
    assert (key, partition) == (PAGE.encode(), partition_of(PAGE, 4))
    assert from_avro(PageChange, Decoder("PageChange").decode(value)) == PageChange(
        PAGE, page_id(PAGE), FIRST_MS + 1_200_000, "00000005", "00000007", 1, 0.0, 0.0, "desk", 0, "a.example"
    )
