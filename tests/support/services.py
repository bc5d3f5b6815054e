"""Kafka, a schema registry and Flink for tests: started for the first test that needs them, stopped after the last."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
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
    """Closes all sockets. kafka-python may leave one open if it is closed while it writes: the next test would fail."""

    def close(self, node_id: Any = None) -> None:
        transports = [connection.transport for connection in self._manager._conns.values()]
        self._manager.close(node_id)
        if node_id is None:
            for transport in transports:
                if transport is not None:
                    transport._close()
            self._net.close()


OUTSIDE: dict[str, Any] = {"kafka_client": ClosingClient}
"""Options for clients that use kafka-python directly."""
MISSING = "no services: "  # the beginning of every skip here, for the summary of the run


def raw_records(brokers: str, topic: str) -> list[Any]:
    """Read the records of a topic with kafka-python directly, by partition and offset.

    Its consumer has waited for ever, whatever time it was given: then another one reads.
    """
    found: list[Any] = []
    for _ in range(3):
        reader = Thread(target=lambda: found.append(_raw_records(brokers, topic)), daemon=True)
        reader.start()
        reader.join(60)
        if found or not reader.is_alive():
            break
    assert found, f"{topic}: could not be read"
    records: list[Any] = found[0]
    return records


def _raw_records(brokers: str, topic: str) -> list[Any]:
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
    """A listener with TLS, user and password. `properties` is a file with all settings of a client."""

    brokers: str
    ca: Path
    user: str
    password: str = field(repr=False)
    properties: Path


@dataclass(frozen=True)
class LocalKafka:
    """A broker or several, with or without a registry. `services` can kill, restart, pause and resume them."""

    services: Services

    @property
    def brokers(self) -> str:
        return Kafka().brokers(self.services.instance("kafka"))

    @property
    def registry(self) -> str:
        return Registry().url(self.services.instance("registry"))

    @property
    def secured(self) -> Secured:
        kafka, instance = Kafka(), self.services.instance("kafka")
        properties = kafka.client_properties(instance)
        return Secured(
            kafka.brokers(instance, "secured"), instance.folder / "ca.pem", USER, kafka.password(instance), properties
        )

    def kill(self) -> None:
        """End the broker like a crash."""
        self.services.kill("kafka")

    def restart(self) -> None:
        """Start the broker again, with the same ports and data. It may still run."""
        self.services.restart("kafka")

    def pause(self) -> None:
        """Stop the broker until `resume`: it keeps its connections and answers nothing."""
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
    """Run a broker and a Flink cluster."""
    with running(folder, "kafka", "flink") as started:
        yield LocalCluster(started.services)


@contextmanager
def running(folder: Path, *names: str) -> Iterator[LocalKafka]:
    """Run services; skip the test if Java or Maven is missing."""
    started = joined(folder, *names)
    try:
        yield started
    finally:
        started.services.stop()


def joined(folder: Path, *names: str) -> LocalKafka:
    """Return services that another process has started, or is about to; skip the test if Java or Maven is missing."""
    services = Services(folder, attached=True)
    try:
        services.start(names)
    except ServicesMissing as problem:
        missing(str(problem))
    return LocalKafka(services)


def background(folder: Path, *names: str) -> Callable[[], None]:
    """Start services beside other work. Returns the function that stops them and removes the folder.

    A thread starts them and waits for that call: attached services end with the thread that has started them.
    """
    services, is_over = Services(folder, attached=True), Event()

    def start_and_stop() -> None:
        try:
            with suppress(ServicesMissing):
                services.start(names)
            is_over.wait()
        finally:
            services.stop()
            shutil.rmtree(folder, ignore_errors=True)

    thread = Thread(target=start_and_stop, daemon=True)
    thread.start()

    def stop() -> None:
        is_over.set()
        thread.join()

    return stop


def missing(why: str) -> NoReturn:
    """Skip the test, or fail it if services are required."""
    if REQUIRED:
        pytest.fail(f"{why}\nOPICFLOW_REQUIRE_SERVICES=1 makes this a failure", pytrace=False)
    pytest.skip(MISSING + why)
