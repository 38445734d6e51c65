"""The leader's side: it begins its epoch, is fetched from, and says what is committed.

Invariants
 1. An offset is committed when a majority of the voters have synced it, this node counted up to its own sync, and a record of
    this epoch is below it.
 2. Who fetches is told first where its log and this one part; only a fetch that fits counts.
 3. A leader from which a majority has not fetched for 1.5 fetch timeouts resigns.
"""

from typing import Final

from odradek.core.metadata.topic_names import CLUSTER_METADATA
from odradek.core.raft.batches import SnapshotId, leader_change, voters_messages
from odradek.core.raft.effects import AnswerFetch, AnswerSnapshot, AppendControl, BecameLeader, Ticket
from odradek.core.raft.history import NOWHERE
from odradek.core.raft.quorum_state import QuorumState
from odradek.core.raft.requests import (
    FETCH_WAIT_MS_MAX,
    Asked,
    begin_quorum_epoch_request,
    fetch_is_of_metadata,
    fetch_response,
    fetch_snapshot_response,
)
from odradek.core.raft.states import NEVER_MS, UNKNOWN, Candidate, Leader, Replica, Resigned, WaitingFetch
from odradek.core.raft.voters import ReplicaKey, Voter
from odradek.wire.control import ControlType
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse

CHECK_QUORUM_FACTOR: Final = 1.5
OBSERVER_SESSION_MS: Final = 300_000
OBSERVERS_MAX: Final = 10_000
FORMAT_SNAPSHOT: Final = SnapshotId(0, 0)  # what formatting left; it is never given to others
WAITS_FOR_ANY: Final = 2**63 - 1  # the high watermark of a fetch that does not want to hear of it


class Leading:
    def __init__(self, quorum: QuorumState) -> None:
        self.quorum = quorum

    def begin(self, won: Candidate, now_ms: int) -> None:
        quorum, config, history = self.quorum, self.quorum.config, self.quorum.history
        start = quorum.log.end_offset
        leader = Leader(
            won.epoch,
            start,
            config.key,
            {voter.id: Replica(voter.key) for voter in history.voters.voters},
            now_ms + int(config.fetch_timeout_ms * CHECK_QUORUM_FACTOR),
            now_ms,
        )
        voter_ids = history.voters.ids
        quorum.become(leader)
        messages = [leader_change(config.node_id, voter_ids, won.ballot.granted)]
        here = Voter(config.node_id, config.directory_id, config.endpoints)
        named = history.voters.find(config.node_id)
        if not history.kraft_version:
            leader.fixed_voters = history.voters.with_voter(here)
        elif named is not None and (history.voters_offset < 0 or named != here):
            assert history.voters_offset != NOWHERE
            messages += voters_messages(history.kraft_version, history.voters.with_voter(here))
        self.append_control(messages)
        quorum.do(BecameLeader(won.epoch, start))

    def append_control(self, messages: list[tuple[ControlType, Message]]) -> int:
        """Appends a batch, which holds at once; gives the offset of its last record."""
        quorum = self.quorum
        assert isinstance(quorum.state, Leader)
        base_offset = quorum.log.end_offset
        assert not any(isinstance(effect, AppendControl) for effect in quorum.effects), "one batch in an input"
        quorum.do(AppendControl(messages, base_offset, quorum.epoch))
        for offset, (_, message) in enumerate(messages, start=base_offset):
            quorum.history.note(offset, message)
        quorum.state.take_voters(quorum.history.voters)
        return base_offset + len(messages) - 1

    # -- the high watermark

    def count(self, leader: Leader) -> bool:
        """Looks what is committed; whether that is more than before."""
        here = leader.voters.get(leader.key.id)
        if here is not None:
            here.end_offset = self.quorum.synced_offset
        ends = sorted((voter.end_offset for voter in leader.voters.values()), reverse=True)
        committed = ends[len(ends) // 2]
        if committed <= max(leader.epoch_start, leader.high_watermark):
            return False
        leader.high_watermark = committed
        self.quorum.advance(committed)
        return True

    # -- fetches

    def fetch(self, ticket: Ticket, request: FetchRequest, asked: Asked, now_ms: int) -> None:
        quorum = self.quorum
        if request.cluster_id not in (None, quorum.config.cluster_id):
            quorum.answer(ticket, FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        if not fetch_is_of_metadata(request):
            quorum.answer(ticket, FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        wanted = request.topics[0].partitions[0]
        error = self._error(request, wanted)
        if error is not None:
            quorum.answer(ticket, fetch_response(quorum.leader, asked, error, log_start_offset=quorum.log.start_offset))
            return
        leader = quorum.state
        assert isinstance(leader, Leader)
        response = fetch_response(quorum.leader, asked, ErrorCode.NONE, log_start_offset=quorum.log.start_offset)
        if self._is_apart(response.responses[0].partitions[0], wanted):
            response.responses[0].partitions[0].high_watermark = leader.high_watermark
            quorum.answer(ticket, response)
            return
        self._count_fetch(leader, replica_of(request, wanted), wanted.fetch_offset, now_ms)
        waiting = WaitingFetch(
            ticket, request, asked.version, asked.listener, now_ms + min(request.max_wait_ms, FETCH_WAIT_MS_MAX)
        )
        if not self._answer_fetch(leader, waiting, now_ms):
            leader.waiting.append(waiting)

    def _error(self, request: FetchRequest, wanted: FetchRequest.FetchPartition) -> ErrorCode | None:
        if request.max_wait_ms < 0 or wanted.fetch_offset < 0:
            return ErrorCode.INVALID_REQUEST
        if not 0 <= wanted.last_fetched_epoch <= wanted.current_leader_epoch:
            return ErrorCode.INVALID_REQUEST
        error = self.leader_error(wanted.current_leader_epoch)
        if error is None and replica_of(request, wanted).id == self.quorum.config.node_id:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return error

    def leader_error(self, epoch: int) -> ErrorCode | None:
        """Why a request to the leader of an epoch is not for this node."""
        if epoch < self.quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return None if isinstance(self.quorum.state, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _is_apart(self, partition: FetchResponse.PartitionData, wanted: FetchRequest.FetchPartition) -> bool:
        """Whether the logs part, or the follower needs a snapshot; then the answer says so."""
        log = self.quorum.log
        offset, epoch = wanted.fetch_offset, wanted.last_fetched_epoch
        newest, oldest = log.newest_snapshot, log.oldest_snapshot
        is_below = oldest is not None and (
            offset < log.start_offset or (offset == log.start_offset and epoch != oldest.epoch) or epoch < oldest.epoch
        )
        is_empty = offset == 0 and newest is not None and newest != FORMAT_SNAPSHOT
        if is_empty or (is_below and not offset == log.start_offset == 0):
            assert newest is not None
            partition.snapshot_id = FetchResponse.SnapshotId(end_offset=newest.offset, epoch=newest.epoch)
            return True
        if offset == log.start_offset == 0:
            return False
        last_epoch, end_offset = log.end_offset_for_epoch(epoch)
        if last_epoch != epoch or end_offset < offset:
            partition.diverging_epoch = FetchResponse.EpochEndOffset(epoch=last_epoch, end_offset=end_offset)
            return True
        return False

    def _count_fetch(self, leader: Leader, key: ReplicaKey, offset: int, now_ms: int) -> None:
        if key.id < 0:  # no replica
            return
        self._forget_observers(leader, now_ms)
        replica = leader.replica(key)
        replica.fetched(offset, self.quorum.log.end_offset, now_ms)
        self.heard(leader, replica, now_ms)
        if leader.is_voter(replica):
            self.count(leader)

    def _forget_observers(self, leader: Leader, now_ms: int) -> None:
        if len(leader.observers) >= OBSERVERS_MAX or any(
            now_ms - replica.last_fetch_ms >= OBSERVER_SESSION_MS for replica in leader.observers.values()
        ):
            kept = [replica for replica in leader.observers.values() if now_ms - replica.last_fetch_ms < OBSERVER_SESSION_MS]
            leader.observers = {replica.key: replica for replica in kept[-OBSERVERS_MAX // 2 :]}

    def heard(self, leader: Leader, replica: Replica, now_ms: int) -> None:
        """A voter fetched: with a majority of them the leader stays."""
        if leader.is_voter(replica) and replica.key.id not in leader.fetched:
            leader.fetched.append(replica.key.id)
        needed = len(leader.voters) // 2 + 1 - (leader.key.id in leader.voters)
        if len(leader.fetched) >= needed:
            leader.fetched.clear()
            leader.check_deadline_ms = now_ms + int(self.quorum.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    def _answer_fetch(self, leader: Leader, waiting: WaitingFetch, now_ms: int) -> bool:
        """Answers when there is something to say, or when it has waited long enough."""
        quorum = self.quorum
        wanted = waiting.request.topics[0].partitions[0]
        has_records = quorum.log.end_offset > wanted.fetch_offset
        has_news = wanted.high_watermark != WAITS_FOR_ANY and leader.high_watermark > wanted.high_watermark
        if not (has_records or has_news or waiting.deadline_ms <= now_ms):
            return False
        response = fetch_response(
            quorum.leader,
            Asked(waiting.version, waiting.listener),
            ErrorCode.NONE,
            high_watermark=leader.high_watermark,
            log_start_offset=quorum.log.start_offset,
        )
        if has_records:
            bytes_max = min(waiting.request.max_bytes, wanted.partition_max_bytes or waiting.request.max_bytes)
            quorum.do(AnswerFetch(waiting.ticket, response, wanted.fetch_offset, bytes_max))
        else:
            quorum.answer(waiting.ticket, response)
        return True

    # -- snapshots

    def fetch_snapshot(self, ticket: Ticket, request: FetchSnapshotRequest, asked: Asked, now_ms: int) -> None:
        quorum = self.quorum
        if request.cluster_id not in (None, quorum.config.cluster_id):
            quorum.answer(ticket, FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            quorum.answer(ticket, FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST))
            return
        topic, wanted = request.topics[0], request.topics[0].partitions[0]
        if topic.name != CLUSTER_METADATA or wanted.partition != 0:
            response = fetch_snapshot_response(quorum.leader, asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            response.topics[0].name, response.topics[0].partitions[0].index = topic.name, wanted.partition
            response.topics[0].partitions[0].current_leader = FetchSnapshotResponse.LeaderIdAndEpoch()
            quorum.answer(ticket, response)
            return
        snapshot = SnapshotId(wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch)
        size = quorum.log.snapshot_size(snapshot)
        error = self.leader_error(wanted.current_leader_epoch)
        if error is None and (size is None or snapshot == FORMAT_SNAPSHOT):
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif error is None and size is not None and not 0 <= wanted.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if error is not None:
            quorum.answer(ticket, fetch_snapshot_response(quorum.leader, asked, error))
            return
        leader = quorum.state
        assert isinstance(leader, Leader)
        assert size is not None
        if request.replica_id >= 0:
            self.heard(leader, leader.replica(ReplicaKey(request.replica_id, wanted.replica_directory_id)), now_ms)
        response = fetch_snapshot_response(quorum.leader, asked, ErrorCode.NONE, snapshot, size=size, position=wanted.position)
        quorum.do(AnswerSnapshot(ticket, response, snapshot, wanted.position, request.max_bytes))

    # -- time

    def poll(self, leader: Leader, now_ms: int) -> int:
        is_alone = len(leader.voters) == 1 and leader.key.id in leader.voters
        check_deadline_ms = NEVER_MS if is_alone else leader.check_deadline_ms
        if leader.leaves or check_deadline_ms <= now_ms:
            self.resign(leader, now_ms)
            return now_ms
        leader.waiting = [waiting for waiting in leader.waiting if not self._answer_fetch(leader, waiting, now_ms)]
        again_ms = min([check_deadline_ms, *(waiting.deadline_ms for waiting in leader.waiting)])
        return min(again_ms, NEVER_MS if is_alone else self._tell_begin(leader, now_ms))

    def _tell_begin(self, leader: Leader, now_ms: int) -> int:
        """Tells voters that do not fetch who leads."""
        quorum = self.quorum
        if leader.begin_deadline_ms > now_ms:
            return leader.begin_deadline_ms
        period_ms = max(quorum.config.fetch_timeout_ms // 2, 1)
        for voter in leader.voters.values():
            node = quorum.voter_node(voter.key.id)
            is_silent = voter.last_fetch_ms == UNKNOWN or now_ms - voter.last_fetch_ms >= period_ms
            if voter.key.id != leader.key.id and node is not None and is_silent:
                request = begin_quorum_epoch_request(quorum.config.cluster_id, quorum.leader, voter.key)
                quorum.send(node, lambda request=request: request, now_ms)  # type: ignore[misc]
        leader.begin_deadline_ms = now_ms + period_ms
        return leader.begin_deadline_ms

    def resign(self, leader: Leader, now_ms: int) -> None:
        """Gives the epoch up, to whoever has most of the log."""
        quorum = self.quorum
        others = [voter for voter in leader.voters.values() if voter.key.id != leader.key.id]
        successors = [voter.key for voter in sorted(others, key=lambda voter: -voter.end_offset)]
        unacknowledged = [voter.key.id for voter in others]
        quorum.become(Resigned(leader.epoch, quorum.election_deadline_ms(now_ms), leader.key, unacknowledged, successors))


def replica_of(request: FetchRequest, wanted: FetchRequest.FetchPartition) -> ReplicaKey:
    """Who fetches: from version 15 on it stands in the replica's state."""
    replica_id = request.replica_state.replica_id if request.replica_state.replica_id != UNKNOWN else request.replica_id
    return ReplicaKey(replica_id, wanted.replica_directory_id)
