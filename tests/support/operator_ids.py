"""The ids by which Flink finds the state of the stages of a Beam job, in checkpoints and savepoints.

Beam names an operator after the collection that it reads and the kind of environment of its workers; its id is the
MurmurHash3 of the name. So the state of a job whose workers were processes has other ids than that of the same job in
containers.
"""

from __future__ import annotations

ENVIRONMENTS = {
    "PROCESS": "beam:env:process:v1",
    "DOCKER": "beam:env:docker:v1",
    "EXTERNAL": "beam:env:external:v1",
    "LOOPBACK": "beam:env:external:v1",
}
"""The kinds of environments that Beam's Flink runner has, as in `--environment_type`, and their names in operators."""

_MASK = (1 << 64) - 1
_FACTOR_1, _FACTOR_2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def operator_id(name: str) -> bytes:
    """Return the 16 bytes of Flink's id for an operator with this name.

    >>> operator_id("a").hex()
    '897859f6655555855a890e51483ab5e6'
    """
    data = name.encode()
    first = second = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        first ^= _scramble(int.from_bytes(data[at : at + 8], "little"), _FACTOR_1, 31, _FACTOR_2)
        first = (_rotate(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _scramble(int.from_bytes(data[at + 8 : at + 16], "little"), _FACTOR_2, 33, _FACTOR_1)
        second = (_rotate(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    rest = data[whole:].ljust(16, b"\0")
    second ^= _scramble(int.from_bytes(rest[8:], "little"), _FACTOR_2, 33, _FACTOR_1)
    first ^= _scramble(int.from_bytes(rest[:8], "little"), _FACTOR_1, 31, _FACTOR_2)
    first, second = first ^ len(data), second ^ len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    first, second = _finish(first), _finish(second)
    first = first + second & _MASK
    second = second + first & _MASK
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _scramble(value: int, factor: int, bits: int, next_factor: int) -> int:
    return _rotate(value * factor & _MASK, bits) * next_factor & _MASK


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
