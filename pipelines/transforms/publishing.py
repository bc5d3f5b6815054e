"""What is published of a ledger, as columns: estimates with their URLs and the moment that they hold for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from opicflow.pipelines.ledger import Estimates, Ledger, Settled
from opicflow.schemas.columns import Column, pack

KIND = "importance"
ROWS_PER_PART = 1 << 16
_LEFT_OUT = ("known",)


def pack_estimates(ledger: Ledger, estimates: Estimates) -> bytes:
    """Estimates and all that their records need, as packed columns."""
    starts, urls = ledger.urls(estimates.pages)
    columns: dict[str, Column] = {
        f.name: getattr(estimates, f.name) for f in dataclasses.fields(estimates) if f.name not in _LEFT_OUT
    }
    columns["measured"] = estimates.measured.view(np.uint8)
    columns["url_lengths"] = np.diff(starts)
    columns["url_bytes"] = urls
    return pack(KIND, moment(ledger), columns)


def moment(ledger: Ledger) -> dict[str, Any]:
    """What all records of one moment have in common."""
    return {
        "pages": ledger.pages,
        "clock": ledger.turns,
        "event_time_ms": max(ledger.tick_second, 0) * 1000,
        "shard": ledger.shard,
        "cut": ledger.cut,
    }


def everything(ledger: Ledger, settled: Settled | None, rows_per_part: int = ROWS_PER_PART) -> Iterator[bytes]:
    """All pages as packed estimates, the most important first, in parts; with the settled ranks if there are some."""
    order, ranks = ledger.ranked(), None
    if settled is not None:
        rows = np.lexsort((settled.pages, -settled.importance))
        order, ranks = settled.pages[rows], settled.importance[rows]
    rate_sum = ledger.rate_sum()
    for first in range(0, max(len(order), 1), rows_per_part):
        part = slice(first, first + rows_per_part)
        estimates = ledger.estimate(order[part], rate_sum)
        if ranks is not None:
            estimates = replace(estimates, importance=ranks[part], score=ranks[part] * len(order))
        yield pack_estimates(ledger, estimates)


def rows_of(estimates: Estimates, rows: Any) -> Estimates:
    """These rows of them."""
    return Estimates(**{f.name: getattr(estimates, f.name)[rows] for f in dataclasses.fields(estimates)})
