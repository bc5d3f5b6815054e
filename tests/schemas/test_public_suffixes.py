"""Sites, checked against the library whose list they are found by."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.schemas.public_suffixes import PublicSuffixes, SuffixesRefused, installed_suffixes
from support.page_ids import site_of

LIST = installed_suffixes()
RULES = LIST.rules.decode().splitlines()
LABELS = ["a", "b", "com", "co", "uk", "www", "github", "io", "jp", "city", "kawasaki", "ck", "xn--p1ai", "zz", "1"]


def hosts_around(rule: str) -> list[str]:
    """Return hosts that a rule decides: a suffix itself, and names below and above it."""
    names = {rule.lstrip("!").replace("*", "w"), rule.lstrip("!").replace("*.", "")}
    return [before + name for name in sorted(names) for before in ("", "a.", "b.a.", "c.b.a.", "x--y.d.e.f.")]


def test_every_rule_of_the_list_is_followed() -> None:
    hosts = [host for rule in RULES for host in hosts_around(rule)]
    assert len(hosts) > 50_000
    wrong = [host for host in hosts if LIST.site(host.encode()).decode() != site_of(host)]
    assert wrong == []


@given(st.lists(st.sampled_from(LABELS), min_size=1, max_size=8), st.sampled_from(["", ".", ":80", ".:80"]))
def test_any_host_has_the_site_that_the_library_finds(labels: list[str], after: str) -> None:
    host = ".".join(labels) + after
    assert LIST.site(host.encode()).decode() == site_of(host)


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("a.b.example.co.uk", "example.co.uk"),
        ("example.com:8080", "example.com"),
        ("example.com.", "example.com"),
        ("192.0.2.1:81", "192.0.2.1"),
        ("[::1]:80", "[::1]"),
        ("localhost", "localhost"),
        ("co.uk", "co.uk"),
        ("a.github.io", "a.github.io"),
        ("name.no-such-suffix", "name.no-such-suffix"),
        ("x.name.no-such-suffix", "name.no-such-suffix"),
        (".", "."),
        ("a..b.com", "a..b.com"),
        (".b.com", ".b.com"),
        ("a." * 126 + "b", "a.b"),
    ],
)
def test_sites(host: str, site: str) -> None:
    assert LIST.site(host.encode()).decode() == site


def test_suffixes_in_other_scripts_are_those_of_canonical_urls() -> None:
    assert LIST.site(b"a.xn--55qx5d.cn") == b"a.xn--55qx5d.cn"


def test_a_list_is_parsed_and_has_its_version() -> None:
    found = PublicSuffixes.parse(
        "// VERSION: 2026-01-02_UTC\n\n// a comment\ncom\n*.ck\n!www.ck\n公司.cn  rest\nCOM\n".encode()
    )
    assert found == PublicSuffixes("2026-01-02_UTC", b"!www.ck\n*.ck\ncom\nxn--55qx5d.cn")
    assert PublicSuffixes.parse(b"com\n").version == "unknown"
    assert LIST.version.startswith("20") and len(RULES) > 8_000


def test_a_list_is_read_back() -> None:
    stored = LIST.to_json()
    assert PublicSuffixes.from_json(stored) == LIST
    assert len(stored["rules"]) < 64_000


def test_an_empty_list_makes_every_last_label_a_suffix() -> None:
    assert PublicSuffixes("none", b"").site(b"a.b.co.uk") == b"co.uk"


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"version": "1"},
        {"version": 1, "rules": LIST.to_json()["rules"]},
        {"version": "a\nb", "rules": LIST.to_json()["rules"]},
        {"version": "1", "rules": "not base 85 \x00"},
        {"version": "1", "rules": LIST.to_json()["rules"][:-40]},
        {"version": "1", "rules": base64.b85encode(zlib.compress(bytes(1 << 23))).decode()},
        {"version": "1", "rules": base64.b85encode(zlib.compress("ä".encode())).decode()},
        {"version": "1", "rules": 7},
    ],
)
def test_a_damaged_list_is_refused_in_one_line(values: dict[str, object]) -> None:
    with pytest.raises(SuffixesRefused) as refused:
        PublicSuffixes.from_json(values)
    assert "\n" not in str(refused.value)


@given(st.binary(min_size=1, max_size=300))
def test_no_bytes_break_the_search(host: bytes) -> None:
    site = LIST.site(host)
    assert site in host
    assert np.frombuffer(site, np.uint8).size <= len(host)
