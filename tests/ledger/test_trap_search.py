"""Traps and twins in plans: they get few orders, honest pages lose none, and a wrong judgement ends by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from itertools import pairwise

import numpy as np
import pytest

from opicflow.pipelines.ledger import Certified, Ledger, LedgerConfig, Outcome, RefreshConfig, TickEntry
from opicflow.pipelines.ledger.entries import ItemWriter
from opicflow.pipelines.ledger.plan.planner import Plan
from opicflow.schemas.pages import page_id
from opicflow.schemas.records import Policy
from support.written_crawls import DAY, T0, Crawl

HOST = "https://www.example.org"
DISCOVERY = 1


class UrlCrawl:
    """A ledger whose log names pages by URL."""

    def __init__(self, **refresh: object) -> None:
        given = {"bandwidth_per_day": 60.0, "discovery_share": 0.5, **refresh}
        config = LedgerConfig(history=Certified(), remember_links=True, refresh=RefreshConfig(**given))  # type: ignore[arg-type]
        self.crawl = Crawl(config)
        self.second = T0

    @property
    def ledger(self) -> Ledger:
        return self.crawl.ledger

    def read(self, url: str, links: Iterable[str] = (), digest: int = 0, alias: bool = False) -> None:
        log: ItemWriter = self.crawl.writer()
        links = list(links)
        outcome = Outcome.ALIASED if alias else Outcome.FETCHED
        self.second += 1
        digest = digest or 1 + page_id(url) % 2**31
        log.visit(
            page_id(url),
            [page_id(link) for link in links],
            outcome,
            1000 * self.second,
            url=url.encode(),
            digest=digest,
        )
        for link in links:
            log.sighting(page_id(link), url=link.encode())
        self.crawl.apply(log)

    def plan(self) -> Plan:
        """Plan the next day."""
        self.second = (self.second // DAY + 1) * DAY
        self.ledger.apply(TickEntry(self.second))
        return self.ledger.plan(0, 9.0)

    def ordered(self, planned: Plan) -> list[str]:
        ids = planned.survey.pages[planned.orders.rows]
        starts, text = self.ledger.urls(ids)
        return [text[first:end].tobytes().decode() for first, end in pairwise(starts.tolist())]

    def unread(self, planned: Plan) -> list[str]:
        """The unread pages of a plan."""
        is_new = planned.orders.why == DISCOVERY
        return [url for url, new in zip(self.ordered(planned), is_new.tolist(), strict=True) if new]


CALENDARS: dict[str, Callable[[int], str]] = {
    "months": lambda step: f"{HOST}/calendar/{2000 + step // 12}/{1 + step % 12:02}",
    "dates": lambda step: f"{HOST}/events/{np.datetime64('2026-01-01') + step}",
    "a query": lambda step: f"{HOST}/cal.php?year={2000 + step // 12}&month={1 + step % 12}",
    "numbers": lambda step: f"{HOST}/termine/{step}/",
    "hashes": lambda step: f"{HOST}/s/{page_id(str(step)):016x}0",
    "names of months": lambda step: f"{HOST}/events/{date(2026, 1, 1) + timedelta(step):%Y/%B/%d}".lower(),
}


def with_articles(crawl: UrlCrawl, entry: str, articles: int = 60) -> None:
    """A site: a list of articles, which link to it, to each other, and to an entry."""
    urls = [f"{HOST}/about/{word}" for word in ("us", "jobs", "press", "contact")]
    crawl.read(f"{HOST}/", [*urls, f"{HOST}/list", entry])
    crawl.read(f"{HOST}/list", [f"{HOST}/article/{number}" for number in range(articles)])
    for url in urls:
        crawl.read(url, [f"{HOST}/", f"{HOST}/list", *urls, entry])
    for number in range(articles // 2):
        crawl.read(f"{HOST}/article/{number}", [f"{HOST}/", f"{HOST}/list", entry, f"{HOST}/article/{number + 1}"])


def with_calendar(kind: str, steps: int = 30, **refresh: object) -> tuple[UrlCrawl, Callable[[int], str]]:
    crawl, url = UrlCrawl(**refresh), CALENDARS[kind]
    with_articles(crawl, url(500))
    for step in range(500, 500 + steps):
        near = [url(step + far) for far in (-30, -7, -1, 1, 7, 30)]
        crawl.read(url(step), [f"{HOST}/", *near])
    return crawl, url


@pytest.mark.parametrize("kind", CALENDARS)
def test_an_endless_calendar_gets_few_orders_and_honest_unread_pages_theirs(kind: str) -> None:
    crawl, url = with_calendar(kind)
    (trap,) = crawl.ledger.traps()
    assert (trap.why, trap.parameter) == ("more of itself", "")
    calendar = {url(step) for step in range(400, 700)}
    assert trap.example in calendar
    unread = crawl.unread(crawl.plan())
    counts = Counter(one in calendar for one in unread)
    assert counts[False] >= 23  # of 30 articles that are not read; the calendar has a third of the pages read
    assert counts[True] <= 5

    ignored = with_calendar(kind, traps="ignored")[0]
    unread = ignored.unread(ignored.plan())
    assert Counter(one in calendar for one in unread)[True] > 15


def test_a_limited_shape_gets_some_orders_for_ever() -> None:
    """A law: over many plans a limited shape gets its little, so a wrong judgement can end."""
    got = dict[str, int]()
    for traps in ("limited", "ignored"):
        crawl, url = with_calendar("months", traps=traps)
        steps = {url(step): step for step in range(-500, 1500)}
        got[traps] = 0
        for _ in range(20):
            unread = [one for one in crawl.unread(crawl.plan()) if one in steps]
            got[traps] += len(unread)
            for one in unread:
                crawl.read(one, [url(steps[one] + far) for far in (-30, -7, -1, 1, 7, 30)])
    assert 5 <= got["limited"] < 0.5 * got["ignored"]


def test_a_judgement_ends_when_other_pages_link_to_the_pages() -> None:
    crawl, url = with_calendar("numbers")
    assert len(crawl.ledger.traps()) == 1
    crawl.read(f"{HOST}/index/a-z", [url(step) for step in range(470, 560)])
    assert crawl.ledger.traps() == []
    assert sum("/termine/" in one for one in crawl.unread(crawl.plan())) > 10


def test_a_judgement_ends_when_all_pages_were_read() -> None:
    crawl, url = with_calendar("numbers")
    for step in range(470, 560):
        crawl.read(url(step), [f"{HOST}/", url(min(step + 1, 559))])
    assert crawl.ledger.traps() == []


def test_a_policy_for_the_pages_ends_the_limit() -> None:
    """A rule that somebody stated for pages refuses a judgement."""
    crawl, url = with_calendar("months")
    crawl.crawl.publish(Policy(url_prefix=f"{HOST}/calendar/", importance_factor=1.0))
    calendar = {url(step) for step in range(400, 700)}
    assert sum(one in calendar for one in crawl.unread(crawl.plan())) > 15


HONEST: dict[str, Callable[[int], str]] = {
    "numbers": lambda number: f"{HOST}/article/{number}",
    "dates and titles": lambda number: (
        f"{HOST}/{2000 + number % 20}/05/{1 + number % 28}/title-{'abcdefghij'[number % 10]}{number}"
    ),
    "products": lambda number: f"{HOST}/product/{number}/name-{number}",
    "queries": lambda number: f"{HOST}/index.php?id={number}",
    "threads": lambda number: f"{HOST}/thread.php?t={number}&page=1",
    "hashes": lambda number: f"{HOST}/p/{page_id(str(number)):016x}0",
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("number", [40, 300])
def test_pages_of_honest_sites_are_no_traps(name: str, number: int) -> None:
    """Lists of ten a page lead to them; they lead to each other, and half were read."""
    crawl, url = UrlCrawl(), HONEST[name]
    crawl.read(f"{HOST}/", [f"{HOST}/list?page={page}" for page in range(3)])
    for page in range(number // 10):
        items = [url(10 * page + row) for row in range(10)]
        crawl.read(f"{HOST}/list?page={page}", [f"{HOST}/", f"{HOST}/list?page={page + 1}", *items])
    for one in range(0, number, 2):
        crawl.read(url(one), [f"{HOST}/", *(url((one * 7 + far) % number) for far in (1, 5, 11))])
    assert crawl.ledger.traps() == []


def with_sessions(name: str, canonical: bool) -> UrlCrawl:
    """Pages that link to each other with a session: each session names the page without, or has its content."""
    crawl = UrlCrawl(bandwidth_per_day=30.0)
    pages = [f"{HOST}/page/{'abcdefghijklmnopqrstuvwxyz'[number]}" for number in range(26)]
    crawl.read(f"{HOST}/", pages)
    for number, page in enumerate(pages):
        others = [f"{pages[(number + far) % 26]}?{name}={number:02x}aa{far}7f9" for far in range(1, 9)]
        crawl.read(page, [f"{HOST}/", *others], digest=number + 1)
    for number in range(12):
        twin = f"{pages[(number + 1) % 26]}?{name}={number:02x}aa17f9"
        links = [pages[(number + 1) % 26]] if canonical else [f"{HOST}/"]
        crawl.read(twin, links, digest=(number + 1) % 26 + 1, alias=canonical)
    return crawl


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize("name", ["sid", "PHPSESSID", "ref"])
def test_addresses_with_a_parameter_that_means_nothing_get_few_orders(name: str, canonical: bool) -> None:
    crawl = with_sessions(name, canonical)
    (twins,) = crawl.ledger.traps()
    assert (twins.why, twins.parameter, twins.limited) == ("twin", name, 26 * 8)
    assert sum("?" in url for url in crawl.unread(crawl.plan())) <= 1


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize(("form", "name"), [("/s/{1}/{0}", "s/"), ("/{0};jsessionid={1}", ";jsessionid")])
def test_addresses_with_a_session_in_the_path_get_few_orders(form: str, name: str, canonical: bool) -> None:
    crawl, pages = UrlCrawl(bandwidth_per_day=30.0), "abcdefghijklmnop"

    def address(source: int, far: int) -> str:
        return HOST + form.format(pages[(source + far) % 16], f"{source:02x}aa{far}7f9")

    crawl.read(f"{HOST}/", [f"{HOST}/{page}" for page in pages])
    for source, page in enumerate(pages):
        crawl.read(f"{HOST}/{page}", [address(source, far) for far in range(1, 9)], digest=source + 1)
    for source in range(16):
        for far in (1, 2):
            number = (source + far) % 16
            links = [f"{HOST}/{pages[number]}"] if canonical else [f"{HOST}/"]
            crawl.read(address(source, far), links, digest=number + 1, alias=canonical)
    (twins,) = crawl.ledger.traps()
    assert (twins.why, twins.parameter) == ("twin", name)
    assert twins.limited == 16 * 8 - (16 if "/s/" in form else 0)  # of /s/ one address of each page is none
    assert sum("7f9" in url for url in crawl.unread(crawl.plan())) <= 1


def test_twins_that_were_read_are_refreshed_at_the_longest_interval_and_other_pages_as_before() -> None:
    intervals = {}
    for traps in ("limited", "ignored"):
        crawl = with_sessions("sid", canonical=False)
        crawl.ledger.change_refreshing(RefreshConfig(bandwidth_per_day=30.0, discovery_share=0.5, traps=traps))
        planned = crawl.plan()
        starts, text = crawl.ledger.urls(planned.survey.pages[planned.survey.sharing])
        is_twin = np.array([b"?" in text[first:end].tobytes() for first, end in pairwise(starts.tolist())])
        days = planned.schedule.intervals[planned.survey.sharing] / DAY
        intervals[traps] = days[is_twin], days[~is_twin]
    assert len(intervals["limited"][0]) == 12
    assert np.allclose(intervals["limited"][0], 365.0)
    assert intervals["ignored"][0].max() < 30.0
    assert (intervals["limited"][1] <= intervals["ignored"][1]).all()


def test_a_parameter_that_makes_other_pages_is_no_twin() -> None:
    crawl = UrlCrawl()
    for number in range(40):
        crawl.read(f"{HOST}/show?item={number}", [f"{HOST}/show?item={number + 1}", f"{HOST}/a/{'b' * (number % 9)}"])
    assert not [found for found in crawl.ledger.traps() if found.parameter]


def test_a_restored_ledger_finds_the_same_and_plans_the_same() -> None:
    crawl, _ = with_calendar("dates")
    other = UrlCrawl()
    other.crawl, other.second = crawl.crawl.restored(), crawl.second
    assert crawl.ledger.traps() == other.ledger.traps()
    assert crawl.ordered(crawl.plan()) == other.ordered(other.plan())


def test_where_links_are_not_remembered_nothing_is_judged_by_them() -> None:
    crawl, url = UrlCrawl(), CALENDARS["months"]
    crawl.crawl = Crawl(LedgerConfig())
    with_articles(crawl, url(500))
    for step in range(500, 530):
        crawl.read(url(step), [url(step + 1), url(step + 12)])
    assert crawl.ledger.traps() == []
