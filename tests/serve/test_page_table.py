"""Lists, search and sites of a table say what the plain records say."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.ledger import Outcome
from opicflow.pipelines.replay.moments import Moments, keep_moments, pack_moment
from opicflow.pipelines.results.record_columns import site_of_host
from opicflow.pipelines.serve import page_table
from opicflow.pipelines.serve.http_answers import changes_of
from opicflow.pipelines.serve.page_table import Filter, PageTable
from opicflow.pipelines.serve.view import VisitedPages
from support.views import DAY, EMPTY, NOW, SMALL, table_of

TABLE = SMALL.table
RECORDS: list[dict[str, Any]] = [TABLE.record(row) for row in range(len(TABLE))]


def rows_where(condition: Any) -> list[int]:
    return [row for row, one in enumerate(RECORDS) if condition(one)]


@pytest.mark.parametrize(
    ("wanted", "condition"),
    [
        (Filter(), lambda one: True),
        (Filter(unread=True), lambda one: one["visits"] == 0),
        (Filter(gone=True), lambda one: one["last_outcome"] == "GONE"),
        (Filter(overdue=True), lambda one: one["overdue"]),
        (Filter(host="host3.example"), lambda one: one["host"] == "host3.example"),
        (Filter(host="unknown.example"), lambda one: False),
        (Filter(domain="host3.example"), lambda one: site_of_host(one["host"]) == "host3.example"),
        (Filter(category=2), lambda one: one["category"] == 2),
        (Filter(pattern="docs"), lambda one: "docs" in one["url"]),
        (Filter(pattern="https://host1*.pdf"), lambda one: fnmatch.fnmatchcase(one["url"], "https://host1*.pdf")),
        (
            Filter(pattern="*/wiki/*0.html", unread=True),
            lambda one: "/wiki/" in one["url"] and one["url"].endswith("0.html") and not one["visits"],
        ),
    ],
)
def test_a_filter_keeps_the_pages_that_fit_in_the_order_of_their_ranks(wanted: Filter, condition: Any) -> None:
    found = TABLE.listed(wanted, 0, 1000)
    assert found.rows == rows_where(condition) and found.total == len(found.rows) and found.is_exact


@pytest.mark.parametrize(
    "wanted", [Filter(), Filter(unread=True), Filter(rising=True), Filter(falling=True), Filter(pattern="docs")]
)
@pytest.mark.parametrize("count", [1, 7, 64])
def test_pages_of_a_list_put_together_are_the_list(wanted: Filter, count: int) -> None:
    whole = TABLE.listed(wanted, 0, 1000)
    parts = [TABLE.listed(wanted, first, count) for first in range(0, len(TABLE) + count, count)]
    assert [row for part in parts for row in part.rows] == whole.rows
    assert {part.total for part in parts} == {whole.total} and whole.total > 20


def test_risers_come_by_how_fast_they_rise_and_only_measured_pages_rise() -> None:
    found = TABLE.listed(Filter(rising=True), 0, 1000).rows
    growth = [RECORDS[row]["growth_per_day"] for row in found]
    assert growth == sorted(growth, reverse=True) and min(growth) > 0 and len(growth) > 20
    assert all(RECORDS[row]["measured"] for row in found)
    falling = TABLE.listed(Filter(falling=True), 0, 1000).rows
    assert not set(falling) & set(found) and max(RECORDS[row]["growth_per_day"] for row in falling) < 0


def test_every_page_is_found_by_its_id_and_its_url() -> None:
    for row, one in enumerate(RECORDS):
        assert TABLE.row_of(int(one["page"], 16)) == TABLE.row_of_url(one["url"]) == row
    assert TABLE.row_of(12345) is None
    assert TABLE.row_of_url("https://host1.example/docs/1") is None
    assert TABLE.row_of_url("") is None


letters = st.text("abx*/", max_size=8)


@given(st.lists(letters.map(lambda text: text.replace("*", "")), max_size=12), letters)
def test_search_finds_what_the_words_or_the_pattern_fit(paths: list[str], words: str) -> None:
    urls = [f"https://a.example/{path}" for path in paths]
    table = table_of(urls)
    pattern = words.strip()
    fits = (lambda url: fnmatch.fnmatchcase(url, pattern)) if "*" in pattern else (lambda url: pattern in url)
    expected = [row for row, url in enumerate(urls) if fits(url)] if pattern.strip("*") else []
    assert table.search(words, 100).rows == expected


def test_a_search_that_looked_at_too_many_pages_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_table, "MOST_LOOKED_AT", 10)
    found = TABLE.search("https", 1000)
    assert not found.is_exact and found.rows == list(range(10))


@pytest.mark.parametrize("by", ["host", "domain"])
def test_sites_are_sums_of_their_pages(by: str) -> None:
    sites = TABLE.hosts if by == "host" else TABLE.domains
    for site in sites:
        pages = [one for one in RECORDS if site.name == (one["host"] if by == "host" else site_of_host(one["host"]))]
        assert site.pages == len(pages)
        assert site.read == sum(one["visits"] > 0 for one in pages)
        assert site.importance == pytest.approx(sum(one["importance"] for one in pages))
        assert site.overdue == sum(one["overdue"] for one in pages)
    assert sum(site.pages for site in sites) == len(TABLE)
    assert sum(site.ordered for site in sites) == len(TABLE.order_rows)
    assert [site.importance for site in sites] == sorted((site.importance for site in sites), reverse=True)


@pytest.mark.parametrize("words", ["", "host", "HOST3", "t1.ex", "example", "nothing", "host1.example\nhost2.example"])
def test_hosts_are_found_by_a_piece_of_their_names_in_the_order_of_their_ranks(words: str) -> None:
    expected = [one for one in TABLE.hosts if words.lower() in one.name]
    for count in (1, 3, 100):
        assert TABLE.find_hosts(words, count) == expected[:count]


@pytest.mark.parametrize("by", ["host", "domain"])
def test_a_site_is_found_by_its_name(by: str) -> None:
    sites = TABLE.domains if by == "domain" else TABLE.hosts
    assert [TABLE.site(by, one.name) for one in sites] == sites
    assert TABLE.site(by, "nobody.example") is None and EMPTY.table.find_hosts("a", 3) == []


def test_schedules_and_orders_are_those_of_their_pages() -> None:
    number = np.arange(len(TABLE))
    expected = np.where(number % 11 == 10, page_table.NEVER, TABLE.second + 86_400 * (number % 7 - 1))
    assert TABLE.columns["due_second"].tolist() == expected.tolist()
    orders = [TABLE.order(position) for position in range(len(TABLE.order_rows))]
    times = [max(order["not_before"] or 0, order["ordered_at"] or 0) for order in orders]
    assert times == sorted(times) and sorted(TABLE.order_rows.tolist()) == number[::2].tolist()
    assert all(order["url"] == TABLE.url(row) for order, row in zip(orders, TABLE.order_rows.tolist(), strict=True))
    assert TABLE.order_of(0) == TABLE.order(0) and TABLE.order_of(1) is None


@pytest.mark.parametrize("by", ["host", "domain"])
def test_outcomes_and_due_times_of_sites_are_those_of_all_pages(by: str) -> None:
    for of_all, of_site in ((SMALL.outcomes, SMALL.outcomes_of), (SMALL.due, SMALL.due_of)):
        added: Counter[str] = Counter()
        for name in TABLE.sites(by)[0]:
            added.update(dict(of_site(by, name)))
        assert added == Counter(dict(of_all)) and added
    assert sum(dict(SMALL.due).values()) == len(TABLE), "each page is in one row"
    assert SMALL.outcomes_of(by, "unknown.example") == []


@pytest.mark.parametrize("by", ["host", "domain"])
def test_last_visits_of_sites_are_each_in_one_time_with_the_outcomes_of_their_pages(by: str) -> None:
    sites = {name: SMALL.visits_of(by, name) for name in TABLE.sites(by)[0]}
    columns = TABLE.columns
    assert sum(row.pages for rows in sites.values() for row in rows) == np.count_nonzero(columns["last_visit_ms"])
    assert all(len(rows) in (0, 4) for rows in sites.values()) and SMALL.visits_of(by, "unknown.example") == []
    last = [row.pages for row in (sum_of(rows[at] for rows in sites.values() if rows) for at in range(4))]
    ages = (SMALL.time_ms - columns["last_visit_ms"])[columns["visits"] > 0] // 1000
    assert last == [
        np.count_nonzero(ages <= 3600),
        np.count_nonzero((ages > 3600) & (ages <= 86_400)),
        np.count_nonzero((ages > 86_400) & (ages <= 604_800)),
        np.count_nonzero(ages > 604_800),
    ]


def sum_of(rows: Iterable[VisitedPages]) -> VisitedPages:
    return VisitedPages("", *np.sum([row[1:] for row in rows], axis=0).tolist())


def test_failed_busy_and_blocked_visits_are_counted_apart() -> None:
    table = table_of([f"https://a.example/{number}" for number in range(6)])
    outcomes = [Outcome.FETCHED, Outcome.FAILED, Outcome.FAILED, Outcome.BUSY, Outcome.BLOCKED, Outcome.GONE]
    table.columns["last_outcome"][:] = outcomes
    table.columns["last_visit_ms"][:] = 1000 * NOW
    (last, *older) = replace(SMALL, table=table).visits_of("host", "a.example")
    assert last == VisitedPages("the last hour", 6, 2, 1, 1) and all(row.pages == 0 for row in older)


def test_two_times_are_compared(tmp_path: Path) -> None:
    table = table_of([f"https://a.example/{number}" for number in range(60)])
    now, importance = table.columns["importance"], table.columns["importance"].copy()
    importance[3] *= 0.5
    importance[4] *= 2.0
    importance[6] *= 1.005
    gone = int(np.flatnonzero(table.columns["last_outcome"] == Outcome.GONE)[1])
    times = [1000 * (NOW - DAY) - 1, 1000 * (NOW - 60)]
    known = np.arange(60) != 7
    parts = []
    for number, (time, some) in enumerate(zip(times, (known, np.ones(60, np.bool_)), strict=True)):
        parts.append(tmp_path / str(number))
        parts[-1].write_bytes(pack_moment(table.ids[some], importance[some], time, number))
    keep_moments(tmp_path, parts)
    table.columns["last_visit_ms"][gone] = 1000 * NOW - DAY * 500
    view = replace(SMALL, table=table, moments=Moments(tmp_path))
    assert view.compared_times == [*times, 1000 * NOW]
    found = view.changes(times[0], 1000 * NOW, 10)
    rows = {name: [one["url"] for one in ones] for name, ones in found.pages.items()}
    assert rows["risen"] == [table.url(3)] and rows["fallen"] == [table.url(4)] and rows["new"] == [table.url(7)]
    assert table.url(gone) in rows["gone"] and {name: len(one) for name, one in rows.items()} == found.counts
    (risen,), (new,) = found.pages["risen"], found.pages["new"]
    assert risen["before"] == pytest.approx(now[3] / 2, rel=4e-4) and risen["after"] == now[3] and new["before"] is None
    between = view.changes(*times, 10)
    assert between.counts == {"risen": 0, "fallen": 0, "new": 1, "gone": between.counts["gone"]}
    assert changes_of(view, {}, 10) == found, "by default the end, and a day before"
    assert changes_of(view, {"since": "5", "until": str(times[1] + 7)}, 10) == between
    for since in ("x", "-3", "9" * 40, str(2000 * NOW)):
        assert changes_of(view, {"since": since, "until": since}, 10) is not None
    assert changes_of(replace(view, moments=None), {}, 10) is None


def test_a_table_without_pages_answers_nothing() -> None:
    table = EMPTY.table
    assert len(table) == 0 and table.hosts == [] and table.domains == []
    assert table.listed(Filter(unread=True)).rows == table.search("a").rows == []
    assert table.row_of(1) is None and table.row_of_url("https://a.example/") is None


def test_a_page_whose_url_is_not_known_has_no_host() -> None:
    table = table_of(["https://a.example/", "", "https://b.example/"])
    assert [table.host(row) for row in range(3)] == ["a.example", "", "b.example"]
    assert {site.name: site.pages for site in table.hosts} == {"a.example": 1, "": 1, "b.example": 1}
    assert isinstance(table, PageTable) and table.url(1) == ""
