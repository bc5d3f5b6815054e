"""Real data that is not in the repository: a folder beside it, or the one that OPICFLOW_DATA names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.paths import TOP

NO_DATA = "no real data: "  # the beginning of every skip here, for the summary of the run


def real_data(name: str) -> Path:
    """Return the path of a file of real data; skip the test if it is missing."""
    folder = Path(os.environ.get("OPICFLOW_DATA") or TOP.parent / "shared" / "data")
    if not (folder / name).is_file():
        pytest.skip(f"{NO_DATA}{name} is not in {folder}: name its folder in OPICFLOW_DATA")
    return folder / name
