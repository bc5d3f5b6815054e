"""Policies in force for pages, hosts, URL prefixes, categories and the whole crawl, and their rules in columns.

A policy may contain up to four kinds of statement:

- a *standing rule*: change rate, interval, prohibition, factor, limits. It replaces the earlier rule of its target.
- a *request*: fetch the pages now.
- a *subscription*: publish a record when a visit finds that a page has changed. Each publisher has its own.
- a *removal*: forget the pages.

A policy without any such field withdraws the rule and the request of its target, and the subscription of its publisher.
A removal cannot be withdrawn: it ends when it expires.

Of all standing rules for a page the latest governs, whatever kind of target it has. The limits of a host are a standing
rule for the host: a rule that holds nothing else does not govern the host's pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from opicflow.pipelines.refresh.orders import DELAY_BOUNDS, PER_HOUR_BOUNDS
from opicflow.pipelines.refresh.strategies import STRATEGIES
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ids, Int, Ints
from opicflow.schemas.hashing import byte_at, find_number, hash_bytes, hash_text
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.pages import PageIds
from opicflow.schemas.policy_json import PolicyRefused, policy_from_json, policy_to_json
from opicflow.schemas.records import Policy
from opicflow.schemas.url_forms import LONGEST_URL
from opicflow.schemas.urls import NotAPage, canonical, host

RULES_VERSION = 1
"""The version of the rules that this code can read."""
MOST_IN_FORCE = 100_000
MOST_FACTOR = 1e6
MOST_SUBSCRIBERS_CHARACTERS = 200
"""The publishers that subscribed to a page are named in so many characters at most."""
LONGEST_INTERVAL_SECONDS = 100 * 365.25 * 86400


_ABOUT_PAGES = (
    "changes_per_day",
    "refresh_interval_seconds",
    "importance_factor",
    "shortest_interval_seconds",
    "longest_interval_seconds",
)
_OF_HOSTS = ("host_fetches_per_day", "host_fetches_per_hour", "crawl_delay_seconds")
_ABOUT_THE_CRAWL = (
    "damping",
    "class_weights",
    "link_bonus_per_1024",
    "fetches_per_second",
    "discovery_share",
    "refresh_policy",
)
_BOUNDS = {
    "changes_per_day": (86400 / LONGEST_INTERVAL_SECONDS, 86400.0),
    "refresh_interval_seconds": (1.0, LONGEST_INTERVAL_SECONDS),
    "shortest_interval_seconds": (1.0, LONGEST_INTERVAL_SECONDS),
    "longest_interval_seconds": (1.0, LONGEST_INTERVAL_SECONDS),
    "importance_factor": (0.0, MOST_FACTOR),
    "host_fetches_per_day": (1e-3, 1e12),
    "host_fetches_per_hour": PER_HOUR_BOUNDS,
    "crawl_delay_seconds": DELAY_BOUNDS,
    "fetches_per_second": (1e-3 / 86400, 1e12 / 86400),
    "discovery_share": (0.0, 1.0),
    "damping": (0.0, 1.0),
}
_MOST_CLASS_WEIGHT = 65536
_MOST_BONUS = 1024
_MOST_CATEGORIES = 256

_CRAWL = "crawl"
_Target = tuple[str, "str | int"]
_STANDING, _REQUESTED, _FORGOTTEN = "standing", "asked", "forgotten"  # the names that snapshots use
_SUBSCRIBED = "subscribed"
_KINDS = (_STANDING, _REQUESTED, _FORGOTTEN, _SUBSCRIBED)
_Statement = tuple[str, str, "str | int", str]
"""The kind of a statement, its target, and the publisher of a subscription: at most one of each is in force."""


# -- checks ------------------------------------------------------------------------------------------------------------


def check(policy: Policy, categories: int) -> None:
    """Raise `PolicyRefused`, with a reason of one line, for a policy that contradicts itself or is out of range."""
    problem = next(_problems(policy, categories), None)
    if problem:
        raise PolicyRefused(problem)


def most_categories(policy: Policy) -> int:
    """Return the largest number of categories that a policy can be for, where the number of a ledger is not known."""
    if policy.class_weights:
        return len(policy.class_weights) // 2
    return len(policy.link_bonus_per_1024) if policy.link_bonus_per_1024 else _MOST_CATEGORIES


def _problems(policy: Policy, categories: int) -> Iterator[str]:
    if policy.rules_version != RULES_VERSION:
        yield f"rules_version is {policy.rules_version}, and this version reads {RULES_VERSION}: update opicflow"
    targets = [name for name in ("url", "host", "url_prefix", "category") if getattr(policy, name) is not None]
    if len(targets) > 1:
        yield f"{' and '.join(targets)} are given: write one policy for each"
    if policy.category is not None and not 0 <= policy.category < categories:
        yield f"category is {policy.category}: give a number from 0 to {categories - 1}"
    yield from _problems_of_urls(policy)
    for name, (least, most) in _BOUNDS.items():
        value = getattr(policy, name)
        if value is not None and not least <= value <= most:
            yield f"{name} is {value:g}: give a number from {least:g} to {most:g}"
    shortest, longest = policy.shortest_interval_seconds, policy.longest_interval_seconds
    if shortest is not None and longest is not None and shortest > longest:
        yield f"shortest_interval_seconds is {shortest:g}, longer than the longest, {longest:g}: exchange them"
    if policy.refresh_forbidden and policy.refresh_interval_seconds is not None:
        yield "refresh_forbidden and refresh_interval_seconds contradict each other: omit one"
    published, expires = policy.published_at_ms, policy.expires_at_ms
    if published is not None and expires is not None and expires <= published:
        yield f"expires_at is {expires}, not after published_at, {published}: give a later time or none"
    if policy.forget and (governs(policy) or policy.fetch_now or policy.notify or _limits_hosts(policy)):
        yield "forget: a policy that forgets pages can state nothing else: omit the rest"
    if policy.drop and policy.fetch_now:
        yield "drop and fetch_now contradict each other: omit one"
    yield from _problems_of_scope(policy, targets[0] if targets else None)
    yield from _problems_of_the_crawl(policy, categories)


def _problems_of_urls(policy: Policy) -> Iterator[str]:
    for name, text in (("url", policy.url), ("url_prefix", policy.url_prefix)):
        if text is None:
            continue
        if not text.startswith(("http://", "https://")):
            yield f"{name} is {text[:60]!r}: begin it with http:// or https://"
        elif len(text) > LONGEST_URL or not text.isascii() or not text.isprintable() or " " in text or "#" in text:
            yield f"{name} is {text[:60]!r}: give a canonical URL of at most {LONGEST_URL} bytes of plain ASCII"
        else:
            scheme, _, rest = text.partition("://")
            name_of_host, slash, _ = rest.partition("/")
            if not slash or not _is_host(name_of_host, scheme):
                yield f"{name} is {text[:60]!r}: give a whole canonical host, and the / after it"
    if policy.host is not None and not any(_is_host(policy.host, scheme) for scheme in ("https", "http")):
        yield f"host is {policy.host[:60]!r}: give a canonical host: example.org or example.org:8080"


def _is_host(name: str, scheme: str) -> bool:
    """Whether a canonical URL of this scheme can have this host, written like this."""
    url = f"{scheme}://{name}/"
    try:
        return "/" not in name and canonical(url) == url.encode()
    except (NotAPage, UnicodeError):
        return False


def _problems_of_scope(policy: Policy, target: str | None) -> Iterator[str]:
    if target is None:
        for name in (*_ABOUT_PAGES, "refresh_forbidden", "fetch_now", "drop", "forget", "notify"):
            if getattr(policy, name) not in (None, False):
                yield f"{name}: name the pages by a url, host, url_prefix or category: it cannot hold for all pages"
        given = [name for name in _ABOUT_THE_CRAWL if getattr(policy, name) is not None]
        if not given and not _limits_hosts(policy):
            yield "it names no pages, and no setting of the whole crawl: give one of them"
        if given and policy.expires_at_ms is not None:
            yield f"expires_at: {given[0]} holds until another policy sets it: omit expires_at"
    else:
        for name in _ABOUT_THE_CRAWL:
            if getattr(policy, name) is not None:
                yield f"{name} is a setting of the whole crawl: omit {target}"
        for name in _OF_HOSTS:
            if getattr(policy, name) is not None and target != "host":
                yield f"{name} holds for a host or the whole crawl: omit {target}, or name the host"
    if target == "category":
        for name in ("drop", "forget", "notify"):
            if getattr(policy, name):
                yield f"{name}: name a url, host or url_prefix: it cannot hold for a whole category"


def _problems_of_the_crawl(policy: Policy, categories: int) -> Iterator[str]:
    weights, bonuses = policy.class_weights, policy.link_bonus_per_1024
    if weights is not None and not (
        len(weights) == 2 * categories and any(weights) and all(0 <= one <= _MOST_CLASS_WEIGHT for one in weights)
    ):
        yield f"class_weights: give {2 * categories} whole numbers from 0 to {_MOST_CLASS_WEIGHT}, not all of them 0"
    if bonuses is not None and not (len(bonuses) == categories and all(0 <= one <= _MOST_BONUS for one in bonuses)):
        yield f"link_bonus_per_1024: give {categories} whole numbers from 0 to {_MOST_BONUS}"
    if policy.refresh_policy is not None and policy.refresh_policy not in STRATEGIES:
        yield f"refresh_policy is {policy.refresh_policy[:40]!r}: give one of {', '.join(STRATEGIES)}"


# -- policies in force -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberedPolicy:
    """A checked policy, its number in the order of the log, and the second at which it was applied."""

    policy: Policy
    number: int
    second: int


@dataclass(frozen=True)
class Policies:
    """The policies in force. Immutable: every change returns new ones."""

    _statements: Mapping[_Statement, NumberedPolicy] = field(default_factory=dict)
    count: int = 0
    """The number of policies added so far, which is the number of the latest."""
    page_ids: PageIds = field(default_factory=PageIds)
    """The rules that give the page of a URL its id."""

    def add(self, policy: Policy, second: int) -> Policies:
        """Return the policies in force after one more, which `check` has accepted."""
        return self.add_all((policy,), second)

    def add_all(self, policies: Iterable[Policy], second: int) -> Policies:
        """Return the policies in force after these, added in order; raises `PolicyRefused` if one cannot be added."""
        statements, count = dict(self._statements), self.count
        for policy in policies:
            count += 1
            _put(statements, NumberedPolicy(policy, count, second))
        in_force = {one.number for one in statements.values()} if len(statements) > MOST_IN_FORCE else ()
        if len(in_force) > MOST_IN_FORCE:
            raise PolicyRefused(
                f"{MOST_IN_FORCE} policies are in force, the most there can be: withdraw some, or let them expire"
            )
        return replace(self, _statements=statements, count=count)

    def expire(self, now_ms: int) -> Policies:
        """Return the policies that are still in force at a time."""
        if now_ms < self._first_expiry:
            return self
        return self._where(lambda _, one: one.policy.expires_at_ms is None or now_ms < one.policy.expires_at_ms)

    def without_requests_before(self, second: int) -> Policies:
        """Return the policies without requests from before a second."""
        if all(key[0] != _REQUESTED or one.second >= second for key, one in self._statements.items()):
            return self
        return self._where(lambda key, one: key[0] != _REQUESTED or one.second >= second)

    def __iter__(self) -> Iterator[NumberedPolicy]:
        """Return the policies with a statement in force, in the order of the log."""
        return iter(self._in_order)

    def __len__(self) -> int:
        return len(self._in_order)

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `from_json` reads; equal policies give equal values."""
        of_kind = {
            kind: sorted(one.number for key, one in self._statements.items() if key[0] == kind) for kind in _KINDS
        }
        if not of_kind[_SUBSCRIBED]:
            del of_kind[_SUBSCRIBED]
        listed = [[one.number, one.second, policy_to_json(one.policy)] for one in self]
        return {"count": self.count, "publications": listed, **of_kind}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], page_ids: PageIds) -> Policies:
        """Read the values of `to_json`."""
        by_number = {
            number: NumberedPolicy(policy_from_json(policy), number, second)
            for number, second, policy in values["publications"]
        }
        statements = {
            _statement(kind, by_number[number].policy): by_number[number]
            for kind in _KINDS
            for number in values.get(kind, ())
        }
        return cls(statements, values["count"], page_ids)

    @cached_property
    def forgotten(self) -> Prefixes:
        """Prefixes of the URLs that were forgotten; URLs forgotten one by one are not included."""
        return prefixes_of(one.policy for key, one in self._statements.items() if key[0] == _FORGOTTEN)

    def _of_kind(self, kind: str) -> list[NumberedPolicy]:
        return sorted((one for key, one in self._statements.items() if key[0] == kind), key=lambda one: one.number)

    def _where(self, keeps: Callable[[_Statement, NumberedPolicy], bool]) -> Policies:
        return replace(self, _statements={key: one for key, one in self._statements.items() if keeps(key, one)})

    @cached_property
    def _in_order(self) -> tuple[NumberedPolicy, ...]:
        by_number = {one.number: one for one in self._statements.values()}
        return tuple(by_number[number] for number in sorted(by_number))

    @cached_property
    def _first_expiry(self) -> float:
        times = (one.policy.expires_at_ms for one in self._statements.values())
        return min((time for time in times if time is not None), default=np.inf)

    @cached_property
    def _index(self) -> _PolicyIndex:
        return _index_of(
            [one for one in self._of_kind(_STANDING) if governs(one.policy)],
            self._of_kind(_REQUESTED),
            self.page_ids,
        )

    @cached_property
    def _subscriptions(self) -> _Subscriptions:
        return _subscriptions_of([one.policy for one in self._of_kind(_SUBSCRIBED)], self.page_ids)


class HostCaps(NamedTuple):
    """The limits of a host; None: it has no such limit of its own."""

    per_day: float | None = None
    per_hour: float | None = None
    delay_seconds: float | None = None


def host_caps(policies: Policies) -> dict[bytes, HostCaps]:
    """Return the limits of each host that has some of its own."""
    return {
        one.policy.host.encode(): _caps_of(one.policy)
        for one in policies._of_kind(_STANDING)
        if one.policy.host is not None and _limits_hosts(one.policy)
    }


def default_host_caps(policies: Policies) -> HostCaps:
    """Return the limits of any other host."""
    found = policies._statements.get((_STANDING, _CRAWL, "", ""))
    return _caps_of(found.policy) if found else HostCaps()


def _caps_of(policy: Policy) -> HostCaps:
    return HostCaps(*(getattr(policy, name) for name in _OF_HOSTS))


def _limits_hosts(policy: Policy) -> bool:
    return any(getattr(policy, name) is not None for name in _OF_HOSTS)


def _target(policy: Policy) -> _Target:
    """Return the kind and the name of a policy's target."""
    for kind in ("url", "host", "url_prefix", "category"):
        name = getattr(policy, kind)
        if name is not None:
            return kind, name
    return _CRAWL, ""


def _statement(kind: str, policy: Policy) -> _Statement:
    """Return the key of a policy's statement of this kind."""
    publisher = policy.publisher or ""
    return kind, *_target(policy), publisher if kind == _SUBSCRIBED else ""


def governs(policy: Policy) -> bool:
    """Whether a policy holds a standing rule for its pages."""
    return policy.refresh_forbidden or any(getattr(policy, name) is not None for name in _ABOUT_PAGES)


def _put(statements: dict[_Statement, NumberedPolicy], numbered: NumberedPolicy) -> None:
    policy = numbered.policy
    target = _target(policy)
    if policy.forget:
        for key in [key for key in statements if key[0] != _FORGOTTEN and _is_within(key[1:3], target)]:
            del statements[key]
        if target[0] != "url":  # the ledger keeps the ids of pages that are forgotten one by one
            key = _statement(_FORGOTTEN, policy)
            statements[key] = max(numbered, statements.get(key, numbered), key=_end_of)
        return
    forgotten = _forgotten_around(statements, target)
    if forgotten:
        raise PolicyRefused(f"{target[0]} is within what was forgotten ({forgotten}): name other pages")
    is_rule = governs(policy) or _limits_hosts(policy)
    stated = ((_STANDING, is_rule), (_REQUESTED, policy.fetch_now), (_SUBSCRIBED, policy.notify))
    for kind, is_stated in stated:
        if is_stated:
            statements[_statement(kind, policy)] = numbered
    if not (any(is_stated for _, is_stated in stated) or policy.drop) and target[0] != _CRAWL:
        for kind, _ in stated:
            statements.pop(_statement(kind, policy), None)


def _end_of(one: NumberedPolicy) -> float:
    """Return when a policy ends: an earlier removal cannot be withdrawn by one that ends sooner."""
    return np.inf if one.policy.expires_at_ms is None else one.policy.expires_at_ms


def _is_within(target: _Target, outer: _Target) -> bool:
    """Whether a target is the outer one, or names only pages within it."""
    (kind, name), (outer_kind, outer_name) = target, outer
    if target == outer:
        return True
    if kind not in ("url", "url_prefix"):
        return False
    if outer_kind == "host":
        return host(str(name).encode()).decode() == outer_name
    return outer_kind == "url_prefix" and str(name).startswith(str(outer_name))


def _forgotten_around(statements: Mapping[_Statement, NumberedPolicy], target: _Target) -> str | None:
    """Return the forgotten host or prefix that a target is within, if there is one."""
    kind, name = target[0], str(target[1])
    if kind == "host":
        return name if (_FORGOTTEN, "host", name, "") in statements else None
    if kind not in ("url", "url_prefix"):
        return None
    name_of_host = host(name.encode()).decode()
    if (_FORGOTTEN, "host", name_of_host, "") in statements:
        return name_of_host
    prefixes = (name[:end] for end in range(name.index("//") + 3 + len(name_of_host), len(name) + 1))
    return next((one for one in prefixes if (_FORGOTTEN, "url_prefix", one, "") in statements), None)


# -- columns -----------------------------------------------------------------------------------------------------------


class Prefixes(NamedTuple):
    """Prefixes of URLs, each at least a whole host, sorted by the hash of the host, then by their bytes.

    `parent` is the row of the longest other prefix that a prefix begins with, -1 if there is none. So all prefixes of a
    URL are the longest one and its ancestors.
    """

    hosts: Ids
    first: Ints
    """The first row of each host, and at last the number of prefixes."""
    starts: Ints
    text: Bytes
    parent: Ints


class Directives(NamedTuple):
    """The rules that hold for pages, a row for each page."""

    changes_per_day: Floats
    """NaN: none."""
    interval_seconds: Floats
    """0: none."""
    forbidden: Bytes
    factor: Floats
    shortest_seconds: Floats
    """0: none."""
    longest_seconds: Floats
    """0: none."""
    requested_second: Ints
    """When the latest request for the page was applied; -1: none."""
    number: Ints
    """The number of the policy that governs; 0: none."""


def directives(policies: Policies, urls: Bytes, url_start: Ints, pages: Ids, categories: Bytes) -> Directives:
    """Return the rules for pages with these ids and categories.

    Their URLs begin at `url_start - 1` of an arena (0: unknown), with the length first, 2 bytes little endian. The
    columns are to be read only.
    """
    index = policies._index
    rules = index.rules
    if not len(policies):  # one row for all pages
        return rules._replace(**{name: np.broadcast_to(getattr(rules, name)[:1], len(pages)) for name in rules._fields})
    governing, requesting = _rows_of(index.rows, index.prefixes, urls, url_start, pages, categories)
    return rules._replace(
        **{name: getattr(rules, name)[governing] for name in rules._fields if name != "requested_second"},
        requested_second=rules.requested_second[requesting],
    )


class Subscribers(NamedTuple):
    """Who subscribed to the changes of pages: for each page the row of `names`; row 0 is none."""

    rows: Ints
    names: list[str]
    """The publishers of each group of subscriptions, in alphabetical order with commas, cut off if they are long."""


def subscribers(policies: Policies, urls: Bytes, url_start: Ints, pages: Ids) -> Subscribers:
    """Return who subscribed to the changes of pages, by their ids and by URLs as those of `directives`."""
    index = policies._subscriptions
    no_categories = np.zeros(len(pages), np.uint8)
    by_page, by_prefix = _rows_of(index.rows, index.prefixes, urls, url_start, pages, no_categories)
    groups, rows = np.unique(np.column_stack((by_page, by_prefix)), axis=0, return_inverse=True)
    names = [""]
    row_of = np.zeros(len(groups), np.int64)
    for group, (page, prefix) in enumerate(groups.tolist()):
        if page or prefix:
            row_of[group] = len(names)
            names.append(_named(index.publishers[page] | index.publishers[prefix]))
    return Subscribers(row_of[rows.reshape(-1)], names)


def has_subscriptions(policies: Policies) -> bool:
    """Whether anybody subscribed to the changes of any page."""
    return len(policies._subscriptions.publishers) > 1


def prefixes_of(policies: Iterable[Policy]) -> Prefixes:
    """Return the URL prefixes of the hosts and prefixes that these policies name; other policies are ignored."""
    return _sorted_prefixes({text for policy in policies for text in _prefixes(policy)})[0]


def matches(prefixes: Prefixes, urls: Bytes, url_start: Ints) -> Bools:
    """Return which of the URLs at `url_start - 1` of an arena begin with any of the prefixes; unknown ones do not."""
    mask = np.zeros(len(url_start), np.bool_)
    if len(prefixes.hosts):
        urls, url_start = (
            np.require(urls, np.uint8, ["C", "A", "W"]),
            np.require(url_start, np.int64, ["C", "A", "W"]),
        )
        _match_arena(prefixes, urls, url_start, mask)
    return mask


def matches_ragged(prefixes: Prefixes, url_bytes: Bytes, url_starts: Ints) -> Bools:
    """Return which of the URLs `url_bytes[url_starts[i]:url_starts[i + 1]]` begin with any of the prefixes."""
    mask = np.zeros(len(url_starts) - 1, np.bool_)
    if len(prefixes.hosts):
        url_bytes, url_starts = (
            np.require(url_bytes, np.uint8, ["C", "A", "W"]),
            np.require(url_starts, np.int64, ["C", "A", "W"]),
        )
        _match_ragged(prefixes, url_bytes, url_starts, mask)
    return mask


class _IndexRows(NamedTuple):
    """For pages, prefixes and categories: the rows in `_PolicyIndex.rules` that govern and request; 0 = none.

    A later policy has a larger row.
    """

    pages: Ids
    of_page: Ints
    of_prefix: Ints
    """The latest of a prefix and its ancestors."""
    of_category: Ints


class _PolicyIndex(NamedTuple):
    rows: _IndexRows
    prefixes: Prefixes
    rules: Directives
    """The rule of each governing policy, and the second of each requesting one, in order; row 0: no rule."""


class _Subscriptions(NamedTuple):
    """For pages and prefixes the rows of their groups of publishers, in the columns of `_IndexRows` 0 and 1."""

    rows: _IndexRows
    prefixes: Prefixes
    publishers: list[frozenset[str]]
    """The publishers of each group; row 0 has none."""


def _subscriptions_of(policies: list[Policy], page_ids: PageIds) -> _Subscriptions:
    """Return the index of subscriptions: of a prefix those of all prefixes that it begins with, too."""
    of_page: dict[int, frozenset[str]] = {}
    of_text: dict[bytes, frozenset[str]] = {}
    for policy in policies:
        publisher = frozenset((policy.publisher or "",))
        if policy.url is not None:
            page = page_ids.of(policy.url)
            of_page[page] = of_page.get(page, frozenset()) | publisher
        for text in _prefixes(policy):
            of_text[text] = of_text.get(text, frozenset()) | publisher
    rows: dict[frozenset[str], int] = {frozenset(): 0}
    prefixes, texts = _sorted_prefixes(of_text)
    groups: list[frozenset[str]] = []
    for text, parent in zip(texts, prefixes.parent.tolist(), strict=True):  # parents come first
        groups.append(of_text[text] | (groups[parent] if parent >= 0 else frozenset()))
    pages = sorted(of_page)

    def column(groups: Iterable[frozenset[str]], at: int) -> Ints:
        numbers = [rows.setdefault(group, len(rows)) for group in groups]
        found = np.zeros((len(numbers), 2), np.int64)
        found[:, at] = numbers
        return found

    index = _IndexRows(
        np.array(pages, np.uint64),
        column((of_page[page] for page in pages), 0),
        column(groups, 1),
        np.zeros((256, 2), np.int64),
    )
    return _Subscriptions(index, prefixes, list(rows))


def _named(publishers: Iterable[str]) -> str:
    names = ", ".join(sorted(filter(None, publishers)))
    return names if len(names) <= MOST_SUBSCRIBERS_CHARACTERS else f"{names[: MOST_SUBSCRIBERS_CHARACTERS - 1]}…"


def _index_of(standing: list[NumberedPolicy], requesting: list[NumberedPolicy], page_ids: PageIds) -> _PolicyIndex:
    of_page: dict[int, list[int]] = {}
    of_text: dict[bytes, list[int]] = {}
    of_category = np.zeros((256, 2), np.int64)
    for column, policies in enumerate((standing, requesting)):
        for row, one in enumerate(policies, 1):
            if one.policy.url is not None:
                of_page.setdefault(page_ids.of(one.policy.url), [0, 0])[column] = row
            if one.policy.category is not None:
                of_category[one.policy.category, column] = row
            for text in _prefixes(one.policy):
                of_text.setdefault(text, [0, 0])[column] = row
    ids = sorted(of_page)
    prefixes, texts = _sorted_prefixes(of_text)
    of_prefix = np.array([of_text[text] for text in texts], np.int64).reshape(-1, 2)
    for at, parent in enumerate(prefixes.parent.tolist()):
        if parent >= 0:  # parents come first
            of_prefix[at] = np.maximum(of_prefix[at], of_prefix[parent])
    rows = _IndexRows(
        np.array(ids, np.uint64),
        np.array([of_page[id_] for id_ in ids], np.int64).reshape(-1, 2),
        of_prefix,
        of_category,
    )
    return _PolicyIndex(rows, prefixes, _rules(standing, requesting))


def _rules(standing: list[NumberedPolicy], requesting: list[NumberedPolicy]) -> Directives:
    policies = [one.policy for one in standing]

    def column(name: str, default: float) -> Floats:
        given = (getattr(policy, name) for policy in policies)
        return np.array([default, *(default if value is None else value for value in given)], np.float64)

    return Directives(
        changes_per_day=column("changes_per_day", np.nan),
        interval_seconds=column("refresh_interval_seconds", 0.0),
        forbidden=np.array([0, *(policy.refresh_forbidden for policy in policies)], np.uint8),
        factor=column("importance_factor", 1.0),
        shortest_seconds=column("shortest_interval_seconds", 0.0),
        longest_seconds=column("longest_interval_seconds", 0.0),
        requested_second=np.array([-1, *(one.second for one in requesting)], np.int64),
        number=np.array([0, *(one.number for one in standing)], np.int64),
    )


def _prefixes(policy: Policy) -> list[bytes]:
    """Return the prefixes of the URLs of a policy's host or prefix."""
    if policy.host is not None:
        return [f"{scheme}://{policy.host}/".encode() for scheme in ("http", "https")]
    return [policy.url_prefix.encode()] if policy.url_prefix is not None else []


def _sorted_prefixes(given: Iterable[bytes]) -> tuple[Prefixes, list[bytes]]:
    hashed = sorted((hash_text(host(text)), text) for text in given)
    texts = [text for _, text in hashed]
    hosts, first = np.unique(np.array([hash_ for hash_, _ in hashed], np.uint64), return_index=True)
    parent = np.full(len(texts), -1, np.int64)
    open_: list[int] = []
    for at, text in enumerate(texts):
        while open_ and not text.startswith(texts[open_[-1]]):
            open_.pop()
        if open_:
            parent[at] = open_[-1]
        open_.append(at)
    found = Prefixes(
        hosts=hosts,
        first=np.append(first, len(texts)).astype(np.int64),
        starts=np.cumsum([0, *map(len, texts)], dtype=np.int64),
        text=np.frombuffer(b"".join(texts), np.uint8).copy(),
        parent=parent,
    )
    return found, texts


@inlined_kernel
def _common(text: Bytes, begin: Int, end: Int, other: Bytes, other_begin: Int, other_end: Int) -> Int:
    """Return the length of the common prefix of two texts."""
    most = min(end - begin, other_end - other_begin)
    same = 0
    while same < most and byte_at(text, begin + same) == byte_at(other, other_begin + same):
        same += 1
    return same


@lean_kernel
def _longest(prefixes: Prefixes, urls: Bytes, begin: Int, end: Int) -> Int:
    """Return the row of the longest prefix of a URL, or -1."""
    if end - begin < 9:  # http://a/
        return -1
    host_begin = begin + (8 if byte_at(urls, begin + 4) == 115 else 7)  # https:// or http://
    host_end = host_begin
    while host_end < end and byte_at(urls, host_end) != 47:
        host_end += 1
    group = find_number(prefixes.hosts, hash_bytes(urls, host_begin, host_end))
    if group < 0:
        return -1
    first = prefixes.first[group]
    low, high = first, prefixes.first[group + 1]
    while low < high:  # the last that does not come after the URL
        middle = (low + high) >> 1
        start, stop = prefixes.starts[middle], prefixes.starts[middle + 1]
        same = _common(prefixes.text, start, stop, urls, begin, end)
        if start + same == stop or (
            begin + same < end and byte_at(prefixes.text, start + same) < byte_at(urls, begin + same)
        ):
            low = middle + 1
        else:
            high = middle
    if low == first:
        return -1
    at: Int = low - 1
    same = _common(prefixes.text, prefixes.starts[at], prefixes.starts[at + 1], urls, begin, end)
    while at >= 0 and prefixes.starts[at + 1] - prefixes.starts[at] > same:
        at = prefixes.parent[at]
    return at


@inlined_kernel
def _longest_in_arena(prefixes: Prefixes, urls: Bytes, start: Int) -> Int:
    if start <= 0:
        return -1
    length = np.int64(urls[start - 1]) + (np.int64(urls[start]) << 8)
    return _longest(prefixes, urls, start + 1, start + 1 + length)


def _rows_of(
    rows: _IndexRows, prefixes: Prefixes, urls: Bytes, url_start: Ints, pages: Ids, categories: Bytes
) -> tuple[Ints, Ints]:
    """Return the rows of each page in an index: of the latest policy that governs it, and that requests it."""
    governing, requesting = np.zeros(len(pages), np.int64), np.zeros(len(pages), np.int64)
    _resolve(
        rows,
        prefixes,
        np.require(urls, np.uint8, ["C", "A", "W"]),
        np.require(url_start, np.int64, ["C", "A", "W"]),
        np.require(pages, np.uint64, ["C", "A", "W"]),
        np.require(categories, np.uint8, ["C", "A", "W"]),
        governing,
        requesting,
    )
    return governing, requesting


@lean_kernel
def _resolve(
    rows: _IndexRows,
    prefixes: Prefixes,
    urls: Bytes,
    url_start: Ints,
    pages: Ids,
    categories: Bytes,
    governing: Ints,
    requesting: Ints,
) -> None:
    """Find the row of the latest policy that governs each page, and of the latest that requests it."""
    for i in range(pages.shape[0]):
        governs = rows.of_category[categories[i], 0]
        requests = rows.of_category[categories[i], 1]
        at = find_number(rows.pages, pages[i])
        if at >= 0:
            governs = max(governs, rows.of_page[at, 0])
            requests = max(requests, rows.of_page[at, 1])
        at = _longest_in_arena(prefixes, urls, url_start[i]) if prefixes.hosts.shape[0] else -1
        if at >= 0:
            governs = max(governs, rows.of_prefix[at, 0])
            requests = max(requests, rows.of_prefix[at, 1])
        governing[i] = governs
        requesting[i] = requests


@lean_kernel
def _match_arena(prefixes: Prefixes, urls: Bytes, url_start: Ints, mask: Bools) -> None:
    for i in range(url_start.shape[0]):
        mask[i] = _longest_in_arena(prefixes, urls, url_start[i]) >= 0


@lean_kernel
def _match_ragged(prefixes: Prefixes, url_bytes: Bytes, url_starts: Ints, mask: Bools) -> None:
    for i in range(url_starts.shape[0] - 1):
        mask[i] = _longest(prefixes, url_bytes, url_starts[i], url_starts[i + 1]) >= 0
