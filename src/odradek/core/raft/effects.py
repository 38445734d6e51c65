"""What the machine of the quorum needs from its host, and what it has the host do.

The host does the effects of one input in their order, all of them, before it gives the next input. Writing to the log need not
be synced at once: the host says `synced` when it is. Requests that come in have a ticket, requests that go out a correlation id.

Invariants
 1. `Persist` is on disk before any effect behind it is done.
 2. Every request that came in is answered exactly once, by one of the `Answer`s.
 3. `AppendControl` and `Append` are at the end of the log: their offset is `log.end_offset`.
"""

from typing import Protocol, TypeAlias

import msgspec

from odradek.core.raft.batches import SnapshotId
from odradek.core.raft.election import NOBODY, Election
from odradek.core.raft.voters import Endpoints, ReplicaKey
from odradek.wire.control import ControlType
from odradek.wire.message import Message
from odradek.wire.messages import FetchResponse, FetchSnapshotResponse
from odradek.wire.varint import Buffer

Ticket: TypeAlias = object  # the host's, never looked into


class QuorumBroken(Exception):
    """A leader asked for what was committed to be cut off: this folder and the quorum are not of one cluster's history."""


class RaftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings `controller.quorum.*`, with Kafka's defaults, and who this node is."""

    cluster_id: str
    node_id: int
    directory_id: bytes
    endpoints: Endpoints  # of the controller's listeners here; empty where the node can never vote
    listener: str = "CONTROLLER"  # the one by which voters reach each other: the first of controller.listener.names
    bootstrap: tuple[tuple[str, int], ...] = ()  # controller.quorum.bootstrap.servers
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_bytes_max: int = 1024 * 1024
    fetch_snapshot_bytes_max: int = 1024 * 1024
    auto_join: bool = False  # controller.quorum.auto.join.enable, on a node that may vote

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)


class MetadataLog(Protocol):
    """What the machine asks of the log and its snapshots. All of it is as of now, with every effect done."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int:
        """Of the last record, or of the snapshot that an empty log begins with; 0 when there is nothing."""

    @property
    def oldest_snapshot(self) -> SnapshotId | None: ...
    @property
    def newest_snapshot(self) -> SnapshotId | None: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch of the log up to this one, and where it ends. The log begins with the epoch of the snapshot at its
        start, or with 0; before that there is nothing but the start."""

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        """Bytes; None when there is no such snapshot."""


class Node(msgspec.Struct, frozen=True):
    """Where a request goes. Ids below -1 are bootstrap servers, of which nobody knows yet who they are."""

    id: int
    host: str
    port: int


class Send(msgspec.Struct, frozen=True):
    """A request to another node. `responded` with the id, and with None when there will be no answer."""

    correlation_id: int
    node: Node
    request: Message


class Answer(msgspec.Struct, frozen=True):
    ticket: Ticket
    response: Message


class AnswerFetch(msgspec.Struct, frozen=True):
    """To be answered with the log's batches from `offset` on, put into the only partition of the response."""

    ticket: Ticket
    response: FetchResponse
    offset: int
    bytes_max: int


class AnswerSnapshot(msgspec.Struct, frozen=True):
    """To be answered with bytes of a snapshot, put into the only partition of the response."""

    ticket: Ticket
    response: FetchSnapshotResponse
    snapshot: SnapshotId
    position: int
    bytes_max: int


class Persist(msgspec.Struct, frozen=True):
    """quorum-state, synced before the next effect."""

    election: Election
    kraft_version: int
    voter_ids: list[int]


class AppendControl(msgspec.Struct, frozen=True):
    """One batch of control records, by the leader."""

    messages: list[tuple[ControlType, Message]]
    base_offset: int
    epoch: int


class Append(msgspec.Struct, frozen=True):
    """Batches of the leader, as they are."""

    records: Buffer
    base_offset: int


class Truncate(msgspec.Struct, frozen=True):
    end_offset: int


class WriteSnapshot(msgspec.Struct, frozen=True):
    """A piece of a snapshot that is being fetched. At position 0 whatever was there of an earlier attempt goes.
    When there is no room for it the host says `install_failed`."""

    snapshot: SnapshotId
    position: int
    data: Buffer


class InstallSnapshot(msgspec.Struct, frozen=True):
    """All of it is written. Once it is found sound and is synced, the log begins anew at its end, and the host says
    `installed`; when it is not sound, `install_failed`, and nothing else has changed."""

    snapshot: SnapshotId


class BecameLeader(msgspec.Struct, frozen=True):
    """All of the log up to `epoch_start` is committed when the high watermark is past it; decisions wait for that."""

    epoch: int
    epoch_start: int


class LostLeadership(msgspec.Struct, frozen=True):
    epoch: int


class LeaderIs(msgspec.Struct, frozen=True):
    """Who leads an epoch, NOBODY when that is not known."""

    leader_id: int
    epoch: int
    endpoints: Endpoints = ()

    @property
    def is_known(self) -> bool:
        return self.leader_id != NOBODY


class HighWatermark(msgspec.Struct, frozen=True):
    offset: int


class Probe(msgspec.Struct, frozen=True):
    """Connect to the leader anew; where that is refused, say `refused`."""

    node: Node


Effect: TypeAlias = (
    Send
    | Answer
    | AnswerFetch
    | AnswerSnapshot
    | Persist
    | AppendControl
    | Append
    | Truncate
    | WriteSnapshot
    | InstallSnapshot
    | BecameLeader
    | LostLeadership
    | LeaderIs
    | HighWatermark
    | Probe
)
