"""Events of a stream in any order: all shards together end with the same pages, links, digests and importance."""

from __future__ import annotations

import random

import pytest

from opicflow.pipelines.ledger import Certified, Ledger, LedgerConfig
from opicflow.pipelines.ledger.pages.refresh_rows import field_of
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.shards import ShardRanges
from support.logs import FIRST_MS, json_line, url
from support.stream_logs import StreamLogs

PAGES = range(60)


def crawl() -> list[CrawlEvent]:
    """Return four visits of every page, each with other links, and other content or none."""
    chance, events = random.Random(1), []
    for number in range(4 * len(PAGES)):
        status = chance.choice([200, 200, 200, 304, 404, 500])
        links = tuple(Link(url(to)) for to in chance.sample(PAGES, 3)) if status == 200 else None
        events.append(
            CrawlEvent(
                url(number % len(PAGES)),
                fetched_at_ms=FIRST_MS + 700 * number,
                status=status,
                links=links,
                digest=str(number // 2) if status == 200 else None,
            )
        )
    return events


def known(ledger: Ledger) -> dict[int, tuple[object, ...]]:
    of = ledger.estimate_all()
    starts, targets, _ = ledger.remembered(of.pages)
    digests = field_of(ledger._room.table, "digest", ledger._reader.slots_of(of.pages))
    return {
        page: (*row, frozenset(targets[first:last].tolist()))
        for page, row, first, last in zip(
            of.pages.tolist(),
            zip(of.visits.tolist(), of.last_visit_ms.tolist(), of.last_outcome.tolist(), digests.tolist(), strict=True),
            starts,
            starts[1:],
            strict=False,
        )
    }


def settled(ledgers: list[Ledger]) -> tuple[dict[int, float], float]:
    """Return the importance of all pages, and its certificate. A shard alone pushes for visits only."""
    if len(ledgers) == 1:
        of = ledgers[0].settle()
        return dict(zip(of.pages.tolist(), of.importance.tolist(), strict=True)), of.certificate
    importance: dict[int, float] = {}
    for ledger in ledgers:
        known = ledger.estimate_all()
        importance |= zip(known.pages.tolist(), known.importance.tolist(), strict=True)
    return importance, max(ledger.certificate() or 0.0 for ledger in ledgers)


@pytest.mark.parametrize("shards", [1, 3])
def test_events_in_any_order_lead_to_the_same_ledgers(shards: int) -> None:
    config, events = LedgerConfig(Certified()), crawl()
    shuffled = random.Random(2).sample(events, len(events))
    ends = []
    for order in (events, shuffled):
        logs = StreamLogs(config, ShardRanges.equal(shards)).read(map(json_line, order)).rest(40)
        ledgers = [keeper.ledger for keeper in logs.keepers if keeper.ledger is not None]
        assert len(ledgers) == shards and all(ledger.audit().drift == 0 for ledger in ledgers)
        late = sum(int(ledger.parts().book.counts[0].late) for ledger in ledgers)
        assert late > 80 if order is shuffled else late == 0
        ends.append(ledgers)
    one, other = ([known(ledger) for ledger in ledgers] for ledgers in ends)
    assert one == other
    (importance, certificate), (again, certificate_again) = map(settled, ends)
    assert importance.keys() == again.keys()
    off = sum(abs(importance[page] - again[page]) for page in importance)
    assert off <= certificate + certificate_again < 0.01
