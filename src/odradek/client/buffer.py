"""What was fetched and not read yet, in the order in which it came.

Invariants
 1. `bytes_held` is what answers take in memory: all of an answer, until everything that came with it was read or dropped.
 2. A piece whose partition has moved since is never given.
"""

from collections import deque
from collections.abc import Iterator
from operator import length_hint
from struct import Struct
from typing import Final

from odradek.client.reading import Reading
from odradek.client.records import Record
from odradek.client.unpacking import Unpacking
from odradek.wire.batch import HEADER_SIZE, OVERHEAD

SKIMMED: Final = Struct(">qii7xi")  # base offset, length, leader epoch, last offset delta


class Answer:
    """An answer to a fetch, whose memory its pieces share."""

    __slots__ = ("bytes_held", "pieces")

    def __init__(self, bytes_held: int) -> None:
        self.bytes_held = bytes_held
        self.pieces = 0


class Piece:
    """What came at once for one partition."""

    __slots__ = ("answer", "left", "moves", "reading", "unpacking")

    def __init__(self, reading: Reading, unpacking: Unpacking, answer: Answer) -> None:
        self.reading = reading
        self.moves = reading.moves
        self.unpacking = unpacking
        self.answer = answer
        self.left: Iterator[Record] = iter(())  # unpacked, and not given

    @property
    def is_stale(self) -> bool:
        return self.moves != self.reading.moves

    @property
    def is_done(self) -> bool:
        return not length_hint(self.left) and self.unpacking.is_done


class Buffer:
    def __init__(self) -> None:
        self.bytes_held = 0
        self._pieces: deque[Piece] = deque()

    def add(self, piece: Piece) -> None:
        if not piece.answer.pieces:
            self.bytes_held += piece.answer.bytes_held
        piece.answer.pieces += 1
        piece.reading.pieces += 1
        self._pieces.append(piece)

    def first(self) -> Piece | None:
        """That may be given. It stays, until it is dropped."""
        for piece in self._pieces:
            if piece.reading.is_open and not piece.is_stale:
                return piece
        return None

    def drop(self, piece: Piece) -> None:
        if self._pieces and self._pieces[0] is piece:
            self._pieces.popleft()
        else:
            self._pieces.remove(piece)
        if not piece.is_stale:
            piece.reading.pieces -= 1
        piece.answer.pieces -= 1
        if not piece.answer.pieces:
            self.bytes_held -= piece.answer.bytes_held

    def drop_stale(self) -> None:
        for piece in [each for each in self._pieces if each.is_stale]:
            self.drop(piece)

    def drop_paused(self) -> bool:
        """Whether that made room. What was dropped is fetched again some time."""
        found = dict.fromkeys(each.reading for each in self._pieces if each.reading.is_paused)
        for reading in found:
            reading.fetch_again()
        self.drop_stale()
        return bool(found)


def skim(data: memoryview) -> tuple[int, int, int]:
    """Of whole batches: how many bytes they are, where to go on after the last, and its leader epoch."""
    position, end, next_offset, epoch = 0, len(data), -1, -1
    while end - position >= HEADER_SIZE:
        base_offset, length, leader_epoch, last_delta = SKIMMED.unpack_from(data, position)
        if length < HEADER_SIZE - OVERHEAD or position + length + OVERHEAD > end:
            break
        position += length + OVERHEAD
        next_offset, epoch = base_offset + last_delta + 1, leader_epoch
    return position, next_offset, epoch
