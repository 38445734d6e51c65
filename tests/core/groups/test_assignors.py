"""The assignors beside Kafka's own, on random groups. Topic ids are small numbers, which Kafka's hash tables keep in order."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.core.groups.assignors import ASSIGNORS
from odradek.core.groups.assignors.members import AssignedMember, PartitionCounts, Partitions, Target, is_homogeneous
from tests.kafka.oracle import Oracle

TOPICS_MAX = 4
Members = dict[str, AssignedMember]
Group = tuple[Members, PartitionCounts]


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


@st.composite
def groups(draw: st.DrawFn, is_alike: bool | None = None) -> Group:
    """Members in any order, with what some earlier assignment gave them."""
    counts = {topic_id(number): draw(st.integers(1, 9)) for number in range(1, draw(st.integers(1, TOPICS_MAX)) + 1)}
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1, max_size=6))
    alike = draw(st.booleans()) if is_alike is None else is_alike
    shared = draw(st.sets(st.sampled_from(sorted(counts)), min_size=1))
    owners = {
        (topic, partition): draw(st.sampled_from([*names, ""])) for topic, count in counts.items() for partition in range(count)
    }
    members: Members = {}
    for name in names:
        topics = shared if alike else draw(st.sets(st.sampled_from(sorted(counts))))
        assigned: dict[bytes, set[int]] = {}
        for (topic, partition), owner in owners.items():
            if owner == name:
                assigned.setdefault(topic, set()).add(partition)
        instance = draw(st.sampled_from([None, f"i-{name}"]))
        frozen = {topic: frozenset(found) for topic, found in assigned.items()}
        members[name] = AssignedMember(topics=frozenset(topics), assigned=frozen, instance_id=instance)
    return members, counts


def by_number(partitions: Partitions) -> dict[str, list[int]]:
    return {str(int.from_bytes(topic, "big")): sorted(found) for topic, found in sorted(partitions.items())}


def kafkas(oracle: Oracle, assignor: str, group: Group) -> dict[str, dict[str, list[int]]]:
    members, counts = group
    rows: list[list[Any]] = []
    for name, member in members.items():
        topics = sorted(int.from_bytes(topic, "big") for topic in member.topics)
        rows.append([name, member.instance_id, topics, by_number(member.assigned)])
    kind = "HOMOGENEOUS" if is_homogeneous(members) else "HETEROGENEOUS"
    numbers = {str(int.from_bytes(topic, "big")): count for topic, count in counts.items()}
    given: dict[str, dict[str, list[int]]] = oracle.call(
        "Assignors.assign", assignor=assignor, type=kind, members=rows, counts=numbers
    )
    return {name: given.get(name, {}) for name in members}


def shown(target: Target) -> dict[str, dict[str, list[int]]]:
    return {name: by_number(partitions) for name, partitions in target.items()}


def size(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


@settings(max_examples=300, deadline=None)
@given(group=groups())
def test_range_assigns_as_kafka_does(oracle: Oracle, group: Group) -> None:
    assert shown(ASSIGNORS["range"](*group)) == kafkas(oracle, "range", group)


@settings(max_examples=500, deadline=None)
@given(group=groups())
def test_uniform_assigns_as_kafka_does(oracle: Oracle, group: Group) -> None:
    assert shown(ASSIGNORS["uniform"](*group)) == kafkas(oracle, "uniform", group)


@given(group=groups(), name=st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_that_somebody_wants_is_given_to_one_who_wants_it(group: Group, name: str) -> None:
    members, counts = group
    target = ASSIGNORS[name](members, counts)
    owners = [(topic, partition) for found in target.values() for topic, parts in found.items() for partition in parts]
    wanted = {topic for member in members.values() for topic in member.topics}
    assert sorted(owners) == [(topic, partition) for topic in sorted(wanted) for partition in range(counts[topic])]
    assert all(found.keys() <= members[member_id].topics for member_id, found in target.items())
    assert all(parts for found in target.values() for parts in found.values())


@given(group=groups(is_alike=True))
def test_uniform_is_balanced_within_one_and_moves_no_more_than_that_needs(group: Group) -> None:
    members, counts = group
    target = ASSIGNORS["uniform"](members, counts)
    sizes = [size(found) for found in target.values()]
    assert max(sizes) - min(sizes) <= 1
    for member_id, member in members.items():
        kept = sum(len(target[member_id].get(topic, frozenset()) & had) for topic, had in member.assigned.items())
        had = sum(len(parts) for topic, parts in member.assigned.items() if topic in member.topics)
        assert kept == min(had, size(target[member_id])), "it lost something that it could have kept"


@given(group=groups())
def test_uniform_leaves_its_own_assignment_as_it_is(group: Group) -> None:
    members, counts = group
    target = ASSIGNORS["uniform"](members, counts)
    again = {
        name: AssignedMember(topics=member.topics, assigned=target[name], instance_id=member.instance_id)
        for name, member in members.items()
    }
    if is_homogeneous(members):
        assert ASSIGNORS["uniform"](again, counts) == target


def test_range_gives_equal_topics_to_equal_members() -> None:
    a, b = topic_id(1), topic_id(2)
    members = {name: AssignedMember(topics=frozenset({a, b})) for name in ("x", "y")}
    target = ASSIGNORS["range"](members, {a: 4, b: 4})
    assert target["x"] == {a: frozenset({0, 1}), b: frozenset({0, 1})}


def test_a_group_without_members_or_topics_is_assigned_nothing() -> None:
    for assign in ASSIGNORS.values():
        assert assign({}, {}) == {}
        assert assign({"x": AssignedMember(topics=frozenset())}, {}) == {"x": {}}
