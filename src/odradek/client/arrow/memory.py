"""Reading and writing at addresses, inside kernels: what numba lacks.

Kernels know memory by its address and not through arrays: payloads of many batches reach one as a table of numbers, and
numba counts references to an array wherever it is handed on, which takes longer than what is done with it.

Invariants
 1. nothing here checks bounds: whoever calls it has
 2. numba keeps a kernel by the content of its own file: what is changed here reaches a kept kernel only with its file
"""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BYTE: Final = ir.IntType(8)
INT32: Final = ir.IntType(32)
INT64: Final = ir.IntType(64)


def _access(result: Any, argument_count: int, emit: Callable[..., Any]) -> Any:
    """A function of int64s that is a few instructions of LLVM."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        emitted = emit(builder, *arguments)
        return context.get_dummy_value() if result is types.void else emitted

    declared = result(*[types.int64] * argument_count), generate
    declarations = (  # numba looks how many parameters there are
        lambda _context, _first: declared,
        lambda _context, _first, _second: declared,
        lambda _context, _first, _second, _third: declared,
    )
    return intrinsic(declarations[argument_count - 1])


def _place(builder: Any, kind: ir.IntType, address: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [index])


def _read_byte(builder: Any, address: Any) -> Any:
    return builder.zext(builder.load(builder.inttoptr(address, BYTE.as_pointer())), INT64)


def _read_int64(builder: Any, address: Any, index: Any) -> Any:
    return builder.load(_place(builder, INT64, address, index))


def _write_byte(builder: Any, address: Any, number: Any) -> None:
    builder.store(builder.trunc(number, BYTE), builder.inttoptr(address, BYTE.as_pointer()))


def _write_int32(builder: Any, address: Any, index: Any, number: Any) -> None:
    builder.store(builder.trunc(number, INT32), _place(builder, INT32, address, index))


def _write_int64(builder: Any, address: Any, index: Any, number: Any) -> None:
    builder.store(number, _place(builder, INT64, address, index))


def _copy(builder: Any, target: Any, source: Any, size: Any) -> None:
    to, of = (builder.inttoptr(address, BYTE.as_pointer()) for address in (target, source))
    cgutils.raw_memcpy(builder, to, of, size, 1)  # type: ignore[no-untyped-call]


byte_at: Callable[[int], int] = _access(types.int64, 1, _read_byte)
"""byte_at(address)"""

int64_at: Callable[[int, int], int] = _access(types.int64, 2, _read_int64)
"""int64_at(address, index): of an array of int64, a number."""

put_byte: Callable[[int, int], None] = _access(types.void, 2, _write_byte)
"""put_byte(address, number)"""

put_int32: Callable[[int, int, int], None] = _access(types.void, 3, _write_int32)
"""put_int32(address, index, number): into an array of int32."""

put_int64: Callable[[int, int, int], None] = _access(types.void, 3, _write_int64)
"""put_int64(address, index, number): into an array of int64."""

copy: Callable[[int, int, int], None] = _access(types.void, 3, _copy)
"""copy(target, source, size): bytes from address to address."""
