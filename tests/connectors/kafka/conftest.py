"""Fixtures of the tests of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from opicflow.connectors.kafka.connection import Connection
from support.fake_topic import Topics
from support.services import LocalKafka


@pytest.fixture
def topics(kafka: LocalKafka, topic_prefix: str) -> Iterator[Topics]:
    """Topics that are deleted after the test."""
    with closing(Connection(kafka.brokers).admin()) as admin:
        made = Topics(Connection(kafka.brokers), admin, topic_prefix)
        yield made
        made.delete(*made.names)
