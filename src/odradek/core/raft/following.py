"""The follower's side: it fetches the log, or a snapshot, from whoever leads, and looks for a leader where none is known.

Invariants
 1. The next fetch leaves when all that was fetched is synced: its offset says so to the leader.
 2. Only an answer to a fetch at the end of the log as it is now changes the log.
 3. Nothing that is committed is cut off.
"""

from odradek.core.raft.batches import SnapshotId, read_batch
from odradek.core.raft.effects import Append, InstallSnapshot, QuorumBroken, Truncate, WriteSnapshot
from odradek.core.raft.quorum_state import QuorumState
from odradek.core.raft.requests import fetch_request, fetch_snapshot_request
from odradek.core.raft.states import NEVER_MS, Download, Follower
from odradek.core.raft.voters import Voter
from odradek.wire.batch import check, read_header
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddRaftVoterRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
from odradek.wire.varint import Buffer


class Following:
    def __init__(self, quorum: QuorumState) -> None:
        self.quorum = quorum

    # -- what to send next

    def is_busy(self) -> bool:
        """Whether what was fetched is still on its way to the disk."""
        quorum = self.quorum
        is_written = any(isinstance(effect, Append | Truncate) for effect in quorum.effects)  # when this input is done
        return quorum.is_installing or is_written or quorum.synced_offset < quorum.log.end_offset

    def poll(self, state: Follower, now_ms: int) -> int:
        quorum = self.quorum
        if any(isinstance(effect, Truncate) for effect in quorum.effects):
            return now_ms  # when the log is cut
        if quorum.is_stopping or self.is_busy():
            return NEVER_MS
        deadline_ms = state.fetch_deadline_ms if quorum.may_campaign else NEVER_MS
        if state.update_deadline_ms <= now_ms:
            request = self._voter_request(state)
            node = quorum.node_of(state.leader_id, state.endpoints)
            if request is None or node is None:
                state.update_deadline_ms = now_ms + quorum.config.fetch_timeout_ms
            elif quorum.outbox.ready_ms(node.id, now_ms) <= now_ms:
                state.update_deadline_ms = now_ms + quorum.config.fetch_timeout_ms
                return min(deadline_ms, quorum.send(node, lambda: request, now_ms))
        return min(deadline_ms, self._send_fetch(state, now_ms))

    def _send_fetch(self, state: Follower, now_ms: int) -> int:
        """To the leader; when it does not answer, to anybody who may know of another."""
        quorum = self.quorum
        node = quorum.node_of(state.leader_id, state.endpoints)
        if node is None:
            return self.ask_anybody(now_ms)
        if quorum.outbox.is_paused(node.id, now_ms) or quorum.outbox.has_timed_out(node.id, now_ms):
            quorum.outbox.pending.pop(node.id, None)
            again_ms = self.ask_anybody(now_ms)
            return min(again_ms, quorum.send(node, lambda: self._request(state), now_ms))
        return quorum.send(node, lambda: self._request(state), now_ms)

    def ask_anybody(self, now_ms: int) -> int:
        """A fetch to find out who leads."""
        quorum = self.quorum
        nodes = quorum.bootstrap_nodes()
        if quorum.is_stopping or not nodes:
            return NEVER_MS
        ready_ms = {node.id: quorum.outbox.ready_ms(node.id, now_ms) for node in nodes}
        asked = [node for node in nodes if node.id in quorum.outbox.pending and ready_ms[node.id] > now_ms]
        ready = [node for node in nodes if ready_ms[node.id] <= now_ms]
        if asked:  # one of them at a time
            return min(ready_ms[node.id] for node in asked)
        if not ready:
            return min(ready_ms.values())
        return quorum.send(ready[quorum.chance(len(ready))], self._fetch_request, now_ms)

    def _request(self, state: Follower) -> Message:
        config = self.quorum.config
        if state.download is None:
            return self._fetch_request()
        return fetch_snapshot_request(
            config.cluster_id,
            config.key,
            state.epoch,
            state.download.snapshot,
            state.download.position,
            config.fetch_snapshot_bytes_max,
        )

    def _fetch_request(self) -> Message:
        quorum, config = self.quorum, self.quorum.config
        return fetch_request(
            config.cluster_id, config.key, quorum.epoch, quorum.last, quorum.high_watermark, config.fetch_bytes_max
        )

    def _voter_request(self, state: Follower) -> Message | None:
        """What this node wants changed in the voters: where it is, or that it becomes one."""
        quorum, config, voters = self.quorum, self.quorum.config, self.quorum.history.voters
        if not config.endpoints:
            return None
        here = Voter(config.node_id, config.directory_id, config.endpoints)
        if not quorum.history.kraft_version:
            has_to_tell = quorum.is_voter and not state.has_told
            return update_voter_request(config.cluster_id, quorum.epoch, here) if has_to_tell else None
        named = voters.find(config.node_id)
        if quorum.is_voter:
            return None if named == here else update_voter_request(config.cluster_id, quorum.epoch, here)
        if not config.auto_join:
            return None
        if named is not None:  # the same node with a folder that it has lost
            return RemoveRaftVoterRequest(cluster_id=config.cluster_id, voter_id=named.id, voter_directory_id=named.directory_id)
        return AddRaftVoterRequest(
            cluster_id=config.cluster_id,
            timeout_ms=config.request_timeout_ms,
            voter_id=here.id,
            voter_directory_id=here.directory_id,
            listeners=[AddRaftVoterRequest.Listener(name=name, host=host, port=port) for name, host, port in here.endpoints],
            ack_when_committed=False,
        )

    # -- what an answer means

    def fetched(self, request: FetchRequest, response: FetchResponse, now_ms: int) -> bool:
        """The epoch is this one, and the leader known. False when it is to be left alone for a while."""
        state, quorum = self.quorum.state, self.quorum
        partition = response.responses[0].partitions[0]
        if partition.error_code != ErrorCode.NONE or not isinstance(state, Follower):
            return False
        asked = request.topics[0].partitions[0]
        if (asked.last_fetched_epoch, asked.fetch_offset) != quorum.last or self.is_busy():
            return True  # the log is another one than when this was asked for
        if partition.diverging_epoch.epoch >= 0:
            self._truncate(partition.diverging_epoch)
        elif partition.snapshot_id.epoch >= 0 or partition.snapshot_id.end_offset >= 0:
            snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
            if min(snapshot) < 0 or snapshot.offset <= quorum.high_watermark:
                return False
            state.download = Download(snapshot)
        else:
            end_offset = self._append(partition.records or b"")
            if end_offset is None:
                return False
            quorum.advance(min(partition.high_watermark, end_offset))
        self._heard(state, now_ms)
        return True

    def told(self, error: int) -> None:
        """The leader's answer to where this voter is and what it supports; an old one does not want to know."""
        state = self.quorum.state
        if isinstance(state, Follower) and error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            state.has_told = True

    def _heard(self, state: Follower, now_ms: int) -> None:
        state.has_fetched, state.leader_is_gone, state.retries = True, False, 0
        state.fetch_deadline_ms = now_ms + self.quorum.config.fetch_timeout_ms

    def _truncate(self, diverging: FetchResponse.EpochEndOffset) -> None:
        """Cuts the log where it parts from the leader's, or where its own epochs say that it may."""
        quorum = self.quorum
        epoch, end_offset = quorum.log.end_offset_for_epoch(diverging.epoch)
        cut = min(end_offset, diverging.end_offset) if epoch == diverging.epoch else end_offset
        if cut < quorum.high_watermark:
            raise QuorumBroken(
                f"the leader of epoch {quorum.epoch}, node {quorum.leader.leader_id}, has a metadata log that parts from this "
                f"one at offset {cut}, below {quorum.high_watermark} which was committed: one of the two folders is not of this "
                "cluster or was set back; format the folder of the node that is wrong, and let it join anew"
            )
        quorum.do(Truncate(cut))
        quorum.synced_offset = min(quorum.synced_offset, cut)
        quorum.history.truncate(cut)

    def _append(self, records: Buffer) -> int | None:
        """Has the whole batches appended; gives the end of the log after them, None when they are not the log's next ones."""
        quorum = self.quorum
        position, end_offset = 0, quorum.log.end_offset
        noted: list[tuple[int, Message]] = []
        try:
            while position < len(records):
                header = read_header(records, position)
                if position + header.size > len(records):  # the fetch was cut at its size
                    break
                check(records, position, header)
                if header.base_offset != end_offset or header.leader_epoch > quorum.epoch:
                    return None
                if header.is_control:
                    noted += read_batch(records, position, header).records
                position += header.size
                end_offset = header.last_offset + 1
        except ProtocolError:
            if position == 0:
                return None  # of a batch that is cut within its header, nothing is known
        if position:
            quorum.do(Append(memoryview(records)[:position], quorum.log.end_offset))
            for offset, message in noted:
                quorum.history.note(offset, message)
        return end_offset

    def fetched_snapshot(self, request: FetchSnapshotRequest, response: FetchSnapshotResponse, now_ms: int) -> bool:
        state, quorum = self.quorum.state, self.quorum
        partition = response.topics[0].partitions[0]
        if not isinstance(state, Follower) or state.download is None:
            return True
        asked = request.topics[0].partitions[0]
        snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        error = partition.error_code
        if error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE) or min(snapshot) < 0:
            state.download = None  # the leader has let go of it: the next fetch tells of another
            self._heard(state, now_ms)
            return True
        download = state.download
        is_next = asked.position == partition.position == download.position and snapshot == download.snapshot
        if error != ErrorCode.NONE or not is_next:
            return False
        data = partition.unaligned_records
        assert isinstance(data, bytes | bytearray | memoryview)
        if not data or download.position + len(data) > partition.size:
            return False
        quorum.do(WriteSnapshot(snapshot, download.position, data))
        download.position += len(data)
        if download.position == partition.size:
            download.is_whole = quorum.is_installing = True
            quorum.do(InstallSnapshot(snapshot))
        self._heard(state, now_ms)
        return True

    def give_up_snapshot(self) -> None:
        """The next fetch tells of another."""
        state = self.quorum.state
        if isinstance(state, Follower) and state.download is not None and not state.download.is_whole:
            state.download = None

    def installed(self, now_ms: int) -> None:
        """The disk has what was fetched. However long that took, the leader has as long again."""
        state = self.quorum.state
        if isinstance(state, Follower):
            if state.download is not None and state.download.is_whole:
                state.download = None
            if not state.leader_is_gone:
                state.fetch_deadline_ms = max(state.fetch_deadline_ms, now_ms + self.quorum.config.fetch_timeout_ms)


def update_voter_request(cluster_id: str, epoch: int, voter: Voter) -> UpdateRaftVoterRequest:
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
        listeners=[UpdateRaftVoterRequest.Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints],
        kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=voter.kraft_version_min, max_supported_version=voter.kraft_version_max
        ),
    )
