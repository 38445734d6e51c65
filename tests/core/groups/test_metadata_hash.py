"""The hash of a group's topics beside Kafka's own."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.core.groups.metadata_hash import group_hash, topic_hash
from odradek.core.metadata.brokers import Broker
from odradek.core.metadata.topics import Partition, Topic
from tests.kafka.oracle import Oracle

RACKS = [None, "a", "rack-2", "\u00e4-\U0001f600"]
BROKERS = {
    number: Broker(id=number, epoch=1, incarnation_id=bytes(16), listeners={}, features={}, rack=rack)
    for number, rack in enumerate(RACKS)
}


@st.composite
def topics(draw: st.DrawFn) -> list[Topic]:
    names = draw(st.lists(st.from_regex(r"[a-z._-]{1,20}", fullmatch=True), unique=True, max_size=4))
    made = []
    for name in names:
        topic = Topic(name, draw(st.binary(min_size=16, max_size=16)))
        for index in range(draw(st.integers(0, 3))):
            replicas = tuple(draw(st.lists(st.integers(0, len(RACKS)), unique=True, max_size=3)))
            topic.partitions[index] = Partition(replicas=replicas, isr=replicas, directories=(bytes(16),) * len(replicas))
        made.append(topic)
    return made


@settings(max_examples=200, deadline=None)
@given(found=topics())
def test_the_hash_is_kafkas(oracle: Oracle, found: list[Topic]) -> None:
    rows = []
    for topic in found:
        racks = [
            [RACKS[replica] for replica in partition.replicas if replica < len(RACKS) and RACKS[replica] is not None]
            for partition in topic.partitions.values()
        ]
        rows.append([topic.name, topic.id.hex(), racks])
    ours = group_hash((topic.name, topic_hash(topic, BROKERS)) for topic in found)
    assert ours == oracle.call("Assignors.metadataHash", topics=rows)


def test_a_group_without_topics_has_no_hash() -> None:
    assert group_hash([]) == 0
