"""How numba compiles kernels here, in a third of the time that its own way takes. Needs numba, unlike `kernel`.

numba compiles every function as if it were called from Python: with wrappers, linked with all that it calls, optimised
and turned into machine code; and again within each of its callers. Here a kernel that is called by kernels is a *part*:
its code is kept as it is, and optimised once within each kernel that Python calls (docs/decisions/numba.md).

A tuple of columns goes from kernel to kernel as one pointer. numba passes the seven numbers of each of its arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from llvmlite import binding as llvm
from llvmlite.binding import Linkage
from llvmlite.ir import IRBuilder, Value
from numba.core import cgutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, Flags, StateDict
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.cpu import CPUContext
from numba.core.datamodel import models
from numba.core.datamodel.manager import DataModelManager
from numba.core.datamodel.registry import register_default
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.pythonapi import NativeValue, _UnboxContext, unbox
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonRewrites,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.typing.templates import AttributeTemplate
from numba.core.typing.typeof import _TypeofContext, typeof_impl
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    ReconstructSSA,
    TranslateByteCode,
)
from numba.extending import infer_getattr

from opicflow.schemas.arrays import Array, ColumnTuple


class KernelLibrary(JITCodeLibrary):
    """Code that LLVM optimises once, when it has all of a kernel.

    numba also runs passes on each function, and on the whole before it, to find references that need no count: kernels
    count few.
    """

    def _optimize_functions(self, module: llvm.ModuleRef) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


class PartLibrary(KernelLibrary):
    """The code of one part, without that of the kernels it calls: whoever links it links those as well."""

    def finalize(self) -> None:
        """Leave the code as it is. numba would link, optimise and translate it."""
        self._finalized = True

    def with_callees(self) -> list[JITCodeLibrary]:
        """This library and all those that its code needs."""
        return list(dict.fromkeys([self, *self._linking_libraries]))


class WholeLibrary(KernelLibrary):
    """The code of a kernel that Python calls, with that of all its parts."""

    def finalize(self) -> None:
        """Link the parts as functions that no other library can call, then go on as numba does."""
        libraries = list(dict.fromkeys(self._linking_libraries))
        parts = [library for library in libraries if isinstance(library, PartLibrary)]
        self._linking_libraries = [library for library in libraries if not isinstance(library, PartLibrary)]
        for part in parts:
            self._final_module.link_in(part._final_module, preserve=True)
        for part in parts:
            for function in part.get_defined_functions():
                self._final_module.get_function(function.name).linkage = "internal"
        super().finalize()

    def serialize_using_object_code(self) -> tuple[str, str, tuple[bytes, bytes]]:
        """Return the data for the cache: the machine code, and the names of its functions instead of code to link."""
        name, kind, (machine_code, _) = super().serialize_using_object_code()
        names = [function.name for function in self.get_defined_functions() if function.linkage != Linkage.internal]
        stubs = "".join(f'define void @"{name}"() {{ ret void }}\n' for name in names)
        return name, kind, (machine_code, llvm.parse_assembly(stubs).as_bitcode())


@register_pass(mutates_CFG=True, analysis_only=False)
class WholeLowering(NativeLowering):
    """Write the code of a kernel that Python calls."""

    _name = "whole_lowering"

    def run_pass(self, state: StateDict) -> bool:
        """Run the pass on the function of `state`."""
        state.library = WholeLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return cast(bool, super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class PartLowering(NativeLowering):
    """Write the code of a part, and register with numba where its callers find it."""

    _name = "part_lowering"

    def run_pass(self, state: StateDict) -> bool:
        """Run the pass on the function of `state`."""
        library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        library.enable_object_caching()
        state.library = library
        state.flags.no_compile = True
        super().run_pass(state)
        unused: list[None] = []
        name = unused.append  # numba identifies code by a built-in function, and there is none yet
        state.targetctx.insert_user_function(name, state.cr.fndesc, library.with_callees())
        state.cr = state.cr._replace(cfunc=name)
        return True


class KernelCompiler(CompilerBase):
    """numba's compiler without the passes that kernels have no use for: closures, objects, parallel loops."""

    lowering: type[NativeLowering] = WholeLowering

    def define_pipelines(self) -> list[PassManager]:
        """The passes to run."""
        passes = PassManager("kernel")
        before: list[Any] = [
            TranslateByteCode,
            FixupArgs,
            IRProcessing,
            GenericRewrites,
            ReconstructSSA,
            DeadBranchPrune,
        ]
        typed: list[Any] = [NopythonTypeInference, PreLowerStripPhis]
        if self.state.flags.nrt:  # it may compute with whole arrays, whose last use must be found
            typed += [NopythonRewrites, IRLegalization]
        for pass_ in [*before, *typed, self.lowering, NoPythonBackend]:
            passes.add_pass(pass_, pass_._name)
        passes.finalize()
        return [passes]


class PartCompiler(KernelCompiler):
    """The compiler of a part."""

    lowering = PartLowering


class KernelFlags(Flags):
    """numba's flags, compared by those that are set. It looks up thousands of functions by flags and types."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelFlags) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(self._values))


class WholeDispatcher(CPUDispatcher):
    """The machine code of one kernel that Python calls, for each combination of types."""

    compiler: type[KernelCompiler] = KernelCompiler

    def __init__(self, function: Callable[..., object], options: dict[str, bool]) -> None:
        always = {
            "nopython": True,
            "nogil": True,
            "error_model": "numpy",
            "boundscheck": None,
            "no_cfunc_wrapper": True,
        }
        super().__init__(function, targetoptions={**always, **options}, pipeline_class=self.compiler)
        mine: Any = self
        mine._compiler._customize_flags = KernelFlags


class PartDispatcher(WholeDispatcher):
    """The parts of one kernel, one for each combination of types. Kernels call it, Python cannot."""

    compiler = PartCompiler

    def __init__(self, function: Callable[..., object], options: dict[str, bool]) -> None:
        super().__init__(function, {"no_cpython_wrapper": True, **options})

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Find, or compile, the part for the types of the arguments. One part serves all values of a constant."""
        return super().get_call_template([types.unliteral(arg) for arg in args], kws)

    def add_overload(self, result: Any) -> None:
        """Keep a part that was compiled."""
        self.overloads[tuple(result.signature.args)] = result


class Reference(types.Type):
    """A pointer to a tuple of columns."""

    def __init__(self, target: types.NamedTuple) -> None:
        self.target = target
        digest = blake2b(str(target).encode(), digest_size=6).hexdigest()
        super().__init__(name=f"{target.instance_class.__name__}_{digest}")  # every call repeats it: it must be short

    @property
    def key(self) -> types.NamedTuple:
        """The key that distinguishes it from others."""
        return self.target


@register_default(Reference)
class ReferenceModel(models.PrimitiveModel):
    """A reference is a pointer of the processor."""

    def __init__(self, manager: DataModelManager, type_: Reference) -> None:
        super().__init__(manager, type_, manager.lookup(type_.target).get_value_type().as_pointer())


@infer_getattr
class ReferenceAttributes(AttributeTemplate):
    """The attributes of a reference are the columns."""

    key = Reference

    def generic_resolve(self, reference: Reference, name: str) -> types.Type | None:  # type: ignore[override]
        """The type of a column."""
        target = reference.target
        return target.types[target.fields.index(name)] if name in target.fields else None


@lower_getattr_generic(Reference)
def _read_column(context: CPUContext, builder: IRBuilder, reference: Reference, value: Value, name: str) -> Value:
    target = reference.target
    index = target.fields.index(name)
    column = builder.load(cgutils.gep_inbounds(builder, value, 0, index))
    return impl_ret_borrowed(context, builder, target.types[index], column)


@unbox(Reference)
def _refer(type_: Reference, value: Value, python: _UnboxContext) -> NativeValue:
    builder, target = python.builder, type_.target
    if python.context.enable_nrt or not all(isinstance(column, types.Array) for column in target.types):
        native = python.unbox(target, value)
        pointer = cgutils.alloca_once_value(builder, native.value)
        return NativeValue(pointer, is_error=native.is_error, cleanup=native.cleanup)
    pointer = cgutils.alloca_once(builder, python.context.get_value_type(target))
    failed = cgutils.false_bit
    for index in range(len(target.types)):
        column = builder.bitcast(cgutils.gep_inbounds(builder, pointer, 0, index), python.pyapi.voidptr)
        code = python.pyapi.numba_array_adaptor(python.pyapi.tuple_getitem(value, index), column)
        failed = builder.or_(failed, cgutils.is_not_null(builder, code))
    with cgutils.if_unlikely(builder, failed):
        python.pyapi.err_set_string("PyExc_TypeError", f"{type_.name} has a column that is no array")
    return NativeValue(pointer, is_error=failed)


_COLUMN_TYPES: dict[tuple[np.dtype[Any], int, int], types.Type] = {}
"""The types of columns, which numba makes again for every array: that takes as long as loading a kernel."""


def _type_of_column(column: Array, context: _TypeofContext) -> types.Type | None:
    if type(column) is not np.ndarray:
        return cast("types.Type | None", typeof_impl(column, context))
    key = column.dtype, column.ndim, column.flags.num
    if key not in _COLUMN_TYPES:
        _COLUMN_TYPES[key] = typeof_impl(column, context)
    return _COLUMN_TYPES[key]


@typeof_impl.register(ColumnTuple)
def _type_of_columns(columns: tuple[Array, ...], context: _TypeofContext) -> Reference | None:
    found = [_type_of_column(column, context) for column in columns]
    if any(type_ is None for type_ in found):
        return None
    return Reference(types.BaseTuple.from_types(found, type(columns)))
