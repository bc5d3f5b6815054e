"""The auditor accuses no shard without a fault, and finds one wrong unit or digest, with its shard."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import (
    UNITS_PER_PAGE,
    Applied,
    Certified,
    History,
    Interpolation,
    Ledger,
    LedgerConfig,
    TransfersEntry,
)
from opicflow.pipelines.stream.audit import (
    Auditor,
    AuditRefused,
    AuditState,
    Fault,
    Lag,
    Law,
    OtherLedgers,
    UnreportedCut,
    Verdict,
    drift,
)
from opicflow.schemas.records import Audit, PairTotal
from support.crawls import Crawl as Crawling
from support.shards import Faults, Shards

NOON = 1_777_636_800
ACCOUNTS = ("minted", "cash", "uncollected", "virtual", "absorbed", "sent", "received")


@dataclass
class ShardAccounts:
    """The accounts of a shard without pages, its outboxes, and its totals of pairs that are not reported yet."""

    held: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ACCOUNTS, 0))
    outbox: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    cut: int = 0
    sealed: dict[int, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (0, 0)))
    pending_sent: list[PairTotal] = field(default_factory=list)
    pending_received: list[PairTotal] = field(default_factory=list)
    visits: int = 0


class Crawl:
    """Shards that mint, spend, send and receive at random. A cut arrives in two parts; all audit records are kept."""

    def __init__(self, shards: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.shards = [ShardAccounts() for _ in range(shards)]
        self.queues: dict[tuple[int, int], deque[tuple[int, PairTotal | None]]] = defaultdict(deque)
        self.records: list[Audit] = []
        self.second = NOON

    def go(self, steps: int) -> Crawl:
        for _ in range(steps):
            me = self.random.randrange(len(self.shards))
            self.random.choice([self.mint, self.spend, self.send, self.send, self.receive, self.receive, self.seal])(me)
            if self.random.random() < 0.1:
                self.second += 1
                for shard in self.random.sample(range(len(self.shards)), self.random.randrange(len(self.shards) + 1)):
                    self.tick(shard)
        return self

    def drain(self) -> Crawl:
        """Send, receive and report everything: nothing is in transit."""
        for _ in range(2):
            for me in range(len(self.shards)):
                self.seal(me)
            for me in range(len(self.shards)):
                for _ in range(sum(len(queue) for (_, to), queue in self.queues.items() if to == me)):
                    self.receive(me)
            self.second += 1
            for me in range(len(self.shards)):
                self.report(me)
        return self

    def mint(self, me: int) -> None:
        self.book(me, "minted", UNITS_PER_PAGE, UNITS_PER_PAGE)

    def spend(self, me: int) -> None:
        self.shards[me].visits += 1
        for account in ("uncollected", "virtual", "absorbed"):
            self.pay(me, account)

    def send(self, me: int) -> None:
        others = [shard for shard in range(len(self.shards)) if shard != me]
        if others:
            self.shards[me].outbox[self.random.choice(others)] += self.pay(me, "sent")

    def seal(self, me: int) -> None:
        accounts = self.shards[me]
        for other in range(len(self.shards)):
            if other != me:
                amount = accounts.outbox.pop(other, 0)
                total, digest = accounts.sealed[other]
                accounts.sealed[other] = total + amount, (digest + self.random.getrandbits(64)) % (1 << 64)
                sealed = PairTotal(other, accounts.cut, *accounts.sealed[other])
                accounts.pending_sent.append(sealed)
                first = self.random.randint(0, amount)
                self.queues[me, other].extend([(first, None), (amount - first, sealed)])
        accounts.cut += 1

    def receive(self, me: int) -> None:
        waiting = [pair for pair, queue in self.queues.items() if pair[1] == me and queue]
        if waiting:
            pair = self.random.choice(waiting)
            amount, sealed = self.queues[pair].popleft()
            self.book(me, "received", amount, amount)
            if sealed is not None:
                self.shards[me].pending_received.append(sealed._replace(shard=pair[0]))

    def tick(self, me: int) -> None:
        self.seal(me)
        self.report(me)

    def report(self, me: int) -> None:
        accounts = self.shards[me]
        sent, received = tuple(accounts.pending_sent), tuple(accounts.pending_received)
        accounts.pending_sent, accounts.pending_received = [], []
        pages = accounts.held["minted"] // UNITS_PER_PAGE
        self.records.append(
            Audit(
                me, len(self.shards), self.second, 0.0, pages, accounts.visits, *accounts.held.values(), sent, received
            )
        )

    def pay(self, me: int, account: str) -> int:
        amount = self.random.randint(0, self.shards[me].held["cash"])
        self.book(me, account, amount, -amount)
        return amount

    def book(self, me: int, account: str, amount: int, cash: int) -> None:
        self.shards[me].held[account] += amount
        self.shards[me].held["cash"] += cash

    def total(self, account: str) -> int:
        return sum(accounts.held[account] for accounts in self.shards)


def verdict(records: list[Audit]) -> Verdict:
    auditor = Auditor()
    for record in records:
        auditor.take(record)
    return auditor.verdict()


def disorder(records: list[Audit], chance: random.Random) -> list[Audit]:
    """Return the records in any order, some repeatedly."""
    return chance.sample(records, len(records)) + chance.choices(records, k=len(records) // 2)


crawls = st.builds(
    lambda shards, seed, steps: Crawl(shards, seed).go(steps),
    st.integers(1, 4),
    st.integers(0, 1 << 32),
    st.integers(0, 250),
)
joined = st.builds(lambda crawl: crawl if len(crawl.shards) > 1 else Crawl(2, 7).go(100), crawls)
chances = st.builds(random.Random, st.integers(0, 1 << 32))


# -- shards without faults


@given(crawls, chances)
def test_shards_without_faults_are_never_accused_for_any_order_of_records(crawl: Crawl, chance: random.Random) -> None:
    records = crawl.records
    for order in (records, disorder(records, chance)):
        auditor = Auditor()
        for record in order:
            auditor.take(record)
            assert auditor.verdict().faults == ()


@given(crawls, chances)
def test_a_drained_crawl_is_balanced_to_the_unit(crawl: Crawl, chance: random.Random) -> None:
    crawl.drain()
    for order in (crawl.records, disorder(crawl.records, chance)):
        found = verdict(order)
        assert found.state is AuditState.BALANCED
        assert (found.shards, found.reported) == (len(crawl.shards), len(crawl.shards))
        assert (found.second, found.newest_second) == (crawl.second, crawl.second)
        assert found.minted == found.held == crawl.total("minted")
        assert found.visits == sum(accounts.visits for accounts in crawl.shards)
        assert (found.in_transit, found.in_outboxes, found.in_part, found.ahead) == (0, 0, 0, 0)
        assert found.lag is None


@given(joined)
def test_cash_in_transit_is_reported_to_the_unit(crawl: Crawl) -> None:
    crawl.drain()
    for me in range(len(crawl.shards)):
        crawl.mint(me)
        crawl.send(me)
    outboxes = sum(sum(accounts.outbox.values()) for accounts in crawl.shards)
    crawl.second += 1
    for me in range(len(crawl.shards)):
        crawl.report(me)
    found = verdict(crawl.records)
    assert (found.state, found.in_transit, found.in_outboxes) == (AuditState.BALANCED, outboxes, outboxes)
    crawl.second += 1
    for me in range(len(crawl.shards)):
        crawl.tick(me)
    found = verdict(crawl.records)
    assert (found.state, found.in_transit, found.in_outboxes) == (AuditState.BALANCED, outboxes, 0)
    assert found.lag is not None and found.lag.cuts == 1


@given(joined, st.integers(0, 1 << 32))
def test_an_auditor_that_begins_at_any_record_has_the_same_final_verdict(crawl: Crawl, begin: int) -> None:
    middle = begin % (len(crawl.records) + 1)
    records = crawl.drain().records
    assert verdict(records[middle:]) == verdict(records)


@pytest.mark.parametrize("history", [Interpolation(), Certified()])
def test_real_ledgers_have_no_faults_while_queues_delay_split_and_repeat(seed: int, history: History) -> None:
    shards = Shards(LedgerConfig(history=history), 3, seed, Faults(wait=600))
    totals: list[tuple[list[PairTotal], list[PairTotal]]] = [([], []) for _ in shards.ledgers]
    auditor = Auditor()

    def noting(me: int, ledger: Ledger) -> Callable[[Any], Applied]:
        apply = ledger.apply

        def apply_and_note(entry: Any) -> Applied:
            is_cut = isinstance(entry, TransfersEntry) and entry.last
            is_new = is_cut and ledger.mark(f"shard/{entry.source_shard}") < entry.end
            applied = apply(entry)
            for other, cut in applied.sealed:
                totals[me][0].append(PairTotal(other, cut.cut, cut.sent_total, cut.sent_digest))
            if is_new:
                totals[me][1].append(PairTotal(entry.source_shard, entry.cut, entry.sent_total, entry.sent_digest))
            return applied

        return apply_and_note

    for me, ledger in enumerate(shards.ledgers):
        ledger.apply = noting(me, ledger)  # type: ignore[method-assign]

    def report(me: int) -> Verdict:
        ledger = shards.ledgers[me]
        balance = ledger.audit()
        pairs = [tuple(one) for one in totals[me]]
        totals[me][0].clear()
        totals[me][1].clear()
        count = (max(ledger.tick_second, 0), ledger.turns, ledger.pages, ledger.visits)
        auditor.take(Audit(me, 3, *count, *(getattr(balance, account) for account in ACCOUNTS), *pairs))
        return auditor.verdict()

    crawl, states, furthest = Crawling(shards, power_law_web(300, seed), "random", seed), set(), 0
    for second in range(NOON, NOON + 40):
        crawl.run(0.1)
        shards.tick(second)
        for me in range(3):
            found = report(me)
            assert found.faults == ()
            states.add(found.state)
            furthest = max(furthest, found.lag.cuts if found.lag else 0)
    shards.drain(NOON + 50)
    found = [report(me) for me in range(3)][-1]
    assert found.state is AuditState.BALANCED
    assert (found.minted, found.pages, found.visits) == (300 * UNITS_PER_PAGE, 300, 40 * 30)
    assert (found.in_transit, found.in_outboxes, found.in_part, found.lag) == (0, 0, 0, None)
    assert states == {AuditState.NOT_YET, AuditState.BALANCED} and furthest > 1


# -- faults


def names(fault: Fault) -> tuple[Any, ...]:
    return fault.law, fault.shard, fault.other, fault.cut, fault.units, fault.by


def others_of(record: Audit, side: str) -> list[PairTotal]:
    return list(getattr(record, side))


@given(crawls, chances, st.sampled_from(ACCOUNTS), st.sampled_from([-(1 << 24), -1, 1, 5]))
def test_a_missing_unit_in_any_account_is_found(crawl: Crawl, chance: random.Random, account: str, units: int) -> None:
    records = disorder(crawl.drain().records, chance)
    row = chance.randrange(len(crawl.records))
    wrong = replace(records[row], **{account: getattr(records[row], account) + units})
    missing = units if account in ("minted", "received") else -units
    found = verdict([*records[:row], wrong, *records[row + 1 :]])
    assert found.state is AuditState.FAULTS
    assert (Law.BALANCE, wrong.shard, None, None, missing, None) in map(names, found.faults)
    assert {(fault.shard, fault.other) for fault in found.faults} == {(wrong.shard, None)}


def test_minted_cash_is_a_whole_number_of_pages() -> None:
    (record,) = Crawl(1, 0).drain().records[-1:]
    wrong = replace(record, minted=record.minted + 3, cash=record.cash + 3)
    assert [names(fault) for fault in verdict([wrong]).faults] == [(Law.MINTED, 0, None, None, 3, None)]


@given(joined, chances, st.sampled_from(["sent_to", "received_from"]), st.sampled_from([-1, 0, 1, 1 << 30]))
def test_a_wrong_total_or_digest_of_a_pair_at_one_cut_is_found_and_named(
    crawl: Crawl, chance: random.Random, side: str, units: int
) -> None:
    records = crawl.drain().records
    row = chance.choice([row for row, record in enumerate(records) if getattr(record, side)])
    totals = others_of(records[row], side)
    one = chance.randrange(len(totals))
    right = totals[one]
    totals[one] = right._replace(total=right.total + units, digest=right.digest ^ (units == 0))
    records[row] = replace(records[row], **{side: tuple(totals)})
    me = records[row].shard
    pair = (me, right.shard) if side == "sent_to" else (right.shard, me)
    more = units if side == "received_from" else -units
    for order in (records, disorder(records, chance)):
        found = verdict(order)
        assert found.state is AuditState.FAULTS
        assert (Law.PAIR, *pair, right.cut, more, None) in map(names, found.faults)
        assert {fault.other for fault in found.faults} <= {pair[1], None}
        assert {fault.shard for fault in found.faults} <= set(pair)


@given(joined, chances)
def test_a_unit_lost_in_transit_is_named_with_the_first_cut_that_lacks_it(crawl: Crawl, chance: random.Random) -> None:
    records = crawl.drain().records
    me = chance.randrange(len(crawl.shards))
    totals = [total for record in records if record.shard == me for total in record.received_from]
    lost = chance.choice(totals)
    for row, record in enumerate(records):
        if record.shard == me:
            late = [
                one._replace(total=one.total - 1) if one.shard == lost.shard and one.cut >= lost.cut else one
                for one in record.received_from
            ]
            held = {"received": record.received - 1, "cash": record.cash - 1} if late else {}
            records[row] = replace(record, received_from=tuple(late), **held)
    for order in (records, disorder(records, chance)):
        found = [names(fault) for fault in verdict(order).faults if fault.law is Law.PAIR]
        assert found == [(Law.PAIR, lost.shard, me, lost.cut, -1, None)]


@given(joined, chances)
def test_a_shard_that_reports_two_values_of_a_cut_contradicts_itself(crawl: Crawl, chance: random.Random) -> None:
    records = crawl.drain().records
    row = chance.choice([row for row, record in enumerate(records) if record.sent_to])
    totals = others_of(records[row], "sent_to")
    one = chance.randrange(len(totals))
    totals[one] = totals[one]._replace(digest=totals[one].digest ^ 1)
    order = disorder([*records, replace(records[row], sent_to=tuple(totals))], chance)
    found = [names(fault) for fault in verdict(order).faults]
    me = records[row].shard
    assert (Law.TWICE, me, totals[one].shard, totals[one].cut, 0, me) in found


@given(joined, chances, st.integers(0, 1))
def test_a_cut_that_was_never_sent_is_unreported_at_first_and_a_fault_when_its_number_is_sealed(
    crawl: Crawl, chance: random.Random, units: int
) -> None:
    crawl.drain()
    receiver = chance.randrange(len(crawl.shards))
    sender = (receiver + 1) % len(crawl.shards)
    total, digest = crawl.shards[sender].sealed[receiver]
    cut = crawl.shards[sender].cut
    (row,) = [n for n, one in enumerate(crawl.records) if (one.shard, one.second) == (receiver, crawl.second)]
    record = crawl.records[row]
    phantom = PairTotal(sender, cut, total + units, digest ^ 1)
    crawl.records[row] = replace(
        record,
        received_from=(*record.received_from, phantom),
        received=record.received + units,
        cash=record.cash + units,
    )
    found = verdict(crawl.records)
    assert (found.faults, found.ahead) == ((), 1)
    waiting = replace(next(r for r in crawl.records[::-1] if r.shard == sender), second=crawl.second + 1, sent_to=())
    found = verdict([*crawl.records, waiting])
    assert (found.state, found.unreported) == (AuditState.NOT_YET, (UnreportedCut(sender, receiver, cut),))
    crawl.second += 1
    crawl.tick(sender)
    found = verdict(crawl.records)
    assert [names(one) for one in found.faults if one.law is Law.PAIR] == [
        (Law.PAIR, sender, receiver, cut, total + units - crawl.shards[sender].sealed[receiver][0], None)
    ]


def record_of(shard: int, shards: int = 2, second: int = NOON, **values: Any) -> Audit:
    """Return a record of a shard with one page and balanced cash."""
    all_ = {**dict.fromkeys(ACCOUNTS, 0), "minted": UNITS_PER_PAGE, **values}
    if "cash" not in values:
        all_["cash"] = all_["minted"] - all_["sent"] + all_["received"]
    return Audit(shard, shards, second, 0.0, 1, 0, **all_)


def to(shard: int, cut: int, total: int, digest: int = 0) -> PairTotal:
    return PairTotal(shard, cut, total, digest)


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ([record_of(0, sent=4, sent_to=(to(1, 0, 5),))], (Law.SENT, 0, None, None, 1, None)),
        ([record_of(0, received=4, received_from=(to(1, 0, 5),))], (Law.RECEIVED, 0, None, None, 1, None)),
        ([record_of(0, sent=9, sent_to=(to(1, 0, 5), to(1, 1, 3)))], (Law.FALLS, 0, 1, 1, 2, 0)),
        (
            [record_of(0, sent=5, sent_to=(to(1, 7, 5),)), record_of(1, received=6, received_from=(to(0, 6, 6),))],
            (Law.UNSENT, 0, 1, 6, 1, None),
        ),
        (
            [record_of(1, received=6, received_from=(to(0, 6, 6),)), record_of(0, sent=5, sent_to=(to(1, 7, 5),))],
            (Law.UNSENT, 0, 1, 7, 1, None),
        ),
        (
            [
                record_of(0, sent=9, sent_to=(to(1, 0, 2), to(1, 1, 5), to(1, 2, 9))),
                record_of(1, received=6, received_from=(to(0, 0, 2),)),
            ],
            (Law.UNSENT, 1, None, None, 1, None),
        ),
    ],
)
def test_impossible_totals_are_found_and_named(records: list[Audit], fault: tuple[Any, ...]) -> None:
    found = verdict(records)
    assert fault in [names(one) for one in found.faults]
    assert {(one.law, *{one.shard, one.other} - {0, None}) for one in found.faults} <= {(fault[0], 1), (fault[0],)}


def test_a_repeated_fault_counts_once_with_its_first_tick() -> None:
    wrong = [record_of(0, 1, NOON + late, cash=UNITS_PER_PAGE - 1) for late in (5, 3, 9)]
    (fault,) = verdict([*wrong, record_of(0, 1, NOON + 10)]).faults
    assert fault == Fault(Law.BALANCE, 0, NOON + 3, 1)


# -- incomplete reports


def test_without_records_there_is_no_verdict() -> None:
    assert Auditor().verdict() == Verdict()
    assert Verdict().state is AuditState.NOT_YET


def test_shards_without_a_record_are_named() -> None:
    found = verdict([record_of(1, 4), record_of(3, 4, NOON + 9)])
    assert (found.state, found.silent, found.uncompared) == (AuditState.NOT_YET, (0, 2), ((1, 3), (3, 1)))
    assert (found.second, found.newest_second) == (NOON, NOON + 9)


def test_pairs_without_a_common_cut_are_named_and_other_pairs_have_a_lag() -> None:
    sent = tuple(to(1, cut, 5) for cut in range(4))
    records = [record_of(0, sent=5, sent_to=sent), record_of(1, received=5, received_from=(to(0, 0, 5), to(0, 1, 5)))]
    found = verdict(records)
    assert (found.state, found.uncompared, found.uncompared_count) == (AuditState.NOT_YET, ((1, 0),), 1)
    assert found.lag == Lag(0, 1, 2)
    back = [
        record_of(1, second=NOON + 1, received=5, sent_to=(to(0, 0, 0),)),
        record_of(0, sent=5, received_from=(to(1, 0, 0),)),
    ]
    assert verdict([*records, *back]).state is AuditState.BALANCED


def test_a_pair_with_a_large_lag_needs_no_more_memory_and_its_faults_are_found() -> None:
    auditor = Auditor()
    cuts = 20_000
    for cut in range(cuts):
        auditor.take(record_of(0, second=NOON + cut, sent=cut, sent_to=(to(1, cut, cut, cut),)))
    (pair,) = auditor._sets[2]._pairs.values()
    assert len(pair.reports) <= 64
    lost_at = 7_000
    for cut in range(0, cuts, 10):
        received = tuple(to(0, one, one - (one >= lost_at), one) for one in range(cut, cut + 10))
        auditor.take(record_of(1, second=NOON + cut, received=received[-1].total, received_from=received))
        assert len(pair.reports) <= 64
        if cut + 10 == lost_at:
            assert auditor.verdict().faults == () and pair.compared > 0
    (fault,) = auditor.verdict().faults
    assert (fault.law, fault.shard, fault.other, fault.units) == (Law.PAIR, 0, 1, -1)
    assert lost_at <= (fault.cut or 0) < lost_at + 1000
    assert pair.compared == cuts - 1


def test_a_pair_without_common_cuts_needs_no_more_memory() -> None:
    auditor = Auditor()
    for cut in range(0, 5000, 2):
        auditor.take(record_of(0, second=NOON + cut, sent_to=(to(1, cut, 0),)))
        auditor.take(record_of(1, second=NOON + cut, received_from=(to(0, cut + 1, 0),)))
    (pair,) = auditor._sets[2]._pairs.values()
    assert len(pair.reports) <= 64
    assert auditor.verdict().state is AuditState.NOT_YET


# -- other sets of ledgers, and impossible records


def test_the_newest_set_of_ledgers_counts_and_the_others_are_named() -> None:
    old = [record_of(0, 1, NOON + 5, cash=1)]
    new = [record_of(shard, 2, NOON + 9, minted=0) for shard in (0, 1)]
    for records in ([*old, *new], [*new, *old]):
        found = verdict(records)
        assert (found.shards, found.faults, found.others) == (2, (), (OtherLedgers(1, NOON + 5),))


def test_at_equal_ticks_the_set_that_began_later_counts_and_few_sets_are_kept() -> None:
    assert verdict([record_of(0, 4, NOON), record_of(0, 8, NOON + 5), record_of(0, 4, NOON + 5)]).shards == 8
    found = verdict([record_of(0, shards, NOON + shards) for shards in range(1, 100)])
    assert (found.shards, len(found.others)) == (99, 3)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (record_of(0, 0), "it has 0 shards: there are 1 to 65536"),
        (record_of(0, 1 << 30), "it has 1073741824 shards"),
        (record_of(7, 4), "it is of shard 7, and there are 4"),
        (record_of(-1, 4), "it is of shard -1"),
        (record_of(0, second=-1), "its tick is second -1, beyond the year 9999"),
        (record_of(0, second=1 << 50), "beyond the year 9999"),
        (record_of(0, sent_to=(to(0, 0, 0),)), "shard 0 of 2 has no pair with shard 0"),
        (record_of(0, received_from=(to(2, 0, 0),)), "shard 0 of 2 has no pair with shard 2"),
        (record_of(0, received_from=(to(1, -1, 0),)), "it has cut -1 with shard 1"),
    ],
)
def test_a_record_that_no_shard_can_write_is_refused_and_changes_nothing(record: Audit, message: str) -> None:
    auditor = Auditor()
    with pytest.raises(AuditRefused, match=message):
        auditor.take(record)
    assert auditor.verdict() == Verdict()


def test_drift_is_the_missing_cash() -> None:
    assert drift(record_of(0)) == 0
    assert drift(replace(record_of(0), virtual=-3)) == 3
