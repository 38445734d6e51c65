"""Lines of a file, a pipe or a terminal, as they come.

Invariants
 1. Nothing waits for more than there is: a line that somebody types is given at once, and Ctrl-C is heard while nobody does.
 2. A last line without an end is one, too. The end of a line is \\n or \\r\\n, and no part of it.
"""

import asyncio
import os
from collections.abc import AsyncIterator

PIECE_BYTES = 256 * 1024


async def lines_of(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Some at a time, until there are no more."""
    rest = b""
    async for piece in pieces(descriptor):
        *whole, rest = (rest + piece).split(b"\n")
        if whole:
            yield [line.removesuffix(b"\r") for line in whole]
    if rest:
        yield [rest.removesuffix(b"\r")]


async def pieces(descriptor: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # a file has always something to read
        while piece := os.read(descriptor, PIECE_BYTES):
            yield piece
            await asyncio.sleep(0)
        return
    try:
        while True:
            await readable.wait()
            readable.clear()
            piece = os.read(descriptor, PIECE_BYTES)
            if not piece:
                return
            yield piece
    finally:
        loop.remove_reader(descriptor)
