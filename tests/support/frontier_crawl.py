"""Crawls a made-up web by a frontier, on a clock of its own.

`python -m support.frontier_crawl FOLDER` does so in a process that may be killed: it prints a line for each event that
the frontier has taken.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from opicflow.pipelines.crawl.frontier import Frontier
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.ranks.graph.csr import Graph
from support.logs import FIRST_MS, url

PAGES = 400


class StandInClock:
    """Seconds since 1970, which a test moves forward."""

    def __init__(self) -> None:
        self.second = FIRST_MS / 1000.0

    def __call__(self) -> float:
        """Return the second."""
        return self.second


def number_of(address: str) -> int:
    """Return the number of a page."""
    return int(address.rpartition("/")[2])


def visit_of(web: Graph, address: str) -> dict[str, Any]:
    """Return the event of a fetch that succeeds."""
    number = number_of(address)
    links = web.targets[web.starts[number] : web.starts[number + 1]].tolist()
    return {"url": address, "status": 200, "digest": address, "links": [url(link) for link in links]}


def crawl(frontier: Frontier, clock: StandInClock, web: Graph, most: int) -> list[str]:
    """Fetch pages one after the other, a tenth of a second each, until so many were fetched or none is due soon."""
    fetched: list[str] = []
    while len(fetched) < most:
        pages = frontier.next(min(8, most - len(fetched)))
        if not pages:
            due = frontier.due()
            if due is None or due > clock.second + 60:
                return fetched
            clock.second = max(due, clock.second + 0.1)
        for page in pages:
            clock.second += 0.1
            frontier.visited(visit_of(web, page))
            fetched.append(page)
    return fetched


def main(folder: str, save_every: int) -> None:
    """Crawl for ever, and print the URL of each event that was taken."""
    web, clock = power_law_web(PAGES, 1), StandInClock()
    with Frontier.open(folder, clock, delay_seconds=0.0) as frontier:
        frontier.announce([url(0), url(1)])
        print("ready", flush=True)
        number = 0
        while True:
            clock.second += 3600
            for page in frontier.next(4):
                clock.second += 0.1
                frontier.visited(visit_of(web, page))
                print(page, flush=True)
                number += 1
                if number % save_every == 0:
                    frontier.save()


if __name__ == "__main__":
    main(str(Path(sys.argv[1])), int(sys.argv[2]))
