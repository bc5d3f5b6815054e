"""JSON arrays and objects over several lines: they have the events that the same objects have as lines."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from opicflow.connectors.files import log_reader
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.log_reader import FileRange, read
from opicflow.schemas.crawl_events import CrawlEvent, Reason, Reject
from support.archives import gz
from support.thorough import examples

texts = st.text(st.sampled_from('a"\\{}[],\n é'), max_size=6)
records = st.fixed_dictionaries(
    {"url": st.integers(0, 9).map(lambda number: f"https://a/{number}")},
    optional={
        "digest": texts,
        "more": st.recursive(texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=4),
    },
)


def items_of(
    file: Path, kind: Format = Format.JSON, start: int = 0, may_grow: bool = False
) -> list[tuple[int, object]]:
    return [
        item for batch in read(FileRange("log", str(file), kind, start, may_grow=may_grow)) for item in batch.items()
    ]


def urls_of(file: Path, **options: object) -> list[str]:
    return [item.url for _, item in items_of(file) if isinstance(item, CrawlEvent)]


@examples(40, 500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(records, max_size=5), st.sampled_from([None, 0, 2]), st.booleans(), st.integers(1, 40))
def test_an_array_has_the_events_of_its_objects(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    objects: list[dict[str, object]],
    indent: int | None,
    array: bool,
    size: int,
) -> None:
    file, lines = tmp_path / "f.json", tmp_path / "f.jsonl"
    text = json.dumps(objects, indent=indent) if array else "\n".join(json.dumps(one, indent=indent) for one in objects)
    file.write_text(text)
    lines.write_text("".join(json.dumps(one) + "\n" for one in objects))
    expected = [item for _, item in items_of(lines, Format.JSONL)]
    with monkeypatch.context() as patched:
        patched.setattr(log_reader, "BATCH_BYTES", size)
        patched.setattr(log_reader, "_BATCH_ITEMS", 1)
        batches = list(read(FileRange("log", str(file), Format.JSON)))
        found = [item for batch in batches for item in batch.items()]
        assert [item for _, item in found] == expected
        assert all(one.end == two.start for one, two in pairwise(batches))
        assert not batches or (batches[0].start, batches[-1].end) == (0, file.stat().st_size)
        for batch in batches:
            assert items_of(file, start=batch.end) == [item for item in found if item[0] >= batch.end]


def test_values_that_are_no_objects_are_rejects_and_strings_hide_objects(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text(
        '[{"url":"https://a/"}, 3, null, "x {\\"url\\":\\"https://hidden/\\"}", {"url":}, {"url":"https://b/"}]'
    )
    found = [item for _, item in items_of(file)]
    assert [item.url for item in found if isinstance(item, CrawlEvent)] == ["https://a/", "https://b/"]
    rejects = [item for item in found if isinstance(item, Reject)]
    assert [reject.bytes for reject in rejects][:2] == [b"3", b"null"] and rejects[2].bytes.startswith(b'"x {')
    assert rejects[3].reason is Reason.NOT_JSON


def test_a_file_that_breaks_off_loses_its_last_object_or_lets_it_wait(tmp_path: Path) -> None:
    file = tmp_path / "f.json"
    file.write_text('[\n{"url":"https://a/"},\n{"url":"https://b/", "links":["')
    (_, event), (offset, reject) = items_of(file)
    assert isinstance(event, CrawlEvent) and isinstance(reject, Reject) and reject.reason is Reason.NOT_JSON
    assert [item for _, item in items_of(file, may_grow=True)] == [event]
    (batch,) = read(FileRange("log", str(file), Format.JSON, may_grow=True))
    assert batch.end == offset


def test_behind_damage_nothing_is_read_as_an_object(tmp_path: Path) -> None:
    """An object within another looks like one of the array."""
    inner = ", ".join(json.dumps({"url": f"https://inner/{number}"}) for number in range(300))
    first, second = b'[{"url":"https://a/"}, {"url":"https://b/","links":[', inner.encode() + b"]}]"
    packed = bytearray(gz(second))
    packed[len(packed) // 2] ^= 0x55
    file = tmp_path / "f.json.gz"
    file.write_bytes(gz(first) + bytes(packed) + gz(b' {"url":"https://c/"}'))
    *events, (_, reject) = items_of(file)
    assert [item.url for _, item in events if isinstance(item, CrawlEvent)] == ["https://a/"]
    assert isinstance(reject, Reject) and reject.reason is Reason.CORRUPT and "the rest of the file" in reject.detail


def test_damage_between_objects_ends_the_reading(tmp_path: Path) -> None:
    file = tmp_path / "f.json.gz"
    file.write_bytes(gz(b'[{"url":"https://a/"}, ') + gz(b'{"url":"https://b/"}]')[:15])
    (_, event), (offset, reject) = items_of(file)
    assert isinstance(event, CrawlEvent) and isinstance(reject, Reject)
    assert (offset, reject.reason) == (23, Reason.CORRUPT)
    assert items_of(file, start=23) == [(offset, reject)]


def test_an_object_that_is_too_long_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opicflow.connectors.files.json_values.MOST_EVENT_BYTES", 200)
    monkeypatch.setattr(log_reader, "BATCH_BYTES", 64)
    file = tmp_path / "f.json"
    file.write_text('[{"url":"https://a/"}, {"url":"https://b/","x":"' + "y" * 900 + '"}, {"url":"https://c/"}]')
    (_, event), (_, reject) = items_of(file)
    assert isinstance(event, CrawlEvent) and isinstance(reject, Reject) and reject.reason is Reason.TOO_LARGE
    *_, batch = read(FileRange("log", str(file), Format.JSON))
    assert batch.end == file.stat().st_size
