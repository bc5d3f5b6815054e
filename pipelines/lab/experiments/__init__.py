"""The papers' experiments, and others: `importance` (papers 000 and 002) and `communities` (paper 004).

`catalogue` lists them. An experiment consists of tasks (calls of a measure with a seed), tables, plots, and claims that
are checked against the measured figures.
"""
