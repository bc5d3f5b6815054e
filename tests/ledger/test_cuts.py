"""Messages between shards, and their times: none where nothing happens, and no cash is lost while it waits."""

from __future__ import annotations

import inspect
import random
import textwrap
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from opicflow.pipelines.ledger import (
    START,
    Certified,
    EntryRefused,
    History,
    Interpolation,
    ItemWriter,
    Ledger,
    LedgerBroken,
    LedgerConfig,
    LogEntry,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.encoding import decode_entry, encode_entry
from opicflow.pipelines.ledger.shards import cuts
from opicflow.pipelines.ledger.shards.cuts import ITEMS_PER_MESSAGE, Cuts
from opicflow.schemas.shards import ShardRanges
from support.thorough import thorough

SHARDS = 4
SECONDS = 5
HISTORIES = pytest.mark.parametrize("history", [Interpolation(), Certified()], ids=["interpolation", "certified"])


@dataclass
class Web:
    """Ledgers of several shards; a message arrives before the next tick."""

    config: LedgerConfig
    seed: int = 1
    sent: list[tuple[int, int, TransfersEntry]] = field(default_factory=list)
    """Of the last second: sender, receiver, message."""
    second: int = 0

    def __post_init__(self) -> None:
        self.ranges = ShardRanges.equal(SHARDS)
        self.ledgers = [Ledger(self.config, shard, self.ranges) for shard in range(SHARDS)]
        self.ends = [START] * SHARDS
        self.chance = random.Random(self.seed)
        self.ids = [self.chance.getrandbits(64) for _ in range(400)]

    def visit(self, page: int, links: list[int]) -> None:
        shard = self.owner(page)
        entry = ItemWriter(self.ends[shard]).visit(page, links).entry(start=self.ends[shard])
        self.ends[shard] = entry.end
        self._apply(shard, entry)

    def owner(self, page: int) -> int:
        return int(self.ranges.of(np.array([page], np.uint64))[0])

    def page_of(self, shard: int) -> int:
        return next(page for page in self.ids if self.owner(page) == shard)

    def crawl(self, visits: int) -> None:
        for _ in range(visits):
            self.visit(self.chance.choice(self.ids), self.chance.sample(self.ids, 5))

    def pass_seconds(self, seconds: int) -> int:
        """Let time pass. Returns how many messages were sent."""
        count = 0
        for _ in range(seconds):
            self.second += 1
            for shard in range(SHARDS):
                self._apply(shard, TickEntry(self.second))
            sent, self.sent = self.sent, []
            count += len(sent)
            for _, receiver, message in sent:
                self.ledgers[receiver].apply(decode_entry(encode_entry(message)))
        return count

    def _apply(self, shard: int, entry: LogEntry) -> None:
        self.sent += [(shard, other, message) for other, message in self.ledgers[shard].apply(entry).sealed]


def quiet_web(history: History) -> Web:
    """Return a crawled web in which nothing happens any more."""
    web = Web(LedgerConfig(history=history, cut_seconds=SECONDS))
    web.crawl(600)
    web.pass_seconds(300)
    return web


@HISTORIES
def test_shards_to_which_nothing_happens_send_nothing_for_a_day(history: History) -> None:
    web = quiet_web(history)
    assert web.pass_seconds(100) == 0
    web.second += 86_400
    assert web.pass_seconds(120) <= SHARDS * (SHARDS - 1), "a sweep may find other rates"
    balances = [ledger.audit() for ledger in web.ledgers]
    assert all(balance.drift == 0 for balance in balances)
    assert sum(balance.sent - balance.received for balance in balances) == 0


@HISTORIES
def test_a_visit_sends_to_the_shards_of_its_links_alone_and_these_answer(history: History) -> None:
    web = quiet_web(history)
    page, link = web.page_of(0), web.page_of(2)
    web.visit(page, [link])
    pairs: Counter[tuple[int, int]] = Counter()
    for _ in range(2 * SECONDS):
        web.second += 1
        for shard in range(SHARDS):
            web._apply(shard, TickEntry(web.second))
        for sender, receiver, message in web.sent:
            pairs[sender, receiver] += 1
            web.ledgers[receiver].apply(message)
        web.sent = []
    assert pairs[0, 2] >= 1 and pairs[2, 0] >= 1
    assert web.ledgers[0]._peers.by_shard[2].gossip.second > web.second - 2 * SECONDS  # type: ignore[union-attr]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Visits are few for the web, as in one with very many pages: they make no whole cut."""
    monkeypatch.setattr(cuts, "_MOST_WAITING", 0)


@pytest.mark.usefixtures("large")
def test_amounts_wait_until_they_are_worth_a_message() -> None:
    web = Web(LedgerConfig(cut_seconds=SECONDS, cut_visits_per_1000_pages=1000))
    web.crawl(100)
    web.pass_seconds(3)
    pages, links = ([page for page in web.ids if web.owner(page) == shard] for shard in (0, 2))
    assert len(links) > ITEMS_PER_MESSAGE + 3
    waited = [0]
    for second in range(50):
        many = second == 48
        web.visit(pages[second], links if many else links[:3])
        web.second += 1
        web._apply(0, TickEntry(web.second))
        has_sent = any(receiver == 2 for _, receiver, _ in web.sent)
        assert has_sent or not many, "many amounts are sent at once"
        waited = [*waited, 0] if has_sent else [*waited[:-1], waited[-1] + 1]
        web.sent = []
    assert max(waited) == SECONDS - 1 and waited[1:-2].count(SECONDS - 1) >= len(waited) - 5, waited


@HISTORIES
def test_no_message_is_numbered_twice_or_left_out(history: History) -> None:
    web = Web(LedgerConfig(history=history, cut_seconds=SECONDS))
    numbers: dict[tuple[int, int], list[int]] = {}
    for _ in range(60):
        web.crawl(web.chance.choice([0, 1, 20]))
        for sender, receiver, message in web.sent:
            numbers.setdefault((sender, receiver), []).append(message.cut)
        web.second += 1
        for shard in range(SHARDS):
            before = len(web.sent)
            web._apply(shard, TickEntry(web.second))
            for sender, receiver, message in web.sent[before:]:
                numbers.setdefault((sender, receiver), []).append(message.cut)
        for _, receiver, message in web.sent:
            web.ledgers[receiver].apply(message)
        web.sent = []
    assert len(numbers) == SHARDS * (SHARDS - 1)
    for of_pair in numbers.values():
        assert of_pair == list(range(len(of_pair)))
    assert len({len(of_pair) for of_pair in numbers.values()}) > 1, "not all cuts are whole"


def trickle(history: History) -> None:
    """Crawl slowly, so that amounts of some shards are sent and those of others wait; no cash may be lost."""
    web = Web(LedgerConfig(history=history, cut_seconds=SECONDS, cut_visits_per_1000_pages=1000))
    web.crawl(300)
    for _ in range(200):
        if web.chance.random() < 0.5:
            web.visit(web.chance.choice(web.ids), [web.chance.choice(web.ids)])
        web.pass_seconds(1)
    web.pass_seconds(600)
    balances = [ledger.audit() for ledger in web.ledgers]
    assert all(balance.drift == 0 for balance in balances)
    assert sum(balance.sent - balance.received for balance in balances) == 0


@pytest.mark.slow_but_first
@pytest.mark.usefixtures("large")
@HISTORIES
def test_no_cash_is_lost_while_it_waits(history: History) -> None:
    trickle(history)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("old", "new"),
    [("counts.outbox = left", "counts.outbox = 0"), ("is_left[here] = False", "pass")],
    ids=["amounts that wait are lost with those that are sent", "amounts are sent and wait on"],
)
@pytest.mark.usefixtures("large")
def test_the_law_finds_a_mutation(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = textwrap.dedent(inspect.getsource(Cuts._seal))
    assert source.count(old) == 1, "the method has changed: change the mutation so that it breaks the same law"
    space: dict[str, object] = {}
    exec("from __future__ import annotations\n" + source.replace(old, new), Cuts._seal.__globals__, space)
    monkeypatch.setattr(Cuts, "_seal", space["_seal"])
    with pytest.raises((AssertionError, EntryRefused, LedgerBroken)):
        trickle(Interpolation())


def test_without_the_setting_every_tick_sends_to_every_shard() -> None:
    web = Web(LedgerConfig())
    web.crawl(100)
    web.pass_seconds(2)
    assert web.pass_seconds(1) == SHARDS * (SHARDS - 1)


@pytest.mark.thorough
@HISTORIES
def test_a_ledger_is_restored_between_any_two_messages(history: History) -> None:
    config = LedgerConfig(history=history, cut_seconds=SECONDS)
    whole, parts = Web(config), Web(config)
    for step in range(thorough(20, 80)):
        for web in (whole, parts):
            web.crawl(step % 7)
            web.pass_seconds(1)
        parts.ledgers = [Ledger.restore(chunk.data for chunk in one.snapshot()) for one in parts.ledgers]
    assert [one.snapshot() for one in whole.ledgers] == [one.snapshot() for one in parts.ledgers]
