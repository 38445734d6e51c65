"""DeleteRecords (key 21), versions 0-2.

v2  flexible encoding

The leader forgets the records at once. The answer waits, in the partitions and in one timer, until all replicas that can be
reached have forgotten them too, and tells the low watermark, below which nobody has anything.
"""

from odradek.api.context import Context, Handled
from odradek.api.services import Partition, Timer
from odradek.core.metadata.topic_names import INTERNAL_TOPICS
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import DeleteRecordsRequest, DeleteRecordsResponse

KEY = 21
HIGH_WATERMARK = -1
UNKNOWN = -1

PartitionAnswer = DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(request: DeleteRecordsRequest, ctx: Context) -> Handled:
    deletion = Deletion(ctx)
    for topic in request.topics:
        answers = [deletion.delete(topic.name, wanted.partition_index, wanted.offset) for wanted in topic.partitions]
        deletion.response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    if not deletion.waits:
        return deletion.response
    deletion.wait(request.timeout_ms)
    return None


class Deletion:
    """One request, until all replicas have done what it asks for, or its time is over."""

    __slots__ = ("ctx", "response", "timer", "waits")

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.response = DeleteRecordsResponse()
        self.waits: dict[Partition, tuple[PartitionAnswer, int]] = {}
        self.timer: Timer | None = None

    def delete(self, topic: str, index: int, offset: int) -> PartitionAnswer:
        """The answer, which is not complete yet while the partition is in `waits`."""
        node = self.ctx.node
        partition = node.partitions.by_name.get(topic, {}).get(index)
        try:
            if partition is None:
                raise Refused(node.partitions.why_not(topic, index), "this node does not lead the partition")
            if topic in INTERNAL_TOPICS:
                raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is kept by the brokers themselves")
            if "delete" not in node.topic_config(topic).cleanup_policy:
                raise Refused(ErrorCode.POLICY_VIOLATION, "a topic that is only compacted keeps its records")
            if offset == HIGH_WATERMARK:
                offset = partition.high_watermark
            if offset < 0:
                raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}")
            partition.move_start(offset)
        except Refused as refused:
            return PartitionAnswer(partition_index=index, low_watermark=UNKNOWN, error_code=refused.code)
        answer = PartitionAnswer(partition_index=index, low_watermark=partition.low_watermark)
        if answer.low_watermark < offset:
            self.waits[partition] = answer, offset
        return answer

    def wait(self, timeout_ms: int) -> None:
        self.ctx.later()
        self.ctx.abandoned = self.stop
        self.timer = self.ctx.node.timers.after(max(timeout_ms, 0), self.time_out)
        for partition in self.waits:
            partition.deletions[self] = None

    def partition_changed(self, partition: Partition) -> None:
        if partition not in self.waits:
            return
        answer, offset = self.waits[partition]
        if partition.is_closed:
            answer.error_code = self.ctx.node.partitions.why_not(partition.topic, partition.index)
            answer.low_watermark = UNKNOWN
        elif partition.low_watermark >= offset:
            answer.low_watermark = partition.low_watermark
        else:
            return
        del self.waits[partition]
        partition.deletions.pop(self, None)
        if not self.waits:
            self.finish()

    def time_out(self) -> None:
        for answer, _ in self.waits.values():
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.finish()

    def finish(self) -> None:
        self.stop()
        self.ctx.answer(self.response)

    def stop(self) -> None:
        """Waits no longer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for partition in self.waits:
            partition.deletions.pop(self, None)
        self.waits = {}
