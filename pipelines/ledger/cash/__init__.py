"""Cash: how visits and transfers move it, and how importance follows from what pages earned.

What is here:

- `batches` applies rows of entries in one compiled loop. Under the history policy `certified` a visit is `certified`:
  it pays the change of what a page has paid; under the others it is `spending`: the page spends all that it has, with
  the round, dividends and opening balances, and its earnings go to a `history`.
- `residuals` pushes what visits left unpaid, and proves the certificate; `importance_window` keeps the mean of
  importance over the window of `certified`; `settling` says when the window of another policy holds importance.
- `reader` reads pages: estimates, rankings, URLs, links; `reads` and `payers` are its loops. `sweeps` finds the
  estimates that are worth publishing again. `peers` holds the sums over all shards, `balance` audits the books.

Promises: cash is conserved to the unit, after every entry; a transfer never causes a transfer. Readers change nothing.

May import: `pages`, the entries and the configuration of a ledger, schemas. Never `plan` or `shards`.
"""
