"""The auditor: shards that are in order are never accused, one unit or digest that is wrong is found and named."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import UNITS_PER_PAGE, Applied, Ledger, TransfersEntry
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
from opicflow.pipelines.web.webs import power_law_web
from opicflow.schemas.records import Audit, PairTotal
from support.crawls import Crawl as Crawling
from support.shards import Faults, Shards

NOON = 1_777_636_800
ACCOUNTS = ("minted", "cash", "uncollected", "virtual", "absorbed", "sent", "received")


@dataclass
class Books:
    """A shard that only counts: what it holds, what waits for others, and what it told."""

    held: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ACCOUNTS, 0))
    outbox: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    cut: int = 0
    sealed: dict[int, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (0, 0)))
    untold_sent: list[PairTotal] = field(default_factory=list)
    untold_received: list[PairTotal] = field(default_factory=list)
    visits: int = 0


class Crawl:
    """Shards that mint, spend, send and receive by chance. A cut travels whole or in two parts; records are kept."""

    def __init__(self, shards: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.books = [Books() for _ in range(shards)]
        self.queues: dict[tuple[int, int], deque[tuple[int, PairTotal | None]]] = defaultdict(deque)
        self.records: list[Audit] = []
        self.second = NOON

    def go(self, steps: int) -> Crawl:
        for _ in range(steps):
            me = self.random.randrange(len(self.books))
            self.random.choice([self.mint, self.spend, self.send, self.send, self.receive, self.receive, self.seal])(me)
            if self.random.random() < 0.1:
                self.second += 1
                for shard in self.random.sample(range(len(self.books)), self.random.randrange(len(self.books) + 1)):
                    self.tick(shard)
        return self

    def drain(self) -> Crawl:
        """All have told all, and nothing is under way."""
        for _ in range(2):
            for me in range(len(self.books)):
                self.seal(me)
            for me in range(len(self.books)):
                for _ in range(sum(len(queue) for (_, to), queue in self.queues.items() if to == me)):
                    self.receive(me)
            self.second += 1
            for me in range(len(self.books)):
                self.tell(me)
        return self

    def mint(self, me: int) -> None:
        self.book(me, "minted", UNITS_PER_PAGE, UNITS_PER_PAGE)

    def spend(self, me: int) -> None:
        self.books[me].visits += 1
        for account in ("uncollected", "virtual", "absorbed"):
            self.pay(me, account)

    def send(self, me: int) -> None:
        others = [shard for shard in range(len(self.books)) if shard != me]
        if others:
            self.books[me].outbox[self.random.choice(others)] += self.pay(me, "sent")

    def seal(self, me: int) -> None:
        books = self.books[me]
        for other in range(len(self.books)):
            if other != me:
                amount = books.outbox.pop(other, 0)
                total, digest = books.sealed[other]
                books.sealed[other] = total + amount, (digest + self.random.getrandbits(64)) % (1 << 64)
                told = PairTotal(other, books.cut, *books.sealed[other])
                books.untold_sent.append(told)
                first = self.random.randint(0, amount)
                self.queues[me, other].extend([(first, None), (amount - first, told)])
        books.cut += 1

    def receive(self, me: int) -> None:
        waiting = [pair for pair, queue in self.queues.items() if pair[1] == me and queue]
        if waiting:
            pair = self.random.choice(waiting)
            amount, told = self.queues[pair].popleft()
            self.book(me, "received", amount, amount)
            if told is not None:
                self.books[me].untold_received.append(told._replace(shard=pair[0]))

    def tick(self, me: int) -> None:
        self.seal(me)
        self.tell(me)

    def tell(self, me: int) -> None:
        books = self.books[me]
        sent, received = tuple(books.untold_sent), tuple(books.untold_received)
        books.untold_sent, books.untold_received = [], []
        pages = books.held["minted"] // UNITS_PER_PAGE
        self.records.append(
            Audit(me, len(self.books), self.second, 0.0, pages, books.visits, *books.held.values(), sent, received)
        )

    def pay(self, me: int, account: str) -> int:
        amount = self.random.randint(0, self.books[me].held["cash"])
        self.book(me, account, amount, -amount)
        return amount

    def book(self, me: int, account: str, amount: int, cash: int) -> None:
        self.books[me].held[account] += amount
        self.books[me].held["cash"] += cash

    def total(self, account: str) -> int:
        return sum(books.held[account] for books in self.books)


def verdict(records: list[Audit]) -> Verdict:
    auditor = Auditor()
    for record in records:
        auditor.take(record)
    return auditor.verdict()


def disorder(records: list[Audit], chance: random.Random) -> list[Audit]:
    """In any order, some of them several times."""
    return chance.sample(records, len(records)) + chance.choices(records, k=len(records) // 2)


crawls = st.builds(
    lambda shards, seed, steps: Crawl(shards, seed).go(steps),
    st.integers(1, 4),
    st.integers(0, 1 << 32),
    st.integers(0, 250),
)
joined = st.builds(lambda crawl: crawl if len(crawl.books) > 1 else Crawl(2, 7).go(100), crawls)
chances = st.builds(random.Random, st.integers(0, 1 << 32))


# -- shards that are in order


@given(crawls, chances)
def test_shards_in_order_are_never_accused_in_whatever_order_they_are_heard(
    crawl: Crawl, chance: random.Random
) -> None:
    records = crawl.records
    for order in (records, disorder(records, chance)):
        auditor = Auditor()
        for record in order:
            auditor.take(record)
            assert auditor.verdict().faults == ()


@given(crawls, chances)
def test_what_has_come_to_rest_is_balanced_to_the_unit(crawl: Crawl, chance: random.Random) -> None:
    crawl.drain()
    for order in (crawl.records, disorder(crawl.records, chance)):
        found = verdict(order)
        assert found.state is AuditState.BALANCED
        assert (found.shards, found.reported) == (len(crawl.books), len(crawl.books))
        assert (found.second, found.newest_second) == (crawl.second, crawl.second)
        assert found.minted == found.held == crawl.total("minted")
        assert found.visits == sum(books.visits for books in crawl.books)
        assert (found.in_transit, found.in_outboxes, found.in_part, found.ahead) == (0, 0, 0, 0)
        assert found.lag is None


@given(joined)
def test_what_is_under_way_is_told_to_the_unit(crawl: Crawl) -> None:
    crawl.drain()
    for me in range(len(crawl.books)):
        crawl.mint(me)
        crawl.send(me)
    outboxes = sum(sum(books.outbox.values()) for books in crawl.books)
    crawl.second += 1
    for me in range(len(crawl.books)):
        crawl.tell(me)
    found = verdict(crawl.records)
    assert (found.state, found.in_transit, found.in_outboxes) == (AuditState.BALANCED, outboxes, outboxes)
    crawl.second += 1
    for me in range(len(crawl.books)):
        crawl.tick(me)
    found = verdict(crawl.records)
    assert (found.state, found.in_transit, found.in_outboxes) == (AuditState.BALANCED, outboxes, 0)
    assert found.lag is not None and found.lag.cuts == 1


@given(joined, st.integers(0, 1 << 32))
def test_an_auditor_that_begins_anywhere_comes_to_the_same_end(crawl: Crawl, begin: int) -> None:
    middle = begin % (len(crawl.records) + 1)
    records = crawl.drain().records
    assert verdict(records[middle:]) == verdict(records)


def test_the_ledgers_themselves_are_in_order_while_queues_wait_split_and_repeat(seed: int) -> None:
    shards = Shards(None, 3, seed, Faults(wait=600))
    told: list[tuple[list[PairTotal], list[PairTotal]]] = [([], []) for _ in shards.ledgers]
    auditor = Auditor()

    def listening(me: int, ledger: Ledger) -> Callable[[Any], Applied]:
        apply = ledger.apply

        def heard(entry: Any) -> Applied:
            is_cut = isinstance(entry, TransfersEntry) and entry.last
            is_new = is_cut and ledger.mark(f"shard/{entry.source_shard}") < entry.end
            applied = apply(entry)
            for other, cut in applied.sealed:
                told[me][0].append(PairTotal(other, cut.cut, cut.sent_total, cut.sent_digest))
            if is_new:
                told[me][1].append(PairTotal(entry.source_shard, entry.cut, entry.sent_total, entry.sent_digest))
            return applied

        return heard

    for me, ledger in enumerate(shards.ledgers):
        ledger.apply = listening(me, ledger)  # type: ignore[method-assign]

    def tell(me: int) -> Verdict:
        ledger = shards.ledgers[me]
        balance = ledger.audit()
        pairs = [tuple(one) for one in told[me]]
        told[me][0].clear()
        told[me][1].clear()
        count = (max(ledger.tick_second, 0), ledger.turns, ledger.pages, ledger.visits)
        auditor.take(Audit(me, 3, *count, *(getattr(balance, account) for account in ACCOUNTS), *pairs))
        return auditor.verdict()

    crawl, states, furthest = Crawling(shards, power_law_web(300, seed), "random", seed), set(), 0
    for second in range(NOON, NOON + 40):
        crawl.run(0.1)
        shards.tick(second)
        for me in range(3):
            found = tell(me)
            assert found.faults == ()
            states.add(found.state)
            furthest = max(furthest, found.lag.cuts if found.lag else 0)
    shards.drain(NOON + 50)
    found = [tell(me) for me in range(3)][-1]
    assert found.state is AuditState.BALANCED
    assert (found.minted, found.pages, found.visits) == (300 * UNITS_PER_PAGE, 300, 40 * 30)
    assert (found.in_transit, found.in_outboxes, found.in_part, found.lag) == (0, 0, 0, None)
    assert states == {AuditState.NOT_YET, AuditState.BALANCED} and furthest > 1


# -- what is wrong


def names(fault: Fault) -> tuple[Any, ...]:
    return fault.law, fault.shard, fault.other, fault.cut, fault.units, fault.by


def others_of(record: Audit, side: str) -> list[PairTotal]:
    return list(getattr(record, side))


@given(crawls, chances, st.sampled_from(ACCOUNTS), st.sampled_from([-(1 << 24), -1, 1, 5]))
def test_a_unit_that_is_missing_in_any_account_is_found(
    crawl: Crawl, chance: random.Random, account: str, units: int
) -> None:
    records = disorder(crawl.drain().records, chance)
    place = chance.randrange(len(crawl.records))
    wrong = replace(records[place], **{account: getattr(records[place], account) + units})
    missing = units if account in ("minted", "received") else -units
    found = verdict([*records[:place], wrong, *records[place + 1 :]])
    assert found.state is AuditState.FAULTS
    assert (Law.BALANCE, wrong.shard, None, None, missing, None) in map(names, found.faults)
    assert {(fault.shard, fault.other) for fault in found.faults} == {(wrong.shard, None)}


def test_minted_cash_is_a_whole_number_of_pages() -> None:
    (record,) = Crawl(1, 0).drain().records[-1:]
    wrong = replace(record, minted=record.minted + 3, cash=record.cash + 3)
    assert [names(fault) for fault in verdict([wrong]).faults] == [(Law.MINTED, 0, None, None, 3, None)]


@given(joined, chances, st.sampled_from(["sent_to", "received_from"]), st.sampled_from([-1, 0, 1, 1 << 30]))
def test_a_total_or_digest_of_a_pair_that_is_wrong_at_one_cut_is_found_and_named(
    crawl: Crawl, chance: random.Random, side: str, units: int
) -> None:
    records = crawl.drain().records
    place = chance.choice([place for place, record in enumerate(records) if getattr(record, side)])
    told = others_of(records[place], side)
    one = chance.randrange(len(told))
    right = told[one]
    told[one] = right._replace(total=right.total + units, digest=right.digest ^ (units == 0))
    records[place] = replace(records[place], **{side: tuple(told)})
    me = records[place].shard
    pair = (me, right.shard) if side == "sent_to" else (right.shard, me)
    more = units if side == "received_from" else -units
    for order in (records, disorder(records, chance)):
        found = verdict(order)
        assert found.state is AuditState.FAULTS
        assert (Law.PAIR, *pair, right.cut, more, None) in map(names, found.faults)
        assert {fault.other for fault in found.faults} <= {pair[1], None}
        assert {fault.shard for fault in found.faults} <= set(pair)


@given(joined, chances)
def test_a_unit_that_is_lost_on_the_way_is_named_with_the_first_cut_that_lacks_it(
    crawl: Crawl, chance: random.Random
) -> None:
    records = crawl.drain().records
    me = chance.randrange(len(crawl.books))
    told = [total for record in records if record.shard == me for total in record.received_from]
    lost = chance.choice(told)
    for place, record in enumerate(records):
        if record.shard == me:
            late = [
                one._replace(total=one.total - 1) if one.shard == lost.shard and one.cut >= lost.cut else one
                for one in record.received_from
            ]
            held = {"received": record.received - 1, "cash": record.cash - 1} if late else {}
            records[place] = replace(record, received_from=tuple(late), **held)
    for order in (records, disorder(records, chance)):
        found = [names(fault) for fault in verdict(order).faults if fault.law is Law.PAIR]
        assert found == [(Law.PAIR, lost.shard, me, lost.cut, -1, None)]


@given(joined, chances)
def test_a_shard_that_says_two_things_of_a_cut_contradicts_itself(crawl: Crawl, chance: random.Random) -> None:
    records = crawl.drain().records
    place = chance.choice([place for place, record in enumerate(records) if record.sent_to])
    told = others_of(records[place], "sent_to")
    one = chance.randrange(len(told))
    told[one] = told[one]._replace(digest=told[one].digest ^ 1)
    order = disorder([*records, replace(records[place], sent_to=tuple(told))], chance)
    found = [names(fault) for fault in verdict(order).faults]
    me = records[place].shard
    assert (Law.TWICE, me, told[one].shard, told[one].cut, 0, me) in found


@given(joined, chances, st.integers(0, 1))
def test_a_cut_that_was_received_and_never_sent_is_told_at_once_and_found_when_its_number_comes(
    crawl: Crawl, chance: random.Random, units: int
) -> None:
    crawl.drain()
    receiver = chance.randrange(len(crawl.books))
    sender = (receiver + 1) % len(crawl.books)
    total, digest = crawl.books[sender].sealed[receiver]
    cut = crawl.books[sender].cut
    (place,) = [n for n, one in enumerate(crawl.records) if (one.shard, one.second) == (receiver, crawl.second)]
    record = crawl.records[place]
    phantom = PairTotal(sender, cut, total + units, digest ^ 1)
    crawl.records[place] = replace(
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
        (Law.PAIR, sender, receiver, cut, total + units - crawl.books[sender].sealed[receiver][0], None)
    ]


def books(shard: int, shards: int = 2, second: int = NOON, **values: Any) -> Audit:
    """A record of a shard with one page whose cash is what the law asks for."""
    all_ = {**dict.fromkeys(ACCOUNTS, 0), "minted": UNITS_PER_PAGE, **values}
    if "cash" not in values:
        all_["cash"] = all_["minted"] - all_["sent"] + all_["received"]
    return Audit(shard, shards, second, 0.0, 1, 0, **all_)


def to(shard: int, cut: int, total: int, digest: int = 0) -> PairTotal:
    return PairTotal(shard, cut, total, digest)


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ([books(0, sent=4, sent_to=(to(1, 0, 5),))], (Law.SENT, 0, None, None, 1, None)),
        ([books(0, received=4, received_from=(to(1, 0, 5),))], (Law.RECEIVED, 0, None, None, 1, None)),
        ([books(0, sent=9, sent_to=(to(1, 0, 5), to(1, 1, 3)))], (Law.FALLS, 0, 1, 1, 2, 0)),
        (
            [books(0, sent=5, sent_to=(to(1, 7, 5),)), books(1, received=6, received_from=(to(0, 6, 6),))],
            (Law.UNSENT, 0, 1, 6, 1, None),
        ),
        (
            [books(1, received=6, received_from=(to(0, 6, 6),)), books(0, sent=5, sent_to=(to(1, 7, 5),))],
            (Law.UNSENT, 0, 1, 7, 1, None),
        ),
        (
            [
                books(0, sent=9, sent_to=(to(1, 0, 2), to(1, 1, 5), to(1, 2, 9))),
                books(1, received=6, received_from=(to(0, 0, 2),)),
            ],
            (Law.UNSENT, 1, None, None, 1, None),
        ),
    ],
)
def test_what_cannot_be_is_found_and_named(records: list[Audit], fault: tuple[Any, ...]) -> None:
    found = verdict(records)
    assert fault in [names(one) for one in found.faults]
    assert {(one.law, *{one.shard, one.other} - {0, None}) for one in found.faults} <= {(fault[0], 1), (fault[0],)}


def test_a_fault_stays_one_and_the_first_of_its_kind_is_kept() -> None:
    wrong = [books(0, 1, NOON + late, cash=UNITS_PER_PAGE - 1) for late in (5, 3, 9)]
    (fault,) = verdict([*wrong, books(0, 1, NOON + 10)]).faults
    assert fault == Fault(Law.BALANCE, 0, NOON + 3, 1)


# -- what cannot be judged


def test_nothing_heard_is_nothing_judged() -> None:
    assert Auditor().verdict() == Verdict()
    assert Verdict().state is AuditState.NOT_YET


def test_shards_that_have_not_spoken_are_named() -> None:
    found = verdict([books(1, 4), books(3, 4, NOON + 9)])
    assert (found.state, found.silent, found.uncompared) == (AuditState.NOT_YET, (0, 2), ((1, 3), (3, 1)))
    assert (found.second, found.newest_second) == (NOON, NOON + 9)


def test_pairs_without_a_common_cut_are_named_and_the_lag_of_the_others_is_told() -> None:
    sent = tuple(to(1, cut, 5) for cut in range(4))
    records = [books(0, sent=5, sent_to=sent), books(1, received=5, received_from=(to(0, 0, 5), to(0, 1, 5)))]
    found = verdict(records)
    assert (found.state, found.uncompared, found.uncompared_count) == (AuditState.NOT_YET, ((1, 0),), 1)
    assert found.lag == Lag(0, 1, 2)
    back = [
        books(1, second=NOON + 1, received=5, sent_to=(to(0, 0, 0),)),
        books(0, sent=5, received_from=(to(1, 0, 0),)),
    ]
    assert verdict([*records, *back]).state is AuditState.BALANCED


def test_a_pair_that_is_far_behind_takes_no_more_memory_and_its_faults_are_still_found() -> None:
    auditor = Auditor()
    cuts = 20_000
    for cut in range(cuts):
        auditor.take(books(0, second=NOON + cut, sent=cut, sent_to=(to(1, cut, cut, cut),)))
    (pair,) = auditor._sets[2]._pairs.values()
    assert len(pair.reports) <= 64
    lost_at = 7_000
    for cut in range(0, cuts, 10):
        heard = tuple(to(0, one, one - (one >= lost_at), one) for one in range(cut, cut + 10))
        auditor.take(books(1, second=NOON + cut, received=heard[-1].total, received_from=heard))
        assert len(pair.reports) <= 64
        if cut + 10 == lost_at:
            assert auditor.verdict().faults == () and pair.compared > 0
    (fault,) = auditor.verdict().faults
    assert (fault.law, fault.shard, fault.other, fault.units) == (Law.PAIR, 0, 1, -1)
    assert lost_at <= (fault.cut or 0) < lost_at + 1000
    assert pair.compared == cuts - 1


def test_two_sides_that_never_meet_take_no_more_memory() -> None:
    auditor = Auditor()
    for cut in range(0, 5000, 2):
        auditor.take(books(0, second=NOON + cut, sent_to=(to(1, cut, 0),)))
        auditor.take(books(1, second=NOON + cut, received_from=(to(0, cut + 1, 0),)))
    (pair,) = auditor._sets[2]._pairs.values()
    assert len(pair.reports) <= 64
    assert auditor.verdict().state is AuditState.NOT_YET


# -- other sets of ledgers, and what is no record


def test_the_newest_set_of_ledgers_counts_and_the_others_are_told() -> None:
    old = [books(0, 1, NOON + 5, cash=1)]
    new = [books(shard, 2, NOON + 9, minted=0) for shard in (0, 1)]
    for records in ([*old, *new], [*new, *old]):
        found = verdict(records)
        assert (found.shards, found.faults, found.others) == (2, (), (OtherLedgers(1, NOON + 5),))


def test_of_two_sets_at_the_same_tick_the_one_that_began_later_counts_and_few_are_kept() -> None:
    assert verdict([books(0, 4, NOON), books(0, 8, NOON + 5), books(0, 4, NOON + 5)]).shards == 8
    found = verdict([books(0, shards, NOON + shards) for shards in range(1, 100)])
    assert (found.shards, len(found.others)) == (99, 3)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (books(0, 0), "it has 0 shards: there are 1 to 65536"),
        (books(0, 1 << 30), "it has 1073741824 shards"),
        (books(7, 4), "it is of shard 7, and there are 4"),
        (books(-1, 4), "it is of shard -1"),
        (books(0, second=-1), "its tick is second -1, beyond the year 9999"),
        (books(0, second=1 << 50), "beyond the year 9999"),
        (books(0, sent_to=(to(0, 0, 0),)), "shard 0 of 2 has no pair with shard 0"),
        (books(0, received_from=(to(2, 0, 0),)), "shard 0 of 2 has no pair with shard 2"),
        (books(0, received_from=(to(1, -1, 0),)), "it has cut -1 with shard 1"),
    ],
)
def test_what_no_shard_can_have_written_is_refused_and_counts_for_nothing(record: Audit, says: str) -> None:
    auditor = Auditor()
    with pytest.raises(AuditRefused, match=says):
        auditor.take(record)
    assert auditor.verdict() == Verdict()


def test_drift_is_what_is_missing() -> None:
    assert drift(books(0)) == 0
    assert drift(replace(books(0), virtual=-3)) == 3
