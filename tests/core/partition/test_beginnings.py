"""Nothing is taken for the first batch of a producer while the one before it was refused, and comes again."""

import pytest

from odradek.core.partition.beginnings import KNOWN_MAX, KNOWN_MS_MAX, Beginnings, Place
from odradek.wire.batch import BatchHeader, read_header
from odradek.wire.errors import ErrorCode, Refused
from tests.log.partition import produced, sent

HERE: Place = ("orders", bytes(16), 0)


def batch(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return read_header(produced(sequence, producer_id=producer_id, epoch=epoch))


@pytest.fixture
def beginnings() -> Beginnings:
    found = Beginnings()
    found.refused(HERE, batch(3), ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    return found


def test_a_batch_behind_the_one_that_is_due_is_refused_until_that_has_come(beginnings: Beginnings) -> None:
    for sequence in (4, 9):
        with pytest.raises(Refused, match=f"OUT_OF_ORDER_SEQUENCE_NUMBER: producer 7 sends sequence {sequence}, where 3 is due"):
            beginnings.check(HERE, batch(sequence), is_known=False, now_ms=0)
    beginnings.check(HERE, batch(3), is_known=False, now_ms=0)
    beginnings.check(HERE, batch(4), is_known=False, now_ms=0)


def test_of_several_that_were_refused_the_first_is_due(beginnings: Beginnings) -> None:
    beginnings.refused(HERE, batch(4), ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    beginnings.refused(HERE, batch(2), ErrorCode.NOT_ENOUGH_REPLICAS, 0)
    with pytest.raises(Refused, match="where 2 is due"):
        beginnings.check(HERE, batch(3), is_known=False, now_ms=0)


@pytest.mark.parametrize(
    ("place", "header", "is_known"),
    [
        (HERE, batch(4), True),
        (HERE, batch(4, producer_id=8), False),
        (HERE, batch(1, epoch=1), False),
        (HERE, batch(2), False),
        (("orders", bytes(16), 1), batch(4), False),
    ],
    ids=["log counts itself", "another producer", "another epoch", "one before it", "another partition"],
)
def test_others_are_taken(beginnings: Beginnings, place: Place, header: BatchHeader, is_known: bool) -> None:
    beginnings.check(place, header, is_known=is_known, now_ms=0)


@pytest.mark.parametrize(
    ("header", "code"),
    [(batch(3), ErrorCode.MESSAGE_TOO_LARGE), (read_header(sent(0)), ErrorCode.NOT_LEADER_OR_FOLLOWER)],
    ids=["does not come again", "has no sequence"],
)
def test_nothing_is_due_after_a_batch_that(header: BatchHeader, code: ErrorCode) -> None:
    beginnings = Beginnings()
    beginnings.refused(HERE, header, code, 0)
    assert not beginnings.due


def test_a_new_epoch_takes_the_place_of_the_old_one_and_not_the_other_way_round(beginnings: Beginnings) -> None:
    beginnings.refused(HERE, batch(0, epoch=1), ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    beginnings.refused(HERE, batch(3), ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    with pytest.raises(Refused, match="where 0 is due"):
        beginnings.check(HERE, batch(1, epoch=1), is_known=False, now_ms=0)


def test_of_many_the_oldest_are_forgotten(beginnings: Beginnings) -> None:
    for index in range(1, KNOWN_MAX + 1):
        beginnings.refused(("orders", bytes(16), index), batch(0), ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert len(beginnings.due) == KNOWN_MAX
    beginnings.check(HERE, batch(4), is_known=False, now_ms=0)


def test_a_producer_that_went_on_elsewhere_and_comes_back_later_is_taken(beginnings: Beginnings) -> None:
    with pytest.raises(Refused, match="where 3 is due"):
        beginnings.check(HERE, batch(500), is_known=False, now_ms=KNOWN_MS_MAX - 1)
    beginnings.check(HERE, batch(501), is_known=False, now_ms=KNOWN_MS_MAX)
    assert not beginnings.due
