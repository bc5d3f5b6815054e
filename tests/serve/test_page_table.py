"""Lists, search and sites of a table say what the plain records say."""

from __future__ import annotations

import fnmatch
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.results.record_columns import site_of_host
from opicflow.pipelines.serve import page_table
from opicflow.pipelines.serve.page_table import Filter, PageTable
from support.views import EMPTY, SMALL, table_of

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
