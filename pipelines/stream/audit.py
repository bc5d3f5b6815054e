"""The books of all shards held against each other. Pure: records go in, a verdict comes out; no Kafka, Beam or clock.

What is checked, to the unit, and each in whatever order and however often the records come:

1. Each record by itself: minted == cash + uncollected + virtual + absorbed + sent - received; minted is a whole number
   of pages; its pairs have sent no more than `sent`, and received no more than `received`.
2. Every pair of shards at equal cuts, of which a record need not tell all: what the receiver counted is what the sender
   sealed, total and digest. A running total never falls, and no receiver has counted more than its sender had sealed at
   that cut or a later one.
3. A shard never says two things of the same cut of the same pair.
4. The whole, over the newest record of every shard: what is minted is what is held and what is under way. Under way is
   what was sealed for others and they have not received, and what waits in outboxes. `sent` says the two together, so
   an outbox is known only as what `sent` is above the pairs' totals. That remainder cannot be held against anything
   but nought; likewise what `received` is above the totals of whole cuts, which is of a cut that came in part. Where
   every sender has told more than was received of it, that part may not be more than the next cuts held.

Records of different shards are of different moments: a receiver may tell of a cut before its sender does. It is judged
once the sender tells; a sender that tells of a later tick and not of the cut is waited for by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from opicflow.pipelines.ledger import UNITS_PER_PAGE
from opicflow.schemas.records import Audit, PairTotal

MOST_SHARDS = 1 << 16
"""A record that speaks of more is no record of ours."""
MOST_SECOND = 253_402_300_799
"""The last second of the year 9999."""

_MOST_CUTS, _LEAST_CUTS, _CUTS_IN_ALL = 64, 4, 1 << 20
_MOST_SETS = 4
_MOST_NAMED = 8

_Value = tuple[int, int]
"""A total and its digest."""


class AuditRefused(ValueError):
    """A record that no shard can have written. Says why."""


class Law(str, Enum):
    """What can be wrong. `shard` is the one that tells, or of a pair the sender; `other` is the receiver."""

    BALANCE = "balance"
    """Minted is not what is held, sent and received; `units` are missing from the books."""
    MINTED = "minted"
    """Minted is not a whole number of pages; `units` are above one."""
    SENT = "sent"
    """Its pairs have sealed `units` more than it has sent."""
    RECEIVED = "received"
    """Its pairs have counted `units` more than it has received."""
    UNSENT = "unsent"
    """It has received `units` more than all others have sent it, or a pair more than its sender had sealed."""
    PAIR = "pair"
    """The receiver counted `units` more than the sender sealed at the same cut; 0: other transfers of the same sum."""
    TWICE = "twice"
    """`by` said two things of the same cut; the later one is `units` more; 0: another digest."""
    FALLS = "falls"
    """A running total that `by` told fell by `units` up to a later cut."""


@dataclass(frozen=True)
class Fault:
    """Something that is wrong for good. Of a shard or a pair, and a law, the first one is kept."""

    law: Law
    shard: int
    second: int
    """The tick of the record that showed it."""
    units: int = 0
    other: int | None = None
    cut: int | None = None
    by: int | None = None
    """Which of a pair told what is wrong in itself."""


class Lag(NamedTuple):
    """A pair, and by how many cuts what its sender sealed is ahead of what the two agree on."""

    shard: int
    other: int
    cuts: int


class Untold(NamedTuple):
    """A cut that the receiver counted, and of which the sender says nothing though it speaks of a later tick."""

    shard: int
    other: int
    cut: int


class OtherSet(NamedTuple):
    """Ledgers of another number, of which there are records too: from before or after a rebuild, or of a replay."""

    shards: int
    second: int


class State(str, Enum):
    """What the auditor can say."""

    BALANCED = "balanced"
    FAULTS = "faults"
    NOT_YET = "not yet"


@dataclass(frozen=True)
class Verdict:
    """What is known of the newest set of ledgers. Sums are over the newest record of each shard that has spoken."""

    shards: int = 0
    spoken: int = 0
    second: int = 0
    """The oldest of the shards' newest ticks: up to it all was judged."""
    newest_second: int = 0
    pages: int = 0
    visits: int = 0
    minted: int = 0
    held: int = 0
    """Cash, uncollected dividends, virtual accounts, and what was absorbed."""
    in_outboxes: int = 0
    """Of what is under way: sent by the books, and sealed in no cut that was told. Known where all pairs spoke."""
    in_part: int = 0
    """Received by the books, and of no whole cut that was told. Known where all pairs spoke."""
    faults: tuple[Fault, ...] = ()
    silent: tuple[int, ...] = ()
    """Shards that have not spoken; the first few of them."""
    uncompared: tuple[tuple[int, int], ...] = ()
    """Pairs (sender, receiver) without a common cut, the first few; shards that have not spoken aside."""
    uncompared_count: int = 0
    untold: tuple[Untold, ...] = ()
    """The first few of them."""
    ahead: int = 0
    """Pairs whose receiver told of a cut that the sender has not told yet. The sums are then of different moments."""
    lag: Lag | None = None
    """The pair that is furthest behind, if any is."""
    others: tuple[OtherSet, ...] = ()
    """Other sets of ledgers: their records count for nothing here."""

    @property
    def under_way(self) -> int:
        """Between shards, by the newest records. Below 0 only where a receiver is ahead of what its sender told."""
        return self.minted - self.held

    @property
    def state(self) -> State:
        """A fault is one whatever else is unknown; balanced is only what was compared, all of it."""
        if self.faults:
            return State.FAULTS
        if not self.shards or self.spoken < self.shards or self.uncompared_count or self.untold:
            return State.NOT_YET
        return State.BALANCED


class Auditor:
    """Takes Audit records in any order, twice or not, and says what is known of the books.

    Memory is bounded: for each pair of shards at most 64 cuts are kept (fewer from 129 shards: a million in all, but 4
    a pair at least), first of all those that were not compared yet. Where a receiver is further behind, some
    cuts in between are let go: totals and digests run on, so that a later cut shows what an earlier one would, and is
    named in its stead. A shard that contradicts itself is found as long as the cut is kept. Four sets of ledgers are
    known.
    """

    def __init__(self) -> None:
        self._sets: dict[int, _Set] = {}

    def take(self, record: Audit) -> None:
        """Take a record. `AuditRefused` if no shard can have written it: it counts for nothing then."""
        _check(record)
        books = self._sets.setdefault(record.shards, _Set(record.shards, record.second))
        books.take(record)
        if len(self._sets) > _MOST_SETS:
            del self._sets[min(self._sets.values(), key=_Set.age).shards]

    def verdict(self) -> Verdict:
        """What is known of the set of ledgers with the newest tick; of two with the same, of the one begun later."""
        if not self._sets:
            return Verdict()
        newest, *others = sorted(self._sets.values(), key=_Set.age, reverse=True)
        return replace(newest.verdict(), others=tuple(OtherSet(one.shards, one.newest_second) for one in others))


def drift(record: Audit) -> int:
    """What is missing from the books of a shard; 0 where all is well."""
    return record.minted - (_held(record) + record.sent - record.received)


def _held(record: Audit) -> int:
    return record.cash + record.uncollected + record.virtual + record.absorbed


def _check(record: Audit) -> None:
    if not 1 <= record.shards <= MOST_SHARDS:
        raise AuditRefused(f"it speaks of {record.shards} shards: there are 1 to {MOST_SHARDS}")
    if not 0 <= record.shard < record.shards:
        raise AuditRefused(f"it is of shard {record.shard}, and there are {record.shards}")
    if not 0 <= record.second <= MOST_SECOND:
        raise AuditRefused(f"its tick is second {record.second}, which no clock shows")
    for pair in (*record.sent_to, *record.received_from):
        if not 0 <= pair.shard < record.shards or pair.shard == record.shard:
            raise AuditRefused(f"shard {record.shard} of {record.shards} has no pair with shard {pair.shard}")
        if pair.cut < 0:
            raise AuditRefused(f"it speaks of cut {pair.cut} with shard {pair.shard}: cuts count from 0")


# -- pairs -------------------------------------------------------------------------------------------------------------

_SENDER, _RECEIVER = 0, 1
_NOTHING = PairTotal(0, -1, 0, 0)


@dataclass
class _Pair:
    """What a sender and a receiver said of their cuts, each for itself."""

    told: dict[int, list[_Value | None]] = field(default_factory=dict)
    newest: list[PairTotal] = field(default_factory=lambda: [_NOTHING, _NOTHING])
    compared: int = -1
    """The newest cut that both told."""
    told_second: list[int] = field(default_factory=lambda: [0, 0])
    """The first tick at which each told of its newest cut."""

    def tell(self, side: int, told: PairTotal, second: int, most: int) -> Iterator[tuple[Law, int]]:
        """What is wrong with what one side says now: the law, and by how many units."""
        cut, value = told.cut, (told.total, told.digest)
        known = self.told.setdefault(cut, [None, None])
        before, theirs = known[side], known[1 - side]
        if before is not None:
            if before != value:
                yield Law.TWICE, value[0] - before[0]
        else:
            known[side] = theirs if theirs == value else value
            newest = self.newest[side]
            fell = newest.total - told.total if cut > newest.cut else told.total - newest.total
            if fell > 0:
                yield Law.FALLS, fell
            if theirs is None:
                yield from self._bound(side, told)
            else:
                self.compared = max(self.compared, cut)
                if theirs != value:
                    yield Law.PAIR, (value[0] - theirs[0]) * (1 if side == _RECEIVER else -1)
        if cut > self.newest[side].cut:
            self.newest[side] = told
            self.told_second[side] = second
        elif cut == self.newest[side].cut:
            self.told_second[side] = min(second, self.told_second[side])
        if len(self.told) > most:
            self._removed(most)

    def _bound(self, side: int, told: PairTotal) -> Iterator[tuple[Law, int]]:
        """Where the other side did not tell this cut: what came by a cut was sealed by it or by a later one."""
        received, sent = (told, self.newest[_SENDER]) if side == _RECEIVER else (self.newest[_RECEIVER], told)
        if 0 <= received.cut <= sent.cut and received.total > sent.total:
            yield Law.UNSENT, received.total - sent.total

    def _removed(self, most: int) -> None:
        """Make room: first cuts that both told, or will not tell in their order; else leave even gaps in the rest.

        What stays are round numbers, so that both sides keep the same cuts, and the newest one.
        """
        passed: list[int] = []
        waiting: list[int] = []
        for cut in sorted(self.told):
            done = all(value is not None or cut <= self.newest[side].cut for side, value in enumerate(self.told[cut]))
            (passed if done else waiting).append(cut)
        gone = passed[: len(passed) // 2 + 1]
        if 4 * len(passed) < most:
            gap, stay = 1, waiting
            while 2 * len(stay) > most:
                gap *= 2
                stay = [cut for cut in waiting if cut % gap == 0]
            gone = passed + sorted({*waiting[:-1]}.difference(stay))
        for cut in gone:
            del self.told[cut]

    def sealed_after(self, cut: int) -> int:
        """What the sender had sealed by the cut after this one; or by its newest, where that one is not kept."""
        value = self.told.get(cut + 1, (None,))[_SENDER]
        return value[0] if value is not None else self.newest[_SENDER].total


_SILENT = _Pair()
"""A pair of which nobody spoke."""


# -- sets of ledgers ---------------------------------------------------------------------------------------------------


_Which = tuple[Law, int, int | None, int | None]
"""Which kind of fault: the law, the shard or the pair, and who of a pair told."""


class _Newest(NamedTuple):
    """A shard's newest record, and the newest cut of each other shard that was received by then, as it says itself."""

    record: Audit
    received: dict[int, int]


class _Set:
    """The ledgers of one number of shards."""

    def __init__(self, shards: int, second: int) -> None:
        self.shards = shards
        self.newest_second = self._first_second = second
        self._newest: dict[int, _Newest] = {}
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._faults: dict[_Which, Fault] = {}
        self._most = max(_LEAST_CUTS, min(_MOST_CUTS, _CUTS_IN_ALL // max(shards * (shards - 1), 1)))

    def age(self) -> tuple[int, int, int]:
        return self.newest_second, self._first_second, self.shards

    def take(self, record: Audit) -> None:
        self.newest_second = max(self.newest_second, record.second)
        self._first_second = min(self._first_second, record.second)
        me = record.shard
        for law, units in _alone(record):
            self._keep(Fault(law, me, record.second, units))
        for side, told in ((_SENDER, record.sent_to), (_RECEIVER, record.received_from)):
            for total in sorted(told, key=lambda one: one.cut):
                sender, receiver = (me, total.shard) if side == _SENDER else (total.shard, me)
                pair = self._pairs.setdefault((sender, receiver), _Pair())
                for law, units in pair.tell(side, total, record.second, self._most):
                    by = me if law in (Law.TWICE, Law.FALLS) else None
                    self._keep(Fault(law, sender, record.second, units, receiver, total.cut, by))
        newest = self._newest.get(me)
        if newest is None or _moment(record) > _moment(newest.record):
            received = {shard: total.cut for shard, total in _last(record.received_from).items()}
            self._newest[me] = _Newest(replace(record, sent_to=(), received_from=()), received)

    def verdict(self) -> Verdict:
        records = [one.record for one in self._newest.values()]
        silent = [shard for shard in range(self.shards) if shard not in self._newest]
        speaking = [((a, b), self._pairs.get((a, b), _SILENT)) for a in self._newest for b in self._newest if a != b]
        uncompared = sorted(ends for ends, pair in speaking if pair.compared < 0)
        compared = [(ends, pair) for ends, pair in speaking if pair.compared >= 0]
        ahead = [(ends, pair) for ends, pair in compared if pair.newest[_RECEIVER].cut > pair.newest[_SENDER].cut]
        untold = [
            Untold(*ends, pair.newest[_RECEIVER].cut)
            for ends, pair in ahead
            if pair.told_second[_RECEIVER] < self._newest[ends[0]].record.second
        ]
        lags = [Lag(*ends, pair.newest[_SENDER].cut - pair.compared) for ends, pair in compared]
        lag = max(lags, key=lambda one: (one.cuts, -one.shard, -one.other), default=None)
        complete = not silent and not uncompared
        for fault in self._unsent():
            self._keep(fault)
        return Verdict(
            shards=self.shards,
            spoken=len(records),
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
            untold=tuple(sorted(untold)[:_MOST_NAMED]),
            ahead=len(ahead),
            lag=lag if lag is not None and lag.cuts > 0 else None,
        )

    def _above(self, side: int) -> int:
        """What all shards together sent, or received, beyond what their pairs told."""
        books = sum((one.record.sent, one.record.received)[side] for one in self._newest.values())
        return books - sum(pair.newest[side].total for pair in self._pairs.values())

    def _unsent(self) -> Iterator[Fault]:
        """Shards that received more than was sent them, where all others have told of more than they count.

        Their newest records have to say by themselves what was received by then: an older one may come later.
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
        """Of each kind the first, in whatever order they are found."""
        known = self._faults.setdefault(_which(fault), fault)
        if _since(fault) < _since(known):
            self._faults[_which(fault)] = fault


def _which(fault: Fault) -> _Which:
    return fault.law, fault.shard, fault.other, fault.by


def _since(fault: Fault) -> tuple[int, int]:
    return (-1 if fault.cut is None else fault.cut), fault.second


def _order(which: _Which) -> tuple[int, int, int, int]:
    """Shards before pairs, and those in their order."""
    law, shard, other, by = which
    return -1 if other is None else other, shard, list(Law).index(law), -1 if by is None else by


def _moment(record: Audit) -> tuple[int, ...]:
    """What never goes back while a ledger goes on."""
    return record.second, record.visits, record.received, record.sent, record.minted


def _alone(record: Audit) -> Iterator[tuple[Law, int]]:
    """What is wrong with a record by itself: the law, and by how many units."""
    if drift(record):
        yield Law.BALANCE, drift(record)
    if record.minted % UNITS_PER_PAGE:
        yield Law.MINTED, record.minted % UNITS_PER_PAGE
    for law, told, books in (
        (Law.SENT, record.sent_to, record.sent),
        (Law.RECEIVED, record.received_from, record.received),
    ):
        pairs = sum(total.total for total in _last(told).values())
        if pairs > books:
            yield law, pairs - books


def _last(told: Sequence[PairTotal]) -> dict[int, PairTotal]:
    """The newest total with each other shard."""
    return {one.shard: one for one in sorted(told, key=lambda one: one.cut)}
