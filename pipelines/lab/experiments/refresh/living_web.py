"""A made-up web that lives: pages change, are born and die, and servers answer truly, falsely or not at all.

Times are whole seconds from the beginning of the year; the web exists before it, since the first crawl began. A page
has a *content* at every moment. Every change gives it another one: mostly a new one, sometimes the one before the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.lab.experiments.measures import exact_importance
from opicflow.pipelines.lab.web.change_rates import FASTEST_PER_DAY, MEDIAN_PER_DAY, SLOWEST_PER_DAY, log_normal_rates
from opicflow.pipelines.lab.web.directories import ARCHIVE, PORTAL, DirectoryStyle, directory_web
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ints

DAY = 86_400
FIRST_CRAWL_DAYS = 1
"""A first crawl has read each page once in so many days before the year, so all copies are about equally old."""
NEVER = np.int64(1) << 40
"""The second of what does not happen."""

DIGEST, DATED, NOT_MODIFIED, ALWAYS_NOW, NEVER_CHANGES = range(5)
"""The answers of servers: a digest alone; also a true date; 304 if unchanged; one of two kinds of false dates."""
SERVER_SHARES = (0.5, 0.25, 0.1, 0.075, 0.075)
_FALSE_DATE_DAYS = 500
_HOSTS = 23
_MEAN_LINKS = 8.0
_MISSING, _SPENT, _BROKEN = 404, 410, 503

POWER_LAW, NEWS, CALM = "power law", "news", "calm"


class LivingKind(NamedTuple):
    """A web of sites with directories: its style, and the median of the days between two changes of a page."""

    style: DirectoryStyle
    days_of_lists: float
    """The days between changes of front pages and of the indexes of directories."""
    days_of_others: float


WITH_DIRECTORIES = {NEWS: LivingKind(PORTAL, 1.0, 120.0), CALM: LivingKind(ARCHIVE, 60.0, 200.0)}
LIVING = (POWER_LAW, *WITH_DIRECTORIES)
"""The kinds of webs that live. Every page of `POWER_LAW` changes around once in 14 days."""


@dataclass(frozen=True)
class Shares:
    """The events of a web, as shares from 0 to 1."""

    born: float = 0.2
    """The share of pages, of all that there will ever be, that are born during the year."""
    dying: float = 0.1
    """The share of pages that go away during the year."""
    returning: float = 0.4
    """The share of changes that bring the content before the last again."""
    weak: float = 0.1
    """The share of pages whose server often fails."""
    weak_failing: float = 0.15
    """The share of days on which every fetch of a weak page fails."""
    failing: float = 0.01
    """The same of all other pages."""


@dataclass(frozen=True, eq=False)
class ServerAnswers:
    """The answers of servers, a row a fetch."""

    numbers: Ints
    seconds: Ints
    statuses: Ints
    contents: Ints
    """The content that came; -1 if none did."""
    modified: Ints
    """`Last-Modified`, true or false; `NEVER` if there was none."""

    @property
    def came(self) -> Bools:
        """Whether the crawler's copy is as the page was at that moment: it came, or is still the same."""
        seen: Bools = (self.statuses == 200) | (self.statuses == 304)
        return seen


@dataclass(frozen=True, eq=False)
class LivingWeb:
    """Pages 0 … n-1: their links, births, deaths, changes and servers."""

    days: int
    graph: Graph
    """The links that there will be when all pages were born."""
    urls: list[str]
    born: Ints
    died: Ints
    rates: Floats
    """Changes a day."""
    servers: Bytes
    failing: Bools
    """By day and page: whether fetches of the page fail on this day."""
    announced: Bools
    """Pages to which no page links when they are born: a sitemap names them."""
    changes: Ints
    """The seconds of all changes, page by page in order. The first is the birth of a page, or before the beginning."""
    contents: Ints
    """The content that each change brings: the row of the change that brought it first."""
    starts: Ints
    """The first change of each page in these two, and at last the number of changes."""

    @property
    def pages(self) -> int:
        return len(self.urls)

    @cached_property
    def _keys(self) -> Ints:
        return keys_of(np.repeat(np.arange(self.pages), np.diff(self.starts)), self.changes)

    def latest(self, numbers: Ints, seconds: Ints) -> Ints:
        """Return the row of the latest change of each page up to a second; the first one if all are later."""
        rows = np.searchsorted(self._keys, keys_of(numbers, seconds), side="right") - 1
        found: Ints = np.maximum(rows, self.starts[numbers])
        return found

    def alive(self, second: int) -> Bools:
        """Return the pages that exist at a second."""
        there: Bools = (self.born <= second) & (self.died > second)
        return there

    def links(self, number: int, content: int) -> Ints:
        """Return the pages that a content links to: those that were there when it came up."""
        targets = self.graph.targets[self.graph.starts[number] : self.graph.starts[number + 1]]
        there: Ints = targets[self.born[targets] <= self.changes[content]]
        return there

    def answer(self, numbers: Ints, seconds: Ints, last_came: Ints) -> ServerAnswers:
        """Return what servers answer. `last_came`: when the crawler got the content that it has; -NEVER: never."""
        latest = self.latest(numbers, seconds)
        changed, servers = self.changes[latest], self.servers[numbers]
        statuses = np.where((servers == NOT_MODIFIED) & (changed <= last_came), 304, 200)
        day = np.clip(seconds // DAY + FIRST_CRAWL_DAYS, 0, len(self.failing) - 1)
        statuses[self.failing[day, numbers]] = _BROKEN
        gone = seconds >= self.died[numbers]
        statuses[gone] = np.where(numbers[gone] % 2 == 0, _MISSING, _SPENT)
        came = statuses == 200
        modified = np.select(
            [servers == DATED, servers == ALWAYS_NOW, servers == NEVER_CHANGES],
            [changed, seconds, np.full(len(numbers), -_FALSE_DATE_DAYS * DAY)],
            NEVER,
        )
        return ServerAnswers(
            numbers, seconds, statuses, np.where(came, self.contents[latest], -1), np.where(came, modified, NEVER)
        )

    @cached_property
    def importance(self) -> Floats:
        """By day and page: exact PageRank of the pages that exist when the day begins; 0 for others."""
        return np.array([self._importance(day * DAY) for day in range(self.days)])

    def _importance(self, second: int) -> Floats:
        alive, graph = self.alive(second), self.graph
        sources = graph.sources
        shown = self.changes[self.contents[self.latest(np.arange(self.pages), np.full(self.pages, second))]]
        kept = alive[sources] & (self.born[graph.targets] <= shown[sources])
        ranks = exact_importance(graph.with_links(kept))
        # Links to a page that went away remain: it is a page without links. One to come changes ranks by one factor.
        there: Floats = np.where(alive, ranks, 0.0)
        there /= there.sum()
        return there


def living_web(pages: int, seed: int, days: int, shares: Shares | None = None, kind: str = POWER_LAW) -> LivingWeb:
    """Make a web of so many pages, those included that will be born, and let it live for so many days.

    `kind` is one of `LIVING`.
    """
    of = shares or Shares()
    random = np.random.default_rng((seed, pages, days))
    graph, urls, medians = _made(kind, pages, seed)
    rates = np.clip(log_normal_rates(random, pages) * (medians / MEDIAN_PER_DAY), SLOWEST_PER_DAY, FASTEST_PER_DAY)
    begin, end = -FIRST_CRAWL_DAYS * DAY, days * DAY
    born = np.full(pages, -NEVER)
    newborn = np.sort(random.choice(pages, round(of.born * pages), replace=False))
    born[newborn] = np.sort(random.integers(0, end, len(newborn)))
    died = np.full(pages, NEVER)
    dying = random.choice(pages, round(of.dying * pages), replace=False)
    died[dying] = np.maximum(born[dying], 0) + 1 + (random.random(len(dying)) * (end - np.maximum(born[dying], 0)))
    servers = random.choice(len(SERVER_SHARES), pages, p=SERVER_SHARES).astype(np.uint8)
    chance = np.where(random.random(pages) < of.weak, of.weak_failing, of.failing)
    failing = random.random((FIRST_CRAWL_DAYS + days, pages)) < chance
    failing[:FIRST_CRAWL_DAYS] = False

    linkers = _linkers(graph, newborn, born, died)
    announced = np.zeros(pages, np.bool_)
    announced[newborn[linkers < 0]] = True
    span = end - begin
    counts = random.poisson(rates * (span / DAY))
    pieces = [
        (np.arange(pages), np.where(born > begin, born, begin - random.exponential(1 / rates) * DAY), 1.0),
        (np.repeat(np.arange(pages), counts), begin + random.random(int(counts.sum())) * span, 0.0),
        (linkers[linkers >= 0], born[newborn[linkers >= 0]], 1.0),  # a link to the new page appears
    ]
    numbers = np.concatenate([piece[0] for piece in pieces])
    seconds = np.concatenate([np.asarray(piece[1]).astype(np.int64) for piece in pieces])
    is_new = np.repeat([piece[2] for piece in pieces], [len(piece[0]) for piece in pieces]) > 0
    order = np.lexsort((~is_new, seconds, numbers))
    numbers, seconds, is_new = numbers[order], seconds[order], is_new[order]
    kept = seconds >= born[numbers]
    numbers, seconds, is_new = numbers[kept], seconds[kept], is_new[kept]
    starts = np.concatenate(([0], np.cumsum(np.bincount(numbers, minlength=pages))))
    is_new |= random.random(len(numbers)) >= of.returning
    return LivingWeb(
        days=days,
        graph=graph,
        urls=urls,
        born=born,
        died=died,
        rates=rates,
        servers=servers,
        failing=failing,
        announced=announced,
        changes=seconds,
        contents=contents_of(starts, is_new),
        starts=starts,
    )


def _made(kind: str, pages: int, seed: int) -> tuple[Graph, list[str], Floats]:
    """Return the links and the URLs of a web of this kind, and the median changes a day of pages like each."""
    if kind == POWER_LAW:
        graph = power_law_web(pages, seed, mean_links=min(_MEAN_LINKS, pages / 4))
        urls = [f"https://site-{number % _HOSTS}.example/page/{number}" for number in range(pages)]
        return graph, urls, np.full(pages, MEDIAN_PER_DAY)
    of = WITH_DIRECTORIES[kind]
    web = directory_web(pages, seed, of.style)
    is_list = np.array([url.endswith(b"/") for url in web.urls])
    return web.graph, [url.decode() for url in web.urls], 1.0 / np.where(is_list, of.days_of_lists, of.days_of_others)


def contents_of(starts: Ints, is_new: Bools) -> Ints:
    """Return the content of every change: its own row if it is new, otherwise that of the change before the last.

    The first two changes of a page are always new. So two that follow each other never bring the same content.
    """
    rows = np.arange(len(is_new))
    rank = rows - np.repeat(starts[:-1], np.diff(starts))
    contents = np.where(is_new | (rank < 2), rows, rows - 2)
    while (contents[contents] != contents).any():
        contents = contents[contents]
    return contents


def _linkers(graph: Graph, newborn: Ints, born: Ints, died: Ints) -> Ints:
    """Return a page for each new one that exists at that moment and will link to it; -1 if there is none."""
    sources = graph.sources
    found = np.full(graph.pages, -1)
    there = (born[sources] < born[graph.targets]) & (died[sources] > born[graph.targets])
    found[graph.targets[there]] = sources[there]
    linkers: Ints = found[newborn]
    return linkers


def keys_of(numbers: Ints, seconds: Ints) -> Ints:
    """Numbers that ascend by page, and by second within a page."""
    keys: Ints = (numbers << 42) + (seconds + NEVER)
    return keys
