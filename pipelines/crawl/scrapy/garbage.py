"""Objects that are there before a crawl are left out of Python's search for garbage: it takes time for each of them."""

from __future__ import annotations

import gc

_crawls = 0
"""The number of running crawls of this process for which `leave_out` was called."""


def leave_out() -> bool:
    """Leave out the objects that are there before a crawl. False if the project has done so itself.

    It looks through all objects several times in a thousand pages. Most of them are there for the whole crawl.
    """
    global _crawls
    if not _crawls:
        if gc.get_freeze_count():
            return False
        gc.collect()
        gc.freeze()
    _crawls += 1
    return True


def search_again() -> None:
    """Let Python look among these objects as well, if this was the last crawl of the process."""
    global _crawls
    _crawls -= 1
    if not _crawls:
        gc.unfreeze()
