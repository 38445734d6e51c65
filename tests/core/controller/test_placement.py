"""Where replicas are placed."""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.controller.placement import Placement
from odradek.core.metadata.brokers import Broker
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import RegisterBrokerRecord
from tests.core.controller.cluster import registration
from tests.kafka.oracle import Oracle


def broker(number: int, rack: str | None = None, *, fenced: bool = False, host: str | None = None) -> Broker:
    record = registration(number, rack, fenced=fenced)
    if host is not None:
        record.end_points.append(RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host=host, port=number))
    return Broker.of(record)


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


def chance(seed: int) -> Callable[[int], int]:
    """The same as the oracle's."""
    state = seed

    def pick(below: int) -> int:
        nonlocal state
        state = (state * 31 + 7) % 1_000_003
        return state % below

    return pick


@given(BROKERS, st.integers(1, 4), st.integers(1, 40), st.integers(0, 1000))
def test_with_one_broker_on_a_machine_replicas_are_placed_as_by_kafka(
    oracle: Oracle, brokers: list[Broker], replicas: int, partitions: int, seed: int
) -> None:
    if replicas > len(brokers) or all(found.fenced for found in brokers):
        return
    placement = Placement(brokers, chance(seed))
    theirs = oracle.call(
        "Clusters.place",
        brokers=[[found.id, found.rack, found.fenced] for found in brokers],
        replicas=replicas,
        partitions=partitions,
        seed=seed,
    )
    assert [placement.next(replicas) for _ in range(partitions)] == theirs


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 6), st.integers(1, 30), st.integers(0, 100))
def test_replicas_are_on_different_machines_while_there_are_enough(
    sizes: list[int], replicas: int, partitions: int, seed: int
) -> None:
    """Machines of so many brokers each."""
    hosts = [f"host {number}" for number, size in enumerate(sizes) for _ in range(size)]
    brokers = [broker(number, host=host) for number, host in enumerate(hosts)]
    replicas = min(replicas, len(brokers))
    placement = Placement(brokers, Random(seed).randrange)
    for _ in range(partitions):
        used = Counter(hosts[replica] for replica in placement.next(replicas))
        assert len(used) == min(replicas, len(sizes))


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 100))
def test_machines_of_the_same_size_have_the_same_number_of_replicas_and_leaders(
    machines: int, size: int, replicas: int, seed: int
) -> None:
    hosts = [f"host {number % machines}" for number in range(machines * size)]
    replicas = min(replicas, len(hosts))
    placement = Placement([broker(number, host=host) for number, host in enumerate(hosts)], Random(seed).randrange)
    placed = [placement.next(replicas) for _ in range(len(hosts))]
    assert set(Counter(each[0] for each in placed).values()) == {1}
    assert set(Counter(replica for each in placed for replica in each).values()) == {replicas}


def test_racks_count_before_machines() -> None:
    brokers = [broker(1, "a", host="x"), broker(2, "a", host="y"), broker(3, "b", host="x"), broker(4, "b", host="y")]
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    for seed in range(20):
        placed = Placement(brokers, Random(seed).randrange).next(2)
        assert {racks[replica] for replica in placed} == {"a", "b"}


def test_brokers_whose_folders_are_cordoned_are_not_used() -> None:
    record = registration(1, fenced=False)
    record.cordoned_log_dirs = list(record.log_dirs)
    brokers = [Broker.of(record), broker(2)]
    assert Placement(brokers, Random(0).randrange).next(1) == [2]
    with pytest.raises(Refused, match="cordoned"):
        Placement(brokers, Random(0).randrange).next(2)
