"""A visit has one vote, that of the page that answered: a hop passes on what it receives, and has no vote."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import (
    Certified,
    DomainLimits,
    Interpolation,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogPosition,
    Outcome,
    PolicyEntry,
    RefreshConfig,
    TickEntry,
)
from opicflow.pipelines.ledger.config import History
from opicflow.schemas.arrays import Ids

DAY, T0 = 86_400, 1_700_000_000
HISTORIES: dict[str, History] = {"certified": Certified(), "interpolation": Interpolation()}
BOTH = pytest.mark.parametrize("history", HISTORIES)
ANSWERS = (Outcome.FETCHED, Outcome.ALIASED)


class HopLog:
    """A ledger and its log. Fetches become the rows that the router makes of an event."""

    def __init__(self, config: LedgerConfig) -> None:
        self.ledger = Ledger(config)
        self._writer = ItemWriter()

    def visit(self, page: int, links: list[int] | None, outcome: Outcome = Outcome.FETCHED, second: int = 0) -> HopLog:
        self._writer.visit(page, links, outcome, 1000 * second, url=b"http://site%d.example/%d" % (page % 97, page))
        return self

    def fetch(self, page: int, links: list[int], hops: list[int], second: int) -> None:
        """Add a fetch that these hops led to."""
        for hop, target in pairwise([*hops, page]):
            self.visit(hop, [target], Outcome.REDIRECTED, second)
        self.visit(page, links, second=second)

    def apply(self) -> Ledger:
        """Apply the rows that were added since, and return the ledger, whose books balance."""
        self.ledger.apply(self._writer.entry(start=self.ledger.mark("crawl")))
        self._writer = ItemWriter(self._writer.next_position)
        assert self.ledger.audit().drift == 0
        return self.ledger


def exact(links: dict[int, list[int]], hops: set[int]) -> dict[int, float]:
    """Return the ranks of a web whose teleport leaves out hops."""
    pages = sorted({*links, *(to for targets in links.values() for to in targets)})
    row = {page: number for number, page in enumerate(pages)}
    pays = np.zeros((len(pages), len(pages)))
    for page, targets in links.items():
        for to in targets:
            pays[row[to], row[page]] += 1 / len(targets)
    ranks = np.linalg.solve(np.eye(len(pages)) - 0.85 * pays, np.array([page not in hops for page in pages], float))
    return dict(zip(pages, (ranks / ranks.sum()).tolist(), strict=True))


def settled(ledger: Ledger) -> dict[int, float]:
    found = ledger.settle(1e-9)
    return dict(zip(found.pages.tolist(), found.importance.tolist(), strict=True))


def ids(pages: list[int]) -> Ids:
    return np.array(pages, np.uint64)


@BOTH
def test_ranks_are_those_of_a_teleport_that_leaves_out_hops(history: str) -> None:
    log = HopLog(LedgerConfig(HISTORIES[history], remember_links=True))
    chance = random.Random(1)
    links: dict[int, list[int]] = {}
    for page in range(1, 31):
        links[page] = [to for to in chance.sample(range(1, 50), 4) if to != page]
        log.visit(page, links[page])
    for hop in range(31, 45):
        links[hop] = [chance.choice([page for page in range(1, 50) if page != hop])]
        log.visit(hop, links[hop], Outcome.REDIRECTED)
    ledger = log.apply()
    assert settled(ledger) == pytest.approx(exact(links, set(range(31, 45))), abs=1e-7)
    assert ledger.hops(ids([*range(60)])).tolist() == [31 <= page < 45 for page in range(60)]
    assert ledger.pages_read == 44


@BOTH
@pytest.mark.parametrize("outcome", [one for one in Outcome if one != Outcome.NONE])
def test_a_page_that_answers_itself_has_its_vote_again(history: str, outcome: Outcome) -> None:
    log = HopLog(LedgerConfig(HISTORIES[history], remember_links=True))
    links = {1: [2, 3], 2: [1], 3: [1]}
    log.visit(1, [2, 3], second=T0).visit(2, [1], second=T0).visit(3, [1], Outcome.REDIRECTED, T0)
    assert settled(log.apply()) == pytest.approx(exact(links, {3}), abs=1e-7)
    brings_links = outcome in (*ANSWERS, Outcome.REDIRECTED)
    log.visit(3, [2] if brings_links else None, outcome, T0 + DAY)
    links[3] = [2] if brings_links else [] if outcome == Outcome.GONE else [1]
    hops = set() if outcome in (*ANSWERS, Outcome.GONE) else {3}
    assert settled(log.apply()) == pytest.approx(exact(links, hops), abs=1e-7)
    log.visit(3, [1], Outcome.REDIRECTED, T0 + 2 * DAY).visit(3, [2], second=T0 + DAY // 2)
    links[3] = [1]
    ledger = log.apply()
    assert settled(ledger) == pytest.approx(exact(links, {3}), abs=1e-7), "the newest links hold, not the latest ones"
    assert ledger.hops(ids([3])).all()


@BOTH
def test_a_web_of_hops_alone_has_no_importance_and_balances(history: str) -> None:
    log = HopLog(LedgerConfig(HISTORIES[history], remember_links=True, class_weights=(0, 16)))
    for day in range(3):
        log.visit(1, [2], Outcome.REDIRECTED, T0 + day * DAY).visit(2, [1], Outcome.REDIRECTED, T0 + day * DAY)
        log.apply().apply(TickEntry(T0 + day * DAY + 60))
    assert log.ledger.estimate_all().importance.tolist() == [0.0, 0.0] or history == "interpolation"
    assert log.visit(2, [1], second=T0 + 9 * DAY).apply().settle().importance.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("limits", [DomainLimits(), DomainLimits(most_share=0.2)])
def test_bases_follow_rules_classes_and_removals(limits: DomainLimits) -> None:
    """Rules change, a hop moves to another category, is dropped, and comes back."""
    config = LedgerConfig(Certified(), class_weights=(16,) * 4, link_bonus_per_1024=(0, 0), domains=limits)
    log = HopLog(config)
    for page in range(1, 20):
        log.visit(page, [page + 1, 30 + page])
    for hop in range(31, 36):
        log.visit(hop, [1], Outcome.REDIRECTED)
    ledger = log.apply()
    before = ledger.estimate(ids([31])).importance[0]
    rules = ({"damping": 0.7}, {"class_weights": (4, 50, 16, 32)}, {"drop": (31, 1)}, {"damping": 0.85})
    for number, rule in enumerate(rules):
        start, end = LogPosition(number, 0), LogPosition(number + 1, 0)
        ledger.apply(PolicyEntry("people", start, end, **rule))  # type: ignore[arg-type]
        ledger.apply(TickEntry(T0 + number * DAY))
        assert ledger.audit().drift == 0
    assert not ledger.hops(ids([31])).any() and ledger.hops(ids([32])).all() and before > 0
    log._writer.visit(32, [2], Outcome.REDIRECTED, category=1)
    log.visit(31, [2], Outcome.REDIRECTED)
    assert log.apply().hops(ids([31, 32])).all()
    restored = Ledger.restore(chunk.data for chunk in log.ledger.snapshot())
    assert restored.audit().drift == 0 and restored.hops(ids([31, 32])).all()


@BOTH
@pytest.mark.parametrize("hops", [1, 2, 5])
def test_an_old_address_passes_on_all_that_links_to_it_bring(history: str, hops: int) -> None:
    """The first hop has what a page with the same links has, without the vote; each passes it on as a page does."""
    new, direct, unlinked = 500, 501, 502
    chain = list(range(400, 400 + hops))
    log = HopLog(LedgerConfig(HISTORIES[history], remember_links=True))
    for page in range(1, 100):
        log.visit(page, [1 + page * 7 % 99, chain[0], direct], second=T0 + page)
    log.fetch(new, [1], chain, T0 + 200)
    log.visit(direct, [1], second=T0 + 300).visit(unlinked, [1], second=T0 + 400)
    found = settled(log.apply())
    vote = found[unlinked]
    assert found[chain[0]] == pytest.approx(found[direct] - vote, rel=1e-6)
    for hop, target in zip(chain, [*chain[1:], new], strict=True):
        assert found[target] == pytest.approx(0.85 * found[hop] + vote * (target == new), rel=1e-6)


@BOTH
def test_a_hop_is_fetched_again_at_the_longest_interval_if_anything_leads_there(history: str) -> None:
    refresh = RefreshConfig(bandwidth_per_day=50.0, longest_interval_days=90.0)
    log = HopLog(LedgerConfig(HISTORIES[history], remember_links=True, refresh=refresh))
    for page in range(1, 100):
        log.visit(page, [1 + page * 7 % 99, 400], second=T0 + page)
    log.visit(400, [1], Outcome.REDIRECTED, T0 + 200).visit(401, [1], Outcome.REDIRECTED, T0 + 200)
    log.apply().apply(TickEntry(T0 + DAY))
    plan = log.ledger.plan(0, 9.0)
    found = dict(zip(plan.survey.pages.tolist(), plan.schedule.intervals.tolist(), strict=True))
    assert found.pop(400) == pytest.approx(90 * DAY) and found.pop(401) == np.inf
    assert max(found.values()) < 30 * DAY


HONEST, OWN, ROUNDS, DAYS = 2_000, 10, 6, 20


@dataclass
class Manipulation:
    """Ten pages that link to each other in a ring, each after so many hops, on a web of honest pages."""

    config: LedgerConfig
    hops: int
    are_fresh: bool

    def __post_init__(self) -> None:
        self.web = power_law_web(HONEST, 1)
        self.log = HopLog(self.config)
        self.second = T0
        self.used = HONEST + OWN
        self.chains: dict[int, list[int]] = {}
        for page in range(HONEST, HONEST + OWN):
            self.renew(page)

    def renew(self, page: int) -> None:
        if self.are_fresh or page not in self.chains:
            self.chains[page] = list(range(self.used, self.used + self.hops))
            self.used += self.hops

    def fetch(self, page: int) -> None:
        """Fetch a page, or follow a hop to the page that it leads to."""
        self.second += 1
        if page < HONEST:
            targets = self.web.targets[self.web.starts[page] : self.web.starts[page + 1]]
            self.log.visit(page, targets.tolist(), second=self.second)
            return
        owners = [own for own, chain in self.chains.items() if page == own or page in chain]
        if not owners:  # a hop of an old chain
            self.log.visit(page, [HONEST], Outcome.REDIRECTED, self.second)
            return
        own, following = owners[0], HONEST + (owners[0] + 1 - HONEST) % OWN
        hops = self.chains[own] if page == own else self.chains[own][self.chains[own].index(page) :]
        self.renew(following)
        self.log.fetch(own, [[*self.chains[following], following][0]], hops, self.second)

    def crawl(self) -> tuple[float, float]:
        """Return the share of importance after rounds of two days, and of the orders of the days that follow."""
        for number in range(ROUNDS):
            self.second = T0 + 2 * number * DAY
            for page in range(HONEST + OWN):
                self.fetch(page)
            self.log.apply().apply(TickEntry(self.second + 60))
        known = self.log.ledger.estimate_all()
        share = float(known.importance[known.pages >= HONEST].sum())
        ordered = own = 0
        for day in range(DAYS):
            self.second = T0 + (2 * ROUNDS + day) * DAY
            self.log.ledger.apply(TickEntry(self.second))
            plan = self.log.ledger.plan(0, 9.0)
            pages = plan.survey.pages[plan.orders.rows].tolist()
            ordered, own = ordered + len(pages), own + sum(page >= HONEST for page in pages)
            for page in pages:
                self.fetch(page)
            self.log.apply()
        return share, own / ordered


@pytest.fixture(scope="module")
def honest_shares() -> dict[str, tuple[float, float]]:
    return {name: Manipulation(config_of(name), 0, False).crawl() for name in HISTORIES}


def config_of(history: str) -> LedgerConfig:
    refresh = RefreshConfig(bandwidth_per_day=400.0, discovery_share=0.0)
    return LedgerConfig(HISTORIES[history], remember_links=True, refresh=refresh)


@BOTH
@pytest.mark.parametrize(("hops", "are_fresh"), [(20, True), (60, False)], ids=["fresh hops", "the same hops"])
def test_redirects_bring_no_more_importance_and_orders_than_pages_without(
    history: str, hops: int, are_fresh: bool, honest_shares: dict[str, tuple[float, float]]
) -> None:
    """Ten fetches with 60 hops every two days once got a fifth of importance and of orders."""
    share, orders = Manipulation(config_of(history), hops, are_fresh).crawl()
    assert share <= 1.1 * honest_shares[history][0]
    assert orders <= 1.1 * honest_shares[history][1]
