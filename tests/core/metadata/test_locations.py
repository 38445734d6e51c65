"""What an image knows of where its partitions are, against the partitions themselves."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.locations import Index, Locations, PartitionKey
from odradek.core.metadata.topics import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from odradek.wire.message import Message
from odradek.wire.messages import ClearElrRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

TOPICS = [b"topic number %03d" % number for number in range(3)]
NO_FOLDERS = (LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)
FOLDERS = [*NO_FOLDERS, *(b"folder number %02d" % number for number in range(3))]
brokers = st.lists(st.integers(1, 4), unique=True, max_size=3)


@st.composite
def changes(draw: st.DrawFn) -> Message:
    topic, number = draw(st.sampled_from(TOPICS)), draw(st.integers(0, 2))
    match draw(st.integers(0, 9)):
        case 0:
            return RemoveTopicRecord(topic_id=topic)
        case 1:
            return ClearElrRecord(topic_name="")
        case _:
            replicas = draw(brokers)
            return PartitionChangeRecord(
                topic_id=topic,
                partition_id=number,
                replicas=replicas,
                isr=draw(brokers),
                leader=draw(st.integers(-2, 4)),
                directories=[draw(st.sampled_from(FOLDERS)) for _ in replicas],
                adding_replicas=draw(st.sampled_from([None, [], [1]])),
                eligible_leader_replicas=draw(brokers),
            )


def replay(image: MetadataImage, record: Message) -> None:
    """With the topic and the partition, where they are not there."""
    topic_id = getattr(record, "topic_id", None)
    if topic_id is not None and topic_id not in image.topics_by_id:
        image.replay(TopicRecord(name=topic_id.decode(), topic_id=topic_id))
    if isinstance(record, PartitionChangeRecord) and record.partition_id not in image.topics_by_id[record.topic_id].partitions:
        number = record.partition_id
        image.replay(PartitionRecord(topic_id=record.topic_id, partition_id=number, replicas=[1, 2], isr=[2], leader=2))
    image.replay(record)


def looked_up(image: MetadataImage) -> Locations:
    """The same, by a look at every partition."""
    found = Locations()
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            key = (topic.id, number)
            for broker in partition.isr:
                found.isr.setdefault(broker, {})[key] = None
            for broker in partition.elr:
                found.elr.setdefault(broker, {})[key] = None
            for folder in partition.directories:
                if folder not in NO_FOLDERS:
                    found.directories.setdefault(folder, {})[key] = None
            found.leaders.setdefault(partition.leader, {})[key] = None
            if partition.leader != partition.preferred_leader:
                found.imbalanced[key] = None
            if partition.is_reassigning:
                found.reassigning[key] = None
    return found


def plain(locations: Locations) -> list[dict[PartitionKey, None] | Index[int] | Index[bytes]]:
    return [getattr(locations, name) for name in Locations.__slots__]


@given(st.lists(changes(), max_size=30))
def test_locations_say_what_the_partitions_say(records: list[Message]) -> None:
    image = MetadataImage()
    assert plain(image.locations) == plain(Locations())
    for record in records:
        replay(image, record)
    assert plain(image.locations) == plain(looked_up(image))


@given(st.lists(changes(), max_size=10), st.lists(changes(), max_size=10))
def test_a_copy_goes_its_own_way(before: list[Message], after: list[Message]) -> None:
    image = MetadataImage()
    for record in before:
        replay(image, record)
    assert plain(image.locations) == plain(looked_up(image))
    copy = image.copy()
    for record in after:
        replay(copy, record)
    assert plain(image.locations) == plain(looked_up(image))
    assert plain(copy.locations) == plain(looked_up(copy))
