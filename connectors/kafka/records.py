"""Records of a topic, one by one, for whoever reads results: from the beginning or a time, up to now or for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from kafka import TopicPartition

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.framing import writer_of
from opicflow.connectors.kafka.partitions import resolve
from opicflow.schemas.framing import Decoder, FramingRefused, frame_kind
from opicflow.schemas.policy_json import PolicyRefused, policies_of
from opicflow.schemas.records import RECORDS, Policy, Record, from_avro

STREAMS = {
    "importance": "Importance",
    "refresh-schedule": "RefreshSchedule",
    "crawl-orders": "CrawlOrder",
    "rejects": "Reject",
    "audit": "Audit",
}
"""The topics of results, and the names of their records' schemas."""
POLICIES = "policies"

_POLL_MS = 500
_RECORDS_A_POLL = 2000


class Arrived(NamedTuple):
    """A message. `record` is None for a tombstone: what was told of its key no longer holds; and where it is broken."""

    key: bytes | None
    value: bytes | None
    record: Any
    partition: int
    offset: int
    broken: str = ""
    """Why it cannot be read, in one line; empty where it can."""


def records(connection: Connection, stream: str, **how: Any) -> Iterator[Arrived]:
    """The messages of one of `STREAMS`, one by one; `how` as in `batches`."""
    for batch in batches(connection, stream, **how):
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
    """The messages of one of `STREAMS`: those that are there since a time, and with `follow` those to come.

    Those of a partition come in its order. What cannot be read is handed on as broken, and does not stop the rest. With
    `follow` an empty batch comes when nothing does: time to show what was read. `KafkaRefused` where the topic is not
    there, or no broker answers for so long.
    """
    schemas = {**STREAMS, POLICIES: "Policy"}
    if stream not in schemas:
        raise KafkaRefused(f"{stream[:40]!r} is no stream: name one of {', '.join(schemas)}")
    topic = prefix + stream
    found = [
        one for one in resolve(connection, topic, since_ms=since_ms) if partition is None or one.partition == partition
    ]
    starts = {TopicPartition(topic, one.partition): one.end if only_new else one.start for one in found}
    ends = {TopicPartition(topic, one.partition): one.end for one in found}
    decoder = Decoder(schemas[stream], writer_of(connection))
    kind = RECORDS[schemas[stream]]
    settings = {
        "isolation_level": "read_committed",
        "max_poll_records": _RECORDS_A_POLL,
        "auto_offset_reset": "earliest",  # where records have been deleted since: go on with the first that is left
    }
    with connection.doing(f"reading {topic}"), closing(connection.consumer(**settings)) as consumer:
        consumer.assign(list(starts))
        for one, start in starts.items():
            consumer.seek(one, start)
        heard = time.monotonic()
        while follow or any(consumer.position(one) < end for one, end in ends.items()):
            polled = consumer.poll(_POLL_MS)
            if polled:
                heard = time.monotonic()
            elif time.monotonic() - heard > patience_seconds:
                if not follow:
                    raise KafkaRefused(
                        f"{connection.brokers}: no answer for {patience_seconds:.0f} s while reading {topic}: see "
                        "whether the brokers run"
                    )
                consumer.end_offsets(list(ends))  # says so if no broker answers; silence alone is no trouble
                heard = time.monotonic()
            arrived = [
                _arrived(record, decoder, kind)
                for one, rows in polled.items()
                for record in rows
                if follow or record.offset < ends[one]
            ]
            if arrived or follow:
                yield arrived


def _arrived(message: Any, decoder: Decoder, kind: type[Record]) -> Arrived:
    record, broken = None, ""
    try:
        if message.value is not None:
            record = record_of(message.value, decoder, kind)
    except (FramingRefused, PolicyRefused) as problem:
        broken = str(problem)
    except (ValueError, KeyError, TypeError) as problem:  # of our schema, with values that no such record has
        broken = " ".join(str(problem).split())[:200] or type(problem).__name__
    return Arrived(message.key, message.value, record, message.partition, message.offset, broken)


def record_of(value: bytes, decoder: Decoder, kind: type[Record]) -> Record:
    """The record of a message, `decoder` being that of its schema. It raises what says why there is none."""
    if kind is Policy and frame_kind(value) is None:  # people write policies by hand
        policies = policies_of([value.replace(b"\n", b" ")], "the message")
        if len(policies) != 1:
            raise PolicyRefused("the message is empty: write one policy in it")
        return policies[0]
    return from_avro(kind, decoder.decode(value))
