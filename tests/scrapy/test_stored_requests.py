"""A request is read as it was made."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

import pytest
from scrapy.http import FormRequest

import scrapy
from opicflow.pipelines.scrapy.stored_requests import StoredRequests
from scrapy import Request

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
    stored.add(URL, make())
    stored.close()
    again = StoredRequests(tmp_path / "requests", SPIDER)
    found = again.take(URL)
    again.close()
    assert type(found) is type(make())
    assert found.to_dict(spider=SPIDER) == make().to_dict(spider=SPIDER)


def test_a_request_with_a_callback_that_is_no_method_cannot_be_stored(tmp_path: Path) -> None:
    stored = StoredRequests(tmp_path / "requests", SPIDER)
    for _ in range(2):
        with pytest.raises(ValueError, match="not an instance method"):
            stored.add(URL, Request(URL, lambda response: None))
    assert URL not in stored
    stored.close()


def test_requests_of_older_files_with_all_their_values_are_read(tmp_path: Path) -> None:
    request = Request(URL, SPIDER.parse, meta={"depth": 2})
    data = pickle.dumps(request.to_dict(spider=SPIDER), protocol=4)
    head = Struct("<cII").pack(b"+", len(URL), len(data))
    (tmp_path / "requests").write_bytes(head + URL.encode() + data)
    stored = StoredRequests(tmp_path / "requests", SPIDER)
    assert stored.take(URL).to_dict(spider=SPIDER) == request.to_dict(spider=SPIDER)
    stored.close()
