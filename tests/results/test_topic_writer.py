"""The publications of a stream's ledgers have the time of their log position, whoever sends them, however often."""

from __future__ import annotations

from opicflow.connectors.runs import close_run
from opicflow.pipelines.ledger import ItemWriter, LedgerConfig, LogPosition, PolicyEntry, TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.results.topic_writer import Destination, SendOutputs
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_settings import Origin
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.pages import page_id
from opicflow.schemas.records import Policy
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
    connection = FakeConnection("127.0.0.1:1")
    sending = SendOutputs(Destination(connection), "page-ledger")
    sending.start_bundle()
    for output in keeper.take(MessageBatch.of(0, [(at, FIRST_MS, value) for at, value in enumerate(log)])):
        sending.process(output)
    sending.finish_bundle()
    close_run("")  # the next call has a connection of its own
    return [(topic, value is None, time_ms) for topic, _, value, _, time_ms in connection.fakes[0].sent]


def test_records_have_the_time_of_their_log_position_and_the_same_when_they_are_sent_again() -> None:
    sent = outputs()
    removed = [(topic, time_ms) for topic, is_gone, time_ms in sent if is_gone]
    tick_ms = FIRST_MS // 1000 * 1000
    assert {topic for topic, _ in removed} == {"importance", "refresh-schedule"}
    assert len({time_ms for _, time_ms in removed}) == 1
    assert all(tick_ms <= time_ms < tick_ms + 1000 for _, _, time_ms in sent)
    assert outputs() == sent
