"""The first records of a log: the crawlers that wrote them, and the names of fields that are not read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from opicflow.connectors.files.crawlers.dispatch import FORMATS, format_of_record, value_of_line
from opicflow.connectors.files.crawlers.record_format import Record
from opicflow.connectors.files.csv_events import known_names, records_in
from opicflow.connectors.files.formats import Format
from opicflow.connectors.files.growing_text import GrowingText
from opicflow.connectors.files.json_values import raw_values
from opicflow.connectors.files.opening import STDIN, Blocks, decompressed
from opicflow.connectors.files.reading import ANY, Reading
from opicflow.schemas.crawl_events import EARLIEST_MS, LATEST_MS, EventRefused
from opicflow.schemas.json_events import time_ms_of

_MOST_RECORDS = 1000
_HEAD_BYTES = 1 << 20
_WORDS: dict[str, str] = {
    "url": r"url|uri|address|page|loc$|location|href",
    "links": r"link|href|anchor|target|outgoing|children",
    "status": r"status|code|http|response",
    "fetched_at": r"time|date|fetch|crawl|visit|seen|when|_at$",
    "last_modified": r"modif|change|update",
    "content_type": r"mime|type|format",
    "digest": r"digest|hash|md5|sha|etag|fingerprint|checksum",
    "redirects": r"redirect|hops|chain",
    "canonical": r"canonical",
    "failure": r"fail|error|exception",
}
"""Words in the names of fields, by which people call them."""
_MOST_VALUE = 300


@dataclass
class LogSample:
    """The first records: their number, the number of each crawler, and the names that are not read.

    `unread` has how often each name occurs, `meanings` the field that it may be.
    """

    records: int = 0
    crawlers: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    meanings: dict[str, str] = field(default_factory=dict)

    def add(self, record: Record, reading: Reading) -> None:
        """Add a record."""
        self.records += 1
        crawler = FORMATS.get(reading.format) or (None if reading.format else format_of_record(record))
        if crawler is not None:
            self.crawlers[crawler.name] += crawler.recognises(record, is_named=True)
            return
        known = known_names(reading)
        found = {field for field, names in reading.field_names.items() if not record.keys().isdisjoint(names)}
        for name, value in record.items():
            if name not in known:
                self.unread[name] += 1
                meaning = likely_field(name, value)
                if meaning is not None and meaning not in found:
                    self.meanings.setdefault(name, meaning)


def sample_log(file: str, format_: Format, reading: Reading = ANY, sample: LogSample | None = None) -> LogSample:
    """Add the first records of a file to a sample. Standard input cannot be read twice: it adds nothing."""
    sample = LogSample() if sample is None else sample
    if file != STDIN and format_ in _RECORDS:
        blocks = islice(decompressed(file, block_bytes=_HEAD_BYTES), 1)
        for record in islice(_RECORDS[format_](blocks, reading), _MOST_RECORDS):
            sample.add(record, reading)
    return sample


def likely_field(name: str, value: object) -> str | None:
    """Return the field that a name and its value may mean; None if there is none such."""
    for meaning, words in _WORDS.items():
        if re.search(words, name.lower()[:_MOST_VALUE]) and _can_be(meaning, value):
            return meaning
    return None


def _can_be(meaning: str, value: object) -> bool:
    text = value[:_MOST_VALUE].strip() if isinstance(value, str) else None
    if meaning in ("url", "canonical"):
        return text is not None and re.match(r"https?://", text) is not None
    if meaning in ("links", "redirects"):
        return isinstance(value, list)
    if meaning == "status":
        number = int(text) if text and re.fullmatch("[0-9]{3}", text) else value
        return isinstance(number, int) and 100 <= number < 600
    if meaning in ("fetched_at", "last_modified"):
        time_ms = time_ms_of(text if text is not None else value)
        return time_ms is not None and EARLIEST_MS <= time_ms < LATEST_MS
    if meaning == "content_type":
        return text is not None and re.fullmatch(r"[a-z]+/[\w.+-]+.*", text.lower()) is not None
    return bool(text)


def _records_of_lines(blocks: Blocks, reading: Reading) -> Iterator[Record]:
    text, has_ended = GrowingText(blocks), True
    while has_ended:
        line, has_ended = text.next_line()
        record = _record_of(line, reading)
        if record is not None:
            yield record


def _record_of(line: bytes, reading: Reading) -> Record | None:
    """Return the record of a line; None if it has none."""
    try:
        value = value_of_line(line, "line", reading)
    except EventRefused:
        return None
    return value if isinstance(value, dict) else None


def _records_of_values(blocks: Blocks, reading: Reading) -> Iterator[Record]:
    for value in raw_values(blocks):
        record = _record_of(value.original, reading)
        if record is not None:
            yield record


def _records_of_rows(blocks: Blocks, reading: Reading) -> Iterator[Record]:
    return records_in(GrowingText(blocks), reading)


_RECORDS = {Format.JSONL: _records_of_lines, Format.JSON: _records_of_values, Format.CSV: _records_of_rows}
