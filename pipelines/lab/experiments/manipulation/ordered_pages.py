"""Measures of manipulation: what share of the orders of a crawl goes to a manipulator, with the existing limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from opicflow.pipelines.lab.experiments.discovery.followed_orders import LedgerOrders, discovering
from opicflow.pipelines.lab.experiments.manipulation.schemes import CYCLE, SCHEMES, ManipulatedWeb, manipulated_web
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.ledger import DomainLimits, LedgerConfig, Outcome
from opicflow.schemas.arrays import Bools, Bytes, Ints

DEFAULT = "learnt (the default)"
MOST_UNREAD, MOST_FETCHES = 100, 5
OF_HOSTS, FETCHES_OF_HOSTS = f"max-unread-per-host={MOST_UNREAD}", f"host-fetches={MOST_FETCHES}"
OF_DOMAINS = f"--max-unread-per-domain {MOST_UNREAD}"
FETCHES_OF_DOMAINS = f"domain-fetches={MOST_FETCHES}"
MOST_DISCOVERED = 0.1
DISCOVERY_OF_DOMAINS = f"domain-discovery={MOST_DISCOVERED:g}"
SETTINGS = (
    DEFAULT,
    OF_HOSTS,
    FETCHES_OF_HOSTS,
    "--max-pages",
    OF_DOMAINS,
    FETCHES_OF_DOMAINS,
    DISCOVERY_OF_DOMAINS,
)
"""The options of a crawl that are compared; all others are as by default. `--max-pages` is 1.05 times the web."""
ORDERED = (*SCHEMES, CYCLE)
"""The schemes whose orders are measured."""
MOMENTS = {"early": 0.2, "late": 0.9}
"""The share of the honest pages that is read before a manipulation begins."""
SEEDS_OF_CRAWL, DAYS = 10, 20
"""The pages that a crawl begins with; the days that are measured."""
_ROUNDS = 100
_FIRST_DAY = 20_000


def manipulation_orders(pages: int, seed: int, scheme: str, size: int, setting: str, moment: str) -> list[Row]:
    """Measure the share of the orders that go to a manipulator in the twenty days after it began, in per cent.

    A crawl begins at ten pages and reads, by the orders of a ledger, a hundredth of the web a day, until the share of
    `MOMENTS` is read. Then a page that was read, the one of median importance, links to the target, and the target is
    read: it has the links of the manipulation. For twenty more days all ordered pages are read. `own_orders` and
    `honest` are the orders of this time, `own` the share of the manipulator's, `known` the share of its pages among the
    unread pages that have importance when this time begins.
    """
    a_day = max(1, pages // _ROUNDS)
    config = config_of(setting, pages, a_day)
    web = manipulated_web(pages, seed, scheme, size)
    graph = web.honest
    linking = np.flatnonzero(graph.out_degrees > 0)
    first = np.sort(np.random.Generator(np.random.PCG64([seed, 3])).permutation(linking)[:SEEDS_OF_CRAWL])
    is_read = np.zeros(graph.pages, np.bool_)
    orders = LedgerOrders(graph, web.urls, first, config)
    day = _read_honest_pages(orders, is_read, int(pages * MOMENTS[moment]))
    read = linking[is_read[linking]]
    ranked = read[np.argsort(orders.importance()[read], kind="stable")]
    web = manipulated_web(pages, seed, scheme, size, int(ranked[len(ranked) // 2]))
    orders.graph = web.after
    begun = np.array([web.inviter, web.target])
    is_read[begun] = True
    orders.read(day, begun, _outcomes(web, begun))
    if web.is_announced:
        orders.announce(web.made)
    unread = (orders.importance() > 0) & ~is_read
    ordered = own = 0
    for _ in range(DAYS):
        day += 1
        numbers = orders.order(day)
        numbers = numbers[~is_read[numbers]]
        ordered += len(numbers)
        own += int(web.is_own[numbers].sum())
        is_read[numbers] = True
        orders.read(day, numbers, _outcomes(web, numbers))
    row: Row = {"seed": seed, "scheme": scheme, "size": size, "setting": setting, "moment": moment}
    row |= {
        "own_orders": own,
        "honest": ordered - own,
        "own": own / max(ordered, 1) * 100.0,
        "known": float(web.is_own[unread].mean()) * 100.0,
    }
    return [row]


def config_of(setting: str, pages: int, a_day: int) -> LedgerConfig:
    """Return the configuration of a ledger with one of `SETTINGS`."""
    config = discovering(a_day, "learnt")
    if setting == "--max-pages":
        return replace(config, max_pages=pages * 21 // 20)
    if setting == OF_DOMAINS:
        return replace(config, domains=DomainLimits(most_unread=MOST_UNREAD))
    if setting == FETCHES_OF_DOMAINS:
        return replace(config, refresh=replace(config.refresh, domain_fetches_per_day=float(MOST_FETCHES)))
    if setting == DISCOVERY_OF_DOMAINS:
        return replace(config, refresh=replace(config.refresh, domain_discovery_share=MOST_DISCOVERED))
    if setting == OF_HOSTS:
        return replace(config, max_unread_per_host=MOST_UNREAD)
    if setting == FETCHES_OF_HOSTS:
        return replace(config, refresh=replace(config.refresh, host_fetches_per_day=float(MOST_FETCHES)))
    return config


def _read_honest_pages(orders: LedgerOrders, is_read: Bools, wanted: int) -> int:
    """Read so many pages, a day's orders at a time. Return the last day."""
    day = _FIRST_DAY
    while (missing := wanted - int(is_read.sum())) > 0:
        day += 1
        numbers = orders.order(day)
        numbers = numbers[~is_read[numbers]][:missing]
        if len(numbers) == 0:
            raise RuntimeError(f"the crawl ended after {int(is_read.sum())} pages: {wanted} were to be read")
        is_read[numbers] = True
        orders.read(day, numbers)
    return day


def _outcomes(web: ManipulatedWeb, numbers: Ints) -> Bytes:
    return np.where(web.is_redirect[numbers], Outcome.REDIRECTED, Outcome.FETCHED).astype(np.uint8)
