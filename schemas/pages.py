"""Page ids: the 64-bit hash of a canonical URL that keys its cash.

The first 16 bits are a hash of the page's site, so the pages of a site are close to each other; the other 48 bits are a
hash of the URL. Both are made with a key: who does not know it cannot make a URL whose page id is that of another page
(docs/decisions/page-ids.md). URLs are taken as they come: making them canonical is not done here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypedDict

import numpy as np

from opicflow.schemas.arrays import (
    LINE_WORDS,
    Array,
    Bytes,
    ColumnTuple,
    Hashes,
    Ids,
    Int,
    Ints,
    Word,
    Words,
    words_in_lines,
)
from opicflow.schemas.errors import UserError
from opicflow.schemas.hashing import byte_at, keyed_hash, last_bytes, turned, word_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.public_suffixes import (
    PublicSuffixes,
    SuffixesJson,
    SuffixesRefused,
    SuffixTable,
    find_site,
    installed_suffixes,
)

SITE_BITS = 16
"""The number of bits of a page id that are a hash of the site."""
KEY_BYTES = 16
FEWEST_SECRET_BYTES = 16

PUBLIC = "public"
"""The word for the public key, where users name a key or read which one there is."""

_VERSION = 1
"""The version of the rules: page ids of another version are other ids."""
_PUBLIC_KEY = b"opicflow replays"
_MEMO_BITS = 15
_MEMO_LINES = 1 << _MEMO_BITS
"""A line of a memo is one of the processor's cache: 55 bytes of a host and its length, and the hash of its site."""
_LENGTH_WORD, _LENGTH_BIT, _SITE_WORD = 6, 56, 7
_LONGEST_REMEMBERED = 55


class PageIdsRefused(UserError, ValueError):
    """Stored rules for page ids cannot be used. The message is one line."""


class PageIdsJson(TypedDict):
    """Rules for page ids as JSON values. They hold the key."""

    version: int
    key: str
    suffixes: SuffixesJson


@ColumnTuple.register
class IdRules(NamedTuple):
    """Rules for page ids, for kernels."""

    key: Words
    suffixes: SuffixTable


@ColumnTuple.register
class HostMemo(NamedTuple):
    """Hosts whose site was found, and the hash of the site. It saves time and changes nothing.

    Threads must not share one: a line is written word by word.
    """

    lines: Words
    """The words of all lines; a line of zeros has no host."""

    @classmethod
    def empty(cls) -> HostMemo:
        """Make a memo without hosts."""
        return cls(words_in_lines(_MEMO_LINES * LINE_WORDS))


@dataclass(frozen=True)
class PageIds:
    """The rules by which pages get their ids.

    The default has a public key: the same URL has the same id on every machine. Streams, and the folders of replays and
    frontiers, have a secret one.

    >>> ids = PageIds()
    >>> a, b = ids.of("https://example.org/"), ids.of("https://www.example.org/about")
    >>> a >> 48 == b >> 48, a == b
    (True, False)
    """

    key: bytes = field(default=_PUBLIC_KEY, repr=False)
    suffixes: PublicSuffixes | None = field(default=None, repr=False)
    """The list by which sites are found; None = the installed one."""

    def __post_init__(self) -> None:
        """Refuse impossible rules."""
        if type(self.key) is not bytes or len(self.key) != KEY_BYTES:
            raise PageIdsRefused(f"the key of page ids must have {KEY_BYTES} bytes")
        if self.suffixes is not None and self.suffixes == installed_suffixes():
            object.__setattr__(self, "suffixes", None)

    @classmethod
    def with_secret(cls, secret: bytes) -> PageIds:
        """Return rules whose key is made from a secret of any length."""
        return cls(key=hashlib.blake2b(secret, digest_size=KEY_BYTES).digest())

    @property
    def is_public(self) -> bool:
        """Whether the key is public."""
        return self.key == _PUBLIC_KEY

    @property
    def fingerprint(self) -> str:
        """A text by which two keys differ, and from which none can be found: "public", or 16 digits."""
        if self.is_public:
            return PUBLIC
        return hashlib.blake2b(self.key, digest_size=8, person=b"fingerprint").hexdigest()

    @property
    def multiplier(self) -> int:
        """A number, odd and of 64 bits, made from the key: who does not know the key cannot guess it."""
        return int.from_bytes(hashlib.blake2b(self.key, digest_size=8, person=b"multiplier").digest(), "little") | 1

    def of(self, url: bytes | str) -> int:
        """Return the page id of a canonical URL."""
        return int(self.of_all([url])[0])

    def of_all(self, urls: Iterable[bytes | str]) -> Ids:
        """Return the page ids of canonical URLs, in their order."""
        encoded = [url.encode() if isinstance(url, str) else url for url in urls]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return self.of_text(np.frombuffer(b"".join(encoded), np.uint8), ends)

    def of_text(self, text: Bytes, starts: Ints) -> Ids:
        """Return the page ids of the canonical URLs `text[starts[i]:starts[i + 1]]`."""
        ids, sites = np.empty(len(starts) - 1, np.uint64), np.empty(len(starts) - 1, np.uint64)
        text, starts = np.require(text, np.uint8, ["C", "A", "W"]), np.require(starts, np.int64, ["C", "A", "W"])
        rows = np.arange(len(ids))
        hash_pages(self.rules, HostMemo.empty(), text, starts[:-1].copy(), starts[1:].copy(), rows, ids, sites)
        return ids

    def sites_of(self, pages: Ids) -> Array:
        """Return a hash of the site of each page id, of 16 bits."""
        return (pages >> np.uint64(64 - SITE_BITS)).astype(np.uint16)

    def site_range(self, pages: Ids) -> tuple[Ids, Ids]:
        """Return the first and the last page id that begin with the same hash of a site as each given id."""
        rest = np.uint64((1 << (64 - SITE_BITS)) - 1)
        return pages & ~rest, pages | rest

    def host_hashes(self, hosts: Iterable[bytes]) -> Hashes:
        """Return a hash of each host, made with the key."""
        texts = [np.frombuffer(host, np.uint8).copy() for host in hosts]
        hashes = [int(keyed_hash(self.rules.key, text, 0, len(text))) for text in texts]
        return np.array(hashes, np.uint64)

    @property
    def rules(self) -> IdRules:
        """The rules for kernels."""
        return _rules_of(self)

    def to_json(self) -> PageIdsJson:
        """Return the rules as JSON values, for the state of a replay or the log of a ledger. They hold the key."""
        return {
            "version": _VERSION,
            "key": self.key.hex(),
            "suffixes": (self.suffixes or installed_suffixes()).to_json(),
        }

    @classmethod
    def from_json(cls, values: PageIdsJson) -> PageIds:
        """Read what `to_json` returned. Raises `PageIdsRefused`."""
        try:
            if values["version"] != _VERSION:
                raise PageIdsRefused(
                    f"page ids have version {str(values['version'])[:20]}, this opicflow supports {_VERSION}: update "
                    "opicflow"
                )
            return cls(bytes.fromhex(values["key"]), PublicSuffixes.from_json(values["suffixes"]))
        except SuffixesRefused as problem:
            raise PageIdsRefused(str(problem)) from None
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            if isinstance(problem, PageIdsRefused):
                raise
            raise PageIdsRefused(f"the rules of page ids are damaged ({type(problem).__name__})") from None


@lru_cache(maxsize=16)
def _rules_of(page_ids: PageIds) -> IdRules:
    key: Words = np.frombuffer(page_ids.key, np.uint64).copy()
    suffixes = page_ids.suffixes or installed_suffixes()
    return IdRules(key, suffixes.table(key))


def page_id(url: bytes | str) -> int:
    """Return the page id of a canonical URL by the default rules, whose key is public."""
    return PageIds().of(url)


def page_ids(urls: Iterable[bytes | str]) -> Ids:
    """Return the page ids of canonical URLs by the default rules, in their order."""
    return PageIds().of_all(urls)


# -- kernels -----------------------------------------------------------------------------------------------------------


@lean_kernel
def hash_pages(
    rules: IdRules, memo: HostMemo, text: Bytes, begins: Ints, ends: Ints, rows: Ints, ids: Ids, sites: Hashes
) -> None:
    """Write the page id, and a hash of the site, of the canonical URL `text[begins[row]:ends[row]]` for these rows."""
    for at in range(rows.shape[0]):
        row = rows[at]
        host = begins[row]
        while host < ends[row] and byte_at(text, host) != 47:  # behind ://
            host += 1
        host = min(host + 2, ends[row])
        end = host
        while end < ends[row] and byte_at(text, end) != 47:
            end += 1
        sites[row] = site_hash(rules, memo, text, begins[row], host, end)
        ids[row] = id_of(rules, text, begins[row], ends[row], sites[row])


@inlined_kernel
def id_of(rules: IdRules, text: Bytes, begin: Int, end: Int, site: Word) -> Word:
    """Return the page id of the canonical URL `text[begin:end]` on a site with this hash."""
    return (site >> np.uint64(48) << np.uint64(48)) | (keyed_hash(rules.key, text, begin, end) >> np.uint64(16))


@inlined_kernel
def site_hash(rules: IdRules, memo: HostMemo, text: Bytes, begin: Int, host: Int, end: Int) -> Word:
    """Return a hash of the site of the host `text[host:end]`, in a URL that begins at `begin`."""
    if end - begin < 8 or host >= end:
        return np.uint64(0)
    line = memo_line(text, host, end)
    if is_remembered(memo, line, text, host, end):
        return remembered_site(memo, line)
    return find_site_hash(rules, memo, line, text, host, end)


@inlined_kernel
def find_site_hash(rules: IdRules, memo: HostMemo, line: Int, text: Bytes, host: Int, end: Int) -> Word:
    """Return a hash of the site of a host that is not remembered, and remember it in this line of the memo."""
    site_begin, site_end = find_site(rules.suffixes, rules.key, text, host, end)
    site = keyed_hash(rules.key, text, site_begin, site_end)
    _remember(memo, line, text, host, end, site)
    return site


@inlined_kernel
def memo_line(text: Bytes, host: Int, end: Int) -> Int:
    """Return where a memo has the line of the host `text[host:end]`. The text has eight bytes and more before `end`."""
    mixed = (word_at(text, end - 8) ^ np.uint64(end - host)) * np.uint64(0x9E3779B97F4A7C15)
    while host + 8 < end:
        mixed = (turned(mixed, 29) ^ word_at(text, host)) * np.uint64(0xC2B2AE3D27D4EB4F)
        host += 8
    return np.int64(mixed >> np.uint64(64 - _MEMO_BITS)) * LINE_WORDS


@inlined_kernel
def is_remembered(memo: HostMemo, line: Int, text: Bytes, host: Int, end: Int) -> bool:
    """Whether this line of a memo has the host `text[host:end]`."""
    if host >= end or memo.lines[line + _LENGTH_WORD] >> np.uint64(_LENGTH_BIT) != np.uint64(end - host):
        return False
    at, word = host, line
    while at + 8 <= end:
        if memo.lines[word] != word_at(text, at):
            return False
        at += 8
        word += 1
    return bool(_remembered_end(memo, line, word) == last_bytes(text, host, at, end))


@inlined_kernel
def _remembered_end(memo: HostMemo, line: Int, word: Int) -> Word:
    """Return a word of a memo without the length that the last one has."""
    bits = np.uint64(memo.lines[word])
    return bits & np.uint64((1 << _LENGTH_BIT) - 1) if word == line + _LENGTH_WORD else bits


@inlined_kernel
def remembered_site(memo: HostMemo, line: Int) -> Word:
    """Return the hash of the site of the host in this line of a memo."""
    return np.uint64(memo.lines[line + _SITE_WORD])


@inlined_kernel
def _remember(memo: HostMemo, line: Int, text: Bytes, host: Int, end: Int, site: Word) -> None:
    """Write the host `text[host:end]` into this line, unless it is too long."""
    if end - host > _LONGEST_REMEMBERED:
        return
    at = host
    for word in range(line, line + _SITE_WORD):
        whole = at + 8 <= end
        memo.lines[word] = word_at(text, at) if whole else last_bytes(text, host, at, end)
        at = at + 8 if whole else end
    memo.lines[line + _LENGTH_WORD] |= np.uint64(end - host) << np.uint64(_LENGTH_BIT)
    memo.lines[line + _SITE_WORD] = site
