"""Policies as JSON: an object a line, with the field names of the schema `Policy`.

A line is read exactly or refused: a misspelt name must not become a policy without effect.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

from opicflow.schemas.errors import UserError
from opicflow.schemas.json_events import time_ms_of
from opicflow.schemas.records import Policy, to_avro

_WITH_ZONE = re.compile(r"\d{4}-.*([Zz]|[+-]\d\d:?\d\d)")


class PolicyRefused(UserError, ValueError):
    """A policy is not valid. The message is one line: the mistake, and the remedy."""


def policies_of(lines: Iterable[bytes], source: str) -> list[Policy]:
    """The policies of JSON lines. Empty lines are passed over; a refusal names the source and the line."""
    policies = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                policies.append(policy_from_json(_value_of(line)))
            except PolicyRefused as problem:
                raise PolicyRefused(f"{source}, line {number}: {problem}") from None
    return policies


def policy_from_json(value: object) -> Policy:
    """Return the policy of a JSON value."""
    if not isinstance(value, dict):
        raise PolicyRefused("it is no JSON object: write one policy a line, in braces")
    known = _fields()
    for name in value:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            advice = f"did you mean {near[0]}?" if near else "leave it out, or correct it by the schema Policy"
            raise PolicyRefused(f"{str(name)[:40]!r} is no field of a policy: {advice}")
    return Policy(**{known[name].attribute: known[name].read(given) for name, given in value.items()})


def policy_to_json(policy: Policy) -> dict[str, object]:
    """Return the plain values of a policy for `policy_from_json`: the version, and values that are no defaults."""
    known = _fields()
    return {
        name: value
        for name, value in to_avro(policy).items()
        if name == "rules_version" or value != known[name].default
    }


class _Field(NamedTuple):
    attribute: str
    default: object
    read: Callable[[object], Any]


@cache
def _fields() -> dict[str, _Field]:
    """The fields by the names that they have in JSON."""
    hints = get_type_hints(Policy)
    return {
        (name := field.name.removesuffix("_ms")): _Field(field.name, field.default, _reader(name, hints[field.name]))
        for field in fields(Policy)
    }


def _reader(name: str, hint: object) -> Callable[[object], Any]:
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    read, advice = (_time, _A_TIME) if name.endswith("_at") else _READERS[kinds[0]]
    may_be_null = NoneType in get_args(hint)

    def read_field(value: object) -> object:
        if value is None and may_be_null:
            return None
        found = read(value)
        if found is None:
            raise PolicyRefused(f"{name} is {_shown(value)}: give {advice}")
        return found

    return read_field


def _whole(value: object, bits: int = 32) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1
    return value if fits else None  # type: ignore[return-value]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and not re.search("[\ud800-\udfff]", value) else None


def _wholes(value: object) -> tuple[int, ...] | None:
    items = [_whole(item) for item in value] if isinstance(value, (list, tuple)) else [None]
    return None if None in items else tuple(item for item in items if item is not None)


def _time(value: object) -> int | None:
    if isinstance(value, str):
        return time_ms_of(value) if _WITH_ZONE.fullmatch(value) else None
    return _whole(value, 64)


_A_TIME = "milliseconds since 1970, or an ISO 8601 time with its zone, such as 2026-05-01T12:00:00Z"
_READERS: dict[object, tuple[Callable[[object], object], str]] = {
    int: (_whole, "a whole number of 32 bits"),
    float: (_number, "a finite number"),
    bool: (_truth, "true or false"),
    str: (_text, "a text"),
    tuple[int, ...]: (_wholes, "a list of whole numbers"),
}


def _value_of(line: bytes) -> object:
    try:
        return json.loads(line.decode("utf-8"), object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise PolicyRefused("it is not UTF-8: write it again") from None
    except json.JSONDecodeError as problem:
        raise PolicyRefused(f"it is no JSON ({problem.msg}, character {problem.colno}): correct it") from None
    except PolicyRefused:
        raise
    except (ValueError, RecursionError):  # a number of thousands of digits; thousands of brackets
        raise PolicyRefused("it is no policy that can be read: write numbers and lists that mean something") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise PolicyRefused(f"{twice[:40]!r} is given twice: omit one")
    return found


def _shown(value: object) -> str:
    if isinstance(value, (dict, list, tuple)):
        return "a list" if not isinstance(value, dict) else "an object"
    try:
        return "null" if value is None else repr(value)[:60] if not isinstance(value, bool) else str(value).lower()
    except ValueError:  # thousands of digits
        return "an enormous number"
