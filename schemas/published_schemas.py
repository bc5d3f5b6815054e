"""The published schemas: the lasting form of every version of every stream's records.

They are the files `published/<Name>-<version>.avsc`. The form of a published one never changes, only a description that
is wrong: a new version is a new file, which adds fields with defaults, and renames and removes none. So every reader
can read every version, its own and others (`breaks` lists obstacles).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from opicflow.schemas.errors import UserError, printable

if TYPE_CHECKING:  # Python 3.10 has it elsewhere
    from importlib.resources.abc import Traversable

Schema = dict[str, Any]
"""An Avro schema, as its JSON reads."""
SchemaType = str | list[Any] | Schema
"""A type of a schema: a name, a union, or a declaration."""

_FILE_NAME = re.compile(r"(\w+)-([1-9][0-9]*)\.avsc")

_PROMOTED = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}
"""Types that may be read as another one (Avro specification, "Schema Resolution"): written, read."""


_MOST_SHOWN = 80


class SchemaUnknown(UserError, LookupError):
    """There is no published schema of that name or version."""


class Published(NamedTuple):
    """One version of one schema."""

    name: str
    version: int


def names() -> tuple[str, ...]:
    """All schemas that have a published version, sorted."""
    return tuple(_published())


def versions(name: str) -> tuple[int, ...]:
    """The published versions of a schema, oldest first."""
    known = _published().get(name)
    if known is None:
        raise SchemaUnknown(f"there is no published schema {name!r}: name one of {', '.join(names())}")
    return known


@cache
def schema(name: str, version: int | None = None) -> Schema:
    """Return a published schema, the latest version unless one is named. It is shared: do not change it."""
    known = versions(name)
    version = known[-1] if version is None else version
    if version not in known:
        raise SchemaUnknown(f"there is no version {version} of {name}: name one of {', '.join(map(str, known))}")
    loaded: Schema = json.loads(_folder().joinpath(f"{name}-{version}.avsc").read_text(encoding="utf-8"))
    return loaded


@cache
def fingerprint(name: str, version: int | None = None) -> int:
    """The CRC-64-AVRO fingerprint of a published schema's parsing canonical form, as an unsigned number of 64 bits."""
    import fastavro.schema  # only here: most commands need no fingerprint

    canonical = fastavro.schema.to_parsing_canonical_form(schema(name, version))
    return int.from_bytes(bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")), "little")


def with_fingerprint(number: int) -> Published | None:
    """The published schema that has this fingerprint, or None."""
    return _by_fingerprint().get(number)


def breaks(writer: SchemaType, reader: SchemaType) -> list[str]:
    """Return the obstacles to reading data of schema `writer` as `reader`, a line for each.

    Names must be the same, namespaces need not; aliases do not count, because nothing is ever renamed. Raises the
    errors of fastavro's `parse_schema` for a value that is no schema.
    """
    written, read = _with_names(writer), _with_names(reader)
    return list(_Comparison(written[1], read[1]).of(written[0], read[0], where=""))


class _Comparison:
    """Walks two parsed schemas side by side; a pair of named types is compared once, as they may hold themselves."""

    def __init__(self, writer_named: Mapping[str, Schema], reader_named: Mapping[str, Schema]) -> None:
        self._writer_named = writer_named
        self._reader_named = reader_named
        self._compared: set[tuple[str, str]] = set()

    def of(self, writer: SchemaType, reader: SchemaType, where: str) -> Iterator[str]:
        if isinstance(writer, str):
            writer = self._writer_named.get(writer, writer)
        if isinstance(reader, str):
            reader = self._reader_named.get(reader, reader)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.of(branch, reader, where)
        elif isinstance(reader, list):
            in_the_way = [list(self.of(writer, branch, where)) for branch in reader]
            if all(in_the_way):
                alike = [lines for lines, branch in zip(in_the_way, reader, strict=True) if self._like(writer, branch)]
                yield from (
                    alike[0]
                    if alike
                    else [f"{where or 'it'} may be {shown_name(_type(writer))}, which no branch can be"]
                )
        elif not self._like(writer, reader):
            yield f"{where or 'it'} is {_shown(writer)}, not {_shown(reader)}"
        elif isinstance(writer, dict):
            yield from self._inside(writer, reader, where)

    def _like(self, writer: SchemaType, reader: SchemaType) -> bool:
        """Whether the outermost types go together."""
        if isinstance(reader, str):
            reader = self._reader_named.get(reader, reader)
        kinds = _type(writer), _type(reader)
        if kinds[0] != kinds[1]:
            return kinds in _PROMOTED
        return kinds[0] not in ("record", "enum", "fixed") or _short_name(writer) == _short_name(reader)

    def _inside(self, writer: Schema, reader: Any, where: str) -> Iterator[str]:
        kind = _type(writer)
        if kind == "array":
            yield from self.of(writer["items"], reader["items"], f"{where}[]")
        elif kind == "map":
            yield from self.of(writer["values"], reader["values"], f"{where}[]")
        elif kind == "fixed" and writer["size"] != reader["size"]:
            yield f"{where or 'it'} has {writer['size']} bytes, not {reader['size']}"
        elif kind == "enum" and "default" not in reader:
            for symbol in writer["symbols"]:
                if symbol not in reader["symbols"]:
                    yield f"{where or 'it'} may be {shown_name(str(symbol))}, which is not known and has no default"
        elif kind == "record" and (pair := (writer["name"], reader["name"])) not in self._compared:
            self._compared.add(pair)
            written = {field["name"]: field for field in writer["fields"]}
            for field in reader["fields"]:
                path = f"{where}.{field['name']}" if where else field["name"]
                if field["name"] in written:
                    yield from self.of(written[field["name"]]["type"], field["type"], path)
                elif "default" not in field:
                    yield f"{path} is missing and has no default"


def _with_names(schema: SchemaType) -> tuple[SchemaType, Mapping[str, Schema]]:
    named: dict[str, Schema] = {}
    import fastavro.schema

    return fastavro.schema.parse_schema(schema, named), named


def _type(parsed: SchemaType) -> str:
    return str(parsed["type"] if isinstance(parsed, dict) else parsed)


def shown_name(text: str) -> str:
    """Return a name of a writer's schema for a message: it may hold anything, such as a line end."""
    return printable(text[:_MOST_SHOWN])


def _short_name(parsed: SchemaType) -> str:
    return str(parsed["name"] if isinstance(parsed, dict) else parsed).rpartition(".")[2]


def _shown(parsed: SchemaType) -> str:
    name = f" {shown_name(str(parsed['name']))}" if isinstance(parsed, dict) and "name" in parsed else ""
    return shown_name(_type(parsed)) + name


def _folder() -> Traversable:
    return files("opicflow.schemas").joinpath("published")


@cache
def _published() -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for file in _folder().iterdir():
        if match := _FILE_NAME.fullmatch(file.name):
            found.setdefault(match[1], []).append(int(match[2]))
    return {name: tuple(sorted(found[name])) for name in sorted(found)}


@cache
def _by_fingerprint() -> dict[int, Published]:
    return {fingerprint(name, version): Published(name, version) for name in names() for version in versions(name)}
