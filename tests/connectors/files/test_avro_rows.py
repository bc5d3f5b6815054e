"""Rows of columns as Avro: the same bytes as fastavro writes, for every schema of results."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pytest
from fastavro.schema import parse_schema
from hypothesis import given
from hypothesis import strategies as st

from opicflow.connectors.files.avro_rows import encode_rows
from opicflow.schemas import published_schemas
from opicflow.schemas.columns import Texts

LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)


def by_fastavro(schema: published_schemas.Schema, values: dict[str, Any], prefix: bytes) -> bytes:
    stream = BytesIO()
    stream.write(prefix)
    fastavro.schemaless_writer(stream, parse_schema(schema), values)
    return stream.getvalue()


def values_of(type_: Any) -> st.SearchStrategy[Any]:
    if isinstance(type_, list):
        return st.one_of(*[values_of(branch) for branch in type_])
    if isinstance(type_, dict):
        return st.sampled_from(type_["symbols"]) if type_["type"] == "enum" else values_of(type_["type"])
    return {
        "null": st.none(),
        "string": TEXTS,
        "bytes": st.binary(max_size=300),
        "double": st.floats(allow_nan=False),
        "long": LONGS,
        "int": st.integers(-(1 << 31), (1 << 31) - 1),
        "boolean": st.booleans(),
    }[type_]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Importance", "RefreshSchedule", "CrawlOrder", "Reject"])
@given(data=st.data())
def test_rows_are_the_bytes_that_fastavro_writes(name: str, data: st.DataObject) -> None:
    schema = published_schemas.schema(name)
    row = st.fixed_dictionaries({field["name"]: values_of(field["type"]) for field in schema["fields"]})
    rows = data.draw(st.lists(row, max_size=8))
    prefix = data.draw(st.binary(max_size=10))
    columns = {field["name"]: [values[field["name"]] for values in rows] for field in schema["fields"]}
    assert list(encode_rows(schema, columns, prefix)) == [by_fastavro(schema, values, prefix) for values in rows]


@given(data=st.data())
def test_whole_columns_are_the_bytes_of_their_values(data: st.DataObject) -> None:
    kinds = {"a": "string", "b": "double", "c": "long", "d": "boolean", "e": "bytes"}
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in kinds.items()]}
    rows = data.draw(st.lists(st.fixed_dictionaries({name: values_of(kind) for name, kind in kinds.items()})))
    lists: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in kinds}
    whole = {
        "a": Texts.of([text.encode() for text in lists["a"]]),
        "b": np.array(lists["b"], np.float64),
        "c": np.array(lists["c"], np.int64),
        "d": np.array(lists["d"], np.bool_),
        "e": Texts.of(lists["e"]),
    }
    encoded = encode_rows(schema, whole, b"::")
    assert list(encoded) == list(encode_rows(schema, lists, b"::")) == [by_fastavro(schema, row, b"::") for row in rows]
    assert [encoded[row] for row in range(len(rows))] == list(encoded) and list(encoded[1:]) == list(encoded)[1:]


def test_a_union_may_have_null_last() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["long", "null"]}]}
    for x in (5, None):
        assert list(encode_rows(schema, {"x": [x]})) == [by_fastavro(schema, {"x": x}, b"")]


def test_types_that_only_fastavro_writes_are_refused() -> None:
    audit = published_schemas.schema("Audit")
    columns = {field["name"]: [[] if field["name"].endswith(("_to", "_from")) else 0] for field in audit["fields"]}
    with pytest.raises(ValueError, match="for fastavro"):
        encode_rows(audit, columns)


def test_columns_other_than_the_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="not the fields of Reject"):
        encode_rows(published_schemas.schema("Reject"), {"reason": []})
