"""Edge lists: rows of CSV, or of tabs or blanks; commands agree about a first row that names columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opicflow.connectors.files import edges
from opicflow.connectors.files.edges import EdgeForm, edge_form
from opicflow.connectors.files.formats import Format, sniff
from opicflow.connectors.files.log_reader import FileRange, read
from opicflow.connectors.files.opening import Block, Damage
from opicflow.pipelines.lab.experiments.edge_lists import web_of_file
from opicflow.schemas.crawl_events import CrawlEvent, Link, Reason, Reject
from support.commands import command

A, B, C = "https://a.example/", "https://b.example/x?y=1,2", "https://c.example/"


def items_of(file: Path, start: int = 0) -> list[tuple[int, CrawlEvent | Reject]]:
    return [item for batch in read(FileRange("log", str(file), Format.EDGES, start)) for item in batch.items()]


@pytest.mark.parametrize(
    "data",
    [
        f'source,target\n{A},"{B}"\n{C},{A}\n',
        f'{A},"{B}"\n{C},{A}\n',
        f'"{A}", "{B}"\n"{C}", "{A}"',
        f'source,target\r\n"{A}","{B}"\r\n\r\n{C},{A}\r\n',
        f"\ufeff# links\nfrom\tto\n{A}\t{B}\n{C}\t{A}\n",
        f"{A} {B}\n {C}   {A} \n",
        f'page target\n"{A}" "{B}"\n{C} {A}\n',
    ],
)
def test_columns_are_those_of_csv_also_with_names_tabs_and_blanks(data: str, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text(data, newline="")
    assert sniff(data.encode(), "f") is Format.EDGES
    expected = [CrawlEvent(A, status=200, links=(Link(B),)), CrawlEvent(C, status=200, links=(Link(A),))]
    assert [item for _, item in items_of(file)] == expected
    (_, _), (at, second) = items_of(file)
    assert items_of(file, at) == [(at, second)]
    web = web_of_file(str(file))
    assert (web.names, web.graph.links) == ((A, B, C), 2)


def test_a_first_row_with_names_is_no_event_of_any_command(tmp_path: Path) -> None:
    file = tmp_path / "edges.csv"
    file.write_text(f'source,target\n{A},"{B}"\n{C},{A}\n')
    validated = json.loads(command("validate", file, "--json").out)
    replayed = json.loads(command("replay", file, "--json", "--quiet").out)
    for summary in (validated["summary"], replayed):
        assert (summary["events_read"], summary["visits"], summary["rejects"]) == (2, 2, 0)
    done = command("rank", file, "--json", "--quiet")
    assert "rejected" not in done.err
    assert {row["url"] for row in json.loads(done.out)["top"]["importance"]} == {A, B, C}


def test_a_line_break_within_quotes_ends_no_row(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text(f'{A},"https://b.example/\nx"\n{C},{A}\n')
    (_, first), (_, second) = items_of(file)
    assert isinstance(first, CrawlEvent) and first.links == (Link("https://b.example/\nx"),)
    assert isinstance(second, CrawlEvent) and second.url == C


@pytest.mark.parametrize(
    ("line", "reason", "words"),
    [
        (
            f"{A},https://b.example/,2,3",
            Reason.NOT_AN_EVENT,
            "4 columns, not a page, a target and a weight: put values",
        ),
        (f"{A},https://b.example/x,y", Reason.BAD_WEIGHT, "the weight 'y' is not a number"),
        (f"{A},", Reason.NOT_AN_EVENT, "an empty column"),
        (f"{A} {C}", Reason.NOT_AN_EVENT, "two URLs are in one column: divide them by ','"),
        (f'"{A}"x,{C}', Reason.NOT_AN_EVENT, "the quotes of the row are wrong"),
        (f"{A},https://b.example/\rx", Reason.NOT_AN_EVENT, "a carriage return"),
        (f"{A},https://b.example/\0", Reason.NOT_AN_EVENT, "a NUL character"),
    ],
)
def test_a_row_that_is_no_edge_is_a_reject_and_the_next_is_read(
    line: str, reason: Reason, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "f.csv"
    file.write_text(f"{A},{C}\n{line}\n{C},{A}\n", newline="")
    (_, first), (at, reject), (_, last) = items_of(file)
    assert isinstance(first, CrawlEvent) and isinstance(last, CrawlEvent) and last.url == C
    assert isinstance(reject, Reject) and (reject.reason, at) == (reason, len(A) + len(C) + 2)
    assert words in reject.detail and reject.bytes == f"{line}\n".encode()


@pytest.mark.parametrize(
    ("head", "form"),
    [
        ("a b\nc d\n", EdgeForm(" ", False, False)),
        ("a, b\nc, d\n", EdgeForm(",", False, False)),
        ("a\tb c\n", EdgeForm("\t", False, False)),
        ("Once upon a time\n", EdgeForm(" ", False, False)),
        ("source,target\na,b\n", EdgeForm(",", False, False)),
        ("source,target\nhttps://a/,b.example\n", EdgeForm(",", True, True)),
        ("https://a/,target\nhttps://a/,https://b/\n", EdgeForm(",", False, False)),
        ("https://a/x,y https://b/\n", EdgeForm(" ", False, True)),
        ("https://a/\nhttps://b/\n", EdgeForm(" ", False, False)),
        ("https://a/,https://b/x,y,z\nhttps://a/,https://b/\n", EdgeForm(",", False, True)),
        ("", EdgeForm(" ", False, False)),
    ],
)
def test_most_rows_decide_the_form(head: str, form: EdgeForm) -> None:
    assert edge_form(head.encode()) == form


def test_lines_that_are_damaged_or_too_long_have_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "MOST_EVENT_BYTES", 8)
    blocks = [
        Block(0, b"\xef\xbb\xbfone\n\ntw"),
        Damage(10, 0, "broken", 8),
        Block(11, b"o\neightlet\nnine let"),
        Block(30, b"ters\nend"),
    ]
    found = [(offset, line, problem and problem.reason) for offset, line, problem in edges.lines_of(blocks)]
    assert found == [
        (3, b"one", None),
        (7, b"", None),
        (8, b"tw", Reason.CORRUPT),
        (13, b"eightlet", None),
        (22, b"nine let", Reason.TOO_LARGE),
        (35, b"end", None),
    ]
