"""Claims about discovery, and the rules that decide whether they hold."""

from __future__ import annotations

from collections.abc import Sequence

from opicflow.pipelines.lab.experiments.discovery.crawled_webs import HOSTILE, WEBS
from opicflow.pipelines.lab.experiments.discovery.crawls import MARKS
from opicflow.pipelines.lab.experiments.discovery.followed_orders import BY_COMMAND, LEARNT, RECOMPUTED
from opicflow.pipelines.lab.experiments.experiment import Claim
from opicflow.pipelines.lab.experiments.tables import Rows, distinct, mean, short, where

LARGE_SITES = ("archive", "portal", "shop")
"""The webs whose sites have directories; those of `homes` have a few pages."""
AHEAD, BEHIND, MORE_HOSTILE, FROM_LEDGER, FROM_COMMAND = 2.0, 1.0, 2.0, 2.0, 2.5
"""Points, in the mean of all seeds: how far learnt is ahead of recomputed importance at least, and behind it at most;
how much more hostile pages get at most; how far a ledger's orders are from the simulation at most, and how far those of
the command from the ledger's, on one seed. A ledger pushes residuals as visits come, a replay settles at its end."""
_RULE = "docs/results/discovery.md"
_MARKS = [mark for mark in MARKS if mark >= 10]


def of_discovery(rows: Rows) -> list[Claim]:
    """Return the claims about discovery."""

    def read(web: str, order: str, mark: int, measure: str = "read") -> float:
        return mean(rows, measure, web=web, order=order, mark=mark)

    def ahead(web: str, mark: int) -> float:
        return read(web, "learnt", mark) - read(web, "recomputed", mark)

    gains = {web: [ahead(web, mark) for mark in (20, 40)] for web in LARGE_SITES}
    least = {web: min(ahead(web, mark) for mark in _MARKS) for web in WEBS}
    first = {web: read(web, "learnt", 20) - read(web, "learnt at first", 20) for web in LARGE_SITES}
    hostile = {
        web: [read(web, "learnt", mark, "hostile") - read(web, "recomputed", mark, "hostile") for mark in _MARKS]
        for web in HOSTILE
    }
    at_half = {
        web: [(order, read(web, order, 40, "hostile")) for order in ("cash", "recomputed", "learnt")] for web in HOSTILE
    }
    literature = ("breadth-first", "in-degree", "Nutch's OPIC", "RankMass", "fractional", "cash", "recomputed")
    best = {web: max(literature, key=lambda order, web=web: read(web, order, 40)) for web in LARGE_SITES}  # type: ignore[misc]
    by_ledger = distinct(where(rows, order=RECOMPUTED), "web")
    made = [
        Claim(
            f"On webs of sites with directories, learnt reads at least {AHEAD:g} points more of all importance than "
            "recomputed importance, after 20 and 40 % of the pages.",
            _RULE,
            "; ".join(f"{web} {_points(found)}" for web, found in gains.items()),
            min(min(found) for found in gains.values()) >= AHEAD,
        ),
        Claim(
            f"On no web is it more than {BEHIND:g} point behind, at any mark from 10 % on.",
            _RULE,
            "the least: " + "; ".join(f"{web} {found:+.1f}" for web, found in least.items()),
            min(least.values()) >= -BEHIND,
        ),
        Claim(
            "On webs of sites with directories no order of the literature has read more after 40 % of the pages.",
            _RULE,
            "; ".join(
                f"{web}: {best[web]} {short(read(web, best[web], 40))}, learnt {short(read(web, 'learnt', 40))} %"
                for web in LARGE_SITES
            ),
            all(read(web, "learnt", 40) >= read(web, best[web], 40) for web in LARGE_SITES),
        ),
        Claim(
            "It is better than the rule that was tried first.",
            _RULE,
            "after 20 %: " + "; ".join(f"{web} {found:+.1f}" for web, found in first.items()),
            min(first.values()) > 0,
        ),
        Claim(
            "Traps and link farms get fewer of the pages read than by recomputed importance, in the mean of all marks "
            f"from 10 % on and at each from 40 % on, and never more than {MORE_HOSTILE:g} points more.",
            _RULE,
            "; ".join(f"{web}: from {min(found):+.1f} to {max(found):+.1f}" for web, found in hostile.items())
            + "; after 40 % "
            + "; ".join(
                f"{web}: " + ", ".join(f"{order} {short(share)} %" for order, share in found)
                for web, found in at_half.items()
            ),
            all(max(found) <= MORE_HOSTILE and max(found[_MARKS.index(40) :]) <= 0 for found in hostile.values()),
        ),
        Claim(
            "Cash reads important pages sooner than breadth first and random do.",
            "paper 002, 4.3",
            "after 10 %: "
            + "; ".join(
                f"{web} "
                + ", ".join(f"{order} {short(read(web, order, 10))}" for order in ("cash", "breadth-first", "random"))
                for web in ("hosted", *LARGE_SITES)
            ),
            all(
                read(web, "cash", 10) > read(web, other, 10)
                for web in ("hosted", *LARGE_SITES)
                for other in ("breadth-first", "random")
            ),
        ),
    ]
    return [*made, _ledger_claim(rows, [str(web) for web in by_ledger]), _command_claim(rows)]


def _points(values: Sequence[float]) -> str:
    return " and ".join(f"{value:+.1f}" for value in values)


def _ledger_claim(rows: Rows, webs: Sequence[str]) -> Claim:
    """The product's orders by importance are those of the simulation."""
    away = {
        web: [
            mean(rows, "read", web=web, order=RECOMPUTED, mark=mark)
            - mean(rows, "read", web=web, order="recomputed", mark=mark)
            for mark in (10, 20, 40)
        ]
        for web in webs
    }
    return Claim(
        f"A ledger that discovers by importance reads as much as recomputed importance, to {FROM_LEDGER:g} points.",
        _RULE,
        "after 10, 20 and 40 %: " + "; ".join(f"{web} " + ", ".join(f"{x:+.1f}" for x in away[web]) for web in webs),
        all(abs(value) <= FROM_LEDGER for found in away.values() for value in found),
    )


def _command_claim(rows: Rows) -> Claim:
    """Orders that the command writes are those of the ledger."""
    away: dict[str, list[float]] = {}
    for row in where(rows, order=BY_COMMAND):
        (same,) = where(rows, order=LEARNT, web=row["web"], seed=row["seed"], mark=row["mark"])
        away.setdefault(str(row["web"]), []).append(float(row["read"]) - float(same["read"]))
    return Claim(
        f"A crawl that runs opicflow replay every day reads as much as by the ledger, to {FROM_COMMAND:g} points.",
        _RULE,
        "; ".join(f"{web}: from {min(found):+.1f} to {max(found):+.1f}" for web, found in away.items()),
        all(abs(value) <= FROM_COMMAND for found in away.values() for value in found),
    )
