"""Threads that work ahead of another one, and give way to it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from threading import get_native_id

_STEPS_BEHIND = 5


def give_way() -> None:
    """Let the processor prefer the other threads of this process to this one, until it ends.

    For threads that are ahead of the one that everything waits for. On Linux only: elsewhere threads have no priority
    of their own.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # not allowed: it works without
            thread = get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _STEPS_BEHIND)
