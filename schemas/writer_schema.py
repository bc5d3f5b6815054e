"""The Avro schema that a record was written with, which may be anybody's: bounds, and where each of its records ends.

fastavro follows a writer's schema and the counts in the data wherever they lead: it crashes on a schema that holds
itself, never ends with an array of 2^60 nulls, and makes gigabytes of a few kilobytes. So a schema is judged before
fastavro sees it, and a kernel passes over each record first, at most a few steps a byte. The end of a record is known
then, so one that fastavro refuses costs no other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from fastavro.schema import parse_schema

from opicflow.schemas.arrays import Bytes, Int, Ints
from opicflow.schemas.crawl_events import MOST_LINKS, MOST_REDIRECTS, EventRefused, Reason
from opicflow.schemas.errors import UserError
from opicflow.schemas.kernel import lean_kernel
from opicflow.schemas.published_schemas import Schema, SchemaType, shown_name
from opicflow.schemas.varint import read_signed

MOST_SCHEMA_VALUES = 20_000
"""The values in the JSON of a schema, and its types with a copy for each name. `CrawlEvent` has about 150."""
MOST_SCHEMA_DEPTH = 64
"""How deep its types lie within one another, by themselves or by their names."""
MOST_VALUES_PER_BYTE = 16
"""A record has at most so many values a byte, and `ALWAYS_ALLOWED_VALUES` more: nulls and empty records need none."""
ALWAYS_ALLOWED_VALUES = 256

_MOST_JSON_DEPTH = 3 * MOST_SCHEMA_DEPTH
_MOST_FIXED_BYTES = 1 << 30


class SchemaRefused(UserError, ValueError):
    """A writer's schema is none, or exceeds a bound. One line."""


class Walk(NamedTuple):
    """The records that a kernel passed over: where each ends, and whether it has too many links or redirects.

    `detail`: why there are fewer than were wanted; empty if there are not.
    """

    ends: Ints
    problems: Ints
    detail: str


class WriterSchema:
    """A schema that is bounded, for fastavro (`parsed`) and for the kernel.

    Logical types are left out, so that no value is too far away or too long to convert: times come as whole numbers.
    With `keep_times`, those other than milliseconds stay: they have another unit.
    """

    def __init__(self, written: SchemaType, keep_times: bool = False) -> None:
        """Raise `SchemaRefused` for a schema that exceeds a bound, and fastavro's errors for anything but a schema."""
        _check_json(written)
        self.parsed: SchemaType = parse_schema(_plain(written, keep_times))
        layout = _Layout(self.parsed)
        layout.add(self.parsed, 1)
        self._kinds = np.array(layout.kinds, np.int64)
        self._sizes = np.array(layout.sizes, np.int64)
        self._roles = np.array(layout.roles, np.int64)
        self._starts = np.cumsum([0, *map(len, layout.children)])
        self._children = np.array([child for children in layout.children for child in children], np.int64)

    def walk(self, data: Bytes, begin: int, end: int, records: int) -> Walk:
        """Pass over so many records, which begin at `begin`."""
        rows = max(min(records, end - begin + 1), 0)
        ends, problems = np.empty(rows, np.int64), np.empty(rows, np.int64)
        stack = np.empty((MOST_SCHEMA_DEPTH + 1, 2), np.int64)
        done, stopped = _walk(
            self._kinds, self._sizes, self._roles, self._starts, self._children, stack, data, begin, end, ends, problems
        )
        detail = "" if done == records else _DETAILS[int(stopped)]
        return Walk(ends[:done], problems[:done], detail)


def refused_for(problem: int) -> EventRefused | None:
    """Return why a record with this problem of a `Walk` is refused; None if it is not."""
    if problem == _LINKS:
        return EventRefused(Reason.TOO_MANY_LINKS, f"more than {MOST_LINKS} links")
    if problem == _REDIRECTS:
        return EventRefused(Reason.BAD_FIELD, f"redirects: more than {MOST_REDIRECTS}")
    return None


_CUT_OFF, _CROWDED = 1, 2
_DETAILS = {
    0: "there are more records than bytes",
    _CUT_OFF: "a record is cut off or damaged",
    _CROWDED: f"a record has more than {MOST_VALUES_PER_BYTE} values a byte",
}
_NO_ROLE, _LINKS, _REDIRECTS = 0, 1, 2
_ROLES = {"links": _LINKS, "redirects": _REDIRECTS}
_NULL, _FIXED, _NUMBER, _TEXT, _UNION, _RECORD, _ARRAY, _MAP = range(8)
_PRIMITIVES = {
    "null": (_NULL, 0),
    "boolean": (_FIXED, 1),
    "float": (_FIXED, 4),
    "double": (_FIXED, 8),
    "int": (_NUMBER, 0),
    "long": (_NUMBER, 0),
    "bytes": (_TEXT, 0),
    "string": (_TEXT, 0),
}


def _check_json(written: SchemaType) -> None:
    """Refuse a schema that is too large or too deep for functions that call themselves."""
    waiting, values = [(written, 1)], 0
    while waiting:
        value, depth = waiting.pop()
        values += 1
        if values > MOST_SCHEMA_VALUES:
            raise SchemaRefused(f"the schema has more than {MOST_SCHEMA_VALUES} values")
        if depth > _MOST_JSON_DEPTH:
            raise SchemaRefused(f"the schema is nested more than {_MOST_JSON_DEPTH} deep")
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(one, depth + 1) for one in inside]


def _plain(written: SchemaType, keep_times: bool) -> SchemaType:
    """Leave out logical types, and keys by which fastavro would take the schema for one that it has judged before."""
    if isinstance(written, list):
        return [_plain(one, keep_times) for one in written]
    if not isinstance(written, dict):
        return written
    return {
        key: _plain(value, keep_times)
        for key, value in written.items()
        if not key.startswith("__") and (key != "logicalType" or (keep_times and _is_other_time(value)))
    }


def _is_other_time(logical_type: object) -> bool:
    return isinstance(logical_type, str) and "timestamp-" in logical_type and logical_type != "timestamp-millis"


class _Layout:
    """The types of a schema as numbers, each with its kind, its size if it is fixed, and the types in it.

    A name is replaced by a copy of its type: so a type that holds itself is too deep, or too large.
    """

    def __init__(self, parsed: SchemaType) -> None:
        self.kinds: list[int] = []
        self.sizes: list[int] = []
        self.roles: list[int] = []
        self.children: list[list[int]] = []
        self._least_bytes: list[int] = []
        self._named: dict[str, Schema] = {}
        self._root = parsed

    def add(self, parsed: SchemaType, depth: int, role: int = _NO_ROLE) -> int:
        """Add a type at this depth, and all types in it. Returns its number."""
        if depth > MOST_SCHEMA_DEPTH:
            raise SchemaRefused(f"the types of the schema are nested more than {MOST_SCHEMA_DEPTH} deep")
        if len(self.kinds) == MOST_SCHEMA_VALUES:
            raise SchemaRefused(f"the types of the schema are more than {MOST_SCHEMA_VALUES}, with those within others")
        if isinstance(parsed, list):
            union = self._new(_UNION, 0, 1)
            self.children[union] = [self.add(one, depth + 1, role) for one in parsed]
            return union
        kind = parsed["type"] if isinstance(parsed, dict) else parsed
        if not isinstance(kind, str):
            raise SchemaRefused("a type of the schema is no name")
        if kind in _PRIMITIVES:
            kind_of_node, size = _PRIMITIVES[kind]
            return self._new(kind_of_node, size, 1 if kind_of_node in (_NUMBER, _TEXT) else size)
        if isinstance(parsed, str):
            return self._named_type(self._named[parsed], depth)
        if kind in ("array", "map"):
            return self._repeated(parsed, kind, depth, role)
        self._named[parsed["name"]] = parsed
        return self._named_type(parsed, depth)

    def _repeated(self, parsed: Schema, kind: str, depth: int, role: int) -> int:
        node = self._new(_ARRAY if kind == "array" else _MAP, 0, 1, role)
        item = self.add(parsed["items" if kind == "array" else "values"], depth + 1)
        if kind == "array" and self._least_bytes[item] == 0:
            raise SchemaRefused("an array of the schema has items that may need no byte: any number of items would fit")
        self.children[node] = [item]
        return node

    def _named_type(self, parsed: Schema, depth: int) -> int:
        name, kind = parsed["name"], parsed["type"]
        if kind == "enum":
            return self._new(_NUMBER, 0, 1)
        if kind == "fixed":
            size = parsed["size"]
            if not isinstance(size, int) or not 0 <= size <= _MOST_FIXED_BYTES:
                raise SchemaRefused(f"the fixed type {shown_name(name)} of the schema has an absurd size")
            return self._new(_FIXED, size, size)
        if kind not in ("record", "error"):
            raise SchemaRefused(f"the type {shown_name(kind)} of the schema is not known")
        node = self._new(_RECORD, 0, 0)
        if not all(isinstance(field["name"], str) for field in parsed["fields"]):
            raise SchemaRefused("a field of the schema has a name that is no text")
        is_root = parsed is self._root
        roles = [_ROLES.get(field["name"], _NO_ROLE) if is_root else _NO_ROLE for field in parsed["fields"]]
        fields = zip(parsed["fields"], roles, strict=True)
        self.children[node] = [self.add(field["type"], depth + 1, role) for field, role in fields]
        self._least_bytes[node] = sum(self._least_bytes[child] for child in self.children[node])
        return node

    def _new(self, kind: int, size: int, least_bytes: int, role: int = _NO_ROLE) -> int:
        self.kinds.append(kind)
        self.sizes.append(size)
        self.roles.append(role)
        self.children.append([])
        self._least_bytes.append(least_bytes)
        return len(self.kinds) - 1


@lean_kernel
def _walk(
    kinds: Ints,
    sizes: Ints,
    roles: Ints,
    starts: Ints,
    children: Ints,
    stack: Ints,
    data: Bytes,
    begin: Int,
    end: Int,
    ends: Ints,
    problems: Ints,
) -> tuple[Int, Int]:
    """Fill `ends` and `problems`, a row a record; returns how many there are, and why there are no more (0 = no room).

    `stack`: the types that enclose the next value, and which field, or how many more items, come next.
    """
    at = np.int64(begin)
    for row in range(ends.shape[0]):
        first = at
        values = np.int64(0)
        links = np.int64(0)
        redirects = np.int64(0)
        depth = np.int64(0)
        node = np.int64(0)
        while True:
            values += 1
            if values > ALWAYS_ALLOWED_VALUES + MOST_VALUES_PER_BYTE * (at - first):
                return row, _CROWDED
            kind = kinds[node]
            if kind == _FIXED:
                if sizes[node] > end - at:
                    return row, _CUT_OFF
                at += sizes[node]
            elif kind == _NUMBER:
                number, at = read_signed(data, at, end)
                if at > end:
                    return row, _CUT_OFF
            elif kind == _TEXT:
                number, at = read_signed(data, at, end)
                if at > end or number < 0 or number > end - at:
                    return row, _CUT_OFF
                at += number
            elif kind == _UNION:
                number, at = read_signed(data, at, end)
                if at > end or number < 0 or number >= starts[node + 1] - starts[node]:
                    return row, _CUT_OFF
                node = children[starts[node] + number]
                continue
            elif kind != _NULL:
                stack[depth, 0] = node
                stack[depth, 1] = 0
                depth += 1
            found = False
            while depth > 0 and not found:
                node = stack[depth - 1, 0]
                if kinds[node] == _RECORD:
                    field = stack[depth - 1, 1]
                    if field == starts[node + 1] - starts[node]:
                        depth -= 1
                        continue
                    stack[depth - 1, 1] = field + 1
                    node = children[starts[node] + field]
                    found = True
                    continue
                left = stack[depth - 1, 1]
                if left == 0:
                    left, at = read_signed(data, at, end)
                    if at > end:
                        return row, _CUT_OFF
                    if left == 0:
                        depth -= 1
                        continue
                    if left < 0:
                        left = -left
                        number, at = read_signed(data, at, end)
                        if at > end or number < 0:
                            return row, _CUT_OFF
                    if left < 0 or left > end - at:
                        return row, _CUT_OFF
                    if roles[node] == _LINKS:
                        links += left
                    elif roles[node] == _REDIRECTS:
                        redirects += left
                stack[depth - 1, 1] = left - 1
                if kinds[node] == _MAP:
                    number, at = read_signed(data, at, end)
                    if at > end or number < 0 or number > end - at:
                        return row, _CUT_OFF
                    at += number
                node = children[starts[node]]
                found = True
            if not found:
                break
        ends[row] = at
        problems[row] = _LINKS if links > MOST_LINKS else _REDIRECTS if redirects > MOST_REDIRECTS else _NO_ROLE
    return np.int64(ends.shape[0]), 0
