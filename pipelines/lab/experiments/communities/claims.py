"""Claims of paper 004, and the rules that decide whether they hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opicflow.pipelines.lab.experiments.communities.accuracy import (
    AT_FIRST,
    IMPORTANCE,
    OUTLINKS,
    PF,
    RANDOM,
    SC,
    SC_TABLE,
)
from opicflow.pipelines.lab.experiments.communities.domains import EDGES, SITE, USUAL
from opicflow.pipelines.lab.experiments.experiment import Claim
from opicflow.pipelines.lab.experiments.measures import correlation, linear_correlation
from opicflow.pipelines.lab.experiments.tables import Row, Rows, distinct, mean, where

PAPERS = (SC, PF, OUTLINKS, RANDOM)
"""The paper's strategies: the others are ours."""
SCORES = {
    "influence": "influence, estimated (SC-Select)",
    "by_table": "influence, norms by table",
    "flow": "flow (PF-Select)",
    "linkers": "outlink count",
    "moved": "influence, by the true links of the page",
}

_COMPETITIVE = 1.1
"""A distance at most so many times another counts as equally good."""
_AS_GOOD_TAU = 0.01
_STRONG, _MUCH_WEAKER = 0.7, 0.2
_EARLY = 5


def usual(rows: Rows) -> list[Row]:
    """Return the rows of the usual web, or of an edge list."""
    return [row for row in rows if row["web"] in (USUAL, EDGES)]


def ultimate(rows: Rows) -> list[Row]:
    """Return the last row of every run."""
    return list({(row["seed"], row["web"], row["domain"], row["strategy"]): row for row in rows}.values())


def of_seeds(rows: Rows, name: str) -> tuple[float, float]:
    """Return the mean of a column, and half of the range of its means by seed."""
    return _middle([mean(rows, name, seed=seed) for seed in distinct(rows, "seed")])


def best_factor(rows: Rows) -> tuple[float, str]:
    """Return the largest factor by which a domain's L1 fell, as a mean over seeds, and the domain."""
    last = ultimate(rows)
    factors = {
        str(domain): mean(rows, "l1", domain=domain, round=0) / max(mean(last, "l1", domain=domain), 1e-300)
        for domain in distinct(rows, "domain")
    }
    best = max(factors, key=lambda domain: factors[domain])
    return factors[best], best


def correlations(rows: Rows, name: str, against: str) -> list[tuple[float, float]]:
    """Return Pearson's and Spearman's correlation of two columns: the mean over seeds, and half of their range."""
    return [
        _middle([measure(_column(some, name), _column(some, against)) for some in _by_seed(rows)])
        for measure in (linear_correlation, correlation)
    ]


def share_of_gain(rows: Rows, name: str) -> tuple[float, float]:
    """Return the gain of the tenth with the highest scores, in per cent of the best tenth's; and half of its range."""
    shares = []
    for some in _by_seed(rows):
        gain, score = _column(some, "gain"), _column(some, name)
        count = max(1, len(gain) // 10)
        chosen = np.argsort(-score, kind="stable")[:count]
        shares.append(100.0 * float(gain[chosen].sum() / max(np.sort(gain)[-count:].sum(), 1e-300)))
    return _middle(shares)


def of_table1(rows: Rows) -> list[Claim]:
    """Return the claims about sites."""
    last = ultimate(rows)
    ahead = _best_by_measure(last)
    ends = {strategy: mean(last, "l1", strategy=strategy) for strategy in PAPERS}
    return [
        Claim(
            "Stochastic complementation clearly outperforms the other methods in all metrics.",
            "paper 004, table 1",
            _of_measures(last),
            all(best == SC for best in ahead.values()),
        ),
        _competitive(last, "In all tests it outperforms the other methods, or is competitive with them."),
        Claim(
            "In the end Random is competitive with outlink count and flow, or better.",
            "paper 004, 6.2",
            "L1 " + _listed(ends),
            ends[RANDOM] <= _COMPETITIVE * max(ends[OUTLINKS], ends[PF]),
        ),
    ]


def of_table2(rows: Rows) -> list[Claim]:
    """Return the claims about topics."""
    last = ultimate(rows)
    worst = {
        str(domain): max(PAPERS, key=lambda strategy: mean(last, "l1", domain=domain, strategy=strategy))
        for domain in distinct(rows, "domain")
    }
    tau = {
        str(domain): {strategy: mean(last, "kendall", domain=domain, strategy=strategy) for strategy in PAPERS}
        for domain in distinct(rows, "domain")
    }
    return [
        _competitive(last, "Stochastic complementation has the smallest L1, or one as small, for every topic."),
        Claim(
            "It orders the pages of every topic best, by Kendall's tau.",
            "paper 004, table 2",
            "; ".join(f"{domain}: {_listed(found)}" for domain, found in tau.items()),
            all(found[SC] >= max(found.values()) - _AS_GOOD_TAU for found in tau.values()),
        ),
        Claim(
            "Random is the worst for every topic.",
            "paper 004, table 2",
            "the worst: " + ", ".join(f"{domain} {strategy}" for domain, strategy in worst.items()),
            all(strategy == RANDOM for strategy in worst.values()),
        ),
    ]


def of_influence(rows: Rows) -> list[Claim]:
    """Return the claims of figure 1, for the moment before other pages are read."""
    first = where(rows, moment=AT_FIRST)
    found = {
        str(domain): {name: correlations(where(first, domain=domain), name, "gain") for name in SCORES}
        for domain in distinct(first, "domain")
    }

    def correlation_of(name: str) -> str:
        return "; ".join(
            f"{domain}: Pearson {one[name][0][0]:.2f}, Spearman {one[name][1][0]:.2f}" for domain, one in found.items()
        )

    return [
        Claim(
            "The influence of a page correlates strongly with the objective.",
            "paper 004, figure 1",
            f"with what reading the page gains: {correlation_of('influence')}",
            all(one["influence"][0][0] >= _STRONG for one in found.values()),
        ),
        Claim(
            "Outlink count correlates with it much more weakly.",
            "paper 004, figure 1",
            correlation_of("linkers"),
            all(one["linkers"][0][0] <= one["influence"][0][0] - _MUCH_WEAKER for one in found.values()),
        ),
        Claim(
            "Influence by the true links, which are unknown before, correlates strongly with the objective.",
            "formula (7)",
            correlation_of("moved"),
            all(one["moved"][0][0] >= _STRONG for one in found.values()),
        ),
    ]


def of_community(all_rows: Rows) -> list[Claim]:
    """Return the claims of figure 2 and its text, and some of this project."""
    rows = usual(all_rows)
    last = ultimate(rows)
    factor, domain = best_factor(where(rows, strategy=SC))
    sites = where(rows, kind=SITE)
    early = {strategy: mean(sites, "l1", strategy=strategy, round=_EARLY) for strategy in PAPERS}
    ends = {strategy: mean(last, "l1", strategy=strategy) for strategy in (SC, SC_TABLE, PF, OUTLINKS, IMPORTANCE)}
    claims = [
        Claim(
            "By n or 2n pages more the estimate gets up to ten times better.",
            "paper 004, 8",
            f"SC-Select: at the best {factor:.1f} times ({domain})",
            factor >= 10.0,
        ),
        Claim(
            "The table of norms is as good as exact ones.",
            "paper 004, algorithm 3",
            "L1 after the last round, all domains: " + _listed({name: ends[name] for name in (SC, SC_TABLE)}),
            ends[SC_TABLE] <= 1.05 * ends[SC],
        ),
        Claim(
            "A live ledger's importance selects as well as SC-Select.",
            "ours",
            "L1 after the last round, all domains: " + _listed(ends),
            ends[IMPORTANCE] <= _COMPETITIVE * ends[SC],
        ),
    ]
    if sites:
        claims.insert(
            1,
            Claim(
                "In the first rounds the three strategies that use links all outperform Random on sites.",
                "paper 004, 6.2",
                f"L1 after {_EARLY} rounds: " + _listed(early),
                early[RANDOM] > max(early[strategy] for strategy in (SC, PF, OUTLINKS)),
            ),
        )
    return claims


def _competitive(last: Rows, statement: str) -> Claim:
    """SC-Select's L1 on every domain is at most so many times the best one's."""
    behind = {}
    for domain in distinct(last, "domain"):
        ends = {strategy: mean(last, "l1", domain=domain, strategy=strategy) for strategy in PAPERS}
        best = min(ends, key=lambda strategy: ends[strategy])
        behind[str(domain)] = (best, ends[SC] / ends[best] if ends[best] else 1.0)
    measured = ", ".join(
        f"{domain} the best" if best == SC else f"{domain} {factor:.2f} times {best}'s"
        for domain, (best, factor) in behind.items()
    )
    holds = all(factor <= _COMPETITIVE for _, factor in behind.values())
    return Claim(statement, "paper 004, 6.2", f"its L1, mean over seeds: {measured}", holds)


def _best_by_measure(last: Rows) -> dict[str, str]:
    """Who is ahead in each measure, mean over domains and seeds."""
    means = {name: {one: mean(last, name, strategy=one) for one in PAPERS} for name in ("l1", "linf", "kendall")}
    return {
        name: (max if name == "kendall" else min)(PAPERS, key=lambda one, found=found: found[one])  # type: ignore[misc]
        for name, found in means.items()
    }


def _of_measures(last: Rows) -> str:
    words = {"l1": "L1", "linf": "L∞", "kendall": "Kendall's tau"}
    return "; ".join(
        f"{word} " + _listed({one: mean(last, name, strategy=one) for one in PAPERS}) for name, word in words.items()
    )


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())


def _by_seed(rows: Rows) -> list[list[Row]]:
    return [where(rows, seed=seed) for seed in distinct(rows, "seed")]


def _column(rows: Rows, name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def _middle(values: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(values)), (max(values) - min(values)) / 2
