"""Copies of many pieces of a long column."""

from __future__ import annotations

from opicflow.schemas.arrays import Array
from opicflow.schemas.kernel import lean_kernel


@lean_kernel
def copy_spans(column: Array, begins: Array, sizes: Array, to: Array, first: int) -> None:
    """Copy pieces of a column, one after the other, to another one from the row `first` on."""
    end = first
    for i in range(begins.shape[0]):
        for row in range(sizes[i]):
            to[end + row] = column[begins[i] + row]
        end += sizes[i]
