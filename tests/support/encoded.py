"""The messages of a batch, beside the events that readers of a topic decode from them."""

from __future__ import annotations

from opicflow.connectors.files.event_messages import EventMessages
from opicflow.connectors.files.log_reader import Batch
from opicflow.connectors.kafka.messages import decode_messages
from opicflow.schemas.crawl_events import BROKEN_LINK, Reject
from opicflow.schemas.event_columns import FIRST_HOP, EventWriter
from opicflow.schemas.framing import published_writer
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.published_schemas import fingerprint
from support.event_rows import Row, rows_of

PREFIX = b"\xc3\x01" + fingerprint("CrawlEvent").to_bytes(8, "little")
"""The frame of an event in Avro."""


def check_messages(batch: Batch) -> EventMessages:
    """Compare the messages of a batch, and what they are decoded to, with its events and rejects; return them."""
    found, items = batch.messages(PREFIX), list(batch.items())
    events = [(offset, item) for offset, item in items if not isinstance(item, Reject)]
    assert found.offset.tolist() == [offset for offset, _ in events]
    assert found.time_ms.tolist() == [event.fetched_at_ms or 0 for _, event in events]
    assert list(found.urls) == [event.url.encode() for _, event in events]
    assert found.rejects == [item for _, item in items if isinstance(item, Reject)]
    writer = EventWriter()
    for number, (_, event) in enumerate(events):
        writer.add(number, event)
    messages = MessageBatch.of(0, [(number, 0, value) for number, value in enumerate(found.values)])
    decoded = decode_messages(messages, "f", published_writer)
    assert _with_names(rows_of(decoded.events)) == _with_names(rows_of(writer.events()))
    assert not decoded.rejects
    return found


def _with_names(rows: list[Row]) -> list[Row]:
    """Return rows in which links without a URL have the one that names them in Avro."""
    name = BROKEN_LINK.url.encode()
    named = []
    for *row, urls in rows:
        assert isinstance(urls, tuple)
        links = [(name if url is None else url, *rest) for url, *rest in urls[FIRST_HOP:]]
        named.append((*row, (*urls[:FIRST_HOP], *links)))
    return named
