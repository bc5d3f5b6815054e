"""Canonical URLs: what makes two addresses one page.

A canonical URL is the WHATWG's normal form (by the library ada) of an http or https URL, without fragment and without
user name and password, all ASCII. Rules may fold more; they are off by default. A URL has at most `LONGEST_URL` bytes,
without its fragment: as it is given, in normal form, and folded. So a URL costs no more than its first bytes do.

Most URLs of a crawl log are canonical already, or are links as people write them: kernels decide these (url_forms.py).
All others go to the library.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from threading import local
from typing import NamedTuple

import ada_url
import numpy as np

from opicflow.schemas.arrays import Bytes, Hashes, Ids, Ints
from opicflow.schemas.errors import UserError
from opicflow.schemas.pages import HostMemo, PageIds, hash_pages
from opicflow.schemas.url_forms import (
    ASK,
    DROP_IN_PATH,
    DROP_IN_QUERY,
    FOLD_HTTPS,
    FOLD_WWW,
    LONGEST_URL,
    NO_PAGE,
    PAGE,
    DroppedNames,
    HostsAhead,
    recognise,
    write_forms,
)

CANONICAL_VERSION = 1
"""Raise it with any change of the canonical form of any URL: page ids follow from it (tests/schemas/test_urls.py)."""
TRACKING_PARAMETERS = ("utm_*", "gclid", "dclid", "fbclid", "msclkid", "yclid", "mc_cid", "mc_eid", "igshid", "_ga")
SESSION_PARAMETERS = ("jsessionid", "phpsessid", "sessionid", "session_id", "sid", "aspsessionid*", "cfid", "cftoken")


_SAFE = r"-\w~!$&()*+,;=:@"
PLAIN_PATH = re.compile(rf"(?!//)(?:/(?:[{_SAFE}][{_SAFE}.]*)?)+(?:\?[{_SAFE}./?%]*)?", re.ASCII)
"""A path with a query in normal form. No segment begins with a dot, nothing is encoded: there are others."""
_ABSOLUTE = re.compile(rb"https?://", re.IGNORECASE)
_SESSION_IN_PATH = re.compile(r";jsessionid=[^/?]*", re.IGNORECASE)
_MOST_ROOM = 1 << 16
"""More bytes than the kernel of forms may write for one URL."""


class NotAPage(UserError, ValueError):
    """A URL that no page can have. The message is one line."""

    def __init__(self, message: str, is_no_url: bool = False) -> None:
        super().__init__(message)
        self.is_no_url = is_no_url


@dataclass(frozen=True)
class UrlRules:
    """Further rules that make two addresses one page. `drop_parameters` are names, or prefixes with * at the end."""

    drop_parameters: tuple[str, ...] = ()
    fold_www: bool = False
    fold_https: bool = False

    @property
    def drops_session_in_path(self) -> bool:
        """Whether `;jsessionid=…` goes from paths too."""
        return _is_dropped("jsessionid", self.drop_parameters)


NO_RULES = UrlRules()


def canonical(url: str, base: str | None = None, rules: UrlRules = NO_RULES) -> bytes:
    """Return the canonical form of a URL, or of a relative one on a page `base`. Raises `NotAPage` with the reason."""
    if base is None and rules is NO_RULES and _is_plain(url):
        return url.encode("ascii")
    plain = url.partition("#")[0]
    _check_length(plain)
    try:
        form = ada_url.join_url(base, plain) if base is not None else ada_url.normalize_url(plain)
    except ValueError:
        raise NotAPage("it is no URL", is_no_url=True) from None
    if not form.startswith(("https://", "http://")):
        raise NotAPage(f"{form.partition(':')[0][:20]}: is neither http nor https")
    _check_length(form)
    if rules != NO_RULES or "@" in form:
        try:
            form = _folded(form, rules)
        except ValueError:
            raise NotAPage("it is no URL", is_no_url=True) from None
        _check_length(form)
    return form.encode("ascii")


def named_page(text: str, rules: UrlRules = NO_RULES, option: str = "") -> str:
    """Return the canonical URL of a page that a user named. Raises `NotAPage` with advice; `option` begins it."""
    try:
        return canonical(text, None, rules).decode()
    except NotAPage as problem:
        advice = "give the URL of a page"
        if "@" not in text:  # mailto:a@example.org
            with suppress(NotAPage):
                canonical(f"https://{text}", None, rules)
                advice = f"do you mean https://{text[:200]} ?"
        raise NotAPage(f"{option}{text[:200] or repr(text)}: {problem}: {advice}") from None


def _is_plain(url: str) -> bool:
    """Whether a URL is surely canonical. Most of a crawl are, and the library takes longer."""
    path = url.find("/", len("https://"))
    is_short = path > 0 and len(url) <= LONGEST_URL
    return is_short and PLAIN_PATH.fullmatch(url, path) is not None and _is_canonical_origin(url[:path])


@lru_cache(1 << 10)
def _is_canonical_origin(origin: str) -> bool:
    try:
        form = ada_url.normalize_url(f"{origin}/")
    except ValueError:
        return False
    return form == f"{origin}/" and form.startswith(("https://", "http://")) and "@" not in form


def _check_length(text: str) -> None:
    if len(text) > LONGEST_URL or (not text.isascii() and len(text.encode("utf-8", "replace")) > LONGEST_URL):
        raise NotAPage(f"it is longer than {LONGEST_URL} bytes")


def _folded(form: str, rules: UrlRules) -> str:
    """A normal form without user name and password, and as the rules want it."""
    parts = ada_url.URL(form)
    parts.username = parts.password = ""
    if rules.fold_https and parts.protocol == "http:":
        parts.protocol = "https:"
    if rules.fold_www and parts.hostname.startswith("www."):
        parts.hostname = _without_www(parts.hostname)
    if rules.drops_session_in_path and ";" in parts.pathname:
        parts.pathname = _SESSION_IN_PATH.sub("", parts.pathname)
    if rules.drop_parameters and parts.search:
        exact, prefixes = _dropped_names(rules.drop_parameters)
        kept = [part for part in parts.search[1:].split("&") if not _is_one_of(part, exact, prefixes)]
        joined = "&".join(kept)
        parts.search = "?" + joined if joined else ""  # a ? that the first name begins with would be lost
    return str(parts.href)


def host(url: bytes) -> bytes:
    """The host of a canonical URL, with its port if it has one."""
    begin = url.index(b"//") + 2
    return url[begin : url.index(b"/", begin)]


def _without_www(name: str) -> str:
    """A host without every `www.` at its start that leaves two labels."""
    begin, end = 0, len(name.rstrip("."))
    while name.startswith("www.", begin) and name.find(".", begin + 4, end) >= 0:
        begin += 4
    return name[begin:]


@lru_cache(16)
def _dropped_names(names: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The names of parameters that are dropped, and the beginnings of others."""
    lower = [name.lower() for name in names]
    prefixes = tuple(name[:-1] for name in lower if name.endswith("*"))
    return frozenset(name for name in lower if not name.endswith("*")), prefixes


def _is_dropped(part: str, names: tuple[str, ...]) -> bool:
    return _is_one_of(part, *_dropped_names(names))


def _is_one_of(part: str, exact: frozenset[str], prefixes: tuple[str, ...]) -> bool:
    name = part.split("=", 1)[0].lower()
    return name in exact or name.startswith(prefixes)


# -- whole batches -----------------------------------------------------------------------------------------------------


class _Memos(NamedTuple):
    """The memory of a thread: plain hosts; those of other canonical URLs, with their ports."""

    plain: HostMemo
    others: HostMemo
    ahead: HostsAhead


@dataclass
class Canonicaliser:
    """Makes URLs canonical in batches, on any thread. Its memory of earlier URLs changes nothing but the speed."""

    rules: UrlRules = NO_RULES
    page_ids: PageIds = field(default_factory=PageIds)
    _of_threads: local = field(default_factory=local, repr=False, compare=False)

    def canonicalise(self, text: Bytes, begins: Ints, ends: Ints, base_of: Ints) -> CanonicalUrls:
        """The canonical form and page id of `text[begins[i]:ends[i]]` (UTF-8), for every i; absent where begin < 0.

        `base_of[i]` is the row whose URL a relative one is resolved against: a row before it, or itself for none.
        """
        if len(begins) == 0:  # kernels are compiled once for bytes of a log, and again for arrays of our own
            none = np.zeros(0, np.uint64)
            return CanonicalUrls(text, begins, ends, np.zeros(0, np.uint8), none, none)
        states = np.empty(len(begins), np.uint8)
        ids, sites = np.zeros(len(begins), np.uint64), np.zeros(len(begins), np.uint64)
        ends = ends.copy()
        id_rules = self.page_ids.rules
        memos = self._memos()
        rules = _rule_bits(self.rules)
        recognise(text, begins, ends, rules, id_rules, memos.plain, memos.ahead, states, ids, sites)
        undecided = np.flatnonzero(states == ASK)
        if len(undecided) == 0:
            return CanonicalUrls(text, begins, ends, states, ids, sites)
        begins = begins.copy()
        text = self._decide(text, begins, ends, base_of, states, undecided)
        rows = undecided[states[undecided] == PAGE]
        hash_pages(id_rules, memos.others, text, begins, ends, rows, ids, sites)
        return CanonicalUrls(text, begins, ends, states, ids, sites)

    def _memos(self) -> _Memos:
        """Return the memos of this thread."""
        if not hasattr(self._of_threads, "memos"):
            self._of_threads.memos = _Memos(HostMemo.empty(), HostMemo.empty(), HostsAhead.empty())
        memos: _Memos = self._of_threads.memos
        return memos

    def _decide(self, text: Bytes, begins: Ints, ends: Ints, base_of: Ints, states: Bytes, rows: Ints) -> Bytes:
        """Write the canonical forms of these rows behind the text, which is returned. The library has the last word."""
        hosts, rules, dropped = self._memos().others, _rule_bits(self.rules), _dropped_columns(self.rules)
        progress = np.array([0, len(text)])
        text = _with_room(text, len(text), len(text) + _MOST_ROOM)
        while len(rows):
            progress[0] = 0
            while True:
                write_forms(text, begins, ends, base_of, rows, rules, dropped, hosts, states, progress)
                if progress[0] == len(rows):
                    break
                text = _with_room(text, int(progress[1]), int(progress[1]) + _MOST_ROOM)
            rows = rows[states[rows] == ASK]
            bases = base_of[rows]
            given = rows[(bases == rows) | (states[bases] != ASK)]
            if len(given):
                text = self._ask(text, begins, ends, base_of[given], states, given, progress)
            rows = rows[states[rows] == ASK]
        return text[: progress[1]]

    def _ask(
        self, text: Bytes, begins: Ints, ends: Ints, bases: Ints, states: Bytes, rows: Ints, progress: Ints
    ) -> Bytes:
        """Write the forms that the library says behind the text, which is returned; none where it refuses a URL."""
        size = int(progress[1])
        given = text.data
        has_base = (bases != rows) & (states[bases] == PAGE)
        columns = (begins[rows], ends[rows], has_base, begins[bases], ends[bases])
        forms = [
            _answer(bytes(given[begin:end]), bytes(given[base_begin:base_end]) if is_relative else None, self.rules)
            for begin, end, is_relative, base_begin, base_end in zip(*(one.tolist() for one in columns), strict=True)
        ]
        lengths = np.array([len(form) for form in forms], np.int64)
        stops = size + np.cumsum(lengths)
        is_page = lengths > 0
        states[rows] = np.where(is_page, PAGE, NO_PAGE)
        begins[rows], ends[rows] = np.where(is_page, stops - lengths, 0), np.where(is_page, stops, 0)
        progress[1] = stops[-1]
        text = _with_room(text, size, int(stops[-1]))
        text[size : stops[-1]] = np.frombuffer(b"".join(forms), np.uint8)
        return text


def _answer(given: bytes, base: bytes | None, rules: UrlRules) -> bytes:
    """Return the canonical form by the library; empty if there is none."""
    plain = given.partition(b"#")[0]
    if len(plain) > LONGEST_URL:
        return b""
    return _remembered_answer(plain, None if _ABSOLUTE.match(plain) else base, rules)


@lru_cache(1 << 10)
def _remembered_answer(plain: bytes, base: bytes | None, rules: UrlRules) -> bytes:
    """Return the answer of one call. The same few broken links are on all pages of a site."""
    try:
        return canonical(plain.decode("utf-8"), None if base is None else base.decode("ascii"), rules)
    except (NotAPage, UnicodeError):
        return b""


def _with_room(text: Bytes, size: int, wanted: int) -> Bytes:
    """Return a text with room for so many bytes, of which the first `size` are those of this text."""
    if wanted <= len(text):
        return text
    larger = np.empty(max(wanted, 2 * size), np.uint8)
    larger[:size] = text[:size]
    return larger


@lru_cache(16)
def _dropped_columns(rules: UrlRules) -> DroppedNames:
    return DroppedNames.of(*_dropped_names(rules.drop_parameters))


@dataclass(frozen=True)
class CanonicalUrls:
    """URLs as parts of a text, with their states; the other columns mean something for `PAGE` only."""

    text: Bytes
    begins: Ints
    ends: Ints
    states: Bytes
    ids: Ids
    sites: Hashes
    """A hash of the site of each page."""


def _rule_bits(rules: UrlRules) -> int:
    return (
        FOLD_WWW * rules.fold_www
        + FOLD_HTTPS * rules.fold_https
        + DROP_IN_QUERY * bool(rules.drop_parameters)
        + DROP_IN_PATH * rules.drops_session_in_path
    )
