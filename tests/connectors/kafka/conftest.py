"""Fixtures of the tests of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

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


@pytest.fixture
def properties(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that writes a properties file and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "client.properties"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write
