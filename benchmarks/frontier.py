"""Group `frontier`: what a frontier inside a crawler costs in time and memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time

from benchmarks.harness import Figure, Scale, check, say, versus
from opicflow.pipelines.crawl.frontier import Frontier

SEED = 1
_HOSTS, _NEW_LINKS, _OLD_LINKS = 2_000, 10, 20
_BYTES_A_URL = 400.0
"""The limit of the design: 400 MB for a million."""


def measure(scale: Scale) -> Iterator[Figure]:
    """Memory of a million URLs, and the time of a fetch in all."""
    urls = scale.pick(20_000, 1_000_000)
    say(f"frontier: {urls:,} URLs")
    command = [sys.executable, "-m", "benchmarks.frontier", str(urls)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    known, fetches, seconds, resting, peak = (float(value) for value in found)
    check(known >= 0.9 * urls, f"the frontier has {urls:,} URLs, not {known:,.0f}")
    how = "bytes allowed for a URL / bytes of a URL, beside those of an empty frontier"
    yield versus("frontier.memory", known / resting, "URLs/byte", 1 / _BYTES_A_URL, how)
    yield Figure("frontier.peak", peak / known, "bytes/URL", "the same while it plans")
    yield Figure("frontier.fetches", fetches / seconds, "fetches/s", "next and visited, 30 links each")


def crawl(urls: int, folder: Path) -> None:
    """Crawl a made-up web until so many URLs are known. Prints time and memory."""
    random, now = Random(SEED), [1_800_000_000.0]
    with Frontier.open(folder, clock=lambda: now[0]) as frontier:
        frontier.announce([_url(0)])
        frontier.visited({"url": _url(0), "status": 200, "links": []})
        frontier.next(1)
        empty = _memory("VmRSS")
        frontier.announce(map(_url, range(_HOSTS)))
        known, fetches, begun = _HOSTS, 0, process_time()
        while known < urls:
            now[0] += 0.05
            for page in frontier.next(16):
                links = [
                    *range(known, known + _NEW_LINKS),
                    *(int(known * random.random() ** 3) for _ in range(_OLD_LINKS)),
                ]
                known, fetches = known + _NEW_LINKS, fetches + 1
                frontier.visited({"url": page, "status": 200, "digest": page, "links": [_url(link) for link in links]})
        seconds = process_time() - begun
        print(known, fetches, seconds, _memory("VmRSS") - empty, _memory("VmHWM") - empty)


def _url(number: int) -> str:
    return f"https://host-{number % _HOSTS}.example/section/{number // _HOSTS % 97}/page-{number}.html"


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


if __name__ == "__main__":
    with TemporaryDirectory(prefix="opicflow-frontier-") as work:
        crawl(int(sys.argv[1]), Path(work) / "frontier")
