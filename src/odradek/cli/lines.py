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
    while piece := await read(descriptor):
        yield piece


async def read(descriptor: int) -> bytes:
    """What is there, as soon as there is something; nothing at the end."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[bytes] = loop.create_future()

    def readable() -> None:
        """Reads while it is sure that this does not wait."""
        loop.remove_reader(descriptor)
        if not found.done():
            found.set_result(os.read(descriptor, PIECE_BYTES))

    try:
        loop.add_reader(descriptor, readable)
    except PermissionError:  # a file has always something to read
        await asyncio.sleep(0)
        return os.read(descriptor, PIECE_BYTES)
    try:
        return await found
    finally:
        loop.remove_reader(descriptor)
