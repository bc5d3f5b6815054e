"""The policies of a page are those that name it, and of rules the latest holds."""

from __future__ import annotations

import pytest

from opicflow.pipelines.replay import replayed_log
from opicflow.pipelines.serve.page_policies import policies_of_page
from opicflow.pipelines.serve.view import HISTORY_PAGES
from opicflow.schemas.records import Policy

URL, HOST = "https://a.example/docs/1", "a.example"


@pytest.mark.parametrize(
    ("policy", "is_about"),
    [
        (Policy(url=URL, refresh_forbidden=True), True),
        (Policy(url="https://a.example/docs/2", refresh_forbidden=True), False),
        (Policy(host=HOST, importance_factor=2.0), True),
        (Policy(host="b.example", importance_factor=2.0), False),
        (Policy(url_prefix="https://a.example/docs/", importance_factor=2.0), True),
        (Policy(url_prefix="https://a.example/wiki/", importance_factor=2.0), False),
        (Policy(category=3, importance_factor=2.0), True),
        (Policy(category=0, importance_factor=2.0), False),
        (Policy(damping=0.9), True),
    ],
)
def test_a_policy_is_about_the_pages_that_it_names(policy: Policy, is_about: bool) -> None:
    assert bool(policies_of_page([policy], URL, HOST, 3)) == is_about


def test_the_latest_rule_holds_and_limits_hold_beside_it() -> None:
    stated = [
        Policy(url=URL, refresh_interval_seconds=3600.0),
        Policy(host=HOST, crawl_delay_seconds=2.0),
        Policy(host=HOST, refresh_forbidden=True),
    ]
    found = [(one["sentence"], one["holds"]) for one in policies_of_page(stated, URL, HOST, 0)]
    assert found == [
        ("pages of a.example are not fetched again", True),
        ("pages of a.example 2 seconds between two fetches", True),
        ("https://a.example/docs/1 is fetched every hour", False),
    ]


def test_a_state_and_a_stream_keep_the_history_of_as_many_pages() -> None:
    assert replayed_log._SAMPLED_PAGES == HISTORY_PAGES
