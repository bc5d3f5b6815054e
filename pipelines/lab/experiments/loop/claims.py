"""Claims about the closed loop beside other crawlers, and the rules that decide whether they hold."""

from __future__ import annotations

from opicflow.pipelines.lab.experiments.discovery.followed_orders import BY_COMMAND
from opicflow.pipelines.lab.experiments.discovery.reading_orders import OMNISCIENT
from opicflow.pipelines.lab.experiments.experiment import Claim
from opicflow.pipelines.lab.experiments.refresh.adaptive_schedules import NUTCH, STORMCRAWLER
from opicflow.pipelines.lab.experiments.refresh.competitors import ORACLE, ROUND_ROBIN
from opicflow.pipelines.lab.experiments.refresh.lambda_crawl import LAMBDA_CRAWL
from opicflow.pipelines.lab.experiments.tables import Rows, distinct, mean, short, where

MARKS = (1, 5, 10, 20, 40)
OTHER_ORDERS = ("breadth-first", "random", "in-degree", "Nutch's OPIC", "recomputed")
OTHER_SCHEDULERS = (ROUND_ROBIN, NUTCH, STORMCRAWLER, LAMBDA_CRAWL)
DEFAULT, FOR_AGE = "harmonic", "thesis"
OWN_STRATEGIES = (DEFAULT, FOR_AGE, "freshness")
NEAR_ORACLE = 3.0
"""Points of weighted freshness."""
_SOURCE = "the closed loop"
_LATE = [mark for mark in MARKS if mark >= 5]


def of_loop(rows: Rows) -> list[Claim]:
    """Return the claims about reading and refreshing."""
    read, years = [row for row in rows if "order" in row], where(rows, day=0)
    return [
        _reads_most(read, "read", "of all importance"),
        _reads_most(read, "best", "of the most important hundredth of the pages"),
        _below_omniscient(read),
        _beats_schedulers(
            years,
            f"`{DEFAULT}`, the default, has more copies up to date by importance than other schedulers, on every web.",
            DEFAULT,
            "fresh_weighted",
            1.0,
        ),
        _beats_schedulers(
            years,
            f"Copies of `{FOR_AGE}` lag behind less by importance than those of other schedulers, on every web.",
            FOR_AGE,
            "behind_weighted",
            -1.0,
        ),
        _near_oracle(years),
        _keeps_bandwidth(years),
    ]


def _of(rows: Rows, column: str, web: object, scheduler: str) -> float:
    return mean(rows, column, web=str(web), scheduler=scheduler)


def _reads_most(rows: Rows, column: str, what: str) -> Claim:
    """The default order reads the most, from a mark on."""
    least: list[tuple[float, str]] = []
    for web in distinct(rows, "web"):
        leads = [
            (_read(rows, column, web, BY_COMMAND, mark) - _read(rows, column, web, other, mark), other, mark)
            for mark in _LATE
            for other in OTHER_ORDERS
        ]
        lead, other, mark = min(leads)
        least.append((lead, f"{web} {lead:+.1f} after {mark} % ({other})"))
    return Claim(
        f"By default a crawl has read more {what} than by any order of others, from {_LATE[0]} % of the pages on.",
        _SOURCE,
        "points ahead of the nearest: " + "; ".join(text for _, text in least),
        min(lead for lead, _ in least) >= 0,
    )


def _read(rows: Rows, column: str, web: object, order: str, mark: int) -> float:
    return mean(rows, column, web=str(web), order=order, mark=mark)


def _below_omniscient(rows: Rows) -> Claim:
    behind = [
        _read(rows, column, web, OMNISCIENT, mark) - _read(rows, column, web, str(order), mark)
        for column in ("read", "best")
        for web in distinct(rows, "web")
        for order in distinct(rows, "order")
        for mark in MARKS
    ]
    return Claim(
        "No order has read more than the omniscient one, at any mark.",
        _SOURCE,
        f"at least {min(behind):.1f} points behind, in {len(behind)} comparisons",
        min(behind) >= -1e-9,
    )


def _beats_schedulers(rows: Rows, statement: str, own: str, column: str, sign: float) -> Claim:
    """A strategy has the best figure; `sign` is 1 if a large one is good, else -1."""
    measured, leads = [], []
    for web in distinct(rows, "web"):
        value = _of(rows, column, web, own)
        others = {name: sign * _of(rows, column, web, name) for name in OTHER_SCHEDULERS}
        best = max(others, key=others.__getitem__)
        leads.append(sign * value - others[best])
        measured.append(f"{web} {short(value)}, {best} {short(sign * others[best])}")
    return Claim(statement, _SOURCE, "; ".join(measured), min(leads) >= 0)


def _near_oracle(rows: Rows) -> Claim:
    found = {web: _of(rows, "fresh_weighted", web, DEFAULT) for web in distinct(rows, "web")}
    behind = {web: _of(rows, "fresh_weighted", web, ORACLE) - own for web, own in found.items()}
    return Claim(
        f"`{DEFAULT}`, which must learn everything, is within {NEAR_ORACLE:g} points of an oracle.",
        _SOURCE,
        "; ".join(f"{web} {found[web]:.1f} %, {away:.1f} points behind" for web, away in behind.items()),
        max(behind.values()) <= NEAR_ORACLE,
    )


def _keeps_bandwidth(rows: Rows) -> Claim:
    most = max(float(row["used"]) for row in rows)
    return Claim("No scheduler fetches more than its bandwidth.", _SOURCE, f"at most {most:.2f} %", most <= 100.05)
