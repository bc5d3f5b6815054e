"""How the values of a topic are framed: with the id of a schema registry where there is one, else by themselves."""

from __future__ import annotations

from typing import Any

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.registry import SchemaRegistry
from opicflow.schemas import registry
from opicflow.schemas.framing import (
    Frame,
    FrameKind,
    WriterOf,
    encode_confluent,
    encode_single_object,
    published_writer,
)
from opicflow.schemas.registry import Schema

_SINGLE_OBJECT, _CONFLUENT = b"\xc3\x01", b"\x00"


class Framer:
    """Makes messages of the records of one topic, by the latest published version of one schema.

    It travels light: the registry is asked when the first message is made, once in each process.
    """

    def __init__(self, connection: Connection, topic: str, name: str) -> None:
        """Nothing is asked yet."""
        self._connection = connection
        self._topic = topic
        self._name = name
        self._prefix = b""

    def __getstate__(self) -> dict[str, Any]:
        """Without what the registry said: it is asked again where this is used."""
        return {**self.__dict__, "_prefix": b""}

    @property
    def prefix(self) -> bytes:
        """What every message begins with."""
        if not self._prefix:
            access = self._connection.registry_access()
            if access is None:
                self._prefix = _SINGLE_OBJECT + registry.fingerprint(self._name).to_bytes(8, "little")
            else:
                schema_id = SchemaRegistry(access).publish(self._name, f"{self._topic}-value")
                self._prefix = _CONFLUENT + schema_id.to_bytes(4, "big")
        return self._prefix

    def encode(self, values: dict[str, Any]) -> bytes:
        """The values of a record, as `schemas.records.to_avro` gives them, as a message."""
        prefix = self.prefix
        if prefix.startswith(_SINGLE_OBJECT):
            return encode_single_object(self._name, values)
        return encode_confluent(self._name, values, int.from_bytes(prefix[len(_CONFLUENT) :], "big"))


def writer_of(connection: Connection) -> WriterOf:
    """Finds the writers of messages: by fingerprint among the published schemas, by id in the registry, if any."""
    access = connection.registry_access()
    if access is None:
        return published_writer
    schemas = SchemaRegistry(access)

    def find(frame: Frame) -> Schema | None:
        return schemas.schema(frame.number) if frame.kind is FrameKind.CONFLUENT else published_writer(frame)

    return find
