"""How far a ledger has applied its log: the records of a topic, or the batches of a replay."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import xxhash

_Stored = TypeVar("_Stored", bound=Any)


@dataclass(frozen=True)
class LogHead:
    """How far a log was applied: the next offset, the offset and digest of the last record, and a hash of the chain.

    The hash is that of all records from the start, for any division into batches; a replay's is that of its batches, as
    they came. Keepers with equal heads are equal.
    """

    next: int = 0
    chain: str = ""
    last_offset: int = -1
    last_digest: str = ""

    def behind(self, offset: int, time_ms: int, digest: str) -> LogHead:
        """Return the head behind the next record, which has this digest."""
        link = f"{self.chain} {offset} {time_ms} {digest}".encode()
        return LogHead(offset + 1, hashlib.blake2b(link, digest_size=16).hexdigest(), offset, digest)

    def to_bytes(self) -> bytes:
        """Encode the head."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes | None) -> LogHead:
        """Decode a head; the first one for None, or no bytes."""
        return cls(**json.loads(data)) if data else cls()


def checked_fields(stored: _Stored) -> _Stored:
    """Return a dataclass of plain values if each has the type of its default. Raises `TypeError` for another one."""
    for one in fields(stored):
        value, default = getattr(stored, one.name), getattr(type(stored)(), one.name)
        if default is not None and type(value) is not type(default):
            raise TypeError(f"{one.name} is no {type(default).__name__}")
    return stored


def digest_of_value(value: bytes) -> str:
    """Return a hash that differs from that of any other record at the same offset."""
    return xxhash.xxh64_hexdigest(value)
