"""DescribeLogDirs (key 35), versions 1-5.

v2  flexible encoding
v3  an error of the whole answer
v4  the size of the volume and what is left of it
v5  whether a folder takes no new partitions
"""

from collections import defaultdict

from odradek.api.context import Context
from odradek.api.services import LogDir
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import DescribeLogDirsRequest, DescribeLogDirsResponse

KEY = 35

FolderAnswer = DescribeLogDirsResponse.DescribeLogDirsResult
TopicAnswer = DescribeLogDirsResponse.DescribeLogDirsTopic
PartitionAnswer = DescribeLogDirsResponse.DescribeLogDirsPartition


def handle(request: DescribeLogDirsRequest, ctx: Context) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(results=[describe(folder, wanted) for folder in ctx.node.log_dirs()])


def describe(folder: LogDir, wanted: set[tuple[str, int]] | None) -> FolderAnswer:
    if folder.is_offline:
        return FolderAnswer(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=folder.path)
    topics: dict[str, list[PartitionAnswer]] = defaultdict(list)
    for (topic, index), replica in folder.replicas.items():
        if wanted is None or (topic, index) in wanted:
            topics[topic].append(PartitionAnswer(partition_index=index, partition_size=replica.size, offset_lag=replica.lag))
    return FolderAnswer(
        log_dir=folder.path,
        topics=[TopicAnswer(name=topic, partitions=partitions) for topic, partitions in topics.items()],
        total_bytes=folder.total_bytes,
        usable_bytes=folder.usable_bytes,
    )
