"""Policies and controls as packed values.

Stored names are written out here. They stay the same whatever the fields are called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opicflow.pipelines.ledger.config import is_whole, shown
from opicflow.pipelines.ledger.entries import (
    ENTRY_VERSION,
    ControlEntry,
    LogPosition,
    PolicyEntry,
)
from opicflow.pipelines.ledger.errors import EntryUnknown
from opicflow.schemas.columns import ColumnsRefused, pack, unpack
from opicflow.schemas.policy_json import policy_from_json, policy_to_json

_Values = dict[str, Any]


def pack_entry(entry: PolicyEntry | ControlEntry) -> bytes:
    """The bytes of a policy or a control."""
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
    return pack(kind, {**values, "version": ENTRY_VERSION}, {})


def unpack_entry(data: bytes) -> PolicyEntry | ControlEntry:
    """The entry in packed values. Raises `ColumnsRefused` and `EntryUnknown`."""
    packed = unpack(data)
    values = dict(packed.values)
    version, decode = values.pop("version", None), _DECODERS.get(packed.kind)
    if decode is None or not is_whole(version, ENTRY_VERSION, ENTRY_VERSION):
        raise EntryUnknown(f"an entry of kind {packed.kind[:20]!r} and version {shown(version)}: update opicflow")
    try:
        entry = decode(values)
    except (KeyError, TypeError, ValueError) as problem:
        raise ColumnsRefused(f"these columns are no entry: {shown(problem)}") from None
    if left := [*values, *packed.columns]:
        raise ColumnsRefused(f"these columns are no entry: {shown(left[0])}")
    return entry


# Decoders remove the fields they decode from `values`; a field that remains is refused.


def _decode_policy(values: _Values) -> PolicyEntry:
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


def _decode_control(values: _Values) -> ControlEntry:
    return ControlEntry(values.pop("source"), values.pop("values"))


_DECODERS: dict[str, Callable[[_Values], PolicyEntry | ControlEntry]] = {
    "control": _decode_control,
    "policy": _decode_policy,
}


def _pop_range(values: _Values) -> _Values:
    return {
        "source": values.pop("source"),
        "start": LogPosition(*values.pop("start")),
        "end": LogPosition(*values.pop("end")),
    }
