"""What a simulated cluster leaves behind ends with the test that made it: tasks of processes that were killed never ran to their
ends, and never will. That is said of each of them when it is thrown away; here nobody has to hear it."""

import gc
import sys
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def abandoned_tasks() -> Iterator[None]:
    yield
    known = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook = known
