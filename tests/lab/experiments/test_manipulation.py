"""Manipulation: what the schemes are made of, what their measures state, and claims that can fail."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from opicflow.pipelines.lab.experiments.manipulation.attacks import (
    ATTACKS,
    BY_DEFAULT,
    FAKED,
    GOOD_START,
    HONEST,
    ONE_HONEST,
    REDIRECTS,
    manipulation_attacks,
)
from opicflow.pipelines.lab.experiments.manipulation.gains import (
    CERTIFIED,
    EXACT,
    LIMITED_ANNOUNCED,
    LIMITED_SHARE,
    LIMITED_UNREAD,
    manipulation_gains,
)
from opicflow.pipelines.lab.experiments.manipulation.manipulation_experiment import of_manipulation
from opicflow.pipelines.lab.experiments.manipulation.ordered_pages import (
    DEFAULT,
    DISCOVERY_OF_DOMAINS,
    FETCHES_OF_DOMAINS,
    FETCHES_OF_HOSTS,
    MOST_FETCHES,
    ORDERED,
    SETTINGS,
    config_of,
    manipulation_orders,
)
from opicflow.pipelines.lab.experiments.manipulation.schemes import (
    ANNOUNCEMENTS,
    CALENDAR,
    CANONICALS,
    CHAINS,
    CHILDREN,
    CYCLE,
    FARM,
    HUNDRED,
    INVENTED,
    READ,
    SCHEMES,
    SITE,
    SUBDOMAINS,
    THOUSAND,
    TRAP,
    answering_pages,
    manipulated_web,
    without_links_in_domains,
)
from opicflow.pipelines.lab.experiments.tables import Row, Rows
from opicflow.pipelines.ranks.graph.oracle import pagerank
from opicflow.pipelines.refresh.strategies import BY_RATES
from opicflow.schemas.urls import canonical

PAGES, SIZE = 300, 40
LINKS = {  # from the target, and from every other page of the manipulator but the last ones
    FARM: (SIZE, 1),
    SUBDOMAINS: (SIZE, 1),
    TRAP: (SIZE, CHILDREN),
    ANNOUNCEMENTS: (1, 0),
    CYCLE: (1, 1),
    CHAINS: (answering_pages(SIZE), 1),
    SITE: (SIZE, 1),
    HUNDRED: (SIZE, 1),
    THOUSAND: (SIZE, 1),
    CANONICALS: (SIZE, 1),
    CALENDAR: (1, 1 + CHILDREN),
    INVENTED: (SIZE, 0),
}
DOMAINS = {FARM: 2, HUNDRED: 5, THOUSAND: SIZE + 1, INVENTED: SIZE + 1}


@cache
def gains(scheme: str) -> list[Row]:
    """Return the gains of a scheme of 100 pages. All tests share the result."""
    return manipulation_gains(PAGES, 1, scheme, 100)


@pytest.mark.parametrize("scheme", LINKS)
def test_a_scheme_adds_its_pages_and_one_honest_link(scheme: str) -> None:
    web = manipulated_web(PAGES, 1, scheme, SIZE)
    assert len(web.urls) == web.before.pages == web.after.pages == len(web.domain)
    assert len(set(web.urls)) == len(web.urls) and all(canonical(url.decode()) == url for url in web.urls[PAGES:])
    assert web.before.links == web.honest.links + 2
    honest_links = np.repeat(~web.is_own, web.after.out_degrees) & web.is_own[web.after.targets]
    assert honest_links.sum() == 1 and web.after.targets[honest_links] == web.target
    assert len(set(web.domain[web.is_own].tolist())) == DOMAINS.get(scheme, 1)
    assert not np.isin(web.domain[web.is_own], web.domain[~web.is_own]).any()
    assert 0 < web.good[:PAGES].sum() < PAGES / 2 and not web.good[web.is_own].any()


@pytest.mark.parametrize("scheme", LINKS)
def test_links_of_a_scheme_are_those_that_it_states(scheme: str) -> None:
    web = manipulated_web(PAGES, 1, scheme, SIZE)
    made = web.made[:-CHILDREN] if scheme == CALENDAR else web.made
    from_target, from_own = (web.after.out_degrees[pages] for pages in (web.target, made))
    assert (from_target, *set(from_own.tolist())) == LINKS[scheme]
    seen = web.seen(False)
    assert seen.out_degrees[web.made].sum() == 0 and seen.out_degrees[web.target] == from_target


def test_chains_of_twenty_redirects_end_at_pages_that_answer() -> None:
    web = manipulated_web(PAGES, 1, CHAINS, SIZE)
    answers = web.made[~web.is_redirect[web.made]]
    assert answers.tolist() == [web.made[20], web.made[-1]] and not web.is_redirect[: web.target + 1].any()
    for first, last in zip((web.made[0], web.made[21]), answers.tolist(), strict=True):
        page = first
        while web.is_redirect[page]:
            page = web.after.targets[web.after.starts[page]]
        assert page == last and web.after.targets[web.after.starts[page]] == web.target


def test_links_within_a_domain_are_left_out_and_others_stay() -> None:
    farm, subdomains = (without_links_in_domains(manipulated_web(PAGES, 1, one, SIZE)) for one in (FARM, SUBDOMAINS))
    assert subdomains.after.out_degrees[subdomains.made].sum() == 0
    assert farm.after.out_degrees[farm.made].sum() == SIZE


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_ranks_are_those_of_pages_that_the_crawl_knows(scheme: str) -> None:
    """The children of a trap are in the web, and unknown: the ranks must not count them."""
    rows = gains(scheme)
    (exact,) = (row for row in rows if row["how"] == EXACT)
    web = manipulated_web(PAGES, 1, scheme, 100)
    known = np.arange(PAGES + 1 + 100)
    graph = web.seen(scheme in READ)
    inside = np.repeat(np.arange(graph.pages), graph.out_degrees)[: graph.links]
    small = type(graph).from_links(len(known), inside, graph.targets.astype(np.int64))
    ranks = pagerank(small).values
    assert float(exact["target"]) == pytest.approx(100 * ranks[web.target], rel=1e-6)
    assert float(exact["own"]) == pytest.approx(100 * ranks[web.target :].sum(), rel=1e-6)
    (certified,) = (row for row in rows if row["how"] == CERTIFIED and row["round"] == exact["round"])
    assert float(certified["own"]) == pytest.approx(float(exact["own"]), rel=0.01)


def test_every_setting_changes_the_ledger() -> None:
    configs = [config_of(setting, 1_000, 10) for setting in SETTINGS]
    assert len({repr(config) for config in configs}) == len(SETTINGS)


def test_a_limit_of_a_host_holds_for_a_trap_and_not_for_subdomains() -> None:
    trap, subdomains = (
        manipulation_orders(3_000, 1, scheme, 400, FETCHES_OF_HOSTS, "late")[0]["own_orders"]
        for scheme in (TRAP, SUBDOMAINS)
    )
    assert int(trap) <= 20 * MOST_FETCHES < int(subdomains)


@pytest.mark.parametrize("setting", [FETCHES_OF_DOMAINS, DISCOVERY_OF_DOMAINS])
def test_a_limit_of_a_domain_holds_for_subdomains_too(setting: str) -> None:
    orders = manipulation_orders(3_000, 1, SUBDOMAINS, 400, setting, "late")[0]["own_orders"]
    assert 0 < int(orders) <= 20 * MOST_FETCHES


def attack(name: str, setting: str = BY_DEFAULT, strategy: str = "harmonic") -> Row:
    (row,) = manipulation_attacks(1_000, 1, 100, name, setting, strategy)
    return row


@pytest.mark.parametrize("strategy", ["thesis", "harmonic"])
def test_changes_at_every_fetch_bring_a_domain_at_most_twice_its_share_of_importance(strategy: str) -> None:
    honest, faked = (attack(name, strategy=strategy) for name in (ONE_HONEST, FAKED))
    assert 1.1 * float(honest["refreshed"]) < float(faked["refreshed"]) <= 2.2 * float(faked["importance"])


def test_the_good_start_bounds_a_domain_when_no_honest_page_waits() -> None:
    by_default, limited = (attack(ONE_HONEST, setting) for setting in (BY_DEFAULT, GOOD_START))
    assert float(limited["alone"]) <= 10.0 < float(by_default["alone"])
    assert float(limited["refreshed"]) < float(by_default["refreshed"])


def test_an_attack_costs_the_pages_domains_and_answers_that_it_needs() -> None:
    invented, redirects = attack("invented domains"), attack(REDIRECTS)
    assert (invented["pages"], invented["domains"]) == (1, 1) and float(invented["fetches"]) < 1.0
    assert (redirects["pages"], redirects["domains"]) == (101, 1) and float(redirects["fetches"]) > 0.5


@pytest.mark.slow
def test_limits_of_domains_bound_what_announcements_hold() -> None:
    held = {str(row["how"]): float(row["own"]) for row in manipulation_gains(PAGES, 1, ANNOUNCEMENTS, 200)}
    assert held[LIMITED_ANNOUNCED] < held[LIMITED_UNREAD] < held[CERTIFIED]
    assert held[LIMITED_SHARE] < held[CERTIFIED] / 5


def _rows() -> Rows:
    gained = [row for scheme in SCHEMES for row in gains(scheme)]
    orders = [
        {"scheme": scheme, "size": 1_000, "setting": setting, "moment": moment, "own": 1.0, "own_orders": 100}
        for scheme in ORDERED
        for setting in SETTINGS
        for moment in ("early", "late")
    ]
    shares = {"importance": 20.0, "discovered": 5.0, "alone": 5.0, "refreshed": 10.0}
    attacks = [
        {"attack": name, "size": 1_000, "setting": setting, "strategy": strategy, **shares}
        for name in ATTACKS | HONEST
        for setting in (BY_DEFAULT, GOOD_START)
        for strategy in BY_RATES
    ]
    weak = [{**row, "importance": 0.1, "refreshed": 0.1} if row["attack"] == REDIRECTS else row for row in attacks]
    return [*gained, *orders, *weak]


@pytest.mark.slow
def test_claims_fail_when_what_they_state_is_not_so() -> None:
    rows = _rows()
    held = {claim.statement: claim.holds for claim in of_manipulation(rows)}
    assert sum(held.values()) >= 9
    for how, scheme, name in ((CERTIFIED, FARM, "target"), (EXACT, FARM, "trust"), ("all", TRAP, "target")):
        changed = [{**row, name: 50.0} if row.get("how") == how and row["scheme"] == scheme else row for row in rows]
        assert sum(claim.holds for claim in of_manipulation(changed)) < sum(held.values()), (how, scheme, name)
    for names, setting, changed_share in (
        (["farm on one domain"], BY_DEFAULT, {"refreshed": 21.0}),
        (["foreign canonicals"], BY_DEFAULT, {"importance": 4.0}),
        (["calendar"], BY_DEFAULT, {"discovered": 11.0}),
        (["calendar"], BY_DEFAULT, {"alone": 11.0}),
        (["calendar"], GOOD_START, {"alone": 11.0}),
        (["invented domains"], BY_DEFAULT, {"discovered": 6.0}),
        (["invented domains"], BY_DEFAULT, {"refreshed": 21.0}),
        ([REDIRECTS], BY_DEFAULT, {"importance": 20.0}),
    ):
        more = [
            {**row, **changed_share} if row.get("attack") in names and row["setting"] == setting else row
            for row in rows
        ]
        assert sum(claim.holds for claim in of_manipulation(more)) == sum(held.values()) - 1, changed_share
    greedy = [{**row, "own": 50.0} if row.get("setting") == DEFAULT else row for row in rows]
    assert sum(claim.holds for claim in of_manipulation(greedy)) < sum(held.values())
