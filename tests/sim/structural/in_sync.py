"""Who is in sync, looked at when it matters: when a high watermark moves, when a leader proposes an ISR, and over time.

Invariants that are checked
 1. A high watermark moves as far as everybody has come who is in sync, by their own logs: who is in the ISR that the leader
    knows, and in that of the metadata, where a change may be committed of which the leader has not heard yet. Whoever is in
    sync follows in the leader's epoch by then.
 2. It does not move while fewer are in the ISR than min.insync.replicas asks for.
 3. Who is proposed for an ISR is active, as far as the leader knows, and has all up to the high watermark and to the start of the
    leader's epoch. And it is not in it already: what was asked for is under way until its leader knows what became of it.
 4. Who is in the ISR, and alive, has all that was committed in this epoch and before. A broker that has come back without its
    tail is known by its broker epoch, and is out of the ISR when the leader hears of that.
 5. A leader begins an epoch with nothing known of its followers, also one that led before: others may have cut their logs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import Partition as State
from odradek.core.metadata.topics import Topic
from odradek.core.partition.leader import IsrChange
from odradek.core.partition.replica import UNKNOWN, TopicIdPartition
from odradek.node.node import Node
from odradek.node.partition import Partition
from tests.sim.structural.findings import Violated, hold
from tests.sim.structural.replicas import Replica, newest_image, replicas_of

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster

Told = Callable[[Partition], None]


def state_for(image: MetadataImage, led: Partition) -> State | None:
    """What an image says of a partition that is led; None when that is another epoch, or older than what the leader knows: who
    has the newest of all may be down."""
    topic = image.topics_by_id.get(led.topic_id)
    state = None if topic is None else topic.partitions.get(led.index)
    if state is None or state.leader_epoch != led.leader_epoch or state.partition_epoch < led.leader.partition_epoch:
        return None
    return state


def is_in_this_life(image: MetadataImage, replica: Replica) -> bool:
    """Whether an image knows the process that a replica is in now."""
    known = image.brokers.get(replica.node.node_id)
    return known is not None and known.epoch == replica.node.session.broker_epoch


def is_heard(node: Node, led: Partition, replica: Replica) -> bool:
    """Whether a leader knows the process that a replica is in now. Its image may be ahead of it, a slow disk in the way of what
    else has changed: who has left the ISR there is known to be another only when the partition follows. Who copies the log anew
    is out of the ISR, of which a leader that is cut off has heard nothing."""
    state, is_copied_anew = state_for(node.image, led), replica.key in replica.node.partitions.copied_anew
    is_in_isr = state is None or replica.node.node_id in state.isr
    return is_in_this_life(node.image, replica) and is_in_isr and not is_copied_anew


def all_led(cluster: "SimCluster") -> list[tuple[Node, Partition]]:
    nodes = cluster.nodes.values()
    return [(node, led) for node in nodes for by_index in node.partitions.by_name.values() for led in by_index.values()]


class InSyncChecks:
    def __init__(self) -> None:
        self.committed: dict[TopicIdPartition, dict[int, int]] = {}  # the high watermarks of its leaders, by their epochs
        self.forgiven: dict[TopicIdPartition, None] = {}  # elected uncleanly: who has what is open from then on
        self.asked: dict[TopicIdPartition, IsrChange] = {}  # the last change of each that was proposed
        self.moves = 0
        self.proposals = 0
        self.beginnings = 0

    def forgive(self, key: TopicIdPartition) -> None:
        self.forgiven[key] = None

    def committed_to(self, key: TopicIdPartition) -> int:
        """As far as any leader has known: the next one, and its followers, may go back a little with what they know."""
        return max(self.committed.get(key, {}).values(), default=0)

    # -- in the moment

    def watch(self, cluster: "SimCluster") -> None:
        """Has nodes tell when a high watermark moves, and when an ISR is proposed."""
        cluster.on_ready.append(partial(self._watch, cluster))
        for node in cluster.nodes.values():
            self._watch(cluster, node)

    def _watch(self, cluster: "SimCluster", node: Node) -> None:
        partitions, reports = node.partitions, node.partitions.isr_reports
        moved, changed, take_role = partitions.committed, reports.changed, partitions._take_role

        def look(check: Callable[["SimCluster", Node, Partition], None], partition: Partition) -> None:
            try:
                if cluster.living.get(node.node_id) is node:
                    check(cluster, node, partition)
            except Violated as violated:  # within a step of the node, which must not see it
                cluster.world.after(0, partial(hold, False, str(violated)))

        def watched(known: Told, check: Callable[["SimCluster", Node, Partition], None]) -> Told:
            def tell(partition: Partition) -> None:
                known(partition)
                look(check, partition)

            return tell

        def watched_role(topic: Topic, index: int) -> None:
            before = partitions.by_name.get(topic.name, {}).get(index)
            epoch = None if before is None else before.leader.epoch
            take_role(topic, index)
            led = partitions.by_name.get(topic.name, {}).get(index)
            if led is not None and led.leader.epoch != epoch:
                look(self.begun, led)

        partitions.committed = watched(moved, self.moved)  # type: ignore[method-assign, assignment]
        reports.changed = watched(changed, self.proposed)  # type: ignore[method-assign, assignment]
        partitions._take_role = watched_role  # type: ignore[method-assign]

    def begun(self, _: "SimCluster", node: Node, partition: Partition) -> None:
        """A leader has begun an epoch, and nobody can have fetched in it."""
        self.beginnings += 1
        for broker_id, replica in partition.leader.replicas.items():
            begins = f"node {node.node_id} begins leader epoch {partition.leader_epoch} of {partition}"
            hold(replica.log_end == UNKNOWN, f"{begins}, and knows that node {broker_id} ends at {replica.log_end}")

    def moved(self, cluster: "SimCluster", node: Node, partition: Partition) -> None:
        """The high watermark of a leader has moved."""
        leader, key = partition.leader, (partition.topic_id, partition.index)
        offset = leader.high_watermark
        minimum = min(leader.min_insync_replicas, len(leader.replicas) + 1)
        hold(
            len(leader.isr) >= minimum, f"{partition} is committed up to {offset} with {leader.isr} in sync, and {minimum} needed"
        )
        self.moves += 1
        by_epoch = self.committed.setdefault(key, {})
        by_epoch[leader.epoch] = max(by_epoch.get(leader.epoch, 0), offset)
        if key in self.forgiven:
            return
        for other in self._in_sync(cluster, node, partition):
            moves = f"{partition} is committed up to {offset} in leader epoch {leader.epoch}"
            hold(other.leader_epoch >= leader.epoch, f"{moves}, and {other.who}, in sync, is in {other.leader_epoch}")
            hold(other.log.end_offset >= offset, f"{moves}, and ends at {other.log.end_offset} on {other.who}, in sync")

    def _in_sync(self, cluster: "SimCluster", node: Node, partition: Partition) -> Iterator[Replica]:
        """The others that are in sync with a leader, as far as it knows, or as the metadata says; in their lives of now."""
        leader, key = partition.leader, (partition.topic_id, partition.index)
        newest = newest_image(cluster)
        state = state_for(newest, partition)
        told = () if state is None else state.isr
        for other in replicas_of(cluster, key):
            if other.node is node or other.log.damage is not None:
                continue
            is_known = other.node.node_id in leader.isr and is_heard(node, partition, other)
            is_told = other.node.node_id in told and is_in_this_life(newest, other)
            if is_known or is_told:
                yield other

    def proposed(self, cluster: "SimCluster", node: Node, partition: Partition) -> None:
        """A leader asks for another ISR. It may ask again for what it would no longer begin to ask for: that is not looked at."""
        leader, key = partition.leader, (partition.topic_id, partition.index)
        if leader.unsent is None:
            return
        self.proposals += 1
        if self.asked.get(key) is leader.unsent:
            return
        self.asked[key] = leader.unsent
        state = state_for(newest_image(cluster), partition)
        already = state.isr if state is not None and state.partition_epoch > leader.partition_epoch else ()
        for broker_id in set(leader.unsent.isr) - set(leader.isr):
            broker = node.image.brokers.get(broker_id)
            asks = f"{partition} asks for node {broker_id} to be in sync, "
            hold(broker_id not in already, f"{asks}which it is, by a change that is no longer waited for")
            hold(broker is not None and broker.is_active, f"{asks}which is fenced, shutting down or not registered")
            for other in replicas_of(cluster, key):
                is_it = other.node.node_id == broker_id and is_in_this_life(node.image, other)
                if is_it and other.leader_epoch == leader.epoch:
                    end, least = other.log.end_offset, max(leader.high_watermark, leader.epoch_start)
                    hold(end >= least, f"{asks}which ends at {end}, where epoch {leader.epoch} needs {least}")

    # -- over time

    def check(self, cluster: "SimCluster") -> None:
        """As the leaders know it, and as the metadata says."""
        self.check_leaders(cluster)
        newest = newest_image(cluster)
        for _, led in all_led(cluster):
            key = (led.topic_id, led.index)
            state = state_for(newest, led)
            if state is None or key in self.forgiven:
                continue
            committed = max((end for epoch, end in self.committed.get(key, {}).items() if epoch <= led.leader_epoch), default=0)
            for other in replicas_of(cluster, key):
                is_in_sync = other.node.node_id in state.isr and is_in_this_life(newest, other)
                if not is_in_sync or other.leader_epoch != led.leader_epoch or other.log.damage is not None:
                    continue
                hold(
                    other.log.end_offset >= committed,
                    f"{led} was committed up to {committed}, and ends at {other.log.end_offset} on {other.who}, which is in "
                    f"{state.isr}, in sync by the metadata",
                )

    def check_leaders(self, cluster: "SimCluster") -> None:
        """As the leaders know it."""
        for node, led in all_led(cluster):
            self._check_leader(cluster, node, led)

    def _check_leader(self, cluster: "SimCluster", node: Node, led: Partition) -> None:
        leader = led.leader
        for other in replicas_of(cluster, (led.topic_id, led.index)):
            known = node.image.brokers.get(other.node.node_id)
            if known is None or known.fenced or not is_heard(node, led, other):
                continue  # it has come back, and the leader has not heard of it yet
            is_in_sync = other.node.node_id in leader.isr and other.leader_epoch == led.leader_epoch
            hold(
                not is_in_sync or other.log.damage is not None or other.log.end_offset >= leader.high_watermark,
                f"{led} is committed up to {leader.high_watermark} on node {node.node_id} with {leader.isr} in sync, and "
                f"ends at {other.log.end_offset} on {other.who}",
            )
