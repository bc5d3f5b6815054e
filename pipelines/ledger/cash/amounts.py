"""Amounts of cash: parts of them, rounded down, and the outbox for other shards."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.pages.layout import Book
from opicflow.schemas.arrays import Int
from opicflow.schemas.kernel import inlined_kernel

_LOW_Q20 = (1 << 20) - 1


@inlined_kernel
def damped(amount: Int, share_q20: Int) -> Int:
    """`amount * share / 2^20`, rounded down, for any amount without overflow."""
    return (amount >> 20) * share_q20 + (((amount & _LOW_Q20) * share_q20) >> 20)


@inlined_kernel
def split(amount: Int, weight: Int, total: Int) -> Int:
    """`amount * weight / total`, rounded down, for any amount without overflow."""
    return amount // total * weight + amount % total * weight // total


@inlined_kernel
def split_evenly(amount: Int, links: Int) -> Int:
    """The part of each of so many links of equal weight: what `split` returns, with one division."""
    return np.int64(np.uint64(amount) // np.uint64(links))


@inlined_kernel
def put_in_outbox(book: Book, page: Int, amount: Int) -> None:
    """An amount for a page of another shard waits for the next cut. The caller has seen to room."""
    at = book.counts[0].outbox
    book.outbox_pages[at] = page
    book.outbox_amounts[at] = amount
    book.counts[0].outbox = at + 1
