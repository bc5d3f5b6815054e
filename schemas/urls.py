"""Canonical URLs: what makes two addresses one page.

A canonical URL is the WHATWG's normal form (by the library ada) of an http or https URL, without fragment and without
user name and password, all ASCII. Rules may fold more; they are off by default. A URL has at most `LONGEST_URL` bytes,
without its fragment: as it is given, in normal form, and folded. So a URL costs no more than its first bytes do.

Most URLs of a crawl log are canonical already. A kernel recognises the plain ones among them and hashes them where
they are; all others go to the library. The kernel is careful rather than clever: it leaves every doubtful URL.
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

from opicflow.schemas.arrays import Bytes, ColumnTuple, Hashes, Ids, Int, Ints, Word
from opicflow.schemas.errors import UserError
from opicflow.schemas.hashing import HIGHS, ONES, byte_at, find_byte, word_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, prefetch
from opicflow.schemas.pages import (
    HostMemo,
    IdRules,
    PageIds,
    find_site_hash,
    hash_pages,
    id_of,
    is_remembered,
    memo_line,
    remembered_site,
)

LONGEST_URL = 8192
CANONICAL_VERSION = 1
"""Raise it with any change of the canonical form of any URL: page ids follow from it (tests/schemas/test_urls.py)."""
TRACKING_PARAMETERS = ("utm_*", "gclid", "dclid", "fbclid", "msclkid", "yclid", "mc_cid", "mc_eid", "igshid", "_ga")
SESSION_PARAMETERS = ("jsessionid", "phpsessid", "sessionid", "session_id", "sid", "aspsessionid*", "cfid", "cftoken")


_SAFE = r"-\w~!$&()*+,;=:@"
PLAIN_PATH = re.compile(rf"(?!//)(?:/(?:[{_SAFE}][{_SAFE}.]*)?)+(?:\?[{_SAFE}./?%]*)?", re.ASCII)
"""A path with a query in normal form. No segment begins with a dot, nothing is encoded: there are others."""
_SESSION_IN_PATH = re.compile(r";jsessionid=[^/?]*", re.IGNORECASE)
_WITH_AUTHORITY = re.compile(rb"https?://", re.IGNORECASE)
_MOST_REMEMBERED = 1 << 18


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

PAGE = 0
ASK = 1
"""The library has to decide."""
NO_PAGE = 2
ABSENT = 3
"""The row has no URL."""


class _Memos(NamedTuple):
    """What a thread keeps: plain hosts, others (with a port one may be canonical behind http://, not https://)."""

    plain: HostMemo
    others: HostMemo
    ahead: HostsAhead


@dataclass
class Canonicaliser:
    """Makes URLs canonical in batches, on any thread. Its memory of earlier URLs changes nothing but the speed."""

    rules: UrlRules = NO_RULES
    page_ids: PageIds = field(default_factory=PageIds)
    _remembered: dict[bytes, bytes | None] = field(default_factory=dict)
    """The forms that the library found."""
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
        raw = text.tobytes() if len(undecided) > 64 else None  # slices of bytes are faster than slices of arrays
        added: dict[int, bytes] = {}
        size = len(text)
        for row, begin, end, base in zip(
            undecided.tolist(),
            begins[undecided].tolist(),
            ends[undecided].tolist(),
            base_of[undecided].tolist(),
            strict=True,
        ):
            given = raw[begin:end] if raw is not None else text[begin:end].tobytes()
            form = self._absolute(given)
            may_be_relative = form is None or (form and not _WITH_AUTHORITY.match(given))  # http:x is, on http pages
            if may_be_relative and base != row and states[base] == PAGE:
                at = int(begins[base])
                page = added[at] if at in added else text[at : ends[base]].tobytes()
                form = self._ask(given, page.decode("ascii"))
            if not form:
                states[row] = NO_PAGE
                begins[row] = ends[row] = 0
                continue
            states[row] = PAGE
            begins[row], ends[row] = size, size + len(form)
            added[size] = form
            size += len(form)
        text = np.concatenate((text, np.frombuffer(b"".join(added.values()), np.uint8)))
        rows = undecided[states[undecided] == PAGE]
        hash_pages(id_rules, memos.others, text, begins, ends, rows, ids, sites)
        return CanonicalUrls(text, begins, ends, states, ids, sites)

    def _memos(self) -> _Memos:
        """Return the memos of this thread."""
        if not hasattr(self._of_threads, "memos"):
            self._of_threads.memos = _Memos(HostMemo.empty(), HostMemo.empty(), HostsAhead.empty())
        memos: _Memos = self._of_threads.memos
        return memos

    def _absolute(self, given: bytes) -> bytes | None:
        """The canonical form of an absolute URL; None if it is none, empty if it is that of something else."""
        if len(given) > LONGEST_URL:  # an image within a link, mostly: not worth remembering
            return self._ask(given, None)
        try:
            return self._remembered[given]
        except KeyError:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            form = self._remembered[given] = self._ask(given, None)
            return form

    def _ask(self, given: bytes, base: str | None) -> bytes | None:
        plain = given.partition(b"#")[0]
        if len(plain) > LONGEST_URL:
            return b""
        try:
            return canonical(plain.decode("utf-8"), base, self.rules)
        except NotAPage as problem:
            return None if problem.is_no_url else b""
        except UnicodeError:
            return b""


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


_FOLD_WWW, _FOLD_HTTPS, _DROP_IN_QUERY, _DROP_IN_PATH = 1, 2, 4, 8


def _rule_bits(rules: UrlRules) -> int:
    return (
        _FOLD_WWW * rules.fold_www
        + _FOLD_HTTPS * rules.fold_https
        + _DROP_IN_QUERY * bool(rules.drop_parameters)
        + _DROP_IN_PATH * rules.drops_session_in_path
    )


def _table(allowed: str) -> Bytes:
    table = np.zeros(256, np.uint8)
    table[np.frombuffer(allowed.encode(), np.uint8)] = 1
    return table


_LETTERS_AND_DIGITS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_PLAIN = _table(_LETTERS_AND_DIGITS + "-_~!$&()*+,;=:@|[]")
"""Bytes that mean nothing special, and stay as they are, in a path and in a query."""
_SLASH = 47
_HTTPS = np.uint64(int.from_bytes(b"https://", "little"))
_HTTP, _SEVEN_BYTES = np.uint64(int.from_bytes(b"http://", "little")), np.uint64((1 << 56) - 1)


_URLS_AHEAD = 16
"""The memo of so many hosts is on its way from memory while the first of these URLs is hashed."""


@ColumnTuple.register
class HostsAhead(NamedTuple):
    """The hosts of the next URLs, a row each, for kernels; begin -1 = the library has to decide."""

    begins: Ints
    ends: Ints
    lines: Ints
    """The lines of the memo."""

    @classmethod
    def empty(cls) -> HostsAhead:
        """Make room for them."""
        return cls(*(np.zeros(_URLS_AHEAD, np.int64) for _ in cls._fields))


@lean_kernel
def recognise(
    text: Bytes,
    begins: Ints,
    ends: Ints,
    rules: Int,
    id_rules: IdRules,
    memo: HostMemo,
    ahead: HostsAhead,
    states: Bytes,
    ids: Ids,
    sites: Hashes,
) -> None:
    """Hash every URL that is plainly canonical, its fragment cut off (`ends`); leave the others to the library."""
    for first in range(0, begins.shape[0], _URLS_AHEAD):
        last = min(first + _URLS_AHEAD, begins.shape[0])
        for i in range(first, last):
            _find_host(text, begins[i], ends[i], rules, memo, ahead, i - first)
        for i in range(first, last):
            host, host_end, line = ahead.begins[i - first], ahead.ends[i - first], ahead.lines[i - first]
            is_known = host >= 0 and is_remembered(memo, line, text, host, host_end)  # then it is a plain one
            end: Int = np.int64(-1)
            if is_known or (host >= 0 and _end_of_host(text, host, ends[i], rules) == host_end):
                end = _end_of_path(text, host_end, ends[i], rules)
            if end < 0:
                states[i], ids[i], sites[i] = ABSENT if begins[i] < 0 else ASK, 0, 0
                continue
            site = remembered_site(memo, line)
            if not is_known:
                site = find_site_hash(id_rules, memo, line, text, host, host_end)
            states[i], ends[i], sites[i] = PAGE, end, site
            ids[i] = id_of(id_rules, text, begins[i], end, site)


@inlined_kernel
def _find_host(text: Bytes, begin: Int, end: Int, rules: Int, memo: HostMemo, ahead: HostsAhead, row: Int) -> None:
    """Note where the host of a URL that may be plain begins and ends, and the line of the memo, which is requested."""
    ahead.begins[row] = -1
    host = _begin_of_host(text, begin, end, rules) if begin >= 0 else np.int64(-1)
    if host < 0:
        return
    host_end = find_byte(text, host, end, _SLASH)
    if host_end in (host, end):  # no host, or no path: the library adds one
        return
    line = memo_line(text, host, host_end)
    prefetch(memo.lines, line)
    ahead.begins[row], ahead.ends[row], ahead.lines[row] = host, host_end, line


@inlined_kernel
def _begin_of_host(text: Bytes, begin: Int, end: Int, rules: Int) -> Int:
    """Return where the host begins, behind http:// or https://; -1 for other schemes, and for a wrong length."""
    if end - begin > LONGEST_URL or end - begin < 10:
        return np.int64(-1)
    scheme = word_at(text, begin)
    if scheme == _HTTPS:
        return begin + 8
    return begin + 7 if scheme & _SEVEN_BYTES == _HTTP and not rules & _FOLD_HTTPS else np.int64(-1)


@inlined_kernel
def _end_of_host(text: Bytes, begin: Int, end: Int, rules: Int) -> Int:
    """The beginning of the path; -1 for hosts with ports, of numbers, in Punycode, with empty labels."""
    label = begin
    at = begin
    while at < end:
        c = byte_at(text, at)
        if (97 <= c <= 122) or (48 <= c <= 57) or c == 45:  # a-z 0-9 -
            if c == 45 and at == label + 3 and byte_at(text, at - 1) == 45:  # xn-- and its like
                return -1
            at += 1
        elif c == 46 or c == 47:  # . /
            if at == label:
                return -1
            if c == 47:
                if 48 <= byte_at(text, label) <= 57:  # may be a number: an IPv4 address
                    return -1
                return at
            if (rules & _FOLD_WWW) and label == begin and at == begin + 3:
                return -1
            at += 1
            label = at
        else:
            return -1
    return -1


@inlined_kernel
def _has(word: Word, byte: Int) -> Word:
    """Return the high bit of every byte that is this one; all bytes of the word are ASCII."""
    return ~((word ^ (np.uint64(byte) * ONES)) + np.uint64(127) * ONES) & HIGHS


@inlined_kernel
def _ordinary(word: Word) -> Word:
    """Return the high bit of every byte that is a letter, a digit, or one of -./_; 0 if a byte is not ASCII."""
    if word & HIGHS:
        return np.uint64(0)
    lower = word | (np.uint64(32) * ONES)
    letters = (lower + np.uint64(128 - 97) * ONES) & ~(lower + np.uint64(127 - 122) * ONES)
    others = (word + np.uint64(128 - 45) * ONES) & ~(word + np.uint64(127 - 57) * ONES)
    return (letters | others | _has(word, 95)) & HIGHS


@inlined_kernel
def _end_of_path(text: Bytes, begin: Int, end: Int, rules: Int) -> Int:
    """Return the end of a URL whose path begins at `begin`; -1 if the library might change it."""
    at = begin + 1
    while at < end:
        if at + 8 <= end:  # most paths are nothing but such words
            word = word_at(text, at)
            behind = _has(word, 47) << np.uint64(8) | np.uint64(byte_at(text, at - 1) == 47) << np.uint64(7)
            if _ordinary(word) == HIGHS and not _has(word, 46) & behind:
                at += 8
                continue
        stop, is_path = min(at + 8, end), True
        while at < stop and is_path:
            c = byte_at(text, at)
            if _PLAIN[c]:
                if c == 59 and rules & _DROP_IN_PATH:  # ;
                    return np.int64(-1)
            elif c == 46:  # . at the start of a segment may be a dot segment
                if byte_at(text, at - 1) == 47:
                    return np.int64(-1)
            elif c == 37:  # %2e is a dot too
                if at + 2 >= end or (
                    byte_at(text, at + 1) == 50 and (byte_at(text, at + 2) == 69 or byte_at(text, at + 2) == 101)
                ):
                    return np.int64(-1)
            elif c != 47:  # /
                is_path = False
            at += is_path
        if not is_path:
            break
    if at < end and byte_at(text, at) == 63:  # ?
        if rules & _DROP_IN_QUERY:
            return np.int64(-1)
        at = _end_of_query(text, at + 1, end)
    if at < 0 or (at < end and byte_at(text, at) != 35):  # whatever a fragment holds is dropped
        return np.int64(-1)
    return at


@inlined_kernel
def _end_of_query(text: Bytes, begin: Int, end: Int) -> Int:
    """Return where the plain bytes of a query end; -1 if it is empty."""
    at = begin
    while at < end:
        if at + 8 <= end:
            word = word_at(text, at)
            is_ascii = not word & HIGHS
            if is_ascii and _ordinary(word) | _has(word, 61) | _has(word, 38) | _has(word, 37) == HIGHS:  # = & %
                at += 8
                continue
        c = byte_at(text, at)
        if not (_PLAIN[c] or c == 46 or c == 47 or c == 37 or c == 63):
            break
        at += 1
    return np.int64(-1) if at == begin else at
