"""Writes one small made-up crawl as the logs of other crawlers, into examples/crawlers.

    .venv/bin/python examples/crawler_logs.py [FOLDER]

The formats are those of the crawlers' own sources; every URL, digest and time is made up. The same files come out each
time. docs/guides/other-crawlers.md lists the fields that are read.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

SITE = "https://tern.example"
BEGAN = datetime(2026, 5, 4, 6, 0, 0, 123000, timezone.utc)
INTERVAL_SECONDS = 2_592_000


@dataclass(frozen=True)
class Fetch:
    """A crawler's fetch of one URL. `began` None: it waits, and was not fetched."""

    url: str
    began: datetime | None = None
    status: int | None = None
    failure: str | None = None
    media: str | None = None
    links: tuple[str, ...] = ()
    found_on: str | None = None
    leads_to: str | None = None

    @property
    def digest(self) -> str | None:
        """Of the content, if there is any."""
        return hashlib.sha1(self.url.encode()).hexdigest() if self.status == 200 else None

    @property
    def began_ms(self) -> int | None:
        """Milliseconds since 1970."""
        return None if self.began is None else round(self.began.timestamp() * 1000)


def _at(minutes: int) -> datetime:
    return BEGAN + timedelta(minutes=minutes)


HOME, MAP = f"{SITE}/", f"{SITE}/map?at=1,2&name=%22north%22"
FETCHES = (
    Fetch(HOME, _at(0), 200, media="text/html", links=(f"{SITE}/old", MAP, f"{SITE}/birds.pdf", f"{SITE}/gone")),
    Fetch(f"{SITE}/old", _at(1), 301, found_on=HOME, leads_to=f"{SITE}/new"),
    Fetch(f"{SITE}/new", _at(2), 200, media="text/html", links=(HOME,), found_on=f"{SITE}/old"),
    Fetch(MAP, _at(3), 200, media="text/html", links=(), found_on=HOME),
    Fetch(f"{SITE}/birds.pdf", _at(4), 200, media="application/pdf", found_on=HOME),
    Fetch(f"{SITE}/gone", _at(5), 404, media="text/html", found_on=HOME),
    Fetch(f"{SITE}/private", _at(6), failure="robots", found_on=f"{SITE}/new"),
    Fetch(f"{SITE}/down", _at(7), failure="timeout", found_on=f"{SITE}/new"),
    Fetch(f"{SITE}/same", _at(8), 304, found_on=HOME),
    Fetch(f"{SITE}/waiting", found_on=HOME),
)


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"


def _digits(moment: datetime) -> str:
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03}"


def _java(moment: datetime) -> str:
    return moment.strftime("%a %b %d %H:%M:%S UTC %Y")


def _lines(objects: list[dict[str, object]]) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


# -- Heritrix ----------------------------------------------------------------------------------------------------------

_HERITRIX_FAILURES = {"robots": -9998, "timeout": -4}


def _hops(fetch: Fetch) -> str:
    return "-" if fetch.found_on is None else "LR" if fetch.found_on.endswith("/old") else "L"


def heritrix_log() -> str:
    """Return a crawl.log: it begins with the host's address and robots.txt, and has nothing of pages that wait."""
    lines = [
        f"{_iso(BEGAN)} {status:5}         52 {url} P {HOME} {media} #001 {_digits(BEGAN)}+12 - - -"
        for status, url, media in ((1, "dns:tern.example", "text/dns"), (200, f"{SITE}/robots.txt", "text/plain"))
    ]
    for fetch in FETCHES:
        if fetch.began is None:
            continue
        status = fetch.status or _HERITRIX_FAILURES[fetch.failure or ""]
        ended, begun = _iso(fetch.began + timedelta(milliseconds=80)), f"{_digits(fetch.began)}+80"
        digest = f"sha1:{fetch.digest}" if fetch.digest else "-"
        lines.append(
            f"{ended} {status:5} {len(fetch.url) if fetch.status else '-':>10} {fetch.url} {_hops(fetch)} "
            f"{fetch.found_on or '-'} {fetch.media or 'unknown'} #002 {begun if fetch.status else '-'} "
            f"{digest} {HOME} -"
        )
    return "\n".join(lines) + "\n"


def heritrix_feed() -> str:
    """Return the messages of the feed to Kafka, which also names pages that wait."""
    objects: list[dict[str, object]] = []
    for fetch in FETCHES:
        began = fetch.began or BEGAN
        status = fetch.status or (_HERITRIX_FAILURES[fetch.failure] if fetch.failure else 0)
        objects.append(
            {
                "timestamp": _iso(began + timedelta(milliseconds=80)),
                "size": None,
                "status_code": status,
                "url": fetch.url,
                "hop_path": "" if _hops(fetch) == "-" else _hops(fetch),
                "via": fetch.found_on,
                "mimetype": fetch.media or "unknown",
                "thread": 2,
                "start_time_plus_duration": f"{_digits(began)}+80" if fetch.status else None,
                "content_digest": f"sha1:{fetch.digest}" if fetch.digest else None,
                "seed": HOME,
                "annotations": "",
                "extra_info": {},
            }
        )
    return _lines(objects)


# -- Nutch -------------------------------------------------------------------------------------------------------------

_CRAWLDB = {200: (2, "db_fetched"), 301: (5, "db_redir_perm"), 304: (6, "db_notmodified"), 404: (3, "db_gone")}
_PROTOCOL = {200: "success(1)", 301: "moved(12)", 304: "notmodified(21)", 404: "notfound(14)"}


def _protocol(fetch: Fetch) -> str:
    name = _PROTOCOL.get(
        fetch.status or 0, {"robots": "robots_denied(18)", "timeout": "exception(16)"}.get(fetch.failure or "", "")
    )
    return f"{name}, lastModified=0" + (f": {fetch.leads_to}" if fetch.leads_to else "")


def _crawldb_rows() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for fetch in FETCHES:
        code, name = _CRAWLDB.get(
            fetch.status or 0, (3, "db_gone") if fetch.failure == "robots" else (1, "db_unfetched")
        )
        next_fetch = (fetch.began or BEGAN) + timedelta(seconds=INTERVAL_SECONDS)
        rows.append(
            {
                "url": fetch.url,
                "statusCode": code,
                "statusName": name,
                "fetchTime": _java(next_fetch),
                "modifiedTime": _java(datetime(1970, 1, 1, tzinfo=timezone.utc)),
                "retriesSinceFetch": 1 if fetch.failure == "timeout" else 0,
                "retryIntervalSeconds": INTERVAL_SECONDS,
                "retryIntervalDays": 30,
                "score": 1.0,
                "signature": fetch.digest or "null",
                "metadata": {"_pst_": _protocol(fetch)} if fetch.began else {},
            }
        )
    return rows


def nutch_crawldb() -> str:
    """Return what `readdb -dump -format json` writes."""
    return _lines(_crawldb_rows())


def nutch_crawldb_csv() -> str:
    """Return what `readdb -dump -format csv` writes: texts in quotes, dates without."""
    head = (
        "Url,Status code,Status name,Fetch Time,Modified Time,Retries since fetch,Retry interval seconds,"
        "Retry interval days,Score,Signature,Metadata\n"
    )
    lines = [head]
    for row in _crawldb_rows():
        metadata = row["metadata"]
        assert isinstance(metadata, dict)
        packed = "".join(f"{name}:{value}|||" for name, value in metadata.items())
        lines.append(
            f'"{row["url"]}",{row["statusCode"]},"{row["statusName"]}",{row["fetchTime"]},{row["modifiedTime"]},'
            f'{row["retriesSinceFetch"]},{float(INTERVAL_SECONDS)},30.0,1.0,"{row["signature"]}","{packed}"\n'
        )
    return "".join(lines)


def nutch_crawldb_text() -> str:
    """Return what `readdb -dump` writes."""
    found = []
    for row in _crawldb_rows():
        metadata = row["metadata"]
        assert isinstance(metadata, dict)
        packed = "".join(f"\t{name}={value}\n " for name, value in metadata.items())
        found.append(
            f"{row['url']}\tVersion: 7\nStatus: {row['statusCode']} ({row['statusName']})\n"
            f"Fetch time: {row['fetchTime']}\nModified time: {row['modifiedTime']}\n"
            f"Retries since fetch: {row['retriesSinceFetch']}\nRetry interval: {INTERVAL_SECONDS} seconds (30 days)\n"
            f"Score: 1.0\nSignature: {row['signature']}\nMetadata: \n {packed}\n\n"
        )
    return "".join(found)


_SEGMENT = {
    200: (33, "fetch_success"),
    301: (36, "fetch_redir_perm"),
    304: (38, "fetch_notmodified"),
    404: (37, "fetch_gone"),
}


def _datum(code: int, name: str, fetch: Fetch, signature: str = "null") -> str:
    pst = f"\t_pst_={_protocol(fetch)}\n" if code in range(33, 39) else ""
    return (
        f"\nCrawlDatum::\nVersion: 7\nStatus: {code} ({name})\nFetch time: {_java(fetch.began or BEGAN)}\n"
        f"Modified time: {_java(datetime(1970, 1, 1, tzinfo=timezone.utc))}\nRetries since fetch: 0\n"
        f"Retry interval: {INTERVAL_SECONDS} seconds (30 days)\nScore: 1.0\nSignature: {signature}\nMetadata: \n {pst}"
    )


def nutch_segment() -> str:
    """Return what `readseg -dump -nocontent -noparsetext` writes."""
    found = []
    for number, fetch in enumerate(FETCHES):
        text = f"\nRecno:: {number}\nURL:: {fetch.url}\n" + _datum(1, "db_unfetched", fetch)
        if fetch.began is not None:
            gone = (37, "fetch_gone") if fetch.failure == "robots" else (34, "fetch_retry")
            text += _datum(*_SEGMENT.get(fetch.status or 0, gone), fetch)
        if fetch.digest is not None:
            text += _datum(65, "signature", fetch, fetch.digest)
            links = "".join(f"  outlink: toUrl: {link} anchor: to\n" for link in fetch.links)
            text += (
                f"\nParseData::\nVersion: 5\nStatus: success(1,0)\nTitle: A page\nOutlinks: {len(fetch.links)}\n{links}"
                f"Content Metadata:\n  Content-Type = {fetch.media}\nParse Metadata:\n  Charset = utf-8\n"
            )
        found.append(text + "\n")
    return "".join(found)


# -- others ------------------------------------------------------------------------------------------------------------


def stormcrawler_status() -> str:
    """Return documents of the status index. The second has what a dump puts around a document."""
    objects: list[dict[str, object]] = []
    for fetch in FETCHES:
        metadata: dict[str, list[str]] = {}
        metadata["discoveryDate" if fetch.began is None else "lastProcessedDate"] = [_iso(fetch.began or BEGAN)]
        word = "DISCOVERED"
        if fetch.began is not None:
            word = {200: "FETCHED", 304: "FETCHED", 301: "REDIRECTION"}.get(fetch.status or 0, "FETCH_ERROR")
        if fetch.failure == "robots":
            word, metadata["error%2Ecause"] = "ERROR", ["robots.txt"]
        if fetch.status is not None and fetch.status != 200:
            metadata["fetch%2EstatusCode"] = [str(fetch.status)]
        if fetch.leads_to:
            metadata["_redirTo"] = [fetch.leads_to]
        document = {
            "url": fetch.url,
            "status": word,
            "metadata": metadata,
            "nextFetchDate": _iso(_at(1440)),
        }
        objects.append({"_index": "status", "_source": document} if len(objects) == 1 else document)
    return _lines(objects)


def browsertrix_pages() -> str:
    """Return a pages.jsonl. Pages that redirect, and those that wait, are not in it."""
    objects: list[dict[str, object]] = [{"format": "json-pages-1.0", "id": "pages", "title": "Pages", "hasText": False}]
    for number, fetch in enumerate(FETCHES):
        if fetch.began is None or fetch.leads_to:
            continue
        row: dict[str, object] = {"id": f"00000000-0000-4000-8000-{number:012}", "url": fetch.url, "title": "A page"}
        row["loadState"] = 4 if fetch.status == 200 else 0
        row["ts"] = _iso(fetch.began)
        row |= {name: value for name, value in (("mime", fetch.media), ("status", fetch.status)) if value}
        objects.append(row)
    return _lines(objects)


def _crawlee_request(fetch: Fetch) -> dict[str, object]:
    request: dict[str, object] = {
        "id": hashlib.sha256(fetch.url.encode()).hexdigest()[:15],
        "url": fetch.url,
        "uniqueKey": fetch.url,
        "method": "GET",
        "noRetry": False,
        "retryCount": 3 if fetch.failure else 0,
        "errorMessages": ["no answer"] * 4 if fetch.failure else [],
        "headers": {},
        "userData": {},
        "handledAt": _iso(fetch.began) if fetch.began else None,
    }
    if fetch.status is not None:
        request["loadedUrl"] = fetch.leads_to or fetch.url
    return request


def crawlee_requests() -> str:
    """Return requests as lines, the first as the storage on disk packs it."""
    requests = [_crawlee_request(fetch) for fetch in FETCHES]
    first = {name: requests[0][name] for name in ("id", "url", "uniqueKey", "method", "retryCount")}
    return _lines([{**first, "orderNo": None, "json": json.dumps(requests[0])}, *requests[1:]])


_CRAWLEE_DONE, _CRAWLEE_ERROR = 4, 6


def crawlee_python() -> str:
    """Return the files of a queue of Crawlee for Python, one behind the other: the first is about the queue."""
    queue = {"id": "none", "name": None, "created_at": f"{BEGAN}", "had_multiple_clients": False}
    objects: list[dict[str, object]] = [{**queue, "handled_request_count": 9, "total_request_count": 10}]
    for fetch in FETCHES:
        ended = {"state": _CRAWLEE_ERROR if fetch.failure else _CRAWLEE_DONE} if fetch.began else {"crawlDepth": 1}
        objects.append(
            {
                "unique_key": fetch.url,
                "url": fetch.url,
                "method": "GET",
                "payload": None,
                "headers": {},
                "user_data": {"__crawlee": ended},
                "retry_count": 0,
                "no_retry": False,
                "loaded_url": (fetch.leads_to or fetch.url) if fetch.began else None,
                "handled_at": f"{fetch.began}" if fetch.began else None,
            }
        )
    return "\n".join(json.dumps(one, indent=2) for one in objects)


def crawlee_files() -> str:
    """Return the files of a queue on disk, one behind the other: objects over several lines."""
    return "".join(json.dumps(_crawlee_request(fetch), indent=4) + "\n" for fetch in FETCHES)


def katana_lines() -> str:
    """Return what `katana -jsonl` writes."""
    objects: list[dict[str, object]] = []
    for fetch in FETCHES:
        request = {"method": "GET", "endpoint": fetch.url, "tag": "a", "attribute": "href"}
        request |= {"source": fetch.found_on} if fetch.found_on else {}
        row: dict[str, object] = {"timestamp": _iso(fetch.began or BEGAN), "request": request}
        if fetch.status:
            headers = {"content-type": fetch.media} if fetch.media else {}
            headers |= {"location": fetch.leads_to} if fetch.leads_to else {}
            row["response"] = {"status_code": fetch.status, "headers": headers, "content_length": 1}
        if fetch.failure:
            row["error"] = f"could not request: {fetch.failure}"
        objects.append(row)
    return _lines(objects)


def common_crawl_columns() -> str:
    """Return rows of the columnar index as JSON lines."""
    return _lines(
        [
            {
                "url_surtkey": "example,tern)/",
                "url": fetch.url,
                "fetch_time": _iso(fetch.began)[:-1].replace("T", " "),
                "fetch_status": fetch.status,
                "fetch_redirect": fetch.leads_to,
                "content_digest": fetch.digest,
                "content_mime_type": "text/plain",
                "content_mime_detected": fetch.media,
                "warc_filename": "none.warc.gz",
            }
            for fetch in FETCHES
            if fetch.began is not None and fetch.status is not None
        ]
    )


def common_crawl_index() -> str:
    """Return lines of the URL index (CDXJ). Its times have no milliseconds."""
    lines = []
    for fetch in FETCHES:
        if fetch.began is None or fetch.status is None:
            continue
        row = {"url": fetch.url, "mime": "text/plain", "mime-detected": fetch.media, "status": str(fetch.status)}
        row |= {"digest": fetch.digest, "redirect": fetch.leads_to, "filename": "none.warc.gz"}
        packed = json.dumps({name: value for name, value in row.items() if value})
        lines.append(f"example,tern)/ {_digits(fetch.began)[:14]} {packed}\n")
    return "".join(lines)


def cdx() -> str:
    """Return an index of 11 columns. Its times have no milliseconds, and the host's address is in it, too."""
    lines = [
        " CDX N b a m s k r M S V g",
        f"dns:tern.example {_digits(BEGAN)[:14]} dns:tern.example text/dns - X - - 1 0 f",
    ]
    for fetch in FETCHES:
        if fetch.began is not None and fetch.status is not None:
            values = (fetch.media or "text/plain", str(fetch.status), fetch.digest or "-", fetch.leads_to or "-")
            line = f"example,tern)/ {_digits(fetch.began)[:14]} {fetch.url} {' '.join(values)} - 100 0 none.warc.gz"
            lines.append(line)
    return "\n".join(lines) + "\n"


def arc() -> str:
    """Return an archive of version 1: pages that answered, and the host's address before them."""
    first = "1 0 InternetArchive\nURL IP-address Archive-date Content-type Archive-length\n"
    records = [
        f"filedesc://none.arc 0.0.0.0 {_digits(BEGAN)[:14]} text/plain {len(first)}\n{first}",
        f"dns:tern.example 192.0.2.1 {_digits(BEGAN)[:14]} text/dns 9\n192.0.2.1",
    ]
    for fetch in FETCHES:
        if fetch.began is None or fetch.status is None:
            continue
        head = f"Content-Type: {fetch.media}\r\n" if fetch.media else ""
        head += f"Location: {fetch.leads_to}\r\n" if fetch.leads_to else ""
        body = "".join(f'<a href="{link.replace("&", "&amp;")}">to</a>' for link in fetch.links)
        answer = f"HTTP/1.1 {fetch.status} said\r\n{head}\r\n{body}"
        media = fetch.media or "no-type"
        records.append(f"{fetch.url} 192.0.2.1 {_digits(fetch.began)[:14]} {media} {len(answer)}\n{answer}")
    return "\n".join(records) + "\n"


def apify_items() -> str:
    """Return items of Apify's Website Content Crawler. Pages that did not answer, or wait, are not in it."""
    objects: list[dict[str, object]] = []
    for fetch in FETCHES:
        if fetch.began is None or fetch.status is None:
            continue
        loaded = {"loadedUrl": fetch.leads_to or fetch.url, "loadedTime": _iso(fetch.began), "depth": 1}
        status = 200 if fetch.leads_to else fetch.status
        objects.append({"url": fetch.url, "crawl": {**loaded, "httpStatusCode": status}, "text": "A page"})
    return _lines(objects)


_FROG_WORDS = {200: "OK", 301: "Moved Permanently", 304: "Not Modified", 404: "Not Found"}


def screaming_frog() -> str:
    """Return the table of the tab Internal, some of its columns. A page that waits is not in it."""
    out = io.StringIO(newline="")
    out.write("\ufeff")
    rows = csv.writer(out, quoting=csv.QUOTE_ALL)
    pages = ("Address", "Content Type", "Status Code", "Status", "Indexability", "Indexability Status", "Title 1")
    rows.writerow((*pages, "Canonical Link Element 1", "Crawl Depth", "Hash", "Redirect URL", "Crawl Timestamp"))
    for fetch in FETCHES:
        if fetch.began is None:
            continue
        words = "Blocked by robots.txt" if fetch.failure == "robots" else _FROG_WORDS.get(fetch.status or 0, "")
        kind = "Indexable" if fetch.status == 200 else "Non-Indexable"
        began = fetch.began.strftime("%Y-%m-%d %H:%M:%S")
        found = [fetch.url, fetch.media, fetch.status or 0, words, kind, "", "A page", ""]
        rows.writerow([*found, 1, fetch.digest, fetch.leads_to, began])
    return out.getvalue()


def hakrawler_lines() -> str:
    """Return what `hakrawler -w -s` writes: the page that links, the attribute, and the URL."""
    return "".join(f"[{fetch.found_on}] [href] {fetch.url}\n" for fetch in FETCHES if fetch.found_on)


def gospider_lines() -> str:
    """Return what `gospider` writes: pages that answer 404, or not at all, are left out, and there are guesses."""
    lines = ["[subdomains] - http://old.tern.example", f"[linkfinder] - [from: {SITE}/app.js] - text/xml"]
    for fetch in FETCHES:
        if fetch.began is None:
            lines.append(f"[form] - {fetch.url}")
        elif fetch.status not in (None, 404):
            lines.append(f"[url] - [code-{fetch.status}] - {fetch.url}")
    return "\n".join(lines) + "\n"


def _items() -> list[dict[str, object]]:
    return [
        {
            "url": fetch.url,
            "status": fetch.status,
            "fetched_at": _iso(fetch.began),
            "content_type": fetch.media,
            "links": list(fetch.links) if fetch.status == 200 else None,
            "title": 'A page, "quoted"',
        }
        for fetch in FETCHES
        if fetch.began is not None and fetch.status is not None
    ]


def scrapy_json() -> str:
    """Return a feed of Scrapy, `-O items.json`."""
    return "[\n" + ",\n".join(json.dumps(item) for item in _items()) + "\n]"


def scrapy_csv() -> str:
    """Return a feed of Scrapy, `-O items.csv`: lists are joined with commas, nothing is an empty value."""
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    rows.writerow(list(_items()[0]))
    for item in _items():
        rows.writerow([",".join(value) if isinstance(value, list) else value for value in item.values()])
    return out.getvalue()


LOGS: dict[str, Callable[[], str]] = {
    "heritrix-crawl.log": heritrix_log,
    "heritrix-feed.jsonl": heritrix_feed,
    "nutch-crawldb.jsonl": nutch_crawldb,
    "nutch-crawldb.csv": nutch_crawldb_csv,
    "nutch-crawldb.txt": nutch_crawldb_text,
    "nutch-segment.txt": nutch_segment,
    "stormcrawler-status.jsonl": stormcrawler_status,
    "browsertrix-pages.jsonl": browsertrix_pages,
    "crawlee-requests.jsonl": crawlee_requests,
    "crawlee-requests.json": crawlee_files,
    "crawlee-python.json": crawlee_python,
    "katana.jsonl": katana_lines,
    "common-crawl-columns.jsonl": common_crawl_columns,
    "common-crawl-index.cdxj": common_crawl_index,
    "common-crawl-index.cdx": cdx,
    "arc-pages.arc": arc,
    "apify-items.jsonl": apify_items,
    "screaming-frog-internal.csv": screaming_frog,
    "hakrawler-found.txt": hakrawler_lines,
    "gospider-lines.txt": gospider_lines,
    "scrapy-items.json": scrapy_json,
    "scrapy-items.csv": scrapy_csv,
}
"""The names of the files, and their contents."""


def write_logs(folder: Path) -> None:
    """Write all logs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text_of in LOGS.items():
        (folder / name).write_bytes(text_of().encode())


if __name__ == "__main__":
    write_logs(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "crawlers")
