"""What a router makes of events: rows, sightings, weights, rejects, counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opicflow.pipelines.ledger import NO_CATEGORY, CrawlItems, Kind, Outcome
from opicflow.pipelines.transforms.routing import COUNTS, LinkWeights, Routed, Rules, Seen, route
from opicflow.schemas.crawl_events import CrawlEvent, Link, Reason
from opicflow.schemas.event_columns import EventWriter
from opicflow.schemas.pages import page_id
from opicflow.schemas.urls import Canonicaliser, UrlRules

HOME, ABOUT, OTHER = "https://a.example/", "https://a.example/about", "https://b.example/"


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
    """Kind, URL or id, outcome, links (None = not known) of every row."""
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
    assert result.items.within.tolist() == [0, 2, 3]  # place 1 is the canonical page's
    assert set(result.items.category.tolist()) == {NO_CATEGORY}


def test_null_links_are_unknown_and_an_empty_list_is_a_page_without_links() -> None:
    result = routed(CrawlEvent(HOME), CrawlEvent(ABOUT, links=()))
    assert [row[3] for row in rows(result.items)] == [None, []]
    assert result.counts["visits_links_unknown"] == 1


def test_what_was_seen_lately_is_not_sent_again_but_keeps_its_place() -> None:
    seen = Seen()
    event = CrawlEvent(HOME, links=(Link(ABOUT), Link(OTHER)))
    first = routed(CrawlEvent(OTHER), seen=seen)
    again = routed(event, seen=seen)
    assert [row[1] for row in rows(first.items)] == [OTHER]
    assert [(row[0], row[1]) for row in rows(again.items)] == [(Kind.VISIT, HOME), (Kind.SIGHTING, ABOUT)]
    assert again.items.within.tolist() == [0, 2]
    once_more = routed(event, seen=seen)
    assert [(row[0], row[1]) for row in rows(once_more.items)] == [(Kind.VISIT, "")]


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


def test_a_hop_to_itself_and_one_that_is_no_page_are_passed_over() -> None:
    result = routed(CrawlEvent(HOME, redirects=(ABOUT, "mailto:x@a.example", HOME + "#x"), links=()))
    assert [(row[1], row[3]) for row in rows(result.items)] == [(ABOUT, [link(HOME)]), (HOME, [])]


def test_an_alias_links_to_its_canonical_page_alone() -> None:
    result = routed(CrawlEvent(ABOUT, canonical=HOME, links=(Link(OTHER),)))
    assert rows(result.items) == [
        (Kind.VISIT, ABOUT, Outcome.ALIASED, [link(HOME)]),
        (Kind.SIGHTING, HOME, Outcome.NONE, None),
        (Kind.SIGHTING, OTHER, Outcome.NONE, None),
    ]
    assert result.counts["aliases"] == 1


def test_a_page_that_names_itself_as_canonical_is_no_alias() -> None:
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
        (429, Outcome.FAILED, False),
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


def test_a_redirect_status_pays_its_first_link_only() -> None:
    result = routed(CrawlEvent(HOME, status=302, links=(Link("mailto:x@y.example"), Link(ABOUT), Link(OTHER))))
    assert rows(result.items)[0][3] == [link(ABOUT)]


def test_not_modified_with_an_empty_list_does_not_know_its_links() -> None:
    assert rows(routed(CrawlEvent(HOME, status=304, links=())).items)[0][3] is None


def test_an_announcement_is_one_row_whatever_else_it_says() -> None:
    result = routed(CrawlEvent(HOME, announce=True, links=(Link(ABOUT),), redirects=(OTHER,), fetched_at_ms=10**12))
    assert rows(result.items) == [(Kind.ANNOUNCEMENT, HOME, Outcome.NONE, None)]
    assert result.items.time_ms.tolist() == [0]
    assert result.counts["announcements"] == 1


def test_links_that_are_no_pages_are_counted_and_not_rejected() -> None:
    result = routed(CrawlEvent(HOME, links=(Link("mailto:x@y.example"), Link("javascript:void(0)"), Link("/about"))))
    assert rows(result.items)[0][3] == [link(ABOUT)]
    assert (result.counts["links"], result.counts["links_not_pages"]) == (1, 2)
    assert result.rejected == []


@pytest.mark.parametrize("url", ["ftp://a.example/", "/relative", "", "https://", "https://a.example/" + "x" * 9000])
def test_a_visit_of_what_is_no_page_is_rejected_alone(url: str) -> None:
    result = routed(CrawlEvent(HOME, links=()), CrawlEvent(url, links=(Link(ABOUT),)), CrawlEvent(OTHER, links=()))
    assert [row[1] for row in rows(result.items)] == [HOME, OTHER]
    ((row, reason, detail),) = result.rejected
    assert (row, reason) == (1, Reason.NOT_A_PAGE)
    assert detail.startswith("url: ")
    assert result.counts["visits"] == 2


def test_nofollow_links_weigh_nothing_unless_told_and_are_sighted_all_the_same() -> None:
    event = CrawlEvent(HOME, links=(Link(ABOUT, rel="nofollow"), Link(OTHER, rel="UGC noopener")))
    result = routed(event)
    assert rows(result.items)[0][3] == []
    assert [row[1] for row in rows(result.items)[1:]] == [ABOUT, OTHER]
    assert result.counts["links_nofollow"] == 2
    heavier = routed(event, rules=Rules(links=LinkWeights(nofollow=0.5)))
    assert rows(heavier.items)[0][3] == [link(ABOUT, 512), link(OTHER, 512)]


def test_internal_and_external_links_weigh_what_they_should() -> None:
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


def test_rules_of_addresses_fold_pages_everywhere() -> None:
    rules = Rules(UrlRules(("utm_*",), fold_www=True, fold_https=True))
    event = CrawlEvent(
        "http://www.a.example/?utm_source=x", redirects=(HOME,), links=(Link("http://b.example/?utm_a"),)
    )
    result = routed(event, rules=rules)
    assert rows(result.items)[0] == (Kind.VISIT, HOME, Outcome.FETCHED, [link(OTHER)])


def test_rules_survive_their_json() -> None:
    rules = Rules(UrlRules(("a", "b*"), True, False), LinkWeights(1, 2, 3, "domain"))
    assert Rules.from_json(rules.to_json()) == rules


@pytest.mark.parametrize(
    "weights", [{"internal": -1.0}, {"external": float("nan")}, {"nofollow": 64.0}, {"same_site": "x"}]
)
def test_weights_that_make_no_sense_are_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"give|same_site"):
        LinkWeights(**weights)


def test_counts_have_a_name_each() -> None:
    assert set(routed().counts) == set(COUNTS)
    assert len(routed().items) == 0
