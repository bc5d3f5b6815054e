"""Policies: columns equal a plain loop over all policies, and impossible policies are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opicflow.pipelines.refresh import policies as module
from opicflow.pipelines.refresh.policies import (
    MOST_SUBSCRIBERS_CHARACTERS,
    HostCaps,
    NumberedPolicy,
    Policies,
    check,
    default_host_caps,
    directives,
    has_subscriptions,
    host_caps,
    matches,
    matches_ragged,
    prefixes_of,
    subscribers,
)
from opicflow.schemas.pages import page_id
from opicflow.schemas.policy_json import PolicyRefused, policies_of, policy_to_json
from opicflow.schemas.records import Policy
from opicflow.schemas.urls import canonical

CATEGORIES = 3
HOSTS = ["example.org", "example.org:8080", "example.org.evil.example", "example.or", "a.example", "[::1]:8080"]
PATHS = ["", "a", "a/", "a/b", "a/b/c", "ab", "b?q=1", "a" * 300]
URLS = [f"{scheme}://{host}/{path}" for scheme in ("http", "https") for host in HOSTS for path in PATHS]
STRANGE = [b"", b"x", b"http://", b"https://", b"https:///", b"https://example.org", b"ftp://example.org/a"]

urls = st.one_of(st.sampled_from(URLS[:4]), st.sampled_from(URLS[:8]), st.sampled_from(URLS))
targets = st.one_of(
    urls.map(lambda url: {"url": url}),
    st.sampled_from(HOSTS).map(lambda host: {"host": host}),
    urls.map(lambda url: {"url_prefix": url}),
    st.integers(0, CATEGORIES - 1).map(lambda category: {"category": category}),
)
standing = st.fixed_dictionaries(
    {},
    optional={
        "changes_per_day": st.sampled_from([0.5, 3.0]),
        "refresh_interval_seconds": st.sampled_from([60.0, 3600.0]),
        "importance_factor": st.sampled_from([0.0, 1.0, 7.5]),
        "shortest_interval_seconds": st.sampled_from([1.0, 10.0]),
        "longest_interval_seconds": st.sampled_from([100.0, 1e6]),
    },
)
statements = st.one_of(
    standing,
    standing.filter(bool),
    standing.filter(bool),
    st.just({"refresh_forbidden": True}),
    st.just({"fetch_now": True}),
    standing.map(lambda rule: rule | {"fetch_now": True}),
    st.sampled_from([None, "al", "zoe"]).map(lambda name: {"notify": True, "publisher": name}),
    st.just({"notify": True, "fetch_now": True, "publisher": "al"}),
    st.just({"publisher": "al"}),
    st.just({"drop": True}),
    st.just({"forget": True}),
    st.just({}),
)
expiries = st.sampled_from([None, None, 3, 6])
of_pages = st.builds(
    lambda target, statement, at: Policy(**target, **statement, expires_at_ms=at), targets, statements, expiries
)
of_hosts = st.builds(
    lambda host, cap, rule, at: Policy(host=host, expires_at_ms=at, **cap, **rule),
    st.sampled_from(HOSTS),
    st.sampled_from([{"host_fetches_per_day": 1000.0}, {"host_fetches_per_hour": 9.0}, {"crawl_delay_seconds": 2.5}]),
    st.sampled_from([{}, {}, {"importance_factor": 2.0}]),
    expiries,
)
of_the_crawl = st.one_of(
    st.builds(
        lambda day, delay, at: Policy(host_fetches_per_day=day, crawl_delay_seconds=delay, expires_at_ms=at),
        st.sampled_from([5.0, 6.0]),
        st.sampled_from([None, 3.0]),
        expiries,
    ),
    st.just(Policy(discovery_share=0.5)),
)


def impossible(policy: Policy) -> bool:
    try:
        check(policy, CATEGORIES)
    except PolicyRefused:
        return True
    return False


possible_policies = st.one_of(of_pages, of_pages, of_pages, of_hosts, of_the_crawl).filter(
    lambda policy: not impossible(policy)
)
logs = st.lists(st.one_of(possible_policies, possible_policies, possible_policies, st.integers(0, 8)), max_size=14)
"""Policies in order; a number is a time in milliseconds at which expired policies are removed."""


class Page(NamedTuple):
    """A page as a row: its URL, whether the arena has it, and its category."""

    url: bytes
    known: bool = True
    category: int = 0


pages = st.lists(
    st.builds(
        Page,
        st.one_of(urls.map(str.encode), urls.map(str.encode), st.sampled_from(STRANGE)),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([0, 1, 2, 255]),
    ),
    max_size=20,
)


def arena_of(rows: Iterable[Page]) -> tuple[np.ndarray, np.ndarray]:
    """The URLs of rows as a ledger keeps them, last row first, and the start of each."""
    text, starts = bytearray(), []
    for row in reversed(list(rows)):
        starts.append(len(text) + 1 if row.known else 0)
        if row.known:
            text += len(row.url).to_bytes(2, "little") + row.url
    return np.frombuffer(bytes(text), np.uint8), np.array(starts[::-1], np.int64)


def rules_of(policies: Policies, rows: list[Page]) -> list[tuple[float, ...]]:
    text, starts = arena_of(rows)
    ids = np.array([page_id(row.url) for row in rows], np.uint64)
    columns = directives(policies, text, starts, ids, np.array([row.category for row in rows], np.uint8))
    assert {len(column) for column in columns} == {len(rows)}
    return [tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


# -- the same with lists and loops -----------------------------------------------------------------------------------


class Reference:
    """All policies ever applied, searched for every question."""

    def __init__(self) -> None:
        self.log: list[tuple[Policy, int, int]] = []
        self.times: list[tuple[int, int]] = []

    def apply(self, step: Policy | int) -> None:
        if isinstance(step, int):
            self.times.append((len(self.log), step))
        else:
            self.log.append((step, len(self.log) + 1, 1000 + len(self.log)))

    def is_over(self, at: int) -> bool:
        expires = self.log[at][0].expires_at_ms
        return expires is not None and any(after > at and now >= expires for after, now in self.times)

    @staticmethod
    def target(policy: Policy) -> tuple[Any, ...]:
        return policy.url, policy.host, policy.url_prefix, policy.category

    @staticmethod
    def is_rule(policy: Policy) -> bool:
        return Reference.governs(policy) or Reference.limits_hosts(policy)

    @staticmethod
    def governs(policy: Policy) -> bool:
        rules = (policy.changes_per_day, policy.refresh_interval_seconds, policy.importance_factor)
        limits = (policy.shortest_interval_seconds, policy.longest_interval_seconds)
        return policy.refresh_forbidden or any(value is not None for value in rules + limits)

    def holds(self, at: int, is_such: Any) -> bool:
        """Whether the policy's statement of a kind (`is_such`) is in force now."""
        policy = self.log[at][0]
        if not is_such(policy) or self.is_over(at) or policy.forget:
            return False
        for later, _, _ in self.log[at + 1 :]:
            if later.forget and self.is_part(policy, later):
                return False
            if self.target(later) == self.target(policy):
                nothing = not (self.is_rule(later) or later.fetch_now or later.notify or later.drop or later.forget)
                if is_such(Policy(notify=True)) and (later.publisher or "") != (policy.publisher or ""):
                    continue
                if is_such(later) or (nothing and any(self.target(later))) or (nothing and later.category == 0):
                    return False
        return True

    @staticmethod
    def is_part(policy: Policy, of: Policy) -> bool:
        if Reference.target(policy) == Reference.target(of):
            return True
        text = policy.url or policy.url_prefix
        return text is not None and of.url is None and Reference.falls_under(text.encode(), of)

    @staticmethod
    def falls_under(url: bytes, policy: Policy) -> bool:
        if policy.host is not None:
            return (
                url.startswith((b"http://", b"https://"))
                and url.split(b"/")[2:3] == [policy.host.encode()]
                and (url.count(b"/") > 2)
            )
        return policy.url_prefix is not None and url.startswith(policy.url_prefix.encode())

    def is_forgotten(self, url: bytes) -> bool:
        return any(
            policy.forget and not self.is_over(at) and self.falls_under(url, policy)
            for at, (policy, _, _) in enumerate(self.log)
        )

    def is_about(self, policy: Policy, page: Page) -> bool:
        if policy.url is not None:
            return page.url == policy.url.encode()
        if policy.category is not None:
            return page.category == policy.category
        return page.known and self.falls_under(page.url, policy)

    def directive(self, page: Page) -> tuple[float, ...]:
        rule = Policy()
        number, second = 0, -1
        for at, (policy, its_number, its_second) in enumerate(self.log):
            if self.is_about(policy, page):
                if self.holds(at, self.governs):
                    rule, number = policy, its_number
                if self.holds(at, lambda one: one.fetch_now):
                    second = its_second
        values = (
            math.nan if rule.changes_per_day is None else rule.changes_per_day,
            rule.refresh_interval_seconds or 0.0,
            int(rule.refresh_forbidden),
            1.0 if rule.importance_factor is None else rule.importance_factor,
            rule.shortest_interval_seconds or 0.0,
            rule.longest_interval_seconds or 0.0,
        )
        return (*values, second, number)

    def subscribers(self, page: Page) -> str | None:
        """Return the publishers that subscribed to the page; None: there are none."""
        named = [
            policy.publisher or ""
            for at, (policy, _, _) in enumerate(self.log)
            if self.is_about(policy, page) and self.holds(at, lambda one: one.notify)
        ]
        return ", ".join(sorted(set(filter(None, named)))) if named else None

    def caps(self) -> tuple[dict[bytes, HostCaps], HostCaps]:
        found = {
            policy.host.encode(): self.caps_of(policy)
            for at, (policy, _, _) in enumerate(self.log)
            if policy.host and self.limits_hosts(policy) and self.holds(at, self.is_rule)
        }
        of_all = [
            at for at, (policy, _, _) in enumerate(self.log) if not any(self.target(policy)) and self.is_rule(policy)
        ]
        of_all = [at for at in of_all if self.log[at][0].category is None]
        latest = of_all[-1] if of_all and not self.is_over(of_all[-1]) else None
        return found, HostCaps() if latest is None else self.caps_of(self.log[latest][0])

    @staticmethod
    def caps_of(policy: Policy) -> HostCaps:
        return HostCaps(policy.host_fetches_per_day, policy.host_fetches_per_hour, policy.crawl_delay_seconds)

    @classmethod
    def limits_hosts(cls, policy: Policy) -> bool:
        return cls.caps_of(policy) != HostCaps()


def forgets(reference: Reference, policy: Policy) -> bool:
    """Whether a policy names forgotten pages."""
    text = policy.url or policy.url_prefix or (policy.host and f"http://{policy.host}/")
    if not text or policy.forget:
        return False
    if policy.host:
        return any(
            one.forget and one.host == policy.host and not reference.is_over(at)
            for at, (one, _, _) in enumerate(reference.log)
        )
    return reference.is_forgotten(text.encode())


def play(log: list[Policy | int]) -> tuple[Policies, Reference]:
    policies, reference = Policies(), Reference()
    for step in log:
        if isinstance(step, int):
            policies = policies.expire(step)
        elif forgets(reference, step):
            with pytest.raises(PolicyRefused, match="is within what was forgotten"):
                policies.add(step, 0)
            continue
        else:
            policies = policies.add(step, 1000 + len(reference.log))
        reference.apply(step)
    return policies, reference


def same(found: list[tuple[float, ...]], wanted: list[tuple[float, ...]]) -> bool:
    return repr(found) == repr([tuple(row) for row in wanted])  # NaN is NaN


@given(logs, pages)
def test_columns_equal_a_loop_over_all_policies(log: list[Policy | int], rows: list[Page]) -> None:
    policies, reference = play(log)
    assert same(rules_of(policies, rows), [reference.directive(row) for row in rows])
    assert (host_caps(policies), default_host_caps(policies)) == reference.caps()
    text, starts = arena_of(rows)
    forgotten = [row.known and reference.is_forgotten(row.url) for row in rows]
    assert matches(policies.forgotten, text, starts).tolist() == forgotten


@given(logs, pages)
def test_subscribers_equal_a_loop_over_all_policies(log: list[Policy | int], rows: list[Page]) -> None:
    policies, reference = play(log)
    text, starts = arena_of(rows)
    found = subscribers(policies, text, starts, np.array([page_id(row.url) for row in rows], np.uint64))
    assert found.names[0] == ""
    named = [found.names[row] if row else None for row in found.rows.tolist()]
    assert named == [reference.subscribers(row) for row in rows]
    holding = [at for at in range(len(reference.log)) if reference.holds(at, lambda one: one.notify)]
    assert has_subscriptions(policies) == bool(holding)


@given(logs, pages)
def test_policies_in_force_are_the_same_after_json(log: list[Policy | int], rows: list[Page]) -> None:
    policies, _ = play(log)
    written = json.dumps(policies.to_json())
    read = Policies.from_json(json.loads(written), policies.page_ids)
    assert read == policies and list(read) == list(policies)
    assert json.dumps(read.to_json()) == written
    assert same(rules_of(read, rows), rules_of(policies, rows))
    again = Policy(host="a.example", importance_factor=3.0)
    if not any(one.policy.forget and one.policy.host == "a.example" for one in policies):
        assert read.add(again, 7) == policies.add(again, 7), "the numbers go on"


@given(st.lists(st.one_of(of_pages, of_hosts), max_size=8), pages)
def test_prefixes_match_what_begins_like_them(some_policies: list[Policy], rows: list[Page]) -> None:
    prefixes = prefixes_of(some_policies)
    wanted = [any(Reference.falls_under(row.url, policy) for policy in some_policies) for row in rows]
    starts = np.cumsum([0, *(len(row.url) for row in rows)])
    text = np.frombuffer(b"".join(row.url for row in rows), np.uint8)
    assert matches_ragged(prefixes, text, starts).tolist() == wanted
    arena, url_start = arena_of(rows)
    known = [row.known and match for row, match in zip(rows, wanted, strict=True)]
    assert matches(prefixes, arena, url_start).tolist() == known


# -- one rule at a time ----------------------------------------------------------------------------------------------

URL = "https://example.org/a"
PAGE = Page(URL.encode(), True, 1)
NOTHING = (math.nan, 0.0, 0, 1.0, 0.0, 0.0, -1, 0)


def after(*some_policies: Policy) -> Policies:
    policies = Policies()
    for second, policy in enumerate(some_policies, 100):
        check(policy, CATEGORIES)
        policies = policies.add(policy, second)
    return policies


def of_page(policies: Policies) -> dict[str, float]:
    columns = directives(policies, *arena_of([PAGE]), np.array([page_id(URL)], np.uint64), np.array([1], np.uint8))
    return {name: column.tolist()[0] for name, column in columns._asdict().items()}


def test_without_policies_pages_have_defaults_and_no_url_is_read() -> None:
    nowhere = np.zeros(0, np.uint8), np.array([1 << 50, 7], np.int64)
    columns = directives(Policies(), *nowhere, np.array([1, 2], np.uint64), np.array([0, 255], np.uint8))
    assert same([tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)], [NOTHING] * 2)
    assert [column.dtype for column in columns] == ["f8", "f8", "u1", "f8", "f8", "f8", "i8", "i8"]
    assert not matches(Policies().forgotten, *nowhere).any()
    assert (host_caps(Policies()), default_host_caps(Policies())) == ({}, HostCaps())
    assert same(rules_of(after(Policy(url=URL, fetch_now=True)), []), [])


def test_the_latest_rule_governs_whatever_its_target() -> None:
    rules = [
        Policy(url=URL, refresh_interval_seconds=60.0),
        Policy(host="example.org", importance_factor=2.0),
        Policy(url_prefix="https://example.org/", refresh_forbidden=True),
        Policy(category=1, changes_per_day=4.0),
    ]
    for turn in range(4):
        order = rules[turn:] + rules[:turn]
        found = of_page(after(*order))
        alone = of_page(after(order[-1]))
        assert repr(found) == repr(alone | {"number": 4}), "nothing of the other rules holds"


def test_a_rule_replaces_the_earlier_rule_of_its_target() -> None:
    pinned = Policy(url=URL, refresh_interval_seconds=60.0, importance_factor=2.0)
    assert of_page(after(pinned, Policy(url=URL, changes_per_day=1.0)))["interval_seconds"] == 0
    assert repr(of_page(after(pinned, Policy(url=URL)))) == repr(of_page(Policies()))
    assert len(after(pinned, Policy(url=URL))) == 0
    assert of_page(after(Policy(category=1, importance_factor=3.0), pinned, Policy(url=URL)))["factor"] == 3


def test_a_request_stays_after_a_rule_and_is_withdrawn_by_an_empty_policy() -> None:
    request, pinned = Policy(url=URL, fetch_now=True), Policy(url=URL, refresh_interval_seconds=60.0)
    for order in [(request, pinned), (pinned, request)]:
        found = of_page(after(*order))
        assert found["interval_seconds"] == 60
        assert (found["requested_second"], found["number"]) == (100 + order.index(request), 1 + order.index(pinned))
    assert of_page(after(request, request))["requested_second"] == 101
    assert of_page(after(request, Policy(host="example.org", fetch_now=True)))["requested_second"] == 101
    assert of_page(after(request, Policy(url=URL)))["requested_second"] == -1
    assert len(after(replace(pinned, fetch_now=True))) == 1
    assert list(after(request, pinned, Policy(url=URL, drop=True))) == list(after(request, pinned))


def test_requests_end_after_a_time() -> None:
    both = Policy(url=URL, fetch_now=True, importance_factor=2.0)
    policies = after(both, Policy(category=0, fetch_now=True))
    assert policies.without_requests_before(100) is policies
    assert of_page(policies.without_requests_before(101)) | {"requested_second": 100} == pytest.approx(
        of_page(policies), nan_ok=True
    )
    assert [one.number for one in policies.without_requests_before(102)] == [1]


def test_an_expired_rule_does_not_hold_and_the_rule_it_replaced_does_not_return() -> None:
    policies = after(
        Policy(url=URL, importance_factor=5.0),
        Policy(category=1, importance_factor=3.0),
        Policy(url=URL, importance_factor=2.0, expires_at_ms=1000),
    )
    assert policies.expire(999) is policies
    assert of_page(policies)["factor"] == 2
    assert of_page(policies.expire(1000))["factor"] == 3
    assert of_page(policies)["factor"] == 2, "it is immutable"
    assert policies.expire(1000).add(Policy(url=URL, importance_factor=7.0), 9).count == 4, "numbers are not used twice"


def test_a_cap_is_about_the_host_and_governs_none_of_its_pages() -> None:
    pinned, capped = Policy(category=1, importance_factor=2.0), Policy(host="example.org", host_fetches_per_day=9.0)
    policies = after(pinned, capped, Policy(host_fetches_per_day=7.0), Policy(discovery_share=0.5))
    assert of_page(policies)["factor"] == 2
    assert host_caps(policies) == {b"example.org": HostCaps(9.0)}
    assert default_host_caps(policies) == HostCaps(7.0)
    assert host_caps(policies.add(Policy(host="example.org", importance_factor=2.0), 0)) == {}


def test_policies_for_forgotten_pages_are_removed_and_refused() -> None:
    secret = "https://example.org/secret/page"
    before = [Policy(url=secret, fetch_now=True), Policy(url_prefix=secret, importance_factor=2.0)]
    for forget in [{"host": "example.org"}, {"url_prefix": "https://example.org/secret/"}]:
        policies = after(*before, Policy(host="example.org:8080", importance_factor=2.0), Policy(**forget, forget=True))
        assert "page" not in json.dumps(policies.to_json())
        assert len(policies) == 2
        with pytest.raises(PolicyRefused, match=r"^url_prefix is within what was forgotten \(.*\): name other"):
            policies.add(before[1], 0)
        assert of_page(policies.add(Policy(category=1, importance_factor=2.0), 0))["factor"] == 2
    policies = after(before[0], Policy(url=URL, fetch_now=True), Policy(url=secret, forget=True))
    assert [one.policy.url for one in policies] == [URL]
    forgetting = after(Policy(host="example.org", forget=True, expires_at_ms=50), Policy(host="example.or"))
    assert matches(forgetting.forgotten, *arena_of([PAGE])).tolist() == [True]
    with pytest.raises(PolicyRefused):
        forgetting.add(Policy(host="example.org"), 0)
    assert matches(forgetting.expire(50).forgotten, *arena_of([PAGE])).tolist() == [False]


@pytest.mark.parametrize(("first", "later"), [(None, 50), (90, 50), (50, None), (50, 90)])
def test_a_removal_lasts_as_long_as_the_longest_one_of_its_host(first: int | None, later: int | None) -> None:
    policies = after(*(Policy(host="example.org", forget=True, expires_at_ms=at) for at in (first, later)))
    assert matches(policies.expire(50).forgotten, *arena_of([PAGE])).tolist() == [True]
    assert matches(policies.expire(90).forgotten, *arena_of([PAGE])).tolist() == [None in (first, later)]


def test_two_hosts_with_one_hash_are_distinguished() -> None:
    prefixes = prefixes_of([Policy(host="a.example")])
    as_if = prefixes._replace(hosts=np.array([page_id("example.org")], np.uint64))
    assert matches(as_if, *arena_of([PAGE, Page(b"http://example.org/")])).tolist() == [False, False]


def test_of_nested_prefixes_the_latest_governs() -> None:
    paths = ["a/bc", "a/bb", "a/c", "abc", "ab", "b", "", "a"]
    rows = [Page(f"https://example.org/{path}".encode()) for path in paths]
    for order in permutations(["", "a", "a/", "a/b", "ab"]):
        rules = [
            Policy(url_prefix=f"https://example.org/{path}", importance_factor=2.0 + i) for i, path in enumerate(order)
        ]
        wanted = [max([1.0, *(2.0 + i for i, path in enumerate(order) if one.startswith(path))]) for one in paths]
        assert [row[3] for row in rules_of(Policies().add_all(rules, 0), rows)] == wanted
        found = matches(prefixes_of([*rules[:1], Policy(url_prefix="https://example.org/a/bb")]), *arena_of(rows))
        assert found.tolist() == [one.startswith((order[0], "a/bb")) for one in paths]


def test_many_prefixes_of_one_host_are_distinguished() -> None:
    texts = [f"https://example.org/{'a' * (i % 50)}{i % 7}/{i}/" for i in range(2_000)]
    policies = Policies().add_all(
        [Policy(url_prefix=text, importance_factor=1.0 + i) for i, text in enumerate(texts)], 0
    )
    rows = [Page(f"{text}page".encode()) for text in texts[::17]]
    assert [row[3] for row in rules_of(policies, rows)] == [1.0 + i for i in range(0, 2_000, 17)]


def test_the_number_of_policies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_IN_FORCE", 2)
    full = after(Policy(category=0, fetch_now=True, importance_factor=2.0), Policy(category=1, fetch_now=True))
    with pytest.raises(PolicyRefused, match=r"^2 policies are in force, the most there can be: withdraw some"):
        full.add(Policy(category=2, fetch_now=True), 0)
    assert len(full.add(Policy(category=1, fetch_now=True), 0)) == 2
    assert list(full) == [
        NumberedPolicy(Policy(category=0, fetch_now=True, importance_factor=2.0), 1, 100),
        NumberedPolicy(Policy(category=1, fetch_now=True), 2, 101),
    ]


# -- checks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"url": URL, "fetch_now": True, "refresh_forbidden": True},
        {"url": URL},
        {"host": "[::1]:8080", "drop": True},
        {"host": "xn--bcher-kva.example", "forget": True, "expires_at_ms": 5},
        {"category": 2, "importance_factor": 0.0},
        {"url_prefix": "https://example.org/", "shortest_interval_seconds": 1.0, "longest_interval_seconds": 1.0},
        {"damping": 0.85, "class_weights": (16,) * 6, "link_bonus_per_1024": (0, 0, 1024), "refresh_policy": "thesis"},
        {"fetches_per_second": 1.5, "discovery_share": 0.0, "host_fetches_per_day": 100.0},
        {"host_fetches_per_day": 100.0, "expires_at_ms": 2, "published_at_ms": 1},
        {"host": "a.example", "host_fetches_per_hour": 60.0, "crawl_delay_seconds": 1.0},
    ],
)
def test_possible_policies_are_accepted(fields: dict[str, Any]) -> None:
    check(Policy(**fields), CATEGORIES)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"rules_version": 2, "url": URL}, "rules_version is 2, and this version reads 1: update opicflow"),
        ({"rules_version": 0, "url": URL}, "rules_version is 0"),
        ({"url": URL, "category": 0}, "url and category are given: write one policy for each"),
        ({"host": "a.example", "url_prefix": URL, "category": 0}, "host and url_prefix and category are given"),
        ({"category": 3, "fetch_now": True}, "category is 3: give a number from 0 to 2"),
        ({"category": -1, "fetch_now": True}, "category is -1"),
        ({"url": "ftp://example.org/"}, "url is 'ftp://example.org/': begin it with http:// or https://"),
        ({"url": "example.org/a"}, "begin it with"),
        ({"url": "https://example.org/größe"}, "plain ASCII"),
        ({"url": "https://example.org/a b"}, "plain ASCII"),
        ({"url": "https://example.org/a\n"}, "plain ASCII"),
        ({"url": "https://example.org/#a"}, "plain ASCII"),
        ({"url": "https://example.org/" + "a" * 8192}, "at most 8192 bytes"),
        ({"url": "https://EXAMPLE.org/"}, "url is 'https://EXAMPLE.org/': give a whole canonical host"),
        ({"url": "https://example.org:443/"}, "give a whole canonical host"),
        ({"url": "https://me@example.org/"}, "give a whole canonical host"),
        ({"url_prefix": "https://example.org"}, "url_prefix is 'https://example.org': give a whole canonical host"),
        ({"url_prefix": "https://"}, "give a whole canonical host"),
        ({"url_prefix": "https:///a"}, "give a whole canonical host"),
        ({"host": "https://example.org"}, "host is 'https://example.org': give a canonical host"),
        ({"host": "example.org/"}, "host is"),
        ({"host": "Example.org"}, "host is"),
        ({"host": "bücher.example"}, "host is"),
        ({"host": ""}, "host is ''"),
        ({"host": "example.org:99999"}, "host is"),
        ({"url": URL, "changes_per_day": 0.0}, "changes_per_day is 0: give a number from"),
        ({"url": URL, "changes_per_day": -1.0}, "changes_per_day is -1"),
        ({"url": URL, "changes_per_day": math.nan}, "changes_per_day is nan"),
        ({"url": URL, "refresh_interval_seconds": 0.5}, "refresh_interval_seconds is 0.5: give a number from 1 to"),
        ({"url": URL, "refresh_interval_seconds": 3.2e9}, "refresh_interval_seconds is 3.2e+09"),
        ({"url": URL, "refresh_interval_seconds": math.inf}, "refresh_interval_seconds is inf"),
        ({"url": URL, "shortest_interval_seconds": 0.0}, "shortest_interval_seconds is 0"),
        ({"url": URL, "longest_interval_seconds": -5.0}, "longest_interval_seconds is -5"),
        ({"url": URL, "importance_factor": -0.1}, "importance_factor is -0.1: give a number from 0 to 1e+06"),
        ({"url": URL, "importance_factor": 1e6 + 1}, "importance_factor is 1e+06"),
        ({"host": "a.example", "host_fetches_per_day": 0.0}, "host_fetches_per_day is 0"),
        ({"fetches_per_second": 0.0}, "fetches_per_second is 0"),
        ({"discovery_share": 1.1}, "discovery_share is 1.1: give a number from 0 to 1"),
        ({"damping": -0.1}, "damping is -0.1"),
        (
            {"url": URL, "shortest_interval_seconds": 9.0, "longest_interval_seconds": 8.0},
            "shortest_interval_seconds is 9, longer than the longest, 8: exchange",
        ),
        (
            {"url": URL, "refresh_forbidden": True, "refresh_interval_seconds": 9.0},
            "refresh_forbidden and refresh_interval_seconds contradict each other: omit one",
        ),
        ({"url": URL, "published_at_ms": 5, "expires_at_ms": 5}, "expires_at is 5, not after published_at, 5: give"),
        ({"url": URL, "forget": True, "fetch_now": True}, "forget: a policy that forgets pages"),
        ({"url": URL, "forget": True, "importance_factor": 2.0}, "forget: a policy that forgets pages"),
        ({"host": "a.example", "forget": True, "host_fetches_per_day": 2.0}, "forget: a policy that forgets pages"),
        ({"url": URL, "drop": True, "fetch_now": True}, "drop and fetch_now contradict"),
        ({"importance_factor": 2.0}, "importance_factor: name the pages by a url, host, url_prefix or category"),
        ({"refresh_forbidden": True}, "refresh_forbidden: name the pages"),
        ({"fetch_now": True}, "fetch_now: name the pages"),
        ({"drop": True}, "drop: name the pages"),
        ({"forget": True}, "forget: name the pages"),
        ({"category": 0, "drop": True}, "drop: name a url, host or url_prefix"),
        ({"category": 0, "forget": True}, "forget: name a url, host or url_prefix"),
        ({"notify": True}, "notify: name the pages"),
        ({"category": 0, "notify": True}, "notify: name a url, host or url_prefix"),
        ({"url": URL, "forget": True, "notify": True}, "forget: a policy that forgets pages"),
        ({}, "it names no pages, and no setting of the whole crawl"),
        ({"damping": 0.5, "expires_at_ms": 9}, "expires_at: damping holds until another policy sets it"),
        ({"url": URL, "damping": 0.5}, "damping is a setting of the whole crawl: omit url"),
        ({"host": "a.example", "class_weights": (16,) * 6}, "class_weights is a setting of the whole crawl"),
        ({"category": 1, "link_bonus_per_1024": (0, 0, 0)}, "link_bonus_per_1024 is a setting"),
        ({"url": URL, "fetches_per_second": 1.0}, "fetches_per_second is a setting"),
        ({"url": URL, "discovery_share": 0.5}, "discovery_share is a setting"),
        ({"url": URL, "refresh_policy": "thesis"}, "refresh_policy is a setting"),
        ({"host": "a.example", "host_fetches_per_hour": 0.5}, "host_fetches_per_hour is 0.5: give a number from 1 to"),
        ({"crawl_delay_seconds": 3601.0}, "crawl_delay_seconds is 3601: give a number from 1 to 3600"),
        ({"url": URL, "crawl_delay_seconds": 9.0}, "crawl_delay_seconds holds for a host or the whole crawl"),
        ({"host": "a.example", "forget": True, "crawl_delay_seconds": 2.0}, "forget: a policy that forgets pages"),
        ({"category": 1, "host_fetches_per_day": 9.0}, "host_fetches_per_day holds for a host or the whole crawl"),
        ({"class_weights": (16, 16)}, "class_weights: give 6 whole numbers from 0 to 65536"),
        ({"class_weights": (0,) * 6}, "not all of them 0"),
        ({"class_weights": (16, 16, 16, 16, 16, -1)}, "class_weights: give 6"),
        ({"link_bonus_per_1024": (0, 0, 1025)}, "link_bonus_per_1024: give 3 whole numbers from 0 to 1024"),
        ({"link_bonus_per_1024": (0, 0)}, "link_bonus_per_1024: give 3"),
        ({"refresh_policy": "best"}, "refresh_policy is 'best': give one of thesis, freshness"),
    ],
)
def test_impossible_policies_are_refused_with_a_reason_of_one_line(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(PolicyRefused) as refused:
        check(Policy(**fields), CATEGORIES)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 250


@given(st.text(max_size=30), st.sampled_from(["http://", "https://", ""]))
def test_canonical_urls_and_their_hosts_are_accepted(text: str, scheme: str) -> None:
    try:
        url = canonical(scheme + text).decode()
    except ValueError:
        return
    check(Policy(url=url), CATEGORIES)
    check(Policy(url_prefix=url), CATEGORIES)
    check(Policy(host=url.split("/")[2]), CATEGORIES)


# -- JSON lines ------------------------------------------------------------------------------------------------------


def test_policies_are_read_from_json_lines() -> None:
    lines = [
        b'{"url": "https://example.org/a", "refresh_interval_seconds": 60, "publisher": "Gr\xc3\xb6\xc3\x9fe"}\n',
        b"\n",
        b'{"host": "a.example", "forget": true, "expires_at": "2002-11-27T01:00:00.5+01:00", "url": null}',
        b'{"class_weights": [16, 32], "published_at": 1038355200500, "rules_version": 1}',
        b'{"url": "https://example.org/", "expires_at": "2002-11-27 00:00Z"}',
    ]
    moment = 1_038_355_200_500
    assert policies_of(lines, "news.jsonl") == [
        Policy(url="https://example.org/a", refresh_interval_seconds=60.0, publisher="Größe"),
        Policy(host="a.example", forget=True, expires_at_ms=moment),
        Policy(class_weights=(16, 32), published_at_ms=moment),
        Policy(url="https://example.org/", expires_at_ms=moment - 500),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"x", "it is no JSON (Expecting value, character 1): correct it"),
        (b"{} {}", "it is no JSON (Extra data"),
        (b'{"url": "\xff"}', "it is not UTF-8"),
        (b"[]", "it is no JSON object"),
        (b"[" * 100_000, "it is no policy that can be read"),
        (b'{"category": ' + b"1" * 5000 + b"}", "it is no policy that can be read"),
        (
            b'{"url_prefx": "https://example.org/"}',
            "'url_prefx' is no field of a policy: did you mean url_prefix?",
        ),
        (b'{"expires_at_ms": 5}', "'expires_at_ms' is no field of a policy: did you mean expires_at?"),
        (b'{"wish": 5}', "'wish' is no field of a policy: leave it out"),
        (b'{"url": "https://a.example/", "url": "https://b.example/"}', "'url' is given twice"),
        (b'{"url": 5}', "url is 5: give a text"),
        (b'{"url": "\\ud800"}', "give a text"),
        (b'{"url": ["https://a.example/"]}', "url is a list: give a text"),
        (b'{"url": {}}', "url is an object: give a text"),
        (b'{"category": 1.0}', "category is 1.0: give a whole number of 32 bits"),
        (b'{"category": true}', "category is true: give a whole number"),
        (b'{"category": 2147483648}', "category is 2147483648: give a whole number of 32 bits"),
        (b'{"rules_version": null}', "rules_version is null: give a whole number"),
        (b'{"changes_per_day": "1"}', "changes_per_day is '1': give a finite number"),
        (b'{"changes_per_day": NaN}', "changes_per_day is nan: give a finite number"),
        (b'{"changes_per_day": 1e999}', "changes_per_day is inf: give a finite number"),
        (b'{"changes_per_day": 1' + b"0" * 400 + b"}", "give a finite number"),
        (b'{"changes_per_day": false}', "changes_per_day is false: give a finite number"),
        (b'{"fetch_now": 1}', "fetch_now is 1: give true or false"),
        (b'{"fetch_now": null}', "fetch_now is null: give true or false"),
        (b'{"class_weights": [1, 2.5]}', "class_weights is a list: give a list of whole numbers"),
        (b'{"class_weights": 16}', "class_weights is 16: give a list of whole numbers"),
        (
            b'{"expires_at": "2026-05-01T12:00:00"}',
            "expires_at is '2026-05-01T12:00:00': give milliseconds since 1970, or",
        ),
        (b'{"expires_at": "2026-05-01"}', "an ISO 8601 time with its zone"),
        (b'{"expires_at": "2026-13-01T12:00:00Z"}', "an ISO 8601 time with its zone"),
        (b'{"expires_at": "1767225600000"}', "an ISO 8601 time with its zone"),
        (b'{"expires_at": 1.5}', "expires_at is 1.5: give milliseconds"),
        (b'{"expires_at": 9223372036854775808}', "expires_at is 9223372036854775808: give milliseconds"),
    ],
)
def test_a_line_without_a_policy_is_refused_with_its_number(line: bytes, reason: str) -> None:
    with pytest.raises(PolicyRefused) as refused:
        policies_of([b'{"category": 1}', b"", line], "news.jsonl")
    assert str(refused.value).startswith("news.jsonl, line 3: ")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 250


doubles = st.none() | st.floats(allow_nan=False, allow_infinity=False)
wholes = st.integers(-(2**31), 2**31 - 1)
texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
any_policies = st.builds(
    Policy,
    rules_version=wholes,
    published_at_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
    publisher=texts,
    url=texts,
    category=st.none() | wholes,
    changes_per_day=doubles,
    refresh_forbidden=st.booleans(),
    class_weights=st.none() | st.lists(wholes, max_size=3).map(tuple),
    host=texts,
    expires_at_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
    host_fetches_per_day=doubles,
    host_fetches_per_hour=doubles,
    refresh_policy=texts,
)


@given(any_policies)
def test_a_policy_is_the_same_after_json(policy: Policy) -> None:
    line = json.dumps(policy_to_json(policy)).encode()
    assert policies_of([line], "x") == [policy]


@given(st.binary(max_size=40))
def test_any_line_is_read_or_refused(line: bytes) -> None:
    try:
        policies_of([line, b'{"category":' + line + b"}"], "x")
    except PolicyRefused as refusal:
        assert "\n" not in str(refusal)


def test_each_publisher_subscribes_and_withdraws_alone_and_the_names_are_bounded() -> None:
    host = {"host": "example.org"}
    both = after(Policy(**host, notify=True, publisher="zoe"), Policy(**host, notify=True, publisher="al"))

    def named(policies: Policies) -> str:
        text, starts = arena_of([PAGE])
        found = subscribers(policies, text, starts, np.array([page_id(PAGE.url)], np.uint64))
        return found.names[found.rows[0]]

    assert named(both) == "al, zoe"
    assert named(both.add(Policy(**host, publisher="zoe"), 0)) == "al"
    assert named(both.add(Policy(**host, importance_factor=2.0), 0)) == "al, zoe", "a rule withdraws nothing"
    assert not has_subscriptions(both.add(Policy(**host, forget=True), 0))
    many = after(*(Policy(**host, notify=True, publisher=f"reader {number:03}") for number in range(100)))
    assert named(many).startswith("reader 000, reader 001, ") and named(many).endswith("…")
    assert len(named(many)) == MOST_SUBSCRIBERS_CHARACTERS
