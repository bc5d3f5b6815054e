"""Entries of a shard log as bytes: what goes through a shuffle, into a journal, and into the log itself.

Columns that only ever rise are stored as differences: they then take a byte or two a row.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from opicflow.pipelines.ledger.config import shown
from opicflow.pipelines.ledger.entries import (
    ENTRY_VERSION,
    ControlEntry,
    CrawlEntry,
    CrawlItems,
    EndEntry,
    Gossip,
    Ints,
    LogEntry,
    LogPosition,
    OpenEntry,
    PolicyEntry,
    TickEntry,
    TransfersEntry,
)
from opicflow.schemas.columns import Column, ColumnsRefused, pack, unpack
from opicflow.schemas.policy_json import PolicyRefused, policy_from_json, policy_to_json

_RISING = ("offset", "link_starts", "url_starts")
_KINDS: dict[str, type[LogEntry]] = {
    "control": ControlEntry,
    "crawl": CrawlEntry,
    "end": EndEntry,
    "open": OpenEntry,
    "policy": PolicyEntry,
    "tick": TickEntry,
    "transfers": TransfersEntry,
}


class EntryUnknown(Exception):
    """An entry is sound, and of a kind or version that this code does not know."""


class Decoded(NamedTuple):
    """An entry, and the note of plain values that went with it."""

    entry: LogEntry
    note: dict[str, Any]


def encode_entry(entry: LogEntry, note: dict[str, Any] | None = None) -> bytes:
    """The bytes of an entry, and of a note of plain values that goes with it."""
    kind = next(name for name, of_kind in _KINDS.items() if type(entry) is of_kind)
    values = {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
    columns: dict[str, Column] = {}
    if isinstance(entry, PolicyEntry):
        values["policies"] = [policy_to_json(policy) for policy in entry.policies]
    if isinstance(entry, CrawlEntry):
        del values["items"]
        columns = {f.name: getattr(entry.items, f.name) for f in dataclasses.fields(CrawlItems)}
        for name in _RISING:
            columns[name] = _steps(columns[name])
    elif isinstance(entry, TransfersEntry):
        columns = {"pages": values.pop("pages"), "amounts": values.pop("amounts")}
        values["gossip"] = entry.gossip and dict(vars(entry.gossip))
    elif isinstance(entry, OpenEntry):
        columns = {"chunk": values.pop("chunk")}
    return pack(kind, {**values, "note": note or {}}, columns)


def decode_entry(data: bytes) -> Decoded:
    """What `encode_entry` was given; `ColumnsRefused` for anything else. Judging the entry is left to the ledger.

    `EntryUnknown` for what a newer version of this code may have written.
    """
    packed = unpack(data)
    if packed.kind not in _KINDS or packed.values.get("version", ENTRY_VERSION) != ENTRY_VERSION:
        version = str(packed.values.get("version", ENTRY_VERSION))[:20]
        raise EntryUnknown(f"an entry of kind {packed.kind[:20]!r} and version {version}: update opicflow")
    values, columns = dict(packed.values), dict(packed.columns)
    try:
        note = values.pop("note")
        for name in values.keys() & {"start", "end"}:
            values[name] = LogPosition(*values[name])
        for name in values.keys() & {"class_weights", "link_bonus_per_1024", "drop", "forget"}:
            values[name] = None if values[name] is None else tuple(values[name])
        if packed.kind == "policy":
            values["policies"] = tuple(map(policy_from_json, values["policies"]))
        if packed.kind == "crawl":
            for name in _RISING:
                summed: Ints = np.cumsum(columns[name], dtype=np.int64)
                columns[name] = summed
            values["items"] = CrawlItems(**columns)
        elif packed.kind == "transfers":
            values |= columns
            values["gossip"] = values["gossip"] and Gossip(**values["gossip"])
        elif packed.kind == "open":
            values |= columns
        return Decoded(_KINDS[packed.kind](**values), note)
    except (KeyError, TypeError, PolicyRefused) as problem:
        raise ColumnsRefused(f"these columns are no entry: {shown(problem)}") from None


def _steps(column: Ints) -> Ints:
    """The differences between values, the first one from 0: what `np.cumsum` undoes."""
    steps = column.copy()
    steps[1:] -= column[:-1]
    return steps
