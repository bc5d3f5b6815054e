"""The window of `certified`: the mean of a page's importance over the last days (docs/decisions/trend.md).

A page keeps the mean and the second of its last update, 0 before the first. An update is the paper's interpolation:
with x, its importance now, and T, the length of the window, after Δ seconds

    mean = mean * (T - Δ) / T + x * Δ / T    if Δ < T, else x

The clock is that of ticks. Before the first one there is no time, and no page has a window.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.certified.payments import page_base
from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.schemas.arrays import Int
from opicflow.schemas.kernel import inlined_kernel


@inlined_kernel
def certified_rate(table: Table, slot: Int, scale: float) -> float:
    """Return the income of a page and of one more step along its links, in units of `ResidualSums.scale`."""
    base = page_base(table, slot)
    carried = table.totals[slot] + table.hot[slot, 1] - base
    return (np.float64(base) + scale * np.float64(carried)) / UNITS_PER_PAGE


@inlined_kernel
def certified_importance(table: Table, book: Book, slot: Int) -> float:
    """Return the importance of a page by the sums of this shard now and the newest ones of all others."""
    sums, now = book.sums[0], book.now[0]
    own_bases, own_carried = np.float64(sums.bases), np.float64(sums.paid + sums.residual - sums.bases)
    bases = own_bases + now.bases_elsewhere
    rest = bases - (np.float64(sums.residual) + now.residual_elsewhere)
    scale = bases / rest if bases > 0.0 and rest > 0.0 else 1.0
    own = (own_bases + scale * own_carried) * np.float64(book.modes[0].like_us)
    everywhere = (own + now.bases_elsewhere + scale * now.carried_elsewhere) / UNITS_PER_PAGE
    return certified_rate(table, slot, scale) / everywhere if everywhere > 0.0 else 0.0


@inlined_kernel
def interpolate(mean: float, importance: float, share: float) -> float:
    """Return the mean with this importance since its last update, which is a `share` of the window ago.

    It is never outside of both, whatever is rounded.
    """
    if share >= 1.0:
        return importance
    moved = mean + share * (importance - mean)
    return min(max(moved, min(mean, importance)), max(mean, importance))


@inlined_kernel
def window_importance(table: Table, book: Book, slot: Int, importance: float) -> float:
    """Return the mean of a page's importance, which is given, over the window that ends now."""
    mean, second, now = table.window[slot, 0], table.window[slot, 1], book.now[0]
    return importance if second == 0.0 else interpolate(mean, importance, (now.second - second) / now.window_seconds)


@inlined_kernel
def keep_importance(table: Table, book: Book, slot: Int, importance: float) -> None:
    """Update the mean of a page's importance."""
    if book.now[0].second > 0.0:
        table.window[slot, 0] = window_importance(table, book, slot, importance)
        table.window[slot, 1] = book.now[0].second
