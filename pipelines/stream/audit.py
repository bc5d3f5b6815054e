"""Checks the balances of all shards against each other: audit records in, a verdict out.

The records may come in any order and more than once. These laws are checked, to the unit:

1. Each record alone: minted == cash + uncollected + virtual + absorbed + sent - received; minted is a whole number of
   pages; the totals of its pairs do not exceed `sent` and `received`.
2. Each pair of shards at equal cuts (a record need not report all cuts): the receiver counted what the sender sealed,
   total and digest. A running total never falls, and no receiver has counted more than its sender had sealed at that
   cut or a later one.
3. A shard never reports two values for the same cut of the same pair.
4. All shards, by their newest records: all minted cash is held or in transit. In transit are cuts that were sealed and
   not received, and the contents of outboxes. `sent` includes both, so the outbox of a shard is the amount by which
   `sent` exceeds the totals of its pairs, and only its sign can be checked. The amount by which `received` exceeds the
   totals of complete cuts belongs to a cut that was received in part. If every sender has reported more than was
   received from it, that part must not exceed the next cuts.

Records of different shards are of different times, so a receiver may report a cut before its sender. The cut is checked
when the sender reports it. A sender that reports a later tick, but not the cut, is listed in the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from opicflow.pipelines.ledger import UNITS_PER_PAGE
from opicflow.pipelines.stream.loads import Load
from opicflow.schemas.errors import UserError
from opicflow.schemas.records import Audit, PairTotal
from opicflow.schemas.shards import MOST_SHARDS

MOST_SECOND = 253_402_300_799
"""The last second of the year 9999."""

_MOST_CUTS, _LEAST_CUTS, _CUTS_IN_ALL = 64, 4, 1 << 20
_MOST_SETS = 4
_MOST_NAMED = 8

_Value = tuple[int, int]
"""A total and its digest."""


class AuditRefused(UserError, ValueError):
    """A record that no shard can have written."""


class Law(str, Enum):
    """The laws that can be broken. `shard` is the reporting shard, or the sender of a pair; `other` is the receiver."""

    BALANCE = "balance"
    """Minted cash differs from cash held, sent and received: `units` are missing from the balance."""
    MINTED = "minted"
    """Minted is not a whole number of pages: `units` is the remainder."""
    SENT = "sent"
    """Its pairs have sealed `units` more than it has sent."""
    RECEIVED = "received"
    """Its pairs have counted `units` more than it has received."""
    UNSENT = "unsent"
    """It has received `units` more than all others have sent it, or a pair more than its sender had sealed."""
    PAIR = "pair"
    """The receiver counted `units` more than the sender sealed at the same cut; 0: other transfers of the same sum."""
    TWICE = "twice"
    """`by` reported two values for the same cut; the later one is `units` more; 0: another digest."""
    FALLS = "falls"
    """A running total that `by` reported fell by `units` up to a later cut."""


@dataclass(frozen=True)
class Fault:
    """A broken law, which no later record can repair. The first fault of each law and shard or pair is kept."""

    law: Law
    shard: int
    second: int
    """The tick of the record that showed it."""
    units: int = 0
    other: int | None = None
    cut: int | None = None
    by: int | None = None
    """The shard of a pair whose own reports contradict each other."""


class Lag(NamedTuple):
    """A pair, and how many cuts its sender is ahead of the newest cut that both reported."""

    shard: int
    other: int
    cuts: int


class UnreportedCut(NamedTuple):
    """A cut that the receiver counted and the sender did not report, although it reported a later tick."""

    shard: int
    other: int
    cut: int


class OtherLedgers(NamedTuple):
    """Ledgers with another number of shards in the same topic: from before or after a rebuild, or of a replay."""

    shards: int
    second: int


class AuditState(str, Enum):
    """The state of a verdict."""

    BALANCED = "balanced"
    FAULTS = "faults"
    NOT_YET = "not yet"


@dataclass(frozen=True)
class Verdict:
    """The result for the newest set of ledgers. Sums are over the newest record of each shard that has reported."""

    shards: int = 0
    reported: int = 0
    second: int = 0
    """The oldest of the shards' newest ticks: everything up to it was checked."""
    newest_second: int = 0
    pages: int = 0
    visits: int = 0
    minted: int = 0
    held: int = 0
    """Cash, uncollected dividends, virtual accounts, and absorbed cash."""
    in_outboxes: int = 0
    """Cash in transit that is in no reported cut yet. Known when all pairs have reported."""
    in_part: int = 0
    """Received, but in no reported complete cut. Known when all pairs have reported."""
    faults: tuple[Fault, ...] = ()
    silent: tuple[int, ...] = ()
    """Shards that have not reported; the first few."""
    uncompared: tuple[tuple[int, int], ...] = ()
    """Pairs (sender, receiver) without a common cut, the first few, among shards that have reported."""
    uncompared_count: int = 0
    unreported: tuple[UnreportedCut, ...] = ()
    """The first few."""
    ahead: int = 0
    """Pairs whose receiver reported a cut before the sender. The sums are then of different times."""
    lag: Lag | None = None
    """The pair with the largest lag, if any."""
    others: tuple[OtherLedgers, ...] = ()
    """Other sets of ledgers, whose records are ignored."""
    certificate: float | None = None
    """The largest certificate of a shard: a bound of the error of importance. None if a shard has none."""
    unsettled: int = 0
    """Shards whose importance has not settled yet, by their newest records."""
    loads: tuple[Load, ...] = ()
    """The load of each shard, by its newest record."""

    @property
    def in_transit(self) -> int:
        """Cash between shards. It is negative only while a receiver is ahead of the reports of its sender."""
        return self.minted - self.held

    @property
    def state(self) -> AuditState:
        """FAULTS if there is any; BALANCED only if all shards and pairs were compared."""
        if self.faults:
            return AuditState.FAULTS
        if not self.shards or self.reported < self.shards or self.uncompared_count or self.unreported:
            return AuditState.NOT_YET
        return AuditState.BALANCED


class Auditor:
    """Takes audit records in any order, also repeatedly, and returns a verdict.

    Memory is bounded: at most 64 cuts are kept for each pair of shards (from 129 shards on fewer: a million in total,
    but at least 4 per pair), preferably those that were not compared. If a receiver lags further, some cuts in between
    are dropped: totals and digests accumulate, so a later cut shows the same fault and is named instead. Contradicting
    reports are found as long as the cut is kept. At most four sets of ledgers are kept.
    """

    def __init__(self) -> None:
        self._sets: dict[int, _Set] = {}

    def take(self, record: Audit) -> None:
        """Add a record; raises `AuditRefused`, without a change, if no shard can have written it."""
        _check(record)
        ledgers = self._sets.setdefault(record.shards, _Set(record.shards, record.second))
        ledgers.take(record)
        if len(self._sets) > _MOST_SETS:
            del self._sets[min(self._sets.values(), key=_Set.age).shards]

    def verdict(self) -> Verdict:
        """Return the verdict for the ledgers with the newest tick; of equal ticks, for those that began later."""
        if not self._sets:
            return Verdict()
        newest, *others = sorted(self._sets.values(), key=_Set.age, reverse=True)
        return replace(newest.verdict(), others=tuple(OtherLedgers(one.shards, one.newest_second) for one in others))


def drift(record: Audit) -> int:
    """Return the cash that is missing from the balance of a shard."""
    return record.minted - (_held(record) + record.sent - record.received)


def _held(record: Audit) -> int:
    return record.cash + record.uncollected + record.virtual + record.absorbed


def _check(record: Audit) -> None:
    if not 1 <= record.shards <= MOST_SHARDS:
        raise AuditRefused(f"it has {record.shards} shards: there are 1 to {MOST_SHARDS}")
    if not 0 <= record.shard < record.shards:
        raise AuditRefused(f"it is of shard {record.shard}, and there are {record.shards}")
    if not 0 <= record.second <= MOST_SECOND:
        raise AuditRefused(f"its tick is second {record.second}, beyond the year 9999")
    for pair in (*record.sent_to, *record.received_from):
        if not 0 <= pair.shard < record.shards or pair.shard == record.shard:
            raise AuditRefused(f"shard {record.shard} of {record.shards} has no pair with shard {pair.shard}")
        if pair.cut < 0:
            raise AuditRefused(f"it has cut {pair.cut} with shard {pair.shard}: cuts count from 0")


# -- pairs -------------------------------------------------------------------------------------------------------------

_SENDER, _RECEIVER = 0, 1
_NOTHING = PairTotal(0, -1, 0, 0)


@dataclass
class _Pair:
    """The reports of a sender and a receiver about their cuts."""

    reports: dict[int, list[_Value | None]] = field(default_factory=dict)
    newest: list[PairTotal] = field(default_factory=lambda: [_NOTHING, _NOTHING])
    compared: int = -1
    """The newest cut that both reported."""
    newest_second: list[int] = field(default_factory=lambda: [0, 0])
    """The first tick at which each reported its newest cut."""

    def add(self, side: int, report: PairTotal, second: int, most_cuts: int) -> Iterator[tuple[Law, int]]:
        """Add a report of one side; yields the laws that it breaks, and by how many units."""
        cut, value = report.cut, (report.total, report.digest)
        known = self.reports.setdefault(cut, [None, None])
        before, theirs = known[side], known[1 - side]
        if before is not None:
            if before != value:
                yield Law.TWICE, value[0] - before[0]
        else:
            known[side] = theirs if theirs == value else value
            newest = self.newest[side]
            fell = newest.total - report.total if cut > newest.cut else report.total - newest.total
            if fell > 0:
                yield Law.FALLS, fell
            if theirs is None:
                yield from self._check_bound(side, report)
            else:
                self.compared = max(self.compared, cut)
                if theirs != value:
                    yield Law.PAIR, (value[0] - theirs[0]) * (1 if side == _RECEIVER else -1)
        if cut > self.newest[side].cut:
            self.newest[side] = report
            self.newest_second[side] = second
        elif cut == self.newest[side].cut:
            self.newest_second[side] = min(second, self.newest_second[side])
        if len(self.reports) > most_cuts:
            self._drop_cuts(most_cuts)

    def _check_bound(self, side: int, report: PairTotal) -> Iterator[tuple[Law, int]]:
        """Check a cut that the other side did not report: cash received in a cut was sealed by then or later."""
        received, sent = (report, self.newest[_SENDER]) if side == _RECEIVER else (self.newest[_RECEIVER], report)
        if 0 <= received.cut <= sent.cut and received.total > sent.total:
            yield Law.UNSENT, received.total - sent.total

    def _drop_cuts(self, most_cuts: int) -> None:
        """Drop cuts that both reported, or will not report in order; if these are few, drop some of the others.

        Multiples of a power of two stay, so that both sides keep the same cuts, and the newest cut.
        """
        passed: list[int] = []
        waiting: list[int] = []
        for cut in sorted(self.reports):
            done = all(
                value is not None or cut <= self.newest[side].cut for side, value in enumerate(self.reports[cut])
            )
            (passed if done else waiting).append(cut)
        dropped = passed[: len(passed) // 2 + 1]
        if 4 * len(passed) < most_cuts:
            gap, stay = 1, waiting
            while 2 * len(stay) > most_cuts:
                gap *= 2
                stay = [cut for cut in waiting if cut % gap == 0]
            dropped = passed + sorted({*waiting[:-1]}.difference(stay))
        for cut in dropped:
            del self.reports[cut]

    def sealed_after(self, cut: int) -> int:
        """Return the sender's total at the next cut, or at its newest cut if the next one is not kept."""
        value = self.reports.get(cut + 1, (None,))[_SENDER]
        return value[0] if value is not None else self.newest[_SENDER].total


_SILENT = _Pair()
"""A pair without reports."""


# -- sets of ledgers ---------------------------------------------------------------------------------------------------


_Which = tuple[Law, int, int | None, int | None]
"""The key of a fault: the law, the shard or the pair, and the shard that reported."""


class _Newest(NamedTuple):
    """A shard's newest record, and the newest cut that it had received from each other shard."""

    record: Audit
    received: dict[int, int]


class _Set:
    """A set of ledgers: those with the same number of shards."""

    def __init__(self, shards: int, second: int) -> None:
        self.shards = shards
        self.newest_second = self._first_second = second
        self._newest: dict[int, _Newest] = {}
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._faults: dict[_Which, Fault] = {}
        self._most_cuts = max(_LEAST_CUTS, min(_MOST_CUTS, _CUTS_IN_ALL // max(shards * (shards - 1), 1)))

    def age(self) -> tuple[int, int, int]:
        return self.newest_second, self._first_second, self.shards

    def take(self, record: Audit) -> None:
        self.newest_second = max(self.newest_second, record.second)
        self._first_second = min(self._first_second, record.second)
        me = record.shard
        for law, units in _faults_of(record):
            self._keep(Fault(law, me, record.second, units))
        for side, totals in ((_SENDER, record.sent_to), (_RECEIVER, record.received_from)):
            for total in sorted(totals, key=lambda one: one.cut):
                sender, receiver = (me, total.shard) if side == _SENDER else (total.shard, me)
                pair = self._pairs.setdefault((sender, receiver), _Pair())
                for law, units in pair.add(side, total, record.second, self._most_cuts):
                    by = me if law in (Law.TWICE, Law.FALLS) else None
                    self._keep(Fault(law, sender, record.second, units, receiver, total.cut, by))
        newest = self._newest.get(me)
        if newest is None or _moment(record) > _moment(newest.record):
            received = {shard: total.cut for shard, total in _last(record.received_from).items()}
            self._newest[me] = _Newest(replace(record, sent_to=(), received_from=()), received)

    def verdict(self) -> Verdict:
        records = [one.record for one in self._newest.values()]
        silent = [shard for shard in range(self.shards) if shard not in self._newest]
        reporting = [((a, b), self._pairs.get((a, b), _SILENT)) for a in self._newest for b in self._newest if a != b]
        uncompared = sorted(ends for ends, pair in reporting if pair.compared < 0)
        compared = [(ends, pair) for ends, pair in reporting if pair.compared >= 0]
        ahead = [(ends, pair) for ends, pair in compared if pair.newest[_RECEIVER].cut > pair.newest[_SENDER].cut]
        unreported = [
            UnreportedCut(*ends, pair.newest[_RECEIVER].cut)
            for ends, pair in ahead
            if pair.newest_second[_RECEIVER] < self._newest[ends[0]].record.second
        ]
        lags = [Lag(*ends, pair.newest[_SENDER].cut - pair.compared) for ends, pair in compared]
        lag = max(lags, key=lambda one: (one.cuts, -one.shard, -one.other), default=None)
        complete = not silent and not uncompared
        certificates: list[Any] = [record.certificate for record in records]
        for fault in self._unsent():
            self._keep(fault)
        return Verdict(
            shards=self.shards,
            reported=len(records),
            second=min(record.second for record in records),
            newest_second=max(record.second for record in records),
            pages=sum(record.pages for record in records),
            visits=sum(record.visits for record in records),
            minted=sum(record.minted for record in records),
            held=sum(map(_held, records)),
            in_outboxes=self._above(_SENDER) if complete else 0,
            in_part=self._above(_RECEIVER) if complete else 0,
            faults=tuple(self._faults[which] for which in sorted(self._faults, key=_order)),
            silent=tuple(silent[:_MOST_NAMED]),
            uncompared=tuple(uncompared[:_MOST_NAMED]),
            uncompared_count=len(uncompared),
            unreported=tuple(sorted(unreported)[:_MOST_NAMED]),
            ahead=len(ahead),
            lag=lag if lag is not None and lag.cuts > 0 else None,
            certificate=None if silent or None in certificates else max(certificates, default=None),
            unsettled=sum(record.settled is False for record in records),
            loads=tuple(sorted(Load(one.shard, one.pages, one.visits, one.bytes) for one in records)),
        )

    def _above(self, side: int) -> int:
        """Return what all shards together sent, or received, beyond the totals of their pairs."""
        total = sum((one.record.sent, one.record.received)[side] for one in self._newest.values())
        return total - sum(pair.newest[side].total for pair in self._pairs.values())

    def _unsent(self) -> Iterator[Fault]:
        """Yield shards that received more than was sent to them, if all senders have reported later cuts.

        Only what the newest record itself reports as received counts: an older record may still arrive.
        """
        for me, newest in self._newest.items():
            pairs = {other: self._pairs.get((other, me), _SILENT) for other in range(self.shards) if other != me}
            if not pairs or any(
                other not in newest.received or pair.newest[_SENDER].cut <= newest.received[other]
                for other, pair in pairs.items()
            ):
                continue
            sealed = sum(pair.sealed_after(newest.received[other]) for other, pair in pairs.items())
            if newest.record.received > sealed:
                yield Fault(Law.UNSENT, me, newest.record.second, newest.record.received - sealed)

    def _keep(self, fault: Fault) -> None:
        """Keep the first fault of each key, in whatever order they are found."""
        known = self._faults.setdefault(_which(fault), fault)
        if _since(fault) < _since(known):
            self._faults[_which(fault)] = fault


def _which(fault: Fault) -> _Which:
    return fault.law, fault.shard, fault.other, fault.by


def _since(fault: Fault) -> tuple[int, int]:
    return (-1 if fault.cut is None else fault.cut), fault.second


def _order(which: _Which) -> tuple[int, int, int, int]:
    """Order shards before pairs."""
    law, shard, other, by = which
    return -1 if other is None else other, shard, list(Law).index(law), -1 if by is None else by


def _moment(record: Audit) -> tuple[int, ...]:
    """Return values that never decrease while a ledger continues."""
    return record.second, record.visits, record.received, record.sent, record.minted


def _faults_of(record: Audit) -> Iterator[tuple[Law, int]]:
    """Yield the laws that a record breaks by itself, and by how many units."""
    if drift(record):
        yield Law.BALANCE, drift(record)
    if record.minted % UNITS_PER_PAGE:
        yield Law.MINTED, record.minted % UNITS_PER_PAGE
    for law, totals, limit in (
        (Law.SENT, record.sent_to, record.sent),
        (Law.RECEIVED, record.received_from, record.received),
    ):
        pairs = sum(total.total for total in _last(totals).values())
        if pairs > limit:
            yield law, pairs - limit


def _last(totals: Sequence[PairTotal]) -> dict[int, PairTotal]:
    """Return the newest total with each other shard."""
    return {one.shard: one for one in sorted(totals, key=lambda one: one.cut)}
