"""Group `scrapy`: what the add-on takes of the processor in a crawl that never waits, beside Scrapy alone.

A crawl with the add-on and one without share one core: what disturbs the machine disturbs both alike. After its first
pages each waits for the other, so that they go on at the same time. The clock is the processor time of Scrapy's
process, over the time in which both crawl. That of the recorder, on another core, is counted apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Figure, Scale, check, say, versus

_PAGES, _LINKS, _PARAGRAPHS = 50_000, 40, 40
_STEP = 20
"""Pages between two looks at the clock."""
_FOLLOWS, _READS_A_LIST = "follows", "list"
"""The spiders: that of the guide, which follows all links, and one that gets a list of pages and takes their titles."""
_ADDON, _ALONE = "addon", "alone"
_RACES = {
    "scrapy.follows": (_FOLLOWS, "a spider that follows all links"),
    "scrapy.list": (_READS_A_LIST, "a spider that takes the titles of listed pages"),
}
_SENTENCE = "A crawler fetches pages for months, and needs to find the most important ones. "


def measure(scale: Scale) -> Iterator[Figure]:
    """Pages for each second of the processor, with the add-on and without.

    Of each crawl the first pages come before the clock starts; then so many are counted.
    """
    warm, counted, pairs = scale.pick((20, 60, 1), (200, 700, 3), (300, 1500, 4))
    with _served() as root:
        for name, (spider, how) in _RACES.items():
            ours, theirs = list[_Spent](), list[_Spent]()
            for pair in range(pairs):
                say(f"{name}: {pair + 1} of {pairs} pairs of crawls")
                own, other = _crawled_together(spider, root, warm, counted)
                ours.append(own)
                theirs.append(other)
            own_rate, other_rate = (1 / median(each.crawler for each in crawls) for crawls in (ours, theirs))
            more = sorted(100 * (own.crawler / other.crawler - 1) for own, other in zip(ours, theirs, strict=True))
            beside = 1000 * median(each.recorder for each in ours)
            how += f"; with / without the add-on, which takes {median(more):+.1f} % of the processor time of Scrapy's"
            how += f" process (median of {pairs} pairs of crawls; {more[0]:+.1f} to {more[-1]:+.1f}), and"
            how += f" {beside:.2f} ms a page in a process of its own"
            yield versus(name, own_rate, "pages/s", other_rate, how)


class _Spent(NamedTuple):
    """Seconds of the processor for a page."""

    crawler: float
    """By Scrapy's process."""
    recorder: float
    """By the processes that it has started."""


def _crawled_together(spider: str, root: str, warm: int, counted: int) -> tuple[_Spent, _Spent]:
    """Crawl with the add-on and without at the same time, in processes of their own."""
    command, pipe = [sys.executable, "-m", "benchmarks.scrapy", "crawl", spider], subprocess.PIPE
    crawls = [
        subprocess.Popen([*command, kind, root, str(warm), str(counted)], stdin=pipe, stdout=pipe, text=True)
        for kind in (_ADDON, _ALONE)
    ]
    for crawl in crawls:
        assert crawl.stdin is not None and crawl.stdout is not None
        crawl.stdout.readline()
    for crawl in crawls:
        assert crawl.stdin is not None
        crawl.stdin.write("go on\n")
        crawl.stdin.flush()
    found = [json.loads(crawl.communicate()[0].splitlines()[-1]) for crawl in crawls]
    recorded = found[0]["recorded"]
    check(recorded >= warm + counted, f"the add-on records {warm + counted} pages, not {recorded}")
    looks = [np.array(each["looks"]).T for each in found]
    both = max(clock[0] for clock, *_ in looks), min(clock[-1] for clock, *_ in looks)
    check(both[0] < both[1], "both crawls run at the same time")
    rows = [[np.diff(np.interp(both, clock, row))[0] for row in rows] for clock, *rows in looks]
    ours, theirs = (_Spent(crawler / pages, recorder / pages) for pages, crawler, recorder in rows)
    return ours, theirs


# -- the process that crawls -------------------------------------------------------------------------------------------


def crawl(spider: str, kind: str, root: str, warm: int, counted: int) -> None:
    """Crawl. Prints clock, pages and processor times after the first pages, and how many visits were recorded."""
    import scrapy
    from scrapy import signals
    from scrapy.crawler import CrawlerProcess
    from scrapy.linkextractors import LinkExtractor

    listed = warm + counted + 100 if spider == _READS_A_LIST else 1

    class Web(scrapy.Spider):
        name = "web"
        start_urls: Sequence[str] = [f"{root}/page/{number}" for number in range(listed)]
        links = LinkExtractor()

        def parse(self, response: Any) -> Iterator[Any]:
            if spider == _READS_A_LIST:
                yield {"title": response.css("title::text").get()}
                return
            for link in self.links.extract_links(response):
                yield response.follow(link, self.parse)

    first, *others = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {first})
    pages, looks = [0], list[tuple[float, ...]]()

    def count(**_: object) -> None:
        pages[0] += 1
        if pages[0] == warm:
            for pid in _children() if others else ():
                os.sched_setaffinity(pid, others)
            print("warm", flush=True)
            sys.stdin.readline()
        if pages[0] >= warm and pages[0] % _STEP == 0:
            looks.append((monotonic(), pages[0], process_time(), _used_by_children()))

    with TemporaryDirectory(prefix="opicflow-scrapy-") as work:
        settings: dict[str, object] = {"LOG_LEVEL": "WARNING", "CLOSESPIDER_PAGECOUNT": warm + counted}
        if kind == _ADDON:
            settings |= {"ADDONS": {"opicflow.pipelines.crawl.scrapy.Addon": 500}, "OPICFLOW_FOLDER": work}
        process = CrawlerProcess(settings)
        crawler = process.create_crawler(Web)
        crawler.signals.connect(count, signals.response_received, weak=False)
        process.crawl(crawler)
        process.start()
        log = Path(work) / "web" / "visits.jsonl"
        recorded = log.read_bytes().count(b'"status"') if log.exists() else 0
    print(json.dumps({"looks": looks, "recorded": recorded}))


def _children() -> list[int]:
    return [int(pid) for pid in Path("/proc/thread-self/children").read_text(encoding="utf-8").split()]


def _used_by_children() -> float:
    """Return the processor seconds of the processes that this one has started, and that run."""
    ticks = 0
    for pid in _children():
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # utime and stime
    return ticks / os.sysconf("SC_CLK_TCK")


# -- the process that serves -------------------------------------------------------------------------------------------


def _body(number: int) -> bytes:
    """Return a page: all have the same size, and as many links; some pages have far more links to them than others."""
    random = Random(number)
    links = [int(_PAGES * random.random() ** 3) for _ in range(_LINKS)]
    anchors = [f'<li class="item"><a href="/page/{link}" title="page">Page {link}</a></li>' for link in links]
    text = f"<p>{_SENTENCE * 5}</p>" * _PARAGRAPHS
    head = f"<!DOCTYPE html><html><head><title>Page {number}</title></head><body>"
    return f"{head}<ul>{''.join(anchors)}</ul>{text}</body></html>".encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        number = self.path.rpartition("/")[2]
        body = _body(int(number)) if number.isdigit() else b""
        head = f"HTTP/1.1 {200 if body else 404} -\r\nContent-Type: text/html; charset=utf-8\r\n"
        self.wfile.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve() -> None:
    """Serve the pages on a free port, which is printed, until the process is ended."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


@contextmanager
def _served() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.scrapy", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.kill()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        crawl(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
