"""Requests to the ledgers of a stream: entries of their logs that a person has sent."""

from __future__ import annotations

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.partitions import resolve
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.pipelines.stages.ledger_keeper import request_republication
from opicflow.pipelines.stream.origin import first_origin
from opicflow.pipelines.stream.snapshot_store import Snapshots


def send_to_all(connection: Connection, topic: str, entry: bytes) -> int:
    """Append an entry to each log of a topic. Returns the number of logs."""
    logs = resolve(connection, topic)
    with Publisher(connection) as publisher:
        for log in logs:
            publisher.send(topic, None, entry, log.partition)
        publisher.flush()
    return len(logs)


def republish(connection: Connection, topic: str, snapshots: Snapshots | None = None) -> int:
    """Request that all ledgers publish the importance of all their pages again. Returns the number of ledgers.

    Raises `LogRefused` if the topic holds no logs of ledgers.
    """
    first_origin(connection, topic, resolve(connection, topic), snapshots)
    return send_to_all(connection, topic, request_republication())
