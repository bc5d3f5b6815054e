"""Results in the formats of other systems: one module for each, and the table of all in `targets`.

A format is a function from rows, some at a time, to pieces of bytes, so its memory does not depend on the number of
rows.
"""
