"""Page ids, checked against SipHash and sites in plain Python."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.schemas.hashing import keyed_hash
from opicflow.schemas.pages import KEY_BYTES, PageIds, PageIdsRefused, page_id, page_ids
from opicflow.schemas.public_suffixes import PublicSuffixes
from support.page_ids import reference_page_id, siphash_1_3

KEYS = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
HOSTS = [
    "example.org",
    "www.example.org",
    "a.b.c.example.co.uk",
    "example.co.uk:8080",
    "a.github.io",
    "b.github.io",
    "github.io",
    "localhost",
    "192.0.2.1",
    "192.0.2.1:81",
    "[2001:db8::1]",
    "[::1]:80",
    "xn--bcher-kva.example.de",
    "example.com.",
    "co.uk",
    "city.kobe.jp",
    "a.city.kobe.jp",
    "x.y.kobe.jp",
    "name.unknown-suffix",
    ".".join(["a" * 63] * 3 + ["b" * 57, "com"]),
]
URLS = st.builds(
    lambda scheme, host, path: f"{scheme}://{host}/{path}".encode(),
    st.sampled_from(["http", "https"]),
    st.sampled_from(HOSTS),
    st.text("abc/?=.-", max_size=30),
)


@given(KEYS, st.binary(max_size=70), st.binary(max_size=9), st.binary(max_size=9))
def test_the_keyed_hash_is_siphash_1_3(key: bytes, text: bytes, before: bytes, after: bytes) -> None:
    words, padded = np.frombuffer(key, np.uint64).copy(), np.frombuffer(before + text + after, np.uint8).copy()
    found = keyed_hash(words, padded, len(before), len(before) + len(text))
    assert int(found) == siphash_1_3(key, text)


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="this Python does not hash with SipHash-1-3")
def test_siphash_1_3_in_plain_python_is_that_of_the_interpreter() -> None:
    """Without randomisation Python hashes bytes with the key 0."""
    texts = [bytes(range(size)) for size in range(1, 40)]
    code = f"print([hash(bytes(range(size))) & 0xFFFFFFFFFFFFFFFF for size in range(1, {len(texts) + 1})])"
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    out = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert json.loads(out.stdout) == [siphash_1_3(bytes(16), text) for text in texts]


@given(st.lists(URLS, max_size=30), KEYS)
def test_a_page_id_is_16_bits_of_its_site_and_48_of_its_url(urls: list[bytes], key: bytes) -> None:
    ids = PageIds(key=key)
    assert ids.of_all(urls).tolist() == [reference_page_id(url, ids) for url in urls]


def test_the_ids_of_the_default_rules_never_change() -> None:
    """Results of replays are in the order of page ids; a change would alter every result."""
    urls = ["https://example.org/", "https://www.example.org/about", "http://a.github.io/", "http://192.0.2.1:81/x"]
    assert [f"{page_id(url):016x}" for url in urls] == GOLDEN


GOLDEN = ["ae69079b9f754a7f", "ae697fcccd00a12f", "8320fdb852866e09", "b18ad40d623ee308"]


def test_a_url_has_one_page_id_as_text_and_as_bytes() -> None:
    assert page_id("https://example.org/") == page_id(b"https://example.org/")


def test_page_ids_are_in_the_order_of_the_urls() -> None:
    urls = ["https://example.org/", b"https://example.org/a", "https://example.org/"]
    found = page_ids(urls)
    assert found.dtype == np.uint64
    assert found.tolist() == [page_id(url) for url in urls]
    assert page_ids([]).shape == (0,)


def test_the_pages_of_a_site_are_in_one_range_and_those_of_two_sites_are_not() -> None:
    def site(url: str) -> int:
        return page_id(url) >> 48

    assert site("https://example.org/") == site("http://www.example.org:81/x?y") == site("http://example.org./")
    assert site("http://a.github.io/") != site("http://b.github.io/")
    assert site("http://192.0.2.1/") == site("http://192.0.2.1:8080/") != site("http://192.0.2.2/")


@given(URLS, KEYS, KEYS)
def test_another_key_gives_other_ids(url: bytes, key: bytes, other: bytes) -> None:
    if key != other:
        assert PageIds(key=key).of(url) & 0xFFFFFFFFFFFF != PageIds(key=other).of(url) & 0xFFFFFFFFFFFF


def test_rules_are_read_back_and_do_not_show_their_key() -> None:
    secret = PageIds(key=bytes(range(16)))
    assert not secret.is_public and PageIds().is_public
    for ids in (secret, PageIds(), PageIds(suffixes=PublicSuffixes("old", b"com\nco.uk"))):
        stored = json.loads(json.dumps(ids.to_json()))
        assert PageIds.from_json(stored) == ids == pickle.loads(pickle.dumps(ids))
        assert ids.key.hex() not in repr(ids) and repr(ids.key) not in repr(ids)


def test_the_list_of_suffixes_is_kept_with_the_rules() -> None:
    """A newer list takes effect only where all ids are computed again."""
    older = PageIds(suffixes=PublicSuffixes("2001", b"com"))
    a, b = "http://a.github.io/", "http://b.github.io/"
    assert older.of(a) >> 48 == older.of(b) >> 48
    again = PageIds.from_json(older.to_json())
    assert again.of(a) == older.of(a) != PageIds().of(a)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "have version 3"),
        ({"version": "2"}, "have version 2"),
        ({"key": "00"}, "16 bytes"),
        ({"key": "zz" * 16}, "damaged"),
        ({"key": None}, "damaged"),
        ({"suffixes": {"version": "x", "rules": "~~~"}}, "list of public suffixes"),
        ({"suffixes": {}}, "list of public suffixes"),
    ],
)
def test_damaged_rules_are_refused_in_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(PageIdsRefused, match=message) as refused:
        PageIds.from_json({**PageIds().to_json(), **change})
    assert "\n" not in str(refused.value)


def test_impossible_rules_are_refused() -> None:
    with pytest.raises(PageIdsRefused, match="16 bytes"):
        replace(PageIds(), key=b"short")
