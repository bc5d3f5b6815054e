"""Fuzzing of every reader, and of decode, route and ledger, in processes that may crash.

`corpus` and `mutations` make the inputs from a seed, `readers` checks one input, `worker` is the process that may
crash, `runner` starts it, and again after a crash. `python -m support.fuzz --help` runs it.
"""
