"""The replicas of all partitions, over all nodes and over time.

Invariants that are checked
 1. A leader epoch has one leader.
 2. Within a leader epoch the high watermark never goes back, and it is no further than the log.
 3. What is committed stands (logs.py).
 4. Who is in the ISR, and alive, has everything below the high watermark. A broker that has come back without its tail is known
    by its broker epoch, and is out of the ISR when the leader hears of that.
 5. The maximal ISR holds the committed one; a change of the ISR is of the leader's own epoch.
 6. Every log knows in which epoch each of its batches was written, and the last batch of each of its producers.
 7. What a leader knows under the name of a partition and under its id is the same, and nobody leads what he follows.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from odradek.core.partition.replica import TopicIdPartition
from odradek.log.log import Log
from odradek.node.node import Node
from odradek.node.partition import Partition
from tests.log.medium import Medium
from tests.sim.structural.findings import hold
from tests.sim.structural.logs import Committed, check_known, check_log

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster


class Replica(NamedTuple):
    """A partition on a node that leads or follows it."""

    node: Node
    medium: Medium
    key: TopicIdPartition
    name: str
    log: Log
    leader_epoch: int
    leading: Partition | None

    @property
    def who(self) -> str:
        return f"node {self.node.node_id}"


def replicas(node: Node, medium: Medium) -> Iterator[Replica]:
    partitions = getattr(node, "partitions", None)  # a controller has none, nor a broker that has not come as far
    if partitions is None:
        return
    for topic, led in partitions.by_name.items():
        for index, found in led.items():
            key = (found.topic_id, index)
            yield Replica(node, medium, key, f"{topic}-{index}", found.log, found.leader_epoch, found)
    if not hasattr(partitions, "replication"):
        return
    replication = partitions.replication
    for key, (follower, _) in replication.followers.items():
        name = f"{follower.topic}-{follower.index}"
        yield Replica(node, medium, key, name, replication.logs[follower], follower.leader_epoch, None)


def all_replicas(cluster: "SimCluster") -> list[Replica]:
    return [replica for number, node in cluster.nodes.items() for replica in replicas(node, cluster.members[number].disks.medium)]


class PartitionChecks:
    def __init__(self) -> None:
        self.leaders: dict[tuple[TopicIdPartition, int], int] = {}
        self.high_watermarks: dict[tuple[TopicIdPartition, int], int] = {}
        self.committed: dict[TopicIdPartition, Committed] = {}

    def elected_uncleanly(self, key: TopicIdPartition) -> None:
        """By the metadata: what was committed may be lost."""
        self._committed(key, f"partition {key[1]} of {key[0].hex()}").forgive()

    def _committed(self, key: TopicIdPartition, name: str) -> Committed:
        if key not in self.committed:
            self.committed[key] = Committed(name)
        return self.committed[key]

    def check(self, cluster: "SimCluster") -> None:
        found = all_replicas(cluster)
        for node in cluster.nodes.values():
            self._check_names(node)
        for replica in found:
            check_log(f"{replica.name} on {replica.who}", replica.log)
            if replica.leading is not None:
                self._check_leader(replica, replica.leading)
            if replica.log.damage is None:
                self._check_content(replica)
        self._check_in_sync(found)

    def check_in_sync(self, cluster: "SimCluster") -> None:
        self._check_in_sync(all_replicas(cluster))

    def _check_names(self, node: Node) -> None:
        partitions = getattr(node, "partitions", None)
        if partitions is None:
            return
        for topic_id, led in partitions.by_id.items():
            for index, partition in led.items():
                named = partitions.by_name.get(partition.topic, {}).get(index)
                hold(named is partition, f"node {node.node_id} leads {partition} by its id, and by its name {named}")
                hold(partitions.by_leader.get(partition.leader) is partition, f"nobody looks after {partition}")
                followers = partitions.replication.followers
                hold((topic_id, index) not in followers, f"node {node.node_id} leads and follows {partition}")

    def _check_leader(self, replica: Replica, partition: Partition) -> None:
        leader, epoch = partition.leader, (replica.key, replica.leader_epoch)
        known = self.leaders.setdefault(epoch, replica.node.node_id)
        hold(
            known == replica.node.node_id,
            f"{replica.who} and node {known} lead {replica.name} in leader epoch {replica.leader_epoch}",
        )
        before = self.high_watermarks.get(epoch, 0)
        hold(
            leader.high_watermark >= before,
            f"the high watermark of {replica.name} goes back from {before} to {leader.high_watermark} in one leader epoch",
        )
        self.high_watermarks[epoch] = leader.high_watermark
        hold(
            leader.high_watermark == replica.log.high_watermark,
            f"{replica.name}: the leader has the high watermark {leader.high_watermark}, its log {replica.log.high_watermark}",
        )
        hold(leader.high_watermark <= leader.log_end, f"{replica.name} is committed past its end, {leader.log_end}")
        hold(set(leader.isr) <= set(leader.maximal_isr), f"{replica.name} waits for {leader.maximal_isr} of {leader.isr}")
        change = leader.change
        hold(change is None or change.leader_epoch == leader.epoch, f"{replica.name} asks for a change of another epoch")

    def _check_content(self, replica: Replica) -> None:
        committed = self._committed(replica.key, replica.name)
        log = replica.log
        new = committed.look(replica.who, replica.medium, log, log.high_watermark, is_compacted=log.config.compacts)
        check_known(f"{replica.name} on {replica.who}", log, new)

    def _check_in_sync(self, found: list[Replica]) -> None:
        by_place = {(replica.key, replica.node.node_id): replica for replica in found}
        for replica in found:
            if replica.leading is None:
                continue
            leader = replica.leading.leader
            for broker_id in leader.isr:
                other = by_place.get((replica.key, broker_id))
                if other is None or other.leader_epoch != replica.leader_epoch or other.log.damage is not None:
                    continue
                known = replica.node.image.brokers.get(broker_id)
                if known is None or known.fenced or known.epoch != other.node.session.broker_epoch:
                    continue  # it has come back, and the leader has not heard of it yet
                hold(
                    other.log.end_offset >= leader.high_watermark,
                    f"{replica.name} is committed up to {leader.high_watermark} on {replica.who} with {leader.isr} in sync, and "
                    f"ends at {other.log.end_offset} on {other.who}",
                )
