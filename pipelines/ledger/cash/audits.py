"""The audit of a ledger: its balance, and the check of every total that it keeps."""

from __future__ import annotations

from opicflow.pipelines.ledger.cash.balance import Balance, laws_of_pages
from opicflow.pipelines.ledger.cash.certified import payment_laws
from opicflow.pipelines.ledger.cash.windows import spending_laws
from opicflow.pipelines.ledger.errors import LedgerBroken
from opicflow.pipelines.ledger.pages.layout import P_CERTIFIED, Book, Table


def balance_of(table: Table, book: Book) -> Balance:
    """Count the balance from the columns."""
    is_certified = book.modes[0].policy == P_CERTIFIED
    return payment_laws.balance_of(table, book) if is_certified else spending_laws.balance_of(table, book)


def audit(table: Table, book: Book, shard: int) -> Balance:
    """The balance, after checking it and every running total. Raises `LedgerBroken` for what does not hold."""
    is_certified = book.modes[0].policy == P_CERTIFIED
    balance, laws = payment_laws.audit(table, book) if is_certified else spending_laws.audit(table, book)
    laws |= laws_of_pages(table, book)
    if broken := [law for law, holds in laws.items() if not holds]:
        raise LedgerBroken(f"the books of shard {shard} do not balance: not so: {'; '.join(broken)}")
    return balance
