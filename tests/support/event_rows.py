"""Crawl events as plain rows, so that two decoders can be compared."""

from __future__ import annotations

import numpy as np
import orjson
from hypothesis import strategies as st

from opicflow.connectors.files.crawlers.dispatch import event_of_record
from opicflow.schemas.crawl_events import CrawlEvent, EventRefused, Link, Reason
from opicflow.schemas.event_columns import (
    MEDIA_TYPES,
    CrawlEvents,
    EventWriter,
)

Row = tuple[object, ...]


def rows_of(events: CrawlEvents) -> list[Row]:
    """Return the columns as a row for each event."""
    assert (np.diff(events.offset) > 0).all() and len(events.url_starts) == len(events) + 1
    assert np.diff(events.url_starts).sum() == len(events.begins)
    urls = [
        (events.text[begin:end].tobytes() if begin >= 0 else None, weight, nofollow)
        for begin, end, weight, nofollow in zip(
            events.begins.tolist(), events.ends.tolist(), events.weights.tolist(), events.nofollow.tolist(), strict=True
        )
    ]
    own = (
        *("offset", "announce", "time_ms", "modified_ms", "status", "digest", "media", "links_known"),
        *("retry_seconds", "quality", "hops"),
    )
    starts = events.url_starts.tolist()
    columns = (getattr(events, name).tolist() for name in own)
    return [(*row, tuple(urls[i:j])) for *row, i, j in zip(*columns, starts[:-1], starts[1:], strict=True)]


def json_without_the_kernel(block: bytes, first_offset: int = 0) -> tuple[list[Row], list[tuple[Reason, int, bytes]]]:
    """Decode lines one at a time with orjson and `event_of_record`: the expected result."""
    writer, rejects, at = EventWriter(), [], first_offset
    for whole in block.split(b"\n"):
        line = whole.rstrip(b" \t\r")
        if line:
            try:
                line.decode()
                event = event_of_record(orjson.loads(line.removeprefix(b"\xef\xbb\xbf")))
                if event is not None:
                    writer.add(at, event)
            except UnicodeDecodeError:
                rejects.append((Reason.NOT_UTF8, at, line))
            except orjson.JSONDecodeError:
                rejects.append((Reason.NOT_JSON, at, line))
            except EventRefused as problem:
                rejects.append((problem.reason, at, line))
        at += len(whole) + 1
    return rows_of(writer.events()), rejects


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "http://a.b/",
        "x" * 70,
        "nofollow",
        "NoFollow ugc",
        "x\tsponsored",
        "robots",
        "ROBOTS_TXT",
        "too-many-requests",
        "gone",
        "dns",
        "",
        " ",
    ]
)


times = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(631_152_000_000, 4_102_444_800_000)


weights = st.floats() | st.floats(0, 70) | st.sampled_from([0.0, -0.0, 0.5, 5e-324, 2.5, 63.9999, 1e308, 0.00048828125])


links = st.builds(Link, texts, st.none() | weights, st.none() | texts)


good_links = st.builds(Link, texts, st.none() | st.floats(0, 1e300), st.none() | texts)


content_types = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "", " \t", "\x0f"]),
    st.sampled_from([*MEDIA_TYPES, "image/svg+xml", "TEXT/HTML", "text/plain", "text\x0fhtml", "a+XML", "+xm", ""]),
    st.sampled_from(["", "", " ", "x", "é", ";charset=utf-8", " ; +xml", "; a\\"]),
)


events = st.builds(
    CrawlEvent,
    url=texts,
    announce=st.booleans(),
    fetched_at_ms=st.none() | times,
    status=st.none() | st.integers(100, 999) | st.integers(-(2**31), 2**31 - 1),
    failure=st.none() | st.none() | texts,
    redirects=st.lists(texts, max_size=4).map(tuple) | st.just(("",) * 20),
    canonical=st.none() | texts,
    content_type=st.none() | texts | content_types,
    digest=st.none() | texts,
    last_modified_ms=st.none() | times,
    links=st.none() | st.lists(good_links, max_size=6).map(tuple) | st.lists(links, max_size=6).map(tuple),
    retry_after=st.none() | st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-1, 3_000_000),
    quality=st.none() | st.floats(0, 1) | st.floats(allow_nan=False) | st.integers(0, 508).map(lambda step: step / 508),
)
