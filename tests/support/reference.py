"""The rules of docs/reference/ledger.md once more, slow and obvious: the reference that the fast ledger is held to.

Dicts, lists, Python's whole numbers and floats; one object a page; nothing cached. Where the rules say single
precision, numpy rounds. It takes the same entries, but expects each row once: marks, audits and refusals are
tested on the fast ledger itself. Sweeps leave no trace here, for they move no cash: a `Sealed` holds everything of
a message but the sum of rates and the shares. The fast ledger reports whether these have changed (`told`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ledger import (
    NO_CATEGORY,
    UNITS_PER_PAGE,
    Absorbing,
    All,
    CrawlEntry,
    Fixed,
    History,
    ImprovedFixed,
    Interpolation,
    Kind,
    LedgerConfig,
    Outcome,
    PageLink,
    PaperInterpolation,
    PolicyEntry,
    TickEntry,
    TransfersEntry,
    Variable,
)
from opicflow.schemas.shards import ShardRanges

TURN = 1 << 40
MOST_LINK_WEIGHT = 65_535
MOST_MEASURES = 16
MANY_AMOUNTS = 64
"""So many amounts for a shard are sent at a tick."""
MOST_WAITING = 50
"""After visits of one page in so many, a tick sends what waits to all."""
SECONDS_PER_DAY = 86_400


def single(value: float) -> float:
    """A value as single precision keeps it."""
    return float(np.float32(value))


def per(amount: float, turns: float) -> float:
    """A rate. In turns, x/0 = 0."""
    return amount / turns if turns > 0 else 0.0


# -- histories -----------------------------------------------------------------------------------------------------


class Now(NamedTuple):
    """The moment of a spending or a reading: the turn clock since the start, and the window, both in turns."""

    theta: float
    window: float


class Kept:
    """The history of a page. Cash is in pages' worth, `gap` is a = θ - θ_i, all times are in turns."""

    def begin(self, rate: float, birth: float) -> None:
        """The default history: a pseudo-measure over the turn before the birth."""

    def spend(self, earned: int, amount: int, gap: float, now: Now) -> None:
        """The page spends `amount` units, `earned` without its opening balance."""

    def rate(self, earned: int, amount: int, gap: float, spent: bool, now: Now) -> float:
        """The rate now, with that much unread cash; `spent` if the page has spent before."""
        raise NotImplementedError


@dataclass
class KeptTotal(Kept):
    """All: the sum of earned cash. Absorbing: of all amounts, opening balances included."""

    with_openings: bool
    total: int = 0

    def spend(self, earned: int, amount: int, gap: float, now: Now) -> None:
        self.total += amount if self.with_openings else earned

    def rate(self, earned: int, amount: int, gap: float, spent: bool, now: Now) -> float:
        return (self.total + (amount if self.with_openings else earned)) / UNITS_PER_PAGE


@dataclass
class KeptSpan(Kept):
    """Interpolation: a rate R over a span S, both in single precision."""

    min_gaps: float
    held: float = 0.0
    span: float = 0.0

    def begin(self, rate: float, birth: float) -> None:
        self.held, self.span = single(rate), 1.0

    def spend(self, earned: int, amount: int, gap: float, now: Now) -> None:
        held, span = self._with(earned, gap, now)
        self.held, self.span = single(held), single(span)

    def rate(self, earned: int, amount: int, gap: float, spent: bool, now: Now) -> float:
        x, _ = self._with(earned, gap, now)
        return (self.held + x) / 2 if spent else x

    def _with(self, earned: int, gap: float, now: Now) -> tuple[float, float]:
        window = min(now.window, max(now.theta / 2, 4.0))
        span = max(gap, min(self.span + gap, max(window, self.min_gaps * gap)))
        return self.held * (1 - per(gap, span)) + per(earned / UNITS_PER_PAGE, span), span


@dataclass
class KeptWindow(Kept):
    """The paper's interpolation: an estimate in one number of the cash earned in the last window."""

    held: float = 0.0
    window: float = 0.0

    def begin(self, rate: float, birth: float) -> None:
        self.held = self._with(rate, 1.0, self.window)

    def spend(self, earned: int, amount: int, gap: float, now: Now) -> None:
        self.held = self._with(earned / UNITS_PER_PAGE, gap, now.window)

    def rate(self, earned: int, amount: int, gap: float, spent: bool, now: Now) -> float:
        return self._with(earned / UNITS_PER_PAGE, gap, now.window) / now.window

    def _with(self, cash: float, gap: float, window: float) -> float:
        return self.held * (window - gap) / window + cash if gap < window else per(cash * window, gap)


class Measure(NamedTuple):
    """The cash that a page earned at one spending, in single precision, and the turn clock then."""

    cash: float
    theta: float


@dataclass
class KeptMeasures(Kept):
    """Fixed, improved fixed and variable windows: measures, oldest first, and A, the spending before the oldest."""

    most: int
    in_window: bool
    fewest: int
    before: float
    measures: list[Measure] = field(default_factory=list)

    def begin(self, rate: float, birth: float) -> None:
        self.before = birth - 1
        self.measures = [Measure(single(rate), birth)]

    def spend(self, earned: int, amount: int, gap: float, now: Now) -> None:
        if self.in_window:
            self.before, self.measures = self._young(now, coming=1)
            if len(self.measures) == MOST_MEASURES:
                self._merge()
        self.measures.append(Measure(single(earned / UNITS_PER_PAGE), now.theta))
        if len(self.measures) > self.most:
            self.before = self.measures.pop(0).theta

    def rate(self, earned: int, amount: int, gap: float, spent: bool, now: Now) -> float:
        before, measures = self._young(now, coming=0) if self.in_window else (self.before, self.measures)
        cash = earned / UNITS_PER_PAGE
        if not measures:
            return per(cash, gap)
        return per(sum((m.cash for m in measures), start=cash), now.theta - before)

    def _young(self, now: Now, coming: int) -> tuple[float, list[Measure]]:
        """A and the measures no older than the window, or the fewest that must stay, `coming` ones included."""
        before, measures = self.before, list(self.measures)
        while measures and len(measures) + coming > self.fewest and now.theta - measures[0].theta > now.window:
            before = measures.pop(0).theta
        return before, measures

    def _merge(self) -> None:
        """The two neighbours that together span the least become one."""
        begins = [self.before, *(m.theta for m in self.measures)]
        spans = [begins[i + 2] - begins[i] for i in range(len(self.measures) - 1)]
        i = spans.index(min(spans))
        older, later = self.measures[i : i + 2]
        self.measures[i : i + 2] = [Measure(single(older.cash + later.cash), later.theta)]


def new_history(policy: History, birth: float, window: float) -> Kept:
    """An empty history of a page born at this moment."""
    match policy:
        case All():
            return KeptTotal(with_openings=False)
        case Absorbing():
            return KeptTotal(with_openings=True)
        case Interpolation():
            return KeptSpan(policy.min_gaps)
        case PaperInterpolation():
            return KeptWindow(window=window)
        case Variable():
            return KeptMeasures(policy.measures, in_window=False, fewest=0, before=birth)
        case ImprovedFixed():
            return KeptMeasures(MOST_MEASURES, in_window=True, fewest=policy.min_measures, before=birth)
        case Fixed():
            return KeptMeasures(MOST_MEASURES, in_window=True, fewest=0, before=birth)
    raise AssertionError(policy)


# -- the ledger ----------------------------------------------------------------------------------------------------


@dataclass
class Page:
    """A page of this shard."""

    id: int
    category: int
    theta: int
    seen: int
    history: Kept
    read: bool = False
    hop: bool = False
    """Whether its links are those of a redirect: then it has no part of dividends."""
    cash: int = UNITS_PER_PAGE
    opening: int = UNITS_PER_PAGE
    joins_opening: bool = True
    """Whether the next transfer joins the opening balance."""
    spent: bool = False
    circulated: bool = True
    aside: int = 0
    links: list[PageLink] | None = None
    """Its last known links; None while they are not known."""
    visits: int = 0
    latest_ms: int = 0
    links_ms: int = 0
    """The time of the visit that its links are of, or that found it gone."""
    content_ms: int = 0
    """The time of the latest visit that brought content, redirected, or found it gone."""
    outcome: Outcome = Outcome.NONE
    gone_in_a_row: int = 0
    gone_since: int = 0
    """The second when it was first found gone in a row, or last there."""
    url: bytes = b""

    @property
    def class_(self) -> int:
        return 2 * self.category + self.read


class Sealed(NamedTuple):
    """The message of a cut to another shard."""

    to: int
    cut: int
    transfers: dict[int, int]
    virtual: int
    sent_total: int
    advance: int
    minted: int
    pages: int
    weighted_pages: int


@dataclass
class Peer:
    """Another shard: totals of the cash sent to it, and its latest gossip."""

    sent_total: int = 0
    cut: int = 0
    second: int = -1
    awaits_answer: bool = False
    has_gossip: bool = False
    advance: int = 0
    minted: int = 0
    weighted_pages: int = 0


class ReferenceLedger:
    """The ledger of one shard. `apply` returns the sealed transfers."""

    def __init__(self, config: LedgerConfig, shard: int = 0, shards: int | ShardRanges = 1) -> None:
        self.config = config
        self.ranges = shards if isinstance(shards, ShardRanges) else ShardRanges.equal(shards)
        self.ids = range(self.ranges.bounds(shard)[0], self.ranges.bounds(shard)[1] + 1)
        self.slots: list[Page | None] = []
        self.free: list[int] = []
        self.forgotten: set[int] = set()
        self.minted = self.virtual = self.absorbed = self.sent = self.received = 0
        self.clock = 0
        """G, in units."""
        self.theta = self.own_advance = self.carry = 0
        """The turn clock since the start in 2^-40 turn, and the part of this shard."""
        self.virtual_income = 0
        self.dividends = [0] * (2 * config.categories)
        self.class_weights = list(config.class_weights)
        self.link_bonus = list(config.link_bonus_per_1024)
        self.damping_q20 = round(config.damping * 2**20)
        self.window: float = getattr(config.history, "window_turns", 1.0)
        self.cursor = 0
        self.first_reads = 0
        """First reads less births; it fades with every visit. In 2^-16 page."""
        self.visits_since_cut = 0
        self.visits = self.duplicates = self.late = 0
        self.recent: set[tuple[int, int]] = set()
        self.recent_before: set[tuple[int, int]] = set()
        self.outbox: dict[int, int] = {}
        self.last_whole: tuple[int, tuple[object, ...]] | None = None
        """When the last cut went to all shards, and its news."""
        self.told: list[tuple[float, int]] = []
        """Sum of rates and shares, as in each message of the fast ledger for this entry, and as now."""
        self.peers = {s: Peer() for s in range(self.ranges.count) if s != shard}
        self.tick_second = -1
        self.days: list[tuple[int, int]] = []

    # -- reading ---------------------------------------------------------------------------------------------

    @property
    def pages(self) -> list[Page]:
        """All pages, in the order of their slots."""
        return [page for page in self.slots if page is not None]

    def page(self, page: int) -> Page | None:
        """The page with this id, if it is known."""
        return next((p for p in self.pages if p.id == page), None)

    def uncollected(self, page: Page) -> int:
        return 0 if page.hop else self.dividends[page.class_] - page.seen

    def cash(self, page: Page) -> int:
        """Cash with uncollected dividends."""
        return page.cash + self.uncollected(page)

    def waiting(self, page: Page) -> int:
        """The cash that the page received since its last visit."""
        return self.cash(page) + page.aside

    def rate(self, page: Page) -> float:
        amount = self.cash(page)
        earned = amount if page.spent else amount - page.opening
        return page.history.rate(earned, amount, self._gap(page), page.spent, self._now())

    @property
    def minted_everywhere(self) -> int:
        """The cash minted by all shards; a shard without gossip counts like this one."""
        return self.minted + sum(p.minted if p.has_gossip else self.minted for p in self.peers.values())

    @property
    def weighted_pages(self) -> int:
        return sum(self.class_weights[page.class_] for page in self.pages if not page.hop)

    # -- entries ---------------------------------------------------------------------------------------------------

    def apply(self, entry: CrawlEntry | PolicyEntry | TransfersEntry | TickEntry) -> list[Sealed]:
        """Apply an entry of the log. Returns what must now go to other shards."""
        match entry:
            case CrawlEntry():
                return [sealed for row in rows_of(entry) for sealed in self._row(row)]
            case TransfersEntry():
                self._transfers(entry)
                return []
            case PolicyEntry():
                self._rules(entry)
                return []
            case TickEntry():
                return self._tick(entry.second)

    def _row(self, row: CrawlRow) -> list[Sealed]:
        if row.kind != Kind.VISIT:
            self._introduce(row)
        elif self._visit(row):
            self.visits += 1
            self.visits_since_cut += 1
            self._round()
            least = min(64 * len(self.peers), len(self.pages) // 20)
            due = self.visits_since_cut * 1000 >= len(self.pages) * self.config.cut_visits_per_1000_pages
            if due and self.visits_since_cut >= least:
                return self._cut()
        return []

    def _introduce(self, row: CrawlRow) -> None:
        """A sighting or an announcement."""
        page = self.page(row.page)
        announced = row.kind == Kind.ANNOUNCEMENT
        if page is None:
            page = self._birth(row.page, row.category)
            if page is None:
                return
        elif row.category != NO_CATEGORY and (announced or page.class_ == 0):
            self._change_class(page, row.category, page.read)
        if announced:
            page.joins_opening = False
        page.url = page.url or row.url

    def _transfers(self, entry: TransfersEntry) -> None:
        for page_id, amount in zip(entry.pages.tolist(), entry.amounts.tolist(), strict=True):
            self.received += amount
            page = self.page(page_id) or self._birth(page_id)
            if page is None:
                self.virtual += amount
            else:
                self._credit(page, amount)
        self.peers[entry.source_shard].awaits_answer |= len(entry.pages) > 0 or entry.virtual > 0
        if entry.last and entry.gossip is not None:
            self.received += entry.virtual
            self.virtual += self._dividend(entry.virtual)
            peer = self.peers[entry.source_shard]
            self.theta += entry.gossip.advance - peer.advance
            peer.has_gossip = True
            peer.advance, peer.minted = entry.gossip.advance, entry.gossip.minted
            peer.weighted_pages = entry.gossip.weighted_pages

    def _rules(self, entry: PolicyEntry) -> None:
        if entry.damping is not None:
            self.damping_q20 = round(entry.damping * 2**20)
        if entry.class_weights is not None:
            self.class_weights = list(entry.class_weights)
        if entry.link_bonus_per_1024 is not None:
            self.link_bonus = list(entry.link_bonus_per_1024)
        for page_id in (*entry.drop, *entry.forget):
            page = self.page(page_id)
            if page is not None:
                self._remove(page)
        self.forgotten.update(entry.forget)

    def _tick(self, second: int) -> list[Sealed]:
        if second <= self.tick_second:
            return []
        self.tick_second = second
        self._set_window(second)
        for page in self.pages:
            often = page.gone_in_a_row >= self.config.refresh.gone_visits
            gone = page.latest_ms // 1000 - page.gone_since
            if often and page.gone_since and gone >= self.config.refresh.seconds_to_be_gone:
                self._remove(page)
        if not self.config.cut_seconds or not self.peers or self._is_whole_cut_due():
            return self._cut()
        return self._seal({shard: 0 for shard in self.peers if self._is_message_due(shard)})

    def _remove(self, page: Page) -> None:
        slot = self.slots.index(page)
        self.virtual += self.cash(page)
        self.slots[slot] = None
        self.free.append(slot)

    def _set_window(self, second: int) -> None:
        """A window in days, in turns: how far the clock came since then, between noted days as if it ran evenly.

        The first tick of each day is noted. A window from before the first note on is all the past, but 4 turns.
        """
        window_days = getattr(self.config.history, "window_days", None)
        if window_days is None:
            return
        if not self.days or second // SECONDS_PER_DAY > self.days[-1][0] // SECONDS_PER_DAY:
            self.days.append((second, self.theta))
        begins = second - window_days * SECONDS_PER_DAY
        if begins < self.days[0][0]:
            self.window = max(self.theta / TURN, 4.0)
            return
        points = [*self.days, (second, self.theta)]
        (second_0, theta_0), (second_1, theta_1) = next(
            (a, b) for a, b in itertools.pairwise(points) if a[0] <= begins < b[0]
        )
        theta_then = theta_0 + (begins - second_0) / (second_1 - second_0) * (theta_1 - theta_0)
        self.window = max((self.theta - theta_then) / TURN, 2.0**-20)

    # -- pages -----------------------------------------------------------------------------------------------------

    def _birth(self, page_id: int, category: int = NO_CATEGORY, from_parent: float = 0.0) -> Page | None:
        """A page enters with newly minted cash; None if it is never to be learnt again."""
        if page_id in self.forgotten:
            return None
        category = 0 if category == NO_CATEGORY else category
        history = self._new_history(self.theta, self._newcomer_rate() + from_parent)
        page = Page(page_id, category, self.theta, self.dividends[2 * category], history)
        if self.free:
            self.slots[self.free.pop()] = page
        else:
            self.slots.append(page)
        self.minted += UNITS_PER_PAGE
        self.first_reads -= 1 << 16
        return page

    def _new_history(self, theta: int, rate: float) -> Kept:
        history = new_history(self.config.history, theta / TURN, self.window)
        if self.config.newcomer_history:
            history.begin(rate, theta / TURN)
        return history

    def _newcomer_rate(self) -> float:
        return self.virtual_income / self.clock if self.clock else 1 - self.damping_q20 / 2**20

    def _change_class(self, page: Page, category: int, read: bool) -> None:
        self._collect(page)
        if read and not page.read:
            self.first_reads += 1 << 16
        page.category, page.read = category, read
        page.seen = self.dividends[page.class_]

    def _change_hop(self, page: Page, is_hop: bool) -> None:
        if page.hop == is_hop:
            return
        self._collect(page)
        page.hop = is_hop
        page.seen = self.dividends[page.class_]
        if is_hop and not page.spent:
            page.history = self._new_history(page.theta, 0.0)

    def _collect(self, page: Page) -> None:
        page.cash += self.uncollected(page)
        page.seen = self.dividends[page.class_]

    def _credit(self, page: Page, amount: int) -> None:
        page.cash += amount
        if page.joins_opening and amount > 0:
            page.joins_opening = False
            page.opening += amount

    def _gap(self, page: Page) -> float:
        return (self.theta - page.theta) / TURN

    def _now(self) -> Now:
        return Now(self.theta / TURN, self.window)

    # -- a visit ---------------------------------------------------------------------------------------------------

    def _visit(self, row: CrawlRow) -> bool:
        """Whether the visit counts: not a duplicate, nor of a page never to be learnt again."""
        page = self.page(row.page) or self._birth(row.page, row.category)
        if page is None:
            return False
        page.url = page.url or row.url
        is_late = False
        if row.time_ms != 0 and page.visits > 0:
            is_late = row.time_ms < page.latest_ms
            known = any((row.page, row.time_ms) in visits for visits in (self.recent, self.recent_before))
            if row.time_ms == page.latest_ms or (is_late and known):
                self.duplicates += 1
                return False
            self.late += is_late
        if row.time_ms != 0 and self.config.remembered_visits:
            self.recent.add((row.page, row.time_ms))
            if len(self.recent) == self.config.remembered_visits:
                self.recent, self.recent_before = set(), self.recent
        answered = row.outcome not in (Outcome.FAILED, Outcome.BLOCKED, Outcome.BUSY)
        is_gone = row.outcome == Outcome.GONE
        is_newer = page.content_ms < row.time_ms < 2**32 * 1000
        if (
            is_newer
            and page.gone_since < row.time_ms // 1000
            and ((is_gone and (page.gone_in_a_row == 0 or page.gone_since == 0)) or (answered and not is_gone))
        ):
            page.gone_since = row.time_ms // 1000
        if not is_late:
            page.gone_in_a_row = min(page.gone_in_a_row + 1, 255) if is_gone else 0
        brings_content = is_newer and answered and row.outcome != Outcome.UNCHANGED
        if brings_content:
            page.content_ms = row.time_ms
        category = page.category
        if row.category != NO_CATEGORY and (not is_late or category == 0 or brings_content):
            category = row.category
        self._change_class(page, category, page.read or answered)

        remembers = self.config.remember_links
        links_were_known = page.links is not None
        failed_before = page.outcome in (Outcome.FAILED, Outcome.BUSY)
        page.visits += 1
        page.latest_ms = max(page.latest_ms, row.time_ms)
        if not is_late:
            page.outcome = row.outcome
        links = merged(row.links, page.id) if row.links is not None and answered and not is_gone else None
        brings_links = (is_gone or links is not None) and (row.time_ms == 0 or page.links_ms < row.time_ms)
        if brings_links:
            page.links_ms = max(page.links_ms, row.time_ms)
            self._change_hop(page, row.outcome == Outcome.REDIRECTED)
        pays: list[PageLink] | None = None
        fresh = links is not None and (brings_links or not remembers)
        if links and not fresh:
            for link in links:
                if link.page in self.ids and self.page(link.page) is None:
                    self._birth(link.page, link.category)
        if brings_links and is_gone:
            page.links = None
            pays = []
        elif fresh:
            pays = links
            page.links = links if brings_links else page.links
        elif (row.outcome == Outcome.UNCHANGED or links is not None) and remembers and page.links is not None:
            pays = as_remembered(page.links)
        elif not (remembers or is_late) and (
            row.outcome in (Outcome.FETCHED, Outcome.REDIRECTED, Outcome.ALIASED, Outcome.BLOCKED)
            or (row.outcome in (Outcome.FAILED, Outcome.BUSY) and failed_before)
        ):
            page.links = None

        if pays is None:
            page.aside = -page.cash
            return True
        refund = self._refund(page) if pays and brings_links and not links_were_known and not page.hop else 0
        minted = UNITS_PER_PAGE if page.hop and not page.spent else 0
        amount = self._spend(page) - minted
        self._pay(page, minted, [], 0, fresh=False)
        page.aside = 0
        page.circulated = True
        self._pay(page, amount, pays, refund, fresh)
        return True

    def _damped(self, amount: int) -> int:
        return amount * self.damping_q20 >> 20

    def _refund(self, page: Page) -> int:
        limit = self.minted if isinstance(self.config.history, Absorbing) else self.minted // 4
        return max(min(self._damped(max(page.aside, 0)), self.virtual + limit), 0)

    def _spend(self, page: Page) -> int:
        """A page that has collected gives all its cash away."""
        amount, page.cash = page.cash, 0
        self.clock += amount
        advance, self.carry = divmod(amount * TURN + self.carry, self.minted_everywhere)
        self.theta += advance
        self.own_advance += advance
        earned = amount if page.spent else amount - page.opening
        page.history.spend(earned, amount, self._gap(page), self._now())
        page.theta = self.theta
        page.spent = True
        page.joins_opening = False
        return amount

    def _pay(self, page: Page, amount: int, links: list[PageLink], refund: int, fresh: bool) -> None:
        """Pay along links, and the virtual page the rest. Only `fresh` links give birth and carry a bonus."""
        out = self._damped(amount) + refund
        total = sum(link.weight for link in links)
        if fresh and total:
            rate = page.history.rate(0, 0, 0.0, True, self._now())
            for link in links:
                if link.page in self.ids and self.page(link.page) is None:
                    share = self.damping_q20 / 2**20 * rate * link.weight / total
                    self._birth(link.page, link.category, share)
        self._pay_virtual(-refund)
        paid = sum(self._send(link, divide(out, link.weight, total)) for link in links)
        if isinstance(self.config.history, Absorbing):
            self.absorbed += amount + refund - out
            self._pay_virtual(out - paid)
        else:
            self._pay_virtual(amount + refund - paid)
        if fresh:
            for link in links:
                self._bonus(link, out, total)

    def _bonus(self, link: PageLink, out: int, total: int) -> None:
        """A link to a page of a focus class carries a bonus, while the virtual account lasts."""
        if link.category != NO_CATEGORY:
            carried = out * self.link_bonus[link.category] >> 10
            bonus = min(divide(carried, link.weight, total), max(self.virtual, 0))
            self.virtual -= self._send(link, bonus)

    def _send(self, link: PageLink, amount: int) -> int:
        """Pay along a link. Returns the amount paid: nothing where the page must not be learnt."""
        if link.page not in self.ids:
            self.outbox[link.page] = self.outbox.get(link.page, 0) + amount
            self.sent += amount
            return amount
        to = self.page(link.page)
        if to is None:
            return 0
        self._credit(to, amount)
        return amount

    def _pay_virtual(self, amount: int) -> None:
        self.virtual += amount
        self.virtual_income += amount

    def _round(self) -> None:
        """The cursor passes one slot."""
        slot = self.cursor % len(self.slots)
        self.cursor = slot + 1
        self.first_reads -= self.first_reads // max(len(self.pages) // 16, 1) + (self.first_reads > 0)
        page = self.slots[slot]
        if page is None:
            return
        if page.circulated:
            page.circulated = False
            return
        if page.links is not None and not self.config.remember_links:
            return
        unread = sum(not other.read for other in self.pages)
        if page.visits == 0 and self.first_reads * 128 >= unread << 16:
            return
        self._collect(page)
        amount = self._spend(page)
        page.aside += amount
        self._pay(page, amount, as_remembered(page.links or []), refund=0, fresh=False)

    # -- cuts ------------------------------------------------------------------------------------------------------

    def _dividend(self, amount: int) -> int:
        """Pay every page by the weight of its class. Returns the rest."""
        weighted = self.weighted_pages
        if amount <= 0 or weighted == 0:
            return amount
        quotient = amount // weighted
        self.dividends = [d + quotient * w for d, w in zip(self.dividends, self.class_weights, strict=True)]
        return amount - quotient * weighted

    def _cut(self) -> list[Sealed]:
        """All that waits goes to all shards, with their parts of the virtual account."""
        self.visits_since_cut = 0
        self.last_whole = self.tick_second, self._news()
        weighted = self._weighted_pages_elsewhere()
        own = self.weighted_pages
        everywhere = own + sum(weighted.values())
        q, r = divmod(max(self.virtual, 0), everywhere) if everywhere else (0, 0)
        sealed = self._seal({s: q * w + (r * w // everywhere if everywhere else 0) for s, w in weighted.items()})
        self.virtual = self._dividend(self.virtual)
        return sealed

    def _seal(self, parts: dict[int, int]) -> list[Sealed]:
        """Send shards the amounts that wait for them, with their parts of the virtual account."""
        sealed = []
        for other, part in parts.items():
            peer, transfers = self.peers[other], self._waiting_for(other)
            self.outbox = {page: amount for page, amount in self.outbox.items() if page not in transfers}
            self.virtual -= part
            self.sent += part
            peer.sent_total += part + sum(transfers.values())
            pages, own = len(self.pages), self.weighted_pages
            sealed.append(
                Sealed(other, peer.cut, transfers, part, peer.sent_total, self.own_advance, self.minted, pages, own)
            )
            peer.cut += 1
            peer.second, peer.awaits_answer = self.tick_second, False
        del self.told[: len(sealed)]
        return sealed

    def _waiting_for(self, other: int) -> dict[int, int]:
        first, last = self.ranges.bounds(other)
        return {p: a for p, a in sorted(self.outbox.items()) if first <= p <= last and a > 0}

    def _weighted_pages_elsewhere(self) -> dict[int, int]:
        own = self.weighted_pages
        return {s: peer.weighted_pages if peer.has_gossip else own for s, peer in self.peers.items()}

    def _news(self) -> tuple[object, ...]:
        """Return the news of this shard for the others, without the time."""
        return self.own_advance, self.minted, len(self.pages), self.weighted_pages, *self.told[:1]

    def _is_message_due(self, other: int) -> bool:
        """Whether a shard is sent what waits for it: much, or anything that waits for long, or an answer."""
        peer, amounts = self.peers[other], len(self._waiting_for(other))
        is_old = self.tick_second - peer.second >= self.config.cut_seconds
        return amounts >= MANY_AMOUNTS or (is_old and (amounts > 0 or peer.awaits_answer))

    def _is_whole_cut_due(self) -> bool:
        """Whether there were many visits; or none of this for half a minute, and there is news."""
        if self.last_whole is None:
            return True
        if self.visits_since_cut and self.visits_since_cut * MOST_WAITING >= len(self.pages):
            return True
        second, news = self.last_whole
        everywhere = self.weighted_pages + sum(self._weighted_pages_elsewhere().values())
        has_units = everywhere > 0 and self.virtual >= everywhere
        return self.tick_second - second >= 30 and (has_units or self._news() != news)


# -- links and rows ------------------------------------------------------------------------------------------------


def divide(amount: int, weight: int, total: int) -> int:
    """A link's share: s*w + r*w // W."""
    s, r = divmod(amount, total)
    return s * weight + r * weight // total


def merged(links: list[PageLink], page: int) -> list[PageLink]:
    """A visit's links: none to the page itself or of weight 0, duplicates added up at the first.

    Their category is the first one given.
    """
    found: dict[int, PageLink] = {}
    for link in links:
        if link.page != page and link.weight > 0:
            first = found.get(link.page, PageLink(link.page, 0, NO_CATEGORY))
            category = link.category if first.category == NO_CATEGORY else first.category
            found[link.page] = PageLink(link.page, min(first.weight + link.weight, MOST_LINK_WEIGHT), category)
    return list(found.values())


def as_remembered(links: list[PageLink]) -> list[PageLink]:
    """Links as a memory keeps them: without categories."""
    return [link._replace(category=NO_CATEGORY) for link in links]


class CrawlRow(NamedTuple):
    """A row of a crawl entry."""

    kind: Kind
    page: int
    time_ms: int
    outcome: Outcome
    category: int
    links: list[PageLink] | None
    url: bytes


def rows_of(entry: CrawlEntry) -> Iterator[CrawlRow]:
    """The rows of a crawl entry as plain values."""
    items = entry.items
    link_starts, url_starts = items.link_starts.tolist(), items.url_starts.tolist()
    columns = (items.link_pages.tolist(), items.link_weights.tolist(), items.link_categories.tolist())
    links = [PageLink(*link) for link in zip(*columns, strict=True)]
    for i in range(len(items)):
        yield CrawlRow(
            kind=Kind(int(items.kind[i])),
            page=int(items.page[i]),
            time_ms=int(items.time_ms[i]),
            outcome=Outcome(int(items.outcome[i])),
            category=int(items.category[i]),
            links=links[link_starts[i] : link_starts[i + 1]] if items.links_known[i] else None,
            url=items.url_bytes[url_starts[i] : url_starts[i + 1]].tobytes(),
        )
