"""A request is read as it was made."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy import Request
from scrapy.http import FormRequest

from opicflow.pipelines.crawl.log import CHOSEN, READ
from opicflow.pipelines.crawl.scrapy.stored_requests import StoredRequests

URL = "https://a.example/d/p"


class Reader(scrapy.Spider):
    name = "reader"

    def parse(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...


SPIDER = Reader()
MADE: list[Callable[[], Request]] = [
    lambda: Request(URL),
    lambda: Request(URL, SPIDER.parse),
    lambda: Request(URL, errback=SPIDER.failed, priority=-3),
    lambda: Request(URL, SPIDER.parse, headers={"Referer": "https://a.example/", "Accept": ["a", "b"]}),
    lambda: Request(URL, meta={"depth": 2, "proxy": "http://b.example/"}, cb_kwargs={"number": 1}, flags=["x"]),
    lambda: Request(URL, cookies=[{"name": "a", "value": "b"}], encoding="latin-1"),
    lambda: Request(URL, cookies={"a": "b"}, dont_filter=True),
    lambda: FormRequest(URL, SPIDER.parse, method="GET", formdata={"a": "b"}),
]


@pytest.mark.parametrize("make", MADE)
def test_a_request_is_read_as_it_was_made(tmp_path: Path, make: Callable[[], Request]) -> None:
    stored = StoredRequests(tmp_path / "requests", SPIDER)
    assert stored.add(URL, make())
    stored.write()
    stored.close()
    again = StoredRequests(tmp_path / "requests", SPIDER)
    found = again.take(URL)
    again.close()
    assert type(found) is type(make())
    assert found.to_dict(spider=SPIDER) == make().to_dict(spider=SPIDER)


def test_pages_that_come_last_are_after_the_others_that_wait(tmp_path: Path) -> None:
    stored = StoredRequests(tmp_path / "requests", SPIDER)
    urls = [f"https://a.example/{number}" for number in range(5)]
    for url in urls:
        stored.add(url, Request(url))
    stored.take(urls[2])
    stored.put_last([urls[0], urls[2], "https://a.example/unknown"])
    assert stored.first(5) == [urls[1], urls[3], urls[4], urls[0]]
    assert stored.waiting_hosts == {"a.example": 4}
    stored.close()


@pytest.mark.parametrize("is_at_hand", [False, True])
def test_what_is_not_written_is_there_until_the_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_hand: bool
) -> None:
    monkeypatch.setattr("opicflow.pipelines.crawl.scrapy.stored_requests._MOST_AT_HAND", int(is_at_hand))
    stored, request = StoredRequests(tmp_path / "requests", SPIDER), Request(URL, SPIDER.parse)
    stored.add(URL, request)
    stored.note(CHOSEN, [URL])
    assert URL in stored and stored.unwritten == 2 and stored.take(URL) is request
    stored.close()
    again = StoredRequests(tmp_path / "requests", SPIDER)
    assert URL not in again and not again.unfinished
    again.close()


def test_a_page_that_was_chosen_is_unfinished_until_it_is_written_that_its_callback_is_over(tmp_path: Path) -> None:
    for notes, unfinished in (([CHOSEN], [URL]), ([READ], [])):
        stored = StoredRequests(tmp_path / "requests", SPIDER)
        if URL not in stored:
            stored.add(URL, Request(URL))
        for kind in notes:
            stored.note(kind, [URL])
            stored.write()
        assert not stored.unwritten
        stored.close()
        again = StoredRequests(tmp_path / "requests", SPIDER)
        assert list(again.unfinished) == unfinished and again.waiting == len(unfinished)
        again.close()


def test_records_for_which_there_is_no_room_wait_and_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, write = StoredRequests(tmp_path / "requests", SPIDER), os.write
    stored.add(URL, Request(URL))
    stored.note(CHOSEN, [URL])
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "write", lambda file, data: write(file, data[:5]))
        stored.write()
    stored.add(f"{URL}/2", Request(f"{URL}/2"))
    stored.write()
    stored.close()
    again = StoredRequests(tmp_path / "requests", SPIDER)
    assert list(again.unfinished) == [URL]
    assert [again.take(url).url for url in again.first(3)] == [URL, f"{URL}/2"]
    again.close()


def test_requests_for_callbacks_that_are_no_methods_cannot_be_stored(tmp_path: Path) -> None:
    stored = StoredRequests(tmp_path / "requests", SPIDER)
    assert not stored.add(URL, Request(URL, lambda response: None)) and stored.add(f"{URL}/2", Request(f"{URL}/2"))
    assert URL not in stored and stored.first(3) == [f"{URL}/2"] and stored.waiting == 1
    stored.close()


def test_what_is_no_record_at_the_end_is_cut_off_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)  # a command that was tested before may have changed it
    stored = StoredRequests(tmp_path / "requests", SPIDER)
    assert stored.add(URL, Request(URL)) and stored.add(f"{URL}/2", Request(f"{URL}/2"))
    stored.write()
    stored.close()
    os.truncate(tmp_path / "requests", (tmp_path / "requests").stat().st_size - 1)
    for is_cut in (True, False):
        caplog.clear()
        again = StoredRequests(tmp_path / "requests", SPIDER)
        assert again.first(3) == [URL] and ("are no record, and are cut off" in caplog.text) == is_cut
        again.close()
