"""Of all processes that miss a kernel in the cache on disk, one compiles it: the others wait, and load it.

The workers of a stream, or those of the tests, start together and call the same kernels. Without a lock each would
compile the largest one, for half a minute. Two that save different signatures of one kernel at the same time could
also give the code of one to the other.
"""

from __future__ import annotations

import gc
from io import BufferedWriter
from pathlib import Path
from typing import Any


def compile_once(dispatcher: Any, folder: str) -> None:
    """Make a kernel's dispatcher, which has a cache on disk, wait for other processes that compile the same.

    Locks are files in `folder`. numba's own lock is taken before, so one thread does all the waiting of a process; and
    a process that has the lock of a kernel waits only for kernels that this one calls. So there is no deadlock.
    """
    from numba.core import compiler_lock

    numbas_lock: Any = compiler_lock.global_compiler_lock
    function = dispatcher.py_func
    cache = SharedCache(dispatcher._cache, Path(folder, f"{function.__module__}.{function.__qualname__}.lock"))
    compile_here = dispatcher.compile

    def compile_or_load(signature: Any) -> Any:
        with numbas_lock:
            collects = gc.isenabled()
            gc.disable()  # numba makes more objects than all of opicflow has: looking through them takes a third of it
            try:
                return compile_here(signature)
            finally:
                cache.unlock()
                if collects:
                    gc.enable()

    dispatcher._cache = cache
    dispatcher.compile = compile_or_load


class SharedCache:
    """numba's cache of one kernel. A process that misses something there has the lock from then on, until `unlock`."""

    def __init__(self, cache: Any, file: Path) -> None:
        self._cache = cache
        self._file = file
        self._lock: BufferedWriter | None = None

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Load the code for a signature; None if it has to be compiled: by this process alone, until `unlock`."""
        found = self._cache.load_overload(signature, target)
        if found is None and self._lock is None:
            self._wait()
            found = self._cache.load_overload(signature, target)
        return found

    def _wait(self) -> None:
        """Get the lock; a killed process loses it. Go on without where the system has no locks."""
        try:
            import fcntl

            self._lock = self._file.open("ab")
            # Unlike that of flock, this lock is not inherited by forks, and refuses to wait in a circle.
            fcntl.lockf(self._lock, fcntl.LOCK_EX)
        except (ImportError, OSError):
            self.unlock()

    def unlock(self) -> None:
        """Let other processes read the cache again."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __getattr__(self, name: str) -> Any:
        """Everything else is numba's."""
        return getattr(self._cache, name)
