"""Loops that are compiled: the decorators of all kernels, and the types of what they take.

A kernel has one explicit signature, so it is compiled once, when its module is first imported on a machine, and loaded
from numba's cache afterwards. The cache lies beside the source; where that cannot be written, in the user's cache folder
(or in NUMBA_CACHE_DIR, if that is set); where none of them can, the kernel is compiled for this process alone.

Invariants
 1. kernels release the GIL, raise nothing and know no Python object: what is wrong is a number that they return
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit, types

Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]

INT32S: Final = types.int32[::1]
INT64S: Final = types.int64[::1]
INT64_TABLE: Final = types.int64[:, ::1]

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(signature: Any) -> Callable[[Function], Function]:
    """A function that Python calls: compiled for one signature, and kept."""

    def compiled(function: Function) -> Function:
        dispatcher: Any
        try:
            dispatcher = njit(signature, cache=True, nogil=True, error_model="numpy")(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            dispatcher = njit(signature, nogil=True, error_model="numpy")(function)
        return dispatcher  # type: ignore[no-any-return]

    return compiled


def part(function: Function) -> Function:
    """A function that kernels call, in line in each of them: a call costs more than most of them do."""
    dispatcher: Any = njit(nogil=True, error_model="numpy", forceinline=True)(function)
    return dispatcher  # type: ignore[no-any-return]


def aside(function: Function) -> Function:
    """A function that kernels call where it is rare: not in line, so that the loop around it stays short."""
    dispatcher: Any = njit(nogil=True, error_model="numpy")(function)
    return dispatcher  # type: ignore[no-any-return]


def named(kind: Any, *fields: Any) -> Any:
    """The type of a NamedTuple whose fields have these types, or, without any, are all int64."""
    if not fields:
        return types.NamedUniTuple(types.int64, len(kind._fields), kind)  # type: ignore[no-untyped-call]
    return types.NamedTuple(fields, kind)  # type: ignore[no-untyped-call]
