"""The cluster that a command was told to use."""

from __future__ import annotations

import argparse

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
