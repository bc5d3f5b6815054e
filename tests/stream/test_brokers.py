"""A stream on three brokers and two TaskManagers: any one of them may go, and the topics are right in the end.

`make soak ONLY=any_one_of_them` takes half an hour; `OPICFLOW_SOAK_MINUTES=5` makes it shorter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import numpy as np
import pytest

from deploy.services import supervisor
from deploy.services.kafka import Kafka
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.schemas.arrays import Floats
from opicflow.schemas.crawl_events import CrawlEvent, Link
from support.chaos import events_with_faults
from support.local_stream import NEARLY_EXACT, LocalStream
from support.logs import WebLog, url
from support.services import LocalCluster, raw_records, running_cluster

MINUTES = float(os.environ.get("OPICFLOW_SOAK_MINUTES", "30"))
FAULTS = ("broker", "leaders", "paused_broker", "slow_broker", "tasks", "worker")
PAGES, PER_SECOND = 2000, 60.0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Three brokers, each with every record, of which two must have it; and two TaskManagers."""
    monkeypatch.setitem(supervisor.SERVICES, "kafka", Kafka(brokers=3))
    with running_cluster(tmp_path / "services") as started:
        yield started


@pytest.mark.cluster
@pytest.mark.soak
def test_nothing_is_lost_and_topics_are_right_when_any_one_of_them_goes(
    cluster: LocalCluster, tmp_path: Path, topic_prefix: str, seed: int
) -> None:
    stream = LocalStream(cluster, tmp_path, topic_prefix, 4, snapshots=tmp_path / "snapshots")
    sent: list[str] = []
    stream.start()
    events_with_faults(stream, growing_crawl(seed, sent), any_faults(seed), seed, PER_SECOND)
    ledgers = stream.check()

    events = [json.loads(one.value) for one in raw_records(cluster.brokers, f"{stream.prefix}crawl-events")]
    # The last event may have been taken from the crawl and not sent.
    assert set(sent[:-1]) <= {event["digest"] for event in events}, "an event that was acknowledged is lost"
    exact = ranks_of(events)
    urls = list(exact)
    expected, kept = np.array(list(exact.values())), ledgers.importance(urls)
    assert np.abs(kept - expected).sum() <= NEARLY_EXACT
    stream.wait_for_truth(ledgers, urls)
    stream.cancel()


def any_faults(seed: int) -> Iterator[str]:
    """Yield all kinds of faults in turns, each turn in another order, until the minutes are over."""
    random, until = Random(seed), monotonic() + 60.0 * MINUTES
    while True:
        for fault in random.sample(FAULTS, len(FAULTS)):
            if monotonic() > until:
                return
            yield fault


def growing_crawl(seed: int, sent: list[str]) -> Iterator[CrawlEvent]:
    """Yield visits without end, of more and more pages of a web. Each has a digest of its own, kept in `sent`."""
    random, web = Random(seed), WebLog(power_law_web(PAGES, 3 + seed % 1000, dangling=0.1))
    for number in count():
        page = random.randrange(min(PAGES, 100 + int(PAGES * number / (PER_SECOND * 60.0 * MINUTES))))
        sent.append(f"visit {number}")
        links = tuple(Link(url(target)) for target in web.targets(page))
        yield CrawlEvent(url(page), status=200, links=links, digest=sent[-1])


def ranks_of(events: list[dict[str, Any]], damping: float = 0.85) -> dict[str, float]:
    """Return the PageRank of each URL by the power method, from the newest links of the events of each page.

    The rank of pages without known links is spread over all pages.
    """
    links = {event["url"]: event["links"] for event in events}
    urls = sorted({*links, *(target for targets in links.values() for target in targets)})
    numbers = {page: number for number, page in enumerate(urls)}
    sources = np.array([numbers[page] for page, targets in links.items() for _ in targets])
    targets = np.array([numbers[target] for of in links.values() for target in of])
    out = np.bincount(sources, minlength=len(urls))
    ranks: Floats = np.full(len(urls), 1.0 / len(urls))
    for _ in range(200):
        paid = np.bincount(targets, ranks[sources] / out[sources], minlength=len(urls))
        ranks = damping * (paid + ranks[out == 0].sum() / len(urls)) + (1.0 - damping) / len(urls)
    return dict(zip(urls, ranks.tolist(), strict=True))
