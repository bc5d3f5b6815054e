"""Everything that uses private parts of kafka-python, behind the names below. No other module here does.

`network` connects, `fetches` unpacks what a consumer receives, `producer_batches` packs what a producer sends. The
reason of each part is in docs/decisions/columns.md.
"""

from opicflow.schemas.libraries import parts_of

with parts_of("kafka-python", "kafka"):
    from kafka.producer.future import FutureRecordMetadata, RecordMetadata

    from opicflow.connectors.kafka.client.fetched_records import FetchedRecords, Record, message_batch
    from opicflow.connectors.kafka.client.fetches import unpack_in_columns
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
    "FetchedRecords",
    "FutureRecordMetadata",
    "NetworkClient",
    "Record",
    "RecordColumns",
    "RecordMetadata",
    "causes",
    "compressed_size",
    "is_permanent",
    "is_sending",
    "message_batch",
    "stop_sending",
    "unpack_in_columns",
]
