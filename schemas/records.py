"""The records of all streams as frozen dataclasses, and how they become the values that Avro writes, and back.

A field `x_ms` here is the timestamp-millis `x` there, a `Hex64` the 16 hexadecimal digits of a 64-bit number (JSON
readers lose the last digits of such numbers, and Avro has no unsigned ones), a tuple an array, `announce` a kind. All
else is the same on both sides. The published schema of the record's name documents the meaning of each field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from opicflow.schemas.crawl_events import CrawlEvent, Reject

_HEX_64 = "a 64-bit number as 16 lower-case hexadecimal digits"
Hex64 = Annotated[int, _HEX_64]

Outcome = Literal["NONE", "FETCHED", "REDIRECTED", "ALIASED", "GONE", "UNCHANGED", "FAILED", "BLOCKED", "BUSY"]
DecidedBy = Literal["OTHER", "BUDGET", "PINNED", "FORBIDDEN", "DISCOVERY", "BACK_OFF", "GONE", "LIMIT", "REQUESTED"]
ChangesKnownFrom = Literal["OTHER", "DEFAULT", "INTERVALS", "LAST_MODIFIED", "POLICY"]
Why = Literal["OTHER", "DISCOVERY", "REFRESH", "REQUESTED"]
SiteOf = Literal["OTHER", "HOST", "DOMAIN"]


@dataclass(frozen=True)
class Importance:
    """The importance of a page at one moment, and the figures behind it."""

    url: str
    page: Hex64
    importance: float
    score: float
    trend_per_day: float
    cash: int
    waiting_cash: int
    history: float
    error_factor: float
    visits: int
    last_visit_ms: int | None
    last_outcome: Outcome
    measured: bool
    pages: int
    clock: float
    event_time_ms: int | None
    shard: int
    cut: int
    certificate: float | None = None
    settled: bool | None = None
    window_importance: float = 0.0


@dataclass(frozen=True)
class SiteImportance:
    """The importance of a host or a domain at one moment: sums over its pages."""

    site: str
    by: SiteOf
    importance: float
    mean_score: float
    pages: int
    read: int
    changes_per_day: float
    trend_per_day: float
    event_time_ms: int | None
    shard: int
    shards: int
    certificate: float | None = None
    settled: bool | None = None


@dataclass(frozen=True)
class RefreshSchedule:
    """When a page is to be fetched again, and why then."""

    url: str
    page: Hex64
    due_ms: int | None
    interval_seconds: float | None
    decided_by: DecidedBy
    changes_per_day: float
    changes_known_from: ChangesKnownFrom
    importance: float
    category: int | None
    last_visit_ms: int | None
    event_time_ms: int | None
    shard: int
    changes_error: float = -1.0
    staleness_cost: float = 0.0
    host: str = ""


@dataclass(frozen=True)
class CrawlOrder:
    """A page that a crawler should fetch now."""

    url: str
    page: Hex64
    ordered_at_ms: int
    why: Why
    priority: float
    due_ms: int | None
    expires_at_ms: int | None
    importance: float
    waiting_cash: int
    category: int | None
    last_visit_ms: int | None
    shard: int
    not_before_ms: int | None = None
    host: str = ""
    by: str = ""


@dataclass(frozen=True)
class PageChange:
    """A change of a page to which somebody subscribed, as a visit found it."""

    url: str
    page: Hex64
    time_ms: int
    digest_before: str
    digest: str
    changes: int
    importance: float
    score: float
    subscribers: str
    shard: int
    host: str = ""


@dataclass(frozen=True)
class Policy:
    """A policy: what holds from here on for a page, a host, a URL prefix, a category, or the whole crawl."""

    rules_version: int = 1
    published_at_ms: int | None = None
    publisher: str | None = None
    url: str | None = None
    category: int | None = None
    changes_per_day: float | None = None
    refresh_interval_seconds: float | None = None
    refresh_forbidden: bool = False
    importance_factor: float | None = None
    fetch_now: bool = False
    drop: bool = False
    forget: bool = False
    damping: float | None = None
    class_weights: tuple[int, ...] | None = None
    link_bonus_per_1024: tuple[int, ...] | None = None
    fetches_per_second: float | None = None
    discovery_share: float | None = None
    host: str | None = None
    url_prefix: str | None = None
    expires_at_ms: int | None = None
    shortest_interval_seconds: float | None = None
    longest_interval_seconds: float | None = None
    host_fetches_per_day: float | None = None
    refresh_policy: str | None = None
    host_fetches_per_hour: float | None = None
    crawl_delay_seconds: float | None = None
    notify: bool = False


class PairTotal(NamedTuple):
    """All cash that one shard sent to another, up to and including a cut of the sender."""

    shard: int
    cut: int
    total: int
    digest: Hex64


@dataclass(frozen=True)
class Audit:
    """The books of one shard at a tick."""

    shard: int
    shards: int
    second: int
    clock: float
    pages: int
    visits: int
    minted: int
    cash: int
    uncollected: int
    virtual: int
    absorbed: int
    sent: int
    received: int
    sent_to: tuple[PairTotal, ...] = ()
    received_from: tuple[PairTotal, ...] = ()
    fingerprint: str = ""
    certificate: float | None = None
    settled: bool | None = None
    bytes: int = 0


Record = CrawlEvent | Importance | SiteImportance | RefreshSchedule | CrawlOrder | PageChange | Policy | Reject | Audit

R = TypeVar("R", bound=Record)

RECORDS: dict[str, type[Record]] = {record.__name__: record for record in get_args(Record)}
"""The records by the names of their schemas."""


def to_avro(record: Record) -> dict[str, object]:
    """The values that Avro writes for a record, by the field names of the schema of its class's name."""
    kind: Any = type(record)
    values: dict[str, Any] = _form(kind).write(record)
    return values


def from_avro(kind: type[R], values: Mapping[str, object]) -> R:
    """The record with these values, as they were read with the latest version of the schema of its name.

    Times may be whole milliseconds or aware datetimes.
    """
    of_kind: Any = kind
    record: R = _form(of_kind).read(values)
    return record


class _Form(NamedTuple):
    """How a type's values become Avro's, and back."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


class _Field(NamedTuple):
    attribute: str
    name: str
    form: _Form


_AS_IT_IS = _Form(lambda value: value, lambda value: value)
_HEX = _Form(lambda number: f"{number:016x}", lambda digits: int(digits, 16))
_KIND = _Form(lambda announce: "ANNOUNCE" if announce else "VISIT", lambda kind: bool(kind == "ANNOUNCE"))


@cache
def _form(hint: object) -> _Form:
    arguments = get_args(hint)
    if _HEX_64 in arguments:
        return _HEX
    if get_origin(hint) in (Union, UnionType):
        (some,) = (_form(one) for one in arguments if one is not NoneType)
        return _Form(
            lambda value: None if value is None else some.write(value),
            lambda value: None if value is None else some.read(value),
        )
    if get_origin(hint) is tuple:
        item = _form(arguments[0])
        return _Form(lambda items: [item.write(one) for one in items], lambda items: tuple(map(item.read, items)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _Form(lambda member: member.value, hint)
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        return _record_form(hint)
    return _AS_IT_IS


def _record_form(record: type) -> _Form:
    fields = [_field(attribute, hint) for attribute, hint in get_type_hints(record, include_extras=True).items()]
    return _Form(
        lambda value: {name: form.write(getattr(value, attribute)) for attribute, name, form in fields},
        lambda values: record(**{attribute: form.read(values[name]) for attribute, name, form in fields}),
    )


def _field(attribute: str, hint: object) -> _Field:
    if attribute == "announce":
        return _Field(attribute, "kind", _KIND)
    if attribute.endswith("_ms"):
        return _Field(attribute, attribute.removesuffix("_ms"), _Form(_milliseconds, _milliseconds))
    return _Field(attribute, attribute, _form(hint))


def _milliseconds(time: int | datetime | None) -> int | None:
    if isinstance(time, datetime):
        return (time - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
    return time
