"""Limits of fetches hold in a frontier, however fast the crawler is and however often it begins again."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from opicflow.pipelines.crawl.frontier import Frontier
from opicflow.pipelines.ledger import Certified, LedgerConfig, RefreshConfig
from support.frontier_crawl import StandInClock

DAY = 86_400
HOSTS = ("www.a.example", "news.a.example", "b.example")


@pytest.fixture
def clock() -> StandInClock:
    clock = StandInClock()
    clock.second += DAY - clock.second % DAY  # midnight
    return clock


def crawled(
    folder: Path, clock: StandInClock, seconds: int, delay: float | None, **limits: float
) -> dict[str, list[int]]:
    """Crawl for so long, a page of each call at once, and return the seconds of the fetches of each host."""
    ledger = LedgerConfig(history=Certified(), refresh=RefreshConfig(**limits))  # type: ignore[arg-type]
    found: dict[str, list[int]] = {host: [] for host in HOSTS}
    until = clock.second + seconds
    with Frontier.open(folder, clock, delay_seconds=delay, ledger=ledger) as frontier:
        for host in HOSTS:
            if not (folder / "visits.jsonl").read_bytes().count(f'"https://{host}/"'.encode()):
                frontier.announce([f"https://{host}/"])
        while clock.second < until:
            for url in frontier.next(4):
                host = urlsplit(url).netloc
                found[host].append(int(clock.second))
                links = [f"https://{host}/{number}" for number in range(120)] if url.endswith("/") else []
                frontier.visited({"url": url, "status": 200, "links": links, "digest": url})
            clock.second += 1 if (due := frontier.due()) is None else max(min(due, until) - clock.second, 1)
    return found


@pytest.mark.parametrize("delay", [None, 1.0])
@pytest.mark.parametrize(
    ("limits", "most_each", "most_all"),
    [
        ({"host_fetches_per_day": 20}, 20, 60),
        ({"domain_fetches_per_day": 30}, 30, 60),
        ({"host_fetches_per_day": 15, "domain_fetches_per_day": 25}, 15, 40),
    ],
)
def test_no_day_has_more_fetches_than_its_limit_and_the_next_day_has_as_many(
    limits: dict[str, float], most_each: int, most_all: int, delay: float | None, tmp_path: Path, clock: StandInClock
) -> None:
    midnight = clock.second
    parts = [crawled(tmp_path / "crawl", clock, DAY // 2, delay, **limits) for _ in range(4)]  # opened four times
    seconds = {host: [second for part in parts for second in part[host]] for host in HOSTS}
    for day in range(2):
        begin = midnight + day * DAY
        of_day = Counter({host: sum(begin <= one < begin + DAY for one in seconds[host]) for host in HOSTS})
        assert max(of_day.values()) <= most_each and 0.8 * most_all <= of_day.total() <= most_all
        of_a = of_day["www.a.example"] + of_day["news.a.example"]
        assert of_a <= limits.get("domain_fetches_per_day", of_a)


@pytest.mark.parametrize("delay", [None, 1.0])
@pytest.mark.parametrize(("limits", "gap"), [({"host_fetches_per_hour": 20}, 180), ({"crawl_delay_seconds": 60}, 60)])
def test_two_fetches_of_a_host_are_as_far_apart_as_its_limit_says(
    limits: dict[str, float], gap: int, delay: float | None, tmp_path: Path, clock: StandInClock
) -> None:
    parts = [crawled(tmp_path / "crawl", clock, 1500, delay, **limits) for _ in range(2)]
    for host in HOSTS:
        seconds = [second for part in parts for second in part[host]]
        assert min(after - before for before, after in pairwise(seconds)) >= gap
        assert len(seconds) >= 0.8 * 3000 / gap
