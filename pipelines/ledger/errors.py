"""Errors of a ledger. Every message is one line: what happened, where, and what to do."""

from opicflow.schemas.errors import UserError


class LedgerError(Exception):
    """The base of all errors of a ledger."""


class ConfigRefused(LedgerError, UserError, ValueError):
    """A configuration value makes no sense."""


class EntryRefused(LedgerError):
    """An entry would break the ledger. The ledger is exactly as it was before the entry was offered."""


class SnapshotRefused(LedgerError):
    """A snapshot is truncated, reordered, altered, or of a version this code does not know."""


class LedgerBroken(LedgerError):
    """The ledger met an overflow or a broken invariant and refuses to continue: restore a snapshot."""


class EntryUnknown(Exception):
    """An entry is sound, but of a kind or version that this code does not know."""
