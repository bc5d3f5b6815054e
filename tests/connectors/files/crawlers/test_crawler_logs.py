"""The logs of other crawlers: each gives the events that its crawl had, however it is packed and divided."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from opicflow.connectors.files import log_reader
from opicflow.connectors.files.crawlers.dispatch import FORMATS
from opicflow.connectors.files.event_messages import messages_of_lines
from opicflow.connectors.files.formats import INPUT_FORMATS, Format, check_name
from opicflow.connectors.files.jsonl import items_of_lines
from opicflow.connectors.files.log_reader import FileRange, format_of, read
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.crawl_events import CrawlEvent, Link, Reason, Reject
from support.archives import gz, zst
from support.encoded import check_messages
from support.paths import TOP
from support.thorough import crossed

FOLDER = TOP / "examples" / "crawlers"


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crawler_logs", TOP / "examples" / "crawler_logs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["crawler_logs"] = module
    spec.loader.exec_module(module)
    return module


CRAWL = _module()
Item = tuple[int, CrawlEvent | Reject]


def items_of(file: Path, reading: Reading = ANY, start: int = 0) -> list[Item]:
    """Return the items of a file, which the columns have, too."""
    kind = format_of(str(file), reading)
    assert kind is not None
    found: list[Item] = []
    for batch in read(FileRange("log", str(file), kind, start, reading=reading)):
        check_messages(batch)
        items = list(batch.items())
        decoded = batch.decode()
        events = [offset for offset, item in items if isinstance(item, CrawlEvent)]
        assert events == decoded.events.offset.tolist()
        assert [item for _, item in items if isinstance(item, Reject)] == decoded.rejects
        found += items
    return found


def events_of(file: Path, reading: Reading = ANY) -> list[CrawlEvent]:
    items = [item for _, item in items_of(file, reading)]
    assert not [item for item in items if isinstance(item, Reject)]
    return [item for item in items if isinstance(item, CrawlEvent)]


# -- what each log must say, from the facts of the crawl and not from its text


def _whole_seconds(began_ms: int | None) -> int | None:
    return None if began_ms is None else began_ms // 1000 * 1000


def _plain(fetch: Any) -> CrawlEvent:
    """Return the event of a fetch in a log that has all but links."""
    target = (Link(fetch.leads_to),) if fetch.leads_to else None
    return CrawlEvent(
        fetch.url,
        announce=fetch.began is None,
        fetched_at_ms=fetch.began_ms,
        status=fetch.status,
        content_type=fetch.media,
        digest=fetch.digest,
        links=target,
    )


def _of_heritrix(fetch: Any, has_waiting: bool) -> CrawlEvent | None:
    if fetch.began is None:
        return CrawlEvent(fetch.url, announce=True) if has_waiting else None
    statuses = {"robots": -9998, "timeout": -4}
    return replace(
        _plain(fetch),
        links=None,
        # Of a fetch without an answer, when it began is not written.
        fetched_at_ms=fetch.began_ms + (0 if fetch.status else 80),
        status=fetch.status or statuses[fetch.failure],
        digest=f"sha1:{fetch.digest}" if fetch.digest else None,
        redirects=("https://tern.example/old",) if fetch.url.endswith("/new") else (),
    )


def _of_nutch(fetch: Any) -> CrawlEvent:
    if fetch.began is None:
        return CrawlEvent(fetch.url, announce=True)
    failures = {"robots": "robots", "timeout": "exception", None: "gone" if fetch.status == 404 else None}
    return replace(
        _plain(fetch),
        fetched_at_ms=None if fetch.failure == "timeout" else _whole_seconds(fetch.began_ms),
        status=None if fetch.status == 404 else fetch.status,
        failure=failures[fetch.failure],
        content_type=None,
    )


def _of_segment(fetch: Any) -> CrawlEvent:
    if fetch.began is None:
        return CrawlEvent(fetch.url, announce=True)
    return replace(
        _of_nutch(fetch),
        fetched_at_ms=_whole_seconds(fetch.began_ms),
        content_type=fetch.media if fetch.status == 200 else None,
        links=tuple(map(Link, fetch.links)) if fetch.status == 200 else _plain(fetch).links,
    )


def _of_stormcrawler(fetch: Any) -> CrawlEvent:
    if fetch.began is None:
        return CrawlEvent(fetch.url, announce=True, fetched_at_ms=CRAWL.FETCHES[0].began_ms)
    failures = {"robots": "robots", "timeout": "fetch-error", None: None}
    return replace(_plain(fetch), failure=failures[fetch.failure], content_type=None, digest=None)


def _of_browsertrix(fetch: Any) -> CrawlEvent | None:
    if fetch.began is None or fetch.leads_to:
        return None
    return replace(_plain(fetch), digest=None, failure="not-loaded" if fetch.failure else None)


def _of_crawlee(fetch: Any) -> CrawlEvent:
    if fetch.began is None:
        return CrawlEvent(fetch.url, announce=True)
    return CrawlEvent(
        fetch.leads_to or fetch.url,
        fetched_at_ms=fetch.began_ms,
        failure="error" if fetch.failure else None,
        redirects=(fetch.url,) if fetch.leads_to else (),
    )


def _of_katana(fetch: Any) -> CrawlEvent:
    if fetch.began is None:
        return CrawlEvent(fetch.url, announce=True)
    return replace(_plain(fetch), digest=None, failure="error" if fetch.failure else None)


def _of_common_crawl(fetch: Any, has_milliseconds: bool) -> CrawlEvent | None:
    if fetch.status is None:
        return None
    began_ms = fetch.began_ms if has_milliseconds else _whole_seconds(fetch.began_ms)
    return replace(_plain(fetch), fetched_at_ms=began_ms, content_type=fetch.media or "text/plain")


def _of_scrapy(fetch: Any, has_empty_lists: bool) -> CrawlEvent | None:
    if fetch.status is None:
        return None
    knows_links = fetch.status == 200 and (fetch.links or has_empty_lists)
    return replace(_plain(fetch), digest=None, links=tuple(map(Link, fetch.links)) if knows_links else None)


def _of_arc(fetch: Any) -> CrawlEvent | None:
    if fetch.status is None:
        return None
    links = tuple(map(Link, fetch.links)) if fetch.media == "text/html" and fetch.status == 200 else None
    links = _plain(fetch).links if fetch.leads_to else links
    return replace(_plain(fetch), fetched_at_ms=_whole_seconds(fetch.began_ms), digest=None, links=links)


def _of_apify(fetch: Any) -> CrawlEvent | None:
    if fetch.status is None:
        return None
    redirects = (fetch.url,) if fetch.leads_to else ()
    status = 200 if fetch.leads_to else fetch.status
    return CrawlEvent(fetch.leads_to or fetch.url, fetched_at_ms=fetch.began_ms, status=status, redirects=redirects)


def _of_screaming_frog(fetch: Any) -> CrawlEvent | None:
    failures = {"robots": "robots", "timeout": "no-answer", None: None}
    seen = replace(_plain(fetch), fetched_at_ms=_whole_seconds(fetch.began_ms), failure=failures[fetch.failure])
    return None if fetch.began is None else seen


def _of_hakrawler(fetch: Any) -> CrawlEvent | None:
    return CrawlEvent(fetch.url, announce=True) if fetch.found_on else None


def _of_gospider(fetch: Any) -> CrawlEvent | None:
    if fetch.began is None:
        return CrawlEvent(fetch.url, announce=True)
    return CrawlEvent(fetch.url, status=fetch.status) if fetch.status not in (None, 404) else None


EXPECTED: dict[str, Callable[[Any], CrawlEvent | None]] = {
    "heritrix-crawl.log": lambda fetch: _of_heritrix(fetch, False),
    "heritrix-feed.jsonl": lambda fetch: _of_heritrix(fetch, True),
    "nutch-crawldb.jsonl": _of_nutch,
    "nutch-crawldb.csv": _of_nutch,
    "nutch-crawldb.txt": _of_nutch,
    "nutch-segment.txt": _of_segment,
    "stormcrawler-status.jsonl": _of_stormcrawler,
    "browsertrix-pages.jsonl": _of_browsertrix,
    "crawlee-requests.jsonl": _of_crawlee,
    "crawlee-requests.json": _of_crawlee,
    "crawlee-python.json": _of_crawlee,
    "katana.jsonl": _of_katana,
    "common-crawl-columns.jsonl": lambda fetch: _of_common_crawl(fetch, True),
    "common-crawl-index.cdxj": lambda fetch: _of_common_crawl(fetch, False),
    "common-crawl-index.cdx": lambda fetch: _of_common_crawl(fetch, False),
    "arc-pages.arc": _of_arc,
    "apify-items.jsonl": _of_apify,
    "screaming-frog-internal.csv": _of_screaming_frog,
    "hakrawler-found.txt": _of_hakrawler,
    "gospider-lines.txt": _of_gospider,
    "scrapy-items.json": lambda fetch: _of_scrapy(fetch, True),
    "scrapy-items.csv": lambda fetch: _of_scrapy(fetch, False),
}


def name_of(log: str) -> str:
    """Return the name of a log's format."""
    return (
        "nutch-segment"
        if log.startswith("nutch-segment")
        else next(n for n in FORMATS | {"scrapy": 0, "arc": 0} if log.startswith(n))
    )


def expected(log: str) -> list[CrawlEvent]:
    return [event for fetch in CRAWL.FETCHES if (event := EXPECTED[log](fetch)) is not None]


def test_the_script_makes_the_logs_that_are_committed(tmp_path: Path) -> None:
    CRAWL.write_logs(tmp_path)
    assert {file.name for file in FOLDER.iterdir()} == set(EXPECTED) == set(CRAWL.LOGS)
    assert {name: (tmp_path / name).read_bytes() for name in EXPECTED} == {
        name: (FOLDER / name).read_bytes() for name in EXPECTED
    }


def test_every_format_has_a_log() -> None:
    assert {name_of(log) for log in EXPECTED} == {*FORMATS, "scrapy", "arc", "nutch-segment"}


@pytest.mark.parametrize("log", EXPECTED)
def test_a_log_is_recognised_and_gives_the_events_of_its_crawl(log: str) -> None:
    assert events_of(FOLDER / log) == expected(log)


@pytest.mark.parametrize("log", EXPECTED)
def test_a_log_whose_format_is_named_gives_the_same_events(log: str) -> None:
    assert events_of(FOLDER / log, Reading(name_of(log))) == expected(log)


@pytest.mark.parametrize("compress", [gz, zst])
@pytest.mark.parametrize("log", EXPECTED)
def test_a_compressed_log_under_any_name_gives_the_same_items(
    log: str, compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_bytes(compress((FOLDER / log).read_bytes()))
    assert items_of(file) == items_of(FOLDER / log)


@pytest.mark.parametrize(("log", "size"), crossed(list(EXPECTED), [1, 7, 64, 300]))
def test_a_log_in_blocks_of_any_size_gives_the_same_items_and_goes_on_at_any_batch(
    log: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = items_of(FOLDER / log)
    kind = format_of(str(FOLDER / log))
    assert kind is not None
    monkeypatch.setattr(log_reader, "BATCH_BYTES", size)
    monkeypatch.setattr(log_reader, "_BATCH_ITEMS", 1)
    batches = list(read(FileRange("log", str(FOLDER / log), kind)))
    assert batches[0].start == 0 and batches[-1].end == (FOLDER / log).stat().st_size
    assert [batch.start for batch in batches[1:]] == [batch.end for batch in batches[:-1]]
    assert [item for batch in batches for item in batch.items()] == whole
    for batch in batches:
        assert items_of(FOLDER / log, start=batch.end) == [item for item in whole if item[0] >= batch.end]


@pytest.mark.parametrize("log", EXPECTED)
@pytest.mark.parametrize("named", FORMATS)
def test_a_log_whose_format_is_named_wrongly_is_rejected_with_that_name(log: str, named: str) -> None:
    if name_of(log).startswith(named):
        assert items_of(FOLDER / log, Reading(named)) == items_of(FOLDER / log)
        return
    found = [item for _, item in items_of(FOLDER / log, Reading(named))]
    assert found and all(isinstance(item, Reject) for item in found)
    assert all(f"({named})" in item.detail for item in found if isinstance(item, Reject))


def test_lines_of_all_crawlers_may_be_mixed(tmp_path: Path) -> None:
    logs = [log for log in EXPECTED if format_of(str(FOLDER / log)) is Format.JSONL]
    assert len(logs) > 7
    lines = [(FOLDER / log).read_bytes().splitlines() for log in logs]
    ours = b'{"url":"https://tern.example/ours","status":200}'
    file = tmp_path / "mixed.jsonl"
    file.write_bytes(b"\n".join(row for rows in zip(*lines, strict=False) for row in (*rows, ours)))
    found = events_of(file)
    for log in logs:
        few = min(map(len, lines))
        mine = [event for event in expected(log)[: few - 2]]
        assert all(event in found for event in mine)
    assert found.count(CrawlEvent("https://tern.example/ours", status=200)) == min(map(len, lines))


# -- records that are not understood


STATUSES = {
    "a word of StormCrawler": ('{"url":"https://a/","status":"PARKED","nextFetchDate":"x"}', "'PARKED' is no status"),
    "a code that contradicts": (
        '{"url":"https://a/","status":"FETCHED","metadata":{"fetch%2EstatusCode":["404"]},"nextFetchDate":"x"}',
        "FETCHED with the code 404",
    ),
    "a byte of Nutch": ('{"url":"https://a/","statusCode":77,"retryIntervalSeconds":1}', "77 is no status of Nutch"),
    "a status of Heritrix": (
        "2026-05-04T06:00:00.123Z    42         52 https://a/ L https://b/ text/html #001 - - - -",
        "42 is no HTTP status",
    ),
    "a negative one": ('{"url":"https://a/","hop_path":"L","status_code":-77}', "-77 is no HTTP status"),
    "a state of Browsertrix": ('{"url":"https://a/","loadState":9}', "9 is no state"),
    "a state of Crawlee": (
        '{"url":"https://a/","uniqueKey":"a","handledAt":"2026-05-04T06:00:00Z","userData":{"__crawlee":{"state":2}}}',
        "has the state 2",
    ),
    "a code of Katana": ('{"request":{"endpoint":"https://a/"},"response":{"status_code":7}}', "7 is no HTTP status"),
    "a method of Katana": ('{"request":{"endpoint":"https://a/","method":"POST"}}', "by POST"),
    "a request of Crawlee": (
        '{"url":"https://a/","unique_key":"a","handled_at":null,"method":"POST"}',
        "by POST",
    ),
    "a line of CDX": ("a)/ 20260504060000 https://a/ text/html - X - - 1 0 f", "there is none"),
    "a posted line of CDX": ("a)/?__wb_method=post&b=1 20260504060000 https://a/ text/html 200 X - 0 f", "by POST"),
    "an item of Apify": ('{"url":"https://a/","crawl":{"httpStatusCode":null}}', "crawl.httpStatusCode: there is none"),
    "a posted item": ('{"url":"https://a/","#debug":{"statusCode":200,"method":"POST"}}', "by POST"),
    "a page of Screaming Frog": ('{"Address":"https://a/","Indexability":"Indexable"}', "it was not crawled"),
    "a kind of gospider": ("[secrets] - https://a/", "'secrets' is none of gospider"),
    "contents in gospider": ("[Raw] -", "run gospider without --raw"),
    "a row of Common Crawl": ('{"url":"https://a/","fetch_status":"many"}', "'many' is no whole number"),
    "no status": ('{"url":"https://a/","fetch_status":null}', "there is none"),
    "a word of ours": ('{"url":"https://a/","status":"VISITED"}', "'VISITED' is neither"),
    "a zone of Java": (
        '{"url":"https://a/","statusCode":2,"retryIntervalSeconds":1,"fetchTime":"Mon May 04 06:00:00 CST 2026"}',
        "several meanings",
    ),
}


@pytest.mark.parametrize("case", STATUSES)
def test_a_record_that_is_not_understood_is_a_reject_with_its_bytes_and_reason(case: str, tmp_path: Path) -> None:
    line, words = STATUSES[case]
    file = tmp_path / "log.jsonl"
    file.write_text(f'{{"url":"https://before/"}}\n{line}\n{{"url":"https://after/"}}\n')
    before, reject, after = (item for _, item in items_of(file))
    assert isinstance(before, CrawlEvent) and isinstance(after, CrawlEvent) and isinstance(reject, Reject)
    assert reject.bytes == line.encode() and words in reject.detail and reject.offset == 26
    assert reject.reason in (Reason.BAD_FIELD, Reason.BAD_TIME)


CASES: dict[str, tuple[str, CrawlEvent | None]] = {
    "a header of pages": ('{"format":"json-pages-1.0","id":"pages","title":"All"}', None),
    "a lookup of a host": ("20260504060000123     1         52 dns:a P https://a/ text/dns #001 - - - -", None),
    "an old line of Heritrix": (
        "20260504060000123   200         52 http://a/ - - text/html #001 20260504055959000+12 sha1:X - -",
        CrawlEvent("http://a/", fetched_at_ms=1777874399000, status=200, content_type="text/html", digest="sha1:X"),
    ),
    "robots.txt": (
        "20260504060000123   200         52 https://a/robots.txt LLP https://a/ text/plain #001 - - - -",
        None,
    ),
    "robots.txt that moved": (
        "20260504060000123   200         52 https://a/r PR https://a/ text/plain #1 - - - -",
        None,
    ),
    "a page with a path of hops that has a P": (
        "20260504060000123   404         52 https://a/ PL https://b/ - #1 - - - -",
        CrawlEvent("https://a/", fetched_at_ms=1777874400123, status=404),
    ),
    "a queue of Crawlee": ('{"id":"x","hadMultipleClients":false,"totalRequestCount":1}', None),
    "a request of Python that is tried again": (
        '{"url":"https://a/","unique_key":"a","handled_at":null,"loaded_url":"https://a/",'
        '"user_data":{"__crawlee":{"state":5}}}',
        CrawlEvent("https://a/", announce=True),
    ),
    "a line of CDX with 9 columns": (
        "a)/ 20260504060000 https://a/ unk 404 - - 0 f",
        CrawlEvent("https://a/", fetched_at_ms=1777874400000, status=404, content_type="unk"),
    ),
    "a line of CDX with 7 columns": (
        "a)/ 20260504060000 https://a/ warc/revisit - X 52",
        CrawlEvent("https://a/", fetched_at_ms=1777874400000, status=304, digest="X"),
    ),
    "an item of Apify that moved": (
        '{"url":"https://a/","crawl":{"loadedUrl":"https://b/","httpStatusCode":404},'
        '"metadata":{"canonicalUrl":"https://c/"}}',
        CrawlEvent("https://b/", status=404, redirects=("https://a/",), canonical="https://c/"),
    ),
    "a failure of Apify": (
        '{"#error":true,"#debug":{"url":"https://a/","statusCode":null}}',
        CrawlEvent("https://a/", failure="error"),
    ),
    "an object of hakrawler": (
        '{"Source":"href","URL":"https://a/","Where":""}',
        CrawlEvent("https://a/", announce=True),
    ),
    "an object of gospider": (
        '{"input":"https://a/","source":"body","type":"url","output":"https://a/b","status":403,"length":4}',
        CrawlEvent("https://a/b", status=403),
    ),
    "a line of gospider with a length": (
        "[url] - [code-200] - [len_52] - https://a/",
        CrawlEvent("https://a/", status=200),
    ),
    "a guess of gospider": ("[linkfinder] - https://a/b", None),
    "a fetch that was not modified": (
        '{"url":"https://a/","status":"FETCHED","metadata":{"fetch.statusCode":"304"}}',
        CrawlEvent("https://a/", status=304),
    ),
    "an error with a code": (
        '{"url":"https://a/","status":"ERROR","metadata":{"fetch%2EstatusCode":["404"],"error%2Ecause":["x"]}}',
        CrawlEvent("https://a/", status=404),
    ),
    "an error with a code of success": (
        '{"url":"https://a/","status":"ERROR","metadata":{"fetch%2EstatusCode":["200"]}}',
        CrawlEvent("https://a/", failure="error"),
    ),
    "a request that was skipped": (
        '{"url":"https://a/","uniqueKey":"a","handledAt":"2026-05-04T06:00:00Z","userData":{"__crawlee":{"state":7}}}',
        CrawlEvent("https://a/", announce=True),
    ),
    "a request that was done after a retry": (
        '{"url":"https://a/","uniqueKey":"a","handledAt":"2026-05-04T06:00:00Z","retryCount":1,"errorMessages":["x"]}',
        CrawlEvent("https://a/", fetched_at_ms=1777874400000),
    ),
    "a page that was moved in Nutch": (
        '{"url":"https://a/","statusCode":4,"retryIntervalSeconds":60,"fetchTime":"Mon May 04 08:01:00 CEST 2026",'
        '"metadata":{"_pst_":"temp_moved(13), lastModified=0: https://b/"}}',
        CrawlEvent("https://a/", fetched_at_ms=1777874400000, status=302, links=(Link("https://b/"),)),
    ),
    "a page of Nutch that waits": (
        '{"url":"https://a/","statusCode":1,"retryIntervalSeconds":60,"retriesSinceFetch":0}',
        CrawlEvent("https://a/", announce=True),
    ),
    "a revisit in an index": (
        'a)/ 20260504060000 {"url":"https://a/","mime":"warc/revisit","status":"-","digest":"X"}',
        CrawlEvent("https://a/", fetched_at_ms=1777874400000, status=304, digest="X"),
    ),
    "a page as our own that has ts and mime": (
        '{"url":"https://a/","ts":"2026-05-04T06:00:00Z","mime":"text/html","links":[]}',
        CrawlEvent("https://a/", fetched_at_ms=1777874400000, content_type="text/html", links=()),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_record_means(case: str, tmp_path: Path) -> None:
    line, event = CASES[case]
    file = tmp_path / "log"
    file.write_text(line + "\n")
    assert events_of(file) == ([] if event is None else [event])


def test_a_dump_of_a_segment_with_contents_is_not_read_from_there_on(tmp_path: Path) -> None:
    """A page may have what looks like a record."""
    log = (FOLDER / "nutch-segment.txt").read_bytes()
    forged = b"\nContent::\nVersion: -1\nContent:\n<p>\n\nRecno:: 9\nURL:: https://forged.example/\n"
    at = log.index(b"\nRecno:: 3")
    file = tmp_path / "dump"
    file.write_bytes(log[:at] + forged + log[at:])
    *events, reject = (item for _, item in items_of(file))
    assert events == expected("nutch-segment.txt")[:2]
    assert isinstance(reject, Reject) and "-nocontent" in reject.detail and reject.reason is Reason.WRONG_SCHEMA


_LOGS_OF_LINKS = {"heritrix-links": "heritrix-crawl.log", "katana-links": "katana.jsonl"}
_LOGS_OF_LINKS |= {"hakrawler-links": "hakrawler-found.txt"}


@pytest.mark.parametrize("name", _LOGS_OF_LINKS)
def test_pages_that_urls_were_found_on_are_read_as_links(name: str) -> None:
    log = _LOGS_OF_LINKS[name]
    found = [(event.url, link.url) for event in events_of(FOLDER / log, Reading(name)) for link in event.links or ()]
    has_waiting = name != "heritrix-links"
    facts = [(f.found_on, f.url) for f in CRAWL.FETCHES if f.found_on and (f.began or has_waiting)]
    assert found == facts


@pytest.mark.parametrize("log", sorted(file.name for file in FOLDER.glob("*.jsonl")))
def test_records_that_have_a_url_of_ours_too_are_read_alike_as_columns_and_one_by_one(log: str) -> None:
    for line in (FOLDER / log).read_bytes().splitlines():
        block = json.dumps({**json.loads(line), "url": "https://ours.example/"}).encode() + b"\n"
        items = [item for _, item in items_of_lines(block, "log", 0)]
        assert list(messages_of_lines(block, "log", 0, b"").urls) == [
            item.url.encode() for item in items if isinstance(item, CrawlEvent)
        ]


def test_a_format_that_is_not_known_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputRefused, match=r"--input-format heritrx: not known: did you mean heritrix\?"):
        check_name("heritrx")
    assert [check_name(name) for name in INPUT_FORMATS] == list(INPUT_FORMATS)


def test_a_format_of_ours_that_is_named_reads_no_other(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"url": "https://a/", "uniqueKey": "a", "handledAt": None, "status": 200}) + "\n")
    assert events_of(file) == [CrawlEvent("https://a/", announce=True)]
    assert events_of(file, Reading("jsonl")) == [CrawlEvent("https://a/", status=200)]


# -- tables and dumps of links


LINKDB = """https://a/b	Inlinks:
 fromUrl: https://a/ anchor: To: b
 fromUrl: https://a/c anchor:

https://a/	Inlinks:
 fromUrl: https://a/c anchor: Home
 this is no line of it

"""
INLINKS = """\ufeff"Type","Source","Destination","Anchor","Status Code","Status","Follow"
"Hyperlink","https://a/","https://a/b","To ""b"", it","301","Moved Permanently","true"
"Image","https://a/","https://a/i.png","","200","OK","true"
"Hyperlink","https://a/","https://a/ad","","200","OK","false"
"HTTP Redirect","https://a/b","https://a/c","","200","OK","true"
"Hyperlink","https://a/c"
"""


@pytest.mark.parametrize("text, name", [(LINKDB, "nutch-links"), (INLINKS, "screaming-frog-links")])
def test_dumps_of_links_are_read_as_links_from_any_item_on(text: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "links"
    file.write_text(text)
    items = items_of(file, Reading(name))
    found = [(one.url, [link.url for link in one.links or ()]) for _, one in items if isinstance(one, CrawlEvent)]
    of_linkdb = [("https://a/", ["https://a/b"]), ("https://a/c", ["https://a/b", "https://a/"])]
    assert found == (
        of_linkdb if name == "nutch-links" else [("https://a/", ["https://a/b"]), ("https://a/b", ["https://a/c"])]
    )
    (reject,) = [one for _, one in items if isinstance(one, Reject)]
    assert reject.reason is Reason.NOT_AN_EVENT
    for number, (start, _) in enumerate(items):
        assert items_of(file, Reading(name), start) == items[number:]


# -- files that are recognised, and not read


NOT_READ = {
    "links of Screaming Frog": (INLINKS, "graph build --input-format screaming-frog-links"),
    "the linkdb": (LINKDB, "graph build --input-format nutch-links"),
    "a table without statuses": ('"Address","H1-1","Indexability"\n"https://a/","A","Indexable"\n', "export the tab"),
    "other columns": (" CDX A b e a m s c k r V v D d g M n\na 2026 1 a:80/ t 200\n", "N b a m s k r M S V g"),
    "ARC of version 2": (
        "filedesc://a 0.0.0.0 20260504060000 text/plain 200 - - 0 a 99\n2 0 IA\nURL\n",
        "convert it to WARC",
    ),
    "a list of URLs": ("https://a/\nhttps://b/\n", "--input-format hakrawler"),
}


@pytest.mark.parametrize("case", NOT_READ)
def test_what_is_recognised_and_not_read_is_named_with_what_to_do(case: str, tmp_path: Path) -> None:
    text, words = NOT_READ[case]
    file = tmp_path / "log"
    file.write_text(text)
    with pytest.raises(InputRefused, match=re.escape(words)):
        format_of(str(file))


def test_a_list_of_urls_is_announced_where_users_say_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "found"
    file.write_text("https://a/\nhttps://b/\n")
    for name in ("hakrawler", "gospider"):
        assert events_of(file, Reading(name)) == [
            CrawlEvent(url, announce=True) for url in ("https://a/", "https://b/")
        ]


def test_columns_that_crawlers_use_do_not_make_pages_of_an_edge_list(tmp_path: Path) -> None:
    file = tmp_path / "edges.csv"
    file.write_text("url,source\nhttps://a/,https://b/\nhttps://b/,https://c/\n")
    assert format_of(str(file)) is Format.EDGES


@pytest.mark.parametrize("part, value", [("crawl", "404"), ("#debug", "404")])
def test_a_status_of_apify_is_read_in_csv(part: str, value: str, tmp_path: Path) -> None:
    name = {"crawl": "httpStatusCode", "#debug": "statusCode"}[part]
    file = tmp_path / "items.csv"
    file.write_text(f"{part}/loadedUrl,{part}/{name},url\nhttps://a/,{value},https://a/\n")
    assert events_of(file) == [CrawlEvent("https://a/", status=404)]
