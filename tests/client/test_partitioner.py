"""Which partition a record goes to."""

import random
from itertools import pairwise

import pytest

from odradek.client.metadata import NO_NODE, PartitionInfo, TopicInfo
from odradek.client.partitioner import POSITIVE, Partitioner, murmur2

JAVA = {  # by Java's own
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def topic(*leaders: int) -> TopicInfo:
    return TopicInfo("t", bytes(16), {index: PartitionInfo(index, leader, 0) for index, leader in enumerate(leaders)})


@pytest.mark.parametrize("key", JAVA)
def test_keys_hash_as_java_hashes_them(key: bytes) -> None:
    assert murmur2(key) == JAVA[key] & 0xFFFF_FFFF


def test_a_key_goes_where_java_sends_it() -> None:
    partitioner = Partitioner(topic(1, 1, 1, 1, 1, 1, 1), random.Random(1))
    assert [partitioner.of_key(key) for key in JAVA] == [(hashed & POSITIVE) % 7 for hashed in JAVA.values()]


def test_a_key_is_placed_anew_when_there_are_more_partitions() -> None:
    partitioner = Partitioner(topic(1, 1), random.Random(1))
    before = partitioner.of_key(b"abc")
    partitioner.learn(topic(*[1] * 101))
    assert (before, partitioner.of_key(b"abc")) == (479470107 % 2, 479470107 % 101)


def test_without_a_key_records_go_to_one_partition_until_its_batch_is_full_and_then_to_another() -> None:
    partitioner = Partitioner(topic(1, 1, 1), random.Random(1))
    places = []
    for _ in range(30):
        places.append(partitioner.current)
        partitioner.move_on()
    assert set(places) == {0, 1, 2}
    assert all(one != other for one, other in pairwise(places))


def test_partitions_without_a_leader_are_left_out_for_as_long_as_there_are_others() -> None:
    partitioner = Partitioner(topic(1, NO_NODE, 1), random.Random(1))
    for _ in range(20):
        assert partitioner.current != 1
        partitioner.move_on()
    partitioner.learn(topic(NO_NODE, NO_NODE, NO_NODE))
    partitioner.move_on()
    assert partitioner.current in (0, 1, 2)
