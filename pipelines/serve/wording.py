"""Texts, numbers and words of pages: texts from a crawl are made safe to show, words are explained."""

from __future__ import annotations

import math

from opicflow.schemas.dates import iso_time

LONGEST_SHOWN = 160
"""Longer text is cut in its middle; the API has the whole text."""

WORDS = {
    "importance": (
        "The part of all attention that reaches a page along links. Over all pages it sums to 1; a stream publishes "
        "each page at its own moment, so sums differ while a crawl is young."
    ),
    "score": "Importance times the number of pages: 1 is an average page.",
    "not measured": "The page was not visited twice yet: it still has the history of a new page.",
    "host": "What a URL has between :// and its path, such as www.example.org.",
    "domain": "One label below a public suffix, such as example.org: what one owner registers.",
    "last outcome": "How the last visit to the page ended.",
    "trend": "How much importance changes a day, as a part of itself.",
    "certificate": "A proven bound: the sum of all differences between these ranks and the exact ones is not larger.",
    "drift": "Cash that is missing from the books, or too much. Anything but 0 is a bug.",
    "idle cash": "Cash that waits on pages which cannot pass it on. Importance is measured by the cash that moves.",
    "fresh": "The part of importance whose kept copies are expected to equal the page, under this plan.",
    "overdue": "The page should have been fetched before the end of the log, and was not.",
    "order": "A fetch that a plan requests from the crawler, not before a time.",
    "cycle": "The time from one plan to the next: an hour in a stream and a day in a replay, if not chosen otherwise.",
    "cash": "What a page passes on along its links at a visit. Its sum is known, so none can be lost unseen.",
    "shard": "A part of the pages, with books and a log of its own.",
    "tick": "A record with the time, written into every log once a second. Without ticks a stream counts nothing.",
    "audit": "The balance of a shard, published every ten seconds.",
    "settled": "Importance does not change any more unless the web does.",
    "refused entry": "A record in the log of a shard that it cannot apply, such as one that is damaged.",
    "waiting": (
        "Known by a link or an announcement, and never visited (of a stream: never read). A page that was visited and "
        "did not answer with its content is not read."
    ),
    "FETCHED": "The page answered with its content.",
    "UNCHANGED": "The server answered “not modified” (304): the content has not changed, and no links were sent.",
    "REDIRECTED": "The page leads to another one.",
    "ALIASED": "The page names another one as the page itself (canonical).",
    "GONE": "The server answered that there is no such page (404 or 410).",
    "FAILED": "No answer, or an error of the server.",
    "BLOCKED": "Access was refused, by robots.txt or by the server.",
    "BUSY": "The server wants the crawler to come back later (429 or 503).",
    "NONE": "Never visited.",
}
DECISIONS = {
    "OTHER": "not known",
    "BUDGET": "its share of the bandwidth, by importance and change rate",
    "PINNED": "a policy sets the interval",
    "FORBIDDEN": "a policy forbids it, or gives it no importance",
    "DISCOVERY": "it was never read: discovery decides",
    "BACK_OFF": "it did not answer: it waits for its next try",
    "GONE": "it is gone: it is looked at rarely",
    "LIMIT": "the shortest or the longest interval",
    "REQUESTED": "a policy requests it now",
}
KNOWN_FROM = {
    "OTHER": "not known",
    "DEFAULT": "pages like it",
    "INTERVALS": "its own visits",
    "LAST_MODIFIED": "the dates of its server",
    "POLICY": "a policy",
}
WHY = {"OTHER": "other", "REFRESH": "read again", "DISCOVERY": "never read", "REQUESTED": "requested by a policy"}
FILTERS = {"read": "visited", "unread": "never visited"}
"""How filters are called that have other names in addresses."""
REASONS = {
    "not-json": "the line is no JSON: it was cut, or something else was written into the log",
    "not-utf8": "the line is not UTF-8: write the log as UTF-8",
    "not-an-event": "there is JSON, but no event with a URL in it",
    "not-a-page": "the URL is not one of http or https, or no URL at all",
    "bad-field": "a field has a value that it cannot have",
    "bad-time": "the time cannot be read, or is in the future",
    "bad-weight": "the weight of a link is no number from 0",
    "empty-file": "the file has no bytes",
    "forgotten": "a policy has forgotten the page",
}


def safe(text: str, most: int = LONGEST_SHOWN) -> str:
    r"""Text with its invisible characters shown, cut in the middle if it is longer than `most`.

    >>> safe("a\t\u202eb"), safe("x" * 9, 5)
    ('a\\t\\u202eb', 'xxx…x')
    """
    if len(text) > most:
        head = most * 2 // 3
        text = f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"
    return visible(text)


def visible(text: str) -> str:
    """Text with its control characters, direction marks and lone surrogates shown."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def number(value: float | None) -> str:
    """A number to read: all digits of a whole one, three or more of others.

    >>> [number(value) for value in (1234567, 1234.5, 0.012345, 2e-7, float("nan"), None)]
    ['1,234,567', '1,234', '0.0123', '2·10⁻⁷', '—', '—']
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "—"
    if isinstance(value, int):
        return f"{value:,}"
    if value and not 1e-4 <= abs(value) < 1e15:
        mantissa, exponent = f"{value:.2e}".split("e")
        power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{float(mantissa):g}·10{power}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float | None) -> str:
    """A share as a percentage.

    >>> percent(0.8871), percent(0.00002), percent(None)
    ('88.7%', '0.002%', '—')
    """
    return "—" if share is None or not math.isfinite(share) else f"{number(100.0 * share)}%"


def bound(certificate: float | None) -> str:
    """A certificate as a percentage, rounded up, because it is a bound; a dash if nothing is proven.

    >>> bound(0.0000181), bound(0.109959), bound(2.0)
    ('0.0019%', '11%', '—')
    """
    if certificate is None or not 0 <= certificate < 2:  # 2 is the largest distance that there can be
        return "—"
    steps = 1e4 if certificate < 0.01 else 10.0
    return f"{math.ceil(100 * certificate * steps) / steps:g}%"


def short(value: float) -> str:
    """A number of few characters, for an axis.

    >>> [short(value) for value in (0.0, 500.0, 20_000.0, 5e6)]
    ['0', '500', '20 k', '5 M']
    """
    for unit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit <= value < 1e15:
            return f"{value / unit:.3g} {letter}"
    return number(float(value))


def trend(growth: float | None) -> str:
    """A change a day with an arrow, so that no colour is needed."""
    if growth is None:
        return "—"
    return "→ steady" if abs(growth) < 0.0005 else f"{'↑' if growth > 0 else '↓'} {percent(abs(growth))}"


def iso(time_ms: float | None) -> str:
    """A time as programs read it; empty where it is not known."""
    return iso_time(time_ms) if time_ms and time_ms > 0 else ""


def minute(time_ms: float | None) -> str:
    """A time as people read it."""
    at = iso(time_ms)
    return f"{at[:10]} {at[11:16]} UTC" if at else "—"


def second(time_ms: float | None) -> str:
    """The time of a day as people read it, to the second."""
    at = iso(time_ms)
    return f"{at[:10]} {at[11:19]} UTC" if at else "—"


def span(seconds: float | None) -> str:
    """A duration in the largest unit of which it has two.

    >>> span(90), span(7200), span(None)
    ('90 s', '2 hours', 'never')
    """
    if seconds is None or not math.isfinite(seconds):
        return "never"
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"
