"""Decoding row by row: for formats that have no other way, and for the rows that a faster way does not take.

Invariants
 1. what a record's bytes can make a reader raise makes that record bad, and nothing else does
 2. the array is made in one go; only where a value does not fit its type is each value tried alone
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from odradek.spark.formats import Bad

# Whatever libraries raise on bytes that are not theirs; ValueError includes Arrow's own and bad UTF-8.
REFUSALS: Final = (ValueError, TypeError, LookupError, EOFError, ArithmeticError, RecursionError, struct.error)


def decode_rows(values: Iterable[bytes | None], read: Callable[[bytes], Any], kind: pa.DataType) -> tuple[pa.Array, list[Bad]]:
    """The rows that `read` makes of values, and those that it refused."""
    rows: list[Any] = []
    bad: list[Bad] = []
    for row, value in enumerate(values):
        found = None
        if value is not None:
            try:
                found = read(value)
            except REFUSALS as error:
                bad.append(Bad(row, said(error)))
        rows.append(found)
    try:
        return pa.array(rows, kind), bad
    except REFUSALS:
        bad += _misfits(rows, kind)
        return pa.array(rows, kind), sorted(bad)


def said(error: Exception) -> str:
    """An error in one line; its kind alone where it says nothing."""
    text = " ".join(str(error).split())
    return text or type(error).__name__


def _misfits(rows: list[Any], kind: pa.DataType) -> list[Bad]:
    """The rows that do not fit their type, which are made null."""
    bad: list[Bad] = []
    for row, found in enumerate(rows):
        try:
            pa.array([found], kind)
        except REFUSALS as error:
            rows[row] = None
            bad.append(Bad(row, said(error)))
    return bad
