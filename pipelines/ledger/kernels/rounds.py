"""Rounds of spending along remembered links, as `settlement` runs them."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.kernels.certified import damped
from opicflow.pipelines.ledger.kernels.index import find
from opicflow.pipelines.ledger.kernels.links import recall_links
from opicflow.pipelines.ledger.layout import Book, Int, Scratch, Table
from opicflow.schemas.arrays import Array
from opicflow.schemas.kernel import kernel, lean_kernel


@lean_kernel
def resolve_links(
    table: Table,
    book: Book,
    scratch: Scratch,
    slots: Array,
    row_of: Array,
    starts: Array,
    targets: Array,
    weights: Array,
) -> None:
    """Remembered links as rows of the pages they lead to, -1 where a page was dropped."""
    for row in range(slots.shape[0]):
        if starts[row + 1] > starts[row]:
            count = recall_links(table, book, scratch, slots[row])
            for i in range(count):
                slot = find(table.id_index, table.id_index_old, table.hot, scratch.pages[i])
                targets[starts[row] + i] = row_of[slot] if slot >= 0 else -1
                weights[starts[row] + i] = scratch.weights[i]


@kernel
def run_rounds(
    starts: Array,
    targets: Array,
    weights: Array,
    cash: Array,
    classes: Array,
    class_weights: Array,
    earned: Array,
    virtual: Int,
    rounds: Int,
    damping_q20: Int,
    spends_per_cut: Int,
) -> Array:
    """Run the rounds. Fills `earned` with the cash that pages spent in the later half; returns what they received."""
    rows = cash.shape[0]
    dividends = np.zeros(class_weights.shape[0], np.int64)
    seen = np.zeros(rows, np.int64)
    weighted = np.int64(0)
    for row in range(rows):
        weighted += class_weights[classes[row]]
    begun = np.zeros(rows, np.int64)
    spends = 0
    for turn in range(rounds):
        if turn == rounds // 2:
            for row in range(rows):
                begun[row] = cash[row] + dividends[classes[row]] - seen[row]
                earned[row] = 0
        for row in range(rows):
            class_ = classes[row]
            amount = cash[row] + dividends[class_] - seen[row]
            seen[row] = dividends[class_]
            cash[row] = 0
            earned[row] += amount
            total = np.int64(0)
            for i in range(starts[row], starts[row + 1]):
                total += weights[i]
            paid = np.int64(0)
            if total > 0:
                out = damped(amount, damping_q20)
                per_weight, rest = out // total, out % total
                for i in range(starts[row], starts[row + 1]):
                    if targets[i] >= 0:
                        share = per_weight * weights[i] + rest * weights[i] // total
                        cash[targets[i]] += share
                        paid += share
            virtual += amount - paid
            spends += 1
            if spends == spends_per_cut and weighted > 0:
                spends = 0
                each = virtual // weighted
                virtual -= each * weighted
                for c in range(dividends.shape[0]):
                    dividends[c] += each * class_weights[c]
    received = np.zeros(rows, np.int64)
    for row in range(rows):
        received[row] = earned[row] + cash[row] + dividends[classes[row]] - seen[row] - begun[row]
    return received
