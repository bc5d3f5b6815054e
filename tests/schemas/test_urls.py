"""Canonical URLs: the kernel and the library never differ, and one page is one URL."""

from __future__ import annotations

from typing import Any

import ada_url
import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st

from opicflow.schemas.hashing import hash_bytes
from opicflow.schemas.pages import HostMemo, PageIds
from opicflow.schemas.public_suffixes import installed_suffixes
from opicflow.schemas.url_forms import ASK, LONGEST_URL, PAGE, HostsAhead, recognise
from opicflow.schemas.urls import (
    CANONICAL_VERSION,
    NO_RULES,
    Canonicaliser,
    NotAPage,
    UrlRules,
    _rule_bits,
    canonical,
    host,
)
from support.canonical_urls import PLAIN, RULES, columns, form_of, in_a_batch
from support.page_ids import reference_page_id

every_rule = pytest.mark.parametrize("rules", RULES, ids=["none", "www", "https", "parameters", "all"])

HOSTS = """
a.b example.com www.example.com www.com www.com. www.www.a.com www.a.co.uk EXAMPLE.com a..b .a a. 1.2.3.4 1.2.3 0x7f.1
www.1.2.3.4 a.1 a.0x1 1a.2b a.1b xn--bcher-kva.de xn--a a--b.c -a.b a-.b a_b.c www.x_y.z b\u00fccher.de \uff41.com
user@a.b u:p@www.a.b [::1] [1:2::3] a.b:80 a.b:443 a.b:8080 www.a.b:443 a.b:99999 a%41.b a!b.c localhost a*b.c
"""
hosts = st.sampled_from([*HOSTS.split(), "", "a b.c", "a" * 64 + ".b", ("a" * 60 + ".") * 5 + "b"])
nasty = st.text(alphabet="a/.?#%2eE5c;&=:@\\ \t\n'\"<>`{}|[]^~!$()*+,-_\x00\x7fé€Aé😀", max_size=12)
parts = st.sampled_from(
    [
        "/",
        "/.",
        "/..",
        "/a",
        "/%2e",
        "/%2E%2e/",
        "/a.",
        "/.a",
        "//",
        "/;jsessionid=A1",
        "/b;JSESSIONID=x;y=z/c",
        "?",
        "??",
        "&",
        "?a=1",
        "&A=2",
        "&b",
        "?utm_source=x",
        "&utm_x=1",
        "?jsessionid=1",
        "&PHPSESSID=9",
        "=",
        "#",
        "#a?b",
        "%",
        "%4",
        "\\",
        "/wiki/Köln",
        "/a b",
        "%zz",
        "'",
        "|",
        "/C|/",
        "/~",
        "a@b",
        ":80",
    ]
)
schemes = st.sampled_from(
    ["http://", "https://", "HTTP://", "http:", "https:", "http:/", "ftp://", "//", "", "mailto:", " http://"]
)
built = st.builds("".join, st.tuples(schemes, hosts, st.lists(parts | nasty, max_size=4).map("".join)))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    url = bytearray(draw(st.sampled_from(PLAIN)).encode())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(url)))
        byte = draw(st.integers(0, 255) | st.sampled_from(list(b"/.?#%;&=:@\\ 0123w")))
        url[at : at + draw(st.integers(0, 1))] = bytes([byte]) * draw(st.integers(0, 2))
    return bytes(url)


of_text = st.builds("http{}://{}/{}".format, st.sampled_from(["", "s"]), st.sampled_from(["a.b", "www.c.d"]), nasty)
urls = (built | of_text).map(lambda text: text.encode("utf-8", "surrogatepass")) | mutated() | st.binary(max_size=30)


def recognised(url: bytes, rules: UrlRules = NO_RULES) -> bytes | None:
    text, begins, ends = columns([url])
    states, ids, sites = np.zeros(1, np.uint8), np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    recognise(
        text, begins, ends, _rule_bits(rules), PageIds().rules, HostMemo.empty(), HostsAhead.empty(), states, ids, sites
    )
    if states[0] == ASK:
        return None
    found = text[begins[0] : ends[0]].tobytes()
    assert states[0] == PAGE and ids[0] == reference_page_id(found)
    return found


def test_sites_are_the_same_with_hosts_remembered_and_without() -> None:
    hosts = [f"{'a' * length}.example" for length in range(1, 80)]
    hosts += [f"{'a' * (length - 1)}b.example" for length in range(1, 80)]
    text, begins, ends = columns([f"https://{host}/".encode() for host in hosts])
    memo = HostMemo.empty()
    found = []
    for _ in range(3):  # at first no host is remembered, then all of up to 55 bytes
        states, ids, sites = (
            np.zeros(len(hosts), np.uint8),
            np.zeros(len(hosts), np.uint64),
            np.zeros(len(hosts), np.uint64),
        )
        recognise(text, begins, ends.copy(), 0, PageIds().rules, memo, HostsAhead.empty(), states, ids, sites)
        assert (states == PAGE).all()
        found.append((ids.tolist(), sites.tolist()))
    assert found[0] == found[1] == found[2]
    assert found[0][0] == [reference_page_id(f"https://{host}/".encode()) for host in hosts]
    assert len(set(found[0][1])) == len(hosts)
    lines = memo.lines.reshape(-1, 8)
    assert 0 < np.count_nonzero(lines.any(axis=1)) <= 2 * len([host for host in hosts if len(host) <= 55])
    assert memo.lines.ctypes.data % 64 == 0


# -- hashes


def test_hashes_are_those_of_xxhash_for_every_length_and_at_every_offset() -> None:
    data = np.random.default_rng(0).integers(0, 256, 420, np.uint8).tobytes()
    text = np.frombuffer(data, np.uint8)
    for length in range(201):
        for offset in (0, 1, 7, 8, 13):
            assert hash_bytes(text, offset, offset + length) == xxhash.xxh64_intdigest(data[offset : offset + length])


@given(st.binary(max_size=300), st.integers(0, 40))
def test_hashes_are_those_of_xxhash(data: bytes, offset: int) -> None:
    begin = min(offset, len(data))
    assert hash_bytes(np.frombuffer(data, np.uint8), begin, len(data)) == xxhash.xxh64_intdigest(data[begin:])


# -- the kernel and the library


@every_rule
@given(url=urls)
@example(url=b"http://a.b/..;jsessionid=1/x")
@example(url=b"http://a.b/@x")
@example(url=b"http://a.b.c/#\xff")
@example(url=b"http://a.b../x")
@example(url=b"http://b../")
@example(url=b"http://a.b/?q=a+" + b"\xff" * 8 + b"x=2")
@example(url=b"http://a.b/" + b"\xff" * 16)
def test_what_the_kernel_recognises_is_what_the_library_says(url: bytes, rules: UrlRules) -> None:
    found = recognised(url, rules)
    if found is not None:
        assert found == form_of(url, None, rules) == url[: len(found)]


@every_rule
@given(url=urls)
@example(url=b"http://www.www.a.com/")
@example(url=b"http://www.com./")
@example(url=b"http://a.b/?utm_x=1&?&")
@example(url=b"http://a.b/???&a=1")
def test_a_canonical_url_is_its_own(url: bytes, rules: UrlRules) -> None:
    form = form_of(url, None, rules)
    if form is not None:
        assert form_of(form, None, rules) == form
        assert len(form) <= LONGEST_URL and form.isascii() and b"#" not in form
        assert host(form) and b"/" not in host(form) and b"@" not in host(form)
        assert installed_suffixes().site(host(form))


@pytest.mark.slow_but_first
@every_rule
@given(given=st.lists(st.none() | urls | parts.map(str.encode), min_size=1, max_size=8), data=st.data())
@example(given=[b"http://a.b/c/d", b"http:e", b"https:e", b"http:/e", b"http://e"], data=None)
@example(given=[b"https://host0.example/page/6", b"http://host0.example", b"https://host3.example/page/6"], data=None)
@example(given=[b"http:///a.b", b"https:///a.b", b"http://a.b/", b"http://a.b/c"], data=None)
def test_a_batch_is_what_its_urls_are_one_by_one(
    given: list[bytes | None], data: st.DataObject | None, rules: UrlRules
) -> None:
    bases = [data.draw(st.integers(0, row)) if data else 0 for row in range(len(given))]
    expected: list[bytes | None] = []
    for row, url in enumerate(given):
        base = None if bases[row] == row else expected[bases[row]]
        expected.append(None if url is None else form_of(url, base, rules))
    assert in_a_batch(given, bases, rules) == expected
    assert (
        in_a_batch(given * 70, [base + len(given) * turn for turn in range(70) for base in bases], rules)
        == expected * 70
    )


def test_ordinary_urls_do_not_go_to_the_library() -> None:
    canonical_ones = [url.partition("#")[0] for url in PLAIN]
    assert [canonical(url).decode() for url in PLAIN] == canonical_ones
    quick = sum(recognised(url.encode()) is not None for url in PLAIN)
    assert quick >= 0.9 * len(PLAIN), f"{quick} of {len(PLAIN)}"


# -- pages and other addresses


def test_the_canonical_form_of_a_url_changes_only_with_its_version() -> None:
    """Page ids follow from it. Where this fails, raise `CANONICAL_VERSION`, and write the new digest here."""
    paths = [
        "/a/./b/../c?x=1&utm_source=y#z",
        "/é/%7e/%c3%a9",
        "\\a b",
        "/;jsessionid=A1?sid=2&B=c",
        "",
        "/a'b|c%zz?&&",
    ]
    urls = [*PLAIN, *(f"http://{host}{path}" for host in HOSTS.split() for path in paths)]
    forms = [form_of(url.encode(), rules=rules) or b"none" for rules in RULES for url in urls]
    assert (CANONICAL_VERSION, xxhash.xxh3_128_hexdigest(b"\n".join(forms))) == (1, "e1e3894d383692f8f2e9ca1e4be3477c")


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ("HTTP://Example.COM:80", "http://example.com/"),
        ("https://a.b:443/x", "https://a.b/x"),
        ("https://a.b:80/x", "https://a.b:80/x"),
        ("http://a.b/x#y?z", "http://a.b/x"),
        ("http://a.b/x?y#z#", "http://a.b/x?y"),
        ("http://user:secret@a.b/x", "http://a.b/x"),
        ("http://user@a.b/@x?@", "http://a.b/@x?@"),
        ("http://a.b/../c/./d/%2e%2E/e", "http://a.b/c/e"),
        ("http://a.b\\c d", "http://a.b/c%20d"),
        (" \thttp://a.b/c\n", "http://a.b/c"),
        ("http://bücher.example/ü?ü", "http://xn--bcher-kva.example/%C3%BC?%C3%BC"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://a.b/?", "http://a.b/?"),
    ],
)
def test_what_is_written_in_many_ways_is_one_page(given: str, form: str) -> None:
    assert canonical(given).decode() == form
    assert in_a_batch([given.encode()]) == [form.encode()]


@pytest.mark.parametrize(
    "given", ["", "a/b", "/c", "//", "http://", "mailto:a@b.c", "data:,x", "ftp://a.b/", "http://a b/"]
)
def test_what_no_page_can_have_is_refused_in_one_line(given: str) -> None:
    with pytest.raises(NotAPage, match=r"^it is no URL$|^\w+: is neither http nor https$"):
        canonical(given)
    assert in_a_batch([given.encode()]) == [None]


ORIGINS = (
    "https://a.example",
    "http://127.0.0.1:8080",
    "http://a.example:80",
    "https://B.example",
    "http://0x7f.1",
    "//",
)
PATHS = st.text("/.aZ0-~!$&()*+,;=:@?%2e# \\'\"|^é", max_size=12)


@given(st.sampled_from(ORIGINS), st.sampled_from(("/", "")), PATHS)
@example("https://a.example", "/", "a/.b")
@example("https://a.example", "/", "/a")
@example("https://a.example", "/", "%2e/a?%2e")
@example("http://127.0.0.1:8080", "/", "a.b/c?d=/../e")
def test_a_canonical_url_is_the_normal_form_of_the_library(origin: str, slash: str, path: str) -> None:
    url = f"{origin}{slash}{path}"
    try:
        form = ada_url.normalize_url(url.partition("#")[0])
    except ValueError:
        form = ""
    if form.startswith("http") and "@" not in form:
        assert canonical(url) == form.encode()
    elif "@" not in form:
        with pytest.raises(NotAPage):
            canonical(url)


def test_relative_links_are_those_of_the_page_they_are_on() -> None:
    links = [
        b"d",
        b"/d",
        b"//e.f",
        b"?g",
        b"",
        b"#h",
        b"http:d",
        b"mailto:a@b.c",
        b"http://e.f/",
        b"javascript:x",
        None,
    ]
    forms = [
        b"http://a.b/c/d",
        b"http://a.b/d",
        b"http://e.f/",
        b"http://a.b/c/x?g",
        b"http://a.b/c/x",
        b"http://a.b/c/x",
    ]
    forms += [b"http://a.b/c/d"]
    found = in_a_batch([b"http://u@A.b/c/x#y", *links], [0] * 12)
    assert found == [b"http://a.b/c/x", *forms, None, b"http://e.f/", None, None]


def test_a_relative_link_on_what_is_no_page_is_none() -> None:
    assert in_a_batch([b"mailto:a@b.c", b"d", b"http://a.b/", b"\xff", b"d"], [0, 0, 0, 3, 3]) == [
        None,
        None,
        b"http://a.b/",
        None,
        None,
    ]


@pytest.mark.parametrize("filler", ["x", "ü"])
def test_a_url_has_so_many_bytes_and_no_more(filler: str) -> None:
    size = len(canonical("http://a.b/" + filler)) - len("http://a.b/")
    fits = (LONGEST_URL - len("http://a.b/c")) // size
    longest = "http://a.b/c" + filler * fits
    assert len(canonical(longest)) == LONGEST_URL - (LONGEST_URL - len("http://a.b/c")) % size
    assert in_a_batch([longest.encode() + b"#" + b"f" * 9000]) == [canonical(longest)]
    with pytest.raises(NotAPage, match=f"longer than {LONGEST_URL} bytes"):
        canonical(longest + filler)
    assert in_a_batch([(longest + filler).encode(), b"x" * 100_000], [0, 0]) == [None, None]


@pytest.mark.parametrize(
    "url",
    [
        "http://" + "www." * 200_000 + "a.com/",
        "http://a.b/?" + "utm_x&" * 200_000,
        "http://a.b/" + ";jsessionid=1" * 80_000,
        "http://" + "user:" * 2000 + "@a.b/",
        "http://a.b/" + "c/../" * 2000,
        "http://a.b:" + "0" * 9000 + "80/",
        "http://" + "\u00fc" * 5000 + ".de/",
    ],
    ids=["www", "parameters", "session", "user", "dots", "port", "IDNA"],
)
def test_a_url_that_is_too_long_is_refused_before_it_is_folded(url: str) -> None:
    with pytest.raises(NotAPage, match="longer than"):
        canonical(url, None, RULES[-1])
    with pytest.raises(NotAPage, match="longer than"):
        canonical(url, "http://a.b/", NO_RULES)
    assert in_a_batch([url.encode()], rules=RULES[-1]) == [None]


def test_a_normal_form_that_is_too_long_is_refused_before_it_is_folded() -> None:
    given = "http://a.b/?utm_x=" + "\u00fc" * 3000  # three bytes for each of its bytes
    with pytest.raises(NotAPage, match="longer than"):
        canonical(given, None, RULES[3])


def test_folding_takes_as_many_steps_as_the_url_has_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[str] = []

    class Counted(ada_url.URL):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            writes.append(name)
            super().__setattr__(name, value)

    monkeypatch.setattr(ada_url, "URL", Counted)
    assert canonical("http://" + "www." * 2000 + "a.com/", None, UrlRules(fold_www=True)) == b"http://a.com/"
    assert writes.count("hostname") == 1


@pytest.mark.parametrize(
    ("rules", "given", "form"),
    [
        (
            UrlRules(drop_parameters=("utm_*", "sid")),
            "http://a.b/?utm_a=1&x=2&UTM_B&sid=3&sidx=4",
            "http://a.b/?x=2&sidx=4",
        ),
        (UrlRules(drop_parameters=("UTM_*", "Sid")), "http://a.b/?utm_a=1&x=2&SID=1&x", "http://a.b/?x=2&x"),
        (UrlRules(drop_parameters=("sid",)), "http://a.b/?sid=1", "http://a.b/"),
        (UrlRules(drop_parameters=("sid",)), "http://a.b/??sid=1&x", "http://a.b/??sid=1&x"),
        (UrlRules(drop_parameters=("sid",)), "http://a.b/?sid=1&?x", "http://a.b/??x"),
        (UrlRules(drop_parameters=("sid",)), "http://a.b/x;jsessionid=1", "http://a.b/x;jsessionid=1"),
        (UrlRules(drop_parameters=("jsessionid",)), "http://a.b/x;JSessionID=1.a/y;z?jsessionid=2", "http://a.b/x/y;z"),
        (UrlRules(drop_parameters=("JSESSIONID",)), "http://a.b/x;jsessionid=1", "http://a.b/x"),
        (UrlRules(fold_www=True), "http://www.a.b/", "http://a.b/"),
        (UrlRules(fold_www=True), "http://www.com/", "http://www.com/"),
        (UrlRules(fold_www=True), "http://www.com./", "http://www.com./"),
        (UrlRules(fold_www=True), "http://www2.a.b/", "http://www2.a.b/"),
        (UrlRules(fold_https=True), "http://a.b/", "https://a.b/"),
        (UrlRules(fold_https=True), "http://a.b:443/", "https://a.b/"),
        (UrlRules(fold_https=True), "http://a.b:80/", "https://a.b/"),
        (UrlRules(fold_https=True), "http://a.b:8080/", "https://a.b:8080/"),
    ],
)
def test_rules_fold_what_they_say_and_nothing_else(rules: UrlRules, given: str, form: str) -> None:
    assert canonical(given, rules=rules).decode() == form
    assert in_a_batch([given.encode()], rules=rules) == [form.encode()]


@pytest.mark.parametrize(
    ("url", "its_host", "domain"),
    [
        (b"http://a.b.example.co.uk/x", b"a.b.example.co.uk", b"example.co.uk"),
        (b"http://example.com:8080/x", b"example.com:8080", b"example.com"),
        (b"http://a.example.com/http://x/", b"a.example.com", b"example.com"),
        (b"http://192.0.2.1/", b"192.0.2.1", b"192.0.2.1"),
        (b"http://192.0.2.1:81/", b"192.0.2.1:81", b"192.0.2.1"),
        (b"http://[::1]:80/", b"[::1]:80", b"[::1]"),
        (b"http://localhost/", b"localhost", b"localhost"),
        (b"http://co.uk/", b"co.uk", b"co.uk"),
        (b"http://xn--bcher-kva.example.de/", b"xn--bcher-kva.example.de", b"example.de"),
    ],
)
def test_hosts_and_the_domains_somebody_registered(url: bytes, its_host: bytes, domain: bytes) -> None:
    assert (host(url), installed_suffixes().site(host(url))) == (its_host, domain)


def test_remembered_urls_change_nothing() -> None:
    canonicaliser = Canonicaliser()
    text, begins, ends = columns([b"HTTP://a.b/x", b"mailto:a", b"y"])
    own = np.zeros(3, np.int64)
    first, second = (canonicaliser.canonicalise(text, begins, ends, own) for _ in range(2))
    assert (first.ids == second.ids).all() and (first.states == second.states).all()


def ids_of(canonicaliser: Canonicaliser, *urls: bytes) -> list[int]:
    text, begins, ends = columns(urls)
    found = canonicaliser.canonicalise(text, begins, ends, np.arange(len(urls)))
    return [int(page) for page in found.ids]


def test_a_host_that_was_met_changes_no_other_url() -> None:
    canonicaliser = Canonicaliser()
    in_turn = [
        b"http://a.b:443/x",
        b"http://1.2.3.4/",
        b"http://xn--bcher-kva.example/",
        b"HTTP://WWW.a.b/",
        b"http://a.b/",
    ]
    again = [
        b"https://a.b:443/x",
        b"https://1.2.3.4/",
        b"https://xn--bcher-kva.example/",
        b"http://www.a.b./",
        b"http://a.b/y",
    ]
    for _ in range(2):
        for urls in (in_turn, again):
            assert ids_of(canonicaliser, *urls) == [reference_page_id(canonical(url.decode())) for url in urls]


def test_hosts_of_every_length_are_met_again() -> None:
    canonicaliser = Canonicaliser()
    urls = [b"http://" + b"a" * (length - 4) + b".org/" + b"x" * (length % 9) for length in (*range(5, 130), 250)]
    expected = [reference_page_id(url) for url in urls]
    for _ in range(3):
        assert ids_of(canonicaliser, *urls) == expected
