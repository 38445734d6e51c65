"""What a client believes of topics, of all that brokers say."""

from odradek.client.metadata import DOUBTS_MAX, REPLACED_MAX, RETURNS_MAX, Metadata
from odradek.wire.messages import MetadataResponse

TOPIC = "t"
ONE, OTHER = 1, 2  # brokers
FIRST, SECOND = bytes(15) + b"\x01", bytes(15) + b"\x02"  # topics of the same name


def told(topic_id: bytes, leader: int = ONE, epoch: int = 0) -> MetadataResponse:
    kind = MetadataResponse
    partition = kind.MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    return kind(topics=[kind.MetadataResponseTopic(name=TOPIC, topic_id=topic_id, partitions=[partition])])


def known(*responses: MetadataResponse) -> Metadata:
    made = Metadata()
    for each in responses:
        made.take(each)
    return made


def test_metadata_that_are_older_are_not_taken() -> None:
    metadata = known(told(FIRST, OTHER, 7), *[told(FIRST, ONE, 6)] * 10)
    assert metadata.leader(TOPIC, 0) == OTHER


def test_a_leader_of_whom_a_broker_says_in_passing_leads_until_metadata_insist_on_another_one() -> None:
    metadata = known(told(SECOND))
    assert metadata.learn_leader(TOPIC, 0, OTHER, 7), "which may be of the topic that was deleted"
    for _ in range(DOUBTS_MAX):
        assert metadata.leader(TOPIC, 0) == OTHER
        metadata.take(told(SECOND))
    assert metadata.leader(TOPIC, 0) == ONE


def test_metadata_that_are_older_than_others_overrule_nobody() -> None:
    metadata = known(told(FIRST, ONE, 5))
    metadata.learn_leader(TOPIC, 0, OTHER, 6)
    metadata.learn_leader(TOPIC, 0, ONE, 7)
    for _ in range(DOUBTS_MAX):
        metadata.take(told(FIRST, OTHER, 4))
    assert metadata.leader(TOPIC, 0) == ONE
    metadata.take(told(FIRST, OTHER, 8))
    for _ in range(DOUBTS_MAX):
        metadata.take(told(FIRST, ONE, 7))
    assert metadata.leader(TOPIC, 0) == OTHER, "what metadata have said needs no hint"


def test_a_topic_that_was_replaced_does_not_come_back_with_a_broker_that_is_behind() -> None:
    metadata = known(told(FIRST), told(SECOND), told(FIRST))
    for _ in range(RETURNS_MAX):
        assert metadata.topics[TOPIC].id == SECOND
        assert metadata.names == {SECOND: TOPIC}
        metadata.take(told(SECOND))
        metadata.take(told(FIRST))


def test_a_topic_that_a_broker_that_is_behind_has_replaced_comes_back_when_enough_say_so() -> None:
    metadata = known(told(SECOND), told(FIRST), *[told(SECOND)] * RETURNS_MAX)
    assert metadata.topics[TOPIC].id == SECOND
    metadata.take(told(FIRST))
    assert metadata.topics[TOPIC].id == SECOND


def test_so_many_replaced_topics_are_remembered() -> None:
    metadata = known(*[told(number.to_bytes(16)) for number in range(1, REPLACED_MAX + 10)])
    assert len(metadata._replaced) == REPLACED_MAX
