"""Rules: their JSON, categories with numbers and names, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opicflow.pipelines.stages.rules import Categories, LinkWeights, Rules
from opicflow.schemas.url_patterns import PatternRefused
from opicflow.schemas.urls import UrlRules

PATTERNS = ("*/news/*", "*.pdf", "https://a.example/*")
BY_PATTERN, BY_MEDIA, BY_BOTH = Categories(False, PATTERNS), Categories(True), Categories(True, PATTERNS)


def test_rules_are_read_back_from_json() -> None:
    rules = Rules(UrlRules(("a", "b*"), True, False), LinkWeights(1, 2, 3, "domain"))
    assert Rules.from_json(rules.to_json(), rules.page_ids) == rules


def test_rules_are_read_back_from_text() -> None:
    rules = Rules(categories=Categories(True, ("*.pdf", "https://a.example/*")))
    assert Rules.from_json(json.loads(json.dumps(rules.to_json())), rules.page_ids) == rules
    assert hash(Rules.from_json(json.loads(json.dumps(rules.to_json())), rules.page_ids)) == hash(rules)


def test_categories_have_numbers_and_names() -> None:
    assert BY_BOTH.names == ("unknown", "html", "xml", "feed", "pdf", "other", *PATTERNS)
    assert [BY_BOTH.number(name) for name in BY_BOTH.names] == list(range(9))
    assert [given.count for given in (Categories(), BY_MEDIA, BY_PATTERN, BY_BOTH)] == [1, 6, 9, 9]
    with pytest.raises(ValueError, match=r"\Athe category 'image' is none of: unknown, html, xml, feed, pdf, other\Z"):
        BY_MEDIA.number("image")
    with pytest.raises(ValueError, match=r"\Athere is no category 'html': make categories with --by"):
        Categories().number("html")
    many = Categories(patterns=tuple(f"*{number:0400}*" for number in range(64)))
    assert many.number(many.patterns[-1]) == 69
    with pytest.raises(ValueError, match=r"\A.{,700}\Z"):
        many.number("x\n" * 400)


def test_patterns_of_categories_are_checked() -> None:
    with pytest.raises(PatternRefused, match="begin it with"):
        Categories(patterns=("a.example/*",))


@pytest.mark.parametrize(
    "weights", [{"internal": -1.0}, {"external": float("nan")}, {"nofollow": 64.0}, {"same_site": "x"}]
)
def test_impossible_weights_are_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"give|same_site"):
        LinkWeights(**weights)
