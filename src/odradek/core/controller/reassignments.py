"""ListPartitionReassignments (0): partitions that are on their way to other brokers."""

from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import Partition
from odradek.wire.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

Ongoing = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


def list_reassignments(image: MetadataImage, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """Of the topics that are asked for, or of all."""
    if request.topics is None:
        asked = [(name, list(topic.partitions)) for name, topic in image.topics.items()]
    else:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics if topic.name in image.topics]
    response = ListPartitionReassignmentsResponse(error_message=None)
    for name, numbers in asked:
        found = image.topics[name].partitions
        ongoing = [reassignment(number, found[number]) for number in numbers if number in found and found[number].is_reassigning]
        if ongoing:
            topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=name, partitions=ongoing)
            response.topics.append(topic)
    return response


def reassignment(number: int, partition: Partition) -> Ongoing:
    return Ongoing(
        partition_index=number,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
