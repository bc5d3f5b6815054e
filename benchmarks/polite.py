"""Group `polite`: a Scrapy crawl of many hosts with the add-on, beside Scrapy alone and a crawler with a `Frontier`.

The web is that of tests/support/hosts_web.py. Each crawl begins at the front page of its first site, and reads the
pages that it finds. Two figures for each: pages a second, and the share of all importance (PageRank of the whole web)
on the pages read. With delays a crawl has some seconds; without, it ends after some pages. Clocks are those of the
wall, as crawls wait: other work on the machine disturbs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import ProxyHandler, build_opener

import numpy as np

from benchmarks.harness import Figure, Scale, check, say, versus

ADDON, ALONE, FRONTIER = "addon", "alone", "frontier"
_TESTS = Path(__file__).parent.parent / "tests"
_BREADTH_FIRST = {
    "DEPTH_PRIORITY": 1,
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
}


@dataclass(frozen=True)
class Crawl:
    """The limits of a crawl."""

    name: str
    delay: float = 0.0
    """Seconds between two fetches of a host."""
    concurrent: int = 16
    each: int = 8
    """Fetches at the same time, all and of a host. The defaults are Scrapy's own."""
    seconds: float = 0.0
    pages: int = 0
    """When it ends."""


ROWS = (
    Crawl("delay 0.5 s, as Scrapy is by default", 0.5, seconds=50),
    Crawl("delay 0.2 s, 100 slots, 1 a host", 0.2, 100, 1, seconds=50),
    Crawl("delay 0.2 s, 32 slots, 1 a host", 0.2, 32, 1, seconds=50),
)
STEPS = (250, 500, 1000, 2000, 3000)
WITHOUT_DELAY = Crawl("no delay", pages=STEPS[-1])


def measure(scale: Scale) -> Iterator[Figure]:
    """Yield pages a second and the share of importance read of each crawl, beside Scrapy alone and the frontier."""
    sys.path.insert(0, str(_TESTS))
    pages, part, rows = scale.pick((400, 0.04, ROWS[:1]), (5000, 0.4, ROWS), (5000, 1.0, ROWS))
    with import_module("support.hosts_web").served_hosts(pages, 20, 1) as web:
        ranks = import_module("support.crawls").exact_ranks(web.web.graph)
        for row in rows:
            row = replace(row, seconds=row.seconds * part)
            found = {kind: _measured(web, ranks, row, kind) for kind in (ADDON, ALONE, FRONTIER)}
            for other in (ALONE, FRONTIER):
                how = f"{row.name}, {row.seconds:g} s: the add-on / {other}"
                (rate, share), (other_rate, other_share) = found[ADDON], found[other]
                yield versus(f"polite.pages_{other}", rate, "pages/s", other_rate, how)
                yield versus(f"polite.read_{other}", share[0], "of importance", other_share[0], how)
        steps = tuple(step for step in STEPS if step < 0.8 * pages)
        row = replace(WITHOUT_DELAY, pages=steps[-1])
        shares = {kind: _measured(web, ranks, row, kind, steps)[1] for kind in (ADDON, ALONE, FRONTIER)}
        for number, step in enumerate(steps):
            for other in (ALONE, FRONTIER):
                how = f"no delay, after {step} of {pages} pages: the add-on / {other}"
                yield versus(f"polite.read_{other}", shares[ADDON][number], "of importance", shares[other][number], how)


def _measured(web: Any, ranks: Any, crawl: Crawl, kind: str, steps: Sequence[int] = ()) -> tuple[float, list[float]]:
    """Return pages a second, and the share of importance read after so many pages, or at the end."""
    say(f"polite: {crawl.name}, {kind}")
    web.fetched.clear()
    with TemporaryDirectory(prefix="opicflow-polite-") as work:
        if kind == FRONTIER:
            _crawl_by_frontier(web, crawl, work)
        else:
            values = (crawl.delay, crawl.concurrent, crawl.each, crawl.seconds, crawl.pages)
            arguments = [kind, web.urls[0], work, *map(str, values)]
            command = [sys.executable, "-m", "benchmarks.polite", *arguments]
            subprocess.run(command, env={**os.environ, "http_proxy": web.proxy, "no_proxy": ""}, check=True)
        fetched = list(dict.fromkeys(web.fetched))
        check(len(fetched) > 1, f"{kind} reads more than {len(fetched)} pages")
    shares = np.cumsum(ranks[fetched])
    ends = [min(step, len(fetched)) for step in steps] or [len(fetched)]
    return len(fetched) / (crawl.seconds or 1.0), [float(shares[end - 1]) for end in ends]


# -- the process of Scrapy ---------------------------------------------------------------------------------------------


def crawl_by_scrapy(kind: str, first: str, work: str, delay: str, concurrent: str, each: str, *ends: str) -> None:
    """Crawl from a page until it is time, or so many pages were read."""
    import scrapy
    from scrapy.crawler import CrawlerProcess
    from scrapy.linkextractors import LinkExtractor

    class Web(scrapy.Spider):
        name = "web"
        start_urls: Sequence[str] = [first]
        links = LinkExtractor()

        def parse(self, response: Any) -> Iterator[Any]:
            for link in self.links.extract_links(response):
                yield response.follow(link, self.parse)

    settings: dict[str, object] = {
        "LOG_LEVEL": "WARNING",
        "DOWNLOAD_DELAY": float(delay),
        "CONCURRENT_REQUESTS": int(concurrent),
        "CONCURRENT_REQUESTS_PER_DOMAIN": int(each),
        "CLOSESPIDER_TIMEOUT": float(ends[0]),
        "CLOSESPIDER_PAGECOUNT": int(ends[1]),
        **_BREADTH_FIRST,
    }
    if kind == ADDON:
        settings |= {"ADDONS": {"opicflow.pipelines.crawl.scrapy.Addon": 500}, "OPICFLOW_FOLDER": work}
    process = CrawlerProcess(settings)
    process.crawl(Web)
    process.start()


# -- the crawler with a frontier ---------------------------------------------------------------------------------------


def _crawl_by_frontier(web: Any, crawl: Crawl, work: str) -> None:
    """Crawl with threads that take pages from a `Frontier`, each host one after the other."""
    from opicflow.connectors.files.html_links import decode_html, links_of_html
    from opicflow.pipelines.crawl.frontier import Frontier

    opener, end = build_opener(ProxyHandler({"http": web.proxy})), threading.Event()
    left = [crawl.pages or 10**9]

    def fetch(frontier: Frontier) -> None:
        while not end.is_set():
            urls = frontier.next(1)
            if not urls:
                end.wait(0.01)
                continue
            with opener.open(urls[0]) as answer:
                links, _ = links_of_html(decode_html(answer.read(), "text/html"), urls[0], "")
            frontier.visited({"url": urls[0], "status": 200, "links": [link.url for link in links]})
            left[0] -= 1
            if left[0] <= 0:
                end.set()

    with Frontier.open(work, _clock, delay_seconds=crawl.delay) as frontier:
        frontier.announce([web.urls[0]])
        threads = [threading.Thread(target=fetch, args=(frontier,)) for _ in range(min(crawl.concurrent, 32))]
        for thread in threads:
            thread.start()
        end.wait(crawl.seconds or None)
        end.set()
        for thread in threads:
            thread.join()


def _clock() -> float:
    return time.time()  # noqa: TID251 - a crawl happens now


if __name__ == "__main__":
    crawl_by_scrapy(*sys.argv[1:])
