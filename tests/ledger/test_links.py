"""Remembered links: 4 bytes each, whatever is dropped, learnt again and rewritten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ledger.test_certified import CONFIG, Crawl
from opicflow.pipelines.lab.web.crawl import announcements, visits
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import Certified, History, Interpolation, Ledger, LedgerConfig
from opicflow.pipelines.ledger.pages.links import slide_links
from opicflow.pipelines.ledger.pages.room import Room

HISTORIES = [Certified(pushes_per_visit=2), Interpolation()]
NAMES = ["certified", "interpolation"]


def remembered(ledger: Ledger) -> dict[int, dict[int, int]]:
    """The remembered links of all pages, with their weights."""
    pages = ledger.estimate_all().pages
    starts, targets, weights = ledger.remembered(pages)
    rows = [slice(*pair) for pair in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
    links = [dict(zip(targets[row].tolist(), weights[row].tolist(), strict=True)) for row in rows]
    return {page: of_page for page, of_page in zip(pages.tolist(), links, strict=True) if of_page}


def tidy(crawl: Crawl, step: int) -> None:
    """Move a few blocks of links after every step, and renumber pages after some; a ledger does so rarely."""
    room = crawl.ledger._room
    slide_links(room.table, room.book, 7)
    if step % 9 == 8:
        room.renumber()


@pytest.mark.parametrize("history", HISTORIES, ids=NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_links_are_remembered_as_they_were_last_seen(seed: int, history: History) -> None:
    crawl = Crawl(replace(CONFIG, history=history, remember_links=True), seed)
    for step, _ in enumerate(crawl.run(120)):
        tidy(crawl, step)
        assert remembered(crawl.ledger) == {page: links for page, links in crawl.model.links.items() if links}
        crawl.ledger.audit()
    store = crawl.ledger._room.book.store[0]
    assert store.absent > 0 and store.numbers > crawl.ledger.pages, "pages were dropped and refused"


@pytest.mark.parametrize("history", HISTORIES, ids=NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_how_links_are_stored_decides_nothing(seed: int, history: History) -> None:
    tidied, plain = (Crawl(replace(CONFIG, history=history, remember_links=True), seed) for _ in range(2))
    for step, _ in enumerate(zip(tidied.run(80), plain.run(80), strict=True)):
        tidy(tidied, step)
    assert tidied.ledger.snapshot() == plain.ledger.snapshot()


def test_a_link_takes_at_most_five_bytes_while_pages_change_their_links() -> None:
    pages = 20_000
    ids, random = page_ids(pages, 1), np.random.default_rng(1)
    ledger = Ledger(LedgerConfig(history=Certified(pushes_per_visit=0)))
    ledger.apply(announcements(ids))
    start = pages
    for number in range(5):  # other webs: pages have other links, and more or fewer
        web = power_law_web(pages, number, 10)
        for chosen in np.array_split(random.permutation(pages), 40):
            ledger.apply(visits(web, ids, chosen, start))
            start += len(chosen)
            assert number == 0 or ledger.link_bytes() <= 5.0
    assert len(remembered(ledger)) == pages


def test_an_entry_moves_links_in_proportion_to_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gaps between links are closed without a pause, whatever the size of the ledger."""
    pages = 5_000
    ids, ledger = page_ids(pages, 1), Ledger(LedgerConfig(history=Certified()))
    ledger.apply(announcements(ids))
    ledger.apply(visits(power_law_web(pages, 1, 10), ids, np.arange(pages), pages))
    moved: list[int] = []
    slide = Room.slide_links
    monkeypatch.setattr(Room, "slide_links", lambda self, words: (moved.append(words), slide(self, words)))
    entry = visits(power_law_web(pages, 2, 10), ids, np.arange(3), 2 * pages)
    ledger.apply(entry)
    assert moved == [(1 << 14) + 32 * len(entry.items.link_pages)]
