"""URL patterns match like regular expressions; patterns that can match no page are refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opicflow.schemas.url_forms import LONGEST_URL, NO_PAGE, PAGE
from opicflow.schemas.url_patterns import (
    MOST_PATTERN_BYTES,
    MOST_PATTERNS,
    MOST_STARS,
    NO_PATTERN,
    PatternRefused,
    check_patterns,
    first_patterns,
)
from opicflow.schemas.urls import Canonicaliser, CanonicalUrls
from support.thorough import examples


def found(
    patterns: tuple[str, ...], urls: list[str], behind: str = "", gone: frozenset[int] = frozenset()
) -> list[int]:
    """Return the first matching pattern of each URL. URLs are adjacent in the text; rows in `gone` are not pages."""
    text = np.frombuffer(("".join(urls) + behind).encode() or b"x", np.uint8)
    ends = np.cumsum([len(url) for url in urls], dtype=np.int64)
    begins = ends - np.array([len(url) for url in urls], np.int64)
    states = np.array([NO_PAGE if i in gone else PAGE for i in range(len(urls))], np.uint8)
    return first_patterns(
        patterns,
        CanonicalUrls(text, begins, ends, states, np.zeros(len(urls), np.uint64), np.zeros(len(urls), np.uint64)),
    ).tolist()


def by_the_book(patterns: tuple[str, ...], url: str) -> int:
    for number, pattern in enumerate(patterns):
        if re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), url):
            return number
    return NO_PATTERN


few = st.text("ab*", min_size=1, max_size=14)
long = st.lists(
    st.sampled_from(["*", "a", "b", "/", "ab", "aab", "abababa", "abababab", "ababababa", "a" * 8, "a" * 17 + "b"]),
    min_size=1,
    max_size=9,
).map("".join)
urls = st.text("ab", max_size=24) | long.map(lambda text: text.replace("*", "")) | long


@examples(80, 1000)
@given(
    st.lists(few | long, min_size=1, max_size=5).map(tuple),
    st.lists(urls, min_size=1, max_size=8),
    st.text("ab", max_size=9),
)
@example(("a*b*a",), ["aba", "aa", "ab", "abba", "aXbXa"], "")
@example(("*ab",), ["a", "b", "ab", "aab"], "b")
@example(("a*a",), ["a", "aa", "a"], "a")
@example(("*abc*abd*",), ["ababcababd", "abcabcabd", "abcab", "d"], "")
@example(("**", "a"), ["", "a"], "")
@example(("*",), ["a"], "")
def test_patterns_match_what_a_regular_expression_matches(
    patterns: tuple[str, ...], given: list[str], behind: str
) -> None:
    assert found(patterns, given, behind) == [by_the_book(patterns, url) for url in given]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 16, 17])
def test_a_piece_is_found_at_any_position(size: int) -> None:
    piece = "xyabcdefghijklmno"[:size]
    urls = ["." * before + piece + "." * behind for before in range(20) for behind in (0, 1, 9)]
    assert set(found((f"*{piece}*",), urls)) == {0}
    assert set(found((f"*{piece}.*",), urls)) == {0, NO_PATTERN}
    almost = [url.replace(piece, piece[:-1] + "!") for url in urls]
    assert set(found((f"*{piece}*",), almost)) == {NO_PATTERN}


@given(st.data())
def test_a_pattern_made_of_parts_of_a_url_matches_it(data: st.DataObject) -> None:
    url = data.draw(st.text("abc/", min_size=1, max_size=40))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(url)), max_size=2 * MOST_STARS)))
    cuts = [0, *cuts[: len(cuts) // 2 * 2], len(url)]
    pattern = "*".join(url[first:last] for first, last in zip(cuts[::2], cuts[1::2], strict=True))
    assert by_the_book((pattern,), url) == 0
    assert found((pattern or "*",), ["c", url, "c"])[1] == 0


def test_the_first_matching_pattern_counts_and_rows_without_a_page_match_none() -> None:
    patterns = ("https://a.example/news/*", "*.pdf", "https://a.example/*", "https://b.example/")
    urls = [
        "https://a.example/news/1.pdf",
        "https://a.example/1.pdf",
        "https://a.example/news",
        "https://b.example/",
        "https://b.example/x",
        "http://a.example/news/1",
    ]
    assert found(patterns, urls) == [0, 1, 2, 3, NO_PATTERN, NO_PATTERN]
    assert found(patterns, urls, gone=frozenset({0, 3})) == [NO_PATTERN, 1, 2, NO_PATTERN, NO_PATTERN, NO_PATTERN]
    assert found((), urls) == []
    most = tuple(f"https://x{number}.example/*" for number in range(MOST_PATTERNS))
    assert found(most, ["https://x63.example/a", "https://x64.example/a"]) == [63, NO_PATTERN]


def test_patterns_match_canonical_urls() -> None:
    text = b"HTTPS://A.example:443/x/../news/1#top"
    given = np.frombuffer(text, np.uint8)
    zero, end = np.zeros(1, np.int64), np.array([len(text)], np.int64)
    urls = Canonicaliser().canonicalise(given, zero, end, zero)
    assert first_patterns(("https://a.example/news/1",), urls).tolist() == [0]


def test_the_time_for_the_worst_url_and_pattern_is_bounded() -> None:
    url = "http://" + "a" * (LONGEST_URL - 7)
    pieces = "*".join(["a" * 60] * (MOST_STARS - 1))
    assert found((f"*{pieces}*", f"*{pieces}b*", f"*{pieces}*b"), [url]) == [0]
    assert found((f"*{pieces}b*", f"*{pieces}*b", f"*{'a' * 500}b*"), [url] * 50) == [NO_PATTERN] * 50


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "begin it with http://, https:// or *"),
        ("example.org/*", "begin it with http://, https:// or *"),
        ("ftp://example.org/*", "begin it with http://, https:// or *"),
        ("HTTP://example.org/*", "begin it with http://, https:// or *"),
        ("/news/*", "begin it with http://, https:// or *"),
        ("https://example.org/a b*", "canonical URLs have no ' '"),
        ("*/caf\u00e9/*", r"canonical URLs have no '\xe9'"),
        ("*#top", "canonical URLs have no '#'"),
        ("*a\n", r"canonical URLs have no '\n'"),
        ("https://Example.org/*", "canonical URLs say https://example.org/ for https://Example.org/"),
        ("https://example.org:443/*", "canonical URLs say https://example.org/ for https://example.org:443/"),
        ("https://me@example.org/*", "canonical URLs say https://example.org/ for https://me@example.org/"),
        ("https://example.org", "canonical URLs say https://example.org/ for https://example.org"),
        ("https://example.org/a/../b", "canonical URLs say https://example.org/b for https://example.org/a/../b"),
        ("https:///*", "it is no URL"),
        ("*" + "x" * MOST_PATTERN_BYTES, "it is longer than 512 bytes"),
        ("*x" * MOST_STARS + "*", "it has more than 8 stars"),
    ],
)
def test_invalid_patterns_are_refused_in_one_line(pattern: str, why: str) -> None:
    with pytest.raises(PatternRefused, match=r"\Athe URL pattern '.*': ") as refused:
        check_patterns(("*.pdf", pattern))
    assert str(refused.value).endswith(why)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 300


def test_too_many_patterns_and_repeated_patterns_are_refused() -> None:
    most = tuple(f"*{number}" for number in range(MOST_PATTERNS))
    check_patterns(most)
    with pytest.raises(PatternRefused, match="there are 65 URL patterns: give at most 64"):
        check_patterns((*most, "*x"))
    with pytest.raises(PatternRefused, match=r"the URL pattern '\*0': it is there twice"):
        check_patterns((*most[:2], most[0]))


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        "*.pdf",
        "http://*",
        "https://*.example.org/*",
        "https://example.org*",
        "https://example.org/a/..*",
        "https://example.org:8080/*?page=*",
        "https://example.org/",
        "*x" * MOST_STARS,
        "*" + "x" * (MOST_PATTERN_BYTES - 1),
    ],
)
def test_valid_patterns_are_accepted(pattern: str) -> None:
    check_patterns((pattern,))
