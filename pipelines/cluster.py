"""The cluster that a command was told to use."""

from __future__ import annotations

import argparse

from opicflow.connectors.kafka.connection import Connection, KafkaRefused


def connection_of(options: argparse.Namespace) -> Connection:
    """The connection that the options of `_add_cluster` say."""
    if not options.brokers:
        raise KafkaRefused("no brokers: name them with --brokers HOST:PORT")
    return Connection(options.brokers, options.properties, options.registry)
