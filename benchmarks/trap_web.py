"""A made-up web that lives, with traps: endless calendars, and pages that have many addresses.

It answers a fetch at any second with an event of a crawl log. Pages of twenty hosts change at different rates, are
named as pages are on different kinds of sites, are moved and gone, and fail at times. Some hosts have a calendar that
never ends, to which all their pages link; on some, links carry a parameter that means nothing, and pages with it name
the one without as canonical, or have the same content.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from opicflow.pipelines.lab.web.directories import DirectoryStyle, directory_web
from opicflow.pipelines.ranks.graph.oracle import pagerank

DAY = 86_400
CALENDARS = ("month", "days", "query", "numbers", "agenda")
"""How calendars name their pages, and how many pages each links to."""
PARAMETERS = ("sid", "PHPSESSID", "ref", "s", "utm_source")
_WORDS = (
    "stone",
    "river",
    "north",
    "light",
    "paper",
    "winter",
    "garden",
    "silver",
    "harbour",
    "cloud",
    "maple",
    "road",
)
_MONTHS = 12


@dataclass(frozen=True)
class TrapStyle:
    """How many hosts have a calendar, how many a meaningless parameter, and which share of their links carry it."""

    hosts: int = 20
    calendars: int = 5
    parameters: int = 5
    carried: float = 0.15
    changes_a_day: float = 0.05
    """The median of pages; the logarithm has the deviation 1.5."""
    moved: float = 0.02
    gone: float = 0.03
    fails: float = 0.01


class TrapWeb:
    """Pages by number and by URL, their exact importance, and what a fetch of any URL brings at a second."""

    def __init__(self, pages: int, seed: int, style: TrapStyle | None = None) -> None:
        self.style = style = style or TrapStyle()
        self.seed = seed
        web = directory_web(pages, seed, DirectoryStyle(pages_per_site=pages / style.hosts))
        random = np.random.Generator(np.random.PCG64([seed, 7]))
        self.graph, site = web.graph, web.site
        hosts = [url.decode().split("/")[2] for url in web.urls]
        order = {name: number for number, name in enumerate(dict.fromkeys(hosts))}
        self.host_of = np.array([order[name] for name in hosts])
        self.hosts = list(order)
        number_in_host = np.zeros(len(self.hosts), np.int64)
        shuffled = random.permutation(pages)
        self.urls: list[str] = []
        for number, (url, name) in enumerate(zip(web.urls, hosts, strict=True)):
            path = url.decode().partition(name)[2]
            own = order[name]
            number_in_host[own] += 1
            self.urls.append(self._named(own, name, path, int(shuffled[number]), path == "/"))
        self.numbers = {url: number for number, url in enumerate(self.urls)}
        assert len(self.numbers) == pages
        ranks = pagerank(self.graph).values
        self.exact = ranks / ranks.sum()
        rates = style.changes_a_day * np.exp(random.normal(0, 1.5, pages))
        self.rates = np.minimum(rates, 24.0)
        self._phases = random.random(pages)
        self.first = int(np.flatnonzero(web.is_front & (site == 0))[0]) if (site == 0).any() else 0
        self.calendar_of = {
            own: CALENDARS[(own + seed) % len(CALENDARS)] for own in range(len(self.hosts)) if own % 4 == 1
        }
        self.calendar_of = dict(list(self.calendar_of.items())[: style.calendars])
        self.parameter_of = {
            own: PARAMETERS[(own + seed) % len(PARAMETERS)] for own in range(len(self.hosts)) if own % 4 == 2
        }
        self.parameter_of = dict(list(self.parameter_of.items())[: style.parameters])
        self._moved = random.random(pages) < style.moved
        self._moved[self.first] = False
        self._known_calendars: dict[str, tuple[int, int]] = {}

    # -- names -----------------------------------------------------------------------------------------------------

    def _named(self, own: int, host: str, path: str, number: int, is_front: bool) -> str:
        """Return the URL of a page, as the kind of its site names pages."""
        if is_front:
            return f"https://{host}/"
        words = "-".join(_WORDS[(number // 12**digit) % 12] for digit in range(4))
        kinds = (
            f"/article/{1000 + number}",
            f"/20{10 + number % 16}/{1 + number % 12:02}/{1 + number % 28:02}/{words}-{number}",
            f"/product/{number}/{words}",
            f"/index.php?id={number}",
            path,
            f"/wiki/{words.title()}_{number}",
            f"/node/{number}",
        )
        return f"https://{host}{kinds[own % len(kinds)]}"

    # -- what a fetch brings ---------------------------------------------------------------------------------------

    def version(self, number: int, second: float) -> int:
        """Return how often a page has changed: evenly, from a phase of its own on."""
        return int(self.rates[number] * second / DAY + self._phases[number])

    def versions(self, second: float) -> np.ndarray:
        """The same of all pages."""
        return (self.rates * second / DAY + self._phases).astype(np.int64)

    def fetch(self, url: str, second: float) -> dict[str, Any]:
        """Return the event of a fetch."""
        at = {"url": url, "fetched_at": int(second * 1000)}
        if _share(url, int(second)) < self.style.fails:
            return {**at, "status": 503}
        calendar = self._calendar_page(url)
        if calendar is not None:
            own, step = calendar
            links = self._calendar_links(own, step)
            return {**at, "status": 200, "digest": _digest(url, int(second) // DAY), "links": links}
        bare, parameter = self._without_parameter(url)
        number = self.numbers.get(bare)
        if number is None and "/old/" in url:
            target = int(url.rpartition("/")[2])
            there = self.fetch(self.urls[target], second)
            return {**there, "redirects": [url]} if "status" in there else there
        if number is None:
            return {**at, "status": 410 if _share(url, 1) < 0.3 else 404}
        own = int(self.host_of[number])
        event = {
            **at,
            "status": 200,
            "digest": _digest(bare, self.version(number, second)),
            "links": self.links(number, url),
        }
        if parameter and (own + self.seed) % 3:  # on a third of such hosts only the content shows it
            event["canonical"] = bare
        return event

    def links(self, number: int, url: str) -> list[str]:
        """Return the links of a page: some are moved, gone, or with a parameter of their own."""
        own, found = int(self.host_of[number]), list[str]()
        parameter = self.parameter_of.get(own)
        for target in self.graph.targets[self.graph.starts[number] : self.graph.starts[number + 1]].tolist():
            link = self.urls[target]
            if self._moved[target]:
                link = f"https://{self.hosts[int(self.host_of[target])]}/old/{target}"
            elif parameter and self.host_of[target] == own and _share(f"{number} {target}", 2) < self.style.carried:
                link += f"{'&' if '?' in link else '?'}{parameter}={_session(f'{url} {target}')}"
            found.append(link)
        if _share(url, 3) < 10 * self.style.gone:
            found.append(f"https://{self.hosts[own]}/gone/{_WORDS[number % 12]}-{number}")
        if own in self.calendar_of:
            found.append(self._calendar_url(own, 0))
        return found

    def _without_parameter(self, url: str) -> tuple[str, str]:
        path, is_query, query = url.partition("?")
        if not is_query:
            return url, ""
        host = url.split("/")[2]
        own = self.hosts.index(host) if host in self.hosts else -1
        name = self.parameter_of.get(own, "")
        kept = [part for part in query.split("&") if not name or not part.startswith(f"{name}=")]
        bare = f"{path}?{'&'.join(kept)}" if kept else path
        return bare, name if bare != url else ""

    # -- calendars -------------------------------------------------------------------------------------------------

    def _calendar_url(self, own: int, step: int) -> str:
        """Return the page of a calendar, so many steps from today."""
        kind, host = self.calendar_of[own], self.hosts[own]
        month, year = step % _MONTHS + 1, 2026 + step // _MONTHS
        day = np.datetime64("2026-01-01") + step
        path = {
            "month": f"/calendar/{year}/{month:02}",
            "days": f"/events/{day}",
            "query": f"/cal.php?month={month}&year={year}",
            "numbers": f"/termine/{700_000 + step}/",
            "agenda": f"/agenda?date={day}&view=day",
        }[kind]
        url = f"https://{host}{path}"
        self._known_calendars[url] = (own, step)
        return url

    def _calendar_page(self, url: str) -> tuple[int, int] | None:
        return self._known_calendars.get(url)

    def page_of(self, url: str) -> int | None:
        """Return the number of the page that a URL leads to, whatever parameter it has; None if it is none."""
        return self.numbers.get(self._without_parameter(url)[0])

    def leads_to(self, url: str) -> int:
        """The same of a link, which may be to a page that has moved; -1 if it is none."""
        page = int(url.rpartition("/")[2]) if "/old/" in url else self.page_of(url)
        return -1 if page is None else page

    def is_calendar(self, url: str) -> bool:
        """Whether a URL is a page of a calendar."""
        return url in self._known_calendars

    def is_twin(self, url: str) -> bool:
        """Whether a URL is another address of a page."""
        return bool(self._without_parameter(url)[1])

    def _calendar_links(self, own: int, step: int) -> list[str]:
        near = {"month": (1, 12), "query": (1, 12)}.get(self.calendar_of[own], (1, 7, 30, 365))
        if abs(step) > 20_000:
            near = (1,)
        fronts = [number for number in np.flatnonzero(self.host_of == own)[:4].tolist()]
        return [
            *(self._calendar_url(own, step + sign * far) for far in near for sign in (1, -1)),
            self._calendar_url(own, 0),
            *(self.urls[number] for number in fronts),
        ]


def _share(text: str, salt: int) -> float:
    return int.from_bytes(blake2b(f"{salt} {text}".encode(), digest_size=4).digest(), "little") / 2**32


def _session(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _digest(text: str, version: int) -> str:
    return blake2b(f"{text} {version}".encode(), digest_size=16).hexdigest()
