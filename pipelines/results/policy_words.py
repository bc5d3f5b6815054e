"""Policies as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opicflow.schemas.dates import iso_time
from opicflow.schemas.records import Policy

SECONDS_PER_DAY = 86400.0


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


def _phrases(policy: Policy, verb: str) -> Iterator[str]:
    has = "has" if verb == "is" else "have"
    if policy.fetch_now:
        yield f"{verb} fetched now"
    if policy.refresh_forbidden:
        yield f"{verb} not fetched again"
    if policy.refresh_interval_seconds is not None:
        yield f"{verb} fetched every {span_in_words(policy.refresh_interval_seconds, one='')}"
    if policy.notify:
        yield f"{verb} published when {'it has' if verb == 'is' else 'they have'} changed"
    if policy.drop:
        yield f"{verb} removed"
    if policy.forget:
        yield f"{verb} removed, and not added again"
    if policy.changes_per_day is not None:
        yield f"{verb} taken to change {policy.changes_per_day:g} times a day"
    if policy.importance_factor is not None:
        yield f"{has} {policy.importance_factor:g} times the importance in refreshing"
    if policy.shortest_interval_seconds is not None:
        yield f"{verb} fetched not sooner than after {span_in_words(policy.shortest_interval_seconds)}"
    if policy.longest_interval_seconds is not None:
        yield f"{verb} fetched after {span_in_words(policy.longest_interval_seconds)} at the latest"
    of_each = "" if policy.host is not None else ", each host"
    if policy.host_fetches_per_day is not None:
        yield f"at most {policy.host_fetches_per_day:g} fetches a day{of_each}"
    if policy.host_fetches_per_hour is not None:
        yield f"at most {policy.host_fetches_per_hour:g} fetches an hour{of_each}"
    if policy.crawl_delay_seconds is not None:
        yield f"{span_in_words(policy.crawl_delay_seconds)} between two fetches{of_each}"
    if policy.fetches_per_second is not None:
        yield f"{policy.fetches_per_second * SECONDS_PER_DAY:,.0f} fetches a day"
    if policy.discovery_share is not None:
        yield f"{policy.discovery_share:.0%} of the fetches for unread pages"
    if policy.refresh_policy is not None:
        yield f"refreshed by {policy.refresh_policy}"
    if policy.damping is not None:
        yield f"damping {policy.damping:g}"
    yield from _numbers("class weights", policy.class_weights)
    yield from _numbers("link bonuses", policy.link_bonus_per_1024)


def _numbers(what: str, numbers: Sequence[int] | None) -> Iterator[str]:
    if numbers is not None:
        yield f"{what} {' '.join(map(str, numbers))}"


def span_in_words(seconds: float, one: str = "1 ") -> str:
    """Return a duration in the largest unit of which it is a whole number, else in seconds."""
    for unit, size in (("week", 604800), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{one}{unit}" if count == 1 else f"{count} {unit}s"
    return f"{seconds:g} seconds"
