"""ConsumerGroupDescribe: a consumer group with its members, what each has and what each should have."""

from odradek.core.groups.assignors.members import Partitions
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.consumer.member import ConsumerMember
from odradek.core.groups.shard import Shard
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

Described = ConsumerGroupDescribeResponse.DescribedGroup


def describe_consumer_groups(shard: Shard, message: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[describe(shard, group_id) for group_id in message.group_ids])


def describe(shard: Shard, group_id: str) -> Described:
    group = shard.consumer(group_id)
    if group is None:
        reason = "is no consumer group" if group_id in shard.groups else "is not there"
        return Described(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=f"Group {group_id} {reason}.")
    return Described(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.preferred_assignor() or shard.config.group_consumer_assignors[0],
        members=[described_member(group, member, shard.image) for member in group.members.values()],
    )


def described_member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> ConsumerGroupDescribeResponse.Member:
    """It has what it is to give up, too, until it has."""
    has: dict[bytes, set[int]] = {}
    for found in (member.assigned, member.revoking):
        for topic_id, partitions in found.items():
            has.setdefault(topic_id, set()).update(partitions)
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=assignment({topic_id: frozenset(partitions) for topic_id, partitions in has.items()}, image),
        target_assignment=assignment(group.target_of(member), image),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def assignment(partitions: Partitions, image: MetadataImage) -> ConsumerGroupDescribeResponse.Assignment:
    """Without topics that were deleted meanwhile."""
    topic = ConsumerGroupDescribeResponse.TopicPartitions
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            topic(topic_id=topic_id, topic_name=image.topics_by_id[topic_id].name, partitions=sorted(found))
            for topic_id, found in partitions.items()
            if topic_id in image.topics_by_id
        ]
    )
