"""How to reach a cluster: addresses, and clients made from them. Secrets stay in a properties file until they are used.

A `Connection` travels in Beam's job graph, is printed and compared, so it holds the path of the file and not what
stands in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError


class KafkaRefused(ValueError):
    """Something of a cluster cannot be used. One line: what, where, and what to do; never a secret."""


@dataclass(frozen=True)
class Connection:
    """A cluster. `brokers` are addresses with commas between, `properties` is the path of a file with Kafka's settings.

    `registry` is the URL of a schema registry; without one, values are framed as Avro single objects.
    """

    brokers: str
    properties: str | None = None
    registry: str | None = None

    def consumer(self, **more: Any) -> Any:
        """A consumer that belongs to no group: partitions are assigned, and offsets kept by who reads."""
        return KafkaConsumer(
            **self._settings(),
            **{"group_id": None, "enable_auto_commit": False, "allow_auto_create_topics": False, **more},
        )

    def producer(self, **more: Any) -> Any:
        """A producer that keeps the order and sends nothing twice by itself."""
        return KafkaProducer(
            **self._settings(),
            **{"enable_idempotence": True, "acks": "all", "allow_auto_create_topics": False, **more},
        )

    def admin(self) -> Any:
        """A client for topics and their settings."""
        return KafkaAdminClient(**self._settings())

    def refused(self, problem: KafkaError, what: str) -> KafkaRefused:
        """What a client says, in one line for people. `what` is what was being done, such as "reading crawl-events"."""
        return KafkaRefused(f"{self.brokers}: {what}: {problem}")

    def _settings(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.brokers.split(",")}
