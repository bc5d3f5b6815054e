"""Entries of a shard log as bytes, for shuffles, journals and the log itself.

Stored names are written out here. They stay the same whatever the fields are called. Columns whose values never
decrease are stored as differences: they then take a byte or two a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from opicflow.pipelines.ledger.config import shown
from opicflow.pipelines.ledger.entries import (
    ENTRY_VERSION,
    ITEM_COLUMNS,
    ControlEntry,
    CrawlEntry,
    CrawlItems,
    Gossip,
    LogEntry,
    LogPosition,
    PolicyEntry,
    ResidualSums,
    TickEntry,
    TransfersEntry,
)
from opicflow.schemas.arrays import Array, Ints
from opicflow.schemas.columns import ColumnsRefused, pack, unpack
from opicflow.schemas.policy_json import PolicyRefused, policy_from_json, policy_to_json

_Values = dict[str, Any]
_Columns = dict[str, Array]


_QUALITY, _WITH_QUALITY = "quality", 2
"""The column of a crawl entry in which a quality is told, and the version of such entries; others are as before."""


class EntryUnknown(Exception):
    """An entry is sound, but of a kind or version that this code does not know."""


class DecodedEntry(NamedTuple):
    """An entry, and the note of plain values that was stored with it."""

    entry: LogEntry
    note: dict[str, Any]


def encode_entry(entry: LogEntry, note: dict[str, Any] | None = None) -> bytes:
    """The bytes of an entry, and of a note of plain values that is stored with it."""
    kind, values, columns = _encoded(entry)
    version = _WITH_QUALITY if _QUALITY in columns else entry.version
    return pack(kind, {**values, "version": version, "note": note or {}}, columns)


def decode_entry(data: bytes) -> DecodedEntry:
    """The entry and note that `encode_entry` was given; `ColumnsRefused` for anything else.

    The values are not checked here; the ledger does that. `EntryUnknown` for kinds and versions of newer code.
    """
    packed = unpack(data)
    version = packed.values.get("version", ENTRY_VERSION)
    decode = _DECODERS.get(packed.kind)
    has_quality = packed.kind == "crawl" and version == _WITH_QUALITY
    if decode is None or not (version == ENTRY_VERSION or has_quality):
        raise EntryUnknown(f"an entry of kind {packed.kind[:20]!r} and version {shown(version)}: update opicflow")
    values, columns = dict(packed.values), dict(packed.columns)
    if has_quality != (_QUALITY in columns):
        raise ColumnsRefused(f"these columns are no entry: {_QUALITY} belongs to version {_WITH_QUALITY}")
    try:
        note = values.pop("note")
        values.pop("version", None)
        entry = decode(values, columns)
    except (KeyError, TypeError, PolicyRefused) as problem:
        raise ColumnsRefused(f"these columns are no entry: {shown(problem)}") from None
    if values or columns:
        raise ColumnsRefused(f"these columns are no entry: {shown(next(iter([*values, *columns])))}")
    return DecodedEntry(entry, note)


def _encoded(entry: LogEntry) -> tuple[str, _Values, _Columns]:
    """The kind, values and columns of an entry, in the order in which they are stored."""
    match entry:
        case CrawlEntry():
            values = {**_range_of(entry), "visits_total": entry.visits_total}
            if entry.counted_from:
                values["counted_from"] = entry.counted_from
            return "crawl", values, _encode_items(entry.items)
        case TransfersEntry():
            values = {
                "source_shard": entry.source_shard,
                "cut": entry.cut,
                "first": entry.first,
                "last": entry.last,
                "virtual": entry.virtual,
                "sent_total": entry.sent_total,
                "sent_digest": entry.sent_digest,
                "gossip": entry.gossip and _encode_gossip(entry.gossip),
            }
            return "transfers", values, {"pages": entry.pages, "amounts": entry.amounts}
        case PolicyEntry():
            values = {
                **_range_of(entry),
                "damping": entry.damping,
                "class_weights": entry.class_weights,
                "link_bonus_per_1024": entry.link_bonus_per_1024,
                "drop": entry.drop,
                "forget": entry.forget,
                "policies": [policy_to_json(policy) for policy in entry.policies],
            }
            return "policy", values, {}
        case TickEntry():
            return "tick", {"second": entry.second}, {}
        case ControlEntry():
            return "control", {"source": entry.source, "values": entry.values}, {}


def _range_of(entry: CrawlEntry | PolicyEntry) -> _Values:
    return {"source": entry.source, "start": entry.start, "end": entry.end}


# Decoders take what they decode out of `values` and `columns`; what is left over is refused.


def _decode_crawl(values: _Values, columns: _Columns) -> CrawlEntry:
    items = _decode_items(columns)
    return CrawlEntry(
        **_pop_range(values),
        items=items,
        visits_total=values.pop("visits_total", None),
        counted_from=values.pop("counted_from", 0),
    )


def _decode_transfers(values: _Values, columns: _Columns) -> TransfersEntry:
    gossip = values.pop("gossip")
    return TransfersEntry(
        source_shard=values.pop("source_shard"),
        cut=values.pop("cut"),
        first=values.pop("first"),
        last=values.pop("last"),
        pages=columns.pop("pages"),
        amounts=columns.pop("amounts"),
        virtual=values.pop("virtual"),
        sent_total=values.pop("sent_total"),
        sent_digest=values.pop("sent_digest"),
        gossip=gossip and _decode_gossip(dict(gossip)),
    )


def _decode_policy(values: _Values, columns: _Columns) -> PolicyEntry:
    class_weights, bonus = values.pop("class_weights", None), values.pop("link_bonus_per_1024", None)
    return PolicyEntry(
        **_pop_range(values),
        damping=values.pop("damping", None),
        class_weights=None if class_weights is None else tuple(class_weights),
        link_bonus_per_1024=None if bonus is None else tuple(bonus),
        drop=tuple(values.pop("drop", ())),
        forget=tuple(values.pop("forget", ())),
        policies=tuple(map(policy_from_json, values.pop("policies", ()))),
    )


def _decode_tick(values: _Values, columns: _Columns) -> TickEntry:
    return TickEntry(values.pop("second"))


def _decode_control(values: _Values, columns: _Columns) -> ControlEntry:
    return ControlEntry(values.pop("source"), values.pop("values"))


_DECODERS: dict[str, Callable[[_Values, _Columns], LogEntry]] = {
    "control": _decode_control,
    "crawl": _decode_crawl,
    "policy": _decode_policy,
    "tick": _decode_tick,
    "transfers": _decode_transfers,
}


def _pop_range(values: _Values) -> _Values:
    return {
        "source": values.pop("source"),
        "start": LogPosition(*values.pop("start")),
        "end": LogPosition(*values.pop("end")),
    }


def _encode_gossip(gossip: Gossip) -> _Values:
    values: _Values = {
        "advance": gossip.advance,
        "minted": gossip.minted,
        "pages": gossip.pages,
        "weighted_pages": gossip.weighted_pages,
        "rate_sum": gossip.rate_sum,
        "shares": gossip.shares,
    }
    if gossip.residuals is not None:
        values["residuals"] = encode_residual_sums(gossip.residuals)
    if gossip.second >= 0:
        values["second"] = gossip.second
    return values


def _decode_gossip(values: _Values) -> Gossip:
    gossip = Gossip(
        advance=values.pop("advance"),
        minted=values.pop("minted"),
        pages=values.pop("pages"),
        weighted_pages=values.pop("weighted_pages"),
        rate_sum=values.pop("rate_sum"),
        shares=values.pop("shares", 0),
        residuals=decode_residual_sums(values.pop("residuals", None)),
        second=values.pop("second", -1),
    )
    if values:
        raise KeyError(*values)
    return gossip


def encode_residual_sums(sums: ResidualSums) -> list[Any]:
    """The sums as a plain list, for logs and snapshots."""
    return [
        sums.bases,
        sums.paid,
        sums.residual,
        sums.residual_size,
        sums.links,
        list(sums.sent),
        list(sums.received),
    ]


def decode_residual_sums(values: list[Any] | None) -> ResidualSums | None:
    """The sums that `encode_residual_sums` was given; None for None. `TypeError` for anything else."""
    if values is None:
        return None
    if type(values) is not list or len(values) != 7 or not all(type(flow) is list for flow in values[5:]):
        raise TypeError(f"residuals are {shown(values)}")
    bases, paid, residual, residual_size, links, sent, received = values
    return ResidualSums(bases, paid, residual, residual_size, links, tuple(sent), tuple(received))


def _encode_items(items: CrawlItems) -> _Columns:
    columns = {column.name: getattr(items, column.name) for column in ITEM_COLUMNS}
    if not items.quality.any():
        del columns[_QUALITY]
    return columns | {column.name: _steps(columns[column.name]) for column in ITEM_COLUMNS if column.is_rising}


def _decode_items(columns: _Columns) -> CrawlItems:
    quality = columns.pop(_QUALITY, None)
    stored = {column.name: columns.pop(column.name) for column in ITEM_COLUMNS if column.name != _QUALITY}
    stored[_QUALITY] = np.zeros(len(stored["kind"]), np.uint8) if quality is None else quality
    summed = {column.name: _summed(stored[column.name]) for column in ITEM_COLUMNS if column.is_rising}
    return CrawlItems(**(stored | summed))


def _steps(column: Ints) -> Ints:
    """The differences between values, the first one from 0."""
    steps = column.copy()
    steps[1:] -= column[:-1]
    return steps


def _summed(steps: Array) -> Ints:
    column: Ints = np.cumsum(steps, dtype=np.int64)
    return column
