"""Tables of CSV in blocks of whole rows: what Python's csv reads, and no other row."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from io import StringIO

import pyarrow as pa
import pytest

from opicflow.connectors.files.csv_tables import read_columns, whole_rows
from opicflow.connectors.files.opening import InputRefused
from support.hostile_values import one_line
from support.thorough import thorough

TYPES = {"a": pa.string(), "b": pa.string()}


def read(text: str, divider: str, piece_bytes: int) -> list[list[str]]:
    """Return the rows of a text that comes in pieces."""
    data = text.encode()
    pieces = (data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes))
    rows: list[list[str]] = []
    for block in whole_rows("f", pieces, divider):
        table = read_columns("f", block, list(TYPES), TYPES, lambda cells: "")
        rows += map(list, zip(*(table[name].to_pylist() for name in TYPES), strict=True))
        starts = [block.line_of(row) for row in range(min(table.num_rows, 3))]
        assert starts == sorted(starts)
    return rows


def texts(chance: random.Random) -> Iterator[tuple[str, str, list[list[str]] | None]]:
    """Yield texts of two columns, mostly as RFC 4180 has them, the divider, and what Python's csv reads, if it does."""
    while True:
        divider = chance.choice(",\t")
        ending = chance.choice(["\n", "\r\n"])
        rows = []
        for _ in range(chance.randrange(1, 8)):
            values = ["".join(chance.choice('ab",\t\n\r é') for _ in range(chance.randrange(6))) for _ in range(2)]
            quoted = ('"{}"'.format(value.replace('"', '""')) for value in values)
            needs = (any(one in value for one in '",\t\n\r') or chance.random() < 0.3 for value in values)
            rows.append(divider.join(q if n else v for q, n, v in zip(quoted, needs, values, strict=True)))
        text = ending.join(rows) + chance.choice([ending, ""])
        if chance.random() < 0.3:  # wrong quotes, or other columns
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice(['"', '""', "x", divider, "\n", ""]) + text[at + chance.randrange(2) :]
        try:
            expected = [row for row in csv.reader(StringIO(text, newline=""), delimiter=divider, strict=True) if row]
        except csv.Error:
            expected = None
        yield text, divider, None if expected is None or {len(row) for row in expected} - {2} else expected


@pytest.mark.slow
@pytest.mark.thorough
def test_rows_are_those_of_pythons_csv_or_the_file_is_refused(seed: int) -> None:
    """`make soak` reads more than a million rows."""
    chance = random.Random(seed)
    rows = refused = 0
    for text, divider, expected in texts(chance):
        size = chance.choice([1, 3, 10, 1000])
        if expected is None:
            refused += 1
            with pytest.raises(InputRefused, match=r"^f, (from )?line "):
                read(text, divider, size)
        else:
            assert read(text, divider, size) == expected, (text, divider, size)
            rows += len(expected)
        if rows > thorough(4_000, 1_000_000):
            break
    assert refused > 100


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('a,b\n"c\nd,e\n', "f, line 2: unexpected end of data"),
        ('a,b\n"c"d,e\n', "f, line 2: ',' expected after '\"'"),
        ("a,b\n\nc\n", "f, line 3: 1 columns, not 2: divide them by ','"),
        ('a,"b\nb"\nc,d,e\n', "f, line 3: 3 columns, not 2"),
        ('a\tb\n"c"d\te\n', "f, line 2: '\\x09' expected after '\"'"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(text: str, reason: str) -> None:
    for size in (1, 4, 100):
        with pytest.raises(InputRefused) as refused:
            read(text, "\t" if "\t" in text else ",", size)
        assert reason in str(refused.value)
        one_line(refused.value)


def test_unusual_quotes_are_those_of_pythons_csv() -> None:
    text = 'a"b,"c ""d"""\n"",e""\n' * 100
    expected = [['a"b', 'c "d"'], ["", 'e""']] * 100
    assert read(text, ",", 30) == read(text, ",", 10_000) == expected
