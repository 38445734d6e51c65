"""Which folders replicas are in is told until the metadata has it, and not when it has."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.core.metadata.features import METADATA_VERSION
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import UNASSIGNED_DIRECTORY, Partition, Topic
from odradek.core.partition.directories import PAUSE_MS_MAX, PAUSE_MS_MIN, REPLICAS_MAX, Directories
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

NODE = 1
TOPIC = b"t" * 16
FIRST, SECOND = b"1" * 16, b"2" * 16
OLD_VERSION, VERSION = 14, 25


def image_with(partitions: int, version: int = VERSION) -> MetadataImage:
    image = MetadataImage()
    image.features[METADATA_VERSION] = version
    topic = Topic("things", TOPIC)
    for index in range(partitions):
        directories = (UNASSIGNED_DIRECTORY, UNASSIGNED_DIRECTORY)
        topic.partitions[index] = Partition(replicas=(NODE, 2), isr=(NODE, 2), directories=directories)
    image.topics[topic.name] = image.topics_by_id[topic.id] = topic
    return image


def put(image: MetadataImage, index: int, directory: bytes) -> None:
    """The metadata says where a replica is."""
    partition = Partition(replicas=(NODE, 2), isr=(NODE, 2), directories=(directory, UNASSIGNED_DIRECTORY))
    image.topics_by_id[TOPIC].partitions[index] = partition


def told(request: AssignReplicasToDirsRequest | None) -> dict[int, bytes]:
    if request is None:
        return {}
    return {
        partition.partition_index: directory.id
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }


def answer(request: AssignReplicasToDirsRequest | None, **codes: ErrorCode) -> AssignReplicasToDirsResponse:
    """With errors for some partitions, _0 and so on."""
    assert request is not None
    response = AssignReplicasToDirsResponse()
    for directory in request.directories:
        topics = [
            AssignReplicasToDirsResponse.TopicData(
                topic_id=topic.topic_id,
                partitions=[
                    AssignReplicasToDirsResponse.PartitionData(
                        partition_index=each.partition_index,
                        error_code=codes.get(f"_{each.partition_index}", ErrorCode.NONE),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in directory.topics
        ]
        response.directories.append(AssignReplicasToDirsResponse.DirectoryData(id=directory.id, topics=topics))
    return response


def test_what_the_metadata_has_is_not_told() -> None:
    image = image_with(2)
    put(image, 0, FIRST)
    directories = Directories(NODE, image)
    assert not directories.found((TOPIC, 0), FIRST)
    assert directories.found((TOPIC, 1), FIRST)
    assert told(directories.request(7)) == {1: FIRST}


def test_nothing_is_told_where_the_metadata_knows_no_folders() -> None:
    assert not Directories(NODE, image_with(1, OLD_VERSION)).found((TOPIC, 0), FIRST)


def test_a_replica_that_is_not_ours_or_is_no_more_is_not_told() -> None:
    image = image_with(2)
    directories = Directories(NODE, image)
    assert not Directories(3, image).found((TOPIC, 0), FIRST)
    assert not directories.found((b"x" * 16, 0), FIRST)
    assert directories.found((TOPIC, 0), FIRST)
    del image.topics_by_id[TOPIC].partitions[0]
    assert directories.request(7) is None


def test_the_last_word_on_a_replica_counts_also_while_an_answer_is_waited_for() -> None:
    directories = Directories(NODE, image_with(1))
    directories.found((TOPIC, 0), FIRST)
    assert told(directories.request(7)) == {0: FIRST}
    directories.found((TOPIC, 0), SECOND)
    directories.failed()
    assert told(directories.request(7)) == {0: SECOND}


def test_what_was_not_taken_is_told_again() -> None:
    directories = Directories(NODE, image_with(3))
    for index in range(3):
        directories.found((TOPIC, index), FIRST if index else SECOND)
    request = directories.request(7)
    assert request is not None
    assert request.broker_epoch == 7
    assert told(request) == {0: SECOND, 1: FIRST, 2: FIRST}
    assert directories.answered(answer(request, _1=ErrorCode.UNKNOWN_TOPIC_ID)) == ErrorCode.UNKNOWN_TOPIC_ID
    request = directories.request(8)
    assert told(request) == {1: FIRST}
    refused = AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert directories.answered(refused) == ErrorCode.STALE_BROKER_EPOCH
    request = directories.request(9)
    assert told(request) == {1: FIRST}
    assert directories.answered(answer(request)) == ErrorCode.NONE
    assert directories.request(9) is None


def test_a_request_has_a_limit() -> None:
    directories = Directories(NODE, image_with(REPLICAS_MAX + 2))
    for index in range(REPLICAS_MAX + 2):
        directories.found((TOPIC, index), FIRST)
    assert directories.pause_ms == 0
    request = directories.request(7)
    assert len(told(request)) == REPLICAS_MAX
    directories.answered(answer(request))
    assert len(told(directories.request(7))) == 2


@given(st.integers(0, 100))
def test_the_pause_doubles_with_every_failure_up_to_a_limit(failures: int) -> None:
    directories = Directories(NODE, image_with(1))
    for _ in range(failures):
        directories.found((TOPIC, 0), FIRST)
        assert directories.request(7) is not None
        directories.failed()
    assert directories.pause_ms == min(PAUSE_MS_MIN * 2**failures, PAUSE_MS_MAX)
