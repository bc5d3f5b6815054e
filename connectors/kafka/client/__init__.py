"""Everything that uses private parts of kafka-python, behind the names below. No other module here does.

`network` connects, `fetches` unpacks what a consumer receives, `batches` packs what a producer sends.
"""

from opicflow.connectors.kafka.client.fetches import Record, unpack_in_columns
from opicflow.connectors.kafka.client.network import NetworkClient, causes, is_permanent
from opicflow.connectors.kafka.client.producer_batches import (
    MIN_RECORDS,
    BatchAppender,
    RecordColumns,
    compressed_size,
    is_sending,
    stop_sending,
)

__all__ = [
    "MIN_RECORDS",
    "BatchAppender",
    "NetworkClient",
    "Record",
    "RecordColumns",
    "causes",
    "compressed_size",
    "is_permanent",
    "is_sending",
    "stop_sending",
    "unpack_in_columns",
]
