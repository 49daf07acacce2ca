"""Jit: functions as machine code, made by numba, which needs the extra ``columnar``.

For loops over the bytes of millions of values (binary_views.py). One that copies short texts byte by byte takes ten times as long
as C's own function, so what loops do to several bytes at once stands here too. numba needs a tenth of a second and more for each
function, once for an installation: so each has one signature, memory is allocated by who calls it, and none assigns a tuple to a
part of an array. What is compiled is kept in the user's cache folder (kernel_cache.py).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from attrs import define, field
from llvmlite import ir
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from .kernel_cache import KernelCache

F = TypeVar("F", bound=Callable[..., Any])

# Types of arguments: arrays that are read, whoever else may write to them, and arrays that are written
BYTE_ARRAY, STATE_ARRAY, INT_ARRAY, FLOAT_ARRAY = (
    types.Array(each, 1, "C", readonly=True) for each in (types.uint8, types.uint16, types.int64, types.float64)
)
OUT_BYTES, OUT_INTS, OUT_FLOATS, OUT_BOOLS = (each[::1] for each in (types.uint8, types.int64, types.float64, types.boolean))
OUT_TABLE, OUT_WORDS, OUT_OFFSETS = types.int64[:, ::1], types.uint64[::1], types.int32[::1]
INT, WORD = types.int64, types.uint64

signed: Any = np.int64
"""Makes a signed number of a byte, or of another unsigned one: of both together numba makes a float."""


def records_of(dtype: Any) -> Any:
    """The type of an array of records, which is read and written."""
    return from_dtype(dtype)[::1]


@define(eq=False)
class Kernel:
    """A function as machine code, which is loaded, or made, when it is first called."""

    _compiled: Any
    _signature: tuple[Any, ...]
    _is_ready: bool = field(default=False, init=False)

    def __call__(self, *arguments: Any) -> Any:
        """Calls it with arguments of its types, or such as become these without loss."""
        if not self._is_ready:
            self.load()
        return self._compiled(*arguments)

    def load(self) -> None:
        """Loads the machine code, or makes it and keeps it for the next process."""
        if not self._is_ready:
            self._compiled.compile(self._signature)
            self._compiled.disable_compile()
            self._is_ready = True

    def is_cached(self) -> bool:
        """Report whether the machine code is in the user's cache."""
        cache = self._compiled._cache
        return isinstance(cache, KernelCache) and cache.has(self._signature, self._compiled.targetctx.codegen())


_KERNELS: defaultdict[str, list[Kernel]] = defaultdict(list)
"""All that are known by now, by module: those of one call the same helpers."""


def kernel(*signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorate a function whose arguments have these types as a kernel."""

    def decorate(function: Callable[..., Any]) -> Kernel:
        compiled = njit(nogil=True, no_cfunc_wrapper=True)(function)
        with contextlib.suppress(OSError):  # a user without a home folder: cache_folder.is_writable says so
            compiled._cache = KernelCache(function)
        made = Kernel(compiled, signature)
        _KERNELS[function.__module__].append(made)
        return made

    return decorate


def helper(function: F) -> F:
    """A function that kernels call, and nobody else: it is made together with them."""
    made: F = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    return made


def modules_to_compile() -> list[str]:
    """The modules that have kernels of which no machine code is kept."""
    return [module for module, kernels in _KERNELS.items() if not all(each.is_cached() for each in kernels)]


def load_compiler() -> None:
    """Loads all that numba knows of types: else it does when it first compiles or loads a kernel, for a fifth of a second."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def load_kernels(*modules: str) -> None:
    """Loads all kernels known by now, or those of these modules, so that processes forked from this one have them."""
    for module in modules or tuple(_KERNELS):
        for each in _KERNELS[module]:
            each.load()


# For kernels and helpers alone, as numba's intrinsics: what is made of their arguments. Nothing checks that the bytes are there.


@intrinsic  # type: ignore[untyped-decorator]
def copy(_: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    """``copy(target, at, source, start, size)``: copies so many bytes from ``start`` on in one array to ``at`` in the other."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        to, from_ = _byte(context, builder, signature, given, 0), _byte(context, builder, signature, given, 2)
        cgutils.raw_memcpy(builder, to, from_, given[4], 1)
        return context.get_dummy_value()

    return types.void(_array(target), _index(at), _array(source), _index(start), _index(size)), made


@intrinsic  # type: ignore[untyped-decorator]
def same(_: Any, one: Any, start: Any, other: Any, other_start: Any, size: Any) -> Any:
    """``same(one, start, other, other_start, size)``: whether so many bytes are the same in both arrays."""

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        first, second = _byte(context, builder, signature, given, 0), _byte(context, builder, signature, given, 2)
        kind = ir.FunctionType(ir.IntType(32), [first.type, second.type, given[4].type])
        compare = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
        return builder.icmp_signed("==", builder.call(compare, [first, second, given[4]]), ir.Constant(ir.IntType(32), 0))

    return types.boolean(_array(one), _index(start), _array(other), _index(other_start), _index(size)), made


WIDTH = 16
"""Bytes that ``plain_bytes`` looks at, all at once."""
_VECTOR = ir.VectorType(ir.IntType(8), WIDTH)


@intrinsic  # type: ignore[untyped-decorator]
def plain_bytes(_: Any, data: Any, at: Any) -> Any:
    """``plain_bytes(data, at)``: how many of WIDTH bytes stand for themselves in any JSON string, up to the first that does not.

    Those that do are printable ASCII, but no quotation marks or backslashes.
    """

    def made(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        first = _byte(context, builder, signature, given, 0)
        found = builder.load(builder.bitcast(first, _VECTOR.as_pointer()), align=1)
        # As signed numbers, those beyond ASCII are less than 0; one more than 127 is the least of all.
        others = builder.icmp_signed("<=", builder.add(found, _all_of(1)), _all_of(32))
        for byte in b'"\\':
            others = builder.or_(others, builder.icmp_signed("==", found, _all_of(byte)))
        bits = builder.zext(builder.bitcast(others, ir.IntType(WIDTH)), ir.IntType(64))  # the first byte's is the lowest
        beyond = ir.Constant(ir.IntType(64), 1 << WIDTH)
        return builder.cttz(builder.or_(bits, beyond), ir.Constant(ir.IntType(1), 1))

    return types.int64(_array(data), _index(at)), made


def _array(given: Any) -> Any:
    """The type of bytes, which must lie one after the other. Raises TypeError."""
    if not (isinstance(given, types.Array) and given.ndim == 1 and given.dtype == types.uint8 and given.layout == "C"):
        raise TypeError(f"{given} is no array of bytes in a row")
    return given


def _index(given: Any) -> Any:
    """The type of a position or size, which must be a whole number: others would be cut. Raises TypeError."""
    if not isinstance(given, types.Integer):
        raise TypeError(f"{given} is no position")
    return types.intp


def _byte(context: Any, builder: Any, signature: Any, given: Any, argument: int) -> Any:
    """Where the byte is of which an array and a position are given, from this argument on."""
    array = context.make_array(signature.args[argument])(context, builder, given[argument])
    return builder.gep(array.data, [given[argument + 1]])


def _all_of(byte: int) -> Any:
    return ir.Constant(_VECTOR, [byte] * WIDTH)
