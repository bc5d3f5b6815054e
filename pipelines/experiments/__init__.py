"""The papers' experiments, and others: measures, the tables they make, plots of those, and what is to be read in them.

`experiments` says which there are; each is tasks (calls of a measure with a seed), tables, plots and findings.
"""
