"""The limits of fetches of a host and of a domain in a frontier. A day is one of UTC.

Fetches are counted by the last visits of pages, which the ledger has: so limits hold after a restart, too. A page that
is fetched twice a day counts once. The bandwidth is no such limit: plans divide it, and a crawler is as fast as it can.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.plan.survey import DAY, Budget, Survey, most_of_domains
from opicflow.pipelines.refresh.orders import rank_within
from opicflow.schemas.arrays import Array, Bools, Floats, Ids, Ints


def daily_limits(survey: Survey, budget: Budget) -> list[tuple[Array, Floats]]:
    """Return the limits of hosts and of domains, if there are any.

    Each is the number of the group of every page, and by group the fetches a day; inf = no limit.
    """
    limits = list[tuple[Array, Floats]]()
    if survey.hosts is not None:
        limits.append((survey.hosts.of, survey.hosts.here))
    if survey.domains is not None and np.isfinite(budget.domain_most):
        limits.append((survey.domains.of, most_of_domains(survey.domains, survey.hosts, budget)))
    return limits


def days_to_wait(
    survey: Survey, limits: list[tuple[Array, Floats]], rows: Ints, ranks: Floats, flying: Ids, now: float
) -> Ints:
    """Return for how many midnights each of these rows must wait, if the ones with lower ranks come first.

    `flying` are the pages that are being fetched.
    """
    waits = np.zeros(len(rows), np.int64)
    is_fetched = (survey.fetched >= int(now) // DAY * DAY) | np.isin(survey.pages, flying)
    for of, per_day in limits:
        order = np.lexsort((ranks, waits))  # pages that wait anyway take nothing of what others may have today
        np.maximum(waits, _waits_of(of, per_day, is_fetched, rows, order), out=waits)
    return waits


def _waits_of(of: Array, per_day: Floats, is_fetched: Bools, rows: Ints, order: Ints) -> Ints:
    has_limit = np.isfinite(per_day)
    most = np.where(has_limit, np.maximum(np.floor(per_day), 1), 1).astype(np.int64)
    used = np.minimum(np.bincount(of[is_fetched], minlength=len(per_day)), most)
    group = of[rows].astype(np.int64)
    number = np.empty(len(rows), np.int64)
    number[order] = rank_within(group[order], len(per_day))
    beyond = used[group] + number - most[group]
    waits: Ints = np.where(has_limit[group] & (beyond >= 0), beyond // most[group] + 1, 0)
    return waits


def host_gaps(survey: Survey, rows: Ints, hosts: Ids) -> dict[int, tuple[float, float]]:
    """Return by hash of the host how far apart its fetches must be, and when the last one was, where they must be.

    `hosts` are the hashes of the hosts of these rows.
    """
    if survey.hosts is None or not survey.hosts.gaps.any():
        return {}
    of, gaps = survey.hosts.of, survey.hosts.gaps
    last = np.zeros(len(gaps), np.int64)
    np.maximum.at(last, of, survey.fetched)
    number = of[rows]
    found = np.flatnonzero(gaps[number] > 0)
    pairs = zip(gaps[number[found]].tolist(), last[number[found]].tolist(), strict=True)
    return dict(zip(hosts[found].tolist(), pairs, strict=True))
