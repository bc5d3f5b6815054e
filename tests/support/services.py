"""Kafka, a schema registry and Flink for tests: started when the first test asks, stopped when the run ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.net.compat import KafkaNetClient

from deploy.services.artifacts import ServicesMissing
from deploy.services.flink import Flink
from deploy.services.kafka import USER, Kafka
from deploy.services.registry import Registry
from deploy.services.supervisor import Services
from opicflow.connectors.flink.rest import FlinkCluster

REQUIRED = os.environ.get("OPICFLOW_REQUIRE_SERVICES") == "1"


class ClosingClient(KafkaNetClient):
    """kafka-python's own may leave a socket open when it is closed while it writes, which fails the next test."""

    def close(self, node_id: Any = None) -> None:
        transports = [connection.transport for connection in self._manager._conns.values()]
        self._manager.close(node_id)
        if node_id is None:
            for transport in transports:
                if transport is not None:
                    transport._close()
            self._net.close()


OUTSIDE: dict[str, Any] = {"kafka_client": ClosingClient}
"""For clients of kafka-python alone."""
MISSING = "no services: "  # what every skip here begins with, for the line at the end of the run


def raw_records(brokers: str, topic: str) -> list[Any]:
    """The records of a topic by kafka-python alone, by partition and offset."""
    with closing(KafkaConsumer(**OUTSIDE, bootstrap_servers=brokers, group_id=None)) as consumer:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found: list[Any] = []
        while any(consumer.position(one) < ends[one] for one in partitions):
            found += [record for records in consumer.poll(timeout_ms=500).values() for record in records]
        return sorted(found, key=lambda record: (record.partition, record.offset))


@dataclass(frozen=True)
class Secured:
    """A listener that wants TLS, a user and a password. `properties` is a file with all that a client needs."""

    brokers: str
    ca: Path
    user: str
    password: str = field(repr=False)
    properties: Path


@dataclass(frozen=True)
class LocalKafka:
    """A broker, and maybe a registry. `services` can kill, restart, pause and resume it."""

    services: Services

    @property
    def brokers(self) -> str:
        return self.services.instance("kafka").address("plain")

    @property
    def registry(self) -> str:
        return Registry().url(self.services.instance("registry"))

    @property
    def secured(self) -> Secured:
        kafka, instance = Kafka(), self.services.instance("kafka")
        properties = kafka.client_properties(instance)
        return Secured(
            instance.address("secured"), instance.folder / "ca.pem", USER, kafka.password(instance), properties
        )

    def kill(self) -> None:
        """End the broker as a crash does."""
        self.services.kill("kafka")

    def restart(self) -> None:
        """Start the broker again, with the same ports and data; it may run still."""
        self.services.restart("kafka")

    def pause(self) -> None:
        """The broker keeps its connections and answers nothing, until `resume`."""
        self.services.pause("kafka")

    def resume(self) -> None:
        self.services.resume("kafka")


class LocalCluster(LocalKafka):
    """A broker and a Flink cluster. `services` can kill and revive all processes of both."""

    @property
    def flink(self) -> FlinkCluster:
        return FlinkCluster(self.flink_rest)

    @property
    def flink_rest(self) -> str:
        return Flink().rest(self.services.instance("flink"))

    @property
    def job_server(self) -> str:
        return Flink().jobs(self.services.instance("flink"))


@contextmanager
def running_cluster(folder: Path) -> Iterator[LocalCluster]:
    """A broker and a Flink cluster while tests use them."""
    with running(folder, "kafka", "flink") as started:
        yield LocalCluster(started.services)


@contextmanager
def running(folder: Path, *names: str) -> Iterator[LocalKafka]:
    """The services while the test uses them; the test is skipped where there is no Java or no Maven."""
    services = Services(folder, attached=True)
    try:
        services.start(names)
    except ServicesMissing as problem:
        missing(str(problem))
    try:
        yield LocalKafka(services)
    finally:
        services.stop()


def missing(why: str) -> NoReturn:
    """Skip the test, or fail it where services are required."""
    if REQUIRED:
        pytest.fail(f"{why}\nOPICFLOW_REQUIRE_SERVICES=1 makes this a failure", pytrace=False)
    pytest.skip(MISSING + why)
