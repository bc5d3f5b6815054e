"""Policies as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from opicflow.schemas.dates import iso_time
from opicflow.schemas.records import Policy

_SECONDS_PER_DAY = 86400.0


def in_words(policy: Policy) -> str:
    """Return a policy as a sentence."""
    subject, is_one = _subject(policy)
    verb = "is" if is_one else "are"
    phrases = list(_phrases(policy, verb))
    if not phrases:
        phrases = ["its earlier policy is withdrawn" if is_one else "their earlier policy is withdrawn"]
        subject = f"{subject}:"
    until = "" if policy.expires_at_ms is None else f" until {iso_time(policy.expires_at_ms)}"
    return f"{subject} {', '.join(phrases)}{until}"


def _subject(policy: Policy) -> tuple[str, bool]:
    if policy.url is not None:
        return policy.url, True
    if policy.host is not None:
        return f"pages of {policy.host}", False
    if policy.url_prefix is not None:
        return f"pages under {policy.url_prefix}", False
    if policy.category is not None:
        return f"pages of category {policy.category}", False
    return "the whole crawl:", True


_PHRASES = {
    "fetch_now": "{verb} fetched now",
    "refresh_forbidden": "{verb} not fetched again",
    "refresh_interval_seconds": "{verb} fetched every {unit}",
    "notify": "{verb} published when {it_has} changed",
    "drop": "{verb} removed",
    "forget": "{verb} removed, and not added again",
    "changes_per_day": "{verb} taken to change {value:g} times a day",
    "importance_factor": "{has} {value:g} times the importance in refreshing",
    "shortest_interval_seconds": "{verb} fetched not sooner than after {span}",
    "longest_interval_seconds": "{verb} fetched after {span} at the latest",
    "host_fetches_per_day": "at most {value:g} fetches a day{of_each}",
    "host_fetches_per_hour": "at most {value:g} fetches an hour{of_each}",
    "crawl_delay_seconds": "{span} between two fetches{of_each}",
    "fetches_per_second": "{a_day:,.0f} fetches a day",
    "discovery_share": "{value:.0%} of the fetches for unread pages",
    "refresh_policy": "refreshed by {value}",
    "damping": "damping {value:g}",
    "class_weights": "class weights {listed}",
    "link_bonus_per_1024": "link bonuses {listed}",
}
"""The meaning of each field of a policy, in the order of the sentence."""


def _phrases(policy: Policy, verb: str) -> Iterator[str]:
    of_each = "" if policy.host is not None else ", each host"
    for field, phrase in _PHRASES.items():
        value = getattr(policy, field)
        if value is None or value is False:
            continue
        has, it_has = ("has", "it has") if verb == "is" else ("have", "they have")
        words = {"value": value, "verb": verb, "has": has, "it_has": it_has, "of_each": of_each}
        if isinstance(value, tuple):
            words["listed"] = " ".join(map(str, value))
        elif not isinstance(value, bool | str):
            words |= {"span": _span(value), "unit": _span(value).removeprefix("1 "), "a_day": value * _SECONDS_PER_DAY}
        yield phrase.format(**words)


def _span(seconds: float) -> str:
    """Return a duration in the largest unit of which it is a whole number, else in seconds."""
    for unit, size in (("week", 604800), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{seconds:g} seconds"
