"""Shapes of URLs and their parameters: one for all values, in time proportional to their length."""

from __future__ import annotations

from time import process_time
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.schemas.arrays import Bytes, Ints
from opicflow.schemas.url_shapes import (
    MOST_SHAPE_BYTES,
    count_parameters,
    hash_parameters,
    hash_shapes,
    hash_without,
    name_parameters,
    number_hashes,
    shape_of,
)

KEY = np.array([3, 5], np.uint64)


def arena_of(urls: list[str]) -> tuple[Bytes, Ints]:
    """Return URLs as a ledger has them: each with its length first."""
    parts = [len(url).to_bytes(2, "little") + url.encode() for url in urls]
    starts = np.cumsum([0, *map(len, parts)])[:-1] + 1
    return np.frombuffer(b"".join(parts), np.uint8), starts.astype(np.int64)


def hashes_of(urls: list[str]) -> list[int]:
    arena, starts = arena_of(urls)
    found = np.zeros(len(urls), np.uint64)
    hash_shapes(arena, starts, KEY, np.zeros(MOST_SHAPE_BYTES, np.uint8), found)
    return found.tolist()


@pytest.mark.parametrize(
    ("url", "shape"),
    [
        ("https://e.org/calendar/2024/05", "e.org/calendar/*"),
        ("http://e.org/calendar/2024/05/17/", "e.org/calendar/*/"),
        ("https://e.org/events/2024-05-17", "e.org/events/*"),
        ("https://e.org/cal?year=2024&month=5", "e.org/cal?year=*&month=*"),
        ("https://e.org/2024/05/17/a-title", "e.org/*/a-title"),
        ("https://e.org/x?sid=9f86d081884c7d65", "e.org/x?sid=*"),
        ("https://e.org/d0k/12.html", "e.org/d*k/*.html"),
        ("https://e.org/2026/november/12", "e.org/*"),
        ("https://e.org/events/May-2026/", "e.org/events/*/"),
        ("https://e.org/termine/12-dezember-2026", "e.org/termine/*"),
        ("https://e.org/cal?month=nov&year=2026", "e.org/cal?month=*&year=*"),
        ("https://e.org/s/9f86d081884c/page", "e.org/s/*/page"),
        ("https://e.org/2026/market/march-on", "e.org/*/market/march-on"),
        ("https://e.org/novembers/may", "e.org/novembers/may"),
        ("https://h7.e.org:8080/a", "h7.e.org:8080/a"),
        ("https://e.org/%D0%9F/about", "e.org/%D0%9F/about"),
        ("https://e.org/", "e.org/"),
    ],
)
def test_numbers_dates_and_sessions_may_be_any(url: str, shape: str) -> None:
    assert shape_of(url) == shape
    assert (hashes_of([url])[0] != 0) == ("*" in shape)


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=4), st.sampled_from(["a", "item-", "p_", "v"]))
def test_urls_that_differ_in_numbers_have_one_shape_and_others_another(numbers: list[int], word: str) -> None:
    same = [f"https://e.org/{word}/{number}/end" for number in numbers]
    other = [f"https://e.org/{word}/{numbers[0]}/ending", f"https://f.org/{word}/{numbers[0]}/end"]
    found = hashes_of(same + other)
    assert len(set(found[: len(same)])) == 1
    assert len(set(found)) == 3


@given(st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), max_size=700))
def test_any_path_has_a_shape_of_bounded_length_that_is_its_own_shape(path: str) -> None:
    url = f"https://e.org/{path}"
    shape = shape_of(url)
    assert len(shape) <= MOST_SHAPE_BYTES
    assert shape_of(f"https://{shape}") == shape or "%" in path
    assert shape.startswith("e.org/")


@pytest.mark.parametrize("piece", ["1a", "1/", "?a=1&", "%31", "a" * 50 + "1", "&", "1-", ";", "may/", "/1a1a1a1a"])
def test_the_time_is_proportional_to_the_length(piece: str) -> None:
    """4,000 URLs of 8,000 bytes: quadratic time would be minutes."""
    url = (f"https://e.org/{'' if '/' in piece or piece == ';' else '?'}" + piece * 8000)[:8000]
    arena, starts = arena_of([url])
    many = np.repeat(starts, 400)
    found, counts = np.zeros(len(many), np.uint64), np.zeros(len(many), np.int64)
    room = np.zeros(1 << 17, np.uint8)
    hash_shapes(arena, starts, KEY, room[:MOST_SHAPE_BYTES], found[:1])
    hash_without(arena, starts, KEY, found[:0], room, found[:1], np.zeros(1, np.int32))
    begun = process_time()
    hash_shapes(arena, many, KEY, room[:MOST_SHAPE_BYTES], found)
    count_parameters(arena, many, counts)
    hash_without(arena, many, KEY, found[:0], room, found, np.zeros(len(many), np.int32))
    assert counts.max() <= 8
    assert process_time() - begun < 2.0


def test_different_hashes_are_numbered_in_their_order() -> None:
    hashes = np.array([7, 0, 9, 7, 8, 9, 0], np.uint64)
    numbers, firsts = np.zeros(7, np.int32), np.zeros(8, np.int64)
    count = number_hashes(hashes, np.zeros(16, np.int64), numbers, firsts)
    assert (int(count), numbers.tolist(), firsts[1:4].tolist()) == (3, [1, 0, 2, 1, 3, 2, 0], [0, 2, 4])


NAMES = st.sampled_from(["a", "b", "sid"])


@given(st.lists(st.tuples(NAMES, st.sampled_from(["", "1", "2"])), max_size=5), st.sets(NAMES))
def test_a_url_without_parameters_is_that_of_the_library(parameters: list[tuple[str, str]], dropped: set[str]) -> None:
    """The oracle: urllib, which splits the query."""
    query = "&".join(f"{name}={value}" for name, value in parameters)
    url = "https://e.org/p" + (f"?{query}" if query else "")
    left = [(name, value) for name, value in parse_qsl(urlsplit(url).query, True) if name not in dropped]
    expected = "https://e.org/p" + ("?" + "&".join(f"{name}={value}" for name, value in left) if left else "")
    examples = [f"https://e.org/p?{name}=1" for name in sorted(dropped)]
    arena, starts = arena_of([url, expected, *examples])
    room = np.zeros(1 << 17, np.uint8)
    names, bare, kept = (np.zeros(len(examples), kind) for kind in (np.uint64, np.uint64, np.int8))
    hash_parameters(arena, starts[2:], np.zeros(len(examples), np.int64), KEY, room, names, bare, kept)
    whole, number = np.zeros(2, np.uint64), np.zeros(2, np.int32)
    hash_without(arena, starts[:2], KEY, np.sort(names), room, whole, number)
    assert whole[0] == whole[1]
    assert (number[0] > 0) == any(name in dropped for name, _ in parameters)
    assert number[1] == 0


SESSIONS = ["9f86d081884c7d65", "0a1b2c3d"]


@pytest.mark.parametrize("form", ["/s/{}/page", "/s/{}/page?id=3&b=", "/a/page;v={}", "/a;v={}/page?id=3"])
def test_sessions_in_paths_are_parameters(form: str) -> None:
    """Two URLs that differ in a session alone are one without it, and differ from another page."""
    urls = [f"https://e.org{form.format(session)}" for session in SESSIONS]
    without = urls[0].replace(f"/{SESSIONS[0]}", "").replace(f";v={SESSIONS[0]}", "")
    other = urls[0].replace("page", "other")
    arena, starts = arena_of([*urls, without, other])
    counts, room = np.zeros(4, np.int64), np.zeros(1 << 17, np.uint8)
    count_parameters(arena, starts, counts)
    assert counts.tolist() == [counts[0], counts[0], counts[0] - 1, counts[0]]
    names, bare, kept = (np.zeros(int(counts.sum()), kind) for kind in (np.uint64, np.uint64, np.int8))
    canonical = np.array([starts[2], starts[1], 0, starts[2]])
    hash_parameters(arena, starts, canonical, KEY, room, names, bare, kept)
    second = int(counts[0])
    assert (kept[0], kept[second]) == (-1, 1)
    assert kept[-second] == 0
    assert bare[0] == bare[second] != bare[-second]
    whole, number = np.zeros(4, np.uint64), np.zeros(4, np.int32)
    hash_without(arena, starts, KEY, names[:1], room, whole, number)
    assert len(set(whole[:3].tolist())) == 1
    assert whole[3] != whole[0]
    assert number.tolist() == [1, 1, 0, 1]
    begins, ends = np.zeros(second, np.int64), np.zeros(second, np.int64)
    name_parameters(arena, int(starts[0]), begins, ends)
    assert arena[begins[0] : ends[0]].tobytes().decode() == (";v" if ";" in form else "s/")


@pytest.mark.parametrize("path", ["/s/9f86d081884c7d65", "/s/12345678/page", "/s/abcdefgh/page", "/s/9f86d/page", "/"])
def test_the_last_segment_and_plain_numbers_and_words_are_no_sessions(path: str) -> None:
    arena, starts = arena_of([f"https://e.org{path}"])
    counts = np.ones(1, np.int64)
    count_parameters(arena, starts, counts)
    assert counts.tolist() == [0]


def test_a_canonical_url_of_the_same_path_says_which_parameters_it_omits() -> None:
    url, to, elsewhere = "https://e.org/p?id=3&sid=9", "https://e.org/p?id=3", "https://e.org/q?id=3"
    arena, starts = arena_of([url, to, elsewhere])
    for other, expected in ((to, [1, -1]), (elsewhere, [0, 0])):
        names, bare, kept = np.zeros(2, np.uint64), np.zeros(2, np.uint64), np.zeros(2, np.int8)
        base = starts[1:2] if other == to else starts[2:3]
        hash_parameters(arena, starts[:1], base, KEY, np.zeros(1 << 17, np.uint8), names, bare, kept)
        assert kept.tolist() == expected
        assert len(set(names.tolist())) == 2
