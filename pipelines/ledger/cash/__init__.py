"""Cash: how visits and transfers move it, and how importance follows from what pages earned.

What is here:

- `batches` applies rows of entries in one compiled loop; `births` are pages that come, change their class and go.
- `certified` is the default history policy, `windows` are those of the papers. Neither imports the other: they meet in
  `births` and `batches`, and in `reads` and `audits`, which take the part of each.
- `reader` reads pages: estimates, rankings, URLs, links; `reads` and `payers` are its loops. `sweeps` finds the
  estimates that are worth publishing again. `peers` holds the sums over all shards, `balance` the conservation law.

Promises: cash is conserved to the unit, after every entry; a transfer never causes a transfer. Readers change nothing.

May import: `pages`, the entries and the configuration of a ledger, schemas. Never `plan` or `shards`.
"""
