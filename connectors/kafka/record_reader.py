"""Reads the records of result topics: from the beginning or a time on, to the present end or without end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from kafka import TopicPartition

from opicflow.connectors.kafka.client import Record as Message
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.late_records import LateRecords
from opicflow.connectors.kafka.messages import describe_unread, writer_of
from opicflow.connectors.kafka.partitions import resolve
from opicflow.schemas.errors import in_one_line
from opicflow.schemas.framing import Decoder, FrameKind, FramingRefused, frame_kind
from opicflow.schemas.policy_json import PolicyRefused, policies_of
from opicflow.schemas.records import RECORDS, Policy, Record, from_avro

STREAMS = {
    "importance": "Importance",
    "site-importance": "SiteImportance",
    "refresh-schedule": "RefreshSchedule",
    "crawl-orders": "CrawlOrder",
    "page-changes": "PageChange",
    "rejects": "Reject",
    "audit": "Audit",
}
"""The topics of results, and the schemas of their records."""
BY_KEY = ("importance", "site-importance", "refresh-schedule")
"""Streams of which the newest record of a key holds. `LateRecords` decides which one is newer."""
POLICIES = "policies"
SCHEMAS = {**STREAMS, POLICIES: "Policy"}
"""The topics that can be read, and the schemas of their records."""

_POLL_MS = 500
_RECORDS_A_POLL = 2000


class Arrived(NamedTuple):
    """A message. `record` is None for a broken message, and for a tombstone, which revokes the records of its key."""

    key: bytes | None
    value: bytes | None
    record: Any
    partition: int
    offset: int
    broken: str = ""
    """Why the message cannot be read, in one line; empty if it can."""
    time_ms: int = -1


def records(connection: Connection, stream: str, **arguments: Any) -> Iterator[Arrived]:
    """Yield the messages of one of `STREAMS`; the arguments are those of `batches`."""
    for batch in batches(connection, stream, **arguments):
        yield from batch


def batches(
    connection: Connection,
    stream: str,
    *,
    prefix: str = "",
    follow: bool = False,
    since_ms: int | None = None,
    only_new: bool = False,
    partition: int | None = None,
    patience_seconds: float = 120.0,
) -> Iterator[list[Arrived]]:
    """Yield the messages of one of `STREAMS`, those of a partition in order; `follow` continues without end.

    A message that cannot be read is yielded as broken. Of `BY_KEY`, a record that came behind a newer one of its key is
    left out. With `follow`, an empty batch means that no message arrived for a while. Raises `KafkaRefused` if there is
    no such topic, if no broker answers for `patience_seconds`, or if a schema registry is needed and none is named.
    """
    if stream not in SCHEMAS:
        raise KafkaRefused(f"{stream[:40]!r} is not a stream: name one of {', '.join(SCHEMAS)}")
    topic = prefix + stream
    found = [
        one for one in resolve(connection, topic, since_ms=since_ms) if partition is None or one.partition == partition
    ]
    starts = {TopicPartition(topic, one.partition): one.end if only_new else one.start for one in found}
    ends = {TopicPartition(topic, one.partition): one.end for one in found}
    decoder = Decoder(SCHEMAS[stream], writer_of(connection))
    kind, late = RECORDS[SCHEMAS[stream]], LateRecords()
    unnamed = None if connection.registry_access() else _UnnamedRegistry(topic)
    settings = {
        "isolation_level": "read_committed",
        "max_poll_records": _RECORDS_A_POLL,
        "auto_offset_reset": "earliest",  # records may be deleted meanwhile: continue with the first that remains
    }
    with connection.doing(f"reading {topic}"), closing(connection.consumer(**settings)) as consumer:
        consumer.assign(list(starts))
        for one, start in starts.items():
            consumer.seek(one, start)
        answered_at = time.monotonic()
        while follow or any(consumer.position(one) < end for one, end in ends.items()):
            polled = consumer.poll(_POLL_MS)
            if polled:
                answered_at = time.monotonic()
            elif time.monotonic() - answered_at > patience_seconds:
                if not follow:
                    raise KafkaRefused(
                        f"{connection.brokers}: no answer for {patience_seconds:.0f} s while reading {topic}: check "
                        "the brokers"
                    )
                consumer.end_offsets(list(ends))  # raises an error if no broker answers: an idle topic is not an error
                answered_at = time.monotonic()
            arrived = [
                _arrived(record, decoder, kind)
                for one, parts in polled.items()
                for part in parts
                for record in part.records()
                if (follow or record.offset < ends[one])
                and not (stream in BY_KEY and late.is_late(stream, record.key, record.timestamp))
            ]
            if unnamed is not None:
                arrived = unnamed.without_its_records(arrived)
            if arrived or follow:
                yield arrived


class _UnnamedRegistry:
    """The schema registry of messages, where none is named: they cannot be read, and one line is enough to say so."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._has_read = self._has_reported = False

    def without_its_records(self, arrived: list[Arrived]) -> list[Arrived]:
        """Return the other messages, and the first one that needs the registry, as broken.

        Raises `KafkaRefused` if no message could be read before: then all of the topic needs it.
        """
        needs_it = [bool(one.broken) and frame_kind(one.value or b"") is FrameKind.CONFLUENT for one in arrived]
        self._has_read = self._has_read or any(one.record is not None for one in arrived)
        if not any(needs_it):
            return arrived
        if not self._has_read:
            raise KafkaRefused(
                f"{self._topic}: its records name schemas of a schema registry, and none is given: name it with "
                "--registry URL"
            )
        reported = None if self._has_reported else needs_it.index(True)
        self._has_reported = True
        return [one for row, one in enumerate(arrived) if row == reported or not needs_it[row]]


def _arrived(message: Message, decoder: Decoder, kind: type[Record]) -> Arrived:
    record, broken = None, ""
    try:
        if message.serialized_value_size < -1:
            broken = describe_unread(-1 - message.serialized_value_size)
        elif message.value is not None:
            record = record_of(message.value, decoder, kind)
    except (FramingRefused, PolicyRefused) as problem:
        broken = str(problem)
    except (ValueError, KeyError, TypeError) as problem:  # the schema is right, but a value is outside its type
        broken = in_one_line(problem)
    return Arrived(message.key, message.value, record, message.partition, message.offset, broken, message.timestamp)


def record_of(value: bytes, decoder: Decoder, kind: type[Record]) -> Record:
    """Decode a message. `decoder` is that of its schema; errors of the decoder pass."""
    if kind is Policy and frame_kind(value) is None:  # people write policies by hand, as JSON
        policies = policies_of([value.replace(b"\n", b" ")], "the message")
        if len(policies) != 1:
            raise PolicyRefused("the message is empty: write one policy in it")
        return policies[0]
    return from_avro(kind, decoder.decode(value))
