"""Whether a ConsumerGroupHeartbeat says what it has to, before anybody looks at its group."""

from typing import Final

from odradek.core.groups.config import GroupConfig
from odradek.core.groups.consumer.member import LEAVE_EPOCH, NO_TIMEOUT, STATIC_LEAVE_EPOCH
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import ConsumerGroupHeartbeatRequest

OWN_MEMBER_ID_FROM: Final = 1  # KIP-1082: the client makes its member id


def check_request(message: ConsumerGroupHeartbeatRequest, version: int, config: GroupConfig) -> None:
    epoch = message.member_epoch
    if (version >= OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVE_EPOCH) and not message.member_id.strip():
        raise invalid("MemberId is empty: a member names itself.")
    for name, value in (("GroupId", message.group_id), ("InstanceId", message.instance_id), ("RackId", message.rack_id)):
        if value is not None and not value.strip():
            raise invalid(f"{name} is empty.")
    if epoch == 0:
        check_first(message)
    elif epoch == STATIC_LEAVE_EPOCH and message.instance_id is None:
        raise invalid("InstanceId is null: only a static member leaves with the epoch -2.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise invalid(f"MemberEpoch {epoch} means nothing.")
    if message.server_assignor is not None and message.server_assignor not in config.group_consumer_assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {message.server_assignor} is not known. group.consumer.assignors has: "
            f"{', '.join(config.group_consumer_assignors)}.",
        )


def check_first(message: ConsumerGroupHeartbeatRequest) -> None:
    if message.rebalance_timeout_ms == NO_TIMEOUT:
        raise invalid("RebalanceTimeoutMs is missing, and the first request has it.")
    if message.topic_partitions is None or message.topic_partitions:
        raise invalid("TopicPartitions is not empty: who joins owns nothing.")
    if message.subscribed_topic_names is None and message.subscribed_topic_regex is None:
        raise invalid("SubscribedTopicNames and SubscribedTopicRegex are both null: who joins has one of them.")


def invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)
