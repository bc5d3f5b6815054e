"""Bundles that end as soon as their work is done: Beam's sampler of time wakes up more often than by default.

Beam samples which step a bundle is in, on a thread of its own, to measure where the time goes. The bundle ends when
that thread has ended, and it sleeps up to a fifth of a second at a time, the longer the older the bundle is: a bundle
of one second waited a tenth of a second at its end, in which nothing was done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from opicflow.schemas.libraries import parts_of

LONGEST_SLEEP_MS = 5
"""Two hundred samples a second take 0.9 % of a core while a bundle is under way; as Beam has it, 0.05 %."""

_lock = Lock()
_defaults: list[Any] = []
"""Those of Beam, once for each pipeline under way."""


@contextmanager
def bundles_end_sooner() -> Iterator[None]:
    """Let bundles that begin meanwhile in this process wait for the sampler no longer than `LONGEST_SLEEP_MS`.

    Other pipelines of the process are as before, but for those that begin meanwhile.
    """
    with parts_of("apache-beam", "apache_beam"):
        from apache_beam.runners.worker.statesampler import StateSampler

    # It is the default of an argument that Beam never gives, and Beam has no option for it.
    make: Any = StateSampler.__init__
    with _lock:
        _defaults.append(_defaults[-1] if _defaults else make.__defaults__)
        make.__defaults__ = (LONGEST_SLEEP_MS,)
    try:
        yield
    finally:
        with _lock:
            before = _defaults.pop()
            if not _defaults:
                make.__defaults__ = before
