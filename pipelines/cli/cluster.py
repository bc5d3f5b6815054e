"""The clusters that a command was told to use."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from opicflow.connectors.flink.rest import FlinkRefused
from opicflow.connectors.kafka.connection import Connection, KafkaRefused, parse_address
from opicflow.connectors.kafka.properties import Properties


def connection_of(options: argparse.Namespace) -> Connection:
    """The connection that the options of `_add_cluster` say. Brokers may be named by the properties file."""
    brokers = options.brokers
    if brokers and brokers.startswith("kafka:"):
        address = parse_address(brokers)
        if address.topic is not None:
            raise KafkaRefused(f"--brokers names the topic {address.topic}: give kafka://HOST:PORT alone")
        brokers = address.brokers
    if not brokers and options.properties:
        brokers = Properties.read(options.properties).get("bootstrap.servers")
    if not brokers:
        raise KafkaRefused(
            "no brokers: name them with --brokers HOST:PORT, or as bootstrap.servers in the file of --properties"
        )
    return Connection(brokers, options.properties, options.registry)


def worker_command() -> str:
    """Where opicflow-worker is: beside this Python, or on the path."""
    beside = Path(sys.executable).with_name("opicflow-worker")
    found = str(beside) if beside.exists() else shutil.which("opicflow-worker")
    if not found:
        raise FlinkRefused("opicflow-worker is not on the path: name it as it is on the TaskManagers: --worker-command")
    return found
