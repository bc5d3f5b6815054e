"""Sites: which part of a host is its registrable domain, by the list of public suffixes (publicsuffix.org).

A public suffix is a name below which anyone can register names, such as `com`, `co.uk` or `github.io`. A site is such
a name with one label more: `shop.example.co.uk` belongs to the site `example.co.uk`. An IP address, a host that is a
public suffix itself and a host of one label are sites of their own. A port, and a dot at the end of a host, do not
make another site.
"""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, TypedDict

import ada_url
import numpy as np

from opicflow.schemas.arrays import Bytes, ColumnTuple, Int, Ints, Word, Words
from opicflow.schemas.errors import UserError
from opicflow.schemas.hashing import byte_at, keyed_hash
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

_MOST_BYTES = 1 << 22
_VERSION = re.compile(rb"^// *VERSION: *(\S+)", re.MULTILINE)
_NORMAL, _WILDCARD, _EXCEPTION = 1, 2, 4


class SuffixesRefused(UserError, ValueError):
    """A list of public suffixes cannot be read. The message is one line."""


class SuffixesJson(TypedDict):
    """A list of public suffixes as JSON values."""

    version: str
    rules: str


@ColumnTuple.register
class SuffixTable(NamedTuple):
    """A list of public suffixes for kernels: a hash table of its rules."""

    hashes: Words
    kinds: Bytes
    """The kind of the rule at each position, 0 = none: it is a suffix, all names below it are, it is none."""
    most_labels: Ints


@dataclass(frozen=True)
class PublicSuffixes:
    """A list of public suffixes: its version, and its rules, one a line, in the form that canonical URLs have."""

    version: str
    rules: bytes

    @classmethod
    def parse(cls, text: bytes) -> PublicSuffixes:
        """Read the list as it is published."""
        found = _VERSION.search(text)
        lines = (line.split()[0].decode("utf-8") for line in text.splitlines() if line.strip()[:2] not in (b"", b"//"))
        rules = sorted({_canonical(line) for line in lines} - {""})
        return cls(found[1].decode("ascii", "replace") if found else "unknown", "\n".join(rules).encode("ascii"))

    def to_json(self) -> SuffixesJson:
        """Return the list as JSON values, the rules compressed."""
        packed = base64.b85encode(zlib.compress(self.rules, 9)).decode("ascii")
        return {"version": self.version, "rules": packed}

    @classmethod
    def from_json(cls, values: SuffixesJson) -> PublicSuffixes:
        """Read what `to_json` returned. Raises `SuffixesRefused`."""
        try:
            unpacker = zlib.decompressobj()
            rules = unpacker.decompress(base64.b85decode(values["rules"]), _MOST_BYTES)
            version = values["version"]
            if not unpacker.eof or not rules.isascii() or type(version) is not str or not version.isprintable():
                raise SuffixesRefused("the list of public suffixes is damaged or too long")
        except (KeyError, TypeError, ValueError, zlib.error) as problem:
            raise SuffixesRefused(f"no list of public suffixes: {type(problem).__name__}") from None
        return cls(version, rules)

    def table(self, key: Words) -> SuffixTable:
        """Return the list for kernels that hash with this key."""
        kinds: dict[bytes, int] = {}
        for rule in self.rules.splitlines():
            name, kind = rule, _NORMAL
            if rule.startswith(b"*."):
                name, kind = rule[2:], _WILDCARD
            elif rule.startswith(b"!"):
                name, kind = rule[1:], _EXCEPTION
            kinds[name] = kinds.get(name, 0) | kind
        ends = np.cumsum([0, *map(len, kinds)], dtype=np.int64)
        text = np.frombuffer(b"".join(kinds) + bytes(8), np.uint8).copy()
        capacity = 1 << max((2 * len(kinds)).bit_length(), 1)
        table = SuffixTable(
            np.zeros(capacity, np.uint64),
            np.zeros(capacity, np.uint8),
            np.array([1 + max((name.count(b".") + 1 for name in kinds), default=0)]),
        )
        fill_table(key, text, ends, np.array([*kinds.values()], np.uint8), table)
        return table

    @cached_property
    def _plain_table(self) -> SuffixTable:
        return self.table(_PLAIN_KEY)

    def site(self, host: bytes) -> bytes:
        """Return the site of a canonical host, with or without a port.

        >>> installed_suffixes().site(b"shop.example.co.uk:8080")
        b'example.co.uk'
        """
        begin, end = find_site(self._plain_table, _PLAIN_KEY, np.frombuffer(host, np.uint8).copy(), 0, len(host))
        return host[begin:end]


_PLAIN_KEY = np.zeros(2, np.uint64)


@cache
def installed_suffixes() -> PublicSuffixes:
    """Return the list that is installed with the package publicsuffixlist."""
    from publicsuffixlist import PSLFILE

    with open(PSLFILE, "rb") as file:
        return PublicSuffixes.parse(file.read())


def _canonical(rule: str) -> str:
    """Return a rule as canonical hosts are: lower case, other scripts in Punycode. Empty if no host can have it."""
    mark = "*." if rule.startswith("*.") else "!" if rule.startswith("!") else ""
    name = rule.removeprefix(mark)
    if not name.isascii():
        name = ada_url.idna_to_ascii(name).decode("ascii")
    return mark + name.lower() if name else ""


@lean_kernel
def fill_table(key: Words, text: Bytes, ends: Ints, kinds: Bytes, table: SuffixTable) -> None:
    """Write rules into an empty table, the bytes of rule i are `text[ends[i]:ends[i + 1]]`."""
    for i in range(kinds.shape[0]):
        hashed = keyed_hash(key, text, ends[i], ends[i + 1])
        at = _position(table, hashed)
        table.kinds[at], table.hashes[at] = kinds[i], hashed


@inlined_kernel
def _position(table: SuffixTable, hashed: Word) -> Int:
    """Return the position of a rule, or the empty one where it would be."""
    last = table.hashes.shape[0] - 1
    at = np.int64(hashed) & last
    while table.kinds[at] != 0 and table.hashes[at] != hashed:
        at = (at + 1) & last
    return np.int64(at)


@lean_kernel
def find_site(table: SuffixTable, key: Words, text: Bytes, host: Int, end: Int) -> tuple[Int, Int]:
    """Return where the site of the host `text[host:end]` begins and ends. A port may follow the host."""
    if byte_at(text, host) == 91:  # [: an IPv6 address
        at = host
        while at < end and byte_at(text, at) != 93:  # ]
            at += 1
        return host, min(at + 1, end)
    at = host
    while at < end and byte_at(text, at) != 58:  # :
        at += 1
    end = at
    if end > host + 1 and byte_at(text, end - 1) == 46:  # .
        end -= 1
    for at in range(host, end):
        if byte_at(text, at) == 46 and (at == host or byte_at(text, at - 1) == 46):  # a label without a letter
            return host, end
    label = _label_before(text, host, end)
    if _is_number(text, label, end):  # an IPv4 address
        return host, end
    suffix_labels, labels = 1, 1  # a name that is not in the list is a suffix
    while True:
        kinds = table.kinds[_position(table, keyed_hash(key, text, label, end))]
        if kinds & _EXCEPTION:
            suffix_labels = labels - 1
            break
        if kinds & _NORMAL:
            suffix_labels = labels
        if kinds & _WILDCARD:
            suffix_labels = labels + 1
        if label == host or labels == table.most_labels[0]:
            break
        label = _label_before(text, host, label - 1)
        labels += 1
    label = _label_before(text, host, end)
    for _ in range(suffix_labels):
        if label > host:
            label = _label_before(text, host, label - 1)
    return label, end


@lean_kernel
def is_address(text: Bytes, host: Int, end: Int) -> bool:
    """Return whether the host `text[host:end]` is an IP address: IPv6 in brackets, or a last label of digits.

    A port may follow the host.
    """
    if byte_at(text, host) == 91:  # [
        return True
    at = host
    while at < end and byte_at(text, at) != 58:  # :
        at += 1
    return _is_number(text, _label_before(text, host, at), at)


@inlined_kernel
def _label_before(text: Bytes, host: Int, end: Int) -> Int:
    """Return where the label that ends at `end` begins."""
    while end > host and byte_at(text, end - 1) != 46:
        end -= 1
    return end


@inlined_kernel
def _is_number(text: Bytes, begin: Int, end: Int) -> bool:
    for at in range(begin, end):
        if not 48 <= byte_at(text, at) <= 57:
            return False
    return bool(end > begin)
