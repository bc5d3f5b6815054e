"""How far a ledger has applied its log: the records of a topic, or the batches of a replay."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

import xxhash

from opicflow.schemas.plain_values import Natural, read_plain


@dataclass(frozen=True)
class LogHead:
    """How far a log was applied: the next offset, the offset and digest of the last record, and a hash of the chain.

    The hash is that of all records from the start, for any division into batches; a replay's is that of its batches, as
    they came. Keepers with equal heads are equal.
    """

    next: Natural = 0
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
        return read_plain(cls, json.loads(data)) if data else cls()


@dataclass
class StoredSizes:
    """The sizes of the last snapshot of a ledger, and of the part of its log since then."""

    snapshot_bytes: int = 0
    journal_bytes: int = 0


def digest_of_value(value: bytes) -> str:
    """Return a hash that differs from that of any other record at the same offset."""
    return xxhash.xxh64_hexdigest(value)
