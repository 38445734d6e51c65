"""A broker is emptied: its replicas go to others, evenly and over racks."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.controller.emptying import NoRoom, Placed, moves

LEAVING = 9


@given(
    st.lists(st.lists(st.sampled_from([1, 2, 3, 4, LEAVING]), min_size=1, max_size=3, unique=True), max_size=40),
    st.lists(st.sampled_from(["a", "b", None]), min_size=4, max_size=4),
)
def test_every_replica_goes_to_one_other_broker_in_its_place(replicas: list[list[int]], racks: list[str | None]) -> None:
    partitions = [Placed("t", index, tuple(each)) for index, each in enumerate(replicas)]
    found = {move.index: move.replicas for move in moves(partitions, dict(enumerate(racks, start=1)), LEAVING)}
    assert found.keys() == {each.index for each in partitions if LEAVING in each.replicas}
    for each in partitions:
        moved = found.get(each.index, each.replicas)
        assert LEAVING not in moved
        assert len(set(moved)) == len(moved) == len(each.replicas)
        assert [new for new, old in zip(moved, each.replicas, strict=True) if old != LEAVING] == [
            old for old in each.replicas if old != LEAVING
        ]


def test_who_has_least_gets_most_and_who_leads_least_leads() -> None:
    partitions = [Placed("t", index, (LEAVING, 1)) for index in range(30)]
    takers = Counter(move.replicas[0] for move in moves(partitions, {1: None, 2: None, 3: None, 4: None}, LEAVING))
    assert takers == {2: 10, 3: 10, 4: 10}


def test_a_replica_goes_to_a_rack_that_has_none_of_the_others() -> None:
    partitions = [Placed("t", index, (1, LEAVING)) for index in range(10)]
    found = moves(partitions, {1: "a", 2: "a", 3: "b", LEAVING: "b"}, LEAVING)
    assert {move.replicas for move in found} == {(1, 3)}


def test_more_copies_than_other_brokers_are_said_so() -> None:
    with pytest.raises(NoRoom, match="t has 3 copies, and 2 other brokers are there"):
        moves([Placed("t", 0, (1, 2, LEAVING))], {1: None, 2: None}, LEAVING)
