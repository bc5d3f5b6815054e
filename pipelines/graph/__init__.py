"""Off-line ranks of a link graph that fits in memory: the oracle that the ledger is held against. Pure."""
