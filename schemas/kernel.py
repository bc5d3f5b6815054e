"""`kernel`: numba's just-in-time compiler as opicflow uses it.

numba's disk cache looks at the file of a function only: a kernel that calls one of another file would go on with the
old one after that was changed, or after an upgrade. So the cache lives in a folder named after the content of all
files that kernels may be made of (docs/decisions/numba.md). It lies here because kernels of all three roots use it,
and imports go down only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

_TOP = Path(__file__).parent.parent
_MADE_OF = {
    "schemas": ("schemas",),
    "connectors": ("schemas", "connectors/files", "connectors/kafka"),
    "pipelines": (
        "schemas",
        "pipelines/ledger",
        "pipelines/ledger/kernels",
        "pipelines/refresh",
        "pipelines/web",
        "pipelines/graph",
        "pipelines/graph/community",
        "pipelines/transforms",
    ),
}
"""The folders whose code or constants a kernel of each root may hold."""


def kernel(function: F) -> F:
    """Compile a function over arrays on its first call: cached on disk, run without the interpreter lock."""
    return _compile(function)


def lean_kernel(function: F) -> F:
    """A kernel that makes no arrays, and whose callees make none.

    numba counts references to every array at every call, with locked instructions: for a tuple of thirty columns that
    is hundreds of nanoseconds. A function that makes no array needs no count.
    """
    return _compile(function, _nrt=False)


def inlined_kernel(function: F) -> F:
    """A lean kernel that becomes part of its callers, whose columns it would otherwise get by the stack."""
    return _compile(function, _nrt=False, forceinline=True)


def is_compiled() -> bool:
    """Whether kernels of these sources were compiled before: if not, first calls take long."""
    compiler: Any = numba
    folders = [_cache_folder(root, compiler.config.CACHE_DIR) for root in _MADE_OF]
    return all(folder != "" and any(Path(folder).rglob("*.nbi")) for folder in folders)


def _compile(function: F, **options: bool) -> F:
    compiler: Any = numba  # `_nrt` is an option without a type
    before = compiler.config.CACHE_DIR
    folder = _cache_folder(Path(function.__code__.co_filename).relative_to(_TOP).parts[0], before)
    compiler.config.CACHE_DIR = folder
    try:
        return cast(F, compiler.njit(cache=folder != "", nogil=True, error_model="numpy", **options)(function))
    finally:
        compiler.config.CACHE_DIR = before


def _prefetch(typing_context: Any, array: Any, row: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        distance = builder.mul(builder.extract_value(rows.strides, 0), arguments[1])
        place = builder.gep(builder.bitcast(rows.data, byte), [distance])
        request = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        to_write, keep_close, data = word(1), word(3), word(1)
        builder.call(
            builder.module.declare_intrinsic("llvm.prefetch", [byte], request), [place, to_write, keep_close, data]
        )
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


prefetch: Callable[[Any, Any], None] = cast(Any, intrinsic)(_prefetch)
"""Within kernels: ask for the memory in which a row of an array begins, before it is needed. Changes nothing."""


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


trailing_zeros: Callable[[Any], Any] = cast(Any, intrinsic)(_trailing_zeros)
"""Within kernels: how many of the lowest bits of a uint64 are 0; 64 of 0."""


@cache
def _cache_folder(root: str, chosen: str) -> str:
    """A folder for what these very sources compile to: in NUMBA_CACHE_DIR, beside them, or in the user's cache.

    Empty if none can be made: kernels are then compiled anew in every process.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(file for folder in _MADE_OF[root] for file in (_TOP / folder).glob("*.py")):
        digest.update(str(path.relative_to(_TOP)).encode() + b"\0" + path.read_bytes() + b"\0")
    for place in [chosen] if chosen else [str(_TOP / root / "__pycache__"), "~/.cache"]:
        try:
            folder = Path(place).expanduser() / f"opicflow-{digest.hexdigest()}"
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):  # it may be there, and belong to somebody else
                return str(folder)
        except (OSError, RuntimeError):  # not writable; no home
            continue
    return ""
