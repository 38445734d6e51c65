"""Which of a node's folders its replicas are in, where the metadata does not say so: as AssignReplicasToDirs requests.

A controller leaves the choice to a broker that has several folders. It has to know the outcome: when one of them fails, it finds
other leaders for what was in it. Also a folder that has failed meanwhile is told, which the controller sees.

Invariants
 1. One request is under way at a time. What comes meanwhile goes with the next, and the last word on a replica counts.
 2. Whatever was not taken is sent again, with all that is to be sent then, until the metadata has it, or the replica is no more.
"""

from typing import Final

from odradek.core.metadata.features import METADATA_VERSION, RecordVersions
from odradek.core.metadata.image import MetadataImage
from odradek.core.partition.replica import TopicIdPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

REPLICAS_MAX: Final = 2250  # of one request
PAUSE_MS_MIN: Final = 100  # so that what comes together goes together
PAUSE_MS_MAX: Final = 10_000
DOUBLINGS_MAX: Final = 7


class Directories:
    __slots__ = ("failures", "image", "node_id", "unsent", "waiting")

    def __init__(self, node_id: int, image: MetadataImage) -> None:
        self.node_id = node_id
        self.image = image
        self.unsent: dict[TopicIdPartition, bytes] = {}
        self.waiting: dict[TopicIdPartition, bytes] = {}  # for the answer
        self.failures = 0  # of whole requests, since one was answered

    def found(self, key: TopicIdPartition, directory: bytes) -> bool:
        """A replica is in a folder; whether that is to be told."""
        if not RecordVersions(self.image.features[METADATA_VERSION]).has_directories or self._told(key) in (None, directory):
            return False
        self.unsent[key] = directory
        return True

    def _told(self, key: TopicIdPartition) -> bytes | None:
        """What the metadata says; None where this node has no such replica."""
        topic_id, index = key
        topic = self.image.topics_by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        return None if partition is None or self.node_id not in partition.replicas else partition.directory(self.node_id)

    @property
    def pause_ms(self) -> int:
        """How long to wait before the next request."""
        if not self.failures and len(self.unsent) > REPLICAS_MAX:
            return 0
        return min(PAUSE_MS_MIN << min(self.failures, DOUBLINGS_MAX), PAUSE_MS_MAX)

    def request(self, broker_epoch: int) -> AssignReplicasToDirsRequest | None:
        """What is to be sent now; None when there is nothing."""
        assert not self.waiting
        unsent = {key: directory for key, directory in self.unsent.items() if self._told(key) not in (None, directory)}
        self.waiting = dict(list(unsent.items())[:REPLICAS_MAX])
        self.unsent = {key: directory for key, directory in unsent.items() if key not in self.waiting}
        if not self.waiting:
            return None
        Directory, Topic = AssignReplicasToDirsRequest.DirectoryData, AssignReplicasToDirsRequest.TopicData  # noqa: N806
        topics: dict[bytes, dict[bytes, AssignReplicasToDirsRequest.TopicData]] = {}
        for (topic_id, index), directory in self.waiting.items():
            topic = topics.setdefault(directory, {}).setdefault(topic_id, Topic(topic_id=topic_id))
            topic.partitions.append(AssignReplicasToDirsRequest.PartitionData(partition_index=index))
        directories = [Directory(id=directory, topics=list(each.values())) for directory, each in topics.items()]
        return AssignReplicasToDirsRequest(broker_id=self.node_id, broker_epoch=broker_epoch, directories=directories)

    def answered(self, response: AssignReplicasToDirsResponse) -> ErrorCode:
        """Takes an answer; gives the error of the whole, or of one of its replicas."""
        if response.error_code:
            self.failed()
            return ErrorCode(response.error_code)
        self.failures, fault = 0, ErrorCode.NONE
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        fault = ErrorCode(partition.error_code)
                    else:
                        self.waiting.pop((topic.topic_id, partition.partition_index), None)
        self._send_again()
        return fault

    def failed(self) -> None:
        """There was no answer, or none that could be used."""
        self.failures += 1
        self._send_again()

    def _send_again(self) -> None:
        self.unsent = {**self.waiting, **self.unsent}
        self.waiting = {}
