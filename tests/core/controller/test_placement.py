"""Where replicas are placed."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.controller.placement import Placement
from odradek.core.metadata.brokers import Broker
from odradek.wire.errors import ErrorCode, Refused
from tests.core.controller.cluster import registration


def broker(number: int, rack: str | None = None, *, fenced: bool = False) -> Broker:
    return Broker.of(registration(number, rack, fenced=fenced))


BROKERS = st.lists(
    st.builds(broker, st.integers(0, 30), st.sampled_from([None, "a", "b", "c"]), fenced=st.booleans()),
    min_size=1,
    max_size=12,
    unique_by=lambda found: found.id,
)


@given(BROKERS, st.integers(1, 12), st.integers(1, 40), st.integers(0, 100))
def test_replicas_are_on_different_brokers_and_the_leader_is_not_fenced(
    brokers: list[Broker], replicas: int, partitions: int, seed: int
) -> None:
    placement = Placement(brokers, Random(seed).randrange)
    fenced = {found.id for found in brokers if found.fenced}
    if replicas > len(brokers) or len(fenced) == len(brokers):
        with pytest.raises(Refused) as refusal:
            placement.next(replicas)
        assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    for _ in range(partitions):
        placed = placement.next(replicas)
        assert len(set(placed)) == len(placed) == replicas
        assert placed[0] not in fenced


@given(st.integers(1, 8), st.integers(0, 100))
def test_leaders_are_spread_evenly(brokers: int, seed: int) -> None:
    placement = Placement([broker(number) for number in range(brokers)], Random(seed).randrange)
    leaders = Counter(placement.next(1)[0] for _ in range(brokers * 4))
    assert set(leaders.values()) == {4}


@given(st.integers(0, 100))
def test_replicas_are_in_different_racks_while_there_are_enough(seed: int) -> None:
    racks = {number: "abc"[number % 3] for number in range(9)}
    placement = Placement([broker(number, rack) for number, rack in racks.items()], Random(seed).randrange)
    for _ in range(20):
        assert sorted(racks[replica] for replica in placement.next(3)) == ["a", "b", "c"]


def test_fenced_brokers_are_taken_only_where_the_others_do_not_suffice() -> None:
    brokers = [broker(1), broker(2), broker(3, fenced=True)]
    assert 3 not in Placement(brokers, Random(0).randrange).next(2)
    assert sorted(Placement(brokers, Random(0).randrange).next(3)) == [1, 2, 3]
