"""hakrawler and gospider: a line is a page that was found, or one that answered, as text or as a JSON object."""

from __future__ import annotations

import re

from opicflow.connectors.files.crawlers.record_format import (
    LineFormat,
    Record,
    RecordFormat,
    decoded_texts,
    http_status,
    number_at,
    signs,
    text_at,
    url_at,
)
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Reason

_URL = rb"[A-Za-z][\w+.-]*:\S+"
_MARKED = re.compile(
    rb"(?=\[)(?:\[(?P<Where>[A-Za-z][\w+.-]*://\S+)\] )?(?:\[(?P<Source>href|script|form)\] )?(?P<URL>"
    + _URL
    + rb")\r?"
)
_LABELLED = re.compile(
    rb"\[(?P<type>[A-Za-z0-9-]{1,20})\] -(?: \[code-(?P<status>\d{1,4})\] -)?(?: \[len_\d+\] -)?(?: (?P<output>.*))?"
)
_PLAIN = rb"|(?P<plain>https?://\S+)\r?"
"""A line without a mark is a URL only if users name the format: other lists of URLs may mean something else."""
_PAGES = ("url", "href", "javascript", "form", "upload-form", "robots", "sitemap", "other-sources")
_NO_PAGES = ("subdomain", "subdomains", "was", "aws-s3", "linkfinder")
"""Hosts, buckets, and guesses from scripts: gospider requests these, and writes a line for each answer."""
_CONTENT = "raw"


def _hakrawler_record(line: re.Match[bytes]) -> Record:
    found = decoded_texts(line.groupdict())
    return {"Source": "", "Where": "", "URL": found.pop("plain", ""), **found}


def _read_hakrawler(record: Record) -> CrawlEvent:
    return CrawlEvent(url_at(record, "URL"), announce=True)


def _link_of(record: Record) -> list[str]:
    where, url = text_at(record, "Where"), url_at(record, "URL")
    return [where, url] if where else []


def _gospider_record(line: re.Match[bytes]) -> Record:
    found = decoded_texts(line.groupdict())
    return {"input": "", "source": "", "type": "url", "output": found.pop("plain", ""), **found}


def _read_gospider(record: Record) -> CrawlEvent | None:
    kind, status = (text_at(record, "type") or "").lower(), number_at(record, "status")
    if kind in _NO_PAGES:
        return None
    if kind == _CONTENT:
        raise EventRefused(Reason.BAD_FIELD, "type: contents of pages follow: run gospider without --raw")
    if kind not in _PAGES:
        raise EventRefused(Reason.BAD_FIELD, f"type: {kind[:20]!r} is none of gospider")
    url = url_at(record, "output").strip()
    if not status:
        return CrawlEvent(url, announce=True)
    return CrawlEvent(url, status=http_status(status, "status"))


HAKRAWLER = RecordFormat(
    name="hakrawler",
    title="hakrawler",
    lacks="its lines are pages that were found, not fetched: with -w they name the page that links, which "
    "--input-format hakrawler-links reads",
    signs=signs("Source URL Where"),
    read=_read_hakrawler,
    line=LineFormat("hakrawler", _MARKED, _hakrawler_record, re.compile(_MARKED.pattern + _PLAIN)),
    link_of=_link_of,
)
GOSPIDER = RecordFormat(
    name="gospider",
    title="gospider",
    lacks="its lines have neither links nor times, and it leaves out pages that answer 404, 429 or 500 and above",
    signs=signs("input source type output"),
    read=_read_gospider,
    line=LineFormat("gospider", _LABELLED, _gospider_record, re.compile(_LABELLED.pattern + _PLAIN)),
)
