"""XXH64 within kernels: the same numbers as the xxhash library gives, without making an object of every URL."""

from __future__ import annotations

from typing import Any

import numpy as np

from opicflow.schemas.kernel import inlined_kernel, lean_kernel

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_START_1 = np.uint64((0x9E3779B185EBCA87 + 0xC2B2AE3D27D4EB4F) % (1 << 64))
_START_4 = np.uint64((1 << 64) - 0x9E3779B185EBCA87)


@inlined_kernel
def _turned(value: Any, bits: Any) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined_kernel
def byte_at(text: Any, at: Any) -> Any:
    """Return one byte. An unsigned index cannot count from the end: that saves a comparison a byte."""
    return text[np.uint64(at)]


@inlined_kernel
def word_at(text: Any, at: Any) -> Any:
    """Return eight bytes, little endian. LLVM makes one load, because unsigned indices cannot count from the end."""
    i = np.uint64(at)
    return (
        np.uint64(text[i])
        | np.uint64(text[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(text[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(text[i + np.uint64(3)]) << np.uint64(24)
        | np.uint64(text[i + np.uint64(4)]) << np.uint64(32)
        | np.uint64(text[i + np.uint64(5)]) << np.uint64(40)
        | np.uint64(text[i + np.uint64(6)]) << np.uint64(48)
        | np.uint64(text[i + np.uint64(7)]) << np.uint64(56)
    )


@inlined_kernel
def _stirred(state: Any, word: Any) -> Any:
    return _turned(state + word * _P2, 31) * _P1


@inlined_kernel
def _merged(digest: Any, state: Any) -> Any:
    return (digest ^ _stirred(np.uint64(0), state)) * _P1 + _P4


@lean_kernel
def hash_bytes(text: Any, begin: Any, end: Any) -> Any:
    """XXH64, seed 0, of `text[begin:end]`, as uint64. The bounds are believed."""
    at = begin
    if end - begin >= 32:
        a, b, c, d = _START_1, _P2, np.uint64(0), _START_4
        while at + 32 <= end:
            a = _stirred(a, word_at(text, at))
            b = _stirred(b, word_at(text, at + 8))
            c = _stirred(c, word_at(text, at + 16))
            d = _stirred(d, word_at(text, at + 24))
            at += 32
        digest = _turned(a, 1) + _turned(b, 7) + _turned(c, 12) + _turned(d, 18)
        digest = _merged(_merged(_merged(_merged(digest, a), b), c), d)
    else:
        digest = _P5
    digest += np.uint64(end - begin)
    while at + 8 <= end:
        digest = _turned(digest ^ _stirred(np.uint64(0), word_at(text, at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        half = (
            np.uint64(byte_at(text, at))
            | np.uint64(byte_at(text, at + 1)) << np.uint64(8)
            | np.uint64(byte_at(text, at + 2)) << np.uint64(16)
            | np.uint64(byte_at(text, at + 3)) << np.uint64(24)
        )
        digest = _turned(digest ^ (half * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        digest = _turned(digest ^ (np.uint64(byte_at(text, at)) * _P5), 11) * _P1
        at += 1
    digest = (digest ^ (digest >> np.uint64(33))) * _P2
    digest = (digest ^ (digest >> np.uint64(29))) * _P3
    return digest ^ (digest >> np.uint64(32))
