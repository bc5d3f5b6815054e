"""Entries as older opicflow wrote them, all as packed columns: logs have them, and they are read."""

from __future__ import annotations

from typing import Any

from opicflow.pipelines.ledger import CrawlEntry, Gossip, LogEntry, TickEntry, TransfersEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.ledger.entries import ITEM_COLUMNS, CrawlItems
from opicflow.schemas.arrays import Array
from opicflow.schemas.columns import pack


def encode_old_entry(entry: LogEntry, note: dict[str, Any] | None = None) -> bytes:
    """The bytes of an entry in the form before the present one."""
    match entry:
        case CrawlEntry():
            columns = _columns_of(entry.items)
            values = {"source": entry.source, "start": entry.start, "end": entry.end}
            values["visits_total"] = entry.visits_total
            if entry.counted_from:
                values["counted_from"] = entry.counted_from
            version = 2 if "quality" in columns else entry.version
            return pack("crawl", {**values, "version": version, "note": note or {}}, columns)
        case TransfersEntry():
            names = ("source_shard", "cut", "first", "last", "virtual", "sent_total", "sent_digest")
            values = {name: getattr(entry, name) for name in names}
            values["gossip"] = entry.gossip and _gossip_of(entry.gossip)
            values |= {"version": entry.version, "note": note or {}}
            return pack("transfers", values, {"pages": entry.pages, "amounts": entry.amounts})
        case TickEntry():
            return pack("tick", {"second": entry.second, "version": entry.version, "note": note or {}}, {})
    return encode_entry(entry, note)


def _columns_of(items: CrawlItems) -> dict[str, Array]:
    columns: dict[str, Array] = {}
    for one in ITEM_COLUMNS:
        column: Array = getattr(items, one.name)
        if one.is_rising:
            column = column.copy()
            column[1:] -= getattr(items, one.name)[:-1]
        if one.name != "quality" or column.any():
            columns[one.name] = column
    return columns


def _gossip_of(gossip: Gossip) -> dict[str, Any]:
    names = ("advance", "minted", "pages", "weighted_pages", "rate_sum", "shares")
    values = {name: getattr(gossip, name) for name in names}
    if gossip.residuals is not None:
        sums = gossip.residuals
        totals = [sums.bases, sums.paid, sums.residual, sums.residual_size, sums.links]
        values["residuals"] = [*totals, list(sums.sent), list(sums.received)]
    if gossip.second >= 0:
        values["second"] = gossip.second
    return values
