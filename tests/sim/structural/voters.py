"""Who votes in the metadata quorum, and how that changes.

Invariants that are checked
 1. A leader that the committed voters do not name has resigned.
 2. Voters change one at a time: above what a leader knows to be committed there is one change at most.
 3. Who a leader adds has fetched from it: the beginning of its epoch is on the disk of the new voter.
"""

from typing import TYPE_CHECKING

from odradek.core.raft.states import UNKNOWN, Leader
from odradek.node.quorum import Quorum
from tests.sim.structural.findings import hold
from tests.sim.structural.synced import synced_last

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster


class VoterChecks:
    def __init__(self, cluster: "SimCluster") -> None:
        self.cluster = cluster
        self.changes: dict[tuple[int, int], None] = {}  # of voters, by epoch and offset

    def check(self) -> None:
        for number, node in self.cluster.nodes.items():
            leader = node.quorum.machine.leadership
            if leader is not None:
                self.check_leader(number, node.quorum, leader)

    def check_leader(self, number: int, quorum: Quorum, leader: Leader) -> None:
        if leader.high_watermark == UNKNOWN:
            return
        history = quorum.machine._quorum.history
        rows, named = history._voters.rows, {voter.key for voter in history.voters.voters}
        open_changes = [offset for offset, _ in rows if offset >= leader.high_watermark]
        hold(
            bool(open_changes) or leader.key in named,
            f"node {number} leads the quorum in epoch {leader.epoch}, and is none of the voters {history.voters.ids}",
        )
        hold(
            len(open_changes) <= 1,
            f"node {number} changes the voters at {open_changes}, and {leader.high_watermark} is committed",
        )
        offset, before = history.voters_offset, history.voters_before
        if offset <= leader.epoch_start or before is None or (leader.epoch, offset) in self.changes:
            return
        self.changes[leader.epoch, offset] = None
        for key in sorted(named - {voter.key for voter in before.voters}):
            added = self.cluster.members[key.id]
            _, end = synced_last(added.disks.medium, added.metadata_folder)
            hold(
                end > leader.epoch_start,
                f"node {number} makes node {key.id} a voter, whose metadata ends at {end}: epoch {leader.epoch} "
                f"begins at {leader.epoch_start}",
            )
