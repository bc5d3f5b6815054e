"""The outputs of a ledger in a stream: their kinds, and the bytes that leave."""

from __future__ import annotations

from typing import NamedTuple

IMPORTANCE, SCHEDULE, ORDERS, TOMBSTONES = "importance", "refresh-schedule", "crawl-orders", "tombstones"
SITES = "site-importance"
AUDIT, REJECTS, TRANSFERS, FINGERPRINT = "audit", "rejects", "transfers", "fingerprint"
APPLIED = "applied"
"""Not sent: up to which record of its log a ledger has given all of its outputs."""
NO_SHARD = -1


class Output(NamedTuple):
    """One output of a keeper. Transfers are for the log of a shard."""

    kind: str
    data: bytes
    to_shard: int = NO_SHARD
    time_ms: int | None = None
    """The time of the records that are sent. It increases along a log, so that of two records the newer is known."""
