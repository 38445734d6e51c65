"""Between what was fetched and the program: which records it gets next, which it has in hand, and which it is done with.

A step is one record of an iteration, or the list that one poll gives. What a step gave is in the program's hand until it comes
back for more; then it is done with, and may be committed.

Invariants
 1. A record is given once, in the order of its partition, and only while its partition is open.
 2. `done` of a partition is after what was given in earlier steps, never after what is in hand.
 3. Of what a group took away while it was in hand no positions are given, as if it had not been: until the next step that is an
    error, so that nothing that was made of it is committed without its offsets.
 4. Iterating costs nothing but the next of an iterator: how far it got is looked up when somebody asks.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from operator import length_hint
from types import MappingProxyType
from typing import Final

from odradek.client.buffer import Piece
from odradek.client.errors import Corrupt, Refused
from odradek.client.fetcher import Fetcher
from odradek.client.reading import Reading
from odradek.client.records import Batches, Record, TopicPartition
from odradek.wire.errors import ErrorCode

CHUNK_RECORDS_MIN: Final = 512  # that are unpacked at once, where there are so many


class Handing:
    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        fetcher.before_move = self._before_move
        self.coming: Iterator[Record] = iter(())  # to be given next, of one partition
        self._chunk: list[Record] = []  # what `coming` went through, and goes through
        self._noted = 0  # of the chunk, that it is known to have gone through
        self._piece: Piece | None = None  # that the chunk is from
        self._is_iterating = False
        self._in_hand: dict[Reading, int] = {}  # with their jumps when they were given
        self._lost: list[TopicPartition] = []  # of them, to somebody else

    # -- steps

    def come_back(self, *, is_iterating: bool) -> None:
        """The program wants more: what it had it is done with."""
        self.finish()
        self._is_iterating = is_iterating

    def finish(self, not_given: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """It is done with what it has; but for what somebody who passes it on has not given, from these offsets on."""
        self.look()
        for reading in self._in_hand:
            given = reading.given
            reading.done, reading.done_epoch = min(not_given.get(reading.place, given), given), reading.given_epoch
        self._in_hand.clear()
        self._lost.clear()

    def still_held(self, not_given: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of what somebody who passes it on has not given: where to go on, in the partitions that are still those it is from."""
        found = {reading.place: reading for reading in self._in_hand if self.fetcher.readings.get(reading.place) is reading}
        return {
            place: min(offset, found[place].given)  # it may have gone back meanwhile, where the log was cut
            for place, offset in not_given.items()
            if place in found and found[place].given >= 0
        }

    def give(self, count: int) -> list[Record]:
        """The records of a step: as many as are there, up to so many."""
        given: list[Record] = []
        while len(given) < count:
            try:
                if not length_hint(self.coming) and not self.prepare(count - len(given)):
                    break
            except Corrupt:
                if given:  # what was taken is given, and the next step comes to this again
                    break
                raise
            given += islice(self.coming, count - len(given))
            self.look()
        return given

    def give_batches(self, bytes_max: int) -> list[Batches]:
        """The same, of batches as they came, a piece at least. What was unpacked and not given is fetched again."""
        given: list[Batches] = []
        size = 0
        self.interrupt()
        while size < bytes_max and (piece := self.fetcher.buffer.first()) is not None:
            reading = piece.reading
            if length_hint(piece.left):
                self.fetcher.fetch_again(reading)
                continue
            try:
                found = piece.unpacking.rest()
            except Corrupt:
                self.fetcher.fetch_again(reading)
                if given:
                    break
                raise
            if found.next_offset > found.offset:  # there may be no records, where compaction was
                given.append(found)
                size += len(found.records)
                self._in_hand[reading] = reading.jumps
            self._pass(piece)
        return given

    def prepare(self, count_max: int) -> bool:
        """Has the next records ready in `coming`, up to so many; False when there are none."""
        self.interrupt()
        while (piece := self.fetcher.buffer.first()) is not None:
            chunk = [*islice(piece.left, count_max)]
            if not chunk:
                try:
                    chunk = piece.unpacking.take(CHUNK_RECORDS_MIN)
                except Corrupt:
                    self.fetcher.fetch_again(piece.reading)
                    raise
                if len(chunk) > count_max:
                    piece.left = iter(chunk)
                    chunk = [*islice(piece.left, count_max)]
            if chunk:
                self._piece, self._chunk, self._noted, self.coming = piece, chunk, 0, iter(chunk)
                return True
            self._pass(piece)
        return False

    # -- how far it got

    @property
    def left(self) -> int:
        """How many are ready: it changes with every step of an iteration."""
        return length_hint(self.coming)

    def holds(self, readings: Collection[Reading]) -> bool:
        """Whether the program has records of any of these in hand."""
        self.look()
        return any(reading in readings and jumps == reading.jumps for reading, jumps in self._in_hand.items())

    def holds_from_before(self, reading: Reading) -> bool:
        """Whether the program has records in hand that were given before a jump: where we are is not how far it is."""
        return self._in_hand.get(reading, reading.jumps) != reading.jumps

    def lose(self, readings: Collection[Reading]) -> None:
        """Somebody else has these: what the program makes of the records of them in its hand must not count."""
        self.look()
        self._lost += [reading.place for reading in readings if self._in_hand.get(reading) == reading.jumps]

    def check_nothing_lost(self) -> None:
        """Raises, until the next step, when positions say nothing of a part of what the program has in hand."""
        for topic, partition in self._lost[:1]:
            reason = "the group took it away while the program had records of it, which others read again"
            raise Refused(ErrorCode.ILLEGAL_GENERATION, reason, topic=topic, partition=partition)

    def interrupt(self) -> None:
        """What is ready goes back to its piece, and is given from there if it may be given then."""
        self.look()
        piece, ready = self._piece, [*self.coming]
        self._piece, self._chunk, self.coming = None, [], iter(())
        if piece is not None and ready:
            piece.left = iter([*ready, *piece.left])

    def _before_move(self, reading: Reading) -> None:
        if self._piece is not None and self._piece.reading is reading:
            self.interrupt()

    def look(self) -> None:
        """Brings `given` and `done` up to what was given until now."""
        piece = self._piece
        if piece is None:
            return
        left = length_hint(self.coming)
        count = len(self._chunk) - left
        reading = piece.reading
        if count > self._noted and not piece.is_stale:
            last = self._chunk[count - 1]
            self._in_hand[reading] = reading.jumps
            reading.given, reading.given_epoch = last.offset + 1, piece.unpacking.last_epoch
            if self._is_iterating:
                reading.done, reading.done_epoch = last.offset, piece.unpacking.last_epoch
        self._noted = count
        if not left:
            self._piece, self._chunk = None, []
            if not piece.is_stale and not length_hint(piece.left):
                self._pass(piece)

    def _pass(self, piece: Piece) -> None:
        """All that was unpacked is given, and what else was in the same batches is not to be."""
        reading = piece.reading
        reading.given, reading.given_epoch = piece.unpacking.next_offset, piece.unpacking.last_epoch
        if reading not in self._in_hand:
            reading.done, reading.done_epoch = reading.given, reading.given_epoch
        if piece.is_done:
            self.fetcher.read_to_end(piece)
