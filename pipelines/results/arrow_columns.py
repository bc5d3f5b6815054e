"""Columns of records as Arrow arrays, mostly without a copy."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from opicflow.schemas.arrays import Array, Ints
from opicflow.schemas.columns import Columns, NumberedWords, Texts, WithNulls
from opicflow.schemas.published_schemas import Schema, SchemaType

if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
    pa.set_memory_pool(pa.system_memory_pool())  # that of Arrow keeps 90 MB more while a million pages are written

Values = Sequence[object] | Array
"""A column."""
_PLAIN_TYPES = {
    "string": pa.string(),
    "double": pa.float64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the fields of a published schema as Arrow's: times are timestamps, words of an enum are texts."""
    return pa.schema(
        [
            pa.field(field["name"], _arrow_type(field["type"]), nullable=isinstance(field["type"], list))
            for field in schema["fields"]
        ]
    )


def record_batch(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """Return columns as a record batch of this Arrow schema, which has their names in their order."""
    if list(columns) != schema.names:
        raise ValueError(f"these are not the columns {', '.join(schema.names)}: {', '.join(columns)}")
    arrays = [_arrow_array(values, field.type) for values, field in zip(columns.values(), schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def text_array(texts: Texts) -> pa.Array:
    """Return texts as Arrow's, without a copy where they are stored one after the other."""
    if len(texts) == 0:
        return pa.array([], pa.string())
    starts, ends = texts.starts, texts.starts + texts.lengths
    data = pa.py_buffer(np.ascontiguousarray(texts.text))
    if (starts[1:] == ends[:-1]).all():
        return _strings(np.append(starts, ends[-1]), data)
    if (starts[1:] >= ends[:-1]).all():  # there are gaps: every second text is one
        bounds = np.column_stack((starts, ends)).ravel()
        return _strings(bounds, data).take(pa.array(np.arange(0, len(bounds) - 1, 2)))
    return pa.array(list(texts), pa.binary()).cast(pa.string())


def word_array(words: NumberedWords) -> pa.Array:
    """Return words as Arrow's texts."""
    return pa.array(words.symbols, pa.string()).take(pa.array(words.numbers))


def _strings(bounds: Ints, data: pa.Buffer) -> pa.Array:
    first = int(bounds[0])
    offsets = (bounds - first).astype(np.int32)
    return pa.StringArray.from_buffers(len(bounds) - 1, pa.py_buffer(offsets), data.slice(first))


def _arrow_array(values: Values, type_: pa.DataType) -> pa.Array:
    if isinstance(values, Texts):
        return text_array(values)
    if isinstance(values, NumberedWords):
        return word_array(values)
    if isinstance(values, WithNulls):
        return _arrow_array(values.values, type_) if values.present.all() else _masked(values, type_)
    if isinstance(values, np.ndarray):
        return pc.cast(pa.array(values), type_)
    return pa.array(values, type_)


def _masked(values: WithNulls, type_: pa.DataType) -> pa.Array:
    return pc.cast(pa.array(values.values, mask=~values.present), type_)


def _arrow_type(avro_type: SchemaType) -> pa.DataType:
    if isinstance(avro_type, list):  # null, or something
        return _arrow_type(avro_type[1])
    if isinstance(avro_type, dict):
        if avro_type.get("logicalType") == "timestamp-millis":
            return pa.timestamp("ms", tz="UTC")
        return pa.string() if avro_type["type"] == "enum" else _arrow_type(avro_type["type"])
    return _PLAIN_TYPES[avro_type]
