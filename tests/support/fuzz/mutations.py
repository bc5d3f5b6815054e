"""Changes of bytes that somebody makes who wants a reader to fail."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from opicflow.schemas.varint import encode_signed

NUMBERS = [0, 1, -1, -2, 2, 63, 64, 127, 128, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63)]
TOKENS = [
    b"\0",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\xf4\x90\x80\x80",
    b'"',
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\t",
    b"1e999",
    b"-0",
    b"9" * 30,
    b"nan",
    b"null",
    b"%00",
    b"%",
    b"//",
    b"/../",
    b"@",
    b"#",
    b"?",
    b"xn--",
    b"\xe2\x80\xae",
    b"\x1b[31m",
    b"Content-Length: -1\r\n",
    b"WARC/1.0\r\n",
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"Obj\x01",
]


def spoilt(data: bytes, draw: random.Random, others: Sequence[bytes] = TOKENS) -> bytes:
    """Return a copy with one to four changes: bytes, parts, numbers of a fixed or a variable length."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        draw.choice(_CHANGES)(changed, draw, others)
    return bytes(changed)


def _place(data: bytearray, draw: random.Random) -> int:
    return draw.randrange(len(data) + 1)


def _flip(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _set(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[draw.randrange(len(data))] = draw.choice([0, 1, 2, 0x7F, 0x80, 0xFF, 0x22, 0x5C, draw.randrange(256)])


def _remove(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    at = _place(data, draw)
    del data[at : at + draw.choice([1, 2, 4, 16, 100])]


def _repeat(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    at = _place(data, draw)
    part = data[at : at + draw.choice([1, 4, 16, 64])]
    data[at:at] = part * draw.choice([1, 1, 2, 50])


def _insert(data: bytearray, draw: random.Random, others: Sequence[bytes]) -> None:
    at = _place(data, draw)
    data[at:at] = draw.choice(draw.choice([TOKENS, others]))


def _cut(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    del data[_place(data, draw) :]


def _move(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    begin = _place(data, draw)
    part = data[begin : begin + draw.choice([2, 8, 32])]
    del data[begin : begin + len(part)]
    at = _place(data, draw)
    data[at:at] = part


def _fixed_number(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    size = draw.choice([1, 2, 4, 8])
    if len(data) >= size:
        at = draw.randrange(len(data) - size + 1)
        number = draw.choice(NUMBERS) % (1 << 8 * size)
        data[at : at + size] = number.to_bytes(size, draw.choice(["little", "big"]))


def _variable_number(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> None:
    at = _place(data, draw)
    end = at
    while end < len(data) and data[end] & 0x80 and end < at + 9:
        end += 1
    data[at : end + 1] = draw.choice([encode_signed(draw.choice(NUMBERS)), b"\xff" * 10, b"\x80" * 9 + b"\x01"])


_CHANGES: list[Callable[[bytearray, random.Random, Sequence[bytes]], None]] = [
    _flip,
    _set,
    _remove,
    _repeat,
    _insert,
    _cut,
    _move,
    _fixed_number,
    _variable_number,
]

_BLANKS = ["", "", "", "", " ", "\t", "\r", "  "]


def json_text(value: Any, draw: random.Random) -> str:
    """Write a value as JSON as other programs do: blanks, escapes, keys that are repeated, numbers in other forms."""
    return draw.choice(_BLANKS) + _json_value(value, draw) + draw.choice(_BLANKS)


def _json_value(value: Any, draw: random.Random) -> str:
    if isinstance(value, dict):
        pairs = [
            f"{_json_string(str(key), draw)}{draw.choice(_BLANKS)}:{json_text(one, draw)}" for key, one in value.items()
        ]
        if pairs and draw.random() < 0.05:
            pairs.insert(_place(bytearray(len(pairs)), draw), draw.choice(pairs))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(json_text(one, draw) for one in value) + "]"
    if isinstance(value, str):
        return _json_string(value, draw)
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.1:
        return draw.choice([f"{value}.0", f"{value}e0", f"{value}E+1", f'"{value}"', f"0{value}", f"{value}.5"])
    return json.dumps(value)


def _json_string(text: str, draw: random.Random) -> str:
    if draw.random() < 0.85:
        return json.dumps(text, ensure_ascii=draw.random() < 0.5)
    return '"' + "".join(_json_character(character, draw) for character in text) + '"'


def _json_character(character: str, draw: random.Random) -> str:
    how = draw.random()
    if how < 0.1 and ord(character) < 0x10000:
        return f"\\u{ord(character):04{draw.choice('xX')}}"
    if how < 0.11:
        return draw.choice(["\\ud83d\\ude00", "\\ud800", "\\udfff", "\\/", "\\x", "\\u12", "\x01", "\U0001f600", "\\b"])
    return json.dumps(character)[1:-1]
