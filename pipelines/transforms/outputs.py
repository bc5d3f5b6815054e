"""The outputs of a ledger: their kinds, and the bytes that leave."""

from __future__ import annotations

from typing import NamedTuple

IMPORTANCE, SCHEDULE, ORDERS, TOMBSTONES = "importance", "refresh-schedule", "crawl-orders", "tombstones"
AUDIT, REJECTS, TRANSFERS, FINGERPRINT = "audit", "rejects", "transfers", "fingerprint"


class Output(NamedTuple):
    """One output of a keeper: its name, and its bytes."""

    name: str
    data: bytes
