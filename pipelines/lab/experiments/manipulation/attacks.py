"""Measures of manipulation: what attacks bring in a whole crawl, by default and with the limits of the good start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from opicflow.pipelines.lab.experiments.discovery.followed_orders import LedgerOrders
from opicflow.pipelines.lab.experiments.manipulation.schemes import (
    CALENDAR,
    CANONICALS,
    CHAINS,
    CYCLE,
    HUNDRED,
    INVENTED,
    SITE,
    SUBDOMAINS,
    THOUSAND,
    ManipulatedWeb,
    manipulated_web,
)
from opicflow.pipelines.lab.experiments.measures import exact_importance
from opicflow.pipelines.lab.experiments.tables import Row
from opicflow.pipelines.lab.web.change_rates import log_normal_rates
from opicflow.pipelines.ledger import Certified, DomainLimits, LedgerConfig, Outcome, RefreshConfig
from opicflow.schemas.arrays import Bytes, Ints
from opicflow.schemas.event_columns import BEST_QUALITY


@dataclass(frozen=True)
class Attack:
    """The pages of an attack, by a scheme, and the false reports of their servers. Without any, sites are honest."""

    scheme: str
    changes: bool = False
    """Every fetch finds another content."""
    modified: bool = False
    """The server reports at every fetch that the page was just modified; the content stays."""
    sitemaps: bool = False
    """A sitemap reports every hour that all pages were just modified."""
    quality: bool = False
    """Pages state a quality of 1, where honest ones state theirs; the operator believes it."""


REDIRECTS, FAKED = "redirect chains", "faked changes"
OF_ONE_DOMAIN = {
    REDIRECTS: Attack(CHAINS),
    "redirect cycle": Attack(CYCLE),
    "foreign canonicals": Attack(CANONICALS),
    "calendar": Attack(CALENDAR),
    FAKED: Attack(SITE, changes=True),
    "faked last_modified": Attack(SITE, modified=True),
    "hourly sitemaps": Attack(SITE, sitemaps=True),
    "quality from the site": Attack(SITE, quality=True),
    "farm on one domain": Attack(SITE, changes=True, sitemaps=True),
    "farm of subdomains": Attack(SUBDOMAINS, changes=True, sitemaps=True),
}
OF_MANY_DOMAINS = {
    "farm on a hundred domains": Attack(HUNDRED, changes=True, sitemaps=True),
    "farm on a thousand domains": Attack(THOUSAND, changes=True, sitemaps=True),
    "invented domains": Attack(INVENTED),
}
ATTACKS = OF_ONE_DOMAIN | OF_MANY_DOMAINS
ONE_HONEST, HUNDRED_HONEST, THOUSAND_HONEST = "one honest site", "a hundred honest sites", "a thousand honest sites"
HONEST = {ONE_HONEST: Attack(SITE), HUNDRED_HONEST: Attack(HUNDRED), THOUSAND_HONEST: Attack(THOUSAND)}
"""Sites with the links of a farm and no false reports."""
ALIKE = {HUNDRED: HUNDRED_HONEST, THOUSAND: THOUSAND_HONEST, INVENTED: THOUSAND_HONEST}
"""The honest sites that attacks on many domains are compared with; those of one domain are with one."""
BY_DEFAULT, GOOD_START = "by default", "good start"
DAYS_BETWEEN, READ_BEFORE = 10, 0.7
"""Days between two fetches of a page in the mean; the part of the honest pages that was read before."""
CRAWLED_DAYS, REFRESHED_DAYS, DAYS_ALONE = 60, 30, 2
"""The days of a crawl; its last ones, when refreshing is measured; and the first days without unread honest pages."""
_OF_CALENDAR = 3
"""A calendar has so many times as many pages, since it has no end."""
_FIRST_DAY, _HOURS = 20_000, 24
_DAY_MS = 86_400_000


def good_start(config: LedgerConfig, pages: int, bandwidth: float) -> LedgerConfig:
    """Return a configuration with the limits of the good start, in proportion to the web and the bandwidth."""
    limits = DomainLimits(most_unread=max(pages // 100, 1), most_announced=max(pages // 1000, 1), most_share=0.01)
    refresh = replace(config.refresh, domain_discovery_share=0.1, domain_fetches_per_day=bandwidth / 20)
    return replace(config, domains=limits, refresh=refresh)


def manipulation_attacks(pages: int, seed: int, size: int, attack: str, setting: str, strategy: str) -> list[Row]:
    """Measure what one of `ATTACKS`, or of `HONEST` sites, with `size` pages gets of a crawl of sixty days.

    The crawl has read the most important pages of an honest web in ten days. It fetches a tenth of the web a day by the
    orders of a ledger, a quarter for discovery. Then an honest page links to the target. Honest pages change around
    once in 14 days.

    Shares are in per cent, of the manipulator: `importance` at the end; `discovered` of the orders of discovery while
    honest pages wait, `alone` of the bandwidth of discovery in the two days after that; `refreshed` of the other orders
    of the last thirty days. `fetches` are those that it must answer a day, `pages` and `domains` what it must have. Of
    the honest web, `read` are the pages read a day while some wait, and `fresh` is the part of copies that are up to
    date, by importance, in the last thirty days.
    """
    chosen = (ATTACKS | HONEST)[attack]
    web = manipulated_web(pages, seed, chosen.scheme, _OF_CALENDAR * size if chosen.scheme == CALENDAR else size)
    bandwidth = pages / DAYS_BETWEEN
    config = LedgerConfig(history=Certified(), refresh=RefreshConfig(bandwidth_per_day=bandwidth, strategy=strategy))
    if setting == GOOD_START:
        config = good_start(config, pages, bandwidth)
    crawl = _Crawl(web, seed, chosen, config)
    crawl.begin(int(pages * READ_BEFORE))
    for day in range(1, CRAWLED_DAYS + 1):
        crawl.follow(day)
    row: Row = {"seed": seed, "attack": attack, "setting": setting, "strategy": strategy, "size": size}
    return [row | crawl.measures()]


class _Crawl:
    """A crawl that follows the orders of a ledger, and its counts."""

    def __init__(self, web: ManipulatedWeb, seed: int, attack: Attack, config: LedgerConfig) -> None:
        self._web, self._attack = web, attack
        share = config.refresh.discovery_share
        assert not isinstance(share, str)
        self._discovery_per_day = share * float(config.refresh.bandwidth_per_day or 0.0)
        self._random = np.random.Generator(np.random.PCG64([seed, 7]))
        pages = len(web.urls)
        self._rates, self._versions = log_normal_rates(self._random, pages), np.ones(pages, np.int64)
        self._quality = np.zeros(pages, np.uint8)
        if attack.quality:
            self._quality[:] = self._random.integers(1, BEST_QUALITY + 1, pages)
            self._quality[web.is_own] = BEST_QUALITY
        self._copies = np.zeros(pages, np.int64)
        self._is_read = np.zeros(pages, np.bool_)
        self._importance = exact_importance(web.honest)
        self._importance[web.is_own] = 0.0
        self._importance /= self._importance.sum()
        self._outcomes = _outcomes(web, attack.scheme)
        self._orders = LedgerOrders(web.after, web.urls, np.empty(0, np.int64), config)
        self._ordered: list[tuple[int, ...]] = []
        self._fresh = 0.0
        self._answered = 0

    def begin(self, read: int) -> None:
        """Read so many honest pages in some days, the most important first, and then the target."""
        honest = np.argsort(-self._importance[: self._web.target], kind="stable")[:read]
        for day, some in enumerate(np.array_split(honest, DAYS_BETWEEN), 1 - DAYS_BETWEEN):
            self._read(day, some)
        self._read(0, np.array([self._web.inviter, self._web.target]))

    def follow(self, day: int) -> None:
        """Follow the orders of a day."""
        web, midnight = self._web, (_FIRST_DAY + day - 1) * _DAY_MS
        self._versions += self._random.random(len(self._rates)) < -np.expm1(-self._rates)
        for hour in range(_HOURS if self._attack.sitemaps else 0):
            self._orders.announce(web.made, midnight + hour * _DAY_MS // _HOURS + 1)
        waiting = (self._orders.importance() > 0) & ~self._is_read & ~web.is_own
        numbers, is_unread = self._orders.cycle(_FIRST_DAY + day)
        is_own = web.is_own[numbers]
        counts = (int(some.sum()) for some in (waiting, is_own & is_unread, is_unread, is_own & ~is_unread, ~is_unread))
        self._ordered.append((*counts,))
        if day > CRAWLED_DAYS - REFRESHED_DAYS:
            self._fresh += float(self._importance @ (self._copies == self._versions)) / REFRESHED_DAYS
        self._read(day, numbers)

    def measures(self) -> Row:
        """Return the measures of the whole crawl."""
        web, last = self._web, slice(CRAWLED_DAYS - REFRESHED_DAYS, CRAWLED_DAYS)
        waiting, own_unread, unread, own, others = np.array(self._ordered).T
        days = int(np.argmin(waiting >= self._discovery_per_day)) or CRAWLED_DAYS
        alone = own_unread[days : days + DAYS_ALONE]
        importance = self._orders.importance()
        answers = np.flatnonzero(web.is_own & (self._outcomes != Outcome.FAILED))
        return {
            "importance": float(importance[web.is_own].sum() / importance.sum()) * 100.0,
            "discovered": int(own_unread[:days].sum()) / max(int(unread[:days].sum()), 1) * 100.0,
            "alone": int(alone.sum()) / (self._discovery_per_day * DAYS_ALONE) * 100.0,
            "refreshed": int(own[last].sum()) / max(int(others[last].sum()), 1) * 100.0,
            "fetches": self._answered / CRAWLED_DAYS,
            "pages": len(answers),
            "domains": len(np.unique(web.domain[answers])),
            "waiting_days": days,
            "read": int((unread - own_unread)[:days].sum()) / days,
            "fresh": self._fresh * 100.0,
        }

    def _read(self, day: int, numbers: Ints) -> None:
        attack, now_ms = self._attack, (_FIRST_DAY + day) * _DAY_MS
        is_own, outcomes = self._web.is_own[numbers], self._outcomes[numbers]
        if attack.changes:
            self._versions[numbers[is_own]] += 1
        self._orders.read(
            _FIRST_DAY + day,
            numbers,
            outcomes,
            digest=(self._versions[numbers] * len(self._versions) + numbers).astype(np.uint64),
            modified_ms=np.where(is_own & attack.modified, now_ms - 1000, 0),
            quality=self._quality[numbers],
        )
        self._answered += int((is_own & (outcomes != Outcome.FAILED)).sum())
        self._is_read[numbers] = True
        self._copies[numbers] = self._versions[numbers]


def _outcomes(web: ManipulatedWeb, scheme: str) -> Bytes:
    """Return how a visit of each page ends."""
    outcomes = np.where(web.is_redirect, Outcome.REDIRECTED, Outcome.FETCHED).astype(np.uint8)
    if scheme in (CANONICALS, INVENTED):
        outcomes[web.made] = Outcome.ALIASED if scheme == CANONICALS else Outcome.FAILED
    return outcomes
