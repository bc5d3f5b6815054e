"""The kernels that were compiled before, on disk. Of all processes that miss one, one compiles it: the others wait.

The workers of a stream, or those of the tests, start together and call the same kernels. Without a lock each would
compile the largest one, for many seconds.

numba has such a cache, too. It looks at the file of a function only, which is known by its path; and before it loads a
kernel it gets ready to compile, which takes half a second (docs/decisions/numba.md). A file here has one kernel for one
combination of types, and the machine code is that of everything it calls.
"""

from __future__ import annotations

import gc
import os
import pickle
import stat
import sys
from contextlib import suppress
from hashlib import blake2b
from io import BufferedWriter
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # numba takes longer to import than many commands need
    from numba.core.cpu import CPUContext
    from numba.core.typing.templates import Signature

SUFFIX = ".kernel"
_DIGEST_BYTES = 16


def compile_once(dispatcher: Any, folder: Path) -> None:
    """Give a kernel's dispatcher a cache on disk, and make it wait for other processes that compile the same.

    numba's own lock is taken before, so one thread does all the waiting of a process; and a process that has the lock
    of a kernel waits only for kernels that this one calls. So there is no deadlock.
    """
    from numba.core import compiler_lock

    function = dispatcher.py_func
    makes_arrays = dispatcher.targetoptions.get("_nrt", True)
    cache = KernelCache(f"{function.__module__}.{function.__qualname__}", folder, makes_arrays)
    compile_here = dispatcher.compile

    def compile_or_load(signature: Signature) -> object:
        with compiler_lock.global_compiler_lock:
            collects = gc.isenabled()
            gc.disable()  # numba makes more objects than all of opicflow has: visiting them takes a third of the time
            try:
                return compile_here(signature)
            finally:
                cache.unlock()
                if collects:
                    gc.enable()

    dispatcher._cache = cache
    dispatcher.compile = compile_or_load


class KernelCache:
    """The machine code of one kernel. A process that misses something has the lock from then on, until `unlock`."""

    def __init__(self, name: str, folder: Path, makes_arrays: bool = True) -> None:
        self._name = name
        self._folder = folder
        self._makes_arrays = makes_arrays
        self._lock: BufferedWriter | None = None
        self.cache_path = str(folder)

    def load_overload(self, signature: Signature, target: CPUContext) -> object:
        """Load the code for a signature; None if it has to be compiled: by this process alone, until `unlock`."""
        found = self._load(signature, target)
        if found is None:
            if self._lock is None:
                self._wait()
                found = self._load(signature, target)
            if found is None:
                target.refresh()  # now numba needs to know everything that it can compile
        return found

    def save_overload(self, signature: Signature, result: Any) -> None:
        """Keep the compiled code, unless the disk is full or the code contains an address of this process."""
        from numba.core.serialize import dumps

        if result.library.has_dynamic_globals:
            return
        data = dumps(result._replace(type_annotation="")._reduce())
        with suppress(OSError):
            with NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(_digest_of(data) + data)
            os.replace(file.name, self._folder / self._file_name(signature, result.target_context))

    def _load(self, signature: Signature, target: CPUContext) -> object:
        from numba.core.compiler import CompileResult
        from numba.core.runtime.nrt import rtsys

        if self._makes_arrays:
            rtsys.initialize(target)  # the code calls functions that this sets up: it takes 22 MB
        try:
            data = (self._folder / self._file_name(signature, target)).read_bytes()
            digest, data = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        except OSError:
            return None
        if digest != _digest_of(data):  # the machine was switched off, for example
            return None
        return CompileResult._rebuild(target, *pickle.loads(data))

    def _file_name(self, signature: Signature, target: CPUContext) -> str:
        """A name for everything that the machine code depends on, but its sources: these name the folder."""
        import llvmlite
        import numba

        config = vars(numba.config)
        compiler = (
            numba.__version__,
            llvmlite.__version__,
            sys.implementation.cache_tag,
            config["OPT"],
            config["BOUNDSCHECK"],
        )
        made_of = (str(signature), target.codegen().magic_tuple(), compiler)
        return f"{self._name}-{blake2b(repr(made_of).encode(), digest_size=12).hexdigest()}{SUFFIX}"

    def _wait(self) -> None:
        """Get the lock; a killed process loses it. Go on without where the system has no locks."""
        try:
            import fcntl

            self._lock = (self._folder / f"{self._name}.lock").open("ab")
            # Unlike that of flock, this lock is not inherited by forks, and refuses to wait in a circle.
            fcntl.lockf(self._lock, fcntl.LOCK_EX)
        except (ImportError, OSError):
            self.unlock()

    def unlock(self) -> None:
        """Let other processes read the cache again."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def is_private(folder: Path) -> bool:
    """Whether only this user and root can write to a folder: the code in it is run."""
    found = folder.stat()
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
