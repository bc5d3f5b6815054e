"""Numbers the sites of URLs: their hosts, or the registrable domains of their hosts.

A host is what a URL has between `://` and its path, with a port if there is one. The domain of a host is found by the
list of public suffixes (public_suffixes.py): an IP address is a domain of its own, and a port makes no other domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from opicflow.schemas.arrays import Array, Bools, Bytes, ColumnTuple, Hashes, Ids, Int, Ints, Words
from opicflow.schemas.columns import Texts
from opicflow.schemas.hashing import byte_at, copy_bytes, keyed_hash
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.public_suffixes import SuffixTable, find_site, installed_suffixes, is_address

SiteKind = Literal["host", "domain"]
SITE_KINDS: tuple[SiteKind, ...] = get_args(SiteKind)

SiteNumbers = npt.NDArray[np.int32]
"""The number of a site for each row; -1 where a row has none."""

MOST_SITES = 2**31 - 1
_URLS_AT_ONCE = 1 << 16
_KEY = np.zeros(2, np.uint64)


@ColumnTuple.register
class _Known(NamedTuple):
    """The sites that have a number, for kernels: a hash table, and the names one after the other."""

    slots: SiteNumbers
    """The number of the site at each position of the hash table; -1 = empty."""
    hashes: Hashes
    text: Bytes
    ends: Ints
    addresses: Bytes
    """1 for a site that is an IP address."""
    counts: Ints
    """The number of sites."""


class SiteNumbering:
    """Gives every site a number from 0, in the order in which sites occur first.

    >>> numbering = SiteNumbering("domain")
    >>> numbering.number_all(["https://www.example.co.uk/a", "https://example.co.uk:81/", "http://10.0.0.1/"]).tolist()
    [0, 0, 1]
    >>> numbering.names()
    ['example.co.uk', '10.0.0.1']
    """

    def __init__(self, by: SiteKind) -> None:
        """Start without sites. `by`: hosts, or registrable domains."""
        self.by = by
        self._suffixes: SuffixTable = installed_suffixes().table(_KEY)
        self._known = _Known(
            np.full(1 << 10, -1, np.int32),
            np.zeros(1 << 10, np.uint64),
            np.empty(1 << 12, np.uint8),
            np.zeros(1 << 8, np.int64),
            np.zeros(1 << 8, np.uint8),
            np.zeros(1, np.int64),
        )

    @property
    def sites(self) -> int:
        """The number of sites so far."""
        return int(self._known.counts[0])

    @property
    def is_address(self) -> Bools:
        """Whether each site is an IP address."""
        flags: Bools = self._known.addresses[: self.sites] != 0
        return flags

    @property
    def hashes(self) -> Ids:
        """A hash of the name of each site."""
        slots = self._known.slots
        used = np.flatnonzero(slots >= 0)
        found = np.zeros(self.sites, np.uint64)
        found[slots[used]] = self._known.hashes[used]
        return found

    def number(self, text: Bytes, starts: Ints) -> SiteNumbers:
        """Return the site of each text `text[starts[i]:starts[i + 1]]`, a URL or a host; -1 for one without a host."""
        found = np.empty(len(starts) - 1, np.int32)
        for first in range(0, len(found), _URLS_AT_ONCE):
            end = min(first + _URLS_AT_ONCE, len(found))
            begin = int(starts[first])
            some = np.array(text[begin : int(starts[end])])  # a copy: kernels take arrays in memory that are writable
            own_starts = np.asarray(starts[first : end + 1], np.int64) - begin
            self._make_room(end - first, len(some))
            _number(self._suffixes, _KEY, self.by == "domain", some, own_starts, self._known, found[first:end])
        return found

    def number_all(self, texts: Iterable[str]) -> SiteNumbers:
        """Return the site of each URL or host."""
        encoded = [text.encode() for text in texts]
        starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return self.number(np.frombuffer(b"".join(encoded), np.uint8), starts)

    @property
    def texts(self) -> Texts:
        """The names of all sites in the order of their numbers, as bytes."""
        return Texts.joined(self._known.text, np.diff(self._known.ends[: self.sites], prepend=0))

    def names(self, sites: Sequence[int] | Ints | None = None) -> list[str]:
        """Return the names of the given sites, or of all in the order of their numbers."""
        texts = self.texts if sites is None else self.texts.take(np.asarray(sites, np.int64))
        return [name.decode("utf-8", "replace") for name in texts]

    def _make_room(self, rows: int, size: int) -> None:
        """Grow the table such that so many new sites fit, with so many bytes of names."""
        known = self._known
        sites, used = self.sites, int(known.ends[self.sites - 1]) if self.sites else 0
        if sites + rows > MOST_SITES:
            raise ValueError(f"more than {MOST_SITES:,} sites")
        if sites + rows > len(known.ends):
            most = max(2 * len(known.ends), sites + rows)
            known = known._replace(ends=_grown(known.ends, most), addresses=_grown(known.addresses, most))
        if used + size > len(known.text):
            known = known._replace(text=_grown(known.text, max(2 * len(known.text), used + size)))
        if 2 * (sites + rows) > len(known.slots):
            capacity = 1 << (2 * (sites + rows)).bit_length()
            slots, hashes = np.full(capacity, -1, np.int32), np.zeros(capacity, np.uint64)
            _place_again(known.slots, known.hashes, slots, hashes)
            known = known._replace(slots=slots, hashes=hashes)
        self._known = known


def site_names(urls: Iterable[str], by: SiteKind) -> list[str]:
    """Return the names of all sites that the URLs belong to, each once."""
    numbering = SiteNumbering(by)
    numbering.number_all(urls)
    return numbering.names()


def _grown(column: Array, size: int) -> Array:
    found = np.zeros(size, column.dtype)
    found[: len(column)] = column
    return found


@lean_kernel
def _number(
    suffixes: SuffixTable, key: Words, by_domain: bool, text: Bytes, starts: Ints, known: _Known, found: SiteNumbers
) -> None:
    """Write the number of the site of each text; new sites are added, and there is room for them."""
    last = known.slots.shape[0] - 1
    for row in range(found.shape[0]):
        begin, end = _host_of(text, starts[row], starts[row + 1])
        if begin == end:
            found[row] = -1
            continue
        first = begin
        if by_domain:
            begin, end = find_site(suffixes, key, text, begin, end)
        hashed = keyed_hash(key, text, begin, end)
        at = np.int64(hashed) & last
        while known.slots[at] >= 0 and not (
            known.hashes[at] == hashed and _is_named(known, known.slots[at], text, begin, end)
        ):
            at = (at + 1) & last
        if known.slots[at] < 0:
            site = known.counts[0]
            to = known.ends[site - 1] if site > 0 else np.int64(0)
            copy_bytes(text, begin, known.text, to, end - begin)
            known.ends[site] = to + end - begin
            known.addresses[site] = is_address(text, first, end)
            known.slots[at], known.hashes[at] = site, hashed
            known.counts[0] = site + 1
        found[row] = known.slots[at]


@inlined_kernel
def _host_of(text: Bytes, begin: Int, end: Int) -> tuple[Int, Int]:
    """Return where the host of a URL begins and ends; a text without `://` is a host, perhaps with a path."""
    host = begin
    while host < end and byte_at(text, host) != 58 and byte_at(text, host) != 47:  # : or /
        host += 1
    if host + 2 < end and byte_at(text, host) == 58 and byte_at(text, host + 1) == 47 and byte_at(text, host + 2) == 47:
        host += 3
    else:
        host = begin
    at = host
    while at < end and byte_at(text, at) != 47 and byte_at(text, at) != 63 and byte_at(text, at) != 35:  # / ? #
        at += 1
    return host, at


@inlined_kernel
def _is_named(known: _Known, site: Int, text: Bytes, begin: Int, end: Int) -> bool:
    """Return whether the name of a site is `text[begin:end]`."""
    at = known.ends[site - 1] if site > 0 else np.int64(0)
    if known.ends[site] - at != end - begin:
        return False
    same = True
    for i in range(begin, end):
        same &= known.text[at + i - begin] == byte_at(text, i)
    return same


@lean_kernel
def _place_again(old_slots: SiteNumbers, old_hashes: Hashes, slots: SiteNumbers, hashes: Hashes) -> None:
    """Move all entries of a hash table to a larger one."""
    last = slots.shape[0] - 1
    for old in range(old_slots.shape[0]):
        if old_slots[old] >= 0:
            at = np.int64(old_hashes[old]) & last
            while slots[at] >= 0:
                at = (at + 1) & last
            slots[at], hashes[at] = old_slots[old], old_hashes[old]
