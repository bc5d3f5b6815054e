"""How a record travels as one message: Avro's single-object encoding, or Confluent's with the id of a schema registry.

    single-object   C3 01   fingerprint of the writer's schema, 8 bytes little-endian    body
    Confluent       00      id of the writer's schema, 4 bytes big-endian                body

Neither can be mistaken for JSON or any other text: no text begins with 00, and C3 01 is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from io import BytesIO
from typing import Any, NamedTuple, cast

import fastavro
import numpy as np
from fastavro.schema import parse_schema

from opicflow.schemas import published_schemas
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, Reason
from opicflow.schemas.errors import UserError
from opicflow.schemas.published_schemas import Schema, SchemaType
from opicflow.schemas.writer_schema import WriterSchema, refused_for

MOST_MESSAGE_BYTES = 2 * MOST_EVENT_BYTES
"""No message is longer: there must be room for a reject that holds the longest event."""


_SHORT_BYTES = 64 << 10
"""No shorter message of a published schema makes much of its bytes, whatever it holds."""


class FramingRefused(UserError, ValueError):
    """A message does not have the expected form. The text is one line for people.

    `reason`: of an event with the right form that exceeds a limit.
    """

    def __init__(self, message: str, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class FrameKind(Enum):
    """How a message identifies the schema of its writer."""

    SINGLE_OBJECT = "single-object"
    CONFLUENT = "Confluent"


MARKS = {FrameKind.SINGLE_OBJECT: b"\xc3\x01", FrameKind.CONFLUENT: b"\x00"}
BODY_STARTS = {FrameKind.SINGLE_OBJECT: 10, FrameKind.CONFLUENT: 5}


class Frame(NamedTuple):
    """The id of a writer's schema in a message: a fingerprint (single-object) or a registry's id (Confluent)."""

    kind: FrameKind
    number: int

    def __str__(self) -> str:
        """The frame as messages name it."""
        return f"fingerprint {self.number:016x}" if self.kind is FrameKind.SINGLE_OBJECT else f"schema id {self.number}"


WriterOf = Callable[[Frame], "Schema | None"]
"""Returns the writer's schema of a frame, None if there is none. It is called once for each frame."""


def frame_kind(message: bytes) -> FrameKind | None:
    """The kind of frame that a message begins with; None = no frame, so perhaps JSON. The rest is not looked at."""
    return next((kind for kind, mark in MARKS.items() if message.startswith(mark)), None)


def published_writer(frame: Frame) -> Schema | None:
    """The writer's schema where it is one of the published ones: enough for single-object encoding."""
    found = published_schemas.with_fingerprint(frame.number) if frame.kind is FrameKind.SINGLE_OBJECT else None
    return published_schemas.schema(*found) if found else None


def frame_of(message: bytes) -> Frame | None:
    """Return the frame of a message; None if it has none, or ends within it."""
    kind = frame_kind(message)
    if kind is None or len(message) < BODY_STARTS[kind]:
        return None
    number = message[len(MARKS[kind]) : BODY_STARTS[kind]]
    return Frame(kind, int.from_bytes(number, "little" if kind is FrameKind.SINGLE_OBJECT else "big"))


def single_object_prefix(name: str) -> bytes:
    """Return the first bytes of messages with records of the latest version of schema `name`: its fingerprint."""
    return MARKS[FrameKind.SINGLE_OBJECT] + published_schemas.fingerprint(name).to_bytes(8, "little")


def confluent_prefix(schema_id: int) -> bytes:
    """Return the first bytes of messages whose schema has this id in a schema registry."""
    return MARKS[FrameKind.CONFLUENT] + schema_id.to_bytes(4, "big")


def encode_single_object(name: str, values: Mapping[str, object]) -> bytes:
    """Encode a record of the latest version of schema `name` with its fingerprint."""
    return encode_behind(single_object_prefix(name), name, values)


def encode_behind(prefix: bytes, name: str, values: Mapping[str, object]) -> bytes:
    """Encode a record of the latest version of schema `name` behind a prefix that names the schema.

    Values that are no such record are a bug of the caller: fastavro's own errors, whatever they are.
    """
    stream = BytesIO(prefix)
    stream.seek(len(prefix))
    fastavro.schemaless_writer(stream, _to_write(name), values, strict_allow_default=True)
    if stream.tell() > MOST_MESSAGE_BYTES:
        raise FramingRefused(f"this {name} would have {stream.tell()} bytes: send at most {MOST_MESSAGE_BYTES}")
    return stream.getvalue()


class Decoder:
    """Reads messages as the latest version of one schema, whatever version they were written with.

    Times come as whole milliseconds, fields that the writer did not have as their defaults. Everything that is not such
    a message, from its first byte to its last, is `FramingRefused`; what `writer_of` raises passes through.
    """

    def __init__(self, name: str, writer_of: WriterOf = published_writer) -> None:
        self._name = name
        self._schema = published_schemas.schema(name)
        self._reader = WriterSchema(self._schema).parsed
        self._writer_of = writer_of
        self._writers: dict[Frame, tuple[WriterSchema, bool]] = {}

    def decode(self, message: bytes) -> dict[str, Any]:
        """The record of a message in either framing."""
        frame = self._frame(message)
        writer, is_published = self._writers.get(frame) or self._learn(frame)
        if not is_published or len(message) > _SHORT_BYTES:
            self._check(message, frame, writer)
        stream = BytesIO(message)
        stream.seek(BODY_STARTS[frame.kind])
        try:
            values = fastavro.schemaless_reader(stream, writer.parsed, self._reader)
        except Exception:
            # fastavro raises many exceptions for a broken body; their messages differ from run to run.
            raise FramingRefused(
                f"this {self._name} of {frame} breaks off or is damaged near byte {stream.tell()} of {len(message)}: "
                "send it again, or correct the schema that it names"
            ) from None
        if stream.tell() != len(message):
            raise FramingRefused(
                f"this {self._name} of {frame} ends at byte {stream.tell()} of {len(message)}: send one record a "
                "message, or correct the schema that it names"
            )
        return cast(dict[str, Any], values)

    def _check(self, message: bytes, frame: Frame, writer: WriterSchema) -> None:
        """Pass over the record before fastavro does, which follows every count in it."""
        walk = writer.walk(np.frombuffer(message, np.uint8), BODY_STARTS[frame.kind], len(message), 1)
        if walk.detail:
            detail = f"this {self._name} of {frame} is damaged: {walk.detail}"
            raise FramingRefused(f"{detail}: send it again, or correct the schema that it names")
        if refused := refused_for(int(walk.problems[0])):
            raise FramingRefused(str(refused), refused.reason)

    def _frame(self, message: bytes) -> Frame:
        kind, frame = frame_kind(message), frame_of(message)
        if len(message) > MOST_MESSAGE_BYTES:
            raise FramingRefused(f"this {self._name} has {len(message)} bytes: send at most {MOST_MESSAGE_BYTES}")
        if kind is None:
            raise FramingRefused(
                f"this {self._name} begins with {message[:2].hex(' ') or 'nothing'}: frame it as Avro single-object "
                "encoding (c3 01) or as Confluent (00)"
            )
        if frame is None:
            raise FramingRefused(
                f"this {self._name} breaks off within its first {BODY_STARTS[kind]} bytes: send it whole"
            )
        return frame

    def _learn(self, frame: Frame) -> tuple[WriterSchema, bool]:
        schema = self._writer_of(frame)
        if schema is None:
            of_registry = frame.kind is FrameKind.CONFLUENT
            todo = (
                "name its schema registry with --registry" if of_registry else "publish that schema, or update opicflow"
            )
            raise FramingRefused(f"this {self._name} was written with {frame}, which is not known here: {todo}")
        try:
            writer = WriterSchema(schema)
            in_the_way = published_schemas.breaks(writer.parsed, self._schema)
        except Exception as problem:
            raise FramingRefused(f"{frame} is no Avro schema ({_one_line(problem)}): correct the registry") from None
        if in_the_way:
            raise FramingRefused(
                f"{frame} cannot be read as {self._name} ({_one_line(in_the_way[0])}): write with a published schema"
            )
        published = map(partial(published_schemas.schema, self._name), published_schemas.versions(self._name))
        self._writers[frame] = writer, any(schema == one for one in published)
        return self._writers[frame]


@cache
def _to_write(name: str) -> SchemaType:
    return parse_schema(published_schemas.schema(name))


def _one_line(problem: object) -> str:
    text = " ".join((str(problem) or type(problem).__name__).split())
    return text if len(text) <= 120 else text[:117] + "..."
