"""Rows of JSON joined into lines, each proven to be one object: what makes it safe to parse many rows at once.

A parser that reads documents one after the other does not care where a row ends: half a document in one row and its rest
in the next are one, and two in one row are two. So each row is walked first, with nothing but strings and brackets in
mind. As far as a row is JSON at all, a parser that begins at its first brace sees the same strings and the same depth, so
it either comes to its end exactly at the row's end or fails.

Invariants
 1. a line is one row: a brace opens it, and the bracket that brings the depth back to 0 is the last in it
 2. there are as many lines as rows: for a row that is null or odd the line is {}
 3. a line has no line break but its last byte
 4. nothing is written beyond the room that `room_size` asks for
"""

from typing import Final

from numba import types

from odradek.client.arrow.kernel import INT64S, Int64s, aside, kernel, part
from odradek.client.arrow.memory import byte_at, copy, put_byte

PLAIN, NULL, ODD = range(3)  # the state of a row; ODD: it is not one object, or has what parsers differ about
DEPTH_MAX: Final = 200

TAB, LINE, RETURN, SPACE, QUOTE, BACKSLASH = 0x09, 0x0A, 0x0D, 0x20, 0x22, 0x5C
OPEN_BRACKET, CLOSE_BRACKET, OPEN_BRACE, CLOSE_BRACE = 0x5B, 0x5D, 0x7B, 0x7D
UPPER_I, UPPER_N = 0x49, 0x4E  # of Infinity and NaN, which are no JSON, though some parsers take them


def room_size(byte_count: int, row_count: int) -> int:
    return byte_count + 3 * row_count


@part
def is_blank(byte: int) -> bool:
    return byte in (SPACE, LINE, RETURN, TAB)


@part
def after_string(cursor: int, end: int) -> int:
    """Where a string ends whose first quote is before `cursor`; 0 if it does not, or has a control character."""
    while cursor < end:
        byte = byte_at(cursor)
        cursor += 1
        if byte == QUOTE:
            return cursor
        if byte == BACKSLASH:
            cursor += 1
        elif byte < SPACE:
            return 0
    return 0


@part
def object_end(cursor: int, end: int) -> tuple[int, bool]:
    """Where the object ends that begins at `cursor`, 0 if nothing that can be one does; and whether lines end within."""
    depth, has_breaks = 0, False
    while cursor < end:
        byte = byte_at(cursor)
        cursor += 1
        if byte == QUOTE:
            cursor = after_string(cursor, end)
            if cursor == 0:
                return 0, False
        elif byte in (OPEN_BRACE, OPEN_BRACKET):
            depth += 1
            if depth > DEPTH_MAX:
                return 0, False
        elif byte in (CLOSE_BRACE, CLOSE_BRACKET):
            depth -= 1
            if depth == 0:
                return cursor, has_breaks
        elif byte < SPACE:
            has_breaks = True
        elif byte in (UPPER_I, UPPER_N):
            return 0, False
    return 0, False


@aside
def unbreak(cursor: int, end: int) -> None:
    """Put blanks where lines end, which is never within a string. What else is no JSON stays, to be refused."""
    while cursor < end:
        if byte_at(cursor) in (LINE, RETURN):
            put_byte(cursor, SPACE)
        cursor += 1


@kernel(types.int64(INT64S, types.int64, INT64S, types.int64))
def join_lines(offsets: Int64s, data: int, states: Int64s, target: int) -> int:
    """Write a line for each row and give where they end. `states` has NULL or PLAIN, and gets ODD."""
    for row in range(len(states)):
        cursor, end = data + offsets[row], data + offsets[row + 1]
        if states[row] == PLAIN:
            while cursor < end and is_blank(byte_at(cursor)):
                cursor += 1
            while cursor < end and is_blank(byte_at(end - 1)):
                end -= 1
            last, has_breaks = (0, False) if cursor == end or byte_at(cursor) != OPEN_BRACE else object_end(cursor, end)
            if last == end:
                copy(target, cursor, end - cursor)
                if has_breaks:
                    unbreak(target, target + end - cursor)
                target += end - cursor
            else:
                states[row] = ODD
        if states[row] != PLAIN:
            put_byte(target, OPEN_BRACE)
            put_byte(target + 1, CLOSE_BRACE)
            target += 2
        put_byte(target, LINE)
        target += 1
    return target
