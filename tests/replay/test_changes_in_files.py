"""`--publications` writes the changes of pages with a subscription: those of a plain program, in every format."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from opicflow.connectors.files.whole_file import write_atomically
from opicflow.schemas.crawl_events import CrawlEvent, Link
from opicflow.schemas.published_schemas import schema
from opicflow.schemas.records import Policy
from replay.test_replay import read_result
from support.logs import FIRST_MS, json_line, run

SUBSCRIBED = Policy(host="a.example", notify=True, publisher="al")
ONE = Policy(url="https://b.example/1", notify=True, publisher="zoe")


def crawl() -> list[CrawlEvent]:
    """A crawl of twelve pages, visited an hour to four days apart, that change now and then."""
    chance, now_ms, events = random.Random(5), FIRST_MS, []
    for _ in range(400):
        now_ms += chance.randrange(3_600_000, 12 * 3_600_000)
        url = f"https://{chance.choice('ab')}.example/{chance.randrange(6)}"
        links = (Link("https://a.example/0"), Link("https://b.example/1"))
        events.append(CrawlEvent(url, fetched_at_ms=now_ms, digest=f"sha1:{chance.randrange(3)}", links=links))
    return events


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    write_atomically(path, b"".join(map(json_line, crawl())))
    return path


def wanted(policies: tuple[Policy, ...]) -> list[tuple[str, int, str]]:
    """Return URL, time and subscribers of each change of a page with a subscription."""
    newest: dict[str, str] = {}
    found = []
    for event in crawl():
        before, newest[event.url] = newest.get(event.url), str(event.digest)
        subscribed = {
            "al": SUBSCRIBED in policies and "//a." in event.url,
            "zoe": ONE in policies and event.url == ONE.url,
        }
        if before not in (None, event.digest) and any(subscribed.values()):
            found.append(
                (event.url, event.fetched_at_ms or 0, ", ".join(name for name, is_it in subscribed.items() if is_it))
            )
    return found


@pytest.mark.parametrize("policies", [(), (SUBSCRIBED,), (ONE,), (SUBSCRIBED, ONE)])
def test_the_changes_in_a_file_are_those_of_a_plain_program(
    policies: tuple[Policy, ...], log: Path, tmp_path: Path
) -> None:
    run([log], tmp_path, publications=True, policies=policies)
    found = read_result(tmp_path / "page-changes.jsonl")
    assert [(one["url"], one["time"], one["subscribers"]) for one in found] == wanted(policies)
    assert bool(found) == bool(policies)
    digests: dict[str, str] = {}
    for one in found:
        assert one["digest_before"] == digests.get(one["url"], one["digest_before"]) != one["digest"]
        digests[one["url"]] = one["digest"]


def test_all_formats_have_the_same_changes_and_a_replay_in_two_parts_too(log: Path, tmp_path: Path) -> None:
    for format_ in ("jsonl", "avro", "parquet"):
        run([log], tmp_path / format_, format=format_, publications=True, policies=(SUBSCRIBED,))
    lines, in_avro, in_parquet = (
        read_result(tmp_path / format_ / f"page-changes.{format_}") for format_ in ("jsonl", "avro", "parquet")
    )
    assert lines == in_avro == in_parquet and lines
    assert list(lines[0]) == [field["name"] for field in schema("PageChange")["fields"]]
    halves, text = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"], log.read_bytes().splitlines(keepends=True)
    found = []
    for path, part in zip(halves, (text[:200], text[200:]), strict=True):
        write_atomically(path, b"".join(part))
        run([path], tmp_path / "out", state=tmp_path / "state", publications=True, policies=(SUBSCRIBED,))
        found += read_result(tmp_path / "out" / "page-changes.jsonl")
    keys = ("url", "time", "digest_before", "digest", "changes", "subscribers")
    assert [[one[key] for key in keys] for one in found] == [[one[key] for key in keys] for one in lines]


def test_without_publications_there_is_no_such_file(log: Path, tmp_path: Path) -> None:
    run([log], tmp_path, policies=(SUBSCRIBED,))
    assert not (tmp_path / "page-changes.jsonl").exists()
