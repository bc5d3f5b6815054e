"""The outputs of replays and streams: their kinds, and the bytes that leave."""

from __future__ import annotations

from typing import NamedTuple

IMPORTANCE, SCHEDULE, ORDERS, TOMBSTONES = "importance", "refresh-schedule", "crawl-orders", "tombstones"
"""Published while the log is applied."""
SITES = "site-importance"
CHANGES = "page-changes"
"""Changes of pages to which somebody subscribed."""
AUDIT, REJECTS, TRANSFERS, FINGERPRINT = "audit", "rejects", "transfers", "fingerprint"
APPLIED = "applied"
"""Not sent: up to which record of its log a ledger has given all of its outputs."""

FINAL_IMPORTANCE, FINAL_SCHEDULE, FINAL_ORDERS = "final-importance", "final-schedule", "final-orders"
"""All pages at the end of a replay, when each is due, and the orders of the next cycle."""
FINAL_SITES = "final-sites"
FINAL = (FINAL_IMPORTANCE, FINAL_SCHEDULE, FINAL_ORDERS, FINAL_SITES)
"""The kinds that a replay makes at its end, in this order."""
MOMENTS = "moments"
"""The importance of all pages while a crawl ran, as `replay/moments.py` packs it."""
REPORT = "report"
"""What happened in a segment of a replay, as JSON."""
NO_SHARD = -1
EMPTY_FILES, ROUTED, KEPT = 0, 1, 2
"""The numbers of a replay's outputs at an offset: rejects of empty files, those of the router, then all others."""


class Output(NamedTuple):
    """One output. Transfers are for the log of a shard.

    `offset` and `number`: where a replay has made it, the offset of its log and the number of the output there.
    """

    kind: str
    data: bytes
    to_shard: int = NO_SHARD
    time_ms: int | None = None
    """The time of the records that are sent. It increases along a log, so that of two records the newer is known."""
    offset: int = 0
    number: int = 0
