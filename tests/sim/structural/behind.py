"""Whether leaders let go of who has fallen behind. Looked at over time.

Invariant that is checked: who is in sync comes before long to where its leader ended, or its leader asks for an ISR without it.
Its time begins anew when the leader's process was held up, and with every ISR that the leader has asked for.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from odradek.core.partition.leader import IsrChange
from odradek.core.partition.replica import UNKNOWN, TopicIdPartition
from odradek.node.node import Node
from odradek.node.partition import Partition
from tests.sim.machine import MS_PER_SECOND
from tests.sim.structural.findings import hold

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster, SimNode

SLACK_MS: Final = 5000  # for the timer that looks for them, of a process that has much to do

Place: TypeAlias = tuple[int, int, TopicIdPartition, int, int]  # node, life, partition, leader epoch, and the follower


class Due(NamedTuple):
    offset: int  # where the leader ended
    since_s: float
    asked: IsrChange | None  # the last of the partition by then


class BehindChecks:
    def __init__(self, asked: Mapping[TopicIdPartition, IsrChange]) -> None:
        """`asked` holds the last change of each ISR that was proposed."""
        self._asked = asked
        self._due: dict[Place, Due] = {}

    def check(self, cluster: "SimCluster") -> None:
        before, self._due = self._due, {}
        for number, node in cluster.nodes.items():
            if hasattr(node, "partitions"):
                self._check_node(cluster.members[number], node, cluster.world.now_s, before)

    def _check_node(self, member: "SimNode", node: Node, now_s: float, before: Mapping[Place, Due]) -> None:
        assert member.loop is not None
        if member.loop.is_paused or member.loop.busy_until_s > now_s:
            return
        limit_ms = 2 * node.partitions.lag_time_max_ms + SLACK_MS
        for led in node.partitions.by_leader.values():
            key, leader = (led.topic_id, led.index), led.leader
            for broker in leader.isr:
                if broker == node.node_id or leader.change is not None:
                    continue
                place, asked = (node.node_id, member.life, key, leader.epoch, broker), self._asked.get(key)
                due = before.get(place)
                if due is None or due.asked is not asked or due.since_s < member.went_on_s or position(led, broker) >= due.offset:
                    due = Due(leader.log_end, now_s, asked)
                self._due[place] = due
                late_ms = int((now_s - due.since_s) * MS_PER_SECOND)
                hold(
                    late_ms <= limit_ms,
                    f"{led} ended at {due.offset} on node {node.node_id} {late_ms} ms ago, and node {broker}, in sync, is at "
                    f"{position(led, broker)}",
                )


def position(led: Partition, broker: int) -> int:
    """Where a follower is, as its leader knows."""
    replica = led.leader.replicas.get(broker)
    return UNKNOWN if replica is None else replica.log_end
