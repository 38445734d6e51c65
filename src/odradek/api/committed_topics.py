"""Topics whose offsets are to be committed, alone or with a transaction.

The coordinator gets them with both name and id, and none that does not exist.
"""

from collections.abc import Callable
from typing import TypeVar

from odradek.api.context import Context
from odradek.core.metadata.topics import Topic
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import OffsetCommitRequest, TxnOffsetCommitRequest

Asked = TypeVar("Asked", OffsetCommitRequest.OffsetCommitRequestTopic, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic)
Answered = TypeVar("Answered")


def known_topics(
    asked: list[Asked], ctx: Context, refuse: Callable[[Asked, ErrorCode], Answered], *, has_ids: bool
) -> tuple[list[Asked], list[Answered]]:
    """Those of which some partition can be committed, with these partitions alone; and the answers about the rest."""
    known, refused = [], []
    for each in asked:
        topic: Topic | None
        if has_ids:
            topic, error = ctx.node.image.topics_by_id.get(each.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic, error = ctx.node.image.topics.get(each.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            refused.append(refuse(each, error))
            continue
        each.name, each.topic_id = topic.name, topic.id
        unknown = [partition for partition in each.partitions if partition.partition_index not in topic.partitions]
        if unknown:
            rest = type(each)(name=topic.name, topic_id=topic.id, partitions=unknown)
            refused.append(refuse(rest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            each.partitions = [partition for partition in each.partitions if partition.partition_index in topic.partitions]
        if each.partitions:
            known.append(each)
    return known, refused
