"""Crawls of a web with endless calendars and meaningless parameters, and what they get: writes docs/results/traps.md.

Run it with `python -m benchmarks.trap_crawls`. The web is that of trap_web.py. A crawl reads it breadth first for a
day; then it fetches, for six days, what `opicflow replay` orders each morning, or what a `Frontier` returns for the
next fetch, of so many fetches a day. Days are those of the log. Everything has a seed but the secret key of page ids,
which decides between equal pages.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson

from benchmarks.harness import say
from benchmarks.trap_web import TrapWeb
from opicflow.pipelines.crawl.frontier import Frontier
from opicflow.pipelines.lab.experiments.discovery.crawled_webs import WEBS, crawled_web
from opicflow.pipelines.lab.experiments.discovery.crawls import a_day, measure_reading
from opicflow.pipelines.lab.experiments.discovery.followed_orders import LEARNT, LedgerOrders, discovering
from opicflow.pipelines.lab.experiments.installed_command import DailyReplays
from opicflow.pipelines.ledger import Certified, LedgerConfig, RefreshConfig
from opicflow.schemas.arrays import Floats, Ints

_ROOT = Path(__file__).parent.parent
_PAGE = _ROOT / "docs" / "results" / "traps.md"
_MARK = "<!-- measured -->\n"
START, DAY = 1_767_225_600, 86_400
PAGES, PER_DAY, DAYS, LOOKS = 5000, 2000, 6, 12
SEEDS, DISCOVERY_SEEDS, DISCOVERY_PAGES, MARK = (1, 2, 3), (1, 2, 3), 10_000, 40
LIMITED, IGNORED, BY_WORTH = "limited", "ignored", "by worth"
BREADTH_FIRST, FRONTIER = "breadth-first", "a `Frontier`"
BY_TRUTH, OF_FOUND = "greedy, true rates", "greedy, true rates, pages found"
OPTIONS = {
    IGNORED: ("traps=ignored",),
    LIMITED: ("traps=limited",),
    BY_WORTH: ("traps=limited", "discovery-share=auto"),
}
"""Crawls by orders of a replay, and its settings."""


@dataclass
class LivingCrawl:
    """A crawl of a web that lives: its copy of each page, and its fetches since the first day."""

    web: TrapWeb
    per_day: int
    got: Ints = field(init=False)
    """The version of each page that was fetched last; -1 = none."""
    fetches: int = 0
    of_calendars: int = 0
    of_twins: int = 0
    fresh: list[float] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.got = np.full(len(self.web.urls), -1, np.int64)

    def fetch(self, url: str, day: int, number: int) -> dict[str, Any]:
        """Fetch a page, the so many-th of a day."""
        second = START + day * DAY + number * DAY // self.per_day
        event: dict[str, Any] = self.web.fetch(url, second)
        self.lines.append(orjson.dumps(event))
        page = self.web.page_of(event["url"])
        if event["status"] == 200 and page is not None:
            self.got[page] = self.web.version(page, second)
        if day > 0:
            self.fetches += 1
            self.of_calendars += self.web.is_calendar(url)
            self.of_twins += self.web.is_twin(url)
            if self.fetches % (self.per_day // LOOKS) == 0:
                self.measure_at(second)
        return event

    def measure_at(self, second: float) -> None:
        """Note which share of all importance is on pages whose newest version was fetched."""
        self.fresh.append(float(self.web.exact[self.got == self.web.versions(second)].sum()))

    def breadth_first(self, day: int) -> None:
        """Read the pages of a day, from the first one of the web on, in the order in which links lead to them."""
        queue = [self.web.urls[self.web.first]]
        seen = set(queue)
        for number, url in enumerate(queue):
            if number == self.per_day:
                return
            for link in self.fetch(url, day, number).get("links", ()):
                if link not in seen:
                    seen.add(link)
                    queue.append(link)

    def row(self) -> dict[str, float]:
        """Return the shares of fetches to calendars and twins, the mean freshness, and the importance read, in %."""
        shares = (self.of_calendars / self.fetches, self.of_twins / self.fetches)
        values = (*shares, float(np.mean(self.fresh)), float(self.web.exact[self.got >= 0].sum()))
        return dict(zip(COLUMNS, (100 * value for value in values), strict=True))


COLUMNS = ("calendars", "twins", "fresh", "read")


def living_crawl(
    seed: int, kind: str, pages: int = PAGES, per_day: int = PER_DAY, days: int = DAYS
) -> dict[str, float]:
    """Crawl for so many days after the first, in an order, and return the row of the table."""
    web = TrapWeb(pages, seed)
    crawl = LivingCrawl(web, per_day)
    crawl.breadth_first(0)
    if kind == BREADTH_FIRST:
        for day in range(1, days + 1):
            crawl.breadth_first(day)
    elif kind in (BY_TRUTH, OF_FOUND):
        _fetch_by_truth(crawl, days, kind == OF_FOUND)
    elif kind == FRONTIER:
        _fetch_by_frontier(crawl, days)
    else:
        with TemporaryDirectory(prefix="opicflow-traps-") as folder:
            settings = [text for setting in OPTIONS[kind] for text in ("--set", setting)]
            replays = DailyReplays(Path(folder), ("--bandwidth", str(per_day), *settings))
            for day in range(1, days + 1):
                orders = replays.orders(crawl.lines, 1000 * (START + day * DAY))
                crawl.lines.clear()
                first = sorted(orders, key=lambda order: order["not_before"])[:per_day]
                for number, order in enumerate(first):
                    crawl.fetch(order["url"], day, number)
    return crawl.row()


def _fetch_by_truth(crawl: LivingCrawl, days: int, of_found: bool) -> None:
    """Fetch the page whose copy costs most, by its true importance and change rate, which no crawler has.

    Of all pages; or of those that are linked from pages that were fetched.
    """
    web, age = crawl.web, np.where(crawl.got >= 0, 0.5, 1e9)
    is_found = np.full(len(web.urls), not of_found)
    for day in range(1, days + 1):
        for number in range(crawl.per_day):
            for line in crawl.lines if of_found else ():
                linked = [web.leads_to(url) for url in orjson.loads(line).get("links", ())]
                is_found[[page for page in linked if page >= 0]] = True
            crawl.lines.clear()
            best = int(np.argmax(np.where(is_found, web.exact * -np.expm1(-web.rates * age), -1.0)))
            crawl.fetch(web.urls[best], day, number)
            age += 1 / crawl.per_day
            age[best] = 0.0


def _fetch_by_frontier(crawl: LivingCrawl, days: int) -> None:
    """Fetch what a frontier returns for each fetch: it knows the links of the fetch before."""
    now = [float(START)]
    refresh = RefreshConfig(bandwidth_per_day=float(crawl.per_day))
    ledger = LedgerConfig(history=Certified(), refresh=refresh)
    with (
        TemporaryDirectory(prefix="opicflow-traps-") as folder,
        Frontier.open(folder, lambda: now[0], delay_seconds=None, ledger=ledger) as frontier,
    ):

        def report() -> None:
            for line in crawl.lines:
                event = orjson.loads(line)
                now[0] = event["fetched_at"] / 1000
                frontier.visited(event)
            crawl.lines.clear()

        report()
        for day in range(1, days + 1):
            for number in range(crawl.per_day):
                now[0] = float(START + day * DAY + number * DAY // crawl.per_day)
                for url in frontier.next(1):
                    crawl.fetch(url, day, number)
                report()


def reading(web: str, seed: int, traps: str, pages: int = DISCOVERY_PAGES) -> Floats:
    """Return the share of importance that a crawl by a ledger's orders has read, in per cent, after each of `MARKS`.

    The last value is the share of hostile pages among those that were read.
    """
    crawled = crawled_web(web, pages, seed)
    config = discovering(a_day(crawled), "learnt")
    config = replace(config, refresh=replace(config.refresh, traps=traps))
    orders = LedgerOrders(crawled.pages.graph, crawled.pages.urls, crawled.seeds, config)
    rows = measure_reading(crawled, orders, {"seed": seed, "web": web, "order": LEARNT}, MARK)
    return np.array([*(float(row["read"]) for row in rows), float(rows[-1]["hostile"])])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def measured(seeds: Sequence[int], discovery_seeds: Sequence[int]) -> str:
    """Measure, and return the measured part of the page."""
    rows = list[list[str]]()
    for kind in (BREADTH_FIRST, *OPTIONS, FRONTIER, OF_FOUND, BY_TRUTH):
        for seed in seeds:
            say(f"{kind}, seed {seed}")
            row = living_crawl(seed, kind)
            name = f"replay, `{OPTIONS[kind][-1]}`" if kind in OPTIONS else kind
            rows.append([name, str(seed), *(f"{row[column]:.1f}" for column in COLUMNS)])
    living = _table(("order", "seed", "% of fetches: calendars", "twins", "% fresh", "% read"), rows)
    if not discovery_seeds:
        return living
    rows = []
    for web in WEBS:
        say(web)
        ignored, limited = (
            np.array([reading(web, seed, kind) for seed in discovery_seeds]) for kind in (IGNORED, LIMITED)
        )
        differences = (limited - ignored)[:, :-1]
        rows.append(
            [
                web,
                *(f"{values[:, -2].mean():.2f}" for values in (ignored, limited)),
                " ".join(f"{value:+.2f}" for value in differences[:, -1]),
                f"{differences.min():+.2f}",
                *(f"{values[:, -1].mean():.1f}" for values in (ignored, limited)),
            ]
        )
    head = ("web", "% read, ignored", "limited", "more, by seed", "least at any mark", "% hostile, ignored", "limited")
    return f"{living}\nThe webs of the page on discovery, after {MARK} % of the pages:\n\n{_table(head, rows)}"


def main(write: Callable[[str], object] = _PAGE.write_text) -> None:
    """Write the page: all above the mark stays."""
    parser = argparse.ArgumentParser(description="measure what traps and twins take of a crawl")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--discovery-seeds", type=int, nargs="*", default=DISCOVERY_SEEDS)
    chosen = parser.parse_args()
    head = _PAGE.read_text(encoding="utf-8").partition(_MARK)[0]
    write(f"{head}{_MARK}\n{measured(chosen.seeds, chosen.discovery_seeds)}")


if __name__ == "__main__":
    main()
