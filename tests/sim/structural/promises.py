"""What nodes tell each other by the controllers' listener, looked at in the moment it leaves: whether they may say so.

What is said rests on what is on the disk of who says it: after that it cannot be taken back.

Invariants that are checked
 1. Who grants a vote, or asks for one, has that vote on its disk, synced. In an epoch it is one, over all lives of its folder.
 2. A vote goes to a log that is no shorter than what the voter has synced.
 3. Who hears from a leader grants no pre-vote.
 4. Who fetches from the end of its log has synced all of it, and knows no less to be committed than before.
 5. Nobody fetches from one offset without a pause.
 6. A leader that answers fetches knows nothing to be committed before something of its own epoch is, and has changed voters as
    `voters.py` says.

What is found is kept, and told by `check`: here it would end up in the node that sends.
"""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.core.raft.states import UNKNOWN, Follower, Leader
from odradek.log.names import FileKind
from odradek.node.node import Node
from odradek.wire.frames import CORRELATION, FIXED_PART, decode_request, decode_response, split_frames
from odradek.wire.messages import FetchRequest, VoteRequest, VoteResponse
from tests.sim.structural.findings import Violated, hold
from tests.sim.structural.synced import synced_election, synced_last
from tests.sim.structural.voters import VoterChecks

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster, SimNode
    from tests.sim.network import SimSocket

CONTROLLER_PORT: Final = 9093
FRAME_BYTES_MAX: Final = 1 << 26
STORM_SECONDS: Final = 1.0
STORM_FETCHES: Final = 200
FETCH: Final = FetchRequest.schema.key
VOTE: Final = VoteRequest.schema.key


class PromiseChecks:
    def __init__(self, cluster: "SimCluster", began: Callable[[Node], None], answers: Callable[[Leader], None]) -> None:
        """`began` is told of every node that fetches for the first time in its life, `answers` of who is fetched from."""
        self.began = began
        self.answers = answers
        self.voters = VoterChecks(cluster)
        self.members = {member.host: member for member in cluster.members.values()}
        self.votes: dict[tuple[bytes, int], int] = {}  # by folder and epoch
        self.high_watermarks: dict[tuple[int, int], int] = {}  # by node and life
        self._fetches: dict[int, tuple[int, float, int]] = {}  # by node: from which offset, since when, and how often
        self.votes_seen = self.fetches_seen = 0
        self.wrong: list[str] = []
        self._streams: weakref.WeakKeyDictionary[SimSocket, bytearray] = weakref.WeakKeyDictionary()  # looked up only
        self._asked: weakref.WeakKeyDictionary[SimSocket, dict[int, tuple[int, int, VoteRequest | None]]]
        self._asked = weakref.WeakKeyDictionary()  # by who is to answer: of a correlation id key, version, and what was asked
        cluster.network.on_send = self._sent

    def check(self) -> None:
        hold(not self.wrong, "; ".join(self.wrong[:1]))

    def _sent(self, end: "SimSocket", data: bytes) -> None:
        is_request = end.peer_address[1] == CONTROLLER_PORT
        member = self.members.get(end.host.name)
        if member is None or member.loop is not end.loop or not (is_request or end.address[1] == CONTROLLER_PORT):
            return
        stream = self._streams.setdefault(end, bytearray())
        stream += data
        frames, used = split_frames(memoryview(bytes(stream)), FRAME_BYTES_MAX)
        del stream[:used]
        try:
            for frame in frames:
                if is_request:
                    self._requested(member, end.out.target, frame)
                else:
                    self._answered(member, end, frame)
        except Violated as violated:
            self.wrong.append(str(violated))

    def _requested(self, member: "SimNode", to: "SimSocket", frame: memoryview) -> None:
        key, version, correlation_id = FIXED_PART.unpack_from(frame)
        if key not in (FETCH, VOTE):
            return
        _, request = decode_request(frame)
        asked = self._asked.setdefault(to, {})
        if isinstance(request, VoteRequest):
            asked[correlation_id] = (key, version, request)
            wanted = request.topics[0].partitions[0]
            if not wanted.pre_vote:
                self._check_vote(member, wanted.replica_epoch, wanted.replica_id)
        elif isinstance(request, FetchRequest):
            asked[correlation_id] = (key, version, None)
            self._check_fetch(member, request)

    def _answered(self, member: "SimNode", end: "SimSocket", frame: memoryview) -> None:
        (correlation_id,) = CORRELATION.unpack_from(frame)
        key, version, request = self._asked.get(end, {}).pop(correlation_id, (-1, 0, None))
        if key == FETCH:
            self._check_leader(member.starting)
        if request is None:
            return
        _, response = decode_response(VoteResponse, frame, version)
        granted = bool(response.topics) and response.topics[0].partitions[0].vote_granted
        if granted:
            self._check_granted(member, request.topics[0].partitions[0])

    # -- votes

    def _check_granted(self, member: "SimNode", wanted: VoteRequest.PartitionData) -> None:
        who, candidate = f"node {member.number}", f"node {wanted.replica_id}"
        state = member.starting.quorum.machine._quorum.state
        if wanted.pre_vote:
            is_loyal = isinstance(state, Follower) and state.has_fetched and not state.leader_is_gone
            hold(not is_loyal, f"{who} hears from a leader in epoch {state.epoch}, and grants a pre-vote to {candidate}")
            return
        self._check_vote(member, wanted.replica_epoch, wanted.replica_id)
        last, theirs = synced_last(member.disks.medium, member.metadata_folder), (wanted.last_offset_epoch, wanted.last_offset)
        hold(theirs >= last, f"{who} with a log up to {last} (epoch, offset) votes for {candidate} with one up to {theirs}")

    def _check_vote(self, member: "SimNode", epoch: int, candidate: int) -> None:
        self.votes_seen += 1
        voted = self.votes.setdefault((member.starting.quorum.config.directory_id, epoch), candidate)
        hold(
            voted == candidate, f"node {member.number} votes for {voted} and for {candidate} in epoch {epoch}, as others are told"
        )
        saved = synced_election(member.disks.medium, member.metadata_folder)
        is_saved = saved.epoch > epoch or (saved.epoch == epoch and candidate in (saved.voted_id, saved.leader_id))
        hold(is_saved, f"node {member.number} votes for {candidate} in epoch {epoch}, and has synced {saved}")

    # -- fetches

    def _check_fetch(self, member: "SimNode", request: FetchRequest) -> None:
        """As far as one can see: what is not the last segment any more was synced when it was left. Records of an earlier epoch
        than the leader's are counted by nobody before one of its own is fetched: who looks for a leader, or has just heard of one
        while it asked, may not have synced them. What was asked before the log was cut, and leaves late, speaks of the log as it
        was."""
        self.fetches_seen += 1
        log, place = member.starting.quorum.log, (member.number, member.life)
        self._check_storm(member, log.end_offset)
        if place not in self.high_watermarks:
            self.began(member.starting)
        known, before = member.starting.quorum.machine.high_watermark, self.high_watermarks.get(place, UNKNOWN)
        hold(known >= before, f"node {member.number} knew that {before} of the metadata is committed, and knows {known} now")
        self.high_watermarks[place] = known
        quorum = member.starting.quorum.machine._quorum
        asked = request.topics[0].partitions[0] if request.topics else None
        is_counted = asked is not None and isinstance(quorum.state, Follower) and asked.last_fetched_epoch == quorum.state.epoch
        if asked and is_counted and (asked.last_fetched_epoch, asked.fetch_offset) == quorum.last:
            file = member.disks.medium.node(log.segments[-1].path(FileKind.LOG))
            is_synced = not file.unsynced or file.durable.startswith(bytes(file.content))  # a cut need not be
            hold(is_synced, f"node {member.number} fetches metadata from {log.end_offset}, and has not synced it so far")

    def _check_storm(self, member: "SimNode", offset: int) -> None:
        now_s = member.cluster.world.now_s
        before, since_s, count = self._fetches.get(member.number, (UNKNOWN, now_s, 0))
        if before != offset or now_s > since_s + STORM_SECONDS:
            since_s, count = now_s, 0
        self._fetches[member.number] = (offset, since_s, count + 1)
        hold(count < STORM_FETCHES, f"node {member.number} fetches metadata from {offset} again and again, and gets none")

    def _check_leader(self, node: Node) -> None:
        leader = node.quorum.machine.leadership
        if leader is not None:
            self.answers(leader)
            self.voters.check_leader(node.node_id, node.quorum, leader)
            known, start = leader.high_watermark, leader.epoch_start
            hold(
                known == UNKNOWN or known > start,
                f"node {node.node_id} says that {known} is committed, and its epoch {leader.epoch} begins at {start}",
            )
