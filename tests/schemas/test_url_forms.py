"""The kernel that writes canonical forms: it writes the forms of the library, to the byte."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from opicflow.schemas.arrays import Bytes, Ints
from opicflow.schemas.pages import PageIds
from opicflow.schemas.url_forms import LONGEST_URL, NO_PAGE, PAGE
from opicflow.schemas.urls import Canonicaliser, UrlRules, canonical
from support.canonical_urls import RULES, columns, form_of, in_a_batch
from support.fuzz.runner import BOUNDS_CACHE
from support.paths import TOP
from support.raw_links import raw_links
from support.thorough import thorough

SEED = int(os.environ.get("OPICFLOW_SEED", "0"))
LINKS = 8
"""Of a made-up page, which has a URL that may be none."""
BASE = "http://a/b/c/d;p?q"


class CountedAsks(Canonicaliser):
    """Counts the URLs that are for the library, whether it was asked before or not."""

    calls = 0

    def _ask(
        self, text: Bytes, begins: Ints, ends: Ints, bases: Ints, states: Bytes, rows: Ints, progress: Ints
    ) -> Bytes:
        self.calls += len(rows)
        return super()._ask(text, begins, ends, bases, states, rows, progress)


def forms_of(canonicaliser: Canonicaliser, given: list[bytes], base_of: np.ndarray) -> list[bytes | None]:
    """Return the forms of a batch, after a check of their ids."""
    found = canonicaliser.canonicalise(*columns(given, b""), base_of)
    text = found.text.tobytes()
    spans = zip(found.states.tolist(), found.begins.tolist(), found.ends.tolist(), strict=True)
    forms = [text[begin:end] if state == PAGE else None for state, begin, end in spans]
    assert all(state in (PAGE, NO_PAGE) for state in found.states.tolist())
    pages = np.flatnonzero(found.states == PAGE)
    assert found.ids[pages].tolist() == PageIds().of_all([form for form in forms if form is not None]).tolist()
    return forms


def bases_of(count: int) -> np.ndarray:
    """Return the row of the page for each link; rows that begin a page have none."""
    rows = np.arange(count)
    return rows - rows % (LINKS + 1)


# -- equal to the library ----------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("rules", RULES, ids=["none", "www", "https", "parameters", "all"])
def test_the_form_of_a_link_is_that_of_the_library(rules: UrlRules) -> None:
    """One canonicaliser for all batches: what it remembers of hosts changes nothing."""
    batch = 9_000
    canonicaliser = CountedAsks(rules)
    count = thorough(9_000, 2_000_000)
    for number in range(count // batch):
        given = raw_links(batch, SEED * 1_000_000 + number * len(RULES) + RULES.index(rules))
        base_of = bases_of(batch)
        expected: list[bytes | None] = []
        for row, base in enumerate(base_of.tolist()):
            expected.append(form_of(given[row], expected[base] if base != row else None, rules))
        found = forms_of(canonicaliser, given, base_of)
        wrong = [
            (given[row], expected[base_of[row]] if base_of[row] != row else None, found[row], expected[row])
            for row in range(batch)
            if found[row] != expected[row]
        ]
        assert wrong == [], f"seed {SEED}, batch {number}: {len(wrong)}"
        again = [form for form in found if form is not None]
        assert forms_of(canonicaliser, again, np.arange(len(again))) == again, "a form is its own"
    assert canonicaliser.calls < 0.5 * count, "made-up links are hostile, but most of them are decided by the kernel"


PAGES = [b"https://www.example.com/a/b.html?c=d", b"HTTP://Example.ORG:80", b"http://user:secret@a.example/x/"]
LINKS_OF_PAGES = [
    "../c.html", "./d", "e/f?g=h#i", "/j", "?k", "#l", "", "//m.example/n", "https://O.example/P", "q r.html",
    "/K\u00f6ln?\u00fc", "\n s.html \t", "\\t\\u", "http:v", "https://w.example:443", "http://x.example:8080/y",
    '/"z"<1>`{2}', "/a;jsessionid=1?sid=2&b=3", "https://www.c_d.example/e", "/e%zz", "http://f.example?g",
]  # fmt: skip
OTHER_LINKS = ["mailto:kim@a.example", "javascript:void(0)", "tel:+49", "data:image/gif;base64,R0lGODlhAQAAACw="]


def ordinary_links() -> tuple[list[bytes], np.ndarray]:
    """Return links as pages have them, and the row of the page of each."""
    links = [link.encode() for link in LINKS_OF_PAGES + OTHER_LINKS]
    given = [part for page in PAGES for part in (page, *links)]
    rows = np.arange(len(given))
    return given, rows - rows % (1 + len(links))


def test_ordinary_links_are_not_a_matter_for_the_library() -> None:
    for rules in RULES:
        canonicaliser = CountedAsks(rules)
        found = forms_of(canonicaliser, *ordinary_links())
        assert sum(form is not None for form in found) == len(PAGES) * (1 + len(LINKS_OF_PAGES))
        assert canonicaliser.calls == 0


def test_a_batch_of_ordinary_links_takes_a_fraction_of_the_time_of_the_library() -> None:
    """Alone it takes a twentieth (benchmarks/urls.py)."""
    links, base_of = ordinary_links()
    turns = 200
    given, bases = links * turns, (base_of + np.arange(turns)[:, None] * len(links)).ravel()
    canonicaliser = Canonicaliser()

    def kernel() -> None:
        canonicaliser.canonicalise(*columns(given, b""), bases)

    def library() -> None:
        for _ in range(turns // 10):
            for link, base in zip(links, base_of.tolist(), strict=True):
                form_of(link, canonical(links[base].decode()))

    kernel()
    seconds = [min(timed(work) for _ in range(5)) for work in (kernel, library)]
    assert seconds[0] < 10 * seconds[1] / 4


def timed(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def test_a_host_is_a_matter_for_the_library_once() -> None:
    """If it is canonical as it is: Punycode and addresses."""
    canonicaliser = CountedAsks()
    given = [b"http://xn--bcher-kva.example/", b"https://192.0.2.1:8443/a", b"http://192.0.2.1/", b"http://a.example./"]
    forms_of(canonicaliser, given, np.arange(4))
    assert canonicaliser.calls == 4
    again = [
        b"https://XN--BCHER-kva.example/b#c",
        b"https://192.0.2.1:8443/",
        b"http://u@192.0.2.1:80/x/..",
        b"http://A.example.",
    ]
    expected = [
        b"https://xn--bcher-kva.example/b",
        b"https://192.0.2.1:8443/",
        b"http://192.0.2.1/",
        b"http://a.example./",
    ]
    assert forms_of(canonicaliser, again, np.arange(4)) == expected
    assert canonicaliser.calls == 4
    assert form_of(b"http://www.192.0.2.1/", None, UrlRules(fold_www=True)) is None
    folding = Canonicaliser(UrlRules(fold_www=True))
    for _ in range(2):
        found = forms_of(folding, [b"http://192.0.2.1/", b"http://www.192.0.2.1/"], np.arange(2))
        assert found == [b"http://192.0.2.1/", None]


def test_a_link_waits_for_the_page_that_the_library_decides() -> None:
    given = [b"http://b\xc3\xbccher.example/a/b", b"c", b"//d^e/\xc3\xbc", b"../f", b"http://[::1", b"g", b"?h"]
    found = in_a_batch(given, [0, 0, 0, 1, 4, 4, 3])
    page = b"http://xn--bcher-kva.example/"
    assert found == [page + b"a/b", page + b"a/c", None, page + b"f", None, None, page + b"f?h"]


def test_a_batch_of_pages_that_wait_for_each_other_is_decided() -> None:
    given = [b"http://a.example/^", *[b"^/b"] * 30]
    found = in_a_batch(given, [0, *range(30)])
    assert found[:3] == [
        canonical("http://a.example/^"),
        canonical("http://a.example/^/b"),
        canonical("http://a.example/^/^/b"),
    ]
    assert found[30] == canonical("http://a.example/" + "^/" * 30 + "b")


# -- the rules of the WHATWG -------------------------------------------------------------------------------------------

RESOLVED = """
g http://a/b/c/g
./g http://a/b/c/g
g/ http://a/b/c/g/
/g http://a/g
//g http://g/
?y http://a/b/c/d;p?y
g?y http://a/b/c/g?y
#s http://a/b/c/d;p?q
g#s http://a/b/c/g
g?y#s http://a/b/c/g?y
;x http://a/b/c/;x
g;x http://a/b/c/g;x
g;x?y#s http://a/b/c/g;x?y
. http://a/b/c/
./ http://a/b/c/
.. http://a/b/
../ http://a/b/
../g http://a/b/g
../.. http://a/
../../ http://a/
../../g http://a/g
../../../g http://a/g
../../../../g http://a/g
/./g http://a/g
/../g http://a/g
g. http://a/b/c/g.
.g http://a/b/c/.g
g.. http://a/b/c/g..
..g http://a/b/c/..g
./../g http://a/b/g
./g/. http://a/b/c/g/
g/./h http://a/b/c/g/h
g/../h http://a/b/c/h
g;x=1/./y http://a/b/c/g;x=1/y
g;x=1/../y http://a/b/c/y
g?y/./x http://a/b/c/g?y/./x
g?y/../x http://a/b/c/g?y/../x
g#s/../x http://a/b/c/g
http:g http://a/b/c/g
http:/g http://a/g
http://g http://g/
http:\\\\g http://g/
http:?y http://a/b/c/d;p?y
http: http://a/b/c/d;p?q
https:g https://g/
https:/g https://g/
https:///g https://g/
HTTPS:\\/g https://g/
\\g http://a/g
\\\\g http://g/
/\\g http://g/
///g http://g/
g\\h http://a/b/c/g/h
..\\g http://a/b/g
g?y\\x http://a/b/c/g?y\\x
%2e http://a/b/c/
%2E%2e/g http://a/b/g
.%2e\\g http://a/b/g
%2e%2e%2e http://a/b/c/%2e%2e%2e
g//h http://a/b/c/g//h
g//../h http://a/b/c/g/h
/.//g http://a//g
?? http://a/b/c/d;p??
? http://a/b/c/d;p?
//g? http://g/?
//g?y http://g/?y
//G:80/h http://g/h
//g:443 http://g:443/
//u:p@g:81/h http://g:81/h
//u@v@g http://g/
//@g http://g/
//g: http://g/
//g:00081 http://g:81/
//g:0 http://g:0/
//g:65535 http://g:65535/
//g/@h:80 http://g/@h:80
//g?@h:80 http://g/?@h:80
"""
REFUSED = """
g:h mailto:g ftp://g/ file:///g ws://g/ data:,g javascript:g http+x:g h:/g // /\\ //@ //u@ //:80 //u@:80/ //g:65536
//g:8a //g:-1 //g:8:0 //g%00 //g<h //g|h //[g] //[:: http:// https:/// https:
"""


def resolved(link: str) -> list[bytes | None]:
    """Return the form of a link on a page, one by one and in a batch."""
    found = in_a_batch([BASE.encode(), link.encode()], [0, 0])
    return [form_of(link.encode(), BASE.encode()), found[1]]


@pytest.mark.parametrize("case", RESOLVED.split("\n")[1:-1])
def test_a_link_is_resolved_as_the_standard_says(case: str) -> None:
    link, form = case.split(" ")
    assert resolved(link) == [form.encode()] * 2
    spaced = f" \x00\t{link[:1]}\n{link[1:2]}\t\r{link[2:]}\x1f  " if "#" not in link else link
    assert resolved(spaced) == [form.encode()] * 2, "tabs and ends of lines are left out, and the ends are trimmed"


def test_an_empty_link_is_the_page_it_is_on() -> None:
    for link in ("", " ", "\n", "\t#x"):
        assert resolved(link) == [BASE.encode()] * 2


@pytest.mark.parametrize("link", REFUSED.split())
def test_a_link_to_no_page_is_refused_as_the_standard_says(link: str) -> None:
    assert resolved(link) == [None, None]


@pytest.mark.parametrize("part", ["path", "query", "user"])
def test_bytes_are_encoded_as_the_standard_says(part: str) -> None:
    """The sets of the path and of the query of special schemes, without ^ in a path: editions differ."""
    encoded = {*range(32), *b' "<>', 127} | {"path": {*b"`{}"}, "query": {*b"'"}, "user": set()}[part]
    left_out = {*b"\t\n\r#"} | {"path": {*b"/\\?^"}, "query": set(), "user": {*b"/\\?:"}}[part]
    for code in [*set(range(128)) - left_out, 0xE9, 0x20AC, 0x10FFFF]:
        char = chr(code)
        written = "".join(f"%{byte:02X}" for byte in char.encode()) if code in encoded or code > 127 else char
        before, after = {"path": ("/x", "y"), "query": ("/?x", "y"), "user": ("x", "y@b/z")}[part]
        rest = f"/x{written}y" if part == "path" else f"/?x{written}y" if part == "query" else "/z"
        given = f"http://{'' if part == 'user' else 'b'}{before}{char}{after}".encode()
        expected = f"http://b{rest}".encode()
        assert in_a_batch([given]) == [form_of(given)] == [expected], repr(char)


def test_utf_8_is_that_of_python() -> None:
    """All bytes of a second place after all of a first one, and cut sequences."""
    tails = (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80")
    given = [
        b"http://a.b/" + bytes([first, second]) + tail + end
        for first in range(127, 256)
        for second in (*range(126, 162), *range(189, 194), 255)
        for tail in tails
        for end in (b"", b"x")
    ]
    assert in_a_batch(given) == [form_of(url) for url in given]


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", RULES[::2])
def test_forms_end_at_the_longest_url(rules: UrlRules) -> None:
    """To the byte: of what is given, of the form, and of the form before it is folded."""
    page = b"http://a.example/" + b"d/" * 3_000 + b"e?f"
    links = [
        prefix + filler * ((LONGEST_URL + off - len(prefix) - extra) // grown)
        for prefix, filler, grown in (
            (b"http://a.example:80/", b"x", 1),
            (b"http://u:p@a.example/", b"x", 1),
            (b"http://A.example/?", b"'", 3),
            (b"http://a.example/?sid=", b"\xc3\xbc", 6),
            (b"HTTP://www.a.example/;jsessionid=", b'"', 3),
            (b"g", b"x", 1),
            (b"../", b"x", 1),
            (b"?", b"\xc3\xbc", 6),
            (b"/", b"b/../", 1),
            (b"http://a.example/", b"c/../", 5),
        )
        for extra in (0, 6_000, 6_017)
        for off in range(-8, 9)
    ]
    given = [page, *links]
    expected = [form_of(page, None, rules)]
    expected += [form_of(link, expected[0], rules) for link in links]
    assert in_a_batch(given, [0] * len(given), rules) == expected
    assert None in expected and max(len(form or b"") for form in expected) > LONGEST_URL - 8


HOSTILE = [
    b"/" * 8_000,
    b"//" + b"/" * 8_000,
    b"a/" * 4_000,
    b"../" * 2_700,
    b"a/../" * 1_600,
    b"/" + b"%2e%2E/" * 1_100,
    b"http://" + b"@" * 8_000,
    b"http://" + b"u:" * 4_000 + b"@a.example/",
    b"http://" + b"www." * 2_000 + b"a.example/",
    b"http://" + b"a." * 4_000,
    b"http://" + b"A" * 8_000,
    b"http://a.example:" + b"0" * 8_000 + b"80/",
    b"/" + b";jsessionid" * 700,
    b"/" + b";" * 8_000,
    b"?" + b"&" * 8_000,
    b"?" + b"utm_&sid&" * 800,
    b"\t" * 8_000 + b"a",
    b" " * 8_000,
    b"a" * 8_000 + b":",
    b"\xc3\xbc" * 1_300,
    b"'" * 8_000,
    b"#" + b"x" * 8_000,
]


@pytest.mark.parametrize("rules", RULES[::4], ids=["none", "all"])
def test_no_byte_of_a_hostile_url_takes_long(rules: UrlRules) -> None:
    """At most 1 µs, by the library, too: a loop over all bytes for each byte would take several."""
    canonicaliser = Canonicaliser(rules)
    page = b"http://a.example/b/c?d"
    for link in HOSTILE:
        for base in (page, b"http://a.example/" + b"x/" * 4_000):
            given = [base, *[link] * 20]
            expected = [form_of(base, None, rules)]
            expected += [form_of(link, expected[0], rules)] * 20
            begun = time.process_time()
            found = forms_of(canonicaliser, given, np.zeros(len(given), np.int64))
            seconds = time.process_time() - begun
            assert found == expected, link[:30]
            assert seconds < 20 * (len(link) + len(base)) * 1e-6, (link[:30], seconds)


def test_a_small_link_on_a_long_page_needs_room_for_its_form_only() -> None:
    page = b"http://a.example/" + b"x" * 8_000 + b"/"
    found = forms_of(Canonicaliser(), [page, *[b"y"] * 300], np.zeros(301, np.int64))
    assert found == [page, *[page + b"y"] * 300]


BOUNDS = """
import sys
import numpy as np
from opicflow.schemas.pages import HostMemo
from opicflow.schemas.url_forms import ASK, LONGEST_URL, NO_PAGE, PAGE, write_forms
from opicflow.schemas.urls import _dropped_columns, _rule_bits
from support.canonical_urls import RULES, form_of
from support.raw_links import raw_links

seed = int(sys.argv[1])
memo, row = HostMemo.empty(), np.array([1])
pages = [b"http://a.b/", b"https://www.example.com/a/b/../c?d=e", b"http://a.b/" + b"c/" * 2000, b""]
decided = 0
links = [*raw_links(6000, seed), b"", b"//", b"x" * 9000, b"'" * 8192, b"\\xf0\\x9f\\xa6\\x86" * 2000]
for number, link in enumerate(links):
    rules = RULES[number % len(RULES)]
    page = form_of(pages[number % len(pages)], None, rules) or b""
    room = len(page) + 4 * min(len(link), LONGEST_URL) + 32  # exactly what the kernel wants
    given = page + link
    text = np.concatenate((np.frombuffer(given, np.uint8), np.full(room, 255, np.uint8)))
    begins, ends = np.array([0, len(page)]), np.array([len(page), len(given)])
    states, progress = np.array([PAGE if page else NO_PAGE, ASK], np.uint8), np.array([0, len(given)])
    bases = np.zeros(2, np.int64)
    write_forms(
        text, begins, ends, bases, row, _rule_bits(rules), _dropped_columns(rules), memo, states, progress
    )
    assert progress[0] == 1
    assert text[: len(given)].tobytes() == given, "the given text is not touched"
    if states[1] != ASK:
        decided += 1
        found = text[begins[1] : ends[1]].tobytes() if states[1] == PAGE else None
        assert found == form_of(link, page or None, rules), (link, page, found)
assert decided > 3000, decided
print("in bounds")
"""


@pytest.mark.slow
def test_no_link_is_read_or_written_beyond_its_room() -> None:
    """A process of its own, with numba's checks of bounds: it may crash."""
    BOUNDS_CACHE.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_CACHE_DIR": str(BOUNDS_CACHE),
        "PYTHONPATH": str(TOP / "tests"),
    }
    done = subprocess.run(
        [sys.executable, "-c", BOUNDS, str(SEED)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-800:]
    assert done.stdout == "in bounds\n"
