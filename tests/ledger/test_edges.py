"""Arithmetic at its edges: clocks about to wrap, cash near its limit, extreme links, the smallest ledgers."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ledger import (
    UNITS_PER_PAGE,
    Absorbing,
    All,
    ConfigRefused,
    EntryRefused,
    Fixed,
    Gossip,
    History,
    ImprovedFixed,
    Interpolation,
    ItemWriter,
    Ledger,
    LedgerBroken,
    LedgerConfig,
    LogPosition,
    Outcome,
    PageLink,
    PaperInterpolation,
    TickEntry,
    TransfersEntry,
    Variable,
)
from opicflow.pipelines.ledger.config import MOST_CASH
from opicflow.pipelines.ledger.entries import transfer_digest
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from support.crawls import Crawl, Errors, exact_ranks
from support.thorough import crossed, thorough

TURN = 1 << 40
POLICIES: list[History] = [
    All(),
    Absorbing(),
    Interpolation(),
    PaperInterpolation(),
    Variable(5),
    Fixed(4),
    ImprovedFixed(4),
]


class Visitor:
    """Writes visits to a ledger one by one."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._next = ledger.mark("crawl")

    def visit(self, page: int, links: list[PageLink | int] | None, outcome: Outcome = Outcome.FETCHED) -> None:
        self._apply(ItemWriter(self._next).visit(page, links, outcome))

    def announce(self, *pages: int) -> None:
        writer = ItemWriter(self._next)
        for page in pages:
            writer.announcement(page)
        self._apply(writer)

    def _apply(self, writer: ItemWriter) -> None:
        start, self._next = self._next, writer.next_position
        self.ledger.apply(writer.entry("crawl", start))


def cash(ledger: Ledger, *pages: int) -> list[int]:
    return ledger.estimate(pages).cash.tolist()


# The turn clock


@pytest.mark.parametrize(
    ("history", "theta_start"), crossed(POLICIES, [2**64 - 1000, 2**64 - 3 * TURN, 2**63 - 3 * TURN, 2**63])
)
def test_a_clock_that_wraps_gives_the_same_importance_as_one_that_begins_at_0(
    history: History, theta_start: int
) -> None:
    web = power_law_web(200, seed=1, dangling=0.1)
    config = LedgerConfig(history=history, remember_links=True)
    here, there = Ledger(config), Ledger(config, theta_start=theta_start)
    for ledger in (here, there):
        crawl = Crawl(ledger, web, "greedy", seed=1, batches_per_crawl=20)
        for hour in range(6):
            crawl.run(1)
            ledger.apply(TickEntry(3600 * hour))
        ledger.audit()
    assert here.turns == there.turns > 6
    for field in vars(here.estimate_all()):
        mine, theirs = getattr(here.estimate_all(), field), getattr(there.estimate_all(), field)
        assert np.array_equal(mine, theirs), field


@pytest.mark.parametrize("theta_start", [2**64 - 1000, 2**63 - TURN])
def test_a_window_in_days_reaches_back_over_a_wrap(theta_start: int) -> None:
    web = power_law_web(200, seed=2)
    config = LedgerConfig(history=Interpolation(window_days=3))
    ledgers = Ledger(config), Ledger(config, theta_start=theta_start)
    for ledger in ledgers:
        crawl = Crawl(ledger, web, "cycle", seed=2, batches_per_crawl=20)
        for day in range(8):
            crawl.run(1)
            ledger.apply(TickEntry(86400 * day))
    here, there = (ledger.estimate_all().rate for ledger in ledgers)
    assert np.array_equal(here, there)


# Enormous cash


class Benefactor:
    """Shard 1 of 2, which sends shard 0 any cash at all, in messages that are in order."""

    def __init__(self, minted: int) -> None:
        self._cut, self._total, self._digest, self._minted = count(), 0, 0, minted

    def gift(self, *amounts: int, virtual: int = 0, pages: int = 1000) -> TransfersEntry:
        """Cash for pages 1, 2, 3 … of shard 0."""
        cut = next(self._cut)
        ids, units = np.arange(1, len(amounts) + 1, dtype=np.uint64), np.array(amounts, np.int64)
        self._total += sum(amounts) + virtual
        self._digest = (self._digest + transfer_digest(ids, units, virtual, cut)) % 2**64
        gossip = Gossip(advance=0, minted=self._minted, pages=pages, weighted_pages=16 * pages, rate_sum=float(pages))
        return TransfersEntry(1, cut, 0, True, ids, units, virtual, self._total, self._digest, gossip)


def first_of_two(config: LedgerConfig | None = None) -> tuple[Ledger, Visitor]:
    ledger = Ledger(config, shard=0, shards=2)
    return ledger, Visitor(ledger)


def test_cash_up_to_the_limit_is_counted_to_the_unit_and_one_unit_more_is_refused() -> None:
    ledger, crawl = first_of_two(LedgerConfig(history=All()))
    crawl.announce(1, 2, 3)
    benefactor = Benefactor(minted=MOST_CASH - 1000 * UNITS_PER_PAGE)
    ledger.apply(benefactor.gift(2**61, 2**60, 2**60 - 12345))
    assert cash(ledger, 1, 2, 3) == [
        2**61 + UNITS_PER_PAGE,
        2**60 + UNITS_PER_PAGE,
        2**60 - 12345 + UNITS_PER_PAGE,
    ]
    assert ledger.audit().received == MOST_CASH - 12345

    crawl.visit(1, [2, PageLink(3, 65535)])
    crawl.visit(3, [1, 2])
    crawl.visit(2, [1])
    ledger.audit()
    # Page 1 paid 2^61, page 3 its 2^60 and nearly all of the former, page 2 its own cash, half of page 1's, and more.
    assert 1.0 < ledger.turns < 2.0
    last = benefactor.gift(12344, virtual=1)
    ledger.apply(last)
    assert ledger.audit().received == MOST_CASH

    before = ledger.snapshot()
    with pytest.raises(EntryRefused, match="the cash received would overflow") as refused:
        ledger.apply(benefactor.gift(1))
    assert "\n" not in str(refused.value)
    assert ledger.snapshot() == before
    assert ledger.audit().drift == 0


@pytest.mark.parametrize("history", POLICIES, ids=lambda history: type(history).__name__)
def test_every_policy_bears_enormous_cash(history: History) -> None:
    ledger, crawl = first_of_two(LedgerConfig(history=history, link_bonus_per_1024=(1024,)))
    crawl.announce(1, 2, 3)
    ledger.apply(Benefactor(minted=MOST_CASH).gift(2**61, 2**61 - 2**40, 0, virtual=2**40))
    for page, links in [(1, [PageLink(2, 65535, 0), PageLink(3, 1, 0)]), (2, []), (3, [PageLink(1, 7, 0)])]:
        crawl.visit(page, links)
        ledger.audit()
    estimates = ledger.estimate([1, 2, 3])
    assert np.isfinite(estimates.rate).all() and (estimates.rate >= 0).all()


def test_the_clock_is_right_when_the_mint_is_at_its_limit() -> None:
    ledger, crawl = first_of_two()
    crawl.announce(1, 2, 3, 4)
    ledger.apply(Benefactor(minted=MOST_CASH).gift(MOST_CASH))
    crawl.announce(5, 6, 7, 8)  # the cash minted everywhere is now above 2^62
    crawl.visit(1, [2])
    assert ledger.turns == pytest.approx(1.0, abs=1e-6)


def test_a_clock_that_would_overflow_breaks_the_ledger_for_good() -> None:
    ledger, crawl = first_of_two(LedgerConfig(damping=1.0))
    crawl.announce(1, 2)
    ledger.apply(Benefactor(minted=MOST_CASH).gift(2**61))
    visits = 0
    with pytest.raises(LedgerBroken, match="clock of shard 0 would overflow 64 bits") as broken:
        for visits in range(10):
            crawl.visit(1 + visits % 2, [2 - visits % 2])
            ledger.audit()
    assert visits == 3  # 3 * 2^61 and what the pages were born with fit; four times do not
    assert "\n" not in str(broken.value)
    assert 3 * 2**61 <= ledger.clock < 2**63
    for refused in (
        lambda: crawl.visit(1, [2]),
        lambda: ledger.apply(TickEntry(1)),
        lambda: ledger.audit(),
        lambda: ledger.snapshot(),
    ):
        with pytest.raises(LedgerBroken, match="restore its last snapshot"):
            refused()


# Extreme links


def shares_of(amount: int, weights: list[int]) -> list[int]:
    """Return the parts of an amount that links carry, by their weights (docs/reference/ledger.md, step 6)."""
    each, rest = divmod(amount, sum(weights))
    return [each * weight + rest * weight // sum(weights) for weight in weights]


@pytest.mark.parametrize("weights", [[65535, 1], [1, 65535, 0, 65535], [65535] * 40, [3, 0, 0], [7, 11, 13]])
def test_links_of_any_weight_carry_their_share_to_the_unit(weights: list[int]) -> None:
    ledger = Ledger(LedgerConfig(damping=1.0))
    crawl = Visitor(ledger)
    pages = range(2, 2 + len(weights))
    crawl.announce(1, *pages)
    crawl.visit(1, [PageLink(page, weight) for page, weight in zip(pages, weights, strict=True)])
    shares = shares_of(UNITS_PER_PAGE, weights)
    assert cash(ledger, *pages) == [UNITS_PER_PAGE + share for share in shares]
    assert ledger.audit().virtual == UNITS_PER_PAGE - sum(shares) < len(weights)


def test_links_of_weight_0_only_leave_a_page_dangling() -> None:
    ledger = Ledger(LedgerConfig(damping=1.0))
    crawl = Visitor(ledger)
    crawl.announce(1)
    crawl.visit(1, [PageLink(2, 0), PageLink(3, 0), 1])
    assert not ledger.estimate([2, 3]).known.any()
    assert ledger.transfers == 0
    assert ledger.audit().uncollected == UNITS_PER_PAGE


def test_duplicate_links_add_up_to_their_cap_at_the_position_of_the_first() -> None:
    ledger = Ledger(LedgerConfig(damping=1.0, remember_links=True))
    crawl = Visitor(ledger)
    crawl.announce(1, 2, 3)
    links = [PageLink(2, 40_000), PageLink(3, 30_000), *[PageLink(2, 1000)] * 100, PageLink(3, 5), PageLink(2, 65535)]
    for outcome in (Outcome.FETCHED, Outcome.UNCHANGED):
        had = cash(ledger, 1, 2, 3)
        crawl.visit(1, links if outcome == Outcome.FETCHED else None, outcome)
        shares = shares_of(had[0], [65535, 30_005])
        assert cash(ledger, 2, 3) == [had[1] + shares[0], had[2] + shares[1]]
        crawl.visit(3, [1])  # so that there is something to pay the second time
    assert ledger.transfers == 2 * (2 + 1)


@pytest.mark.thorough
@pytest.mark.parametrize("remember_links", [False, True])
def test_a_page_of_very_many_links_pays_them_all(remember_links: bool) -> None:
    leaves = thorough(10_000, 100_000)
    ends = np.arange(1, leaves + 1)
    star = Graph.from_links(
        leaves + 1,
        np.concatenate((np.zeros(leaves, int), ends)),
        np.concatenate((ends, np.zeros(leaves, int))),
    )
    ledger = Ledger(LedgerConfig(history=All(), remember_links=remember_links))
    crawl = Crawl(ledger, star, "cycle", seed=3, batches_per_crawl=16).run(2)
    ledger.audit()
    assert ledger.transfers >= leaves
    exact = pagerank(star, tolerance=1e-9).values
    # Visited twice only, the hub is not yet near its limit, 46 % of all importance.
    assert crawl.ledger.importance(crawl.ids)[0] == pytest.approx(exact[0], rel=0.25)  # measured 52 %

    # Visited many times in a row it has next to nothing to pay: shares are 0, and nothing is lost.
    visitor = Visitor(ledger)
    links = crawl.ids[1:].tolist()
    for _ in range(3):
        visitor.visit(int(crawl.ids[0]), links)
        assert 0 <= ledger.estimate(crawl.ids[:1]).cash[0] < leaves
    before = ledger.estimate(crawl.ids[1:]).rate
    visitor.visit(int(crawl.ids[0]), links)
    ledger.audit()
    assert ledger.estimate(crawl.ids[1:]).rate == pytest.approx(before, rel=0.01)


@pytest.mark.parametrize("history", POLICIES, ids=lambda history: type(history).__name__)
def test_balances_smaller_than_the_number_of_links_lose_nothing(history: History) -> None:
    ledger = Ledger(LedgerConfig(history=history))
    crawl = Visitor(ledger)
    crawl.announce(1)
    for visits in range(1, 60):
        crawl.visit(1, list(range(2, 502)))
        balance = ledger.audit()
        assert balance.minted == 501 * UNITS_PER_PAGE
        estimates = ledger.estimate_all()
        assert np.isfinite(estimates.rate).all() and (estimates.rate >= 0).all()
        assert estimates.visits[0] == visits
    # All it gets are dividends of its own small edge, fewer units than it has links.
    assert estimates.cash[0] < 500
    crawl.visit(2, [1])
    assert cash(ledger, 1)[0] > UNITS_PER_PAGE // 2


def test_a_page_without_any_cash_can_be_visited() -> None:
    ledger = Ledger(LedgerConfig(damping=1.0))
    crawl = Visitor(ledger)
    crawl.announce(1, 2)
    crawl.visit(2, [1])
    crawl.visit(1, [2])
    clock = ledger.clock
    for _ in range(5):
        assert cash(ledger, 1) == [0]
        crawl.visit(1, [2])
    assert ledger.clock == clock
    assert cash(ledger, 1, 2) == [0, 2 * UNITS_PER_PAGE]
    ledger.audit()


@pytest.mark.parametrize("cycles", [1, 40])
def test_damping_0_pays_all_pages_alike_and_1_has_no_small_edge(cycles: int) -> None:
    web = power_law_web(200, seed=4)
    at_0, at_1 = Ledger(LedgerConfig(history=All(), damping=0)), Ledger(LedgerConfig(history=All(), damping=1))
    flat = Crawl(at_0, web, "cycle", seed=4).run(cycles)
    assert at_0.audit().virtual >= 0
    assert flat.ledger.importance(flat.ids) == pytest.approx(1 / 200, rel=2 / cycles)
    slides = Crawl(at_1, web, "cycle", seed=4).run(cycles)
    balance = at_1.audit()
    assert balance.virtual + balance.uncollected < web.links * cycles  # remainders only
    if cycles > 1:
        errors = slides.errors(exact_ranks(web, 1.0))
        assert errors.everywhere < 2, errors  # measured 1.29


# The smallest ledgers, and the most categories


@pytest.mark.parametrize("history", POLICIES, ids=lambda history: type(history).__name__)
def test_an_empty_ledger_answers(history: History) -> None:
    ledger = Ledger(LedgerConfig(history=history, remember_links=True))
    ledger.apply(TickEntry(1))
    ledger.apply(TickEntry(100_000))
    again = Ledger.restore(chunk.data for chunk in ledger.snapshot())
    for each in (ledger, again):
        assert each.audit().minted == each.pages == each.visits == each.clock == each.turns == 0
        assert each.rate_sum() == 0
        for estimates in (each.estimate_all(), each.estimate([]), each.top(0), each.top(5)):
            assert all(len(column) == 0 for column in vars(estimates).values())
        assert len(each.waiting_cash()) == 0
        assert each.waiting_cash(np.array([7], np.uint64)).tolist() == [-1]
        assert set(each.idle_cash().values()) == {0}
        assert each.url(7) is None
        assert len(each.settle().pages) == 0
    assert again.snapshot() == ledger.snapshot()


@pytest.mark.parametrize("history", POLICIES, ids=lambda history: type(history).__name__)
@pytest.mark.parametrize("links", [[1], [], None])
def test_a_single_page_has_all_importance(history: History, links: list[int] | None) -> None:
    ledger = Ledger(LedgerConfig(history=history))
    crawl = Visitor(ledger)
    crawl.announce(1)
    for _ in range(5):
        crawl.visit(1, links)
        ledger.audit()
    assert ledger.estimate([1]).importance == pytest.approx(1)
    assert ledger.top(5).pages.tolist() == [1]


@pytest.mark.slow
def test_as_many_categories_as_there_can_be_each_draw_their_weight() -> None:
    web = power_law_web(508, seed=5)
    categories = (np.arange(508) % 127).astype(np.uint8)
    weights = tuple(8 + category for category in range(127) for _ in ("unread", "read"))
    config = LedgerConfig(history=All(), class_weights=weights, link_bonus_per_1024=(0,) * 127)
    ledger = Ledger(config)
    crawl = Crawl(ledger, web, "greedy", seed=5, categories=categories).run(20)
    ledger.audit()
    errors = Errors.of(crawl.ledger.importance(crawl.ids), exact_ranks(web, personalisation=8 + categories.astype(int)))
    assert errors.everywhere < 0.9, errors  # measured 0.50
    again = Ledger.restore(chunk.data for chunk in ledger.snapshot())
    assert np.array_equal(again.estimate_all().rate, ledger.estimate_all().rate)
    with pytest.raises(ConfigRefused, match="1 to 127 categories"):
        LedgerConfig(class_weights=(16,) * 256, link_bonus_per_1024=(0,) * 128)
    with pytest.raises(EntryRefused, match="a category is not below 127"):
        start = ledger.mark("other")
        ledger.apply(ItemWriter(start).visit(1, [], category=127).entry("other", start))
    assert LogPosition(0, 0) == start


def mixed(value: int) -> int:
    """SplitMix64's finaliser, letter by letter."""
    x = (value + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, MOST_CASH))),
    st.integers(0, MOST_CASH),
    st.integers(0, 2**62),
)
def test_the_digest_of_transfers_is_a_sum_of_hashes(sent: list[tuple[int, int]], virtual: int, cut: int) -> None:
    """It is a part of the log: another sum would make every log that there is unreadable."""
    salt = mixed(cut + 1)
    expected = sum(mixed(mixed(page ^ salt) + units) for page, units in sent)
    expected += mixed(mixed(salt) + virtual) if virtual else 0
    pages, amounts = np.array([page for page, _ in sent], np.uint64), np.array([units for _, units in sent], np.int64)
    assert transfer_digest(pages, amounts, virtual, cut) == expected % 2**64
    assert transfer_digest(pages[::-1], amounts[::-1], virtual, cut) == expected % 2**64
