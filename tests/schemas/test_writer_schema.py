"""The kernel that passes over records of any Avro schema finds the ends that fastavro finds."""

from __future__ import annotations

import random
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pytest

from opicflow.schemas.writer_schema import WriterSchema

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
RECORDS = 5


class Schemas:
    """Random schemas, and values for each."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.named: dict[str, Any] = {}

    def record(self, depth: int) -> dict[str, Any]:
        # The name of a record is known within it only when it is whole: none holds itself.
        name = f"R{depth}_{self.chance.randrange(1 << 60)}"
        fields = [{"name": f"f{number}", "type": self.type(depth - 1)} for number in range(self.chance.randint(1, 4))]
        written = {"type": "record", "name": name, "fields": [{"name": "first", "type": "int"}, *fields]}
        self.named[name] = written
        return written

    def type(self, depth: int, is_branch: bool = False) -> Any:
        kinds = ["primitive"] * 3 + (["known"] if self.named and not is_branch else [])
        if depth > 0:
            kinds += ["record", "array", "map"] + ([] if is_branch else ["union"])
        kind = self.chance.choice(kinds)
        if kind == "known":
            return self.chance.choice(list(self.named))
        if kind == "record":
            return self.record(depth)
        if kind == "array":
            return {"type": "array", "items": self.record(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.type(depth - 1)}
        if kind == "union":
            return ["null", self.record(depth - 1), "string"]
        named = f"N{self.chance.randrange(1 << 60)}"
        enum = {"type": "enum", "name": named, "symbols": ["A", "B"]}
        fixed = {"type": "fixed", "name": named, "size": self.chance.randrange(4)}
        written = self.chance.choice([*PRIMITIVES, enum, fixed])
        if isinstance(written, dict):
            self.named[named] = written
        return written

    def value(self, written: Any) -> Any:
        if isinstance(written, list):
            branch = self.chance.choice(written)
            return self.value(branch)
        kind = written["type"] if isinstance(written, dict) else written
        count = self.chance.choice([0, 0, 1, 3, 70])
        if kind == "record":
            return {field["name"]: self.value(field["type"]) for field in written["fields"]}
        if kind == "array":
            return [self.value(written["items"]) for _ in range(min(count, 3))]
        if kind == "map":
            return {str(number): self.value(written["values"]) for number in range(min(count, 3))}
        if kind == "enum":
            return self.chance.choice(written["symbols"])
        if kind == "fixed":
            return bytes(written["size"])
        plain = {
            "null": None,
            "boolean": self.chance.random() < 0.5,
            "int": self.chance.randrange(-(1 << 31), 1 << 31),
            "long": self.chance.choice([0, -1, 1, -(1 << 63), (1 << 63) - 1]),
            "float": 1.5,
            "double": -1.5,
            "bytes": bytes(count),
            "string": "x" * count,
        }
        return plain[kind] if kind in plain else self.value(self.named[kind])


def written_records(schemas: Schemas, root: Any) -> tuple[WriterSchema, bytes, list[int]]:
    writer, stream, ends = WriterSchema(root), BytesIO(), []
    for _ in range(RECORDS):
        fastavro.schemaless_writer(stream, writer.parsed, schemas.value(root))
        ends.append(stream.tell())
    return writer, stream.getvalue(), ends


@pytest.mark.parametrize("base", range(0, 1000, 100))
def test_a_walk_finds_the_ends_of_records(base: int) -> None:
    whole = 0
    for number in range(base, base + 100):
        schemas = Schemas(random.Random(number))
        root = schemas.record(4)
        writer, data, ends = written_records(schemas, root)
        # Some random types have so many nulls a byte that they are refused: then the walk ends, and reports it.
        walk = writer.walk(np.frombuffer(data, np.uint8), 0, len(data), RECORDS)
        done = len(walk.ends)
        assert walk.ends.tolist() == ends[:done], number
        assert (walk.detail == "") == (done == RECORDS) and ("values a byte" in walk.detail or done == RECORDS), number
        whole += done == RECORDS
    assert whole >= 90


@pytest.mark.parametrize("base", range(0, 200, 100))
def test_a_walk_over_damage_ends_within_the_bytes(base: int) -> None:
    for number in range(base, base + 100):
        chance = random.Random(number)
        schemas = Schemas(chance)
        writer, data, _ = written_records(schemas, schemas.record(4))
        for _ in range(50):
            damaged = bytearray(data)
            for _ in range(chance.choice([1, 1, 3])):
                damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 2, 3, 127, 128, 255])
            end = chance.randint(0, len(damaged))
            walk = writer.walk(np.frombuffer(bytes(damaged), np.uint8), 0, end, RECORDS)
            assert sorted(walk.ends.tolist()) == walk.ends.tolist() and all(0 <= one <= end for one in walk.ends), (
                number
            )
            assert (walk.detail == "") == (len(walk.ends) == RECORDS), number
