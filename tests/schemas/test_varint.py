"""Variable-length integers: Python, kernels and fastavro write the same bytes."""

from __future__ import annotations

import io

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.schemas.varint import (
    MOST_BYTES,
    decode_numbers,
    decode_signed,
    encode_numbers,
    encode_signed,
    put_signed,
    put_unsigned,
    read_signed,
    read_unsigned,
    signed_bytes,
)

numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 63).map(lambda bits: 2**bits - 1) | st.integers(-300, 300)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_the_bytes_of_a_number(number: int, encoded: str) -> None:
    assert encode_signed(number) == bytes.fromhex(encoded)


@given(number=numbers)
def test_kernels_and_fastavro_write_the_bytes_of_python(number: int) -> None:
    encoded = encode_signed(number)
    theirs = io.BytesIO()
    fastavro.schemaless_writer(theirs, "long", number)
    out = np.zeros(MOST_BYTES, np.uint8)
    end = put_signed(out, 0, np.int64(number))
    assert theirs.getvalue() == encoded == out[:end].tobytes()
    assert signed_bytes(np.int64(number)) == len(encoded) <= MOST_BYTES


@given(number=numbers, before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_a_number_is_read_as_it_was_written(number: int, before: bytes, after: bytes) -> None:
    data, begin = before + encode_signed(number) + after, len(before)
    end = len(data) - len(after)
    assert decode_signed(data, begin) == (number, end)
    assert read_signed(np.frombuffer(data, np.uint8), begin, len(data)) == (number, end)


@given(number=st.integers(0, 2**64 - 1))
def test_an_unsigned_number_is_read_as_it_was_written(number: int) -> None:
    out = np.zeros(MOST_BYTES, np.uint8)
    end = put_unsigned(out, 0, np.uint64(number))
    assert read_unsigned(out, 0, MOST_BYTES, MOST_BYTES) == (number, end)
    assert end == max(1, -(-number.bit_length() // 7))


@given(number=numbers, missing=st.integers(1, MOST_BYTES))
def test_a_number_that_is_cut_off_is_refused(number: int, missing: int) -> None:
    data = encode_signed(number)
    left = max(0, len(data) - missing)
    with pytest.raises(EOFError):
        decode_signed(data[:left], 0)
    assert read_signed(np.frombuffer(data, np.uint8), 0, left)[1] == left + 1  # bytes after the end are not read


def test_a_number_of_more_than_ten_bytes_is_refused() -> None:
    data = b"\x80" * MOST_BYTES + b"\x00"
    with pytest.raises(OverflowError):
        decode_signed(data, 0)
    assert read_signed(np.frombuffer(data, np.uint8), 0, len(data))[1] == len(data) + 1


def test_a_reader_of_short_numbers_refuses_longer_ones() -> None:
    data = np.frombuffer(b"\xff\xff\xff\xff\x0f" + b"\x80\x80\x80\x80\x80\x01", np.uint8)
    assert read_unsigned(data, 0, 11, 5) == (2**32 - 1, 5)
    assert read_unsigned(data, 5, 11, 5) == (0, 12)


@given(
    numbers=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 300), max_size=80),
    before=st.binary(max_size=3),
    after=st.binary(max_size=3),
)
def test_numbers_are_read_back(numbers: list[int], before: bytes, after: bytes) -> None:
    stored = encode_numbers(numbers)
    assert decode_numbers(before + stored + after, len(before)) == (numbers, len(before) + len(stored))


@given(data=st.binary(max_size=40))
def test_a_list_of_numbers_has_one_form(data: bytes) -> None:
    try:
        numbers, end = decode_numbers(data, 0)
    except (EOFError, LookupError, OverflowError, ValueError):
        return
    assert encode_numbers(numbers) == data[:end]


@pytest.mark.parametrize("numbers", [[1, -1], [1, 1 << 64], [0] * 256])
def test_too_large_or_too_many_numbers_are_refused(numbers: list[int]) -> None:
    with pytest.raises(OverflowError):
        encode_numbers(numbers)
