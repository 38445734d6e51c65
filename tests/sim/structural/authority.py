"""Whether who leads the quorum still may, and whether who does not disturbs those who do. Looked at over time.

Invariants that are checked
 1. A leader of the quorum from which no majority has fetched for long has resigned, once its process had time to.
 2. A node that nobody would elect does not raise its epoch: none is far ahead of the last epoch that was led.
 3. The lease of a broker ends at the latest a session timeout from now, whatever its wall clock says.
"""

from typing import TYPE_CHECKING, Final

from odradek.core.partition.broker_session import FOREVER_MS
from odradek.core.raft.election import NOBODY
from odradek.core.raft.states import Follower, Leader, Replica
from odradek.node.node import Node
from odradek.wire.message import NIL_UUID
from tests.sim.machine import MS_PER_SECOND
from tests.sim.structural.findings import hold

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster, SimNode

SLACK_MS: Final = 2000  # for a process that was held up to do what is due
EPOCHS_AHEAD_MAX: Final = 8  # elections that came to nothing, one after the other


class AuthorityChecks:
    def __init__(self) -> None:
        self.epoch_led = 0
        self._idle_ms: dict[tuple[int, int], int] = {}  # by node and life: when it was held up, followed, or led otherwise
        self._downloaded_ms: dict[tuple[int, int, int, int], int] = {}  # by node, life, epoch and voter: when it was given a part
        self._led: dict[tuple[int, int], tuple[int, list[int]]] = {}  # epoch, which may be another by the next look, and voters

    def check(self, cluster: "SimCluster") -> None:
        now_ms = int(cluster.world.now_s * MS_PER_SECOND)
        known = [node.quorum.machine.leader for node in cluster.nodes.values()]
        self.epoch_led = max([self.epoch_led, *(leader.epoch for leader in known if leader.leader_id != NOBODY)])
        for number, node in cluster.nodes.items():
            member, ahead = cluster.members[number], node.quorum.epoch - self.epoch_led
            hold(
                ahead <= EPOCHS_AHEAD_MAX,
                f"node {number} is in epoch {node.quorum.epoch}, where nobody has led the quorum after {self.epoch_led}",
            )
            check_lease(number, node)
            if node.quorum.machine.is_leader:
                self._check_majority(cluster, member, node, now_ms)
            else:
                self._idle_ms[number, member.life] = now_ms

    def answers(self, leader: Leader) -> None:
        """One that others have heard of. By the next look all may be at the next election."""
        self.epoch_led = max(self.epoch_led, leader.epoch)

    def _check_majority(self, cluster: "SimCluster", member: "SimNode", node: Node, now_ms: int) -> None:
        place, leader = (member.number, member.life), node.quorum.machine.leadership
        assert leader is not None
        assert member.loop is not None
        is_held_up = member.loop.is_paused or member.loop.busy_until_s * MS_PER_SECOND > now_ms + 1
        led = (leader.epoch, list(leader.voters))
        if is_held_up or place not in self._idle_ms or self._led.get(place) != led:
            self._idle_ms[place] = now_ms
        self._led[place] = led
        voters = [voter for number, voter in leader.voters.items() if number != member.number]
        others = sorted((self._fetched_ms(cluster, place, leader, voter) for voter in voters), reverse=True)
        needed = len(leader.voters) // 2 + 1 - (member.number in leader.voters)  # beside itself
        if needed == 0:
            return
        heard_ms = max(others[needed - 1], self._idle_ms[place])
        limit_ms = 2 * node.quorum.config.fetch_timeout_ms + SLACK_MS
        hold(
            now_ms - heard_ms <= limit_ms,
            f"node {member.number} leads the quorum, and no majority has fetched from it for {now_ms - heard_ms} ms",
        )

    def _fetched_ms(self, cluster: "SimCluster", place: tuple[int, int], leader: Leader, voter: Replica) -> int:
        """When a voter fetched last: the log, as its leader knows, or a snapshot, as it knows itself. Both keep a leader."""
        key, peer = (*place, leader.epoch, voter.key.id), cluster.nodes.get(voter.key.id)
        if peer is not None and voter.key.directory_id in (NIL_UUID, peer.quorum.config.directory_id):
            state = peer.quorum.machine._quorum.state
            download = state.download if isinstance(state, Follower) and state.leader_id == place[0] else None
            if isinstance(state, Follower) and state.epoch == leader.epoch and download is not None and not download.is_whole:
                self._downloaded_ms[key] = state.fetch_deadline_ms - peer.quorum.config.fetch_timeout_ms
        return max(voter.last_fetch_ms, self._downloaded_ms.get(key, 0))


def check_lease(number: int, node: Node) -> None:
    session = getattr(node, "session", None)  # a controller has none
    if session is not None and session.timeout_ms < FOREVER_MS:
        left_ms = session.certain_until_ms - node.machine.boot_ms()
        hold(left_ms <= session.timeout_ms, f"node {number} believes for {left_ms} ms in what it leads, and is fenced sooner")
