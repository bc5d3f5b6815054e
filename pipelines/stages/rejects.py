"""Rejects of events: as lines of JSON, and those that only a ledger finds."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import numpy as np
import orjson

from opicflow.pipelines.ledger import CrawlItems, Fate
from opicflow.schemas.arrays import Bytes
from opicflow.schemas.crawl_events import MOST_LISTED, Reason, Reject


def reject_line(reject: Reject, file: str) -> bytes:
    """Return a reject as a line of JSON. Its bytes are text if they are UTF-8, else base64."""
    record: dict[str, str | int] = {
        "reason": reject.reason.value,
        "detail": reject.detail,
        "source": file,
        "offset": reject.offset,
    }
    try:
        record["bytes"] = reject.bytes.decode("utf-8")
    except UnicodeDecodeError:
        record["bytes_base64"] = base64.b64encode(reject.bytes).decode("ascii")
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def collisions(items: CrawlItems, fates: Bytes, source: str) -> Iterator[Reject]:
    """Yield the rows of an entry whose page id is that of another URL, as rejects. `fates` are those of the last rows.

    If there are many, the first ones are listed, and the number of the others.

    Of such URLs the first one keeps the page. The others have no page, and links to them pay the first.
    """
    rows = len(items) - len(fates) + np.flatnonzero(fates == Fate.COLLIDED)
    for row in rows[:MOST_LISTED].tolist():
        url = items.url_bytes[int(items.url_starts[row]) : int(items.url_starts[row + 1])].tobytes()
        detail = f"another URL has the page id of this one, {int(items.page[row]):016x}: it was known first"
        yield Reject(Reason.COLLISION, detail, source, int(items.offset[row]), url)
    if len(rows) > MOST_LISTED:
        more = f"{len(rows) - MOST_LISTED:,} more rows like it after this one are not listed"
        yield Reject(Reason.COLLISION, more, source, int(items.offset[rows[-1]]), b"")
