"""ConsumerGroupHeartbeat and ConsumerGroupDescribe with a coordinator behind them and no node."""

import pytest

from odradek.api import consumer_group_describe, consumer_group_heartbeat
from odradek.api.operations import ON_GROUPS
from odradek.core.metadata.features import GROUP_VERSION
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ConsumerGroupDescribeRequest
from tests.api.test_group_apis import TOPIC_ID, Node
from tests.core.groups.consumers import join_request, partitions_of


@pytest.fixture
def node() -> Node:
    made = Node()
    made.image.features[GROUP_VERSION] = 1
    return made


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_joins_and_is_described_in_every_version(node: Node, version: int) -> None:
    answer = node.call(consumer_group_heartbeat, join_request("m", "t"), version)
    assert (answer.error_code, answer.member_epoch, partitions_of(answer)) == (ErrorCode.NONE, 1, {TOPIC_ID: [0, 1]})
    request = ConsumerGroupDescribeRequest(group_ids=["g", "none"], include_authorized_operations=True)
    found, missing = node.call(consumer_group_describe, request, version).groups
    assert (found.group_state, found.authorized_operations, found.members[0].member_id) == ("Stable", ON_GROUPS, "m")
    assert found.members[0].member_type == (1 if version else -1)
    assert (missing.error_code, missing.authorized_operations) == (ErrorCode.GROUP_ID_NOT_FOUND, -(2**31))


def test_a_refusal_says_why(node: Node) -> None:
    answer = node.call(consumer_group_heartbeat, join_request("m", "t", assignor="none"), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "group.consumer.assignors" in answer.error_message


def test_where_there_is_no_coordinator_both_say_so(node: Node) -> None:
    node.groups.error = ErrorCode.NOT_COORDINATOR
    answer = node.call(consumer_group_heartbeat, join_request("m", "t"), 1)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    answer = node.call(consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_cluster_without_the_feature_does_not_serve_them(node: Node) -> None:
    node.image.features[GROUP_VERSION] = 0
    for version in APIS[consumer_group_heartbeat.KEY].served:
        answer = node.call(consumer_group_heartbeat, join_request("m", "t"), version)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    answer = node.call(consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
    assert answer.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
