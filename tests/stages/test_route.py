"""Routed events: rows, sightings, weights, rejects, counts."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import NO_CATEGORY, CrawlItems, Kind, Outcome
from opicflow.pipelines.stages.route import COUNTS, Routed, Seen, remember_all, route
from opicflow.pipelines.stages.rules import Categories, LinkWeights, Rules
from opicflow.schemas.crawl_events import CrawlEvent, Link, Reason
from opicflow.schemas.event_columns import EventWriter, quality_step
from opicflow.schemas.pages import page_id
from opicflow.schemas.urls import Canonicaliser, UrlRules

HOME, ABOUT, OTHER = "https://a.example/", "https://a.example/about", "https://b.example/"
NOW = 1_700_000_000_000


def routed(*events: CrawlEvent, rules: Rules | None = None, seen: Seen | None = None) -> Routed:
    rules = rules or Rules()
    writer = EventWriter()
    for number, event in enumerate(events):
        writer.add(100 + number, event)
    columns = writer.events()
    own = np.repeat(columns.url_starts[:-1], np.diff(columns.url_starts))
    urls = Canonicaliser(rules.urls).canonicalise(columns.text, columns.begins, columns.ends, own)
    return route(columns, urls, rules, seen or Seen())


def rows(items: CrawlItems) -> list[tuple[Any, ...]]:
    """Return kind, URL, outcome and links (None = unknown) of every row."""
    result = []
    for i in range(len(items)):
        url = items.url_bytes[items.url_starts[i] : items.url_starts[i + 1]].tobytes().decode()
        part = slice(int(items.link_starts[i]), int(items.link_starts[i + 1]))
        links = list(zip(items.link_pages[part].tolist(), items.link_weights[part].tolist(), strict=True))
        known = links if items.links_known[i] else None
        result.append((Kind(int(items.kind[i])), url, Outcome(int(items.outcome[i])), known))
    return result


def link(url: str, weight: int = 1024) -> tuple[int, int]:
    return page_id(url), weight


def test_a_visit_is_a_row_with_its_links_and_a_sighting_for_each() -> None:
    result = routed(CrawlEvent(HOME, status=200, links=(Link(ABOUT), Link(OTHER))))
    assert rows(result.items) == [
        (Kind.VISIT, HOME, Outcome.FETCHED, [link(ABOUT), link(OTHER)]),
        (Kind.SIGHTING, ABOUT, Outcome.NONE, None),
        (Kind.SIGHTING, OTHER, Outcome.NONE, None),
    ]
    assert result.items.offset.tolist() == [100, 100, 100]
    assert result.items.within.tolist() == [0, 2, 3]  # 1 is the canonical page
    assert set(result.items.category.tolist()) == {NO_CATEGORY}


def test_null_links_are_unknown_and_an_empty_list_is_a_page_without_links() -> None:
    result = routed(CrawlEvent(HOME), CrawlEvent(ABOUT, links=()))
    assert [row[3] for row in rows(result.items)] == [None, []]
    assert result.counts["visits_links_unknown"] == 1


def test_a_recently_sent_url_is_not_sent_again_and_positions_stay_the_same() -> None:
    seen = Seen()
    event = CrawlEvent(HOME, links=(Link(ABOUT), Link(OTHER)))
    first = routed(CrawlEvent(OTHER), seen=seen)
    again = routed(event, seen=seen)
    assert [row[1] for row in rows(first.items)] == [OTHER]
    assert [(row[0], row[1]) for row in rows(again.items)] == [(Kind.VISIT, HOME), (Kind.SIGHTING, ABOUT)]
    assert again.items.within.tolist() == [0, 2]
    once_more = routed(event, seen=seen)
    assert [(row[0], row[1]) for row in rows(once_more.items)] == [(Kind.VISIT, HOME)], (
        "the page may have been dropped since"
    )


def test_the_table_of_sent_urls_begins_small_and_keeps_them_when_it_grows() -> None:
    seen = Seen()
    assert seen.ids.nbytes <= 1 << 16, "a small log needs no table for millions of pages"
    event = CrawlEvent(HOME, links=(Link(ABOUT), Link(OTHER)))
    routed(event, seen=seen)
    seen.make_room(10_000)
    assert len(seen.ids) >= 10_000
    assert [(row[0], row[1]) for row in rows(routed(event, seen=seen).items)] == [(Kind.VISIT, HOME)]
    seen.make_room(1 << 40)
    assert len(seen.ids) == 1 << 22
    assert [(row[0], row[1]) for row in rows(routed(event, seen=seen).items)] == [(Kind.VISIT, HOME)]


def test_the_table_of_sent_urls_has_room_for_those_of_the_next_batch() -> None:
    seen, random = Seen(bits=20), np.random.default_rng(1)
    for pages in random.integers(1, 3000, 60).tolist():
        seen.make_room(pages)
        known = int((seen.ids != 0).sum())
        assert len(seen.ids) >= min(1 << 20, 3 * (known + pages) // 2)
        free = np.flatnonzero(seen.ids == 0)[: random.integers(0, pages + 1)]
        seen.ids[free] = random.integers(1, 1 << 63, len(free))
        seen.count(len(free))


@pytest.mark.parametrize("bits_in_common", [0, 24, 40])
def test_nearly_all_pages_are_remembered_even_if_their_ids_begin_alike(bits_in_common: int) -> None:
    seen, pages = Seen(), 30_000
    in_common = 0xA5A5A5A5A5A5A5A5 >> (64 - bits_in_common) << (64 - bits_in_common)
    others = np.random.default_rng(1).integers(1, 1 << (63 - bits_in_common), pages).astype(np.uint64)
    ids = others | np.uint64(in_common)
    seen.make_room(pages)
    remember_all(seen.ids, ids)
    assert np.isin(ids, seen.ids).mean() > 0.98


def test_every_hop_is_a_visit_whose_only_link_is_the_next() -> None:
    hops = ("http://a.example/", "https://a.example/old")
    result = routed(CrawlEvent(HOME, redirects=hops, fetched_at_ms=10**12, links=()))
    assert rows(result.items) == [
        (Kind.VISIT, hops[0], Outcome.REDIRECTED, [link(hops[1])]),
        (Kind.VISIT, hops[1], Outcome.REDIRECTED, [link(HOME)]),
        (Kind.VISIT, HOME, Outcome.FETCHED, []),
    ]
    assert result.items.time_ms.tolist() == [10**12] * 3
    assert result.items.within.tolist() == [0, 1, 2]
    assert result.counts["redirects"] == 2
    assert result.counts["visits"] == 1


def test_a_hop_to_itself_and_one_that_is_not_a_page_are_skipped() -> None:
    result = routed(CrawlEvent(HOME, redirects=(ABOUT, "mailto:x@a.example", HOME + "#x"), links=()))
    assert [(row[1], row[3]) for row in rows(result.items)] == [(ABOUT, [link(HOME)]), (HOME, [])]


def test_a_page_that_redirects_twice_is_a_hop_once_and_one_that_answers_in_the_end_is_none() -> None:
    """As where a site sets a cookie: the page leads to another one, which leads back."""
    hops = (HOME, ABOUT, OTHER, ABOUT, OTHER)
    result = routed(CrawlEvent(HOME, redirects=hops, fetched_at_ms=10**12, links=()))
    assert [(row[1], row[2], row[3]) for row in rows(result.items)] == [
        (ABOUT, Outcome.REDIRECTED, [link(OTHER)]),
        (OTHER, Outcome.REDIRECTED, [link(HOME)]),
        (HOME, Outcome.FETCHED, []),
    ]
    assert result.counts["redirects"] == 2 and result.items.within.tolist() == [3, 4, 5]


def test_an_alias_links_to_its_canonical_page_alone() -> None:
    result = routed(CrawlEvent(ABOUT, canonical=HOME, links=(Link(OTHER),)))
    assert rows(result.items) == [
        (Kind.VISIT, ABOUT, Outcome.ALIASED, [link(HOME)]),
        (Kind.SIGHTING, HOME, Outcome.NONE, None),
        (Kind.SIGHTING, OTHER, Outcome.NONE, None),
    ]
    assert result.counts["aliases"] == 1


def test_a_page_that_names_itself_as_canonical_is_not_an_alias() -> None:
    result = routed(CrawlEvent(HOME, canonical=HOME + "#top", links=()))
    assert [row[2] for row in rows(result.items)] == [Outcome.FETCHED]


@pytest.mark.parametrize(
    ("status", "outcome", "known"),
    [
        (None, Outcome.FETCHED, True),
        (200, Outcome.FETCHED, True),
        (299, Outcome.FETCHED, True),
        (304, Outcome.UNCHANGED, True),
        (301, Outcome.REDIRECTED, True),
        (308, Outcome.REDIRECTED, True),
        (404, Outcome.GONE, False),
        (410, Outcome.GONE, False),
        (401, Outcome.BLOCKED, False),
        (403, Outcome.BLOCKED, False),
        (451, Outcome.BLOCKED, False),
        (100, Outcome.FAILED, False),
        (429, Outcome.BUSY, False),
        (503, Outcome.FAILED, False),
        (500, Outcome.FAILED, False),
        (999, Outcome.FAILED, False),
        (-9998, Outcome.BLOCKED, False),
        (-2, Outcome.FAILED, False),
    ],
)
def test_statuses_become_outcomes(status: int | None, outcome: Outcome, known: bool) -> None:
    result = routed(CrawlEvent(HOME, status=status, links=(Link(ABOUT),)))
    assert rows(result.items)[0] == (Kind.VISIT, HOME, outcome, [link(ABOUT)] if known else None)


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        ("timeout", Outcome.FAILED),
        ("whatever it was", Outcome.FAILED),
        ("Robots_TXT", Outcome.BLOCKED),
        ("not-found", Outcome.GONE),
    ],
)
def test_failures_become_outcomes(failure: str, outcome: Outcome) -> None:
    assert rows(routed(CrawlEvent(HOME, failure=failure)).items)[0][2] is outcome


@pytest.mark.parametrize(
    ("event", "outcome", "waits_ms"),
    [
        (CrawlEvent(HOME, status=429, fetched_at_ms=10**12, retry_after=60), Outcome.BUSY, 60_000),
        (CrawlEvent(HOME, status=429, fetched_at_ms=10**12, last_modified_ms=10**12 - 9), Outcome.BUSY, None),
        (CrawlEvent(HOME, status=429, retry_after=60), Outcome.BUSY, None),
        (CrawlEvent(HOME, status=503, fetched_at_ms=10**12, retry_after=60), Outcome.BUSY, 60_000),
        (CrawlEvent(HOME, status=503, fetched_at_ms=10**12, retry_after=-60), Outcome.FAILED, None),
        (CrawlEvent(HOME, status=500, fetched_at_ms=10**12, retry_after=60), Outcome.FAILED, None),
        (
            CrawlEvent(HOME, failure="rate_limited", fetched_at_ms=10**12, retry_after=1 << 60),
            Outcome.BUSY,
            2592 * 10**6,
        ),
    ],
)
def test_a_host_may_ask_to_wait(event: CrawlEvent, outcome: Outcome, waits_ms: int | None) -> None:
    items = routed(event).items
    assert (items.outcome[0], items.modified_ms[0]) == (outcome, 0 if waits_ms is None else 10**12 + waits_ms)


def test_a_redirect_status_pays_its_first_link_only() -> None:
    result = routed(CrawlEvent(HOME, status=302, links=(Link("mailto:x@y.example"), Link(ABOUT), Link(OTHER))))
    assert rows(result.items)[0][3] == [link(ABOUT)]


def test_not_modified_with_an_empty_list_has_unknown_links() -> None:
    assert rows(routed(CrawlEvent(HOME, status=304, links=())).items)[0][3] is None


def test_an_announcement_is_one_row_whatever_other_fields_it_has() -> None:
    result = routed(CrawlEvent(HOME, announce=True, links=(Link(ABOUT),), redirects=(OTHER,), fetched_at_ms=10**12))
    assert rows(result.items) == [(Kind.ANNOUNCEMENT, HOME, Outcome.NONE, None)]
    assert result.items.time_ms.tolist() == [0]
    assert result.counts["announcements"] == 1


def test_a_quality_is_that_of_the_page_that_answered_or_was_announced() -> None:
    def qualities(*events: CrawlEvent) -> dict[str, int]:
        result = routed(*events)
        items = result.items
        urls = [items.url_bytes[i:j].tobytes().decode() for i, j in pairwise(items.url_starts.tolist())]
        return dict(zip(urls, items.quality.tolist(), strict=True))

    found = qualities(
        CrawlEvent(HOME, quality=0.5, links=(Link("https://b.example/"),), redirects=("https://c.example/",)),
        CrawlEvent("https://d.example/", announce=True, quality=0.0),
        CrawlEvent("https://e.example/"),
    )
    others = dict.fromkeys([f"https://{name}.example/" for name in "bce"], 0)
    assert found == {HOME: quality_step(0.5), "https://d.example/": 1} | others


@pytest.mark.parametrize("quality", [-0.1, 1.5, float("nan"), float("inf")])
def test_a_quality_that_is_none_is_dropped_and_counted(quality: float) -> None:
    result = routed(CrawlEvent(HOME, quality=quality), CrawlEvent("https://d.example/", announce=True, quality=2.0))
    assert result.items.quality.tolist() == [0, 0] and result.rejected == []
    assert result.counts["qualities_dropped"] == 2


def test_links_that_are_not_pages_are_counted_and_not_rejected() -> None:
    result = routed(CrawlEvent(HOME, links=(Link("mailto:x@y.example"), Link("javascript:void(0)"), Link("/about"))))
    assert rows(result.items)[0][3] == [link(ABOUT)]
    assert (result.counts["links"], result.counts["links_not_pages"]) == (1, 2)
    assert result.rejected == []


@pytest.mark.parametrize("url", ["ftp://a.example/", "/relative", "", "https://", "https://a.example/" + "x" * 9000])
def test_a_visit_of_a_url_that_is_not_a_page_is_rejected_alone(url: str) -> None:
    result = routed(CrawlEvent(HOME, links=()), CrawlEvent(url, links=(Link(ABOUT),)), CrawlEvent(OTHER, links=()))
    assert [row[1] for row in rows(result.items)] == [HOME, OTHER]
    ((row, reason, detail),) = result.rejected
    assert (row, reason) == (1, Reason.NOT_A_PAGE)
    assert detail.startswith("url: ")
    assert result.counts["visits"] == 2


def test_an_event_after_the_latest_time_is_rejected_alone_with_its_links() -> None:
    events = [CrawlEvent(HOME, fetched_at_ms=NOW, links=(Link(ABOUT),)), CrawlEvent(OTHER, fetched_at_ms=NOW + 1)]
    writer = EventWriter()
    for number, event in enumerate((events[1], *events)):
        writer.add(number, event)
    columns = writer.events()
    own = np.repeat(columns.url_starts[:-1], np.diff(columns.url_starts))
    urls = Canonicaliser(UrlRules()).canonicalise(columns.text, columns.begins, columns.ends, own)
    result = route(columns, urls, Rules(), Seen(), latest_ms=NOW)
    assert [(row, reason) for row, reason, _ in result.rejected] == [(0, Reason.BAD_TIME), (2, Reason.BAD_TIME)]
    assert [row[:2] for row in rows(result.items)] == [(Kind.VISIT, HOME), (Kind.SIGHTING, ABOUT)]
    assert result.counts["visits"] == 1 and result.items.offset.tolist() == [1, 1]
    assert len(route(columns, urls, Rules(), Seen(), latest_ms=NOW + 1).rejected) == 0


def test_nofollow_links_have_no_weight_by_default_and_make_sightings() -> None:
    event = CrawlEvent(HOME, links=(Link(ABOUT, rel="nofollow"), Link(OTHER, rel="UGC noopener")))
    result = routed(event)
    assert rows(result.items)[0][3] == []
    assert [row[1] for row in rows(result.items)[1:]] == [ABOUT, OTHER]
    assert result.counts["links_nofollow"] == 2
    heavier = routed(event, rules=Rules(links=LinkWeights(nofollow=0.5)))
    assert rows(heavier.items)[0][3] == [link(ABOUT, 512), link(OTHER, 512)]


def test_internal_and_external_links_have_their_weights() -> None:
    event = CrawlEvent(
        "https://www.a.co.uk/",
        links=(Link("/x"), Link("https://blog.a.co.uk/"), Link("https://b.co.uk/"), Link("https://www.a.co.uk:444/")),
    )
    by_host = routed(event, rules=Rules(links=LinkWeights(internal=0.25, external=2.0)))
    by_domain = routed(event, rules=Rules(links=LinkWeights(internal=0.25, external=2.0, same_site="domain")))
    assert [weight for _, weight in rows(by_host.items)[0][3]] == [256, 2048, 2048, 2048]
    assert [weight for _, weight in rows(by_domain.items)[0][3]] == [256, 256, 2048, 256]


def test_an_events_weight_and_its_kinds_are_multiplied_and_capped() -> None:
    event = CrawlEvent(HOME, links=(Link(ABOUT, weight=0.5), Link(OTHER, weight=60.0)))
    result = routed(event, rules=Rules(links=LinkWeights(internal=3.0, external=3.0)))
    assert [weight for _, weight in rows(result.items)[0][3]] == [1536, 65535]


def test_rules_of_urls_merge_pages_in_every_field() -> None:
    rules = Rules(UrlRules(("utm_*",), fold_www=True, fold_https=True))
    event = CrawlEvent(
        "http://www.a.example/?utm_source=x", redirects=(HOME,), links=(Link("http://b.example/?utm_a"),)
    )
    result = routed(event, rules=rules)
    assert rows(result.items)[0] == (Kind.VISIT, HOME, Outcome.FETCHED, [link(OTHER)])


# -- categories

NEWS, A_PDF, A_HOP = "https://a.example/news/1", "https://b.example/x.pdf", "https://a.example/news/old"
PATTERNS = ("*/news/*", "*.pdf", "https://a.example/*")
BY_PATTERN, BY_MEDIA, BY_BOTH = Categories(False, PATTERNS), Categories(True), Categories(True, PATTERNS)


def categorised(categories: Categories, *events: CrawlEvent) -> tuple[list[tuple[Kind, str, int]], list[int]]:
    """Return kind, URL and category of every row, and the category of every link."""
    items = routed(*events, rules=Rules(categories=categories)).items
    assert items.category.dtype == items.link_categories.dtype == np.uint8
    assert len(items.category) == len(items) and len(items.link_categories) == len(items.link_pages)
    of_rows = [
        (kind, url, category) for (kind, url, *_), category in zip(rows(items), items.category.tolist(), strict=True)
    ]
    return of_rows, items.link_categories.tolist()


def test_every_page_and_link_belongs_to_the_first_pattern_it_matches() -> None:
    visit = CrawlEvent(
        HOME,
        redirects=(A_HOP, "https://c.example/"),
        content_type="text/html",
        links=(Link(NEWS), Link(OTHER), Link(A_PDF)),
    )
    alias = CrawlEvent("https://c.example/a", canonical=A_PDF, content_type="application/pdf", links=(Link(ABOUT),))
    seeds = [
        CrawlEvent(url, announce=True, content_type="text/html") for url in ("https://d.example/a.pdf", OTHER + "x")
    ]
    found, of_links = categorised(BY_PATTERN, visit, alias, *seeds)
    assert found == [
        (Kind.VISIT, A_HOP, 6),
        (Kind.VISIT, "https://c.example/", NO_CATEGORY),
        (Kind.VISIT, HOME, 8),
        (Kind.SIGHTING, NEWS, 6),
        (Kind.SIGHTING, OTHER, NO_CATEGORY),
        (Kind.SIGHTING, A_PDF, 7),
        (Kind.VISIT, "https://c.example/a", NO_CATEGORY),
        (Kind.SIGHTING, ABOUT, 8),
        (Kind.ANNOUNCEMENT, "https://d.example/a.pdf", 7),
        (Kind.ANNOUNCEMENT, OTHER + "x", NO_CATEGORY),
    ]
    assert of_links == [NO_CATEGORY, 8, 6, NO_CATEGORY, 7, 7]  # of the hops, the visit, the alias


def test_a_visited_page_without_a_pattern_has_the_category_of_its_media_type() -> None:
    visit = CrawlEvent(
        OTHER,
        redirects=("https://c.example/",),
        content_type="text/html",
        links=(Link(A_PDF), Link("https://d.example/")),
    )
    found, of_links = categorised(BY_BOTH, visit, CrawlEvent(NEWS, content_type="application/pdf"))
    assert found == [
        (Kind.VISIT, "https://c.example/", NO_CATEGORY),
        (Kind.VISIT, OTHER, 1),
        (Kind.SIGHTING, A_PDF, 7),
        (Kind.SIGHTING, "https://d.example/", NO_CATEGORY),
        (Kind.VISIT, NEWS, 6),
    ]
    assert of_links == [NO_CATEGORY, 7, NO_CATEGORY]


@pytest.mark.parametrize(
    ("content_type", "category"),
    [
        ("text/html", 1),
        ("text/xml", 2),
        ("application/rss+xml", 3),
        ("application/pdf", 4),
        ("image/png", 5),
        ("", NO_CATEGORY),
        (None, NO_CATEGORY),
    ],
)
def test_only_visits_have_the_category_of_a_media_type(content_type: str | None, category: int) -> None:
    visit = CrawlEvent(HOME, content_type=content_type, links=(Link(ABOUT),))
    alias = CrawlEvent(OTHER, content_type=content_type, canonical=ABOUT)
    found, of_links = categorised(BY_MEDIA, visit, alias, CrawlEvent(A_PDF, announce=True, content_type=content_type))
    assert [one for _, _, one in found] == [category, NO_CATEGORY, category, NO_CATEGORY]
    assert found[0][1] == HOME and of_links == [NO_CATEGORY] * 2
    assert {one for _, _, one in categorised(Categories(), visit, alias)[0]} == {NO_CATEGORY}


def test_categories_change_nothing_else() -> None:
    events = [
        CrawlEvent(HOME, redirects=(A_HOP,), content_type="text/html", links=(Link(NEWS), Link("x:y"), Link(A_PDF))),
        CrawlEvent(A_PDF, canonical=OTHER, content_type="application/pdf"),
        CrawlEvent(NEWS, status=404, links=()),
        CrawlEvent(ABOUT, announce=True),
    ]
    plain = routed(*events)
    for categories in (BY_MEDIA, BY_PATTERN, BY_BOTH):
        other = routed(*events, rules=Rules(categories=categories))
        assert other.counts == plain.counts
        for column in fields(CrawlItems):
            same = np.array_equal(getattr(plain.items, column.name), getattr(other.items, column.name))
            assert same == ("categor" not in column.name or (column.name, categories) == ("link_categories", BY_MEDIA))
    assert set(plain.items.category.tolist()) == set(plain.items.link_categories.tolist()) == {NO_CATEGORY}


def test_links_without_weight_are_left_out_with_their_categories() -> None:
    visit = CrawlEvent(OTHER, links=(Link(NEWS, rel="nofollow"), Link("x:y"), Link(A_PDF), Link(HOME, weight=0.0)))
    found, of_links = categorised(BY_PATTERN, visit)
    assert of_links == [7] and [category for *_, category in found] == [NO_CATEGORY, 6, 7, 8]


def test_counts_have_a_name_each() -> None:
    assert set(routed().counts) == set(COUNTS)
    assert len(routed().items) == 0
