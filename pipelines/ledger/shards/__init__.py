"""Shards: what leaves a ledger, whole or in parts.

What is here:

- `cuts` seals the transfers to other shards.
- `snapshot` stores a ledger in chunks of bytes and reads it again; `snapshot_checks` and its loop `page_checks` refuse
  the content of a snapshot that no ledger can have.
- `reshard` makes the ledgers of another number of shards: `whole_web` is what the old ones hold together, `new_shard`
  what a new one takes over. These three use `Ledger` as other packages do; the others are parts of it.

Promises: what was sealed is the same whenever the same log is applied again. A snapshot that is read is the ledger that
was written, to the byte, or `SnapshotRefused`. Over another number of shards all sums stay the same, to the unit.

May import: `plan`, `cash`, `pages`, the entries and the configuration of a ledger, schemas; `reshard`, `new_shard` and
`whole_web` also `Ledger`.
"""
