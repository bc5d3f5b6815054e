"""Memory that this process has freed, and its allocator keeps: it goes back to the system where a step has ended.

The allocator of glibc keeps what threads have freed, in pieces that are too small for the next large column. So without
this the memory of a step is that of all steps before, and its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def return_freed_memory() -> None:
    """Return freed memory to the system. Does nothing where the C library has no such call."""
    trim = _find_trim()
    if trim is not None:
        trim(0)


@cache
def _find_trim() -> Callable[[int], int] | None:
    """Return `malloc_trim` of the C library, which has no counterpart but in glibc."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # TypeError: Windows has no library without a name
        return None
    return found
