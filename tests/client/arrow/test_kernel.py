"""Kernels are kept where they can be, and compiled anew where they cannot."""

import numpy as np
from numba import types

from odradek.client.arrow.kernel import INT64S, kernel


def test_a_kernel_that_cannot_be_kept_is_compiled_for_this_process() -> None:
    names: dict[str, object] = {}
    exec("def total(numbers):\n    return numbers[0] + numbers[1]", names)  # it has no file, so no cache has a place for it
    compiled = kernel(types.int64(INT64S))(names["total"])  # type: ignore[type-var]
    assert compiled(np.array([2, 3], np.int64)) == 5  # type: ignore[operator]
