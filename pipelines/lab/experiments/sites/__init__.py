"""Experiment on ranks of sites: what their sums, the graph of sites and a ledger of sites say."""
