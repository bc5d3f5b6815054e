"""Records of Avro and columns of Arrow whose times are whole milliseconds: Python has no dates after the year 9999."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

from opicflow.schemas.writer_schema import WriterSchema


def avro_records(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the records of an Avro file. Raises whatever fastavro raises for bytes that make no sense."""
    plain: Any = None
    blocks: Any = fastavro.block_reader(file)
    for block in blocks:
        plain = plain or WriterSchema(block.writer_schema).parsed
        for _ in range(block.num_records):
            record: Any = fastavro.schemaless_reader(block.bytes_, plain, None)
            yield record


def plain_values(column: Any) -> list[Any]:
    """Return the values of an Arrow column."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
