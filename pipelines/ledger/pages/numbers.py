"""Page numbers: remembered links refer to pages of this shard by a number of 4 bytes.

The number of a page is its slot, until the first page is removed: `named` has no rows then. From then on `named` has
the slot of every number, and `table.numbers` the number of the page in every slot. A page that is removed keeps its
number, which leads to `~row`, a row of the absent pages, until the page is learnt again. These rows hold the page id
and, under `certified`, what links carry to the page.

Numbers decide nothing and are no part of a snapshot. `renumber` removes those without use.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.pages.index import hashed
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.kernel import inlined_kernel, lean_kernel


@inlined_kernel
def is_local(book: Book, page: Int) -> bool | np.bool_:
    """Whether a page id falls in this shard's range."""
    if book.modes[0].alone != 0:
        return True
    return np.uint64(book.modes[0].first_id) <= np.uint64(page) <= np.uint64(book.modes[0].last_id)


@inlined_kernel
def follow(book: Book, number: Int) -> Int:
    """The slot of the page with this number; `~row` where the page is absent."""
    if book.named.shape[0] == 0:
        return np.int64(number)
    return np.int64(book.named[number])


@inlined_kernel
def number_of(table: Table, book: Book, slot: Int) -> Int:
    """The number of the page in a slot."""
    if book.named.shape[0] == 0:
        return np.int64(slot)
    return np.int64(table.numbers[slot])


@inlined_kernel
def add_number(book: Book, to: Int) -> Int:
    """A new number, which leads to a slot or to `~row`. The caller has seen to room."""
    number = book.store[0].numbers
    book.named[number] = to
    book.store[0].numbers = number + 1
    return number


@inlined_kernel
def has_room_for_numbers(book: Book, more: Int) -> bool:
    """Whether so many numbers can be added; the table must have begun if a page may be refused."""
    if book.named.shape[0] == 0:
        return book.forgotten.shape[0] == 0 and book.domains.shape[0] == 0
    return book.store[0].numbers + more <= book.named.shape[0]


# -- absent pages ------------------------------------------------------------------------------------------------------


@inlined_kernel
def _entry_of(index: Array, ids: Array, page: Int, multiplier: Int) -> Int:
    """The position of a page in the index of absent pages, or the free one where it would be."""
    mask = np.int64(index.shape[0] - 1)
    at = np.int64(hashed(page, multiplier) >> np.uint64(32)) & mask
    while index[at] != 0 and ids[index[at] - 1] != page:
        at = (at + 1) & mask
    return at


@inlined_kernel
def has_room_for_absent(book: Book, more: Int) -> bool:
    """Whether so many absent pages can be added."""
    return book.store[0].absent + more <= book.absent_ids.shape[0]


@lean_kernel
def absent_row(book: Book, page: Int) -> Int:
    """The row of an absent page, or -1. Pages that were learnt again may have kept theirs."""
    if book.store[0].absent == 0:
        return np.int64(-1)
    return (
        np.int64(book.absent_index[_entry_of(book.absent_index, book.absent_ids, page, book.store[0].multiplier)]) - 1
    )


@lean_kernel
def add_absent(book: Book, page: Int) -> Int:
    """The row of an absent page, which is added if it has none. The caller has seen to room."""
    at = _entry_of(book.absent_index, book.absent_ids, page, book.store[0].multiplier)
    row = np.int64(book.absent_index[at]) - 1
    if row < 0:
        row = book.store[0].absent
        book.absent_ids[row] = page
        book.absent_amounts[row] = 0
        book.absent_numbers[row] = -1
        book.absent_index[at] = row + 1
        book.store[0].absent = row + 1
    return row


@lean_kernel
def add_all_absent(book: Book, pages: Array, amounts: Array) -> None:
    """Add absent pages, with what links carry to each. The caller has seen to room."""
    for i in range(pages.shape[0]):
        book.absent_amounts[add_absent(book, pages[i])] = amounts[i]


@lean_kernel
def fill_absent_index(index: Array, ids: Array, rows: Int, multiplier: Int) -> None:
    """Fill an empty index with the first rows of the absent pages, no two of which are of one page."""
    for row in range(rows):
        index[_entry_of(index, ids, ids[row], multiplier)] = row + 1


@lean_kernel
def number_of_absent(book: Book, page: Int) -> Int:
    """The number of a page that is not in the ledger. The caller has seen to room."""
    row = add_absent(book, page)
    if book.absent_numbers[row] < 0:
        book.absent_numbers[row] = add_number(book, ~row)
    return np.int64(book.absent_numbers[row])


@lean_kernel
def give_number(table: Table, book: Book, slot: Int, row: Int) -> None:
    """A page enters the ledger: it has its number again, or gets one. `row` is that of `absent_row`."""
    if book.named.shape[0] == 0:
        return
    number: Int = np.int64(book.absent_numbers[row]) if row >= 0 else np.int64(-1)
    if number < 0:
        number = add_number(book, slot)
        if row >= 0:
            book.absent_numbers[row] = number
    book.named[number] = slot
    table.numbers[slot] = number


@lean_kernel
def keep_number(table: Table, book: Book, slot: Int) -> None:
    """A page leaves: its number leads to its row of the absent pages, for which the caller has seen to room."""
    row, number = add_absent(book, table.hot[slot, 0]), table.numbers[slot]
    book.absent_numbers[row] = number
    book.named[number] = ~row
