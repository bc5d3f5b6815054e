"""A crawl event: a report of a crawler about one page; and the reasons for which one is refused.

Only `url` is required. `status` is the HTTP status; `failure` names the failure of a fetch without a status. `url` is
the page that answered; `redirects` are the URLs that led to it, the requested one first. `links` = None: unknown (no
transfer), `links` = (): the page has none. `retry_after`: for so many seconds the host wants no requests. `quality` is
what a classifier thinks of the page, from 0 to 1; another number, or NaN, is dropped later, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from opicflow.schemas.errors import UserError

MOST_LINKS = 100_000
MOST_REDIRECTS = 20
MOST_EVENT_BYTES = 32 << 20
"""A record longer than this is rejected without being read."""
MOST_LISTED = 1000
"""The most rejects of one reason that a batch lists. More are only counted: a batch may have a million rejects."""

EARLIEST_MS = 631_152_000_000
"""1990: before the first page of the web."""
LATEST_MS = 4_102_444_800_000
"""2100. A fetch outside these years is a clock gone wrong, and would drag the ticks along."""
LONGEST_RETRY_SECONDS = 30 * 86400
"""The longest wait of a host, even if it wants a longer one: a wrong header must not end its crawl."""


class Reason(str, Enum):
    """Why something is rejected: the words of the summary, the rejects and the metrics."""

    NOT_JSON = "not-json"
    NOT_UTF8 = "not-utf8"
    NOT_AN_EVENT = "not-an-event"
    NOT_A_PAGE = "not-a-page"
    BAD_FIELD = "bad-field"
    BAD_TIME = "bad-time"
    BAD_WEIGHT = "bad-weight"
    TOO_MANY_LINKS = "too-many-links"
    TOO_LARGE = "too-large"
    CORRUPT = "corrupt"
    WRONG_SCHEMA = "wrong-schema"
    EMPTY_FILE = "empty-file"
    COLLISION = "collision"
    """By a ledger: a visit or an announcement whose page id is that of another URL."""
    REFUSED = "refused"
    """By a ledger: an entry that would leave a hole or break the books, or a policy that is impossible."""


class EventRefused(UserError, ValueError):
    """An event makes no sense. The reason is a word of `Reason`, the message one line for people."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Link(NamedTuple):
    """A link as the crawler saw it. `weight` is a multiple of an ordinary link; None = ordinary."""

    url: str
    weight: float | None = None
    rel: str | None = None


BROKEN_LINK = Link("about:invalid")
"""The replacement for a link without a usable URL: it leads nowhere, and counts among links that are no pages."""


@dataclass(frozen=True)
class CrawlEvent:
    """One event, before its URLs are made canonical. Times are milliseconds since 1970, None = not known.

    `announce` is a page that was not fetched: a seed, a sitemap entry (its lastmod is `last_modified_ms`), a push.
    """

    url: str
    announce: bool = False
    fetched_at_ms: int | None = None
    status: int | None = None
    failure: str | None = None
    redirects: tuple[str, ...] = ()
    canonical: str | None = None
    content_type: str | None = None
    digest: str | None = None
    last_modified_ms: int | None = None
    links: tuple[Link, ...] | None = None
    retry_after: int | None = None
    quality: float | None = None


@dataclass(frozen=True)
class Reject:
    """An input that was refused: its bytes, the reason, its source (a file) and its offset there."""

    reason: Reason
    detail: str
    source: str
    offset: int
    bytes: bytes
