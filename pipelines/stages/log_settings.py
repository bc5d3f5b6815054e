"""The settings of a stream, which are the first entry of each of its logs: no ledger reads them from elsewhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from opicflow.pipelines.ledger import ConfigRefused, ControlEntry, LedgerConfig, LogEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.stages.rules import Rules
from opicflow.schemas.errors import UserError
from opicflow.schemas.pages import PageIds
from opicflow.schemas.plain_values import read_plain
from opicflow.schemas.shards import ShardRanges
from opicflow.schemas.sites import SITE_KINDS, SiteKind
from opicflow.schemas.urls import CANONICAL_VERSION

MOST_AHEAD_HOURS = 24
"""How far the time of a visit may be ahead of new logs."""


class LogRefused(UserError):
    """The log cannot be applied: its first entry is wrong, or an entry needs a newer opicflow."""


@dataclass(frozen=True)
class Placement:
    """The mapping of pages to shards: the rules of page ids, and the ranges of the shards.

    `opicflow topics create --like` writes it into the logs before a stream begins.
    """

    STORED_AS: ClassVar = ("shards", "page_ids", "first_ids")

    page_ids: PageIds
    ranges: ShardRanges

    def to_json(self) -> dict[str, object]:
        """Return JSON values; the boundaries of equal ranges are left out."""
        return {"page_ids": self.page_ids.to_json(), **self.ranges.stored()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Placement:
        """Read what `to_json` returned. Raises `ValueError`, `KeyError` or `TypeError`."""
        return cls(PageIds.from_json(values["page_ids"]), ShardRanges.of_stored(values))

    def entry(self) -> bytes:
        """Return the entry that reserves a log for this placement."""
        return encode_entry(ControlEntry("stream", {"placement": self.to_json()}))

    @classmethod
    def of(cls, entry: LogEntry) -> Placement | None:
        """Return the placement that an entry reserves a log for; None for other entries. Raises `LogRefused`."""
        if not isinstance(entry, ControlEntry) or not isinstance(entry.values, dict) or "placement" not in entry.values:
            return None
        try:
            return cls.from_json(entry.values["placement"])
        except (KeyError, TypeError, ValueError) as problem:
            raise LogRefused(f"the placement of pages in the log is damaged ({problem}): use a new topic") from None


@dataclass(frozen=True)
class Continuation:
    """Other logs that these continue: their ledgers begin with what those of the other shards had."""

    topic: str
    topic_id: str
    fingerprints: tuple[str, ...]
    """The fingerprint of the ledger with which each shard begins. Its snapshot is in storage."""
    sources: dict[str, int]
    """The offset from which each source is read."""


@dataclass(frozen=True)
class Origin:
    """The settings of the ledgers of a topic: the first entry of each log, never changed.

    A ledger publishes nothing until it has applied each source of `quiet_until` up to the offset there: ledgers are
    rebuilt while older ones still publish.
    """

    ledger: LedgerConfig
    ranges: ShardRanges
    rules: Rules = field(default_factory=Rules)
    records_per_visit: float = 2.0
    """The number of movers that a visit allows (publication_pace.py)."""
    least_move: float = 0.1
    """How far a page must move to be published again while there are visits, as a share of what was published."""
    audit_seconds: int = 10
    quiet_until: dict[str, int] = field(default_factory=dict)
    sites: SiteKind | None = None
    """The kind of sites whose importance is published. None: no sites."""
    continues: Continuation | None = None
    """The logs of other shards that these continue. None: the ledgers begin without a page."""
    most_ahead_hours: int | None = None
    """A visit whose time is further ahead of the log counts without it. None: none does."""

    def for_new_logs(self) -> Origin:
        """Return the settings, with those that are no options."""
        return replace(self, most_ahead_hours=MOST_AHEAD_HOURS)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return self.ranges.count

    @property
    def placement(self) -> Placement:
        """The mapping of pages to shards."""
        return Placement(self.rules.page_ids, self.ranges)

    def entry(self) -> bytes:
        """Return the entry with these settings, encoded. It holds the key of page ids."""
        values = {
            "ledger": self.ledger.to_json(),
            "shards": self.shards,
            "rules": self.rules.to_json(),
            "records_per_visit": self.records_per_visit,
            "least_move": self.least_move,
            "audit_seconds": self.audit_seconds,
            "quiet_until": self.quiet_until,
            **({} if self.sites is None else {"sites": self.sites}),
            **({} if self.continues is None else {"continues": asdict(self.continues)}),
            **({} if self.most_ahead_hours is None else {"most_ahead_hours": self.most_ahead_hours}),
            **self.placement.to_json(),
            "canonical": CANONICAL_VERSION,
        }
        return encode_entry(ControlEntry("stream", {"origin": values}))

    @classmethod
    def of(cls, entry: LogEntry) -> Origin:
        """Return the settings in an entry. Raises `LogRefused` if it has none."""
        try:
            assert isinstance(entry, ControlEntry)
            values = dict(entry.values["origin"])
            _check_canonical(values.pop("canonical"))
            placement = Placement.from_json(values)
            for name in Placement.STORED_AS:
                values.pop(name, None)
            ledger, rules = LedgerConfig.from_json(values.pop("ledger")), values.pop("rules")
            if values.get("sites") not in (None, *SITE_KINDS):
                raise ValueError(f"sites are hosts or domains, not {str(values['sites'])[:20]}")
            if values.get("continues") is not None:
                values["continues"] = read_plain(Continuation, values["continues"])
            _check_hours(values.get("most_ahead_hours"))
            return cls(ledger, placement.ranges, Rules.from_json(rules, placement.page_ids), **values)
        except (AssertionError, KeyError, TypeError, ValueError, ConfigRefused) as problem:
            raise LogRefused(
                f"the log does not begin with the settings of its ledger ({type(problem).__name__}: {problem}): "
                "start the stream on a new topic, or with a newer opicflow"
            ) from None


def _check_canonical(version: object) -> None:
    """Refuse logs whose pages have ids by another canonical form of URLs: the same page would be two."""
    if version != CANONICAL_VERSION:
        raise LogRefused(
            f"the pages of the log have ids by version {str(version)[:20]} of canonical URLs, and this opicflow has "
            f"version {CANONICAL_VERSION}: use the release that the stream began with, or rebuild with this one"
        )


def _check_hours(hours: object) -> None:
    """Refuse hours that are no positive number."""
    if hours is not None and (type(hours) is not int or hours <= 0):
        raise ValueError(f"hours ahead are a positive number, not {str(hours)[:20]}")
