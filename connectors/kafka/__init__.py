"""Kafka: crawl events and policies from topics, results to topics, and records of results for readers.

from opicflow.connectors.kafka import Connection, records

for page in records(Connection("localhost:9092"), "importance"):
    if page.record is not None:
        print(page.record.score, page.record.url)
"""

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.record_reader import Arrived, records

__all__ = ["Arrived", "Connection", "KafkaRefused", "records"]
