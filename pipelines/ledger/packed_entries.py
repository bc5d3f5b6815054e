"""Entries as packed columns: policies and controls, and every entry of logs that older opicflow wrote.

Stored names are written out here. They stay the same whatever the fields are called. Columns whose values never
decrease are stored as differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.errors import EntryUnknown
from opicflow.pipelines.ledger.ledger_state import decode_residual_sums
from opicflow.schemas.arrays import Array, Ints
from opicflow.schemas.columns import ColumnsRefused, pack, unpack
from opicflow.schemas.policy_json import policy_from_json, policy_to_json

_Values = dict[str, Any]
_Columns = dict[str, Array]

_QUALITY, _WITH_QUALITY = "quality", 2
"""The column of qualities in a crawl entry, and the version of entries that have one; others have version 1."""


def pack_entry(entry: PolicyEntry | ControlEntry, note: _Values) -> bytes:
    """The bytes of a policy or a control, and of a note of plain values that is stored with it."""
    values: _Values
    if isinstance(entry, ControlEntry):
        kind, values = "control", {"source": entry.source, "values": entry.values}
    else:
        kind = "policy"
        values = {
            "source": entry.source,
            "start": entry.start,
            "end": entry.end,
            "damping": entry.damping,
            "class_weights": entry.class_weights,
            "link_bonus_per_1024": entry.link_bonus_per_1024,
            "drop": entry.drop,
            "forget": entry.forget,
            "policies": [policy_to_json(policy) for policy in entry.policies],
        }
    return pack(kind, {**values, "version": entry.version, "note": note}, {})


def unpack_entry(data: bytes) -> tuple[LogEntry, _Values]:
    """The entry in packed columns, and its note. Raises `ColumnsRefused` and `EntryUnknown`."""
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
    except (KeyError, TypeError, ValueError) as problem:
        raise ColumnsRefused(f"these columns are no entry: {shown(problem)}") from None
    if values or columns:
        raise ColumnsRefused(f"these columns are no entry: {shown(next(iter([*values, *columns])))}")
    return entry, note


# Decoders remove the fields they decode from `values` and `columns`; a field that remains is refused.


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


def _decode_items(columns: _Columns) -> CrawlItems:
    quality = columns.pop(_QUALITY, None)
    stored = {column.name: columns.pop(column.name) for column in ITEM_COLUMNS if column.name != _QUALITY}
    stored[_QUALITY] = np.zeros(len(stored["kind"]), np.uint8) if quality is None else quality
    summed = {column.name: _summed(stored[column.name]) for column in ITEM_COLUMNS if column.is_rising}
    return CrawlItems(**(stored | summed))


def _summed(steps: Array) -> Ints:
    column: Ints = np.cumsum(steps, dtype=np.int64)
    return column
