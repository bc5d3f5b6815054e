"""The keeper of a ledger: applies the entries of its log, yields transfers and results. No Beam, no Kafka.

A `LedgerKeeper` and its outputs are pure functions of its log, for any division into batches: a batch that is applied
again after a crash sends the same transfers again, byte for byte. A replay makes its log as it reads events
(replay/replayed_log.py), and applies one entry after the other. The log of a stream is a partition of a topic, and
arrives in batches of records: those before the head are dropped. A batch that begins beyond the head is skipped: the
log is read again from the head. The first entry of such a log contains the settings of its ledger. An entry of it that
is corrupt, or that the ledger refuses, becomes a reject, and the next one is applied.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import xxhash

from opicflow.pipelines.ledger import (
    Applied,
    ControlEntry,
    CrawlEntry,
    CrawlItems,
    EntryRefused,
    Kind,
    Ledger,
    LogEntry,
    Outcome,
    Plan,
    PolicyEntry,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.config import SECONDS_PER_DAY
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.ledger.errors import EntryUnknown
from opicflow.pipelines.stages.log_head import LogHead, StoredSizes, digest_of_value
from opicflow.pipelines.stages.log_settings import LogRefused, Origin, Placement
from opicflow.pipelines.stages.outputs import (
    AUDIT,
    CHANGES,
    FINGERPRINT,
    IMPORTANCE,
    ORDERS,
    REJECTS,
    SCHEDULE,
    SITES,
    TOMBSTONES,
    TRANSFERS,
    Output,
)
from opicflow.pipelines.stages.publication_pace import TRUE_WITHIN, ChangePace, DueChange, MoverPace
from opicflow.pipelines.stages.publish import (
    audit_values,
    idle_cash,
    pack_changes,
    pack_estimates,
    pack_tombstones,
    publish_plan,
    publish_visited,
    rows_in,
)
from opicflow.pipelines.stages.publish_sites import pack_sites, sites_of_removed
from opicflow.pipelines.stages.rejects import collisions, reject_line
from opicflow.pipelines.stages.route import ANY_TIME
from opicflow.schemas.arrays import Bools, Ids
from opicflow.schemas.columns import ColumnsRefused
from opicflow.schemas.crawl_events import Reason, Reject
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.plain_values import read_plain
from opicflow.schemas.policy_json import policy_to_json
from opicflow.schemas.sites import SiteKind

MOST_TRANSFERS = 100_000
"""The most transfers of one message: 10 bytes each, or so."""
_MOST_REJECTED_BYTES = 64 << 10
_MOST_REFUSED, _MOST_REFUSED_MS = 100, 3_600_000
"""A source whose entries are refused for as many and as long ends the job."""
_MS_PER_HOUR = 3_600_000
_MOST_CLOCK_DIFFERENCE_SECONDS = 600
"""Between the clocks of a tick's broker and of its sender. A tick may wait two minutes for a broker."""


def request_fingerprint() -> bytes:
    """Return the entry that requests the fingerprint of a ledger, which publishes it at once in an audit record."""
    return encode_entry(ControlEntry("audit", {"fingerprint": True}))


def request_republication() -> bytes:
    """Return the entry after which a ledger publishes the importance of all its pages again, some at each tick."""
    return encode_entry(ControlEntry("publish", {"republish": True}))


_Total = tuple[int, int, int, str]
"""A pair of shards: the other shard, a cut, all that was sent up to it, and a digest of that."""


@dataclass
class _Notes:
    """The state of a keeper beside its ledger; it follows from the log."""

    origin: dict[str, object] | None = None
    visits_at_plan: int = 0
    audit_second: int = -1
    sent_to: list[_Total] = field(default_factory=list)
    received_from: list[_Total] = field(default_factory=list)
    removed_from_sites: list[str] = field(default_factory=list)
    visits_at_sites: int = 0
    sites_second: int = -1
    sites: int = 0
    """The number of sites that were published last."""
    clocks_differ: bool = False
    """Whether the last tick was refused."""
    refused: dict[str, tuple[int, int]] = field(default_factory=dict)
    """For each source whose last entries were refused: their number, and the time of the first."""
    output_ms: int = 0
    """The time of the last outputs."""
    movers: MoverPace = field(default_factory=MoverPace)
    unpublished: list[int] = field(default_factory=list)
    """Visited pages that wait until there are so many that they are published."""
    changes: ChangePace = field(default_factory=ChangePace)


class LedgerKeeper:
    """The ledger of a shard and the head of its log."""

    def __init__(self, shard: int, publishes: bool = True, visits_per_publication: int = 1) -> None:
        """Begin before the first record of the log.

        `publishes`: whether results leave while the log is applied; visited pages do so some at a time.
        """
        self.shard = shard
        self._publishes, self._visits_per_publication = publishes, visits_per_publication
        self.head = LogHead()
        self.ledger: Ledger | None = None
        self.origin: Origin | None = None
        self.counts: Counter[str] = Counter()
        """Events since the metrics were last recorded; not a part of the state."""
        self.has_audited = False
        """Whether the ledger was audited since the metrics were last recorded; not a part of the state."""
        self._drift = 0  # by the last audit
        self.sizes = StoredSizes()
        self.journal_to_ms = 0
        self.journal_from_ms: int | None = None
        self.snapshot_ms: int | None = None
        """The time of the last record in the newest snapshot in storage; None if there is none."""
        self._notes = _Notes()

    def begin(self, origin: Origin, ledger: Ledger) -> None:
        """Keep a ledger with these settings, where the log does not contain them."""
        self.origin, self.ledger = origin, ledger

    # -- state -----------------------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[bytes]:
        """Yield head and notes, and the snapshot of the ledger, as chunks of bytes, each made when it is taken."""
        yield self.first_chunk()
        if self.ledger:
            yield from (chunk.data for chunk in self.ledger.snapshot_chunks())

    def first_chunk(self) -> bytes:
        """Return head and notes."""
        return json.dumps(self.notes(), separators=(",", ":")).encode()

    def notes(self) -> tuple[dict[str, object], dict[str, object]]:
        """Return head and notes as plain values: everything but the ledger."""
        return asdict(self.head), asdict(self._notes)

    def restore_notes(self, values: Sequence[object]) -> None:
        """Take head and notes from the values of `notes`. Raises `ValueError` or `TypeError` for others."""
        head, notes = values
        self.head, self._notes = read_plain(LogHead, head), read_plain(_Notes, notes)
        if not all(type(page) is int and 0 <= page < 1 << 64 for page in self._notes.unpublished):
            raise ValueError("a page that waits is no page id")

    @classmethod
    def continuing(
        cls, shard: int, visits: int, origin: bytes, head: LogHead, before: Sequence[LedgerKeeper]
    ) -> LedgerKeeper:
        """Return the keeper, without its ledger, of a log that begins with a ledger made from other keepers' ledgers.

        The ledger counts so many visits; `origin` is the entry with its settings.
        """
        entry = decode_entry(origin)
        assert isinstance(entry, ControlEntry)
        keeper = cls(shard)
        keeper.head, keeper.origin = head, Origin.of(entry)
        keeper._notes = _Notes(
            origin=dict(entry.values),
            movers=MoverPace(visits=visits),
            visits_at_plan=visits,
            visits_at_sites=visits,
            removed_from_sites=keeper._sites_here(before),
            changes=keeper._changes_here(before),
            output_ms=max(one._notes.output_ms for one in before),
        )
        return keeper

    def _sites_here(self, before: Iterable[LedgerKeeper]) -> list[str]:
        """Return the sites that lost pages and belong to this shard."""
        assert self.origin is not None
        ranges, page_ids = self.origin.ranges, self.origin.rules.page_ids
        sites = sorted({site for one in before for site in one._notes.removed_from_sites})
        owners = ranges.of(page_ids.of_all([f"http://{site}/" for site in sites])).tolist()
        return [site for site, owner in zip(sites, owners, strict=True) if owner == self.shard]

    def _changes_here(self, before: Iterable[LedgerKeeper]) -> ChangePace:
        """Return the pace of changes of the pages that belong to this shard."""
        assert self.origin is not None
        last = {key: change for one in before for key, change in sorted(one._notes.changes.last.items())}
        owners = self.origin.ranges.of(np.array([int(key, 16) for key in last], np.uint64)).tolist()
        here = zip(last.items(), owners, strict=True)
        return ChangePace({key: change for (key, change), owner in here if owner == self.shard})

    @staticmethod
    def origin_in(first_chunk: bytes) -> Origin | None:
        """Return the settings of the ledger in the first of a keeper's `chunks`."""
        origin = json.loads(first_chunk)[1]["origin"]
        return None if origin is None else Origin.of(ControlEntry("stream", origin))

    @classmethod
    def from_chunks(cls, shard: int, chunks: Iterable[bytes]) -> LedgerKeeper:
        """Restore a keeper from its `chunks`."""
        parts = iter(chunks)
        keeper = cls(shard)
        keeper.restore_notes(json.loads(next(parts)))
        if keeper._notes.origin is not None:
            keeper.origin = Origin.of(ControlEntry("stream", keeper._notes.origin))
            keeper.ledger = Ledger.restore(parts, keeper.origin.rules.page_ids)
        return keeper

    def fingerprint(self) -> str:
        """Return a hash of the whole ledger. Ledgers of the same log have the same fingerprint."""
        digest = xxhash.xxh64()
        for chunk in self.ledger.snapshot() if self.ledger else ():
            digest.update(chunk.data)
        return digest.hexdigest()

    # -- the log ---------------------------------------------------------------------------------------------------

    def take(self, batch: MessageBatch) -> Iterator[Output]:
        """Apply the records of a batch from the head on. Skip the batch if it begins beyond the head."""
        if batch.start > self.head.next or batch.end <= self.head.next:
            return
        first = int(np.searchsorted(batch.offsets, self.head.next))
        rows = (column[first:].tolist() for column in (batch.offsets, batch.times_ms, batch.begins, batch.ends))
        for offset, time_ms, begin, end in zip(*rows, strict=True):
            value = batch.text[max(begin, 0) : max(end, 0)]
            output_ms = None
            for output in self._apply(offset, time_ms, value):
                if output_ms is None:
                    output_ms = self._next_output_ms(time_ms)
                yield output._replace(time_ms=output_ms)
            self.head = self.head.behind(offset, time_ms, digest_of_value(value))
        self.head = replace(self.head, next=batch.end)

    def _next_output_ms(self, entry_ms: int) -> int:
        """Return the time of an entry's outputs: the last tick, and later than that of all outputs before."""
        tick_second = -1 if self.ledger is None else self.ledger.tick_second
        now_ms = entry_ms if tick_second < 0 else 1000 * tick_second
        self._notes.output_ms = max(now_ms, self._notes.output_ms + 1)
        return self._notes.output_ms

    def _apply(self, offset: int, time_ms: int, value: bytes) -> Iterator[Output]:
        try:
            entry = decode_entry(value)
        except ColumnsRefused as problem:
            yield self._reject(Reason.CORRUPT, str(problem), offset, value)
            return
        except EntryUnknown as problem:
            raise LogRefused(f"shard {self.shard}, offset {offset}: {problem}") from None
        if isinstance(entry, ControlEntry):
            yield from self._control(entry, offset, value)
            return
        if self.ledger is None:
            yield self._reject(Reason.REFUSED, "it comes before the settings of the ledger", offset, value)
            return
        if isinstance(entry, TickEntry):  # the time of the broker counts, if the sender's clock agrees
            sent = entry.second
            entry = replace(entry, second=time_ms // 1000)
            if sent and abs(entry.second - sent) > _MOST_CLOCK_DIFFERENCE_SECONDS:
                yield from self._refuse_tick(offset, value, entry.second - sent)
                return
            self._notes.clocks_differ = False
        is_ahead = np.zeros(0, np.bool_)
        if isinstance(entry, CrawlEntry):
            is_ahead = entry.items.time_ms > self._latest_ms(time_ms)
            entry = replace(entry, items=_without_times(entry.items, is_ahead))
        mark = self.ledger.mark(_source_of(entry))
        try:
            applied = yield from self.apply(entry)
        except EntryRefused as problem:
            yield self._reject(Reason.REFUSED, str(problem), offset, value)
            self._note_refused(entry, time_ms, offset, str(problem))
            return
        self._notes.refused.pop(entry.source if isinstance(entry, CrawlEntry | PolicyEntry) else "", None)
        if isinstance(entry, CrawlEntry):
            if 0 < mark.offset < entry.counted_from:
                yield self._reject(Reason.REFUSED, _deleted(entry, mark.offset), offset, b"")
            yield from self._report_times(entry, is_ahead[len(is_ahead) - len(applied.fates) :], offset)
            for reject in collisions(entry.items, applied.fates, entry.source):
                yield self._reject(reject.reason, reject.detail, offset, reject.bytes)
        elif isinstance(entry, TickEntry):
            yield from self.publish_due()
        elif isinstance(entry, TransfersEntry):
            if entry.last and self.ledger.mark(_source_of(entry)) > mark:
                self._note_received(entry)
        elif isinstance(entry, PolicyEntry):
            for policy, why in applied.refused:
                yield self._reject(Reason.REFUSED, why, offset, json.dumps(policy_to_json(policy)).encode())

    def apply(self, entry: LogEntry) -> Generator[Output, None, Applied]:
        """Apply an entry. Yields transfers, tombstones and visited pages, and returns its effect.

        Raises `EntryRefused`. What is due at a tick is yielded by `publish_due`.
        """
        ledger = self.ledger
        assert ledger is not None
        applied = ledger.apply(entry)
        yield from self._send(applied)
        if isinstance(entry, CrawlEntry):
            yield from self._publish_visited(entry, applied)
            yield from self._publish_changes(applied)
        return applied

    def _latest_ms(self, entry_ms: int) -> int:
        """Return the latest time that a visit may have in an entry with this time of the broker.

        It follows from the log alone. A clock that was set back is of no effect: the last tick counts, too.
        """
        assert self.origin is not None and self.ledger is not None
        if self.origin.most_ahead_hours is None:
            return ANY_TIME
        return max(entry_ms, 1000 * self.ledger.tick_second) + self.origin.most_ahead_hours * _MS_PER_HOUR

    def _report_times(self, entry: CrawlEntry, is_ahead: Bools, offset: int) -> Iterator[Output]:
        """Count the new rows of an entry whose time was too far ahead; the first one is a reject."""
        rows = np.flatnonzero(is_ahead)
        if not len(rows):
            return
        self.counts["times_ahead"] += len(rows)
        items, row = entry.items, len(entry.items) - len(is_ahead) + int(rows[0])
        url = items.url_bytes[int(items.url_starts[row]) : int(items.url_starts[row + 1])].tobytes()
        assert self.origin is not None
        detail = (
            f"{entry.source}, offset {int(items.offset[row])}: visits with times more than "
            f"{self.origin.most_ahead_hours} hours ahead of the log: this one, and {len(rows) - 1:,} more in the same "
            "entry: they count without their times: set the crawler's clock"
        )
        yield self._reject(Reason.BAD_TIME, detail, offset, url)

    def _note_refused(self, entry: LogEntry, time_ms: int, offset: int, why: str) -> None:
        """Raise `LogRefused` if all entries of a source have been refused for long: nothing will heal it.

        A hole in the entries of a source heals when its router runs again, which takes minutes.
        """
        if not isinstance(entry, CrawlEntry | PolicyEntry):
            return
        count, since_ms = self._notes.refused.get(entry.source, (0, time_ms))
        self._notes.refused[entry.source] = (count + 1, since_ms)
        if count >= _MOST_REFUSED and time_ms - since_ms > _MOST_REFUSED_MS:
            raise LogRefused(
                f"shard {self.shard}, offset {offset}: the last {count + 1} entries of {entry.source} were refused, "
                f"for more than an hour ({why[:200]}): events of this topic were lost before they were routed: "
                "rebuild the ledgers with opicflow rebuild"
            )

    def _refuse_tick(self, offset: int, value: bytes, difference_seconds: int) -> Iterator[Output]:
        """Count a tick of doubtful time; the first of several is a reject."""
        self.counts["refused_ticks"] += 1
        if not self._notes.clocks_differ:
            self._notes.clocks_differ = True
            hours, order = abs(difference_seconds) / 3600, "after" if difference_seconds > 0 else "before"
            why = (
                f"the broker has this tick {hours:,.1f} hours {order} the clock of the worker that sent it: until "
                "they agree, no time passes in this shard: set the clocks"
            )
            yield self._reject(Reason.REFUSED, why, offset, value)

    def _control(self, entry: ControlEntry, offset: int, value: bytes) -> Iterator[Output]:
        if not isinstance(entry.values, dict):
            raise self._unknown(offset)
        if "origin" in entry.values:
            origin = Origin.of(entry)
            if self.origin is None:
                if origin.continues is not None:
                    raise LogRefused(
                        f"shard {self.shard}: its log continues those of {origin.continues.topic}, and the snapshot "
                        "with which it begins was not found: check that the storage of --snapshots can be read, or "
                        "finish opicflow stream reshard"
                    )
                self.origin, self._notes.origin = origin, dict(entry.values)
                self.ledger = Ledger(origin.ledger, self.shard, origin.ranges, page_ids=origin.rules.page_ids)
            elif self.origin != origin:
                why = "the log began with other settings, and the settings of a ledger never change"
                yield self._reject(Reason.REFUSED, why, offset, value)
            return
        if Placement.of(entry) is not None:  # its content is in the settings, too
            return
        if self.ledger is None:
            yield self._reject(Reason.REFUSED, "it comes before the settings of the ledger", offset, value)
        elif entry.values == {"fingerprint": True}:
            fingerprint = self.fingerprint()
            yield self._audit(fingerprint)
            yield Output(FINGERPRINT, fingerprint.encode())
        elif entry.values == {"republish": True}:
            self.ledger.forget_published()
            self._notes.movers.publish_all(self.ledger.pages)
        else:
            raise self._unknown(offset)

    def _unknown(self, offset: int) -> LogRefused:
        where = f"shard {self.shard}, offset {offset}"
        return LogRefused(f"{where}: this opicflow does not support the entry: update opicflow")

    # -- outputs ---------------------------------------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Whether the ledger does not publish yet."""
        assert self.origin is not None and self.ledger is not None
        until = self.origin.quiet_until
        return not self._publishes or any(self.ledger.mark(source).offset < offset for source, offset in until.items())

    def _send(self, applied: Applied) -> Iterator[Output]:
        """Yield the transfers and tombstones that follow from an entry."""
        ledger = self.ledger
        assert ledger is not None
        self.counts["visits"] += applied.visits
        self.counts["announcements"] += applied.announcements
        self.counts["duplicates"] += applied.duplicates
        self.counts["late"] += applied.late
        self.counts["births"] += applied.births
        self.counts["cuts"] += len({sealed.cut for _, sealed in applied.sealed})
        for shard, sealed in applied.sealed:
            self.counts["transfers"] += len(sealed.pages)
            self._notes.sent_to.append((shard, sealed.cut, sealed.sent_total, f"{sealed.sent_digest:016x}"))
            for message in sealed.split(MOST_TRANSFERS):
                yield Output(TRANSFERS, encode_entry(message), shard)
        if applied.removed:
            self.counts["removed"] += sum(len(pages) for _, pages in applied.removed)
            yield Output(TOMBSTONES, pack_tombstones(ledger, applied))
            if self.origin is not None and self.origin.sites is not None:
                sites = sites_of_removed(applied, self.origin.sites).union(self._notes.removed_from_sites)
                self._notes.removed_from_sites = sorted(sites)

    def _note_received(self, entry: TransfersEntry) -> None:
        """Note a cut of another shard that was received completely."""
        noted = (entry.source_shard, entry.cut, entry.sent_total, f"{entry.sent_digest:016x}")
        self._notes.received_from.append(noted)

    def _publish_visited(self, entry: CrawlEntry, applied: Applied) -> Iterator[Output]:
        assert self.ledger is not None
        if self.is_quiet:
            return
        items = entry.items
        first = len(items) - len(applied.fates)
        visited: Ids = items.page[first:][items.kind[first:] == Kind.VISIT]
        if len(visited) == 0:
            return
        if self._notes.unpublished:
            visited = np.concatenate((np.array(self._notes.unpublished, np.uint64), visited))
        is_enough = len(visited) >= self._visits_per_publication
        self._notes.unpublished = [] if is_enough else visited.tolist()
        if not is_enough:
            return
        published = publish_visited(self.ledger, visited)
        if published is not None:
            yield Output(IMPORTANCE, published)

    def _publish_changes(self, applied: Applied) -> Iterator[Output]:
        """Publish the changes of pages with subscriptions that visits have found, unless they have to wait."""
        assert self.ledger is not None
        found = applied.changes
        if len(found.pages) == 0 or self.is_quiet:
            return
        is_subscribed = self.ledger.subscribers(found.pages).rows > 0
        rows = zip(*(column[is_subscribed].tolist() for column in found), strict=True)
        yield from self._send_changes(self._notes.changes.take(DueChange(*row) for row in rows))

    def _send_changes(self, due: list[DueChange]) -> Iterator[Output]:
        assert self.ledger is not None
        packed = pack_changes(self.ledger, due) if due else None
        if packed is not None:
            yield Output(CHANGES, packed)

    @property
    def visits_to_publication(self) -> int | None:
        """After how many visits pages are published next; None: they are not."""
        return None if self.is_quiet else self._visits_per_publication - len(self._notes.unpublished)

    def publish_due(self) -> Iterator[Output]:
        """Yield what is due at the last tick: pages that moved, a plan, sites, an audit."""
        ledger, origin, notes = self.ledger, self.origin, self._notes
        assert ledger is not None and origin is not None
        second = ledger.tick_second
        if not self.is_quiet and ledger.pages:
            yield from self._send_changes(notes.changes.tick(second))
            notes.movers.tick(second, ledger.visits, ledger.pages, origin.records_per_visit)
            if notes.movers.is_due:
                yield from self._publish_movers()
            if ledger.is_plan_due(second):
                most = int(origin.records_per_visit * (ledger.visits - notes.visits_at_plan))
                notes.visits_at_plan = ledger.visits
                planned = publish_plan(ledger, most, origin.least_move)
                for kind, packed in ((SCHEDULE, planned.schedules), (ORDERS, planned.orders)):
                    if packed is not None:
                        yield Output(kind, packed)
                if origin.sites is not None and self._are_sites_due(second):
                    yield self._publish_sites(planned.planned, origin.sites, second)
        if second - notes.audit_second >= origin.audit_seconds:
            notes.audit_second = second
            yield self._audit()

    def _publish_movers(self) -> Iterator[Output]:
        """Publish the pages that moved most, as many as the pace allows at this tick."""
        ledger, origin, pace = self.ledger, self.origin, self._notes.movers
        assert ledger is not None and origin is not None
        true_within = least_move = min(origin.least_move, TRUE_WITHIN)
        if not pace.is_at_rest:  # a move below the error of importance is left to later ticks
            least_move = max(origin.least_move, ledger.certificate() or 0.0)
        movers = ledger.publish_movers(pace.most(ledger.pages), least_move, true_within)
        published = len(movers.estimates.pages)
        pace.note(published, movers.off, ledger.pages)
        if published:
            yield Output(IMPORTANCE, pack_estimates(ledger, movers.estimates))

    def _are_sites_due(self, second: int) -> bool:
        """Whether there were enough visits to publish a record for every site, or a day has passed."""
        ledger, origin, notes = self.ledger, self.origin, self._notes
        assert ledger is not None and origin is not None
        records = origin.records_per_visit * (ledger.visits - notes.visits_at_sites)
        return notes.sites_second < 0 or records >= notes.sites or second - notes.sites_second >= SECONDS_PER_DAY

    def _publish_sites(self, planned: Plan, by: SiteKind, second: int) -> Output:
        ledger, notes = self.ledger, self._notes
        assert ledger is not None
        packed = pack_sites(ledger, planned, by, notes.removed_from_sites)
        notes.removed_from_sites, notes.sites = [], rows_in(packed)
        notes.visits_at_sites, notes.sites_second = ledger.visits, second
        return Output(SITES, packed)

    def _audit(self, fingerprint: str = "") -> Output:
        """Audit the ledger. Returns its balance, and the cuts sent and received since the last audit."""
        ledger, notes = self.ledger, self._notes
        assert ledger is not None
        self.has_audited = True
        balance = ledger.audit()
        self._drift = balance.drift
        record = {
            **audit_values(ledger, balance),
            "sent_to": _reported(notes.sent_to),
            "received_from": _reported(notes.received_from),
            "fingerprint": fingerprint,
        }
        notes.sent_to, notes.received_from = [], []
        return Output(AUDIT, json.dumps(record, separators=(",", ":")).encode())

    def gauges(self) -> dict[str, int]:
        """Return the gauges of the ledger."""
        if self.ledger is None:
            return {}
        idle, certificate = idle_cash(self.ledger.idle_cash()), self.ledger.certificate()
        certified = {} if certificate is None else {"certificate_per_million": math.ceil(1e6 * certificate)}
        return {
            **certified,
            **self._discovery_gauges(),
            **({"not_learnt": self.ledger.not_learnt} if self.ledger.config.domains.limit_anything else {}),
            "unsettled": int(not self.ledger.is_settled),
            "pages_off": min(self._notes.movers.off, self.ledger.pages),  # they may have been removed since
            "tick_second": self.ledger.tick_second,
            "pages": self.ledger.pages,
            "visits": self.ledger.visits,
            "transfers": self.ledger.transfers,
            "bytes": self.ledger.content_bytes(),
            "idle_cash_per_million": int(1e6 * idle / max(self.ledger.minted, 1)),
            "audit_drift": self._drift,
        }

    def _discovery_gauges(self) -> dict[str, int]:
        """Return what discovery has learnt: the share of its orders that explore, and what pages have brought."""
        assert self.ledger is not None
        if not self.ledger.config.learns_discovery:
            return {}
        learnt = self.ledger.discovery
        values = {
            "exploring_per_million": learnt.share,
            "credit_explored_per_million": learnt.credit_explored,
            "credit_others_per_million": learnt.credit_others,
        }
        return {name: round(1e6 * value) for name, value in values.items() if math.isfinite(value)}

    def _reject(self, reason: Reason, detail: str, offset: int, value: bytes) -> Output:
        self.counts["rejected"] += reason is not Reason.BAD_TIME  # which refuses nothing: see `times_ahead`
        reject = Reject(reason, detail, str(self.shard), offset, value[:_MOST_REJECTED_BYTES])
        return Output(REJECTS, reject_line(reject, reject.source))


class LedgerKeeperFactory:
    """Makes the keepers of a stream."""

    def new(self, shard: int) -> LedgerKeeper:
        """Return a keeper before its first record."""
        return LedgerKeeper(shard)

    def restore(self, shard: int, chunks: Iterable[bytes]) -> LedgerKeeper:
        """Return the keeper that wrote these chunks."""
        return LedgerKeeper.from_chunks(shard, chunks)


def _without_times(items: CrawlItems, is_ahead: Bools) -> CrawlItems:
    """Return the rows; some become visits without a time. The end of a BUSY host's wait is then unknown."""
    if not is_ahead.any():
        return items
    has_wait = is_ahead & (items.outcome == Outcome.BUSY)
    times_ms, modified_ms = np.where(is_ahead, 0, items.time_ms), np.where(has_wait, 0, items.modified_ms)
    return replace(items, time_ms=times_ms, modified_ms=modified_ms)


_PAIR = ("shard", "cut", "total", "digest")
_NEWEST_CUTS, _EVERY_CUT = 8, 64


def _reported(pairs: list[_Total]) -> list[dict[str, object]]:
    """Return the newest cuts of each pair and every 64th: so both sides report some common cut."""
    newest: dict[int, int] = {}
    for shard, cut, _, _ in pairs:
        newest[shard] = max(cut, newest.get(shard, 0))
    return [
        dict(zip(_PAIR, pair, strict=True))
        for pair in pairs
        if pair[1] > newest[pair[0]] - _NEWEST_CUTS or pair[1] % _EVERY_CUT == 0
    ]


def _deleted(entry: CrawlEntry, first: int) -> str:
    """Return the detail of the one reject for a source whose oldest events were deleted before a shard had them."""
    return (
        f"{entry.source}: the events from offset {first} to {entry.counted_from - 1} were deleted while the stream had "
        "no state: those of this shard among them, if there were any, are lost"
    )


def _source_of(entry: LogEntry) -> str:
    """Return the source of transfers, or of crawl events; empty for other entries."""
    if isinstance(entry, CrawlEntry):
        return entry.source
    return f"shard/{entry.source_shard}" if isinstance(entry, TransfersEntry) else ""
