"""CSV with names of columns: what Python's own writer writes is read as it was, and nothing wrong becomes a page."""

from __future__ import annotations

import csv
import io
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from opicflow.connectors.files import log_reader
from opicflow.connectors.files.csv_events import header_of
from opicflow.connectors.files.csv_rows import first_rows, rows_of
from opicflow.connectors.files.formats import Format, sniff
from opicflow.connectors.files.growing_text import GrowingText
from opicflow.connectors.files.log_reader import FileRange, format_of, read
from opicflow.connectors.files.opening import Block, InputRefused
from opicflow.connectors.files.reading import ANY, Reading, parse_fields
from opicflow.schemas.crawl_events import MOST_EVENT_BYTES, CrawlEvent, EventRefused, Link, Reason, Reject
from support.archives import gz
from support.encoded import check_messages
from support.thorough import examples, thorough

in_a_folder = examples(40, 500, suppress_health_check=[HealthCheck.function_scoped_fixture])
values = st.text(st.sampled_from('ab"\n\r,;\t| é1'), max_size=8)


def items_of(file: Path, reading: Reading = ANY, start: int = 0, may_grow: bool = False) -> list[tuple[int, object]]:
    kind = format_of(str(file), reading)
    assert kind is not None
    input_range = FileRange("log", str(file), kind, start, reading=reading, may_grow=may_grow)
    found = []
    for batch in read(input_range):
        check_messages(batch)
        items = list(batch.items())
        offsets = [offset for offset, item in items if isinstance(item, CrawlEvent)]
        assert batch.decode().events.offset.tolist() == offsets
        found += items
    return found


def written(rows: list[list[str]], divider: str, ending: str) -> bytes:
    """Write rows. Before Python 3.13 the writer puts no carriage return in quotes of its own accord."""
    out = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if any("\r" in value for row in rows for value in row) else csv.QUOTE_MINIMAL
    csv.writer(out, delimiter=divider, lineterminator=ending, quoting=quoting).writerows(rows)
    return out.getvalue().encode()


@in_a_folder
@given(
    st.lists(st.lists(values, min_size=2, max_size=2), max_size=6),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 30),
)
def test_what_a_writer_writes_is_read_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[list[str]], divider: str, ending: str, size: int
) -> None:
    """The digest is taken as it is, so it shows the text that was read; its blanks at the ends are not kept."""
    rows = [[f"https://a/{number}", *pair] for number, pair in enumerate(others)]
    file = tmp_path / "f.csv"
    file.write_bytes(written([["url", "digest", "title"], *rows], divider, ending))
    expected = [(url, digest.strip() or None) for url, digest, _ in rows]
    with monkeypatch.context() as patched:
        patched.setattr(log_reader, "BATCH_BYTES", size)
        patched.setattr(log_reader, "_BATCH_ITEMS", 1)
        batches = list(read(FileRange("log", str(file), Format.CSV)))
        found = [item for batch in batches for _, item in batch.items()]
        assert [(item.url, item.digest) for item in found if isinstance(item, CrawlEvent)] == expected
        assert len(found) == len(expected)
        assert all(one.end == two.start for one, two in pairwise(batches))
        assert not batches or (batches[0].start, batches[-1].end) == (0, file.stat().st_size)
        for batch in batches:
            later = [item for one in batches for item in one.items() if item[0] >= batch.end]
            assert items_of(file, start=batch.end) == later


def some_text(chance: random.Random, divider: str) -> str:
    """Return a text with few letters and many quotes, which are mostly wrong somewhere."""
    rows = [
        divider.join(
            chance.choice(["a", "", "b b", '"c"', f'"{divider}"', '"d\n"', '""""', '"e', ' "f"', 'g"']) for _ in "123"
        )
        for _ in range(chance.randrange(1, 12))
    ]
    return chance.choice(["\n", "\r\n"]).join(rows) + chance.choice(["\n", ""])


@pytest.mark.thorough
def test_rows_are_those_of_pythons_csv_and_their_bytes_are_the_file(seed: int) -> None:
    """`make soak` reads more than a million rows. A wrong row costs its first line; then both begin again behind it."""
    chance = random.Random(seed)
    read_, wrong = 0, 0
    while read_ < thorough(6_000, 1_000_000):
        divider = chance.choice(",;\t|")
        text = some_text(chance, divider)
        data, size = text.encode(), chance.choice([1, 2, 7, 100])
        rows = list(rows_of(GrowingText(Block(at, data[at : at + size]) for at in range(0, len(data), size)), divider))
        at, expected = 0, list[tuple[int, list[str] | None]]()
        while at < len(text):
            lines = io.StringIO(text[at:], newline="\n")
            reader = csv.reader(lines, delimiter=divider, skipinitialspace=True, strict=True)
            begin = at
            try:
                for row in reader:
                    expected += [(begin, row)] if row not in ([], [""]) else []
                    begin = at + sum(map(len, io.StringIO(text[at:], newline="\n").readlines()[: reader.line_num]))
                break
            except csv.Error:
                expected.append((begin, None))
                at = begin + len(io.StringIO(text[begin:], newline="\n").readline())
        found = [(row.offset, None if isinstance(row.values, EventRefused) else row.values) for row in rows]
        assert found == expected, (text, divider, size)
        assert all(data.startswith(row.original, row.offset) for row in rows)
        read_ += len(rows)
        wrong += sum(values is None for _, values in found)
    assert read_ / 20 < wrong < read_ / 2


def test_quotes_and_commas_in_urls_make_no_other_page(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_bytes(b'"https://a/x,2",https://b/\n"https://a/x,2","https://c/,2"\n"https://a/x,2","https://d/",3\n')
    assert [item for _, item in items_of(file)] == [
        CrawlEvent(
            "https://a/x,2", status=200, links=(Link("https://b/"), Link("https://c/,2"), Link("https://d/", 3.0))
        )
    ]


@pytest.mark.parametrize(
    "row",
    [
        b"https://a/x,2,200\n",
        b"https://a/x\n",
        b'"https://a/" x,200\n',
        b'"https://a/"x",200\n',
        b"https://a/\xff,200\n",
        b'https://a/,"OK"\n',
    ],
)
def test_a_row_that_is_wrong_is_a_reject_and_the_next_is_read(row: bytes, tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_bytes(b"url,status\n" + row + b"https://b/,404\n")
    (offset, reject), (_, event) = items_of(file)
    assert isinstance(reject, Reject) and (offset, reject.bytes) == (11, row)
    assert event == CrawlEvent("https://b/", status=404)


def test_a_quote_that_is_never_closed_costs_its_line_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f.csv"
    file.write_bytes(b'url,status\n"https://a/,200\nhttps://b/,404\n')
    (_, reject), (_, event) = items_of(file)
    assert isinstance(reject, Reject) and reject.bytes == b'"https://a/,200\n'
    assert event == CrawlEvent("https://b/", status=404)
    monkeypatch.setattr("opicflow.connectors.files.csv_rows.MOST_EVENT_BYTES", 100)
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 50)
    file.write_bytes(b'url,status\n"https://a/,200\n' + b"https://b/,404\n" * 30)
    (_, reject), *events = items_of(file)
    assert isinstance(reject, Reject) and reject.reason is Reason.TOO_LARGE
    assert [event for _, event in events] == [CrawlEvent("https://b/", status=404)] * 30
    assert MOST_EVENT_BYTES > 100


def test_lists_of_urls_end_where_the_next_url_begins(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_bytes(
        b'url,links\nhttps://a/,"https://b/?x=1,2,https://c/;y https://d/"\nhttps://a/,"/b,/c"\n'
        b'https://a/,"[""/b"", null, {""href"": ""/c""}]"\nhttps://a/,"[{\'url\': \'/b\'}]"\nhttps://a/,[]\nhttps://a/,\n'
    )
    first, second, third, reject, empty, unknown = (item for _, item in items_of(file))
    assert [isinstance(item, CrawlEvent) for item in (first, second, third, empty, unknown)] == [True] * 5
    links = [item.links for item in (first, second, third, empty, unknown) if isinstance(item, CrawlEvent)]
    assert links == [
        (Link("https://b/?x=1,2"), Link("https://c/;y"), Link("https://d/")),
        (Link("/b"), Link("/c")),
        (Link("/b"), Link("about:invalid"), Link("/c")),
        (),
        None,
    ]
    assert isinstance(reject, Reject) and "write JSON instead" in reject.detail


@pytest.mark.parametrize(
    ("line", "divider", "names"),
    [
        (b"url,status", ",", ("url", "status")),
        (b"\xef\xbb\xbfURL;Status Code;Crawled At", ";", ("url", "status_code", "crawled_at")),
        (b"title\turl\n", "\t", ("title", "url")),
        (b'"url"|"a,b"\r\n', "|", ("url", "a,b")),
        (b"url", ",", ("url",)),
        (b"Url,Status code,Retry interval seconds", ",", ("url", "status_code", "Retry interval seconds")),
    ],
)
def test_a_header_names_the_columns(line: bytes, divider: str, names: tuple[str, ...]) -> None:
    found = header_of(line)
    assert found is not None
    assert (found.divider if len(names) > 1 else divider, found.names) == (divider, names)


@pytest.mark.parametrize("line", [b"", b"source,target", b"https://a/,https://b/", b'"url', b"\xff\xfe,x"])
def test_other_lines_are_no_header(line: bytes) -> None:
    assert header_of(line) is None


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (b"url,status\nhttps://a/,200\n", Format.CSV),
        (b"url\nhttps://a/\n", Format.CSV),
        (b"url,target\nhttps://a/,https://b/\n", Format.EDGES),
        (b"url,title\nhttps://a/,A page\n", Format.CSV),
        (b"https://a/,https://b/\n", Format.EDGES),
        (b'[\n{"url":"a"}]', Format.JSON),
        (b'{\n  "url": "a"}', Format.JSON),
        (b'{"url": "a",\n "x":1}', Format.JSON),
        (b'{"url":"a"}\n{', Format.JSONL),
        (b'{"url":', Format.JSONL),
        (b"Recno:: 0\nURL:: https://a/\n", Format.NUTCH_SEGMENT),
    ],
)
def test_the_first_bytes_determine_how_records_lie(first: bytes, kind: Format) -> None:
    assert sniff(first, "x") is kind


@pytest.mark.parametrize(
    ("first", "column"),
    [
        (b"page_url,code\nhttps://a/,200\n", "page_url"),
        (b"code;address\r\n200;https://a/?b,c\r\n", "address"),
        (b'"the page","n","x","y"\n"https://a/,b",1,2,3\n', "the page"),
        (b"page\nhttps://a/\n", "page"),
    ],
)
def test_csv_whose_url_has_an_unknown_name_is_refused_with_that_name(first: bytes, column: str) -> None:
    """As an edge list it would give pages that do not exist."""
    with pytest.raises(InputRefused, match=f"x: the first line names columns, .* --field 'url={column}'"):
        sniff(first, "x")
    assert sniff(first, "x", Reading(fields=(("url", column),))) is Format.CSV


def test_the_name_of_a_column_is_shown_without_what_moves_a_cursor() -> None:
    with pytest.raises(InputRefused) as refused:
        sniff(b"u\x1b[2J\x00,code\nhttps://a/,200\n", "x")
    assert str(refused.value).isprintable() and r"url=u\x1b[2J\x00" in str(refused.value)


def test_a_zip_file_from_elsewhere_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputRefused, match=r"site\.wacz: a ZIP file: .* unpack it, and name its logs"):
        sniff(b"PK\x03\x04rest", "site.wacz")


def test_names_of_fields_that_users_give_count_first(tmp_path: Path) -> None:
    reading = Reading(fields=parse_fields(["url=page", "status=code", "links=to"]))
    event = CrawlEvent("https://a/", status=404, links=(Link("https://b/"),))
    for name, text in {
        "f.csv": "page,code,to,url\nhttps://a/,404,https://b/,https://x/\n",
        "f.jsonl": '{"page":"https://a/","code":404,"to":["https://b/"]}\n',
        "f.json": '[{"page":"https://a/","url":"https://x/","code":404,"to":["https://b/"]}]',
        "g.jsonl": '{"page":"https://a/","url":"https://x/","code":404,"to":["https://b/"]}\n',
    }.items():
        (tmp_path / name).write_text(text)
        assert [item for _, item in items_of(tmp_path / name, reading)] == [event], name


@pytest.mark.parametrize("text", ["url", "url=", "address=x", "=x", ""])
def test_a_field_that_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(InputRefused, match=r"--field .*: give FIELD=NAME, such as url=page_url; fields are kind, url,"):
        parse_fields([text])


def test_a_last_row_without_a_line_break_waits_for_its_rest(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_bytes(b"url,status\nhttps://a/,200\nhttps://b/,40")
    assert [offset for offset, _ in items_of(file)] == [11, 26]
    assert [offset for offset, _ in items_of(file, may_grow=True)] == [11]
    (batch,) = read(FileRange("log", str(file), Format.CSV, may_grow=True))
    assert batch.end == 26
    file.write_bytes(b"url,status\nhttps://a/,200\nhttps://b/,404\n")
    assert items_of(file, start=26, may_grow=True) == [(26, CrawlEvent("https://b/", status=404))]


def test_damage_costs_the_rows_that_it_touches(tmp_path: Path) -> None:
    rows = [b"https://a/%d,200\n" % number for number in range(300)]
    members = [gz(b"url,status\n" + b"".join(rows[:100])), gz(b"".join(rows[100:200])), gz(b"".join(rows[200:]))]
    packed = bytearray(members[1])
    packed[len(packed) // 2] ^= 0x55
    file = tmp_path / "f.csv.gz"
    file.write_bytes(members[0] + bytes(packed) + members[2])
    found = [item for _, item in items_of(file)]
    urls = [item.url for item in found if isinstance(item, CrawlEvent)]
    assert [url for url in urls if url in {f"https://a/{number}" for number in range(100)}] == urls[:100]
    assert urls[-99:] == [f"https://a/{number}" for number in range(201, 300)]
    assert [item.reason for item in found if isinstance(item, Reject)].count(Reason.CORRUPT) == 1


@given(st.lists(values, min_size=1, max_size=5), st.sampled_from(",;\t|"))
def test_values_of_a_line_are_those_that_were_written(row: list[str], divider: str) -> None:
    plain = [value.replace("\n", "").replace("\r", "").strip() for value in row]
    line = written([plain], divider, "\n")[:-1]
    assert first_rows(line, divider, 1) == ([plain] if any(plain) else [])
