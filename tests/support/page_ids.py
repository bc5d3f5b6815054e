"""Page ids in plain Python, from their definition: SipHash-1-3 of the site and of the URL."""

from __future__ import annotations

from functools import cache
from typing import Any

from opicflow.schemas.pages import PageIds

_MASK = (1 << 64) - 1


def siphash_1_3(key: bytes, text: bytes) -> int:
    """Return SipHash-1-3, as its authors define it."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        _round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        _round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def site_of(host: str) -> str:
    """Return the site of a canonical host, by the library that has the list of public suffixes.

    A host that ends with two dots has an empty last label, which no list has: its site is the label before.
    """
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    name = host.partition(":")[0].removesuffix(".") or "."
    labels = name.split(".")
    if len(labels) > 1 and not labels[-1] and all(labels[:-1]):
        return labels[-2] + "."
    if name.rpartition(".")[2].isdigit():
        return name
    return str(_library().privatesuffix(name) or name)


def reference_page_id(url: bytes, ids: PageIds | None = None) -> int:
    """Return the page id of a canonical URL."""
    ids = ids or PageIds()
    host = url.partition(b"://")[2].partition(b"/")[0].decode()
    site = siphash_1_3(ids.key, site_of(host).encode())
    return (site >> 48 << 48) | (siphash_1_3(ids.key, url) >> 16)


def _round(v: list[int]) -> None:
    v[0] = (v[0] + v[1]) & _MASK
    v[2] = (v[2] + v[3]) & _MASK
    v[1] = _turned(v[1], 13) ^ v[0]
    v[3] = _turned(v[3], 16) ^ v[2]
    v[0] = _turned(v[0], 32)
    v[2] = (v[2] + v[1]) & _MASK
    v[0] = (v[0] + v[3]) & _MASK
    v[1] = _turned(v[1], 17) ^ v[2]
    v[3] = _turned(v[3], 21) ^ v[0]
    v[2] = _turned(v[2], 32)


def _turned(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


@cache
def _library() -> Any:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=True)
