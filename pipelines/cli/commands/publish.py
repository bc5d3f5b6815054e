"""`opicflow publish`: crawl events from files, and policies of people, to topics."""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES, RejectWriter
from opicflow.connectors.files.log_reader import FileRange, read
from opicflow.connectors.files.opening import InputRefused, expand
from opicflow.connectors.kafka.connection import KafkaRefused
from opicflow.connectors.kafka.messages import Framer, encode_event
from opicflow.connectors.kafka.partitions import partitions_of_topic
from opicflow.connectors.kafka.publisher import Publisher, partition_of
from opicflow.connectors.kafka.topics import names
from opicflow.pipelines.cli.cluster import connection_of
from opicflow.pipelines.cli.commands.replay import Shower, rules_of_options
from opicflow.pipelines.refresh.policies import check
from opicflow.pipelines.replay.inputs import known_format
from opicflow.pipelines.replay.runner import Progress, most_first
from opicflow.pipelines.transforms.route import Rules
from opicflow.schemas.crawl_events import CrawlEvent, Reason, Reject
from opicflow.schemas.json_events import time_ms_of
from opicflow.schemas.pages import page_id
from opicflow.schemas.policy_json import PolicyRefused, policies_of, rules_needed
from opicflow.schemas.records import Policy, to_avro
from opicflow.schemas.urls import NotAPage, canonical

_MOST_CATEGORIES = 256
_SECONDS_PER_DAY = 86400.0
_EVENTS_BETWEEN_LOOKS = 200
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(s|min|h|d|w)")
_MANY_SHOWN = 20
_MOST_LEAP_MS = 86_400_000


def publish(options: argparse.Namespace) -> int:
    """Publish crawl events, a policy, or rules."""
    return {"events": _publish_events, "policy": _publish_policies, "rules": _publish_rules}[options.what](options)


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass
class _Tally:
    """What was read, and what became of it."""

    begun: float
    published: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        return self.published + self.rejected.total()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begun


def _publish_events(options: argparse.Namespace) -> int:
    """Every event of the logs to crawl-events, and what is none to rejects."""
    files = list(dict.fromkeys(expand(options.logs)))
    formats = {file: known_format(file) for file in files}  # before anything is sent
    connection = connection_of(options)
    topics = names(options.prefix)
    tally = _Tally(time.perf_counter())
    shower = Shower(quiet=options.quiet)
    with Publisher(connection) as publisher:
        sender = _EventSender(
            publisher,
            Framer(connection, topics.crawl_events, "CrawlEvent"),
            Framer(connection, topics.rejects, "Reject"),
            topics.crawl_events,
            topics.rejects,
            options.partition,
        )
        pace, clock = _Pace(options.rate), _Clock(_now_ms())
        done = 0
        try:
            for file, format_ in formats.items():
                if format_ is None:
                    sender.reject(Reject(Reason.EMPTY_FILE, "the file is empty", file, 0, b""), tally)
                    continue
                for batch in read(FileRange(file, file, format_)):
                    for number, (offset, item) in enumerate(batch.items()):
                        if isinstance(item, Reject):
                            sender.reject(item, tally)
                        else:
                            sender.publish(file, offset, item, clock.time_ms(item.fetched_at_ms), tally)
                        if number % _EVENTS_BETWEEN_LOOKS == 0 or options.rate:
                            pace.wait(tally.read)
                            progress = Progress(tally.read, None, done + offset, None, "B", tally.seconds)
                            shower.show(progress)
                done += batch.end
            publisher.flush()
        except KeyboardInterrupt:
            shower.close()
            print(_so_far(publisher, tally), file=sys.stderr)
            raise
        except KafkaRefused as problem:
            raise KafkaRefused(f"{problem}; {_so_far(publisher, tally)}") from None
        finally:
            shower.close()
    _print_tally(tally, topics.crawl_events, options.json)
    return 0


class _EventSender:
    """Sends events and rejects to their topics, framed."""

    def __init__(
        self, publisher: Publisher, events: Framer, rejects: Framer, topic: str, reject_topic: str, only: int | None
    ) -> None:
        self._publisher = publisher
        self._rejects = rejects
        self._topic, self._reject_topic = topic, reject_topic
        self._partitions = publisher.partitions(topic)
        publisher.partitions(reject_topic)  # or it is said now that there is none
        if only is not None and not only < self._partitions:
            raise KafkaRefused(
                f"--partition {only}: {topic} has {self._partitions} partitions: give 0 to {self._partitions - 1}"
            )
        self._only = only
        self._prefix = events.prefix

    def publish(self, file: str, offset: int, event: CrawlEvent, time_ms: int, tally: _Tally) -> None:
        """Send an event, or a reject if it is too large."""
        key = event.url.encode()
        value = self._prefix + encode_event(event)
        partition = partition_of(page_id(key), self._partitions) if self._only is None else self._only
        if self._publisher.send(self._topic, key, value, partition, time_ms):
            tally.published += 1
            return
        rejects = RejectWriter(file)
        rejects.add(Reason.TOO_LARGE, f"the event is larger than {self._topic} takes", offset, value)
        self.reject(rejects.rejects[0], tally)

    def reject(self, reject: Reject, tally: _Tally) -> None:
        """Send a reject."""
        value = self._rejects.encode(to_avro(replace(reject, bytes=reject.bytes[:MOST_REJECTED_BYTES])))
        if not self._publisher.send(self._reject_topic, None, value):
            raise KafkaRefused(f"{self._reject_topic}: takes no record of {len(value)} bytes: raise max.message.bytes")
        tally.rejected[reject.reason.value] += 1


class _Clock:
    """The times of records: those of their events, and always a millisecond later at least than the one before.

    Partitions are merged by these times when they are read, so all events come in the order of the log again. A time
    that has not come yet, or is a day ahead of the last and stands alone, is a clock gone wrong, and would hold up all
    that follows.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._last_ms = -1
        self._leapt = False

    def time_ms(self, fetched_at_ms: int | None) -> int:
        """The time of the record of the next event."""
        known_ms = -1 if fetched_at_ms is None or fetched_at_ms > self._now_ms else fetched_at_ms
        leaps = known_ms > self._last_ms + _MOST_LEAP_MS and self._last_ms >= 0
        if leaps and not self._leapt:
            known_ms = -1
        self._leapt = leaps
        self._last_ms = max(known_ms, self._last_ms + 1)
        return self._last_ms


class _Pace:
    """Keeps to so many events a second; None = as fast as it goes."""

    def __init__(self, per_second: float | None) -> None:
        self._per_second = per_second
        self._begun = time.perf_counter()
        self._never = threading.Event()

    def wait(self, events: int) -> None:
        """Wait until it is time for the next event after so many."""
        if self._per_second:
            ahead = events / self._per_second - (time.perf_counter() - self._begun)
            if ahead > 0:
                self._never.wait(ahead)


def _so_far(publisher: Publisher, tally: _Tally) -> str:
    return (
        f"{publisher.acknowledged:,} of {tally.read:,} records sent were acknowledged; publish the logs again: visits "
        "that come twice are known by their times"
    )


def _print_tally(tally: _Tally, topic: str, as_json: bool) -> None:
    per_second = round(tally.read / max(tally.seconds, 1e-9))
    if as_json:
        summary = {
            "topic": topic,
            "events_read": tally.read,
            "published": tally.published,
            "rejects": tally.rejected.total(),
            "rejects_by_reason": most_first(tally.rejected),
            "seconds": round(tally.seconds, 3),
            "events_per_second": per_second,
        }
        print(json.dumps({"summary": summary}, indent=2))
        return
    print(
        f"{tally.read:,} events read = {tally.published:,} published to {topic} + {tally.rejected.total():,} rejected"
    )
    for reason, count in most_first(tally.rejected).items():
        print(f"  {count:10,}  {reason}")
    print(f"{tally.seconds:.1f} s, {per_second:,} events/s")


# -- policies ----------------------------------------------------------------------------------------------------------


def _publish_policies(options: argparse.Namespace) -> int:
    """What people say of pages, to policies."""
    published_at_ms = _time("--at", options.at) if options.at else _now_ms()
    if options.file is None:
        policies = [_policy_of(options, published_at_ms)]
    else:
        policies = _policies_in(options, published_at_ms)
    connection = connection_of(options)
    topic = names(options.prefix).policies
    framer = Framer(connection, topic, "Policy")
    with Publisher(connection) as publisher:
        places = publisher.deliver(topic, [framer.encode(to_avro(policy)) for policy in policies])
    if options.json:
        rows = [
            {"said": in_words(policy), "topic": topic, "partition": place.partition, "offset": place.offset}
            for policy, place in zip(policies, places, strict=True)
        ]
        print(json.dumps(rows, indent=2))
        return 0
    for policy, place in list(zip(policies, places, strict=True))[:_MANY_SHOWN]:
        print(f"{in_words(policy)}  ({topic}, partition {place.partition}, offset {place.offset})")
    if len(policies) > _MANY_SHOWN:
        print(f"… and {len(policies) - _MANY_SHOWN:,} more, up to offset {places[-1].offset}")
    return 0


# -- rules -------------------------------------------------------------------------------------------------------------


def _publish_rules(options: argparse.Namespace) -> int:
    """Rules to every partition of crawl-events: they hold there for what follows."""
    from opicflow.pipelines.stream.origin import origin_of  # Beam takes long to import
    from opicflow.pipelines.stream.routers import control_record

    connection, topics = connection_of(options), names(options.prefix)
    logs = options.ledger or topics.page_ledger
    origin = origin_of(connection, logs)
    if origin is None:
        raise KafkaRefused(f"{logs}: no stream has begun there: give the rules to the one that you start")
    # What ledgers count by is never changed: a stream would stop at other categories.
    rules = replace(rules_of_options(options) or Rules(), categories=origin.rules.categories)
    _, partitions = partitions_of_topic(connection, topics.crawl_events)
    with Publisher(connection) as publisher:
        for partition in range(partitions):
            publisher.send(topics.crawl_events, None, control_record(rules), partition)
    told = {"topic": topics.crawl_events, "partitions": partitions, "rules": rules.to_json()}
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        print(f"{topics.crawl_events}, {partitions} partitions: from here on {json.dumps(rules.to_json())}")
    return 0


def _now_ms() -> int:
    now = datetime.now(timezone.utc)  # noqa: TID251 - what people say now has the time at which they say it
    return int(now.timestamp() * 1000)


def _policies_in(options: argparse.Namespace, published_at_ms: int) -> list[Policy]:
    """The policies of a file, all of them checked. Those without a time have that of their publishing."""
    given = _given(options, (*_TARGETS, *_SAID, "default", "expires"))
    if given:
        raise PolicyRefused(f"{given[0]}: a file says what is published: leave one of them out")
    with open(options.file, "rb") as file:
        policies = policies_of(file, str(options.file))
    if not policies:
        raise PolicyRefused(f"{options.file}: it holds no policies: write one JSON object a line")
    found = []
    for number, policy in enumerate(policies, 1):
        policy = replace(
            policy,
            published_at_ms=policy.published_at_ms if policy.published_at_ms is not None else published_at_ms,
            publisher=policy.publisher if policy.publisher is not None else options.publisher,
        )
        try:
            check(policy, _categories(policy))
        except PolicyRefused as problem:
            raise PolicyRefused(f"{options.file}, policy {number}: {problem}") from None
        found.append(policy)
    return found


def _categories(policy: Policy) -> int:
    """How many categories there seem to be: only who runs the crawl knows."""
    if policy.class_weights:
        return len(policy.class_weights) // 2
    return len(policy.link_bonus_per_1024) if policy.link_bonus_per_1024 else _MOST_CATEGORIES


def _given(options: argparse.Namespace, of: Sequence[str]) -> list[str]:
    """Those of some options that were given; a 0 is one."""
    values = ((name, getattr(options, name)) for name in of)
    return [f"--{name.replace('_', '-')}" for name, value in values if value is not None and value is not False]


_TARGETS = ("url", "host", "url_prefix", "category", "all")
_SAID = (
    "crawl_now",
    "never",
    "every",
    "changes_per_day",
    "factor",
    "drop",
    "forget",
    "host_fetches",
    "bandwidth",
    "discovery_share",
    "refresh_policy",
    "shortest",
    "longest",
)


def _policy_of(options: argparse.Namespace, published_at_ms: int) -> Policy:
    """The policy that the options say, checked."""
    if not _given(options, _TARGETS):
        raise PolicyRefused(
            "nothing to publish: say of what, by --url, --host, --url-prefix, --category or --all, or name a file"
        )
    said = _given(options, _SAID)
    if options.default and said:
        raise PolicyRefused(f"--default takes back what was said: leave {said[0]} out")
    if not options.default and not said:
        raise PolicyRefused("nothing is said of it: say what, such as --every 6h; --default takes back what was said")
    bandwidth = options.bandwidth
    policy = Policy(
        published_at_ms=published_at_ms,
        publisher=options.publisher,
        url=_canonical(options.url),
        host=options.host,
        url_prefix=options.url_prefix,
        category=options.category,
        fetch_now=options.crawl_now,
        refresh_forbidden=options.never,
        refresh_interval_seconds=_span_seconds("--every", options.every),
        changes_per_day=options.changes_per_day,
        importance_factor=options.factor,
        drop=options.drop,
        forget=options.forget,
        host_fetches_per_day=options.host_fetches,
        fetches_per_second=None if bandwidth is None else bandwidth / _SECONDS_PER_DAY,
        discovery_share=options.discovery_share,
        refresh_policy=options.refresh_policy,
        shortest_interval_seconds=_span_seconds("--shortest", options.shortest),
        longest_interval_seconds=_span_seconds("--longest", options.longest),
        expires_at_ms=None if options.expires is None else _time("--expires", options.expires),
    )
    policy = replace(policy, rules_version=rules_needed(policy))
    check(policy, _MOST_CATEGORIES)
    return policy


def _canonical(url: str | None) -> str | None:
    if url is None:
        return None
    try:
        return canonical(url).decode()
    except NotAPage as problem:
        advice = "give the URL of a page" if "://" in url else f"do you mean https://{url[:200]} ?"
        raise InputRefused(f"--url {url[:200]}: {problem}: {advice}") from None


def _span_seconds(option: str, text: str | None) -> float | None:
    """A span of time such as 30min, 6h, 2d or 1w, in seconds."""
    if text is None:
        return None
    match = _SPAN.fullmatch(text.strip().lower())
    if match is None:
        raise PolicyRefused(f"{option} {text[:40]}: no span of time: write it like 30min, 6h, 2d or 1w")
    return float(match[1]) * _UNITS[match[2]]


def _time(option: str, text: str) -> int:
    time_ms = time_ms_of(text)
    if time_ms is None:
        raise PolicyRefused(f"{option} {text[:40]}: no time: write it like 2026-12-31T00:00:00Z")
    return time_ms


def in_words(policy: Policy) -> str:
    """A policy as people would say it."""
    subject, is_one = _subject(policy)
    verb = "is" if is_one else "are"
    said = list(_phrases(policy, verb))
    if not said:
        said = ["what was said of it before is taken back" if is_one else "what was said of them before is taken back"]
        subject = f"{subject}:"
    until = "" if policy.expires_at_ms is None else f" until {_date(policy.expires_at_ms)}"
    return f"{subject} {', '.join(said)}{until}"


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
        yield f"{verb} fetched every {_span(policy.refresh_interval_seconds, one='')}"
    if policy.drop:
        yield f"{verb} let go"
    if policy.forget:
        yield f"{verb} forgotten, and not learnt again"
    if policy.changes_per_day is not None:
        yield f"{verb} taken to change {policy.changes_per_day:g} times a day"
    if policy.importance_factor is not None:
        yield f"{has} {policy.importance_factor:g} times the importance in refreshing"
    if policy.shortest_interval_seconds is not None:
        yield f"{verb} fetched not sooner than after {_span(policy.shortest_interval_seconds)}"
    if policy.longest_interval_seconds is not None:
        yield f"{verb} fetched after {_span(policy.longest_interval_seconds)} at the latest"
    if policy.host_fetches_per_day is not None:
        of_each = "" if policy.host is not None else ", each host"
        yield f"at most {policy.host_fetches_per_day:g} fetches a day{of_each}"
    if policy.fetches_per_second is not None:
        yield f"{policy.fetches_per_second * _SECONDS_PER_DAY:,.0f} fetches a day"
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


def _span(seconds: float, one: str = "1 ") -> str:
    """In the largest unit of which it is a whole number, else in seconds."""
    for unit, size in (("week", 604800), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{one}{unit}" if count == 1 else f"{count} {unit}s"
    return f"{seconds:g} seconds"


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
