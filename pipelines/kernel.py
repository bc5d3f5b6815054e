"""`kernel`: numba's just-in-time compiler as the pure packages use it.

numba's disk cache looks at the file of a function only: a kernel that calls one of another file would go on with the
old one after that was changed, or after an upgrade. So the cache lives in a folder named after the content of all
files that kernels are made of (docs/decisions/numba.md).
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

_HERE = Path(__file__).parent
_PURE = ("ledger", "refresh", "web", "graph")


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


def _compile(function: F, **options: bool) -> F:
    compiler: Any = numba  # `_nrt` is an option without a type
    before = compiler.config.CACHE_DIR
    folder = _cache_folder(before)
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


@cache
def _cache_folder(chosen: str) -> str:
    """A folder for what these very sources compile to: in NUMBA_CACHE_DIR, beside them, or in the user's cache.

    Empty if none can be made: kernels are then compiled anew in every process.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted([Path(__file__), *(p for name in _PURE for p in (_HERE / name).glob("*.py"))]):
        digest.update(str(path.relative_to(_HERE)).encode() + b"\0" + path.read_bytes() + b"\0")
    for place in [chosen] if chosen else [str(_HERE / "__pycache__"), "~/.cache"]:
        try:
            folder = Path(place).expanduser() / f"opicflow-{digest.hexdigest()}"
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):  # it may be there, and belong to somebody else
                return str(folder)
        except (OSError, RuntimeError):  # not writable; no home
            continue
    return ""
