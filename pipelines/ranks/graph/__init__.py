"""Off-line ranks: of a graph in memory, the oracle that the ledger is held against, and of one on disk. Pure."""
