"""A damaged replica begins anew: whatever is under way is of its log as it was, and does not come into the new one."""

from msgspec.structs import replace

from odradek.core.metadata.topics import Topic
from odradek.log.log import Log
from odradek.log.segment import Damage
from odradek.node.node import Node
from tests.sim.steady import steady_cluster

TOPIC = "t"


def damaged() -> tuple[Node, Topic, Log]:
    """A follower out of sync, whose log a reader has found broken; its topic as the metadata has it."""
    nodes = steady_cluster().nodes.values()
    node = next(each for each in nodes if 0 not in each.partitions.by_name.get(TOPIC, {}))
    known = node.image.topics[TOPIC]
    state = known.partitions[0]
    others = tuple(broker for broker in state.isr if broker != node.node_id)
    log = node.partitions.replication.logs[node.partitions.replication.followers[known.id, 0][0]]
    assert log.end_offset
    log.damage = Damage(0, "rot")
    return node, Topic(TOPIC, known.id, {0: replace(state, isr=others)}), log


def test_it_is_followed_anew() -> None:
    node, topic, log = damaged()
    before = node.partitions.replication.followers[topic.id, 0]
    node.partitions._take_role(topic, 0)
    assert (log.end_offset, log.damage) == (0, None)
    assert node.partitions.replication.followers[topic.id, 0] != before
    assert before[0] not in node.partitions.replication.logs


def test_not_before_a_thread_has_written_what_it_writes() -> None:
    node, topic, log = damaged()
    log.is_being_written, end = True, log.end_offset
    node.partitions._take_role(topic, 0)
    assert (log.end_offset, log.damage) == (end, Damage(0, "rot"))
    assert (topic.id, 0) not in node.partitions.replication.followers
    assert (topic.id, 0) in node.partitions.unmade
    log.is_being_written = False
    node.partitions._take_role(topic, 0)
    assert (log.end_offset, log.damage) == (0, None)
    assert (topic.id, 0) in node.partitions.replication.followers
