"""Compiled loops over the columns of a ledger."""
