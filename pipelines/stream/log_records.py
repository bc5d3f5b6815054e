"""The records of a log, and how far a ledger has applied them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import xxhash

from opicflow.schemas.arrays import Bytes, Ints


class LogBatch(NamedTuple):
    """The records of a log in the offsets [start, end): offsets, times, and values, which lie in `text`."""

    start: int
    end: int
    offsets: Ints
    times_ms: Ints
    begins: Ints
    ends: Ints
    text: Bytes

    @classmethod
    def of(cls, start: int, records: Iterable[tuple[int, int, bytes]], end: int | None = None) -> LogBatch:
        """Make a batch of records (offset, time, value); by default it ends behind the last one."""
        rows = list(records)
        ends = np.cumsum([0, *(len(value) for _, _, value in rows)])
        last = rows[-1][0] + 1 if rows else start
        return cls(
            start,
            last if end is None else end,
            np.array([offset for offset, _, _ in rows], np.int64),
            np.array([time_ms for _, time_ms, _ in rows], np.int64),
            ends[:-1].astype(np.int64),
            ends[1:].astype(np.int64),
            np.frombuffer(b"".join(value for _, _, value in rows), np.uint8),
        )


@dataclass(frozen=True)
class LogHead:
    """How far a log was applied: the next offset, the offset and digest of the last record, and a hash of the chain.

    The hash is that of all records from the start, for any division into batches. Keepers with equal heads are equal.
    """

    next: int = 0
    chain: str = ""
    last_offset: int = -1
    last_digest: str = ""

    def behind(self, offset: int, time_ms: int, value: bytes) -> LogHead:
        """Return the head behind the next record."""
        digest = digest_of_value(value)
        link = f"{self.chain} {offset} {time_ms} {digest}".encode()
        return LogHead(offset + 1, hashlib.blake2b(link, digest_size=16).hexdigest(), offset, digest)

    def to_bytes(self) -> bytes:
        """Encode the head."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LogHead:
        """Decode a head."""
        return cls(**json.loads(data))


def digest_of_value(value: bytes) -> str:
    """Return a hash that differs from that of any other record at the same offset."""
    return xxhash.xxh64_hexdigest(value)
