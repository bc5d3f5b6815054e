"""`kernel`: numba's just-in-time compiler as opicflow uses it.

Compiled code is kept in a folder named after the content of all files that kernels may be made of: so every
installation of a version finds it, and no other one does (kernel_cache.py, docs/decisions/numba.md). Kernels of all
three roots use it, and imports go down only: so it is here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import RLock
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from opicflow.schemas.arrays import Array, Int, Word
from opicflow.schemas.errors import UserError
from opicflow.schemas.kernel_cache import SUFFIX, compile_once, is_private

if TYPE_CHECKING:  # numba takes longer to import than many commands need
    from llvmlite.ir import IRBuilder, Value
    from numba.core import types
    from numba.core.cpu import CPUContext
    from numba.core.typing.context import BaseContext
    from numba.core.typing.templates import Signature

    from opicflow.schemas.kernel_parts import PartDispatcher

F = TypeVar("F", bound=Callable[..., object])
Emitted: TypeAlias = "tuple[Signature, Callable[[CPUContext, IRBuilder, Signature, Sequence[Value]], Value]]"
Emit = Callable[..., Emitted]
"""Gets numba's typing context and the types of the arguments; returns the types, and what adds the code."""

_TOP = Path(__file__).parent.parent
_MADE_OF = {
    "schemas": ("schemas",),
    "connectors": ("schemas", "connectors/files", "connectors/files/crawlers", "connectors/kafka/client"),
    "pipelines": (
        "schemas",
        "pipelines/ledger",
        "pipelines/ledger/pages",
        "pipelines/ledger/cash",
        "pipelines/ledger/cash/certified",
        "pipelines/ledger/cash/windows",
        "pipelines/ledger/plan",
        "pipelines/ledger/shards",
        "pipelines/discovery",
        "pipelines/refresh",
        "pipelines/lab/experiments/importance",
        "pipelines/lab/web",
        "pipelines/ranks/graph",
        "pipelines/stages",
    ),
}
"""The folders whose code or constants a kernel of each root may hold."""
_MOST_KEPT = 48
"""The folders of compiled kernels in the cache of a user, three for each version: 2 MB each."""


def kernel(function: F) -> F:
    """A function over arrays, compiled on its first call: cached on disk, run without the interpreter lock."""
    return cast(F, Kernel(function, {}))


def lean_kernel(function: F) -> F:
    """A kernel that makes no arrays, and whose callees make none.

    numba counts references to every array at every call, with locked instructions: for a tuple of thirty columns that
    is hundreds of nanoseconds. A function that makes no array needs no count.
    """
    return cast(F, Kernel(function, {"_nrt": False}))


def inlined_kernel(function: F) -> F:
    """A lean kernel that becomes part of its callers, whose columns it would otherwise get by the stack."""
    return cast(F, Kernel(function, {"_nrt": False, "forceinline": True}))


def is_compiled(modules: str) -> bool:
    """Whether a kernel of these modules was compiled before from the same sources: if not, first calls are slow.

    `modules` is the name of a module or package, such as `pipelines.ledger`.
    """
    folder = _cache_folder(modules.partition(".")[0])
    return folder is not None and any(folder.glob(f"opicflow.{modules}.*{SUFFIX}"))


class KernelsRefused(UserError):
    """The folder of compiled kernels cannot be used. The message is one line."""


class Deferred(ABC):
    """Something of numba that is made when it is first used.

    Importing numba and creating its dispatchers takes longer than many commands need altogether, and those that only
    read columns call no kernel. Use `load` to get the real object, which the attributes are those of.
    """

    _made: Callable[..., object] | None = None

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    @abstractmethod
    def _make(self) -> Callable[..., object]:
        """Import numba and make the real object."""

    def load(self) -> Callable[..., object]:
        """The real object; the same one every time."""
        if self._made is None:
            with _LOADING:
                if self._made is None:
                    self._made = self._make()
        return self._made

    def __call__(self, *arguments: object) -> object:
        """Call the real object."""
        return (self._made or self.load())(*arguments)

    def __getattr__(self, name: str) -> object:
        """The attributes of the real object."""
        if name.startswith("__"):  # protocols such as pickle and copy read them before there is one
            raise AttributeError(name)
        return getattr(self.load(), name)

    def __reduce__(self) -> str:
        """By its name in its module, as functions are."""
        return self.__name__


_LOADING = RLock()


class Kernel(Deferred):
    """A kernel that is loaded from disk, or compiled, on its first call."""

    def __init__(self, function: Callable[..., object], options: dict[str, bool]) -> None:
        super().__init__(function)
        self._options = options
        self._part: PartDispatcher | None = None

    def _make(self) -> Callable[..., object]:
        import numba

        from opicflow.schemas.kernel_parts import WholeDispatcher

        if vars(numba.config)["DISABLE_JIT"]:
            return self._function
        made = WholeDispatcher(self._function, self._options)
        folder = _cache_folder(Path(self._function.__code__.co_filename).relative_to(_TOP).parts[0])
        if folder is not None:
            compile_once(made, folder)
        return made

    def part(self) -> PartDispatcher:
        """Return the part that kernels which call this one are made of."""
        if self._part is None:
            from opicflow.schemas.kernel_parts import PartDispatcher

            self._part = PartDispatcher(self._function, self._options)
        return self._part

    @property
    def _numba_type_(self) -> types.Type:
        """Numba's type of the kernel within others."""
        from numba.core import types

        return types.Dispatcher(self.part())


class Intrinsic(Deferred):
    """An instruction of the processor for kernels."""

    def __init__(self, function: Callable[..., object], emit: Emit) -> None:
        super().__init__(function)
        self._emit = emit

    def _make(self) -> Callable[..., object]:
        from numba.extending import intrinsic

        made: Callable[..., object] = intrinsic(self._emit)
        return made

    @property
    def _numba_type_(self) -> types.Type:
        """Numba's type of the instruction within kernels."""
        from numba.core.registry import cpu_target

        instruction = self.load()
        cpu_target.typing_context.refresh()  # numba finds it from then on
        found: types.Type = cpu_target.typing_context.resolve_value_type(instruction)
        return found


def _instruction(emit: Emit) -> Callable[[F], F]:
    """Make a function an instruction within kernels: `emit` adds it to the code that numba makes."""

    def of(function: F) -> F:
        return cast(F, Intrinsic(function, emit))

    return of


def _emit_prefetch(typing_context: BaseContext, array: types.Type, row: types.Type) -> Emitted:
    from llvmlite import ir
    from numba.core import types

    def generate(context: CPUContext, builder: IRBuilder, signature: Signature, arguments: Sequence[Value]) -> Value:
        rows = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        distance = builder.mul(builder.extract_value(rows.strides, 0), arguments[1])
        address = builder.gep(builder.bitcast(rows.data, byte), [distance])
        request = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        to_write, keep_close, data = word(1), word(3), word(1)
        builder.call(
            builder.module.declare_intrinsic("llvm.prefetch", [byte], request), [address, to_write, keep_close, data]
        )
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@_instruction(_emit_prefetch)
def prefetch(array: Array, row: Int) -> None:
    """Within kernels: load the memory in which a row of an array begins before it is needed. Changes nothing."""


def _emit_trailing_zeros(typing_context: BaseContext, word: types.Type) -> Emitted:
    from llvmlite import ir
    from numba.core import types

    def generate(context: CPUContext, builder: IRBuilder, signature: Signature, arguments: Sequence[Value]) -> Value:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


@_instruction(_emit_trailing_zeros)
def trailing_zeros(word: Word) -> Word:  # type: ignore[empty-body]
    """Within kernels: how many of the lowest bits of a uint64 are 0; 64 of 0."""


def _emit_reversed_bytes(typing_context: BaseContext, word: types.Type) -> Emitted:
    from numba.core import types

    def generate(context: CPUContext, builder: IRBuilder, signature: Signature, arguments: Sequence[Value]) -> Value:
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), generate


@_instruction(_emit_reversed_bytes)
def reversed_bytes(word: Word) -> Word:  # type: ignore[empty-body]
    """Within kernels: a uint64 with its eight bytes in the reverse order."""


@cache
def _cache_folder(root: str) -> Path | None:
    """The folder for the machine code of exactly these sources; None: kernels are compiled in every process.

    It is in NUMBA_CACHE_DIR, where it may be read-only; or in the cache of the user, which all installations share; or
    beside the sources. Raises `KernelsRefused` if NUMBA_CACHE_DIR is a folder that other users can write to.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(file for folder in _MADE_OF[root] for file in (_TOP / folder).glob("*.py")):
        digest.update(str(path.relative_to(_TOP)).encode() + b"\0" + path.read_bytes() + b"\0")
    name = f"opicflow-{root}-{digest.hexdigest()}"
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return _folder_in(Path(chosen), name)
    beside = _TOP / root / "__pycache__" / name
    return _folder_of_user(name) or (beside if _can_be_written(beside) else None)


def _folder_in(chosen: Path, name: str) -> Path | None:
    """Return a folder in the one that the user has chosen; None if it is not there, and cannot be made."""
    folder = chosen / name
    with suppress(OSError):
        chosen.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one in (chosen, folder):
        if one.is_dir() and not is_private(one):
            raise KernelsRefused(
                f"NUMBA_CACHE_DIR: {one}: other users can write there, and the code in it is run: name a folder that "
                "only you can write to"
            )
    return folder if folder.is_dir() or _can_be_written(folder) else None


def _folder_of_user(name: str) -> Path | None:
    """Return a folder in the user's cache that no other user can write to: the code in it is run."""
    try:
        chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
        parent = (chosen if chosen.is_absolute() else Path("~/.cache").expanduser()) / "opicflow" / "kernels"
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = parent / name
        if not folder.is_dir():
            _remove_old(parent)
        is_usable = is_private(parent) and _can_be_written(folder) and is_private(folder)
        return folder if is_usable else None
    except (OSError, RuntimeError):  # not writable; no home
        return None


def _can_be_written(folder: Path) -> bool:
    """Whether there is such a folder, or can be, for this user to write to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):  # it may be there, and belong to somebody else
            return True
    except OSError:
        return False


def _remove_old(parent: Path) -> None:
    """Remove all but the newest folders: each version, and each edit, has its own."""
    newest = sorted(parent.glob("opicflow-*"), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in newest[_MOST_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)
