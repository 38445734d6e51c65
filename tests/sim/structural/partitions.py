"""The replicas of all partitions, over all nodes and over time.

Invariants that are checked
 1. A leader epoch has one leader.
 2. Within a leader epoch the high watermark never goes back, and it is no further than the log.
 3. What is committed stands (logs.py).
 4. Who is in sync has what is committed (in_sync.py), and does not stay behind (behind.py).
 5. The maximal ISR holds the committed one; a change of the ISR is of the leader's own epoch.
 6. Every log knows in which epoch each of its batches was written, and the last batch of each of its producers, for as long as
    producers are kept.
 7. Transactions are what their coordinators say (transactions.py).
 8. What a leader knows under the name of a partition and under its id is the same, and nobody leads what he follows.
"""

from typing import TYPE_CHECKING, Final

from odradek.core.partition.replica import TopicIdPartition
from odradek.node.node import Node
from odradek.node.partition import Partition
from tests.sim.machine import BEGIN_MS, MS_PER_SECOND
from tests.sim.structural.behind import BehindChecks
from tests.sim.structural.findings import hold
from tests.sim.structural.in_sync import InSyncChecks
from tests.sim.structural.logs import Committed, check_known, check_log
from tests.sim.structural.replicas import Replica, all_replicas
from tests.sim.structural.transactions import TransactionChecks

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster

AHEAD_MS_MAX: Final = 3_600_000  # more than all jumps of a clock in a run come to


class PartitionChecks:
    def __init__(self) -> None:
        self.leaders: dict[tuple[TopicIdPartition, int], int] = {}
        self.high_watermarks: dict[tuple[TopicIdPartition, int], int] = {}
        self.committed: dict[TopicIdPartition, Committed] = {}
        self.behind_ms = 0  # what any clock was, at most
        self.in_sync = InSyncChecks()
        self.behind = BehindChecks(self.in_sync.asked)
        self.transactions = TransactionChecks(self.in_sync.committed_to)

    def elected_uncleanly(self, key: TopicIdPartition) -> None:
        """By the metadata: what was committed may be lost."""
        self._committed(key, f"partition {key[1]} of {key[0].hex()}").forgive()
        self.in_sync.forgive(key)

    def _committed(self, key: TopicIdPartition, name: str) -> Committed:
        if key not in self.committed:
            self.committed[key] = Committed(name)
        return self.committed[key]

    def check(self, cluster: "SimCluster") -> None:
        latest_ms = BEGIN_MS + int(cluster.world.now_s * MS_PER_SECOND) + AHEAD_MS_MAX
        self.behind_ms = max(self.behind_ms, *(-member.clock.ahead_ms for member in cluster.members.values()))
        for node in cluster.nodes.values():
            self._check_names(node)
        for replica in all_replicas(cluster):
            check_log(f"{replica.name} on {replica.who}", replica.log)
            if replica.leading is not None:
                self._check_leader(replica, replica.leading)
            if replica.log.damage is None:
                self._check_content(replica, latest_ms)
        self.in_sync.check(cluster)
        self.behind.check(cluster)
        self.transactions.check(cluster)

    def check_in_sync(self, cluster: "SimCluster") -> None:
        self.in_sync.check_leaders(cluster)

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

    def _check_content(self, replica: Replica, latest_ms: int) -> None:
        committed = self._committed(replica.key, replica.name)
        log = replica.log
        new = committed.look(replica.who, replica.medium, log, log.high_watermark, is_compacted=log.config.compacts)
        # what compaction has taken, or a marker, may have been stamped by the slowest clock, and its producer be forgotten for it
        stamped_ms = latest_ms + self.behind_ms
        check_known(f"{replica.name} on {replica.who}", log, new, stamped_ms if log.config.compacts else latest_ms, stamped_ms)
        self.transactions.look(replica, new)
