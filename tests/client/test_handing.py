"""Between what was fetched and the program."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.buffer import Piece
from odradek.client.errors import Corrupt, Refused
from odradek.client.fetcher import Fetcher
from odradek.client.handing import Handing
from odradek.client.reading import Reading
from odradek.client.records import Batches, Record, TopicPartition


class Pieces:
    """A fetcher that has fetched these, and nothing more; a list of records, or None for what is corrupt."""

    def __init__(self, *contents: list[Record] | None) -> None:
        self.left = [self._piece(index, each) for index, each in enumerate(contents)]
        self.buffer = SimpleNamespace(first=lambda: self.left[0] if self.left else None)
        self.fetched_again: list[Reading] = []
        self.before_move: Any = None

    def _piece(self, index: int, records: list[Record] | None) -> Any:
        reading = Reading(TopicPartition("t", index))
        reading.move(0)
        unpacking = SimpleNamespace(next_offset=len(records or ()), last_epoch=0)

        def take(_: int = 0) -> Any:
            if records is None:
                raise Corrupt("rotten")
            return records

        def rest() -> Batches:
            return Batches(reading.place, memoryview(b"x" * len(take())), 0, 1)

        unpacking.take, unpacking.rest = take, rest
        return SimpleNamespace(reading=reading, unpacking=unpacking, left=iter(()), is_stale=False, is_done=True)

    def fetch_again(self, reading: Reading) -> None:
        self.fetched_again.append(reading)
        self.left.pop(0)

    def read_to_end(self, piece: Piece) -> None:
        self.left.remove(cast("Any", piece))


def record(partition: int, offset: int) -> Record:
    return Record("t", partition, offset, 0, None, b"v")


def handing(*contents: list[Record] | None) -> tuple[Handing, Pieces]:
    pieces = Pieces(*contents)
    return Handing(cast("Fetcher", pieces)), pieces


def test_what_was_taken_before_something_corrupt_is_given_and_the_next_step_comes_to_that() -> None:
    found = [record(0, 0), record(0, 1)]
    made, pieces = handing(found, None)
    assert made.give(10) == found
    assert len(pieces.fetched_again) == 1
    pieces.left = Pieces(None).left
    with pytest.raises(Corrupt):
        made.give(10)


def test_batches_that_were_taken_before_something_corrupt_are_given_too() -> None:
    made, pieces = handing([record(0, 0)], None)
    assert [each.partition.partition for each in made.give_batches(1_000)] == [0]
    assert [each.place.partition for each in pieces.fetched_again] == [1]
    made, _ = handing(None)
    with pytest.raises(Corrupt):
        made.give_batches(1_000)


def test_what_was_lost_is_missed_until_the_next_step_where_the_program_has_it_in_hand() -> None:
    made, pieces = handing([record(0, 0)], [record(1, 0)])
    lost, kept = [piece.reading for piece in pieces.left]
    made.come_back(is_iterating=False)
    assert made.give(1) == [record(0, 0)]
    made.lose([kept])
    made.check_nothing_lost()
    made.lose([lost])
    for _ in range(2):
        with pytest.raises(Refused, match="ILLEGAL_GENERATION"):
            made.check_nothing_lost()
    made.come_back(is_iterating=False)
    made.check_nothing_lost()


def test_what_is_lost_after_the_program_went_elsewhere_is_not_missed() -> None:
    made, pieces = handing([record(0, 0)])
    reading = pieces.left[0].reading
    made.come_back(is_iterating=False)
    assert made.give(1) == [record(0, 0)]
    reading.move(7)
    made.lose([reading])
    made.check_nothing_lost()
