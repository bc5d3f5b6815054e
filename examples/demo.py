"""`make demo`: replay the example log on the command line, and print its top pages beside their exact PageRank.

The exact ranks come from the same log by an independent way: the links of every page's last answer, all in memory,
iterated until nothing changes. The ledger receives one event after the other.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import orjson

from opicflow.pipelines.cli.main import main as opicflow
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused
from opicflow.schemas.event_columns import EventWriter, is_nofollow
from opicflow.schemas.json_events import event_of
from opicflow.schemas.kernel import is_compiled
from opicflow.schemas.urls import NotAPage, canonical

TOP = Path(__file__).resolve().parent.parent
LOG = Path("examples/crawl.jsonl.gz")
OUT = Path("build/demo")
SHOWN = 10


def main() -> int:
    """Replay, compare, and name the report."""
    os.chdir(TOP)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    if not is_compiled("pipelines.ledger"):
        print("Two processes compile what the replay needs, once for this version: about fifteen seconds.", flush=True)
    print("A crawl log of five days, replayed. The ledger keeps importance exact, and proves how exact:", flush=True)
    code = run(LOG, "--out", OUT, "--state", OUT / "state", "--report", OUT / "report.html")
    if code == 0:
        print("\nThe same log with a window, as the paper does it: an estimate, without links in memory.", flush=True)
        with redirect_stdout(StringIO()):
            code = run(LOG, "--history", "interpolation", "--out", OUT / "window")
    if code:
        return code
    certified, window, exact = importance(OUT), importance(OUT / "window"), exact_ranks(LOG)
    print("\nBoth beside the exact PageRank of the graph that the log leaves behind, computed independently:\n")
    print("   certified  by window   PageRank  certified    window  page")
    for url in sorted(exact, key=lambda url: -exact[url])[:SHOWN]:
        off, off_window = certified[url] / exact[url] - 1, window[url] / exact[url] - 1
        print(f"  {certified[url]:10.6f} {window[url]:10.6f} {exact[url]:10.6f} {off:+10.4%} {off_window:+9.1%}  {url}")
    print()
    for name, ranks in (("certified", certified), ("by window", window)):
        all_pages, top_tenth = mean_errors(ranks, exact)
        print(f"  mean error, {name}: all pages {all_pages:.4%}, the top tenth {top_tenth:.4%}")
    distance = sum(abs(certified[url] - exact[url]) for url in exact)
    print(f"  certificate: the sum of all errors is at most {certificate(OUT):.4%}; it is {distance:.4%}")
    print(f"\nReplayed again, with everything compiled and loaded: {speed()}")
    print("\nOne page:   .venv/bin/opicflow show https://docs.tern.example/ --state build/demo/state")
    print("Your log:   .venv/bin/opicflow replay LOG (the guide is docs/guides/replay.md)")
    print("The report: build/demo/report.html, for a browser")
    print("The dashboard: .venv/bin/opicflow serve --state build/demo/state, then open http://127.0.0.1:8321/")
    return 0


def speed() -> str:
    """How fast another replay of the log is, by its own summary."""
    with redirect_stdout(StringIO()) as printed:
        opicflow(["replay", str(LOG), "--quiet"])
    return next(line for line in printed.getvalue().splitlines() if line.endswith("events/s"))


def run(*arguments: object) -> int:
    """Run `opicflow replay`, and show how it is called."""
    words = ["replay", *map(str, arguments)]
    print(f"\n$ opicflow {' '.join(words)}", file=sys.__stdout__, flush=True)
    return opicflow([*words, "--quiet"])


def importance(folder: Path) -> dict[str, float]:
    """The importance of every page, from the file that the replay wrote."""
    with open(folder / "importance.jsonl", "rb") as lines:
        return {record["url"]: record["importance"] for record in map(json.loads, lines)}


def certificate(folder: Path) -> float:
    """The bound of the sum of all errors that the replay proved."""
    return float(json.loads((folder / "summary.json").read_text(encoding="utf-8"))["certificate"])


def exact_ranks(log: Path) -> dict[str, float]:
    """The exact PageRank of every page of the graph that a log leaves behind."""
    links: dict[str, list[str]] = {}
    hops: set[str] = set()
    with gzip.open(log) as lines:
        for line in lines:
            try:
                event = event_of(orjson.loads(line))
                EventWriter().add(0, event)  # refuses what makes no sense
                canonical(event.url)
            except (ValueError, EventRefused):
                continue
            read(event, links, hops)
    number = {url: index for index, url in enumerate(links)}
    sources = [number[url] for url, targets in links.items() for _ in targets]
    targets = [number[target] for targets in links.values() for target in targets]
    votes = np.array([url not in hops for url in links], float)  # a page that redirects has none
    ranks = pagerank(Graph.from_links(len(number), sources, targets), personalisation=votes).values
    return dict(zip(links, ranks.tolist(), strict=True))


def read(event: CrawlEvent, links: dict[str, list[str]], hops: set[str]) -> None:
    """Apply an event to `links`, the links of every page, and to `hops`, the pages whose link is a redirect."""
    chain = [page for page in map(page_of, (*event.redirects, event.url)) if page]
    for hop, target in pairwise(chain):
        links[hop] = [target]
        hops.add(hop)
    page, other = chain[-1], page_of(event.canonical or "")
    named = [(link, page_of(link.url)) for link in event.links or ()]
    for known in (page, other, *(target for _, target in named)):
        if known:
            links.setdefault(known, [])
    if event.announce or event.failure or event.status in (304, 403, 500, 502, 503):
        return
    if event.status in (404, 410) or (other and other != page) or event.links is not None:
        hops.discard(page)
    if event.status in (404, 410):
        links[page] = []
    elif other and other != page:
        links[page] = [other]
    elif event.links is not None:
        links[page] = [target for link, target in named if target and not is_nofollow(link)]


def page_of(url: str) -> str | None:
    """The canonical URL; None if it is no page's."""
    try:
        return canonical(url).decode()
    except NotAPage:
        return None


def mean_errors(ranks: dict[str, float], exact: dict[str, float]) -> tuple[float, float]:
    """The mean relative error over all pages with importance, and over the most important tenth."""
    right = np.array(sorted(exact.values(), reverse=True))
    given = np.array([ranks[url] for url in sorted(exact, key=lambda url: -exact[url])])
    off = np.abs(given - right)[right > 0] / right[right > 0]
    return float(off.mean()), float(off[: len(off) // 10].mean())


if __name__ == "__main__":
    sys.exit(main())
