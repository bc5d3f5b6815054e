"""Freed memory goes back to the system."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from opicflow.pipelines.cli.memory_limit import memory_in_use
from opicflow.pipelines.stages.freed_memory import return_freed_memory

_SIZE = 100_000
"""So small that the allocator keeps memory that is freed below a column that is still used."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator of another C library")
def test_memory_that_was_freed_goes_back_although_some_above_it_is_used() -> None:
    columns = [np.ones(_SIZE, np.uint8) for _ in range(1000)]
    used = columns[-1]
    del columns
    before = memory_in_use()
    return_freed_memory()
    assert memory_in_use() < before - 50_000_000
    assert used.all()
