"""Group `scrapy`: what the add-on takes of the processor in a crawl that never waits, beside Scrapy alone.

The clock is the processor time of Scrapy's process. That of the recorder beside it, on another core, is counted apart.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from benchmarks.harness import Figure, check, say, versus

_PAGES, _LINKS, _PARAGRAPHS = 50_000, 40, 40
_WARM, _COUNTED = 300, 600
"""Pages that are crawled before the clock starts, and those that are counted."""
_PAIRS = 6
_FOLLOWS, _READS_A_LIST = "follows", "list"
"""The spiders: that of the guide, which follows all links, and one that gets a list of pages and takes their titles."""
_ADDON, _ALONE = "addon", "alone"
_RACES = {
    "scrapy.follows": (_FOLLOWS, "a spider that follows all links"),
    "scrapy.list": (_READS_A_LIST, "a spider that takes the titles of listed pages"),
}
_SENTENCE = "A crawler fetches pages for months, and needs to find the most important ones. "


def measure(tiny: bool) -> Iterator[Figure]:
    """Pages for each second of the processor, with the add-on and without."""
    warm, counted, pairs = (20, 40, 1) if tiny else (_WARM, _COUNTED, _PAIRS)
    with _served() as root:
        for name, (spider, how) in _RACES.items():
            spent: dict[str, list[_Spent]] = {_ADDON: [], _ALONE: []}
            for pair in range(pairs):
                say(f"{name}: {pair + 1} of {pairs} pairs of crawls")
                for kind in (_ADDON, _ALONE)[:: -1 if pair % 2 else 1]:
                    spent[kind].append(_crawled(spider, kind, root, warm, counted))
            ours, theirs = spent[_ADDON], spent[_ALONE]
            own, other = (median(each.crawler for each in crawls) for crawls in (ours, theirs))
            beside = median(each.recorder for each in ours) / counted
            how += f"; with / without the add-on, which takes {_more(ours, theirs, 'crawler')} of the processor time of"
            how += f" Scrapy's process, and {_more(ours, theirs, 'wall')} of the time on the clock: medians of {pairs}"
            how += f" pairs, least and most; and {1000 * beside:.2f} ms a page in a process of its own"
            yield versus(name, counted / own, "pages/s", counted / other, how)


def _more(ours: list[_Spent], theirs: list[_Spent], field: str) -> str:
    pairs = zip(ours, theirs, strict=True)
    more = sorted(100 * (getattr(one, field) / getattr(other, field) - 1) for one, other in pairs)
    return f"{median(more):+.1f} % ({more[0]:+.1f} to {more[-1]:+.1f})"


class _Spent(NamedTuple):
    """The seconds of the pages that are counted."""

    crawler: float
    """Of the processor, by Scrapy's process."""
    recorder: float
    """Of the processor, by the processes that it has started."""
    wall: float


def _crawled(spider: str, kind: str, root: str, warm: int, counted: int) -> _Spent:
    """Crawl in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.scrapy", "crawl", spider, kind, root, str(warm), str(counted)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    *spent, recorded = json.loads(done.stdout.splitlines()[-1])
    least = warm + counted if kind == _ADDON else 0
    check(recorded >= least, f"the add-on records {least} pages, not {recorded}")
    return _Spent(*spent)


# -- the process that crawls -------------------------------------------------------------------------------------------


def crawl(spider: str, kind: str, root: str, warm: int, counted: int) -> None:
    """Crawl. Prints the seconds of the pages behind the first ones, and how many visits were recorded."""
    from scrapy.crawler import CrawlerProcess
    from scrapy.linkextractors import LinkExtractor

    import scrapy
    from scrapy import signals

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

    pages, marks = [0], list[_Spent]()

    def count(**_: object) -> None:
        pages[0] += 1
        if pages[0] in (warm, warm + counted):
            used = resource.getrusage(resource.RUSAGE_SELF)
            marks.append(_Spent(used.ru_utime + used.ru_stime, _used_by_children(), perf_counter()))

    with TemporaryDirectory(prefix="opicflow-scrapy-") as work:
        settings: dict[str, object] = {"LOG_LEVEL": "WARNING", "CLOSESPIDER_PAGECOUNT": warm + counted}
        if kind == _ADDON:
            settings |= {"ADDONS": {"opicflow.pipelines.scrapy.Addon": 500}, "OPICFLOW_FOLDER": work}
        process = CrawlerProcess(settings)
        crawler = process.create_crawler(Web)
        crawler.signals.connect(count, signals.response_received, weak=False)
        process.crawl(crawler)
        process.start()
        log = Path(work) / "web" / "visits.jsonl"
        recorded = log.read_bytes().count(b'"status"') if log.exists() else 0
    print(json.dumps((*(end - begin for begin, end in zip(*marks, strict=True)), recorded)))


def _used_by_children() -> float:
    """Return the processor seconds of the processes that this one has started, and that run."""
    ticks = 0
    for pid in Path("/proc/thread-self/children").read_text(encoding="utf-8").split():
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
