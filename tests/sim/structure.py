"""Structural checks of a simulated cluster: what its nodes hold, looked at from outside and with the knowledge of all of them.

    structure = Structure(cluster)
    structure.check()           # again and again, between two turns of the world; Violated says what does not hold
    structure.check_whole()     # rarely: rereads all logs, replays coordinators, opens the files of every disk
    why = unsettled(cluster)    # after healing: what is still missing for every replica to be in sync; "" when nothing is

What is checked stands in `structural/`. Looking changes nothing in the nodes, takes no simulated time and meets no fault.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.core.metadata.image import MetadataImage
from odradek.wire.message import Message
from tests.sim.structural.authority import AuthorityChecks
from tests.sim.structural.durable import DurableChecks
from tests.sim.structural.eligible import EligibleChecks
from tests.sim.structural.files import check_files
from tests.sim.structural.findings import hold
from tests.sim.structural.groups import check_groups
from tests.sim.structural.pace import PaceChecks
from tests.sim.structural.parting import PartingChecks
from tests.sim.structural.partitions import PartitionChecks
from tests.sim.structural.promises import PromiseChecks
from tests.sim.structural.quorum import QuorumChecks

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster, SimNode
    from tests.sim.loop import SimLoop


class Structure:
    def __init__(self, cluster: "SimCluster") -> None:
        self.cluster = cluster
        self.partitions = PartitionChecks()
        self.quorum = QuorumChecks(self.partitions.elected_uncleanly)
        self.authority = AuthorityChecks()
        self.promises = PromiseChecks(cluster, self.quorum.check_beginning, self.authority.answers)
        self.durable = DurableChecks()
        self.pace = PaceChecks()
        self.checks = 0
        self.groups_compared = 0
        self.transactions_compared = 0
        self.logs_opened = 0
        self.cuts = 0
        self._cost = cluster.disk_cost
        cluster.disk_cost = self._seen
        self.partitions.in_sync.watch(cluster)
        self.parting = PartingChecks()
        self.parting.watch(cluster)
        self.eligible = EligibleChecks(cluster.unclean)
        self.quorum.reference.replayed = self._replayed

    def _replayed(self, image: MetadataImage, records: Sequence[Message]) -> None:
        self.eligible.replayed(image, records)
        self.partitions.transactions.replayed(records)

    def _seen(self, member: "SimNode", loop: "SimLoop", kind: str, path: str, size: int) -> None:
        """Every operation of a disk. A log that is cut may lack what is committed until it has fetched it again, which takes no
        time: so it is looked at."""
        busy_s = max(loop.busy_until_s, self.cluster.world.now_s)
        wrong = self.durable.seen(member, kind, path, size)
        self._cost(member, loop, kind, path, size)
        wrong = wrong or self.pace.seen(member, loop, kind, path, loop.busy_until_s - busy_s)
        if wrong:
            self.cluster.world.after(0, lambda: hold(False, wrong))
        if kind == "truncate" and path.endswith(".log"):
            self.cuts += 1
            self.cluster.world.after(0, lambda: self.partitions.check_in_sync(self.cluster))

    def check(self) -> None:
        """What the live nodes hold."""
        self.quorum.check(self.cluster)
        self.authority.check(self.cluster)
        self.promises.check()
        self.promises.voters.check()
        self.partitions.check(self.cluster)
        self.durable.check(self.cluster)
        self.checks += 1

    def check_whole(self) -> None:
        """The same and all that takes longer."""
        for committed in (self.quorum.committed, *self.partitions.committed.values()):
            committed.look_again()
        self.check()
        self.groups_compared += check_groups(self.cluster)
        self.transactions_compared += self.partitions.transactions.check_whole(self.cluster)
        self.logs_opened += check_files(self.cluster)
        self.logs_opened += check_files(self.cluster, "mixed", random.Random(self.checks))


def unsettled(cluster: "SimCluster") -> str:
    """What is missing for the cluster to be at peace: every node serves, has the same metadata, and is in sync."""
    nodes = cluster.nodes
    missing = [number for number in cluster.members if number not in nodes]
    if missing:
        return f"nodes {missing} do not serve"
    offsets = {number: node.quorum.committed_offset for number, node in nodes.items()}
    if len(set(offsets.values())) > 1:
        return f"metadata is committed up to {offsets}"
    image = next(iter(nodes.values())).image
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            name = f"{topic.name}-{index}"
            if state.leader not in nodes or set(state.isr) != set(state.replicas):
                return f"{name} has {state.isr} of {state.replicas} in sync, and {state.leader} leads it"
            led = nodes[state.leader].partitions.by_name.get(topic.name, {}).get(index)
            if led is None or (led.topic_id, led.leader_epoch) != (topic.id, state.leader_epoch):
                return f"node {state.leader} does not lead {name} yet"
            if led.log.producers.ongoing:
                return f"{name} has a transaction that is open"
            if led.high_watermark != led.log_end:
                return f"{name} ends at {led.log_end}, and is committed up to {led.high_watermark}"
            for number in state.replicas:
                if number == state.leader:
                    continue
                known = nodes[number].partitions.replication.followers.get((topic.id, index))
                log = None if known is None else nodes[number].partitions.replication.logs[known[0]]
                if log is None or (log.end_offset, log.high_watermark) != (led.log_end, led.high_watermark):
                    return f"node {number} has not caught up with {name}"
    return ""
