"""Limits of domains: what unread pages of one registrable domain may be and hold."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from urllib.parse import urlsplit

import numpy as np
import pytest

from opicflow.pipelines.ledger import (
    HISTORIES,
    Certified,
    ConfigRefused,
    CrawlEntry,
    DomainLimits,
    ItemWriter,
    Ledger,
    LedgerConfig,
    LogEntry,
    LogPosition,
    Outcome,
    PageLink,
    PolicyEntry,
    SnapshotRefused,
    TickEntry,
)
from opicflow.pipelines.ledger.cash.certified.payment_laws import bases_of
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.plan.crawl_orders import WHY
from opicflow.schemas.pages import PageIds
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import ShardRanges
from support.same_bytes import assert_same_bytes
from support.shards import Shards
from support.thorough import thorough
from support.written_crawls import Crawl, with_refresh

IDS = PageIds()
DAY = 86_400
T0 = 20_000 * DAY
START = LogPosition(0, 0)


page = cache(IDS.of)


class Log:
    """Entries of one source, one after the other."""

    def __init__(self) -> None:
        self.position = START
        self.rows = ItemWriter(self.position)

    def visit(self, url: str, links: list[str], outcome: Outcome = Outcome.FETCHED, seconds: int = 0) -> None:
        answered = outcome == Outcome.FETCHED
        targets = [PageLink(page(link)) for link in links] if answered else None
        self.rows.visit(page(url), targets, outcome, 1000 * (T0 + seconds) if seconds else 0, url=url.encode())
        for link in links:
            self.rows.sighting(page(link), url=link.encode())

    def announce(self, url: str) -> None:
        self.rows.announcement(page(url), url=url.encode())

    def entry(self) -> CrawlEntry:
        entry = self.rows.entry(start=self.position)
        self.position = self.rows.next_position
        self.rows = ItemWriter(self.position)
        return entry


def names(domain: str, count: int, host: str = "h{}") -> list[str]:
    """URLs of a domain, each on a host of its own."""
    return [f"http://{host.format(number)}.{domain}/{number}" for number in range(count)]


def unread_of(ledger: Ledger) -> Counter[str]:
    """Count the unread pages of each domain."""
    found = Counter[str]()
    ids, slots = ledger._reader.live()
    starts, text = ledger.urls(ids)
    unread = (ledger._room.table.pages["class_"][slots] & 1) == 0
    for row in np.flatnonzero(unread).tolist():
        url = bytes(text[starts[row] : starts[row + 1]]).decode()
        found[".".join((urlsplit(url).hostname or "").split(".")[-2:])] += 1
    return found


@pytest.mark.parametrize("history", HISTORIES)
def test_a_domain_has_no_more_unread_pages_than_it_may_at_once(history: str) -> None:
    ledger, log = Ledger(LedgerConfig(HISTORIES[history](), domains=DomainLimits(most_unread=20))), Log()
    log.visit("http://trap.com/", names("trap.com", 500) + names("honest.org", 15))
    ledger.apply(log.entry())
    assert unread_of(ledger) == {"trap.com": 20, "honest.org": 15}
    assert ledger.not_learnt == 2 * 480  # links, and their URLs
    assert ledger.audit().drift == 0


def test_pages_that_are_read_or_removed_make_room_for_others() -> None:
    ledger, log = Ledger(LedgerConfig(domains=DomainLimits(most_unread=3))), Log()
    urls = names("a.com", 9)
    log.visit("http://b.com/", urls[:6])
    ledger.apply(log.entry())
    log.visit(urls[0], [])
    log.visit("http://b.com/2", urls[6:])
    ledger.apply(log.entry())
    assert unread_of(ledger)["a.com"] == 3
    ledger.apply(PolicyEntry("people", START, LogPosition(1, 0), drop=(page(urls[1]),)))
    log.visit("http://b.com/3", urls[6:])
    ledger.apply(log.entry())
    assert unread_of(ledger)["a.com"] == 3
    ledger.audit()


def test_a_visit_of_an_unknown_page_always_counts() -> None:
    ledger, log = Ledger(LedgerConfig(domains=DomainLimits(most_unread=1))), Log()
    for url in names("a.com", 10):
        log.visit(url, [])
    ledger.apply(log.entry())
    assert ledger.pages == 10


def test_visits_that_failed_are_removed_at_the_tick() -> None:
    ledger, log = Ledger(LedgerConfig(domains=DomainLimits(most_unread=4))), Log()
    for url in names("a.com", 10):
        log.visit(url, [], Outcome.FAILED)
    ledger.apply(log.entry())
    assert unread_of(ledger)["a.com"] == 10
    ledger.apply(TickEntry(T0))
    assert unread_of(ledger)["a.com"] == 4
    ledger.audit()


def same_hash() -> tuple[str, str]:
    """Two domains whose page ids begin alike."""
    seen: dict[int, str] = {}
    for number in range(2000):
        domain = f"d{number}.com"
        other = seen.setdefault(page(f"http://{domain}/") >> 48, domain)
        if other != domain:
            return other, domain
    raise AssertionError("no two of 2000 domains have one hash of 16 bits")


def test_domains_with_one_hash_have_a_limit_each_from_a_tick_on() -> None:
    one, other = same_hash()
    ledger, log = Ledger(LedgerConfig(domains=DomainLimits(most_unread=10))), Log()
    for _ in range(2):
        log.visit("http://hub.org/", names(one, 30) + names(other, 30))
        log.visit(f"http://{one}/", [])
        log.visit(f"http://{other}/", [])
        ledger.apply(log.entry())
        ledger.apply(TickEntry(T0 + log.position.offset))
    assert unread_of(ledger)[one] + unread_of(ledger)[other] <= 20
    log.visit("http://hub.org/2", names(other, 30, "x{}"))
    ledger.apply(log.entry())
    ledger.apply(TickEntry(T0 + DAY))
    assert unread_of(ledger) == {one: 10, other: 10}


def test_announcements_learn_no_more_pages_of_a_domain_a_day_than_they_may() -> None:
    ledger, log = Ledger(LedgerConfig(domains=DomainLimits(most_announced=5))), Log()
    urls = names("a.com", 40)
    found = []
    for day in range(4):
        ledger.apply(TickEntry(T0 + day * DAY))
        for url in urls:
            log.announce(url)
        ledger.apply(log.entry())
        ledger.apply(TickEntry(T0 + day * DAY + 3600))
        for url in urls:
            log.announce(url)
        ledger.apply(log.entry())
        found.append(ledger.pages)
    assert found == [5, 10, 15, 20]
    log.visit("http://b.com/", urls)
    ledger.apply(log.entry())
    assert ledger.pages == 41  # links are no announcements
    ledger.audit()


def mixed_log(seed: int, entries: int = 12) -> Iterator[LogEntry]:
    """A log of honest pages, a trap, a farm of subdomains, announcements, failures, removals and ticks."""
    chance, log = random.Random(seed), Log()
    domains = [f"site{number}.com" for number in range(12)]
    honest = [url for domain in domains for url in names(domain, 12)]
    hostile = names("evil.net", 200)
    policies = 0
    for number in range(entries):
        for _ in range(30):
            url = chance.choice(honest if chance.random() < 0.8 else hostile[: 3 * number + 1])
            links = chance.sample(honest, 4) + chance.sample(hostile, 5 if url in hostile else 1)
            outcome = Outcome.FETCHED if chance.random() < 0.85 else Outcome.FAILED
            log.visit(url, links, outcome, seconds=3600 * number + chance.randrange(3600))
        for url in chance.sample(hostile, 10):
            log.announce(url)
        yield log.entry()
        if chance.random() < 0.3:
            drop = tuple(page(url) for url in chance.sample(honest + hostile, 6))
            yield PolicyEntry("people", LogPosition(policies, 0), LogPosition(policies + 1, 0), drop=drop)
            policies += 1
        if chance.random() < 0.1:
            weights = (chance.choice([4, 16, 32]), 16)
            start, end = LogPosition(policies, 0), LogPosition(policies + 1, 0)
            yield PolicyEntry("people", start, end, damping=chance.choice([0.7, 0.85]), class_weights=weights)
            policies += 1
        yield TickEntry(T0 + 3600 * (number + 1) + chance.choice([0, DAY]))


LIMITS = DomainLimits(most_unread=25, most_announced=6, most_share=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(thorough(2, 20)))
def test_the_books_balance_after_every_entry(seed: int) -> None:
    ledger = Ledger(LedgerConfig(Certified(), domains=LIMITS))
    for entry in mixed_log(seed):
        ledger.apply(entry)
        assert ledger.audit().drift == 0


@pytest.mark.slow_but_first
@pytest.mark.thorough
@pytest.mark.parametrize("history", ["certified", "interpolation"])
def test_the_same_log_gives_the_same_bytes_in_any_pieces_and_after_restarts(history: str) -> None:
    limits = LIMITS if history == "certified" else replace(LIMITS, most_share=None)
    config = LedgerConfig(HISTORIES[history](), domains=limits)
    assert_same_bytes(lambda: Ledger(config), [*mixed_log(3, thorough(6, 12))], seed=3)


@pytest.mark.parametrize("history", ["certified", "interpolation"])
def test_shards_conserve_cash_with_limits(history: str) -> None:
    limits = LIMITS if history == "certified" else replace(LIMITS, most_share=None)
    shards = Shards(LedgerConfig(HISTORIES[history](), domains=limits), 4, 1)
    for number, entry in enumerate(mixed_log(2)):
        if isinstance(entry, CrawlEntry):
            shards.apply(entry)
        elif isinstance(entry, TickEntry):
            shards.tick(entry.second)
        if number % 5 == 4:
            shards.drain(T0 + (number + 2) * DAY)
    shards.drain(T0 + 100 * DAY)
    assert sum(ledger.not_learnt for ledger in shards.ledgers) > 0
    for ledger in shards.ledgers:
        assert ledger.audit().drift == 0


def bases(ledger: Ledger) -> tuple[dict[str, float], float, int]:
    """The bases of unread pages by domain, those of read pages, and the base of one page."""
    ids, slots = ledger._reader.live()
    given = bases_of(ledger._room.table, ledger._room.book)[slots]
    unread = (ledger._room.table.pages["class_"][slots] & 1) == 0
    starts, text = ledger.urls(ids)
    of_domain: dict[str, float] = Counter()
    for row in np.flatnonzero(unread).tolist():
        url = bytes(text[starts[row] : starts[row + 1]]).decode()
        of_domain[".".join((urlsplit(url).hostname or "").split(".")[-2:])] += int(given[row])
    one = ((1 << 20) - int(ledger._room.book.modes[0].damping_q20)) * int(ledger._room.book.class_weights.max())
    return of_domain, float(given[~unread].sum()), one


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_unread_pages_of_a_domain_have_no_more_than_their_share_of_bases(share: float) -> None:
    ledger, log = Ledger(LedgerConfig(Certified(), domains=DomainLimits(most_share=share))), Log()
    honest = names("good.org", 200)
    for url in honest[:150]:
        log.visit(url, honest[:3])
    ledger.apply(log.entry())
    ledger.apply(TickEntry(T0))
    log.visit(honest[0], names("trap.com", 3000))
    ledger.apply(log.entry())
    for tick in range(2):  # at once, and when bases were shared
        of_domain, read, one = bases(ledger)
        assert of_domain["trap.com"] <= max(share / (1 - share) * read, one)
        assert of_domain["trap.com"] <= share * (read + sum(of_domain.values())) + one
        assert of_domain["trap.com"] >= 0.98 * share / (1 - share) * 150 * one
        ledger.apply(TickEntry(T0 + DAY * (tick + 2)))
    ledger.audit()


def test_importance_is_the_exact_ranks_of_the_stated_teleport() -> None:
    share = 0.05
    ledger, log = Ledger(LedgerConfig(Certified(tolerance=1e-9), domains=DomainLimits(most_share=share))), Log()
    honest, trap = names("good.org", 40), names("trap.com", 300)
    links = {url: [honest[(number * number + step) % 40] for step in (1, 3, 8)] for number, url in enumerate(honest)}
    links[honest[7]] = [*trap, honest[1]]
    links[trap[0]] = trap[1:40]
    for url, targets in links.items():
        log.visit(url, targets)
    ledger.apply(log.entry())
    ledger.apply(TickEntry(T0))
    ledger.apply(TickEntry(T0 + DAY))
    settled = ledger.settle(1e-9)

    urls = [*honest, *trap]
    row_of = {url: row for row, url in enumerate(urls)}
    read = {url for url in urls if url in links}
    most = max(share / (1 - share) * len(read), 1.0)
    unread = [url for url in trap if url not in read]
    teleport = np.array([1.0 if url in read else min(1.0, most / len(unread)) for url in urls])
    pays = np.zeros((len(urls), len(urls)))
    for url, targets in links.items():
        kept = [target for target in dict.fromkeys(targets) if target != url]
        weight = Counter(target for target in targets if target != url)
        for target in kept:
            pays[row_of[target], row_of[url]] = weight[target] / sum(weight.values())
    exact = np.linalg.solve(np.eye(len(urls)) - 0.85 * pays, teleport)
    exact /= exact.sum()
    ids = IDS.of_all(urls)
    found = dict(zip(settled.pages.tolist(), settled.importance.tolist(), strict=True))
    importance = np.array([found[number] for number in ids.tolist()])
    rounding = 1e-5  # bases are whole units of cash
    assert np.abs(importance - exact).sum() < settled.certificate + rounding
    assert settled.certificate < 1e-5


def test_a_share_needs_the_history_certified() -> None:
    with pytest.raises(ConfigRefused, match="interpolation cannot limit the share of a domain: take certified"):
        LedgerConfig(domains=DomainLimits(most_share=0.1))


@pytest.mark.parametrize(
    "limits",
    [{"most_unread": 0}, {"most_announced": -1}, {"most_share": 0.0}, {"most_share": 1.0}, {"most_unread": True}],
)
def test_impossible_limits_are_refused_in_one_line(limits: dict[str, float]) -> None:
    with pytest.raises(ConfigRefused, match=r"of a domain is .*: give a"):
        DomainLimits(**limits)  # type: ignore[arg-type]


def test_a_configuration_with_limits_is_read_back() -> None:
    config = LedgerConfig(Certified(), domains=LIMITS)
    assert LedgerConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("column", range(at.DOMAIN_COLUMNS))
def test_limits_that_cannot_be_are_refused_with_the_snapshot(column: int) -> None:
    ledger = Ledger(LedgerConfig(Certified(), domains=LIMITS))
    for entry in mixed_log(1, 2):
        ledger.apply(entry)
    ledger._room.book.domains[7, column] = -at.UNLIMITED - 1
    with pytest.raises(SnapshotRefused, match="a limit of a domain is out of bounds"):
        Ledger.restore([chunk.data for chunk in ledger.snapshot()])
    ledger._room.book.domains[7, column] = 0
    ledger._room.book.domains[7, at.UNREAD] += 1
    with pytest.raises(SnapshotRefused, match=r"unread pages of domains equal their count|makes no ledger"):
        Ledger.restore([chunk.data for chunk in ledger.snapshot()])


def test_shards_that_share_a_domain_share_its_limit() -> None:
    urls, ranges = names("example.com", 60), ShardRanges.equal(16)
    ids = IDS.of_all(urls)
    left = 0
    for shard in range(ranges.count):
        rows = ItemWriter()
        for row in np.flatnonzero(ranges.of(ids) == shard).tolist():
            rows.sighting(int(ids[row]), url=urls[row].encode())
        ledger = Ledger(LedgerConfig(domains=DomainLimits(most_unread=20)), shard, ranges)
        if len(rows.items()):
            ledger.apply(rows.entry())
        left += ledger.pages
        ledger.audit()
    assert left == 20


# -- orders ------------------------------------------------------------------------------------------------------------


def of_trap(number: int) -> str:
    """Page n of a crawl: of 400 pages every second one is of one domain, each on a host of its own."""
    return f"https://h{number}.trap.com/" if number % 2 else f"https://www.site{number}.org/"


def domains_of(crawl: Crawl, pages: list[int]) -> Counter[str]:
    names_of = {crawl.id(number): of_trap(number).split("/")[2].split(".", 1)[1] for number in range(400)}
    return Counter(names_of[page] for page in pages)


@pytest.mark.parametrize("by", ["learnt", "importance", "cash", "found"])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_discovery_orders_no_more_of_a_domain_than_its_share(by: str, share: float) -> None:
    config = with_refresh(bandwidth_per_day=80, discovery_share=0.5, discovery_by=by, domain_discovery_share=share)
    crawl = Crawl(config, name=of_trap).read(range(0, 20, 2), T0)
    crawl.see(range(1, 300))
    for day in range(1, 8):
        crawl.tick(T0 + day * DAY)
        planned = crawl.plan()
        discovered = planned.survey.pages[planned.orders.rows[planned.orders.why == WHY.index("DISCOVERY")]].tolist()
        most = max(planned.schedule.discovery_per_day, 40)
        assert 0 < domains_of(crawl, discovered)["trap.com"] <= share * (most + 1)
        assert len(discovered) >= 30  # other domains have the share that this one may not have


def test_what_a_domain_may_not_have_goes_to_refreshing() -> None:
    refresh = {"bandwidth_per_day": 40, "discovery_share": 0.5, "domain_discovery_share": 0.1}
    crawl = Crawl(with_refresh(**refresh), name=of_trap).read(range(0, 200, 2), T0).see(range(1, 400, 2))
    crawl.tick(T0 + 2 * DAY)
    planned = crawl.plan()
    assert (planned.orders.discovered, planned.orders.refreshed) == (2, 38)


@pytest.mark.parametrize("host_most", [None, 2.0])
def test_a_domain_gets_no_more_fetches_a_day_than_it_may(host_most: float | None) -> None:
    refresh = {"bandwidth_per_day": 100, "domain_fetches_per_day": 7.0, "host_fetches_per_day": host_most}
    crawl = Crawl(with_refresh(**refresh), name=of_trap).read(range(200), T0).see(range(200, 400))
    crawl.tick(T0 + DAY)
    crawl.plan()
    of_trap_domain = 0
    for day in range(2, 12):
        crawl.tick(T0 + day * DAY)
        planned = crawl.plan()
        ordered = planned.survey.pages[planned.orders.rows].tolist()
        found = domains_of(crawl, ordered)
        assert found["trap.com"] <= 7
        of_trap_domain += found["trap.com"]
        assert all(count <= 1 for domain, count in found.items() if domain != "trap.com")
        numbers = {crawl.id(number): number for number in range(400)}
        for row, page in zip(planned.orders.not_before.tolist(), ordered, strict=True):
            crawl.visit(numbers[page], row)
    assert of_trap_domain >= 5 * 7


def test_a_plan_promises_what_the_limit_of_a_domain_allows() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=100, domain_fetches_per_day=4.0), name=of_trap).read(range(200), T0)
    crawl.tick(T0 + DAY)
    planned = crawl.preview()
    is_trap = [number % 2 == 1 for number in range(200)]
    per_day = DAY / planned.schedule.intervals
    rows = {page: row for row, page in enumerate(planned.survey.pages.tolist())}
    promised = sum(per_day[rows[crawl.id(number)]] for number in range(200) if is_trap[number])
    assert promised == pytest.approx(4.0, rel=1e-6)


def test_limits_of_orders_change_from_one_run_to_the_next() -> None:
    config = LedgerConfig()
    limited = replace(config, refresh=replace(config.refresh, domain_fetches_per_day=5.0, domain_discovery_share=0.1))
    assert config.counts_alike(limited)
    assert LedgerConfig.from_json(limited.to_json()) == limited


# -- faked changes -------------------------------------------------------------------------------------------------

HONEST, FAKED = 1_000, 100
PER_DAY = 150


def of_faker(number: int) -> str:
    """Page n of a web: the last hundred are one domain's, all others those of fifty."""
    return f"https://h{number}.faker.com/" if number >= HONEST else f"https://www.site{number % 50}.org/{number}"


@cache
def crawled_with_faker(strategy: str | None, times: float) -> tuple[float, float, float]:
    """Crawl for 66 days by orders; return the faker's shares of importance, of the plan, and of the orders."""
    named = {} if strategy is None else {"strategy": strategy}
    config = with_refresh(bandwidth_per_day=float(PER_DAY), discovery_share=0.0, domain_refreshing=times, **named)
    crawl = Crawl(config, name=of_faker)
    changing, version = np.random.default_rng(7), np.zeros(HONEST + FAKED, np.int64)
    rates = 1 / 100 * np.exp(changing.standard_normal(HONEST))

    def fetch(numbers: list[int], seconds: list[int]) -> None:
        log = crawl.writer()
        for number, second in zip(numbers, seconds, strict=True):
            links = ((number * 7 + 1) % HONEST, (number * 3 + 2) % HONEST)
            crawl.add_visit(log, number, second, digest=int(version[number]) + 1, links=links)
            version[number] += number >= HONEST
        crawl.apply(log)

    everything = list(range(HONEST + FAKED))
    fetch(everything, [T0 + number for number in everything])
    numbers = {crawl.id(number): number for number in everything}
    ordered = of_faked = 0
    for day in range(1, 67):
        version[:HONEST] += changing.random(HONEST) < -np.expm1(-rates)
        crawl.tick(T0 + day * DAY)
        planned = crawl.plan()
        rows = planned.orders.not_before.argsort(kind="stable")
        pages = [numbers[page] for page in planned.survey.pages[planned.orders.rows[rows]].tolist()]
        if day > 22:
            ordered += len(pages)
            of_faked += sum(page >= HONEST for page in pages)
        fetch(pages, planned.orders.not_before[rows].tolist())
    survey = planned.survey
    faked = np.array([numbers[page] >= HONEST for page in survey.pages[survey.sharing].tolist()])
    per_day = planned.schedule.allocation.frequencies
    weights = survey.wanted.weights
    assert ordered == 44 * PER_DAY
    return float(weights[faked].sum() / weights.sum()), float(per_day[faked].sum() / per_day.sum()), of_faked / ordered


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [None, "thesis", "freshness"])
def test_faked_changes_bring_a_domain_at_most_twice_its_share_of_importance(strategy: str | None) -> None:
    share, planned, ordered = crawled_with_faker(strategy, 2.0)
    assert 0.01 < share < 0.03
    assert planned <= 2 * share * (1 + 1e-6)
    assert ordered <= 2 * share + 0.005
    if strategy != "freshness":  # which gives up pages that change too fast
        _, unbounded, unbounded_orders = crawled_with_faker(strategy, 1e12)
        assert unbounded > 3 * share and unbounded_orders > 3 * share


def test_a_crawl_of_one_site_is_planned_as_without_bounds() -> None:
    plans = []
    for times in (1.0, 1e12):
        crawl = Crawl(with_refresh(bandwidth_per_day=20, domain_refreshing=times), name=lambda n: f"https://a.org/{n}")
        crawl.read(range(100), T0)
        for day in range(1, 4):
            crawl.tick(T0 + day * DAY)
            for number in range(20):
                crawl.visit(number, T0 + day * DAY + number, digest=day)
        plans.append(crawl.preview().schedule.intervals)
    np.testing.assert_array_equal(*plans)


def test_intervals_that_people_state_are_above_the_bound() -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=400, domain_refreshing=1.0), name=of_trap).read(range(400), T0)
    crawl.publish(Policy(url_prefix="https://h", refresh_interval_seconds=1.0 * DAY))
    crawl.tick(T0 + DAY)
    planned = crawl.preview()
    of_trap_pages = np.isin(planned.survey.pages, [crawl.id(number) for number in range(1, 400, 2)])
    assert (planned.schedule.intervals[of_trap_pages] == DAY).all()


@pytest.mark.parametrize("strategy", ["importance", "greedy", "uniform"])
def test_strategies_that_use_no_change_rates_have_no_bound(strategy: str) -> None:
    crawl = Crawl(with_refresh(bandwidth_per_day=40, strategy=strategy), name=of_trap).read(range(400), T0)
    crawl.tick(T0 + DAY)
    assert crawl.preview().survey.domains is None
