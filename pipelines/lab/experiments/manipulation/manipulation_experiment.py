"""The experiment on manipulation: its tasks, tables, claims, and the rules that decide whether these hold."""

from __future__ import annotations

from collections.abc import Sequence

from opicflow.pipelines.lab.experiments.experiment import Claim, Experiment, ResultTable
from opicflow.pipelines.lab.experiments.manipulation.attacks import (
    ALIKE,
    ATTACKS,
    BY_DEFAULT,
    FAKED,
    GOOD_START,
    HONEST,
    OF_MANY_DOMAINS,
    OF_ONE_DOMAIN,
    ONE_HONEST,
    REDIRECTS,
    manipulation_attacks,
)
from opicflow.pipelines.lab.experiments.manipulation.gains import (
    CERTIFIED,
    EXACT,
    LEDGERS,
    LIMITED_ANNOUNCED,
    LIMITED_SHARE,
    LIMITED_UNREAD,
    MARKS,
    MOST_SHARE,
    NO_INTERNAL,
    NO_UNREAD,
    manipulation_gains,
)
from opicflow.pipelines.lab.experiments.manipulation.ordered_pages import (
    DEFAULT,
    DISCOVERY_OF_DOMAINS,
    FETCHES_OF_DOMAINS,
    FETCHES_OF_HOSTS,
    MOMENTS,
    OF_DOMAINS,
    OF_HOSTS,
    ORDERED,
    SETTINGS,
    manipulation_orders,
)
from opicflow.pipelines.lab.experiments.manipulation.schemes import (
    ANNOUNCEMENTS,
    FARM,
    READ,
    SCHEMES,
    SUBDOMAINS,
    TRAP,
    answering_pages,
)
from opicflow.pipelines.lab.experiments.measures import DAMPING
from opicflow.pipelines.lab.experiments.tables import Row, Rows, distinct, mean, short, where
from opicflow.pipelines.lab.experiments.task_runner import MeasureTask, grid
from opicflow.pipelines.ledger import RefreshConfig
from opicflow.pipelines.refresh.strategies import BY_RATES

NEAR_EXACT, SLOW, UNCHANGED, LARGE, MASS = 0.01, 0.5, 1.1, 100, 0.95
EARLY, BOUNDED, EVADED = 3.0, 0.5, 0.9
TIMES_REFRESHED, OVER, MOST_DISCOVERED = RefreshConfig().domain_refreshing, 0.1, 10.0
"""The relative distance of certified importance from exact ranks at most; how much of certified gains other histories
have after a round at most; the factor of a target that gained nothing at most; from how many pages on a farm is large;
the spam mass of its target at least; per cent of early orders at most; the share of a trap's orders that limits of
hosts leave at most, and of the orders of subdomains at least; how many times its importance, or the refreshing of
honest sites, an attack has of refreshing at most; what orders, which are whole, may be above a plan; and per cent of
discovery at most."""
_PAGE = "docs/results/manipulation.md"


def of_manipulation(rows: Rows) -> list[Claim]:
    """Return the claims about manipulation."""
    return [
        *_claims_of_importance(rows),
        *_claims_of_trust(rows),
        *_claims_of_orders(rows),
        *_claims_of_attacks(rows),
    ]


def _claims_of_importance(rows: Rows) -> list[Claim]:
    first, last = MARKS
    apart = [
        abs(float(_same(rows, row, EXACT)[name]) / float(row[name]) - 1.0)
        for row in where(rows, how=CERTIFIED, round=last)
        for name in ("target", "own")
    ]
    hosts = [
        abs(float(row["target"]) / float(_same(rows, {**row, "scheme": FARM}, str(row["how"]))["target"]) - 1.0)
        for row in where(rows, scheme=SUBDOMAINS)
        if "how" in row and row["how"] != NO_INTERNAL
    ]
    soon = {
        how: max(
            mean(rows, "target", how=how, round=first, scheme=scheme, size=size)
            / mean(rows, "target", how=CERTIFIED, round=first, scheme=scheme, size=size)
            for scheme in (FARM, SUBDOMAINS)
            for size in distinct(rows, "size")
            if int(size) >= LARGE
        )
        for how in ("interpolation", "variable", "all")
    }
    unread = {
        scheme: max(
            mean(rows, "target", how=how, round=last, scheme=scheme, size=size)
            / mean(rows, "target_before", how=how, round=last, scheme=scheme, size=size)
            for how in LEDGERS
            if how != NO_INTERNAL
            for size in distinct(rows, "size")
        )
        for scheme in (TRAP, ANNOUNCEMENTS)
    }
    weightless = max(
        float(row["own"]) / float(row["target_before"])
        for row in where(rows, how=NO_UNREAD, scheme=ANNOUNCEMENTS, round=last)
    )
    held = max(
        float(row["own"]) - float(row["target"])
        for row in where(rows, how=LIMITED_SHARE, scheme=ANNOUNCEMENTS, round=last)
    )
    by_size = [
        mean(rows, "own", how=LIMITED_ANNOUNCED, scheme=ANNOUNCEMENTS, round=last, size=size)
        for size in distinct(rows, "size")
        if int(size) >= LARGE
    ]
    announced = max(by_size) / min(by_size)
    return [
        Claim(
            "Under certified a manipulator has what the exact ranks of the graph seen give it.",
            _PAGE,
            f"at most {max(apart):.1e} apart",
            max(apart) <= NEAR_EXACT,
        ),
        Claim(
            "Under every history a page on a subdomain of its own is worth to the target what one of a farm is.",
            _PAGE,
            f"at most {max(hosts):.1e} apart",
            max(hosts) <= NEAR_EXACT,
        ),
        Claim(
            "Other histories are slower: one round after a farm of 100 pages or more began, its target has at most "
            f"{SLOW:.0%} of its importance under certified.",
            _PAGE,
            "; ".join(f"{how} {share:.0%} at most" for how, share in soon.items()),
            max(soon.values()) <= SLOW,
        ),
        Claim(
            "Pages that are known and never read give their target nothing, under any history.",
            _PAGE,
            "; ".join(f"{scheme}: {short(factor)} times at most" for scheme, factor in unread.items()),
            max(unread.values()) <= UNCHANGED,
        ),
        Claim(
            f"With {NO_UNREAD} announcements give their owner nothing.",
            _PAGE,
            f"{short(weightless)} times the target's share before",
            weightless <= UNCHANGED,
        ),
        Claim(
            f"With {LIMITED_SHARE} pages that were never read, of one domain, have at most {MOST_SHARE:.1%} of all "
            "importance, but for what links from read pages bring them.",
            _PAGE,
            f"{ANNOUNCEMENTS}: {held:.2f} % at most",
            held <= 100 * MOST_SHARE * UNCHANGED,
        ),
        Claim(
            f"With {LIMITED_ANNOUNCED} thousands of announcements bring no more than {LARGE} do.",
            _PAGE,
            f"{short(announced)} times at most",
            announced <= UNCHANGED,
        ),
    ]


def _same(rows: Rows, row: Row, how: str) -> Row:
    """Return the row of the same manipulation that was measured in another way."""
    (found,) = where(rows, how=how, round=row["round"], seed=row["seed"], scheme=row["scheme"], size=row["size"])
    return found


def _claims_of_trust(rows: Rows) -> list[Claim]:
    exact = where(rows, how=EXACT)
    most = 1.0 / (1.0 - DAMPING**2)
    gained = [
        float(row["trust"]) / float(row["trust_before"])
        for row in exact
        if row["scheme"] in READ and row["trust_before"]
    ]
    masses = [float(row["mass"]) for row in exact if row["scheme"] in (FARM, SUBDOMAINS) and int(row["size"]) >= LARGE]
    return [
        Claim(
            f"However many pages are made, trust of a target grows at most {most:.2f} times: by the trust that comes "
            "back to it.",
            _PAGE,
            f"{short(max(gained))} times at most",
            max(gained) <= most,
        ),
        Claim(
            f"The target of a farm of {LARGE} pages or more has a spam mass of at least {MASS:g}.",
            _PAGE,
            f"{min(masses):.2f} at least",
            min(masses) >= MASS,
        ),
    ]


def _claims_of_orders(rows: Rows) -> list[Claim]:
    def late(scheme: str, setting: str) -> float:
        return mean(rows, "own_orders", moment="late", scheme=scheme, setting=setting, size=1_000)

    early = max(float(row["own"]) for row in where(rows, moment="early", setting=DEFAULT))
    limits = (OF_HOSTS, FETCHES_OF_HOSTS)
    of_trap, of_subdomains = (
        {limit: late(scheme, limit) / late(scheme, DEFAULT) for limit in limits} for scheme in (TRAP, SUBDOMAINS)
    )
    of_domains = {
        (scheme, limit): late(scheme, limit) / late(scheme, DEFAULT)
        for scheme in (TRAP, SUBDOMAINS)
        for limit in (OF_DOMAINS, FETCHES_OF_DOMAINS, DISCOVERY_OF_DOMAINS)
    }
    return [
        Claim(
            f"While most of the web is unread, no scheme gets more than {EARLY:g} % of the orders by default.",
            _PAGE,
            f"{short(early)} % at most, of {len(ORDERED)} schemes of up to {max(SIZES):,} pages",
            early <= EARLY,
        ),
        Claim(
            f"Once the honest web is read, limits of hosts leave a trap at most {BOUNDED:.0%} of its orders.",
            _PAGE,
            "; ".join(f"{limit} {share:.0%}" for limit, share in of_trap.items()),
            max(of_trap.values()) <= BOUNDED,
        ),
        Claim(
            f"Subdomains evade these limits: they keep at least {EVADED:.0%} of theirs.",
            _PAGE,
            "; ".join(f"{limit} {share:.0%}" for limit, share in of_subdomains.items()),
            min(of_subdomains.values()) >= EVADED,
        ),
        Claim(
            f"Limits of domains leave each of both at most {BOUNDED:.0%}.",
            _PAGE,
            "; ".join(f"{limit}: {scheme} {share:.0%}" for (scheme, limit), share in of_domains.items()),
            max(of_domains.values()) <= BOUNDED,
        ),
    ]


def _claims_of_attacks(rows: Rows) -> list[Claim]:
    def got(name: str, attack: str, setting: str = BY_DEFAULT, strategy: str = STRATEGY) -> float:
        return mean(rows, name, attack=attack, setting=setting, strategy=strategy)

    of_importance = {
        f"{attack}, {strategy}": got("refreshed", attack, BY_DEFAULT, strategy)
        / got("importance", attack, BY_DEFAULT, strategy)
        for strategy in BY_RATES
        for attack in (OF_ONE_DOMAIN if strategy == STRATEGY else (FAKED,))
    }
    honest = got("refreshed", ONE_HONEST)
    of_one = {attack: got("refreshed", attack) / honest for attack in OF_ONE_DOMAIN}
    waiting = {attack: got("discovered", attack) for attack in OF_ONE_DOMAIN}
    alone = {
        setting: {attack: got("alone", attack, setting) for attack in OF_ONE_DOMAIN}
        for setting in (BY_DEFAULT, GOOD_START)
    }
    of_many = {attack: ALIKE[chosen.scheme] for attack, chosen in OF_MANY_DOMAINS.items()}
    refreshed = {attack: got("refreshed", attack) / got("refreshed", sites) for attack, sites in of_many.items()}
    others = {
        attack: max(got(name, attack) / got(name, sites) for name in ("importance", "discovered"))
        for attack, sites in of_many.items()
    }
    by_vote = _redirects_against_site(rows)
    return [
        Claim(
            f"A domain gets at most {TIMES_REFRESHED:g} times its share of importance of refreshing, {OVER:.0%} more "
            "or less, whatever it does; with faked changes under every strategy that uses change rates.",
            _PAGE,
            _most(of_importance, "{:.2f} times"),
            max(of_importance.values()) <= TIMES_REFRESHED * (1 + OVER),
        ),
        Claim(
            f"No attack of one domain gets by default more than {TIMES_REFRESHED:g} times the refreshing of an honest "
            "site with as many pages.",
            _PAGE,
            _most(of_one, "{:.2f} times"),
            max(of_one.values()) <= TIMES_REFRESHED,
        ),
        Claim(
            f"While honest pages of this web wait, none gets by default more than {MOST_DISCOVERED:g} % of the orders "
            "of discovery.",
            _PAGE,
            _most(waiting, "{:.1f} %"),
            max(waiting.values()) <= MOST_DISCOVERED,
        ),
        *(
            Claim(
                f"When no honest page waits, none gets {named} more than {MOST_DISCOVERED:g} % of the bandwidth of "
                "discovery.",
                _PAGE,
                _most(alone[setting], "{:.1f} %"),
                max(alone[setting].values()) <= MOST_DISCOVERED,
            )
            for setting, named in ((BY_DEFAULT, "by default"), (GOOD_START, "with the good start"))
        ),
        Claim(
            "An attack on many domains has by default no more importance and discovery than as many honest sites with "
            f"its links, {UNCHANGED - 1:.0%} more or less.",
            _PAGE,
            _most(others, "{:.2f} times"),
            max(others.values()) <= UNCHANGED,
        ),
        Claim(
            f"It gets at most {TIMES_REFRESHED:g} times their refreshing.",
            _PAGE,
            _most(refreshed, "{:.2f} times"),
            max(refreshed.values()) <= TIMES_REFRESHED,
        ),
        Claim(
            f"Redirects bring no vote: chains of them bring their owner at most {UNCHANGED:g} times the importance "
            "that as many pages of a site bring as answer.",
            _PAGE,
            f"{short(by_vote)} times",
            by_vote <= UNCHANGED,
        ),
    ]


def _most(of: dict[str, float], text: str) -> str:
    attack = max(of, key=of.__getitem__)
    return f"{text.format(of[attack])} at most, {attack}"


def _redirects_against_site(rows: Rows) -> float:
    """Return what a page that answers after redirects brings its owner, against a page of a site.

    Against the honest web a manipulator has so much, for the target and each page that answers.
    """
    (size,) = distinct(where(rows, attack=REDIRECTS), "size")
    shares = [
        mean(rows, "importance", attack=attack, setting=BY_DEFAULT, strategy=STRATEGY) / 100.0
        for attack in (REDIRECTS, ONE_HONEST)
    ]
    votes = 1 + answering_pages(int(size)), 1 + int(size)
    chains, site = (share / (1.0 - share) / of for share, of in zip(shares, votes, strict=True))
    return chains / site


PAGES, RUNS = 10_000, 3
SIZES, LIMITED = (100, 1_000, 5_000), 1_000
"""The pages that a manipulator makes; and those of attacks, and with which the limits of orders are compared."""
PART_FOR_ATTACKS = 2
"""Webs with attacks have half of the pages: they are crawled for sixty days."""
STRATEGY = RefreshConfig().strategy
_HISTORIES = (EXACT, CERTIFIED, "interpolation", "variable", "all")
_SHOWN = [scheme for scheme in SCHEMES if scheme != SUBDOMAINS]
"""Subdomains gain the importance that a farm does."""
_LAST = max(MARKS)


def _tasks(pages: int, seeds: Sequence[int]) -> list[MeasureTask]:
    gains = grid(manipulation_gains, pages=pages, seed=seeds, scheme=SCHEMES, size=SIZES)
    orders = [
        MeasureTask.of(
            manipulation_orders, pages=pages, seed=seed, scheme=scheme, size=size, setting=setting, moment=moment
        )
        for seed in seeds
        for scheme in ORDERED
        for moment in MOMENTS
        for setting in (SETTINGS if moment == "late" else (DEFAULT,))
        for size in (SIZES if setting == DEFAULT else (LIMITED,))
    ]
    attacks = [
        MeasureTask.of(
            manipulation_attacks,
            pages=pages // PART_FOR_ATTACKS,
            seed=seed,
            size=LIMITED,
            attack=attack,
            setting=setting,
            strategy=strategy,
        )
        for seed in seeds
        for strategy in BY_RATES
        for setting in ((BY_DEFAULT, GOOD_START) if strategy == STRATEGY else (BY_DEFAULT,))
        for attack in (HONEST | ATTACKS if strategy == STRATEGY else (ONE_HONEST, FAKED))
    ]
    return attacks + gains + orders


def _tables(rows: Rows) -> list[ResultTable]:
    return [
        _of_attacks(rows),
        _of_gains(rows),
        _of_speed(rows),
        _of_options(rows),
        _of_trust(rows),
        _of_orders_by_size(rows),
        _of_orders(rows),
    ]


def _percent(value: float) -> str:
    return f"{value:.2g}" if value < 9.95 else f"{value:.1f}"


def _times(factor: float) -> str:
    return f"{factor:.2g}" if factor < 9.95 else f"{factor:,.0f}"


def _range(rows: Rows, name: str) -> str:
    values = [float(row[name]) for row in rows]
    return f"{min(values):.2f} to {max(values):.2f}"


def _of_attacks(rows: Rows) -> ResultTable:
    lines = []
    for attack in (*HONEST, *ATTACKS):
        settings = [
            where(rows, attack=attack, setting=setting, strategy=STRATEGY) for setting in (BY_DEFAULT, GOOD_START)
        ]
        costs = [f"{mean(settings[0], name):,.0f}" for name in ("pages", "domains")]
        shares = [
            " / ".join(_percent(mean(chosen, name)) for chosen in settings)
            for name in ("fetches", "importance", "discovered", "alone", "refreshed", "read", "fresh")
        ]
        lines.append((attack, *costs, *shares))
    heads = (
        "attack",
        "pages",
        "domains",
        "fetches a day",
        "importance",
        "discovery",
        "alone",
        "refreshing",
        "honest pages read a day",
        "honest web fresh",
    )
    title = (
        "Attacks and what they bring: their cost; their shares in per cent; and of the honest web, the unread pages "
        "read a day while some wait, and the part that is up to date; by default / with the good start"
    )
    return ResultTable(title, heads, lines)


def _of_gains(rows: Rows) -> ResultTable:
    lines = [
        (scheme, f"{size:,}", *(_target_and_all(rows, scheme, size, how, _LAST) for how in _HISTORIES))
        for scheme in _SHOWN
        for size in SIZES
    ]
    title = f"Importance after {_LAST} rounds: the target / all pages of the manipulator, per cent"
    return ResultTable(title, ("scheme", "k", *_HISTORIES), lines)


def _of_speed(rows: Rows) -> ResultTable:
    lines = [
        (number, *(_target_and_all(rows, FARM, LIMITED, how, number) for how in _HISTORIES[1:])) for number in MARKS
    ]
    title = f"How soon, with a farm of {LIMITED:,} pages: the target / all pages of the manipulator, per cent"
    return ResultTable(title, ("rounds", *_HISTORIES[1:]), lines)


def _target_and_all(rows: Rows, scheme: str, size: int, how: str, number: int) -> str:
    chosen = where(rows, scheme=scheme, size=size, how=how, round=number)
    return f"{_percent(mean(chosen, 'target'))} / {_percent(mean(chosen, 'own'))}"


def _of_options(rows: Rows) -> ResultTable:
    how = (CERTIFIED, NO_UNREAD, NO_INTERNAL, LIMITED_SHARE, LIMITED_UNREAD, LIMITED_ANNOUNCED)
    lines = [(scheme, *(_target_and_all(rows, scheme, LIMITED, one, _LAST) for one in how)) for scheme in SCHEMES]
    title = (
        f"Options that change importance, {LIMITED:,} pages, certified: the target / all pages of the manipulator, "
        "per cent"
    )
    heads = ("scheme", "none", NO_UNREAD, f"{NO_INTERNAL} same-site=domain", *how[3:])
    return ResultTable(title, heads, lines)


def _of_trust(rows: Rows) -> ResultTable:
    lines = []
    for scheme in _SHOWN:
        for size in SIZES:
            chosen = where(rows, scheme=scheme, size=size, how=EXACT)
            trust = mean(chosen, "trust") / mean(chosen, "trust_before")
            importance = mean(chosen, "target") / mean(chosen, "target_before")
            masses = [_range(chosen, name) for name in ("mass_before", "mass")]
            totals = [_percent(mean(chosen, name)) for name in ("own", "trust_own")]
            lines.append((scheme, f"{size:,}", _times(importance), _times(trust), *masses, *totals))
    heads = (
        "scheme",
        "k",
        "importance, times",
        "trust, times",
        "mass before",
        "mass",
        "importance of all, %",
        "trust of all, %",
    )
    return ResultTable("Trust of the target, and of all pages of the manipulator", heads, lines)


def _of_orders_by_size(rows: Rows) -> ResultTable:
    lines = [
        (scheme, moment, *(_ordered(rows, scheme, size, DEFAULT, moment) for size in SIZES))
        for scheme in ORDERED
        for moment in MOMENTS
    ]
    heads = ("scheme", "begins", *(f"k = {size:,}" for size in SIZES))
    title = "Orders of the manipulator's pages in twenty days, in per cent of all orders, by default"
    return ResultTable(title, heads, lines)


def _ordered(rows: Rows, scheme: str, size: int, setting: str, moment: str) -> str:
    return _percent(mean(rows, "own", scheme=scheme, size=size, setting=setting, moment=moment))


def _of_orders(rows: Rows) -> ResultTable:
    lines = []
    for setting in SETTINGS:
        shares = [_ordered(rows, scheme, LIMITED, setting, "late") for scheme in ORDERED]
        honest = mean(rows, "honest", size=LIMITED, setting=setting, moment="late")
        lines.append((setting, *shares, f"{honest:,.0f}"))
    title = f"The same, late, with {LIMITED:,} pages and limits; and the honest pages ordered"
    return ResultTable(title, ("setting", *ORDERED, "honest orders"), lines)


MANIPULATION = Experiment(
    "manipulation",
    "Manipulation",
    "A target is linked by one honest page of median importance, and links back. Then its owner makes k pages. "
    "*Off line* are the exact ranks of the graph seen.",
    "manipulation",
    _tasks,
    _tables,
    of_manipulation,
    pages=PAGES,
    runs=RUNS,
)
