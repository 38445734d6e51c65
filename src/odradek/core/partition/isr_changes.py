"""The ISR changes of all partitions that a node leads, as AlterPartition requests to the controller.

Invariants
 1. One request is under way at a time; what is proposed meanwhile goes with the next.
 2. A partition that an answer leaves out is sent again. So is all of a request that failed as a whole, after RETRY_MS.
 3. A change that its leader no longer stands for is not sent.
"""

from collections.abc import Iterable
from typing import Final

from odradek.core.partition.leader import IsrChange, Leader
from odradek.core.partition.replica import TopicIdPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import AlterPartitionRequest, AlterPartitionResponse

RETRY_MS: Final = 50
BROKER_EPOCHS_SINCE: Final = 3


class IsrChanges:
    __slots__ = ("node_id", "unsent", "waiting")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.unsent: dict[TopicIdPartition, Leader] = {}
        self.waiting: dict[TopicIdPartition, tuple[Leader, IsrChange]] = {}  # for the answer

    def add(self, key: TopicIdPartition, leader: Leader) -> None:
        """A leader has something to send. The one that led the partition before has nothing any more."""
        self.unsent[key] = leader

    @property
    def is_due(self) -> bool:
        return bool(self.unsent) and not self.waiting

    def request(self, broker_epoch: int, version: int = BROKER_EPOCHS_SINCE) -> AlterPartitionRequest | None:
        """All that is to be sent now; None when there is nothing, or a request is under way."""
        if self.waiting:
            return None
        topics: dict[bytes, AlterPartitionRequest.TopicData] = {}
        for key, leader in self.unsent.items():
            change = leader.take_unsent()
            if change is None:
                continue
            self.waiting[key] = (leader, change)
            topic_id, index = key
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = AlterPartitionRequest.TopicData(topic_id=topic_id)
            topic.partitions.append(_wanted(index, change, version))
        self.unsent = {}
        if not topics:
            return None
        return AlterPartitionRequest(broker_id=self.node_id, broker_epoch=broker_epoch, topics=list(topics.values()))

    def answered(self, response: AlterPartitionResponse, now_ms: int) -> Iterable[Leader]:
        """Tells the leaders; gives those whose high watermark moved. After an error of the whole, wait RETRY_MS."""
        moved = []
        for topic in response.topics if not response.error_code else ():
            for each in topic.partitions:
                key = (topic.topic_id, each.partition_index)
                sent = self.waiting.pop(key, None)
                if sent is None:
                    continue
                leader, change = sent
                if each.error_code:
                    leader.refused(change, each.error_code)
                    if leader.unsent is not None:
                        self.add(key, leader)
                    elif leader.advance(now_ms):
                        moved.append(leader)
                elif leader.answered(change, tuple(each.isr), each.leader_epoch, each.partition_epoch, now_ms):
                    moved.append(leader)
        self.failed()
        return moved

    def failed(self) -> None:
        """No answer, or none for these: whether they were made is not known."""
        for key, (leader, change) in self.waiting.items():
            leader.refused(change, ErrorCode.NETWORK_EXCEPTION)
            if leader.unsent is not None:
                self.unsent.setdefault(key, leader)
        self.waiting = {}


def _wanted(index: int, change: IsrChange, version: int) -> AlterPartitionRequest.PartitionData:
    wanted = AlterPartitionRequest.PartitionData(
        partition_index=index,
        leader_epoch=change.leader_epoch,
        leader_recovery_state=change.recovery_state,
        partition_epoch=change.partition_epoch,
    )
    if version < BROKER_EPOCHS_SINCE:
        wanted.new_isr = list(change.isr)
    else:
        wanted.new_isr_with_epochs = [
            AlterPartitionRequest.BrokerState(broker_id=broker, broker_epoch=epoch)
            for broker, epoch in zip(change.isr, change.broker_epochs, strict=True)
        ]
    return wanted
