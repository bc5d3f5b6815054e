"""Makes crawl.jsonl.gz, the crawl log that `make demo` replays: five days of a crawler on a web that does not exist.

Tern is a toolkit that does not exist either. There are its project pages, documentation, packages and forum, a wiki, a
newspaper, a shop, a university and two dozen weblogs. Nearly everybody links to the documentation's front page, so that
is the right answer. The crawler begins at eight announced pages and fetches the page with the most cash next.

    .venv/bin/python examples/make_log.py [FILE]

The same bytes every time: a seed, no clock. Only the compressed file may differ between versions of zlib.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from opicflow.pipelines.lab.web.visit_orders import GreedyOrder
from opicflow.schemas.hashing import hash_text

LOG = Path(__file__).with_name("crawl.jsonl.gz")
SEED, VISITS, BATCH = 2003, 8_000, 8
BEGIN = datetime(2026, 5, 4, 6, tzinfo=timezone.utc)
SECONDS_A_VISIT = 54
LEAST_SECONDS_BETWEEN_VISITS = 3 * 3600
"""The crawler is polite: it leaves a page alone for so long."""

T = TypeVar("T")
Fields = dict[str, Any]

DOCS = "https://docs.tern.example/"
PROJECT = "https://tern.example/"
PACKAGES = "https://packages.tern.example/"
FORUM = "https://forum.tern.example/"
WIKI = "https://wiki.example.org/wiki/"
NEWS = "https://news.example/"
SHOP = "https://shop.example/"
CAMPUS = "https://cs.north.example/"

CHAPTERS = [
    "install",
    "tutorial",
    "queues",
    "streams",
    "storage",
    "testing",
    "deploy",
    "security",
    "plugins",
    "reference",
]
TOPICS = [
    "overview",
    "quick-start",
    "settings",
    "errors",
    "performance",
    "limits",
    "examples",
    "faq",
    "migration",
    "api",
]
NAMES = [
    "ada", "bela", "chidi", "dora", "emeka", "farah", "greta", "hana", "ines", "jonas", "kim", "lena",
    "mateo", "noor", "olga", "pia", "quentin", "ravi", "sara", "tomas", "uma", "vera", "wen", "yara",
]  # fmt: skip
BIRDS = ["tern", "heron", "wren", "finch", "stork", "crane", "swift", "plover", "gull", "kite", "owl", "dove", "ibis"]
THINGS = [
    "queue",
    "cache",
    "parser",
    "router",
    "metrics",
    "logger",
    "client",
    "server",
    "schema",
    "auth",
    "mail",
    "cli",
]
VERBS = ["measuring", "testing", "rewriting", "debugging", "shipping", "forgetting", "teaching", "scaling", "reading"]
TOWNS = [
    "harbour",
    "market",
    "bridge",
    "library",
    "museum",
    "school",
    "station",
    "river",
    "garden",
    "theatre",
    "stadium",
]
NEWS_OF = ["reopens", "closes", "grows", "votes", "celebrates", "waits", "returns", "moves", "floods", "wins"]
SECTIONS = ["local", "science", "business", "culture", "sport"]


@dataclass
class Page:
    """A server's answers for a page. `changes_hours` 0 = never changes; `failing` = its first so many fetches fail."""

    links: list[str] = field(default_factory=list)
    nofollow: list[str] = field(default_factory=list)
    status: int = 200
    failure: str | None = None
    failing: int = 0
    canonical: str | None = None
    content_type: str = "text/html; charset=utf-8"
    changes_hours: int = 0


Web = dict[str, Page]


class Dice:
    """Chance from a seed, by the one method of Random that is promised to stay the same."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def below(self, number: int) -> int:
        return int(self._random.random() * number)

    def one_in(self, number: int) -> bool:
        return self.below(number) == 0

    def one_of(self, things: Sequence[T]) -> T:
        return things[self.below(len(things))]

    def some_of(self, things: Sequence[T], number: int) -> list[T]:
        """So many draws; the first of the things are drawn most, and none twice."""
        drawn = [things[int(self._random.random() ** 2.5 * len(things))] for _ in range(number)]
        return list(dict.fromkeys(drawn))


# -- the web -----------------------------------------------------------------------------------------------------------


def the_web(dice: Dice) -> Web:
    """Every page there is, by URL."""
    web: Web = {}
    articles = [f"{WIKI}{thing.title()}_{bird}" for bird in BIRDS for thing in THINGS]
    chapters = [f"{DOCS}{chapter}/" for chapter in CHAPTERS]
    packages = [f"{PACKAGES}package/{bird}-{thing}/" for thing in THINGS for bird in BIRDS]
    _project(web, dice, chapters)
    _documentation(web, dice, chapters)
    _packages(web, dice, packages)
    _forum(web, dice, packages, chapters)
    _wiki(web, dice, articles)
    _newspaper(web, dice)
    _shop(web, dice)
    _campus(web, dice, articles)
    for name in NAMES:
        _weblog(web, dice, name, packages, articles, chapters)
    return web


def _project(web: Web, dice: Dice, chapters: list[str]) -> None:
    months = [f"{PROJECT}blog/2026/{month:02}/" for month in range(1, 6)]
    posts = [f"{month}tern-{number}-released/" for month in months for number in range(4, 11)]
    top = [PROJECT, f"{PROJECT}download/", f"{PROJECT}blog/", DOCS, FORUM, PACKAGES]
    web[PROJECT] = Page([*top, f"{PROJECT}about/", *posts[-5:]], changes_hours=24)
    web[f"{PROJECT}download/"] = Page([*top, chapters[0], f"{PROJECT}download/tern-4.2.tar.gz"])
    web[f"{PROJECT}download/tern-4.2.tar.gz"] = Page(content_type="application/gzip")
    web[f"{PROJECT}about/"] = Page([*top, CAMPUS])
    web[f"{PROJECT}blog/"] = Page([*top, *months, *posts[-10:]], changes_hours=24)
    web["https://www.tern.example/"] = Page(top, canonical=PROJECT)
    for month in months:
        web[month] = Page([*top, *(post for post in posts if post.startswith(month))])
    for number, post in enumerate(posts):
        web[post] = Page([*top, *posts[max(number - 1, 0) : number + 2], *dice.some_of(chapters, 2)])


def _documentation(web: Web, dice: Dice, chapters: list[str]) -> None:
    web[DOCS] = Page([PROJECT, FORUM, *chapters], changes_hours=48)
    for chapter in chapters:
        pages = [f"{chapter}{topic}/" for topic in TOPICS]
        web[chapter] = Page([DOCS, *pages])
        for number, page in enumerate(pages):
            around = pages[max(number - 1, 0) : number + 2]
            web[page] = Page([DOCS, chapter, *around, *dice.some_of(chapters, 3), f"{page}?print=1"])
            web[f"{page}?print=1"] = Page([DOCS], canonical=page)
    for word in ("3.0", "3.1"):  # removed when version 4 came
        web[f"{DOCS}{word}/"] = Page(status=410)


def _packages(web: Web, dice: Dice, packages: list[str]) -> None:
    subjects = [f"{PACKAGES}subject/{thing}/" for thing in THINGS]
    web[PACKAGES] = Page([PROJECT, DOCS, *subjects, *packages[:12], f"{PACKAGES}search?q="], changes_hours=12)
    web[f"{PACKAGES}search?q="] = Page(failure="robots")
    for subject in subjects:
        web[subject] = Page(
            [PACKAGES, *(page for page in packages if subject.split("/")[-2] in page)], changes_hours=24
        )
    for package in packages:
        subject = f"{PACKAGES}subject/{package.rstrip('/').rpartition('-')[2]}/"
        needs = dice.some_of(packages, dice.below(5))
        maker = f"https://{dice.one_of(NAMES)}.example/"
        web[package] = Page([PACKAGES, DOCS, subject, *needs, maker, f"{package}history/"])
        web[f"{package}history/"] = Page([PACKAGES, package])


def _forum(web: Web, dice: Dice, packages: list[str], chapters: list[str]) -> None:
    threads = [f"{FORUM}t/{verb}-a-{thing}/{1000 + 7 * n}/" for n, (verb, thing) in enumerate(_pairs(VERBS, THINGS))]
    people = [f"{FORUM}u/{name}/" for name in NAMES]
    web[FORUM] = Page([PROJECT, DOCS, *threads[-20:], f"{FORUM}login"], changes_hours=2)
    web[f"{FORUM}login"] = Page(status=403)
    for thread in threads:
        helpful = [*dice.some_of(chapters, 2), *dice.some_of(packages, 1)]
        advertised = [f"{SHOP}offers/{dice.one_of(THINGS)}?utm_source=forum", f"https://{dice.one_of(NAMES)}.example/"]
        askers = dice.some_of(people, 3)
        web[thread] = Page([FORUM, *askers, *helpful], nofollow=advertised[: dice.below(3)])
    for person in people:
        web[person] = Page([FORUM, *dice.some_of(threads, 4)], nofollow=[f"https://{person.split('/')[-2]}.example/"])


def _wiki(web: Web, dice: Dice, articles: list[str]) -> None:
    licence = f"{WIKI}Project:Licence"
    front = f"{WIKI}Main_Page"
    web["https://wiki.example.org/"] = Page(status=301, links=[front])
    web[front] = Page([*articles[:10], licence, f"{WIKI}Special:Random"], changes_hours=24)
    web[licence] = Page([front])
    web[f"{WIKI}Special:Random"] = Page(failure="robots")
    for number, article in enumerate(articles):
        sources = [dice.one_of([DOCS, NEWS, CAMPUS])] if dice.one_in(2) else []
        talk = article.replace("/wiki/", "/wiki/Talk:")
        web[article] = Page(
            [front, licence, *dice.some_of(articles, 7), *sources, talk], failing=2 * (number % 37 == 9)
        )
        web[talk] = Page([front, licence, article]) if dice.one_in(2) else Page([front], status=404)


def _newspaper(web: Web, dice: Dice) -> None:
    sections = [f"{NEWS}{section}/" for section in SECTIONS]
    pages: list[str] = []
    for day in range(1, 10):
        for town, verb in zip(dice.some_of(TOWNS, 24), dice.some_of(NEWS_OF, 40), strict=False):
            pages.append(f"{NEWS}2026/05/{day:02}/{town}-{verb}/")
    web[NEWS] = Page([*sections, *pages[-15:], f"{NEWS}imprint/"], changes_hours=1)
    web[f"{NEWS}imprint/"] = Page([NEWS])
    for number, section in enumerate(sections):
        web[section] = Page([NEWS, *sections, *pages[number :: len(sections)]], changes_hours=3)
    for number, page in enumerate(pages):
        related = dice.some_of(pages[::-1], 3)
        outside = [dice.one_of([SHOP, CAMPUS, PROJECT, f"{WIKI}Main_Page"])] if dice.one_in(3) else []
        web[page] = Page([NEWS, sections[number % len(sections)], *related, *outside, f"{page}comments"])
        web[f"{page}comments"] = Page(failure="timeout") if number % 3 else Page([page])


def _shop(web: Web, dice: Dice) -> None:
    shelves = [f"{SHOP}{bird}s/" for bird in BIRDS[:8]]
    basket = f"{SHOP}basket"
    web[SHOP] = Page([*shelves, basket, f"{SHOP}delivery/"], changes_hours=12)
    web[f"{SHOP}delivery/"] = Page([SHOP])
    web[basket] = Page(failure="robots")
    for shelf in shelves:
        goods = [f"{shelf}{thing}-{number}" for thing in THINGS[:6] for number in (1, 2, 3)]
        web[shelf] = Page([SHOP, basket, *goods[:9], f"{shelf}?page=2"])
        web[f"{shelf}?page=2"] = Page([SHOP, basket, shelf, *goods[9:]])
        for good in goods:
            gone = dice.one_in(12)
            web[good] = (
                Page(status=404) if gone else Page([SHOP, basket, shelf, *dice.some_of(goods, 3)], changes_hours=36)
            )


def _campus(web: Web, dice: Dice, articles: list[str]) -> None:
    people = [f"{CAMPUS}~{name}/" for name in NAMES[:14]]
    courses = [f"{CAMPUS}courses/{thing}s-{year}/" for thing in THINGS[:6] for year in (2025, 2026)]
    web[CAMPUS] = Page([f"{CAMPUS}people/", f"{CAMPUS}courses/", NEWS], changes_hours=48)
    web[f"{CAMPUS}people/"] = Page([CAMPUS, *people])
    web[f"{CAMPUS}courses/"] = Page([CAMPUS, *courses])
    for course in courses:
        slides = [f"{course}week-{week:02}.pdf" for week in range(1, 7)]
        web[course] = Page([CAMPUS, f"{CAMPUS}courses/", *slides, *dice.some_of(articles, 2), DOCS])
        web.update({slide: Page(content_type="application/pdf") for slide in slides})
    for person in people:
        papers = [f"{person}papers/{dice.one_of(VERBS)}-{dice.one_of(THINGS)}s.pdf" for _ in range(3)]
        web[person] = Page([CAMPUS, f"{CAMPUS}people/", *papers, *dice.some_of(courses, 2)])
        web.update({paper: Page(content_type="application/pdf") for paper in papers})


def _weblog(web: Web, dice: Dice, name: str, packages: list[str], articles: list[str], chapters: list[str]) -> None:
    home = f"https://{name}.example/"
    friends = [f"https://{friend}.example/" for friend in dice.some_of(NAMES, 4) if friend != name]
    posts = [
        f"{home}{2024 + number // 8}/{dice.below(12) + 1:02}/{dice.one_of(VERBS)}-{dice.one_of(THINGS)}s/"
        for number in range(8 + dice.below(14))
    ]
    is_old = dice.one_in(4)  # and still links to where the documentation was before it had a certificate
    docs = DOCS.replace("https", "http") if is_old else DOCS
    web[home] = Page([f"{home}about/", *posts[::-1][:10], *friends, docs], changes_hours=18)
    web[f"{home}about/"] = Page([home, dice.one_of([PROJECT, f"{FORUM}u/{name}/"])])
    for number, post in enumerate(posts):
        outside = [dice.one_of(articles), dice.one_of(packages), dice.one_of(chapters)][: 1 + dice.below(3)]
        dead = [f"http://old-{dice.one_of(BIRDS)}.example/{post.split('/')[-2]}"] if dice.one_in(3) else []
        wrong = ["mailto:" + name + "@mail.example"] if dice.one_in(6) else []
        links = [home, *posts[max(number - 1, 0) : number], docs, *outside, *dead, *wrong]
        web[post] = Page(list(dict.fromkeys(links)), changes_hours=72 * dice.below(2))
        for url in dead:
            web[url] = Page(failure="dns")


def _pairs(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((one, other) for one in first for other in second)


# -- the crawl ---------------------------------------------------------------------------------------------------------


class Crawler:
    """Holds URLs and the cash that waits on each; it fetches the richest, but none again too soon."""

    def __init__(self, web: Web, dice: Dice) -> None:
        self._web, self._dice = web, dice
        self._order = GreedyOrder(BATCH)
        self.urls: list[str] = []
        self._number: dict[str, int] = {}
        self._cash = np.zeros(0, np.int64)
        self._ready_at = np.zeros(0, np.int64)
        self._pot = 0
        self._fetches: dict[str, int] = {}
        self._version: dict[str, int] = {}

    def number_of(self, url: str) -> int:
        """The number of a URL, which may be new."""
        if url not in self._number:
            self._number[url] = len(self.urls)
            self.urls.append(url)
            self._cash = np.append(self._cash, 1 << 20)
            self._ready_at = np.append(self._ready_at, 0)
        return self._number[url]

    def next(self, second: int) -> list[str]:
        """Return the pages to fetch next."""
        each, self._pot = divmod(self._pot, len(self.urls))
        self._cash += each
        numbers = self._order.next(lambda: np.where(self._ready_at <= second, self._cash, -1))
        return [self.urls[number] for number in numbers if self._ready_at[number] <= second]

    def fetch(self, url: str, second: int) -> Fields:
        """Fetch a page and give the event, as this crawler writes it."""
        number = self._number[url]
        amount, self._cash[number] = int(self._cash[number]), 0
        self._ready_at[number] = second + LEAST_SECONDS_BETWEEN_VISITS
        secure = url.replace("http://", "https://", 1)
        answering = secure if secure in self._web else url
        page = self._web.get(answering, Page(status=404))
        event = self._answer(answering, page, second)
        if answering != url:
            event["redirects"] = [url]
        links = [] if event.get("failure") else page.links
        targets = [link for link in links if link.startswith("http") and link != url]
        share = amount * 85 // 100 // max(len(targets), 1)
        for target in targets:
            number = self.number_of(target)
            self._cash[number] += share
        for target in page.nofollow:
            self.number_of(target)
        self._pot += amount - share * len(targets)
        return event

    def _answer(self, url: str, page: Page, second: int) -> Fields:
        time = BEGIN + timedelta(seconds=second)
        of_tern = urlsplit(url).hostname in ("docs.tern.example", "tern.example", "packages.tern.example")
        # Two programs write this log: one writes epochs in milliseconds, the other ISO 8601.
        event: Fields = {"url": url, "fetched_at": int(time.timestamp() * 1000) if of_tern else f"{time:%Y-%m-%dT%XZ}"}
        fetches = self._fetches[url] = self._fetches.get(url, 0) + 1
        if page.failure or fetches <= page.failing:
            event["failure"] = page.failure or "connection reset"
            return event
        if self._dice.one_in(150):
            return event | {"status": self._dice.one_of([500, 502, 503])}
        if page.status != 200:
            return event | {"status": page.status} | ({"links": page.links} if page.links else {})
        version = second // 3600 // page.changes_hours if page.changes_hours else 0
        is_known, self._version[url] = self._version.get(url) == version, version
        if is_known and page.content_type.startswith("text/html") and self._dice.one_in(6):
            return event | {"status": 304}
        event |= {"status": 200, "digest": f"{hash_text(f'{url} {version}'):016x}"}
        if page.canonical:
            event["canonical"] = page.canonical
        if page.content_type.startswith("text/html"):
            event["links"] = [*page.links, *({"url": link, "rel": "nofollow ugc"} for link in page.nofollow)]
        else:
            event["content_type"] = page.content_type
        return event


def the_log() -> Iterator[bytes]:
    """The lines of the log, in order."""
    dice = Dice(SEED)
    crawler = Crawler(the_web(dice), dice)
    seeds = [PROJECT, DOCS, NEWS, f"{WIKI}Main_Page", CAMPUS, "https://ada.example/", "http://kim.example/", SHOP]
    for seed in seeds:
        crawler.number_of(seed)
        yield _line({"kind": "seed", "url": seed, "fetched_at": f"{BEGIN:%Y-%m-%dT%XZ}"})
    for chapter in CHAPTERS:
        crawler.number_of(f"{DOCS}{chapter}/")
        yield _line({"kind": "sitemap", "url": f"{DOCS}{chapter}/", "lastmod": "2026-04-28"})
    broken = {1 + VISITS * (n + 1) // (len(BAD_LINES) + 1): line for n, line in enumerate(BAD_LINES)}
    visits, late = 0, b""
    while visits < VISITS:
        for url in crawler.next(visits * SECONDS_A_VISIT):
            line = _line(crawler.fetch(url, visits * SECONDS_A_VISIT + dice.below(SECONDS_A_VISIT)))
            visits += 1
            if visits % 400 == 123:  # written once more when the log was rotated
                yield line
            if visits % 700 == 350:  # held up: it comes after some that were fetched later
                late, line = line, late
            yield line
            if visits in broken:
                yield broken[visits]
    yield late


def _line(event: Fields) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


BAD_LINES = [
    b'{"url":"https://news.example/2026/05/04/the-disk-was-fu\n',
    b'{"url":"mailto:editor@news.example","fetched_at":"2026-05-04T12:00:00Z","status":200}\n',
    b'{"url":"https://shop.example/basket","fetched_at":"1970-01-01T00:00:12Z","status":200}\n',
    b'{"url":"https://ada.example/","status":200,"links":[{"url":"https://bela.example/","weight":-1}]}\n',
    b'{"fetched_at":1778000000000,"status":200,"links":[]}\n',
    b'{"url":"https://dora.example/","fetched_at":"last Tuesday","status":200}\n',
    b'["https://kim.example/",200]\n',
    b'{"url":"https://lena.example/caf\xe9","status":200}\n',
    b'{"url":"https://noor.example/","status":"two hundred","links":"https://news.example/"}\n',
    b'{"url":"tern.example/download","status":200}\n',
    b"java.lang.OutOfMemoryError: Java heap space\n",
]
"""Other lines that get into logs. None is an event."""


def write_log(path: Path) -> None:
    """Write the log, compressed without a time and a name in its head."""
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(b"".join(the_log()))


if __name__ == "__main__":
    write_log(Path(sys.argv[1]) if len(sys.argv) > 1 else LOG)
